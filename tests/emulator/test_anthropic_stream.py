"""Streams and whole answers: the same message, the usage in the right places, tools, cuts and failures."""

from typing import Any

import anthropic
import pytest

from headstay.emulator import Emulator, Reply, ToolCall, serve

HEAD: list[Any] = [{"type": "text", "text": " word" * 1500, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
SAID: list[Any] = [{"role": "user", "content": " hi" * 5}]
ADD: Any = {
    "name": "add",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
SONNET = "claude-sonnet-4-6"


def events(client: anthropic.Anthropic, **more: Any) -> list[Any]:
    body: dict[str, Any] = {"model": SONNET, "max_tokens": 64, "messages": SAID, **more}
    with client.messages.create(**body, stream=True) as stream:
        return list(stream)


def test_the_events_come_in_order(claude: anthropic.Anthropic) -> None:
    kinds = [event.type for event in events(claude)]
    assert kinds[0] == "message_start"
    assert kinds[1] == "content_block_start"
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_usage_is_full_at_the_start_and_cumulative_at_the_end(claude: anthropic.Anthropic) -> None:
    listed = events(claude, system=HEAD)
    started = listed[0].message.usage
    assert (started.input_tokens, started.cache_creation_input_tokens, started.cache_read_input_tokens) == (5, 1500, 0)
    assert started.cache_creation.ephemeral_1h_input_tokens == 1500
    assert started.cache_creation.ephemeral_5m_input_tokens == 0
    (delta,) = [event for event in listed if event.type == "message_delta"]
    assert (delta.usage.input_tokens, delta.usage.cache_creation_input_tokens) == (5, 1500)
    assert delta.usage.cache_read_input_tokens == 0
    assert not hasattr(delta.usage, "cache_creation")
    # "Here is what I know about:" is 7 tokens, and " hi" * 5 behind it are 5.
    assert delta.usage.output_tokens == 12
    again = events(claude, system=HEAD)[0].message.usage
    assert (again.input_tokens, again.cache_creation_input_tokens, again.cache_read_input_tokens) == (5, 0, 1500)


@pytest.mark.parametrize("asked", ["hi there", "please add 3 and 4"])
def test_a_stream_adds_up_to_the_whole_answer(claude: anthropic.Anthropic, server: Emulator, asked: str) -> None:
    body: dict[str, Any] = {
        "model": "claude-opus-5",
        "max_tokens": 200,
        "tools": [ADD],
        "messages": [{"role": "user", "content": asked}],
        "thinking": {"type": "adaptive", "display": "summarized"},
    }
    whole = claude.messages.create(**body)
    with claude.messages.stream(**body) as stream:
        streamed = stream.get_final_message()
    hidden = {"id", "input"} if asked == "hi there" else {"id"}
    first = [block.model_dump(exclude=hidden, exclude_none=True) for block in whole.content]
    second = [block.model_dump(exclude=hidden, exclude_none=True) for block in streamed.content]
    assert [{k: v for k, v in b.items() if k in a} for a, b in zip(first, second, strict=True)] == first
    assert (whole.stop_reason, whole.usage.output_tokens) == (streamed.stop_reason, streamed.usage.output_tokens)
    # What is recorded of a stream is its whole form.
    assert server.exchanges[1].response["content"][-1]["type"] == whole.content[-1].type
    assert server.exchanges[1].response["usage"]["cache_creation"] == {
        "ephemeral_5m_input_tokens": 0,
        "ephemeral_1h_input_tokens": 0,
    }


async def test_the_async_client_sees_the_same(server: Emulator) -> None:
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
        body: dict[str, Any] = {"model": SONNET, "max_tokens": 64, "messages": SAID}
        whole = await client.messages.create(**body)
        async with client.messages.stream(**body) as stream:
            streamed = await stream.get_final_message()
        assert whole.content[0].model_dump()["text"] == streamed.content[0].model_dump()["text"]
        assert (await client.messages.count_tokens(model=SONNET, messages=SAID)).input_tokens == 5


def test_a_tool_is_called_and_its_result_quoted(claude: anthropic.Anthropic) -> None:
    said: list[Any] = [{"role": "user", "content": "please add 3 and 4"}]
    call = claude.messages.create(model=SONNET, max_tokens=64, tools=[ADD], messages=said)
    assert call.stop_reason == "tool_use"
    (block,) = call.content
    assert block.type == "tool_use"
    assert (block.name, block.input) == ("add", {"a": 3, "b": 4})
    result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "seven"}]}
    said += [{"role": "assistant", "content": [block.model_dump(exclude_none=True)]}]
    said += [{"role": "user", "content": [result]}]
    final = claude.messages.create(model=SONNET, max_tokens=64, tools=[ADD], messages=said)
    assert final.stop_reason == "end_turn"
    assert final.content[0].type == "text"
    assert "seven" in final.content[0].text


def test_parallel_calls_and_their_ban(claude: anthropic.Anthropic) -> None:
    other = {**ADD, "name": "multiply"}
    said: list[Any] = [{"role": "user", "content": "add and multiply 3 and 4"}]
    body: dict[str, Any] = {"model": SONNET, "max_tokens": 99, "tools": [ADD, other], "messages": said}
    assert len(claude.messages.create(**body).content) == 2
    alone: Any = {"type": "any", "disable_parallel_tool_use": True}
    assert len(claude.messages.create(**body, tool_choice=alone).content) == 1
    banned = claude.messages.create(**body, tool_choice={"type": "none"})
    assert banned.stop_reason == "end_turn"


def test_max_tokens_cuts_the_text(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(model=SONNET, max_tokens=3, messages=SAID)
    assert (message.stop_reason, message.usage.output_tokens) == ("max_tokens", 3)
    assert message.content[0].type == "text"
    assert message.content[0].text == "Here is what"


def test_a_stop_sequence_cuts_the_text(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(model=SONNET, max_tokens=64, messages=SAID, stop_sequences=["know", "what"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "what")
    assert message.content[0].type == "text"
    assert message.content[0].text == "Here is "


def test_a_schema_gets_conforming_json(claude: anthropic.Anthropic) -> None:
    schema: Any = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    message = claude.messages.create(
        model=SONNET,
        max_tokens=64,
        messages=[{"role": "user", "content": "take 42"}],
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    assert message.content[0].type == "text"
    assert message.content[0].text == '{"n":42}'


def test_a_responder_of_ones_own(claude: anthropic.Anthropic) -> None:
    seen: list[str] = []

    def respond(wire: str, body: Any) -> Reply:
        seen.append(wire)
        return Reply(text="Sure.", tool_calls=(ToolCall("add", {"a": 1, "b": 2}),), thinking="hm")

    with (
        serve(responder=respond) as server,
        anthropic.Anthropic(api_key="k", base_url=server.base_url) as client,
    ):
        message = client.messages.create(model=SONNET, max_tokens=64, messages=SAID, tools=[ADD])
    # Thinking was not asked for, so it is left out.
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert seen == ["anthropic-messages"]


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (529, "overloaded_error", anthropic.InternalServerError),
    ],
)
def test_injected_failures(
    claude: anthropic.Anthropic, server: Emulator, status: int, kind: str, error: type[anthropic.APIStatusError]
) -> None:
    server.fail_next(status=status, retry_after=7)
    with pytest.raises(error) as caught:
        claude.messages.create(model=SONNET, max_tokens=9, messages=SAID)
    assert caught.value.status_code == status
    assert caught.value.response.headers["retry-after"] == "7"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == kind
    claude.messages.create(model=SONNET, max_tokens=9, messages=SAID)


def test_the_sdk_gets_through_two_failures(server: Emulator) -> None:
    with anthropic.Anthropic(api_key="k", base_url=server.base_url, max_retries=2) as client:
        server.fail_next(status=429, retry_after=0.01, times=2)
        client.messages.create(model=SONNET, max_tokens=9, messages=SAID)
    assert [exchange.status for exchange in server.exchanges] == [429, 429, 200]


def test_a_stream_can_break_off(claude: anthropic.Anthropic, server: Emulator) -> None:
    server.fail_next(status=529, after_events=3)
    got: list[str] = []
    with (
        claude.messages.create(model=SONNET, max_tokens=64, messages=SAID, system=HEAD, stream=True) as stream,
        pytest.raises(anthropic.APIStatusError, match="overloaded_error"),
    ):
        got.extend(event.type for event in stream)
    assert got[0] == "message_start"
    # It had begun, so what it wrote is readable.
    assert events(claude, system=HEAD)[0].message.usage.cache_read_input_tokens == 1500


def test_rate_limit_headers_are_there(claude: anthropic.Anthropic) -> None:
    raw = claude.messages.with_raw_response.create(model=SONNET, max_tokens=9, messages=SAID)
    assert raw.headers["anthropic-ratelimit-input-tokens-remaining"].isdigit()
    assert raw.headers["request-id"].startswith("req_")


def test_models_are_listed(claude: anthropic.Anthropic) -> None:
    names = {model.id for model in claude.models.list()}
    assert {"claude-opus-5", "claude-haiku-4-5", "claude-fable-5-1"} <= names
    assert claude.models.retrieve("claude-opus-5").id == "claude-opus-5"
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("claude-nine")
