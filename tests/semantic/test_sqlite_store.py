"""The SQLite store's own promises: what fits, what file it takes, and what it says about others."""

import copy
import os
import pickle
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headstay.errors import ConfigError, SemanticStoreError
from headstay.semantic.conformance import NOW, entry, queries, unit
from headstay.semantic.entry import Entry, Filter
from headstay.semantic.local_disk import network_filesystem
from headstay.semantic.sqlite_store import SQLiteStore

PATHS = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "core")])


def run(script: str, *arguments: object) -> str:
    """Run a script in another process, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": PATHS},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_complaint_16_past_its_entries_the_oldest_go_and_the_rest_is_found() -> None:
    chance = random.Random(1)
    made = [entry(str(n), unit(*(chance.gauss(0, 1) for _ in range(16)))) for n in range(500)]
    store = SQLiteStore(max_entries=100)
    for n, one in enumerate(made):
        store.put(one)
        assert queries(store, one.vector or b"", k=1) == [str(n)]
    assert store.usage().entries == 100
    for one in made[-100:]:
        assert store.nearest("s", one.vector or b"", 1, NOW)[0].entry.id == one.id
        assert store.get_exact(one.exact, NOW) is not None
    assert all(store.get_exact(one.exact, NOW) is None for one in made[:-100])
    index = store._searcher().indexes.get("s")
    assert index is not None
    assert (len(index), len(index._rows) <= 400) == (100, True)  # the dead are compacted


def test_past_its_entries_the_file_stops_growing(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    sizes: list[int] = []
    with SQLiteStore(path, max_entries=50) as store:
        for n in range(600):
            store.put(entry(str(n), unit(1.0, n), answer="x" * 2_000, expires=NOW + 1000, scope=f"s{n % 7}"))
            if n % 100 == 99:
                store.close()  # the log goes into the file
                sizes.append(path.stat().st_size)
    assert max(sizes) < 1.3 * sizes[0]


def test_what_was_served_stays() -> None:
    store = SQLiteStore(max_entries=3)
    made = [entry(q) for q in "abc"]
    store.put_many(made)
    store.touch(made[0].id, NOW)
    store.put(entry("d"))
    store.put(entry("e"))
    assert sorted(found.query for found in store.page(Filter()).entries) == ["a", "d", "e"]


def test_a_clock_turned_back_does_not_make_the_newest_go_first() -> None:
    store = SQLiteStore(max_entries=3)
    for n, q in enumerate("abcdef"):
        store.put(entry(q, created=NOW - 1000 * n))
    assert [found.query for found in store.page(Filter()).entries] == ["d", "e", "f"]


def test_bytes_are_kept_within_their_limit() -> None:
    small = entry("x" * 10)
    store = SQLiteStore(max_bytes=10 * small.size)
    for n in range(100):
        assert store.put(entry(f"{n:010}")) == "stored"
        assert store.usage().size <= 10 * small.size
    assert store.usage().entries == 10
    assert store.put(entry("y" * 10, answer="x" * 10 * small.size)) == "too_large"
    assert store.put(entry("y" * 10, answer="x" * 5 * small.size)) == "stored"
    assert store.usage().size <= 10 * small.size


def test_a_tenant_pushes_out_only_its_own() -> None:
    store = SQLiteStore(tenant_max_entries=2, tenant_max_bytes=2_000)
    store.put(entry("theirs", tenant="theirs"))
    for n in range(5):
        store.put(entry(str(n), tenant="ours"))
        store.put(entry(f"nobody's {n}"))
    assert [found.query for found in store.page(Filter(tenant="ours")).entries] == ["3", "4"]
    assert (store.usage("theirs").entries, store.usage().entries) == (1, 8)
    assert store.put(entry("big", tenant="ours", answer="x" * 2_000)) == "too_large"
    assert store.put(entry("big", answer="x" * 2_000)) == "stored"


def test_expired_entries_go_a_few_with_every_put() -> None:
    store = SQLiteStore()
    store.put_many([entry(str(n), expires=NOW + 1) for n in range(200)])
    for n in range(4):
        store.put(entry(f"new {n}", created=NOW + 1))
    assert store.usage().entries == 4


def test_limits_make_sense() -> None:
    with pytest.raises(ConfigError, match="max_bytes=0 leaves no room"):
        SQLiteStore(max_bytes=0)


def test_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "answers.db"
    with SQLiteStore(path) as store:
        store.put(entry("a"))
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes) >= {"answers.db", "answers.db-wal"}
    assert set(modes.values()) == {0o600}
    assert (repr(store), repr(SQLiteStore())) == (f"SQLiteStore({str(path)!r})", "SQLiteStore()")


def test_copies_are_the_store_and_pickles_open_the_same_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "answers.db", max_entries=2)
    store.put(entry("a"))
    assert copy.copy(store) is copy.deepcopy(store) is store
    again = pickle.loads(pickle.dumps(store))
    again.put_many([entry("b"), entry("c")])
    assert store.usage().entries == 2
    store.close()
    again.close()


def test_a_scope_is_let_go_when_memory_is_short() -> None:
    store = SQLiteStore(max_index_bytes=20_000)
    for scope in range(10):
        store.put_many(
            [entry(str(n), unit(1.0, *([n / 100] * 15)), scope=f"s{scope}", exact=f"{scope} {n}") for n in range(100)]
        )
    for scope in [*range(10), *range(10)]:
        assert queries(store, unit(1.0, *([0.0] * 15)), scope=f"s{scope}", k=2) == ["0", "1"]
        assert store._searcher().indexes.nbytes <= 20_000
    store = SQLiteStore(max_index_bytes=1)
    store.put(entry("a", unit(1.0, 0.0)))
    assert queries(store, unit(1.0, 0.0)) == queries(store, unit(1.0, 0.0)) == ["a"]


def test_another_file_of_the_same_name_is_another_store(tmp_path: Path) -> None:
    store, other = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "b.db")
    store.put(entry("a", unit(1.0, 0.0)))
    other.put(entry("b", unit(1.0, 0.0)))
    assert queries(store, unit(1.0, 0.0)) == ["a"]
    store.close()
    other.close()
    os.replace(tmp_path / "b.db", tmp_path / "a.db")
    assert queries(store, unit(1.0, 0.0)) == ["b"]


MOUNTS = """/dev/sda / ext4 rw 0 0
server:/x /home nfs4 rw 0 0
tmpfs /home/ann tmpfs rw 0 0
me@host: /mnt/my\\040files fuse.sshfs rw 0 0
//box/share /srv cifs rw 0 0
/dev/sdb /srv ext4 rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/cache/a.db", None),
        ("/home/bob/a.db", "nfs4"),
        ("/home/ann/a.db", None),
        ("/homework/a.db", None),
        ("/mnt/my files/a.db", "fuse.sshfs"),
        ("/srv/a.db", None),
    ],
)
def test_network_filesystems_are_told_apart(path: str, kind: str | None) -> None:
    assert network_filesystem(Path(path), MOUNTS) == kind


def test_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"host:/x {tmp_path}/net nfs rw 0 0\n")
    monkeypatch.setattr("headstay.semantic.local_disk._MOUNTS", mounts)
    with pytest.raises(SemanticStoreError, match=r"lies on a network filesystem \(nfs\).* Give a path on a local disk"):
        SQLiteStore(tmp_path / "net" / "a.db")
    assert not (tmp_path / "net").exists()
    SQLiteStore(tmp_path / "a.db").close()


def make_text(path: Path) -> None:
    path.write_text("just some notes\n" * 99)


def make_other(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def make_newer(path: Path) -> None:
    SQLiteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def make_torn(path: Path) -> None:
    with SQLiteStore(path) as store:
        store.put_many([entry(str(n), unit(1.0, n)) for n in range(200)])
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000)


def make_circle(path: Path) -> None:
    path.symlink_to(path)


def make_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_text, "cannot use .* as a semantic cache: file is not a database"),
        (make_other, "not one of headstay's files: semantic cache"),
        (make_newer, r"written by another version of headstay \(schema 99, this one knows 1\)"),
        (make_torn, "cannot use .* as a semantic cache: database disk image is malformed"),
        (make_folder, "cannot open the semantic cache"),
        (make_circle, "cannot open the semantic cache"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_clear_error(make: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(SemanticStoreError, match=said):
        SQLiteStore(path)
    assert (path.read_bytes() if path.is_file() else b"") == before  # left for whoever has to look into it


def read_all(store: SQLiteStore, made: list[Entry]) -> None:
    for one in made:
        found = store.get_exact(one.exact, NOW)
        assert found is None or found == replace(one, used=NOW)


def test_damage_met_while_running_is_said(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    with SQLiteStore(path) as store:
        made = [entry(str(n), unit(1.0, n), answer="x" * 3000) for n in range(300)]
        store.put_many(made)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 3] + b"\xff" * (len(whole) - len(whole) // 3))
    with SQLiteStore(path) as store, pytest.raises(SemanticStoreError, match=r"is damaged: .* Delete the file"):
        read_all(store, made)


READ_ONLY = """
import os, sys
from headstay.errors import SemanticStoreError
from headstay.semantic.sqlite_store import SQLiteStore
if os.getuid() == 0:
    os.setuid(65534)              # root may write anywhere
try:
    SQLiteStore(sys.argv[1])
except SemanticStoreError as problem:
    print(problem)
"""


def test_a_file_that_may_only_be_read_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    SQLiteStore(path).close()
    path.chmod(0o444)
    for folder in (tmp_path, *tmp_path.parents[:3]):  # the folders above are private to whoever runs the tests
        if folder.owner() == path.owner() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    said = run(READ_ONLY, path)
    assert said.startswith(f"cannot open the semantic cache {path}: Permission denied. Give a path")


FULL = """
import resource, signal, sys
from headstay import database
from headstay.errors import SemanticStoreError
from headstay.semantic.conformance import NOW, entry, unit
from headstay.semantic.sqlite_store import SQLiteStore
path, limit = sys.argv[1], int(sys.argv[2])
database._OPEN_SECONDS = 0.0
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
stored = []
try:
    store = SQLiteStore(path)
    for n in range(10_000):
        made = entry(str(n), unit(1.0, n), answer="x" * 1000)
        store.put(made)
        stored.append(made)
except SemanticStoreError as problem:
    print(type(problem.__cause__).__name__, problem)
    if stored:
        assert all(store.get_exact(one.exact, NOW).id == one.id for one in stored)
        assert store.nearest("s", unit(1.0, 3.0), 1, NOW)[0].entry.id == stored[3].id
        assert store.usage().entries == len(stored)
print(len(stored))
"""


@pytest.mark.parametrize("limit", [500, 500_000, 1_000_000])
def test_a_full_disk_is_said_and_costs_nothing_stored(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "answers.db"
    said, count = run(FULL, path, limit).splitlines()
    assert said.startswith("OperationalError ")
    assert "cannot use" in said if limit == 500 else "cannot be used: disk I/O error" in said or "is full" in said
    if limit > 500:
        with SQLiteStore(path) as store:
            assert store.usage().entries == int(count) > 5
            assert store.put(entry("more")) == "stored"


def test_a_busy_file_is_said_and_reading_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    store = SQLiteStore(path)
    store.put(entry("a", unit(1.0, 0.0)))
    store._read(lambda connection: connection.execute("PRAGMA busy_timeout = 1"))
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(SemanticStoreError, match=r"is busy: .* Another process is writing"):
        store.put(entry("b"))
    assert store.get_exact("exact a", NOW) is not None
    assert queries(store, unit(1.0, 0.0)) == ["a"]
    blocker.execute("COMMIT")
    blocker.close()
    assert store.put(entry("b")) == "stored"
    store.close()


def test_headstay_does_not_load_numpy_before_the_first_search() -> None:
    script = """
import sys
from headstay.semantic.conformance import NOW, entry, unit
from headstay.semantic.sqlite_store import SQLiteStore
store = SQLiteStore()
store.put(entry("a", unit(1.0, 0.0)))
store.get_exact("exact a", NOW)
print("numpy" in sys.modules, end=" ")
store.nearest("s", unit(1.0, 0.0), 1, NOW)
print("numpy" in sys.modules)
"""
    assert run(script) == "False True"
