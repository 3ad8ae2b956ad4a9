"""What the emulated model answers, independent of the wire it is asked over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Wire = Literal["anthropic-messages", "openai-chat", "openai-responses"]


@dataclass(frozen=True)
class ToolCall:
    """One tool call of the emulated model."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """One answer of the emulated model.

    Attributes:
        text: The visible text; may be empty when there are tool calls.
        tool_calls: Calls the model makes, in order.
        thinking: A thinking text to send before the answer, or None.
        stop: "end", "length", or "refusal"; tool calls imply their own stop reason.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    thinking: str | None = None
    stop: Literal["end", "length", "refusal"] = "end"


Responder = Callable[[Wire, Mapping[str, Any]], Reply]
"""Maps a wire and a request body to an answer. Must be deterministic."""
