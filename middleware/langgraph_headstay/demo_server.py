"""A vLLM server for a demo or a measurement, beside whatever server the user runs, and gone when it is over."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from headstay.errors import LocalError
from headstay.local import supervise
from headstay.local.device import OLDEST_PYTHON, read_facts
from headstay.local.home import SETTING, Home
from headstay.local.install import device_for
from headstay.local.log import Say

# The kernel tells the supervisor when this process dies, SIGKILL included (prctl(2), PR_SET_PDEATHSIG).
_SUPERVISOR = (
    "import ctypes, signal; ctypes.CDLL(None).prctl(1, int(signal.SIGTERM)); from headstay.cli import main; main()"
)
_PATIENCE = 30.0  # seconds for the supervisor to end its server, which has 10 of them between SIGTERM and SIGKILL


@dataclass(frozen=True, slots=True)
class Started:
    """A server that runs.

    Attributes:
        base_url: URL for OpenAI clients, with `/v1`.
        model: What requests call the model.
        device: What it runs on, in words.
        block: Tokens of a block of its cache.
        in_place_system: Whether its chat template takes a system message behind others.
        seconds: How long the start took.
    """

    base_url: str
    model: str
    device: str
    block: int
    in_place_system: bool
    seconds: float


@contextmanager
def own_server(home: Home, *arguments: str, say: Say = lambda _: None) -> Generator[Started]:
    """Serve an installed model from a run folder of its own, until the block is left, however it is left.

    Call it in the main thread: SIGTERM and SIGHUP end the block as Ctrl-C does.

    Args:
        home: Where the local model is installed. Nothing is written there, and a server that runs there is left alone.
        arguments: Further arguments of `headstay local serve`.
        say: Called with each line of progress.

    Yields:
        The server, ready.

    Raises:
        ConfigError: The local model is not installed.
        LocalError: The server does not start; the message says why.
    """
    say(f"starting a server of its own. {device_for(home, read_facts(OLDEST_PYTHON)).reason}")
    with _ending_signals(), tempfile.TemporaryDirectory(prefix="headstay-") as name:
        apart = Home(Path(name))
        for shared in (home.environment, home.weights):
            (apart.path / shared.name).symlink_to(shared.absolute())
        child = _supervisor(apart, arguments)
        try:
            yield _ready(child, say)
        finally:
            _end(child, apart)


def _supervisor(home: Home, arguments: Sequence[str]) -> "subprocess.Popen[str]":
    environment = {**os.environ, SETTING: str(home.path)}
    return subprocess.Popen(  # noqa: S603 - our own command, no shell
        [sys.executable, "-P", "-c", _SUPERVISOR, "local", "serve", "--format", "json", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C comes to us alone, and we end it
    )


def _ready(child: "subprocess.Popen[str]", say: Say) -> Started:
    """Wait for the line that says where it serves.

    Raises:
        LocalError: The supervisor ended instead; the message is its own.
    """
    begun = time.monotonic()
    assert child.stdout is not None
    last = "the server's supervisor said nothing"
    for line in child.stdout:
        if line.startswith("{"):
            told: dict[str, Any] = json.loads(line)
            block, in_place = int(told["block"] or 16), bool(told["in_place_system"])
            took = time.monotonic() - begun
            return Started(told["base_url"], told["model"], told["device"], block, in_place, took)
        last = line.strip().removeprefix("headstay: ") or last
        if last.startswith("starting: "):
            say(last)
    raise LocalError(last)


def _end(child: "subprocess.Popen[str]", home: Home) -> None:
    """End the supervisor and its server; a second Ctrl-C meanwhile changes nothing but the haste."""
    child.terminate()
    try:
        child.communicate(timeout=_PATIENCE)
    except BaseException:
        child.kill()
        child.communicate()
        raise
    finally:
        supervise.stop(home)  # what a killed supervisor has left


@contextmanager
def _ending_signals() -> Generator[None]:
    """Let the signals that end a program leave the block first: by default nothing would be cleaned up."""
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = [signal.signal(number, leave) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
