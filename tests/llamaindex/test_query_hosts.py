from collections.abc import AsyncIterator
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.base_selector import BaseSelector, MultiSelection, SelectorResult, SingleSelection
from llama_index.core.base.response.schema import PydanticResponse
from llama_index.core.chat_engine import CondenseQuestionChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.prompts.mixin import PromptDictType
from llama_index.core.query_engine import (
    CustomQueryEngine,
    RetrieverQueryEngine,
    RouterQueryEngine,
    SubQuestionQueryEngine,
)
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.tools import QueryEngineTool, ToolMetadata
from pydantic import BaseModel, Field

from headstay.emulator import Emulator, Reply, ToolCall, serve
from headstay.semantic import Cache
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

ASKED = "How much is a single ticket?"
REWORDED = "How much does a single ticket cost?"
ANSWER = f"The answer to <{ASKED}>, in some more words than one piece of a replay has."


class First(BaseSelector):
    """Chooses the first tools."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        return None

    def _select(self, choices: Any, query: Any) -> SelectorResult:
        return MultiSelection(selections=[SingleSelection(index=at, reason="first") for at in range(self.count)])

    async def _aselect(self, choices: Any, query: Any) -> SelectorResult:
        return self._select(choices, query)


class Asks(BaseQuestionGenerator):
    """Asks the tool what was asked, in two forms."""

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        return None

    def generate(self, tools: Any, query: Any) -> list[SubQuestion]:
        return [SubQuestion(sub_question=text, tool_name="trams") for text in (ASKED, REWORDED)]

    async def agenerate(self, tools: Any, query: Any) -> list[SubQuestion]:
        return self.generate(tools, query)


@pytest.fixture
def index() -> VectorStoreIndex:
    return VectorStoreIndex.from_documents(
        [Document(text="A single ticket costs 3.20 euros.")], embed_model=MockEmbedding(embed_dim=4)
    )


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def engine(index: VectorStoreIndex, desk_llm: Any, cache: Cache) -> SemanticCacheQueryEngine:
    return SemanticCacheQueryEngine(index.as_query_engine(llm=desk_llm()), cache=cache, version="1")


def tool(engine: Any) -> QueryEngineTool:
    return QueryEngineTool(engine, ToolMetadata(name="trams", description="Answers questions on trams."))


async def test_as_a_tool(engine: SemanticCacheQueryEngine, desk: Emulator) -> None:
    used = tool(engine)
    assert used.call(ASKED).content == ANSWER
    output = await used.acall(input=REWORDED)
    assert output.content == ANSWER
    assert output.raw_output.metadata["headstay"]["tier"] == "semantic"
    assert len(desk.exchanges) == 1


async def test_in_a_router(engine: SemanticCacheQueryEngine, desk: Emulator, desk_llm: Any) -> None:
    router = RouterQueryEngine(First(), [tool(engine)], llm=desk_llm())
    assert str(router.query(ASKED)) == ANSWER
    served = await router.aquery(REWORDED)
    assert str(served) == ANSWER
    assert served.metadata is not None
    assert set(served.metadata) >= {"headstay", "selector_result"}
    assert "selector_result" not in (engine.query(ASKED).metadata or {})  # the router writes into a copy of its own
    assert len(desk.exchanges) == 1


def test_around_a_router(index: VectorStoreIndex, desk: Emulator, desk_llm: Any, cache: Cache) -> None:
    llm = desk_llm()
    router = RouterQueryEngine(First(2), [tool(index.as_query_engine(llm=llm)) for _ in range(2)], llm=llm)
    engine = SemanticCacheQueryEngine(router, cache=cache, version="1")
    fresh = engine.query(ASKED)
    assert len(desk.exchanges) == 3
    served = engine.query(REWORDED)
    assert str(served) == str(fresh)
    assert len(served.source_nodes) == 2
    assert served.metadata["selector_result"] == fresh.metadata["selector_result"]
    assert len(desk.exchanges) == 3


@pytest.mark.parametrize("use_async", [False, True])
def test_in_sub_questions(engine: SemanticCacheQueryEngine, desk: Emulator, desk_llm: Any, use_async: bool) -> None:
    if use_async:
        engine.query(ASKED)  # the two are asked at once, and each would miss
    parts = SubQuestionQueryEngine(
        Asks(),
        get_response_synthesizer(llm=desk_llm()),
        [tool(engine)],
        use_async=use_async,
        verbose=False,
    )
    assert "Compare them" in str(parts.query("Compare them"))
    assert len(desk.exchanges) == 2  # one for both sub-questions, one for the whole


def test_around_sub_questions_a_failed_one_is_not_kept(
    index: VectorStoreIndex, desk: Emulator, desk_llm: Any, cache: Cache
) -> None:
    parts = SubQuestionQueryEngine(
        Asks(),
        get_response_synthesizer(llm=desk_llm()),
        [tool(index.as_query_engine(llm=desk_llm()))],
        use_async=False,
        verbose=False,
    )
    engine = SemanticCacheQueryEngine(parts, cache=cache, version="1")
    desk.fail_next(status=500)
    engine.query("Compare them")  # LlamaIndex leaves the failed one out and answers all the same
    assert cache.metrics().not_stored == {"not_admitted_error": 1}
    engine.query("Compare them")
    assert cache.metrics().stored == 1


def test_around_a_retriever_query_engine(index: VectorStoreIndex, desk: Emulator, desk_llm: Any, cache: Cache) -> None:
    inner = RetrieverQueryEngine.from_args(index.as_retriever(), llm=desk_llm(), streaming=True)
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    assert [str(engine.query(one)) for one in (ASKED, REWORDED)] == [ANSWER, ANSWER]
    assert len(desk.exchanges) == 1


async def test_in_a_chat_engine(engine: SemanticCacheQueryEngine, desk: Emulator, desk_llm: Any) -> None:
    def chat() -> CondenseQuestionChatEngine:
        llm = desk_llm()
        return CondenseQuestionChatEngine.from_defaults(engine, memory=ChatMemoryBuffer.from_defaults(llm=llm), llm=llm)

    assert str(chat().chat(ASKED)) == ANSWER
    second = chat()
    assert str(await second.achat(REWORDED)) == ANSWER
    assert [message.content for message in second.chat_history] == [REWORDED, ANSWER]
    assert len(desk.exchanges) == 1


async def test_in_a_streaming_chat_engine(index: VectorStoreIndex, desk: Emulator, desk_llm: Any, cache: Cache) -> None:
    llm = desk_llm()
    engine = SemanticCacheQueryEngine(index.as_query_engine(llm=llm, streaming=True), cache=cache, version="1")

    def chat() -> CondenseQuestionChatEngine:
        return CondenseQuestionChatEngine.from_defaults(engine, memory=ChatMemoryBuffer.from_defaults(llm=llm), llm=llm)

    assert "".join(chat().stream_chat(ASKED).response_gen) == ANSWER
    assert "".join(chat().stream_chat(REWORDED).response_gen) == ANSWER
    answered = await chat().astream_chat(ASKED)
    assert "".join([piece async for piece in answered.async_response_gen()]) == ANSWER
    assert len(desk.exchanges) == 1


def test_a_cached_engine_around_a_cached_one(engine: SemanticCacheQueryEngine, desk: Emulator, cache: Cache) -> None:
    outer = SemanticCacheQueryEngine(engine, cache=cache, version="1")
    assert str(outer.query(ASKED)) == ANSWER
    assert cache.metrics().stored == 2
    assert str(engine.query(ASKED)) == str(outer.query(ASKED)) == ANSWER
    assert len(desk.exchanges) == 1


class Own(CustomQueryEngine):
    """An application's own engine, which overrides `query` itself."""

    asked: list[str] = Field(default_factory=list)

    def custom_query(self, query_str: str) -> str:
        self.asked.append(query_str)
        return f"own: {query_str}"


async def test_an_engine_that_answers_by_itself(cache: Cache) -> None:
    inner = Own()
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    assert str(engine.query(ASKED)) == str(await engine.aquery(REWORDED)) == f"own: {ASKED}"
    assert inner.asked == [ASKED]


class Price(BaseModel):
    """What a ticket costs."""

    price: float


def test_structured_answers(index: VectorStoreIndex, desk: Emulator, desk_llm: Any, cache: Cache) -> None:
    inner = index.as_query_engine(llm=desk_llm().as_structured_llm(Price))
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    fresh = engine.query(ASKED)
    served = engine.query(REWORDED)
    assert type(fresh) is type(served) is PydanticResponse
    assert served.response == fresh.response == Price(price=3.2)
    assert served.source_nodes == fresh.source_nodes
    assert len(desk.exchanges) == 1


def _agent_desk(wire: str, body: Any) -> Reply:
    """An agent's model asks its tool, then says what it was told; the engine's model answers."""
    if not body.get("tools"):
        return Reply("3.20 euros.")
    told = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    asked = body["messages"][-1]["content"]
    return Reply(f"It is {told[-1]}") if told else Reply(tool_calls=(ToolCall("trams", {"input": asked}),))


@pytest.fixture
async def agent_desk() -> AsyncIterator[Emulator]:
    with serve(responder=_agent_desk) as running:
        yield running


async def test_as_the_tool_of_an_agent(
    index: VectorStoreIndex, agent_desk: Emulator, desk_llm: Any, cache: Cache
) -> None:
    llm = desk_llm(api_base=agent_desk.openai_url)
    engine = SemanticCacheQueryEngine(index.as_query_engine(llm=llm), cache=cache, version="1")
    answers = []
    for question in (ASKED, REWORDED):
        agent = FunctionAgent(tools=[tool(engine)], llm=llm, streaming=False)
        answers.append(str(await agent.run(question)))
    assert answers == ["It is 3.20 euros."] * 2
    assert len(agent_desk.exchanges) == 5  # twice the agent's two steps, once the engine's
