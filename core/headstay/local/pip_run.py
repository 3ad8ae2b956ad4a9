"""One run of pip in the local environment: what it may see, how far it is, and what was missing if it fails."""

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headstay.errors import LocalError
from headstay.local.log import Say, append
from headstay.local.pins import TORCH_SETTING
from headstay.local.process import end_group, leaving_on_signals

BEAT = 20.0  # seconds without a word after which one is said
# The settings of pip that say where packages come from, and how. The others would put them elsewhere, hold ours to the
# pins of an application, or build what is there as a wheel.
KEPT = frozenset(
    {
        *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CONFIG_FILE"),
        *("PIP_PROXY", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_TRUSTED_HOST", "PIP_KEYRING_PROVIDER"),
        *("PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CACHE_DIR", "PIP_NO_CACHE_DIR"),
        *("PIP_USE_FEATURE", "PIP_USE_DEPRECATED"),
    }
)
DROPPED_PREFIXES = ("PIP_", "PYTHON", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
PATIENCE = 5.0  # seconds between SIGTERM and SIGKILL for what is broken off
_USER = re.compile(r"://[^/\s]*@")
_NOT_FOUND = re.compile(r"No matching distribution found for (\S+)")
_BAD_HASH = re.compile(r"DO NOT MATCH THE HASHES.*?\n\s*(\S+)", re.S)
_TAKEN = re.compile(r"^(?:Collecting|Requirement already satisfied:) ([\w.-]+)")


def environment(environ: Mapping[str, str], *, index: str = "", wheelhouse: bool = False) -> dict[str, str]:
    """Return the environment of pip: the user's, less what would lead it out of the local environment.

    Args:
        environ: The user's.
        index: URL of the index to ask in place of the user's. It may hold a password, and every user of the machine
            sees a program's arguments, but not its environment.
        wheelhouse: Packages are taken from a folder, so nothing that names another place is kept.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(DROPPED_PREFIXES) or (name in KEPT and not wheelhouse)
    }
    if wheelhouse:
        kept["PIP_CONFIG_FILE"] = os.devnull  # pip then reads no file of settings
    if index:
        kept["PIP_INDEX_URL"] = index
    ours = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1"}
    return kept | ours


def masked(text: str) -> str:
    """Return a text without the names and passwords in its URLs."""
    return _USER.sub("://****@", text)


def run(
    command: Sequence[str],
    log: Path,
    say: Say,
    *,
    packages: int = 0,
    label: str = "",
    environ: Mapping[str, str] | None = None,
) -> str | None:
    """Run a program, write what it says to the log, and tell how far it is. What ends this one ends that one.

    Args:
        command: Program and arguments.
        log: File that its output is added to.
        say: Called with a line for people.
        packages: How many packages it will take, 0 if that is not known.
        label: What is being done, for the word after a silence.
        environ: What `environment` returned, or None to make it of this process's own.

    Returns:
        None if it went well, else all it said, without the passwords of URLs.

    Raises:
        LocalError: It cannot be started, or the log cannot be written.
    """
    said: list[str] = []
    heard = [time.monotonic()]
    started = heard[0]
    try:
        with os.fdopen(append(log), "a", encoding="utf-8", errors="replace") as out, leaving_on_signals():
            out.write(masked(f"$ {' '.join(command)}\n"))
            with subprocess.Popen(  # noqa: S603 - our own command, no shell
                list(command),
                env=environment(os.environ) if environ is None else dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            ) as child:
                done = threading.Event()
                beat = threading.Thread(target=_beat, args=(done, heard, started, say, label), daemon=True)
                beat.start()
                try:
                    _listen(child, out.write, said, heard, say, packages)
                except BaseException:
                    end_group(child.pid, PATIENCE)
                    raise
                finally:
                    done.set()
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
    for told in child.stdout:
        line = masked(told)
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


def missing(name: str, output: str, log: Path, wheelhouse: Path | None = None) -> LocalError:
    """Return the error that names what kept a step from working.

    Args:
        name: What the step installs.
        output: What pip said.
        log: File that holds it.
        wheelhouse: The folder that packages are taken from, if they are.
    """
    where = f"See {log}."
    if found := _NOT_FOUND.search(output):
        package = found[1]
        if wheelhouse is not None:
            return LocalError(f"{package} cannot be had: {wheelhouse} holds no wheel of it for this Python. {where}")
        how = (
            f"set {TORCH_SETTING} to an index that has it, or give a folder that holds it with --wheelhouse"
            if package.startswith("torch")
            else "pip's index does not have it, or cannot be reached: set PIP_INDEX_URL, or give a folder that holds "
            "it with --wheelhouse"
        )
        return LocalError(f"{package} cannot be had: {how}. {where}")
    if found := _BAD_HASH.search(output):
        place = "" if wheelhouse is None else f" in {wheelhouse}"
        return LocalError(f"{found[1]}{place} is not the file that was tested: its hash differs. {where}")
    if "No space left on device" in output:
        return LocalError(f"the disk is full: free some space and start again, finished steps are kept. {where}")
    if "No module named pip" in output or "ensurepip" in output:
        return LocalError(f"Python's ensurepip is missing: install it (Debian and Ubuntu: python3-venv). {where}")
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["it said nothing"]
    return LocalError(f"{name} could not be installed: {errors[-1]}. {where}")
