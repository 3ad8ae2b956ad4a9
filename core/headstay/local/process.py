"""Processes and their groups as the kernel tells of them: who is who, who is left, and how they are ended."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

_PROC = Path("/proc")
_LISTEN = "0A"  # a socket's state in /proc/net/tcp (proc(5))


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


def is_left(leader: Process) -> bool:
    """Tell whether a process that began a session, or one of the group that it leads, still runs.

    The leader itself may be gone: the kernel gives its number to no other process while the group has one.
    """
    boot, _, began = leader.born.partition(":")
    fields = _stat(leader.pid)
    if boot != _boot() or (fields is not None and fields[19] != began):
        return False
    members = (_stat(pid) for pid in group_members(leader.pid))
    return any(fields is not None and int(fields[3]) == leader.pid for fields in members)


def group_members(group: int) -> list[int]:
    """Return the numbers of the processes of a group that still run."""
    found: list[int] = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields is not None and fields[0] not in "ZX" and int(fields[2]) == group:
                found.append(int(entry.name))
    return found


def listens(group: int, port: int) -> bool | None:
    """Tell whether a group of processes is what answers at a port of the loopback.

    That it answers proves nothing: vLLM takes its port long before it listens, and another program can listen first.

    Returns:
        Whether the group's processes alone listen there; None if nobody listens.

    Raises:
        OSError: The kernel does not tell.
    """
    sockets = _listening(port)
    if not sockets:
        return None
    return sockets <= {name for pid in group_members(group) for name in _open_files(pid)}


def end_group(group: int, patience: float) -> bool:
    """End every process of a group: SIGTERM, and SIGKILL for those that are left.

    Args:
        group: Number of the group, which is that of the process that leads it.
        patience: Seconds between the two.

    Returns:
        Whether SIGKILL was needed.
    """
    signal_group(group, signal.SIGTERM)
    return kill_rest(group, patience)


def kill_rest(group: int, patience: float) -> bool:
    """Wait for a group that was told to end, and SIGKILL those that are left after some seconds.

    Returns:
        Whether SIGKILL was needed.
    """
    if _gone(group, patience):
        return False
    signal_group(group, signal.SIGKILL)
    _gone(group, 5.0)
    return True


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to every process of a group, if there is one that may be sent it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


@contextmanager
def on_signals(numbers: Sequence[signal.Signals], act: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Take signals while the block runs, and give them back; outside the main thread, where none arrive, do nothing.

    A SIGHUP that is ignored stays so: that is how `nohup` keeps a program beyond its terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {number: signal.signal(number, act) for number in numbers if not (ignored and number == signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def leaving_on_signals() -> Generator[None]:
    """Leave the block at SIGTERM and SIGHUP as at Ctrl-C, so that what it began is ended with it.

    Raises:
        SystemExit: One of them came; the code is 128 and its number, as a shell has it.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    with on_signals((signal.SIGTERM, signal.SIGHUP), leave):
        yield


def _gone(group: int, patience: float) -> bool:
    until = time.monotonic() + patience
    while group_members(group):
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def _listening(port: int) -> set[str]:
    """Return the sockets that listen at a port for callers at 127.0.0.1, as `/proc/PID/fd` names them."""
    loopback = f"{int.from_bytes(socket.inet_aton('127.0.0.1'), sys.byteorder):08X}"
    places = {f"{address}:{port:04X}" for address in (loopback, "00000000")}
    lines = (line.split() for line in (_PROC / "net/tcp").read_text(encoding="utf-8").splitlines()[1:])
    return {f"socket:[{fields[9]}]" for fields in lines if fields[1] in places and fields[3] == _LISTEN}


def _open_files(pid: int) -> list[str]:
    found: list[str] = []
    with contextlib.suppress(OSError):  # the process ended meanwhile, or is not ours
        for entry in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                found.append(os.readlink(entry))
    return found


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
