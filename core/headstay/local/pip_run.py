"""One run of pip in the local environment: what it may see, how far it is, and what was missing if it fails."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headstay.errors import LocalError
from headstay.local.pins import TORCH_SETTING

Say = Callable[[str], None]

BEAT = 20.0  # seconds without a word after which one is said
# What would put packages elsewhere, or hold ours to the pins of an application. Index and proxy settings stay.
DROPPED = frozenset(
    {
        *("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER"),
        *("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "PIP_REQUIREMENT", "PIP_REQUIRE_VIRTUALENV"),
        *("PIP_DRY_RUN", "PIP_PYTHON", "PYTHONPATH", "PYTHONHOME"),
        *("PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"),
    }
)
_NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")
_BAD_HASH = re.compile(r"DO NOT MATCH THE HASHES.*?\n\s*(\S+)", re.S)
_TAKEN = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([\w.-]+)")


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of pip: the user's, less what would lead it out of the local environment."""
    kept = {name: value for name, value in environ.items() if name not in DROPPED}
    return kept | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1"}


def run(command: Sequence[str], log: Path, say: Say, *, packages: int = 0, label: str = "") -> str | None:
    """Run a program, write what it says to the log, and tell how far it is.

    Args:
        command: Program and arguments.
        log: File that its output is added to.
        say: Called with a line for people.
        packages: How many packages it will take, 0 if that is not known.
        label: What is being done, for the word after a silence.

    Returns:
        None if it went well, else all it said.

    Raises:
        LocalError: It cannot be started, or the log cannot be written.
    """
    said: list[str] = []
    heard = [time.monotonic()]
    started = heard[0]
    try:
        with log.open("a", encoding="utf-8", errors="replace") as out:
            out.write(f"$ {' '.join(command)}\n")
            with subprocess.Popen(  # noqa: S603 - our own command, no shell
                list(command),
                env=environment(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            ) as child:
                done = threading.Event()
                beat = threading.Thread(target=_beat, args=(done, heard, started, say, label), daemon=True)
                beat.start()
                try:
                    _listen(child, out.write, said, heard, say, packages)
                finally:
                    done.set()
                    if child.poll() is None and sys.exc_info()[0] is not None:
                        child.terminate()
            return None if child.returncode == 0 else "".join(said)
    except OSError as problem:
        named = problem.filename or command[0]
        raise LocalError(f"{named}: {problem.strerror or problem}") from problem


def _listen(
    child: "subprocess.Popen[str]",
    write: Callable[[str], object],
    said: list[str],
    heard: list[float],
    say: Say,
    packages: int,
) -> None:
    assert child.stdout is not None
    taken: set[str] = set()
    for line in child.stdout:
        write(line)
        said.append(line)
        if packages == 0:
            if line.strip():
                heard[0] = time.monotonic()
                say(f"  {line.strip()}"[:120])
        elif found := _TAKEN.match(line.strip()):
            before = len(taken)
            taken.add(found[1])
            if len(taken) > before and len(taken) % 20 == 0:
                heard[0] = time.monotonic()
                say(f"  {len(taken)} of {packages} packages fetched")


def _beat(done: threading.Event, heard: list[float], started: float, say: Say, label: str) -> None:
    """Say that it goes on, where nothing was heard for a while: pip may be quiet, and large wheels take minutes."""
    while not done.wait(1.0):
        now = time.monotonic()
        if now - heard[0] >= BEAT:
            heard[0] = now
            say(f"  {label}: {now - started:.0f} s so far")


def is_absent(output: str) -> bool:
    """Tell whether pip failed because its index does not have a package."""
    return _NOT_FOUND.search(output) is not None


def missing(name: str, output: str, log: Path) -> LocalError:
    """Return the error that names what kept a step from working.

    Args:
        name: What the step installs.
        output: What pip said.
        log: File that holds it.
    """
    where = f"See {log}."
    if found := _NOT_FOUND.search(output):
        package = found[1]
        how = (
            f"set {TORCH_SETTING} to an index that has it, or give a folder that holds it with --wheelhouse"
            if package.startswith("torch")
            else "pip's index does not have it, or cannot be reached: set PIP_INDEX_URL, or give a folder that holds "
            "it with --wheelhouse"
        )
        return LocalError(f"{package} cannot be had: {how}. {where}")
    if found := _BAD_HASH.search(output):
        return LocalError(f"{found[1]} is not the file that was tested: its hash differs. {where}")
    if "No space left on device" in output:
        return LocalError(f"the disk is full: free some space and start again, finished steps are kept. {where}")
    if "No module named pip" in output or "ensurepip" in output:
        return LocalError(f"Python's ensurepip is missing: install it (Debian and Ubuntu: python3-venv). {where}")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["it said nothing"]
    return LocalError(f"{name} could not be installed: {errors[-1]}. {where}")
