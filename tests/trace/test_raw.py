"""Request bodies as applications log them: bare, in an envelope, in batch files, with responses of every form."""

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator import Emulator
from headstay.ledger.usage import Usage
from headstay.trace import Entry, Skipped
from headstay.trace.raw import entries

Read = Callable[..., tuple[list[Entry], list[Skipped]]]

CLAUDE = {
    "model": "claude-opus-5",
    "max_tokens": 9,
    "system": "Be brief.",
    "messages": [{"role": "user", "content": "Hello"}],
}
CHAT = {
    "model": "gpt-5.4",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
}
RESPONSES = {"model": "gpt-5.4", "instructions": "Be brief.", "input": "Hello"}
BODIES = {"anthropic-messages": CLAUDE, "openai-chat": CHAT, "openai-responses": RESPONSES}


@pytest.fixture(params=BODIES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def body(wire: str) -> dict[str, Any]:
    return BODIES[wire]


def only(found: tuple[list[Entry], list[Skipped]]) -> Entry:
    (entry,), skipped = found
    assert skipped == []
    return entry


@pytest.mark.parametrize(
    "wrap",
    [
        lambda body: body,
        lambda body: {"request": body},
        lambda body: {"request": json.dumps(body)},
        lambda body: {"request_body": body, "response_body": None},
        lambda body: {"body": json.dumps(body), "level": "info"},
        lambda body: {"payload": body},
        lambda body: {"request": {"method": "POST", "headers": {}, "body": body}},
        lambda body: {"request": {"method": "POST", "content": json.dumps(body)}},
        lambda body: {"request": {"postData": {"text": "not looked into"}, "json": body}},
        lambda body: {"input": body, "output": "Hi."},
    ],
)
def test_envelopes(read_records: Read, wire: str, body: dict[str, Any], wrap: Callable[[Any], Any]) -> None:
    entry = only(read_records(wrap(body)))
    assert (entry.wire, entry.body, entry.exact, entry.line) == (wire, body, True, 1)


def test_the_plain_form(read_records: Read, wire: str, body: dict[str, Any]) -> None:
    usage = {
        "anthropic-messages": {"input_tokens": 10, "cache_read_input_tokens": 30, "output_tokens": 5},
        "openai-chat": {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 30}, "completion_tokens": 5},
        "openai-responses": {"input_tokens": 40, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 5},
    }[wire]
    entry = only(read_records({"request": body, "response_usage": usage, "ts": 1795986104.5, "conversation": "c-1"}))
    assert entry.usage == Usage(input_tokens=40, cache_read_tokens=30, output_tokens=5)
    assert (entry.started, entry.answered, entry.conversation) == (1795986104.5, None, "c-1")


def test_log_fields_beside_a_bare_body_are_no_part_of_it(read_records: Read, wire: str, body: dict[str, Any]) -> None:
    beside = {"ts": 5, "usage": {"input_tokens": 3}, "response": "Hi.", "thread_id": "t-1", "headers": {}, "url": "/x"}
    entry = only(read_records({**body, **beside}))
    assert entry.body == body
    assert (entry.started, entry.conversation, entry.reply) == (5.0, "t-1", ("Hi.",))
    assert entry.usage == Usage(input_tokens=3)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (1795986104, 1795986104.0),
        (0, 0.0),
        ("1795986104.25", 1795986104.25),
        (1795986104250, 1795986104.25),
        (1795986104250000, 1795986104.25),
        (1795986104250000000, 1795986104.25),
        ("2026-11-29T21:01:44.250Z", 1795986104.25),
        ("2026-11-29 22:01:44,250+01:00", 1795986104.25),
        ("2026-11-29T21:01:44.250000123", 1795986104.25),
        ("2026-11-29 21:01:44 UTC", 1795986104.0),
        ("yesterday", None),
        (True, None),
        (-1, None),
        (10**400, None),
        ({}, None),
    ],
)
def test_times(read_records: Read, given: object, seconds: float | None) -> None:
    assert only(read_records({"request": CHAT, "timestamp": given})).started == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    ("record", "answered"),
    [
        ({"first_token_at": 12.5, "end_time": 20}, 12.5),
        ({"completed_at": "1970-01-01T00:00:15Z"}, 15.0),
        ({"ttft_ms": 800}, 10.8),
        ({"latency_ms": 2500}, 12.5),
        ({"end_time": 9}, None),
        ({}, None),
    ],
)
def test_when_it_was_answered(read_records: Read, record: dict[str, Any], answered: float | None) -> None:
    assert only(read_records({"request": CHAT, "ts": 10, **record})).answered == answered


@pytest.mark.parametrize(
    ("beside", "inside", "name"),
    [
        ({"session_id": "s"}, {}, "s"),
        ({"metadata": {"threadId": "t"}}, {}, "t"),
        ({"metadata": '{"session_id": "j"}'}, {}, "j"),
        ({"conversation": {"id": "conv_1"}}, {}, "conv_1"),
        ({"chat_id": 17}, {}, "17"),
        ({"headers": {"X-Session-Id": "h"}}, {}, "h"),
        ({}, {"conversation": {"id": "conv_2"}}, "conv_2"),
        ({}, {"conversation": "conv_3"}, "conv_3"),
        ({}, {"metadata": {"conversation_id": "m"}}, "m"),
        ({}, {"session_id": "router"}, "router"),
        ({}, {"metadata": {"user_id": "u"}}, ""),
        ({"thread_id": 140704}, {}, ""),
        ({"trace_id": "t", "request_id": "r", "user_id": "u"}, {}, ""),
    ],
)
def test_conversations(read_records: Read, beside: dict[str, Any], inside: dict[str, Any], name: str) -> None:
    assert only(read_records({"request": {**RESPONSES, **inside}, **beside})).conversation == name


def test_whose_call_it_was(read_records: Read) -> None:
    record = {"request": CHAT, "provider": "azure_openai", "organization": "org-1"}
    entry = only(read_records(record))
    assert (entry.provider, entry.account) == ("azure", "org-1")
    assert only(read_records({"request": CHAT, "provider": "our-gateway"})).provider == ""
    assert (
        only(read_records({"request": CHAT, "url": "https://x.openai.azure.com/openai/v1/responses"})).provider
        == "azure"
    )


@pytest.mark.parametrize(
    ("hint", "wire"),
    [
        ({}, "openai-chat"),
        ({"url": "https://llm.example/v1/messages?beta=true"}, "anthropic-messages"),
        ({"provider": "anthropic"}, "anthropic-messages"),
        ({"response": {"type": "message", "role": "assistant", "content": []}}, "anthropic-messages"),
        ({"response_usage": {"input_tokens": 3, "cache_read_input_tokens": 0}}, "anthropic-messages"),
        ({"response_usage": {"prompt_tokens": 3}, "provider": "anthropic"}, "openai-chat"),
    ],
)
def test_a_body_of_either_wire_is_told_by_what_stands_beside_it(
    read_records: Read, hint: dict[str, Any], wire: str
) -> None:
    request = {"model": "house-model", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
    assert only(read_records({"request": request, **hint})).wire == wire


def test_batch_files(read_records: Read) -> None:
    found, skipped = read_records(
        {"custom_id": "a", "params": CLAUDE},
        {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": CHAT},
        {"custom_id": "c", "method": "POST", "url": "/v1/responses", "body": RESPONSES},
        {
            "custom_id": "d",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "text-embedding-3", "input": "x"},
        },
        {
            "id": "1",
            "custom_id": "b",
            "response": {"status_code": 200, "body": {"id": "x", "choices": []}},
            "error": None,
        },
        {
            "custom_id": "a",
            "result": {"type": "succeeded", "message": {"type": "message", "role": "assistant", "content": []}},
        },
    )
    assert [entry.wire for entry in found] == ["anthropic-messages", "openai-chat", "openai-responses"]
    assert {entry.context["processing"] for entry in found} == {"batch"}
    assert skipped == [
        Skipped(4, "a call that makes no text", bad=False),
        Skipped(5, "a response without its request", bad=False),
        Skipped(6, "a response without its request", bad=False),
    ]


@pytest.mark.parametrize(
    ("record", "reason", "bad"),
    [
        ({"level": "info", "message": "started"}, "no model call", False),
        ({"messages": "three messages processed"}, "no model call", False),
        ({"input": "a question", "output": "an answer"}, "a response without its request", False),
        (
            {"id": "msg_1", "type": "message", "role": "assistant", "content": []},
            "a response without its request",
            False,
        ),
        (
            {"id": "resp_1", "object": "response", "output": [], "instructions": "x", "model": "m"},
            "a response without its request",
            False,
        ),
        ({"model": "text-embedding-3-small", "input": "words"}, "a call that makes no text", False),
        (
            {"request": CHAT, "url": "https://api.openai.com/v1/responses/input_tokens"},
            "a call that makes no text",
            False,
        ),
        ({"request": CHAT, "error": {"type": "overloaded_error"}}, "a call that failed", False),
        ({"request": CHAT, "status_code": 429}, "a call that failed", False),
        ({"request": CHAT, "status": "error"}, "a call that failed", False),
        ({"request": CHAT, "response": {"type": "error", "error": {"type": "api_error"}}}, "a call that failed", False),
        ({"request": CHAT, "response": {"status_code": 500, "body": "oops"}}, "a call that failed", False),
        ({"request": '{"model": "gpt-5.4", "mess'}, "its request is no JSON, or cut off", True),
        ({"model": "m", "messages": 7}, "messages: expected a list of objects, got a number", True),
        (
            {"model": "m", "messages": [{"role": "user", "content": "x"}, "y"]},
            "messages[1]: expected an object, got text",
            True,
        ),
        (
            {"model": "m", "input": [{"role": "user", "content": "x"}, None]},
            "input[1]: expected an object, got null",
            True,
        ),
    ],
)
def test_what_is_no_request(read_records: Read, record: dict[str, Any], reason: str, bad: bool) -> None:
    assert read_records(record) == ([], [Skipped(1, reason, bad=bad)])


def test_an_application_path_with_a_word_of_the_api_is_no_other_call(read_records: Read) -> None:
    assert only(read_records({"request": CHAT, "path": "/files/ask"})).wire == "openai-chat"


def test_an_anthropic_response(read_records: Read) -> None:
    response = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "text", "text": "Let me look."},
            {"type": "text", "text": " "},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        ],
        "usage": {
            "input_tokens": 7,
            "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 60,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 40},
            "output_tokens": 9,
            "service_tier": "batch",
            "speed": "fast",
        },
        "diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 60}},
    }
    entry = only(read_records({"request": CLAUDE, "response": response}))
    assert entry.reply == ("Let me look.", "toolu_1")
    assert (entry.reply_id, entry.diagnosis) == ("msg_1", "tools_changed")
    assert entry.context == {"processing": "batch", "speed": "fast"}
    assert entry.usage == Usage(
        input_tokens=167,
        cache_read_tokens=100,
        cache_write_tokens=60,
        write_by_ttl={"5m": 20, "1h": 40},
        output_tokens=9,
    )


def test_a_chat_response(read_records: Read) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    response = {
        "id": "chatcmpl-1",
        "choices": [{"message": {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}}],
        "system_fingerprint": "fp_7",
        "service_tier": "flex",
        "usage": {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 10}},
    }
    entry = only(read_records({"request": CHAT, "response": json.dumps(response)}))
    assert (entry.reply, entry.reply_id) == (("Let me look.", "call_1"), "chatcmpl-1")
    assert (entry.served_by, entry.context) == ("fp_7", {"service_tier": "flex"})
    assert entry.usage == Usage(input_tokens=50, cache_read_tokens=20, cache_write_tokens=10)
    assert only(read_records({"request": CHAT, "response": {**response, "provider": "Groq"}})).served_by == "Groq"


def test_a_responses_response(read_records: Read) -> None:
    response = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look."}]},
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
        ],
        "prompt_cache_diagnostics": {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 9},
        "usage": {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 20}, "output_tokens": 4},
    }
    entry = only(read_records({"request": RESPONSES, "response": response}))
    assert (entry.reply, entry.reply_id, entry.diagnosis) == (("Let me look.", "call_1"), "resp_1", "input_changed")
    assert entry.usage == Usage(input_tokens=50, cache_read_tokens=20, output_tokens=4)
    for told, word in (({"type": "cache_hit"}, ""), ({"type": "unavailable"}, "unavailable"), (None, "")):
        record = {"request": RESPONSES, "response": {**response, "prompt_cache_diagnostics": told}}
        assert only(read_records(record)).diagnosis == word


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        # LiteLLM: the totals are in prompt_tokens, the parts under several names
        (
            {
                "prompt_tokens": 100,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 30,
                "prompt_tokens_details": {
                    "cached_tokens": 60,
                    "cache_creation_tokens": 30,
                    "cache_creation_token_details": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20},
                },
            },
            Usage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=30, write_by_ttl={"5m": 10, "1h": 20}),
        ),
        ({"prompt_tokens": 100, "prompt_cache_hit_tokens": 64}, Usage(input_tokens=100, cache_read_tokens=64)),
        (
            {"input_tokens": 100, "input_token_details": {"cache_read": 60, "cache_creation": 0}},
            Usage(input_tokens=100, cache_read_tokens=60),
        ),
        (
            {"input_tokens": 9, "cache_read_tokens": 4, "cache_write_tokens": 3, "write_by_ttl": {"1h": 3}},
            Usage(input_tokens=9, cache_read_tokens=4, cache_write_tokens=3, write_by_ttl={"1h": 3}),
        ),
        ({"include": True}, None),
        ({"prompt_tokens": None}, None),
        ("none", None),
    ],
)
def test_usage_in_any_spelling(read_records: Read, usage: object, expected: Usage | None) -> None:
    assert only(read_records({"request": CHAT, "usage": usage})).usage == expected


@pytest.mark.parametrize("form", ["list", "text"])
@pytest.mark.parametrize("streamed", [True, False])
def test_what_the_sdks_log_of_real_answers(
    read_records: Read, server: Emulator, policy: str, wire: str, streamed: bool, form: str
) -> None:
    """The same numbers and texts, whether the answer was logged whole or event by event."""
    key: dict[str, Any] = {"api_key": "key-a", "max_retries": 0}
    for _ in range(2):
        match wire:
            case "anthropic-messages":
                with anthropic.Anthropic(base_url=server.base_url, **key) as claude:
                    system = [{"type": "text", "text": policy, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
                    body: dict[str, Any] = {**CLAUDE, "system": system}
                    reply: Any = claude.messages.create(**body, stream=streamed)
                    said = list(reply) if streamed else reply
            case "openai-chat":
                with openai.OpenAI(base_url=server.openai_url, **key) as gpt:
                    body = {**CHAT, "messages": [{"role": "system", "content": policy}, *CHAT["messages"]]}
                    options = {"stream_options": {"include_usage": True}} if streamed else {}
                    reply = gpt.chat.completions.create(**body, stream=streamed, **options)
                    said = list(reply) if streamed else reply
            case _:
                with openai.OpenAI(base_url=server.openai_url, **key) as gpt:
                    body = {**RESPONSES, "instructions": policy}
                    reply = gpt.responses.create(**body, stream=streamed)
                    said = list(reply) if streamed else reply
        events = [event.model_dump(mode="json") for event in said] if streamed else said.model_dump(mode="json")
        if form == "text":
            events = (
                "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)
                if streamed
                else json.dumps(events)
            )
        entry = only(read_records({"request": body, "response": events}))
        told = server.exchanges[-1].response
        assert told is not None
        whole = only(read_records({"request": body, "response": told}))
        assert (entry.wire, entry.body) == (wire, body)
        assert (entry.usage, entry.reply, entry.reply_id) == (whole.usage, whole.reply, whole.reply_id)
        assert entry.usage is not None
        assert entry.usage.input_tokens > 1000
        assert entry.reply
    assert entry.usage.cache_read_tokens > 1000


NAMES = st.sampled_from(
    [
        *("request", "body", "input", "messages", "model", "response", "usage", "ts", "metadata", "choices", "output"),
        *("content", "error", "status_code", "headers", "provider", "conversation", "type", "role", "message", "delta"),
        *("index", "text", "tool_calls", "id", "diagnostics", "url", "instructions", "prompt_tokens", "cache_creation"),
        *("prompt_tokens_details", "content_block", "result"),
    ]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["message", "message_start", "{", "data: {}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(record=st.dictionaries(NAMES, VALUES, max_size=6))
def test_no_record_makes_it_fail(record: dict[str, Any]) -> None:
    (found,) = entries(record, 7)
    assert found.line == 7
    if isinstance(found, Entry):
        assert found.body
        assert found.answered is None or (found.started is not None and found.answered >= found.started)
