"""What the emulated model produced, cut to the request's limits and counted."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from headstay.emulator.reply import Reply
from headstay.emulator.shape import compact
from headstay.emulator.tokens import count, pieces

_DELTA_TOKENS = 4


@dataclass(frozen=True)
class Call:
    """One tool call.

    Attributes:
        id: Its `call_id`.
        name: The tool.
        arguments: JSON text, or the plain text of a custom tool.
        custom: Whether the tool is a custom one.
    """

    id: str
    name: str
    arguments: str
    custom: bool = False


@dataclass(frozen=True)
class Output:
    """One answer.

    Attributes:
        text: The visible text.
        calls: Tool calls, in order.
        thinking: The reasoning summary, or None.
        finish: Why it ended.
        refused: Whether the text is a refusal.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: str | None = None
    finish: Literal["stop", "length", "tool_calls"] = "stop"
    refused: bool = False

    @property
    def reasoning_tokens(self) -> int:
        """Return the tokens spent on reasoning."""
        return count(self.thinking or "")

    @property
    def tokens(self) -> int:
        """Return all output tokens, reasoning included."""
        called = sum(count(call.name) + count(call.arguments) for call in self.calls)
        return count(self.text) + called + self.reasoning_tokens


def make_output(
    reply: Reply,
    *,
    limit: int | None,
    stops: Sequence[str],
    custom: Collection[str],
    new_id: Callable[[str], str],
) -> Output:
    """Cut a reply at the first stop sequence and at the token limit.

    Args:
        reply: What the model answered.
        limit: The most tokens, or None.
        stops: Stop sequences, which are not part of the text.
        custom: Names of the custom tools.
        new_id: Returns a new id with a prefix.
    """
    calls = tuple(
        Call(
            id=new_id("call_"),
            name=call.name,
            arguments=str(call.arguments.get("input", "")) if call.name in custom else compact(call.arguments),
            custom=call.name in custom,
        )
        for call in reply.tool_calls
    )
    cut = min((at for stop in stops if stop and (at := reply.text.find(stop)) >= 0), default=len(reply.text))
    text = reply.text[:cut]
    room = None if limit is None else max(0, limit - count(reply.thinking or ""))
    short = room is not None and count(text) > room
    if short:
        text = "".join(pieces(text)[:room])
    finish: Literal["stop", "length", "tool_calls"] = "tool_calls" if calls else "stop"
    if short or reply.stop == "length":
        finish = "length"
    return Output(text, calls, reply.thinking, finish, refused=reply.stop == "refusal")


def deltas(text: str) -> Iterator[str]:
    """Split a text into the pieces in which it is streamed."""
    tokens = pieces(text)
    for start in range(0, len(tokens), _DELTA_TOKENS):
        yield "".join(tokens[start : start + _DELTA_TOKENS])
