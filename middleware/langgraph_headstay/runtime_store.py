"""The head store on LangGraph's `runtime.store`: what several workers without a common disk know together.

Before a model call the documents it needs are read into a head store in memory, and afterwards what changed is written
back. A store that fails or is slow never fails a call: headstay then goes on with what it has in memory, says so once,
and leaves the store alone for a while. What could not be written is written with the conversation's next call.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple, cast

from langgraph.store.base import BaseStore

from headstay.errors import HeadStoreError
from headstay.headstore_shared import Journal, Read, SharedHeadStore, Steps, Write

NAMESPACE = "headstay"
FORM = 2  # of the documents; another one where `headstore_rows` or `CallRecord` changes
PATIENCE_S = 2.0
REST_S = 30.0
_UNSAVED = 256
_OWN = 8_192


class Conversation(NamedTuple):
    """Whose documents a call needs.

    Attributes:
        scope: Tenant and agent, hashed.
        key: Key of the conversation's document.
    """

    scope: str
    key: str


class RuntimeStore:
    """Keeps a head store in memory and a LangGraph store in step.

    Args:
        say: Logs a line once.
        patience_s: Seconds to wait for the store, for each of loading and saving.
        rest_s: Seconds for which a store that failed is left alone, or a tenant's documents that cannot be read.

    Attributes:
        head_store: The head store in memory.
    """

    def __init__(self, say: Callable[[str], None], *, patience_s: float = PATIENCE_S, rest_s: float = REST_S) -> None:
        self.head_store = SharedHeadStore()
        self._say = say
        self._patience = patience_s
        self._rest = rest_s
        self._rest_until: OrderedDict[str, float] = OrderedDict()  # by scope; an empty one is the whole store
        self._unsaved: OrderedDict[Conversation, Journal] = OrderedDict()
        self._own: OrderedDict[str, None] = OrderedDict()
        self._told: set[tuple[str, str]] = set()
        self._lock = Lock()

    @contextmanager
    def sharing(self, store: BaseStore | None, conversation: Conversation) -> Generator[None]:
        """Load what a model call needs, and write back what it changed, also where it failed.

        Args:
            store: The runtime's store, or None.
            conversation: Whose documents.
        """
        if store is None:
            self._say_none()
            yield
            return
        journal = self._open(conversation)
        try:
            self._load(store, journal)
            with self.head_store.noting(journal):
                yield
        except Exception:
            self._save(store, journal)
            raise
        except BaseException:  # cancelled: nothing is waited for
            self._hold(journal)
            raise
        self._save(store, journal)

    @asynccontextmanager
    async def asharing(self, store: BaseStore | None, conversation: Conversation) -> AsyncGenerator[None]:
        """Do what `sharing` does."""
        if store is None:
            self._say_none()
            yield
            return
        journal = self._open(conversation)
        try:
            await self._aload(store, journal)
            with self.head_store.noting(journal):
                yield
        except Exception:
            await self._asave(store, journal)
            raise
        except BaseException:  # cancelled: nothing is waited for
            self._hold(journal)
            raise
        await self._asave(store, journal)

    def recall(self, store: BaseStore | None, conversation: Conversation, reply: str | None) -> None:
        """Load what is known of a reply whose tool calls are to run, unless it was made here."""
        if store is not None and (reply is None or reply not in self._own):
            self._load(store, Journal(*conversation))

    async def arecall(self, store: BaseStore | None, conversation: Conversation, reply: str | None) -> None:
        """Do what `recall` does."""
        if store is not None and (reply is None or reply not in self._own):
            await self._aload(store, Journal(*conversation))

    def made(self, reply: str | None) -> None:
        """Note that a reply was made in this process: what was offered to it is in memory."""
        if reply is None:
            return
        with self._lock:
            self._own[reply] = None
            while len(self._own) > _OWN:
                self._own.popitem(last=False)

    def _open(self, conversation: Conversation) -> Journal:
        with self._lock:
            return self._unsaved.pop(conversation, None) or Journal(*conversation)

    def _load(self, store: BaseStore, journal: Journal) -> None:
        if not self._resting(journal.scope):
            try:
                self._run(store, journal, self.head_store.loading(journal))
            except Exception as problem:  # noqa: BLE001 - I8: the call goes on with what is in memory
                self._failed("read", journal, problem)

    async def _aload(self, store: BaseStore, journal: Journal) -> None:
        if not self._resting(journal.scope):
            try:
                async with asyncio.timeout(self._patience):
                    await _arun(store, journal, self.head_store.loading(journal))
            except Exception as problem:  # noqa: BLE001 - I8: the call goes on with what is in memory
                self._failed("read", journal, problem)

    def _save(self, store: BaseStore, journal: Journal) -> None:
        try:
            if not self._resting(journal.scope):
                self._run(store, journal, self.head_store.saving(journal))
        except Exception as problem:  # noqa: BLE001 - I8: the reply is there all the same
            self._failed("written", journal, problem)
        finally:
            self._hold(journal)

    async def _asave(self, store: BaseStore, journal: Journal) -> None:
        try:
            if not self._resting(journal.scope):
                async with asyncio.timeout(self._patience):
                    await _arun(store, journal, self.head_store.saving(journal))
        except Exception as problem:  # noqa: BLE001 - I8: the reply is there all the same
            self._failed("written", journal, problem)
        finally:
            self._hold(journal)

    def _hold(self, journal: Journal) -> None:
        """Keep what could not be written for the conversation's next call."""
        if journal.empty:
            return
        conversation = Conversation(journal.scope, journal.conversation)
        with self._lock:
            held = self._unsaved.pop(conversation, None)  # of a call beside this one
            if held is not None:
                journal.take_over(held)
            self._unsaved[conversation] = journal
            while len(self._unsaved) > _UNSAVED:
                self._unsaved.popitem(last=False)

    def _run(self, store: BaseStore, journal: Journal, steps: Steps) -> None:
        until = monotonic() + self._patience
        texts: Sequence[str | None] | None = None
        while True:
            try:
                asked = next(steps) if texts is None else steps.send(texts)
            except StopIteration:
                return
            texts = _within(until - monotonic(), partial(_serve, store, (NAMESPACE, journal.scope), asked))

    def _resting(self, scope: str) -> bool:
        with self._lock:
            until = max(self._rest_until.get("", 0.0), self._rest_until.get(scope, 0.0))
        return monotonic() < until

    def _failed(self, what: str, journal: Journal, problem: Exception) -> None:
        # a document that cannot be read is one tenant's: the others go on
        of_document = isinstance(problem, (HeadStoreError, ValueError, KeyError, TypeError))
        with self._lock:
            self._rest_until[journal.scope if of_document else ""] = monotonic() + self._rest
            while len(self._rest_until) > _UNSAVED:
                self._rest_until.popitem(last=False)
        kind = type(problem).__name__
        if isinstance(problem, TimeoutError):
            words = f"it took more than {self._patience:g} s"
        elif isinstance(problem, HeadStoreError):
            words = str(problem)
        elif isinstance(problem, (ValueError, KeyError, TypeError)):
            words = f"{kind}: {problem}; if a document is damaged, delete the namespace {(NAMESPACE, journal.scope)!r}"
        else:
            words = f"{kind}: {problem}"
        if (what, kind) not in self._told:
            self._told.add((what, kind))
            resting = "these documents are" if of_document else "the store is"
            self._say(
                f"runtime.store could not be {what}: {words}. The call went on with what is in memory, and {resting} "
                f"left alone for {self._rest:g} s"
            )

    def _say_none(self) -> None:
        self._say(
            'head_store="runtime": this agent has no store, so heads, tools, notes and conversations stay in the '
            "memory of this process; give one: create_agent(..., store=...)"
        )


async def _arun(store: BaseStore, journal: Journal, steps: Steps) -> None:
    texts: Sequence[str | None] | None = None
    while True:
        try:
            asked = next(steps) if texts is None else steps.send(texts)
        except StopIteration:
            return
        texts = await asyncio.gather(*(_aserve(store, (NAMESPACE, journal.scope), one) for one in asked))


def _serve(store: BaseStore, namespace: tuple[str, ...], asked: Sequence[Read | Write]) -> list[str | None]:
    texts: list[str | None] = []
    for one in asked:
        if isinstance(one, Read):
            item = store.get(namespace, one.key)
            texts.append(None if item is None else _text_of(item.value))
            continue
        texts.append(None)
        if one.text is None:
            store.delete(namespace, one.key)
        else:
            store.put(namespace, one.key, _value_of(one.text), index=False)
    return texts


async def _aserve(store: BaseStore, namespace: tuple[str, ...], one: Read | Write) -> str | None:
    if isinstance(one, Read):
        item = await store.aget(namespace, one.key)
        return None if item is None else _text_of(item.value)
    if one.text is None:
        await store.adelete(namespace, one.key)
    else:
        await store.aput(namespace, one.key, _value_of(one.text), index=False)
    return None


def _value_of(text: str) -> dict[str, Any]:
    """Wrap a text: inside an object some stores sort the keys, and here their order says something."""
    return {"form": FORM, "text": text}


def _text_of(value: dict[str, Any]) -> str:
    if value.get("form") != FORM:
        raise HeadStoreError(
            f"a document is in form {value.get('form')!r}, and this version of headstay reads form {FORM}; run one "
            "version on all workers"
        )
    return cast("str", value["text"])


def _within(seconds: float, work: Callable[[], list[str | None]]) -> list[str | None]:
    """Do work in a thread and wait for it no longer than some seconds.

    On the thread of an event loop it is done right there: a store that belongs to the loop refuses at once, and would
    wait for the loop, which waits for it, from another thread.

    Raises:
        TimeoutError: It took longer.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        done: Future[list[str | None]] = Future()
        Thread(target=copy_context().run, args=(_settle, done, work), daemon=True, name="headstay-store").start()
        return done.result(max(seconds, 0.0))
    return work()


def _settle(done: "Future[list[str | None]]", work: Callable[[], list[str | None]]) -> None:
    try:
        done.set_result(work())
    except BaseException as problem:  # noqa: BLE001 - raised where it is waited for
        done.set_exception(problem)
