"""The tables of a semantic cache's SQLite file, and entries to and from their rows.

A row number is its scope's number in the upper half and a counter in the lower, so the vectors of a scope lie side by
side and an index follows its scope by two numbers: what was added since lies above the last row it knows, what was
removed is in `removed`. Neither scopes nor rows ever get a number that was used before, so no vector can be taken for
another row's.
"""

import json
import sqlite3
import struct
from collections.abc import Sequence
from typing import Any

from headstay.errors import ConfigError, SemanticStoreError
from headstay.semantic.entry import Entry, Filter

APPLICATION_ID = 0x68737403  # "hst" and a 3
SCHEMA_VERSION = 1
REMOVALS_KEPT = 1_024  # of a scope; an index that is further behind is loaded again

SCHEMA = """
CREATE TABLE scopes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL UNIQUE, width INTEGER,
    last INTEGER NOT NULL DEFAULT 0, removals INTEGER NOT NULL DEFAULT 0, entries INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE entries (
    row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope INTEGER NOT NULL, exact TEXT NOT NULL UNIQUE,
    family TEXT NOT NULL, tenant TEXT, user TEXT, version TEXT, tags TEXT NOT NULL, created REAL NOT NULL,
    expires REAL, used REAL NOT NULL, turn INTEGER NOT NULL, hits INTEGER NOT NULL, confirmed INTEGER NOT NULL,
    wrong INTEGER NOT NULL, size INTEGER NOT NULL, query TEXT NOT NULL, text TEXT, answer TEXT NOT NULL
);
CREATE INDEX entries_family ON entries (family, created);
CREATE INDEX entries_turn ON entries (turn);
CREATE INDEX entries_tenant ON entries (tenant, turn) WHERE tenant IS NOT NULL;
CREATE INDEX entries_user ON entries (user) WHERE user IS NOT NULL;
CREATE INDEX entries_expires ON entries (expires) WHERE expires IS NOT NULL;
CREATE TABLE vectors (row INTEGER PRIMARY KEY, created REAL NOT NULL, expires REAL, vector BLOB NOT NULL);
CREATE TABLE tags (tag TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY (tag, row)) WITHOUT ROWID;
CREATE TABLE removed (scope INTEGER NOT NULL, number INTEGER NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (scope, number)) WITHOUT ROWID;
CREATE TABLE totals (owner TEXT PRIMARY KEY, entries INTEGER NOT NULL, size INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE leases (key TEXT PRIMARY KEY, owner TEXT NOT NULL, deadline REAL NOT NULL) WITHOUT ROWID;
CREATE TRIGGER entry_added AFTER INSERT ON entries BEGIN
    UPDATE scopes SET entries = entries + 1 WHERE number = NEW.scope;
    INSERT INTO totals VALUES ('*', 1, NEW.size)
        ON CONFLICT (owner) DO UPDATE SET entries = entries + 1, size = size + excluded.size;
    INSERT INTO totals VALUES (ifnull('=' || NEW.tenant, ''), 1, NEW.size)
        ON CONFLICT (owner) DO UPDATE SET entries = entries + 1, size = size + excluded.size;
END;
CREATE TRIGGER entry_removed AFTER DELETE ON entries BEGIN
    DELETE FROM vectors WHERE row = OLD.row;
    DELETE FROM tags WHERE row = OLD.row AND tag IN (SELECT value FROM json_each(OLD.tags));
    UPDATE totals SET entries = entries - 1, size = size - OLD.size
        WHERE owner IN ('*', ifnull('=' || OLD.tenant, ''));
    DELETE FROM totals WHERE owner IN ('*', ifnull('=' || OLD.tenant, '')) AND entries = 0;
    UPDATE scopes SET entries = entries - 1 WHERE number = OLD.scope;
    DELETE FROM scopes WHERE number = OLD.scope AND entries = 0;
END;
CREATE TRIGGER vector_removed AFTER DELETE ON vectors BEGIN
    UPDATE scopes SET removals = removals + 1 WHERE number = OLD.row >> 32;
    INSERT INTO removed SELECT number, removals, OLD.row FROM scopes WHERE number = OLD.row >> 32;
    DELETE FROM removed WHERE scope = OLD.row >> 32
        AND number <= (SELECT removals FROM scopes WHERE number = OLD.row >> 32) - $kept;
END;
CREATE TRIGGER scope_removed AFTER DELETE ON scopes BEGIN
    DELETE FROM removed WHERE scope = OLD.number;
END;
""".replace("$kept", str(REMOVALS_KEPT))

ENTRY = """SELECT e.row, e.id, s.scope, e.exact, e.query, e.answer, v.vector, e.created, e.expires, e.tenant, e.user,
    e.version, e.tags, e.family, e.text, e.used, e.hits, e.confirmed, e.wrong
    FROM entries e JOIN scopes s ON s.number = e.scope LEFT JOIN vectors v ON v.row = e.row """
INSERT = f"INSERT INTO entries VALUES (?{', ?' * 19})"  # noqa: S608 - only placeholders go in


class DamagedRowError(sqlite3.DatabaseError):
    """A row holds what nobody wrote."""


def to_row(entry: Entry, *, row: int, scope: int, turn: int) -> tuple[object, ...]:
    """Return the columns of `entries` for an entry."""
    return (
        *(row, entry.id, scope, entry.exact, entry.family, entry.tenant, entry.user, entry.version),
        *(json.dumps(entry.tags), entry.created, entry.expires, max(entry.used, entry.created), turn),
        *(entry.hits, entry.confirmed, entry.wrong, entry.size, entry.query, entry.text, entry.answer),
    )


def from_row(row: Sequence[Any]) -> Entry:
    """Return the entry of a row that `ENTRY` has read.

    Raises:
        DamagedRowError: The row holds what nobody wrote.
    """
    values = list(row[1:])
    try:
        values[11] = tuple(json.loads(values[11]))
    except (ValueError, TypeError) as problem:
        raise DamagedRowError(f"the tags of entry {values[0]} are no list ({problem})") from problem
    return Entry(*values)


def conditions(where: Filter) -> tuple[str, list[object]]:
    """Return a filter as an SQL condition on `entries e`, and its values."""
    terms: list[str] = ["1"]
    values: list[object] = []
    for column in ("tenant", "user", "version"):
        if (wanted := getattr(where, column)) is not None:
            terms.append(f"e.{column} = ?")
            values.append(wanted)
    if where.scope is not None:
        rows = "e.row > (SELECT number << 32 {0}) AND e.row <= (SELECT number << 32 | last {0})"
        terms.append(rows.format("FROM scopes WHERE scope = ?"))
        values += [where.scope, where.scope]
    if where.ids is not None:
        terms.append("e.id IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(where.ids))
    if where.tags is not None:
        terms.append("e.row IN (SELECT row FROM tags WHERE tag IN (SELECT value FROM json_each(?)))")
        values.append(json.dumps(where.tags))
    return " AND ".join(terms), values


def width_of(vector: bytes) -> int:
    """Return how many numbers a unit vector has.

    Raises:
        SemanticStoreError: It is none: empty, not finite, or of another length than 1.
    """
    width, odd = divmod(len(vector), 4)
    norm = sum(number * number for number in struct.unpack(f"<{width}f", vector)) if width and not odd else 0.0
    if not 0.998 < norm < 1.002:
        raise SemanticStoreError(
            f"a vector of {len(vector)} bytes and squared length {norm:.3g} is no unit vector of little-endian "
            "float32. Normalise what the embedder returns."
        )
    return width


def start_of(cursor: str | None) -> int:
    """Return the row that a page starts after.

    Raises:
        ConfigError: The cursor is not one that a page came with.
    """
    if cursor is None:
        return -1
    if not (cursor.isascii() and cursor.isdecimal()):
        raise ConfigError(f"{cursor!r} is not a cursor of this store. Give the cursor of the page before, or none.")
    return int(cursor)
