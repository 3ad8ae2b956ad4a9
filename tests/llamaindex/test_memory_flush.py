"""When a history is cut: rarely, between exchanges, and at the same place however it came."""

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, MessageRole

from llama_index_headstay.memory_flush import exchange_starts, flush_count

SIZES = st.lists(st.integers(0, 9), max_size=40)


def _starts(length: int, every: int) -> list[int]:
    return list(range(0, length, every))


def test_worked_by_hand() -> None:
    # Six exchanges of 2 + 3 tokens. The fifth passes 20; then at most 10 are kept, which is messages 6 to 8.
    sizes, starts = [2, 3] * 6, [0, 2, 4, 6, 8, 10]
    assert [flush_count(sizes[:end], starts, limit=20, step=10) for end in range(13)] == [
        *[0] * 9,  # up to 20 tokens
        6,  # 22 tokens: from message 6 on there are 7, from message 4 on 12
        6,
        6,
        6,
    ]


def test_the_last_exchange_is_never_cut() -> None:
    assert flush_count([1, 50, 50, 1], [0], limit=20, step=10) == 0
    assert flush_count([5, 5, 50, 50], [0, 2], limit=20, step=10) == 2
    assert flush_count([], [], limit=20, step=10) == 0
    assert flush_count([30], [], limit=20, step=10) == 0


def test_a_step_of_the_whole_limit_keeps_the_last_exchange() -> None:
    assert flush_count([5, 5, 5, 5, 5], [0, 2, 4], limit=20, step=20) == 4


@given(SIZES, st.integers(1, 4), st.integers(1, 40), st.integers(0, 40))
def test_whole_exchanges_go_and_the_rest_fits(sizes: list[int], every: int, limit: int, step: int) -> None:
    starts = _starts(len(sizes), every)
    count = flush_count(sizes, starts, limit=limit, step=step)
    assert count == 0 or count in starts
    if sum(sizes) <= limit:
        assert count == 0
    assert sum(sizes[count:]) <= limit or count == (starts[-1] if starts else 0)


@given(SIZES, st.integers(1, 4), st.integers(1, 40), st.integers(0, 40))
def test_a_history_handed_over_whole_is_cut_where_one_that_grew_was(
    sizes: list[int], every: int, limit: int, step: int
) -> None:
    starts = _starts(len(sizes), every)
    gone = 0
    for end in range(1, len(sizes) + 1):
        later = [start - gone for start in starts if gone <= start < end]
        gone += flush_count(sizes[gone:end], later, limit=limit, step=step)
        assert gone == flush_count(sizes[:end], [start for start in starts if start < end], limit=limit, step=step)


def test_exchanges_start_at_the_first_of_some_human_messages() -> None:
    roles = [MessageRole.SYSTEM, *"uuatau"]
    known = {"u": MessageRole.USER, "a": MessageRole.ASSISTANT, "t": MessageRole.TOOL}
    assert exchange_starts([ChatMessage("x", role=known.get(role, MessageRole.SYSTEM)) for role in roles]) == [1, 6]
