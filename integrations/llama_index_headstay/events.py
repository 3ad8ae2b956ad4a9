"""What a tracer sees of the caches: an event for each look, attributes of the span, one LLM span for a served reply.

A served reply cost nothing, so it reports no tokens. LlamaIndex's own token counter takes zero for unknown and counts
the text itself; therefore a served reply goes past the callback manager, which it listens to, and to the dispatcher.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any, Literal, cast

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.instrumentation.span import active_span_id
from llama_index_instrumentation import get_dispatcher

from headstay.semantic.lookup import Lookup

ChatMethod = Literal["chat", "stream_chat", "achat", "astream_chat"]
CompletionMethod = Literal["complete", "stream_complete", "acomplete", "astream_complete"]

_DEAF = ("openinference.", "llama_index_instrumentation.", "llama_index_headstay.")
"""Modules of handlers that make nothing of our event: OpenInference reads the attributes of the span instead."""

_SPAN_MODULE = "opentelemetry.trace"

dispatcher = get_dispatcher(__name__)


class CacheLookupEvent(BaseEvent):
    """One question to a semantic cache, and what came of it; never a text.

    Attributes:
        hit: Whether a kept answer is served.
        tier: "exact" or "semantic" on a hit.
        similarity: That of the served or the nearest question, or None.
        threshold: The least similarity that is served.
        age: Seconds since the served answer was made.
        reason: Why nothing is served.
        entry: Name of the served entry.
        tokens_saved: What the served answer had cost, input and output; 0 where that is not known.
    """

    hit: bool
    tier: str | None = None
    similarity: float | None = None
    threshold: float | None = None
    age: float | None = None
    reason: str | None = None
    entry: str | None = None
    tokens_saved: int = 0

    @classmethod
    def class_name(cls) -> str:
        """Name the class, as LlamaIndex does."""
        return "CacheLookupEvent"


def report(lookup: Lookup, *, threshold: float | None = None) -> None:
    """Tell LlamaIndex's handlers, and the OpenTelemetry span under way, what came of a look.

    Args:
        lookup: The hit or the miss.
        threshold: The least similarity that is served.
    """
    answer = lookup.answer
    event = CacheLookupEvent(
        span_id=active_span_id.get(),
        hit=lookup.entry is not None,
        tier=lookup.tier,
        similarity=lookup.score,
        threshold=threshold,
        age=lookup.age,
        reason=None if lookup.reason is None else str(lookup.reason),
        entry=None if lookup.entry is None else lookup.entry.id,
        tokens_saved=0 if answer is None else answer.input_tokens + answer.output_tokens,
    )
    if _is_heard():
        dispatcher.event(event)
    tracing: Any = sys.modules.get(_SPAN_MODULE)  # who did not import it traces nothing
    if tracing is not None:
        said = event.model_dump(exclude={"timestamp", "id_", "span_id", "tags", "class_name"})
        given = {f"headstay.cache.{name}": value for name, value in said.items() if value is not None}
        given.pop("headstay.cache.class_name", None)
        tracing.get_current_span().set_attributes(given)


def _is_heard() -> bool:
    """Whether somebody listens who may know our event; OpenInference logs a warning for each one it does not know."""
    at: Any = dispatcher
    while at is not None:
        if any(not type(handler).__module__.startswith(_DEAF) for handler in at.event_handlers):
            return True
        at = at.parent if at.propagate else None
    return False


def served_chat(
    llm: BaseLLM,
    messages: Sequence[ChatMessage],
    response: ChatResponse,
    lookup: Lookup,
    *,
    threshold: float | None = None,
    method: ChatMethod = "chat",
) -> ChatResponse:
    """Show a served reply as one call of an LLM that cost nothing. Nothing waits in it: async callers use it too.

    Args:
        llm: Whose reply it stands for.
        messages: What was asked.
        response: The reply.
        lookup: The hit.
        threshold: The least similarity that is served.
        method: The method that the application called; it names the span.

    Returns:
        The reply, with zero usage as its raw form. A stream is replayed of it afterwards.
    """
    reply = response.model_copy(update={"raw": {"usage": zero_usage()}})

    def call(self: BaseLLM, messages: Sequence[ChatMessage]) -> ChatResponse:
        span, asked = active_span_id.get(), list(messages)
        known: dict[str, Any] = {"model_dict": self.to_payload(), "additional_kwargs": {}}
        dispatcher.event(LLMChatStartEvent(messages=asked, span_id=span, **known))
        report(lookup, threshold=threshold)
        dispatcher.event(LLMChatEndEvent(messages=asked, response=reply, span_id=span))
        return reply

    return cast("ChatResponse", _in_span(llm, method, call)(messages))


def served_completion(
    llm: BaseLLM,
    prompt: str,
    response: CompletionResponse,
    lookup: Lookup,
    *,
    threshold: float | None = None,
    method: CompletionMethod = "complete",
) -> CompletionResponse:
    """Do what `served_chat` does, for a completion.

    Args:
        llm: As there.
        prompt: What was asked.
        response: The reply.
        lookup: The hit.
        threshold: As there.
        method: As there.
    """
    reply = response.model_copy(update={"raw": {"usage": zero_usage()}})

    def call(self: BaseLLM, prompt: str) -> CompletionResponse:
        span = active_span_id.get()
        known: dict[str, Any] = {"model_dict": self.to_payload(), "additional_kwargs": {}}
        dispatcher.event(LLMCompletionStartEvent(prompt=prompt, span_id=span, **known))
        report(lookup, threshold=threshold)
        dispatcher.event(LLMCompletionEndEvent(prompt=prompt, response=reply, span_id=span))
        return reply

    return cast("CompletionResponse", _in_span(llm, method, call)(prompt))


def zero_usage() -> Mapping[str, int]:
    """Return the usage of a reply that cost nothing, under OpenAI's names, which every tracer reads."""
    return {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def _in_span(llm: BaseLLM, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of an LLM that has a span of its own; tracers name the span by class and method."""
    call.__name__ = method
    return dispatcher.span(MethodType(call, llm))
