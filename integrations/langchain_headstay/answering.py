"""A model's own calls, answered from the semantic cache where that is safe: whole, streamed, sync and async."""

import logging
from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from typing import cast

from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from headstay.semantic.flight import aland, land
from headstay.semantic.lookup import Lookup
from headstay.semantic.reasons import Reason
from langchain_headstay.replay import chunks_of, generations_of, with_parsed
from langchain_headstay.semantic_cache import SemanticCache

Ask = Callable[[], Lookup]
"""Looks a request up, with `make=reply_of` and without counting it; it may be called again."""

_log = logging.getLogger("headstay.semantic")


def reply_of(lookup: Lookup, *, schema: object = None) -> ChatResult:
    """Make the reply of a hit.

    Args:
        lookup: The hit.
        schema: What the call gave as the form of the reply.

    Raises:
        ValueError: The entry holds no chat reply.
    """
    generations = generations_of(lookup)
    replies = [one.message for one in generations if isinstance(one, ChatGeneration)]
    messages = [one for one in replies if isinstance(one, AIMessage)]
    if len(messages) != len(generations):
        raise ValueError("no chat reply")
    return ChatResult(generations=[ChatGeneration(message=with_parsed(one, schema)) for one in messages])


def generate(cache: SemanticCache, ask: Ask, fetch: Callable[[], ChatResult]) -> ChatResult:
    """Serve a kept reply, or fetch one and keep it.

    Args:
        cache: The cache.
        ask: Looks the request up.
        fetch: Calls the model.
    """
    lookup, flight = cache.engine.join(ask)
    try:
        return _served(lookup) if lookup.entry is not None else _kept(cache, lookup, fetch())
    finally:
        land(flight)


async def agenerate(cache: SemanticCache, ask: Ask, fetch: Callable[[], Awaitable[ChatResult]]) -> ChatResult:
    """Do what `generate` does; the event loop is not blocked."""
    lookup, flight = await cache.engine.ajoin(ask)
    try:
        return _served(lookup) if lookup.entry is not None else await to_thread(_kept, cache, lookup, await fetch())
    finally:
        await aland(flight)


def stream(
    cache: SemanticCache, ask: Ask, fetch: Callable[[], Iterator[ChatGenerationChunk]]
) -> Iterator[ChatGenerationChunk]:
    """Replay a kept reply in chunks, or hand a stream on and keep what it said when it has ended."""
    lookup, flight = cache.engine.join(ask)
    try:
        if lookup.entry is not None:
            yield from _replayed(lookup)
            return
        chunks: list[ChatGenerationChunk] = []
        for chunk in fetch():
            chunks.append(_own(chunk))
            yield chunk
        _keep_chunks(cache, lookup, chunks)
    finally:
        land(flight)


async def astream(
    cache: SemanticCache, ask: Ask, fetch: Callable[[], AsyncGenerator[ChatGenerationChunk]]
) -> AsyncGenerator[ChatGenerationChunk]:
    """Do what `stream` does; the event loop is not blocked."""
    lookup, flight = await cache.engine.ajoin(ask)
    try:
        if lookup.entry is not None:
            for chunk in _replayed(lookup):
                yield chunk
            return
        chunks: list[ChatGenerationChunk] = []
        async with aclosing(fetch()) as fetched:
            async for chunk in fetched:
                chunks.append(_own(chunk))
                yield chunk
        await to_thread(_keep_chunks, cache, lookup, chunks)
    finally:
        await aland(flight)


def _served(lookup: Lookup) -> ChatResult:
    return cast("ChatResult", lookup.reply)


def _replayed(lookup: Lookup) -> Iterator[ChatGenerationChunk]:
    return chunks_of(cast("AIMessage", _served(lookup).generations[0].message))


def _keep_chunks(cache: SemanticCache, lookup: Lookup, chunks: list[ChatGenerationChunk]) -> None:
    """Keep what a whole stream said."""
    if not chunks:
        return
    try:
        whole = generate_from_stream(iter(chunks))
    except Exception as problem:  # noqa: BLE001 - the caller has had the stream already
        _log.warning("the chunks of a stream do not add up (%s); it is not kept", type(problem).__name__)
        cache.engine.refuse(lookup, Reason.NOT_ADMITTED_FORM)
        return
    _kept(cache, lookup, whole)


def _kept(cache: SemanticCache, lookup: Lookup, result: ChatResult) -> ChatResult:
    """Keep a fresh reply, with what LangChain adds to its metadata later."""
    said = result.llm_output or {}
    told = [
        ChatGeneration(
            message=one.message.model_copy(
                update={"response_metadata": {**said, **(one.generation_info or {}), **one.message.response_metadata}}
            )
        )
        for one in result.generations
    ]
    cache.keep(lookup, told)
    return result


def _own(chunk: ChatGenerationChunk) -> ChatGenerationChunk:
    """Copy a chunk: whoever gets it may change its message."""
    return chunk.model_copy(update={"message": chunk.message.model_copy()})
