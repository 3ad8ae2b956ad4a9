"""What a linter must not say: each of these was once wrong."""

from dataclasses import replace
from typing import Any

import pytest
from tests.lint.conftest import RULES, Log, body_of, talk, used

from headstay.causes import Cause
from headstay.ledger.usage import from_openai_chat
from headstay.lint import lint
from headstay.lint.family import Families
from headstay.lint.reach import size
from headstay.lint.turn import take
from headstay.trace.entry import Entry

START = 1_795_946_400.0


def breaks(log: Log) -> list[tuple[int, Cause]]:
    return [(one.line, one.cause) for one in lint(log.entries).breaks]


def timed(log: Log, *seconds: float, **more: Any) -> None:
    log.entries = [replace(one, started=START + at, **more) for one, at in zip(log.entries, seconds, strict=True)]


def whole(log: Log, line: int) -> int:
    return int(size(take(1, log.entries[line - 1]).request))


class TestTheHeadOfAnotherConversation:
    """A first request is held against the one before it, and not against itself."""

    def test_with_the_line_and_the_time_of_that_one(self) -> None:
        log = Log("anthropic-messages")
        for name in ("ada", "bob", "cy"):
            log.ask([f"{name}: one question"])
        log.entries = [replace(one, usage=used(whole(log, 1))) for one in log.entries]
        timed(log, 0.0, 10_000.0, 20_000.0)
        told = lint(log.entries)
        assert [(one.line, one.after_line, one.cause) for one in told.breaks] == [
            (2, 1, Cause.TTL_EXPIRED),
            (3, 2, Cause.TTL_EXPIRED),
        ]

    def test_a_second_fan_out_is_one_too(self) -> None:
        log = Log("anthropic-messages")
        for number in range(4):
            log.ask([f"{number}: one question"])
        log.entries = [replace(one, usage=used(whole(log, 1))) for one in log.entries]
        timed(log, 0.0, 1.0, 4_000.0, 4_001.0)
        log.entries = [replace(one, answered=(one.started or 0) + 3) for one in log.entries]
        assert breaks(log) == [(2, Cause.COLD_FAN_OUT), (3, Cause.TTL_EXPIRED), (4, Cause.COLD_FAN_OUT)]

    def test_a_cache_key_for_each_conversation_is_a_break(self) -> None:
        log = Log("openai-chat")
        for name in ("ada", "bob"):
            log.ask([f"{name}: one question"], prompt_cache_key=name)
        assert breaks(log) == [(2, Cause.PARAMETERS_CHANGED)]


class TestConversations:
    """Who goes on with whom."""

    @pytest.mark.parametrize("replies", [True, False])
    def test_a_greeting_ties_no_two_conversations(self, log: Log, replies: bool) -> None:
        hello = "Hello, I am the assistant of the shop. How can I help you today, dear customer?"
        answers = ["Let me look.", "Let me look."]
        for number in range(6):
            said = ["(opened the chat)", hello, f"Where is my order {number}17, and when will it be here?"]
            for answer in answers:
                log.ask(said, entry={"reply": (answer,)} if replies else None)
                said = [*said, answer, f"And the invoice of {number}17?"]
        assert log.conversations() == [number for number in range(1, 7) for _ in answers]
        assert breaks(log) == []

    def test_a_long_first_question_is_no_summary_of_another_conversation(self, log: Log) -> None:
        for said in talk("how do I configure the scheduler to run the nightly export", 3):
            log.ask(said)
        long = "I configured the scheduler for the nightly export, and the export does not run. " * 4
        log.ask([f"{long} What did I miss about the scheduler, and where does the export go?"])
        assert log.conversations() == [1, 1, 1, 2]
        assert breaks(log) == []

    def test_two_agents_that_share_a_thread_and_its_messages(self, log: Log) -> None:
        entry = {"conversation": "t"}
        said = ["Please plan the trip to Oslo for me, with all the trains"]
        for turn in range(3):
            for name in ("planner", "critic"):
                log.ask(said, f"You are the {name}, an expert of {name}s. {RULES}", entry=entry)
                said = [*said, f"{name}: what I have to say in turn {turn}, at some length", f"go on, {turn} {name}"]
        found = breaks(log)
        assert {line for line, _ in found} <= {2}, "at most the first request of the second agent looks like a change"

    def test_a_subagent_with_tools_of_its_own_in_the_same_thread(self) -> None:
        log, entry = Log("openai-chat"), {"conversation": "t"}
        for turn, said in enumerate(talk("ada", 3)):
            log.ask(said, entry=entry, tools=[_tool("find"), _tool("refund")])
            log.ask([f"task {turn}: look this up"], entry=entry, tools=[_tool("search")])
        assert breaks(log) == []

    def test_many_side_by_side_under_one_id(self) -> None:
        log, entry = Log("openai-chat"), {"conversation": "one-user"}
        talks = [talk(str(number), 3) for number in range(24)]
        for turn in range(3):
            for one in talks:
                log.ask(one[turn], entry=entry)
        assert breaks(log) == []

    def test_a_note_behind_the_question_that_is_not_sent_again(self) -> None:
        log = Log("openai-chat")
        for name in ("ada", "bob", "cy"):
            said: list[dict[str, str]] = []
            for turn in range(4):
                said.append({"role": "user", "content": f"{name}: question {turn}"})
                note = {"role": "developer", "content": f"It is 10:{turn:02d}."}
                messages = [{"role": "system", "content": RULES}, *said, note]
                body = {"model": "gpt-5.4", "messages": messages}
                log.entries.append(Entry(line=len(log.entries) + 1, wire="openai-chat", body=body))
                said.append({"role": "assistant", "content": "Sure!"})
        assert log.conversations() == [1] * 4 + [2] * 4 + [3] * 4
        assert breaks(log) == []

    def test_two_models_by_turns_are_one_change(self) -> None:
        log = Log("openai-chat")
        for turn, said in enumerate(talk("ada", 6)):
            log.ask(said, model=("gpt-5.4", "gpt-4.1")[turn % 2])
        assert breaks(log) == [(2, Cause.MODEL_CHANGED)]

    def test_equal_histories_go_to_the_same_head(self) -> None:
        log = Log("openai-chat")
        for name in ("Ada", "Grace"):
            for said in talk("same", 3):
                log.ask(said, f"{RULES} The customer is {name}.")
        assert log.conversations() == [1, 1, 1, 2, 2, 2]
        assert breaks(log) == []

    def test_a_prompt_on_one_line_without_blanks_is_still_one_agent(self) -> None:
        log = Log("openai-chat")
        prompt = (
            "你是客服。现在时间是2026年11月29日10点{}分。请简短、友好地回答并引用适用的规则。" + "规则必须遵守。" * 400
        )
        for minute, said in enumerate(talk("甲", 3)):
            log.ask(said, prompt.format(minute + 10), entry={"conversation": "t"})
        assert log.conversations() == [1, 1, 1]
        assert [line for line, _ in breaks(log)] == [2, 3]


def _tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def test_heads_with_large_pictures_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstay.lint.family._MAX_WEIGHT", 100_000)
    families = Families()
    turns = [
        take(
            number,
            Entry(
                line=number, wire="openai-chat", body=body_of(["x" * 40_000], f"{number} {RULES}", wire="openai-chat")
            ),
        )
        for number in range(1, 11)
    ]
    for turn in turns:
        families.note(turn, opening=True)
    assert [families.known(turn) is not None for turn in turns] == [False] * 9 + [True]
    assert families.nearest(turns[0]) is not None


class TestCosts:
    """What is lost, to the token."""

    def test_a_break_that_is_seen_costs_from_the_first_token_on(self) -> None:
        log = Log("openai-chat")
        for minute, said in enumerate(talk("ada", 2)):
            log.ask(said, f"{RULES[:8_000]} It is 10:0{minute}. {RULES[:3_000]}")
        usage = from_openai_chat({"prompt_tokens": whole(log, 1), "prompt_tokens_details": {"cached_tokens": 1_792}})
        log.entries = [replace(one, usage=usage) for one in log.entries]
        (one,) = lint(log.entries).breaks
        assert one.cause == Cause.CLOCK_IN_HEAD
        # 8,000 characters stand before the clock: at 4.3 bytes a token 1,860, of which whole steps of 128 were read.
        assert one.lost_tokens == whole(log, 1) // 128 * 128 - 1_792 == 768

    def test_what_lies_behind_the_lookback_is_lost(self) -> None:
        log = Log("anthropic-messages")
        said = talk("ada", 2)[-1]
        log.ask(said)
        long = [*said, *[f"{number}: said at length" for number in range(31)]]
        body = body_of(long)
        log.entries.append(Entry(line=2, wire="anthropic-messages", body=body))
        (one,) = lint(log.entries).breaks
        assert one.cause == Cause.LOOKBACK_EXCEEDED
        assert one.lost_tokens == pytest.approx(sum(map(len, said)) / 4.3, abs=2)

    def test_a_prompt_without_a_known_price_has_none(self) -> None:
        log = Log("openai-chat")
        for minute, said in enumerate(talk("ada", 2)):
            log.ask(said, f"It is 10:0{minute}. {RULES}", model="my-own")
        told = lint(log.entries)
        assert told.lost.lost_usd is None
        assert [fix.sum.lost_usd for fix in told.fixes] == [None]

    def test_what_varies_in_one_text_is_one_fix(self) -> None:
        log = Log("openai-chat")
        notes = ("Please mention the sale of lamps.", "Closed on Monday, so promise nothing.", "All is quiet today.")
        for minute, said in enumerate(talk("ada", 3)):
            log.ask(said, f"Now 10:{minute:02d}.\nNote of the day: {notes[minute]}\n{RULES}")
        (fix,) = lint(log.entries).fixes
        assert fix.sum.lost_tokens == lint(log.entries).lost.lost_tokens
        assert fix.remedy.count("Slot(") == 2

    def test_absurd_counts_are_none(self) -> None:
        assert from_openai_chat({"prompt_tokens": 10**400}).input_tokens == 0


def test_ids_of_conversations_are_cut_and_hide_secrets(log: Log) -> None:
    entry = {"conversation": f"key sk-proj-{'a' * 40} {'x' * 500}"}
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:0{minute}. {RULES}", entry=entry)
    (one,) = lint(log.entries).breaks
    assert len(one.name) <= 80
    assert "aaaa" not in one.name
