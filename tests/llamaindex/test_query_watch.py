from types import SimpleNamespace
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMCompletionEndEvent,
)
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.events.span import SpanDropEvent

from llama_index_headstay.query_watch import Watch


def chat_end(raw: Any, span: str = "a") -> LLMChatEndEvent:
    return LLMChatEndEvent(messages=[], response=ChatResponse(message=ChatMessage(content="x"), raw=raw), span_id=span)


def openai(finish: str | None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"finish_reason": finish, "message": {"content": "x", **more}}]}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (None, None),
        ({}, None),
        (openai("stop"), None),
        (openai(None), None),
        (openai("tool_calls"), None),
        (openai("length"), "not_admitted_truncated"),
        (openai("content_filter"), "not_admitted_refusal"),
        (openai("stop", refusal="I cannot help."), "not_admitted_refusal"),
        (openai("odd"), "not_admitted_unfinished"),
        (SimpleNamespace(choices=[SimpleNamespace(finish_reason="length", delta=None)]), "not_admitted_truncated"),
        ({"stop_reason": "end_turn"}, None),
        ({"stop_reason": "max_tokens"}, "not_admitted_truncated"),
        ({"stop_reason": "refusal"}, "not_admitted_refusal"),
        ({"delta": SimpleNamespace(stop_reason="max_tokens")}, "not_admitted_truncated"),
        ({"status": "completed"}, None),
        ({"status": "in_progress"}, None),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "not_admitted_refusal"),
        ({"candidates": [{"finish_reason": SimpleNamespace(name="MAX_TOKENS")}]}, "not_admitted_truncated"),
        ({"done_reason": "length"}, "not_admitted_truncated"),
    ],
)
def test_each_providers_word_for_an_end_is_understood(raw: Any, reason: str | None) -> None:
    watch = Watch()
    watch.see(chat_end(raw))
    assert watch.refused == reason


def test_one_bad_end_of_several_calls_is_enough_and_a_streams_last_word_counts() -> None:
    watch = Watch()
    for finish in (None, "stop"):
        response = ChatResponse(message=ChatMessage(content="x"), raw=openai(finish))
        watch.see(LLMChatInProgressEvent(messages=[], response=response, span_id="a"))
    watch.see(chat_end(openai(None), span="a"))  # some providers end a stream with a chunk that says only the usage
    assert watch.refused is None
    watch.see(chat_end(openai("length"), span="b"))
    watch.see(chat_end(openai("stop"), span="c"))
    assert watch.refused == "not_admitted_truncated"


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 90, "completion_tokens": 10},
        {"input_tokens": 90, "output_tokens": 10},
        SimpleNamespace(prompt_tokens=90, completion_tokens=10),
    ],
)
def test_the_tokens_of_all_calls_add_up(usage: Any) -> None:
    watch = Watch()
    watch.see(chat_end({"usage": usage}, span="a"))
    watch.see(chat_end({"usage": usage}, span="a"))  # the same call again, as a stream tells it
    response = CompletionResponse(text="x", raw={"usage": usage})
    watch.see(LLMCompletionEndEvent(prompt="", response=response, span_id="b"))
    assert watch.tokens == (180, 20)


def test_only_what_happens_inside_is_watched_and_the_outer_one_sees_it_too() -> None:
    outer = Watch.start()
    with outer.watching():
        inner = Watch.start()
        with inner.watching():
            get_dispatcher(__name__).event(SpanDropEvent(span_id="a", err_str="gone"))
    beside = Watch.start()
    get_dispatcher(__name__).event(SpanDropEvent(span_id="a", err_str="gone"))
    assert (inner.refused, outer.refused, beside.refused) == ("not_admitted_error", "not_admitted_error", None)


def test_one_listener_serves_all() -> None:
    Watch.start()
    before = len(get_dispatcher().event_handlers)
    Watch.start()
    assert len(get_dispatcher().event_handlers) == before
