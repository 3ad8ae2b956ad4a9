"""I5: a tool that was not offered never runs, whatever the model emits, in whatever process the call is run."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, PIIMiddleware
from langchain_core.caches import InMemoryCache
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from headstay import HeadStore, Ledger
from langgraph_headstay import StableHeadMiddleware

CONFIG = {"configurable": {"thread_id": "one"}}


def without(*names: str) -> Any:
    return lambda number, tools: [tool for tool in tools if tool.name not in names]


async def test_masked_and_unknown_tools_in_one_turn(model: Any, run: Any, desk: Any, stable: Any, wires: Any) -> None:
    desk.offer = without("bravo", "charlie")
    agent = create_agent(model, desk.tools(), middleware=[desk.middleware(), stable()])
    state = await run(agent, 'use alpha bravo{"x": 2} ghost charlie alpha{"x": 3}', None)
    assert sorted(desk.ran) == ["alpha", "alpha"]
    results = [(message.name, message.status) for message in state["messages"] if message.type == "tool"]
    assert sorted(results) == [
        ("alpha", "success"),
        ("alpha", "success"),
        ("bravo", "error"),
        ("charlie", "error"),
        ("ghost", "error"),
    ]
    assert not wires.failed  # every call has its result, so the loop went on
    assert state["messages"][-1].text == "That is settled."


async def test_a_tool_taken_away_in_the_middle_of_a_loop(model: Any, run: Any, desk: Any, stable: Any) -> None:
    """What counts is what was offered when the model spoke."""
    desk.offer = lambda number, tools: tools if number != 2 else tools[1:]
    agent = create_agent(model, desk.tools(), middleware=[desk.middleware(), stable()])
    await run(agent, "use alpha then use alpha bravo then use alpha", None)
    assert desk.ran == ["alpha", "bravo", "alpha"]


async def test_the_same_call_id_in_another_conversation(
    sonnet: Any, desk: Any, stable: Any, server: Any, make_model: Any
) -> None:
    """Servers there are that number their calls from 1 in each conversation: a refusal must not reach over."""
    middleware = stable()

    class SameIds(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:
            last = state["messages"][-1]
            calls = [{**call, "id": f"call_{number}"} for number, call in enumerate(last.tool_calls)]
            return {"messages": [last.model_copy(update={"tool_calls": calls, "content": last.text})]}

    desk.offer = lambda number, tools: tools[1:] if number == 1 else tools
    agent = create_agent(make_model("gpt-5.4"), desk.tools(), middleware=[SameIds(), desk.middleware(), middleware])
    agent.invoke({"messages": [("user", "use alpha")]})
    assert desk.ran == []
    agent.invoke({"messages": [("user", "use alpha")]})
    assert desk.ran == ["alpha"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_a_masked_call_resumed_in_another_process(make_model: Any, desk: Any, tmp_path: Path, way: str) -> None:
    """The interrupt ends the first process; the second one never saw the model call."""

    async def step(given: Any) -> Any:
        middleware = [
            desk.middleware(),
            HumanInTheLoopMiddleware({"alpha": True, "bravo": True}),
            StableHeadMiddleware(name="desk", head_store=HeadStore(tmp_path / "heads.db"), on_break="record"),
        ]
        model = make_model("claude-opus-5-5")
        if way == "invoke":
            with closing(sqlite3.connect(tmp_path / "threads.db", check_same_thread=False)) as connection:
                agent = create_agent(model, desk.tools(), middleware=middleware, checkpointer=SqliteSaver(connection))
                return agent.invoke(given, CONFIG)
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
            agent = create_agent(model, desk.tools(), middleware=middleware, checkpointer=saver)
            return await agent.ainvoke(given, CONFIG)

    desk.offer = without("bravo")
    waiting = await step({"messages": [("user", "use alpha bravo")]})
    assert len(waiting["__interrupt__"][0].value["action_requests"]) == 2
    state = await step(Command(resume={"decisions": [{"type": "approve"}, {"type": "approve"}]}))
    assert desk.ran == ["alpha"]
    assert {message.name: message.status for message in state["messages"] if message.type == "tool"} == {
        "alpha": "success",
        "bravo": "error",
    }


async def test_a_human_may_turn_a_refused_call_into_an_offered_one(make_model: Any, desk: Any, stable: Any) -> None:
    desk.offer = without("bravo")
    agent = create_agent(
        make_model("claude-opus-5-5"),
        desk.tools(),
        middleware=[desk.middleware(), HumanInTheLoopMiddleware({"bravo": True}), stable()],
        checkpointer=InMemorySaver(),
    )
    agent.invoke({"messages": [("user", "use bravo")]}, CONFIG)
    edited = {"type": "edit", "edited_action": {"name": "alpha", "args": {"x": 7}}}
    agent.invoke(Command(resume={"decisions": [edited]}), CONFIG)
    assert desk.ran == ["alpha"]


async def test_a_reply_rewritten_by_another_middleware_is_refused_all_the_same(
    sonnet: Any, desk: Any, stable: Any
) -> None:
    class Rewrites(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:
            last = state["messages"][-1]
            return {"messages": [AIMessage(last.text, id=last.id, tool_calls=last.tool_calls)]}

    desk.offer = without("bravo")
    redact = PIIMiddleware("email", apply_to_output=True)
    agent = create_agent(sonnet, desk.tools(), middleware=[Rewrites(), redact, desk.middleware(), stable()])
    state = agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha"]
    assert "headstay" not in state["messages"][1].response_metadata


async def test_a_cached_reply_is_not_changed_and_its_masked_call_is_refused(
    make_model: Any, desk: Any, stable: Any, ledger: Ledger
) -> None:
    cache = InMemoryCache()
    desk.offer = without("bravo")
    agent = create_agent(make_model("gpt-5.4", cache=cache), desk.tools(), middleware=[desk.middleware(), stable()])
    for _ in range(2):
        agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha", "alpha"]
    held = [generation.message for kept in cache._cache.values() for generation in kept]
    assert all("headstay" not in message.response_metadata for message in held)
