"""What the OpenAI APIs refuse, and how."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import APIError, BadRequestError, InternalServerError, NotFoundError, OpenAI, RateLimitError

from headstay.emulator import Emulator, Reply, serve

MARK = {"mode": "explicit"}
TOOL: Any = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
}
FLAT: Any = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}


@pytest.fixture(scope="module")
def server() -> Iterator[Emulator]:
    with serve() as running:
        yield running


@pytest.fixture
def client(server: Emulator) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.openai_url, api_key="sk-one", max_retries=0) as made:
        yield made


def part(**extra: object) -> dict[str, object]:
    return {"type": "text", "text": "a", **extra}


def said(role: str, *parts: object, **extra: object) -> dict[str, object]:
    return {"role": role, "content": list(parts), **extra}


CHAT: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("gpt-5.6-sol", {"prompt_cache_retention": "24h"}, "prompt_cache_retention", "invalid_parameter"),
    ("gpt-6.2-astra", {"prompt_cache_retention": "in_memory"}, "prompt_cache_retention", "invalid_parameter"),
    ("gpt-5.5", {"prompt_cache_options": {"mode": "explicit"}}, "prompt_cache_options", "invalid_parameter"),
    ("gpt-4.1", {"prompt_cache_options": {}}, "prompt_cache_options", "invalid_parameter"),
    (
        "gpt-5.4",
        {"messages": [said("user", part(prompt_cache_breakpoint=MARK))]},
        "messages[0].content[0].prompt_cache_breakpoint",
        "invalid_parameter",
    ),
    ("gpt-5.5", {"prompt_cache_retention": "in_memory"}, "prompt_cache_retention", "invalid_value"),
    ("gpt-4o", {"prompt_cache_retention": "24h"}, "prompt_cache_retention", "invalid_value"),
    ("gpt-5.6-sol", {"prompt_cache_options": {"ttl": "12h"}}, "prompt_cache_options.ttl", "invalid_value"),
    ("gpt-5.6-sol", {"prompt_cache_options": {"mode": "auto"}}, "prompt_cache_options.mode", "invalid_value"),
    (
        "gpt-5.6-sol",
        {"prompt_cache_options": {"prewarm": True}},
        "prompt_cache_options.prewarm",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"messages": [USER, said("assistant", part(prompt_cache_breakpoint=MARK))]},
        "messages[1].content[0].prompt_cache_breakpoint",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"tools": [{**TOOL, "prompt_cache_breakpoint": MARK}]},
        "tools[0].prompt_cache_breakpoint",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"messages": [said("user", part(prompt_cache_breakpoint={"mode": "explicit", "ttl": "5m"}))]},
        "messages[0].content[0].prompt_cache_breakpoint.ttl",
        "invalid_value",
    ),
    (
        "gpt-5.6-sol",
        {"messages": [said("user", part(prompt_cache_breakpoint={}))]},
        "messages[0].content[0].prompt_cache_breakpoint.mode",
        "missing_required_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"messages": [said("user", part(cache_control={"type": "ephemeral"}))]},
        "messages[0].content[0].cache_control",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"messages": [{**USER, "cache_control": {"type": "ephemeral"}}]},
        "messages[0].cache_control",
        "unknown_parameter",
    ),
    ("gpt-5.6-sol", {"cache_control": {"type": "ephemeral"}}, "cache_control", "unknown_parameter"),
    ("gpt-5.6-sol", {"instructions": "x"}, "instructions", "unknown_parameter"),
    ("gpt-5.4", {"tools": [TOOL, TOOL]}, "tools[1].function.name", "invalid_value"),
    (
        "gpt-5.4",
        {"tools": [{"type": "function", "function": {"name": "bad name"}}]},
        "tools[0].function.name",
        "invalid_value",
    ),
    (
        "gpt-5.4",
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
        "tools[0].function.parameters",
        "invalid_function_parameters",
    ),
    ("gpt-6-astra", {"tools": [TOOL]}, "tools", None),
    ("gpt-6.1-sol", {"tools": [TOOL]}, "tools", None),
    ("o3", {"max_tokens": 5}, "max_tokens", "unsupported_parameter"),
    ("gpt-5.4", {"stream_options": {"include_usage": True}}, "stream_options", None),
    ("gpt-5.4", {"messages": []}, "messages", "empty_array"),
    ("gpt-5.4", {"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ("gpt-5.4", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
    ("gpt-5.4", {"reasoning_effort": "huge"}, "reasoning.effort", "invalid_value"),
    ("gpt-5.4", {"messages": [USER, said("assistant", tool_calls=[CALL])]}, "messages.[1].role", None),
    (
        "gpt-5.4",
        {"messages": [USER, said("assistant", tool_calls=[CALL]), USER]},
        "messages.[1].role",
        None,
    ),
    (
        "gpt-5.4",
        {"messages": [USER, {"role": "tool", "tool_call_id": "c1", "content": "x"}]},
        "messages.[1].role",
        None,
    ),
]


@pytest.mark.parametrize(("model", "body", "param", "code"), CHAT)
def test_chat_refuses(client: OpenAI, model: str, body: dict[str, Any], param: str | None, code: str | None) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.post("/chat/completions", body={"model": model, "messages": [USER], **body}, cast_to=object)
    assert (caught.value.type, caught.value.param, caught.value.code) == ("invalid_request_error", param, code)


RESPONSES: list[tuple[str, dict[str, Any], str | None, str | None]] = [
    ("gpt-5.6-sol", {"prompt_cache_retention": "24h"}, "prompt_cache_retention", "invalid_parameter"),
    ("gpt-5.4", {"prompt_cache_options": {"ttl": "30m"}}, "prompt_cache_options", "invalid_parameter"),
    ("gpt-5.5", {"prompt_cache_retention": "in_memory"}, "prompt_cache_retention", "invalid_value"),
    ("gpt-5.6-sol", {"prompt_cache_options": {"ttl": "1h"}}, "prompt_cache_options.ttl", "invalid_value"),
    (
        "gpt-5.4",
        {"input": [said("user", {"type": "input_text", "text": "a", "prompt_cache_breakpoint": MARK})]},
        "input[0].content[0].prompt_cache_breakpoint",
        "invalid_parameter",
    ),
    (
        "gpt-5.6-sol",
        {
            "input": [
                USER,
                said("assistant", {"type": "output_text", "text": "a", "prompt_cache_breakpoint": MARK}),
            ]
        },
        "input[1].content[0].prompt_cache_breakpoint",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"instructions": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": MARK}]},
        "instructions",
        "invalid_type",
    ),
    (
        "gpt-5.6-sol",
        {"tools": [{**FLAT, "prompt_cache_breakpoint": MARK}]},
        "tools[0].prompt_cache_breakpoint",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {"tools": [{"type": "web_search", "cache_control": {"type": "ephemeral"}}]},
        "tools[0].cache_control",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {
            "input": [
                USER,
                {
                    "type": "function_call",
                    "call_id": "c",
                    "name": "f",
                    "arguments": "{}",
                    "prompt_cache_breakpoint": MARK,
                },
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ]
        },
        "input[1].prompt_cache_breakpoint",
        "unknown_parameter",
    ),
    (
        "gpt-5.6-sol",
        {
            "input": [
                USER,
                {"type": "additional_tools", "role": "developer", "tools": [FLAT], "prompt_cache_breakpoint": MARK},
            ]
        },
        "input[1].prompt_cache_breakpoint",
        "unknown_parameter",
    ),
    ("gpt-5.6-sol", {"tools": [FLAT, FLAT]}, "tools[1].name", "invalid_value"),
    ("gpt-5.6-sol", {"messages": []}, "messages", "unknown_parameter"),
    ("gpt-5.6-sol", {"conversation": "conv_1"}, "conversation", "not_emulated"),
    ("gpt-5.6-sol", {"input": None}, "input", "missing_required_parameter"),
    ("gpt-5.6-sol", {"input": [{"type": "nonsense"}]}, "input[0].type", "invalid_value"),
    (
        "gpt-5.6-sol",
        {"input": [USER, {"type": "configuration_update", "reasoning": {"effort": "low"}}]},
        "input[1].type",
        "invalid_value",
    ),
    (
        "gpt-5.6-sol",
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]},
        "input",
        None,
    ),
    (
        "gpt-5.6-sol",
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        "input",
        None,
    ),
]


@pytest.mark.parametrize(("model", "body", "param", "code"), RESPONSES)
def test_responses_refuses(
    client: OpenAI, model: str, body: dict[str, Any], param: str | None, code: str | None
) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.post("/responses", body={"model": model, "input": "hi", **body}, cast_to=object)
    assert (caught.value.type, caught.value.param, caught.value.code) == ("invalid_request_error", param, code)


ACCEPTED: list[tuple[str, str, dict[str, Any]]] = [
    ("chat/completions", "gpt-5.5", {"prompt_cache_retention": "24h"}),
    ("chat/completions", "gpt-5.4", {"prompt_cache_retention": "in_memory"}),
    ("chat/completions", "gpt-5.6-sol", {"prompt_cache_options": {"mode": "implicit", "ttl": "30m"}}),
    (
        "chat/completions",
        "gpt-5.6-sol",
        {"messages": [said("user", *[part(prompt_cache_breakpoint={**MARK, "ttl": "12h"})] * 9)]},
    ),
    ("chat/completions", "gpt-6-sol", {"tools": [TOOL]}),
    ("responses", "gpt-6.1-sol", {"tools": [FLAT], "prompt_cache_options": {"ttl": "12h"}}),
    ("responses", "gpt-6-astra", {"input": [USER, {"type": "configuration_update", "reasoning": {"effort": "low"}}]}),
    ("responses", "gpt-5.6-sol", {"input": [USER, {"type": "additional_tools", "role": "developer", "tools": [FLAT]}]}),
]


@pytest.mark.parametrize(("path", "model", "body"), ACCEPTED)
def test_what_is_accepted(client: OpenAI, path: str, model: str, body: dict[str, Any]) -> None:
    usual = {"messages": [USER]} if path == "chat/completions" else {"input": "hi"}
    done: Any = client.post(f"/{path}", body={"model": model, **usual, **body}, cast_to=object)
    assert done["model"] == model


@pytest.mark.parametrize("model", ["gpt-99", "gpt-5.7", "claude-opus-5", "gpt-5.60"])
def test_unknown_models(client: OpenAI, model: str) -> None:
    with pytest.raises(NotFoundError) as caught:
        client.responses.create(model=model, input="hi")
    assert caught.value.code == "model_not_found"
    assert f"`{model}` does not exist" in caught.value.message


def test_the_error_body(server: Emulator, client: OpenAI) -> None:
    with pytest.raises(BadRequestError):
        client.post(
            "/responses",
            body={"model": "gpt-5.6-sol", "input": "hi", "prompt_cache_retention": "24h"},
            cast_to=object,
        )
    kept = server.exchanges[-1]
    assert kept.status == 400
    assert kept.response == {
        "error": {
            "message": "prompt_cache_retention is not supported on this model",
            "type": "invalid_request_error",
            "param": "prompt_cache_retention",
            "code": "invalid_parameter",
        }
    }


def test_injected_rate_limits_are_retried_by_the_sdk(server: Emulator) -> None:
    server.fail_next(status=429, retry_after=0.01, times=2)
    with OpenAI(base_url=server.openai_url, api_key="k", max_retries=2) as client:
        done = client.responses.create(model="gpt-5.4", input="hi")
        assert done.status == "completed"
        server.fail_next(status=429, retry_after=7)
        with pytest.raises(RateLimitError) as caught:
            client.with_options(max_retries=0).responses.create(model="gpt-5.4", input="hi")
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.code == "rate_limit_exceeded"


def test_a_failure_writes_nothing() -> None:
    head = " ".join(["alpha"] * 2_000)
    with serve() as server, OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client:
        server.fail_next(status=500)
        with pytest.raises(InternalServerError):
            client.responses.create(model="gpt-5.6-sol", input=head)
        done = client.responses.create(model="gpt-5.6-sol", input=head)
    assert done.usage is not None
    assert done.usage.input_tokens_details.cached_tokens == 0


def test_a_chat_stream_that_breaks_off_has_written_its_prefix() -> None:
    messages: Any = [{"role": "user", "content": " ".join(["alpha"] * 2_000)}]
    with (
        serve(responder=lambda wire, body: Reply(text="one two three four five six")) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        server.fail_next(after_events=2)
        got: list[str] = []
        with (
            pytest.raises(APIError, match="server had an error"),
            client.chat.completions.create(model="gpt-5.6-sol", messages=messages, stream=True) as stream,
        ):
            got.extend(chunk.choices[0].delta.content or "" for chunk in stream)
        # The first event opens the message, the second brings four tokens.
        assert got == ["", "one two three four"]
        done = client.chat.completions.create(model="gpt-5.6-sol", messages=messages)
    assert done.usage is not None
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 2_003


def test_a_responses_stream_that_breaks_off() -> None:
    with serve() as server, OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client:
        server.fail_next(status=503, after_events=3)
        with client.responses.create(model="gpt-5.6-sol", input="hi", stream=True) as stream:
            events = list(stream)
    assert [event.type for event in events[:3]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
    ]
    assert len(events) == 4
    last = events[3]
    assert last.type == "error"
    assert (last.code, last.sequence_number) == ("server_is_overloaded", 3)
