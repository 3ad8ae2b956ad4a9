"""Reads a Responses request: checks it, and renders its prompt."""

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
    read_model,
    read_settings,
    refuse_unmodelled,
)
from headstay.emulator.openai_prompt import PromptBuilder
from headstay.emulator.openai_responses_items import read_items

_PARAMETERS = fields(
    "access_programs background background_options context_management conversation image include input "
    "instructions max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls "
    "previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention reasoning "
    "safety_identifier service_tier store stream stream_options temperature text tool_choice tools "
    "top_logprobs top_p truncation user"
)
"""The parameters in the types of openai 3.57.0."""

_COUNT_PARAMETERS = fields(
    "conversation input instructions model parallel_tool_calls personality previous_response_id reasoning "
    "text tool_choice tools truncation"
)
_FUNCTION_KEYS = fields("type name description parameters strict allowed_callers defer_loading output_schema async")
_CUSTOM_KEYS = fields("type name description format allowed_callers defer_loading async")
_NEVER_ON_TOOLS = ("prompt_cache_breakpoint", "cache_control")


def read_responses(body: Mapping[str, Any], earlier: Sequence[Any] = (), *, counting: bool = False) -> Reading:
    """Check a request body and render its prompt.

    Args:
        body: The request body.
        earlier: The items of the response it continues.
        counting: Whether it is a request to count input tokens, which knows fewer parameters.

    Raises:
        ApiError: What the API would answer instead.
    """
    known_only(body, _COUNT_PARAMETERS if counting else _PARAMETERS)
    refuse_unmodelled(body, "conversation", "prompt", "background")
    model = read_model(body)
    cache = read_cache_fields(body, model, api="responses")
    builder = PromptBuilder()
    _read_tools(body, builder)
    text = mapping(body.get("text") or {}, "text")
    known_only(text, {"format", "verbosity"}, "text")
    output_format = _read_format(text, builder)
    instructions = body.get("instructions")
    if instructions is not None:
        builder.start("developer")
        builder.text(string(instructions, "instructions"))
        builder.finish("developer")
    items = [*earlier, *_new_items(body)]
    read_items(items, builder, model)
    reasoning = mapping(body.get("reasoning") or {}, "reasoning")
    return Reading(
        body=body,
        model=model,
        prompt=builder.build(),
        settings=read_settings(
            body,
            effort=reasoning.get("effort"),
            verbosity=text.get("verbosity"),
            output_format=output_format,
        ),
        cache=cache,
        items=items,
        stream=body.get("stream") is True,
        limit=read_limit(body, "max_output_tokens"),
    )


def _new_items(body: Mapping[str, Any]) -> Sequence[Any]:
    found = body.get("input")
    if isinstance(found, str):
        return [{"role": "user", "content": found}]
    if found is None:
        if body.get("previous_response_id") is None:
            raise ApiError("Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
        return []
    return sequence(found, "input")


def _read_tools(body: Mapping[str, Any], builder: PromptBuilder) -> None:
    """Check the tools and render those that are not deferred: a deferred one enters where it is found."""
    names: list[tuple[str, str]] = []
    for index, found in enumerate(sequence(body.get("tools") or [], "tools")):
        path = f"tools[{index}]"
        tool = mapping(found, path)
        kind = string(required(tool, "type", path), f"{path}.type")
        if kind == "function":
            known_only(tool, _FUNCTION_KEYS, path)
        elif kind == "custom":
            known_only(tool, _CUSTOM_KEYS, path)
        else:
            known_only(tool, tool.keys() - _NEVER_ON_TOOLS, path)
        if kind in ("function", "custom"):
            name = string(required(tool, "name", path), f"{path}.name")
            names.append((name, f"{path}.name"))
            check_schema(name, tool.get("parameters"), f"{path}.parameters")
        if tool.get("defer_loading") is not True:
            builder.tool(tool)
    check_tool_names(names)


def _read_format(text: Mapping[str, Any], builder: PromptBuilder) -> object:
    found = text.get("format")
    if found is None:
        return None
    output_format = mapping(found, "text.format")
    kind = string(required(output_format, "type", "text.format"), "text.format.type")
    if kind == "text":
        return None
    if kind == "json_schema":
        string(required(output_format, "name", "text.format"), "text.format.name")
        mapping(required(output_format, "schema", "text.format"), "text.format.schema")
        builder.output_format(output_format)
    elif kind != "json_object":
        raise invalid("text.format.type", kind, ("json_object", "json_schema", "text"))
    return output_format
