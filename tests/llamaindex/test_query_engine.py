import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import QueryBundle

from headstay.errors import ConfigError
from headstay.semantic import Cache, caching
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

ASKED = "How much is a single ticket?"
REWORDED = "How much does a single ticket cost?"
OTHER = "How often does line 4 run on weekdays?"
ANSWER = f"The answer to <{ASKED}>, in some more words than one piece of a replay has."

Maker = Callable[..., SemanticCacheQueryEngine]


class Counting(MockEmbedding):
    """Counts the questions it embeds: one for each retrieval."""

    asked: int = 0

    def _get_query_embedding(self, query: str) -> list[float]:
        self.asked += 1
        return super()._get_query_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


@pytest.fixture
def embedding() -> Counting:
    return Counting(embed_dim=4)


@pytest.fixture
def index(embedding: Counting) -> VectorStoreIndex:
    document = Document(text="A single ticket costs 3.20 euros.", metadata={"file": "prices.md", "page": 3})
    return VectorStoreIndex.from_documents([document], embed_model=embedding)


@pytest.fixture
def cached_engine(index: VectorStoreIndex, desk_llm: Any) -> Maker:
    def make(cache: Any = None, **how: Any) -> SemanticCacheQueryEngine:
        settings = {name: how.pop(name) for name in ("version", "tenant", "user", "name") if name in how}
        inner = index.as_query_engine(**{"llm": desk_llm(), **how})
        return SemanticCacheQueryEngine(
            inner, **{"cache": Cache() if cache is None else cache, "version": "1", **settings}
        )

    return make


async def ask_query(engine: BaseQueryEngine, question: Any) -> tuple[str, Any]:
    response = engine.query(question)
    return str(response), response


async def ask_aquery(engine: BaseQueryEngine, question: Any) -> tuple[str, Any]:
    response = await engine.aquery(question)
    if isinstance(response, AsyncStreamingResponse):
        return (await response.get_response()).response or "", response
    return str(response), response


WAYS = [
    pytest.param(ask_query, False, Response, id="query"),
    pytest.param(ask_aquery, False, Response, id="aquery"),
    pytest.param(ask_query, True, StreamingResponse, id="query, streaming"),
    pytest.param(ask_aquery, True, AsyncStreamingResponse, id="aquery, streaming"),
]


@pytest.mark.parametrize(("ask", "streaming", "kind"), WAYS)
async def test_a_reworded_question_skips_retrieval_and_model(
    cached_engine: Maker, desk: Any, embedding: Counting, ask: Any, streaming: bool, kind: type
) -> None:
    engine = cached_engine(streaming=streaming)
    text, fresh = await ask(engine, ASKED)
    served_text, served = await ask(engine, REWORDED)
    assert (text, served_text) == (ANSWER, ANSWER)
    assert (len(desk.exchanges), embedding.asked) == (1, 1)
    assert type(fresh) is type(served) is kind
    assert [one.model_dump() for one in served.source_nodes] == [one.model_dump() for one in fresh.source_nodes]
    assert served.source_nodes[0].node.metadata == {"file": "prices.md", "page": 3}
    said = served.metadata.pop("headstay")
    assert (said["cache"], said["tier"]) == ("hit", "semantic")
    assert said["score"] >= 0.92
    assert served.metadata == fresh.metadata == {served.source_nodes[0].node_id: {"file": "prices.md", "page": 3}}


async def test_sync_and_async_share_answers_each_in_its_own_form(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine(streaming=True)
    await ask_query(engine, ASKED)
    text, served = await ask_aquery(engine, ASKED)
    assert (text, type(served)) == (ANSWER, AsyncStreamingResponse)
    await ask_aquery(engine, OTHER)
    _, served = await ask_query(engine, OTHER)
    assert type(served) is StreamingResponse
    assert len(desk.exchanges) == 2


def test_each_hit_is_a_response_of_its_own(cached_engine: Maker) -> None:
    engine = cached_engine()
    fresh = engine.query(ASKED)
    fresh.source_nodes[0].node.metadata["file"] = "changed"
    first = engine.query(ASKED)
    first.source_nodes.clear()
    first.metadata.clear()
    second = engine.query(ASKED)
    assert second.source_nodes[0].node.metadata["file"] == "prices.md"
    assert second.metadata["headstay"]["tier"] == "exact"


def test_a_miss_is_the_engines_own_response_and_says_nothing_of_headstay(cached_engine: Maker) -> None:
    assert "headstay" not in cached_engine().query(ASKED).metadata


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("please refuse", "not_admitted_refusal"),
        ("please ramble", "not_admitted_truncated"),
        ("please say nothing", "not_admitted_empty"),
    ],
)
async def test_answers_that_are_none_are_not_kept(
    cached_engine: Maker, desk: Any, streaming: bool, question: str, reason: str
) -> None:
    cache = Cache()
    engine = cached_engine(cache, streaming=streaming)
    for ask in (ask_query, ask_aquery, ask_query):
        await ask(engine, question)
    assert len(desk.exchanges) == 3
    assert cache.metrics().not_stored == {reason: 3}


@pytest.mark.parametrize("streaming", [False, True])
async def test_where_nothing_was_retrieved_nothing_is_kept(desk: Any, desk_llm: Any, streaming: bool) -> None:
    empty = VectorStoreIndex([], embed_model=MockEmbedding(embed_dim=4))
    inner = empty.as_query_engine(llm=desk_llm(), streaming=streaming)
    cache = Cache()
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    for ask in (ask_query, ask_aquery):
        text, _ = await ask(engine, ASKED)
        assert text == "Empty Response"
    inner._response_synthesizer._empty_response = "I found nothing."
    text, _ = await ask_query(engine, ASKED)
    assert text == "I found nothing."
    assert cache.metrics().not_stored == {"not_admitted_empty": 3}
    assert desk.exchanges == ()


def test_the_tokens_of_an_answer_are_counted_as_saved(cached_engine: Maker, desk: Any) -> None:
    cache = Cache()
    engine = cached_engine(cache)
    engine.query(ASKED)
    engine.query(ASKED)
    usage = desk.exchanges[0].response["usage"]
    saved = cache.metrics()
    assert (saved.input_tokens, saved.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert saved.input_tokens > 0


class Failing(BaseQueryEngine):
    """Fails, in its own words."""

    def __init__(self, problem: Exception) -> None:
        self.problem, self.asked = problem, 0
        super().__init__(callback_manager=None)

    def _get_prompt_modules(self) -> Any:
        return {}

    def _query(self, query_bundle: QueryBundle) -> Any:
        self.asked += 1
        raise self.problem

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return self._query(query_bundle)


async def test_the_engines_own_error_comes_through_and_nobody_waits_for_it() -> None:
    problem = LookupError("the index is gone")
    cache = Cache()
    inner = Failing(problem)
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    for ask in (ask_query, ask_aquery, ask_query):
        with pytest.raises(LookupError) as raised:
            await ask(engine, ASKED)
        assert raised.value is problem
    assert inner.asked == 3
    assert cache.metrics().stored == 0


def test_a_failed_call_inside_is_no_answer(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    desk.fail_next(status=500)
    with pytest.raises(Exception, match="500"):
        engine.query(ASKED)
    assert str(engine.query(ASKED)) == ANSWER
    assert len(desk.exchanges) == 2


def test_another_version_retires_the_answers(cached_engine: Maker, desk: Any) -> None:
    version = ["monday"]
    engine = cached_engine(version=lambda: version[0])
    engine.query(ASKED)
    engine.query(ASKED)
    version[0] = "tuesday"
    assert "headstay" not in engine.query(ASKED).metadata
    assert "headstay" in engine.query(REWORDED).metadata
    assert len(desk.exchanges) == 2
    version[0] = "monday"
    assert engine.query(ASKED).metadata["headstay"]["cache"] == "hit"


def _raises() -> str:
    raise KeyError("no version of acme's documents")


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"version": _raises}, "internal_error"),
        ({"version": lambda: None}, "internal_error"),
        ({"version": lambda: 7}, "internal_error"),
        ({"tenant": _raises}, "internal_error"),
        ({"tenant": lambda: None}, "no_tenant"),
        ({"user": lambda: None}, "no_tenant"),
    ],
)
def test_who_cannot_say_for_whom_goes_past_the_cache(
    cached_engine: Maker, desk: Any, caplog: pytest.LogCaptureFixture, how: dict[str, Any], reason: str
) -> None:
    cache = Cache()
    engine = cached_engine(cache, **how)
    assert [str(engine.query(ASKED)) for _ in range(2)] == [ANSWER, ANSWER]
    assert len(desk.exchanges) == 2
    assert cache.metrics().misses == {reason: 2}
    assert reason in engine.explain(ASKED)
    assert "acme" not in caplog.text


def test_tenants_and_users_share_nothing(cached_engine: Maker, desk: Any) -> None:
    who = ["acme", "ann"]
    engine = cached_engine(tenant=lambda: who[0], user=lambda: who[1])
    for who[:] in (["acme", "ann"], ["globex", "ann"], ["acme", "bob"]):
        assert "headstay" not in engine.query(ASKED).metadata
        assert engine.query(REWORDED).metadata["headstay"]["cache"] == "hit"
    with caching(tenant="initech"):
        assert "headstay" not in engine.query(ASKED).metadata
    assert len(desk.exchanges) == 4


def test_modes_of_the_cache_count(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    engine.query(ASKED)
    with caching("bypass"):
        engine.query(ASKED)
    with caching("refresh"):
        engine.query(ASKED)
    assert len(desk.exchanges) == 3
    assert "headstay" in engine.query(ASKED).metadata


def test_feedback_retires_and_explain_serves_nothing(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    assert engine.explain(ASKED).startswith("miss, nothing_stored")
    engine.query(ASKED)
    assert engine.explain(REWORDED).startswith("hit (semantic")
    entry = engine.query(ASKED).metadata["headstay"]["entry"]
    assert engine.feedback(entry, wrong=True)
    assert "marked_wrong" in engine.explain(ASKED)
    engine.query(ASKED)
    assert len(desk.exchanges) == 2


@pytest.mark.parametrize(
    ("bundle", "shared"),
    [
        (QueryBundle(ASKED), True),
        (QueryBundle(ASKED, custom_embedding_strs=["tram ticket price"]), False),
        (QueryBundle(ASKED, custom_embedding_strs=["an invented answer"]), False),
        (QueryBundle(ASKED, embedding=[1.0, 0.0, 0.0, 0.0]), False),
        (QueryBundle(ASKED, embedding=[0.0, 1.0, 0.0, 0.0]), False),
    ],
)
def test_what_a_bundle_retrieves_by_must_be_identical(
    cached_engine: Maker, desk: Any, bundle: QueryBundle, shared: bool
) -> None:
    engine = cached_engine()
    engine.query(QueryBundle(ASKED, custom_embedding_strs=["first"]))
    engine.query(ASKED)
    before = (bundle.custom_embedding_strs, bundle.embedding)
    assert ("headstay" in engine.query(bundle).metadata) is shared
    assert (bundle.custom_embedding_strs, bundle.embedding) == before  # LlamaIndex writes into it; here into a copy
    assert "headstay" in engine.query(bundle).metadata
    assert len(desk.exchanges) == (2 if shared else 3)


def test_an_image_is_known_by_its_path_only_and_not_cached(cached_engine: Maker, tmp_path: Path) -> None:
    cache = Cache()
    engine = cached_engine(cache)
    for _ in range(2):
        engine.query(QueryBundle(ASKED, image_path=str(tmp_path / "tram.png")))
    assert cache.metrics().misses == {"unhashed_media": 2}


def test_no_question_is_not_cached(cached_engine: Maker) -> None:
    cache = Cache()
    engine = cached_engine(cache)
    for _ in range(2):
        engine.query("   ")
    assert cache.metrics().misses == {"no_query": 2}


def test_of_identical_questions_at_once_one_asks(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(str(engine.query(ASKED)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [ANSWER] * 4
    assert len(desk.exchanges) == 1


async def test_of_identical_awaited_questions_at_once_one_asks(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    found = await asyncio.gather(*(engine.aquery(ASKED) for _ in range(4)))
    assert [str(one) for one in found] == [ANSWER] * 4
    assert len(desk.exchanges) == 1


async def test_what_is_not_asked_goes_to_the_engine(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    inner: Any = engine.query_engine
    bundle = QueryBundle(ASKED)
    nodes = engine.retrieve(bundle)
    assert [one.node.get_content() for one in nodes] == ["A single ticket costs 3.20 euros."]
    assert [one.node_id for one in await engine.aretrieve(QueryBundle(ASKED))] == [nodes[0].node_id]
    assert str(engine.synthesize(bundle, nodes)) == str(await engine.asynthesize(bundle, nodes)) == ANSWER
    assert engine.retriever is inner.retriever
    assert engine.callback_manager is inner.callback_manager
    with pytest.raises(AttributeError, match="no_such"):
        _ = engine.no_such_thing
    with pytest.raises(AttributeError, match="_private"):
        _ = engine._private
    assert len(desk.exchanges) == 2


def test_another_retriever_keeps_the_cache(cached_engine: Maker, index: VectorStoreIndex, desk: Any) -> None:
    engine = cached_engine()
    other = engine.with_retriever(index.as_retriever(similarity_top_k=1))
    assert isinstance(other, SemanticCacheQueryEngine)
    other.query(ASKED)
    other.query(ASKED)
    assert len(desk.exchanges) == 1
    engine.query(ASKED)  # another number of documents
    assert len(desk.exchanges) == 2


def test_new_prompts_count_at_once(cached_engine: Maker, desk: Any) -> None:
    engine = cached_engine()
    assert "response_synthesizer:text_qa_template" in engine.get_prompts()
    assert set(engine.get_prompts()) == set(engine.query_engine.get_prompts())
    engine.query(ASKED)
    template = PromptTemplate("{context_str}\nAnswer like a pirate.\nQuery: {query_str}\nAnswer: ")
    engine.update_prompts({"response_synthesizer:text_qa_template": template})
    assert "headstay" not in engine.query(ASKED).metadata
    assert "pirate" in str(desk.exchanges[-1].body)
    assert "headstay" in engine.query(REWORDED).metadata


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"version": None}, "version=None: give what changes when the documents do"),
        ({"version": ""}, "version=''"),
        ({"version": 3}, "version=3"),
        ({"tenant": ""}, "tenant=''"),
        ({"user": 4}, "user=4"),
        ({"name": ""}, "name=''"),
        ({"cache": "answers.db"}, "cache=str: give a cache"),
        ({"cache": Cache}, "cache=the class Cache"),
    ],
)
def test_settings_that_cannot_work_are_refused(cached_engine: Maker, how: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        cached_engine(**how)
    assert said in str(raised.value)


def test_something_else_than_an_engine_is_refused(index: VectorStoreIndex) -> None:
    with pytest.raises(ConfigError, match=r"SemanticCacheQueryEngine\(VectorStoreIndex\): give a query engine"):
        SemanticCacheQueryEngine(index, cache=Cache(), version="1")


class Changing(Counting):
    """Changes its engine's model while it is asked."""

    llm: Any = None

    def _get_query_embedding(self, query: str) -> list[float]:
        self.llm.system_prompt = f"Be brief. {self.asked}"
        return super()._get_query_embedding(query)


def test_an_answer_of_an_engine_that_changed_meanwhile_is_not_kept(desk_llm: Any, desk: Any) -> None:
    llm = desk_llm()
    embedding = Changing(embed_dim=4, llm=llm)
    index = VectorStoreIndex.from_documents([Document(text="3.20 euros")], embed_model=embedding)
    cache = Cache()
    engine = SemanticCacheQueryEngine(index.as_query_engine(llm=llm), cache=cache, version="1")
    engine.query(ASKED)
    assert cache.metrics().stored == 0
    assert len(desk.exchanges) == 1
