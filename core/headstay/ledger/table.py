"""The ledger's SQLite file: one append-only table. How durable it is: see `headstay.database`."""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headstay.database import connect
from headstay.errors import LedgerError
from headstay.ledger.row import COLUMNS

SCHEMA_VERSION = 2
APPLICATION_ID = 0x68737401  # "hst" and a 1: tells our file from any other SQLite database

_SCHEMA = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY,
    ts REAL NOT NULL CHECK (typeof(ts) = 'real'),
    lane TEXT NOT NULL,
    head TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    conversation TEXT NOT NULL,
    tenant TEXT,
    name TEXT,
    provider TEXT NOT NULL,
    wire TEXT NOT NULL,
    model TEXT NOT NULL,
    expected_read INTEGER,
    input_tokens INTEGER,
    cache_read_tokens INTEGER NOT NULL,
    cache_write_tokens INTEGER NOT NULL,
    write_by_ttl TEXT,
    output_tokens INTEGER NOT NULL,
    status TEXT NOT NULL,
    cause TEXT,
    owner TEXT,
    breaks TEXT,
    diagnosis TEXT,
    diagnosis_tokens INTEGER,
    price_context TEXT,
    time_to_first_token_s REAL,
    duration_s REAL,
    cost_usd REAL,
    price_date TEXT,
    error TEXT,
    unverified TEXT,
    note TEXT
);
CREATE TRIGGER calls_no_update BEFORE UPDATE ON calls
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
CREATE TRIGGER calls_no_delete BEFORE DELETE ON calls
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
-- REPLACE deletes without firing the trigger above
CREATE TRIGGER calls_no_replace BEFORE INSERT ON calls
    WHEN EXISTS (SELECT 1 FROM calls WHERE id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END;
"""
_INSERT = f"INSERT INTO calls VALUES (NULL{', ?' * len(COLUMNS)})"  # noqa: S608 - only placeholders go in

# what SQLite says about a value it will not take, as against a file it cannot write
_REFUSED = (
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    sqlite3.DataError,
    ValueError,
    TypeError,
    OverflowError,
)


class CallTable:
    """One connection to the file, opened when first needed. Not locked: the ledger calls it one at a time.

    Args:
        path: The database file; it and its missing folders are created unless `read_only`.
        read_only: Never create or change anything.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None

    def open(self) -> sqlite3.Connection:
        """The connection of this process.

        Raises:
            LedgerError: The file cannot be opened, is no ledger, or is from a newer version.
        """
        if self._connection is None:
            self._connection = connect(
                self._path,
                schema=_SCHEMA,
                application_id=APPLICATION_ID,
                version=SCHEMA_VERSION,
                what="ledger",
                error=LedgerError,
                read_only=self._read_only,
            )
        return self._connection

    def insert(self, records: Sequence[tuple[object, ...]]) -> list[Exception]:
        """Write records in one transaction and return the errors of those the database refuses.

        Raises:
            LedgerError: The file cannot be opened.
            sqlite3.DatabaseError: Nothing was written: locked, full, damaged.
        """
        connection = self.open()
        refused: list[Exception] = []
        try:
            connection.execute("BEGIN IMMEDIATE")
            for record in records:
                try:
                    connection.execute(_INSERT, record)
                except _REFUSED as error:
                    refused.append(error)
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.rollback()
            raise
        return refused

    def last_id(self) -> int:
        """The id of the newest row; 0 when there is none.

        Raises:
            LedgerError: The file cannot be read.
        """
        return int(self._fetch("SELECT coalesce(max(id), 0) FROM calls", ())[0][0])

    def page(self, *, after: int, until: int, since: float, size: int = 1_000) -> list[tuple[Any, ...]]:
        """Rows with `after < id <= until` and `ts >= since`, oldest id first, the id before the columns.

        Raises:
            LedgerError: The file cannot be read.
        """
        query = "SELECT * FROM calls WHERE id > ? AND id <= ? AND ts >= ? ORDER BY id LIMIT ?"
        return self._fetch(query, (after, until, since, size))

    def close(self) -> None:
        """Let go of the file. The next use opens it again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _fetch(self, query: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            return self.open().execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise LedgerError(f"cannot read the ledger {self._path}: {error}") from error
