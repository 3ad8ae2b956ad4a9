"""Reads a Chat Completions request: checks it, and renders its prompt."""

from collections.abc import Mapping, Sequence
from typing import Any

from headstay.emulator.openai_errors import (
    ApiError,
    fields,
    invalid,
    known_only,
    mapping,
    required,
    sequence,
    string,
)
from headstay.emulator.openai_gates import (
    Reading,
    check_schema,
    check_tool_names,
    read_cache_fields,
    read_limit,
    read_marker,
    read_model,
    read_settings,
    refuse_unmodelled,
)
from headstay.emulator.openai_models import ModelFacts
from headstay.emulator.openai_prompt import PromptBuilder
from headstay.emulator.shape import compact

_PARAMETERS = fields(
    "messages model audio frequency_penalty function_call functions logit_bias logprobs "
    "max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction "
    "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort "
    "response_format safety_identifier seed service_tier stop store stream stream_options temperature "
    "tool_choice tools top_logprobs top_p user verbosity web_search_options"
)
"""The parameters in the types of openai 3.57.0."""

_ROLES: Mapping[str, frozenset[str]] = {
    "developer": frozenset({"role", "content", "name"}),
    "system": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset(
        {"role", "content", "name", "refusal", "audio", "tool_calls", "function_call", "annotations"}
    ),
    "tool": frozenset({"role", "content", "name", "tool_call_id"}),
}

_PARTS: Mapping[str, Sequence[str]] = {
    "developer": ("text",),
    "system": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
_TOOL_KEYS: Mapping[str, frozenset[str]] = {
    "function": frozenset({"type", "function"}),
    "custom": frozenset({"type", "custom"}),
}
_FUNCTION_KEYS = frozenset({"name", "description", "parameters", "strict", "format"})


def read_chat(body: Mapping[str, Any]) -> Reading:
    """Check a request body and render its prompt.

    Raises:
        ApiError: What the API would answer instead.
    """
    known_only(body, _PARAMETERS)
    refuse_unmodelled(body, "functions", "function_call", "audio", "web_search_options")
    model = read_model(body)
    _check_model_fields(body, model)
    cache = read_cache_fields(body, model, api="chat")
    builder = PromptBuilder()
    _read_tools(body, builder)
    output_format = _read_format(body, builder)
    messages = sequence(required(body, "messages", ""), "messages")
    if not messages:
        message = "Invalid 'messages': empty array. Expected an array with minimum length 1."
        raise ApiError(message, param="messages", code="empty_array")
    _check_pairs(messages)
    for index, message in enumerate(messages):
        _read_message(message, f"messages[{index}]", builder, model)
    return Reading(
        body=body,
        model=model,
        prompt=builder.build(),
        settings=read_settings(
            body,
            effort=body.get("reasoning_effort"),
            verbosity=body.get("verbosity"),
            output_format=output_format,
        ),
        cache=cache,
        items=messages,
        stream=body.get("stream") is True,
        limit=read_limit(body, "max_completion_tokens", "max_tokens"),
    )


def _check_model_fields(body: Mapping[str, Any], model: ModelFacts) -> None:
    if model.reasoning_only and body.get("max_tokens") is not None:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
        raise ApiError(message, param="max_tokens", code="unsupported_parameter")
    if model.responses_for_tools and body.get("tools"):
        message = f"Function tools are not supported for {model.name} in /v1/chat/completions. Use /v1/responses."
        raise ApiError(message, param="tools")
    if body.get("stream_options") is not None and body.get("stream") is not True:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise ApiError(message, param="stream_options")


def _read_tools(body: Mapping[str, Any], builder: PromptBuilder) -> None:
    names: list[tuple[str, str]] = []
    for index, found in enumerate(sequence(body.get("tools") or [], "tools")):
        path = f"tools[{index}]"
        tool = mapping(found, path)
        kind = string(required(tool, "type", path), f"{path}.type")
        if kind not in _TOOL_KEYS:
            raise invalid(f"{path}.type", kind, tuple(_TOOL_KEYS))
        known_only(tool, _TOOL_KEYS[kind], path)
        definition = mapping(required(tool, kind, path), f"{path}.{kind}")
        known_only(definition, _FUNCTION_KEYS, f"{path}.{kind}")
        name = string(required(definition, "name", f"{path}.{kind}"), f"{path}.{kind}.name")
        names.append((name, f"{path}.{kind}.name"))
        check_schema(name, definition.get("parameters"), f"{path}.{kind}.parameters")
        builder.tool(definition)
    check_tool_names(names)


def _read_format(body: Mapping[str, Any], builder: PromptBuilder) -> object:
    found = body.get("response_format")
    if found is None:
        return None
    output_format = mapping(found, "response_format")
    kind = string(required(output_format, "type", "response_format"), "response_format.type")
    if kind == "text":
        return None
    if kind == "json_schema":
        path = "response_format.json_schema"
        schema = mapping(required(output_format, "json_schema", "response_format"), path)
        string(required(schema, "name", path), f"{path}.name")
        builder.output_format(schema)
    elif kind != "json_object":
        raise invalid("response_format.type", kind, ("json_object", "json_schema", "text"))
    return output_format


def _read_message(found: object, path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    message = mapping(found, path)
    role = string(required(message, "role", path), f"{path}.role")
    if role not in _ROLES:
        raise invalid(f"{path}.role", role, tuple(_ROLES))
    known_only(message, _ROLES[role], path)
    rendered = "developer" if role == "system" else role
    builder.start(rendered)
    builder.text(message.get("name") or "")
    if role == "tool":
        builder.text(string(required(message, "tool_call_id", path), f"{path}.tool_call_id"))
    content = message.get("content")
    if content is None:
        if role != "assistant":
            raise _no_content(path)
    elif isinstance(content, str):
        builder.text(content)
    else:
        for index, part in enumerate(sequence(content, f"{path}.content")):
            _read_part(part, role, f"{path}.content[{index}]", builder, model)
    if role == "assistant":
        builder.text(message.get("refusal") or "")
        for call in _tool_calls(message, path):
            builder.text(compact(call))
    builder.finish(rendered)


def _no_content(path: str) -> ApiError:
    message = f"Invalid value for 'content': expected a string, got null. ({path})"
    return ApiError(message, param=f"{path}.content")


def _read_part(found: object, role: str, path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    part = mapping(found, path)
    kind = string(required(part, "type", path), f"{path}.type")
    if kind not in _PARTS[role]:
        raise invalid(f"{path}.type", kind, tuple(_PARTS[role]))
    allowed = {"type", kind} if role == "assistant" else {"type", kind, "prompt_cache_breakpoint"}
    known_only(part, allowed, path)
    if kind in ("text", "refusal"):
        builder.text(string(required(part, kind, path), f"{path}.{kind}"))
    else:
        mapping(required(part, kind, path), f"{path}.{kind}")
        builder.media(part)
    marked, ttl = read_marker(part, model, path)
    if marked:
        builder.mark(ttl)


def _check_pairs(messages: Sequence[Any]) -> None:
    """Refuse tool calls without results right behind them, and results without calls."""
    open_calls: list[str] = []
    asked_at = 0
    for index, found in enumerate([*messages, None]):
        message: Mapping[str, Any] = mapping(found, f"messages[{index}]") if found is not None else {}
        if message.get("role") == "tool":
            _close_call(open_calls, message.get("tool_call_id"), index)
            continue
        if open_calls:
            text = (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(open_calls)
            )
            raise ApiError(text, param=f"messages.[{asked_at}].role")
        asked_at = index
        calls = _tool_calls(message, f"messages[{index}]")
        open_calls = [str(call.get("id")) for call in calls]


def _tool_calls(message: Mapping[str, Any], path: str) -> list[Mapping[str, Any]]:
    found = message.get("tool_calls")
    if found is None:
        return []
    path = f"{path}.tool_calls"
    return [mapping(call, f"{path}[{index}]") for index, call in enumerate(sequence(found, path))]


def _close_call(open_calls: list[str], call: object, index: int) -> None:
    if call not in open_calls:
        message = (
            "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
        )
        raise ApiError(message, param=f"messages.[{index}].role")
    open_calls.remove(str(call))
