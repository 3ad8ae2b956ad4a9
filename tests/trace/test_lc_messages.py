"""LangChain messages of every form, and the bodies of the three wires that are rebuilt from them."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.trace.conftest import constructor, messages_of, run_of

from headstay.trace import langsmith
from headstay.trace.entry import Entry


def entry(record: Mapping[str, Any]) -> Entry:
    (found,) = list(langsmith.entries(record, 1) or ())
    assert isinstance(found, Entry), found
    return found


@pytest.mark.parametrize(
    "messages",
    [
        [[constructor("SystemMessage", content="S"), constructor("HumanMessage", content="Hi", type="human")]],
        [
            [
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain_core", "messages", "SystemMessage"],
                    "kwargs": {"content": "S"},
                },
                {
                    "lc": 1,
                    "type": "constructor",
                    "id": ["langchain_core", "messages", "HumanMessage"],
                    "kwargs": {"content": "Hi"},
                },
            ]
        ],
        [[{"type": "system", "data": {"content": "S"}}, {"type": "human", "data": {"content": "Hi", "type": "human"}}]],
        [{"type": "system", "content": "S"}, {"type": "human", "content": "Hi", "additional_kwargs": {}}],
        [[{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}]],
        [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}],
        [[constructor("ChatMessage", content="S", role="system"), constructor("HumanMessageChunk", content="Hi")]],
    ],
)
def test_every_form_of_a_message_gives_one_body(messages: object) -> None:
    body = entry(run_of(messages)).body
    assert (body["system"], body["messages"]) == ("S", [{"role": "user", "content": "Hi"}])


def test_tool_results_are_merged_with_their_markers() -> None:
    calls = [{"name": "f", "args": {"a": 1}, "id": "1", "type": "tool_call"}, {"name": "f", "args": {}, "id": "2"}]
    marked = [{"type": "text", "text": "two", "cache_control": {"type": "ephemeral"}}]
    messages = [
        constructor("HumanMessage", content="Go"),
        constructor("AIMessage", content="Sure.", tool_calls=calls),
        constructor("ToolMessage", content="one", tool_call_id="1"),
        constructor("ToolMessage", content=marked, tool_call_id="2", status="error"),
        constructor("HumanMessage", content="And?"),
    ]
    assert entry(run_of([messages])).body["messages"] == [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Sure."},
                {"type": "tool_use", "name": "f", "input": {"a": 1}, "id": "1"},
                {"type": "tool_use", "name": "f", "input": {}, "id": "2"},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "content": "one", "tool_use_id": "1", "is_error": False},
                {
                    "type": "tool_result",
                    "content": [{"type": "text", "text": "two"}],
                    "tool_use_id": "2",
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "And?"},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("provider", "model", "wire"),
    [
        ("anthropic", "claude-sonnet-5", "anthropic-messages"),
        ("amazon_bedrock", "anthropic.claude-sonnet-5", "anthropic-messages"),
        ("openrouter", "anthropic/claude-sonnet-5", "openai-chat"),
        ("openai", "gpt-5.1", "openai-chat"),
        ("deepseek", "deepseek-chat", "openai-chat"),
    ],
)
def test_the_wire_follows_the_provider(provider: str, model: str, wire: str) -> None:
    found = entry(run_of([[constructor("HumanMessage", content="Hi")]], provider=provider, model=model))
    assert found.wire == wire


@pytest.mark.parametrize(
    "params",
    [
        {"use_responses_api": True},
        {"reasoning": {"effort": "low"}},
        {"tools": [{"type": "web_search"}]},
        {"previous_response_id": "resp_1"},
    ],
)
def test_parameters_tell_a_call_of_the_responses_api(params: dict[str, object]) -> None:
    run = run_of([[constructor("HumanMessage", content="Hi")]], provider="openai", model="gpt-5.1", **params)
    assert entry(run).wire == "openai-responses"


def test_parameters_are_spelled_as_the_responses_api_does() -> None:
    function = {"name": "f", "parameters": {"type": "object"}}
    run = run_of(
        [[constructor("HumanMessage", content="Hi")]],
        provider="openai",
        model="gpt-5.1",
        use_responses_api=True,
        max_tokens=9,
        reasoning_effort="low",
        verbosity="low",
        tools=[{"type": "function", "function": function}],
        tool_choice={"type": "function", "function": {"name": "f"}},
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    )
    assert entry(run).body == {
        "model": "gpt-5.1",
        "input": [{"content": "Hi", "role": "user", "type": "message"}],
        "max_output_tokens": 9,
        "reasoning": {"effort": "low"},
        "tools": [{"type": "function", **function}],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"},
    }


def test_images_in_every_form() -> None:
    url = "data:image/png;base64,AAAA"
    blocks = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
        {"type": "image", "source_type": "base64", "data": "AAAA", "mime_type": "image/png"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
    ]
    messages = [[constructor("HumanMessage", content=blocks)]]
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    (anthropic,) = messages_of(entry(run_of(messages)))
    assert anthropic["content"] == [{"type": "image", "source": source}] * 4
    (chat,) = messages_of(entry(run_of(messages, provider="openai", model="gpt-5.1")))
    assert chat["content"] == [{"type": "image_url", "image_url": {"url": url}}] * 4
