"""One call of an LLM's method on its way: what the watched client needs to know of it, and what the reply bears."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, MessageRole

from headstay.call import Call
from headstay.ledger.usage import Usage, from_anthropic, from_openai_chat
from headstay.streams import afirst_within, first_within
from llama_index_headstay.binding import Binding, Names
from llama_index_headstay.tail import KEY, earlier_tail_texts, stands_alone, tail_texts

Reply = TypeVar("Reply", ChatResponse, CompletionResponse)

_UNSEEN = "the LLM's class did not build its request where it could be seen"
_under_way: ContextVar["Ticket | None"] = ContextVar("headstay_llama_ticket", default=None)


def _no_stream() -> None: ...


@dataclass(slots=True)
class Ticket:
    """One call.

    Attributes:
        binding: What the LLM knows.
        llm: The LLM whose method was called; None where structured output called its client by itself.
        messages: What it was called with; none where it was called with a text.
        host: Whether its request is put into order here, and not by a watched client.
        names: Who it is for: asked when it began, for a stream may be read elsewhere.
        call: Its request as prepared, once it was; the last one where it was sent again.
        usage: What the provider reported, once it did.
        ended: Its word for how the reply ended, once it said one.
        reply: The reply, or what there is of it so far.
        stream: Returns the SDK's stream, as long as someone means to read it: LlamaIndex leaves it open where a reader
            wants no more.
        handed: What the class's own method was called with.
        open: Whether the class's own method is under way: a task that was begun inside it may live longer.
        answered: Whether its request was answered.
    """

    binding: Binding
    llm: object = None
    messages: Sequence[ChatMessage] = ()
    host: bool = False
    names: Names = field(init=False)
    call: Call | None = None
    usage: Usage | None = None
    ended: str | None = None
    reply: ChatResponse | CompletionResponse | None = None
    stream: Callable[[], Any] = _no_stream
    handed: Sequence[ChatMessage] | str = ""
    open: bool = False
    answered: bool = False

    def __post_init__(self) -> None:
        self.names = self.binding.names()

    @property
    def tails(self) -> list[str]:
        """The per-call texts that the last human message bears beside its own."""
        human = next((message for message in reversed(self.messages) if message.role == MessageRole.USER), None)
        return [] if human is None or stands_alone(human) else tail_texts([human])

    @property
    def tail(self) -> str:
        """The same as one text, as it goes into the note."""
        return "\n\n".join(text.strip() for text in self.tails)

    @property
    def earlier_tails(self) -> list[list[str]]:
        """The texts that earlier human messages still bear, newest first."""
        return earlier_tail_texts(self.messages)

    @property
    def receipts(self) -> list[object]:
        """For each reply in the history, what was kept on it."""
        replies = (message for message in self.messages if message.role == MessageRole.ASSISTANT and message.blocks)
        return [message.additional_kwargs.get(KEY) for message in replies]

    @contextmanager
    def held(self) -> Generator[None]:
        """Let the watched client, and the methods that the LLM calls on itself, find this ticket."""
        token = _under_way.set(self)
        self.open = True
        try:
            yield
        finally:
            self.open = False
            _under_way.reset(token)

    @contextmanager
    def followed(self) -> Generator[None]:
        """Account for the call, whatever comes of what is done inside."""
        try:
            yield
        except GeneratorExit:
            self._settle(None, closed=True)
            raise
        except BaseException as problem:
            self._settle(problem)
            raise
        self._settle(None)

    @contextmanager
    def begun(self) -> Generator[None]:
        """Account for the call if it fails before its stream is read."""
        try:
            yield
        except BaseException as problem:
            self._settle(problem)
            raise

    def finish(self, reply: Reply) -> Reply:
        """Put on a reply what belongs to it: the receipt of a kept note, and the tokens it took."""
        self.reply = reply
        extra = cast("Any", reply).additional_kwargs
        if self.usage is not None:
            extra.update(token_counts(self.usage))
        if self.call is not None and self.call.receipt is not None and isinstance(reply, ChatResponse):
            own: Any = reply.message.additional_kwargs.get(KEY)
            reply.message.additional_kwargs[KEY] = {**(own if isinstance(own, dict) else {}), **self.call.receipt}
        return reply

    def follow(self, begin: Callable[[], Iterator[Reply]]) -> Generator[Reply]:
        """Hand on a stream; each of its chunks holds the whole reply so far, so each bears the receipt.

        Args:
            begin: Returns the stream.
        """
        stream: Any = None
        try:
            with self.followed():
                for chunk in first_within(self.held(), begin()):
                    stream = stream or self.stream()
                    if self.host and self.call is not None:
                        self.call.began()
                    yield self.finish(chunk)
        finally:
            stream = stream or self.stream()
            if stream is not None:
                stream.close()

    async def afollow(self, begin: Callable[[], Awaitable[AsyncIterator[Reply]]]) -> AsyncGenerator[Reply]:
        """Do what `follow` does."""
        stream: Any = None
        try:
            with self.followed():
                async with aclosing(afirst_within(self.held(), await begin())) as relayed:
                    async for chunk in relayed:
                        stream = stream or self.stream()
                        if self.host and self.call is not None:
                            self.call.began()
                        yield self.finish(chunk)
        finally:
            stream = stream or self.stream()
            if stream is not None:
                await stream.close()

    def _settle(self, error: BaseException | None, *, closed: bool = False) -> None:
        flow = self.binding.flow
        if not self.host:
            if self.call is None and error is None and not closed:
                flow.unseen(_UNSEEN)
        elif self.call is not None:
            if closed:
                self.call.left()
            flow.complete(self.call, self.usage or usage_in(self.reply), error=error)


def current_ticket() -> Ticket | None:
    """Return the ticket of the call under way in this context."""
    ticket = _under_way.get()
    return ticket if ticket is not None and ticket.open else None


def under_way(llm: object, said: Sequence[ChatMessage] | str) -> bool:
    """Whether an LLM's own call is under way: its class called one of its methods from another.

    A callback or an event handler may call the same LLM in the middle of a call, about something else.

    Args:
        llm: The LLM.
        said: What its method is called with now.
    """
    ticket = current_ticket()
    return ticket is not None and ticket.llm is llm and not ticket.answered and _hands_on(ticket.handed, said)


def _hands_on(before: Sequence[ChatMessage] | str, now: Sequence[ChatMessage] | str) -> bool:
    """Whether a call says what another one said: as it was, or inside the class's own form of a prompt."""
    old, new = _last_words(before), _last_words(now)
    return old == new if not isinstance(before, str) and not isinstance(now, str) else old in new


def _last_words(said: Sequence[ChatMessage] | str) -> str:
    text = said if isinstance(said, str) else (said[-1].content or "") if said else ""
    return text.strip()


def token_counts(usage: Usage) -> dict[str, int]:
    """Write token counts under the names that LlamaIndex's OpenAI class uses, with those of the cache beside them.

    `prompt_tokens` is the whole prompt, cache reads and writes included, for every provider.
    """
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }


def usage_in(reply: ChatResponse | CompletionResponse | None) -> Usage | None:
    """Return what a reply of any class says of its tokens, where it is said as OpenAI or Anthropic do."""
    raw: Any = getattr(reply, "raw", None)
    usage: Any = (
        cast("Mapping[str, Any]", raw).get("usage") if isinstance(raw, Mapping) else getattr(raw, "usage", None)
    )
    counts: Any = usage.model_dump() if hasattr(usage, "model_dump") else usage
    if not isinstance(counts, Mapping) and reply is not None:
        counts = cast("Any", reply).additional_kwargs
    if not isinstance(counts, Mapping):
        return None
    known = cast("Mapping[str, object]", counts)
    if "prompt_tokens" in known:
        return from_openai_chat(known)
    return from_anthropic(known) if "input_tokens" in known else None
