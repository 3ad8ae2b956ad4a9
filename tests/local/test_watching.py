"""The supervisor over the real server: a killed worker, a second start, a port in use, a stale state file."""

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

from headstay.local.client import server_at
from headstay.local.process import group_members


def worker_of(group: int) -> int:
    """Return the process of a group that calls itself a worker."""
    named = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in group_members(group)}
    (found,) = [pid for pid, name in named.items() if b"Worker" in name]
    return found


def test_a_killed_worker_is_replaced_at_the_same_url_and_the_head_is_warm(
    local: Any, base_url: str, tmp_path: Path
) -> None:
    request = tmp_path / "request.json"
    text = "You watch. " + " ".join(f"Rule {number}: look at door {number}." for number in range(40))
    request.write_text(json.dumps({"messages": [{"role": "system", "content": text}]}))
    assert local.run("warm", str(request)).returncode == 0
    state = local.state()
    assert state.server is not None
    os.kill(worker_of(state.server.pid), signal.SIGKILL)
    deadline = time.monotonic() + 300
    while (now := local.state()).restarts == state.restarts or now.phase != "ready":
        assert now.is_watched, now.message
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert now.base_url == base_url
    assert group_members(state.server.pid) == []
    told = local.json("warm", str(request))
    assert told["before"] >= told["expected"] > 0


def test_a_second_start_names_the_first(local: Any, base_url: str) -> None:
    done = local.run("serve")
    assert done.returncode == 2
    assert f"a server runs already at {base_url}" in done.stderr
    assert server_at(base_url).is_healthy()
    done = local.run("serve", "--detach")
    assert done.returncode == 2
    assert f"a server runs already at {base_url}" in done.stderr


def test_the_stale_state_file_was_no_hindrance(local: Any, base_url: str) -> None:
    assert local.state().is_watched
    assert local.state().supervisor.pid != os.getpid()


def test_a_port_in_use_ends_the_start_with_one_line(elsewhere: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = elsewhere.run("serve", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"headstay: --port {port}: Address already in use; leave it out for a free one"
    )


def test_a_server_that_cannot_start_says_why(elsewhere: Any) -> None:
    done = elsewhere.run("serve", "--arg", "--no-such-argument")
    assert done.returncode == 2
    assert "unrecognized arguments: --no-such-argument" in done.stderr
