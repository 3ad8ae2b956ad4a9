"""`SemanticCache`: the semantic cache where LangChain has its LLM caches."""

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from threading import Lock
from typing import Any, Self, cast

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.outputs import Generation

from headstay.errors import ConfigError
from headstay.semantic.cache import Cache
from headstay.semantic.control import current_mode
from headstay.semantic.decide import THRESHOLD
from headstay.semantic.lookup import Admission, Lookup
from headstay.semantic.metrics import Metrics
from headstay.semantic.policy import ToolCalls
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from headstay.semantic.store import Store
from headstay.slots import Slot
from langchain_headstay.asked import from_messages, from_strings, without_idle_values
from langchain_headstay.identity import caller_config
from langchain_headstay.instrument import declare
from langchain_headstay.replay import answer_of, generations_of

Named = str | Callable[[Any], str | None] | None
"""A name, or a callable on the `RunnableConfig`."""

_PENDING = 512

_log = logging.getLogger("headstay.semantic")


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
            switches the cache off for that call.
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
            if value is not None and not isinstance(value, str) and not callable(value):
                raise ConfigError(f"{name}={value!r}: give a str, a callable on the config, or None")
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
        self._declared = declare(None, [volatile] if isinstance(volatile, Slot) else list(volatile))
        self._names: dict[str, Named] = {"tenant": tenant, "user": user, "version": version}
        self._pending: OrderedDict[tuple[object, ...], Lookup] = OrderedDict()
        self._lock = Lock()

    def lookup(self, prompt: str, llm_string: str) -> list[Generation] | None:
        """Return the kept reply to a request, or None.

        Args:
            prompt: Serialised messages, or a text.
            llm_string: The model's settings.
        """
        lookup = self.ask(from_strings(prompt, llm_string), make=generations_of)
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
        asked, refused = self.named(from_strings(prompt, llm_string))
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
        found, refused = read_names(self._names, config)
        asked = asked.named(tenant=found["tenant"], user=found["user"], version=found["version"])
        unknown = callable(self._names["tenant"]) and asked.tenant is None
        return asked, refused or (Reason.NO_TENANT if unknown else None)

    def keep(self, lookup: Lookup, generations: Sequence[Generation]) -> Admission:
        """Keep a fresh reply, if it finished normally.

        Args:
            lookup: What `ask` returned.
            generations: The reply.
        """
        try:
            answer = answer_of(generations)
        except (TypeError, ValueError):  # it holds what JSON does not have
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
        """Judge a served answer by the name under `response_metadata["headstay"]["entry"]`; a wrong one is retired."""
        return self.engine.feedback(entry, wrong=wrong)

    def forget(self, *, tenant: str | None = None, user: str | None = None) -> int:
        """Remove a user's or a tenant's answers and every trace of them from the file."""
        return self.engine.forget(tenant=tenant, user=user)

    def invalidate(self, *, tags: Sequence[str] = (), version: str | None = None, tenant: str | None = None) -> int:
        """Retire answers by tag, version or tenant."""
        return self.engine.invalidate(tags=tags, version=version, tenant=tenant)

    def metrics(self) -> Metrics:
        """Return hits by tier and misses by reason, of this object in this process."""
        return self.engine.metrics()

    def explain(self, asked: str | Sequence[BaseMessage], model: BaseChatModel | None = None, **settings: Any) -> str:
        """Say what would be decided about a request, and why; nothing is counted or served.

        Args:
            asked: The messages, or a question.
            model: The model that would be asked.
            **settings: The call's own settings, such as `tools`.
        """
        messages = [HumanMessage(asked)] if isinstance(asked, str) else list(asked)
        llm_string = model._get_llm_string(**settings) if model is not None else ""
        request, refused = self.named(from_messages(messages, llm_string, settings))
        return f"miss, {refused}: {refused.text}" if refused else self.engine.explain(request).explain()

    def close(self) -> None:
        """Let go of the file."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


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
