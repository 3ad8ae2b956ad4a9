"""Agents inside graphs: nodes, tools, hand-offs, branches, several workers, forks, restarts."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.tools import InjectedToolCallId
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command

from headstay import Ledger
from headstay.emulator import Emulator

CONFIG = {"configurable": {"thread_id": "one"}}


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


def kept(model: BaseChatModel) -> bool:
    return "opus" in str(getattr(model, "model", ""))


def calls_of(wires: Any, tool_name: str) -> list[int]:
    """Return the calls of the agent that has a tool."""
    return [number for number in range(len(wires.bodies)) if tool_name in wires.tools(number)]


async def test_an_agent_as_a_tool(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Ledger
) -> None:
    """Each use is a conversation of its own within the same thread; the head is shared."""
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    inner = create_agent(model, desk.tools("alpha"), middleware=[desk.middleware(), stable(name="inner")])

    @tool
    def specialist(x: int) -> str:
        """Ask the specialist."""
        asked = f"case {x}: use alpha" if x else "use alpha"
        return str(inner.invoke({"messages": [("user", asked)]})["messages"][-1].text)

    @tool("aspecialist")
    async def aspecialist(x: int) -> str:
        """Ask the specialist."""
        return str((await inner.ainvoke({"messages": [("user", f"case {x}: use alpha")]}))["messages"][-1].text)

    outer = create_agent(
        model,
        [specialist, aspecialist] if "ainvoke" in str(run) else [specialist],
        system_prompt=policy,
        middleware=[stable(name="outer", on_break="raise")],
        checkpointer=InMemorySaver(),
    )
    for number in (1, 2):
        await run(outer, f'use specialist{{"x": {number}}} specialist{{"x": {number + 5}}}')
    assert not wires.failed
    inside, outside = calls_of(wires, "alpha"), calls_of(wires, "specialist")
    assert (len(inside), len(outside)) == (8, 4)
    assert len({wires.head(number) for number in inside}) == len({wires.head(number) for number in outside}) == 1
    for before, after in itertools.pairwise(outside):
        assert wires.extends(before, after, kept=kept(model))
    assert no_breaks()
    names = [row.name for row in ledger.rows()]
    assert (names.count("inner"), names.count("outer")) == (8, 4)


async def test_a_supervisor_that_hands_off(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """One history, two agents in turn: each has its head, and no break is made up where the other one spoke."""

    @tool
    def transfer(
        state: Annotated[dict[str, Any], InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Any:
        """Hand over to the refund desk."""
        told = ToolMessage("Handed over.", tool_call_id=tool_call_id)
        return Command(goto="refunds", graph=Command.PARENT, update={"messages": [*state["messages"], told]})

    graph = StateGraph(MessagesState)
    for name, tools in (("front", [transfer]), ("refunds", desk.tools("alpha"))):
        middleware = [stable(name=name)]
        graph.add_node(name, create_agent(model, tools, system_prompt=f"{name}: {policy}", middleware=middleware))
    graph.add_edge(START, "front")
    graph.add_edge("front", END)
    graph.add_edge("refunds", END)
    parent = graph.compile(checkpointer=InMemorySaver())
    for _ in range(2):
        await run(parent, "use transfer{}")
    assert not wires.failed
    front, refunds = calls_of(wires, "transfer"), calls_of(wires, "alpha")
    assert len(front) == len(refunds) == 2
    assert len({wires.head(number) for number in front}) == len({wires.head(number) for number in refunds}) == 1
    assert all(row.unverified is None for row in ledger.rows())
    assert all(not row.breaks for row in ledger.rows() if not kept(model))


async def test_parallel_branches(
    model: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    """Two nodes of one agent in the same step, on one thread."""
    middleware = stable(on_break="raise", tail=lambda runtime: None)
    agent = create_agent(model, desk.tools(), system_prompt=policy, middleware=[middleware])
    graph = StateGraph(MessagesState)
    for name in ("left", "right"):

        async def node(state: MessagesState, name: str = name) -> Any:
            asked = {"messages": [*state["messages"], ("user", f"{name}: use alpha")]}
            return {"messages": [(await agent.ainvoke(asked))["messages"][-1]]}

        graph.add_node(name, node)
        graph.add_edge(START, name)
    parent = graph.compile(checkpointer=InMemorySaver())
    await parent.ainvoke({"messages": [("user", "Both of you.")]}, CONFIG)
    assert len(wires.bodies) == 4
    assert not wires.failed
    assert len({wires.head(number) for number in range(4)}) == 1
    assert no_breaks()


async def test_two_workers_on_one_thread(
    model: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, server: Emulator
) -> None:
    """Two processes' worth of objects answer on one thread at once; whatever LangGraph keeps, no request fails."""
    saver = InMemorySaver()
    agents = [
        create_agent(
            model, desk.tools(), system_prompt=f"It is {clock(1)}.\n{policy}", middleware=[stable()], checkpointer=saver
        )
        for _ in range(2)
    ]
    agents[0].invoke({"messages": [("user", "Hello")]}, CONFIG)
    barrier = threading.Barrier(2)

    def work(number: int) -> None:
        barrier.wait(10)
        agents[number].invoke({"messages": [("user", f"worker {number}")]}, CONFIG)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(work, range(2)))
    agents[0].invoke({"messages": [("user", "And now?")]}, CONFIG)
    assert not wires.failed
    assert len({wires.head(number) for number in range(4)}) == 1
    for number in (1, 2):
        assert wires.extends(0, number, kept=kept(model))


async def test_one_agent_for_many_at_once(
    model: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    """Contexts do not mix: each conversation gets its own values, sync threads and async tasks alike."""
    middleware = stable(tail=lambda runtime: f"Mark {runtime.context}.", on_break="raise")
    agent = create_agent(
        model,
        desk.tools(),
        system_prompt=policy,
        middleware=[middleware],
        checkpointer=InMemorySaver(),
        context_schema=str,
    )

    def given(name: str) -> tuple[Any, Any]:
        return {"messages": [("user", f"I am {name}: use alpha")]}, {"configurable": {"thread_id": name}}

    await asyncio.gather(*(agent.ainvoke(*given(f"task{n}"), context=f"task{n}") for n in range(6)))
    with ThreadPoolExecutor(6) as threads:
        names = [f"thread{n}" for n in range(6)]
        list(threads.map(lambda name: agent.invoke(*given(name), context=name), names))
    assert len(wires.bodies) == 24
    for text in wires.texts:
        (name,) = {name for kind in ("task", "thread") for n in range(6) if f"I am {(name := f'{kind}{n}')}:" in text}
        assert text.count("Mark ") == 1
        assert f"Mark {name}." in text
    assert len({wires.head(number) for number in range(24)}) == 1
    assert no_breaks()


async def test_history_that_the_client_holds(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Ledger
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    agent = create_agent(model, desk.tools(), middleware=[desk.middleware(), stable()])
    held: list[Any] = []
    for _ in range(3):
        state = await run(agent, {"messages": [*held, ("user", "use alpha")]}, None)
        held = state["messages"]
    assert not wires.failed
    for number in range(5):
        assert wires.extends(number, number + 1, kept=kept(model))
    assert no_breaks()
    assert len({row.conversation for row in ledger.rows()}) == 1


@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "gpt-6.1-sol"])
async def test_forks_and_time_travel(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, name: str
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    agent = create_agent(
        make_model(name),
        desk.tools(),
        middleware=[desk.middleware(), stable(on_break="raise")],
        checkpointer=InMemorySaver(),
    )
    for text in ("first", "second"):
        agent.invoke({"messages": [("user", text)]}, CONFIG)
    after_first = next(state for state in agent.get_state_history(CONFIG) if len(state.values["messages"]) == 2)
    for text in ("left", "right"):
        agent.invoke({"messages": [("user", text)]}, after_first.config)
    assert not wires.failed
    for number in (1, 2, 3):
        assert wires.extends(0, number)
    assert no_breaks()


async def test_an_interrupt_resumed_days_later(
    claude: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Ledger
) -> None:
    """New objects on the same stores: the notes of before stand where they were sent."""
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    saver = InMemorySaver()

    def agent() -> Any:
        gate = HumanInTheLoopMiddleware({"alpha": True})
        return create_agent(
            claude, desk.tools(), middleware=[desk.middleware(), gate, stable(on_break="raise")], checkpointer=saver
        )

    agent().invoke({"messages": [("user", "use alpha then use bravo")]}, CONFIG)
    agent().invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
    assert desk.ran == ["alpha", "bravo"]
    assert not wires.failed
    for number in range(2):
        assert wires.extends(number, number + 1, kept=True)
    assert no_breaks()
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok"]
