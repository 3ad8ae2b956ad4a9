"""Single flight: of several identical calls at once, one asks the model and the others wait for its answer."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from headstay.errors import SemanticStoreError
from headstay.semantic.entry import new_id
from headstay.semantic.lookup import Lookup
from headstay.semantic.reasons import Reason
from headstay.semantic.store import Store

LONGEST = 600.0
"""Most seconds that a call may wait for another; a store's lease lasts no longer."""

_FIRST_LOOK = 0.02
_LAST_LOOK = 0.25


@dataclass(frozen=True, slots=True)
class Flight:
    """A claim on one request, over threads and processes. It ends by `land`, or by itself at its deadline.

    Attributes:
        store: Where the lease is.
        key: The request's key.
        owner: Who holds the lease; empty for one who waits.
        seconds: How long the lease holds.
        now: The clock.
    """

    store: Store
    key: str
    owner: str
    seconds: float
    now: Callable[[], float]

    @classmethod
    def begin(cls, store: Store, key: str, seconds: float, now: Callable[[], float]) -> Self | None:
        """Claim a request, or line up behind who did; None where the store cannot say."""
        owner = new_id()
        try:
            leads = store.lease(key, owner, now(), seconds)
        except SemanticStoreError:
            return None
        return cls(store, key, owner if leads else "", seconds, now)

    @property
    def leads(self) -> bool:
        """Whether this call is the one that asks the model."""
        return bool(self.owner)

    def wait(self, seconds: float) -> None:
        """Wait until the leader has landed or its time is over, for some seconds at most."""
        try:
            self.store.wait(self.key, self.now(), seconds)
        except SemanticStoreError:
            return

    async def await_landing(self, seconds: float) -> None:
        """Do what `wait` does, holding no thread: the leader needs one to land."""
        loop = asyncio.get_running_loop()
        deadline, delay = loop.time() + seconds, _FIRST_LOOK
        while (left := deadline - loop.time()) > 0:
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, _LAST_LOOK)
            try:
                if await asyncio.to_thread(self.store.wait, self.key, self.now(), 0.0):
                    return
            except SemanticStoreError:
                return

    def land(self) -> None:
        """Let the waiting calls go on; they find the answer, or ask themselves."""
        if self.owner:
            try:
                self.store.release(self.key, self.owner)
            except SemanticStoreError:
                return


def land(flight: Flight | None) -> None:
    """End a flight, if there is one."""
    if flight is not None:
        flight.land()


async def aland(flight: Flight | None) -> None:
    """Do what `land` does, without blocking the event loop."""
    if flight is not None:
        await asyncio.to_thread(flight.land)


def share(
    ask: Callable[[], Lookup], claim: Callable[[Lookup], Flight | None], seconds: float
) -> tuple[Lookup, Flight | None]:
    """Look a request up; where an identical one is under way, wait for its answer.

    When the leader fails, one of those who waited leads next. Nobody waits for longer than some seconds in all.

    Args:
        ask: Looks the request up.
        claim: Claims a missed request; None where there is nothing to wait for.
        seconds: How long to wait, over all leaders.

    Returns:
        The last look, and the flight that the caller has to land, if it leads one. Where the time is over, the reason
        of the miss is `lease_lost`.
    """
    deadline = time.monotonic() + seconds
    flight = claim(lookup := ask())
    while flight is not None and not flight.leads:
        left = deadline - time.monotonic()
        if left <= 0:
            return replace(lookup, reason=Reason.LEASE_LOST), None
        flight.wait(left)
        flight = claim(lookup := ask())
    return lookup, flight


async def ashare(
    ask: Callable[[], Lookup], claim: Callable[[Lookup], Flight | None], seconds: float
) -> tuple[Lookup, Flight | None]:
    """Do what `share` does; the event loop is not blocked."""
    deadline = time.monotonic() + seconds
    lookup, flight = await _look(ask, claim)
    while flight is not None and not flight.leads:
        left = deadline - time.monotonic()
        if left <= 0:
            return replace(lookup, reason=Reason.LEASE_LOST), None
        await flight.await_landing(left)
        lookup, flight = await _look(ask, claim)
    return lookup, flight


async def _look(ask: Callable[[], Lookup], claim: Callable[[Lookup], Flight | None]) -> tuple[Lookup, Flight | None]:
    def look() -> tuple[Lookup, Flight | None]:
        lookup = ask()
        return lookup, claim(lookup)

    work = asyncio.ensure_future(asyncio.to_thread(look))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_let_go)  # the thread goes on, and its claim would keep others waiting
        raise


def _let_go(work: asyncio.Future[tuple[Lookup, Flight | None]]) -> None:
    if not work.cancelled() and work.exception() is None and (flight := work.result()[1]) is not None:
        flight.land()
