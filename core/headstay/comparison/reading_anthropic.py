"""An Anthropic Messages request body to a `Request`."""

from collections.abc import Mapping
from typing import cast

from headstay.comparison.reading import (
    block_segment,
    call_segment,
    marks_of,
    result_segment,
    speaker,
    text_block,
    text_segment,
)
from headstay.comparison.segment import Json, Mark, Request, Segment
from headstay.comparison.wire_form import objects
from headstay.prompt import Kind, Tool

_KEY = "cache_control"
_KINDS: dict[object, Kind] = {
    "image": "image",
    "document": "file",
    "search_result": "file",
    "container_upload": "file",
    "tool_addition": "tool",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
}


def read(body: Json) -> Request:
    """Read a request body.

    Args:
        body: The JSON object posted to `/v1/messages`, or the SDK's keyword arguments.

    Raises:
        WireError: A field is not of the form the API takes.
    """
    marks: list[Mark] = []
    tools: list[Tool] = []
    places: list[str] = []
    for number, wire in enumerate(objects(body.get("tools") or (), "tools")):
        if wire.get("defer_loading"):  # loaded on demand, so it stands outside the prefix
            continue
        marks += marks_of(wire, _KEY, path=f"tools[{number}]", index=len(tools), tier="tools")
        kind = str(wire.get("type") or "custom")
        tools.append(Tool(str(wire.get("name") or kind), kind == "custom", deferred=False, wire=wire))
        places.append(f"tools[{number}]")
    system = _system(body.get("system"), marks)
    messages: list[Segment] = []
    for number, message in enumerate(objects(body.get("messages"), "messages")):
        _message(number, message, messages, marks)
    control = body.get(_KEY)
    if isinstance(control, Mapping):
        ttl = cast("Json", control).get("ttl")
        marks.append(Mark("messages", len(messages) - 1, _KEY, None if ttl is None else str(ttl), automatic=True))
    return Request(
        "anthropic-messages", body, str(body.get("model", "")), tuple(tools), tuple(places), system, messages, marks
    )


def _system(system: object, marks: list[Mark]) -> list[Segment]:
    if system is None or isinstance(system, str):
        return [text_segment(system, path="system", holder="system", message=-1, role="system")] if system else []
    found: list[Segment] = []
    for index, block in enumerate(objects(system, "system")):
        path = f"system[{index}]"
        marks += marks_of(block, _KEY, path=path, index=index, tier="system")
        found.append(text_block(block, path=path, holder=path, message=-1, role="system"))
    return found


def _message(number: int, message: Json, found: list[Segment], marks: list[Mark]) -> None:
    holder = f"messages[{number}]"
    role = speaker(message)
    content = message.get("content")
    if isinstance(content, str):
        found.append(text_segment(content, path=f"{holder}.content", holder=holder, message=number, role=role))
        return
    for index, block in enumerate(objects(content or (), f"{holder}.content")):
        path = f"{holder}.content[{index}]"
        if _KEY in block:
            marks += marks_of(block, _KEY, path=path, index=len(found), tier="messages")
        found.append(_block(block, path, holder, number, role))
        inner = block.get("content")
        if isinstance(inner, (list, tuple)):
            for part, bearer in enumerate(cast("list[object]", inner)):
                if isinstance(bearer, Mapping):
                    marks += marks_of(
                        cast("Json", bearer),
                        _KEY,
                        path=f"{path}.content[{part}]",
                        index=len(found) - 1,
                        tier="messages",
                    )


def _block(block: Json, path: str, holder: str, number: int, role: str) -> Segment:
    kind = str(block.get("type"))
    if kind == "text":
        return text_block(block, path=path, holder=holder, message=number, role=role)
    if kind.endswith("tool_use"):
        return call_segment(
            block,
            block.get("input"),
            call=block.get("id"),
            name=block.get("name"),
            path=f"{path}.input",
            holder=holder,
            message=number,
        )
    if kind.endswith("tool_result"):
        return result_segment(
            block,
            block.get("content"),
            call=block.get("tool_use_id"),
            path=f"{path}.content",
            holder=holder,
            message=number,
            failed=bool(block.get("is_error")),
        )
    if kind == "thinking":
        path = f"{path}.thinking"
    return block_segment(block, _KINDS.get(kind, "other"), path=path, holder=holder, message=number, role=role)
