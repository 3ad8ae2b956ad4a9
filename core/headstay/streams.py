"""Streams that build their request when they are first read: a context is held for that long, and no longer."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar, cast

Chunk = TypeVar("Chunk")


def first_within(held: AbstractContextManager[None], chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """Hand on a stream. The request is built before the first chunk comes: until then a context is held.

    Not longer: a context variable that is set across a `yield` would be seen by the consumer.
    """
    with held:
        first = next(chunks, None)
    if first is not None:
        yield first
        yield from chunks


async def afirst_within(held: AbstractContextManager[None], chunks: AsyncIterator[Chunk]) -> AsyncGenerator[Chunk]:
    """Do what `first_within` does; when it is closed early, so is the stream below."""
    try:
        with held:
            first = await anext(chunks, None)
        if first is not None:
            yield first
            async for chunk in chunks:
                yield chunk
    finally:
        if isinstance(chunks, AsyncGenerator):
            await cast("AsyncGenerator[Chunk]", chunks).aclose()
