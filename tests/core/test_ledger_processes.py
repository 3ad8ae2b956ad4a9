"""One file, many writers: threads, processes, forks and sudden deaths."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from headstay.ledger import Ledger, Row

WRITER = """
import sys, threading
from headstay.ledger import Ledger, Row
path, process = sys.argv[1:]
sys.stdin.readline()                      # everyone starts together
ledger = Ledger(path, strict=True)
def write(thread):
    for number in range(50):
        ledger.append(Row(ts=1.0, lane=process, head=str(thread), epoch=number))
threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
ledger.close()
assert ledger.dropped == 0, ledger.errors
"""

ENDLESS = """
import sys
from headstay.ledger import Ledger, Row
ledger = Ledger(sys.argv[1], strict=True)
number = 0
while True:
    ledger.append(Row(ts=1.0, epoch=number))
    assert not ledger.errors
    print(number, flush=True)             # acknowledged
    number += 1
"""

FORKER = """
import os, sys, threading, warnings
from headstay.ledger import Ledger, Row
warnings.simplefilter("ignore", DeprecationWarning)   # 3.12 warns that threads and fork do not mix: that is the point
ledger = Ledger(sys.argv[1], strict=True)
memory = Ledger()
stop = threading.Event()
def busy():
    while not stop.is_set():
        ledger.append(Row(ts=1.0, lane="parent"))
        memory.append(Row(ts=1.0))
thread = threading.Thread(target=busy)
thread.start()
children = []
for child in range(5):
    pid = os.fork()
    if not pid:
        for number in range(20):
            ledger.append(Row(ts=1.0, lane="child", head=str(child), epoch=number))
            memory.append(Row(ts=1.0))
        ledger.close()
        os._exit(len(ledger.errors))
    children.append(pid)
stop.set()
thread.join()
ledger.append(Row(ts=1.0, lane="parent", head="last"))
ledger.close()                            # the children may still be writing
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
assert not ledger.errors
"""

OUTLIVED = """
import os, sys
from headstay.ledger import Ledger, Row
ledger = Ledger(sys.argv[1], strict=True)
ledger.append(Row(ts=1.0, lane="parent"))
closed, tell = os.pipe()
pid = os.fork()
if not pid:
    ledger.append(Row(ts=1.0, lane="child", epoch=0))
    os.read(closed, 1)                    # by now the parent, the last one it knows of, has closed the file
    ledger.append(Row(ts=1.0, lane="child", epoch=1))
    os._exit(len(ledger.errors))
ledger.close()
os.write(tell, b".")
assert os.waitpid(pid, 0)[1] == 0
"""

WAITING_AT_FORK = """
import os, sqlite3, sys
from headstay import database
from headstay.ledger import Ledger, Row
database.BUSY_SECONDS = 0.0
ledger = Ledger(sys.argv[1], strict=True)
lock = sqlite3.connect(sys.argv[1], isolation_level=None)
lock.execute("BEGIN IMMEDIATE")
ledger.append(Row(ts=1.0, lane="parent"))
assert len(ledger.errors) == 1
lock.execute("ROLLBACK")
lock.close()
pid = os.fork()
if not pid:
    ledger.append(Row(ts=1.0, lane="child"))
    ledger.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""

UNCLOSED = """
import sqlite3, sys, threading
from headstay import database
from headstay.ledger import Ledger, Row
database.BUSY_SECONDS = 0.0
ledger = Ledger(sys.argv[1], strict=True)
lock = sqlite3.connect(sys.argv[1], isolation_level=None)
lock.execute("BEGIN IMMEDIATE")
ledger.append(Row(ts=1.0))                # has to wait in memory
assert len(ledger.errors) == 1
lock.execute("ROLLBACK")

def keep(ledger):                         # a thread that never ends keeps the object alive to the very end
    threading.Event().wait()

threading.Thread(target=keep, args=(ledger,), daemon=True).start()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], text: str = "") -> None:
    process.communicate(text, timeout=60)
    assert process.returncode == 0


def test_threads_and_processes_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"  # nobody has made it yet: they race for that too
    writers = [start(WRITER, path, process) for process in range(4)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        finish(writer)
    with Ledger(path, read_only=True) as ledger:
        seen = Counter((row.lane, row.head, row.epoch) for row in ledger.rows())
    assert seen == Counter((str(p), str(t), n) for p in range(4) for t in range(4) for n in range(50))


def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    writer = start(ENDLESS, path)
    assert writer.stdout is not None
    while int(last := writer.stdout.readline()) < 200:
        pass
    os.kill(writer.pid, signal.SIGKILL)
    acknowledged = int([last, *(line for line in writer.stdout if line.endswith("\n"))][-1])
    writer.communicate(timeout=60)
    with Ledger(path, strict=True) as ledger:
        numbers = [row.epoch for row in ledger.rows()]
    # at most the one row that was being acknowledged may be there besides
    assert numbers in (list(range(acknowledged + 1)), list(range(acknowledged + 2)))


def test_forked_children_write_beside_a_busy_parent(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    finish(start(FORKER, path))
    with Ledger(path, read_only=True) as ledger:
        rows = list(ledger.rows())
    children = Counter((row.head, row.epoch) for row in rows if row.lane == "child")
    assert children == Counter((str(child), number) for child in range(5) for number in range(20))
    assert [row.head for row in rows if row.lane == "parent"][-1] == "last"


def test_a_child_outlives_its_parents_connection(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    finish(start(OUTLIVED, path))
    with Ledger(path, read_only=True) as ledger:
        assert sorted((row.lane, row.epoch) for row in ledger.rows()) == [("child", 0), ("child", 1), ("parent", 0)]


def test_a_child_does_not_write_what_its_parent_will(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    finish(start(WAITING_AT_FORK, path))
    with Ledger(path, read_only=True) as ledger:
        assert sorted(row.lane for row in ledger.rows()) == ["child", "parent"]


def test_what_waits_is_written_at_exit(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    finish(start(UNCLOSED, path))
    with Ledger(path, read_only=True) as ledger:
        assert list(ledger.rows()) == [Row(ts=1.0)]


def test_a_ledger_that_goes_away_lets_go_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).append(Row(ts=1.0))
    # the last connection to go removes SQLite's side files
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["ledger.db"]
    with Ledger(path, read_only=True) as ledger:
        assert list(ledger.rows()) == [Row(ts=1.0)]
