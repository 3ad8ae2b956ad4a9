"""Few-shot examples, chosen once for a lane or a conversation and then kept: the same bytes in every call."""

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from threading import Lock
from typing import Any, Literal, NamedTuple, Protocol, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from pydantic import BaseModel

from headstay.canonical import digest
from headstay.errors import ConfigError
from headstay.headstore import HeadStore
from headstay.values import EXAMPLES_TITLE

Example = Mapping[str, str]
Examples = list[dict[str, str]]


class Selector(Protocol):
    """An example selector, as LangChain has them."""

    def select_examples(self, input_variables: dict[str, str], /) -> list[dict[str, Any]]:
        """Choose examples."""
        ...


FewShot = Sequence[Example] | Callable[[], Sequence[Example]] | Callable[[str], Sequence[Example]] | Selector
"""A list of examples, a callable that returns one (for a conversation: of its first question), or an example selector
of LangChain."""

FewShotAs = Literal["system", "messages"]
FewShotEvery = Literal["lane", "conversation"]

LANE_TITLE = "Examples:"
_HOW = (
    'give a list of mappings such as [{"input": ..., "output": ...}], a function that returns one, or an example '
    "selector"
)
_IS_ASYNC = "is async: give a plain one; it is called in a thread where the agent runs asynchronously"
_ASYNC = (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
_QUESTIONS = ("input", "question", "user", "human")
_ANSWERS = ("output", "answer", "assistant", "ai")
_RENEWED_AFTER_S = 3_600.0  # the head store drops the oldest; what is in use must not be among them


@dataclass(frozen=True, slots=True)
class Declaration:
    """What the application declared about its examples.

    Attributes:
        source: A list, a callable, or a selector.
        listed: The examples of a list; None for what has to be asked.
        placed: "system" or "messages".
        every: Whether they are chosen for a lane or for a conversation.
        key: Under what a choice is kept: another declaration has another one.
    """

    source: Any
    listed: Examples | None
    placed: FewShotAs
    every: FewShotEvery
    key: str


def declare_few_shot(
    few_shot: FewShot | None, *, placed: FewShotAs, every: FewShotEvery, version: str
) -> Declaration | None:
    """Read the settings.

    Args:
        few_shot: A list, a callable, a selector, or None.
        placed: "system" or "messages".
        every: "lane" or "conversation".
        version: Chosen by the application; another one lets the examples be chosen anew.

    Raises:
        ConfigError: They cannot work together.
    """
    if placed not in ("system", "messages"):
        raise ConfigError(f'few_shot_as={placed!r}: say "system" or "messages"')
    if every not in ("lane", "conversation"):
        raise ConfigError(f'few_shot_every={every!r}: say "lane" or "conversation"')
    if not isinstance(cast("object", version), str):
        raise ConfigError(f'few_shot_version={version!r}: give a text, such as "2"')
    if few_shot is None and every == "conversation":
        raise ConfigError('few_shot_every="conversation" needs few_shot=: a selector, or a function of the question')
    if few_shot is None:
        return None
    listed = choose(cast("Sequence[Any]", few_shot)) if isinstance(few_shot, (list, tuple)) else None
    if listed is not None and every == "conversation":
        raise ConfigError(
            'few_shot_every="conversation" needs a selector or a function to ask; '
            'a list is the same for all: leave it at "lane"'
        )
    if listed is not None and placed == "messages":
        as_messages(listed)
    if listed is None:
        _check_source(few_shot, every)
    return Declaration(few_shot, listed, placed, every, _key_of(few_shot, every, placed, version))


def _check_source(few_shot: Any, every: FewShotEvery) -> None:
    """Refuse what could never be asked; what does not tell its arguments is tried in the first call.

    Raises:
        ConfigError: The message says what to give.
    """
    if isinstance(few_shot, type):
        raise ConfigError(f"few_shot= is the class {few_shot.__name__}: give an object of it")
    select = getattr(few_shot, "select_examples", None)
    if callable(select):
        called = f"few_shot={type(few_shot).__name__}: its select_examples"
        _check_takes(select, called, ({},), "is called with one mapping, as LangChain's selectors are")
    elif not callable(few_shot):
        raise ConfigError(f"few_shot= is of the type {type(few_shot).__name__}: {_HOW}")
    elif every == "lane":
        more = 'give it defaults, or say few_shot_every="conversation", which calls it with the first question'
        _check_takes(few_shot, _named(few_shot), (), f"is called without arguments: {more}")
    else:
        how = "is called with the first question of each conversation: give it one parameter"
        _check_takes(few_shot, _named(few_shot), ("",), how)


def _check_takes(asked: Callable[..., Any], called: str, given: tuple[Any, ...], how: str) -> None:
    runs = (asked, getattr(asked, "__call__", None))  # noqa: B004 - an object's method may be async
    if any(is_async(found) for found in runs for is_async in _ASYNC):
        raise ConfigError(f"{called} {_IS_ASYNC}")
    try:
        takes = inspect.signature(asked, follow_wrapped=False)  # a decorator may give arguments of its own
    except (TypeError, ValueError):
        return
    try:
        takes.bind(*given)
    except TypeError as problem:
        raise ConfigError(f"{called} takes {takes} and {how}") from problem


def _named(few_shot: object) -> str:
    return f"few_shot={getattr(few_shot, '__qualname__', type(few_shot).__qualname__)}"


def _key_of(few_shot: Any, every: str, placed: str, version: str) -> str:
    """Name a declaration, alike in every process: type or function by name, and the plain ones of declared fields.

    Only what a pydantic model or a dataclass declares: another object's attributes may count its calls, or hold a
    connection.
    """
    named = few_shot if hasattr(few_shot, "__qualname__") else cast("type[object]", type(few_shot))
    names: Sequence[str] = ()
    if isinstance(few_shot, BaseModel):
        names = sorted(type(few_shot).model_fields)
    elif is_dataclass(few_shot):
        names = sorted(field.name for field in fields(few_shot))
    settings = {name: plain for name in names if (plain := _plain(getattr(few_shot, name, None)))}
    parts = (placed, str(named.__module__), named.__qualname__, json.dumps(settings, sort_keys=True), version)
    return f"few_shot-{every}-{digest(*parts).hex()}"


def _plain(value: object) -> str:
    """Write plain data; anything else as an empty text."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    except (TypeError, ValueError):
        return ""


class Asked(NamedTuple):
    """For whom examples are chosen.

    Attributes:
        scope: Tenant and agent, hashed.
        thread: The host's thread id, or empty: then the first question names the conversation.
        question: The first question of the conversation.
    """

    scope: str
    thread: str
    question: str


class Pins:
    """Asks for the examples and keeps the choice.

    Args:
        declared: What the application declared.
        store: Where a choice is kept.
    """

    def __init__(self, declared: Declaration, store: HeadStore) -> None:
        self.declared = declared
        self._store = store
        self._asking = Lock()

    def known(self, asked: Asked) -> Examples | None:
        """Return the choice that was made, or None where one has to be made."""
        if self.declared.listed is not None:
            return self.declared.listed
        if self.declared.every == "lane":
            pinned = self._store.pinned(asked.scope, self.declared.key)
            return None if pinned is None else _load(pinned)
        kept = self._store.note(asked.scope, self._name(asked))
        if kept is None:
            return None
        held = cast("dict[str, Any]", json.loads(kept))
        if time.time() - held["at"] > _RENEWED_AFTER_S:
            self._keep(asked, held["examples"])
        return cast("Examples", held["examples"])

    def ask(self, asked: Asked) -> Examples:
        """Ask for the examples and keep them; whoever asked at the same time gets the same ones.

        Raises:
            ConfigError: What came back is no list of mappings, or cannot be written as messages.
        """
        if self.declared.every == "lane":
            with self._asking:  # two first calls at once ask once
                known = self.known(asked)
                if known is not None:
                    return known
                return _load(self._store.pin(asked.scope, self.declared.key, dump(self._choose())))
        chosen = self._choose(asked.question)  # conversations do not wait for one another
        with self._asking:
            known = self.known(asked)
            if known is None:
                self._keep(asked, chosen)
        return chosen if known is None else known

    def _choose(self, question: str | None = None) -> Examples:
        chosen = choose(self.declared.source, question)
        if self.declared.placed == "messages":
            as_messages(chosen)  # what cannot be used is not kept
        return chosen

    def _name(self, asked: Asked) -> str:
        named = ("thread", asked.thread) if asked.thread else ("question", asked.question)
        return f"{self.declared.key}-{digest(*named).hex()}"

    def _keep(self, asked: Asked, examples: Examples) -> None:
        now = time.time()
        text = json.dumps({"at": now, "examples": examples}, ensure_ascii=False)
        self._store.save_note(asked.scope, self._name(asked), text, now)


def choose(few_shot: Any, question: str | None = None) -> Examples:
    """Ask for the examples.

    Args:
        few_shot: A list, a callable, or a selector with `select_examples`.
        question: The first question of a conversation; None where the choice is for every conversation of a lane.

    Returns:
        The examples as plain mappings of texts.

    Raises:
        ConfigError: What came back is no list of mappings.
    """
    select = getattr(few_shot, "select_examples", None)
    chosen: Any = few_shot
    if callable(select):  # a selector may insist on its input keys
        keys: Any = getattr(few_shot, "input_keys", None) or (() if question is None else ("input",))
        chosen = select(dict.fromkeys(keys, question or ""))
    elif callable(few_shot):
        chosen = few_shot() if question is None else few_shot(question)
    if inspect.iscoroutine(chosen):
        chosen.close()
        raise ConfigError(f"few_shot= gives a coroutine, so what it calls {_IS_ASYNC}")
    if not isinstance(chosen, (list, tuple)) or not all(isinstance(one, Mapping) for one in cast("list[Any]", chosen)):
        raise ConfigError("few_shot= gives no list of examples; give mappings such as {'input': ..., 'output': ...}")
    return [{str(key): str(value) for key, value in one.items()} for one in cast("Sequence[Example]", chosen)]


def dump(examples: Sequence[Example]) -> str:
    """Write examples in the form in which they are pinned."""
    return json.dumps([dict(one) for one in examples], ensure_ascii=False)


def _load(pinned: str) -> Examples:
    return cast("Examples", json.loads(pinned))


def first_question(messages: Sequence[Any]) -> str:
    """Return the text of the first human message, or an empty text."""
    return next((str(message.text) for message in messages if isinstance(message, HumanMessage)), "")


def as_text(examples: Sequence[Example], every: FewShotEvery = "lane") -> str:
    """Write examples as a block of system text; those of a conversation stand under the title of such values."""
    shown = ["\n".join(f"{key}: {value}" for key, value in one.items()) for one in examples]
    if every == "lane":
        return "\n\n".join([LANE_TITLE, *shown])
    return f"{EXAMPLES_TITLE}\n" + "\n\n".join(shown)


def as_messages(examples: Sequence[Example]) -> list[AnyMessage]:
    """Write examples as message pairs.

    Raises:
        ConfigError: An example has no question or no answer.
    """
    messages: list[AnyMessage] = []
    for one in examples:
        question = next((one[key] for key in _QUESTIONS if key in one), None)
        answer = next((one[key] for key in _ANSWERS if key in one), None)
        if question is None or answer is None:
            raise ConfigError(f"few_shot_as='messages' needs 'input' and 'output' in each example, got {sorted(one)}")
        messages += [HumanMessage(question), AIMessage(answer)]
    return messages
