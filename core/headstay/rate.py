"""How many calls of each kind there were in the last minute."""

from collections import OrderedDict, deque
from collections.abc import Hashable

_MINUTE_S = 60.0
_KEYS_KEPT = 4_096
_TIMES_KEPT = 1_024


class PerMinute:
    """Counts calls by key; the keys not seen for longest are forgotten. Not for several threads."""

    def __init__(self) -> None:
        self._sent: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def count(self, key: Hashable, now: float) -> int:
        """Return how many calls of a key there were in the minute up to now, in seconds of any clock, this included."""
        sent = self._sent.setdefault(key, deque(maxlen=_TIMES_KEPT))
        self._sent.move_to_end(key)
        while len(self._sent) > _KEYS_KEPT:
            self._sent.popitem(last=False)
        while sent and now - sent[0] >= _MINUTE_S:
            sent.popleft()
        sent.append(now)
        return len(sent)
