"""The requests of a log in the order in which they were sent.

A log is written when an answer is there, and an export may begin with the newest call: LangSmith's does. What breaks a
prefix is seen only in the order of sending, so requests with a time are brought into it, in bounded memory: a window is
sorted, and a log that is longer than it and runs backwards goes through a temporary file.
"""

import heapq
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple, cast

from headstay.ledger.usage import Usage
from headstay.trace.entry import Entry, Skipped

WINDOW = 32_000_000
"""Characters of requests that are held at once."""

_DISORDER = 0.1  # share of requests in a window that stand behind a later one, from which a log is sorted as a whole


class _Held(NamedTuple):
    """A request that waits: its time, its number in the log, and the request."""

    at: float
    number: int
    entry: Entry


def in_order(pieces: Iterable[Entry | Skipped], *, window: int = WINDOW) -> Iterator[Entry | Skipped]:
    """Bring the requests of a log into the order in which they were sent.

    A request without a time stays behind the one before it. What is no request is handed on at once.

    Args:
        pieces: The log.
        window: Characters of requests that are held at once.
    """
    held: list[_Held] = []
    weight = 0
    rest = _timed(pieces)
    for piece in rest:
        if isinstance(piece, Skipped):
            yield piece
            continue
        held.append(piece)
        weight += _weight(piece.entry.body)
        if weight > window:
            yield from _spooled(chain(held, rest)) if _is_disordered(held) else _sliding(held, rest, weight, window)
            return
    yield from (one.entry for one in sorted(held))


def _timed(pieces: Iterable[Entry | Skipped]) -> Iterator[_Held | Skipped]:
    at = float("-inf")
    for number, piece in enumerate(pieces):
        if isinstance(piece, Skipped):
            yield piece
        else:
            at = piece.started if piece.started is not None else at
            yield _Held(at, number, piece)


def _is_disordered(held: list[_Held]) -> bool:
    late = sum(one.at < latest for one, latest in zip(held, accumulate((one.at for one in held), max), strict=True))
    return late > _DISORDER * len(held)


def _sliding(held: list[_Held], rest: Iterator[_Held | Skipped], weight: int, window: int) -> Iterator[Entry | Skipped]:
    """Hand on the earliest request whenever more is held than the window takes."""
    heapq.heapify(held)
    for piece in rest:
        if isinstance(piece, Skipped):
            yield piece
            continue
        heapq.heappush(held, piece)
        weight += _weight(piece.entry.body)
        while weight > window and len(held) > 1:
            first = heapq.heappop(held).entry
            weight -= _weight(first.body)
            yield first
    while held:
        yield heapq.heappop(held).entry


def _spooled(pieces: Iterable[_Held | Skipped]) -> Iterator[Entry | Skipped]:
    """Sort a whole log through a temporary file that only this user can read."""
    with tempfile.TemporaryDirectory(prefix="headstay-") as folder:
        database = sqlite3.connect(Path(folder) / "order.db", isolation_level=None)
        try:
            database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;")
            database.execute("CREATE TABLE entry (at REAL, number INTEGER, form TEXT)")
            for piece in pieces:
                if isinstance(piece, Skipped):
                    yield piece
                else:
                    database.execute("INSERT INTO entry VALUES (?, ?, ?)", (piece.at, piece.number, _form(piece.entry)))
            # The sort holds the small columns only; the requests are read one by one.
            places = database.execute("SELECT rowid FROM entry ORDER BY at, number").fetchall()
            for (place,) in places:
                (form,) = database.execute("SELECT form FROM entry WHERE rowid = ?", (place,)).fetchone()
                yield _entry(form)
        finally:
            database.close()


def _form(entry: Entry) -> str:
    usage = asdict(entry.usage) if entry.usage else None
    bare = replace(entry, body={}, usage=None)
    return json.dumps([asdict(bare), entry.body, usage])


def _entry(form: str) -> Entry:
    fields, body, usage = cast("tuple[dict[str, Any], dict[str, object], dict[str, Any] | None]", json.loads(form))
    fields |= {"body": body, "usage": Usage(**usage) if usage else None, "reply": tuple(fields["reply"])}
    return Entry(**fields)


def _weight(value: object) -> int:
    """Count the characters of a JSON value, and a few for each of its parts."""
    if isinstance(value, str):
        return len(value) + 50
    if isinstance(value, dict):
        return 50 + sum(map(_weight, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return 50 + sum(map(_weight, cast("list[object]", value)))
    return 30
