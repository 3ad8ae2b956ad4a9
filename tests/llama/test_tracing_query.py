"""What OpenInference shows of the caches: one span for a served call, no tokens, and what the cache says of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse, MessageRole
from llama_index.llms.anthropic import Anthropic
from llama_index.llms.openai_like import OpenAILike
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headstay.emulator import Emulator, Reply, serve
from headstay.semantic import Answer, AskedRequest, Cache, Turn
from llama_index_headstay.events import served_chat, served_completion
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

# OpenInference 4.6.1 writes an LLM's metadata by a method that pydantic has deprecated; if it raises the span is lost.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")

ASKED = "How much is a single ticket?"
REWORDED = "How much does a single ticket cost?"
KIND = "openinference.span.kind"
TOTAL = "llm.token_count.total"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = LlamaIndexInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    yield exporter
    instrumentor.uninstrument()
    provider.shutdown()


@pytest.fixture
def llm(server: Emulator) -> Iterator[OpenAILike]:
    made = OpenAILike(model="gpt-5.4", api_key="key-a", api_base=server.openai_url, max_retries=0, is_chat_model=True)
    yield made
    if made._client is not None:
        made._client.close()


@pytest.fixture
def cached_engine(llm: OpenAILike) -> Any:
    def make(**how: Any) -> SemanticCacheQueryEngine:
        index = VectorStoreIndex.from_documents([Document(text="3.20 euros")], embed_model=MockEmbedding(embed_dim=4))
        return SemanticCacheQueryEngine(index.as_query_engine(llm=llm, **how), cache=Cache(), version="1")

    return make


def kinds(found: tuple[ReadableSpan, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for span in found:
        kind = str((span.attributes or {}).get(KIND))
        counts[kind] = counts.get(kind, 0) + 1
    return counts


def tokens(found: tuple[ReadableSpan, ...]) -> list[Any]:
    return [span.attributes[TOTAL] for span in found if span.attributes and TOTAL in span.attributes]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_miss_shows_the_models_tokens_once_and_a_hit_shows_none(
    cached_engine: Any, server: Emulator, spans: InMemorySpanExporter, streaming: bool
) -> None:
    engine = cached_engine(streaming=streaming)
    str(engine.query(ASKED))
    missed = spans.get_finished_spans()
    assert kinds(missed)["RETRIEVER"] > 0
    if not streaming:  # a stream of LlamaIndex's asks for no usage
        assert tokens(missed) == [server.exchanges[0].response["usage"]["total_tokens"]]
    spans.clear()
    assert str(engine.query(REWORDED))
    served = spans.get_finished_spans()
    assert kinds(served) == {"CHAIN": 2}
    assert {span.name for span in served} == {"SemanticCacheQueryEngine.query", "SemanticCacheQueryEngine._query"}
    assert tokens(served) == []
    assert len(server.exchanges) == 1


def test_the_span_of_a_look_says_what_came_of_it(cached_engine: Any, spans: InMemorySpanExporter) -> None:
    engine = cached_engine()
    for question in (ASKED, REWORDED):
        engine.query(question)
    looks = [
        dict(span.attributes or {})
        for span in spans.get_finished_spans()
        if span.name == "SemanticCacheQueryEngine._query"
    ]
    missed, served = ({name: value for name, value in look.items() if name.startswith("headstay")} for look in looks)
    assert missed == {
        "headstay.cache.hit": False,
        "headstay.cache.reason": "nothing_stored",
        "headstay.cache.threshold": 0.92,
        "headstay.cache.tokens_saved": 0,
    }
    entry = engine.query(REWORDED).metadata["headstay"]["entry"]
    assert served.pop("headstay.cache.age") >= 0
    assert served.pop("headstay.cache.similarity") == pytest.approx(0.97, abs=0.01)
    assert served.pop("headstay.cache.tokens_saved") > 0
    assert served == {
        "headstay.cache.hit": True,
        "headstay.cache.tier": "semantic",
        "headstay.cache.threshold": 0.92,
        "headstay.cache.entry": entry,
    }


def _answer(wire: str, body: Any) -> Reply:
    cut, refused = (word in str(body) for word in ("please ramble", "please refuse"))
    return Reply("Every 8 minutes", stop="length" if cut else "refusal" if refused else "end")


@pytest.mark.parametrize("streaming", [False, True])
def test_anthropics_cut_and_refused_answers_are_not_kept(streaming: bool) -> None:
    cache = Cache()
    with serve(responder=_answer) as desk:
        claude = Anthropic(model="claude-sonnet-4-6", api_key="key-a", base_url=desk.base_url, max_retries=0)
        index = VectorStoreIndex.from_documents([Document(text="line 4")], embed_model=MockEmbedding(embed_dim=4))
        inner = index.as_query_engine(llm=claude, streaming=streaming)
        engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
        for question in ("please ramble", "please refuse", ASKED, REWORDED):
            assert str(engine.query(question))
        assert len(desk.exchanges) == 3
        claude._client.close()
    found = cache.metrics()
    assert found.not_stored == {"not_admitted_truncated": 1, "not_admitted_refusal": 1}
    assert (found.stored, found.hits) == (1, {"semantic": 1})


def test_a_served_reply_of_an_llm_is_one_llm_span_of_no_tokens(llm: OpenAILike, spans: InMemorySpanExporter) -> None:
    cache = Cache()
    asked = AskedRequest((Turn("user", ASKED),))
    cache.admit(cache.look_up(asked), Answer("3.20 euros", input_tokens=90, output_tokens=10))
    hit = cache.look_up(asked)
    reply = ChatResponse(message=ChatMessage(role=MessageRole.ASSISTANT, content="3.20 euros"))
    served_chat(llm, [ChatMessage(role=MessageRole.USER, content=ASKED)], reply, hit, method="achat")
    served_completion(llm, ASKED, CompletionResponse(text="3.20 euros"), hit)
    chat, completion = (dict(span.attributes or {}) for span in spans.get_finished_spans())
    assert [span.name for span in spans.get_finished_spans()] == ["OpenAILike.achat", "OpenAILike.complete"]
    for shown in (chat, completion):
        assert (shown[KIND], shown["llm.model_name"]) == ("LLM", "gpt-5.4")
        counts = {name: value for name, value in shown.items() if name.startswith("llm.token_count")}
        assert counts
        assert set(counts.values()) == {0}
        assert shown["headstay.cache.tokens_saved"] == 100
    assert "3.20 euros" in [value for name, value in chat.items() if name.startswith("llm.output_messages.0.")]
    assert completion["output.value"] == "3.20 euros"
