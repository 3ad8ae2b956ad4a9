"""The prompt cache of the Messages API, as a model without any I/O.

Rules from platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29:

- a prefix is found by its exact content up to a block; markers are not content;
- entries are written at markers only, and only what lies past the longest hit is written;
- each marker looks back over 20 positions, the marked one being the first; a run of `tool_use` blocks is one
  position, and so is a run of `tool_result` blocks;
- the lifetime runs from the start of the request, and every read renews it;
- an entry is readable once the answer of its writer has begun;
- a prefix below the minimum of the model is neither written nor read.

A hit renews every living entry on the way to it, since reading the longer prefix reads the shorter one. An entry
keeps the lifetime it was bought with: a 1h marker that hits a 5m entry does not lengthen it. Eviction under load
is not modelled.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

LOOKBACK = 20

Ttl = Literal["5m", "1h"]

SECONDS: dict[Ttl, int] = {"5m": 300, "1h": 3600}

_RUNS = frozenset({"tool_use", "tool_result"})
_SWEEP_ABOVE = 50_000


@dataclass(frozen=True, slots=True)
class Step:
    """One content block on the way through a prompt.

    Attributes:
        key: Identifies the whole prefix up to and with this block.
        total: Estimated tokens of that prefix.
        position: Its number as the lookback counts.
        ttl: The lifetime asked for by a marker on this block, or None without one.
    """

    key: bytes
    total: int
    position: int
    ttl: Ttl | None = None


@dataclass(frozen=True, slots=True)
class Write:
    """An entry to be made readable: a prefix, its lifetime, and the tokens billed for it."""

    key: bytes
    ttl: Ttl
    tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one request reads, writes and pays in full.

    Attributes:
        read: Tokens read from the cache.
        uncached: Tokens neither read nor written.
        writes: What becomes readable when the answer begins.
        started: When the request arrived, in seconds.
    """

    read: int
    uncached: int
    writes: tuple[Write, ...]
    started: float

    def written(self, ttl: Ttl | None = None) -> int:
        """Return the tokens written, of one lifetime or of all."""
        return sum(write.tokens for write in self.writes if ttl is None or write.ttl == ttl)

    @property
    def total(self) -> int:
        """Tokens of the whole prompt: read, written and uncached."""
        return self.read + self.uncached + self.written()


@dataclass(frozen=True, slots=True)
class _Entry:
    seconds: int
    used: float

    def alive(self, now: float) -> bool:
        return now - self.used <= self.seconds


@dataclass(slots=True)
class Cache:
    """The entries of one emulator; one mutable map around otherwise pure rules."""

    _entries: dict[bytes, _Entry] = field(default_factory=dict[bytes, _Entry])

    def look(self, steps: Sequence[Step], *, minimum: int, now: float) -> Outcome:
        """Find the longest hit of a request, renew it, and say what the request will write.

        Args:
            steps: The blocks of the request, in order.
            minimum: The fewest tokens of a prefix that is cached.
            now: When the request arrived, in seconds.
        """
        marked = [i for i, step in enumerate(steps) if step.ttl is not None and step.total >= minimum]
        hit = max((self._behind(steps, i, now) for i in marked), default=-1)
        for step in steps[: hit + 1]:
            entry = self._entries.get(step.key)
            if entry is not None and entry.alive(now):
                self._entries[step.key] = _Entry(entry.seconds, now)
        read = steps[hit].total if hit >= 0 else 0
        total = steps[-1].total if steps else 0
        writes = _writes([steps[i] for i in marked if i > hit], read)
        return Outcome(read, total - read - sum(w.tokens for w in writes), writes, now)

    def commit(self, outcome: Outcome) -> None:
        """Make what a request wrote readable; its lifetime counts from the start of that request."""
        for write in outcome.writes:
            seconds, used = SECONDS[write.ttl], outcome.started
            other = self._entries.get(write.key)
            if other is not None and other.alive(outcome.started):
                seconds, used = max(seconds, other.seconds), max(used, other.used)
            self._entries[write.key] = _Entry(seconds, used)
        if len(self._entries) > _SWEEP_ABOVE:
            alive = {key: entry for key, entry in self._entries.items() if entry.alive(outcome.started)}
            self._entries = alive

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()

    def _behind(self, steps: Sequence[Step], marked: int, now: float) -> int:
        """Return the index of the nearest living entry at or behind a marker, or -1."""
        first = steps[marked].position - LOOKBACK + 1
        for index in range(marked, -1, -1):
            if steps[index].position < first:
                break
            entry = self._entries.get(steps[index].key)
            if entry is not None and entry.alive(now):
                return index
        return -1


def chain(contents: Iterable[str]) -> list[bytes]:
    """Hash contents so that each value stands for all of them up to there."""
    values: list[bytes] = []
    last = b""
    for content in contents:
        last = hashlib.blake2b(last + content.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        values.append(last)
    return values


def positions(kinds: Sequence[str]) -> list[int]:
    """Number blocks as the lookback counts them: a run of tool calls, or of tool results, is one position."""
    numbers = [0] if kinds else []
    for before, kind in pairwise(kinds):
        numbers.append(numbers[-1] + (0 if kind == before and kind in _RUNS else 1))
    return numbers


def _writes(marked: Sequence[Step], read: int) -> tuple[Write, ...]:
    """Bill each marker for the tokens between the boundary before it and itself."""
    done, writes = read, list[Write]()
    for step in marked:
        assert step.ttl is not None
        writes.append(Write(step.key, step.ttl, step.total - done))
        done = step.total
    return tuple(writes)
