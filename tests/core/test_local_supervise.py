"""The supervisor, as a process of its own, over a real server process that has no model."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headstay.errors import ConfigError, LocalError
from headstay.local import state as states
from headstay.local import supervise, warm
from headstay.local.client import Server, server_at
from headstay.local.home import Home
from headstay.local.process import Process, end_group, group_members, identify, is_running
from headstay.local.state import State

SERVER = Path(__file__).parent / "local_server.py"
PROGRAM = """
import sys
from pathlib import Path
from headstay.errors import HeadstayError
from headstay.local.home import Home
from headstay.local.supervise import serve
from headstay.local.watch import Patience, Service
home, mode, port, ready = Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
service = Service(lambda at: (sys.executable, sys.argv[5], str(at), mode), {"PATH": "/bin"}, "small", "a test")
patience = Patience(ready=ready, stop=0.5, backoff=(0.01, 0.02), hung=float(sys.argv[6]))
try:
    serve(Home(home), service, lambda line: print(line, flush=True), port=int(port) or None, patience=patience)
except HeadstayError as problem:
    sys.exit(f"headstay: {problem}")
"""
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    """Start a supervisor; what is left of them is ended after the test."""
    begun: list[subprocess.Popen[str]] = []

    def run(mode: str = "well", *, port: int = 0, ready: float = 30.0, hung: float = 60.0) -> "subprocess.Popen[str]":
        numbers = (str(port), str(ready), str(SERVER), str(hung))
        command = [sys.executable, "-c", PROGRAM, str(home.path), mode, *numbers]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        begun.append(child)
        return child

    yield run
    for child in begun:
        child.kill()
        child.communicate()
    state = states.read(home)
    if state is not None and state.server is not None and is_running(state.server):
        end_group(state.server.pid, 0)


def until(met: Callable[[], object], what: str) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.01)


def ready(home: Home, restarts: int = 0) -> State:
    def is_so() -> bool:
        state = states.read(home)
        return state is not None and state.is_watched and state.phase == "ready" and state.restarts >= restarts

    until(is_so, "a ready server")
    state = states.read(home)
    assert state is not None
    return state


def server_process(state: State) -> Process:
    assert state.server is not None
    return state.server


def test_it_starts_tells_its_url_and_stops(home: Home, start: Start) -> None:
    child = start()
    state = ready(home)
    server = server_at(state.base_url)
    assert server.is_healthy()
    assert server.models() == [state.model] == ["small"]
    assert (state.block, state.context, state.in_place_system) == (4, 2048, True)
    assert server_process(state).pid != os.getpgrp()
    assert supervise.stop(home)
    out, err = child.communicate(timeout=20)
    assert out.splitlines() == [f"ready: {state.base_url}  model: small", "stopping"]
    assert (err, child.returncode) == ("", 0)
    assert group_members(server_process(state).pid) == []
    ended = states.read(home)
    assert ended is not None
    assert (ended.phase, ended.server) == ("stopped", None)
    assert not supervise.stop(home)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_with_all_its_processes(home: Home, start: Start, number: signal.Signals) -> None:
    child = start("stubborn")
    group = server_process(ready(home)).pid
    until((home.run / "child").exists, "the stubborn child")
    assert len(group_members(group)) == 2
    child.send_signal(number)
    child.communicate(timeout=20)
    assert child.returncode == 0
    assert group_members(group) == []


def test_a_server_that_ends_before_it_is_ready_is_not_started_again(home: Home, start: Start) -> None:
    _, err = start("broken").communicate(timeout=20)
    assert "ended before it was ready: ValueError: there is no room for the cache (log: " in err
    assert (home.run / "starts").read_text() == "x"
    state = states.read(home)
    assert state is not None
    assert (state.phase, state.server) == ("failed", None)
    assert "no room for the cache" in state.message


def test_a_server_that_is_never_well_is_ended(home: Home, start: Start) -> None:
    _, err = start("mute", ready=0.5).communicate(timeout=20)
    assert "not ready after 0 s" in err or "not ready after 1 s" in err
    assert str(home.server_log) in err


def test_a_dead_server_comes_again_at_the_same_url_with_its_heads_warm(home: Home, start: Start) -> None:
    child = start()
    state = ready(home)
    head = {"model": "small", "messages": [{"role": "system", "content": "Be brief. " * 10}]}
    first = warm.warm(server_at(state.base_url), head)
    assert first.before == 0
    assert first.is_warm
    warm.remember(home, head)
    os.killpg(server_process(state).pid, signal.SIGKILL)
    again = ready(home, restarts=1)
    assert again.base_url == state.base_url
    assert again.server != state.server
    assert again.restarts == 1
    # 2 characters of absent tools, 8 of `<system>`, 100 of text and 6 of `<user>` are 116, or 29 blocks of 4
    third = warm.warm(server_at(again.base_url), head)
    assert (third.head_tokens, third.expected) == (116, 116)
    assert third.before >= 116
    supervise.stop(home)
    out, _ = child.communicate(timeout=20)
    assert "the server died (it was killed by SIGKILL" in out
    assert f"warmed again: {first.cached} tokens" in out


def test_a_server_that_lives_and_does_not_answer_is_started_again(home: Home, start: Start) -> None:
    start(hung=1.0)
    first = ready(home)
    assert first.server is not None
    os.kill(first.server.pid, signal.SIGSTOP)
    second = ready(home, restarts=1)
    assert second.base_url == first.base_url
    assert not is_running(first.server)
    assert server_at(second.base_url).is_healthy()


def test_a_server_that_dies_again_and_again_is_given_up(home: Home, start: Start) -> None:
    child = start("twice")
    state = ready(home)
    end_group(server_process(state).pid, 0)
    _, err = child.communicate(timeout=30)
    assert "died 3 times in a row" in err
    assert "no room for the cache" in err
    assert (home.run / "starts").read_text() == "xxx"  # the first, and one for each of two waits
    ended = states.read(home)
    assert ended is not None
    assert ended.phase == "failed"


def test_a_state_that_cannot_be_written_ends_a_start_and_no_running_server(home: Home, start: Start) -> None:
    home.run.mkdir(parents=True)
    hindrance = home.run / "state.part"
    hindrance.mkdir()
    _, err = start().communicate(timeout=20)
    assert f"headstay: {home.run / 'state.json'}: cannot be written: Is a directory" in err
    hindrance.rmdir()
    start()
    state = ready(home)
    starts = (home.run / "starts").read_text()
    hindrance.mkdir()
    os.killpg(server_process(state).pid, signal.SIGKILL)
    server = server_at(state.base_url)
    until(lambda: (home.run / "starts").read_text() == starts + "x", "another start")
    until(server.is_healthy, "the server")
    hindrance.rmdir()
    os.kill(state.supervisor.pid, signal.SIGTERM)
    until(lambda: not state.is_watched, "the end")
    assert not server.is_healthy()


def test_a_full_disk_ends_a_start_and_no_running_server(home: Home, start: Start) -> None:
    home.run.mkdir(parents=True)
    part = home.run / "state.part"
    part.symlink_to("/dev/full")  # whatever is written there, the kernel says that the disk is full
    _, err = start().communicate(timeout=20)
    assert f"headstay: {home.run / 'state.json'}: cannot be written: No space left on device" in err
    assert states.read(home) is None
    part.unlink(missing_ok=True)
    child = start()
    state = ready(home)
    starts = (home.run / "starts").read_text()
    part.symlink_to("/dev/full")
    os.killpg(server_process(state).pid, signal.SIGKILL)
    server = server_at(state.base_url)
    until(lambda: (home.run / "starts").read_text() == starts + "x", "another start")
    until(server.is_healthy, "the server")
    fill_heads(home, {"messages": []})
    with pytest.raises(LocalError, match="No space left on device"):
        warm.remember(home, {"messages": []})
    assert warm.remembered(home) == []
    os.kill(state.supervisor.pid, signal.SIGTERM)
    out, _ = child.communicate(timeout=20)
    assert "cannot be written: No space left on device" in out
    assert not server.is_healthy()


def fill_heads(home: Home, head: dict[str, Any]) -> None:
    """Make the disk full for a head, too."""
    folder = home.run / "heads"
    folder.mkdir()
    name = hashlib.sha256(json.dumps(head).encode()).hexdigest()[:16]
    (folder / f"{name}.part").symlink_to("/dev/full")


def test_two_starts_at_once_make_one_server(home: Home, start: Start) -> None:
    both = [start(), start()]
    state = ready(home)
    until(lambda: any(child.poll() is not None for child in both), "the end of one")
    (late,) = [child for child in both if child.poll() is not None]
    _, err = late.communicate()
    assert "a server runs already" in err or "try again in a moment" in err
    with pytest.raises(LocalError, match=r"a server runs already at http://127.*headstay local stop"):
        supervise.refuse_second(home)
    assert (home.run / "starts").read_text() == "x"
    assert server_at(state.base_url).is_healthy()


def test_a_port_in_use_is_told_before_anything_starts(home: Home, start: Start) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        _, err = start(port=port).communicate(timeout=20)
    assert f"--port {port}: Address already in use" in err
    assert not (home.run / "starts").exists()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="leave it out for a free one"):
            supervise.choose_port(other.getsockname()[1])


def test_a_free_port_that_is_taken_meanwhile_is_replaced_and_a_given_one_is_not(home: Home, start: Start) -> None:
    child = start("taken")
    assert server_at(ready(home).base_url).is_healthy()
    supervise.stop(home)
    assert "the port that was free is taken: trying another" in child.communicate(timeout=20)[0]
    (home.run / "starts").unlink()
    _, err = start("taken", port=supervise.choose_port(None)).communicate(timeout=20)
    assert "Address already in use" in err


def test_another_server_at_the_port_is_not_taken_for_ours(home: Home, start: Start) -> None:
    _, err = start("other").communicate(timeout=20)
    assert "it is another server" in err
    assert not (home.run / "heads").exists()


def test_the_given_port_is_taken(home: Home, start: Start) -> None:
    port = supervise.choose_port(None)
    start(port=port)
    assert ready(home).base_url == f"http://127.0.0.1:{port}/v1"


def test_a_stale_state_file_hinders_nothing(home: Home, start: Start) -> None:
    itself = identify(os.getpid())
    assert itself is not None
    stale = State(
        phase="ready",
        base_url="http://127.0.0.1:9/v1",
        model="small",
        device="a test",
        supervisor=replace(itself, born="another time"),  # the number is in use again, by this test
        server=replace(itself, born="another time"),
        restarts=0,
        since=0.0,
        log="",
    )
    home.run.mkdir(parents=True)
    states.write(home, stale)
    assert states.read(home) == stale
    assert not stale.is_watched
    assert not stale.is_orphaned
    assert not supervise.stop(home)
    start()
    assert ready(home).supervisor.pid != os.getpid()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"phase": "ready"}', '{"server": 5, "supervisor": {}}'])
def test_a_damaged_state_file_is_none(home: Home, text: str) -> None:
    home.run.mkdir(parents=True)
    (home.run / "state.json").write_text(text)
    assert states.read(home) is None


def test_the_server_of_a_killed_supervisor_is_ended_by_the_next_start(home: Home, start: Start) -> None:
    first = start()
    state = ready(home)
    first.kill()
    first.wait()
    assert state.is_orphaned
    second = start()
    until(lambda: (now := states.read(home)) is not None and now.supervisor.pid == second.pid, "the next start")
    ready(home)
    assert not is_running(server_process(state))


def test_the_server_of_a_killed_supervisor_can_be_stopped(home: Home, start: Start) -> None:
    child = start()
    state = ready(home)
    child.kill()
    child.wait()
    assert supervise.stop(home)
    assert group_members(server_process(state).pid) == []
    assert not supervise.stop(home)


def test_a_process_is_known_by_more_than_its_number() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    known = identify(child.pid)
    assert known is not None
    assert is_running(known)
    assert not is_running(replace(known, born="another time"))
    child.kill()
    until(lambda: not is_running(known), "its end")  # though nobody has read its exit code yet
    child.communicate()
    assert identify(child.pid) is None


def test_a_log_begins_anew_with_each_start(home: Home, start: Start) -> None:
    start("broken").communicate(timeout=20)
    start("broken").communicate(timeout=20)
    assert home.server_log.read_text().count("headstay: start") == 1
    assert (home.run / "server.log.1").exists()
    assert home.server_log.stat().st_mode & 0o077 == 0


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    nobody = Server(f"http://127.0.0.1:{supervise.choose_port(None)}")
    assert not nobody.is_healthy()
    with pytest.raises(LocalError, match=r"no answer: .*refused"):
        nobody.models()
    assert nobody.figures() is None
    assert nobody.tokens({"messages": []}) is None
    assert json.dumps({"origin": nobody.origin}).startswith('{"origin": "http://127')
