"""An OpenAI Chat Completions or Responses request body to a `Request`."""

from collections.abc import Mapping, Sequence
from typing import cast

from headstay.comparison.reading import (
    TEXT_TYPES,
    block_segment,
    call_segment,
    marks_of,
    result_segment,
    speaker,
    text_block,
    text_segment,
)
from headstay.comparison.segment import Json, Mark, Request, Segment, Tier
from headstay.comparison.wire_form import objects
from headstay.prompt import Kind, Tool, Wire

_KEYS = ("prompt_cache_breakpoint", "cache_control")  # the second passes through gateways
_OPERATOR = ("system", "developer")
_THINKING = ("reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks")
# What of a message is read as content, or is no part of what the model reads.
_READ = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "type", "id", "status", "phase", *_KEYS})
_NO_CONTENT = ("id", "status")


def read(body: Json, wire: Wire) -> Request:
    """Read a request body.

    Args:
        body: The JSON object posted, or the SDK's keyword arguments.
        wire: "openai-chat" or "openai-responses".

    Raises:
        WireError: A field is not of the form the API takes.
    """
    field = "messages" if wire == "openai-chat" else "input"
    given = body.get(field, ())
    plain = isinstance(given, str) and field == "input"
    items: Sequence[Json] = [{"role": "user", "content": given}] if plain else objects(given, field)
    tools, places = _tools(body)
    marks: list[Mark] = []
    system: list[Segment] = []
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        system.append(text_segment(instructions, path="instructions", holder="instructions", message=-1, role="system"))
    leading = 0
    while leading < len(items) and _is_operator(items[leading]):
        _message(leading, items[leading], field, system, marks, "system")
        leading += 1
    messages: list[Segment] = []
    for number, item in enumerate(items[leading:], leading):
        _item(number, item, field, messages, marks)
    if plain:
        messages = [segment._replace(path=field, holder=field) for segment in messages]
    held = any(body.get(key) for key in ("previous_response_id", "conversation"))
    model = str(body.get("model", ""))
    return Request(wire, body, model, tools, places, system, messages, marks, held)


def _tools(body: Json) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    tools: list[Tool] = []
    places: list[str] = []
    listed = [
        (f"{field}[{number}]", wire)
        for field in ("tools", "functions")  # the second is the field of old clients
        for number, wire in enumerate(objects(body.get(field) or (), field))
    ]
    for place, wire in listed:
        if wire.get("defer_loading"):
            continue
        function = wire.get("function")
        kind = str(wire.get("type") or "function")
        named = cast("Json", function) if isinstance(function, Mapping) else wire
        title = str(named.get("name") or wire.get("server_label") or kind)
        tools.append(Tool(title, kind in ("function", "custom"), deferred=False, wire=wire))
        places.append(place)
    return tuple(tools), tuple(places)


def _is_operator(item: Json) -> bool:
    if item.get("role") not in _OPERATOR or item.get("type") not in (None, "message"):
        return False
    content = item.get("content")
    if isinstance(content, (list, tuple)):
        parts = cast("Sequence[object]", content)
        return all(isinstance(part, Mapping) and cast("Json", part).get("type") in TEXT_TYPES for part in parts)
    return isinstance(content, str)


def _message(number: int, item: Json, field: str, found: list[Segment], marks: list[Mark], tier: Tier) -> None:
    """Read the content of a message."""
    holder = f"{field}[{number}]"
    role = "system" if tier == "system" else speaker(item)
    content = item.get("content")
    if isinstance(content, str):
        if content or not item.get("tool_calls"):
            path = f"{holder}.content"
            found.append(text_segment(content, path=path, holder=holder, message=number, role=role))
        return
    for index, part in enumerate(objects(content or (), f"{holder}.content")):
        path = f"{holder}.content[{index}]"
        marks += marks_of(part, *_KEYS, path=path, index=len(found), tier=tier)
        if part.get("type") in TEXT_TYPES:
            found.append(text_block(part, path=path, holder=holder, message=number, role=role))
        else:
            found.append(_part(part, path, holder, number, role))


def _part(part: Json, path: str, holder: str, number: int, role: str) -> Segment:
    shape = str(part.get("type"))
    kind: Kind = "image" if "image" in shape else "file" if shape in ("file", "input_file", "input_audio") else "other"
    kind = "thinking" if shape in ("thinking", "reasoning") else kind
    return block_segment(part, kind, path=path, holder=holder, message=number, role=role)


def _item(number: int, item: Json, field: str, found: list[Segment], marks: list[Mark]) -> None:
    holder = f"{field}[{number}]"
    kind = item.get("type")
    if kind not in (None, "message"):
        found.append(_typed(item, str(kind), holder, number))
        output = item.get("output")
        if isinstance(output, (list, tuple)):
            for index, part in enumerate(objects(cast("object", output), f"{holder}.output")):
                marks += marks_of(part, *_KEYS, path=f"{holder}.output[{index}]", index=len(found) - 1, tier="messages")
        return
    if item.get("role") in ("tool", "function"):
        call = item.get("tool_call_id") or item.get("name")
        path = f"{holder}.content"
        found.append(result_segment(item, item.get("content"), call=call, path=path, holder=holder, message=number))
        return
    more = [key for key in item if key not in _READ and item[key]]
    for key in _THINKING:
        if key in more:
            block = {key: item[key]}
            path = f"{holder}.{key}"
            found.append(block_segment(block, "thinking", path=path, holder=holder, message=number, role=speaker(item)))
    _message(number, item, field, found, marks, "messages")
    extra = {key: item[key] for key in more if key not in _THINKING}
    if extra:
        found.append(block_segment(extra, "other", path=holder, holder=holder, message=number, role=speaker(item)))
    for index, call in enumerate(objects(item.get("tool_calls") or (), f"{holder}.tool_calls")):
        found.append(_chat_call(call, f"{holder}.tool_calls[{index}]", holder, number))


def _chat_call(call: Json, path: str, holder: str, number: int) -> Segment:
    inner, key = ("function", "arguments") if "function" in call else ("custom", "input")
    function = call.get(inner)
    named = cast("Json", function) if isinstance(function, Mapping) else call
    return call_segment(
        call,
        named.get(key) or "",
        call=call.get("id"),
        name=named.get("name"),
        path=f"{path}.{inner}.{key}",
        holder=holder,
        message=number,
    )


def _typed(item: Json, kind: str, holder: str, number: int) -> Segment:
    if kind.endswith("_call_output"):
        output = item.get("output")
        if isinstance(output, Mapping):  # a screenshot
            return block_segment(item, "image", path=f"{holder}.output", holder=holder, message=number, role="tool")
        call = item.get("call_id")
        return result_segment(
            item, item.get("output"), call=call, path=f"{holder}.output", holder=holder, message=number
        )
    if kind in ("function_call", "custom_tool_call"):
        key = "arguments" if kind == "function_call" else "input"
        return call_segment(
            item,
            item.get(key) or "",
            call=item.get("call_id"),
            name=item.get("name"),
            path=f"{holder}.{key}",
            holder=holder,
            message=number,
        )
    bare = {key: value for key, value in item.items() if key not in _NO_CONTENT}
    what: Kind = "thinking" if kind == "reasoning" else "tool_call" if kind.endswith("_call") else "other"
    said_by = "system" if kind == "additional_tools" else "assistant"
    return block_segment(bare, what, path=holder, holder=holder, message=number, role=said_by)
