"""The built-in model: deterministic answers, good enough for the test suites of SDKs and frameworks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headstay.emulator.reply import Reply, ToolCall
from headstay.emulator.schema_values import Synthesis
from headstay.emulator.shape import compact, mapping

_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*")
_QUOTE = 400


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One tool the emulated model may call: its name and the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request as the built-in model sees it, the same for every wire.

    Attributes:
        user_text: The text of the last user turn; never system text or in-place system messages.
        tools: The tools that may be called now, in order.
        forced: The name of a tool that must be called, "any" when one of them must, "none" when none may be,
            None to choose.
        response_schema: A JSON schema the text must conform to, `{}` for any JSON object, or None for plain text.
        tool_results: The texts of the tool results that came after the last user text, in order.
        parallel: Whether several tools may be called at once.
        think: Whether to send a thinking text first.
    """

    user_text: str
    tools: tuple[Offer, ...] = ()
    forced: str | None = None
    response_schema: Mapping[str, Any] | None = None
    tool_results: tuple[str, ...] = ()
    parallel: bool = True
    think: bool = False


def answer(ask: Ask) -> Reply:
    """Answer a request; the same request gets the same answer.

    A tool is called when one is forced, or when the user's text names it and no result has come back yet. A
    schema for the answer gets a conforming JSON text. After tool results the text quotes them.
    """
    thinking = f"The user wants: {ask.user_text[:_QUOTE]}" if ask.think else None
    called = _to_call(ask)
    if called:
        calls = tuple(ToolCall(tool.name, arguments(tool.schema, ask.user_text)) for tool in called)
        return Reply(tool_calls=calls, thinking=thinking)
    return Reply(text=_text(ask), thinking=thinking)


def arguments(schema: Mapping[str, Any], text: str) -> Mapping[str, Any]:
    """Make the arguments of a tool call from its JSON schema and the user's text."""
    return mapping(Synthesis(text, schema).value({"type": "object", **schema}))


def names_tool(text: str, name: str) -> bool:
    """Say whether a text names a tool: in full, or by all the longer words of its name.

    "What is the weather in Rome?" names `get_weather`.
    """
    lowered = text.lower()
    if re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", lowered):
        return True
    words = [word.lower() for word in _WORD.findall(name) if len(word) >= 4]
    return bool(words) and all(re.search(rf"\b{word}s?\b", lowered) for word in words)


def _to_call(ask: Ask) -> tuple[Offer, ...]:
    """Choose the tools to call, in the order they are offered."""
    if ask.forced == "none" or not ask.tools:
        return ()
    named = tuple(tool for tool in ask.tools if names_tool(ask.user_text, tool.name))
    if ask.forced == "any":
        named = named or ask.tools[:1]
    elif ask.forced is not None:
        return tuple(tool for tool in ask.tools if tool.name == ask.forced)
    elif ask.tool_results:
        return ()
    return named if ask.parallel else named[:1]


def _text(ask: Ask) -> str:
    if ask.response_schema is not None:
        made = Synthesis(ask.user_text, ask.response_schema)
        return compact(made.value(ask.response_schema) if ask.response_schema else made.loose())
    if ask.tool_results:
        return f"The result is: {'; '.join(result[:_QUOTE] for result in ask.tool_results)}"
    return f"Here is what I know about: {ask.user_text[:_QUOTE]}"
