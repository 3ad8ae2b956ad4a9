import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.indices.query.query_transform.base import IdentityQueryTransform
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata, MockLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import CustomQueryEngine, RetrieverQueryEngine, TransformQueryEngine
from llama_index.core.retrievers import RecursiveRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai_like import OpenAILike

from headstay.semantic import Cache, caching
from llama_index_headstay.chat_engines import prefix_safe
from llama_index_headstay.instrument import cache_aware
from llama_index_headstay.query_engine import SemanticCacheQueryEngine
from llama_index_headstay.query_identity import read_engine

ASKED = "How much is a single ticket?"


@pytest.fixture(scope="module")
def index() -> VectorStoreIndex:
    texts = ("A single ticket costs 3.20 euros.", "Dogs ride free.")
    return VectorStoreIndex.from_documents(
        [Document(text=text) for text in texts], embed_model=MockEmbedding(embed_dim=4)
    )


def name_of(engine: Any) -> str:
    return read_engine(engine, "city").name


def is_kept(engine: SemanticCacheQueryEngine, question: str = ASKED) -> bool:
    return engine.explain(question).startswith("hit ")


class Speaks(CustomQueryEngine):
    """Answers with what it is told to find out when it is asked."""

    say: Callable[[], str]

    def custom_query(self, query_str: str) -> str:
        return self.say()

    async def acustom_query(self, query_str: str) -> str:
        return self.say()


# Names that a setting may bear are content where the application chose them.
CHOSEN = ("verbose", "timeout", "headers", "caching", "password", "cookie")


@pytest.mark.parametrize("variable", CHOSEN)
def test_a_prompts_value_counts_whatever_it_is_called(index: VectorStoreIndex, variable: str) -> None:
    def build(value: str) -> Any:
        prompt = PromptTemplate(f"{{{variable}}} {{context_str}} {{query_str}}")
        return index.as_query_engine(llm=MockLLM(), text_qa_template=prompt.partial_format(**{variable: value}))

    assert name_of(build("a")) == name_of(build("a")) != name_of(build("b"))


def test_where_a_prompts_values_stand_counts(index: VectorStoreIndex) -> None:
    prompt = PromptTemplate("{today} {context_str} {query_str}")

    def build(*per_call: str) -> Any:
        engine: Any = index.as_query_engine(llm=OpenAILike(model="m", is_chat_model=True), text_qa_template=prompt)
        return prefix_safe(engine, per_call=per_call)

    assert name_of(build()) == name_of(build()) != name_of(build("today"))
    assert read_engine(build(), None).unseen_classes == read_engine(build("today"), None).unseen_classes
    assert not any("headstay" in kind for kind in read_engine(build(), None).unseen_classes)


@pytest.mark.parametrize("field", CHOSEN)
def test_a_filter_of_a_store_counts_whatever_its_field_is_called(index: VectorStoreIndex, field: str) -> None:
    def build(value: str) -> Any:
        return index.as_query_engine(llm=MockLLM(), vector_store_kwargs={"filter": {field: value}})

    assert name_of(build("a")) == name_of(build("a")) != name_of(build("b"))


@pytest.mark.parametrize("around", [lambda e: e, lambda e: TransformQueryEngine(e, IdentityQueryTransform())])
@pytest.mark.parametrize("what", ["tenant", "user", "version"])
async def test_an_engine_inside_that_is_bound_binds_what_is_around_it(around: Any, what: str) -> None:
    names = {"tenant": "t", "user": "u", "version": "1"}
    bound: dict[str, Any] = {each: partial(names.get, each) for each in names}
    inner = SemanticCacheQueryEngine(Speaks(say=lambda: f"for {names[what]}"), cache=Cache(), **bound)
    outer = SemanticCacheQueryEngine(around(inner), cache=Cache(), version="1")
    first, again = str(outer.query(ASKED)), outer.query(ASKED)
    assert (first, str(again)) == (f"for {names[what]}",) * 2
    assert "headstay" in (again.metadata or {})
    names[what] = "other"
    assert str(outer.query(ASKED)) == str(await outer.aquery(ASKED)) == "for other"


def test_an_engine_inside_that_does_not_know_for_whom_keeps_the_outer_one_from_caching() -> None:
    asked = iter(range(9))
    inner = SemanticCacheQueryEngine(
        Speaks(say=lambda: f"answer {next(asked)}"), cache=Cache(), version="1", tenant=lambda: None
    )
    outer = SemanticCacheQueryEngine(inner, cache=Cache(), version="1")
    assert [str(outer.query(ASKED)) for _ in range(2)] == ["answer 0", "answer 1"]
    assert "no_tenant" in outer.explain(ASKED)
    with caching(tenant="acme"):  # the same word is heard inside
        assert [str(outer.query(ASKED)) for _ in range(2)] == ["answer 2", "answer 2"]


def test_a_model_that_is_bound_to_a_tenant_binds_the_engine(index: VectorStoreIndex, desk_llm: Any) -> None:
    whose = ["acme"]
    model = cache_aware(desk_llm(), tenant=lambda: whose[0])
    engine = SemanticCacheQueryEngine(index.as_query_engine(llm=model), cache=Cache(), version="1")
    engine.query(ASKED)
    assert is_kept(engine)
    whose[0] = "other"
    assert not is_kept(engine)


def test_a_cached_engine_inside_that_streams_does_not_look_changed(index: VectorStoreIndex, desk_llm: Any) -> None:
    inner = index.as_query_engine(llm=desk_llm(), streaming=True)
    inner = SemanticCacheQueryEngine(inner, cache=Cache(), version="1")
    outer = SemanticCacheQueryEngine(inner, cache=Cache(), version="1")
    assert str(outer.query(ASKED))
    assert is_kept(outer)


@pytest.mark.parametrize("awaited", [False, True])
async def test_an_answer_is_not_kept_where_the_version_changed_while_it_was_made(awaited: bool) -> None:
    version = ["1"]

    def say() -> str:
        text = f"of the documents after {version[0]}"
        version[0] = "2"
        return text

    engine = SemanticCacheQueryEngine(Speaks(say=say), cache=Cache(), version=lambda: version[0])
    await engine.aquery(ASKED) if awaited else engine.query(ASKED)
    assert not is_kept(engine)
    version[0] = "1"  # the documents are put back as they were
    assert not is_kept(engine)


class OwnModel(CustomLLM):
    """An application's own model, that says which model it asks in a property only."""

    temperature: float = 0.1
    asked: int = 0
    _model = "small"

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name=self._model)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self.asked += 1
        return CompletionResponse(text=f"{self._model} at {self.temperature}")

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt)


def test_what_an_own_model_says_of_itself_counts_when_it_changes_in_place(index: VectorStoreIndex) -> None:
    model = OwnModel()
    engine = SemanticCacheQueryEngine(index.as_query_engine(llm=model), cache=Cache(), version="1")
    assert [str(engine.query(ASKED)) for _ in range(2)] == ["small at 0.1"] * 2
    model._model = "large"
    assert [str(engine.query(ASKED)) for _ in range(2)] == ["large at 0.1"] * 2
    model.temperature = 0.9
    assert [str(engine.query(ASKED)) for _ in range(2)] == ["large at 0.9"] * 2
    assert model.asked == 3


class Keep(BaseNodePostprocessor):
    """An application's own postprocessor, with settings beside a counter."""

    word: str = "ticket"
    strict: bool = False
    calls: int = 0

    def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None) -> Any:
        self.calls += 1
        return [node for node in nodes if self.word in node.node.get_content()]


@pytest.mark.parametrize("change", [{"word": "Dogs"}, {"strict": True}])
def test_settings_of_an_own_postprocessor_count_and_its_counter_does_not(
    index: VectorStoreIndex, change: dict[str, Any]
) -> None:
    keep = Keep()
    engine: Any = index.as_query_engine(llm=MockLLM(), node_postprocessors=[keep])
    before = name_of(engine)
    keep.calls = 9
    assert name_of(engine) == before
    for name, value in change.items():
        setattr(keep, name, value)
    assert name_of(engine) != before


@pytest.mark.parametrize("mode", ["accumulate", "compact_accumulate", "compact", "refine", "tree_summarize"])
@pytest.mark.parametrize("use_async", [False, True])
async def test_where_a_model_said_nothing_nothing_is_kept(
    index: VectorStoreIndex, desk_llm: Any, mode: str, use_async: bool
) -> None:
    inner = index.as_query_engine(llm=desk_llm(), response_mode=mode, use_async=False)
    engine = SemanticCacheQueryEngine(inner, cache=Cache(), version="1")
    question = "please say nothing"
    said = str(await engine.aquery(question) if use_async else engine.query(question))
    assert "Empty Response" in said or said == "None"
    assert not is_kept(engine, question)
    assert str(engine.query(ASKED)).startswith(("The answer", "Response 1: The answer"))
    assert is_kept(engine)


def test_many_nodes_under_names_are_not_compared_one_by_one(index: VectorStoreIndex) -> None:
    nodes = {f"node {number}": TextNode(text=str(number)) for number in range(5_000)}
    inner: Any = index.as_retriever()
    retriever = RecursiveRetriever("all", retriever_dict={"all": inner}, node_dict=dict(nodes))
    engine: Any = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    content = read_engine(engine, None)
    assert len(content.opaque) < 9
    assert read_engine(engine, None).name == content.name  # more names than are remembered would change each time
    inner.similarity_top_k = 9
    assert read_engine(engine, None).name != content.name


class Slow(CustomQueryEngine):
    """Takes its time; the first one to ask is called off."""

    begun: list[str]

    def custom_query(self, query_str: str) -> str:
        raise NotImplementedError

    async def acustom_query(self, query_str: str) -> str:
        self.begun.append(query_str)
        await asyncio.sleep(0.03)
        return "slow"


async def test_who_waits_for_a_query_that_is_called_off_goes_on() -> None:
    engine = SemanticCacheQueryEngine(Slow(begun=[]), cache=Cache(), version="1")
    leader = asyncio.create_task(engine.aquery(ASKED))
    inner: Any = engine.query_engine
    while not inner.begun:
        await asyncio.sleep(0.001)
    other = asyncio.create_task(engine.aquery(ASKED))
    await asyncio.sleep(0.002)
    leader.cancel()
    began = time.monotonic()
    assert str(await other) == "slow"
    assert time.monotonic() - began < 5  # not until the lease is over
    assert len(inner.begun) == 2
    assert is_kept(engine)
