"""A small real corpus: twelve documents, real retrieval by the bundled embedder, real exchanges."""

import json
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, VectorStoreIndex

from headstay.emulator import Emulator
from headstay.semantic import Cache
from llama_index_headstay.embedding import BundledEmbedding
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

DATA = json.loads((Path(__file__).parents[2] / "bench" / "data" / "llama_query_cache.json").read_text(encoding="utf-8"))
NOT_NEAR_ENOUGH = 4
"""Of the twenty close rewordings, as measured: they lie below 0.92."""


@pytest.fixture(scope="module")
def corpus() -> VectorStoreIndex:
    return build(DATA["documents"])


def build(documents: list[dict[str, str]]) -> VectorStoreIndex:
    held = [Document(text=one["text"], doc_id=one["id"], metadata={"file": f"{one['id']}.md"}) for one in documents]
    return VectorStoreIndex.from_documents(held, embed_model=BundledEmbedding())


@pytest.fixture
def desk_engine(corpus: VectorStoreIndex, desk_llm: Any) -> SemanticCacheQueryEngine:
    return SemanticCacheQueryEngine(corpus.as_query_engine(llm=desk_llm()), cache=Cache(), version="1")


def test_retrieval_is_real(corpus: VectorStoreIndex) -> None:
    found = corpus.as_retriever().retrieve("May I bring my dog?")
    assert found[0].node.metadata["file"] == "dogs.md"


def test_close_rewordings_hit(desk_engine: SemanticCacheQueryEngine, desk: Emulator) -> None:
    hits = 0
    for asked, reworded in DATA["reworded"]:
        fresh = desk_engine.query(asked)
        before = len(desk.exchanges)
        served = desk_engine.query(reworded)
        if "headstay" in served.metadata:
            hits += 1
            assert len(desk.exchanges) == before
            assert str(served) == str(fresh)
            assert [one.node_id for one in served.source_nodes] == [one.node_id for one in fresh.source_nodes]
    assert (len(DATA["reworded"]), hits) == (20, 20 - NOT_NEAR_ENOUGH)


@pytest.mark.parametrize(("kept", "asked"), DATA["different"], ids=lambda text: text)
def test_different_questions_over_the_same_documents_never_hit(
    desk_engine: SemanticCacheQueryEngine, kept: str, asked: str
) -> None:
    desk_engine.query(kept)
    served = desk_engine.query(asked)
    assert "headstay" not in served.metadata
    assert asked in str(served)


def test_no_question_of_the_corpus_is_answered_with_anothers_answer(desk_engine: SemanticCacheQueryEngine) -> None:
    questions = list(dict.fromkeys(asked for asked, _ in (*DATA["reworded"], *DATA["different"])))
    for question in questions:
        assert question in str(desk_engine.query(question))
    assert len(questions) > 25


def test_after_a_document_changes_no_stale_answer_is_served(desk: Emulator, desk_llm: Any) -> None:
    documents = {one["id"]: one["text"] for one in DATA["documents"]}
    state = {"index": build(DATA["documents"])}
    cache = Cache()

    def engine() -> SemanticCacheQueryEngine:
        inner = state["index"].as_query_engine(llm=desk_llm())
        return SemanticCacheQueryEngine(inner, cache=cache, version=lambda: documents["tickets"], name="trams")

    asked = "How much is a single ticket?"
    assert "3.20" in engine().query(asked).source_nodes[0].node.get_content()
    assert "headstay" in engine().query(asked).metadata
    documents["tickets"] = documents["tickets"].replace("3.20", "3.40")
    state["index"] = build([{"id": name, "text": text} for name, text in documents.items()])
    fresh = engine().query(asked)
    assert "headstay" not in fresh.metadata
    assert "3.40" in fresh.source_nodes[0].node.get_content()
    assert "3.40" in str(desk.exchanges[-1].body)
    served = engine().query("How much does a single ticket cost?")
    assert served.metadata["headstay"]["cache"] == "hit"
    assert "3.40" in served.source_nodes[0].node.get_content()


def test_a_document_put_into_the_same_index_retires_by_version(desk_llm: Any, desk: Emulator) -> None:
    index = build(DATA["documents"][:2])
    engine = SemanticCacheQueryEngine(
        index.as_query_engine(llm=desk_llm()),
        cache=Cache(),
        version=lambda: str(len(index.docstore.docs)),
    )
    engine.query("Do large dogs need a ticket?")
    index.insert(Document(text=DATA["documents"][5]["text"]))
    assert "headstay" not in engine.query("Do large dogs need a ticket?").metadata
    assert len(desk.exchanges) == 2


def test_a_named_engine_finds_its_answers_after_a_restart(tmp_path: Path, desk: Emulator, desk_llm: Any) -> None:
    for expected in ("miss", "hit"):
        with Cache(tmp_path / "answers.db") as cache:
            inner = build(DATA["documents"]).as_query_engine(llm=desk_llm())
            engine = SemanticCacheQueryEngine(inner, cache=cache, version="1", name="trams")
            served = engine.query("How do I delete my account?")
            assert served.metadata.get("headstay", {"cache": "miss"})["cache"] == expected
    assert len(desk.exchanges) == 1
