"""Runs a user's agent twice, each time in a fresh process, against one emulator."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headstay.comparison import read
from headstay.emulator import Emulator, EmulatorStartError, Exchange, serve
from headstay.errors import RehearsalError, WireError
from headstay.rehearsal.child import Order
from headstay.rehearsal.problems import SAME_DAY, notices_of, problem_of
from headstay.rehearsal.process import Ended, carried_out
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

_SHIFTS = (0, LATER_S)
_SHUFFLES = (0, 37)
_TICK_S = 0.01


class _Clock:
    """The emulator's clock: it moves on by so little that nothing expires, and no two requests share a moment.

    Of two that did, the second would pass for one that was sent before the first was answered.
    """

    def __init__(self) -> None:
        self._now = time.time()

    def now(self) -> float:
        self._now += _TICK_S
        return self._now


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What an agent sent in two runs.

    Attributes:
        exchanges: Requests and answers of both runs in their order, those that failed too; by the emulator's clock
            they are hundredths of a second apart, so that nothing expires in its caches.
        notices: What could not be found out, and what may be missing in the requests, in a line each.
    """

    exchanges: tuple[Exchange, ...]
    notices: tuple[str, ...]


def rehearse(
    target: str,
    *,
    turns: Sequence[str] | None = None,
    timeout_s: float = 120,
    progress: Callable[[str], None] | None = None,
) -> Rehearsal:
    """Run an agent twice and return what it sent.

    Each run is a fresh process with its own hash seed; the second one happens a day later by its clock, and some
    minutes pass before each question. In each the agent is asked some questions in one conversation, and one in
    another. The SDKs' environment variables name an emulated provider, no API key of the user's is passed on, and
    other machines cannot be reached.

    Args:
        target: `module:attribute`. The attribute, dotted where it is nested, is a LangGraph agent, a LangChain chain or
            chat model, a LlamaIndex agent, chat engine or query engine; or a function without arguments, async or not,
            that returns one of them or runs a conversation itself.
        turns: Questions of the first conversation; None for three short ones. The emulated model calls the tools that a
            question names, for real.
        timeout_s: Seconds that one run may take.
        progress: Told in a few words what is going on.

    Raises:
        RehearsalError: It could not be run, or nothing it sent was answered; the message says why.
    """
    named = parse(target)
    if turns is not None and not (turns and all(text.strip() for text in turns)):
        raise RehearsalError("a conversation needs at least one question, and none of them empty")
    tell = progress or _untold
    moves = find_spec("time_machine") is not None
    try:
        with serve(clock=_Clock()) as running:
            tell(f"{named}: the first run")
            first = _run(_order(named, turns, 0, moves=moves), running, FIRST_SEED, timeout_s, "")
            tell(f"{named}: the second run")
            seed = other_seed(_tool_names(running.exchanges))
            second = _run(_order(named, turns, 1, moves=moves), running, seed, timeout_s, "in the second run, ")
            sent = running.exchanges
    except (ImportError, EmulatorStartError) as problem:
        raise RehearsalError(str(problem)) from problem
    notices = notices_of((first, second), named, sent)
    return Rehearsal(exchanges=sent, notices=notices if moves else (SAME_DAY, *notices))


def _order(target: Target, turns: Sequence[str] | None, run: int, *, moves: bool) -> Order:
    own, other = TURNS[run]
    return Order(
        module=target.module,
        attribute=target.attribute,
        folder=str(Path.cwd()),
        turns=own if turns is None else tuple(turns),
        other=other,
        shift=_SHIFTS[run] if moves else None,
        shuffle=_SHUFFLES[run],
    )


def _untold(_: str) -> None:
    """Nobody wants to know."""


def _run(order: Order, running: Emulator, seed: int, timeout_s: float, where: str) -> Ended:
    """Run a process to its end, and see that it sent something.

    Raises:
        RehearsalError: It did not go well.
    """
    before = len(running.exchanges)
    surroundings = environment(os.environ, base_url=running.base_url, openai_url=running.openai_url, seed=seed)
    ended = carried_out(order, surroundings, timeout_s)
    problem = problem_of(ended, Target(order.module, order.attribute), running.exchanges[before:])
    if problem:
        raise RehearsalError(f"{where}{problem}{ended.printed}")
    return ended


def _tool_names(exchanges: Sequence[Exchange]) -> Iterator[list[str]]:
    for exchange in exchanges:
        with contextlib.suppress(WireError):
            yield [tool.name for tool in read(exchange.body, exchange.wire).tools]
