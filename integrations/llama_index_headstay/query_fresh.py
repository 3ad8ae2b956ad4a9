"""A fresh response on its way into the cache: whole, or as a stream that is handed on piece by piece."""

from asyncio import to_thread
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, cast

from headstay.semantic.answer import Answer
from headstay.semantic.cache import Cache
from headstay.semantic.lookup import Lookup
from headstay.semantic.reasons import Reason
from llama_index_headstay.query_watch import Watch

_EMPTY = "Empty Response"
"""What LlamaIndex's synthesizers say where the model said nothing, or nothing was retrieved."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """What is known of a fresh response before its text is.

    Attributes:
        cache: Where it is to be kept.
        lookup: The miss.
        watch: How the calls behind it ended.
        body: The response without its text, in JSON values; None where it cannot be kept.
        empty: What the engine says where it found nothing.
    """

    cache: Cache
    lookup: Lookup
    watch: Watch
    body: dict[str, Any] | None
    empty: frozenset[str]

    def keep(self, text: str) -> None:
        """Keep it, if every call behind it ended normally and it says something."""
        refused = self.watch.refused or (Reason.NOT_ADMITTED_FORM if self.body is None else None)
        if refused is not None or self.body is None:
            self.cache.refuse(self.lookup, refused or Reason.NOT_ADMITTED_FORM)
            return
        nothing = text.strip() == _EMPTY or (not self.body["nodes"] and text.strip() in self.empty)
        read, written = self.watch.tokens
        answer = Answer("" if nothing else text, self.body, input_tokens=read, output_tokens=written)
        self.cache.admit(self.lookup, answer)


def followed(chunks: Iterator[str], fresh: Fresh, landing: ExitStack) -> Generator[str, None, None]:
    """Hand a stream on piece by piece, and keep its text when it has ended; it is watched only while it is read."""
    said: list[str] = []
    with landing:
        try:
            while True:
                with fresh.watch.watching():
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                said.append(chunk)
                yield chunk
        finally:
            close = getattr(chunks, "close", None)
            if callable(close):
                close()
        fresh.keep("".join(said))


async def afollowed(chunks: AsyncIterator[str], fresh: Fresh, landing: ExitStack) -> AsyncGenerator[str, None]:
    """Do what `followed` does."""
    said: list[str] = []
    try:
        while True:
            with fresh.watch.watching():
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            said.append(chunk)
            yield chunk
        await to_thread(fresh.keep, "".join(said))
    finally:
        close = getattr(chunks, "aclose", None)
        if callable(close):
            await cast("Any", close())
        await to_thread(landing.close)
