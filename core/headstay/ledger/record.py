"""The ledger itself: takes rows inside model calls, gives them back to reports.

Nothing in `append` may disturb the call it accounts for: it takes tens of microseconds, prices nothing, and
never raises. A file that cannot be used turns the ledger into one in memory, with one warning.
"""

import logging
import os
import sqlite3
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from headstay.database import guard
from headstay.errors import LedgerError
from headstay.ledger.price import priced
from headstay.ledger.row import Row, Totals, from_record, sum_up, to_record
from headstay.ledger.table import CallTable

MEMORY_ROWS = 100_000
RETRY_SECONDS = 5.0
_ERRORS_KEPT = 100

_log = logging.getLogger("headstay.ledger")


class Ledger:
    """An append-only record of model calls, in a SQLite file or in memory.

    Several threads and processes may write to one file. Rows a busy or full disk refuses wait in memory and
    go with the next call that finds the file usable, or with `close`. Copies of the object are the object
    itself; unpickled in another process it opens the same file.

    Args:
        path: The file, created with mode 0600 and its missing folders with 0700; None keeps the newest
            100,000 rows in memory.
        strict: Raise when the file cannot be used, instead of warning once and keeping rows in memory.
        read_only: Open an existing file and change nothing; implies `strict`.

    Raises:
        LedgerError: Only with `strict` or `read_only`: the file cannot be opened, is no ledger, or is from
            another version.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, strict: bool = False, read_only: bool = False
    ) -> None:
        self._arguments = (path, strict, read_only)
        self._lock = Lock()
        self._memory: deque[Row] = deque(maxlen=MEMORY_ROWS)
        self._waiting: deque[tuple[object, ...]] = deque(maxlen=MEMORY_ROWS)
        self._errors: deque[str] = deque(maxlen=_ERRORS_KEPT)
        self._warned = False
        self._dropped = 0
        self._retry_at = 0.0
        self._table: CallTable | None = None
        if path is not None and os.fspath(path) != ":memory:":
            self._table = self._open(Path(path).expanduser().absolute(), strict=strict, read_only=read_only)
        guard(self)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong while recording, newest last, at most 100."""
        return tuple(self._errors)

    @property
    def dropped(self) -> int:
        """Rows lost for good: refused by the database, or pushed out of a full memory."""
        return self._dropped

    def append(self, row: Row) -> None:
        """Record one call. Never raises; a failure goes to `errors` and, the first time, to the log."""
        try:
            with self._lock:
                self._store(row)
        except Exception as error:  # noqa: BLE001 - accounting must not fail the model call it accounts for
            self._dropped += 1
            self._fail(error)

    def rows(self, since: float | datetime | None = None, *, with_cost: bool = False) -> Iterator[Row]:
        """The rows recorded up to now, oldest first.

        Args:
            since: Only calls that started at or after this time: Unix seconds, or a datetime (naive is UTC).
            with_cost: Fill in missing prices, at the rates of each call's own day. The first use loads the
                price table (up to 1 s).

        Raises:
            LedgerError: The file cannot be read.
        """
        start = _seconds(since)
        for row in self._stored(start):
            if row.ts >= start:
                yield priced(row) if with_cost else row

    def totals(self, since: float | datetime | None = None, *, with_cost: bool = True) -> Totals:
        """Sums over the rows, priced as in `rows`.

        Raises:
            LedgerError: The file cannot be read.
        """
        return sum_up(self.rows(since, with_cost=with_cost), dropped=self._dropped)

    def close(self) -> None:
        """Write what is waiting and let go of the file. Never raises. A later use opens the file again."""
        with self._lock:
            if self._table is None:
                return
            self._flush(self._table)
            self._table.close()

    def _open(self, path: Path, *, strict: bool, read_only: bool) -> CallTable | None:
        table = CallTable(path, read_only=read_only)
        try:
            table.open()
        except LedgerError as error:
            if strict or read_only:
                raise
            self._fail(error, "Rows are kept in memory instead.")
            return None
        return table

    def _store(self, row: Row) -> None:
        if self._table is None:
            self._dropped += len(self._memory) == self._memory.maxlen
            self._memory.append(row)
            return
        record = to_record(row)
        self._dropped += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(record)
        if time.monotonic() >= self._retry_at:
            self._flush(self._table)

    def _flush(self, table: CallTable) -> None:
        try:
            refused = table.insert(self._waiting) if self._waiting else []
        except (LedgerError, sqlite3.Error) as error:
            # a disk that stays full must not cost every call the wait for a lock
            self._retry_at = time.monotonic() + RETRY_SECONDS
            self._fail(error, "Rows wait in memory and are written when the file can be.")
            return
        self._waiting.clear()
        self._dropped += len(refused)
        for refusal in refused:
            self._fail(refusal)

    def _fail(self, error: Exception, outcome: str = "The row is lost.") -> None:
        line = f"{type(error).__name__}: {error}"
        self._errors.append(line)
        if not self._warned:
            self._warned = True
            _log.warning("the ledger could not record: %s %s Later failures are only in Ledger.errors.", line, outcome)

    def _stored(self, start: float) -> Iterator[Row]:
        with self._lock:
            waiting = [from_record(record) for record in self._waiting]
            memory = list(self._memory)
            last = self._table.last_id() if self._table else 0
        after = 0
        while page := self._page(after, last, start):
            after = page[-1][0]
            yield from (from_record(record[1:]) for record in page)
        yield from waiting
        yield from memory

    def _page(self, after: int, until: int, start: float) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._table.page(after=after, until=until, since=start) if self._table else []

    def pause(self) -> None:
        """Let go of the file and hold every other use back until `resume`. The fork hook's first half.

        SQLite keeps its file locks in the memory of the process. A child that inherits an open connection
        believes it holds locks it does not, and its rows can be lost.
        """
        self._lock.acquire()
        if self._table is not None:
            self._table.close()

    def resume(self, *, child: bool = False) -> None:
        """End a `pause`. A forked child forgets the rows that wait: its parent writes them."""
        if child:
            self._waiting.clear()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_table", None) is not None:
            self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, self._arguments

    def __repr__(self) -> str:
        return f"Ledger({str(self._arguments[0])!r})" if self._table else "Ledger()"


def _reopen(path: str | os.PathLike[str] | None, strict: bool, read_only: bool) -> Ledger:
    return Ledger(path, strict=strict, read_only=read_only)


def _seconds(since: float | datetime | None) -> float:
    if since is None:
        return float("-inf")
    if isinstance(since, datetime):
        return (since if since.tzinfo else since.replace(tzinfo=UTC)).timestamp()
    return since
