"""Logs: for their owner only, one file for each start, bounded, and the line that says why the server died."""

import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], None]
"""Told each line that is for people."""

MARK = "--- headstay: start "  # begins the line that each start writes
TAIL = 200_000  # bytes that are looked at
LIMIT = 20_000_000  # bytes of the log of a server that runs on and on; there may be as many of what was before
_PREFIX = re.compile(r"^(?:\([^)]*\) )*(?:(?:ERROR|CRITICAL|WARNING|INFO) [^\]]*\] )?")
_ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b[^:]*: \S|^api_server\.py: error: ")
_SECONDHAND = ("Engine core initialization failed", "EngineDeadError", "See root cause above")


def turn_over(path: Path) -> None:
    """Keep the log of the start before under another name, and begin a new one."""
    if path.exists():
        os.replace(path, path.with_suffix(".log.1"))


def append(path: Path) -> int:
    """Open a log to write at its end, for its owner only: prompts and addresses may stand in it.

    Raises:
        OSError: It cannot be made.
    """
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)  # it may be there already
    return handle


def keep_short(path: Path, limit: int = LIMIT) -> None:
    """Keep a log that has grown too long under another name, and empty it for the server that goes on writing to it.

    Raises:
        OSError: It cannot be looked at, or emptied.
    """
    if path.stat().st_size > limit:
        with contextlib.suppress(OSError):  # where the disk is full, the room is worth more than the log
            shutil.copy(path, path.with_suffix(".log.1"))
        os.truncate(path, 0)  # the server appends, so it goes on at the beginning


def reason(path: Path, code: int | None) -> str:
    """Return why the server died: the first error that the log has of its last start, or else how it ended.

    Args:
        path: The log.
        code: Its exit code, negative for the signal that killed it, or None if it is not known.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        text = ""
    ours = text.rpartition(MARK)[2].splitlines()[1:] if MARK in text else text.splitlines()
    said = [line for line in (_PREFIX.sub("", line).strip() for line in ours) if line]
    errors = [line for line in said if _ERROR.search(line) and not any(word in line for word in _SECONDHAND)]
    if errors:
        line = errors[0]
    elif code is not None and code < 0:
        line = f"it was killed by {_name(-code)}"
    else:
        line = f"exit code {code}: {said[-1] if said else 'it said nothing'}"
    return f"{line[:300]} (log: {path})"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"
