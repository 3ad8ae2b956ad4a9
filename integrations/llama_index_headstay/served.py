"""An LLM's calls, answered from the semantic cache where that is safe: whole and streamed, sync and async."""

import logging
from asyncio import to_thread
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)

from headstay.semantic.cache import Cache
from headstay.semantic.control import Mode, Names, current_mode, current_names
from headstay.semantic.flight import aland, land
from headstay.semantic.lookup import Lookup
from headstay.semantic.pieces import pieces_of_text
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from llama_index_headstay.asked import read_asked
from llama_index_headstay.events import ChatMethod, CompletionMethod, report, served_chat, served_completion
from llama_index_headstay.kept_reply import answer_of, reply_of
from llama_index_headstay.ticket import Ticket

_log = logging.getLogger("headstay.semantic")

How = Literal["", "stream_", "a", "astream_"]
"""What stands before `chat` or `complete` in the name of the method that was called."""


@dataclass(frozen=True, slots=True)
class Asking:
    """One question to the semantic cache.

    Attributes:
        llm: Whose call it is.
        ticket: The call.
        said: The messages, or the text of a completion.
        given: The call's own settings.
        how: Which method was called.
        mode: What the caller asks of the cache: asked when the call began, for a stream may be read elsewhere.
        names: Whom it is made for, likewise.
    """

    llm: BaseLLM
    ticket: Ticket
    said: list[ChatMessage] | str
    given: Mapping[str, Any]
    how: How
    mode: Mode = field(default_factory=current_mode)
    names: Names = field(default_factory=current_names)

    @property
    def cache(self) -> Cache:
        """The cache that is asked."""
        return cast("Cache", self.ticket.binding.semantic)

    @property
    def messages(self) -> list[ChatMessage]:
        """What is asked, as messages."""
        said = self.said
        return said if isinstance(said, list) else [ChatMessage(role=MessageRole.USER, content=said)]

    def look(self) -> Lookup:
        """Look the request up as the application made it, before anything is arranged; it may be called again."""
        binding, names = self.ticket.binding, self.ticket.names
        refused: Reason | None = None
        try:
            asked = read_asked(self.llm, self.messages, self.given, binding.flow.settings.declared)
        except Exception as problem:  # noqa: BLE001 - the call goes on without the cache
            _log.warning("a request could not be read (%s); it went on without the cache", type(problem).__name__)
            asked, refused = AskedRequest(turns=()), Reason.INTERNAL_ERROR
        if names.problem is not None:
            refused = Reason.INTERNAL_ERROR
        elif callable(binding.tenant) and not names.tenant:
            refused = Reason.NO_TENANT
        said = self.names
        asked = replace(asked, tenant=names.tenant or None).named(
            tenant=said.tenant, user=said.user, version=said.version
        )
        if names.tail and binding.tail_affects_answer:
            asked = replace(asked, exact_fields={"tail": names.tail})
        return self.cache.look_up(asked, mode=self.mode, refused=refused, make=self._made, count=False)

    def _made(self, lookup: Lookup) -> ChatResponse | CompletionResponse:
        return reply_of(lookup, completes=isinstance(self.said, str))

    def serve(self, lookup: Lookup) -> Any:
        """Return the reply of a hit, which a tracer sees as one call that cost nothing."""
        threshold = self.cache.policy.threshold
        if isinstance(self.said, str):
            completion = cast("CompletionResponse", lookup.reply)
            called = cast("CompletionMethod", f"{self.how}complete")
            return served_completion(self.llm, self.said, completion, lookup, threshold=threshold, method=called)
        chat = cast("ChatResponse", lookup.reply)
        method = cast("ChatMethod", f"{self.how}chat")
        return served_chat(self.llm, self.said, chat, lookup, threshold=threshold, method=method)

    def missed(self, lookup: Lookup) -> None:
        """Tell a tracer why nothing is served."""
        report(lookup, threshold=self.cache.policy.threshold)

    def keep(self, lookup: Lookup, reply: Any, text: str | None = None) -> None:
        """Keep a fresh reply, if it finished normally.

        Args:
            lookup: The miss.
            reply: The reply, or the last chunk of its stream.
            text: What a stream said in all.
        """
        try:
            answer = answer_of(reply, text, self.ticket)
        except Exception:  # noqa: BLE001 - it holds what JSON does not have; it is the caller's first
            self.cache.refuse(lookup, Reason.NOT_ADMITTED_FORM)
        else:
            self.cache.admit(lookup, answer)


def kept_whole(asking: Asking, fetch: Callable[[], Any]) -> Any:
    """Serve a kept reply, or fetch one and keep it."""
    lookup, flight = asking.cache.join(asking.look)
    try:
        if lookup.entry is not None:
            return asking.serve(lookup)
        asking.missed(lookup)
        reply = fetch()
        asking.keep(lookup, reply)
        return reply
    finally:
        land(flight)


async def akept_whole(asking: Asking, fetch: Callable[[], Awaitable[Any]]) -> Any:
    """Do what `kept_whole` does; the event loop is not blocked."""
    lookup, flight = await asking.cache.ajoin(asking.look)
    try:
        if lookup.entry is not None:
            return asking.serve(lookup)
        asking.missed(lookup)
        reply = await fetch()
        await to_thread(asking.keep, lookup, reply)
        return reply
    finally:
        await aland(flight)


def kept_stream(asking: Asking, fetch: Callable[[], Generator[Any]]) -> Generator[Any]:
    """Replay a kept reply, or hand a stream on and keep what it said when it has ended."""
    lookup, flight = asking.cache.join(asking.look)
    try:
        if lookup.entry is not None:
            yield from replayed(asking.serve(lookup))
            return
        asking.missed(lookup)
        chunk: Any = None
        said: list[str] = []
        for chunk in fetch():
            said.append(chunk.delta or "")
            yield chunk
        if chunk is not None:
            asking.keep(lookup, chunk, "".join(said))
    finally:
        land(flight)


async def akept_stream(asking: Asking, fetch: Callable[[], AsyncGenerator[Any]]) -> AsyncGenerator[Any]:
    """Do what `kept_stream` does; the event loop is not blocked."""
    lookup, flight = await asking.cache.ajoin(asking.look)
    try:
        if lookup.entry is not None:
            for piece in replayed(asking.serve(lookup)):
                yield piece
            return
        asking.missed(lookup)
        chunk: Any = None
        said: list[str] = []
        async with aclosing(fetch()) as fetched:
            async for chunk in fetched:
                said.append(chunk.delta or "")
                yield chunk
        if chunk is not None:
            await to_thread(asking.keep, lookup, chunk, "".join(said))
    finally:
        await aland(flight)


def replayed(reply: ChatResponse | CompletionResponse) -> Iterator[Any]:
    """Cut a served reply into the chunks of a stream: each holds the reply so far, and what is new of it."""
    if isinstance(reply, CompletionResponse):
        for so_far, piece in _growing(reply.text):
            yield reply.model_copy(update={"text": so_far, "delta": piece})
        return
    calls = [block for block in reply.message.blocks if isinstance(block, ToolCallBlock)]
    whole = reply.message.content or ""
    for so_far, piece in _growing(whole):
        blocks = [TextBlock(text=so_far), *(calls if so_far == whole else ())]
        message = reply.message.model_copy(update={"blocks": blocks})
        yield reply.model_copy(update={"message": message, "delta": piece})


def _growing(text: str) -> Iterator[tuple[str, str]]:
    so_far = ""
    for piece in list(pieces_of_text(text)) or [""]:
        so_far += piece
        yield so_far, piece
