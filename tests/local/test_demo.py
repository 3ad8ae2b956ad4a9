"""`headstay demo --local` on real vLLM: what it tells, and that nothing of it is left, however it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstay.local import state as states
from headstay.local.client import server_at
from headstay.local.home import Home
from headstay.local.process import group_members, is_running
from headstay.local.state import State
from langgraph_headstay.demo_local import lines, run_demo, short_work

# Where the tests run in the background, an interrupt is ignored, and what they start would ignore it too.
DEMO = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from headstay.cli import main; main()"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder with a short name, as temporary folders have: vLLM's sockets must fit behind it."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


def start(local: Any, folder: Path) -> "subprocess.Popen[str]":
    """Start the demo, with its temporary folder inside the given one."""
    return subprocess.Popen(
        [sys.executable, "-u", "-c", DEMO, "demo", "--local"],
        env={**os.environ, "HEADSTAY_LOCAL_HOME": str(local.home.path), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started(folder: Path, demo: "subprocess.Popen[str]") -> State:
    """Wait until the demo's supervisor has started its server."""
    deadline = time.monotonic() + 60
    while True:
        found = [states.read(Home(path)) for path in folder.glob("headstay-*")]
        if found and found[0] is not None and found[0].server is not None:
            return found[0]
        assert demo.poll() is None, demo.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_gone(state: State, patience: float = 30.0) -> bool:
    """Tell whether the supervisor and every process of its server end in time."""
    assert state.server is not None
    until = time.monotonic() + patience
    while is_running(state.supervisor) or group_members(state.server.pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_the_demo_tells_what_vllm_read_and_leaves_nothing(
    local: Any, base_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    found: list[State] = []

    def say(line: str) -> None:
        if line.startswith("ready"):
            found.extend(filter(None, [states.read(Home(path)) for path in folder.glob("headstay-*")]))

    told = run_demo(local.home, say=say, work=short_work((2, 3, 6), 1), rounds=1)
    cold, warm = told["first_token"]["cold"], told["first_token"]["warm"]
    assert cold["cached"] == 0
    assert warm["cached"] % told["server"]["block"] == 0
    assert warm["prompt"] - warm["cached"] < 100
    assert cold["ms"] > warm["ms"] > 0
    plain, ours = told["results"]
    assert (plain["calls"], ours["calls"]) == (7, 7)
    assert ours["verdicts"] == {"cold": 2, "ok": 5}  # two tenants
    assert ours["share_of_expected"] >= 0.98
    assert ours["share_of_prompt"] > 0.6 > 0.4 > plain["share_of_prompt"]
    assert f"{warm['cached']:,} of {warm['prompt']:,}" in "\n".join(lines(told))
    (state,) = found
    assert is_gone(state, 0)
    assert list(folder.iterdir()) == []
    assert server_at(base_url).is_healthy()  # the user's own server


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_demo_and_its_server(local: Any, folder: Path, number: signal.Signals, code: int) -> None:
    demo = start(local, folder)
    state = started(folder, demo)
    demo.send_signal(number)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == code
    assert "Traceback" not in err
    assert is_gone(state, 0)
    assert list(folder.iterdir()) == []


def test_the_server_does_not_outlive_a_demo_that_was_killed(local: Any, folder: Path) -> None:
    demo = start(local, folder)
    state = started(folder, demo)
    demo.kill()
    demo.communicate(timeout=60)
    assert is_gone(state)
