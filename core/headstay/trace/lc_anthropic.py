"""LangChain messages to the Anthropic Messages body that `langchain-anthropic` sends for them (1.7.10)."""

import re
from collections.abc import Mapping, Sequence

from headstay.comparison.segment import Json, mapping
from headstay.trace.fields import decoded, json_objects
from headstay.trace.lc_messages import Call, Content, Message
from headstay.trace.untyped import text_of

_CALL_KEYS = ("type", "id", "input", "name", "server_name", "cache_control")
_KEPT: Mapping[str, tuple[str, ...]] = {
    "text": ("type", "text", "cache_control", "citations"),
    "thinking": ("type", "thinking", "cache_control", "signature"),
    "redacted_thinking": ("type", "cache_control", "data"),
    "server_tool_use": _CALL_KEYS,
    "mcp_tool_use": _CALL_KEYS,
}
_RESULT_KEYS = ("type", "content", "tool_use_id", "is_error", "cache_control", "retrieved_at")
_BLOCK_EXTRAS = ("cache_control", "citations", "title", "context")
_DATA_URL = re.compile(r"data:(?P<kind>[\w.+/-]+);base64,(?P<data>.*)", re.DOTALL)
_NOT_SENT = ("function_call", "refusal", "tool_call", "invalid_tool_call")
_ROLES = {"system": "system", "human": "user", "tool": "user", "ai": "assistant"}


def anthropic_messages(messages: Sequence[Message]) -> tuple[str | list[Json], list[Json]]:
    """Format messages for the Messages API.

    Args:
        messages: The messages of one call.

    Returns:
        The system text (a string where it was one), and the messages; runs of human and tool messages are one.
    """
    system: str | list[Json] = ""
    found: list[Json] = []
    merged = _merged(messages)
    last = max((number for number, (role, _, _) in enumerate(merged) if role != "system"), default=-1)
    for number, (role, content, calls) in enumerate(merged):
        formatted = content if isinstance(content, str) else _blocks(content, calls)
        if calls:
            formatted = _with_calls(formatted, calls)
        if role == "assistant":
            formatted = _prefill(formatted) if number == last else formatted
            if not formatted and number < last:
                continue
        if role == "system" and not number:
            system = formatted
        else:
            found.append({"role": role, "content": formatted})
    return system, found


def _prefill(content: Content) -> Content:
    """Cut the white space that may not end a request."""
    if isinstance(content, str):
        return content.rstrip()
    if not content or content[-1].get("type") != "text":
        return content
    return [*content[:-1], {**content[-1], "text": text_of(content[-1].get("text")).rstrip()}]


def _merged(messages: Sequence[Message]) -> list[tuple[str, Content, tuple[Call, ...]]]:
    """Merge runs of messages that the API takes as one."""
    merged: list[tuple[str, Content, tuple[Call, ...]]] = []
    for message in messages:
        role = _ROLES[message.speaker]
        content = _result(message) if message.speaker == "tool" else message.content
        if merged and role != "assistant" and merged[-1][0] == role:
            before = merged[-1][1]
            merged[-1] = (role, [*_as_blocks(before), *_as_blocks(content)], ())
        else:
            merged.append((role, content, message.calls))
    return merged


def _as_blocks(content: Content) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _result(message: Message) -> Content:
    """Make the result block of a tool message; a marker inside its content moves to the block."""
    content = message.content
    if not isinstance(content, str) and content and all(block.get("type") == "tool_result" for block in content):
        return content
    block: dict[str, object] = {"type": "tool_result", "content": content, "tool_use_id": message.answers}
    block["is_error"] = message.failed
    if not isinstance(content, str):
        block["content"] = [{key: item for key, item in part.items() if key != "cache_control"} for part in content]
        marker = [part["cache_control"] for part in content if part.get("cache_control")]
        if marker:
            block["cache_control"] = marker[-1]
    return [block]


def _with_calls(content: Content, calls: Sequence[Call]) -> list[Json]:
    """Add the calls that stand only beside the content."""
    blocks = [block for block in _as_blocks(content) if block.get("type") != "text" or block.get("text")]
    there = {text_of(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    return [*blocks, *(_tool_use(call) for call in calls if call.id not in there)]


def _tool_use(call: Call) -> Json:
    return {"type": "tool_use", "name": call.name, "input": _input(call.arguments), "id": call.id}


def _input(value: object) -> object:
    """Return the input of a call; a streamed one stands as text in its block."""
    return {} if value in (None, "") else decoded(value)


def _blocks(content: Sequence[Json], calls: Sequence[Call]) -> list[Json]:
    by_id = {call.id: call for call in calls}
    found: list[Json] = []
    for block in content:
        formatted = _block(block, by_id)
        if formatted is not None:
            found.append(formatted)
    return found


def _block(block: Json, calls: dict[str, Call]) -> Json | None:
    """Format one block; None for what is not sent."""
    kind = text_of(block.get("type"))
    if kind in _NOT_SENT or (kind == "text" and not text_of(block.get("text")).strip()):
        return None
    if kind == "reasoning":
        return _thinking(block)
    if kind == "tool_use":
        return _call_block(block, calls)
    if kind in ("image_url", "image", "file", "text-plain"):
        return _data(block, kind)
    if kind in ("server_tool_use", "mcp_tool_use"):
        block = _filled(block)
    elif kind == "tool_result" and isinstance(block.get("content"), (list, tuple)):
        block = {**block, "content": _blocks(json_objects(block["content"]), ())}
    keys = _KEPT.get(kind) or (_RESULT_KEYS if kind.endswith("_tool_result") else None)
    if keys is None:
        return {key: item for key, item in block.items() if key != "index"}
    return {key: item for key, item in block.items() if key in keys and item is not None}


def _thinking(block: Json) -> Json | None:
    """Turn LangChain's own form of a thinking block back; one without a signature came from another provider."""
    signature = mapping(block.get("extras")).get("signature", block.get("signature"))
    if not signature:
        return None
    return {"type": "thinking", "thinking": text_of(block.get("reasoning")), "signature": signature}


def _call_block(block: Json, calls: dict[str, Call]) -> Json:
    """Format a tool call; what LangChain read out of it goes before the streamed text."""
    call = calls.get(text_of(block.get("id")))
    made: dict[str, object] = {"type": "tool_use", "name": block.get("name")}
    made["input"] = _input(call.arguments) if call and not block.get("caller") else _filled(block).get("input")
    made["id"] = block.get("id")
    made |= {key: block[key] for key in ("caller", "toolset_name", "cache_control") if block.get(key)}
    return made


def _filled(block: Json) -> Json:
    if block.get("input"):
        return block
    streamed = decoded(block.get("partial_json"))
    return {**block, "input": {} if isinstance(streamed, str) or streamed is None else streamed}


def _data(block: Json, kind: str) -> Json:
    """Format an image or a document in any of LangChain's forms; the API's own form passes."""
    if isinstance(block.get("source"), dict):
        return block
    made: dict[str, object] = {"type": "image" if kind.startswith("image") else "document"}
    made["source"] = _source(block, kind)
    inner = {**mapping(block.get("metadata")), **mapping(block.get("extras"))}
    made |= {key: block.get(key, inner.get(key)) for key in _BLOCK_EXTRAS if block.get(key, inner.get(key)) is not None}
    return made


def _source(block: Json, kind: str) -> Json:
    url = block.get("url", block.get("image_url"))
    url = mapping(url).get("url", url)
    given = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if given:
        return {"type": "base64", "media_type": given["kind"], "data": given["data"]}
    if isinstance(url, str):
        return {"type": "url", "url": url}
    if kind == "text-plain" or block.get("source_type") == "text":
        return {"type": "text", "media_type": block.get("mime_type") or "text/plain", "data": block.get("text")}
    if block.get("file_id") or block.get("source_type") == "id":
        return {"type": "file", "file_id": block.get("file_id", block.get("id"))}
    data = block.get("base64", block.get("data"))
    return {"type": "base64", "media_type": block.get("mime_type") or "application/pdf", "data": data}
