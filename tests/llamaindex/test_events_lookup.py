import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, MessageRole
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler, TokenCountingHandler
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.event_handlers import BaseEventHandler
from pydantic import Field

from headstay.semantic import Answer, AskedRequest, Cache, Turn
from headstay.semantic.lookup import Lookup
from llama_index_headstay.events import CacheLookupEvent, report, served_chat, served_completion
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

ASKED = "How much is a single ticket?"
REWORDED = "How much does a single ticket cost?"


class Seen(BaseEventHandler):
    """Keeps the events of a test."""

    events: list[BaseEvent] = Field(default_factory=list)

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [event.class_name() for event in self.events]


@pytest.fixture
def seen() -> Iterator[Seen]:
    root, handler = get_dispatcher(), Seen()
    before = list(root.event_handlers)
    root.event_handlers = [*before, handler]
    yield handler
    root.event_handlers = [one for one in root.event_handlers if one is not handler]


@pytest.fixture
def engine(desk_llm: Callable[..., Any]) -> SemanticCacheQueryEngine:
    index = VectorStoreIndex.from_documents([Document(text="3.20 euros")], embed_model=MockEmbedding(embed_dim=4))
    inner = index.as_query_engine(llm=desk_llm())
    return SemanticCacheQueryEngine(inner, cache=Cache(), version="1")


def hit() -> Lookup:
    cache = Cache()
    asked = AskedRequest((Turn("user", ASKED),))
    cache.admit(cache.look_up(asked), Answer("3.20 euros", input_tokens=90, output_tokens=10))
    found = cache.look_up(asked)
    assert found.entry is not None
    return found


@pytest.mark.parametrize("awaited", [False, True])
async def test_each_look_is_an_event_without_texts(engine: SemanticCacheQueryEngine, seen: Seen, awaited: bool) -> None:
    for question in (ASKED, REWORDED):
        await engine.aquery(question) if awaited else engine.query(question)
    miss, found = [event for event in seen.events if isinstance(event, CacheLookupEvent)]
    assert (miss.hit, miss.reason, miss.entry, miss.tokens_saved) == (False, "nothing_stored", None, 0)
    assert (found.hit, found.tier, found.threshold, found.reason) == (True, "semantic", 0.92, None)
    assert found.similarity is not None
    assert 0.92 <= found.similarity < 1
    assert found.entry
    assert found.age is not None
    assert found.tokens_saved > 0
    assert found.span_id is not None
    assert found.span_id.startswith("SemanticCacheQueryEngine.")
    assert not any(word in found.model_dump_json() for word in ("ticket", "euros", "answer"))


def test_a_hit_tells_of_one_query_and_of_no_retrieval_or_model(engine: SemanticCacheQueryEngine, seen: Seen) -> None:
    engine.query(ASKED)
    seen.events.clear()
    engine.query(REWORDED)
    assert seen.names == ["QueryStartEvent", "CacheLookupEvent", "QueryEndEvent"]


def test_llama_indexs_own_handlers_count_nothing_on_a_hit(desk_llm: Callable[..., Any], desk: Any) -> None:
    counter, debug = TokenCountingHandler(tokenizer=str.split), LlamaDebugHandler(print_trace_on_end=False)
    manager = CallbackManager([counter, debug])
    index = VectorStoreIndex.from_documents([Document(text="3.20 euros")], embed_model=MockEmbedding(embed_dim=4))
    synthesizer = get_response_synthesizer(llm=desk_llm(), callback_manager=manager)
    retriever = VectorIndexRetriever(index, callback_manager=manager)
    inner = RetrieverQueryEngine(retriever, synthesizer, callback_manager=manager)
    engine = SemanticCacheQueryEngine(inner, cache=Cache(), version="1")
    engine.query(ASKED)
    usage = desk.exchanges[0].response["usage"]
    assert counter.total_llm_token_count == usage["total_tokens"] > 0
    assert len(debug.get_event_pairs(CBEventType.LLM)) == len(debug.get_event_pairs(CBEventType.RETRIEVE)) == 1
    debug.flush_event_logs()
    engine.query(REWORDED)
    assert counter.total_llm_token_count == usage["total_tokens"]
    assert len(debug.get_event_pairs(CBEventType.QUERY)) == 1
    assert debug.get_event_pairs(CBEventType.LLM) == debug.get_event_pairs(CBEventType.RETRIEVE) == []


def test_a_served_chat_is_one_call_that_cost_nothing(seen: Seen) -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    llm = MockLLM(callback_manager=CallbackManager([counter]))
    asked = [ChatMessage(role=MessageRole.USER, content=ASKED)]
    said = ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content="3.20 euros"), raw={"usage": "dear"})
    reply = served_chat(llm, asked, said, hit(), threshold=0.92, method="achat")
    assert reply.message.content == "3.20 euros"
    assert reply.raw == {"usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
    assert said.raw == {"usage": "dear"}
    assert seen.names == ["LLMChatStartEvent", "CacheLookupEvent", "LLMChatEndEvent"]
    assert len({event.span_id for event in seen.events}) == 1
    assert str(seen.events[0].span_id).startswith("MockLLM.achat-")
    assert seen.events[1].model_dump()["tokens_saved"] == 100
    assert counter.total_llm_token_count == 0


def test_a_served_completion_is_one_call_that_cost_nothing(seen: Seen) -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    llm = MockLLM(callback_manager=CallbackManager([counter]))
    reply = served_completion(llm, ASKED, CompletionResponse(text="3.20 euros"), hit(), method="stream_complete")
    assert (reply.text, reply.raw["usage"]["total_tokens"]) == ("3.20 euros", 0)
    assert seen.names == ["LLMCompletionStartEvent", "CacheLookupEvent", "LLMCompletionEndEvent"]
    assert str(seen.events[0].span_id).startswith("MockLLM.stream_complete-")
    assert counter.total_llm_token_count == 0


def test_without_opentelemetry_nothing_is_missing(monkeypatch: pytest.MonkeyPatch, seen: Seen) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace", raising=False)
    report(hit())
    assert seen.names == ["CacheLookupEvent"]
    assert "opentelemetry.trace" not in sys.modules
