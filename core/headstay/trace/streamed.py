"""A streamed response, logged event by event, to the response that it adds up to."""

import json
from collections.abc import Sequence
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.trace.fields import json_objects

_ENDS = ("response.completed", "response.incomplete", "response.failed")


def events_of(text: str) -> list[Json]:
    """Return the events of a stream that was logged as text, as server-sent events are written."""
    found: list[object] = []
    for line in text.splitlines():
        data = line.removeprefix("data:")
        if data is not line and data.lstrip()[:1] == "{":
            try:
                found.append(json.loads(data))
            except (ValueError, RecursionError):
                continue
    return json_objects(found)


def joined(events: Sequence[Json]) -> Json:
    """Add up the events of a stream of any of the three wires; an empty object where they are none."""
    for event in reversed(events):
        if event.get("type") in _ENDS:
            return mapping(event.get("response"))
    if any(event.get("type") == "message_start" for event in events):
        return _message(events)
    if any("choices" in event for event in events):
        return _completion(events)
    return {}


def _message(events: Sequence[Json]) -> Json:
    message: dict[str, object] = {}
    blocks: dict[str, dict[str, object]] = {}
    usage: dict[str, object] = {}
    for event in events:
        kind, index = event.get("type"), str(event.get("index"))
        if kind == "message_start":
            message |= mapping(event.get("message"))
            usage |= mapping(message.get("usage"))
        elif kind == "content_block_start":
            blocks[index] = dict(mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            _add(blocks.setdefault(index, {"type": "text"}), "text", mapping(event.get("delta")).get("text"))
        elif kind == "message_delta":
            message |= mapping(event.get("delta"))
            # Repeats the totals, without the split of the writes by TTL that the start has.
            usage |= {name: value for name, value in mapping(event.get("usage")).items() if value is not None}
    return {**message, "type": "message", "content": list(blocks.values()), "usage": usage}


def _completion(events: Sequence[Json]) -> Json:
    completion: dict[str, object] = {}
    messages: dict[str, dict[str, object]] = {}
    for event in events:
        completion |= {name: value for name, value in event.items() if value is not None and name != "choices"}
        for choice in json_objects(event.get("choices")):
            message = messages.setdefault(str(choice.get("index")), {"tool_calls": []})
            delta = mapping(choice.get("delta"))
            _add(message, "content", delta.get("content"))
            # Only the first piece of a call carries its id.
            cast("list[Json]", message["tool_calls"]).extend(
                call for call in json_objects(delta.get("tool_calls")) if call.get("id")
            )
    return {**completion, "choices": [{"message": message} for message in messages.values()]}


def _add(holder: dict[str, object], name: str, more: object) -> None:
    if isinstance(more, str):
        held = holder.get(name)
        holder[name] = held + more if isinstance(held, str) else more
