"""The semantic cache's store in one SQLite file, or in memory."""

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headstay.database import guard
from headstay.errors import ConfigError, SemanticStoreError
from headstay.semantic.entry import Entry, Filter, Outcome, Page, Scored, Usage
from headstay.semantic.sqlite_changes import Quota, delete, note_served, store, usage
from headstay.semantic.sqlite_handle import Handle
from headstay.semantic.sqlite_rows import (
    ENTRY,
    conditions,
    from_row,
    start_of,
    width_of,
)

if TYPE_CHECKING:
    from headstay.semantic.sqlite_vectors import Vectors

MAX_LEASE_SECONDS = 600.0
_SWEPT_AT_ONCE = 64
_REMOVED_AT_ONCE = 1_000
_TOUCHES_KEPT = 1_024

T = TypeVar("T")


class SQLiteStore:
    """Entries in a SQLite file, for several threads and processes of one machine; see `headstay.semantic.store`.

    The file is the truth and holds the vectors. A scope that is searched is loaded into memory and followed from
    there. What is stored survives the death of the process at once, and a power cut after some moments. When the
    store is full, entries served or stored longest ago go first. A clock that ran ahead ends entries early; one that
    is turned back brings nothing back that was seen to be expired.

    Deleted rows are overwritten with zeros at once, but SQLite may have left copies where rows were moved, and in the
    write-ahead log. `forget` rewrites the file and empties the log, which needs as much free space again; what the
    disk below or a backup keeps is out of its reach.

    Args:
        path: A file, created with mode 0600, or None to keep everything in memory. It must lie on a local disk.
        max_entries: The most entries.
        max_bytes: The most bytes of entries, by `Entry.size`; the file takes some more.
        tenant_max_entries: The most entries of one tenant, or None.
        tenant_max_bytes: The most bytes of one tenant's entries, or None.
        max_index_bytes: The most memory for loaded scopes; one more may be loaded if it is larger by itself.
        secure_delete: Overwrite what is deleted.

    Raises:
        SemanticStoreError: The file cannot be opened, is no store, or lies on a network.
        ConfigError: A limit is below 1, or the path is an address.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        max_entries: int = 100_000,
        max_bytes: int = 1 << 30,
        tenant_max_entries: int | None = None,
        tenant_max_bytes: int | None = None,
        max_index_bytes: int = 1 << 29,
        secure_delete: bool = True,
    ) -> None:
        self._settings: dict[str, Any] = {
            "max_entries": max_entries,
            "max_bytes": max_bytes,
            "tenant_max_entries": tenant_max_entries,
            "tenant_max_bytes": tenant_max_bytes,
            "max_index_bytes": max_index_bytes,
            "secure_delete": secure_delete,
        }
        for name, limit in self._settings.items():
            if name == "secure_delete" or (limit is None and name.startswith("tenant_")):
                continue
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise ConfigError(f"{name}={limit!r} leaves no room for an entry. Give 1 or more.")
        _check_path(path)
        self._quota = Quota(max_entries, max_bytes)
        self._tenant_quota = Quota(tenant_max_entries, tenant_max_bytes)
        self._max_index_bytes = max_index_bytes
        place = None if path is None or os.fspath(path) == ":memory:" else Path(path).expanduser().absolute()
        self._lock = Lock()
        self._vectors: Vectors | None = None
        self._touched: dict[str, tuple[int, float]] = {}
        self._expired: set[int] = set()  # rows seen to be expired, still in the file
        self._deleted: list[int] = []  # those of them that the transaction under way deletes
        self._handle = Handle(place, secure_delete=secure_delete, moved=self._start_over)
        guard(self)

    def get_exact(self, exact: str, now: float) -> Entry | None:
        """Return the unexpired entry of an exact key, or None."""

        def read(connection: sqlite3.Connection) -> Entry | None:
            row = connection.execute(ENTRY + "WHERE e.exact = ?", (exact,)).fetchone()
            if row is None or row[0] in self._expired:
                return None
            entry = from_row(row)
            if entry.expires is not None and entry.expires <= now:
                self._expired.add(row[0])
                if self._vectors is not None:
                    self._vectors.drop_row(entry.scope, row[0])
            return entry if entry.alive(now) else None

        return self._read(read)

    def nearest(self, scope: str, vector: bytes, k: int, now: float) -> list[Scored]:
        """Return the nearest unexpired entries of a scope, best first, each scored against its own row.

        Raises:
            SemanticStoreError: Also where the vector is no unit vector, or not as wide as those of the scope.
        """
        width_of(vector)

        def read(connection: sqlite3.Connection) -> list[Scored]:
            searcher = self._searcher()
            return searcher.nearest(connection, scope, vector, k=k, now=now, expired=self._expired)

        return self._read(read)

    def put(self, entry: Entry, *, replace: bool = True) -> Outcome:
        """Keep an entry; its `created` counts as now. See `headstay.semantic.store.Store.put`.

        Raises:
            SemanticStoreError: Also where the vector is no unit vector, or not as wide as those of the scope.
        """
        return self.put_many([entry], replace=replace)[0]

    def put_many(self, entries: Sequence[Entry], *, replace: bool = True) -> list[Outcome]:
        """Keep several entries in one transaction; see `put`."""
        widths = [None if entry.vector is None else width_of(entry.vector) for entry in entries]

        def write(connection: sqlite3.Connection) -> list[Outcome]:
            self._write_touches(connection)  # before anything has to go
            outcomes: list[Outcome] = [
                store(
                    connection,
                    entry,
                    width,
                    replace=replace,
                    expired=self._expired,
                    quota=self._quota,
                    tenant_quota=self._tenant_quota,
                )
                for entry, width in zip(entries, widths, strict=True)
            ]
            self._clean(connection, max((entry.created for entry in entries), default=0.0), _SWEPT_AT_ONCE)
            return outcomes

        return self._write(write)

    def touch(self, entry_id: str, now: float) -> None:
        """Note that an entry was served; written down with the next `put`, at `close`, or when there are many."""
        with self._lock:
            hits, used = self._touched.get(entry_id, (0, now))
            self._touched[entry_id] = (hits + 1, max(used, now))
            full = len(self._touched) >= _TOUCHES_KEPT
        if full:
            self._write(self._write_touches)

    def feedback(self, entry_id: str, *, wrong: bool) -> bool:
        """Count a judgement. Returns whether the entry is known."""
        query = "UPDATE entries SET wrong = wrong + ?, confirmed = confirmed + ? WHERE id = ?"
        return self._write(lambda connection: connection.execute(query, (wrong, not wrong, entry_id)).rowcount > 0)

    def texts(self, family: str, limit: int) -> list[str]:
        """Return the whole texts of a family's entries, newest first."""
        query = "SELECT ifnull(text, query) FROM entries WHERE family = ? ORDER BY created DESC LIMIT ?"
        return [row[0] for row in self._read(lambda connection: connection.execute(query, (family, limit)).fetchall())]

    def show(self, entry_id: str) -> Entry | None:
        """Return an entry by name, expired or not, or None."""

        def read(connection: sqlite3.Connection) -> Entry | None:
            row = connection.execute(ENTRY + "WHERE e.id = ?", (entry_id,)).fetchone()
            return from_row(row) if row else None

        return self._read(read)

    def page(self, where: Filter, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Return entries by scope and age, expired ones included, a page at a time.

        Raises:
            ConfigError: The cursor is not one that a page came with.
        """
        condition, values = conditions(where)
        query = f"{ENTRY} WHERE {condition} AND e.row > ? ORDER BY e.row LIMIT ?"
        values += [start_of(cursor), limit]

        def read(connection: sqlite3.Connection) -> Page:
            rows = connection.execute(query, values).fetchall()
            more = rows and len(rows) == limit
            return Page(tuple(from_row(row) for row in rows), str(rows[-1][0]) if more else None)

        return self._read(read)

    def usage(self, tenant: str | None = None) -> Usage:
        """Return how full the store is, or how much of it is one tenant's."""
        return self._read(lambda connection: usage(connection, tenant))

    def remove(self, where: Filter) -> int:
        """Remove what matches, some rows at a time. Returns how many entries that were."""
        condition, values = conditions(where)
        query = f"SELECT e.row FROM entries e WHERE {condition} ORDER BY e.row LIMIT ?"  # noqa: S608 - terms of ours
        values.append(_REMOVED_AT_ONCE)

        def write(connection: sqlite3.Connection) -> int:
            return delete(connection, [row[0] for row in connection.execute(query, values).fetchall()])

        total = 0
        while count := self._write(write):
            total += count
        return total

    def forget(self, where: Filter) -> int:
        """Remove what matches, and every trace of it from the file and its log.

        Raises:
            SemanticStoreError: Also where traces remain since another process kept the file busy, or for lack of
                disk space. The entries are gone all the same; call it again for the traces.
        """
        count = self.remove(where)
        with self._lock:
            self._handle.scrub()
        return count

    def sweep(self, now: float) -> int:
        """Remove what is expired. Returns how many entries that were."""
        total, more = 0, True
        while more:
            count, more = self._write(lambda connection: self._clean(connection, now, _REMOVED_AT_ONCE))
            total += count
        return total

    def lease(self, key: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew a lease, for at most some seconds. Returns False while another owner holds it.

        Raises:
            ConfigError: It is to last more than ten minutes.
        """
        if not 0 < seconds <= MAX_LEASE_SECONDS:
            raise ConfigError(f"a lease of {seconds:g} s is not possible. Give more than 0 s and at most 600 s.")
        # a deadline further away than any lease can last comes from a clock that has been turned back
        query = """INSERT INTO leases VALUES (?1, ?2, ?3 + ?4) ON CONFLICT (key) DO UPDATE
            SET owner = excluded.owner, deadline = excluded.deadline
            WHERE owner = excluded.owner OR deadline <= ?3 OR deadline > ?3 + ?5 RETURNING 1"""

        def write(connection: sqlite3.Connection) -> bool:
            taken = connection.execute(query, (key, owner, now, seconds, MAX_LEASE_SECONDS)).fetchall()
            connection.execute("DELETE FROM leases WHERE deadline <= ?", (now,))
            return bool(taken)

        return self._write(write)

    def release(self, key: str, owner: str) -> None:
        """Give a lease back; that of another owner is left alone."""
        query = "DELETE FROM leases WHERE key = ? AND owner = ?"
        self._write(lambda connection: connection.execute(query, (key, owner)).rowcount)

    def wait(self, key: str, now: float, seconds: float) -> bool:
        """Block until nobody holds a lease. Returns False if that takes longer than some seconds."""
        query = "SELECT deadline FROM leases WHERE key = ?"
        start = time.monotonic()
        pause = 0.002
        while True:
            rows = self._read(lambda connection: connection.execute(query, (key,)).fetchall())
            waited = time.monotonic() - start
            if not rows or rows[0][0] <= now + waited:
                return True
            if waited >= seconds:
                return False
            time.sleep(min(pause, seconds - waited))
            pause = min(2 * pause, 0.05)

    def close(self) -> None:
        """Write down what was served and let go of the file; a later use opens it again."""
        if self._touched and self._handle.is_open:
            with suppress(SemanticStoreError):
                self._write(self._write_touches)
        with self._lock:
            self._handle.close()

    def pause(self) -> None:
        """Let go of the file and hold every other use back until `resume`; see `headstay.database.guard`."""
        self._lock.acquire()
        self._handle.close()

    def resume(self, *, child: bool = False) -> None:
        """End a `pause`. A forked child forgets what is to be written down: its parent does that."""
        if child:
            self._touched.clear()
        self._lock.release()

    def _clean(self, connection: sqlite3.Connection, now: float, most: int) -> tuple[int, bool]:
        """Delete some of what is expired. Returns how many there were and whether there may be more."""
        seen = list(islice(self._expired, most))
        query = "SELECT row FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?"
        due = [row[0] for row in connection.execute(query, (now, most - len(seen)))]
        self._deleted = seen
        return delete(connection, {*seen, *due}), len(seen) + len(due) == most

    def _write_touches(self, connection: sqlite3.Connection) -> None:
        touched, self._touched = self._touched, {}
        note_served(connection, touched)

    def _searcher(self) -> "Vectors":
        if self._vectors is None:
            # numpy comes with the first search: who only ever asks for exact matches does not need it
            from headstay.semantic.sqlite_vectors import Vectors  # noqa: PLC0415

            self._vectors = Vectors(self._max_index_bytes)
        return self._vectors

    def _start_over(self) -> None:
        """Drop what was learnt from the file that was under this path before."""
        self._vectors = None
        self._expired.clear()

    def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            return self._handle.read(work)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            self._deleted = []
            result = self._handle.write(work)
            self._expired.difference_update(self._deleted)
            return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (None if self._handle.path is None else str(self._handle.path), self._settings)

    def __repr__(self) -> str:
        return f"SQLiteStore({str(self._handle.path)!r})" if self._handle.path else "SQLiteStore()"


def _check_path(path: object) -> None:
    """Refuse what would only make a strange file.

    Raises:
        ConfigError: It is an address, or no text and no path.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"a store in {type(path).__name__}: give the path of a file, or None to keep it in memory")
    if isinstance(path, str) and ("://" in path or not path.strip()):
        raise ConfigError(f"{path!r} is no path: give a file, such as 'answers.db', or None to keep it in memory")


def _reopen(path: str | None, settings: dict[str, Any]) -> SQLiteStore:
    return SQLiteStore(path, **settings)
