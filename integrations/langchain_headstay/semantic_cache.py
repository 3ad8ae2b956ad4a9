"""`SemanticCache`: the semantic cache where LangChain has its LLM caches."""

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Protocol, Self, cast, runtime_checkable

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import Generation
from langchain_core.runnables import RunnableConfig

from headstay.semantic.cache import Cache
from headstay.semantic.control import current_mode, current_names
from headstay.semantic.decide import THRESHOLD
from headstay.semantic.forking import ForkedLock
from headstay.semantic.lookup import Admission, Lookup
from headstay.semantic.metrics import Metrics
from headstay.semantic.policy import ToolCalls
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from headstay.semantic.store import Store
from headstay.slots import Slot
from langchain_headstay.asked import from_messages, from_strings, without_idle_values
from langchain_headstay.given import check_asked_model, check_named, idle_slots, messages_of
from langchain_headstay.identity import NoConfig, caller_config, config_of_this_call
from langchain_headstay.instrument import declare
from langchain_headstay.replay import answer_of, generations_of

Named = str | Callable[[Any], str | None] | None
"""A name, or a callable on the `RunnableConfig`."""

_PENDING = 512

_log = logging.getLogger("headstay.semantic")


@runtime_checkable
class _Asks(Protocol):
    """A `CacheAwareChatModel`, which asks with more than its settings."""

    semantic_cache: "SemanticCache | None"

    def request_of(
        self, messages: Sequence[BaseMessage], given: Mapping[str, Any], config: Any
    ) -> tuple[AskedRequest, Reason | None]: ...


class SemanticCache(BaseCache):
    """Answers repeated and reworded questions without calling the model, and never with another question's answer.

    For `set_llm_cache(...)`, a model's `cache=`, `CacheAwareChatModel(semantic_cache=...)` and `cached(...)`. Only the
    last human text is compared by meaning; system text, history, tools, model and parameters must be identical.

    Args:
        path_or_store: A file, a store of `headstay.semantic`, or None to keep everything in memory.
        embedder: None for the bundled model; a LangChain or LlamaIndex embeddings object, the name of a
            sentence-transformers model, or `CallableEmbedder(function, name=...)`.
        threshold: Least cosine similarity of two questions that share an answer, over 0 and up to 1.
        ttl: Seconds (or a timedelta) an answer may be served for, counted from its making; None: no limit.
        tenant: Nothing is shared between tenants: a name, or a callable on the config. A callable that returns None
            switches the cache off for that call. Behind `set_llm_cache` and `cache=` LangChain hands no config: there
            a callable works with models of `cache_aware(...)` only, and with any other `caching(tenant=...)` names
            it; a call that neither names is not answered. The same holds for `user` and `version`.
        user: The same within a tenant; `forget(user=...)` removes what belongs to one.
        version: What answers depend on beyond the request (documents, policy); a new one retires the answers of the
            old one.
        tags: Names on every kept answer, for `invalidate(tags=...)`.
        max_entries: Most answers in the file; the ones not served for longest go.
        max_bytes: Most bytes of them.
        tool_calls: "never" keeps no reply that asks for tools; "exact" replays them for identical requests.
        dry_run: Look up and compare with the fresh answer, and serve nothing.
        jitter: Share of the TTL by which it is shortened at random.
        flight: Seconds that an identical call waits for one under way; not behind `set_llm_cache`.
        volatile: `Slot(..., affects_answer=False)` for values of the system text that no answer depends on, such as a
            clock. Behind a `CacheAwareChatModel` its own slots count too.
        now: The clock, in seconds since the epoch.

    Raises:
        ConfigError: A setting cannot work.
        SemanticStoreError: The file cannot be used.

    Examples:
        >>> set_llm_cache(SemanticCache("answers.db"))  # doctest: +SKIP
    """

    def __init__(
        self,
        path_or_store: Store | str | os.PathLike[str] | None = None,
        *,
        embedder: object = None,
        threshold: float = THRESHOLD,
        ttl: float | timedelta | None = None,
        tenant: Named = None,
        user: Named = None,
        version: Named = None,
        tags: Sequence[str] = (),
        max_entries: int | None = None,
        max_bytes: int | None = None,
        tool_calls: ToolCalls = "never",
        dry_run: bool = False,
        jitter: float = 0.1,
        flight: float = 30.0,
        volatile: Slot | Sequence[Slot] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        for name, value in (("tenant", tenant), ("user", user), ("version", version)):
            check_named(name, value)
        self._declared = declare(None, idle_slots(volatile))
        self.engine = Cache(
            path_or_store,
            embedder=embedder,
            threshold=threshold,
            ttl=ttl,
            jitter=jitter,
            tool_calls=tool_calls,
            tags=tags,
            dry_run=dry_run,
            flight=flight,
            max_entries=max_entries,
            max_bytes=max_bytes,
            now=now,
        )
        self._names: dict[str, Named] = {"tenant": tenant, "user": user, "version": version}
        self._pending: OrderedDict[tuple[object, ...], Lookup] = OrderedDict()
        self._lock = ForkedLock()
        self._told = False

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """Return the kept reply to a request, or None.

        Args:
            prompt: Serialised messages, or a text.
            llm_string: The model's settings.
        """
        asked, unread = read_request(partial(from_strings, prompt, llm_string))
        if unread is not None:
            self.engine.look_up(asked, refused=unread)
            return None
        asked, refused = self._hooked(asked)
        lookup = self.engine.look_up(asked, refused=refused, make=generations_of)
        if lookup.entry is not None:
            return cast("list[Generation]", lookup.reply)
        with self._lock:  # `update` follows with the same request; it need not be embedded twice
            self._pending[_name(prompt, llm_string, lookup.request)] = lookup
            while len(self._pending) > _PENDING:
                self._pending.popitem(last=False)
        return None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Keep the reply to a request, if it finished normally.

        Args:
            prompt: As in `lookup`.
            llm_string: As in `lookup`.
            return_val: The reply.
        """
        asked, unread = read_request(partial(from_strings, prompt, llm_string))
        if unread is not None:
            return
        asked, refused = self._hooked(asked)
        with self._lock:
            lookup = self._pending.pop(_name(prompt, llm_string, asked), None)
        self.keep(lookup or self.engine.look_up(asked, refused=refused, count=False), return_val)

    async def alookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """Return the kept reply to a request, or None; the event loop is not blocked."""
        return await asyncio.to_thread(self.lookup, prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Keep the reply to a request; the event loop is not blocked."""
        await asyncio.to_thread(self.update, prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        """Retire answers.

        Args:
            **kwargs: `tags`, `version` or `tenant` of those to retire; nothing for all of them.
        """
        with self._lock:
            self._pending.clear()
        if kwargs:
            self.engine.invalidate(**kwargs)
        else:
            self.engine.clear()

    async def aclear(self, **kwargs: Any) -> None:
        """Retire answers; the event loop is not blocked."""
        await asyncio.to_thread(self.clear, **kwargs)

    def ask(
        self,
        asked: AskedRequest,
        config: Any = None,
        *,
        make: Callable[[Lookup], Any] | None = None,
        count: bool = True,
    ) -> Lookup:
        """Find a kept answer to a request.

        Args:
            asked: The request, as `langchain_headstay.asked` reads it.
            config: The caller's config; by default that of the call under way.
            make: As in `Cache.look_up`.
            count: As in `Cache.look_up`.
        """
        asked, refused = self.named(asked, config)
        return self.engine.look_up(asked, refused=refused, make=make, count=count)

    def named(self, asked: AskedRequest, config: Any = None) -> tuple[AskedRequest, Reason | None]:
        """Add tenant, user and version to a request, or say why it cannot be answered.

        Args:
            asked: The request; what it names itself wins.
            config: The caller's config; by default that of the call under way.
        """
        config = caller_config() if config is None else config
        asked = without_idle_values(asked, self._declared)
        said = current_names()
        asked = asked.named(tenant=said.tenant, user=said.user, version=said.version)
        unsaid = {name: given for name, given in self._names.items() if getattr(asked, name) is None}
        found, refused = read_names({**dict.fromkeys(self._names), **unsaid}, config)
        asked = asked.named(tenant=found["tenant"], user=found["user"], version=found["version"])
        unknown = any(callable(self._names[name]) and getattr(asked, name) is None for name in ("tenant", "user"))
        return asked, refused or (Reason.NO_TENANT if unknown else None)

    def _hooked(self, asked: AskedRequest) -> tuple[AskedRequest, Reason | None]:
        """Do what `named` does behind LangChain's own caches, which get no config.

        The config at hand may be that of an outer call for somebody else, so a function is not asked with it.
        """
        config = config_of_this_call()
        if config is not None:
            return self.named(asked, config)
        said, unknown = current_names(), NoConfig()
        unsaid = [name for name, given in self._names.items() if callable(given) and getattr(said, name) is None]
        for name in unsaid:
            with suppress(Exception):
                cast("Callable[[Any], object]", self._names[name])(unknown)
        if unknown.asked:
            if not self._told:
                self._told = True
                _log.warning(
                    "%s= cannot be asked behind set_llm_cache or cache=: LangChain hands a cache no config. Wrap the "
                    "model with cache_aware(...), use CacheAwareChatModel(semantic_cache=...), or name them with "
                    "caching(tenant=..., user=..., version=...)",
                    "= and ".join(unsaid),
                )
            return without_idle_values(asked, self._declared), Reason.NO_CONFIG
        return self.named(asked, unknown)

    def keep(self, lookup: Lookup, generations: Sequence[Generation]) -> Admission:
        """Keep a fresh reply, if it finished normally.

        Args:
            lookup: What `ask` returned.
            generations: The reply.
        """
        try:
            answer = answer_of(generations)
        except Exception:  # noqa: BLE001 - it holds what JSON does not have, or is no reply; it is the caller's first
            return self.engine.refuse(lookup, Reason.NOT_ADMITTED_FORM)
        return self.engine.admit(lookup, answer)

    @property
    def enabled(self) -> bool:
        """Whether it answers and keeps anything; set it to False to switch it off at once.

        The environment variable `HEADSTAY_CACHE=off` does so for every cache of the process.
        """
        return self.engine.enabled

    @enabled.setter
    def enabled(self, on: bool) -> None:
        self.engine.enabled = on

    def feedback(self, entry: str, *, wrong: bool) -> bool:
        """Judge a served answer by the name under `response_metadata["headstay"]["entry"]`; a wrong one is retired.

        Args:
            entry: That name.
            wrong: Whether the answer was wrong.

        Returns:
            Whether the answer is known.

        Raises:
            ConfigError: `entry` is no name, or `wrong` neither True nor False.
        """
        return self.engine.feedback(entry, wrong=wrong)

    def forget(self, *, tenant: str | None = None, user: str | None = None) -> int:
        """Remove a user's or a tenant's answers and every trace of them from the file."""
        with self._lock:
            self._pending.clear()
        return self.engine.forget(tenant=tenant, user=user)

    def invalidate(self, *, tags: Sequence[str] = (), version: str | None = None, tenant: str | None = None) -> int:
        """Retire answers by tag, version or tenant."""
        return self.engine.invalidate(tags=tags, version=version, tenant=tenant)

    def metrics(self) -> Metrics:
        """Return hits by tier and misses by reason, of this object in this process."""
        return self.engine.metrics()

    def explain(
        self,
        asked: str | Sequence[BaseMessage],
        model: BaseChatModel | None = None,
        *,
        config: RunnableConfig | None = None,
        **settings: Any,
    ) -> str:
        """Say what would be decided about a request, and why; nothing is counted or served.

        Args:
            asked: The messages, or a question.
            model: The model that would be asked. A chain made by `cached` explains itself.
            config: The caller's config; by default that of the call under way.
            **settings: The call's own settings, such as `tools`.

        Raises:
            ConfigError: `asked` is no question and no messages, or `model` no chat model.
        """
        messages = messages_of(asked)
        check_asked_model(model)
        config = caller_config() if config is None else config
        if isinstance(model, _Asks) and model.semantic_cache is self:
            request, refused = model.request_of(messages, settings, config)
        else:
            llm_string = model._get_llm_string(**settings) if model is not None else ""
            request, refused = read_request(partial(from_messages, messages, llm_string, settings))
        if refused is None:
            request, refused = self.named(request, config)
        return f"miss, {refused}: {refused.text}" if refused else self.engine.explain(request).explain()

    def close(self) -> None:
        """Let go of the file. A later use opens it again; without a path the answers stay."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


def read_request(read: Callable[[], AskedRequest]) -> tuple[AskedRequest, Reason | None]:
    """Read a request, or say that it cannot be read: the model is asked then.

    Args:
        read: Reads it; it may raise anything.
    """
    try:
        return read(), None
    except Exception as problem:  # noqa: BLE001 - what a provider takes is more than what has a canonical form
        _log.warning("reading a request raised %s; the call went on without the cache", type(problem).__name__)
        return AskedRequest(turns=()), Reason.INTERNAL_ERROR


def read_names(given: Mapping[str, Named], config: Any) -> tuple[dict[str, str | None], Reason | None]:
    """Read tenant, user and version off a config; an empty text is no name.

    Args:
        given: Names, or callables on the config.
        config: The caller's config.

    Returns:
        The names, and why the call cannot be answered, if so.
    """
    found: dict[str, str | None] = dict.fromkeys(given)
    for what, one in given.items():
        try:
            name = cast("object", one(config) if callable(one) else one)
        except Exception as problem:  # noqa: BLE001 - the application's callable; its call goes on without the cache
            _log.warning("%s= raised %s; the call went on without the cache", what, type(problem).__name__)
            return found, Reason.INTERNAL_ERROR
        if name is not None and not isinstance(name, str):
            _log.warning("%s= gave %s, expected a str or None; the call went on without the cache", what, type(name))
            return found, Reason.INTERNAL_ERROR
        found[what] = name or None
    return found, None


def _name(prompt: str, llm_string: str, asked: AskedRequest) -> tuple[object, ...]:
    return prompt, llm_string, asked.tenant, asked.user, asked.version, current_mode()
