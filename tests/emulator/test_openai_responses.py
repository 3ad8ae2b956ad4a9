"""The Responses API through the real SDK: shapes, events, usage, prewarming, diagnostics."""

from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI
from pydantic import BaseModel

from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve

HEAD = " ".join(["alpha"] * 2_000)
MARK: Any = {"mode": "explicit"}
EXPLICIT: Any = {"mode": "explicit"}
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "strict": False,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


@pytest.fixture
def server() -> Iterator[Emulator]:
    with serve(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def client(server: Emulator) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.openai_url, api_key="sk-one", max_retries=0) as made:
        yield made


def ask(text: str, **mark: Any) -> list[Any]:
    part = {"type": "input_text", "text": HEAD, "prompt_cache_breakpoint": {**MARK, **mark}}
    return [{"role": "developer", "content": [part]}, {"role": "user", "content": text}]


def usage(response: Any) -> tuple[int, int, int]:
    assert response.usage is not None
    details = response.usage.input_tokens_details
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    return response.usage.input_tokens, details.cached_tokens, details.cache_write_tokens


def test_the_usage_of_a_marked_head(client: OpenAI) -> None:
    seen = [
        usage(client.responses.create(model="gpt-6.1-sol", input=ask(text), prompt_cache_options=EXPLICIT))
        for text in ("one", "two three")
    ]
    # Head: 3 + 2,000. Question: 3 + 1, then 3 + 2.
    assert seen == [(2_007, 0, 2_003), (2_008, 2_003, 0)]


def test_write_tokens_are_split_by_lifetime(client: OpenAI) -> None:
    done = client.responses.create(model="gpt-6.1-sol", input=ask("one", ttl="12h"))
    assert done.usage is not None
    split = done.usage.input_tokens_details.cache_write_tokens_details
    assert split is not None
    # The head for 12 hours, the implicit breakpoint behind the question (4 more) for 30 minutes.
    assert (split.ttl_12h_tokens, split.ttl_30m_tokens) == (2_003, 4)
    assert done.usage.input_tokens_details.cache_write_tokens == 2_007
    options = done.prompt_cache_options
    assert options is not None
    assert (options.mode, options.ttl) == ("implicit", "30m")
    old = client.responses.create(model="gpt-5.4", input="hi")
    assert old.usage is not None
    assert old.usage.input_tokens_details.cache_write_tokens_details is None
    assert old.prompt_cache_options is None


def test_the_request_lifetime(client: OpenAI) -> None:
    done = client.responses.create(
        model="gpt-6-luna", input=ask("one"), prompt_cache_options={"mode": "explicit", "ttl": "12h"}
    )
    assert done.usage is not None
    split = done.usage.input_tokens_details.cache_write_tokens_details
    assert split is not None
    assert (split.ttl_12h_tokens, split.ttl_30m_tokens) == (2_003, 0)


def test_instructions_cannot_be_marked_and_are_not_read_alone(client: OpenAI) -> None:
    seen = [
        usage(client.responses.create(model="gpt-5.6-sol", instructions=HEAD, input=text)) for text in ("one", "two")
    ]
    assert seen == [(2_007, 0, 2_007), (2_007, 0, 2_007)]


def test_a_marker_in_a_tool_result(client: OpenAI) -> None:
    def history(tail: str) -> list[Any]:
        return [
            {"role": "user", "content": "go"},
            {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [{"type": "input_text", "text": HEAD, "prompt_cache_breakpoint": MARK}],
            },
            {"role": "user", "content": tail},
        ]

    def call(tail: str) -> Any:
        return client.responses.create(
            model="gpt-5.6-sol", input=history(tail), tools=[WEATHER], prompt_cache_options=EXPLICIT
        )

    total, read, written = usage(call("one"))
    # All but the last message (3 + 1) ends at the marker.
    assert (read, written) == (0, total - 4)
    assert usage(call("two")) == (total, total - 4, 0)


def test_tool_choice_and_allowed_tools_keep_the_prefix_while_tools_do_not(client: OpenAI) -> None:
    other = {**WEATHER, "name": "get_time"}

    def read(tools: list[Any], **extra: Any) -> int:
        done = client.responses.create(
            model="gpt-5.6-sol", input=ask("one"), tools=tools, prompt_cache_options=EXPLICIT, **extra
        )
        return usage(done)[1]

    assert read([WEATHER, other]) == 0
    assert read([WEATHER, other]) > 2_003
    assert read([WEATHER, other], tool_choice="none") > 2_003
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_time"}]}
    assert read([WEATHER, other], tool_choice=allowed) > 2_003
    assert read([other, WEATHER]) == 0
    assert read([WEATHER]) == 0


@pytest.mark.parametrize(
    "change",
    [
        {"parallel_tool_calls": False},
        {"text": {"verbosity": "low"}},
        {"text": {"format": {"type": "json_object"}}},
        {"reasoning": {"effort": "low"}},
        {"service_tier": "priority"},
        {"prompt_cache_key": "other"},
        {"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
        {"model": "gpt-6-sol"},
    ],
)
def test_settings_that_change_the_prefix(client: OpenAI, change: dict[str, Any]) -> None:
    base: dict[str, Any] = {
        "model": "gpt-5.6-sol",
        "input": ask("one"),
        "prompt_cache_options": EXPLICIT,
        "prompt_cache_key": "k",
    }
    client.responses.create(**base)
    assert usage(client.responses.create(**{**base, **change}))[1] == 0
    assert usage(client.responses.create(**base))[1] == 2_003


@pytest.mark.parametrize(
    "same",
    [
        {"parallel_tool_calls": True},
        {"text": {"verbosity": "medium", "format": {"type": "text"}}},
        {"service_tier": "auto"},
        {"temperature": 0.5},
        {"max_output_tokens": 99},
        {"metadata": {"a": "b"}},
    ],
)
def test_settings_that_keep_it(client: OpenAI, same: dict[str, Any]) -> None:
    base: dict[str, Any] = {"model": "gpt-5.6-sol", "input": ask("one"), "prompt_cache_options": EXPLICIT}
    client.responses.create(**base)
    assert usage(client.responses.create(**{**base, **same}))[1] == 2_003


def test_lengthening_a_message_breaks_implicit_reuse_but_not_a_marked_part(client: OpenAI) -> None:
    part = {"type": "input_text", "text": HEAD}
    more = {"type": "input_text", "text": "more"}

    def read(content: list[Any], model: str) -> int:
        return usage(client.responses.create(model=model, input=[{"role": "user", "content": content}]))[1]

    assert read([part], "gpt-5.6-sol") == 0
    assert read([part, more], "gpt-5.6-sol") == 0
    marked = {**part, "prompt_cache_breakpoint": MARK}
    assert read([marked], "gpt-5.6-terra") == 0
    assert read([marked, more], "gpt-5.6-terra") == 2_003


def test_prewarming_writes_and_says_nothing(client: OpenAI) -> None:
    warm = client.responses.create(
        model="gpt-5.6-sol", input=ask("x"), prompt_cache_options={"mode": "explicit", "prewarm": True}
    )
    assert (warm.status, warm.output, warm.output_text) == ("completed", [], "")
    assert usage(warm) == (2_007, 0, 2_003)
    assert warm.usage is not None
    assert warm.usage.output_tokens == 0
    assert usage(client.responses.create(model="gpt-5.6-sol", input=ask("y"), prompt_cache_options=EXPLICIT)) == (
        2_007,
        2_003,
        0,
    )


def test_counting_input_tokens(server: Emulator, client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(
        model="gpt-5.6-sol", input=[{"role": "user", "content": "one two"}], instructions="be kind"
    )
    # Two messages: 3 + 2 each.
    assert counted.input_tokens == 10
    assert server.exchanges == ()


def diagnose(client: OpenAI, name: str, **change: Any) -> Any:
    body: dict[str, Any] = {"model": "gpt-5.6-sol", "input": ask("one"), "prompt_cache_key": "k", **change}
    options = {"mode": "explicit", "comparison_response_id": name}
    done = client.responses.create(**{**body, "prompt_cache_options": options})
    return done.prompt_cache_diagnostics


def test_diagnostics(server: Emulator, client: OpenAI) -> None:
    first = client.responses.create(
        model="gpt-5.6-sol", input=ask("one"), prompt_cache_key="k", prompt_cache_options=EXPLICIT
    )
    assert first.prompt_cache_diagnostics is None
    assert diagnose(client, first.id).type == "cache_hit"
    assert diagnose(client, "resp_nothing").type == "comparison_response_not_found"
    changes: dict[str, Any] = {
        "model_changed": {"model": "gpt-6-luna"},
        "prompt_cache_key_changed": {"prompt_cache_key": "other"},
        "tools_changed": {"tools": [WEATHER]},
        "text_format_changed": {"text": {"format": {"type": "json_object"}}},
        "reasoning_effort_changed": {"reasoning": {"effort": "low"}},
        "verbosity_changed": {"text": {"verbosity": "low"}},
        "service_tier_changed": {"service_tier": "flex"},
    }
    for reason, change in changes.items():
        told = diagnose(client, first.id, **change)
        assert (told.type, told.reason, told.comparison_reusable_tokens) == ("cache_miss", reason, 2_003)
    changed = [{"role": "developer", "content": "now it is noon"}, *ask("one")]
    told = diagnose(client, first.id, input=changed)
    # Nothing is shared: a header and 4 words, a header and 2,000 words, a header and one word.
    assert (told.reason, told.cache_missed_tokens) == ("input_changed", 7 + 2_003 + 4)
    assert isinstance(server.clock, ManualClock)
    server.clock.advance(1_801)
    assert diagnose(client, first.id).type == "unavailable"


def test_a_shorter_read_than_the_other_left_is_a_miss(client: OpenAI) -> None:
    first = client.responses.create(model="gpt-5.6-sol", input=ask("one"))
    second = client.responses.create(
        model="gpt-5.6-sol", input=ask("two"), prompt_cache_options={"comparison_response_id": first.id}
    )
    # The marked head is read, the implicit breakpoint behind the question (3 + 1) is another one.
    assert usage(second) == (2_007, 2_003, 4)
    told = second.prompt_cache_diagnostics
    assert told is not None
    assert told.type == "cache_miss"
    assert (told.reason, told.cache_missed_tokens) == ("input_changed", 4)
    assert told.comparison_reusable_tokens == 2_007


def test_fast_and_priority_are_one_tier(client: OpenAI) -> None:
    tiers: Any = ("priority", "fast")
    reads = [
        usage(
            client.responses.create(
                model="gpt-5.6-sol", input=ask("one"), prompt_cache_options=EXPLICIT, service_tier=tier
            )
        )[1]
        for tier in tiers
    ]
    assert reads == [0, 2_003]


def test_a_stored_response_can_be_continued(client: OpenAI) -> None:
    first = client.responses.create(model="gpt-5.6-sol", input=ask("one"))
    second = client.responses.create(model="gpt-5.6-sol", input="two", previous_response_id=first.id)
    total, read, _ = usage(second)
    assert read == 2_007
    assert total > 2_007 + 4
    forgotten = client.responses.create(model="gpt-5.6-sol", input="x", store=False)
    for name in ("resp_nothing", forgotten.id):
        with pytest.raises(BadRequestError) as caught:
            client.responses.create(model="gpt-5.6-sol", input="two", previous_response_id=name)
        assert caught.value.code == "previous_response_not_found"


def test_the_events_of_a_stream(client: OpenAI) -> None:
    whole = client.responses.create(model="gpt-5.6-sol", input="hello")
    with client.responses.create(model="gpt-5.6-sol", input="hello", stream=True) as stream:
        events = list(stream)
    kinds = [event.type for event in events]
    middle = [kind for kind in kinds if kind != "response.output_text.delta"]
    assert middle == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == text
    assert usage(last.response)[0] == 4


async def test_async_stream_helper(server: Emulator) -> None:
    async with AsyncOpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client:
        async with client.responses.stream(model="gpt-5.6-sol", input="hello") as stream:
            final = await stream.get_final_response()
        plain = await client.responses.create(model="gpt-5.6-sol", input="hello")
    assert final.output_text == plain.output_text


def test_tool_calls_reasoning_and_custom_tools_streamed_and_sent_back() -> None:
    def model(wire: str, body: Any) -> Reply:
        assert wire == "openai-responses"
        return Reply(
            text="let me see",
            thinking="hm",
            tool_calls=(ToolCall("get_weather", {"city": "Rome"}), ToolCall("run", {"input": "print(1)"})),
        )

    custom: dict[str, Any] = {"type": "custom", "name": "run"}
    with (
        serve(responder=model) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        tools: list[Any] = [WEATHER, custom]
        with client.responses.stream(model="gpt-5.6-sol", input="go", tools=tools) as stream:
            final = stream.get_final_response()
        whole = client.responses.create(model="gpt-5.6-sol", input="go", tools=tools)
        assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "custom_tool_call"]
        assert [item.type for item in whole.output] == [item.type for item in final.output]
        history: list[Any] = [{"role": "user", "content": "go"}]
        history += [item.to_dict() for item in whole.output]
        call, run = whole.output[2], whole.output[3]
        assert call.type == "function_call"
        assert run.type == "custom_tool_call"
        assert (call.arguments, run.input) == ('{"city":"Rome"}', "print(1)")
        history.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
        history.append({"type": "custom_tool_call_output", "call_id": run.call_id, "output": "1"})
        again = client.responses.create(model="gpt-5.6-sol", input=history, tools=tools)
        assert again.status == "completed"


class City(BaseModel):
    name: str
    people: int


def test_structured_output(client: OpenAI) -> None:
    parsed = client.responses.parse(model="gpt-5.6-sol", input="Rome", text_format=City)
    assert isinstance(parsed.output_parsed, City)


def test_too_few_output_tokens_and_refusals() -> None:
    def model(wire: str, body: Any) -> Reply:
        return Reply(text="one two three", stop="refusal" if body["input"] == "bad" else "end")

    with (
        serve(responder=model) as server,
        OpenAI(base_url=server.openai_url, api_key="k", max_retries=0) as client,
    ):
        cut = client.responses.create(model="gpt-5.6-sol", input="good", max_output_tokens=2)
        assert (cut.status, cut.output_text) == ("incomplete", "one two")
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"
        with client.responses.stream(model="gpt-5.6-sol", input="bad") as stream:
            item = stream.get_final_response().output[0]
        assert item.type == "message"
        assert item.content[0].type == "refusal"
        assert item.content[0].refusal == "one two three"
