"""What a span of a model call says: tokens, ids, providers, and content under the names of each convention."""

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest
from tests.trace.conftest import span

from headstay.ledger.usage import Usage
from headstay.trace.entry import Entry
from headstay.trace.otel import Joiner

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CALL: dict[str, Any] = {
    "gen_ai__operation__name": "chat",
    "gen_ai__provider__name": "openai",
    "gen_ai__request__model": "gpt-5.1",
}
HELLO: list[dict[str, Any]] = [{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}]


def one(record: Mapping[str, Any]) -> Entry:
    (found,) = list(Joiner().entries(record, 1) or ())
    assert isinstance(found, Entry), found
    return found


@pytest.mark.parametrize(
    ("attributes", "usage"),
    [
        (
            {
                "gen_ai.usage.input_tokens": 100,
                "gen_ai.usage.cache_read.input_tokens": 60,
                "gen_ai.usage.output_tokens": 5,
            },
            Usage(input_tokens=100, cache_read_tokens=60, output_tokens=5),
        ),
        (  # counted without the cached part
            {
                "gen_ai.usage.input_tokens": 7,
                "gen_ai.usage.cache_read.input_tokens": 60,
                "gen_ai.usage.cache_creation.input_tokens": 33,
            },
            Usage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=33),
        ),
        (
            {
                "gen_ai.usage.prompt_tokens": "100",
                "gen_ai.usage.cache_creation_input_tokens": "40",
                "gen_ai.usage.completion_tokens": "5",
            },
            Usage(input_tokens=100, cache_write_tokens=40, output_tokens=5),
        ),
        (
            {
                "gen_ai.usage.input_tokens": 100,
                "anthropic.usage.cache_creation.ephemeral_1h_input_tokens": 30,
                "gen_ai.usage.cache_write.input_tokens": 30,
            },
            Usage(input_tokens=100, cache_write_tokens=30, write_by_ttl={"1h": 30}),
        ),
        ({"gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0}, None),
        ({"gen_ai.usage.input_tokens": -5}, None),
        ({}, None),
    ],
)
def test_token_counts(attributes: dict[str, object], usage: Usage | None) -> None:
    record = span(1, gen_ai__input__messages=HELLO, **CALL)
    record["attributes"] |= attributes
    assert one(record).usage == usage


@pytest.mark.parametrize(
    "name", ["gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id"]
)
def test_conversations_and_what_else_is_told(name: str) -> None:
    record = span(1, gen_ai__input__messages=HELLO, server__address="eu.llm.example", **CALL)
    record["attributes"] |= {
        name: "c1",
        "openai.response.system_fingerprint": "fp_1",
        "openai.response.service_tier": "flex",
        "gen_ai.response.time_to_first_chunk": 0.5,
    }
    found = one(record)
    assert (found.conversation, found.account, found.served_by) == ("c1", "eu.llm.example", "fp_1")
    assert found.context == {"service_tier": "flex"}
    assert found.answered == 1_795_985_000.5


@pytest.mark.parametrize(
    ("provider", "model", "wire", "price_name"),
    [
        ("anthropic", "claude-sonnet-5", "anthropic-messages", "anthropic"),
        ("Anthropic", "claude-sonnet-5", "anthropic-messages", "anthropic"),
        ("aws.bedrock", "anthropic.claude-sonnet-5", "anthropic-messages", "aws"),
        ("azure.ai.openai", "gpt-5.1", "openai-chat", "azure"),
        ("gcp.gemini", "gemini-3", "openai-chat", "google"),
        ("openrouter", "anthropic/claude-sonnet-5", "openai-chat", "openrouter"),
    ],
)
def test_providers(provider: str, model: str, wire: str, price_name: str) -> None:
    record = span(1, gen_ai__input__messages=HELLO, gen_ai__system=provider, gen_ai__request__model=model)
    assert (one(record).wire, one(record).provider) == (wire, price_name)


PARTS = [
    {"type": "text", "content": "See"},
    {"type": "blob", "mime_type": "image/png", "modality": "image", "content": PIXEL},
    {"type": "uri", "mime_type": "image/png", "modality": "image", "uri": "https://img.example/1.png"},
    {"type": "file", "mime_type": "application/pdf", "modality": "document", "file_id": "file_1"},
]


def test_parts_of_every_kind_for_anthropic() -> None:
    messages = [
        {"role": "user", "parts": PARTS},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "Hm", "signature": "s"},
                {"type": "tool_call", "id": "1", "name": "f", "arguments": '{"a": 1}'},
            ],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": {"ok": True}}]},
    ]
    record = span(
        1,
        gen_ai__input__messages=json.dumps(messages),
        gen_ai__system_instructions=json.dumps([{"type": "text", "content": "Be brief."}]),
        gen_ai__provider__name="anthropic",
        gen_ai__request__model="claude-sonnet-5",
    )
    assert one(record).body == {
        "model": "claude-sonnet-5",
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                    {"type": "image", "source": {"type": "url", "url": "https://img.example/1.png"}},
                    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "s"},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": '{"ok": true}'}]},
        ],
    }


def test_parts_of_every_kind_for_chat_completions() -> None:
    messages = [
        {"role": "user", "parts": PARTS},
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "Hm"}, {"type": "text", "content": "So."}],
        },
    ]
    record = span(1, gen_ai__input__messages=messages, gen_ai__system_instructions="Be brief.", **CALL)
    assert one(record).body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                {"type": "image_url", "image_url": {"url": "https://img.example/1.png"}},
                {"type": "file", "file": {"file_id": "file_1"}},
            ],
        },
        {"role": "assistant", "content": "So.", "reasoning_content": "Hm"},
    ]


def test_openinference_without_the_raw_body() -> None:
    record = span(
        1,
        openinference__span__kind="LLM",
        llm__provider="openai",
        llm__model_name="gpt-5.1",
        session__id="s1",
        llm__invocation_parameters='{"model": "gpt-5.1", "temperature": 0.5}',
        llm__token_count__prompt=50,
        llm__token_count__prompt_details__cache_read=20,
    )
    record["attributes"] |= {
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "S",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": "Go",
        "llm.input_messages.2.message.role": "assistant",
        "llm.input_messages.2.message.tool_calls.0.tool_call.id": "1",
        "llm.input_messages.2.message.tool_calls.0.tool_call.function.name": "f",
        "llm.input_messages.2.message.tool_calls.0.tool_call.function.arguments": "{}",
        "llm.input_messages.3.message.role": "tool",
        "llm.input_messages.3.message.tool_call_id": "1",
        "llm.input_messages.3.message.content": "one",
        "llm.tools.0.tool.json_schema": '{"type": "function", "function": {"name": "f"}}',
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Done.",
    }
    found = one(record)
    assert found.body == {
        "model": "gpt-5.1",
        "temperature": 0.5,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "Go"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "one"},
        ],
    }
    assert (found.exact, found.conversation, found.reply) == (False, "s1", ("Done.",))
    assert found.usage == Usage(input_tokens=50, cache_read_tokens=20)


def test_flat_names_are_ordered_by_number() -> None:
    record = span(1, **CALL)
    for number in reversed(range(12)):
        record["attributes"] |= {
            f"gen_ai.prompt.{number}.role": "user" if number % 2 == 0 else "assistant",
            f"gen_ai.prompt.{number}.content": str(number),
        }
    messages = cast("list[dict[str, Any]]", one(record).body["messages"])
    assert [message["content"] for message in messages] == [str(number) for number in range(12)]
