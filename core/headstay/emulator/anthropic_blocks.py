"""A Messages request as the flat list of content blocks that the prompt cache works on.

Order, provider page platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29: tools, then
system, then messages. Counted are the texts alone: roles, ids and the provider's own scaffolding cost nothing
here, so the counts are lower than real ones by a few tokens a message.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from headstay.emulator.anthropic_models import ModelRow
from headstay.emulator.shape import compact, mapping, sequence, text_of
from headstay.emulator.tokens import IMAGE_TOKENS, count

Tier = Literal["tools", "system", "messages"]

THINKING = frozenset({"thinking", "redacted_thinking"})

# Blocks that stand for the tool definitions they bring in.
_REFERRING = frozenset({"tool_reference", "tool_addition", "tool_removal", "tool_search_tool_result"})


@dataclass(frozen=True, slots=True)
class Part:
    """One content block of a request.

    Attributes:
        path: Where it stands in the request, e.g. `messages.2.content.0`.
        tier: The part of the request it belongs to.
        role: The role of its message; "" outside of messages.
        message: The index of its message; -1 outside of messages.
        kind: Its type: "text", "tool_use", "thinking", ...; "tool" for a tool definition.
        raw: The block itself; a string content stands as one text block.
    """

    path: str
    tier: Tier
    role: str
    message: int
    kind: str
    raw: Mapping[str, Any]

    @property
    def deferred(self) -> bool:
        """Whether this is a tool that is not in the prompt until it is found."""
        return self.kind == "tool" and self.raw.get("defer_loading") is True

    @property
    def blank(self) -> bool:
        """Whether this is a text block without any visible character."""
        return self.kind == "text" and not text_of(self.raw.get("text")).strip()

    @property
    def marks(self) -> Iterator[tuple[str, Any]]:
        """The path and value of each cache marker on this block or on a block inside of it."""
        if self.raw.get("cache_control") is not None:
            yield f"{self.path}.cache_control", self.raw["cache_control"]
        if self.kind == "tool_result":
            for index, inner in enumerate(sequence(self.raw.get("content"))):
                if mapping(inner).get("cache_control") is not None:
                    yield f"{self.path}.content.{index}.cache_control", inner["cache_control"]


def parts_of(body: Mapping[str, Any]) -> list[Part]:
    """Walk a request in the provider's order.

    A web search tool stands at the head of the system tier: switching it on changes system and messages only,
    says the provider's invalidation table.
    """
    tools = [(f"tools.{i}", mapping(tool)) for i, tool in enumerate(sequence(body.get("tools")))]
    found = [Part(path, "tools", "", -1, "tool", tool) for path, tool in tools if not _searches_web(tool)]
    found += [Part(path, "system", "", -1, "tool", tool) for path, tool in tools if _searches_web(tool)]
    for path, raw in _content(body.get("system"), "system"):
        found.append(Part(path, "system", "", -1, text_of(raw.get("type")), raw))
    for index, entry in enumerate(sequence(body.get("messages"))):
        message = mapping(entry)
        role = text_of(message.get("role"))
        for path, raw in _content(message.get("content"), f"messages.{index}.content"):
            found.append(Part(path, "messages", role, index, text_of(raw.get("type")), raw))
        if role == "system" and mapping(message.get("output_config")):
            config = {"type": "output_config", "output_config": message["output_config"]}
            found.append(Part(f"messages.{index}", "messages", role, index, "output_config", config))
    return found


def shown(parts: list[Part], body: Mapping[str, Any], row: ModelRow) -> list[Part]:
    """Leave out what the model does not see.

    Not seen are deferred tools (until a tool reference brings them in), in-place system messages past their
    `clear_at` (SDK types of anthropic 2.14.0), and, on models that strip it, thinking from before the last plain
    user turn.
    """
    gone = _cleared(body)
    cut = -1 if row.keeps_thinking else _last_plain_user(body)
    return [
        part
        for part in parts
        if not part.deferred and part.message not in gone and not (part.kind in THINKING and 0 <= part.message < cut)
    ]


def render(part: Part, tools: Mapping[str, Mapping[str, Any]]) -> str:
    """Write a block as the text that must stay the same for it to be found in the cache.

    Markers are not content. The order of keys is: inside schemas and arguments it reaches the model.

    Args:
        part: The block.
        tools: Tool definitions by name, for the references that bring them in.
    """
    return f"{part.tier[0]}{part.role[:1]}\x00{_written(part.raw, part.kind, tools)}"


def cost(part: Part, tools: Mapping[str, Mapping[str, Any]]) -> int:
    """Count the estimated tokens of a block; see `render` for the arguments."""
    return _tokens(part.raw, part.kind, tools)


def has_image(parts: list[Part]) -> bool:
    """Say whether any message holds an image, also inside a tool result."""
    return any(
        part.kind == "image"
        or any(mapping(inner).get("type") == "image" for inner in sequence(part.raw.get("content")))
        for part in parts
        if part.tier == "messages"
    )


def has_citations(parts: list[Part]) -> bool:
    """Say whether citations are switched on for any document."""
    return any(mapping(part.raw.get("citations")).get("enabled") is True for part in parts)


def tools_by_name(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Index the tool definitions of a request by name."""
    tools = [mapping(tool) for tool in sequence(body.get("tools"))]
    return {text_of(tool.get("name")): tool for tool in tools}


def _content(content: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the block of each entry; a string is one text block with the same text."""
    if isinstance(content, str):
        if content:
            yield path, {"type": "text", "text": content}
        return
    for index, block in enumerate(sequence(content)):
        yield f"{path}.{index}", mapping(block)


def _searches_web(tool: Mapping[str, Any]) -> bool:
    return text_of(tool.get("type")).startswith("web_search_")


def _cleared(body: Mapping[str, Any]) -> set[int]:
    """Return the indexes of in-place system messages that a later user message has cleared."""
    messages = [mapping(entry) for entry in sequence(body.get("messages"))]
    last_user = max((i for i, message in enumerate(messages) if message.get("role") == "user"), default=-1)
    return {i for i, message in enumerate(messages) if message.get("clear_at") == "next_user_message" and i < last_user}


def _last_plain_user(body: Mapping[str, Any]) -> int:
    """Return the index of the last user message without tool results, or -1."""
    messages = [mapping(entry) for entry in sequence(body.get("messages"))]
    plain = (
        i
        for i, message in enumerate(messages)
        if message.get("role") == "user"
        and not any(mapping(b).get("type") == "tool_result" for b in sequence(message.get("content")))
    )
    return max(plain, default=-1)


def _without_marker(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "cache_control"}


def _written(raw: Mapping[str, Any], kind: str, tools: Mapping[str, Mapping[str, Any]]) -> str:
    if kind == "text":
        cited = raw.get("citations")
        return f"text\x00{raw.get('text')}" + (f"\x00{compact(cited)}" if cited else "")
    if kind == "tool_use":
        return compact(["tool_use", raw.get("id"), raw.get("name"), raw.get("input")])
    if kind == "tool_result":
        inner = "\x01".join(_written(b, text_of(b.get("type")), tools) for b in _inner(raw))
        return f"{compact(['tool_result', raw.get('tool_use_id'), bool(raw.get('is_error'))])}\x01{inner}"
    named = _referred(raw, kind, tools)
    return compact(_without_marker(raw)) + "".join(compact(_without_marker(tool)) for tool in named)


def _tokens(raw: Mapping[str, Any], kind: str, tools: Mapping[str, Mapping[str, Any]]) -> int:
    if kind == "tool_result":
        return sum(_tokens(b, text_of(b.get("type")), tools) for b in _inner(raw))
    if kind == "tool_use":
        return count(text_of(raw.get("name"))) + count(compact(raw.get("input")))
    if kind in _REFERRING:
        return sum(count(compact(_without_marker(tool))) for tool in _referred(raw, kind, tools))
    source = mapping(raw.get("source"))
    if kind == "image" or (kind == "document" and source.get("type") != "text"):
        return IMAGE_TOKENS
    if kind == "text" or kind in THINKING or kind == "document":
        return count(text_of(raw.get("text") or raw.get("thinking") or raw.get("data") or source.get("data")))
    return count(compact(_without_marker(raw)))


def _inner(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [block for _, block in _content(raw.get("content"), "")]


def _referred(raw: Mapping[str, Any], kind: str, tools: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tool definitions that a block brings into the prompt."""
    if kind == "tool_search_tool_result":
        references = sequence(mapping(raw.get("content")).get("tool_references"))
    elif kind == "tool_reference":
        references = [raw]
    elif kind == "tool_addition":
        added = mapping(raw.get("tool"))
        if added.get("type") == "tool_definition":
            return [mapping(added.get("definition"))]
        references = [added]
    else:
        references = []
    names = [text_of(mapping(ref).get("tool_name") or mapping(ref).get("name")) for ref in references]
    return [tools[name] for name in names if name in tools and tools[name].get("defer_loading") is True]
