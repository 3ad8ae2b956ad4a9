"""LiteLLM's payloads and spend logs: recorded ones, and what each setting of it does to them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay import diff
from headstay.ledger.usage import Usage
from headstay.trace import Entry, Skipped
from headstay.trace.litellm import entries

Read = Callable[..., tuple[list[Entry], list[Skipped]]]

RULES = (
    "Rule 0: answer questions on topic 0 briefly and kindly.\nRule 1: answer questions on topic 1 briefly and kindly."
)
LOOK = {"type": "object", "properties": {"q": {"type": "string"}}}
MADE_UP = "2fbc169f-a25f-41ca-bf78-f96c0ee1a8c3"
PAYLOAD: dict[str, Any] = {
    "id": "chatcmpl-1",
    "call_type": "acompletion",
    "status": "success",
    "custom_llm_provider": "openai",
    "model": "gpt-5.4",
    "trace_id": MADE_UP,
    "session_id": "",
    "startTime": 10.0,
    "completionStartTime": 11.0,
    "endTime": 12.0,
    "messages": [{"role": "user", "content": "Hello"}],
    "model_parameters": {"temperature": 0.5, "tools": None},
    "metadata": {},
    "response": None,
}


def only(found: tuple[list[Entry], list[Skipped]]) -> Entry:
    (entry,), skipped = found
    assert skipped == []
    return entry


def test_recorded_payloads(logs: Path, read: Callable[[Path], tuple[list[Entry], list[Skipped]]]) -> None:
    found, skipped = read(logs / "litellm.jsonl")
    assert [(entry.line, entry.wire, entry.provider, entry.conversation) for entry in found] == [
        (1, "anthropic-messages", "anthropic", "tides-1"),
        (2, "anthropic-messages", "anthropic", "tides-1"),
        (3, "anthropic-messages", "anthropic", ""),
        (4, "openai-chat", "openai", ""),
        (5, "openai-responses", "openai", ""),
        (8, "anthropic-messages", "anthropic", ""),
    ]
    assert skipped == [
        Skipped(6, "a call that failed", bad=False),
        Skipped(7, "a call that makes no text", bad=False),
        Skipped(9, "LiteLLM redacted the prompt: turn_off_message_logging is set", bad=False),
    ]
    assert not any(entry.exact for entry in found)
    assert [entry.usage for entry in found[:4]] == [
        Usage(input_tokens=2470, cache_write_tokens=2465, write_by_ttl={"5m": 2465}, output_tokens=12),
        Usage(input_tokens=2487, cache_read_tokens=2465, output_tokens=7),
        Usage(input_tokens=2470, cache_read_tokens=2465, output_tokens=12),
        Usage(input_tokens=2464, output_tokens=8),
    ]
    streamed = found[2]
    assert streamed.started is not None
    assert streamed.answered is not None
    assert 0 < streamed.answered - streamed.started < 1
    assert found[0].reply == ("Here is what I know about: When is high tide?",)
    assert found[3].served_by == "fp_emulated"


def test_recorded_conversation_with_a_tool_call_goes_out_in_anthropics_form(
    logs: Path, read: Callable[[Path], tuple[list[Entry], list[Skipped]]]
) -> None:
    first, second, *_ = read(logs / "litellm.jsonl")[0]
    assert second.body == {
        "model": "claude-sonnet-4-6",
        "max_tokens": 50,
        "system": [{"type": "text", "text": RULES, "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "look", "description": "Look it up.", "input_schema": LOOK}],
        "tool_choice": {"type": "auto"},
        "messages": [
            {"role": "user", "content": "When is high tide?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "name": "look", "input": {"q": "tides"}, "id": "toolu_1"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "content": "high at noon", "tool_use_id": "toolu_1", "is_error": False}
                ],
            },
        ],
    }
    # The recording was cut to a prompt that no model caches; the second request continues the first.
    assert [found.cause.value for found in diff(first.body, second.body).findings] == ["below_minimum"]


def test_recorded_spend_log(logs: Path, read: Callable[[Path], tuple[list[Entry], list[Skipped]]]) -> None:
    (first, second), skipped = read(logs / "litellm_spend.jsonl")
    assert skipped == []
    assert (first.wire, first.body["model"]) == ("anthropic-messages", "claude-sonnet-4-6")  # not the proxy's alias
    assert first.body["system"] == [{"type": "text", "text": "short", "cache_control": {"type": "ephemeral"}}]
    assert first.body["messages"] == [{"role": "user", "content": "hi"}]
    assert (first.conversation, first.account) == ("m-7", "")  # the proxy's keys share the provider's cache
    assert second.usage == Usage(input_tokens=2463, cache_read_tokens=2462, output_tokens=8)
    # 2026-11-29 21:01:44.881616 and .885832 UTC
    assert second.started == pytest.approx(1795986104.881616, abs=1e-6)
    assert second.answered == pytest.approx(1795986104.885832, abs=1e-6)


def test_a_callbacks_whole_arguments(read_records: Read) -> None:
    entry = only(read_records({"litellm_params": {}, "standard_logging_object": PAYLOAD, "messages": "elsewhere"}))
    assert entry.body == {"model": "gpt-5.4", "temperature": 0.5, "messages": PAYLOAD["messages"]}
    assert (entry.started, entry.answered) == (10.0, 11.0)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({}, ""),
        ({"trace_id": "order-17"}, "order-17"),
        ({"session_id": MADE_UP}, MADE_UP),
        ({"metadata": {"requester_metadata": {"session_id": "r"}}}, "r"),
        ({"model_parameters": {"metadata": {"session_id": "b"}}}, "b"),
        ({"session_id": "s", "trace_id": "t"}, "s"),
    ],
)
def test_a_trace_id_that_litellm_made_up_is_no_conversation(
    read_records: Read, more: dict[str, Any], name: str
) -> None:
    assert only(read_records({**PAYLOAD, **more})).conversation == name


@pytest.mark.parametrize(("session", "name"), [(MADE_UP, ""), ("support-9", "support-9")])
def test_a_spend_logs_session_may_be_a_trace_id(read_records: Read, session: str, name: str) -> None:
    row = {"request_id": "r", "call_type": "acompletion", "model": "gpt-5.4", "session_id": session}
    row |= {"proxy_server_request": json.dumps({"messages": PAYLOAD["messages"]})}
    assert only(read_records(row)).conversation == name


def test_who_answered(read_records: Read) -> None:
    metadata = {"user_api_key_hash": "h", "user_api_key_alias": None}
    entry = only(read_records({**PAYLOAD, "model_id": "deployment-2", "metadata": metadata}))
    assert (entry.served_by, entry.account) == ("deployment-2", "")


@pytest.mark.parametrize(
    ("provider", "model", "name", "wire"),
    [
        ("azure", "gpt-5.4", "azure", "openai-chat"),
        ("azure_ai", "claude-opus-5", "azure", "anthropic-messages"),
        ("bedrock", "us.anthropic.claude-opus-5-v1:0", "aws", "anthropic-messages"),
        ("vertex_ai", "claude-opus-5", "google", "anthropic-messages"),
        ("openrouter", "anthropic/claude-opus-5", "openrouter", "openai-chat"),
        ("gemini", "gemini-2.5-pro", "google", "openai-chat"),
        ("fireworks_ai", "kimi-k3", "fireworks", "openai-chat"),
    ],
)
def test_providers(read_records: Read, provider: str, model: str, name: str, wire: str) -> None:
    entry = only(read_records({**PAYLOAD, "custom_llm_provider": provider, "model": model}))
    assert (entry.provider, entry.wire) == (name, wire)


def test_what_differs_in_anthropics_form(read_records: Read) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    call = {"id": "t1", "type": "function", "function": {"name": "look", "arguments": ""}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One."},
        {"role": "assistant", "content": "Yes.", "provider_specific_fields": {"thinking_blocks": [thinking]}},
        {"role": "user", "content": "Two."},
        {"role": "assistant", "content": None, "thinking_blocks": [thinking], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t1", "content": "2"},
        {"role": "user", "content": "And?"},
    ]
    native = {"type": "web_search_20250305", "name": "web_search"}
    parameters = {
        "tools": [{"type": "function", "function": {"name": "look", "parameters": LOOK}}, native],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "reasoning_effort": "high",
    }
    record = {**PAYLOAD, "custom_llm_provider": "anthropic", "model": "claude-opus-5", "messages": messages}
    assert only(read_records({**record, "model_parameters": parameters})).body == {
        "model": "claude-opus-5",
        "system": "Be brief.",
        "tools": [{"name": "look", "input_schema": LOOK}, native],
        "tool_choice": {"type": "tool", "name": "look"},
        "output_config": {"effort": "high", "format": None},
        "messages": [
            {"role": "user", "content": "One."},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "Yes."}]},
            {"role": "user", "content": "Two."},
            {"role": "assistant", "content": [thinking, {"type": "tool_use", "name": "look", "input": {}, "id": "t1"}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "content": "2", "tool_use_id": "t1", "is_error": False},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
    }


REDACTED = "LiteLLM redacted the prompt: turn_off_message_logging is set"
NOT_STORED = "LiteLLM stored no prompt: set store_prompts_in_spend_logs"


@pytest.mark.parametrize(
    ("more", "reason", "bad"),
    [
        ({"status": "failure"}, "a call that failed", False),
        ({"cache_hit": True}, "a call that LiteLLM answered from its own cache", False),
        ({"cache_hit": "True"}, "a call that LiteLLM answered from its own cache", False),
        ({"call_type": "aembedding"}, "a call that makes no text", False),
        ({"messages": None}, NOT_STORED, False),
        ({"messages": {}, "proxy_server_request": "{}"}, NOT_STORED, False),
        ({"messages": "redacted-by-litellm"}, REDACTED, False),
        (
            {"messages": [{"role": "user", "content": "redacted by litellm. 'litellm.turn_off_message_logging=True'"}]},
            REDACTED,
            False,
        ),
        ({"messages": "Hello"}, "messages: expected a list of objects, got text", True),
        (
            {"messages": [{"role": "narrator", "content": "x"}], "custom_llm_provider": "anthropic"},
            "a message of a kind that is not known",
            True,
        ),
    ],
)
def test_what_is_no_request(read_records: Read, more: dict[str, Any], reason: str, bad: bool) -> None:
    assert read_records({**PAYLOAD, **more}) == ([], [Skipped(1, reason, bad=bad)])


def test_a_redacted_reply_is_no_reply(read_records: Read) -> None:
    message = {"role": "assistant", "content": "redacted-by-litellm"}
    assert only(read_records({**PAYLOAD, "response": {"choices": [{"message": message}]}})).reply == ()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(input_tokens=9, output_tokens=2)),
        (
            {"prompt_tokens": 9, "metadata": {"additional_usage_values": {"cache_read_input_tokens": 5}}},
            Usage(input_tokens=9, cache_read_tokens=5),
        ),
        (
            {"prompt_tokens": 1, "response": {"choices": [], "usage": {"prompt_tokens": 8}}},
            Usage(input_tokens=8),
        ),
        ({"prompt_tokens": 0}, None),
    ],
)
def test_where_the_usage_stands(read_records: Read, more: dict[str, Any], expected: Usage | None) -> None:
    assert only(read_records({**PAYLOAD, **more})).usage == expected


def test_records_of_others_are_left_to_others() -> None:
    assert entries({"model": "gpt-5.4", "messages": []}, 1) is None
    assert entries({"call_type": "inbound", "caller": "ann"}, 1) is None


@given(
    record=st.dictionaries(
        st.sampled_from([*PAYLOAD, "proxy_server_request", "request_id", "cache_hit", "model_id"]),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.sampled_from(["acompletion", "anthropic", "{", "[]"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["role", "content", "tool_calls", "function", "thinking_blocks", "tools", "usage_object"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=10,
        ),
    )
)
def test_no_record_makes_it_fail(record: dict[str, Any]) -> None:
    (found,) = entries({**PAYLOAD, "custom_llm_provider": "anthropic", **record}, 7) or ()
    assert found.line == 7
