"""The server's log: one file for each start, and the line in it that says why it died."""

import os
import re
import signal
from pathlib import Path

MARK = "--- headstay: start "  # begins the line that each start writes
TAIL = 200_000  # bytes that are looked at
_PREFIX = re.compile(r"^(?:\([^)]*\) )*(?:(?:ERROR|CRITICAL|WARNING|INFO) [^\]]*\] )?")
_ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b[^:]*: \S|^api_server\.py: error: ")
_SECONDHAND = ("Engine core initialization failed", "EngineDeadError", "See root cause above")


def turn_over(path: Path) -> None:
    """Keep the log of the start before under another name, and begin a new one."""
    if path.exists():
        os.replace(path, path.with_suffix(".log.1"))


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
        line = f"it was killed by {signal.Signals(-code).name}"
    else:
        line = f"exit code {code}: {said[-1] if said else 'it said nothing'}"
    return f"{line[:300]} (log: {path})"
