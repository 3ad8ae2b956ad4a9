"""A cache-aware LLM in what LlamaIndex builds on LLMs: agents, engines and structured output."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core import Document, SummaryIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAIResponses
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from tests.llamaindex.llm_ways import POLICY

from headstay import Ledger
from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve
from llama_index_headstay import cache_aware


def stock(item: str) -> str:
    """Say how much of an item is left."""
    return f"seven of {item}"


def refund(order: str) -> str:
    """Give the money for an order back."""
    return f"done: {order}"


def _respond(wire: str, body: Any) -> Reply:
    said = body.get("messages") or body.get("input")
    text = json.dumps(said)
    tools = [tool.get("function", tool)["name"] for tool in body.get("tools") or ()]
    if "Price" in tools:
        return Reply(tool_calls=(ToolCall("Price", {"price": 3.2}),))
    if "Thought:" in text and "Observation: seven" not in text:
        return Reply('Thought: I need a tool.\nAction: stock\nAction Input: {"item": "tea"}')
    if "Observation: seven" in text:
        return Reply("Thought: I can answer.\nAnswer: There are seven.")
    if "stock" in tools and "seven of tea" not in text:
        return Reply(tool_calls=(ToolCall("stock", {"item": "tea"}),))
    return Reply("There are seven.")


@pytest.fixture(scope="module")
def _running() -> Iterator[Emulator]:
    with serve(clock=ManualClock(), responder=_respond) as running:
        yield running


@pytest.fixture
def shop(_running: Emulator) -> Emulator:
    _running.reset()
    return _running


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def llm(shop: Emulator, desk_llm: Any, ledger: Ledger) -> Any:
    return cache_aware(desk_llm(api_base=shop.openai_url, model="gpt-5.6-terra"), on_break="record", ledger=ledger)


def heads(shop: Emulator) -> list[str]:
    return [json.dumps([body.get("tools"), body["messages"][0]]) for body in (one.body for one in shop.exchanges)]


@pytest.mark.parametrize("streaming", [True, False])
async def test_function_agent(shop: Emulator, llm: Any, ledger: Ledger, streaming: bool) -> None:
    memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
    for turn, tools in enumerate(([stock, refund], [refund, stock])):
        agent = FunctionAgent(
            tools=[FunctionTool.from_defaults(tool) for tool in tools],
            llm=llm,
            streaming=streaming,
            system_prompt=f"{POLICY}\nNow: 2026-11-30T10:0{turn}:00Z",
        )
        assert str(await agent.run("how much tea?", memory=memory)) == "There are seven."
    assert len(set(heads(shop))) == 1
    rows = list(ledger.rows())
    assert len(rows) == 3  # the second turn finds the answer of the tool in its history
    assert [row.status for row in rows] == ["cold", "ok", "ok"]
    assert all(row.breaks == () for row in rows)


async def test_agent_workflow(shop: Emulator, llm: Any, ledger: Ledger) -> None:
    clerk = FunctionAgent(name="clerk", description="sells", tools=[stock], llm=llm, system_prompt=POLICY)
    workflow = AgentWorkflow(agents=[clerk], root_agent="clerk")
    for _ in range(2):
        assert str(await workflow.run("how much tea?")) == "There are seven."
    assert len(set(heads(shop))) == 1
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok", "ok"]


@pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")  # LlamaIndex's own doing
async def test_react_agent(shop: Emulator, llm: Any, ledger: Ledger) -> None:
    agent = ReActAgent(tools=[FunctionTool.from_defaults(stock)], llm=llm, system_prompt=POLICY)
    for _ in range(2):
        assert str(await agent.run("how much tea?")) == "There are seven."
    assert len(set(heads(shop))) == 1
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok", "ok"]


async def test_simple_chat_engine(shop: Emulator, llm: Any, ledger: Ledger) -> None:
    engine = SimpleChatEngine.from_defaults(
        llm=llm, system_prompt=POLICY, memory=ChatMemoryBuffer.from_defaults(token_limit=100_000)
    )
    assert str(engine.chat("hello")) == "There are seven."
    assert str(await engine.achat("hello again")) == "There are seven."
    assert "".join(engine.stream_chat("and again").response_gen) == "There are seven."
    stream = await engine.astream_chat("once more")
    assert "".join([token async for token in stream.async_response_gen()]) == "There are seven."
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok", "ok"]
    reads = [row.cache_read_tokens or 0 for row in ledger.rows()]
    assert reads == sorted(reads)


async def test_query_engine(shop: Emulator, llm: Any, ledger: Ledger) -> None:
    llm.system_prompt = POLICY
    index = SummaryIndex.from_documents([Document(text="Tea costs three.")])
    for engine in (index.as_query_engine(llm=llm), index.as_query_engine(llm=llm, streaming=True)):
        assert str(engine.query("What does tea cost?")) == "There are seven."
    assert str(await index.as_query_engine(llm=llm).aquery("What does tea cost?")) == "There are seven."
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok"]


class Price(BaseModel):
    """What something costs."""

    price: float


async def test_structured_output(shop: Emulator, llm: Any, ledger: Ledger) -> None:
    prompt = ChatPromptTemplate([ChatMessage(role="system", content=POLICY), ChatMessage(content="What is {item}?")])
    assert llm.structured_predict(Price, prompt, item="tea") == Price(price=3.2)
    assert await llm.astructured_predict(Price, prompt, item="coffee") == Price(price=3.2)
    assert list(llm.stream_structured_predict(Price, prompt, item="milk"))[-1] == Price(price=3.2)
    said = llm.as_structured_llm(Price).chat([ChatMessage(role="system", content=POLICY), ChatMessage(content="tea?")])
    assert said.raw == Price(price=3.2)
    assert [exchange.body["tool_choice"] for exchange in shop.exchanges[:2]] == ["required"] * 2
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok", "ok"]


async def test_responses_api(shop: Emulator, ledger: Ledger) -> None:
    reached: dict[str, Any] = {"api_key": "key-a", "base_url": shop.openai_url, "max_retries": 0}
    client, async_client = OpenAI(**reached), AsyncOpenAI(**reached)
    bare = OpenAIResponses(
        model="gpt-5.6-terra",
        api_key="key-a",
        api_base=shop.openai_url,
        context_window=100_000,
        openai_client=client,
        async_openai_client=async_client,
    )
    llm = cache_aware(bare, on_break="record", ledger=ledger)
    said = [ChatMessage(role="system", content=f"{POLICY}\nNow: 2026-11-30T10:00:00Z"), ChatMessage(content="tea?")]
    replies = [
        llm.chat(said),
        await llm.achat(said),
        list(llm.stream_chat(said))[-1],
        [chunk async for chunk in await llm.astream_chat(said)][-1],
    ]
    assert [reply.message.content for reply in replies] == ["There are seven."] * 4
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok", "ok"]
    assert replies[-1].additional_kwargs["cache_read_tokens"] > 1_024
    client.close()
    await async_client.close()
