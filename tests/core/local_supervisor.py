"""Supervisors as processes of their own, over the server that has no model."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headstay.local import state as states
from headstay.local.home import Home
from headstay.local.process import Process, end_group
from headstay.local.state import State

SERVER = Path(__file__).parent / "local_server.py"
PROGRAM = """
import sys
from pathlib import Path
from headstay.errors import HeadstayError
from headstay.local.home import Home
from headstay.local.supervise import serve
from headstay.local.watch import Patience, Service
home, mode, port, python, server = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5]
ready, hung, stop = (float(number) for number in sys.argv[6:9])
argument = "\\0" if mode == "impossible" else mode  # no program can be given that character
service = Service(lambda at: (python, server, str(at), argument), {"PATH": "/bin"}, "small", "a test")
patience = Patience(ready=ready, stop=stop, backoff=(0.01, 0.02), hung=hung)
try:
    serve(Home(home), service, lambda line: print(line, flush=True), port=port or None, patience=patience)
except HeadstayError as problem:
    sys.exit(f"headstay: {problem}")
"""
Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def supervisors(home: Home) -> Iterator[Start]:
    """Start supervisors; what is left of them is ended after the block."""
    begun: list[subprocess.Popen[str]] = []

    def run(
        mode: str = "well",
        *,
        port: int = 0,
        ready: float = 30.0,
        hung: float = 60.0,
        stop: float = 0.5,
        python: Path = Path(sys.executable),
        before: tuple[str, ...] = (),
        out: int = subprocess.PIPE,
    ) -> "subprocess.Popen[str]":
        told = (str(home.path), mode, str(port), str(python), str(SERVER), str(ready), str(hung), str(stop))
        command = [*before, sys.executable, "-c", PROGRAM, *told]
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        begun.append(child)
        return child

    yield run
    for child in begun:
        child.kill()
        child.communicate()
    state = states.read(home)
    if state is not None and state.server is not None and state.is_orphaned:
        end_group(state.server.pid, 0)


def until(met: Callable[[], object], what: str) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)


def ready(home: Home, restarts: int = 0) -> State:
    """Wait for a server that is watched and ready."""

    def is_so() -> bool:
        state = states.read(home)
        return state is not None and state.is_watched and state.phase == "ready" and state.restarts >= restarts

    until(is_so, "a ready server")
    return written(home)


def written(home: Home) -> State:
    """Return the state that is written down."""
    state = states.read(home)
    assert state is not None
    return state


def server_process(state: State) -> Process:
    """Return the process that leads the server's."""
    assert state.server is not None
    return state.server
