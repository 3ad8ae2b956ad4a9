"""Chat Completions through the real SDK: shapes, streams, usage, Azure's path."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, AzureOpenAI, OpenAI
from pydantic import BaseModel

from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve

HEAD = " ".join(["alpha"] * 2_000)
MARKED: Any = {"type": "text", "text": HEAD, "prompt_cache_breakpoint": {"mode": "explicit"}}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture
def server() -> Iterator[Emulator]:
    with serve(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def client(server: Emulator) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.openai_url, api_key="sk-one", max_retries=0) as made:
        yield made


def ask(text: str, *, head: object = None) -> list[Any]:
    return [{"role": "developer", "content": head or HEAD}, {"role": "user", "content": text}]


def test_the_usage_of_a_marked_head(client: OpenAI) -> None:
    totals: list[tuple[int, int | None, int | None]] = []
    for text in ("one", "two three"):
        done = client.chat.completions.create(
            model="gpt-5.6-sol",
            messages=ask(text, head=[MARKED]),
            prompt_cache_options={"mode": "explicit"},
            prompt_cache_key="k",
        )
        assert done.usage is not None
        details = done.usage.prompt_tokens_details
        assert details is not None
        assert details.audio_tokens == 0
        assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
        totals.append((done.usage.prompt_tokens, details.cached_tokens, details.cache_write_tokens))
    # Head: 3 + 2,000. Question: 3 + 1, then 3 + 2. Only the head is written, then read.
    assert totals == [(2_007, 0, 2_003), (2_008, 2_003, 0)]


def test_implicit_mode_pays_for_the_tail_each_time(client: OpenAI) -> None:
    seen: list[tuple[int | None, int | None]] = []
    for text in ("one", "two"):
        done = client.chat.completions.create(model="gpt-6-luna", messages=ask(text))
        assert done.usage is not None
        details = done.usage.prompt_tokens_details
        assert details is not None
        seen.append((details.cached_tokens, details.cache_write_tokens))
    assert seen == [(0, 2_007), (0, 2_007)]


def test_an_earlier_model_writes_nothing_and_reads_in_steps(client: OpenAI) -> None:
    for text, read in (("one", 0), ("two", 1_920)):
        done = client.chat.completions.create(model="gpt-5.4", messages=ask(text))
        assert done.usage is not None
        details = done.usage.prompt_tokens_details
        assert details is not None
        # 2,006 tokens are shared (all but the last word): 15 steps of 128.
        assert (details.cached_tokens, details.cache_write_tokens) == (read, 0)


def test_the_shape_of_a_completion(client: OpenAI) -> None:
    done = client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": "hello"}])
    assert done.object == "chat.completion"
    assert done.id.startswith("chatcmpl-")
    choice = done.choices[0]
    assert (choice.message.role, choice.finish_reason, choice.message.refusal) == ("assistant", "stop", None)
    assert choice.message.content
    assert done.service_tier == "default"


def test_the_stream_says_the_same_and_usage_only_when_asked(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="gpt-5.4", messages=ask("hello"))
    for wanted in (False, True):
        extra: Any = {"stream_options": {"include_usage": True}} if wanted else {}
        with client.chat.completions.create(model="gpt-5.4", messages=ask("hello"), stream=True, **extra) as stream:
            chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content
        assert len({chunk.id for chunk in chunks}) == 1
        ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        assert ends == [None] * (len(ends) - 1) + ["stop"]
        usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
        if wanted:
            assert chunks[-1].choices == []
            assert [usage.prompt_tokens for usage in usages] == [2_007]
        else:
            assert usages == []


async def test_async_and_streamed_helper(server: Emulator) -> None:
    async with AsyncOpenAI(base_url=server.openai_url, api_key="sk-one", max_retries=0) as client:
        done = await client.chat.completions.create(
            model="gpt-5.6-terra", messages=[{"role": "user", "content": "hello"}]
        )
        async with client.chat.completions.stream(
            model="gpt-5.6-terra", messages=[{"role": "user", "content": "hello"}]
        ) as stream:
            final = await stream.get_final_completion()
    assert final.choices[0].message.content == done.choices[0].message.content


def test_tool_calls_and_their_results() -> None:
    def model(wire: str, body: Any) -> Reply:
        assert wire == "openai-chat"
        if body["messages"][-1]["role"] == "tool":
            return Reply(text="done")
        return Reply(tool_calls=(ToolCall("get_weather", {"city": "Rome"}), ToolCall("get_weather", {"city": "Oslo"})))

    with (
        serve(responder=model) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "weather?"}]
        done = client.chat.completions.create(model="gpt-5.4", messages=messages, tools=[WEATHER])
        calls = done.choices[0].message.tool_calls
        assert calls is not None
        assert done.choices[0].finish_reason == "tool_calls"
        assert done.choices[0].message.content is None
        assert [call.type == "function" and call.function.arguments for call in calls] == [
            '{"city":"Rome"}',
            '{"city":"Oslo"}',
        ]
        with client.chat.completions.stream(model="gpt-5.4", messages=messages, tools=[WEATHER]) as stream:
            streamed = stream.get_final_completion().choices[0].message.tool_calls
        assert streamed is not None
        assert [call.function.arguments for call in streamed] == ['{"city":"Rome"}', '{"city":"Oslo"}']
        messages.append(done.choices[0].message.to_dict())
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in calls]
        answer = client.chat.completions.create(model="gpt-5.4", messages=messages, tools=[WEATHER])
        assert answer.choices[0].message.content == "done"


class City(BaseModel):
    name: str
    people: int


def test_structured_output(client: OpenAI) -> None:
    parsed = client.chat.completions.parse(
        model="gpt-5.4", messages=[{"role": "user", "content": "Rome"}], response_format=City
    )
    assert isinstance(parsed.choices[0].message.parsed, City)


def test_the_schema_is_part_of_the_prefix(client: OpenAI) -> None:
    def call(schema: dict[str, object]) -> tuple[int, int | None]:
        done = client.chat.completions.create(
            model="gpt-5.4",
            messages=ask("x"),
            response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
        )
        assert done.usage is not None
        assert done.usage.prompt_tokens_details is not None
        return done.usage.prompt_tokens, done.usage.prompt_tokens_details.cached_tokens

    assert call({"type": "object"})[1] == 0
    assert call({"type": "object"})[1] == 1_920
    longer, read = call({"type": "object", "additionalProperties": False})
    assert read == 0
    assert longer > 2_007


def test_limits_and_stop_sequences() -> None:
    with (
        serve(responder=lambda wire, body: Reply(text="one two three four")) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        cut = client.chat.completions.create(
            model="gpt-5.4", messages=[{"role": "user", "content": "x"}], max_completion_tokens=2
        )
        assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("one two", "length")
        stopped = client.chat.completions.create(
            model="gpt-5.4", messages=[{"role": "user", "content": "x"}], stop=[" three"], n=2
        )
        assert [choice.message.content for choice in stopped.choices] == ["one two", "one two"]
        assert stopped.usage is not None
        # Two tokens in each of two choices.
        assert stopped.usage.completion_tokens == 4


def test_refusals_and_reasoning_tokens() -> None:
    with (
        serve(responder=lambda wire, body: Reply(text="no", thinking="a b c", stop="refusal")) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        done = client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": "x"}])
        assert (done.choices[0].message.content, done.choices[0].message.refusal) == (None, "no")
        assert done.usage is not None
        assert done.usage.completion_tokens_details is not None
        # Three tokens of reasoning and one of text.
        assert done.usage.completion_tokens_details.reasoning_tokens == 3
        assert done.usage.completion_tokens == 4


def test_azure_paths_lead_to_the_same_cache(server: Emulator) -> None:
    azure = AzureOpenAI(azure_endpoint=server.base_url, api_key="sk-one", api_version="2026-09-01", max_retries=0)
    with azure, OpenAI(base_url=server.openai_url, api_key="sk-one", max_retries=0) as client:
        first = azure.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
        again = client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
    assert server.exchanges[0].path == "/openai/deployments/gpt-5.6-sol/chat/completions"
    assert first.model == "gpt-5.6-sol"
    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == 2_007


def test_api_keys_are_apart(server: Emulator) -> None:
    for key in ("sk-one", "sk-two"):
        with OpenAI(base_url=server.openai_url, api_key=key, max_retries=0) as client:
            done = client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
        assert done.usage is not None
        assert done.usage.prompt_tokens_details is not None
        assert done.usage.prompt_tokens_details.cached_tokens == 0


def test_thirty_minutes_on_the_clock(server: Emulator, client: OpenAI) -> None:
    clock = server.clock
    assert isinstance(clock, ManualClock)

    def read() -> int | None:
        done = client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
        assert done.usage is not None
        assert done.usage.prompt_tokens_details is not None
        return done.usage.prompt_tokens_details.cached_tokens

    assert read() == 0
    clock.advance(1_800)
    assert read() == 2_007
    clock.advance(1_801)
    assert read() == 0


def test_exchanges_and_rate_limit_headers(server: Emulator, client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="gpt-5.6-sol", messages=ask("one"))
    again = client.chat.completions.with_raw_response.create(model="gpt-5.6-sol", messages=ask("one"))
    spent = int(raw.headers["x-ratelimit-remaining-tokens"]) - int(again.headers["x-ratelimit-remaining-tokens"])
    done = again.parse()
    assert done.usage is not None
    # Everything but two tokens of header came from the cache, and still all of it counts.
    assert spent == done.usage.total_tokens
    assert int(raw.headers["x-ratelimit-remaining-requests"]) - 1 == int(
        again.headers["x-ratelimit-remaining-requests"]
    )
    kept = server.exchanges[-1]
    assert (kept.wire, kept.path, kept.status) == ("openai-chat", "/v1/chat/completions", 200)
    assert kept.response["usage"] == done.usage.to_dict()
    assert kept.headers["authorization"] == "***"


def test_the_rate_window_is_a_minute(server: Emulator, client: OpenAI) -> None:
    def left() -> int:
        raw = client.chat.completions.with_raw_response.create(
            model="gpt-5.4", messages=[{"role": "user", "content": "hello"}]
        )
        return int(raw.headers["x-ratelimit-remaining-tokens"])

    first = left()
    assert left() < first
    assert isinstance(server.clock, ManualClock)
    server.clock.advance(60)
    assert left() == first


def test_the_lifetime_runs_from_the_first_event() -> None:
    clock = ManualClock()
    start = clock.now()

    def slow(wire: str, body: Any) -> Reply:
        clock.advance(100)
        return Reply(text="late")

    with (
        serve(clock=clock, responder=slow) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
        assert (server.exchanges[0].started, server.exchanges[0].first_event) == (start, start + 100)
        # 1,900 s after it was asked, 1,800 s after the answer began.
        clock.set(start + 1_900)
        done = client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
    assert done.usage is not None
    assert done.usage.prompt_tokens_details is not None
    assert done.usage.prompt_tokens_details.cached_tokens == 2_007


async def test_a_cold_fan_out_pays_for_every_call(server: Emulator) -> None:
    server.hold(3)
    async with AsyncOpenAI(base_url=server.openai_url, api_key="sk-one", max_retries=0) as client:
        done = await asyncio.gather(
            *(client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one")) for _ in range(3))
        )
        late = await client.chat.completions.create(model="gpt-5.6-sol", messages=ask("one"))
    usages = [one.usage.prompt_tokens_details for one in done if one.usage is not None]
    assert [usage.cache_write_tokens for usage in usages if usage is not None] == [2_007, 2_007, 2_007]
    assert late.usage is not None
    assert late.usage.prompt_tokens_details is not None
    assert late.usage.prompt_tokens_details.cached_tokens == 2_007
