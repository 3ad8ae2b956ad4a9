"""The head store: in memory, in a file, across restarts, processes and forks, and on files that are none."""

import copy
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headstay.divergence import HeadForm
from headstay.errors import HeadStoreError
from headstay.flow import Flow, Settings
from headstay.headstore import MAX_HEADS, CallRecord, HeadRecord, HeadStore, LaneState
from headstay.toolset import ToolState

CALL = CallRecord(
    scope="s",
    thread="t",
    link=b"l" * 16,
    lane="lane",
    head=b"h" * 16,
    semi=b"",
    model="m",
    trail=b"",
    conversation="c",
    epoch=0,
    turn=0,
    held="{}",
    cached=None,
    at=1.0,
)
FORM = HeadForm(("Be kind, [[name]]. \ud800",), {"a": '{"name":"a"}'})

WRITER = """
import sys
from dataclasses import replace
from tests.core.test_headstore import CALL, HeadRecord, HeadStore, FORM
path, name = sys.argv[1:]
sys.stdin.readline()                       # both start together
with HeadStore(path, strict=True) as store:
    for number in range(100):
        store.save_call(replace(CALL, thread=name, link=number.to_bytes(16, "big"), at=float(number)))
        store.save_head(name, HeadRecord(bytes([number]), FORM, number, float(number)))
"""

FORKER = """
import os, sys, threading
from dataclasses import replace
from tests.core.test_headstore import CALL, HeadStore
store, memory, stop = HeadStore(sys.argv[1], strict=True), HeadStore(), threading.Event()
def busy():
    while not stop.is_set():
        store.save_call(replace(CALL, thread="parent"))
        memory.save_call(CALL)
thread = threading.Thread(target=busy)
thread.start()
children = []
for child in range(5):
    pid = os.fork()
    if not pid:
        for number in range(20):
            store.save_call(replace(CALL, thread="child", link=bytes([child, number])))
            memory.save_call(CALL)
        store.close()
        os._exit(len(store.failures))
    children.append(pid)
stop.set()
thread.join()
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
assert store.latest("s", "parent") is not None
assert len(store._run("SELECT 1 FROM calls WHERE thread = 'child'", ())) == 100
assert not store.failures
"""

SENDER = """
import json, sys
from headstay.flow import Flow, Settings
from headstay.headstore import HeadStore
flow = Flow(Settings("desk", on_break="record"), head_store=HeadStore(sys.argv[1], strict=True))
tools = [{"name": name, "input_schema": {"type": "object"}} for name in sys.argv[2].split(",")]
body = {"model": "claude-opus-5", "system": "Be kind.", "tools": tools, "messages": [{"role": "user", "content": "x"}]}
call = flow.prepare(body, wire="anthropic-messages", now=float(sys.argv[3]))
flow.complete(call, None)
print(call.plan.head_hash.hex(), [tool["name"] for tool in call.body["tools"]], call.opening)
"""


def python(script: str, *arguments: str) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "core")])
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def finish(process: subprocess.Popen[str]) -> str:
    said, complained = process.communicate("go\n", timeout=60)
    assert process.returncode == 0, complained
    return said.strip()


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> HeadStore:
    return HeadStore(tmp_path / "deep" / "heads.db" if request.param == "file" else None, strict=True)


def test_what_is_kept_comes_back(store: HeadStore) -> None:
    assert store.lane("x") == LaneState()
    state = LaneState(ToolState(("a", "b"), {"a": "{}", "b": "\ud800"}), 4.5)
    store.save_lane("x", state)
    assert store.lane("x") == state
    store.save_ratio("x", 3.25)
    store.save_ratio("y", 2.5)
    assert (store.lane("x").bytes_per_token, store.lane("x").tools) == (3.25, state.tools)
    assert store.lane("y") == LaneState(ToolState(), 2.5)
    assert store.head("x", b"h") is None
    store.save_head("x", HeadRecord(b"h", FORM, None, 5.0))
    store.save_head("x", HeadRecord(b"h", HeadForm((), {}), 700, 4.0))
    assert store.head("x", b"h") == HeadRecord(b"h", FORM, 700, 5.0)  # the form stays, and the later use counts
    store.save_head("x", HeadRecord(b"h", FORM, None, 6.0))
    assert store.head("x", b"h") == HeadRecord(b"h", FORM, 700, 6.0)
    assert store.heads("y") == []
    store.save_call(CALL)
    assert store.calls("s", "t", [b"x", CALL.link]) == [CALL]
    assert store.calls("s", "other", [CALL.link]) == store.calls("other", "t", [CALL.link]) == []
    later = replace(CALL, at=2.0, turn=1)
    store.save_call(later)
    assert store.calls("s", "t", [CALL.link]) == [later]
    assert store.latest("s", "t") == later
    assert store.latest("s", "u") is None
    store.close()
    assert store.latest("s", "t") == later  # a later use opens it again


def test_a_head_for_every_call_does_not_fill_the_store(store: HeadStore) -> None:
    for number in range(10 * MAX_HEADS):
        store.save_head("x", HeadRecord(number.to_bytes(2, "big"), FORM, None, float(number)))
        store.save_call(CALL)
    kept = store.heads("x")
    assert len(kept) == MAX_HEADS
    assert kept[0].head == (10 * MAX_HEADS - 1).to_bytes(2, "big")
    assert len(store._run("SELECT 1 FROM heads", ())) <= 2 * MAX_HEADS


def test_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "heads.db"
    with HeadStore(path, strict=True) as store:
        store.save_call(CALL)
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert set(modes) >= {"heads.db", "heads.db-wal"}
    assert set(modes.values()) == {0o600}
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert repr(store) == f"HeadStore({str(path)!r})"
    assert repr(HeadStore()) == "HeadStore()"


def test_copies_are_the_store_and_pickles_open_the_same_file(tmp_path: Path) -> None:
    store = HeadStore(tmp_path / "heads.db", strict=True)
    store.save_call(CALL)
    assert copy.copy(store) is store
    assert copy.deepcopy(store) is store
    again = pickle.loads(pickle.dumps(store))
    assert again.latest("s", "t") == CALL
    flow = pickle.loads(pickle.dumps(Flow(Settings("desk"), head_store=store)))
    assert flow.head_store.latest("s", "t") == CALL
    assert flow.settings.agent == "desk"


def test_a_restart_and_another_process_send_the_same_head(tmp_path: Path) -> None:
    path = str(tmp_path / "heads.db")
    first = finish(python(SENDER, path, "b,c", "1"))
    assert first.split(" ", 1)[1] == "['b', 'c'] True"
    restarted = finish(python(SENDER, path, "c,b", "2"))
    assert restarted == first.replace("True", "False")
    # a tool that came late stays at the end for every process
    late = finish(python(SENDER, path, "a,b,c", "3"))
    assert late.split(" ", 1)[1].startswith("['b', 'c', 'a']")
    both = [python(SENDER, path, order, "4") for order in ("a,b,c", "c,b,a")]
    assert {finish(process).rsplit(" ", 1)[0] for process in both} == {late.rsplit(" ", 1)[0]}


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "heads.db"
    writers = [python(WRITER, str(path), name) for name in ("one", "two")]
    for writer in writers:
        finish(writer)
    with HeadStore(path, strict=True) as store:
        assert len(store._run("SELECT 1 FROM calls", ())) == 200
        assert [store.heads(name)[0].tokens for name in ("one", "two")] == [99, 99]


def test_a_fork_with_a_busy_thread(tmp_path: Path) -> None:
    finish(python(FORKER, str(tmp_path / "heads.db")))


def test_threads_share_a_store(store: HeadStore) -> None:
    def write(name: str) -> None:
        for number in range(50):
            store.save_head(name, HeadRecord(bytes([number]), FORM, None, float(number)))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.heads(name)[0].used for name in "abcd"] == [49.0] * 4


def make_text(path: Path) -> None:
    path.write_text("just some notes\n" * 99)


def make_other(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def make_newer(path: Path) -> None:
    HeadStore(path, strict=True).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_in_the_way(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file where a folder should be")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_text, "cannot use .* as a head store: file is not a database"),
        (make_other, "not one of headstay's files: head store"),
        (make_newer, r"written by another version of headstay \(schema 99, this one knows 3\)"),
        (make_folder, "cannot open the head store"),
        (make_in_the_way, "cannot open the head store"),
    ],
)
def test_a_file_that_cannot_be_used(
    make: Callable[[Path], None], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sub" / "heads.db"
    path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(HeadStoreError, match=said):
        HeadStore(path, strict=True)
    store = HeadStore(path)
    store.save_call(CALL)
    assert store.latest("s", "t") == CALL
    assert (path.read_bytes() if path.is_file() else b"") == before  # left for whoever has to look into it
    assert len(store.failures) == 1
    (warning,) = caplog.messages
    assert warning.endswith("Working in memory until the process ends.")


def test_a_busy_file_costs_a_record_and_not_the_store(tmp_path: Path) -> None:
    path = tmp_path / "heads.db"
    store = HeadStore(path)
    store.save_call(CALL)
    store._run("PRAGMA busy_timeout = 1", ())
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    store.save_ratio("x", 4.0)
    assert store.latest("s", "t") == CALL  # reading goes on
    blocker.execute("COMMIT")
    blocker.close()
    assert ["was busy" in failure for failure in store.failures] == [True]
    store.save_ratio("x", 5.0)
    store.close()
    assert HeadStore(path, strict=True).lane("x").bytes_per_token == 5.0
