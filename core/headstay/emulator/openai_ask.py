"""Turns OpenAI requests into the neutral question of the built-in model."""

from collections.abc import Iterable, Mapping
from typing import Any

from headstay.emulator.openai_gates import Reading
from headstay.emulator.responder import Ask, Offer
from headstay.emulator.shape import mapping, sequence, text_of

_TEXT_ARGUMENT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
}
"""The schema of a custom tool, whose only argument is a text."""


def ask_chat(reading: Reading) -> Ask:
    """Read the question out of a checked Chat Completions request."""
    return ask_chat_body(reading.body)


def ask_chat_body(body: Mapping[str, Any]) -> Ask:
    """Read the question out of the body of a Chat Completions request."""
    offers = [_offer(mapping(tool.get(str(tool.get("type"))))) for tool in map(mapping, sequence(body.get("tools")))]
    turns = [
        (str(item.get("role")), _text(item.get("content")))
        for item in map(mapping, sequence(body.get("messages")))
        if item.get("role") in ("user", "tool")
    ]
    output_format = mapping(body.get("response_format"))
    schema = mapping(output_format.get("json_schema")).get("schema")
    return _ask(body, turns, offers, _schema(output_format.get("type"), schema))


def ask_responses(reading: Reading) -> Ask:
    """Read the question out of a Responses request."""
    items = [mapping(item) for item in reading.items]
    tools = [tool for tool in map(mapping, sequence(reading.body.get("tools"))) if not tool.get("defer_loading")]
    for item in items:
        if item.get("type") in ("additional_tools", "tool_search_output"):
            tools += map(mapping, sequence(item.get("tools")))
    turns: list[tuple[str, str]] = []
    for item in items:
        if item.get("role") == "user":
            turns.append(("user", _text(item.get("content"))))
        elif str(item.get("type")).endswith("_call_output"):
            turns.append(("tool", _text(item.get("output"))))
    output_format = mapping(mapping(reading.body.get("text")).get("format"))
    offers = [_offer(tool) for tool in tools if tool.get("type") in ("function", "custom")]
    schema = _schema(output_format.get("type"), output_format.get("schema"))
    return _ask(reading.body, turns, offers, schema)


def custom_tools(reading: Reading) -> frozenset[str]:
    """Return the names of the tools that take a text instead of arguments."""
    tools = [mapping(tool) for tool in sequence(reading.body.get("tools"))]
    named = [mapping(tool.get("custom")) or tool for tool in tools if tool.get("type") == "custom"]
    return frozenset(str(tool.get("name")) for tool in named)


def _ask(
    body: Mapping[str, Any],
    turns: list[tuple[str, str]],
    offers: Iterable[Offer],
    schema: Mapping[str, Any] | None,
) -> Ask:
    chosen, forced = _choice(body.get("tool_choice"))
    last = max((index for index, (role, _) in enumerate(turns) if role == "user"), default=-1)
    reasoning = mapping(body.get("reasoning"))
    return Ask(
        user_text=turns[last][1] if last >= 0 else "",
        tools=tuple(offer for offer in offers if chosen is None or offer.name in chosen),
        forced=forced,
        response_schema=schema,
        tool_results=tuple(text for _, text in turns[last + 1 :]),
        parallel=body.get("parallel_tool_calls") is not False,
        think=reasoning.get("summary") is not None,
    )


def _offer(tool: Mapping[str, Any]) -> Offer:
    is_custom = tool.get("type") == "custom"
    schema = _TEXT_ARGUMENT if is_custom else mapping(tool.get("parameters"))
    return Offer(name=text_of(tool.get("name")), schema=schema)


def _choice(found: object) -> tuple[frozenset[str] | None, str | None]:
    """Return the tools that may be called, None for all, and what must be called."""
    if isinstance(found, str):
        return None, {"none": "none", "required": "any"}.get(found)
    choice = mapping(found)
    if choice.get("type") == "allowed_tools":
        allowed = mapping(choice.get("allowed_tools")) or choice
        names = frozenset(_choice_name(tool) for tool in map(mapping, sequence(allowed.get("tools"))))
        return names, "any" if allowed.get("mode") == "required" else None
    return None, _choice_name(choice) or None


def _choice_name(choice: Mapping[str, Any]) -> str:
    nested = mapping(choice.get(str(choice.get("type"))))
    return text_of((nested or choice).get("name"))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(text for part in map(mapping, sequence(content)) if (text := text_of(part.get("text"))))


def _schema(kind: object, schema: object) -> Mapping[str, Any] | None:
    if kind == "json_object":
        return {}
    return mapping(schema) if kind == "json_schema" else None
