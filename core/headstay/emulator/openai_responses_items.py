"""Checks and renders the input items of a Responses request."""

from collections.abc import Mapping, Sequence
from typing import Any

from headstay.emulator.openai_errors import (
    ApiError,
    fields,
    invalid,
    known_only,
    mapping,
    one_of,
    required,
    sequence,
    string,
)
from headstay.emulator.openai_gates import read_marker
from headstay.emulator.openai_models import ModelFacts
from headstay.emulator.openai_prompt import PromptBuilder
from headstay.emulator.shape import compact

_INPUT_PARTS: Mapping[str, frozenset[str]] = {
    "input_text": frozenset({"text"}),
    "input_image": frozenset({"image_url", "file_id", "detail"}),
    "input_file": frozenset({"file_id", "file_url", "file_data", "filename", "detail"}),
    "input_audio": frozenset({"input_audio"}),
    "computer_screenshot": frozenset({"image_url", "file_id", "detail"}),
}
"""The parts that may carry a breakpoint, with their fields."""

_OUTPUT_PARTS: Mapping[str, frozenset[str]] = {
    "output_text": frozenset({"text", "annotations", "logprobs"}),
    "refusal": frozenset({"refusal"}),
}
_MESSAGE_KEYS = frozenset({"type", "id", "role", "content", "status", "phase"})
_ROLES = ("user", "assistant", "system", "developer")

_CALLS: Mapping[str, tuple[str, frozenset[str]]] = {
    "function_call": (
        "arguments",
        fields("type id call_id name arguments status namespace caller async"),
    ),
    "custom_tool_call": ("input", fields("type id call_id name input status namespace caller")),
}
_RESULT_KEYS = fields("type id call_id output status caller name namespace")
_RESULTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}

_OTHER_KEYS: Mapping[str, frozenset[str] | None] = {
    "additional_tools": frozenset({"type", "id", "role", "tools"}),
    "tool_search_output": frozenset({"type", "id", "call_id", "execution", "status", "tools"}),
    "configuration_update": frozenset({"type", "id", "reasoning", "text"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
    **dict.fromkeys(
        fields(
            "tool_search_call compaction compaction_trigger computer_call computer_call_output "
            "web_search_call file_search_call image_generation_call code_interpreter_call local_shell_call "
            "local_shell_call_output shell_call shell_call_output apply_patch_call "
            "apply_patch_call_output mcp_list_tools mcp_approval_request mcp_approval_response mcp_call "
            "program program_output"
        )
    ),
}
"""Item types that are rendered as they are; None where their fields are not checked."""


def read_items(items: Sequence[Any], builder: PromptBuilder, model: ModelFacts) -> None:
    """Check input items and add them to a prompt.

    Raises:
        ApiError: Naming the first field that is wrong.
    """
    _check_pairs(items)
    for index, found in enumerate(items):
        path = f"input[{index}]"
        item = mapping(found, path)
        kind = item.get("type", "message")
        if kind == "message":
            _read_message(item, path, builder, model)
        elif kind in _CALLS:
            _read_call(item, kind, path, builder)
        elif kind in _RESULTS:
            _read_result(item, path, builder, model)
        elif kind in _OTHER_KEYS:
            _read_other(item, kind, path, builder, model)
        else:
            raise invalid(f"{path}.type", kind, ("message", *_CALLS, *_RESULTS, *_OTHER_KEYS))


def _read_message(item: Mapping[str, Any], path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    known_only(item, _MESSAGE_KEYS, path)
    role = one_of(required(item, "role", path), _ROLES, f"{path}.role")
    rendered = "developer" if role == "system" else role
    builder.start(rendered)
    _read_content(required(item, "content", path), rendered, f"{path}.content", builder, model)
    builder.finish(rendered)


def _read_content(content: object, role: str, path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    if isinstance(content, str):
        builder.text(content)
        return
    for index, found in enumerate(sequence(content, path)):
        _read_part(found, role, f"{path}[{index}]", builder, model)


def _read_part(found: object, role: str, path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    part = mapping(found, path)
    kind = required(part, "type", path)
    if role == "assistant":
        if kind not in _OUTPUT_PARTS:
            raise invalid(f"{path}.type", kind, tuple(_OUTPUT_PARTS))
        known_only(part, {"type", *_OUTPUT_PARTS[kind]}, path)
        builder.text(string(part.get("text", part.get("refusal")), path))
        return
    if kind not in _INPUT_PARTS:
        raise invalid(f"{path}.type", kind, tuple(_INPUT_PARTS))
    known_only(part, {"type", "prompt_cache_breakpoint", *_INPUT_PARTS[kind]}, path)
    if kind == "input_text":
        builder.text(string(required(part, "text", path), f"{path}.text"))
    else:
        builder.media(part)
    marked, ttl = read_marker(part, model, path)
    if marked:
        builder.mark(ttl)


def _read_call(item: Mapping[str, Any], kind: str, path: str, builder: PromptBuilder) -> None:
    field, keys = _CALLS[kind]
    known_only(item, keys, path)
    builder.start("assistant")
    builder.text(string(required(item, "call_id", path), f"{path}.call_id"))
    builder.text(string(required(item, "name", path), f"{path}.name"))
    builder.text(string(required(item, field, path), f"{path}.{field}"))
    builder.finish("assistant")


def _read_result(item: Mapping[str, Any], path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    known_only(item, _RESULT_KEYS, path)
    builder.start("tool")
    builder.text(string(required(item, "call_id", path), f"{path}.call_id"))
    output = item.get("output")
    _read_content(output if output is not None else "", "tool", f"{path}.output", builder, model)
    builder.finish("tool")


def _read_other(item: Mapping[str, Any], kind: str, path: str, builder: PromptBuilder, model: ModelFacts) -> None:
    keys = _OTHER_KEYS[kind]
    if keys is not None:
        known_only(item, keys, path)
    if kind == "configuration_update" and model.version < (6, 0):
        message = f"'configuration_update' items need GPT-6 or later ({path})."
        raise ApiError(message, param=f"{path}.type", code="invalid_value")
    if kind == "additional_tools":
        one_of(required(item, "role", path), ("developer",), f"{path}.role")
    builder.start(kind)
    if kind == "computer_call_output":
        _read_part(required(item, "output", path), "tool", f"{path}.output", builder, model)
    else:
        builder.text(compact({key: value for key, value in item.items() if key not in ("id", "status")}))
    builder.finish(kind)


def _check_pairs(items: Sequence[Any]) -> None:
    """Refuse calls without an output and outputs without a call, wherever they stand."""
    calls: dict[str, str] = {}
    answered: set[str] = set()
    for found in items:
        item = mapping(found, "input")
        kind, call = item.get("type"), str(item.get("call_id"))
        if isinstance(kind, str) and kind in _CALLS:
            calls[call] = kind
        elif kind in _RESULTS:
            if calls.get(call) != _RESULTS[kind]:
                message = f"No tool call found for {kind.replace('_', ' ')} with call_id {call}."
                raise ApiError(message, param="input")
            answered.add(call)
    for call, kind in calls.items():
        if call not in answered:
            raise ApiError(f"No tool output found for {kind.replace('_', ' ')} {call}.", param="input")
