"""`SemanticCacheQueryEngine`: a query engine whose answers are kept under the bare question."""

import asyncio
import logging
import threading
import weakref
from asyncio import to_thread
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from copy import copy
from functools import partial
from typing import Any, cast

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import RESPONSE_TYPE, AsyncStreamingResponse, StreamingResponse
from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.prompts.mixin import PromptDictType, PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle

from headstay.canonical import digest, meaning_text
from headstay.errors import ConfigError
from headstay.semantic.flight import Flight
from headstay.semantic.lookup import Lookup
from headstay.semantic.policy import check_name
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn, read_settings
from llama_index_headstay.events import report
from llama_index_headstay.identity import Named, check_named, semantic_engine
from llama_index_headstay.kept_values import response_of, text_of, told_of
from llama_index_headstay.query_caching import Caching, UnnamedError
from llama_index_headstay.query_fresh import Fresh, afollowed, followed
from llama_index_headstay.query_identity import EngineContent, read_engine
from llama_index_headstay.query_watch import Watch

_MOST_SAID = 16

_said: set[tuple[str, ...]] = set()
_log = logging.getLogger("headstay.semantic")


class SemanticCacheQueryEngine(BaseQueryEngine):
    """Keeps a query engine's answers under the bare question: a hit skips retrieval and model.

    Only the question is compared by meaning. Everything else must be identical: tenant, user, version, the models and
    their parameters, prompts, retriever parameters and response mode, all read anew for each query. A query bundle's
    own embedding strings or embedding must be identical too; one with an image is not answered from the cache.

    It stands wherever a query engine does, and wherever one has public attributes of its own it has them too. A
    streaming engine's answers replay as streams: from `query` as LlamaIndex's `StreamingResponse`, from `aquery` as its
    `AsyncStreamingResponse`.

    Args:
        query_engine: The query engine.
        cache: Where its answers are kept: a `headstay.semantic.Cache`, or an object that holds one as its `engine`.
        version: What the answers depend on beyond the question, above all the documents: a str, or a callable that is
            asked before each query, and after it where it was not served. Another version retires the answers, so
            change it after the documents; no version, or an error, goes past the cache.
        tenant: Nothing is shared between tenants: a str, or a callable. Where it gives None nothing is cached.
        user: The same within a tenant.
        name: Stands for the parts of the engine that show no content, such as the index and the application's own
            classes. By default these are only themselves, so that no other process finds the answers.

    Attributes:
        query_engine: The query engine.

    Raises:
        ConfigError: A setting cannot work.
    """

    def __init__(
        self,
        query_engine: BaseQueryEngine,
        *,
        cache: object,
        version: Named,
        tenant: Named = None,
        user: Named = None,
        name: str | None = None,
    ) -> None:
        if not isinstance(cast("object", query_engine), BaseQueryEngine):
            raise ConfigError(
                f"SemanticCacheQueryEngine({type(query_engine).__name__}): give a query engine, such as "
                "index.as_query_engine()"
            )
        engine = semantic_engine("SemanticCacheQueryEngine: cache", cache)
        for setting, given in (("version", version), ("tenant", tenant), ("user", user)):
            check_named(f"SemanticCacheQueryEngine: {setting}", given)
        if version is None:
            raise ConfigError(
                "SemanticCacheQueryEngine: version=None: give what changes when the documents do, such as a date or a "
                "callable that reads it; answers of another version are not served"
            )
        check_name("SemanticCacheQueryEngine: name", name)
        self.query_engine = query_engine
        self._caching = Caching(engine, version, tenant, user, name)
        self._open: dict[int, ExitStack] = {}
        super().__init__(callback_manager=getattr(query_engine, "callback_manager", None))
        self._say_unseen()

    def __getattr__(self, name: str) -> Any:
        """Return what else the engine has that is public, such as its retriever."""
        if name.startswith("_") or "query_engine" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.query_engine, name)

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Retrieve, as the engine does; nothing is kept."""
        return self.query_engine.retrieve(query_bundle)

    def synthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> RESPONSE_TYPE:
        """Answer from given nodes, as the engine does; nothing is kept."""
        return self.query_engine.synthesize(query_bundle, nodes, additional_source_nodes)

    async def asynthesize(
        self,
        query_bundle: QueryBundle,
        nodes: list[NodeWithScore],
        additional_source_nodes: Sequence[NodeWithScore] | None = None,
    ) -> RESPONSE_TYPE:
        """Answer from given nodes, as the engine does; nothing is kept."""
        return await self.query_engine.asynthesize(query_bundle, nodes, additional_source_nodes)

    def with_retriever(self, retriever: BaseRetriever) -> "SemanticCacheQueryEngine":
        """Return the engine with another retriever, its answers kept in the same cache."""
        other = cast("Any", self.query_engine).with_retriever(retriever)
        held = self._caching
        return SemanticCacheQueryEngine(
            other, cache=held.cache, version=held.version, tenant=held.tenant, user=held.user, name=held.name
        )

    def explain(self, query: str | QueryBundle) -> str:
        """Say what would be decided about a question, and why; nothing is counted or served, the engine does not run.

        Args:
            query: The question.
        """
        asked, _, refused = self._request(QueryBundle(query) if isinstance(query, str) else query)
        return self._caching.cache.explain(asked, refused=refused).explain()

    def feedback(self, entry: str, *, wrong: bool) -> bool:
        """Judge a served answer by the name under `response.metadata["headstay"]["entry"]`; a wrong one is retired.

        Args:
            entry: That name.
            wrong: Whether the answer was wrong.

        Returns:
            Whether the answer is known.

        Raises:
            ConfigError: `entry` is no name, or `wrong` neither True nor False.
        """
        return self._caching.cache.feedback(entry, wrong=wrong)

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        if (left := self._open.pop(_caller(), None)) is not None:
            left.close()
        lookup, flight = self._caching.cache.join(partial(self._ask, query_bundle, awaited=False))
        with _landing(flight) as landing:
            report(lookup, threshold=self._caching.cache.policy.threshold)
            if lookup.entry is not None:
                return self._served(lookup, query_bundle)
            watch = Watch.start()
            with watch.watching():
                response = self.query_engine.query(copy(query_bundle))
            fresh = self._fresh(query_bundle, lookup, watch, response, awaited=False)
            text = text_of(response)
            if text is not None:
                fresh.keep(text)
                return response
            return self._handed_on(response, fresh, landing.pop_all())

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        if (left := self._open.pop(_caller(), None)) is not None:
            await to_thread(left.close)
        lookup, flight = await self._caching.cache.ajoin(partial(self._ask, query_bundle, awaited=True))
        landing = _landing(flight)
        try:
            report(lookup, threshold=self._caching.cache.policy.threshold)
            if lookup.entry is not None:
                return self._served(lookup, query_bundle)
            watch = Watch.start()
            with watch.watching():
                response = await self.query_engine.aquery(copy(query_bundle))
            fresh = await to_thread(self._fresh, query_bundle, lookup, watch, response, awaited=True)
            text = text_of(response)
            if text is not None:
                await to_thread(fresh.keep, text)
                return response
            return self._handed_on(response, fresh, landing.pop_all())
        finally:
            await to_thread(landing.close)

    def _ask(self, bundle: QueryBundle, *, awaited: bool) -> Lookup:
        asked, content, refused = self._request(bundle)
        make = partial(response_of, awaited=awaited, classes=content.classes)
        return self._caching.cache.look_up(asked, refused=refused, make=make, count=False)

    def _request(self, bundle: QueryBundle) -> tuple[AskedRequest, EngineContent, Reason | None]:
        """Read a question and the engine it is for, or say why it is not answered."""
        asked, content = AskedRequest(turns=()), EngineContent()
        try:
            content = read_engine(self.query_engine, self._caching.name)
            asked = _asked(bundle, content)
            if not asked.turns:
                return asked, content, Reason.NO_QUERY
            return asked.named(**self._caching.names()), content, None
        except UnnamedError as problem:
            return asked, content, problem.reason
        except Exception as problem:  # noqa: BLE001 - whatever the application put in its engine; its query goes on
            _log.warning("reading a query raised %s; it went on without the cache", type(problem).__name__)
            return asked, content, Reason.INTERNAL_ERROR

    def _served(self, lookup: Lookup, bundle: QueryBundle) -> RESPONSE_TYPE:
        """Serve a hit, with the events that LlamaIndex's own engines tell of a query."""
        payload: dict[str, Any] = {EventPayload.QUERY_STR: bundle.query_str}
        with self.callback_manager.event(CBEventType.QUERY, payload=payload) as event:
            response = cast("RESPONSE_TYPE", lookup.reply)
            event.on_end(payload={EventPayload.RESPONSE: response})
        return response

    def _fresh(
        self, bundle: QueryBundle, lookup: Lookup, watch: Watch, response: RESPONSE_TYPE, *, awaited: bool
    ) -> Fresh:
        """Write down what is known of a response, before whoever gets it can change it."""
        body, empty = None, frozenset[str]()
        if lookup.exact:  # else nothing is kept in any case
            with suppress(Exception):  # whatever an engine returns is the caller's first
                asked, content, refused = self._request(bundle)
                if refused is None and asked == lookup.request:  # neither engine nor documents changed meanwhile
                    empty = frozenset(content.empty_texts)
                    body = told_of(response, awaited=awaited, classes=content.classes)
        return Fresh(self._caching.cache, lookup, watch, body, empty)

    def _handed_on(self, response: RESPONSE_TYPE, fresh: Fresh, landing: ExitStack) -> RESPONSE_TYPE:
        """Hand a stream on; the text is kept when it has ended, and whoever waits for it can go on then."""
        given = copy(response)
        if isinstance(given, StreamingResponse):
            given.response_gen = followed(given.response_gen, fresh, landing)
        elif isinstance(given, AsyncStreamingResponse):
            given.response_gen = afollowed(given.response_gen, fresh, landing)
        else:
            landing.close()
            return response
        # One that is never read does not even begin, and then nothing in it would run. And who asks again before the
        # end is not reading: it would wait for itself.
        caller = _caller()
        self._open[caller] = landing
        weakref.finalize(given.response_gen, self._ended, caller, landing).atexit = False
        return given

    def _ended(self, caller: int, landing: ExitStack) -> None:
        """Forget a stream that is gone."""
        landing.close()
        if self._open.get(caller) is landing:
            self._open.pop(caller, None)

    def _say_unseen(self) -> None:
        """Say once, for each kind of engine, why its answers are not found again by another process."""
        held = self._caching
        with suppress(Exception):
            unseen = read_engine(self.query_engine, held.name).unseen_classes
            if unseen and held.name is None and unseen not in _said and len(_said) < _MOST_SAID:
                _said.add(unseen)
                _log.warning(
                    "SemanticCacheQueryEngine: %s show no content to compare, so the answers are for this engine in "
                    "this process; give name= to find them again later",
                    ", ".join(unseen),
                )

    def _get_prompts(self) -> PromptDictType:
        return self.query_engine._get_prompts()

    def _get_prompt_modules(self) -> PromptMixinType:
        return self.query_engine._get_prompt_modules()

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self.query_engine._update_prompts(prompts)


def _asked(bundle: QueryBundle, content: EngineContent) -> AskedRequest:
    """Read a query bundle: its question, and what else of it decides what is retrieved."""
    beside: dict[str, object] = {}
    if bundle.custom_embedding_strs is not None:
        beside["embedding_strs"] = list(bundle.custom_embedding_strs)
    if bundle.embedding is not None:
        beside["embedding"] = digest(meaning_text([float(number) for number in bundle.embedding])).hex()
    settings, opaque = read_settings({"query_engine": content.name, **beside})
    text = bundle.query_str
    turns = (Turn("user", text, unhashed=bundle.image_path is not None),) if text.strip() else ()
    return AskedRequest(turns=turns, settings=settings, opaque=opaque, query=text)


def _landing(flight: Flight | None) -> ExitStack:
    """Return what lets go of a claim, once, when it is closed."""
    landing = ExitStack()
    if flight is not None:
        landing.callback(flight.land)
    return landing


def _caller() -> int:
    """Name the task, or else the thread, that asks."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else id(task)
