"""The methods that an instrumented LLM has before those of its class: each follows one call, and may answer it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, LLMMetadata

from headstay.prompt import Wire
from llama_index_headstay.binding import Binding
from llama_index_headstay.host_messages import arrange, copied
from llama_index_headstay.served import Asking, How, akept_stream, akept_whole, kept_stream, kept_whole
from llama_index_headstay.ticket import Ticket, under_way

Reply = TypeVar("Reply", ChatResponse, CompletionResponse)
Made = TypeVar("Made")

# A pydantic class among the bases would bring its own fields before those of the LLM's class, and a class with
# LlamaIndex's spans would open a second one for every call.
if TYPE_CHECKING:
    from llama_index.core.llms.llm import LLM

    class _Base(LLM):
        """What every class has that is instrumented."""

        @property
        def metadata(self) -> LLMMetadata: ...
        def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse: ...
        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse: ...
        def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any: ...
        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any: ...
        async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any: ...
        async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any: ...
        async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Any: ...
        async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any: ...

else:
    _Base = object


class Answering(_Base):
    """Chat and completion: whole and streamed, sync and async."""

    headstay_binding: ClassVar[Binding]
    headstay_wire: ClassVar[Wire]

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Call the class's own method; the head stays."""
        return self._whole(super().chat, list(messages), kwargs)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Call the class's own method; the head stays."""
        return self._whole(super().complete, prompt, {"formatted": formatted, **kwargs})

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Generator[ChatResponse]:
        """Call the class's own method; the head stays."""
        return self._stream(super().stream_chat, list(messages), kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Generator[CompletionResponse]:
        """Call the class's own method; the head stays."""
        return self._stream(super().stream_complete, prompt, {"formatted": formatted, **kwargs})

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Call the class's own method; the head stays."""
        return await self._awhole(super().achat, list(messages), kwargs)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Call the class's own method; the head stays."""
        return await self._awhole(super().acomplete, prompt, {"formatted": formatted, **kwargs})

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> AsyncGenerator[ChatResponse]:
        """Call the class's own method; the head stays."""
        return await self._astream(super().astream_chat, list(messages), kwargs)

    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> AsyncGenerator[CompletionResponse]:
        """Call the class's own method; the head stays."""
        return await self._astream(super().astream_complete, prompt, {"formatted": formatted, **kwargs})

    def _whole(self, method: Callable[..., Reply], said: Any, given: dict[str, Any]) -> Reply:
        if under_way(self, said):
            return method(said, **given)
        ticket = self._ticket(said)

        def fetch() -> Reply:
            with ticket.followed():
                return ticket.finish(self._called(ticket, method, said, given))

        asking = self._asking(ticket, said, given, "")
        return fetch() if asking is None else kept_whole(asking, fetch)

    async def _awhole(self, method: Callable[..., Awaitable[Reply]], said: Any, given: dict[str, Any]) -> Reply:
        if under_way(self, said):
            return await method(said, **given)
        ticket = self._ticket(said)

        async def fetch() -> Reply:
            with ticket.followed():
                return ticket.finish(await self._acalled(ticket, method, said, given))

        asking = self._asking(ticket, said, given, "a")
        return await fetch() if asking is None else await akept_whole(asking, fetch)

    def _stream(self, method: Callable[..., Generator[Reply]], said: Any, given: dict[str, Any]) -> Generator[Reply]:
        if under_way(self, said):
            return method(said, **given)
        ticket = self._ticket(said)
        begin = partial(self._called, ticket, method, said, given)
        asking = self._asking(ticket, said, given, "stream_")
        if asking is not None:
            return kept_stream(asking, lambda: ticket.follow(begin))
        if ticket.host:
            return ticket.follow(begin)
        with ticket.begun():  # some classes send at once: what goes wrong is raised by this call, not by the stream
            chunks = begin()
        return ticket.follow(lambda: chunks)

    async def _astream(
        self, method: Callable[..., Awaitable[AsyncGenerator[Reply]]], said: Any, given: dict[str, Any]
    ) -> AsyncGenerator[Reply]:
        if under_way(self, said):
            return await method(said, **given)
        ticket = self._ticket(said)
        begin = partial(self._acalled, ticket, method, said, given)
        asking = self._asking(ticket, said, given, "astream_")
        if asking is not None:
            return akept_stream(asking, lambda: ticket.afollow(begin))
        if ticket.host:
            return ticket.afollow(begin)
        with ticket.begun():
            chunks = await begin()

        async def begun() -> AsyncGenerator[Reply]:
            return chunks

        return ticket.afollow(begun)

    def _ticket(self, said: Any) -> Ticket:
        messages = cast("list[ChatMessage]", said) if isinstance(said, list) else ()
        return Ticket(self.headstay_binding, self, messages, host=self.headstay_wire == "host-messages")

    def _called(self, ticket: Ticket, method: Callable[..., Made], said: Any, given: dict[str, Any]) -> Made:
        """Call the class's method, which finds the ticket for as long as that takes."""
        asked, more = self._arranged(ticket, said, given)
        ticket.handed = asked
        with ticket.held():
            return method(asked, **more)

    async def _acalled(
        self, ticket: Ticket, method: Callable[..., Awaitable[Made]], said: Any, given: dict[str, Any]
    ) -> Made:
        asked, more = self._arranged(ticket, said, given)
        ticket.handed = asked
        with ticket.held():
            return await method(asked, **more)

    def _arranged(self, ticket: Ticket, said: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return what to call the class's method with; never the caller's own messages."""
        if not ticket.host:
            return ([copied(message) for message in said] if self._marks else said), given
        model = model_name(self)
        if isinstance(said, list):
            return arrange(model, cast("list[ChatMessage]", said), given, ticket)
        ticket.call = self.headstay_binding.pass_on(
            {"model": model}, "host-messages", "a text completion has no head to keep", names=ticket.names
        )
        return said, given

    @property
    def _marks(self) -> bool:
        """Whether the class writes on the messages it gets: Anthropic's does, where it sets markers by itself."""
        return getattr(self, "cache_idx", None) is not None

    def _asking(self, ticket: Ticket, said: Any, given: Mapping[str, Any], how: How) -> Asking | None:
        """Return what asks the semantic cache, or None where there is none."""
        return None if self.headstay_binding.semantic is None else Asking(self, ticket, said, given, how)


def model_name(llm: BaseLLM) -> str:
    """Return the model id an LLM was made with, or an empty text."""
    return str(getattr(llm, "model", None) or getattr(llm, "model_name", None) or "")
