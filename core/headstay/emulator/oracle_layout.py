"""The ideal order of a request, built from a workload's labels.

head (stable text) | semi-static (a conversation's values) | persistent messages | note (a call's values)
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from headstay.emulator.tokens import IMAGE_TOKENS, count
from headstay.emulator.workload_turns import Turn, Workload


class Segment(NamedTuple):
    """A stretch of an ideal request.

    Attributes:
        kind: What it is; segments of two kinds have no token in common.
        text: Its text.
        image: An image in front of the text, or None.
    """

    kind: Literal["head", "semi-static", "user", "assistant", "note"]
    text: str
    image: str | None = None

    @property
    def tokens(self) -> int:
        """Estimated tokens of text and image."""
        return count(self.text) + (IMAGE_TOKENS if self.image is not None else 0)


SYSTEM_SEGMENTS = 2
"""Head and semi-static: a request's first segments, in front of the messages."""


@dataclass(frozen=True)
class IdealRequest:
    """One call in the ideal order.

    Attributes:
        workspace: What shares a cache: the tenant.
        start: When it starts, seconds since the epoch.
        persistent: Head, semi-static and messages, ending with the user's; later calls send all of it again.
        note: The values of this call, or None if they stay among the persistent segments.
        message_overhead: Structural tokens in front of each message; a note is part of the user's.
    """

    workspace: str
    start: float
    persistent: tuple[Segment, ...]
    note: Segment | None
    message_overhead: int = 0

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """Tokens up to the end of each persistent segment."""
        return tuple(itertools.accumulate(self.tokens(segment) for segment in self.persistent))

    @property
    def prompt(self) -> tuple[Segment, ...]:
        """All segments, the note included."""
        return self.persistent if self.note is None else (*self.persistent, self.note)

    @property
    def input_tokens(self) -> int:
        """Tokens of all segments."""
        return sum(self.tokens(segment) for segment in self.prompt)

    def tokens(self, segment: Segment) -> int:
        """Return the tokens of a segment with its structure."""
        return segment.tokens + self.opening(segment)

    def opening(self, segment: Segment) -> int:
        """Return the structural tokens in front of a segment."""
        return 0 if segment.kind == "note" else self.message_overhead

    @property
    def has_image(self) -> bool:
        """Whether any message carries an image."""
        return any(segment.image is not None for segment in self.persistent)


def ideal_request(
    workload: Workload, turn: Turn, *, kept_notes: bool = False, message_overhead: int = 0
) -> IdealRequest:
    """Bring a call into the ideal order.

    Args:
        workload: The workload it belongs to, for the history.
        turn: The call.
        kept_notes: Whether notes stay behind the user's messages for good.
        message_overhead: Structural tokens in front of each message.
    """
    head = Segment("head", "".join(part.text for part in turn.system if part.stability == "stable"))
    messages = [segment for past in workload.before(turn) for segment in _round(past, kept_notes=kept_notes)]
    persistent = (head, Segment("semi-static", _lines(turn.conversation_values)), *messages)
    return IdealRequest(
        workspace=turn.tenant,
        start=turn.at,
        persistent=(*persistent, *_said(turn, kept_notes=kept_notes)),
        note=None if kept_notes else _note(turn),
        message_overhead=message_overhead,
    )


def _round(turn: Turn, *, kept_notes: bool) -> Iterable[Segment]:
    return (*_said(turn, kept_notes=kept_notes), Segment("assistant", turn.reply))


def _said(turn: Turn, *, kept_notes: bool) -> tuple[Segment, ...]:
    user = Segment("user", turn.user, turn.image)
    return (user, _note(turn)) if kept_notes else (user,)


def _note(turn: Turn) -> Segment:
    return Segment("note", _lines(turn.call_values))


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())
