"""The connection of a semantic cache's store: opened when needed, one transaction at a time, one kind of error."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from headstay.database import connect, statements
from headstay.errors import SemanticStoreError
from headstay.semantic.local_disk import network_filesystem
from headstay.semantic.sqlite_rows import APPLICATION_ID, SCHEMA, SCHEMA_VERSION, DamagedRowError

_SCRUB_SECONDS = 10.0
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

T = TypeVar("T")


class Handle:
    """A connection that may be let go of and comes back. Not locked: the store calls it one at a time.

    Args:
        path: The file, or None for a database in memory.
        secure_delete: Overwrite what is deleted.
        moved: Called when another file is found under the path than before.

    Raises:
        SemanticStoreError: The file cannot be opened, is no store, or lies on a network.
    """

    def __init__(self, path: Path | None, *, secure_delete: bool, moved: Callable[[], None]) -> None:
        self.path = path
        self._secure_delete = secure_delete
        self._moved = moved
        self._file: tuple[int, int] | None = None
        self._connection: sqlite3.Connection | None = self._open()

    @property
    def is_open(self) -> bool:
        """Whether there is a connection now."""
        return self._connection is not None

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction that sees one state of the file.

        Raises:
            SemanticStoreError: SQLite says no.
        """
        return self._attempt(lambda connection: _transaction(connection, "BEGIN", work))

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do something in a transaction that may change the file.

        Raises:
            SemanticStoreError: SQLite says no; nothing was changed.
        """
        return self._attempt(lambda connection: _transaction(connection, "BEGIN IMMEDIATE", work))

    def scrub(self) -> None:
        """Rewrite the file without what was deleted, and empty its log. Nothing to do in memory.

        Raises:
            SemanticStoreError: Another process keeps the file busy, or there is no space.
        """
        if self.path is not None:
            self._attempt(_scrub)

    def close(self) -> None:
        """Let go of the file; what is kept in memory stays."""
        if self.path is not None and self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._open()
        try:
            return work(self._connection)
        except (sqlite3.Error, UnicodeEncodeError, OverflowError) as problem:
            raise SemanticStoreError(self._said(problem)) from problem

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            for statement in statements(SCHEMA):
                connection.execute(statement)
            return connection
        if kind := network_filesystem(self.path):
            raise SemanticStoreError(
                f"cannot keep the semantic cache in {self.path}: it lies on a network filesystem ({kind}), where "
                "SQLite's log does not work. Give a path on a local disk."
            )
        connection = connect(
            self.path,
            schema=SCHEMA,
            application_id=APPLICATION_ID,
            version=SCHEMA_VERSION,
            what="semantic cache",
            error=SemanticStoreError,
        )
        connection.execute(f"PRAGMA secure_delete = {'ON' if self._secure_delete else 'OFF'}")
        file = _identity(self.path)
        if self._file not in (None, file):
            self._moved()
        self._file = file
        return connection

    def _said(self, problem: Exception) -> str:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        name = f"the semantic cache {self.path or 'in memory'}"
        if code in _BUSY:
            return f"{name} is busy: {problem}. Another process is writing to it."
        if isinstance(problem, UnicodeEncodeError):
            return f"{name} takes no text with half a surrogate pair: {problem}."
        if code in _DAMAGED or isinstance(problem, DamagedRowError):
            return f"{name} is damaged: {problem}. Delete the file; what it held comes back with use."
        return f"{name} cannot be used: {problem}."


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:  # taken away this very moment
        return 0, 0
    return status.st_dev, status.st_ino


def _transaction(connection: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        connection.execute(begin)
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.rollback()
        raise
    return result


def _scrub(connection: sqlite3.Connection) -> None:
    # zeros over deleted rows are not enough: where SQLite moved a row from, a copy stays in the gap of the page
    deadline = time.monotonic() + _SCRUB_SECONDS
    while True:
        try:
            connection.execute("VACUUM")
            if not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return
            problem = sqlite3.OperationalError("another process is reading, so the log keeps what was deleted")
        except sqlite3.OperationalError as busy:
            if busy.sqlite_errorcode & 0xFF not in _BUSY:
                raise
            problem = busy
        if time.monotonic() > deadline:
            raise problem
