"""Starts one of the two processes and waits for it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headstay.excerpt import hidden
from headstay.rehearsal.child import Order, Outcome
from headstay.rehearsal.failure import one_line

_GRACE_S = 2.0
_SHOWN_LINES = 5
_START = "import sys; sys.path.append(sys.argv[1]); from headstay.rehearsal.child import main; main(*sys.argv[2:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended.

    Attributes:
        outcome: What it says became of it, or why it says nothing.
        refused: Hosts that it wanted to reach and was kept from, in order; known also where it had to be killed.
        printed: The last lines it printed, ready to be shown; or empty.
    """

    outcome: Outcome | str
    refused: tuple[str, ...]
    printed: str


def carried_out(order: Order, surroundings: dict[str, str], timeout_s: float) -> Ended:
    """Start a process for an order and wait for it.

    Args:
        order: What it is to do.
        surroundings: Its environment variables.
        timeout_s: Seconds after which it is killed.
    """
    with TemporaryDirectory(prefix="headstay-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        order_file, outcome_file, refused_file = (folder / name for name in ("order", "outcome", "refused"))
        order_file.write_text(json.dumps(asdict(order)), encoding="utf-8")
        refused_file.touch()
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - this interpreter and our own arguments, no shell
                [
                    *(sys.executable, "-c", _START, str(Path(__file__).parents[2])),
                    *(str(order_file), str(outcome_file), str(refused_file)),
                ],
                env=surroundings,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = _waited(process, outcome_file, timeout_s)
            finally:
                _end(process)
        return Ended(
            outcome=_outcome(order, outcome_file, code, timeout_s),
            refused=tuple(dict.fromkeys(map(one_line, refused_file.read_text("utf-8", "replace").splitlines()))),
            printed=_last_lines(folder / "output"),
        )


def _outcome(order: Order, outcome_file: Path, code: int | None, timeout_s: float) -> Outcome | str:
    if outcome_file.exists():
        return Outcome(**json.loads(outcome_file.read_text(encoding="utf-8")))
    name = f"{order.module}:{order.attribute}"
    if code is not None:
        return f"the process that ran {name} {_ending(code)} before it was done"
    return (
        f"{name} was not done after {timeout_s:g} s; make its conversation shorter, "
        "or look for a call that waits for something: a lock, an event loop that has ended, another program"
    )


def _waited(process: "subprocess.Popen[bytes]", outcome_file: Path, timeout_s: float) -> int | None:
    """Wait for a process; once the outcome is known, threads that go on get a few seconds and no more."""
    known, until = False, time.monotonic() + timeout_s
    while time.monotonic() < until:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=0.05)
        if not known and outcome_file.exists():
            known, until = True, time.monotonic() + _GRACE_S
    return None


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that still runs, with what it has started."""
    if process.poll() is not None:
        return
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _last_lines(output: Path) -> str:
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 8_192))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    shown = [one_line(line) for line in hidden("\n".join(lines)).splitlines()[-_SHOWN_LINES:]]
    return "".join(["\nits last output:", *(f"\n  {line}" for line in shown)]) if shown else ""
