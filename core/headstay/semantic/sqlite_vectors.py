"""Nearest rows of a scope: the index in memory, brought up to the rows' state before every search."""

import math
import sqlite3
from contextlib import suppress
from typing import Any

import numpy as np

from headstay.errors import SemanticStoreError
from headstay.semantic.entry import Scored, lifetime
from headstay.semantic.index import Indexes, Mark, ScopeIndex
from headstay.semantic.sqlite_rows import ENTRY, REMOVALS_KEPT, from_row

_BATCH = 2_048


class Vectors:
    """The loaded indexes of one store. Not locked: the store calls it one at a time, inside a read transaction.

    Args:
        max_bytes: The most memory that loaded indexes may take.
    """

    def __init__(self, max_bytes: int) -> None:
        self.indexes = Indexes(max_bytes)

    def nearest(
        self, connection: sqlite3.Connection, scope: str, vector: bytes, *, k: int, now: float, expired: set[int]
    ) -> list[Scored]:
        """Return the nearest entries, best first.

        Args:
            connection: In a transaction, so that index and rows are of one moment.
            scope: The scope's key.
            vector: A unit vector.
            k: How many at most.
            now: Seconds since the epoch.
            expired: Rows that were seen to be expired; those seen now are added.

        Raises:
            SemanticStoreError: The vector is not as wide as those of the scope.
            sqlite3.Error: The file cannot be read.
        """
        state = connection.execute(
            "SELECT number, last, removals, width, entries FROM scopes WHERE scope = ?", (scope,)
        ).fetchone()
        if state is None or state[3] is None:
            self.indexes.drop(scope)
            return []
        if len(vector) != 4 * state[3]:
            raise SemanticStoreError(
                f"the vectors of this scope have {state[3]} numbers, this one has {len(vector) / 4:g}. "
                "Put the embedder's fingerprint into the scope."
            )
        index = self._follow(connection, scope, state, expired)
        rows, seen = index.search(vector, k, now)
        expired.update(seen)
        self.indexes.keep(scope, index)
        found = [scored for row in rows if (scored := _scored(connection, row, scope, vector))]
        return sorted(found, key=lambda scored: -scored.score)

    def drop_row(self, scope: str, row: int) -> None:
        """Take a row out of the index, if its scope is loaded."""
        if (index := self.indexes.get(scope)) is not None:
            index.remove([row])

    def _follow(self, connection: sqlite3.Connection, scope: str, state: Any, expired: set[int]) -> ScopeIndex:
        number, last, removals, width, entries = state
        mark = Mark(number, last, removals)
        index = self.indexes.get(scope)
        if index is not None and index.mark == mark:
            return index
        fresh = index is None or index.mark.scope != number or removals - index.mark.removals > REMOVALS_KEPT
        if index is None or fresh:
            index = ScopeIndex(width, Mark(number, 0, removals))
            index.reserve(entries)
        try:
            _read_new(connection, index, index.mark, mark)
            if fresh:
                index.remove(sorted(expired))
        except BaseException:
            self.indexes.drop(scope)  # half of the news is worse than none
            raise
        index.mark = mark
        return index


def _read_new(connection: sqlite3.Connection, index: ScopeIndex, known: Mark, mark: Mark) -> None:
    base = mark.scope << 32
    if mark.last > known.last:
        cursor = connection.execute(
            "SELECT row, created, expires, vector FROM vectors WHERE row > ? AND row <= ? AND length(vector) = ? "
            "ORDER BY row",
            (base | known.last, base | mark.last, 4 * index.width),
        )
        while batch := cursor.fetchmany(_BATCH):
            lives = [lifetime(created, expires) for _, created, expires, _ in batch]
            index.add([row[0] for row in batch], b"".join(row[3] for row in batch), lives)
    if mark.removals > known.removals:
        gone = connection.execute(
            "SELECT row FROM removed WHERE scope = ? AND number > ?", (mark.scope, known.removals)
        ).fetchall()
        index.remove([row[0] for row in gone])


def _scored(connection: sqlite3.Connection, row: int, scope: str, vector: bytes) -> Scored | None:
    """Read a row again and compare with its own vector; None where it has none to compare with."""
    found = connection.execute(ENTRY + "WHERE e.row = ?", (row,)).fetchone()
    if found is None:
        return None
    with suppress(ValueError):  # a vector of another width
        entry = from_row(found)
        score = float(np.dot(np.frombuffer(entry.vector or b"", "<f4"), np.frombuffer(vector, "<f4")))
        if entry.scope == scope and math.isfinite(score):
            return Scored(entry, min(1.0, score))
    return None
