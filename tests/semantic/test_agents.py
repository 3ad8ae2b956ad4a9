"""The cache inside agents of LangGraph."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from headstay.emulator import Emulator
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"

Chat = Callable[..., BaseChatModel]
Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]


@tool
def look_up_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number} is on its way."


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_first_question_is_answered_in_every_thread(
    way: str, chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    agent: Any = create_agent(
        road(chat(), cache), [look_up_order], system_prompt="You help.", checkpointer=InMemorySaver()
    )
    states = []
    for name, question in (("a", RESET), ("b", RESET), ("c", RESET_TOO)):
        given = {"messages": [HumanMessage(question)]}
        states.append(
            await agent.ainvoke(given, thread(name)) if way == "ainvoke" else agent.invoke(given, thread(name))
        )
    assert len(desk.exchanges) == 1
    assert len({state["messages"][-1].text for state in states}) == 1
    assert len({state["messages"][-1].id for state in states}) == 3


def last_question_only(model: BaseChatModel) -> Any:
    """A graph that sends the last question alone: so the same one hits in one thread."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke([state["messages"][-1]])]})
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=InMemorySaver())


def test_a_repeat_in_one_thread_keeps_both_turns(chat: Chat, road: Road, cache: SemanticCache, desk: Emulator) -> None:
    graph = last_question_only(road(chat(), cache))
    for _ in range(3):
        state = graph.invoke({"messages": [HumanMessage(RESET)]}, thread("a"))
    assert len(desk.exchanges) == 1
    assert [message.type for message in state["messages"]] == ["human", "ai"] * 3
    assert len({message.id for message in state["messages"]}) == 6
    assert len({message.text for message in state["messages"] if message.type == "ai"}) == 1


def test_a_repeat_in_one_thread_of_an_agent_is_another_request(
    chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    agent: Any = create_agent(road(chat(), cache), [], system_prompt="You help.", checkpointer=InMemorySaver())
    for _ in range(2):
        state = agent.invoke({"messages": [HumanMessage(RESET)]}, thread("a"))
    assert len(desk.exchanges) == 2  # the second time there is a history
    assert [message.type for message in state["messages"]] == ["human", "ai"] * 2


@pytest.mark.parametrize("name", ["stream", "astream"])
async def test_a_hit_is_streamed_as_messages(
    name: str, chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    agent: Any = create_agent(road(chat(), cache), [], system_prompt="You help.")

    async def said() -> str:
        given = {"messages": [HumanMessage(RESET)]}
        if name == "stream":
            parts = list(agent.stream(given, stream_mode="messages"))
        else:
            parts = [part async for part in agent.astream(given, stream_mode="messages")]
        return "".join(message.text for message, _ in parts if isinstance(message, (AIMessage, AIMessageChunk)))

    fresh = await said()
    assert RESET in fresh
    assert await said() == await said() == fresh
    assert len(desk.exchanges) == 1


def test_an_agents_steps_with_tools_always_run(chat: Chat, road: Road, cache: SemanticCache, desk: Emulator) -> None:
    agent: Any = create_agent(road(chat(), cache), [look_up_order], system_prompt="You help.")
    for _ in range(2):
        state = agent.invoke({"messages": [HumanMessage("What is my order status?")]})
        assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai"]
    assert len(desk.exchanges) == 4


def test_the_first_step_is_replayed_by_opt_in_and_the_tool_runs(chat: Chat, desk: Emulator) -> None:
    ran: list[int] = []

    @tool("look_up_order")
    def counted(number: int) -> str:
        """Look an order up."""
        ran.append(number)
        return f"Order {number} is on its way."

    cache = SemanticCache(tool_calls="exact")
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    agent: Any = create_agent(model, [counted], system_prompt="You help.")
    for _ in range(2):
        agent.invoke({"messages": [HumanMessage("What is my order status?")]})
    assert ran == [7, 7]
    assert len(desk.exchanges) == 3


def test_an_agent_as_a_whole(chat: Chat, cache: SemanticCache, desk: Emulator) -> None:
    agent = cached(
        create_agent(chat(), [look_up_order], system_prompt="You help."), cache=cache, query=None, name="agent"
    )
    fresh = agent.invoke({"messages": [HumanMessage("What is my order status?")]})
    served = agent.invoke({"messages": [HumanMessage("What's my order status?")]})
    assert len(desk.exchanges) == 2
    assert [message.type for message in served["messages"]] == ["human", "ai", "tool", "ai"]
    assert served["messages"][0].content == "What's my order status?"
    assert served["messages"][-1].text == fresh["messages"][-1].text
    assert {message.id for message in served["messages"][1:]}.isdisjoint(message.id for message in fresh["messages"])


def test_the_global_cache_serves_the_models_of_all_agents(chat: Chat, cache: SemanticCache, desk: Emulator) -> None:
    set_llm_cache(cache)
    for _ in range(2):
        create_agent(chat(), [], system_prompt="You help.").invoke({"messages": [HumanMessage(RESET)]})
        create_agent(chat(), [], system_prompt="You joke.").invoke({"messages": [HumanMessage(RESET)]})
    assert len(desk.exchanges) == 2
