"""What the pure functions cannot know: a lane's tools and heads, and where each conversation was.

One SQLite database, in memory or in a file. It holds head texts, and what was added to them, with their placeholders,
hashes of everything else, and the texts of notes that must be sent again (`headstay.kept`); no message and no reply.
Nothing is read across tenants or agents.
"""

import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, cast

from headstay.database import connect, guard, statements
from headstay.divergence import HeadForm
from headstay.errors import HeadStoreError
from headstay.toolset import ToolState

APPLICATION_ID = 0x68737402  # "hst" and a 2
SCHEMA_VERSION = 3
MAX_CALLS = 20_000
MAX_HEADS = 32
MAX_NOTES = 100_000  # one for each call of a model that binds its thinking; older ones come back as lost receipts
_PRUNE_EVERY = 256
_FAILURES_KEPT = 100
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

_SCHEMA = """
CREATE TABLE lanes (lane TEXT PRIMARY KEY, tools TEXT NOT NULL, bytes_per_token REAL);
CREATE TABLE heads (
    lane TEXT NOT NULL, head BLOB NOT NULL, form TEXT NOT NULL, tokens INTEGER, used REAL NOT NULL,
    PRIMARY KEY (lane, head)
);
CREATE TABLE calls (
    scope TEXT NOT NULL, thread TEXT NOT NULL, link BLOB NOT NULL, lane TEXT NOT NULL, head BLOB NOT NULL,
    semi BLOB NOT NULL, model TEXT NOT NULL, trail BLOB NOT NULL, conversation TEXT NOT NULL,
    epoch INTEGER NOT NULL, turn INTEGER NOT NULL, held TEXT NOT NULL, cached INTEGER, at REAL NOT NULL, firm INTEGER,
    added TEXT NOT NULL, reply TEXT NOT NULL,
    PRIMARY KEY (scope, thread, link, lane, head, semi, added)
);
CREATE TABLE notes (scope TEXT NOT NULL, note TEXT NOT NULL, text TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (scope, note));
CREATE TABLE additions (scope TEXT NOT NULL, addition TEXT NOT NULL, form TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (scope, addition));
CREATE TABLE pins (scope TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (scope, name));
CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1), key BLOB NOT NULL);
CREATE INDEX notes_at ON notes (at);
CREATE INDEX calls_at ON calls (at);
CREATE INDEX calls_thread ON calls (scope, thread, at);
"""

_log = logging.getLogger("headstay.headstore")


@dataclass(frozen=True, slots=True)
class LaneState:
    """What is known of a lane.

    Attributes:
        tools: The order and form of its tools.
        bytes_per_token: As its replies' usage showed, or None.
    """

    tools: ToolState = ToolState()
    bytes_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """One head of a lane.

    Attributes:
        head: Its hash.
        form: Its texts and tools.
        tokens: Its size as a reply's usage showed, or None.
        used: When it was last sent, in seconds since the epoch.
    """

    head: bytes
    form: HeadForm
    tokens: int | None
    used: float


@dataclass(frozen=True, slots=True)
class CallRecord:
    """Where a conversation was after one call.

    Attributes:
        scope: Tenant and agent, hashed.
        thread: The host's thread id, hashed, or empty.
        link: Hash of the body up to the end of this call's input.
        lane: The lane's key.
        head: Hash of the head.
        semi: Hash of the semi-static block.
        model: The model id.
        trail: The body's block digests, kept only where there is a thread id.
        conversation: Name of the conversation, in hex.
        epoch: Which life of the head this is for the conversation, from 0.
        turn: How many calls of the conversation came before.
        held: Hashes of what should have stayed, as JSON: per-conversation values and what re-keys the messages.
        cached: Tokens that the reply's usage showed to be in the cache now, or None.
        at: When the call started, in seconds since the epoch.
        firm: Those of `cached` that stay readable when the note inside the body goes or changes.
        added: What was added in place up to this call and where, as `headstay.added` writes it.
        reply: The id of the reply, and which backend served it, as `headstay.diagnosis` writes it.
    """

    scope: str
    thread: str
    link: bytes
    lane: str
    head: bytes
    semi: bytes
    model: str
    trail: bytes
    conversation: str
    epoch: int
    turn: int
    held: str
    cached: int | None
    at: float
    firm: int | None = None
    added: str = ""
    reply: str = ""


_CALL = (
    "scope, thread, link, lane, head, semi, model, trail, conversation, epoch, turn, held, cached, at, firm, added, "
    "reply"
)


class HeadStore:
    """Lane, head and conversation records, for several threads and processes.

    Args:
        path: A file, created with mode 0600, or None to keep everything in memory. It must lie on a local disk.
        strict: Raise when the file cannot be used, instead of warning once and working in memory.

    Raises:
        HeadStoreError: Only with `strict`: the file cannot be opened or is no head store.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, strict: bool = False) -> None:
        self._path = None if path is None or os.fspath(path) == ":memory:" else Path(path).expanduser().absolute()
        self._strict = strict
        self._lock = Lock()
        self._calls_saved = self._heads_saved = self._notes_saved = self._additions_saved = 0
        self._secret: bytes | None = None
        self.failures: list[str] = []
        self._connection: sqlite3.Connection | None = self._open()
        guard(self)

    def lane(self, lane: str) -> LaneState:
        """Return what is known of a lane."""
        rows = self._run("SELECT tools, bytes_per_token FROM lanes WHERE lane = ?", (lane,))
        if not rows:
            return LaneState()
        return LaneState(read_tools(rows[0][0]), rows[0][1])

    def save_lane(self, lane: str, state: LaneState) -> None:
        """Keep what is known of a lane."""
        self._run(
            "INSERT OR REPLACE INTO lanes VALUES (?, ?, ?)", (lane, write_tools(state.tools), state.bytes_per_token)
        )

    def save_ratio(self, lane: str, bytes_per_token: float) -> None:
        """Keep what a lane's replies showed, and leave its tools to whoever learns of one meanwhile."""
        self._run(
            """INSERT INTO lanes VALUES (?, '{"order": [], "forms": {}}', ?)
            ON CONFLICT (lane) DO UPDATE SET bytes_per_token = excluded.bytes_per_token""",
            (lane, bytes_per_token),
        )

    def head(self, lane: str, head: bytes) -> HeadRecord | None:
        """Return one head of a lane, or None."""
        rows = self._run("SELECT head, form, tokens, used FROM heads WHERE lane = ? AND head = ?", (lane, head))
        return _head(rows[0]) if rows else None

    def heads(self, lane: str) -> list[HeadRecord]:
        """Return the heads of a lane, last used first, at most 32."""
        rows = self._run(
            "SELECT head, form, tokens, used FROM heads WHERE lane = ? ORDER BY used DESC, head LIMIT ?",
            (lane, MAX_HEADS),
        )
        return [_head(row) for row in rows]

    def save_head(self, lane: str, record: HeadRecord) -> None:
        """Keep a head of a lane."""
        known = self._run(
            "UPDATE heads SET tokens = coalesce(?, tokens), used = max(used, ?) "
            "WHERE lane = ? AND head = ? RETURNING 1",
            (record.tokens, record.used, lane, record.head),
        )
        if known:
            return
        self._run(
            "INSERT OR IGNORE INTO heads VALUES (?, ?, ?, ?, ?)",
            (lane, record.head, write_form(record.form), record.tokens, record.used),
        )
        self._heads_saved += 1
        if self._heads_saved % MAX_HEADS == 0:  # a value that nobody declared makes a head for every call
            self._run(
                "DELETE FROM heads WHERE lane = ? AND used < (SELECT used FROM heads WHERE lane = ? "
                "ORDER BY used DESC LIMIT 1 OFFSET ?)",
                (lane, lane, MAX_HEADS),
            )

    def calls(self, scope: str, thread: str, links: Sequence[bytes]) -> list[CallRecord]:
        """Return the calls that ended at one of some links, newest first."""
        marks = ", ".join("?" * len(links))
        rows = self._run(
            f"SELECT {_CALL} FROM calls WHERE scope = ? AND thread = ? AND link IN ({marks}) ORDER BY at DESC",  # noqa: S608
            (scope, thread, *links),
        )
        return [CallRecord(*row) for row in rows]

    def latest(self, scope: str, thread: str) -> CallRecord | None:
        """Return the last call of a thread, or None."""
        rows = self._run(
            f"SELECT {_CALL} FROM calls WHERE scope = ? AND thread = ? ORDER BY at DESC, turn DESC LIMIT 1",  # noqa: S608
            (scope, thread),
        )
        return CallRecord(*rows[0]) if rows else None

    def save_call(self, call: CallRecord) -> None:
        """Keep where a conversation is."""
        values = tuple(getattr(call, name) for name in _CALL.split(", "))
        self._run(f"INSERT OR REPLACE INTO calls ({_CALL}) VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608
        self._calls_saved += 1
        if self._calls_saved % _PRUNE_EVERY == 0:
            self._run(
                "DELETE FROM calls WHERE at < (SELECT at FROM calls ORDER BY at DESC LIMIT 1 OFFSET ?)", (MAX_CALLS,)
            )

    def note(self, scope: str, note: str) -> str | None:
        """Return the text of a kept note, or None."""
        rows = self._run("SELECT text FROM notes WHERE scope = ? AND note = ?", (scope, note))
        return str(rows[0][0]) if rows else None

    def save_note(self, scope: str, note: str, text: str, at: float) -> None:
        """Keep the text of a note, under its name."""
        self._run("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?)", (scope, note, text, at))
        self._notes_saved += 1
        if self._notes_saved % _PRUNE_EVERY == 0:
            self._run(
                "DELETE FROM notes WHERE at < (SELECT at FROM notes ORDER BY at DESC LIMIT 1 OFFSET ?)", (MAX_NOTES,)
            )

    def additions(self, scope: str, names: Sequence[str]) -> dict[str, str]:
        """Return the forms of what was added to conversations, those that are there."""
        marks = ", ".join("?" * len(names))
        rows = self._run(
            f"SELECT addition, form FROM additions WHERE scope = ? AND addition IN ({marks})",  # noqa: S608
            (scope, *names),
        )
        return dict(rows)

    def save_addition(self, scope: str, addition: str, form: str, at: float) -> None:
        """Keep the form of an appended tool or of added instructions, under its name."""
        self._run("INSERT OR REPLACE INTO additions VALUES (?, ?, ?, ?)", (scope, addition, form, at))
        self._additions_saved += 1
        if self._additions_saved % _PRUNE_EVERY == 0:
            self._run(
                "DELETE FROM additions WHERE at < (SELECT at FROM additions ORDER BY at DESC LIMIT 1 OFFSET ?)",
                (MAX_CALLS,),
            )

    def pin(self, scope: str, name: str, text: str) -> str:
        """Keep a text under a name, once: whoever comes later gets the first one back."""
        self._run("INSERT OR IGNORE INTO pins VALUES (?, ?, ?)", (scope, name, text))
        return self.pinned(scope, name) or text

    def replace_pin(self, scope: str, name: str, text: str) -> None:
        """Keep a text under a name in place of the one that was pinned."""
        self._run("INSERT OR REPLACE INTO pins VALUES (?, ?, ?)", (scope, name, text))

    def pinned(self, scope: str, name: str) -> str | None:
        """Return a pinned text, or None."""
        rows = self._run("SELECT text FROM pins WHERE scope = ? AND name = ?", (scope, name))
        return str(rows[0][0]) if rows else None

    def secret(self) -> bytes:
        """Return the key that receipts of this store are made with; it is made on first use.

        Raises:
            HeadStoreError: The store is busy and the key is not known yet.
        """
        if self._secret is None:
            rows = self._run("SELECT key FROM secret WHERE id = 1", ())
            if not rows:
                self._run("INSERT OR IGNORE INTO secret VALUES (1, ?)", (secrets.token_bytes(32),))
                rows = self._run("SELECT key FROM secret WHERE id = 1", ())
            if not rows:
                raise HeadStoreError("the head store is busy; the notes of this call cannot be kept")
            self._secret = bytes(rows[0][0])
        return self._secret

    def close(self) -> None:
        """Let go of the file; a later use opens it again. What was kept in memory stays."""
        with self._lock:
            self._let_go()

    def pause(self) -> None:
        """Let go of the file and hold every other use back until `resume`; see `headstay.database.guard`."""
        self._lock.acquire()
        self._let_go()

    def resume(self, *, child: bool = False) -> None:  # noqa: ARG002 - nothing waits in memory here
        """End a `pause`."""
        self._lock.release()

    def _let_go(self) -> None:
        if self._path is not None and self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            for statement in statements(_SCHEMA):
                connection.execute(statement)
            return connection
        try:
            return connect(
                self._path,
                schema=_SCHEMA,
                application_id=APPLICATION_ID,
                version=SCHEMA_VERSION,
                what="head store",
                error=HeadStoreError,
            )
        except HeadStoreError as problem:
            if self._strict:
                raise
            return self._fall_back(str(problem))

    def _fall_back(self, problem: str) -> sqlite3.Connection:
        """Go on in memory. The file is left as it is, for whoever has to look into it."""
        self._note(problem)
        _log.warning("%s Working in memory until the process ends.", problem)
        self._secret = None  # the store in memory makes its own
        self._path = None
        return self._open()

    def _note(self, problem: str) -> None:
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(problem)

    def _run(self, query: str, values: tuple[object, ...]) -> list[Any]:
        with self._lock:
            return self._locked(lambda connection: connection.execute(query, values).fetchall())

    def _locked(self, work: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
        if self._connection is None:
            self._connection = self._open()
        try:
            return work(self._connection)
        except sqlite3.Error as problem:
            if self._path is None:
                raise
            if getattr(problem, "sqlite_errorcode", None) in _BUSY and not self._strict:
                self._note(f"the head store {self._path} was busy; one record was not kept.")
                return []  # what is not known now is learnt from the next call
            message = f"the head store {self._path} cannot be used: {problem}."
            if self._strict:
                raise HeadStoreError(message) from problem
            self._connection = self._fall_back(message)
            return work(self._connection)

    def __enter__(self) -> "HeadStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.close()

    def __copy__(self) -> "HeadStore":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "HeadStore":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (None if self._path is None else str(self._path), self._strict)

    def __repr__(self) -> str:
        return f"HeadStore({str(self._path)!r})" if self._path else "HeadStore()"


def _reopen(path: str | None, strict: bool) -> HeadStore:
    return HeadStore(path, strict=strict)


def _head(row: Any) -> HeadRecord:
    return HeadRecord(row[0], read_form(row[1]), row[2], row[3])


def write_form(form: HeadForm) -> str:
    """Write texts and tools of a head as JSON."""
    return json.dumps({"system": form.system, "tools": dict(form.tools)})


# The same few rows are read in every call.
@lru_cache(maxsize=64)
def read_form(text: str) -> HeadForm:
    """Read what `write_form` wrote."""
    stored = cast("dict[str, Any]", json.loads(text))
    return HeadForm(tuple(stored["system"]), stored["tools"])


def write_tools(state: ToolState) -> str:
    """Write what is known of a lane's tools as JSON."""
    return json.dumps(
        {
            "order": state.order,
            "forms": dict(state.forms),
            "client": state.client,
            "late": state.late,
            "spent": state.spent,
        }
    )


@lru_cache(maxsize=64)
def read_tools(text: str) -> ToolState:
    """Read what `write_tools` wrote."""
    stored = cast("dict[str, Any]", json.loads(text))
    late, spent = tuple(stored.get("late", ())), stored.get("spent", 0)
    return ToolState(tuple(stored["order"]), stored["forms"], tuple(stored.get("client", ())), late, spent)
