"""vLLM's rules by hand: blocks of 4 tokens, a few of them, and what each request finds, takes and leaves."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator.vllm_cache import Held, VLLMPool, VLLMRequest, admit, empty_pool, finish

BLOCK = 4


def pool_of(usable: int) -> VLLMPool:
    """Return an empty pool; the placeholder comes on top."""
    return empty_pool(block=BLOCK, blocks=usable + 1)


def begin(pool: VLLMPool, prompt: Sequence[int], answer: Sequence[int] = (), salt: str = "") -> tuple[VLLMPool, Held]:
    admitted = admit(pool, VLLMRequest(prompt=prompt, answer=answer, salt=salt))
    assert admitted is not None
    return admitted


def ask(pool: VLLMPool, prompt: Sequence[int], answer: Sequence[int] = (), salt: str = "") -> tuple[VLLMPool, Held]:
    """Let a request run from its beginning to its end."""
    pool, held = begin(pool, prompt, answer, salt)
    return finish(pool, held), held


A, B, C = (tuple(range(start, start + 9)) for start in (100, 200, 300))


def test_full_blocks_are_cached_and_read() -> None:
    pool, first = ask(pool_of(7), A)
    assert (first.blocks, first.read, first.created) == ((1, 2, 3), 0, 8)
    _, second = ask(pool, A)
    assert (second.blocks[:2], second.read, second.created) == ((1, 2), 8, 0)


def test_the_tail_is_taken_before_the_head_and_what_is_not_full_before_both() -> None:
    pool, _ = ask(pool_of(7), A)
    assert pool.free == (3, 4, 5, 6, 7, 2, 1)


def test_the_last_token_is_computed_again_and_its_block_with_it() -> None:
    pool, _ = ask(pool_of(7), A[:8])
    pool, again = ask(pool, A[:8])
    assert (again.blocks, again.read, again.created) == ((1, 3), 4, 4)
    assert sorted(pool.copies.values()) == [(1,), (2, 3)]
    _, longer = ask(pool, A)
    assert (longer.blocks[:2], longer.read) == ((1, 2), 8)


def test_less_than_a_block_is_not_cached() -> None:
    pool, short = ask(pool_of(7), A[:3])
    assert (short.blocks, short.read, short.created) == ((1,), 0, 0)
    assert not pool.digests
    assert pool.free == (1, 2, 3, 4, 5, 6, 7)


def test_a_block_is_read_only_behind_the_same_blocks() -> None:
    pool, _ = ask(pool_of(20), A)
    assert ask(pool, (0, *A[1:]))[1].read == 0
    assert ask(pool, (*A[:4], 0, *A[5:]))[1].read == 4


def test_the_answer_is_cached_but_for_its_last_token() -> None:
    answer = (1, 2, 3)
    pool, asked = ask(pool_of(9), A[:6], answer)
    assert (asked.blocks, asked.created) == ((1, 2), 4)
    assert ask(pool, (*A[:6], *answer))[1].read == 8
    pool, asked = ask(pool_of(9), A[:6], answer[:2])
    assert (asked.blocks, asked.created) == ((1, 2), 4)
    assert ask(pool, (*A[:6], *answer))[1].read == 4


def test_the_least_recently_used_request_loses_its_tail_first() -> None:
    pool, _ = ask(pool_of(5), A)
    assert pool.free == (3, 4, 5, 2, 1)
    pool, held = ask(pool, B)
    assert held.blocks == (3, 4, 5)
    assert pool.free == (5, 2, 1, 4, 3)
    pool, held = ask(pool, C[:5])
    assert held.blocks == (5, 2)
    assert pool.free == (2, 1, 4, 3, 5)
    assert ask(pool, A)[1].read == 4
    assert ask(pool, B)[1].read == 8


def test_a_read_makes_blocks_the_last_to_go() -> None:
    pool, _ = ask(pool_of(5), A)
    pool, _ = ask(pool, B)
    pool, again = ask(pool, A)
    assert (again.blocks, again.read) == ((1, 2, 5), 8)
    assert pool.free == (5, 4, 3, 2, 1)
    pool, _ = ask(pool, C)
    assert ask(pool, B)[1].read == 0
    assert ask(pool, A)[1].read == 8


def test_salt_and_adapter_keep_blocks_apart() -> None:
    pool, _ = ask(pool_of(30), A, salt="a")
    assert [ask(pool, A, salt=salt)[1].read for salt in ("a", "b", "")] == [8, 0, 0]
    adapted = admit(pool, VLLMRequest(prompt=A, salt="a", adapter="x"))
    assert adapted is not None
    assert adapted[1].read == 0


def test_a_running_request_shares_its_blocks_and_keeps_them() -> None:
    pool, first = begin(pool_of(4), A)
    pool, second = begin(pool, A)
    assert (second.blocks, second.read) == ((1, 2, 4), 8)
    assert (pool.free, pool.usage) == ((), 1)
    assert admit(pool, VLLMRequest(prompt=(7,))) is None
    pool = finish(pool, first)
    assert pool.free == (3,)
    pool = finish(pool, second)
    assert (pool.free, pool.usage) == ((4, 3, 2, 1), 0)


def test_what_is_found_in_the_queue_is_no_room_for_the_rest() -> None:
    pool, _ = ask(pool_of(3), A)
    assert pool.free == (3, 2, 1)
    assert admit(pool, VLLMRequest(prompt=(*A, *range(4)))) is None
    assert ask(pool, (*A, 0, 0, 0))[1].read == 8


@pytest.mark.parametrize(("block", "blocks"), [(0, 5), (4, 1)])
def test_a_pool_has_room_for_a_block(block: int, blocks: int) -> None:
    with pytest.raises(ValueError, match="a pool needs"):
        empty_pool(block=block, blocks=blocks)


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=24)
asked = st.tuples(prompts, st.lists(st.integers(0, 1), max_size=6), st.sampled_from(["", "a"]))


@given(st.lists(asked, max_size=25), st.integers(8, 12))
def test_what_is_read_was_computed_before(requests: list[tuple[list[int], list[int], str]], usable: int) -> None:
    pool = pool_of(usable)
    past: list[tuple[str, list[int]]] = []
    for prompt, answer, salt in requests:
        pool, held = ask(pool, prompt, answer, salt)
        assert held.read % BLOCK == 0
        assert held.read < len(prompt)
        assert held.read + held.created == len(prompt) // BLOCK * BLOCK
        before = {tuple(known[: held.read]) for same, known in past if same == salt}
        assert held.read == 0 or tuple(prompt[: held.read]) in before
        past.append((salt, [*prompt, *answer][: len(prompt) + max(0, len(answer) - 1)]))


@given(st.lists(asked, min_size=1, max_size=25), st.integers(8, 12))
def test_the_latest_request_can_be_read_in_whole(requests: list[tuple[list[int], list[int], str]], usable: int) -> None:
    pool = pool_of(usable)
    for prompt, answer, salt in requests:
        pool, _ = ask(pool, prompt, answer, salt)
        assert begin(pool, prompt, (), salt)[1].read == (len(prompt) - 1) // BLOCK * BLOCK


@given(st.lists(st.tuples(prompts, st.booleans()), max_size=30), st.integers(6, 14))
def test_every_block_is_free_or_held_and_none_is_lost(steps: list[tuple[list[int], bool]], usable: int) -> None:
    pool = pool_of(usable)
    running: list[Held] = []
    for prompt, ends in steps:
        if ends and running:
            pool = finish(pool, running.pop(0))
        elif (admitted := admit(pool, VLLMRequest(prompt=prompt))) is not None:
            pool, held = admitted
            running.append(held)
        assert sorted([*pool.free, *pool.holders]) == list(range(1, usable + 1))
        assert sum(pool.holders.values()) == sum(len(held.blocks) for held in running)
        assert sorted(block for blocks in pool.copies.values() for block in blocks) == sorted(pool.digests)
    for held in running:
        pool = finish(pool, held)
    assert pool.usage == 0


@given(st.lists(prompts, min_size=2, max_size=6))
def test_nothing_is_lost_without_pressure(requests: list[list[int]]) -> None:
    pool = pool_of(6 * 16)
    for earlier, later in pairwise(requests):
        pool, _ = ask(pool, earlier)
        pool, held = ask(pool, later)
        shared = next((at for at, pair in enumerate(zip(earlier, later, strict=False)) if pair[0] != pair[1]), 24)
        assert held.read >= min(shared, len(earlier), len(later) - 1) // BLOCK * BLOCK
    for prompt in requests:
        assert ask(pool, prompt)[1].read == (len(prompt) - 1) // BLOCK * BLOCK


@given(prompts, st.lists(st.sampled_from(["", "a", "b", "c"]), unique=True, min_size=2))
def test_salts_never_share(prompt: list[int], salts: list[str]) -> None:
    pool = pool_of(4 * 6)
    for salt in salts:
        pool, held = ask(pool, prompt, salt=salt)
        assert held.read == 0
