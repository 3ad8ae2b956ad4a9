"""The supervisor, as a process of its own, over a real server process that has no model: starts and restarts."""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from fcntl import F_DUPFD, fcntl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.core.local_supervisor import Start, ready, server_process, supervisors, until, written

from headstay.errors import ConfigError, LocalError
from headstay.local import log, supervise, warm
from headstay.local import state as states
from headstay.local.client import Server, Traits, server_at
from headstay.local.home import Home
from headstay.local.process import end_group, group_members, is_running, listens


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    with supervisors(home) as run:
        yield run


def test_it_starts_tells_its_url_and_stops(home: Home, start: Start) -> None:
    child = start()
    state = ready(home)
    server = server_at(state.base_url)
    assert server.is_healthy()
    assert server.models() == [state.model] == ["small"]
    assert (state.block, state.context, state.in_place_system) == (4, 2048, True)
    assert os.getpgid(server_process(state).pid) == server_process(state).pid != os.getpgid(child.pid)
    assert supervise.stop(home)
    out, err = child.communicate(timeout=20)
    assert out.splitlines() == [f"ready: {state.base_url}  model: small", "stopping"]
    assert (err, child.returncode) == ("", 0)
    assert group_members(server_process(state).pid) == []
    ended = written(home)
    assert (ended.phase, ended.server) == ("stopped", None)
    assert not supervise.stop(home)


def test_a_server_that_ends_before_it_is_ready_is_not_started_again(home: Home, start: Start) -> None:
    _, err = start("broken").communicate(timeout=20)
    assert "ended before it was ready: ValueError: there is no room for the cache (log: " in err
    assert (home.run / "starts").read_text() == "x"
    state = written(home)
    assert (state.phase, state.server) == ("failed", None)
    assert "no room for the cache" in state.message


def test_a_server_that_is_never_well_is_ended(home: Home, start: Start) -> None:
    child = start("mute", ready=1.0)
    until(lambda: (state := states.read(home)) is not None and state.server is not None, "the server")
    server = server_process(written(home))
    _, err = child.communicate(timeout=20)
    assert f"not ready after 1 s; see {home.server_log}" in err
    assert group_members(server.pid) == []
    assert (written(home).phase, written(home).server) == ("failed", None)


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
    assert written(home).phase == "failed"


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


class Foreign(BaseHTTPRequestHandler):
    """Another program that would pass for a server, and notes who came."""

    def do_GET(self) -> None:
        Path(self.headers["Host"].replace(":", "-")).touch()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_told: object) -> None:
        return


def test_nothing_is_sent_to_another_program_at_the_port(
    home: Home, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = supervise.choose_port(None)
    child = start("late", port=port)
    until((home.run / "bound").exists, "the server's port")
    monkeypatch.chdir(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", port), Foreign) as other:  # its port too, and it listens first
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        try:
            _, err = child.communicate(timeout=20)
            came = list(tmp_path.glob("127*"))
            assert server_at(f"http://127.0.0.1:{port}").is_healthy()  # which shows that a visit would be seen
        finally:
            other.shutdown()
            thread.join()
    assert f"headstay: port {port}: Address already in use: another program" in err
    assert came == []
    assert len(list(tmp_path.glob("127*"))) == 1
    assert written(home).phase == "failed"


def test_whose_port_it_is() -> None:
    with socket.socket() as low, socket.socket(fileno=fcntl(low.fileno(), F_DUPFD, 250)) as mine:
        low.close()  # so the socket stands behind those of its process's files that come and go
        mine.bind(("127.0.0.1", 0))
        port = mine.getsockname()[1]
        assert listens(os.getpgrp(), port) is None
        mine.listen()
        assert listens(os.getpgrp(), port) is True
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
        assert listens(child.pid, port) is False
        child.communicate(b"\n")


def test_the_given_port_is_taken(home: Home, start: Start) -> None:
    port = supervise.choose_port(None)
    start(port=port)
    assert ready(home).base_url == f"http://127.0.0.1:{port}/v1"


def test_a_log_begins_anew_with_each_start(home: Home, start: Start) -> None:
    start("broken").communicate(timeout=20)
    start("broken").communicate(timeout=20)
    assert home.server_log.read_text().count("headstay: start") == 1
    assert (home.run / "server.log.1").exists()
    assert home.server_log.stat().st_mode & 0o077 == 0


def test_the_log_of_a_server_that_runs_on_is_bounded(home: Home, start: Start) -> None:
    start(hung=1.0)  # so it is looked at ten times a second
    ready(home)
    os.truncate(home.server_log, log.LIMIT + 1)
    until(lambda: home.server_log.stat().st_size <= log.LIMIT, "a short log")
    assert (home.run / "server.log.1").stat().st_size == log.LIMIT + 1
    assert server_at(written(home).base_url).is_healthy()


def test_a_long_log_is_kept_and_what_is_written_next_begins_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with os.fdopen(log.append(path), "w") as server:
        server.write("12345\n")
        server.flush()
        log.keep_short(path, limit=6)
        assert path.read_text() == "12345\n"
        log.keep_short(path, limit=5)
        server.write("new\n")
    assert path.read_text() == "new\n"
    kept = tmp_path / "server.log.1"
    assert kept.read_text() == "12345\n"
    assert kept.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o600


def test_a_terminal_that_is_gone_ends_no_server(home: Home, start: Start) -> None:
    reader, writer = os.pipe()
    start(out=writer)
    os.close(writer)
    first = ready(home)
    os.close(reader)
    os.killpg(server_process(first).pid, signal.SIGKILL)
    assert ready(home, restarts=1).server != first.server


def test_a_signal_without_a_name_kills_the_server_alone(home: Home, start: Start) -> None:
    child = start()
    os.killpg(server_process(ready(home)).pid, 40)
    ready(home, restarts=1)
    assert supervise.stop(home)
    assert "the server died (it was killed by signal 40 (log: " in child.communicate(timeout=20)[0]


def test_an_interpreter_that_is_gone_is_one_clear_line(home: Home, start: Start, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    child = start(python=python)
    state = ready(home)
    python.unlink()
    os.killpg(server_process(state).pid, signal.SIGKILL)
    _, err = child.communicate(timeout=20)
    assert err.splitlines() == [f"headstay: {written(home).message}"]
    assert written(home).phase == "failed"
    assert written(home).message.endswith(f"the server cannot be started: {python}: No such file or directory")


def test_a_fault_of_the_supervisor_is_one_clear_line_too(home: Home, start: Start) -> None:
    _, err = start("impossible").communicate(timeout=20)
    assert err.splitlines() == ["headstay: the supervisor failed: ValueError: embedded null byte"]
    assert (written(home).phase, written(home).message) == ("failed", err.strip().removeprefix("headstay: "))


def test_a_head_that_cannot_be_warmed_again_keeps_nobody_waiting(home: Home, start: Start) -> None:
    child = start("stalled", hung=1.0)
    state = ready(home)
    for text in ("Be brief. ", "Be long. "):
        warm.remember(home, {"model": "small", "messages": [{"role": "system", "content": text * 10}]})
    os.killpg(server_process(state).pid, signal.SIGKILL)
    ready(home, restarts=1)
    assert supervise.stop(home)
    out, _ = child.communicate(timeout=20)
    assert out.count("a head could not be warmed again: ") == 1
    assert "the other heads are not warmed again" in out


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    nobody = Server(f"http://127.0.0.1:{supervise.choose_port(None)}")
    assert not nobody.is_healthy()
    with pytest.raises(LocalError, match=r"no answer: .*refused"):
        nobody.models()
    assert nobody.figures() is None
    assert nobody.tokens({"messages": []}) is None
    assert nobody.traits("small") == Traits()
