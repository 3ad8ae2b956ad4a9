"""One call on its way from the application to the provider and back."""

import time
from dataclasses import dataclass, field

from headstay.added import Addition
from headstay.causes import Break
from headstay.diagnosis import Earlier, Reply
from headstay.divergence import HeadForm
from headstay.headstore import CallRecord
from headstay.late import Settled
from headstay.layout import Lane, Plan
from headstay.prompt import Wire
from headstay.providers.rules import CacheRules


@dataclass(slots=True)
class Call:
    """One call on its way.

    Attributes:
        body: What to send.
        wire: Its wire format.
        started: When it was prepared, in seconds since the epoch.
        breaks: Why it cannot read everything it might.
        unverified: Why nothing can be said about it, or None.
        late: Where its tools stand, or None where they all stand in the list.
        fresh: What it adds to its conversation in place.
        receipt: What the reply carries under "headstay", or None.
        diagnosed: Whether the provider is asked why a prefix was not read, by us or by the application.
        asked: Whether that is by us: then the answer is compared with the call that this one continues.
        earlier: What was kept of the reply that this call continues.
        reply: What the reply says of itself, as far as the host has seen it.
        in_a_minute: Calls with its head and its cache key in the last minute; 0 where nobody counts.
    """

    body: dict[str, object]
    wire: Wire
    started: float
    tenant: str | None = None
    model: str = ""
    rules: CacheRules | None = None
    lane: Lane | None = None
    plan: Plan | None = None
    late: Settled | None = None
    fresh: tuple[Addition, ...] = ()
    form: HeadForm | None = None
    record: CallRecord | None = None
    breaks: tuple[Break, ...] = ()
    expected: int | None = None
    gap: float | None = None
    writer_in_flight: bool = False
    opening: bool = False
    cold: bool = False
    entered: bool = False
    unverified: str | None = None
    notices: tuple[str, ...] = ()
    receipt: dict[str, str] | None = None
    diagnosed: bool = False
    asked: bool = False
    earlier: Earlier = Earlier()
    reply: Reply = Reply()
    in_a_minute: int = 0
    clock: float = field(default_factory=time.monotonic)
    first_token: float | None = None
    done: bool = False

    def began(self) -> None:
        """Note the first token of the reply."""
        if self.first_token is None:
            self.first_token = time.monotonic() - self.clock

    def left(self) -> None:
        """Note that nobody wanted the rest of its stream, so that its usage may be missing."""
        self.unverified = self.unverified or "the stream was closed before its end"
