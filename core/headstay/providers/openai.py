"""OpenAI Chat Completions and Responses: request body to `Prompt`, and `Plan` back to a request body.

Rules: developers.openai.com/api/docs/guides/prompt-caching (state of 2026-09-23) and openai 3.57.0 types.
The head stands in the leading system or developer messages: `instructions` cannot carry a breakpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from headstay.canonical import MARKER_KEYS, without_markers
from headstay.errors import WireError
from headstay.fingerprint import block_digest, speaker, text_digest
from headstay.layout import Plan, PlannedMarker
from headstay.prompt import Block, Kind, Marker, Prompt, Role, Tool, Wire
from headstay.providers.rules import CacheRules

Body = Mapping[str, object]
Item = Mapping[str, object]

_NOT_PARAMETERS = frozenset(
    {"model", "messages", "input", "instructions", "tools", "stream", "stream_options", "metadata", "user"}
)
_OPERATOR = ("system", "developer")
# What of a message is read elsewhere, or is no part of what the model reads.
_READ = MARKER_KEYS | frozenset(
    {"role", "content", "name", "tool_calls", "tool_call_id", "type", "id", "status", "output", "call_id"}
)
_TEXTS = ("text", "input_text", "output_text")
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "assistant": "assistant"}
_FILES = ("file", "input_file", "input_audio")
ADDITION = "additional_tools"
"""The Responses item that appends tools to a conversation."""


@dataclass(frozen=True, slots=True)
class _Form:
    """What differs between the two wires."""

    wire: Wire
    field: str
    text_type: str
    operator: str


_FORMS: dict[str, _Form] = {
    "openai-chat": _Form("openai-chat", "messages", "text", "system"),
    "openai-responses": _Form("openai-responses", "input", "input_text", "developer"),
    # What a host hands to a model class that builds no payload of these wires: roles and contents in chat form.
    "host-messages": _Form("host-messages", "messages", "text", "system"),
}


class _Seat(NamedTuple):
    """Where a system text stands: a message and a part of it; message -1 is `instructions`."""

    message: int
    part: int
    text: str


def parse(body: Body, *, wire: Wire) -> Prompt:
    """Read a request body.

    Args:
        body: The JSON object posted, or the SDK's keyword arguments.
        wire: "openai-chat", "openai-responses", or "host-messages" for a host's messages in chat form.

    Returns:
        The neutral request; it refers to the body's own messages.

    Raises:
        WireError: A field is not of the form the API takes.
    """
    form = _FORMS[wire]
    items = _items(body, form)
    seats, leading = _leading(body, items)
    blocks: list[Block] = []
    markers = _head_markers(items, seats)
    for number, item in enumerate(items[leading:]):
        _read_item(number, item, blocks, markers)
    tools = body.get("tools") or ()
    if not isinstance(tools, (list, tuple)):
        raise WireError(f"tools: expected a list of objects, got {type(tools).__name__}")
    return Prompt(
        wire=wire,
        model=str(body.get("model", "")),
        tools=tuple(_tool(tool) for tool in cast("Sequence[Item]", tools)),
        system=tuple(seat.text for seat in seats),
        messages=items[leading:],
        blocks=tuple(blocks),
        parameters={key: value for key, value in body.items() if key not in _NOT_PARAMETERS},
        markers=tuple(markers),
        leading=leading,
        operator=str(items[0].get("role")) if leading else form.operator,
    )


def _items(body: Body, form: _Form) -> Sequence[Item]:
    items = body.get(form.field, ())
    if isinstance(items, str) and form.field == "input":
        return [{"role": "user", "content": items}]
    if not isinstance(items, (list, tuple)):
        raise WireError(f"{form.field}: expected a list of objects, got {type(items).__name__}")
    return cast("Sequence[Item]", items)


def _tool(wire: Item) -> Tool:
    kind = str(wire.get("type") or "function")
    inner = wire.get(kind)  # "function" or "custom", where the Chat wire has the name
    named = cast("Item", inner) if isinstance(inner, Mapping) else wire
    client = kind in ("function", "custom")
    return Tool(str(named.get("name") or kind), client, bool(wire.get("defer_loading")), wire)


def _leading(body: Body, items: Sequence[Item]) -> tuple[list[_Seat], int]:
    """Find the leading system texts; a message with anything but text ends them."""
    seats: list[_Seat] = []
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        seats.append(_Seat(-1, 0, instructions))
    leading = 0
    for number, item in enumerate(items):
        texts = _texts(item.get("content")) if item.get("role") in _OPERATOR else None
        if texts is None:
            break
        seats += [_Seat(number, part, text) for part, text in enumerate(texts)]
        leading = number + 1
    return seats, leading


def _texts(content: object) -> list[str] | None:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, (list, tuple)):
        return None
    parts = cast("Sequence[Item]", content)
    if not all(part.get("type") in _TEXTS for part in parts):
        return None
    return [str(part.get("text", "")) for part in parts]


def _head_markers(items: Sequence[Item], seats: Sequence[_Seat]) -> list[Marker]:
    found: list[Marker] = []
    for index, seat in enumerate(seats):
        content = items[seat.message].get("content") if seat.message >= 0 else None
        if isinstance(content, (list, tuple)):
            found += _marker(cast("Sequence[Item]", content)[seat.part], "system", 0, index)
    return found


def _marker(part: Item, tier: Literal["system", "messages"], message: int, index: int) -> list[Marker]:
    control = part.get("prompt_cache_breakpoint")
    if not isinstance(control, Mapping):
        return []
    ttl = cast("Item", control).get("ttl")
    return [Marker(tier, message, index, None if ttl is None else str(ttl))]


def _read_item(number: int, item: Item, blocks: list[Block], markers: list[Marker]) -> None:
    role, said_by, kind = _speaker(item)
    content = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
    if item.get("type") not in (None, "message", "function_call_output"):
        bare = {key: value for key, value in item.items() if key not in ("id", "status")}
        blocks.append(Block(role, kind or "other", number, 0, *block_digest(said_by, bare)))
        return
    if not item.keys() <= _READ:  # a refusal, an audio reference, what another server calls reasoning
        extra = {key: value for key, value in item.items() if value and key not in _READ}
        blocks += [Block(role, "other", number, 0, *block_digest(said_by, extra))] if extra else []
    if isinstance(content, str):
        if content or not item.get("tool_calls"):
            filled: Kind = (kind or "text") if content.strip() else "blank"
            blocks.append(Block(role, filled, number, 0, *text_digest(said_by, content)))
    else:
        for index, part in enumerate(cast("Sequence[Item]", content or ())):
            what, digest, size = _read_part(said_by, part)
            blocks.append(Block(role, what if what == "blank" else kind or what, number, index, digest, size))
            if "prompt_cache_breakpoint" in part:
                markers += _marker(part, "messages", number, index)
    if "tool_calls" in item:
        calls = cast("Sequence[Item]", item["tool_calls"] or ())
        blocks += [Block(role, "tool_call", number, 0, *block_digest(said_by, call)) for call in calls]


def _speaker(item: Item) -> tuple[Role, str, Kind | None]:
    """Return the neutral role, the speaker for the hash, and the kind where the item itself decides it."""
    kind = item.get("type")
    if kind is None or kind == "message":
        role = str(item.get("role", "user"))
        if role in ("tool", "function"):
            return "tool", f"tool:{item.get('tool_call_id') or item.get('name')}", "tool_result"
        return _ROLES.get(role, "user"), speaker(item), None
    kind = str(kind)
    if kind == "function_call_output":
        return "tool", f"tool:{item.get('call_id')}", "tool_result"
    if kind == "reasoning":
        return "assistant", kind, "thinking"
    if kind == ADDITION or kind.endswith("_output"):
        return "system" if kind == ADDITION else "tool", kind, "other"
    return "assistant", kind, "tool_call" if kind.endswith("_call") else "other"


def _read_part(said_by: str, part: Item) -> tuple[Kind, bytes, int]:
    shape = part.get("type")
    if shape in _TEXTS:  # ids and log probabilities of a reply are not what the model reads
        text = str(part.get("text", ""))
        return "text" if text.strip() else "blank", *text_digest(said_by, text)
    digest, size = block_digest(said_by, part)
    kind: Kind = "image" if "image" in str(shape) else "file" if shape in _FILES else "other"
    return kind, digest, size if kind == "other" else 0


def render(body: Body, prompt: Prompt, plan: Plan, rules: CacheRules) -> dict[str, object]:
    """Write a plan into a request body.

    Args:
        body: The body `prompt` was read from; it is not changed.
        prompt: The request.
        plan: Its arrangement.
        rules: What the model takes: a field that it rejects is never added.

    Returns:
        A new body. Whatever the plan does not touch is the application's own object.
    """
    form = _FORMS[prompt.wire]
    items = _items(body, form)
    result = dict(body)
    if plan.tools:
        result["tools"] = [tool.wire for tool in plan.tools]
    head, instructions = _render_head(body, items, prompt, plan, rules, form)
    if instructions is not None:
        result["instructions"] = instructions
    elif "instructions" in result and prompt.system:
        del result["instructions"]
    rest = _render_rest(prompt, plan, form)
    if head or rest != items or not isinstance(body.get(form.field), str):
        result[form.field] = [*head, *rest]
    if plan.masked:
        result.update(_allowed(body, plan, prompt.wire, rules))
    if plan.affinity and rules.affinity:
        result[rules.affinity] = plan.affinity
    if plan.retention and rules.retention:
        result[rules.retention] = plan.retention
    if rules.explicit_mode and plan.markers:
        own = cast("Item", body.get("prompt_cache_options") or {})
        result["prompt_cache_options"] = {**own, "mode": "explicit"}
    return result


def _allowed(body: Body, plan: Plan, wire: Wire, rules: CacheRules) -> dict[str, object]:
    """Restrict the model to the tools that this call offers; the declared list stays as it is.

    Rule: `tool_choice: allowed_tools` does not touch the prefix (prompt-caching guide, seen 2026-11-29).
    """
    choice = body.get("tool_choice") or "auto"
    offered = [tool for tool in (*plan.tools, *plan.appended) if tool.name not in plan.masked]
    if not offered:
        return {"tool_choice": "none"}
    if choice not in ("auto", "required") or not rules.allowed_tools:
        return {}
    if wire == "openai-responses":
        tools: list[Item] = [_named(tool.wire, tool.name) for tool in offered]
        return {"tool_choice": {"type": "allowed_tools", "mode": choice, "tools": tools}}
    kinds = [str(tool.wire.get("type") or "function") for tool in offered]
    listed = [{"type": kind, kind: {"name": tool.name}} for kind, tool in zip(kinds, offered, strict=True)]
    return {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": choice, "tools": listed}}}


def _named(wire: Item, name: str) -> Item:
    """Name a tool as `allowed_tools` does; of an MCP server it wants the label (openai 3.57.0 types)."""
    kind = str(wire.get("type") or "function")
    if kind == "mcp":
        return {"type": kind, "server_label": wire.get("server_label")}
    return {"type": kind, "name": name} if kind in ("function", "custom") else {"type": kind}


def _marked(part: Item, marker: PlannedMarker | None) -> Item:
    if marker is None:
        return part
    control = {"mode": "explicit"} if marker.ttl is None else {"mode": "explicit", "ttl": marker.ttl}
    return {**part, "prompt_cache_breakpoint": control}


def _render_head(
    body: Body, items: Sequence[Item], prompt: Prompt, plan: Plan, rules: CacheRules, form: _Form
) -> tuple[list[Item], str | None]:
    """Write the leading system messages and the semi-static one behind them."""
    seats, _ = _leading(body, items)
    planned = {marker.part: marker for marker in plan.markers if marker.tier == "system"}
    texts = list(plan.head)
    if texts and plan.semi_static and not rules.several_system:
        texts[-1] = f"{texts[-1]}\n\n{plan.semi_static}"
    role = prompt.operator if prompt.leading else "developer"
    head: list[Item] = []
    instructions: str | None = None
    for index, (seat, text) in enumerate(zip(seats, texts, strict=False)):  # the texts added since stand in place
        if seat.message < 0:
            if index in planned:  # `instructions` takes no breakpoint, a developer message does
                head.append(
                    {"role": role, "content": [_marked({"type": form.text_type, "text": text}, planned[index])]}
                )
            else:
                instructions = text
            continue
        item = items[seat.message]
        if seat.part == 0:
            head.append({**item, "content": []} if index in planned or not isinstance(item["content"], str) else item)
        if isinstance(item["content"], str) and index not in planned:
            head[-1] = item if text == item["content"] else {**item, "content": text}
            continue
        given = {"type": form.text_type} if isinstance(item["content"], str) else _bare_part(item, seat.part)
        cast("list[Item]", head[-1]["content"]).append(_marked({**given, "text": text}, planned.get(index)))
    if plan.semi_static and rules.several_system:
        marker = planned.get(len(plan.head))
        part = _marked({"type": form.text_type, "text": plan.semi_static}, marker)
        head.append({"role": role, "content": plan.semi_static if marker is None else [part]})
    return head, instructions


def _bare_part(item: Item, part: int) -> Item:
    given = cast("Sequence[Item]", item["content"])[part]
    return {key: value for key, value in given.items() if key != "prompt_cache_breakpoint"}


def _render_rest(prompt: Prompt, plan: Plan, form: _Form) -> list[Item]:
    items = list(prompt.messages)
    for number in {marker.message for marker in prompt.markers if marker.tier == "messages"}:
        items[number] = cast("Item", without_markers(items[number]))
    for marker in plan.markers:
        if marker.tier == "messages":
            content = _content(items[marker.message], form)
            content[marker.part] = _marked(content[marker.part], marker)
            items[marker.message] = _with_content(items[marker.message], content)
    if plan.note.user and plan.note.message < 0:
        items.append({"role": "user", "content": plan.note.user})
    elif plan.note.user:
        number = plan.note.message
        content = [*_content(items[number], form), {"type": form.text_type, "text": plan.note.user}]
        items[number] = _with_content(items[number], content)
    if plan.note.operator:
        items.append({"role": prompt.operator, "content": plan.note.operator})
    return items


def addition(definition: Item) -> Item:
    """Write a tool that is appended to a conversation on the Responses wire (openai 3.57.0 types, seen 2026-11-29)."""
    return {"type": ADDITION, "role": "developer", "tools": [definition]}


def _field(item: Item) -> str:
    return "output" if item.get("type") == "function_call_output" else "content"


def _content(item: Item, form: _Form) -> list[Item]:
    content = item.get(_field(item))
    if isinstance(content, str):
        return [{"type": form.text_type, "text": content}]
    return list(cast("Sequence[Item]", content or ()))


def _with_content(item: Item, content: list[Item]) -> Item:
    return {**item, _field(item): content}
