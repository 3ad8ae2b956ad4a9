"""What the emulated Messages API refuses, and how it says so."""

from typing import Any

import anthropic
import pytest

from headstay.emulator import Emulator

MARK = {"type": "ephemeral"}
MARK_1H = {"type": "ephemeral", "ttl": "1h"}
ASK = {"role": "user", "content": "hi"}
ORDER = "in the following order: `tools`, `system`, `messages`"


def text(content: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def tool(name: str = "t", **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}, **more}


def called(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": i, "name": "t", "input": {}} for i in ids]}


def resulted(*ids: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": i, "content": "ok"} for i in ids]}


def refused(client: anthropic.Anthropic, status: int = 400, **body: Any) -> str:
    """Send a body as it is; return the message of the error, whose shape is checked here."""
    full = {"model": "claude-sonnet-4-6", "max_tokens": 16, "messages": [ASK], **body}
    with pytest.raises(anthropic.APIStatusError) as caught:
        client.post(
            "/v1/messages",
            body={k: v for k, v in full.items() if v is not None},
            cast_to=anthropic.types.Message,
        )
    error = caught.value.body
    assert isinstance(error, dict)
    assert error["type"] == "error"
    assert error["request_id"] == caught.value.response.headers["request-id"]
    assert caught.value.status_code == status
    kind = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error"}[status]
    assert error["error"]["type"] == kind
    return str(error["error"]["message"])


@pytest.mark.parametrize("count", [5, 6])
def test_more_than_four_markers_name_the_count(claude: anthropic.Anthropic, count: int) -> None:
    blocks = [text(cache_control=MARK)] * (count - 2)
    message = refused(
        claude,
        tools=[tool(cache_control=MARK)],
        system=[text(cache_control=MARK)],
        messages=[{"role": "user", "content": blocks}],
    )
    assert message == f"A maximum of 4 blocks with cache_control may be provided. Found {count}."


def test_a_marker_inside_a_tool_result_counts(claude: anthropic.Anthropic) -> None:
    inner = {"type": "tool_result", "tool_use_id": "a", "content": [text(cache_control=MARK)]}
    message = refused(
        claude,
        tools=[tool(cache_control=MARK)],
        system=[text(cache_control=MARK)] * 3,
        messages=[ASK, called("a"), {"role": "user", "content": [inner]}],
    )
    assert "Found 5" in message


def test_four_markers_are_fine(claude: anthropic.Anthropic) -> None:
    claude.messages.create(
        model="claude-sonnet-4-6",
        max_tokens=16,
        system=[{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}] * 4,
        messages=[{"role": "user", "content": "hi"}],
    )


def test_an_hour_after_five_minutes_names_path_and_order(claude: anthropic.Anthropic) -> None:
    message = refused(
        claude,
        system=[text(cache_control=MARK)],
        messages=[{"role": "user", "content": [text(), text(cache_control=MARK_1H)]}],
    )
    assert message.startswith("messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not")
    assert ORDER in message


def test_tools_come_before_system_in_that_order(claude: anthropic.Anthropic) -> None:
    message = refused(claude, tools=[tool(cache_control=MARK)], system=[text(cache_control=MARK_1H)])
    assert message.startswith("system.0.cache_control.ttl:")


def test_the_automatic_marker_needs_a_slot(claude: anthropic.Anthropic) -> None:
    message = refused(claude, cache_control=MARK, system=[text(cache_control=MARK)] * 4)
    assert message.startswith("cache_control: ")
    assert "4" in message


def test_the_automatic_marker_must_agree_with_the_one_on_its_block(claude: anthropic.Anthropic) -> None:
    said = [{"role": "user", "content": [text(cache_control=MARK)]}]
    message = refused(claude, cache_control=MARK_1H, messages=said)
    assert "ttl='1h'" in message
    assert "messages.0.content.0.cache_control already has ttl='5m'" in message


def test_the_automatic_marker_obeys_the_order_of_lifetimes(claude: anthropic.Anthropic) -> None:
    assert ORDER in refused(claude, cache_control=MARK_1H, system=[text(cache_control=MARK)])


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({"system": [text(cache_control={"type": "ephemeral", "ttl": "10m"})]}, "'5m' or '1h'"),
        ({"system": [text(cache_control={"type": "forever"})]}, "system.0.cache_control"),
        ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "'5m' or '1h'"),
        ({"tools": [tool(), tool("d", defer_loading=True, cache_control=MARK)]}, "tools.1.cache_control"),
        ({"tools": [tool("d", defer_loading=True)]}, "At least one tool must have defer_loading=false"),
        ({"tools": [tool(), tool()]}, "Tool names must be unique"),
        ({"tools": [{"name": "t"}]}, "tools.0.custom.input_schema: Field required"),
        ({"system": [text(" ", cache_control=MARK)]}, "empty text blocks"),
        ({"system": [text("")]}, "text content blocks must be non-empty"),
        ({"messages": [{"role": "user", "content": [text("")]}]}, "must be non-empty"),
        ({"messages": [{"role": "user", "content": ""}]}, "non-empty content"),
        ({"messages": []}, "at least one message"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, 'first message must use the "user" role'),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages.0.role"),
        ({"messages": [ASK, resulted("a")]}, "unexpected `tool_use_id`"),
        ({"messages": [ASK, called("a")]}, "without `tool_result` blocks immediately after: a"),
        ({"messages": [ASK, called("a", "b"), resulted("a")]}, "immediately after: b"),
        ({"messages": [ASK, called("a"), resulted("a"), ASK, resulted("b")]}, "unexpected `tool_use_id`"),
        ({"max_tokens": None}, "max_tokens: Field required"),
        ({"messages": None}, "messages: Field required"),
        ({"model": None}, "model: Field required"),
        ({"max_tokens": "many"}, "valid integer"),
        ({"max_tokens": -1}, "greater than or equal to 0"),
        ({"headstay": 1}, "headstay: Extra inputs are not permitted"),
        ({"messages": [{"role": "user", "content": [text(note=1)]}]}, "Extra inputs are not permitted"),
        ({"tool_choice": {"type": "any"}}, "while providing tools"),
        ({"tools": [tool()], "tool_choice": {"type": "tool", "name": "x"}}, "'x' not found"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"thinking": {"type": "sometimes"}}, "thinking"),
        ({"thinking": {"type": "enabled", "budget_tokens": 100}}, "1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "`max_tokens` must be greater"),
        ({"thinking": {"type": "adaptive", "block_binding": {}}}, "block_binding: Extra inputs"),
    ],
)
def test_refused_with_a_reason(claude: anthropic.Anthropic, body: dict[str, Any], part: str) -> None:
    assert part in refused(claude, **body)


def test_a_thinking_block_cannot_carry_a_marker(claude: anthropic.Anthropic) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "elsewhere", "cache_control": MARK}
    answer = {"role": "assistant", "content": [thought, text("ok")]}
    assert "thinking blocks" in refused(claude, messages=[ASK, answer, ASK])


@pytest.mark.parametrize(
    "more",
    [
        {"stream": True},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
        {"tools": [tool()], "tool_choice": {"type": "any"}},
        {"tools": [tool()], "tool_choice": {"type": "tool", "name": "t"}},
    ],
)
def test_a_pre_warm_call_may_ask_for_nothing_else(claude: anthropic.Anthropic, more: dict[str, Any]) -> None:
    assert "max_tokens: 0 is not supported" in refused(claude, max_tokens=0, **more)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1"])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "t"}])
def test_new_models_refuse_a_forced_tool(claude: anthropic.Anthropic, model: str, choice: dict[str, str]) -> None:
    assert model in refused(claude, model=model, tools=[tool()], tool_choice=choice)


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("claude-fable-5", {"top_k": 5}),
        ("claude-sonnet-5-5", {"temperature": 0.5}),
        ("claude-opus-5-5", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}),
    ],
)
def test_parameters_a_generation_rejects(claude: anthropic.Anthropic, model: str, body: dict[str, Any]) -> None:
    assert model in refused(claude, model=model, **body)


NOTE = {"role": "system", "content": "It is noon."}
SAID = {"role": "assistant", "content": "ok"}


@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-sonnet-5", "claude-opus-4-7", "claude-haiku-4-5"])
def test_in_place_system_messages_are_unknown_to_some_models(claude: anthropic.Anthropic, model: str) -> None:
    assert "role 'system' is not supported" in refused(claude, model=model, messages=[ASK, NOTE])


@pytest.mark.parametrize(
    "messages",
    [
        [NOTE, ASK],
        [ASK, SAID, NOTE],
        [ASK, NOTE, NOTE],
        [ASK, NOTE, ASK],
        [ASK, {"role": "system", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}],
        [ASK, {**NOTE, "clear_at": "next_user_message"}],
        [ASK, {**NOTE, "output_config": {"effort": "low"}}],
    ],
)
def test_misplaced_system_messages(claude: anthropic.Anthropic, messages: list[dict[str, Any]]) -> None:
    assert "messages." in refused(claude, model="claude-opus-5", messages=messages)


@pytest.mark.parametrize(
    "messages",
    [
        [ASK, NOTE],
        [ASK, NOTE, SAID, ASK],
        [ASK, called("a"), resulted("a"), NOTE],
        [ASK, called("a"), resulted("a"), NOTE, SAID, ASK, NOTE],
    ],
)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-opus-5", "claude-opus-5-5", "claude-fable-5"])
def test_well_placed_system_messages(claude: anthropic.Anthropic, model: str, messages: list[Any]) -> None:
    claude.messages.create(model=model, max_tokens=16, messages=messages)


def test_an_unknown_model_is_not_found(claude: anthropic.Anthropic) -> None:
    assert refused(claude, 404, model="claude-nine") == "model: claude-nine"


def test_a_request_without_a_key_is_refused(server: Emulator) -> None:
    without: Any = {"Authorization": anthropic.Omit(), "X-Api-Key": anthropic.Omit()}
    with anthropic.Anthropic(
        api_key="unused",
        base_url=server.base_url,
        max_retries=0,
        default_headers=without,
    ) as client:
        refused(client, 401)


def test_both_ways_to_send_a_key_name_one_workspace(server: Emulator) -> None:
    plain: Any = {"Authorization": anthropic.Omit(), "X-Api-Key": "same"}
    both: tuple[Any, ...] = ({}, plain)
    for headers in both:
        with anthropic.Anthropic(api_key="same", base_url=server.base_url, default_headers=headers) as client:
            client.messages.create(model="claude-opus-5", max_tokens=9, messages=[{"role": "user", "content": "x"}])
    first, second = server.exchanges
    assert first.workspace == second.workspace != ""
    assert "x-api-key" in second.headers
    assert "authorization" not in second.headers
    assert "same" not in repr((first.headers, first.workspace, second.headers))


def test_a_refused_request_is_recorded_and_writes_nothing(claude: anthropic.Anthropic, server: Emulator) -> None:
    head = [text(" word" * 2000, cache_control=MARK)]
    refused(claude, system=head, messages=[])
    (exchange,) = server.exchanges
    assert exchange.status == 400
    assert exchange.response["error"]["type"] == "invalid_request_error"
    message = claude.messages.create(
        model="claude-sonnet-4-6",
        max_tokens=9,
        system=[{"type": "text", "text": " word" * 2000, "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": "x"}],
    )
    assert message.usage.cache_creation_input_tokens == 2000
