"""The vectors of a scope in memory, for finding the nearest ones fast.

Up to some 16,000 vectors a search is one matrix product. Above that, a sketch comes first: one bit for each number,
whether it lies above the scope's mean, and the vectors with the fewest differing bits go to the product. That reads a
32nd of the memory, is built as fast as vectors are read, and lets vectors come and go one by one: there is no graph to
train, to repair or to compact for minutes. Among 100,000 clustered vectors it found every nearest neighbour down to a
similarity of 0.5, in 1.1 ms; below that, neighbours may be missed.

Nothing here is the truth: the rows are. An index only proposes rows, and the store reads them again.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SKETCH_ABOVE = 16_384
SHORTLIST = 1_024
_WORST = np.uint16(65_535)
_CHUNK = 8_192  # vectors turned over at a time, to keep the peak of memory low
_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the index has followed the rows of its scope.

    Attributes:
        scope: The scope's number; a scope that emptied and filled again has another.
        last: The last row number given out.
        removals: How many vectors were removed.
    """

    scope: int
    last: int
    removals: int


class ScopeIndex:
    """The vectors of one scope, by ascending row number. Not locked: the store calls it one at a time.

    Args:
        width: How many numbers a vector has.
        mark: Where the rows stood when it was empty.
    """

    def __init__(self, width: int, mark: Mark) -> None:
        self.width = width
        self.mark = mark
        self._count = self._dead = 0
        self._rows: NDArray[np.int64] = np.empty(0, np.int64)
        self._start: NDArray[np.float64] = np.empty(0, np.float64)
        self._end: NDArray[np.float64] = np.empty(0, np.float64)
        self._vectors: NDArray[np.float32] = np.empty((0, width), np.float32)
        self._mean: NDArray[np.float32] = np.empty(0, np.float32)
        self._sketch: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return self._count - self._dead

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the arrays take."""
        sketch = 0 if self._sketch is None else self._sketch.nbytes
        return self._rows.nbytes + self._start.nbytes + self._end.nbytes + self._vectors.nbytes + sketch

    def reserve(self, extra: int) -> None:
        """Make room for more vectors."""
        if self._count + extra > len(self._rows):
            self._resize(self._count + extra)

    def add(self, rows: Sequence[int], vectors: bytes, lives: Sequence[tuple[float, float]]) -> None:
        """Append vectors.

        Args:
            rows: Row numbers, ascending, above all that came before.
            vectors: Their vectors one after the other, little-endian float32.
            lives: When each may be served; see `headstay.semantic.entry.lifetime`.
        """
        if (wanted := self._count + len(rows)) > len(self._rows):
            self._resize(max(wanted + wanted // 4, 16))
        end = self._count + len(rows)  # what is dead did not come along
        place = slice(self._count, end)
        self._rows[place] = rows
        self._vectors[place] = np.frombuffer(vectors, "<f4").reshape(len(rows), self.width)
        spans = np.array(lives, np.float64).reshape(len(rows), 2)
        self._start[place], self._end[place] = spans[:, 0], spans[:, 1]
        self._count = end
        if self._sketch is not None:
            self._sketch[:, place] = self._bits(self._vectors[place])
        elif end > SKETCH_ABOVE:
            self._draw()

    def remove(self, rows: Sequence[int]) -> None:
        """Take vectors out; rows that are not here are passed over."""
        here = self._rows[: self._count]
        wanted = np.unique(np.array(rows, np.int64))
        places = np.searchsorted(here, wanted)
        inside = places < self._count
        places, wanted = places[inside], wanted[inside]
        self._bury(places[here[places] == wanted])

    def search(self, vector: bytes, k: int, now: float) -> tuple[list[int], list[int]]:
        """Return the rows nearest to a vector, best first, and those just found to be expired.

        What is found to be expired is taken out, so it stays expired even if the clock goes back.
        """
        expired = self._expire(now)
        query = np.frombuffer(vector, "<f4")
        # not `@`: that wakes the threads of the linear algebra library, which spin for longer than this takes
        alive = (self._start[: self._count] <= now) & (self._end[: self._count] > now)
        if self._sketch is None:
            places = np.flatnonzero(alive)
            scores = np.vecdot(self._vectors[: self._count], query)[places]
        else:
            places = self._shortlist(self._sketch, query, alive, max(SHORTLIST, 4 * k))
            scores = np.vecdot(self._vectors[places], query)
        if len(places) > k:
            best = np.argpartition(-scores, k - 1)[:k]
            places, scores = places[best], scores[best]
        found: list[int] = self._rows[places[np.lexsort((places, -scores))]].tolist()
        return found, expired

    def _shortlist(
        self, sketch: NDArray[np.uint64], query: NDArray[np.float32], alive: NDArray[np.bool_], size: int
    ) -> NDArray[np.intp]:
        bits = self._bits(query[None])
        distance = np.zeros(self._count, np.uint16)
        for ours, theirs in zip(sketch, bits, strict=True):
            distance += np.bitwise_count(ours[: self._count] ^ theirs)
        distance[~alive] = _WORST
        nearest = np.argpartition(distance, size)[:size] if self._count > size else np.arange(self._count)
        return nearest[alive[nearest]]

    def _bits(self, vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
        """One bit for each number, as rows of 64-bit words with a column for each vector."""
        packed = np.packbits(vectors > self._mean, axis=1)
        packed = np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))
        return np.ascontiguousarray(packed).view(np.uint64).T

    def _draw(self) -> None:
        # a scope is about one subject, so its vectors lean to one side: only what differs from the mean tells
        self._mean = self._vectors[: self._count].mean(axis=0)
        sketch = np.empty((-(-self.width // 64), len(self._rows)), np.uint64)
        for start in range(0, self._count, _CHUNK):
            place = slice(start, min(start + _CHUNK, self._count))
            sketch[:, place] = self._bits(self._vectors[place])
        self._sketch = sketch

    def _expire(self, now: float) -> list[int]:
        end = self._end[: self._count]
        past = np.flatnonzero((end <= now) & (end != _NEVER))
        expired: list[int] = self._rows[past].tolist()
        self._bury(past)
        return expired

    def _bury(self, places: NDArray[np.intp]) -> None:
        if not len(places):
            return
        self._dead += int(np.count_nonzero(self._end[places] != _NEVER))
        self._end[places] = _NEVER
        self._vectors[places] = 0.0  # what was forgotten is not to be found in memory either
        if self._dead > max(64, self._count // 4):
            self._resize(max(len(self), 16))

    def _resize(self, capacity: int) -> None:
        """Move what is alive to arrays of another size."""
        live = np.flatnonzero(self._end[: self._count] != _NEVER)
        count = len(live)
        rows, start, end = np.empty(capacity, np.int64), np.empty(capacity), np.empty(capacity)
        vectors = np.empty((capacity, self.width), np.float32)
        rows[:count], start[:count], end[:count] = self._rows[live], self._start[live], self._end[live]
        for at in range(0, count, _CHUNK):
            vectors[at : min(at + _CHUNK, count)] = self._vectors[live[at : at + _CHUNK]]
        self._rows, self._start, self._end, self._vectors = rows, start, end, vectors
        self._count, self._dead, self._sketch = count, 0, None
        if count > SKETCH_ABOVE:
            self._draw()


class Indexes:
    """The indexes of the scopes searched last, as many as fit some bytes.

    Args:
        max_bytes: The most that they may take together; the one searched last always stays.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._loaded: OrderedDict[str, ScopeIndex] = OrderedDict()
        self._nbytes = 0
        self._counted: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take together."""
        return self._nbytes

    def get(self, scope: str) -> ScopeIndex | None:
        """Return the index of a scope, if it is loaded."""
        if scope in self._loaded:
            self._loaded.move_to_end(scope)
        return self._loaded.get(scope)

    def keep(self, scope: str, index: ScopeIndex) -> None:
        """Keep an index that was loaded or has changed, and let go of those searched longest ago."""
        self._loaded[scope] = index
        self._loaded.move_to_end(scope)
        self._nbytes += index.nbytes - self._counted.get(scope, 0)
        self._counted[scope] = index.nbytes
        while self._nbytes > self._max_bytes and len(self._loaded) > 1:
            self.drop(next(iter(self._loaded)))

    def drop(self, scope: str) -> None:
        """Let go of the index of a scope."""
        if self._loaded.pop(scope, None) is not None:
            self._nbytes -= self._counted.pop(scope)

    def clear(self) -> None:
        """Let go of all of them."""
        self._loaded.clear()
        self._counted.clear()
        self._nbytes = 0
