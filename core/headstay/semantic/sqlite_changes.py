"""What changes the tables of a semantic cache's SQLite file. All of it runs inside a transaction of the caller's."""

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headstay.errors import SemanticStoreError
from headstay.semantic.entry import Entry, Outcome, Usage
from headstay.semantic.sqlite_rows import ENTRY, INSERT, from_row, to_row

_EVICTED_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Quota:
    """How much there may be; None is no limit."""

    entries: int | None
    size: int | None

    def exceeded(self, usage: Usage) -> bool:
        """Whether something has to go."""
        return (self.entries is not None and usage.entries > self.entries) or not self.admits(usage.size)

    def admits(self, size: int) -> bool:
        """Whether so many bytes fit."""
        return self.size is None or size <= self.size


def store(
    connection: sqlite3.Connection,
    entry: Entry,
    width: int | None,
    *,
    replace: bool,
    expired: Collection[int],
    quota: Quota,
    tenant_quota: Quota,
) -> Outcome:
    """Put an entry into the tables and push out what then is too much.

    Raises:
        SemanticStoreError: The vector is not as wide as those of the scope.
    """
    if not quota.admits(entry.size) or (entry.tenant is not None and not tenant_quota.admits(entry.size)):
        return "too_large"
    row = connection.execute(ENTRY + "WHERE e.exact = ?", (entry.exact,)).fetchone()
    if row is not None:
        if not replace and row[0] not in expired and from_row(row).alive(entry.created):
            return "kept"
        delete(connection, [row[0]])
    scope, place = _place(connection, entry.scope, width)
    turn = connection.execute("SELECT ifnull(max(turn), 0) + 1 FROM entries").fetchone()[0]
    connection.execute(INSERT, to_row(entry, row=place, scope=scope, turn=turn))
    if entry.vector is not None:
        vector = (place, entry.created, entry.expires, entry.vector)
        connection.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", vector)
    connection.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(tag, place) for tag in entry.tags])
    if entry.tenant is not None:
        _evict(connection, tenant_quota, entry.tenant, place)
    _evict(connection, quota, None, place)
    return "stored"


def delete(connection: sqlite3.Connection, rows: Iterable[int]) -> int:
    """Delete entries with all that belongs to them. Returns how many were there."""
    return connection.executemany("DELETE FROM entries WHERE row = ?", [(row,) for row in rows]).rowcount


def note_served(connection: sqlite3.Connection, touched: dict[str, tuple[int, float]]) -> None:
    """Write down how often and when entries were served, and put them last in the order of going."""
    if not touched:
        return
    turn = connection.execute("SELECT ifnull(max(turn), 0) + 1 FROM entries").fetchone()[0]
    connection.executemany(
        "UPDATE entries SET hits = hits + ?, used = max(used, ?), turn = ? WHERE id = ?",
        [(hits, used, turn, name) for name, (hits, used) in touched.items()],
    )


def usage(connection: sqlite3.Connection, tenant: str | None) -> Usage:
    """Return how full the store is, or how much of it is one tenant's."""
    owner = "*" if tenant is None else f"={tenant}"
    row = connection.execute("SELECT entries, size FROM totals WHERE owner = ?", (owner,)).fetchone()
    return Usage(*row) if row else Usage(0, 0)


def _place(connection: sqlite3.Connection, scope: str, width: int | None) -> tuple[int, int]:
    """Give out the next row of a scope, and make the scope if it is new."""
    connection.execute("INSERT OR IGNORE INTO scopes (scope) VALUES (?)", (scope,))
    number, last, known = connection.execute(
        "UPDATE scopes SET last = last + 1, width = ifnull(width, ?) WHERE scope = ? RETURNING number, last, width",
        (width, scope),
    ).fetchone()
    if width is not None and width != known:
        raise SemanticStoreError(
            f"the vectors of this scope have {known} numbers, this one has {width}. "
            "Put the embedder's fingerprint into the scope."
        )
    return number, number << 32 | last


def _evict(connection: sqlite3.Connection, quota: Quota, tenant: str | None, keep: int) -> None:
    """Remove entries served or stored longest ago until the rest fits, but not the one just stored."""
    whose, values = ("", ()) if tenant is None else ("tenant = ? AND ", (tenant,))
    # turns, not times: a clock that is turned back would make the newest entries look like the oldest
    query = f"SELECT row, size FROM entries WHERE {whose}row != ? ORDER BY turn, row LIMIT ?"  # noqa: S608 - both ours
    while quota.exceeded(now := usage(connection, tenant)):
        going: list[int] = []
        for row, size in connection.execute(query, (*values, keep, _EVICTED_AT_ONCE)):
            if quota.exceeded(now):
                going.append(row)
                now = Usage(now.entries - 1, now.size - size)
        if not delete(connection, going):
            return
