"""Clocks for the emulator: the real one, and one that moves only when told to."""

import time
from typing import Protocol


class Clock(Protocol):
    """Anything that can say what time it is, in seconds since the epoch."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()


class ManualClock:
    """A clock that stands still until it is set or advanced.

    Args:
        start: Seconds since the epoch.
    """

    def __init__(self, start: float = 1_790_000_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._now

    def set(self, moment: float) -> None:
        """Move to a moment, in seconds since the epoch; never backwards."""
        if moment < self._now:
            raise ValueError(f"the clock cannot go back from {self._now} to {moment}; start a new emulator")
        self._now = moment

    def advance(self, seconds: float) -> None:
        """Move forward by some seconds."""
        self.set(self._now + seconds)
