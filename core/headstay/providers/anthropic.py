"""Anthropic Messages: request body to `Prompt`, and `Plan` back to a request body.

Rules: platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from headstay.canonical import without_markers
from headstay.errors import WireError
from headstay.fingerprint import block_digest, speaker, text_digest
from headstay.layout import Plan, PlannedMarker, Tier
from headstay.prompt import Block, Kind, Marker, Prompt, Role, Tool
from headstay.providers.rules import CacheRules

Body = Mapping[str, object]
_Planned = Mapping[tuple[Tier, int, int], PlannedMarker]

BINDING_BETA = "thinking-binding-controls-2026-08-01"
ADDITION_BETAS = ("mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15")

_NOT_PARAMETERS = frozenset({"model", "messages", "system", "tools", "stream", "metadata", "cache_control"})
_ROLES: dict[object, Role] = {"assistant": "assistant", "system": "system"}
_KINDS: dict[object, Kind] = {
    "text": "text",
    "image": "image",
    "document": "file",
    "search_result": "file",
    "tool_use": "tool_call",
    "server_tool_use": "tool_call",
    "mcp_tool_use": "tool_call",
    "tool_result": "tool_result",
    "tool_addition": "tool",
    "thinking": "thinking",
    "redacted_thinking": "thinking",
}


def parse(body: Body) -> Prompt:
    """Read a request body.

    Args:
        body: The JSON object posted to `/v1/messages`, or the SDK's keyword arguments.

    Returns:
        The neutral request; it refers to the body's own messages.

    Raises:
        WireError: A field is not of the form the API takes.
    """
    messages = _objects(body.get("messages", ()), "messages")
    markers = _request_marker(body)
    tools = _objects(body.get("tools") or (), "tools")
    markers += [Marker("tools", index, 0, ttl) for index, tool in enumerate(tools) if (ttl := _ttl(tool)) != ""]
    system, system_markers = _system(body.get("system"))
    blocks: list[Block] = []
    message_markers: list[Marker] = []
    for number, message in enumerate(messages):
        _read_message(number, message, blocks, message_markers)
    return Prompt(
        wire="anthropic-messages",
        model=str(body.get("model", "")),
        tools=tuple(_tool(tool) for tool in tools),
        system=system,
        messages=messages,
        blocks=tuple(blocks),
        parameters={key: value for key, value in body.items() if key not in _NOT_PARAMETERS},
        markers=(*markers, *system_markers, *message_markers),
    )


def _objects(value: object, where: str) -> Sequence[Mapping[str, object]]:
    if not isinstance(value, (list, tuple)):
        raise WireError(f"{where}: expected a list of objects, got {type(value).__name__}")
    return cast("Sequence[Mapping[str, object]]", value)


def _ttl(block: Mapping[str, object]) -> str | None:
    """Return the TTL of a block's marker: None for the default, an empty text where there is no marker."""
    marker = block.get("cache_control")
    if not isinstance(marker, Mapping):
        return ""
    ttl = cast("Mapping[str, object]", marker).get("ttl")
    return None if ttl is None else str(ttl)


def _request_marker(body: Body) -> list[Marker]:
    ttl = _ttl(body)
    return [] if ttl == "" else [Marker("request", ttl=ttl)]


def _tool(wire: Mapping[str, object]) -> Tool:
    kind = str(wire.get("type") or "custom")
    return Tool(str(wire.get("name") or kind), kind == "custom", bool(wire.get("defer_loading")), wire)


def _system(system: object) -> tuple[tuple[str, ...], list[Marker]]:
    if system is None:
        return (), []
    if isinstance(system, str):
        return ((system,) if system else ()), []
    blocks = _objects(system, "system")
    texts = tuple(str(block.get("text", "")) for block in blocks)
    return texts, [Marker("system", 0, index, ttl) for index, block in enumerate(blocks) if (ttl := _ttl(block)) != ""]


def _read_message(number: int, message: Mapping[str, object], blocks: list[Block], markers: list[Marker]) -> None:
    said_by = speaker(message)
    content = message.get("content")
    role = _ROLES.get(message.get("role"), "user")
    if isinstance(content, str):
        blocks.append(Block(role, "text" if content.strip() else "blank", number, 0, *text_digest(said_by, content)))
        return
    for index, block in enumerate(_objects(content or (), "messages[].content")):
        kind = _KINDS.get(block.get("type"), "other")
        digest, size = block_digest(said_by, block)
        if kind == "text" and not str(block.get("text", "")).strip():
            kind = "blank"
        elif kind in {"image", "file"}:
            size = 0
        blocks.append(Block("tool" if kind == "tool_result" else role, kind, number, index, digest, size))
        if "cache_control" in block and (ttl := _ttl(block)) != "":
            markers.append(Marker("messages", number, index, ttl))
        if kind == "tool_result" and not isinstance(block.get("content"), str):
            markers += [Marker("messages", number, index, ttl) for ttl in _inner_ttls(block)]


def _inner_ttls(block: Mapping[str, object]) -> list[str | None]:
    """Return the TTLs of the markers on the blocks inside a tool result."""
    inner = cast("Sequence[object]", block.get("content") or ())
    found = [_ttl(cast("Mapping[str, object]", bearer)) for bearer in inner if isinstance(bearer, Mapping)]
    return [ttl for ttl in found if ttl != ""]


def render(body: Body, prompt: Prompt, plan: Plan) -> dict[str, object]:
    """Write a plan into a request body.

    Args:
        body: The body `prompt` was read from; it is not changed.
        prompt: The request.
        plan: Its arrangement.

    Returns:
        A new body. Whatever the plan does not touch is the application's own object.
    """
    planned: _Planned = {(marker.tier, marker.message, marker.part): marker for marker in plan.markers}
    result = {key: value for key, value in body.items() if key != "cache_control"}
    if plan.tools:
        result["tools"] = [
            _marked(without_own(tool.wire), planned.get(("tools", index, 0))) for index, tool in enumerate(plan.tools)
        ]
    if prompt.system:
        result["system"] = _render_system(body.get("system"), plan, planned)
    result["messages"] = _render_messages(prompt, plan)
    return with_betas(result, ADDITION_BETAS) if plan.appended else result


def without_own(block: Mapping[str, object]) -> Mapping[str, object]:
    """Return a block without the marker the application put on it."""
    if "cache_control" not in block:
        return block
    return {key: value for key, value in block.items() if key != "cache_control"}


def _marked(block: Mapping[str, object], marker: PlannedMarker | None) -> Mapping[str, object]:
    if marker is None:
        return block
    control: dict[str, object] = {"type": "ephemeral"}
    if marker.ttl is not None:
        control["ttl"] = marker.ttl
    return {**block, "cache_control": control}


def _render_system(system: object, plan: Plan, planned: _Planned) -> str | list[Mapping[str, object]]:
    bare = isinstance(system, str)
    if bare and not plan.semi_static and ("system", 0, 0) not in planned:
        return plan.head[0]
    given: Sequence[Mapping[str, object]] = (
        [{"type": "text", "text": system}] if bare else cast("Sequence[Mapping[str, object]]", system)
    )
    rendered = [
        _marked({**without_own(block), "text": text}, planned.get(("system", 0, index)))
        for index, (block, text) in enumerate(zip(given, plan.head, strict=False))  # what was added stands in place
    ]
    if plan.semi_static:
        block: Mapping[str, object] = {"type": "text", "text": plan.semi_static}
        rendered.append(_marked(block, planned.get(("system", 0, len(plan.head)))))
    return rendered


def _render_messages(prompt: Prompt, plan: Plan) -> list[Mapping[str, object]]:
    messages = list(prompt.messages)
    for number in {marker.message for marker in prompt.markers if marker.tier == "messages"}:
        messages[number] = cast("Mapping[str, object]", without_markers(messages[number]))
    for marker in plan.markers:
        if marker.tier == "messages":
            content = content_of(messages[marker.message])
            content[marker.part] = _marked(content[marker.part], marker)
            messages[marker.message] = {**messages[marker.message], "content": content}
    if plan.note.user and plan.note.message < 0:
        messages.append({"role": "user", "content": plan.note.user})
    elif plan.note.user:
        messages[plan.note.message] = _extended(messages[plan.note.message], plan.note.user)
    if plan.note.operator and messages[-1].get("role") == "system":  # a second one in a row would be refused
        messages[-1] = _extended(messages[-1], plan.note.operator)
    elif plan.note.operator:
        messages.append({"role": "system", "content": plan.note.operator})
    return messages


def _extended(message: Mapping[str, object], text: str) -> Mapping[str, object]:
    return {**message, "content": [*content_of(message), {"type": "text", "text": text}]}


def content_of(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return a message's content as a list of blocks; plain text is one text block."""
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(cast("Sequence[Mapping[str, object]]", content or ()))


def bind_thinking(body: dict[str, object], behavior: str, rules: CacheRules) -> dict[str, object]:
    """Say what the API does with a thinking block whose history changed.

    Rule: preserved-thinking pages, seen 2026-11-29: `block_binding` inside `thinking`, with a beta header.

    Args:
        body: A rendered request.
        behavior: "error" or "drop_block".
        rules: What the model does: the setting stands inside `thinking`, so a model that thinks without being told
            is told to.

    Returns:
        The body with the setting; unchanged where the model does not think or the application said it itself.
    """
    thinking = body.get("thinking") or ({"type": "adaptive"} if rules.thinks else None)
    if not isinstance(thinking, Mapping) or "block_binding" in thinking:
        return body
    setting = {"prefix_mismatch_behavior": behavior}
    return with_betas({**body, "thinking": {**cast("Body", thinking), "block_binding": setting}}, (BINDING_BETA,))


def with_betas(body: dict[str, object], names: Sequence[str]) -> dict[str, object]:
    """Ask for beta features beside those that the application asked for."""
    asked = cast("Sequence[str]", body.get("betas") or ())
    return {**body, "betas": list(dict.fromkeys((*asked, *names)))}


def addition(definition: Mapping[str, object]) -> Mapping[str, object]:
    """Write a tool that is appended to a conversation, for the content of a system message in place.

    Rule: anthropic 2.14.0 types, seen 2026-11-29; it needs the betas `ADDITION_BETAS`.
    """
    return {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}}
