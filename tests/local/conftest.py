"""The local tier: one real vLLM server for all tests, installed and started as a user would."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from headstay.local import state as states
from headstay.local.home import Home
from headstay.local.process import group_members, identify
from headstay.local.state import State

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Local:
    """The command line, with its home in the checkout."""

    home: Home

    def run(self, *words: str, timeout: float = 900) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "headstay.cli", "local", *words],
            env={**os.environ, "HEADSTAY_LOCAL_HOME": str(self.home.path)},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def json(self, *words: str, timeout: float = 900) -> dict[str, Any]:
        done = self.run(*words, "--format", "json", timeout=timeout)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def state(self) -> State:
        state = states.read(self.home)
        assert state is not None
        return state


@pytest.fixture(scope="session")
def local() -> Local:
    """Install, or find the installation whose pins are these."""
    made = Local(Home(ROOT / ".local"))
    done = made.run("install")
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="session")
def base_url(local: Local) -> Iterator[str]:
    """Start the server over a stale state file, and see that nothing of it is left in the end."""
    itself = identify(os.getpid())
    assert itself is not None
    other = replace(itself, born="another time")
    local.home.run.mkdir(parents=True, exist_ok=True)
    states.write(local.home, State("ready", "http://127.0.0.1:9/v1", "small", "", other, other, 0, 0.0, ""))
    done = local.run("serve", "--detach", "--context", "4096", "--kv-gib", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)["base_url"]
    group = local.state().server
    assert local.run("stop").stdout == "stopped\n"
    assert group is not None
    assert group_members(group.pid) == []


@pytest.fixture
def block(local: Local, base_url: str) -> int:
    """Tokens of a block of the cache, as the server says."""
    return int(local.json("status", "--base-url", base_url)["prefix_cache"]["block"])


@pytest.fixture
def elsewhere(local: Local, tmp_path: Path) -> Local:
    """A home of its own for a server beside the shared one; environment and weights are the same."""
    other = tmp_path / "home"
    other.mkdir()
    for name in ("env", "weights"):
        (other / name).symlink_to(local.home.path / name)
    return Local(Home(other))


@pytest.fixture
def client(base_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=300) as made:
        yield made
