import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, SummaryIndex, VectorStoreIndex
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine, TransformQueryEngine
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import QueryBundle
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

from headstay.semantic import Cache
from llama_index_headstay.query_engine import SemanticCacheQueryEngine
from llama_index_headstay.query_identity import EngineContent, read_engine

KEY = "sk-the-key-of-acme"
ROOT = Path(__file__).parents[2]


def llm(**settings: Any) -> OpenAILike:
    known = {"model": "gpt-4.1", "api_key": KEY, "api_base": "http://127.0.0.1:9/v1", "is_chat_model": True}
    return OpenAILike(**{**known, **settings})


@pytest.fixture(scope="module")
def index() -> VectorStoreIndex:
    return VectorStoreIndex.from_documents([Document(text="a tram")], embed_model=MockEmbedding(embed_dim=4))


def name_of(engine: BaseQueryEngine, name: str | None = None) -> str:
    return read_engine(engine, name).name


class Price(BaseModel):
    euros: float


class Distance(BaseModel):
    metres: int


PIRATE = PromptTemplate("{context_str}\nAnswer like a pirate.\nQuery: {query_str}\nAnswer: ")
AUTHOR = MetadataFilters(filters=[MetadataFilter(key="author", value="ann")])
EDITOR = MetadataFilters(filters=[MetadataFilter(key="editor", value="ann")])

CHANGES: list[dict[str, Any]] = [
    {},
    {"llm": llm(model="gpt-5.5")},
    {"llm": llm(temperature=0.7)},
    {"llm": llm(max_tokens=5)},
    {"llm": llm(system_prompt="Be brief.")},
    {"llm": llm(additional_kwargs={"seed": 1})},
    {"llm": llm(api_base="http://127.0.0.1:10/v1")},
    {"llm": MockLLM()},
    {"similarity_top_k": 3},
    {"filters": AUTHOR},
    {"filters": EDITOR},
    {"vector_store_query_mode": "mmr"},
    {"vector_store_kwargs": {"mmr_threshold": 0.2}},
    {"doc_ids": ["a"]},
    {"response_mode": "tree_summarize"},
    {"response_mode": "refine"},
    {"streaming": True},
    {"text_qa_template": PIRATE},
    {"refine_template": PIRATE},
    {"output_cls": Price},
    {"output_cls": Distance},
    {"node_postprocessors": [SimilarityPostprocessor(similarity_cutoff=0.3)]},
    {"node_postprocessors": [SimilarityPostprocessor(similarity_cutoff=0.4)]},
    {"response_synthesizer": CompactAndRefine(llm(), prompt_helper=PromptHelper(context_window=900))},
    {"embed_model": MockEmbedding(embed_dim=4, model_name="other")},
]


def test_whatever_can_change_an_answer_changes_the_name(index: VectorStoreIndex) -> None:
    names = [name_of(index.as_query_engine(**{"llm": llm(), **change})) for change in CHANGES]
    same = [
        (CHANGES[one], CHANGES[other])
        for one in range(len(names))
        for other in range(one)
        if names[one] == names[other]
    ]
    assert same == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: ", ".join(change) or "nothing")
def test_the_same_content_has_the_same_name(index: VectorStoreIndex, change: dict[str, Any]) -> None:
    first, second = (index.as_query_engine(**{"llm": llm(), **change}) for _ in range(2))
    assert name_of(first) == name_of(second) == name_of(first)


@pytest.mark.parametrize(
    "settings",
    [
        {"api_key": "sk-another"},
        {"timeout": 3.0},
        {"max_retries": 9},
        {"default_headers": {"Authorization": "Bearer x"}},
        {"additional_kwargs": {"api_key": "sk-another"}},
        {"additional_kwargs": {"extra_headers": {"x-api-key": "sk-another"}}},
    ],
)
def test_credentials_and_how_a_request_travels_count_for_nothing(
    index: VectorStoreIndex, settings: dict[str, Any]
) -> None:
    plain = {"additional_kwargs": {"extra_headers": {}}} if "extra_headers" in str(settings) else {}
    held = index.as_query_engine(llm=llm(**plain)), index.as_query_engine(llm=llm(**settings))
    assert name_of(held[0]) == name_of(held[1])


def test_no_credential_is_looked_at(index: VectorStoreIndex) -> None:
    model = llm(default_headers={"Authorization": f"Bearer {KEY}"}, additional_kwargs={"api_key": KEY})
    described = json.dumps(EngineContent().describe(index.as_query_engine(llm=model)))
    assert "gpt-4.1" in described
    assert KEY not in described


def test_what_changes_in_place_counts_at_once(index: VectorStoreIndex) -> None:
    model = llm()
    engine: Any = index.as_query_engine(llm=model)
    names = [name_of(engine)]
    model.temperature = 0.9
    names.append(name_of(engine))
    engine.retriever.similarity_top_k = 7
    names.append(name_of(engine))
    engine.update_prompts({"response_synthesizer:text_qa_template": PIRATE})
    names.append(name_of(engine))
    assert len(set(names)) == 4


def test_two_indexes_share_nothing_unless_one_name_stands_for_both() -> None:
    def build(text: str) -> BaseQueryEngine:
        return VectorStoreIndex.from_documents(
            [Document(text=text)], embed_model=MockEmbedding(embed_dim=4)
        ).as_query_engine(llm=llm())

    first, second = build("a tram"), build("a bus")
    assert name_of(first) != name_of(second)
    assert name_of(first, "city") == name_of(second, "city") != name_of(first, "town")
    assert read_engine(first, None).unseen_classes == (
        "llama_index.core.indices.vector_store.base.VectorStoreIndex",
        "llama_index.core.storage.docstore.simple_docstore.SimpleDocumentStore",
        "llama_index.core.vector_stores.simple.SimpleVectorStore",
    )


def test_a_choice_of_nodes_counts_and_all_of_them_are_none() -> None:
    index = VectorStoreIndex.from_documents(
        [Document(text="a tram"), Document(text="a bus")], embed_model=MockEmbedding(embed_dim=4)
    )
    nodes = list(index.index_struct.nodes_dict.values())
    whole, chosen = index.as_retriever(), VectorIndexRetriever(index, node_ids=nodes[:1])
    named = [name_of(RetrieverQueryEngine.from_args(one, llm=llm()), "city") for one in (whole, chosen)]
    again = VectorStoreIndex.from_documents([Document(text="a bus")], embed_model=MockEmbedding(embed_dim=4))
    assert named[0] != named[1]
    assert named[0] == name_of(again.as_query_engine(llm=llm()), "city")


PROGRAM = """
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index_headstay.query_identity import read_engine
index = VectorStoreIndex.from_documents([Document(text="a tram")], embed_model=MockEmbedding(embed_dim=4))
print(read_engine(index.as_query_engine(llm=MockLLM(max_tokens=9)), "city").name)
"""


def test_a_named_engine_has_its_name_in_every_process(index: VectorStoreIndex) -> None:
    paths = [str(ROOT / part) for part in ("core", "integrations", "middleware")]
    environment = {"PYTHONPATH": ":".join(paths), "PYTHONHASHSEED": "7", "PATH": ""}
    told = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == name_of(index.as_query_engine(llm=MockLLM(max_tokens=9)), "city")


class OwnLLM(CustomLLM):
    """An application's own class: what it does is not known."""

    word: str = "tram"
    asked: int = 0

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="own")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self.asked += 1
        return CompletionResponse(text=f"{self.word} {self.asked}")

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt)


class OwnRetriever(VectorIndexRetriever):
    """An application's own class on one of LlamaIndex's."""

    seen = 0

    def _retrieve(self, query_bundle: QueryBundle) -> Any:
        self.seen += 1
        return super()._retrieve(query_bundle)


def test_own_classes_are_themselves_and_may_count(index: VectorStoreIndex) -> None:
    model = OwnLLM()
    engine = SemanticCacheQueryEngine(index.as_query_engine(llm=model), cache=Cache(), version="1")
    assert [str(engine.query("Is it a tram?")) for _ in range(2)] == ["tram 1", "tram 1"]
    assert name_of(index.as_query_engine(llm=model)) == name_of(engine.query_engine)
    assert name_of(index.as_query_engine(llm=OwnLLM())) != name_of(engine.query_engine)
    shorter = index.as_query_engine(llm=model)
    model.system_prompt = "Be brief."
    assert name_of(shorter) == name_of(engine.query_engine)  # one object, read anew
    assert str(engine.query("Is it a tram?")) == "tram 2"


def test_what_an_own_class_has_from_llama_index_counts_under_a_name_too(index: VectorStoreIndex) -> None:
    def build(top_k: int) -> BaseQueryEngine:
        return RetrieverQueryEngine.from_args(OwnRetriever(index, similarity_top_k=top_k), llm=llm())

    assert name_of(build(1), "city") == name_of(build(1), "city") != name_of(build(2), "city")
    assert name_of(build(1)) != name_of(build(1))
    engine: Any = build(1)
    before = name_of(engine)
    engine.retriever.seen = 99
    assert name_of(engine) == before


class OwnEngine(BaseQueryEngine):
    """Holds what makes its answers under names of its own."""

    def __init__(self, model: Any, prompt: PromptTemplate) -> None:
        self.models, self.prompt, self.history = [model], prompt, list[str]()
        super().__init__(callback_manager=None)

    def _get_prompt_modules(self) -> Any:
        return {}

    def _query(self, query_bundle: QueryBundle) -> Any:
        raise NotImplementedError

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        raise NotImplementedError


def test_models_and_prompts_in_an_own_engine_count(index: VectorStoreIndex) -> None:
    model = llm()
    engine = OwnEngine(model, PIRATE)
    names = [name_of(engine)]
    engine.history.append("what was asked")
    assert name_of(engine) == names[0]
    model.temperature = 0.8
    names.append(name_of(engine))
    engine.prompt = PromptTemplate("{query_str}")
    names.append(name_of(engine))
    assert len(set(names)) == 3


def _say(**_: Any) -> str:
    return "kindly"


def test_an_own_function_is_only_itself(index: VectorStoreIndex) -> None:
    def build(function: Callable[..., str]) -> BaseQueryEngine:
        prompt = PromptTemplate("{how} {context_str} {query_str}", function_mappings={"how": function})
        return index.as_query_engine(llm=llm(), text_qa_template=prompt)

    assert name_of(build(_say)) == name_of(build(_say)) != name_of(build(lambda **_: "kindly"))


def test_an_engine_around_another_shows_it(index: VectorStoreIndex) -> None:
    def build(**how: Any) -> BaseQueryEngine:
        return TransformQueryEngine(index.as_query_engine(llm=llm(**how)), IdentityQueryTransform())

    assert name_of(build(), "city") == name_of(build(), "city") != name_of(build(temperature=0.5), "city")


def test_many_texts_in_an_engine_are_not_compared_one_by_one() -> None:
    index = SummaryIndex.from_documents([Document(text="a tram")])
    engine: Any = index.as_query_engine(llm=llm())
    before = name_of(engine, "city")
    engine.retriever.corpus = [{"text": str(number)} for number in range(1_500)]
    assert name_of(engine, "city") != before
    assert any("SummaryIndexRetriever" in kind for kind in read_engine(engine, None).unseen_classes)
    assert name_of(engine) == name_of(engine)


def test_a_name_keeps_no_engine_alive() -> None:
    index = VectorStoreIndex.from_documents([Document(text="a tram")], embed_model=MockEmbedding(embed_dim=4))
    read_engine(index.as_query_engine(llm=llm()), None)
    gone = weakref.ref(index)
    del index
    gc.collect()
    assert gone() is None
