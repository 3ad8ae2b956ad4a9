"""What holds for the oracle on every workload."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay.emulator.oracle import OracleResult, oracle_run, read_share
from headstay.emulator.reply import Wire
from headstay.emulator.tokens import IMAGE_TOKENS, count
from headstay.emulator.workload import SystemPart, Turn, Workload, support_desk

TARGETS: tuple[tuple[str, Wire], ...] = (
    ("claude-sonnet-5-5", "anthropic-messages"),
    ("claude-sonnet-4-6", "anthropic-messages"),
    ("gpt-6.1-sol", "openai-chat"),
    ("gpt-5.5", "openai-responses"),
    ("gpt-5.4", "openai-chat"),
)
MARKED = TARGETS[:3]
SLOW = settings(max_examples=60, deadline=None)


def words(letter: str, number: int) -> str:
    return " ".join([letter] * number)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """A few conversations of two tenants and two policies, with any gaps, lengths and images."""
    turns: list[Turn] = []
    counts: dict[str, int] = {}
    at = 0.0
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from((0.0, 1.0, 90.0, 301.0, 700.0, 1_900.0)))
        conversation = draw(st.sampled_from(("a1", "a2", "b1", "b2")))
        counts[conversation] = turn = counts.get(conversation, 0) + 1
        policy = draw(st.sampled_from("PPPQ"))
        system = (
            SystemPart(words(policy, draw(st.sampled_from((300, 1_030)))), "stable"),
            SystemPart(conversation[1], "conversation", "n"),
            SystemPart(words("t", len(turns) + 1), "call", "k"),
        )
        user = words(draw(st.sampled_from("uv")), draw(st.integers(1, 900)))
        image = draw(st.sampled_from((None, None, None, "png")))
        turns.append(Turn(conversation, turn, conversation[0], policy, at, system, user, image, words("r", 40)))
    return Workload(tuple(turns))


def oracle(workload: Workload, target: tuple[str, Wire], ttl: str | None = None) -> OracleResult:
    return oracle_run(workload, model=target[0], wire=target[1], ttl=ttl)


def head_tokens(turn: Turn) -> int:
    """The stable text."""
    return count("".join(part.text for part in turn.system if part.stability == "stable"))


def system_tokens(turn: Turn) -> int:
    """The stable text and the semi-static lines."""
    lines = "\n".join(f"{name}: {value}" for name, value in turn.conversation_values.items())
    return head_tokens(turn) + count(lines)


def persistent_tokens(workload: Workload, turn: Turn) -> int:
    """System and all messages, counted without the oracle."""
    messages = [(text, image) for _, text, image in workload.history(turn)] + [(turn.user, turn.image)]
    return system_tokens(turn) + sum(count(text) + IMAGE_TOKENS * (image is not None) for text, image in messages)


@SLOW
@given(workloads(), st.sampled_from(TARGETS))
def test_the_parts_of_the_input_add_up(workload: Workload, target: tuple[str, Wire]) -> None:
    for turn, call in zip(workload.turns, oracle(workload, target).calls, strict=True):
        note = count(f"k: {turn.call_values['k']}")
        assert call.readable >= 0
        assert call.writes >= 0
        assert call.readable + call.writes + call.uncached == call.input_tokens
        assert call.input_tokens == persistent_tokens(workload, turn) + note
        assert call.uncached >= note or target not in MARKED


@SLOW
@given(workloads(), st.sampled_from(MARKED))
def test_what_persists_is_read_or_written_or_too_short(workload: Workload, target: tuple[str, Wire]) -> None:
    minimum = 512 if target[0] == "claude-sonnet-5-5" else 1_024
    for turn, call in zip(workload.turns, oracle(workload, target).calls, strict=True):
        persistent = persistent_tokens(workload, turn)
        assert call.readable + call.writes == (persistent if persistent >= minimum else 0)
        assert call.readable == 0 or call.readable >= minimum


@SLOW
@given(workloads(), st.sampled_from(TARGETS), st.data())
def test_a_read_share_is_a_share(workload: Workload, target: tuple[str, Wire], data: st.DataObject) -> None:
    result = oracle(workload, target)
    own = [call.readable for call in result.calls]
    assert read_share(own, result) == 1.0
    assert read_share([2 * read + 1 for read in own], result) == 1.0
    reads = data.draw(st.lists(st.integers(0, 5_000), min_size=len(own), max_size=len(own)))
    assert 0.0 <= read_share(reads, result) <= 1.0


@SLOW
@given(workloads(), st.sampled_from(TARGETS))
def test_the_first_call_of_a_tenant_reads_nothing(workload: Workload, target: tuple[str, Wire]) -> None:
    seen: set[str] = set()
    for turn, call in zip(workload.turns, oracle(workload, target).calls, strict=True):
        assert call.readable == 0 or turn.tenant in seen
        seen.add(turn.tenant)


@SLOW
@given(workloads(), st.sampled_from(TARGETS))
def test_one_tenant_is_the_same_with_and_without_the_other(workload: Workload, target: tuple[str, Wire]) -> None:
    alone = Workload(tuple(turn for turn in workload.turns if turn.tenant == "a"))
    together = [call for call in oracle(workload, target).calls if call.conversation.startswith("a")]
    assert list(oracle(alone, target).calls) == together


@SLOW
@given(workloads(), st.sampled_from((*TARGETS[:3], TARGETS[4])))
def test_a_longer_lifetime_never_reads_less(workload: Workload, target: tuple[str, Wire]) -> None:
    shorter, longer = {
        "claude-sonnet-5-5": ("5m", "1h"),
        "claude-sonnet-4-6": ("5m", "1h"),
        "gpt-6.1-sol": ("30m", "12h"),
        "gpt-5.4": ("in_memory", "24h"),
    }[target[0]]
    pairs = zip(oracle(workload, target, shorter).calls, oracle(workload, target, longer).calls, strict=True)
    assert all(short.readable <= long.readable for short, long in pairs)


@SLOW
@given(workloads(), st.sampled_from(TARGETS))
def test_only_the_differences_of_time_matter(workload: Workload, target: tuple[str, Wire]) -> None:
    moved = Workload(tuple(dataclasses.replace(turn, at=turn.at + 86_400) for turn in workload.turns))
    assert oracle(moved, target).calls == oracle(workload, target).calls


@SLOW
@given(workloads(), st.sampled_from(TARGETS), st.sampled_from((0.5, 95.0)))
def test_a_slower_first_event_never_reads_more(workload: Workload, target: tuple[str, Wire], delay: float) -> None:
    model, wire = target
    slow = oracle_run(workload, model=model, wire=wire, first_event_s=delay)
    pairs = zip(slow.calls, oracle(workload, target).calls, strict=True)
    assert all(late.readable <= early.readable for late, early in pairs)


@SLOW
@given(workloads(), st.sampled_from(MARKED))
def test_the_reuse_switch_leaves_a_marked_head_alone(workload: Workload, target: tuple[str, Wire]) -> None:
    model, wire = target
    switched = oracle_run(workload, model=model, wire=wire, implicit_developer_reuse=True)
    assert switched.calls == oracle(workload, target).calls


@pytest.mark.parametrize("target", MARKED, ids=str)
def test_the_support_desk_reads_everything_but_the_cold_starts(target: tuple[str, Wire]) -> None:
    workload = support_desk()
    breaks = {(broken.conversation, broken.turn) for broken in workload.breaks_on(target[1])}
    lanes: set[tuple[str, str]] = set()
    for turn, call in zip(workload.turns, oracle(workload, target).calls, strict=True):
        before = workload.before(turn)
        if turn.lane not in lanes:
            assert call.readable == 0
        elif not before or turn.policy != before[-1].policy:
            assert call.readable == head_tokens(turn)
        elif (turn.conversation, turn.turn) in breaks:
            assert call.readable == system_tokens(turn)
        else:
            assert call.readable == persistent_tokens(workload, before[-1])
        lanes.add(turn.lane)
