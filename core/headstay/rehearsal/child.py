"""What runs in each of the two processes."""

import asyncio
import contextlib
import inspect
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from headstay.errors import RehearsalError
from headstay.rehearsal.drive import Driver, awaited, called, kind_of
from headstay.rehearsal.failure import told
from headstay.rehearsal.target import Target, factory_of, first_on_path, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a process is to do.

    Attributes:
        module: The module to import.
        attribute: What to take from it.
        folder: Where modules are looked for first.
        turns: Questions of one conversation.
        other: The question of a second conversation.
        shift: Seconds by which the clock is moved on; 0 leaves it as it is.
        shuffle: Functions that are made first: a set of the user's own then has another order.
    """

    module: str
    attribute: str
    folder: str
    turns: tuple[str, ...]
    other: str
    shift: float = 0
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


def main(order_file: str, outcome_file: str) -> None:
    """Carry out an order and say what became of it.

    Args:
        order_file: Path of an `Order` in JSON.
        outcome_file: Path to write the `Outcome` to, in JSON, as soon as it is known.
    """
    order = Order(**json.loads(Path(order_file).read_text(encoding="utf-8")))
    first_on_path(order.folder)
    sys.argv = [order.module]
    kept = [lambda: None for _ in range(order.shuffle)]  # so that later objects lie elsewhere in memory
    if order.shift:
        import_module("time_machine").travel(time.time() + order.shift, tick=True).start()
    with asyncio.Runner() as runner, contextlib.ExitStack() as entered:
        outcome = _carried_out(order, runner, entered)
        written = Path(f"{outcome_file}.part")
        written.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
        written.replace(outcome_file)
    del kept


def _carried_out(order: Order, runner: asyncio.Runner, entered: contextlib.ExitStack) -> Outcome:
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
            _talk(Driver(made, runner, is_async, f"headstay-lint-{time.time_ns():x}"), order, target)
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
        made, is_async = factory(), False
        if inspect.isawaitable(made):
            made, is_async = runner.run(awaited(made)), True
        if kind_of(made) is None and isinstance(made, contextlib.AbstractAsyncContextManager):
            manager = cast("Any", made)
            made, is_async = runner.run(called(manager.__aenter__)), True
            entered.callback(lambda: runner.run(called(manager.__aexit__, None, None, None)))
        elif kind_of(made) is None and isinstance(made, contextlib.AbstractContextManager):
            made = entered.enter_context(cast("contextlib.AbstractContextManager[object]", made))
    except (Exception, SystemExit) as problem:
        raise RehearsalError(f"{target}() raised {told(problem)}") from problem
    return made, is_async
