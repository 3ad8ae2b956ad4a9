"""The cache of GPT-5.6 and later, worked by hand on prompts of identical tokens."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator.openai_cache import Outcome
from headstay.emulator.openai_models import find_model
from headstay.emulator.openai_prompt import Marker, Prompt
from headstay.emulator.openai_store import CacheCall, OpenAICache
from headstay.emulator.openai_switches import OpenAISwitches

T0 = 1_790_000_000.0
MINUTE = 60.0


def prompt(
    *lengths: int, markers: tuple[Marker, ...] = (), developer: int = 0, changed: tuple[int, ...] = ()
) -> Prompt:
    """Make messages of some lengths that all end eligibly; `changed` ones have other words in them."""
    tokens: list[str] = []
    endings: list[int] = []
    for index, length in enumerate(lengths):
        tokens += [f"{index}{'!' if index in changed else ''}"] * length
        endings.append(len(tokens))
    return Prompt(tuple(tokens), markers, tuple(endings), developer)


class Bench:
    """A cache with one request after the other."""

    def __init__(self, switches: OpenAISwitches | None = None) -> None:
        self.cache = OpenAICache(switches or OpenAISwitches())

    def call(self, content: Prompt, now: float = T0, **fields: Any) -> Outcome:
        model = find_model(fields.pop("model", "gpt-5.6-sol"))
        assert model is not None
        fixed: dict[str, Any] = {"organization": "org", "settings": {}}
        call = CacheCall(prompt=content, model=model, **{**fixed, **fields})
        outcome = self.cache.look_up(call, now)
        self.cache.commit(call, outcome, now)
        return outcome


def test_implicit_mode_writes_through_the_latest_message_and_grows() -> None:
    bench = Bench()
    first = bench.call(prompt(2_000, 500))
    # One breakpoint at the end of the second message: all 2,500 are written.
    assert (first.total, first.read, first.written()) == (2_500, 0, 2_500)
    second = bench.call(prompt(2_000, 500, 300))
    # The earlier ending at 2,500 is found among the 20; the new 300 are written.
    assert (second.total, second.read, second.written()) == (2_800, 2_500, 300)
    third = bench.call(prompt(2_000, 500, 300))
    assert (third.read, third.written()) == (2_800, 0)


def test_a_shared_head_is_not_read_without_a_mark() -> None:
    bench = Bench()
    bench.call(prompt(2_000, 500, developer=2_000))
    other = bench.call(prompt(2_000, 500, developer=2_000, changed=(1,)))
    assert (other.read, other.written()) == (0, 2_500)


def test_the_contested_switch_reads_the_head_but_writes_the_tail_again() -> None:
    bench = Bench(OpenAISwitches(implicit_developer_reuse=True))
    first = bench.call(prompt(2_000, 500, developer=2_000))
    assert first.written() == 2_500
    other = bench.call(prompt(2_000, 500, developer=2_000, changed=(1,)))
    assert (other.read, other.written()) == (2_000, 500)


def test_a_marked_head_in_explicit_mode_never_writes_the_tail() -> None:
    bench = Bench()
    marked = (Marker(2_000),)
    first = bench.call(prompt(2_000, 500, markers=marked), mode="explicit")
    assert (first.read, first.written()) == (0, 2_000)
    other = bench.call(prompt(2_000, 500, markers=marked, changed=(1,)), mode="explicit")
    assert (other.read, other.written()) == (2_000, 0)


def test_explicit_mode_without_a_marker_is_off() -> None:
    bench = Bench()
    for _ in range(2):
        outcome = bench.call(prompt(2_000, 500), mode="explicit")
        assert (outcome.read, outcome.written(), outcome.reusable) == (0, 0, 0)


@pytest.mark.parametrize(("length", "written"), [(1_023, 0), (1_024, 1_024)])
def test_the_minimum_is_1024_and_boundaries_are_exact(length: int, written: int) -> None:
    bench = Bench()
    assert bench.call(prompt(length)).written() == written
    assert bench.call(prompt(length)).read == written


@pytest.mark.parametrize("length", [1_025, 1_151, 1_153, 3_333])
def test_reads_are_not_rounded(length: int) -> None:
    bench = Bench()
    bench.call(prompt(length))
    assert bench.call(prompt(length)).read == length


def test_surplus_markers_are_dropped_oldest_first() -> None:
    bench = Bench()
    markers = tuple(Marker(1_100 * step) for step in range(1, 7))
    first = bench.call(prompt(7_000, markers=markers), mode="explicit")
    # Six markers, four writes: 3,300, 4,400, 5,500, 6,600. What lies before 3,300 is billed with it.
    assert [write.end for write in first.writes] == [3_300, 4_400, 5_500, 6_600]
    assert [write.tokens for write in first.writes] == [3_300, 1_100, 1_100, 1_100]
    implicit = Bench().call(prompt(7_000, markers=markers))
    # The implicit breakpoint takes one of the four.
    assert [write.end for write in implicit.writes] == [4_400, 5_500, 6_600, 7_000]


def test_a_dropped_marker_can_still_be_read() -> None:
    bench = Bench()
    bench.call(prompt(1_200, 8_000, markers=(Marker(1_200),)), mode="explicit")
    markers = tuple(Marker(1_200 * step) for step in range(1, 7))
    later = bench.call(prompt(1_200, 8_000, markers=markers, changed=(1,)), mode="explicit")
    assert later.read == 1_200


def test_thirty_minutes_from_the_last_use() -> None:
    bench = Bench()
    bench.call(prompt(2_000))
    assert bench.call(prompt(2_000), now=T0 + 30 * MINUTE).read == 2_000
    # That reuse started the 30 minutes afresh, free of charge.
    again = bench.call(prompt(2_000), now=T0 + 60 * MINUTE)
    assert (again.read, again.written()) == (2_000, 0)
    late = bench.call(prompt(2_000), now=T0 + 90 * MINUTE + 1)
    assert (late.read, late.written()) == (0, 2_000)


def test_twelve_hours_can_be_bought_for_one_breakpoint() -> None:
    bench = Bench()
    content = prompt(2_000, 500, markers=(Marker(2_000, "12h"),))
    first = bench.call(content)
    assert (first.written("12h"), first.written("30m"), first.written()) == (2_000, 500, 2_500)
    later = bench.call(content, now=T0 + 12 * 60 * MINUTE)
    # The tail is long gone, the head is alive on its last second.
    assert (later.read, later.written("30m")) == (2_000, 500)


def test_a_request_lifetime_holds_for_breakpoints_that_name_none() -> None:
    bench = Bench()
    first = bench.call(prompt(2_000, 500, markers=(Marker(2_000, "30m"),)), ttl="12h")
    assert (first.written("30m"), first.written("12h")) == (2_000, 500)


def test_a_reuse_does_not_lengthen_the_lifetime() -> None:
    bench = Bench()
    bench.call(prompt(2_000, markers=(Marker(2_000),)), mode="explicit")
    reused = bench.call(prompt(2_000, markers=(Marker(2_000, "12h"),)), mode="explicit")
    assert (reused.read, reused.written()) == (2_000, 0)
    assert bench.call(prompt(2_000), now=T0 + 31 * MINUTE, mode="explicit").read == 0


def test_twenty_earlier_endings_are_looked_at() -> None:
    for extra, read in ((20, 2_000), (21, 0)):
        bench = Bench()
        bench.call(prompt(2_000))
        grown = prompt(2_000, *[10] * extra)
        # Endings behind the first one: `extra`. The latest is the implicit breakpoint, 20 more are looked at.
        assert bench.call(grown).read == read


def test_without_the_lookback_the_sdk_rule_reaches_eighty_back() -> None:
    for extra, read in ((79, 2_000), (80, 0)):
        bench = Bench(OpenAISwitches(lookup="sdk"))
        bench.call(prompt(2_000))
        assert bench.call(prompt(2_000, *[10] * extra)).read == read


def test_the_guide_looks_at_the_first_two_and_the_latest_fifty_markers() -> None:
    def marked(count: int) -> Prompt:
        return prompt(2_000, 10 * count, markers=tuple(Marker(2_000 + 10 * step) for step in range(count)))

    def written_at(end: int, count: int, switches: OpenAISwitches) -> int:
        bench = Bench(switches)
        full = marked(count)
        bench.call(replace(full, tokens=full.tokens[:end], markers=(Marker(end),)), mode="explicit")
        return bench.call(full, mode="explicit").read

    guide, sdk = OpenAISwitches(), OpenAISwitches(lookup="sdk")
    # 60 markers, at 2,000, 2,010 ... 2,590. First two: 2,000 and 2,010. Latest fifty: from 2,100 on.
    assert written_at(2_010, 60, guide) == 2_010
    assert written_at(2_020, 60, guide) == 0
    assert written_at(2_090, 60, guide) == 0
    assert written_at(2_100, 60, guide) == 2_100
    # The latest eighty are all of them; of ninety, those from 2,100 on.
    assert written_at(2_020, 60, sdk) == 2_020
    assert written_at(2_090, 90, sdk) == 0
    assert written_at(2_100, 90, sdk) == 2_100


def test_keys_settings_organizations_and_models_are_apart() -> None:
    base: dict[str, Any] = {"key": "a", "settings": {"effort": None}}
    changes: tuple[dict[str, Any], ...] = (
        {"key": "b"},
        {"key": None},
        {"settings": {"effort": "low"}},
        {"organization": "other"},
        {"model": "gpt-5.6-terra"},
        {"mode": "explicit"},
    )
    for change in changes:
        bench = Bench()
        content = prompt(2_000, markers=(Marker(2_000),))
        bench.call(content, **base)
        assert bench.call(content, **(base | change)).read == 0, change
        assert bench.call(content, **base).read == 2_000, change


def test_the_mode_can_be_left_out_of_the_key() -> None:
    bench = Bench(OpenAISwitches(mode_in_key=False))
    content = prompt(2_000, markers=(Marker(2_000),))
    bench.call(content)
    assert bench.call(content, mode="explicit").read == 2_000
    # Explicit mode still does not look at message endings.
    bench.call(prompt(3_000))
    assert bench.call(prompt(3_000), mode="explicit").read == 0


def test_an_entry_is_readable_only_once_the_first_answer_began() -> None:
    cache = OpenAICache(OpenAISwitches())
    model = find_model("gpt-6-luna")
    assert model is not None
    call = CacheCall(prompt(2_000), model, "org", {})
    one = cache.look_up(call, T0)
    two = cache.look_up(call, T0)
    # Two cold calls side by side: both pay.
    assert (one.written(), two.written()) == (2_000, 2_000)
    cache.commit(call, one, T0 + 1)
    assert cache.look_up(call, T0 + 1).read == 2_000


def test_a_marker_inside_the_part_read_is_stored_without_a_charge() -> None:
    bench = Bench(OpenAISwitches(mode_in_key=False))
    bench.call(prompt(2_000, 500))
    marked = bench.call(prompt(2_000, 500, markers=(Marker(2_000),)))
    assert (marked.read, marked.written()) == (2_500, 0)
    other = bench.call(prompt(2_000, 500, markers=(Marker(2_000),), changed=(1,)))
    assert (other.read, other.written()) == (2_000, 500)


def test_such_a_marker_buys_no_longer_life_than_what_was_read() -> None:
    bench = Bench(OpenAISwitches(mode_in_key=False))
    bench.call(prompt(2_000, 500))
    bench.call(prompt(2_000, 500, markers=(Marker(2_000, "12h"),)))
    late = bench.call(prompt(2_000, 500, markers=(Marker(2_000),), changed=(1,)), now=T0 + 31 * MINUTE)
    assert late.read == 0


def test_the_end_of_the_developer_block_is_looked_at_however_far_back() -> None:
    bench = Bench()
    bench.call(prompt(2_000, 10, developer=2_000, markers=(Marker(2_000),)))
    # 30 endings behind the block, no marker in this request.
    assert bench.call(prompt(2_000, *[10] * 30, developer=2_000, changed=(1,))).read == 2_000


def test_a_marker_on_the_latest_message_lends_it_its_lifetime() -> None:
    outcome = Bench().call(prompt(2_000, markers=(Marker(2_000, "12h"),)))
    assert (outcome.written("12h"), outcome.written("30m")) == (2_000, 0)


def test_of_two_cold_calls_the_longer_lifetime_stays() -> None:
    cache = OpenAICache(OpenAISwitches())
    model = find_model("gpt-6-luna")
    assert model is not None
    calls = [CacheCall(prompt(2_000), model, "org", {}, ttl=ttl) for ttl in ("12h", "30m")]
    outcomes = [cache.look_up(call, T0) for call in calls]
    for call, outcome in zip(calls, outcomes, strict=True):
        cache.commit(call, outcome, T0)
    assert cache.look_up(calls[1], T0 + 31 * MINUTE).read == 2_000


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 900), min_size=1, max_size=5),
            st.sets(st.integers(1, 4_000), max_size=6),
            st.sampled_from(["implicit", "explicit"]),
            st.floats(0, 3_000),
        ),
        max_size=8,
    )
)
def test_reads_and_writes_are_parts_of_the_total(
    calls: list[tuple[list[int], set[int], str, float]],
) -> None:
    bench, now = Bench(), T0
    for lengths, marks, mode, gap in calls:
        now += gap
        total = sum(lengths)
        markers = tuple(Marker(end) for end in sorted(marks) if end <= total)
        outcome = bench.call(prompt(*lengths, markers=markers), now=now, mode=mode)
        assert outcome.total == total
        assert 0 <= outcome.read + outcome.written() <= total
        assert outcome.read == 0 or outcome.read >= 1_024
        assert sum(write.tokens > 0 for write in outcome.writes) <= 4
        again = bench.call(prompt(*lengths, markers=markers), now=now, mode=mode)
        # Asking the same at once reads what the first wrote and writes nothing more.
        assert again.written() == 0
        assert again.read == outcome.reusable
