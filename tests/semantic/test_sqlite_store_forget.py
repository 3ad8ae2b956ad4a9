"""After `forget`, nothing of an entry is in the file's bytes, wherever SQLite had moved it."""

import random
import sqlite3
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from headstay.errors import SemanticStoreError
from headstay.semantic.conformance import NOW, entry, unit
from headstay.semantic.entry import Entry, Filter
from headstay.semantic.sqlite_store import SQLiteStore


def left_in(folder: Path) -> bytes:
    """All bytes of the database, its log and its shared memory."""
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()))


def traces(gone: Entry) -> list[bytes]:
    """What would give an entry away: its texts, its user and its vector, each by a unique part."""
    texts = (gone.id, gone.exact, gone.query, gone.answer, gone.text, gone.user, gone.version, *gone.tags)
    return [text[:20].encode() for text in texts if text] + [(gone.vector or b"")[:16]]


def marked(number: int, chance: random.Random) -> Entry:
    def mark(kind: str) -> str:
        return f"{kind}{chance.getrandbits(64):016x}"

    return entry(
        mark("query"),
        unit(*(chance.gauss(0.0, 1.0) for _ in range(64))),
        scope=f"scope{chance.randrange(12)}",
        answer=mark("answer") * chance.randrange(2, 120),
        text=mark("text") * chance.randrange(1, 4),
        user=f"{mark('user')}@{number % 2}",
        version=mark("version"),
        tags=(mark("tag"),),
        tenant=f"tenant{chance.randrange(5)}",
    )


@pytest.mark.parametrize("seed", [0])  # rows move enough for traces to stay if the file is not rewritten
def test_forgotten_entries_leave_no_bytes(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with SQLiteStore(tmp_path / "answers.db") as store:
        known: list[Entry] = []
        gone: list[Entry] = []
        for number in range(1_500):  # coming and going makes SQLite move rows, and leave copies in the gaps of pages
            if known and chance.random() < 0.4:
                gone.append(known.pop(chance.randrange(len(known))))
                store.remove(Filter(ids=(gone[-1].id,)))
            else:
                known.append(marked(number, chance))
                store.put(known[-1])
        assert all(trace in left_in(tmp_path) for trace in traces(known[-1]))  # we look right
        gone += [known.pop() for _ in range(10)]
        assert store.forget(Filter(ids=tuple(made.id for made in gone[-10:]))) == 10
        data = left_in(tmp_path)
        assert [trace for made in gone for trace in traces(made) if trace in data] == []
        found = [trace in data for made in known for trace in traces(made)]
        assert sum(found) > 0.95 * len(found)  # a few lie across the edge of a page
        assert all(store.get_exact(made.exact, NOW) is not None for made in known)


def test_a_user_is_forgotten_in_every_tenant_and_scope(tmp_path: Path) -> None:
    chance = random.Random(7)
    with SQLiteStore(tmp_path / "answers.db") as store, SQLiteStore(tmp_path / "answers.db") as other:
        mine = [marked(number, chance) for number in range(40)]
        ann = [replace(made, user="ann.lee@example.org") for made in mine[::2]]
        store.put_many([*ann, *mine[1::2]])
        # another process has it all loaded, and its file open
        for made in ann:
            assert other.nearest(made.scope, made.vector or b"", 1, NOW)[0].entry.id == made.id
        assert store.forget(Filter(user="ann.lee@example.org")) == 20
        data = left_in(tmp_path)
        assert b"ann.lee@example.org" not in data
        assert not any(trace in data for made in ann for trace in traces(made))
        for made in ann:
            assert all(found.entry.user != made.user for found in other.nearest(made.scope, made.vector or b"", 9, NOW))
        assert other.usage().entries == 20


def test_a_reader_in_the_way_is_said_and_the_traces_go_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headstay.semantic.sqlite_handle._SCRUB_SECONDS", 0.0)
    monkeypatch.setattr("headstay.database.BUSY_SECONDS", 0.0)
    with SQLiteStore(tmp_path / "answers.db") as store:
        made = entry("a secret question")
        store.put(made)
        reader = sqlite3.connect(tmp_path / "answers.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchall()
        with pytest.raises(SemanticStoreError, match="another process is reading, so the log keeps"):
            store.forget(Filter(ids=(made.id,)))
        assert store.show(made.id) is None
        assert b"a secret question" in left_in(tmp_path)
        reader.execute("COMMIT")
        reader.close()
        assert store.forget(Filter(ids=(made.id,))) == 0
        assert b"a secret question" not in left_in(tmp_path)


def test_forgetting_takes_the_vector_out_of_memory(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "answers.db") as store:
        for n in range(20):
            store.put(entry(str(n), unit(1.0, n)))
        store.nearest("s", unit(1.0, 0.0), 1, NOW)
        gone = store.show(store.page(Filter(), limit=4).entries[3].id)
        assert gone is not None
        store.forget(Filter(ids=(gone.id,)))
        store.nearest("s", unit(1.0, 0.0), 1, NOW)
        index = store._searcher().indexes.get("s")
        assert index is not None
        assert struct.pack("<2f", *struct.unpack("<2f", gone.vector or b"")) not in index._vectors.tobytes()
