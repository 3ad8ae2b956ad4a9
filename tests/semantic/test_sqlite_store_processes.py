"""One file, many processes: sudden deaths, forks, and indexes that follow what others write."""

import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headstay.semantic.conformance import NOW, entry, queries, unit
from headstay.semantic.entry import Entry, Filter
from headstay.semantic.sqlite_store import SQLiteStore

PATHS = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "core")])

ENDLESS = """
import random, sys
from headstay.semantic.conformance import entry, unit
from headstay.semantic.entry import Filter
from headstay.semantic.sqlite_store import SQLiteStore
path, first = sys.argv[1], int(sys.argv[2])
store, chance, number = SQLiteStore(path), random.Random(first), first
while True:
    vector = unit(*(chance.gauss(0, 1) for _ in range(8)))
    store.put(entry(str(number), vector, id=f"{number:032}", answer=vector.hex(), scope=f"s{number % 3}"))
    print("+", number, flush=True)       # acknowledged
    if number % 4 == 0:
        store.remove(Filter(ids=(f"{number - 2:032}",)))
        print("-", number - 2, flush=True)
    number += 1
"""

CROWD = """
import random, struct, sys, threading
from headstay import database
from headstay.semantic.conformance import NOW, entry, unit
from headstay.semantic.entry import Filter
from headstay.semantic.sqlite_store import SQLiteStore
path, process = sys.argv[1:]
database.BUSY_SECONDS = 30.0              # the machine may be busy with other tests
sys.stdin.readline()                      # everyone starts together
store, problems, kept = SQLiteStore(path), [], []
def work(thread):
    chance = random.Random(f"{process} {thread}")
    for number in range(25):
        angle = chance.uniform(0, 6)
        ends = NOW + 10 if number % 5 == 0 else None
        made = entry(f"{process} {thread} {number}", unit(*(chance.gauss(0, 1) for _ in range(4))), expires=ends)
        store.put(made)
        if number % 3 == 0:
            assert store.remove(Filter(ids=(made.id,))) == 1 or ends is not None   # or swept meanwhile
        elif ends is None:
            kept.append(made.query)
        asked = unit(*(chance.gauss(0, 1) for _ in range(4)))
        for scored in store.nearest("s", asked, 8, NOW + 10 * (number % 2)):
            ours = struct.unpack("<4f", scored.entry.vector)
            score = sum(a * b for a, b in zip(ours, struct.unpack("<4f", asked)))
            assert abs(score - scored.score) < 1e-5
            assert scored.entry.expires is None or number % 2 == 0
        found = store.get_exact(made.exact, NOW)
        assert found is None or found.id == made.id
def safely(thread):
    try:
        work(thread)
    except BaseException as problem:
        problems.append(repr(problem))
threads = [threading.Thread(target=safely, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
store.close()
assert not problems, problems
print("\\n".join(kept))
"""

FORKER = """
import os, sys, threading, warnings
from headstay import database
from headstay.semantic.conformance import NOW, entry, queries, unit
from headstay.semantic.entry import Filter
from headstay.semantic.sqlite_store import SQLiteStore
database.BUSY_SECONDS = 30.0
warnings.simplefilter("ignore", DeprecationWarning)   # 3.12 warns that threads and fork do not mix: that is the point
store, memory = SQLiteStore(sys.argv[1]), SQLiteStore()
first = entry("first", unit(1.0, 0.0))
store.put(first); memory.put(first)
assert queries(store, unit(1.0, 0.0)) == queries(memory, unit(1.0, 0.0)) == ["first"]     # loaded before the fork
store.touch(first.id, NOW + 100)
stop = threading.Event()
def busy():
    number = 0
    while not stop.is_set():
        store.put(entry(f"parent {number % 50}", unit(1.0, number % 50 + 1.0)))
        store.nearest("s", unit(1.0, 0.0), 3, NOW)
        number += 1
thread = threading.Thread(target=busy)
thread.start()
children = []
for child in range(4):
    pid = os.fork()
    if not pid:
        assert not store._touched             # the parent writes that down
        for number in range(10):
            store.put(entry(f"child {child} {number}", unit(-1.0, child + number / 10)))
            assert f"child {child} {number}" in queries(store, unit(-1.0, child + number / 10), k=4)
            memory.put(entry(f"{number}", unit(0.0, 1.0)))
        store.close()
        os._exit(0)
    children.append(pid)
stop.set()
thread.join()
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
there = [found.query for found in store.page(Filter(), limit=1000).entries]
assert sum(query.startswith("child") for query in there) == 40
assert sorted(queries(store, unit(-1.0, 1.0), k=1000)) == sorted(there)
assert queries(memory, unit(1.0, 0.0)) == ["first"]
store.close()
assert store.show(first.id).hits == 1
"""


@contextmanager
def started(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": PATHS},
    ) as process:
        yield process


def test_complaint_17_twenty_killed_writers_lose_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    chance = random.Random(4)
    alive: set[int] = set()
    unsure: set[int] = set()
    for round_ in range(20):
        with started(ENDLESS, path, round_ * 1_000) as writer:
            assert writer.stdout is not None
            said = [writer.stdout.readline() for _ in range(chance.randrange(1, 40))]
            os.kill(writer.pid, signal.SIGKILL)
            said += [line for line in writer.stdout if line.endswith("\n")]
        for sign, number in (line.split() for line in said):
            (alive.add if sign == "+" else alive.discard)(int(number))
        last = max(alive)
        unsure |= {last + 1, last - 2} if last % 4 == 0 else {last + 1}  # put or removed, and not yet said
        with SQLiteStore(path) as store:
            check_whole(store, alive, unsure)


def check_whole(store: SQLiteStore, alive: set[int], unsure: set[int]) -> None:
    """All that was acknowledged is there, and each vector belongs to its row."""
    found = {int(one.query): one for one in store.page(Filter(), limit=10_000).entries}
    assert alive - unsure <= set(found) <= alive | unsure
    assert store.usage().entries == len(found)
    for number, one in found.items():
        assert store.get_exact(one.exact, NOW) == one
        assert one.answer == (one.vector or b"").hex()
        best = store.nearest(f"s{number % 3}", one.vector or b"", 1, NOW)[0]
        assert best.entry == one
        assert best.score == pytest.approx(1.0, abs=1e-6)


def test_complaint_18_a_crowd_of_threads_and_processes(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    kept: list[str] = []
    with ExitStack() as stack:
        crowd = [stack.enter_context(started(CROWD, path, number)) for number in range(4)]
        for process in crowd:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in crowd:
            said, complained = process.communicate(timeout=60)
            assert process.returncode == 0, complained
            kept += said.split("\n")[:-1]
    with SQLiteStore(path) as store:
        store.sweep(NOW + 10)
        assert sorted(one.query for one in store.page(Filter(), limit=10_000).entries) == sorted(kept)
        assert sorted(queries(store, unit(1.0, 0.0, 0.0, 0.0), k=10_000)) == sorted(kept)
    assert len(kept) > 200


def test_a_fork_with_a_busy_thread(tmp_path: Path) -> None:
    with started(FORKER, tmp_path / "answers.db") as process:
        _, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained


def test_an_index_follows_what_another_writes(tmp_path: Path) -> None:
    path = tmp_path / "answers.db"
    with SQLiteStore(path) as writer, SQLiteStore(path) as reader:
        chance = random.Random(3)
        alive: dict[str, Entry] = {}
        for number in range(400):
            if alive and chance.random() < 0.4:
                query = chance.choice(sorted(alive))
                assert writer.remove(Filter(ids=(alive.pop(query).id,))) == 1
            else:
                made = entry(str(number), unit(*(chance.gauss(0, 1) for _ in range(6))))
                writer.put(made)
                alive[made.query] = made
            if chance.random() < 0.3:
                asked = unit(*(chance.gauss(0, 1) for _ in range(6)))
                assert queries(reader, asked, k=5) == nearest_by_hand(alive, asked)[:5]
        # a reader that slept through more removals than the log keeps
        for number in range(1_100):
            writer.put(entry("comes and goes", unit(1.0, 0, 0, 0, 0, number / 1e4)))
        assert set(queries(reader, unit(1.0, 0, 0, 0, 0, 0), k=1_000)) == {*alive, "comes and goes"}
        assert (
            writer._read(lambda connection: connection.execute("SELECT count(*) FROM removed").fetchone()[0]) == 1_024
        )
        # and a scope that emptied and filled again meanwhile
        writer.remove(Filter(scope="s"))
        writer.put(entry("new", unit(0.0, 1.0, 0, 0, 0, 0)))
        assert queries(reader, unit(1.0, 0, 0, 0, 0, 0)) == ["new"]


def nearest_by_hand(alive: dict[str, Entry], asked: bytes) -> list[str]:
    def score(one: Entry) -> float:
        ours: tuple[float, ...] = struct.unpack("<6f", one.vector or b"")
        theirs: tuple[float, ...] = struct.unpack("<6f", asked)
        return sum(a * b for a, b in zip(ours, theirs, strict=True))

    return sorted(alive, key=lambda query: -score(alive[query]))
