"""One call on its way from the application to the provider and back."""

import time
from dataclasses import dataclass, field

from headstay.added import Addition
from headstay.causes import Break
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
    clock: float = field(default_factory=time.monotonic)
    first_token: float | None = None
    done: bool = False

    def began(self) -> None:
        """Note the first token of the reply."""
        if self.first_token is None:
            self.first_token = time.monotonic() - self.clock
