"""The host-neutral request.

A `Prompt` is what a provider module reads out of a request body: tools, leading system texts, and the messages as
blocks. It holds the application's own objects by reference and never changes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Wire = Literal["anthropic-messages", "openai-chat", "openai-responses", "host-messages"]
Role = Literal["system", "user", "assistant", "tool"]
Kind = Literal["text", "blank", "image", "file", "tool_call", "tool_result", "tool", "thinking", "other"]


class Block(NamedTuple):
    """One content block of one message.

    Attributes:
        role: Who said it. Tool results have the role "tool" on every wire.
        kind: What it is; "blank" is text without a visible character, "tool" the definition of a tool that a marker
            may stand on, "other" what this version does not know.
        message: Index of its message in the body's own list.
        part: Index inside the message's content list; 0 for string content.
        digest: Hash of its wire form with its role, markers left out.
        size: Length in bytes; 0 for images and files, whose bytes say nothing about their tokens.
    """

    role: Role
    kind: Kind
    message: int
    part: int
    digest: bytes
    size: int


class Tool(NamedTuple):
    """One tool definition.

    Attributes:
        name: Its name on the wire; for a provider-run tool without one, its type.
        client: Whether the application runs it, as opposed to the provider.
        deferred: Whether its schema is loaded on demand and so stands outside the prefix.
        wire: The definition in wire form.
    """

    name: str
    client: bool
    deferred: bool
    wire: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Marker:
    """A cache breakpoint that the application placed itself.

    Attributes:
        tier: Where it stands: "tools", "system", "messages", or "request" for a top-level one.
        message: Index of the message, or of the tool or system block.
        part: Index of the block inside the message.
        ttl: The time to live it names, or None for the default.
    """

    tier: Literal["tools", "system", "messages", "request"]
    message: int = 0
    part: int = 0
    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, read from its wire form.

    Attributes:
        wire: The wire format it was read from.
        model: The model id.
        tools: Tool definitions, in the order given.
        system: Texts of the leading system or developer blocks, in order.
        messages: The messages after the leading system, in wire form, by reference.
        blocks: The content blocks of `messages`, in order.
        parameters: Every other field of the request, for the lane and for comparison.
        markers: The application's own cache breakpoints.
        leading: How many entries of the body's message list the leading system took (OpenAI wires).
        operator: The role in which the application gives its instructions.
    """

    wire: Wire
    model: str
    tools: tuple[Tool, ...] = ()
    system: tuple[str, ...] = ()
    messages: Sequence[Mapping[str, object]] = ()
    blocks: tuple[Block, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    markers: tuple[Marker, ...] = ()
    leading: int = 0
    operator: str = "system"

    @property
    def has_thinking(self) -> bool:
        """Whether the history holds thinking blocks."""
        return any(block.kind == "thinking" for block in self.blocks)

    @property
    def has_images(self) -> bool:
        """Whether any message holds an image."""
        return any(block.kind == "image" for block in self.blocks)
