"""Reads a Messages request into the question the built-in model answers."""

from collections.abc import Mapping
from typing import Any

from headstay.emulator import anthropic_models
from headstay.emulator.anthropic_blocks import tools_by_name
from headstay.emulator.responder import Ask, Offer
from headstay.emulator.shape import mapping, sequence, text_of

# A model that may choose thinks about requests with tools and about longer texts, in characters.
_WORTH_A_THOUGHT = 200


def ask_from_anthropic(body: Mapping[str, Any]) -> Ask:
    """Read a request.

    The user's text is that of the last user turn that has one; system text, in-place system messages and tool
    results are no part of it.

    Args:
        body: A valid Messages request body.
    """
    results, text = _last_turn(body)
    choice = mapping(body.get("tool_choice"))
    offers = _offers(body)
    return Ask(
        user_text=text,
        tools=offers,
        forced=_forced(choice),
        response_schema=_schema(body),
        tool_results=tuple(results),
        parallel=choice.get("disable_parallel_tool_use") is not True,
        think=thinks(body) and (_must_think(body) or bool(offers) or len(text) > _WORTH_A_THOUGHT),
    )


def thinks(body: Mapping[str, Any]) -> bool:
    """Say whether an answer to this request may start with thinking."""
    kind = text_of(mapping(body.get("thinking")).get("type"))
    if kind:
        return kind != "disabled"
    row = anthropic_models.find(text_of(body.get("model")))
    return row is not None and row.thinks


def _must_think(body: Mapping[str, Any]) -> bool:
    """Say whether thinking is asked for; adaptive thinking leaves it to the model."""
    return mapping(body.get("thinking")).get("type") == "enabled"


def _forced(choice: Mapping[str, Any]) -> str | None:
    kind = choice.get("type")
    if kind == "tool":
        return text_of(choice.get("name"))
    return kind if kind in {"any", "none"} else None


def _schema(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    wanted = mapping(mapping(body.get("output_config")).get("format")) or mapping(body.get("output_format"))
    return mapping(wanted.get("schema")) if wanted.get("type") == "json_schema" else None


def _last_turn(body: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return the tool results of the last user turn, and the last text a user wrote."""
    results: list[str] = []
    text, within = "", False
    for entry in reversed(sequence(body.get("messages"))):
        message = mapping(entry)
        if message.get("role") == "assistant" and within:
            if text:
                break
            within = False
            continue
        if message.get("role") != "user":
            continue
        blocks = _blocks(message.get("content"))
        if within or not (results or text):
            within = True
            results[:0] = [_result(b) for b in blocks if b.get("type") == "tool_result"]
        text = text or "\n".join(text_of(b.get("text")) for b in blocks if b.get("type") == "text").strip()
        if text and not within:
            break
    return results, text


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [mapping(block) for block in sequence(content)]


def _result(block: Mapping[str, Any]) -> str:
    content = block.get("content")
    if isinstance(content, str):
        return content
    inner = [mapping(b) for b in sequence(content)]
    return "\n".join(text_of(b.get("text")) or f"[{b.get('type')}]" for b in inner)


def _offers(body: Mapping[str, Any]) -> tuple[Offer, ...]:
    """Return the client tools that may be called now: deferred ones once found or added, removed ones not."""
    tools = tools_by_name(body)
    open_names = {name: tool for name, tool in tools.items() if tool.get("defer_loading") is not True}
    for entry in sequence(body.get("messages")):
        for block in map(mapping, sequence(mapping(entry).get("content"))):
            _change(block, tools, open_names)
    return tuple(
        Offer(name=name, schema=mapping(tool.get("input_schema")))
        for name, tool in open_names.items()
        if "input_schema" in tool
    )


def _change(
    block: Mapping[str, Any],
    tools: Mapping[str, Mapping[str, Any]],
    open_names: dict[str, Mapping[str, Any]],
) -> None:
    kind = block.get("type")
    if kind in {"tool_addition", "tool_removal"}:
        tool = mapping(block.get("tool"))
        definition = mapping(tool.get("definition"))
        name = text_of(definition.get("name") or tool.get("name"))
        if kind == "tool_removal":
            open_names.pop(name, None)
        elif definition or name in tools:
            open_names[name] = definition or tools[name]
    content = block.get("content")
    found = sequence(mapping(content).get("tool_references")) or sequence(content)
    for reference in map(mapping, found):
        name = text_of(reference.get("tool_name"))
        if reference.get("type") == "tool_reference" and name in tools:
            open_names[name] = tools[name]
