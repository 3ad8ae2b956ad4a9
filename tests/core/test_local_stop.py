"""How a server ends: by signals, by `stop`, and after its supervisor, whoever is left of them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.core.local_supervisor import Start, ready, server_process, supervisors, until, written

from headstay.local import state as states
from headstay.local import supervise, warm
from headstay.local.client import server_at
from headstay.local.home import Home
from headstay.local.process import group_members, identify, is_left, is_running
from headstay.local.state import State
from headstay.local.watch import Patience


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    with supervisors(home) as run:
        yield run


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


def test_a_second_signal_waits_no_longer(home: Home, start: Start) -> None:
    child = start("stubborn", stop=60.0)
    server = server_process(ready(home))
    until((home.run / "child").exists, "the stubborn child")
    child.send_signal(signal.SIGINT)
    until(lambda: not is_running(server), "the end of all that listen to SIGTERM")
    assert len(group_members(server.pid)) == 1
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=20)
    assert group_members(server.pid) == []
    assert (child.returncode, written(home).phase) == (0, "stopped")


def test_a_signal_is_heeded_while_the_server_keeps_its_supervisor_waiting(home: Home, start: Start) -> None:
    child = start("wordless")
    until((home.run / "asked").exists, "a question about the chat template")
    server = server_process(written(home))
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=20)
    assert (child.returncode, written(home).phase) == (0, "stopped")
    assert group_members(server.pid) == []


def test_a_signal_is_heeded_while_a_head_is_warmed_again(home: Home, start: Start) -> None:
    child = start("stalled")
    state = ready(home)
    warm.remember(home, {"model": "small", "messages": [{"role": "system", "content": "Be brief."}]})
    os.killpg(server_process(state).pid, signal.SIGKILL)
    until((home.run / "asked").exists, "the head")
    server = server_process(written(home))
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)
    assert (child.returncode, written(home).phase) == (0, "stopped")
    assert group_members(server.pid) == []


def test_a_server_outlives_its_terminal_under_nohup(home: Home, start: Start) -> None:
    child = start(before=("nohup",))
    first = ready(home)
    child.send_signal(signal.SIGHUP)
    os.killpg(server_process(first).pid, signal.SIGKILL)
    assert ready(home, restarts=1).supervisor == first.supervisor


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


def test_a_state_of_another_version_is_read_as_far_as_it_is_known(home: Home) -> None:
    itself = identify(os.getpid())
    assert itself is not None
    state = State("ready", "http://127.0.0.1:9/v1", "small", "a test", itself, itself, 0, 0.0, "", block=32)
    told = asdict(state)
    del told["in_place_system"]
    told |= {"speed": 5, "supervisor": {**told["supervisor"], "name": "x"}, "server": {**told["server"], "name": "y"}}
    home.run.mkdir(parents=True)
    (home.run / "state.json").write_text(json.dumps(told))
    assert states.read(home) == state


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


@pytest.mark.parametrize("by", ["stop", "start"])
def test_what_is_left_of_a_server_that_died_after_its_supervisor_is_ended(home: Home, start: Start, by: str) -> None:
    child = start("stubborn")
    state = ready(home)
    server = server_process(state)
    until((home.run / "child").exists, "the stubborn child")
    child.kill()
    child.wait()
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not is_running(server), "the end of the leader")
    assert len(group_members(server.pid)) == 1
    assert state.is_orphaned
    if by == "stop":
        assert supervise.stop(home, patience=Patience(stop=0.1))
        assert (written(home).phase, written(home).server) == ("stopped", None)
    else:
        start()
        until(lambda: written(home).supervisor != state.supervisor, "the next start")
    assert group_members(server.pid) == []


def test_a_group_is_known_by_more_than_its_number() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "import os, time; os.fork(); time.sleep(60)"], start_new_session=True
    )
    leader = identify(child.pid)
    assert leader is not None
    until(lambda: len(group_members(leader.pid)) == 2, "the child's child")
    boot, _, tick = leader.born.partition(":")
    assert is_left(leader)
    assert not is_left(replace(leader, born=f"another:{tick}"))
    assert not is_left(replace(leader, born=f"{boot}:{int(tick) + 1}"))
    child.kill()
    until(lambda: not is_running(leader), "its end")
    assert is_left(leader)
    child.wait()  # its exit code is read, so its number is free as far as it can be
    assert is_left(leader)
    os.killpg(leader.pid, signal.SIGKILL)
    until(lambda: not is_left(leader), "the end of both")


def test_a_supervisor_that_does_not_listen_is_killed_and_its_server_ended(home: Home, start: Start) -> None:
    child = start()
    state = ready(home)
    os.kill(child.pid, signal.SIGSTOP)
    assert supervise.stop(home, patience=Patience(stop=0.1, late=0.1))
    assert child.wait(timeout=20) == -signal.SIGKILL
    assert group_members(server_process(state).pid) == []
    assert (written(home).phase, written(home).server) == ("stopped", None)
    assert not server_at(state.base_url).is_healthy()


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
