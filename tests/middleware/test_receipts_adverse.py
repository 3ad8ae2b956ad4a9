"""Receipts that are forged, foreign, doubled or gone: ignored, recorded, and the call goes through."""

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, convert_to_messages, convert_to_openai_messages

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


@pytest.fixture
def make_agent(claude: Any, desk: Any, stable: Any, policy: str) -> Any:
    """Make an agent whose history the client holds."""
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"

    def make(**settings: Any) -> Any:
        return create_agent(claude, desk.tools(), middleware=[desk.middleware(), stable(**settings)])

    return make


def ask(agent: Any, history: list[Any], text: str = "Hello", **context: Any) -> list[Any]:
    return list(agent.invoke({"messages": [*history, HumanMessage(text)]}, **context)["messages"])


def causes(ledger: Ledger) -> list[list[str]]:
    return [[str(found.cause) for found in row.breaks] for row in ledger.rows()]


def owners(ledger: Ledger) -> set[str]:
    return {found.owner for row in ledger.rows() for found in row.breaks}


def with_receipt(message: AIMessage, receipt: Any) -> AIMessage:
    return message.model_copy(update={"response_metadata": {**message.response_metadata, "headstay": receipt}})


def proven(server: Emulator, number: int) -> None:
    """The call went through, and the provider was told to drop what no longer fits."""
    exchange = server.exchanges[number]
    assert exchange.status == 200
    assert exchange.body["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    assert "thinking-binding-controls-2026-08-01" in exchange.headers["anthropic-beta"]


FORGED = [
    {"note": "AAAAAAAAAAAAAAAA", "mac": "AAAAAAAAAAAAAAAAAAAA"},
    {"note": "../../etc/passwd", "mac": "x" * 5_000},
    {"note": "é", "mac": "ü"},
    {"note": 7, "mac": None},
    "a text",
    ["note", "mac"],
    {"masked": 9},
]


@pytest.mark.parametrize("forged", FORGED)
async def test_forged(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any, forged: Any) -> None:
    agent = make_agent()
    history = ask(agent, [])
    history[-1] = with_receipt(history[-1], forged)
    again = ask(agent, history)
    proven(server, 1)
    assert clock(1) not in wires.texts[1]
    assert clock(2) in wires.texts[1]
    assert causes(ledger) == [[], ["receipt_lost"]]
    assert owners(ledger) == {"application"}
    ask(agent, again)  # the conversation goes on; the loss is told once
    assert causes(ledger)[2] == []
    assert not wires.failed


async def test_a_receipt_with_another_note(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    """A true name and a true MAC, of two notes."""
    agent = make_agent()
    history = ask(agent, ask(agent, []))
    first, second = (message.response_metadata["headstay"] for message in history[1::2])
    history[1] = with_receipt(history[1], {"note": second["note"], "mac": first["mac"]})
    ask(agent, history)
    proven(server, 2)
    assert clock(1) not in wires.texts[2]
    # The second receipt still checks: its history is the application's own, and that did not change.
    assert wires.texts[2].count(clock(2)) == 1
    assert causes(ledger) == [[], [], ["receipt_lost"]]


async def test_of_another_tenant(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    agent = make_agent(tenant=lambda runtime: runtime.context, tail=lambda runtime: f"Secret of {runtime.context}.")
    history = ask(agent, [], context="north")
    ask(agent, history, context="south")
    proven(server, 1)
    assert "Secret of north" in wires.texts[0]
    assert "north" not in wires.texts[1]
    assert clock(1) not in wires.texts[1]
    assert causes(ledger) == [[], ["receipt_lost"]]


async def test_of_another_agent(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    history = ask(make_agent(name="one", tail="Secret of one."), [])
    ask(make_agent(name="two"), history)
    proven(server, 1)
    assert "Secret of one" not in wires.texts[1]
    assert causes(ledger) == [[], ["receipt_lost"]]


async def test_of_another_conversation(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    """The same words were said in both; what one was told beside them is not for the other."""
    agent = make_agent(tail=lambda runtime: f"Secret of {runtime.context}.")
    ada = ask(agent, ask(agent, [], "I am Ada", context="Ada"), "Hello", context="Ada")
    bob = ask(agent, ask(agent, [], "I am Bob", context="Bob"), "Hello", context="Bob")
    assert bob[2].content == ada[2].content
    bob[3] = with_receipt(bob[3], ada[3].response_metadata["headstay"])
    ask(agent, bob, context="Bob")
    proven(server, 4)
    assert "Ada" not in wires.texts[4]
    assert causes(ledger)[4] == ["receipt_lost"]


async def test_merged_histories(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    agent = make_agent(tail=lambda runtime: f"Secret of {runtime.context}.")
    ada = ask(agent, [], "Hello", context="Ada")
    bob = ask(agent, [], "Good day", context="Bob")
    ask(agent, [*bob, *ada], context="Bob")
    proven(server, 2)
    assert "Secret of Ada" not in wires.texts[2]
    assert wires.texts[2].count("Secret of Bob") == 1
    assert "receipt_lost" in causes(ledger)[2]


async def test_doubled(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    """The same exchange twice in a history: the note stands where it was sent, not a second time."""
    agent = make_agent()
    history = ask(agent, [])
    again = [message.model_copy(update={"id": None}) for message in history]
    ask(agent, [*history, *again])
    proven(server, 1)
    assert wires.texts[1].count(clock(1)) == 1
    assert wires.extends(0, 1, kept=True)
    assert causes(ledger) == [[], ["receipt_lost"]]


async def test_trimmed(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    agent = make_agent()
    history: list[Any] = []
    for number in range(3):
        history = ask(agent, history, f"Question {number}")
    config = {"configurable": {"thread_id": "one"}}
    again = ask(agent, history[2:], "Question 3", config=config)
    proven(server, 3)
    assert "Question 0" not in wires.texts[3]
    assert [clock(number) in wires.texts[3] for number in range(1, 5)] == [False, False, False, True]
    assert "receipt_lost" in causes(ledger)[3]
    ask(agent, again, "Question 4", config=config)
    assert causes(ledger)[4] == []
    assert wires.extends(3, 4, kept=True)
    assert not wires.failed


async def test_lost_on_a_round_trip_in_openai_form(
    make_agent: Any, server: Emulator, ledger: Ledger, wires: Any
) -> None:
    """That form keeps texts and tool calls; thinking and receipts are gone together, so nothing is bound any more."""
    agent = make_agent()
    history = ask(agent, [], "use alpha")
    ask(agent, convert_to_messages(convert_to_openai_messages(history)))
    assert not wires.failed
    assert [clock(number) in wires.texts[2] for number in range(1, 4)] == [False, False, True]
    assert causes(ledger)[:2] == [[], []]


async def test_lost_with_the_metadata_alone(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    """A client that keeps content whole, thinking included, and drops what it does not know."""
    agent = make_agent()
    history = ask(agent, [], "use alpha")
    bare = [m.model_copy(update={"response_metadata": {}}) if isinstance(m, AIMessage) else m for m in history]
    again = ask(agent, bare)
    proven(server, 2)
    assert [clock(number) in wires.texts[2] for number in range(1, 4)] == [False, False, True]
    assert causes(ledger) == [[], [], ["receipt_lost"]]
    ask(agent, again)
    assert causes(ledger)[3] == []
    proven(server, 3)  # the old blocks are still in the history


async def test_another_process_without_the_file(make_agent: Any, server: Emulator, ledger: Ledger, wires: Any) -> None:
    history = ask(make_agent(), ask(make_agent(), []))
    other = make_agent(head_store=HeadStore())
    again = ask(other, history)
    proven(server, 2)
    assert [clock(number) in wires.texts[2] for number in range(1, 4)] == [False, False, True]
    assert causes(ledger) == [[], [], ["receipt_lost"]]
    for _ in range(2):
        again = ask(other, again)
    assert not wires.failed
    assert causes(ledger)[3:] == [[], []]


async def test_the_key_never_leaves(make_agent: Any, wires: Any, head_store: HeadStore) -> None:
    history = ask(make_agent(), [])
    secret = head_store.secret()
    assert len(secret) == 32
    shown = json.dumps([message.model_dump() for message in history], default=repr) + "".join(wires.texts)
    assert secret.hex() not in shown
