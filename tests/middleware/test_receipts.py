"""Kept notes: on a model that binds its thinking to the exact history, what was sent stays as it was sent."""

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, SystemMessage, messages_from_dict, messages_to_dict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from headstay import Ledger
from headstay.emulator import Emulator
from langchain_headstay import cache_aware

CONFIG = {"configurable": {"thread_id": "one"}}
THINKING = ({}, {"thinking": {"type": "adaptive"}})


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


@pytest.fixture
def agent(make_model: Any, desk: Any, stable: Any, policy: str) -> Any:
    """Make an agent whose system text says another time with every call."""

    def make(*, checkpointer: Any = True, thinking: Any = None, tools: Any = None, **settings: Any) -> Any:
        desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
        return create_agent(
            make_model("claude-opus-5-5", **(thinking or {})),
            desk.tools() if tools is None else tools,
            middleware=[desk.middleware(), stable(**{"on_break": "raise", **settings})],
            checkpointer=InMemorySaver() if checkpointer is True else checkpointer,
        )

    return make


def receipts(messages: Any) -> list[Any]:
    return [m.response_metadata.get("headstay") for m in messages if isinstance(m, AIMessage)]


@pytest.mark.parametrize("thinking", THINKING)
async def test_notes_stay_where_they_were_sent(
    agent: Any, run: Any, wires: Any, server: Emulator, thinking: Any, no_breaks: Any, ledger: Ledger
) -> None:
    running = agent(thinking=thinking)
    for _ in range(2):
        state = await run(running, "use alpha then use bravo charlie")
    assert not wires.failed
    assert len(wires.bodies) == 6
    for number in range(5):
        assert wires.extends(number, number + 1, kept=True)
    for number, body in enumerate(wires.bodies):
        said = [message for message in body["messages"] if message["role"] == "system"]
        assert len(said) == number + 1  # one for each call so far, in its place
        assert clock(number + 1) in json.dumps(said[-1])
        assert body["messages"][-1] == said[-1] or clock(number + 1) in json.dumps(body["messages"][-1])
        assert "block_binding" not in wires.texts[number]
    # No thinking was dropped: the provider found every prefix unchanged.
    assert all(not exchange.response.get("input_transformations") for exchange in server.exchanges)
    found = receipts(state["messages"])
    assert len(found) == 6
    for receipt in found:
        assert set(receipt) == {"note", "mac"}
        assert len(json.dumps(receipt)) <= 100
    assert len({receipt["mac"] for receipt in found}) == 6
    assert no_breaks()
    assert [row.status for row in ledger.rows()] == ["cold"] + ["ok"] * 5


async def test_a_value_that_did_not_change_is_not_said_again(agent: Any, desk: Any, wires: Any, policy: str) -> None:
    running = agent()
    desk.system = lambda number: f"It is {clock(number // 3)}.\n{policy}"  # calls 1 2 | 3
    state = running.invoke({"messages": [("user", "use alpha then use bravo")]}, CONFIG)
    assert [text.count(clock(0)) for text in wires.texts] == [1, 1, 1]
    assert [text.count(clock(1)) for text in wires.texts] == [0, 0, 1]
    first, second, third = receipts(state["messages"])
    assert second is None
    assert first["note"] != third["note"]


async def test_the_first_chunk_of_a_stream_carries_the_receipt(agent: Any, desk: Any, make_model: Any) -> None:
    model = cache_aware(make_model("claude-opus-5-5"), name="desk")
    chunks = list(model.stream([SystemMessage(f"It is {clock(1)}."), ("user", "say one two three")]))
    assert ["headstay" in chunk.response_metadata for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    whole = sum(chunks[1:], chunks[0])
    assert set(whole.response_metadata["headstay"]) == {"note", "mac"}


async def test_a_receipt_survives_a_round_trip_as_dicts(agent: Any, wires: Any, no_breaks: Any) -> None:
    running = agent(checkpointer=None)
    held: list[Any] = []
    for _ in range(3):
        given = [*messages_from_dict(json.loads(json.dumps(held))), ("user", "use alpha")]
        held = messages_to_dict(running.invoke({"messages": given})["messages"])
    for number in range(5):
        assert wires.extends(number, number + 1, kept=True)
    assert no_breaks()


async def test_an_agent_as_a_node(agent: Any, run: Any, wires: Any, no_breaks: Any) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("desk", agent(checkpointer=None))
    graph.add_edge(START, "desk")
    parent = graph.compile(checkpointer=InMemorySaver())
    for _ in range(3):
        await run(parent, "use alpha")
    assert len(wires.bodies) == 6
    for number in range(5):
        assert wires.extends(number, number + 1, kept=True)
    assert no_breaks()


async def test_forks_keep_the_notes_of_their_branch(agent: Any, wires: Any, no_breaks: Any) -> None:
    running = agent()
    for text in ("first", "second", "third"):
        running.invoke({"messages": [("user", text)]}, CONFIG)
    after_first = next(state for state in running.get_state_history(CONFIG) if len(state.values["messages"]) == 2)
    running.invoke({"messages": [("user", "another second")]}, after_first.config)
    assert wires.extends(0, 1, kept=True)
    assert wires.extends(1, 2, kept=True)
    assert wires.extends(0, 3, kept=True)
    assert clock(2) not in wires.texts[3]
    assert clock(3) not in wires.texts[3]
    running.invoke({"messages": [("user", "and on")]}, CONFIG)  # the branch goes on
    assert wires.extends(3, 4, kept=True)
    assert not wires.failed
    assert no_breaks()


async def test_a_replayed_checkpoint_asks_the_same_again(agent: Any, wires: Any, no_breaks: Any) -> None:
    running = agent()
    for text in ("first", "second"):
        running.invoke({"messages": [("user", text)]}, CONFIG)
    waiting = next(state for state in running.get_state_history(CONFIG) if state.next == ("model",))
    running.invoke(None, waiting.config)
    assert wires.extends(0, 2, kept=True)
    assert clock(2) not in wires.texts[2]  # that note was never in the history of this branch
    assert not wires.failed
    assert no_breaks()


async def test_no_thinking_comes_back(agent: Any, wires: Any, ledger: Ledger) -> None:
    """A client that sends texts only: nothing is bound, so nothing needs to stay, and nothing is said to be lost."""
    running = agent(checkpointer=None)
    held: list[dict[str, str]] = []
    for _ in range(3):
        held.append({"role": "user", "content": "Hello"})
        reply = running.invoke({"messages": held})["messages"][-1]
        held.append({"role": "assistant", "content": reply.text})
    assert not wires.failed
    assert [sum(clock(other) in text for other in range(1, 4)) for text in wires.texts] == [1, 1, 1]
    assert all(not row.breaks for row in ledger.rows())
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok"]


async def test_a_system_message_of_the_application_at_the_end(agent: Any, wires: Any, no_breaks: Any) -> None:
    """Two system messages in a row would be refused."""
    running = agent(tools=[])
    for number in range(2):
        given = [("user", f"Hello {number}"), SystemMessage(f"Mind the tone, {number}.")]
        running.invoke({"messages": given}, CONFIG)
    assert not wires.failed
    roles = [message["role"] for message in wires.bodies[-1]["messages"]]
    assert roles == ["user", "system", "assistant", "user", "system"]
    assert wires.extends(0, 1, kept=True)
    assert no_breaks()
