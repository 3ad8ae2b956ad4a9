"""What runs in each of the two processes."""

import asyncio
import contextlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import cycle
from pathlib import Path
from typing import Any, cast

from headstay.errors import RehearsalError
from headstay.rehearsal.drive import Driver, awaited, called, kind_of
from headstay.rehearsal.failure import told
from headstay.rehearsal.loopback import stay_here
from headstay.rehearsal.target import Target, factory_of, first_on_path, load

PAUSES_S = (133, 145, 169, 125)
"""Seconds that pass before each question, over and over: minute and second differ between any two of a conversation."""

_NEEDS_LOOP = "no running event loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a process is to do.

    Attributes:
        module: The module to import.
        attribute: What to take from it.
        folder: Where modules are looked for first.
        turns: Questions of one conversation.
        other: The question of a second conversation.
        shift: Seconds by which the clock is moved on at first; None leaves it as it is, before each question too.
        shuffle: Functions that are made first: a set of the user's own then has another order.
    """

    module: str
    attribute: str
    folder: str
    turns: tuple[str, ...]
    other: str
    shift: float | None = None
    shuffle: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of it.

    Attributes:
        problem: What went wrong, or empty.
        talking: Whether it went wrong while the agent or the named function was running.
        returned: Name of the type that the function returned, where that can be asked nothing; else empty.
    """

    problem: str = ""
    talking: bool = False
    returned: str = ""


def main(order_file: str, outcome_file: str, refused_file: str) -> None:
    """Carry out an order and say what became of it.

    Args:
        order_file: Path of an `Order` in JSON.
        outcome_file: Path to write the `Outcome` to, in JSON, as soon as it is known.
        refused_file: Path of a file that gets a line for each host the process is kept from, at once: whatever waits
            for that host may have to be killed before there is an outcome.
    """
    order = Order(**json.loads(Path(order_file).read_text(encoding="utf-8")))
    first_on_path(order.folder)
    sys.argv = [order.module]
    kept = [lambda: None for _ in range(order.shuffle)]  # so that later objects lie elsewhere in memory
    refused = os.open(refused_file, os.O_WRONLY | os.O_APPEND)
    stay_here(lambda host: _append(refused, host))
    pause = _moved(order.shift)
    with asyncio.Runner() as runner, contextlib.ExitStack() as entered:
        outcome = _carried_out(order, pause, runner, entered)
        written = Path(f"{outcome_file}.part")
        written.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
        written.replace(outcome_file)
    del kept


def _append(file: int, line: str) -> None:
    os.write(file, f"{' '.join(line.split())}\n".encode("utf-8", "replace"))


def _moved(shift: float | None) -> Callable[[], None]:
    """Move the clock on; it goes on ticking.

    Returns:
        What moves it on by some minutes more.
    """
    if shift is None:
        return lambda: None
    clock = import_module("time_machine").travel(time.time() + shift, tick=True).start()
    pauses = cycle(PAUSES_S)
    return lambda: clock.shift(next(pauses))


def _carried_out(
    order: Order, pause: Callable[[], None], runner: asyncio.Runner, entered: contextlib.ExitStack
) -> Outcome:
    target = Target(order.module, order.attribute)
    try:
        found = load(target)
        factory = factory_of(found, target)
    except RehearsalError as problem:
        return Outcome(problem=str(problem))
    try:
        made, is_async = (found, False) if factory is None else _made(factory, target, runner, entered)
        if made is not None and kind_of(made) is None:
            return Outcome(returned=type(made).__name__)
        if made is not None:
            _talk(Driver(made, runner, is_async, f"headstay-lint-{time.time_ns():x}", pause), order, target)
    except RehearsalError as problem:
        return Outcome(problem=str(problem), talking=True)
    return Outcome()


def _talk(driver: Driver, order: Order, target: Target) -> None:
    """Hold the conversations.

    Raises:
        RehearsalError: The agent raised something.
    """
    try:
        driver.hold(order.turns)
        driver.hold((order.other,))
    except RehearsalError as problem:
        raise RehearsalError(f"{target} cannot be asked anything: {problem}") from problem
    except (Exception, SystemExit) as problem:
        asked = " and ".join(f"{name}()" for name in driver.tried)
        raise RehearsalError(f"{target} was asked by {asked} and raised {told(problem)}") from problem


def _made(
    factory: Callable[[], object], target: Target, runner: asyncio.Runner, entered: contextlib.ExitStack
) -> tuple[object, bool]:
    """Call a factory; wait for a coroutine, and enter a context manager around an agent.

    Returns:
        What it returns, and whether that was made in the event loop.

    Raises:
        RehearsalError: It raised something.
    """
    try:
        made, is_async = _first_made(factory, runner)
        if kind_of(made) is None and isinstance(made, contextlib.AbstractAsyncContextManager):
            manager = cast("Any", made)
            made, is_async = runner.run(called(manager.__aenter__)), True
            entered.callback(lambda: runner.run(called(manager.__aexit__, None, None, None)))
        elif kind_of(made) is None and isinstance(made, contextlib.AbstractContextManager):
            made = entered.enter_context(cast("contextlib.AbstractContextManager[object]", made))
    except (Exception, SystemExit) as problem:
        raise RehearsalError(f"{target}() raised {told(problem)}") from problem
    return made, is_async


def _first_made(factory: Callable[[], object], runner: asyncio.Runner) -> tuple[object, bool]:
    """Call a factory, within the event loop where it needs one that runs though it is not async itself."""
    try:
        made = factory()
    except RuntimeError as problem:
        if str(problem) != _NEEDS_LOOP:
            raise
        return runner.run(called(factory)), True
    return (runner.run(awaited(made)), True) if inspect.isawaitable(made) else (made, False)
