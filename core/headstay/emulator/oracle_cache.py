"""Two caches that ideal requests meet: one that matches at marked boundaries, one that matches any prefix."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headstay.emulator.oracle_layout import SYSTEM_SEGMENTS, IdealRequest, Segment
from headstay.emulator.oracle_rules import OracleRules
from headstay.emulator.tokens import IMAGE_TOKENS, pieces


class Use(NamedTuple):
    """What a request takes from a cache and what it puts there, in tokens."""

    readable: int
    writes: int


@dataclass
class _Entry:
    """A cached prefix: readable after one moment, and as long as its last use is recent."""

    readable_after: float
    last_use: float


class MarkedCache:
    """Anthropic's cache, and OpenAI's from GPT-5.6 on: a prefix ends at a breakpoint.

    A perfect layout puts breakpoints at the end of the head, of the semi-static block and of the input. A request
    reads the longest prefix that ends where an earlier one put a breakpoint, so the model's last answer, which
    was no one's input yet, is beyond it. Reading starts the lifetime of all that was read afresh.

    Args:
        rules: The model's rules.
        ttl: Seconds since the last use.
        first_event_s: Seconds from the start of a call until others can read what it wrote.
    """

    def __init__(self, rules: OracleRules, ttl: float, first_event_s: float) -> None:
        self._rules = rules
        self._ttl = ttl
        self._first_event_s = first_event_s
        self._entries: dict[Hashable, _Entry] = {}

    def use(self, request: IdealRequest) -> Use:
        """Let a request read and write; requests come in order of their start."""
        last = len(request.persistent) - 1
        found = [place for place in range(last + 1) if self._can_read(request, place)]
        for place in found:
            self._entries[self._key(request, place)].last_use = request.start
        for place in {0, SYSTEM_SEGMENTS - 1, last}:
            if request.ends[place] >= self._rules.minimum:
                self._write(request, place)
        readable = request.ends[found[-1]] if found else 0
        return Use(readable, request.ends[last] - readable if request.ends[last] >= self._rules.minimum else 0)

    def _can_read(self, request: IdealRequest, place: int) -> bool:
        entry = self._entries.get(self._key(request, place))
        if entry is None or entry.readable_after >= request.start:
            return False
        return self._alive(entry, request.start)

    def _alive(self, entry: _Entry, now: float) -> bool:
        return now - entry.last_use <= self._ttl

    def _write(self, request: IdealRequest, place: int) -> None:
        key = self._key(request, place)
        entry = self._entries.get(key)
        if entry is not None and self._alive(entry, request.start):
            entry.last_use = request.start
        else:
            self._entries[key] = _Entry(request.start + self._first_event_s, request.start)

    def _key(self, request: IdealRequest, place: int) -> Hashable:
        in_messages = place >= SYSTEM_SEGMENTS
        tier = request.has_image if in_messages and self._rules.images_split_messages else None
        return request.workspace, tier, request.persistent[: place + 1]


class CommonPrefixCache:
    """OpenAI's cache before GPT-5.6: the longest common prefix with an earlier prompt, in whole intervals.

    A call's own prompt carries on whatever prefix it read, so entries need no refreshing. Writes are not charged.

    Args:
        rules: The model's rules.
        ttl: Seconds since the last use.
        first_event_s: Seconds from the start of a call until others can read its prompt.
    """

    def __init__(self, rules: OracleRules, ttl: float, first_event_s: float) -> None:
        self._rules = rules
        self._ttl = ttl
        self._first_event_s = first_event_s
        self._requests: list[IdealRequest] = []

    def use(self, request: IdealRequest) -> Use:
        """Let a request read, and keep its prompt; requests come in order of their start."""
        shared = max((common_tokens(earlier, request) for earlier in self._readable(request)), default=0)
        self._requests.append(request)
        return Use(self._reported(shared), 0)

    def _readable(self, request: IdealRequest) -> Iterable[IdealRequest]:
        for earlier in self._requests:
            began = earlier.start + self._first_event_s < request.start
            if earlier.workspace == request.workspace and began and request.start - earlier.start <= self._ttl:
                yield earlier

    def _reported(self, shared: int) -> int:
        floored = shared - shared % self._rules.interval
        return floored if floored >= self._rules.minimum else 0


def common_tokens(earlier: IdealRequest, later: IdealRequest) -> int:
    """Count the tokens two requests share from their very beginning, notes included."""
    shared = 0
    for before, now in zip(earlier.prompt, later.prompt, strict=False):
        if before != now:
            return shared + (later.opening(now) + _common_in_segment(before, now) if before.kind == now.kind else 0)
        shared += later.tokens(now)
    return shared


def _common_in_segment(before: Segment, now: Segment) -> int:
    if before.image != now.image:
        return 0
    shared = IMAGE_TOKENS if now.image is not None else 0
    for one, other in zip(pieces(before.text), pieces(now.text), strict=False):
        if one != other:
            break
        shared += 1
    return shared
