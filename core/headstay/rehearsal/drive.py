"""Asks an agent of any framework a few questions, by the methods it has."""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

from headstay.errors import RehearsalError
from headstay.rehearsal.failure import told
from headstay.rehearsal.inputs import Shape, continued, shapes

Kind = Literal["invoke", "run", "chat", "query"]
Ask = Callable[[str], None]
"""Asks one question in a conversation."""

# How a host says that one of `invoke` and `ainvoke` is not to be had, which its checkpointer or a tool may decide.
_OTHER_WAY = (NotImplementedError, asyncio.InvalidStateError)
_OTHER_SHAPE = (TypeError, ValueError, KeyError, AttributeError, IndexError)


def kind_of(made: object) -> Kind | None:
    """Tell by which method an object is asked something; None where it has none that is known."""
    if inspect.isclass(made) or inspect.ismodule(made):
        return None
    if _has(made, "invoke") or _has(made, "ainvoke"):
        return "invoke"
    if _has(made, "run") and _is_llama_agent(made):
        return "run"
    if _has(made, "chat") or _has(made, "achat"):
        return "chat"
    return "query" if _has(made, "query") or _has(made, "aquery") else None


@dataclass(slots=True)
class Driver:
    """Holds conversations with one agent.

    Attributes:
        made: The agent.
        runner: Its event loop: what is async runs there, and what is not runs outside of it.
        prefer_async: Whether an object that has both kinds of methods is asked by the async one.
        mark: What makes the names of its conversations unique.
        pause: Called before each question.
    """

    made: Any
    runner: asyncio.Runner
    prefer_async: bool
    mark: str
    pause: Callable[[], None] = lambda: None
    tried: list[str] = field(default_factory=list[str])
    _opened: int = 0
    _shape: Shape | None = None

    def hold(self, asked: Sequence[str]) -> None:
        """Ask some questions in a conversation of their own.

        Raises:
            RehearsalError: The agent takes none of the forms that were tried.
            Exception: What the agent raised.
        """
        kind = kind_of(self.made)
        assert kind is not None
        self.tried = []
        ways = self._ways(kind)
        for number, way in enumerate(ways, 1):
            self.tried.append(way)
            try:
                ask = self._open(kind, way)
                for text in asked:
                    self.pause()
                    ask(text)
            except _OTHER_WAY:
                if number == len(ways):
                    raise
            else:
                return

    def _ways(self, kind: Kind) -> list[str]:
        names = ["run"] if kind == "run" else [kind, f"a{kind}"]
        found = [name for name in names if _has(self.made, name)]
        if len(found) > 1 and _waits_for_its_loop(_checkpointer(self.made)):
            return found[1:]
        return found[::-1] if self.prefer_async else found

    def _open(self, kind: Kind, way: str) -> Ask:
        """Begin a conversation."""
        self._opened += 1
        if kind == "invoke":
            return self._runnable(way, f"{self.mark}-{self._opened}")
        if kind == "run":
            return self._workflow()
        if kind == "chat" and self._opened > 1 and _has(self.made, "reset"):
            self.made.reset()

        def ask(text: str) -> None:
            self._call(way, text)

        return ask

    def _runnable(self, way: str, name: str) -> Ask:
        """Begin a conversation with a LangChain runnable or a LangGraph agent."""
        said: list[object] = []
        keeps = _keeps_history(self.made)
        config = {"configurable": {"thread_id": name, **dict.fromkeys(_history_keys(self.made), name)}}
        more = (config,) if _takes_config(getattr(self.made, way)) else ()

        def ask(text: str) -> None:
            result = self._shaped(way, [] if keeps else said, text, more)
            said[:] = continued(said, text, result)

        return ask

    def _shaped(self, way: str, said: Sequence[object], text: str, more: tuple[object, ...]) -> object:
        """Call with the form of input that the agent takes; the first one that works is kept."""
        if self._shape is not None:
            return self._call(way, self._shape(said, text), *more)
        forms = shapes(self.made)
        problems: list[BaseException] = []
        for shape in forms:
            try:
                result = self._call(way, shape(said, text), *more)
            except _OTHER_WAY:
                raise
            except _OTHER_SHAPE as problem:
                problems.append(problem)
            else:
                self._shape = shape
                return result
        if len(problems) == 1:
            raise problems[0]
        raise RehearsalError(
            f"its {way}() took neither a text, nor a dict, nor a list of messages; with a text: {told(problems[0])}; "
            "write a function without arguments that runs a short conversation, and name that one"
        )

    def _workflow(self) -> Ask:
        """Begin a conversation with a LlamaIndex agent; one memory holds it."""
        # The agent has loaded the module; nothing of the host framework is imported here.
        memory = getattr(sys.modules.get("llama_index.core.memory"), "ChatMemoryBuffer", None)
        known = _parameters(self.made.run).values()  # a workflow of the application's own may take none
        takes = any(one.name == "memory" or one.kind is one.VAR_KEYWORD for one in known)
        more = {"memory": memory.from_defaults()} if memory is not None and takes else {}

        def ask(text: str) -> None:
            self.runner.run(called(partial(self.made.run, user_msg=text, **more)))

        return ask

    def _call(self, way: str, *given: object) -> object:
        """Call a method: an async one in the event loop, any other outside of it, where it may run a loop itself."""
        method = getattr(self.made, way)
        if way.startswith("a"):
            return self.runner.run(called(method, *given))
        result = method(*given)
        return self.runner.run(awaited(result)) if inspect.isawaitable(result) else result


async def called(function: Callable[..., object], *given: object) -> object:
    """Call a function within the event loop, and wait for what it returns."""
    result = function(*given)
    return await result if inspect.isawaitable(result) else result


async def awaited(waiting: Awaitable[object]) -> object:
    """Wait for an awaitable that need not be a coroutine."""
    return await waiting


def _has(made: object, name: str) -> bool:
    return callable(getattr(made, name, None))


def _parameters(method: Callable[..., object]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(method).parameters)
    except (TypeError, ValueError):
        return {}


def _is_llama_agent(made: object) -> bool:
    """Whether `run` takes `user_msg`; LlamaIndex's own agents read it out of their keyword arguments."""
    roots = {base.__module__.partition(".")[0] for base in type(made).__mro__}
    return "user_msg" in _parameters(cast("Any", made).run) or not roots.isdisjoint(("llama_index", "workflows"))


def _takes_config(method: Callable[..., object]) -> bool:
    return "config" in _parameters(method)


def _keeps_history(made: object) -> bool:
    """Whether a runnable keeps the conversation itself, by its thread or session id."""
    return bool(_checkpointer(made)) or any(_has(one, "get_session_history") for one in _layers(made))


def _checkpointer(made: object) -> object:
    """Return what keeps the conversations of a graph, or None."""
    return next(filter(None, (getattr(one, "checkpointer", None) for one in _layers(made))), None)


def _layers(made: object) -> Iterator[object]:
    """Go from a runnable to those it is bound around."""
    for _ in range(8):
        if made is None:
            return
        yield made
        made = getattr(made, "bound", None)


def _waits_for_its_loop(checkpointer: object) -> bool:
    """Whether what a checkpointer does for `invoke` waits for an event loop that has ended or stands still."""
    loop = getattr(checkpointer, "loop", None)
    return isinstance(loop, asyncio.AbstractEventLoop) and not loop.is_running()


def _history_keys(made: object) -> list[str]:
    """Return what a runnable that keeps histories finds them by."""
    fields = getattr(made, "history_factory_config", None) or ()
    return [str(getattr(one, "id", "")) for one in fields]
