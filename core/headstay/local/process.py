"""Processes and their groups as the kernel tells of them: who is who, who is left, and how they are ended."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that a number alone does not name, as numbers are used again.

    Attributes:
        pid: Its number.
        born: The machine's start and the clock tick in it at which the process began.
    """

    pid: int
    born: str


def identify(pid: int) -> Process | None:
    """Return the process that has this number now, or None if none has, or only its exit code is left."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Process(pid, f"{_boot()}:{fields[19]}")


def is_running(process: Process) -> bool:
    """Tell whether this very process runs, not another with its number."""
    return identify(process.pid) == process


def group_members(group: int) -> list[int]:
    """Return the numbers of the processes of a group that still run."""
    found: list[int] = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None and fields[0] not in "ZX" and int(fields[2]) == group:
                found.append(int(entry.name))
    return found


def end_group(group: int, patience: float) -> bool:
    """End every process of a group: SIGTERM, and SIGKILL for those that are left.

    Args:
        group: Number of the group, which is that of the process that leads it.
        patience: Seconds between the two.

    Returns:
        Whether SIGKILL was needed.
    """
    _signal(group, signal.SIGTERM)
    if _gone(group, patience):
        return False
    _signal(group, signal.SIGKILL)
    _gone(group, 5.0)
    return True


def _gone(group: int, patience: float) -> bool:
    until = time.monotonic() + patience
    while group_members(group):
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _stat(pid: int) -> list[str] | None:
    """Return the fields of `/proc/PID/stat` from the third on: state, parent, group and so on."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()  # the second is the name in parentheses, which may hold any character


def _boot() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
