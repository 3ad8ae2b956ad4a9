"""What a comparison returns."""

from dataclasses import dataclass, field

from headstay.causes import Cause
from headstay.prompt import Wire


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason why request B does not continue the prefix of request A.

    Attributes:
        cause: The code.
        path: Where, as a path into request B; into A for what B no longer has.
        at: Offset in characters of the first difference in the text at `path`; 0 where no text stands there.
        before: What stood there in A, at most 80 characters, secrets hidden.
        after: What stands there in B, at most 80 characters, secrets hidden.
        remedy: What to do; for a varying value the `Slot(...)` line to paste.
        lost_tokens: Estimated tokens that this finding alone would keep from being read.
    """

    cause: Cause
    path: str
    at: int
    before: str
    after: str
    remedy: str
    lost_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Divergence:
    """How request B departs from request A.

    Attributes:
        clean: Whether it does not: B reads whatever A left in the cache.
        wire: The wire format of both.
        shared_tokens: Estimated tokens of the prefix that both share.
        lost_tokens: Estimated tokens that both hold behind that prefix, and that are therefore paid for again.
        findings: The causes, the one at the earliest place on the wire first.
    """

    clean: bool
    wire: Wire
    shared_tokens: int
    lost_tokens: int
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place on the wire, for the order of findings: tier, segment of request B, character."""

    tier: int
    index: int = 0
    at: int = 0


TIERS = {"request": 0, "tools": 1, "system": 2, "parameters": 3, "messages": 4, "end": 5}


@dataclass(frozen=True, slots=True)
class Draft:
    """A finding before its cost is known.

    Attributes:
        place: Where on the wire.
        cause: The code.
        path: Path into the request.
        at: Offset in the text at the path.
        before: What stood there.
        after: What stands there.
        remedy: A remedy made for this finding; empty for the cause's own.
        lost: Bytes lost, where the place does not tell.
    """

    place: Place
    cause: Cause
    path: str
    at: int = 0
    before: str = ""
    after: str = ""
    remedy: str = ""
    lost: int | None = field(default=None)
