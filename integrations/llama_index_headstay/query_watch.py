"""Sees how the calls inside a query engine ended, for its answer is no better than they are.

LlamaIndex tells of its calls by events; a response says nothing of them. One handler listens for all engines, and looks
only at the events of a query that was missed.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse, TextBlock, ThinkingBlock
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
)
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.events.span import SpanDropEvent

from headstay.semantic.answer import Answer, not_admitted
from headstay.semantic.forking import ForkedLock
from headstay.semantic.reasons import Reason

_REPLIES = (LLMChatEndEvent, LLMChatInProgressEvent, LLMCompletionEndEvent, LLMCompletionInProgressEvent)
_FAILURES = (ExceptionEvent, SpanDropEvent)
_FINISHES = ("stop_reason", "finish_reason", "done_reason", "stopReason", "status")
_NOT_YET = ("in_progress", "queued")
_READ = ("prompt_tokens", "input_tokens", "prompt_token_count")
_WRITTEN = ("completion_tokens", "output_tokens", "candidates_token_count")

_watch: ContextVar["Watch | None"] = ContextVar("headstay_query_watch", default=None)
_lock = ForkedLock()


class Watch:
    """Sees how the calls of one query ended.

    Args:
        outer: The watch of the query around this one, which is no better than it either.
    """

    def __init__(self, outer: "Watch | None" = None) -> None:
        self._outer = outer
        self._finishes: dict[str | None, str] = {}
        self._tokens: dict[str | None, tuple[int, int]] = {}
        self._said: dict[str | None, bool] = {}
        self._failed = self._refused = False

    @classmethod
    def start(cls) -> "Watch":
        """Begin to watch a query."""
        _listen()
        return cls(_watch.get())

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch what happens inside the block, and in tasks and threads that begin there."""
        token = _watch.set(self)
        try:
            yield
        finally:
            _watch.reset(token)

    def see(self, event: BaseEvent) -> None:
        """Note how a call ended, or stands."""
        if self._outer is not None:
            self._outer.see(event)
        if isinstance(event, _FAILURES):
            self._failed = True
        if isinstance(event, _REPLIES) and event.response is not None:
            raw: object = event.response.raw
            self._said[event.span_id] = self._said.get(event.span_id, False) or _says(event.response)
            if (finish := _finish(raw)) is not None:
                self._finishes[event.span_id] = finish
            if (tokens := _usage(raw)) is not None:
                self._tokens[event.span_id] = tokens
            self._refused = self._refused or _is_refused(raw)

    @property
    def refused(self) -> Reason | None:
        """Why the answer must not be kept, or None; one that was made in need is not."""
        if self._failed:
            return Reason.NOT_ADMITTED_ERROR
        if self._refused:
            return Reason.NOT_ADMITTED_REFUSAL
        ends = (not_admitted(Answer("called", finish=finish), tool_calls=True) for finish in self._finishes.values())
        # LlamaIndex writes "Empty Response" where a model said nothing, also into the middle of an answer
        nothing = None if all(self._said.values()) else Reason.NOT_ADMITTED_EMPTY
        return next((reason for reason in ends if reason is not None), nothing)

    @property
    def tokens(self) -> tuple[int, int]:
        """What the models read and wrote, as far as they said."""
        counts = self._tokens.values()
        return sum(read for read, _ in counts), sum(written for _, written in counts)


class _Listener(BaseEventHandler):
    """Hands the events of a watched query to its watch."""

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:  # noqa: ARG002 - LlamaIndex's signature
        """Hand an event on."""
        watch = _watch.get()
        if watch is not None:
            watch.see(event)


_listener = _Listener()


def _listen() -> None:
    """Be among the handlers of all events; whoever sets the handlers anew takes it away again."""
    root = get_dispatcher()
    with _lock:
        if not any(handler is _listener for handler in root.event_handlers):
            root.add_event_handler(_listener)


def _finish(raw: object) -> str | None:
    """Return the provider's word for how a reply ended, or None where it has not."""
    first = _first(raw, "choices") or _first(raw, "candidates")
    places = (first, raw, _get(raw, "delta")) if first is not None else (raw, _get(raw, "delta"))
    for place in places:
        for name in _FINISHES:
            word = _get(place, name)
            word = getattr(word, "name", word)  # an enum of Google's
            if isinstance(word, str) and word not in _NOT_YET:
                reason = _get(_get(place, "incomplete_details"), "reason")
                return reason if isinstance(reason, str) else word
    return None


def _says(response: ChatResponse | CompletionResponse) -> bool:
    """Whether a reply, or a piece of one, holds an answer: text, media or a call of a tool."""
    if response.delta or _calls(response):
        return True
    if isinstance(response, CompletionResponse):
        return bool(response.text)
    blocks = response.message.blocks
    shown = (block.text if isinstance(block, TextBlock) else not isinstance(block, ThinkingBlock) for block in blocks)
    return any(shown) or _calls(response.message)


def _calls(said: object) -> bool:
    kwargs = _get(said, "additional_kwargs")
    return any(_get(kwargs, name) for name in ("tool_calls", "function_call"))


def _is_refused(raw: object) -> bool:
    first = _first(raw, "choices")
    return bool(_get(_get(first, "message"), "refusal") or _get(_get(first, "delta"), "refusal"))


def _usage(raw: object) -> tuple[int, int] | None:
    usage = _get(raw, "usage") or _get(raw, "usage_metadata")
    if usage is None:
        return None
    return _count(usage, _READ), _count(usage, _WRITTEN)


def _count(usage: object, names: tuple[str, ...]) -> int:
    found = (_get(usage, name) for name in names)
    return next((count for count in found if isinstance(count, int)), 0)


def _first(raw: object, name: str) -> object:
    items = _get(raw, name)
    return cast("list[object]", items)[0] if isinstance(items, list) and items else None


def _get(place: object, name: str) -> object:
    """Return what stands under a name in a mapping or an object; LlamaIndex hands on what the SDK gave."""
    if isinstance(place, Mapping):
        return cast("Mapping[str, object]", place).get(name)
    return cast("object", getattr(place, name, None)) if place is not None else None
