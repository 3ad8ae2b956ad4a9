"""What is under way in this process, and how much goes to one cache: evidence for causes that no request shows."""

from threading import Lock

from headstay.call import Call
from headstay.rate import PerMinute


class Traffic:
    """Counts the calls of one flow; for several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[tuple[str, bytes], int] = {}
        self._sent = PerMinute()

    @property
    def under_way(self) -> int:
        """How many calls have begun and not ended."""
        with self._lock:
            return sum(self._open.values())

    def enter(self, call: Call) -> None:
        """Note that a call is under way; `release` takes it out again."""
        if call.lane is None or call.plan is None:
            return
        key = (call.lane.key, call.plan.head_hash)
        with self._lock:
            waiting = self._open.get(key, 0)
            call.writer_in_flight = waiting > 0 and call.cold
            self._open[key] = waiting + 1
            call.entered = True
            if call.rules is not None and call.rules.affinity and call.rules.requests_per_minute:
                cache_key = str(call.body.get(call.rules.affinity) or "")
                call.in_a_minute = self._sent.count((*key, cache_key), call.started)

    def release(self, call: Call) -> None:
        """Note that a call has ended."""
        if call.lane is None or call.plan is None or not call.entered:
            return
        key = (call.lane.key, call.plan.head_hash)
        with self._lock:
            left = self._open.pop(key, 1) - 1
            if left > 0:
                self._open[key] = left
