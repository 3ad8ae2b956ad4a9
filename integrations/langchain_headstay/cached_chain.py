"""`cached`: a chain whose answers are kept under the bare question, so that a hit skips retrieval and model."""

import logging
from asyncio import to_thread
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, cast

from langchain_core.messages import AIMessage, BaseMessage, BaseMessageChunk, message_chunk_to_message
from langchain_core.messages.utils import convert_to_messages
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import ensure_config, merge_configs
from langchain_core.runnables.graph import Graph
from langchain_core.runnables.utils import AddableDict, ConfigurableFieldSpec
from langchain_core.utils.pydantic import TypeBaseModel
from pydantic import ConfigDict, PrivateAttr, SkipValidation

from headstay.errors import ConfigError
from headstay.semantic.answer import Answer
from headstay.semantic.chain import named
from headstay.semantic.flight import aland, land
from headstay.semantic.lookup import Lookup
from headstay.semantic.policy import check_name
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from langchain_headstay.chain_content import ChainContent
from langchain_headstay.chain_identity import chain_identity, unseen_classes
from langchain_headstay.chain_input import Query, asked_of, messages_in, missing_in
from langchain_headstay.chain_watch import Watch
from langchain_headstay.given import check_named, given_as
from langchain_headstay.kept_values import from_json, text_in, to_json
from langchain_headstay.replay import answer_of, pieces_of
from langchain_headstay.semantic_cache import Named, SemanticCache, read_names

_NOTHING: Any = object()
_OF_A_RUN = ("__", "checkpoint_", "langgraph_", "lc_", "ls_")
"""How names in a config begin that LangChain and LangGraph set for each run."""
_MOST_SAID = 16
_FOLLOWS = "follows"
"""Says of a kept state of a graph that the messages of the input come before those that are kept."""

_log = logging.getLogger("headstay.semantic")


def cached(
    runnable: Runnable[Any, Any],
    *,
    cache: SemanticCache,
    query: Query,
    version: Named = None,
    tenant: Named = None,
    name: str | None = None,
) -> "CachedRunnable":
    """Keep a chain's answers under the bare question: a hit skips retrieval and model.

    Everything else of the input must be identical. The answer is only as fresh as the documents behind it: give
    `version` something that changes with them, or the cache a `ttl`.

    Args:
        runnable: The chain.
        cache: Where its answers are kept.
        query: The question: a key of the input, a callable on it, or None for the last human message.
        version: What the answer depends on beyond the input (documents, policy); a new one retires the old answers.
            A str, or a callable on the config.
        tenant: Nothing is shared between tenants: a str, or a callable on the config.
        name: Names the chain. Two chains of one name share their answers. By default a chain is known by its
            content.

    Returns:
        A runnable of the same input and output; `explain(input)` of it says what would be decided, and why.

    Raises:
        ConfigError: A setting cannot work.
    """
    if not isinstance(cast("object", runnable), Runnable):
        raise ConfigError(f"cached({given_as(runnable)}): give a runnable, such as a chain or an agent")
    if not isinstance(cast("object", cache), SemanticCache):
        raise ConfigError(f"cached(cache={given_as(cache)}): give a SemanticCache, such as SemanticCache('answers.db')")
    if query == "" or not (query is None or isinstance(query, str) or callable(query)):
        raise ConfigError(f"cached(query={query!r}): give a key of the input, a callable on it, or None")
    check_name("cached: name", name)
    for setting, value in (("version", version), ("tenant", tenant)):
        check_named(f"cached: {setting}", value)
    return CachedRunnable(runnable, cache=cache, query=query, names={"version": version, "tenant": tenant}, name=name)


class CachedRunnable(RunnableSerializable[Any, Any]):
    """A runnable whose answers are kept; made by `cached`.

    Not one of LangChain's bindings: those hand batches and events on to what they bind, past the cache.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    bound: SkipValidation[Runnable[Any, Any]]

    _cache: SemanticCache = PrivateAttr()
    _query: Query = PrivateAttr()
    _names: dict[str, Named] = PrivateAttr()
    _chain: str = PrivateAttr()
    _fields: frozenset[str] | None = PrivateAttr()
    _graph: bool = PrivateAttr()
    _said: set[str] = PrivateAttr()

    def __init__(
        self,
        bound: Runnable[Any, Any],
        *,
        cache: SemanticCache,
        query: Query,
        names: dict[str, Named],
        name: str | None = None,
    ) -> None:
        held: dict[str, Any] = {"bound": bound, "name": name}
        super().__init__(**held)
        self._cache, self._query, self._names = cache, query, names
        identity, content = chain_identity(bound)
        self._chain = named(name) if name is not None else f"content {identity}"
        self._graph, self._said = content.holds_graph, set()
        # What can read any value of the config may answer by any of them.
        self._fields = None if content.reads_config else frozenset(spec.id for spec in bound.config_specs)
        _check(content, shared=name is not None)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's name
        """Return the kept answer, or the chain's."""
        config = ensure_config(config)
        lookup, flight = self._cache.engine.join(partial(self._ask, input, config, kwargs))
        try:
            if lookup.entry is not None:
                return self._call_with_config(lambda _: lookup.reply, input, _told(config, lookup))
            watch = Watch()
            return self._kept(lookup, watch, input, self.bound.invoke(input, _watched(config, watch), **kwargs))
        finally:
            land(flight)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002 - LangChain's name
        """Return the kept answer, or the chain's."""
        config = ensure_config(config)
        lookup, flight = await self._cache.engine.ajoin(partial(self._ask, input, config, kwargs))
        try:
            if lookup.entry is not None:

                async def serve(_: Any) -> Any:
                    return lookup.reply

                return await self._acall_with_config(serve, input, _told(config, lookup))
            watch = Watch()
            answer = await self.bound.ainvoke(input, _watched(config, watch), **kwargs)
            return await to_thread(self._kept, lookup, watch, input, answer)
        finally:
            await aland(flight)

    def stream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:  # noqa: A002 - LangChain's name
        """Replay the kept answer, or hand the chain's stream on and keep it when it has ended."""
        config = ensure_config(config)
        lookup, flight = self._cache.engine.join(partial(self._ask, input, config, kwargs, streamed=True))
        try:
            if lookup.entry is not None:
                yield from self._transform_stream_with_config(
                    iter([input]), lambda _: pieces_of(lookup.reply), _told(config, lookup)
                )
                return
            watch, chunks = Watch(), list[Any]()
            for chunk in self.bound.stream(input, _watched(config, watch), **kwargs):
                chunks.append(_own(chunk))
                yield chunk
            self._kept(lookup, watch, input, _sum(chunks))
        finally:
            land(flight)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> AsyncIterator[Any]:  # noqa: A002 - LangChain's name
        """Replay the kept answer, or hand the chain's stream on and keep it when it has ended."""
        config = ensure_config(config)
        lookup, flight = await self._cache.engine.ajoin(partial(self._ask, input, config, kwargs, streamed=True))
        try:
            if lookup.entry is not None:
                async for piece in self._atransform_stream_with_config(
                    _one(input), lambda _: _pieces(lookup.reply), _told(config, lookup)
                ):
                    yield piece
                return
            watch, chunks = Watch(), list[Any]()
            async for chunk in self.bound.astream(input, _watched(config, watch), **kwargs):
                chunks.append(_own(chunk))
                yield chunk
            await to_thread(self._kept, lookup, watch, input, _sum(chunks))
        finally:
            await aland(flight)

    def explain(self, input: Any, config: RunnableConfig | None = None) -> str:  # noqa: A002 - LangChain's name
        """Say what would be decided about an input, and why; nothing is counted or served, and the chain does not run.

        Args:
            input: The input.
            config: The caller's config.
        """
        config = ensure_config(config)
        asked, refused = self._request(input, config, {}, streamed=False)
        if refused is None:
            asked, refused = self._cache.named(asked, config)
        return self._cache.engine.explain(asked, refused=refused).explain()

    @property
    def InputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What the chain takes."""
        return self.bound.InputType

    @property
    def OutputType(self) -> Any:  # noqa: N802 - LangChain's name
        """What the chain returns."""
        return self.bound.OutputType

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """The configurable fields of the chain."""
        return self.bound.config_specs

    def get_name(self, suffix: str | None = None, *, name: str | None = None) -> str:
        """Name it as the chain, unless it has a name of its own."""
        return self.bound.get_name(suffix, name=name or self.name)

    def get_input_schema(self, config: RunnableConfig | None = None) -> TypeBaseModel:
        """Return the chain's input schema."""
        return self.bound.get_input_schema(config)

    def get_output_schema(self, config: RunnableConfig | None = None) -> TypeBaseModel:
        """Return the chain's output schema."""
        return self.bound.get_output_schema(config)

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Draw the chain."""
        return self.bound.get_graph(config)

    def _ask(self, given: Any, config: RunnableConfig, kwargs: Mapping[str, Any], *, streamed: bool = False) -> Lookup:
        asked, refused = self._request(given, config, kwargs, streamed=streamed)
        if refused is not None:
            return self._cache.engine.look_up(asked, refused=refused, count=False)
        return self._cache.ask(asked, config, make=partial(_value_of, given), count=False)

    def _request(
        self, given: Any, config: RunnableConfig, kwargs: Mapping[str, Any], *, streamed: bool
    ) -> tuple[AskedRequest, Reason | None]:
        """Read an input, or say why it is not answered."""
        try:
            asked = self._asked(given, config, kwargs, streamed=streamed)
            missing = missing_in(given, self._query)
        except Exception as problem:  # noqa: BLE001 - the application's callable and input; its call goes on
            _log.warning("query= or the input raised %s; the call went on without the cache", type(problem).__name__)
            return AskedRequest(turns=()), Reason.INTERNAL_ERROR
        if missing and missing not in self._said and len(self._said) < _MOST_SAID:
            self._said.add(missing)
            _log.warning("cached(query=%r): %s; the call went on without the cache", self._query, missing)
        if missing or not asked.turns:
            return asked, Reason.NO_QUERY
        names, refused = read_names(self._names, config)
        if refused is None and callable(self._names["tenant"]) and names["tenant"] is None:
            refused = Reason.NO_TENANT
        return asked.named(tenant=names["tenant"], user=None, version=names["version"]), refused

    def _asked(self, given: Any, config: RunnableConfig, kwargs: Mapping[str, Any], *, streamed: bool) -> AskedRequest:
        """Read an input with what of the config the chain can see."""
        held = config.get("configurable") or {}
        around: dict[str, Any] = {"given": dict(kwargs)}
        if self._fields is None:
            around["configurable"] = {name: item for name, item in held.items() if not name.startswith(_OF_A_RUN)}
            told = (config.get("metadata") or {}).items()
            if seen := {name: item for name, item in told if name not in held and not name.startswith(_OF_A_RUN)}:
                around["metadata"] = seen
        else:
            around["configurable"] = {name: item for name, item in held.items() if name in self._fields}
        if streamed and self._graph:  # a graph streams what each node changed, and returns its state
            around["streamed"] = True
        return asked_of(self._chain, given, self._query, around)

    def _kept(self, lookup: Lookup, watch: Watch, given: Any, answer: Any) -> Any:
        """Keep an answer, if every call behind it ended normally."""
        if answer is _NOTHING:
            self._cache.engine.refuse(lookup, Reason.NOT_ADMITTED_FORM)
            return None
        if watch.refused is not None:
            self._cache.engine.refuse(lookup, watch.refused)
            return answer
        tail = _new_messages(given, answer)
        kept = answer if tail is None else {**answer, "messages": tail}
        reply = [ChatGeneration(message=answer)] if isinstance(answer, AIMessage) else None
        try:
            body = {"value": to_json(kept), _FOLLOWS: tail is not None}
            made = answer_of(reply) if reply else Answer(text_in(tail[-1] if tail else answer))
        except Exception:  # noqa: BLE001 - whatever an application returns, it is the caller's first
            self._cache.engine.refuse(lookup, Reason.NOT_ADMITTED_FORM)
            return answer
        made = replace(made, body=body, input_tokens=watch.input_tokens, output_tokens=watch.output_tokens)
        self._cache.engine.admit(lookup, made)
        return answer


def _check(content: ChainContent, *, shared: bool) -> None:
    """Refuse a chain that a hit would break; say so where answers are not found again by other processes.

    Raises:
        ConfigError: The chain keeps a conversation.
    """
    if content.keeps_history:
        raise ConfigError(
            f"cached(): {content.keeps_history} keeps a conversation, and a hit would leave the turn out of it; "
            "put cached(...) around the chain inside it"
        )
    unseen = unseen_classes(content)
    if unseen and not shared:
        _log.warning(
            "cached(): %s show no content to compare, so the answers are for this chain in this process; "
            "give name= (and version= for documents) to find them again later",
            ", ".join(unseen),
        )


def _value_of(given: Any, lookup: Lookup) -> Any:
    """Make a chain's answer of a hit.

    Raises:
        ValueError: The entry does not hold one; so may TypeError and KeyError.
    """
    if lookup.answer is None or lookup.entry is None:
        raise ValueError("no answer")
    body = lookup.answer.body
    if "value" not in body:
        return lookup.answer.text
    value = from_json(body["value"], lookup)
    if body.get(_FOLLOWS):
        value["messages"] = [*convert_to_messages(given["messages"]), *value["messages"]]
    return value


def _new_messages(given: Any, answer: Any) -> list[BaseMessage] | None:
    """Return the messages that a graph's state has beyond its input; None where it is no such state.

    The others are the caller's own. One who asks in other words gets back what was asked, not what another wrote.
    """
    if not isinstance(given, Mapping) or not isinstance(answer, dict) or "messages" not in given:
        return None
    conversation = messages_in(given)
    held: Any = cast("dict[str, Any]", answer).get("messages")
    if conversation is None or not isinstance(held, list):
        return None
    before, messages = conversation[0], cast("list[object]", held)
    same = [
        isinstance(one, BaseMessage) and (one.type, one.content) == (other.type, other.content)
        for one, other in zip(messages, before, strict=False)
    ]
    new = [one for one in messages[len(before) :] if isinstance(one, BaseMessage)]
    return new if all(same) and new and len(messages) == len(before) + len(new) else None


def _watched(config: RunnableConfig, watch: Watch) -> RunnableConfig:
    return merge_configs(config, {"callbacks": [watch]})


def _told(config: RunnableConfig, lookup: Lookup) -> RunnableConfig:
    """Let a trace of the call say that its answer was kept."""
    return merge_configs(config, {"metadata": {"headstay": lookup.metadata()}})


async def _one(value: Any) -> AsyncIterator[Any]:
    yield value


async def _pieces(value: Any) -> AsyncIterator[Any]:
    for piece in pieces_of(value):
        yield piece


def _own(chunk: Any) -> Any:
    """Copy a chunk: whoever gets it may change it."""
    if isinstance(chunk, BaseMessage):
        return chunk.model_copy()
    own: Any = chunk
    return copy(own) if isinstance(chunk, (dict, list)) else own


def _sum(chunks: Sequence[Any]) -> Any:
    """Add the chunks of a stream up, as LangChain does; `_NOTHING` where they do not add up."""
    if not chunks or not _are_parts(chunks):
        return _NOTHING
    whole = chunks[0]
    try:
        for chunk in chunks[1:]:
            whole = whole + chunk
    except TypeError:
        return _NOTHING
    if isinstance(whole, BaseMessageChunk):
        return message_chunk_to_message(whole)
    return dict(cast("dict[str, Any]", whole)) if isinstance(whole, AddableDict) else whole


def _are_parts(chunks: Sequence[Any]) -> bool:
    """Whether chunks are parts of one value; JSON parsers stream it as far as it is known, again and again."""
    given = [chunk for chunk in chunks if chunk is not None and chunk != ""]
    if len(given) < 2 or all(isinstance(chunk, BaseMessageChunk) for chunk in given):
        return True
    if all(isinstance(chunk, AddableDict) for chunk in given):
        names = dict.fromkeys(name for chunk in given for name in chunk)
        return all(_are_parts([chunk.get(name) for chunk in given]) for name in names)
    texts = [chunk for chunk in given if isinstance(chunk, str)]
    return len(texts) == len(given) and not all(later.startswith(earlier) for earlier, later in pairwise(texts))
