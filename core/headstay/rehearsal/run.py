"""Runs a user's agent twice, each time in a fresh process, against one emulator."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from headstay.comparison import read
from headstay.comparison.excerpt import hidden
from headstay.emulator import Emulator, EmulatorStartError, Exchange, ManualClock, serve
from headstay.errors import RehearsalError, WireError
from headstay.rehearsal.child import Order, Outcome
from headstay.rehearsal.failure import one_line
from headstay.rehearsal.surroundings import FIRST_SEED, environment, other_seed
from headstay.rehearsal.target import Target, parse

# No word of four letters or more: the emulated model calls a tool that a question names, and nobody asked for that.
# The second run asks other questions, so that its requests are not taken for those of the first.
TURNS = (
    (("Hi, how are you?", "And why is it so?", "Ok, but how?"), "Hi, who are you?"),
    (("Hey, is it you?", "And if it is not?", "Ok, so who is?"), "Hey, are you in?"),
)
"""For each run the questions of the first conversation, and the one of the second."""

LATER_S = 86_400 + 5 * 3_600 + 17 * 60 + 43
"""How much later the second run happens, in seconds: day, hour, minute and second of a time all differ."""

_SHUFFLE = 37
_GRACE_S = 2.0
_SHOWN_LINES = 5
_START = "import sys; sys.path.append(sys.argv[1]); from headstay.rehearsal.child import main; main(*sys.argv[2:])"
_INSTEAD = "write a function without arguments that runs a short conversation, and name that one"


def limits() -> tuple[str, ...]:
    """Return what a rehearsal cannot find on this machine, for whoever reads its result."""
    if find_spec("time_machine") is None:
        return (
            "both runs happen on the same day, so a date in the prompt is not found; to have the second one happen on "
            "the next day: pip install time-machine",
        )
    return ()


def rehearse(
    target: str,
    *,
    turns: Sequence[str] | None = None,
    timeout_s: float = 120,
    progress: Callable[[str], None] | None = None,
) -> tuple[Exchange, ...]:
    """Run an agent twice and return what it sent.

    Each run is a fresh process with its own hash seed; the second one happens a day later by its clock. In each the
    agent is asked some questions in one conversation, and one in another. The SDKs' environment variables name an
    emulated provider, and no API key of the user's is passed on.

    Args:
        target: `module:attribute`. The attribute, dotted where it is nested, is a LangGraph agent, a LangChain chain or
            chat model, a LlamaIndex agent, chat engine or query engine; or a function without arguments, async or not,
            that returns one of them or runs a conversation itself.
        turns: Questions of the first conversation; None for three short ones. The emulated model calls the tools that a
            question names, for real.
        timeout_s: Seconds that one run may take.
        progress: Told in a few words what is going on.

    Returns:
        Requests and answers of both runs in their order, those that failed too; the emulator's clock stood still.

    Raises:
        RehearsalError: It could not be run, or nothing it sent was answered; the message says why.
    """
    named = parse(target)
    if turns is not None and not (turns and all(text.strip() for text in turns)):
        raise RehearsalError("a conversation needs at least one question, and none of them empty")
    tell = progress or _untold
    for limit in limits():
        tell(limit)
    try:
        with serve(clock=ManualClock(time.time())) as running:
            tell(f"{named}: the first run")
            _run(_order(named, turns, 0), running, FIRST_SEED, timeout_s, "")
            tell(f"{named}: the second run")
            seed = other_seed(_tool_names(running.exchanges))
            again = replace(_order(named, turns, 1), shift=0 if limits() else LATER_S, shuffle=_SHUFFLE)
            _run(again, running, seed, timeout_s, "in the second run, ")
            return running.exchanges
    except (ImportError, EmulatorStartError) as problem:
        raise RehearsalError(str(problem)) from problem


def _order(target: Target, turns: Sequence[str] | None, run: int) -> Order:
    own, other = TURNS[run]
    asked = own if turns is None else tuple(turns)
    return Order(module=target.module, attribute=target.attribute, folder=str(Path.cwd()), turns=asked, other=other)


def _untold(_: str) -> None:
    """Nobody wants to know."""


def _run(order: Order, running: Emulator, seed: int, timeout_s: float, where: str) -> None:
    """Run a process to its end, and see that it sent something.

    Raises:
        RehearsalError: It did not go well.
    """
    target, before = Target(order.module, order.attribute), len(running.exchanges)
    surroundings = environment(os.environ, base_url=running.base_url, openai_url=running.openai_url, seed=seed)
    with TemporaryDirectory(prefix="headstay-", ignore_cleanup_errors=True) as folder:
        outcome, output = _outcome(order, surroundings, Path(folder), timeout_s)
    sent = running.exchanges[before:]
    problem = outcome if isinstance(outcome, str) else _problem(outcome, target, sent)
    if problem:
        raise RehearsalError(f"{where}{problem}{output}")


def _problem(outcome: Outcome, target: Target, sent: Sequence[Exchange]) -> str:
    """Say what went wrong; empty where nothing did."""
    if outcome.problem:
        nothing = "; nothing had reached the emulator by then" if outcome.talking and not sent else ""
        return f"{outcome.problem}{nothing}"
    if outcome.returned and not sent:
        return (
            f"{target} returned something of type {outcome.returned}, which has none of invoke(), ainvoke(), "
            f"run(user_msg=...), chat() and query(); {_INSTEAD}"
        )
    if not sent:
        return (
            f"{target} ran, but nothing reached the emulator: its client has a base URL of its own, or asks neither "
            "Anthropic nor OpenAI; leave the base URL out, so that ANTHROPIC_BASE_URL or OPENAI_BASE_URL counts"
        )
    if all(exchange.status != 200 for exchange in sent):
        error = cast("dict[str, object]", sent[0].response.get("error") or {})
        said = one_line(str(error.get("message", "")))
        return f"the emulator refused every request of {target}; the first one with HTTP {sent[0].status}: {said}"
    return ""


def _outcome(order: Order, surroundings: dict[str, str], folder: Path, timeout_s: float) -> tuple[Outcome | str, str]:
    """Start a process and wait for it.

    Returns:
        What it says became of it, or why it says nothing; and the last lines it printed.
    """
    order_file, outcome_file, output_file = (folder / name for name in ("order.json", "outcome.json", "output"))
    order_file.write_text(json.dumps(asdict(order)), encoding="utf-8")
    with output_file.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this interpreter and our own arguments, no shell
            [sys.executable, "-c", _START, str(Path(__file__).parents[2]), str(order_file), str(outcome_file)],
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
    printed = _last_lines(output_file)
    if outcome_file.exists():
        return Outcome(**json.loads(outcome_file.read_text(encoding="utf-8"))), printed
    name = f"{order.module}:{order.attribute}"
    if code is None:
        return f"{name} was not done after {timeout_s:g} s; name something smaller, or give it more time", printed
    return f"the process that ran {name} {_ending(code)} before it was done", printed


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


def _tool_names(exchanges: Sequence[Exchange]) -> Iterator[list[str]]:
    for exchange in exchanges:
        with contextlib.suppress(WireError):
            yield [tool.name for tool in read(exchange.body, exchange.wire).tools]
