"""Each rule of the oracle on a case small enough to work out by hand.

A text of n words of one letter counts n tokens. Unless a case says otherwise the head has 1,000 tokens, and both the
semi-static line "n: x" and the note "k: y" have 3 (name, colon, value).
"""

import dataclasses
from collections.abc import Callable

import pytest

from headstay.emulator.oracle import OracleCall, Prices, oracle_run, read_share
from headstay.emulator.oracle_rules import rules_for
from headstay.emulator.reply import Wire
from headstay.emulator.workload import SystemPart, Turn, Workload

CLAUDE = "claude-sonnet-5-5"  # minimum 512
GPT = "gpt-6.1-sol"  # minimum 1,024, breakpoints
OLD_GPT = "gpt-5.4"  # minimum 1,024, steps of 128


def words(letter: str, number: int) -> str:
    return " ".join([letter] * number)


def call(
    at: float,
    *,
    conversation: str = "one",
    turn: int = 1,
    tenant: str = "acme",
    policy: str = "A",
    head: int = 1_000,
    value: str = "x",
    clock: str | None = None,
    user: int = 100,
    image: str | None = None,
    reply: int = 50,
) -> Turn:
    """Make a turn; the words of user and reply differ by turn, those of the head by policy."""
    return Turn(
        conversation=conversation,
        turn=turn,
        tenant=tenant,
        policy=policy,
        at=at,
        system=(
            SystemPart(words(policy, head), "stable"),
            SystemPart(value, "conversation", "n"),
            SystemPart(clock or words("t", 1), "call", "k"),
        ),
        user=words("uvwxyz"[turn - 1], user),
        image=image,
        reply=words("abcdef"[turn - 1], reply),
    )


def run(
    *turns: Turn, model: str = CLAUDE, wire: Wire = "anthropic-messages", ttl: str | None = None
) -> list[OracleCall]:
    return list(oracle_run(Workload(turns), model=model, wire=wire, ttl=ttl).calls)


def openai(*turns: Turn, model: str = GPT, ttl: str | None = None) -> list[OracleCall]:
    return run(*turns, model=model, wire="openai-responses", ttl=ttl)


def readable(calls: list[OracleCall]) -> list[int]:
    return [each.readable for each in calls]


def test_a_conversation_reads_up_to_the_input_end_of_its_last_call() -> None:
    first, second, third = run(
        call(0, user=100, reply=50), call(60, turn=2, user=40, reply=20), call(120, turn=3, user=30, reply=10)
    )
    # Call 1 persists 1,000 + 3 + 100 = 1,103 and adds a note of 3; all of it is new.
    assert first == OracleCall("one", 1, 1_106, 0, 1_103, 3, 50, None)
    # Call 2 persists 1,103 + 50 + 40 = 1,193. The answer of 50 was output until now: not readable.
    assert second == OracleCall("one", 2, 1_196, 1_103, 90, 3, 20, None)
    # Call 3 persists 1,193 + 20 + 30 = 1,243, and reads the first answer as part of call 2's input.
    assert third == OracleCall("one", 3, 1_246, 1_193, 50, 3, 10, None)


def test_the_totals_are_the_sums() -> None:
    result = oracle_run(Workload((call(0), call(60, turn=2))), model=CLAUDE, wire="anthropic-messages")
    # Call 1: 1,106 in, 1,103 written. Call 2 persists 1,103 + 50 + 100 = 1,253: reads 1,103, writes 150.
    assert (result.input_tokens, result.readable, result.writes) == (1_106 + 1_256, 1_103, 1_103 + 150)
    assert (result.uncached, result.output_tokens, result.cost) == (6, 100, None)


def test_stable_parts_join_into_one_head_around_the_values() -> None:
    def split(conversation: str, value: str, at: float) -> Turn:
        system = (
            SystemPart(words("h", 600), "stable"),
            SystemPart(value, "conversation", "n"),
            SystemPart(" " + words("h", 400), "stable"),
            SystemPart(value, "conversation", "n"),
        )
        return Turn(conversation, 1, "acme", "A", at, system, words("u", 10), None, words("a", 5))

    first, second = run(split("one", "x", 0), split("two", "z", 10))
    # The value stands twice in the text, but once among the semi-static lines: 1,000 + 3 + 10. No note.
    assert (first.input_tokens, first.writes, first.uncached) == (1_013, 1_013, 0)
    assert (second.readable, second.writes) == (1_000, 13)


def test_another_conversation_of_the_lane_reads_the_head_only() -> None:
    _, second = run(call(0), call(10, conversation="two", value="z"))
    assert (second.readable, second.writes) == (1_000, 103)


def test_the_semi_static_end_is_a_boundary() -> None:
    _, second = run(call(0, user=100), call(10, conversation="two", value="x", user=99))
    assert second.readable == 1_003


def test_tenants_share_nothing() -> None:
    assert readable(run(call(0), call(10, conversation="two", tenant="bolt"))) == [0, 0]


def test_a_prefix_lives_to_the_last_second_of_its_ttl() -> None:
    assert readable(run(call(0), call(300, turn=2))) == [0, 1_103]
    assert readable(run(call(0), call(300.5, turn=2))) == [0, 0]
    assert readable(run(call(0), call(3_600, turn=2), ttl="1h")) == [0, 1_103]
    assert readable(run(call(0), call(3_601, turn=2), ttl="1h")) == [0, 0]


def test_a_read_keeps_the_head_alive_but_not_what_it_did_not_touch() -> None:
    calls = run(call(0), call(250, conversation="two", value="z"), call(400, turn=2))
    # At 400 the first conversation's own prefixes are 400 s old; the head was used at 250.
    assert readable(calls) == [0, 1_000, 1_000]


def test_a_read_keeps_the_shorter_prefixes_on_its_way_alive() -> None:
    calls = run(call(0), call(250, turn=2), call(450, conversation="two"))
    # The third call repeats the first one word for word; that prefix was last used at 250, by the second.
    assert readable(calls) == [0, 1_103, 1_103]
    assert (calls[2].writes, calls[2].uncached) == (0, 3)


def test_an_expired_prefix_is_written_again() -> None:
    calls = run(call(0), call(400, turn=2), call(500, turn=3))
    # 1,253 at call 2 (all new again); call 3 persists 1,253 + 50 + 100.
    assert [(each.readable, each.writes) for each in calls] == [(0, 1_103), (0, 1_253), (1_253, 150)]


def test_nothing_under_the_minimum_is_cached() -> None:
    calls = run(
        call(0, head=400),
        call(10, turn=2, head=400, user=40),
        call(20, turn=3, head=400),
        call(30, conversation="two", value="z", head=400),
    )
    # Persistent: 400 + 3 + 100 = 503 < 512; then 503 + 50 + 40 = 593; then 593 + 50 + 100 = 743; the head alone
    # has 400, so the other conversation finds nothing, and persists 503.
    assert [(each.readable, each.writes) for each in calls] == [(0, 0), (0, 593), (593, 150), (0, 0)]
    assert calls[0].uncached == calls[0].input_tokens == 506


def test_the_minimum_itself_is_cached() -> None:
    # 409 + 3 + 100 = 512
    calls = run(call(0, head=409), call(10, turn=2, head=409))
    assert (calls[0].writes, calls[1].readable) == (512, 512)


def test_calls_that_start_together_cannot_read_each_other() -> None:
    assert readable(run(call(5), call(5, conversation="two", value="z"))) == [0, 0]


def test_a_prefix_is_readable_only_after_the_first_response_event() -> None:
    turns = (call(0), call(10, conversation="two", value="y"), call(10.5, conversation="three", value="z"))
    result = oracle_run(Workload(turns), model=CLAUDE, wire="anthropic-messages", first_event_s=10)
    # The event comes at 10: not before the second call starts, but before the third.
    assert [each.readable for each in result.calls] == [0, 0, 1_000]


def test_a_prefix_written_again_is_readable_only_after_the_new_first_event() -> None:
    turns = (call(0), call(400, conversation="two", value="y"), call(405, conversation="three", value="z"))
    result = oracle_run(Workload(turns), model=CLAUDE, wire="anthropic-messages", first_event_s=10)
    # The head of 0 expired at 300; the one of 400 begins to answer at 410.
    assert [each.readable for each in result.calls] == [0, 0, 0]


@pytest.mark.parametrize("calls", [run, openai])
def test_a_fork_reads_to_the_last_input_end_before_it(calls: Callable[..., list[OracleCall]]) -> None:
    found = calls(
        call(0),
        call(60, turn=2, user=40),
        call(120, conversation="two"),
        call(180, conversation="two", turn=2, user=41),
    )
    # The fork shares the first answer too, 1,153 tokens; but no input ended there, and nobody can mark an answer.
    assert readable(found) == [0, 1_103, 1_103, 1_103]


@pytest.mark.parametrize(("warm", "expected"), [(True, 1_000), (False, 0)])
def test_changed_instructions_leave_the_other_head_if_it_is_warm(warm: bool, expected: int) -> None:
    other = (call(5, conversation="two", policy="B", value="z"),) if warm else ()
    calls = run(call(0), *other, call(60, turn=2, policy="B"), call(120, turn=3, policy="B"))
    # The messages stand behind another head now: 1,253 persist at the change, all beyond the head is new.
    assert (calls[-2].readable, calls[-2].writes) == (expected, 1_253 - expected)
    assert calls[-1].readable == 1_253


def test_a_late_image_drops_the_messages_on_anthropic() -> None:
    calls = run(call(0), call(60, turn=2), call(120, turn=3, image="png"), call(180, turn=4))
    # Persistent: 1,103; 1,253; 1,253 + 50 + 258 + 100 = 1,661; 1,661 + 50 + 100 = 1,811. Head and semi-static stay.
    assert [(each.readable, each.writes) for each in calls] == [(0, 1_103), (1_103, 150), (1_003, 658), (1_661, 150)]


def test_a_late_image_is_a_plain_addition_on_openai() -> None:
    calls = openai(call(0), call(60, turn=2), call(120, turn=3, image="png"))
    assert [(each.readable, each.writes) for each in calls] == [(0, 1_103), (1_103, 150), (1_253, 408)]


def test_an_image_in_the_first_message_breaks_nothing() -> None:
    # 1,000 + 3 + 258 + 100
    assert readable(run(call(0, image="png"), call(60, turn=2))) == [0, 1_361]


def test_another_image_is_another_message() -> None:
    assert readable(run(call(0, image="png"), call(60, conversation="two", image="gnp"))) == [0, 1_003]


def test_openai_with_breakpoints_needs_1024_tokens_and_keeps_them_for_30_minutes() -> None:
    # The semi-static end at 1,003 is too short for the other conversation; 1,103 is long enough for the own one.
    assert readable(openai(call(0), call(10, conversation="two", value="z"), call(1_800, turn=2))) == [0, 0, 1_103]
    assert readable(openai(call(0), call(1_801, turn=2))) == [0, 0]
    assert readable(openai(call(0), call(43_200, turn=2), ttl="12h")) == [0, 1_103]
    # From 1,024 on boundaries are exact.
    assert readable(openai(call(0, head=1_025), call(10, conversation="two", value="z", head=1_025))) == [0, 1_025]


def test_implicit_developer_reuse_changes_nothing_for_a_marked_head() -> None:
    workload = Workload((call(0, head=1_100), call(10, conversation="two", value="z", head=1_100), call(20, turn=2)))
    off, on = (
        oracle_run(workload, model=GPT, wire="openai-chat", implicit_developer_reuse=switch) for switch in (False, True)
    )
    assert off.calls == on.calls
    assert (off.implicit_developer_reuse, on.implicit_developer_reuse) == (False, True)


def test_openai_before_breakpoints_reads_common_prefixes_in_steps() -> None:
    calls = openai(
        call(0, head=1_100),
        call(10, conversation="two", value="z", head=1_100),
        call(20, turn=2, head=1_100),
        model=OLD_GPT,
    )
    # The second shares the head, the name and the colon: 1,102, floored to 8 x 128 = 1,024. The third shares
    # 1,100 + 3 + 100 = 1,203 with the first, whose note is followed by nothing it knows: 9 x 128 = 1,152.
    assert readable(calls) == [0, 1_024, 1_152]
    assert [each.writes for each in calls] == [0, 0, 0]
    assert [each.uncached for each in calls] == [1_206, 1_206 - 1_024, 1_356 - 1_152]


def test_openai_before_breakpoints_counts_the_note_as_part_of_the_prompt() -> None:
    # 1,100 + 3 + 174 + note 3 = 1,280 = 10 x 128. With another clock the last token differs: 1,279, floored 1,152.
    first = call(0, head=1_100, user=174, clock="t")
    again, later = (call(10, conversation="two", head=1_100, user=174, clock=clock) for clock in ("t", "s"))
    assert readable(openai(first, again, model=OLD_GPT)) == [0, 1_280]
    assert readable(openai(first, later, model=OLD_GPT)) == [0, 1_152]


def test_openai_before_breakpoints_tells_a_note_from_an_answer_in_its_place() -> None:
    # 1,100 + 3 + 175 = 1,278, floored 1,152; had the note "k: t" counted as the answer's beginning, 1,281 -> 1,280.
    first = dataclasses.replace(call(0, head=1_100, user=175), reply="k: t")
    assert readable(openai(first, call(10, turn=2, head=1_100), model=OLD_GPT)) == [0, 1_152]


def test_openai_before_breakpoints_shares_nothing_between_simultaneous_calls() -> None:
    assert readable(openai(call(5, head=1_100), call(5, conversation="two", head=1_100), model=OLD_GPT)) == [0, 0]


def test_openai_before_breakpoints_needs_1024_tokens() -> None:
    # Shared 1,021 + 2 = 1,023, and 1,022 + 2 = 1,024.
    for head, expected in ((1_021, 0), (1_022, 1_024)):
        pair = (call(0, head=head), call(10, conversation="two", value="z", head=head))
        assert readable(openai(*pair, model=OLD_GPT)) == [0, expected]


def test_gpt_5_5_has_boundaries_every_2048_tokens() -> None:
    for head, expected in ((2_045, 0), (2_046, 2_048), (4_093, 2_048), (4_094, 4_096)):
        pair = (call(0, head=head), call(10, conversation="two", value="z", head=head))
        assert readable(openai(*pair, model="gpt-5.5")) == [0, expected]


def test_openai_before_breakpoints_forgets_after_idle_time() -> None:
    # 1,203 common tokens in the same conversation: 1,152.
    last_second = (call(0, head=1_100), call(600, turn=2, head=1_100))
    assert readable(openai(*last_second, model=OLD_GPT, ttl="in_memory")) == [0, 1_152]
    pair = (call(0, head=1_100), call(601, turn=2, head=1_100))
    assert readable(openai(*pair, model=OLD_GPT)) == [0, 1_152]
    assert readable(openai(*pair, model=OLD_GPT, ttl="in_memory")) == [0, 0]
    assert readable(openai(*pair, model="gpt-4o")) == [0, 0]


def test_an_earlier_image_that_differs_ends_a_common_prefix() -> None:
    pair = (call(0, head=1_100, image="png"), call(10, conversation="two", head=1_100, image="gnp"))
    same = (pair[0], call(10, conversation="two", head=1_100, image="png", user=90))
    # 1,103, floored 1,024; with the same image 1,103 + 258 + 90 = 1,451, floored 11 x 128 = 1,408.
    assert readable(openai(*pair, model=OLD_GPT)) == [0, 1_024]
    assert readable(openai(*same, model=OLD_GPT)) == [0, 1_408]


def test_kept_notes_are_written_and_read() -> None:
    workload = Workload((call(0), call(60, turn=2, user=40)))
    first, second = oracle_run(workload, model=CLAUDE, wire="anthropic-messages", kept_notes=True).calls
    # 1,000 + 3 + 100 + 3 = 1,106; then 1,106 + 50 + 40 + 3 = 1,199.
    assert (first.writes, first.uncached) == (1_106, 0)
    assert (second.readable, second.writes, second.uncached) == (1_106, 93, 0)


def test_structure_counts_when_asked_for() -> None:
    workload = Workload((call(0, head=1_100), call(60, turn=2, head=1_100, user=40)))

    def with_overhead(model: str) -> list[tuple[int, int, int]]:
        result = oracle_run(workload, model=model, wire="openai-responses", message_overhead=7)
        return [(each.readable, each.writes, each.uncached) for each in result.calls]

    # Head, semi-static and user: 1,203 + 3 x 7 = 1,224; then answer and user more: 1,293 + 5 x 7 = 1,328. The note
    # is part of the user's message.
    assert with_overhead(GPT) == [(0, 1_224, 3), (1_224, 104, 3)]
    # Common 1,224, floored to 9 x 128 = 1,152.
    assert with_overhead(OLD_GPT) == [(0, 0, 1_227), (1_152, 0, 1_331 - 1_152)]


def test_structure_counts_in_a_message_that_differs_later_on() -> None:
    pair = (call(0, head=1_142), call(10, conversation="two", value="z", head=1_142))
    result = oracle_run(Workload(pair), model=OLD_GPT, wire="openai-responses", message_overhead=7)
    # Common: 7 + 1,142 + 7 + name and colon = 1,158, floored 1,152; without the second 7 it would be 1,024.
    assert [each.readable for each in result.calls] == [0, 1_152]


def test_costs_by_hand() -> None:
    prices = Prices(input=2, output=10, read=0.1, write=2.5)
    workload = Workload((call(0, user=100, reply=50), call(60, turn=2, user=40, reply=20)))
    result = oracle_run(workload, model=CLAUDE, wire="anthropic-messages", prices=prices)
    # Call 1: 3 x 2 + 1,103 x 2.5 + 50 x 10 = 3,263.5; call 2: 3 x 2 + 1,103 x 0.1 + 90 x 2.5 + 20 x 10 = 541.3;
    # in millionths of a dollar.
    assert [each.cost for each in result.calls] == pytest.approx([3_263.5e-6, 541.3e-6])
    assert result.cost == pytest.approx(3_804.8e-6)


def test_read_share_by_hand() -> None:
    result = oracle_run(
        Workload((call(0), call(60, turn=2), call(120, turn=3))), model=CLAUDE, wire="anthropic-messages"
    )
    # Readable: 0, 1,103, 1,253. What is read beyond it does not count.
    assert read_share([5, 1_200, 600], result) == pytest.approx((1_103 + 600) / 2_356)
    assert read_share([0, 0, 0], result) == 0


def test_read_share_of_a_run_with_nothing_to_read_is_whole() -> None:
    assert read_share([0], oracle_run(Workload((call(0),)), model=CLAUDE, wire="anthropic-messages")) == 1


@pytest.mark.parametrize(("reads", "message"), [([1], "1 reads for 2 calls"), ([0, -1], "negative")])
def test_read_share_refuses_reads_that_do_not_fit(reads: list[int], message: str) -> None:
    result = oracle_run(Workload((call(0), call(60, turn=2))), model=CLAUDE, wire="anthropic-messages")
    with pytest.raises(ValueError, match=message):
        read_share(reads, result)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-fable-5-1", 512),
        ("claude-opus-5-5", 512),
        ("claude-haiku-5-5-20261001", 512),
        ("claude-sonnet-5", 1_024),
        ("claude-sonnet-4-20250514", 1_024),
        ("claude-opus-4-7", 2_048),
        ("claude-opus-4-6", 4_096),
        ("claude-haiku-4-5-20251001", 4_096),
    ],
)
def test_minimum_by_anthropic_model(model: str, minimum: int) -> None:
    assert rules_for(model, "anthropic-messages").minimum == minimum


@pytest.mark.parametrize(
    ("model", "marked", "interval"),
    [
        ("gpt-5.6-sol", True, 1),
        ("gpt-6-luna", True, 1),
        ("gpt-6.1-terra-2026-09-01", True, 1),
        ("gpt-5.5", False, 2_048),
        ("gpt-5.4-mini", False, 128),
        ("gpt-5", False, 128),
        ("gpt-4.1", False, 128),
        ("gpt-4o-2024-08-06", False, 128),
        ("o4-mini", False, 128),
    ],
)
def test_generation_by_openai_model(model: str, marked: bool, interval: int) -> None:
    rules = rules_for(model, "openai-chat")
    assert (rules.minimum, rules.marked, rules.interval) == (1_024, marked, interval)


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        ("gpt-6.1-sol", "anthropic-messages"),
        ("claude-opus-9", "anthropic-messages"),
        ("opus-5", "anthropic-messages"),
        ("claude-opus-5", "openai-chat"),
        ("gpt-3.5-turbo", "openai-responses"),
    ],
)
def test_an_unknown_model_is_an_error_that_names_known_ones(model: str, wire: Wire) -> None:
    with pytest.raises(ValueError, match="known"):
        rules_for(model, wire)


def test_an_unsupported_ttl_is_an_error_that_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match=r"30m.*\['5m', '1h'\]"):
        run(call(0), ttl="30m")
    with pytest.raises(ValueError, match=r"\['24h'\]"):
        openai(call(0), model="gpt-5.5", ttl="in_memory")


def test_turns_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        Workload((call(10), call(0, turn=2)))
