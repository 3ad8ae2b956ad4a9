"""Messages of OpenTelemetry's GenAI conventions, made of parts, to the bodies of two wire forms."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.errors import WireError
from headstay.trace.fields import decoded, json_objects
from headstay.trace.untyped import first_text, is_list, items, text_of

_ROLES: Mapping[str, str] = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
_RESPONSE = ("response", "result", "content")
_RESULTS = ("tool_call_response", "tool_result")
_CALLS = ("tool_call", "tool_use")
_THOUGHTS = ("reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class Said:
    """One message.

    Attributes:
        role: "system", "developer", "user", "assistant" or "tool".
        parts: Its parts, in the form of the conventions. A block that is in a provider's own form stands as it is.
        name: The name that was given to it.
    """

    role: str
    parts: Sequence[Json]
    name: str = ""


def read_said(value: object) -> list[Said]:
    """Read a list of messages, structured or as JSON text.

    Raises:
        WireError: One of them is no message.
    """
    found = decoded(value)
    if found is None or (isinstance(found, str) and not found):
        return []
    if isinstance(found, Mapping):  # one message alone
        return [_said(cast("object", found))]
    if not is_list(found):
        raise WireError("messages that are no list; is their text cut off?")
    return [_said(message) for message in found]


def _said(value: object) -> Said:
    message = mapping(value)
    role = text_of(message.get("role")).lower()
    if not role:
        raise WireError("a message without a role")
    given = decoded(message.get("parts"))
    parts = parts_of(given if is_list(given) else message.get("content"))
    if isinstance(message.get("parts"), str) and not is_list(given):
        raise WireError("a message whose parts are no list")
    calls = [call_part(call) for call in json_objects(message.get("tool_calls"))]
    answers = first_text(message, "tool_call_id", "id") if role in ("tool", "function") else ""
    if answers and not any(part.get("type") in _RESULTS for part in parts):
        parts = [{"type": "tool_call_response", "id": answers, "response": _as_response(parts)}]
    return Said(_ROLES.get(role, role), [*parts, *calls], first_text(message, "name"))


def parts_of(content: object) -> list[Json]:
    """Return content as parts: a text is one, and a list holds parts or a provider's blocks.

    Raises:
        WireError: It is neither.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "content": content}]
    if isinstance(content, Mapping):
        return [cast("Json", content)]
    parts: list[Json] = []
    for part in items(content):
        if isinstance(part, str):
            parts.append({"type": "text", "content": part})
        elif isinstance(part, Mapping):
            parts.append(cast("Json", part))
        else:
            raise WireError("a part of a message that is no object")
    return parts


def call_part(call: Json) -> Json:
    """Return the part of a tool call that is in OpenAI's form or flat."""
    named = mapping(call.get("function")) or call
    arguments = named.get("arguments", call.get("args"))
    return {"type": "tool_call", "id": call.get("id"), "name": named.get("name"), "arguments": arguments}


def anthropic_body(system: Sequence[Json], messages: Sequence[Said], tools: Sequence[Json]) -> dict[str, object]:
    """Put an Anthropic Messages body together.

    Args:
        system: Parts of the instructions that were logged apart from the messages.
        messages: The messages; leading system ones are instructions too.
        tools: The tool definitions.
    """
    instructions = [*system]
    rest = list(messages)
    while rest and rest[0].role in ("system", "developer"):
        instructions += rest.pop(0).parts
    blocks = [_anthropic_block(part) for part in instructions]
    turns = [
        {
            "role": "user" if said.role == "tool" else said.role,
            "content": [_anthropic_block(part) for part in said.parts],
        }
        for said in rest
    ]
    body: dict[str, object] = {"tools": [_anthropic_tool(tool) for tool in tools]} if tools else {}
    return {**body, **({"system": blocks} if blocks else {}), "messages": turns}


def _anthropic_block(part: Json) -> Json:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": _text(part), **_markers(part)}
    if kind == "tool_call":
        arguments = decoded(part.get("arguments"))
        made = {"type": "tool_use", "id": part.get("id"), "name": part.get("name")}
        return {**made, "input": {} if arguments in (None, "") else arguments}
    if kind == "tool_call_response":
        response = _response(part)
        return {"type": "tool_result", "tool_use_id": part.get("id"), "content": response}
    if kind == "reasoning":
        thought: dict[str, object] = {"type": "thinking", "thinking": _text(part)}
        return {**thought, "signature": part["signature"]} if part.get("signature") else thought
    if kind in ("blob", "uri", "file"):
        return _anthropic_data(part)
    return part


def _anthropic_data(part: Json) -> Json:
    kind = "image" if _modality(part) == "image" else "document"
    if part.get("type") == "uri":
        return {"type": kind, "source": {"type": "url", "url": part.get("uri")}}
    if part.get("type") == "file":
        return {"type": kind, "source": {"type": "file", "file_id": part.get("file_id")}}
    source = {"type": "base64", "media_type": part.get("mime_type"), "data": part.get("content")}
    return {"type": kind, "source": source}


def _anthropic_tool(tool: Json) -> Json:
    named = mapping(tool.get("function")) or tool
    if "input_schema" in named or tool.get("type", "function") not in ("function", "custom"):
        return {key: value for key, value in tool.items() if value is not None}
    made = {key: named[key] for key in ("name", "description") if named.get(key) is not None}
    return {**made, "input_schema": decoded(named.get("parameters"))}


def chat_body(system: Sequence[Json], messages: Sequence[Said], tools: Sequence[Json]) -> dict[str, object]:
    """Put a Chat Completions body together; for the arguments see `anthropic_body`."""
    said = [*([Said("system", system)] if system else []), *messages]
    found = [turn for one in said for turn in _chat_turns(one)]
    body: dict[str, object] = {"tools": [_chat_tool(tool) for tool in tools]} if tools else {}
    return {**body, "messages": found}


def _chat_turns(said: Said) -> list[Json]:
    """Return the messages of one: every tool result is one of its own."""
    kinds = (_RESULTS, _CALLS, _THOUGHTS)
    results, calls, thoughts = ([part for part in said.parts if part.get("type") in kind] for kind in kinds)
    found: list[Json] = [_chat_result(part) for part in results]
    if results and len(results) == len(said.parts):
        return found
    content = [_chat_part(part) for part in said.parts if not any(part.get("type") in kind for kind in kinds)]
    alone = content[0]["text"] if len(content) == 1 and set(content[0]) == {"type", "text"} else content
    made: dict[str, object] = {"role": said.role, "content": alone or (None if calls else "")}
    if said.name:
        made["name"] = said.name
    if calls:
        made["tool_calls"] = [_chat_call(part) for part in calls]
    thought = "".join(_text(part) for part in thoughts)
    return [*found, {**made, "reasoning_content": thought} if thought else made]


def _chat_result(part: Json) -> Json:
    answers = part.get("id", part.get("tool_use_id"))
    return {"role": "tool", "tool_call_id": answers, "content": _response(part)}


def _chat_call(part: Json) -> Json:
    arguments = part.get("arguments", part.get("input"))
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return {"id": part.get("id"), "type": "function", "function": {"name": part.get("name"), "arguments": arguments}}


def _chat_part(part: Json) -> Json:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text"):
        return {"type": "text", "text": _text(part), **_markers(part)}
    if kind == "file" and "file" not in part:
        return {"type": "file", "file": {"file_id": part.get("file_id")}}
    if kind not in ("blob", "uri"):
        return part
    mime = text_of(part.get("mime_type"))
    url = part.get("uri") if kind == "uri" else f"data:{mime};base64,{text_of(part.get('content'))}"
    if _modality(part) == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    if _modality(part) == "audio" and kind == "blob":
        audio = {"data": part.get("content"), "format": mime.rpartition("/")[2]}
        return {"type": "input_audio", "input_audio": audio}
    return {"type": "file", "file": {"file_data": url}}


def _chat_tool(tool: Json) -> Json:
    if "function" in tool or tool.get("type", "function") != "function":
        return {key: value for key, value in tool.items() if value is not None}
    made = {key: tool[key] for key in ("name", "description", "strict") if tool.get(key) is not None}
    return {"type": "function", "function": {**made, "parameters": decoded(tool.get("parameters"))}}


def _text(part: Json) -> str:
    return next((text for name in ("content", "text", "thinking") if (text := text_of(part.get(name)))), "")


def _markers(part: Json) -> Json:
    return {key: part[key] for key in ("cache_control", "prompt_cache_breakpoint") if part.get(key)}


def _modality(part: Json) -> str:
    return text_of(part.get("modality")) or text_of(part.get("mime_type")).partition("/")[0]


def _as_response(parts: Sequence[Json]) -> object:
    return _text(parts[0]) if len(parts) == 1 and parts[0].get("type") == "text" else list(parts)


def _response(part: Json) -> object:
    """Return the result of a tool: a text, or blocks; any other value is written as JSON."""
    value = next((part[name] for name in _RESPONSE if part.get(name) is not None), "")
    if isinstance(value, str):
        return value
    blocks = json_objects(value)
    if blocks and len(blocks) == len(items(value)) and all(isinstance(block.get("type"), str) for block in blocks):
        return [{"type": "text", "text": _text(block)} if block["type"] == "text" else block for block in blocks]
    return json.dumps(value, ensure_ascii=False)
