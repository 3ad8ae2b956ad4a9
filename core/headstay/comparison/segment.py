"""A request taken apart for comparison: segments in the order of the wire, each with its path."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

from headstay.prompt import Kind, Tool, Wire

Json = Mapping[str, object]
Tier = Literal["tools", "system", "messages"]


def mapping(value: object) -> Json:
    """Return a value that is a JSON object, or an empty one."""
    return cast("Json", value) if isinstance(value, Mapping) else {}


class Segment(NamedTuple):
    """One piece of a request that is compared as a whole.

    Attributes:
        path: Where it stands, down to its text where it has one.
        holder: Path of the message it belongs to.
        message: Index of that message in the body's list; -1 outside it.
        role: Who said it; with the name where one is given.
        kind: What it is.
        exact: What the model reads of it, as it is written; two equal ones are the same bytes.
        text: Its text: of a tool call the arguments, of a result the content. Empty for images and thinking.
        call: The id that ties a tool call to its result; empty elsewhere.
        name: The tool that is called.
        size: Length in bytes; 0 for images and files, whose bytes say nothing about their tokens.
        value: The block itself, for what is looked at only where something differs.
    """

    path: str
    holder: str
    message: int
    role: str
    kind: Kind
    exact: str
    text: str
    call: str
    name: str
    size: int
    value: object


@dataclass(frozen=True, slots=True)
class Mark:
    """A cache breakpoint of a request.

    Attributes:
        tier: "tools", "system" or "messages".
        index: Number of the segment it stands on, within its tier.
        path: Where it is written.
        ttl: The time to live it names, or None for the default.
        automatic: Whether it is the one of the whole request, which goes to the last block.
    """

    tier: Tier
    index: int
    path: str
    ttl: str | None = None
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read for comparison.

    Attributes:
        wire: The wire format.
        body: The request body.
        model: The model id.
        tools: Tool definitions that stand in the prefix, in wire order.
        tool_paths: Where each of them stands in the body.
        system: Segments of the leading system text.
        messages: Segments of what follows.
        marks: Cache breakpoints in wire order.
        held: Whether the provider holds the history, so that the body shows only what is new.
    """

    wire: Wire
    body: Json
    model: str
    tools: tuple[Tool, ...]
    tool_paths: tuple[str, ...]
    system: Sequence[Segment]
    messages: Sequence[Segment]
    marks: Sequence[Mark] = field(default=())
    held: bool = False
