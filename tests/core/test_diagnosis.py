"""The provider's own diagnosis: what is asked, what its words mean here, and when they explain nothing."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay import HeadStore, Ledger
from headstay.call import Call
from headstay.causes import Break, Cause
from headstay.diagnosis import (
    MEANINGS,
    Earlier,
    Reply,
    ask,
    combined,
    read_diagnosis,
    read_kept,
    routed_elsewhere,
    told,
)
from headstay.flow import Flow, Settings
from headstay.ledger import Row, Usage
from headstay.prompt import Wire
from headstay.providers.rules import find_rules

BODY: dict[str, Any] = {"model": "m", "messages": []}
ANTHROPIC: Wire = "anthropic-messages"
RESPONSES: Wire = "openai-responses"
SYSTEM = "Answer briefly and kindly. " * 300
CAUSES = {
    "model_changed": "model_changed",
    "system_changed": "system_text_changed",
    "tools_changed": "tool_schema_changed",
    "messages_changed": "history_edited",
    "input_changed": "history_edited",
    "context_compacted": "history_summarised",
    "prompt_cache_key_changed": "parameters_changed",
    "text_format_changed": "parameters_changed",
    "reasoning_effort_changed": "parameters_changed",
    "verbosity_changed": "parameters_changed",
    "service_tier_changed": "parameters_changed",
}


def test_every_word_of_both_providers_has_its_cause() -> None:
    assert {word: meaning.cause.value for word, meaning in MEANINGS.items()} == CAUSES


@pytest.mark.parametrize(
    ("body", "wire", "earlier", "asked"),
    [
        (BODY, ANTHROPIC, Earlier(), {"diagnostics": {"previous_message_id": None}}),
        (BODY, ANTHROPIC, Earlier(ANTHROPIC, "msg_1"), {"diagnostics": {"previous_message_id": "msg_1"}}),
        # the id of another wire means nothing here
        (BODY, ANTHROPIC, Earlier(RESPONSES, "resp_1"), {"diagnostics": {"previous_message_id": None}}),
        (BODY, RESPONSES, Earlier(RESPONSES, "resp_1"), {"prompt_cache_options": {"comparison_response_id": "resp_1"}}),
        (
            {**BODY, "prompt_cache_options": {"mode": "explicit", "ttl": "12h"}},
            RESPONSES,
            Earlier(RESPONSES, "resp_1"),
            {"prompt_cache_options": {"mode": "explicit", "ttl": "12h", "comparison_response_id": "resp_1"}},
        ),
        (BODY, RESPONSES, Earlier(), None),
        (BODY, RESPONSES, Earlier("openai-chat", "chatcmpl-1"), None),
        ({**BODY, "diagnostics": None}, ANTHROPIC, Earlier(ANTHROPIC, "msg_1"), None),
        (
            {**BODY, "prompt_cache_options": {"comparison_response_id": "resp_0"}},
            RESPONSES,
            Earlier(RESPONSES, "resp_1"),
            None,
        ),
    ],
)
def test_what_is_asked(body: dict[str, Any], wire: Wire, earlier: Earlier, asked: Mapping[str, object] | None) -> None:
    before = dict(body)
    assert ask(body, wire, earlier) == (None if asked is None else {**body, **asked})
    assert body == before


@pytest.mark.parametrize(
    ("found", "read"),
    [
        (None, (None, None, None)),
        ({"cache_miss_reason": None}, (None, None, None)),  # still pending
        (
            {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 77}},
            ("tools_changed", 77, None),
        ),
        ({"cache_miss_reason": {"type": "unavailable"}}, ("unavailable", None, None)),
        ({"type": "cache_hit"}, ("cache_hit", None, None)),
        (
            {
                "type": "cache_miss",
                "reason": "input_changed",
                "cache_missed_tokens": 12,
                "comparison_reusable_tokens": 40,
            },
            ("input_changed", 12, 40),
        ),
        ({"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": True}, ("input_changed", None, None)),
        ("tools_changed", (None, None, None)),
        ({}, (None, None, None)),
    ],
)
def test_what_is_read(found: object, read: tuple[str | None, int | None, int | None]) -> None:
    assert read_diagnosis(found) == read


def meant(reply: Reply, earlier: Earlier | None = None) -> str | None:
    found = told(reply, earlier or Earlier(), input_tokens=1_000, head_tokens=600)
    return None if found is None else found[0].cause.value


@pytest.mark.parametrize("word", ["previous_message_not_found", "comparison_response_not_found", "unavailable", "new"])
def test_words_that_name_no_cause(word: str) -> None:
    assert meant(Reply(word=word)) is None


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (Reply(word="input_changed"), "history_edited"),
        (Reply(word="input_changed", missed=300), "history_edited"),  # 700 are shared, the head's 600 among them
        (Reply(word="input_changed", missed=500), "system_text_changed"),  # 500 are shared, and the head has 600
        (Reply(word="input_changed", missed=300, reusable=900), "history_edited"),
        (Reply(word="input_changed", missed=300, reusable=700), None),  # all that could be read is shared
    ],
)
def test_where_an_input_changed(reply: Reply, cause: str | None) -> None:
    assert meant(reply) == cause


def test_a_note_that_is_not_sent_again_is_no_edited_history() -> None:
    noted = Earlier(ANTHROPIC, "msg_1", noted=True)
    assert meant(Reply(word="messages_changed"), noted) is None
    assert meant(Reply(word="system_changed"), noted) == "system_text_changed"


OWN = {
    "parameters": Break(Cause.PARAMETERS_CHANGED, "application", "parameters", ""),
    "tool": Break(Cause.TOOL_ADDED, "application", "tools[3]", ""),
    "clock": Break(Cause.CLOCK_IN_HEAD, "application", "system[0]", ""),
    "choice": Break(Cause.TOOL_CHOICE_CHANGED, "application", "tool_choice", ""),
    "edit": Break(Cause.HISTORY_EDITED, "application", "messages[2]", ""),
    "unknown": Break(Cause.UNKNOWN, "application", "head", ""),
}


@pytest.mark.parametrize(
    ("own", "word", "first"),
    [
        ([], "system_changed", "system_text_changed"),
        (["clock"], "system_changed", "clock_in_head"),  # the same part, and more precise
        (["tool"], "tools_changed", "tool_added"),
        (["tool"], "system_changed", "tool_added"),  # tools come first on the wire
        (["edit"], "system_changed", "system_text_changed"),
        (["choice"], "tools_changed", "tool_schema_changed"),
        (["clock"], "messages_changed", "clock_in_head"),
        (["unknown"], "tools_changed", "tool_schema_changed"),
        (["unknown", "tool"], "tools_changed", "unknown"),
        (["parameters"], "model_changed", "parameters_changed"),
        (["edit"], "prompt_cache_key_changed", "history_edited"),  # our key follows the head
        ([], "unavailable", None),
    ],
)
def test_our_own_word_and_the_providers(own: list[str], word: str, first: str | None) -> None:
    breaks = [OWN[name] for name in own]
    found = combined(breaks, told(Reply(word=word), Earlier(), input_tokens=9, head_tokens=1))
    assert (found[0].cause.value if found else None) == first
    assert [one for one in found if one in breaks] == breaks


@given(
    wire=st.sampled_from([ANTHROPIC, RESPONSES, "openai-chat"]),
    names=st.tuples(st.text(), st.text(), st.text()),
    noted=st.booleans(),
)
def test_what_is_kept_comes_back(wire: Wire, names: tuple[str, str, str], noted: bool) -> None:
    kept = Reply(*names, word="tools_changed").kept(wire, noted=noted)
    assert read_kept(kept) == (Earlier(wire, *names, noted=noted) if any(names) else Earlier())


@pytest.mark.parametrize(
    ("before", "now", "shows"),
    [
        (("fp_1", "default"), ("fp_1", "default"), False),
        (("fp_1", "default"), ("fp_2", "default"), True),
        (("", "priority"), ("", "default"), True),
        (("fp_1", ""), ("", "default"), False),  # what is not told shows nothing
        (("", ""), ("fp_2", "default"), False),
    ],
)
def test_another_backend_shows_only_where_both_replies_tell(
    before: tuple[str, str], now: tuple[str, str], shows: bool
) -> None:
    found = routed_elsewhere(Reply("", *now), Earlier("openai-chat", "", *before))
    assert (found is not None) == shows


def test_the_rules_say_which_apis_diagnose() -> None:
    cases: list[tuple[Wire, str, tuple[Wire, ...], int]] = [
        ("anthropic-messages", "claude-opus-5-5", ("anthropic-messages",), 0),
        ("anthropic-messages", "claude-haiku-4-5", ("anthropic-messages",), 0),
        ("openai-responses", "gpt-6.1-sol", ("openai-responses",), 0),
        ("openai-responses", "gpt-5.6-terra", ("openai-responses",), 0),
        ("openai-responses", "gpt-5.4", (), 15),
        ("anthropic-messages", "some-model", (), 0),
        ("openai-responses", "some-model", (), 0),
    ]
    for wire, model, diagnoses, most in cases:
        rules = find_rules(wire, model)
        assert (rules.diagnoses, rules.requests_per_minute) == (diagnoses, most), model


class Desk:
    """An application that talks to a provider whose usage and words are given by hand."""

    def __init__(self, model: str, wire: Wire, **settings: Any) -> None:
        self.ledger = Ledger()
        self.flow = Flow(Settings("desk", **settings), head_store=HeadStore(), ledger=self.ledger)
        self.model, self.wire = model, wire
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
        self.now = 1_000.0

    def send(self, *, later: float = 10.0, thread: str = "one", **more: Any) -> Call:
        self.now += later
        field = "input" if self.wire == RESPONSES else "messages"
        head = {"instructions": SYSTEM} if self.wire == RESPONSES else {"system": SYSTEM}
        if self.wire == "openai-chat":
            head = {}
            more["messages"] = [{"role": "system", "content": SYSTEM}, *self.messages]
        body = {"model": self.model, "max_tokens": 9, field: list(self.messages), **head, **more}
        return self.flow.prepare(body, wire=self.wire, thread=thread, now=self.now)

    def answer(self, call: Call, usage: Usage, reply: Reply | None = None) -> Row:
        call.reply = reply or Reply()
        self.flow.complete(call, usage)
        self.messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
        return list(self.ledger.rows())[-1]


WROTE, READ, MISSED = Usage(2_000, 0, 1_990), Usage(2_020, 1_990, 20), Usage(2_020, 0, 2_010)


def test_the_providers_word_is_the_cause_where_nothing_was_found_here() -> None:
    desk = Desk("claude-opus-5", ANTHROPIC, on_break="record", verify="provider")
    first = desk.send()
    assert first.body["diagnostics"] == {"previous_message_id": None}
    assert desk.answer(first, WROTE, Reply("msg_1")).status == "cold"
    second = desk.send()
    assert second.body["diagnostics"] == {"previous_message_id": "msg_1"}
    row = desk.answer(second, MISSED, Reply("msg_2", word="tools_changed", missed=1_990))
    assert (row.status, row.cause, row.owner) == ("short", "tool_schema_changed", "application")
    assert (row.diagnosis, row.diagnosis_tokens, row.breaks) == ("tools_changed", 1_990, ())
    third = desk.send()
    assert third.body["diagnostics"] == {"previous_message_id": "msg_2"}
    row = desk.answer(third, Usage(2_040, 2_010, 20), Reply("msg_3", word="tools_changed", missed=1_990))
    assert (row.status, row.cause, row.diagnosis) == ("ok", None, "tools_changed")  # it was read: no matter


def test_our_own_break_keeps_the_first_word() -> None:
    desk = Desk("claude-opus-5", ANTHROPIC, on_break="record", verify="provider")
    desk.answer(desk.send(), WROTE, Reply("msg_1"))
    call = desk.send(tools=[{"name": "look", "input_schema": {"type": "object"}}])
    row = desk.answer(call, MISSED, Reply("msg_2", word="tools_changed", missed=1_990))
    assert (row.cause, row.diagnosis) == ("tool_added", "tools_changed")


def test_the_applications_own_question_is_left_and_not_taken_for_ours() -> None:
    desk = Desk("claude-opus-5", ANTHROPIC, on_break="record", verify="provider")
    desk.answer(desk.send(), WROTE, Reply("msg_1"))
    own = {"previous_message_id": "msg_of_another_day"}
    call = desk.send(diagnostics=own)
    assert call.body["diagnostics"] == own
    row = desk.answer(call, MISSED, Reply("msg_2", word="tools_changed"))
    assert (row.cause, row.diagnosis) == ("unknown", "tools_changed")


@pytest.mark.parametrize("verify", ["off", "local"])
@pytest.mark.parametrize(("model", "wire"), [("claude-opus-5", ANTHROPIC), ("gpt-6.1-sol", RESPONSES)])
def test_nothing_is_asked_otherwise(model: str, wire: Wire, verify: Any) -> None:
    desk = Desk(model, wire, on_break="record", verify=verify)
    for _ in range(2):
        call = desk.send()
        assert not call.diagnosed
        assert "diagnostics" not in call.body
        assert "comparison_response_id" not in str(call.body)
        desk.answer(call, WROTE, Reply("resp_1"))


def test_responses_are_compared_from_the_second_turn_on() -> None:
    desk = Desk("gpt-6.1-sol", RESPONSES, on_break="record", verify="provider")
    first = desk.send()
    assert "comparison_response_id" not in str(first.body)
    desk.answer(first, WROTE, Reply("resp_1"))
    second = desk.send()
    assert second.body["prompt_cache_options"] == {"mode": "explicit", "comparison_response_id": "resp_1"}
    reply = Reply("resp_2", word="input_changed", missed=2_000, reusable=1_990)
    row = desk.answer(second, MISSED, reply)
    assert (row.status, row.cause, row.diagnosis) == ("short", "system_text_changed", "input_changed")


def test_another_cloud_is_not_asked() -> None:
    flow = Flow(Settings(verify="provider", on_break="record"))
    body = {
        "model": "claude-opus-5",
        "max_tokens": 9,
        "system": SYSTEM,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    assert "diagnostics" in flow.prepare(body, wire=ANTHROPIC).body
    assert "diagnostics" not in flow.prepare(body, wire=ANTHROPIC, diagnoses=False).body


def test_an_api_that_refuses_the_question_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk("claude-opus-5", ANTHROPIC, verify="provider")
    desk.flow.complete(desk.send(), None, error=ValueError("400: tools.0: Input should be an object"))
    call = desk.send()
    assert call.asked
    desk.flow.complete(call, None, error=ValueError("400: diagnostics: Extra inputs are not permitted"))
    assert "diagnostics" not in desk.send().body
    (said,) = caplog.records
    assert "was refused (ValueError)" in said.message


@pytest.mark.parametrize(
    ("reply", "usage", "cause"),
    [
        (Reply("", "fp_2", "default"), Usage(2_020, 0), "provider_routing"),
        (Reply("", "fp_1", "priority"), Usage(2_020, 0), "provider_routing"),
        (Reply("", "fp_1", "default"), Usage(2_020, 0), "unknown"),
        (Reply(), Usage(2_020, 0), "unknown"),
        (Reply("", "fp_2", "default"), Usage(2_020, 1_920), None),
    ],
)
def test_another_backend_is_routing_only_where_the_reply_shows_it(
    reply: Reply, usage: Usage, cause: str | None
) -> None:
    desk = Desk("gpt-5.4", "openai-chat", on_break="record")
    desk.answer(desk.send(), Usage(2_000, 0), Reply("", "fp_1", "default"))
    row = desk.answer(desk.send(), usage, reply)
    assert (row.status, row.cause) == ("short" if cause else "ok", cause)
    assert (row.note is not None) == (cause == "provider_routing")


@pytest.mark.parametrize(("later", "cause"), [(3.0, "provider_routing"), (5.0, "unknown")])
def test_too_much_for_one_machine(later: float, cause: str) -> None:
    # in any minute: 20 calls every 3 seconds, 12 every 5; a machine takes about 15
    desk = Desk("gpt-5.4", "openai-chat", on_break="record")
    for number in range(20):
        row = desk.answer(desk.send(later=later), Usage(2_000 + 20 * number, 1_920 if number else 0))
    assert row.status == "ok"
    row = desk.answer(desk.send(later=later), Usage(2_500, 0))
    assert (row.status, row.cause) == ("short", cause)


def test_an_anthropic_reply_shows_no_routing() -> None:
    desk = Desk("claude-opus-5", ANTHROPIC, on_break="record")
    desk.answer(desk.send(), WROTE, Reply("", "", "standard"))
    assert desk.answer(desk.send(), MISSED, Reply("", "", "priority")).cause == "unknown"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "headstay"]


@pytest.mark.parametrize(
    ("settings", "reply", "later", "said"),
    [
        (
            {},
            Reply(),
            400,
            "desk: ttl_expired (expiry): 0 of 1,990 expected tokens came from the cache: it was last used 400 s ago "
            'and is kept for 300 s; ttl="1h" keeps it longer',
        ),
        (
            {"ttl": "1h"},
            Reply(),
            4_000,
            "desk: ttl_expired (expiry): 0 of 1,990 expected tokens came from the cache: it was last used 4,000 s ago "
            "and is kept for 3,600 s; none is on offer that is kept longer: ask again sooner",
        ),
        (
            {},
            Reply(),
            10,
            "desk: unknown (provider): 0 of 1,990 expected tokens came from the cache: nothing that headstay sees has "
            "changed, so the provider dropped it early or looked elsewhere; "
            'verify="provider" asks it for its diagnosis',
        ),
        (
            {"verify": "provider"},
            Reply("msg_2", word="unavailable"),
            10,
            "desk: unknown (provider): 0 of 1,990 expected tokens came from the cache: nothing that headstay sees has "
            "changed, so the provider dropped it early or looked elsewhere",
        ),
        (
            {"verify": "provider"},
            Reply("msg_2", word="system_changed"),
            10,
            "desk: system_text_changed (application): 0 of 1,990 expected tokens came from the cache: the provider "
            "compared it with the call before and says system_changed; here it left unchanged: look for what changes "
            "requests on their way: a proxy, a gateway, a hook of the HTTP client",
        ),
    ],
)
def test_a_short_read_is_said_after_the_call_and_once(
    settings: dict[str, Any], reply: Reply, later: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    desk = Desk("claude-opus-5", ANTHROPIC, **settings)
    desk.answer(desk.send(), WROTE, Reply("msg_1"))
    assert lines(caplog) == []
    desk.answer(desk.send(later=later), MISSED, reply)
    desk.answer(desk.send(later=later), MISSED, reply)  # of each kind one line
    assert lines(caplog) == [said]


def test_a_cold_fan_out_is_said(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk("claude-opus-5", ANTHROPIC)
    desk.answer(desk.send(), WROTE)
    desk.messages = [{"role": "user", "content": "Something else"}]
    one, two = desk.send(thread="two"), desk.send(thread="three")
    desk.answer(one, WROTE)
    desk.answer(two, WROTE)
    (said, *_) = [line for line in lines(caplog) if "cold_fan_out" in line]
    assert "let one call begin to answer" in said


def test_what_was_said_before_the_call_is_not_said_again(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk("claude-opus-5", ANTHROPIC)
    desk.answer(desk.send(), WROTE)
    row = desk.answer(desk.send(tools=[{"name": "look", "input_schema": {"type": "object"}}]), MISSED)
    assert row.cause == "tool_added"
    assert len(lines(caplog)) == 1


@pytest.mark.parametrize("on_break", ["record", "raise"])
def test_record_is_silent_and_raise_does_not_raise_after_the_call(
    on_break: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk("claude-opus-5", ANTHROPIC, on_break=on_break)
    desk.answer(desk.send(), WROTE)
    assert desk.answer(desk.send(later=400), MISSED).cause == "ttl_expired"
    assert len(lines(caplog)) == (on_break == "raise")
