"""Opening a SQLite file of ours: created private, in write-ahead mode, and told from any other file by its marks."""

import atexit
import os
import sqlite3
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from headstay.errors import HeadstayError

BUSY_SECONDS = 1.0
_OPEN_SECONDS = 5.0


def connect(
    path: Path,
    *,
    schema: str,
    application_id: int,
    version: int,
    what: str,
    error: Callable[[str], HeadstayError],
    read_only: bool = False,
) -> sqlite3.Connection:
    """Open a database file, or create it with its schema.

    A row survives the death of the process as soon as its transaction is committed; after a power cut the last
    moments may be missing, but the file is whole. It must lie on a local disk.

    Args:
        path: The file; it and its missing folders are created unless `read_only`.
        schema: Statements that make an empty file ours.
        application_id: Marks the file as this kind of database.
        version: Schema version.
        what: The name of this kind of file, for messages.
        error: Makes the exception out of a message.
        read_only: Never create or change anything.

    Returns:
        A connection in autocommit mode, usable from any thread, one at a time.

    Raises:
        HeadstayError: As made by `error`: the file cannot be opened, is another file, or is of another version.
    """
    try:
        if not read_only:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite gives the write-ahead log the mode of the file, so this is the one place that sets it
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={'ro' if read_only else 'rw'}",
            uri=True,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
    except OSError as problem:
        raise error(
            f"cannot open the {what} {path}: {problem.strerror or problem}. "
            "Give a path that this process can write to, or none to keep it in memory."
        ) from problem
    except sqlite3.Error as problem:
        raise error(
            f"cannot use {path} as a {what}: {problem}. Give the path of a {what} or of a new file."
        ) from problem
    try:
        _prepare(connection, schema, (application_id, version), f"{what} {path}", error, read_only=read_only)
    except sqlite3.Error as problem:
        connection.close()
        raise error(
            f"cannot use {path} as a {what}: {problem}. Give the path of a {what} or of a new file."
        ) from problem
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(
    connection: sqlite3.Connection,
    schema: str,
    marks: tuple[int, int],
    name: str,
    error: Callable[[str], HeadstayError],
    *,
    read_only: bool,
) -> None:
    deadline = time.monotonic() + _OPEN_SECONDS
    while True:
        try:
            if _is_ready(connection, marks, name, error, read_only=read_only):
                break
            _create(connection, schema, marks)
        except sqlite3.OperationalError:
            # switching to the write-ahead log does not wait for another process that is doing the same
            with suppress(sqlite3.Error):
                connection.rollback()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
    connection.execute("PRAGMA synchronous = NORMAL")


def _is_ready(
    connection: sqlite3.Connection,
    marks: tuple[int, int],
    name: str,
    error: Callable[[str], HeadstayError],
    *,
    read_only: bool,
) -> bool:
    """Whether the schema is there; False for an empty file."""
    # tables first: another process may be creating them, and it sets the marks in the same transaction
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    mark = connection.execute("PRAGMA application_id").fetchone()[0]
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if (mark, found) == marks:
        return True
    if mark == marks[0]:
        raise error(
            f"the {name} was written by another version of headstay (schema {found}, this one knows {marks[1]}). "
            "Upgrade headstay or give another path."
        )
    if tables or mark or read_only:
        raise error(f"not one of headstay's files: {name}. Give the path of one, or of a new file.")
    return False


def _create(connection: sqlite3.Connection, schema: str, marks: tuple[int, int]) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        for statement in statements(schema):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {marks[0]}")
        connection.execute(f"PRAGMA user_version = {marks[1]}")
    connection.execute("COMMIT")


def statements(script: str) -> list[str]:
    """Take a script apart; `executescript` would commit first and lose the transaction."""
    found: list[str] = []
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            found.append(pending)
            pending = ""
    return found


class Holder(Protocol):
    """Something that holds a connection, and lets go of it around a fork."""

    def pause(self) -> None:
        """Let go of the file and hold every other use back until `resume`."""
        ...

    def resume(self, *, child: bool = False) -> None:
        """End a `pause`, in the parent or in the forked child."""
        ...

    def close(self) -> None:
        """Let go of the file; a later use opens it again."""
        ...


_holders: "weakref.WeakSet[Holder]" = weakref.WeakSet()
_paused: list[Holder] = []


def guard(holder: Holder) -> None:
    """Close a holder's connection around every fork, and when the process ends.

    SQLite keeps its file locks in the memory of the process. A child that inherits an open connection believes that
    it holds locks it does not, and what it writes can be lost.
    """
    _holders.add(holder)


def _before_fork() -> None:
    for holder in list(_holders):
        holder.pause()
        _paused.append(holder)


def _after_fork(*, child: bool) -> None:
    resumed, _paused[:] = list(_paused), []
    for holder in resumed:
        holder.resume(child=child)


def _close_all() -> None:
    for holder in list(_holders):
        holder.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=partial(_after_fork, child=False),
        after_in_child=partial(_after_fork, child=True),
    )
