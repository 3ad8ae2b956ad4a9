"""The same in chains, and the provider's own proof."""

from typing import Any

import pytest
from anthropic import BadRequestError
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator

CONFIG = {"configurable": {"thread_id": "one"}}


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
async def test_a_chain_keeps_its_notes(
    make_model: Any, aware: Any, wires: Any, policy: str, ledger: Ledger, way: str, no_breaks: Any
) -> None:
    # Without `thinking` ChatAnthropic 1.7.10 streams an empty text in front of the blocks, which the API refuses.
    thinking = {"thinking": {"type": "adaptive"}}
    model = aware(make_model("claude-opus-5-5", **thinking), name="desk", ledger=ledger)
    history: list[Any] = []
    for number in range(3):
        history.append(HumanMessage(f"Question {number}"))
        given = [SystemMessage(f"It is {clock(number)}.\n{policy}"), *history]
        if way == "stream":
            chunks = list(model.stream(given))
            reply = sum(chunks[1:], chunks[0])
        else:
            reply = await model.ainvoke(given) if way == "ainvoke" else model.invoke(given)
        assert set(reply.response_metadata["headstay"]) == {"note", "mac"}
        history.append(reply)
    assert not wires.failed
    assert wires.extends(0, 1, kept=True)
    assert wires.extends(1, 2, kept=True)
    assert [[clock(number) in text for number in range(3)] for text in wires.texts] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert no_breaks()


async def test_a_chain_that_loses_its_receipts(
    claude: Any, aware: Any, wires: Any, server: Emulator, policy: str, ledger: Ledger
) -> None:
    model = aware(claude, name="desk", ledger=ledger)
    reply = model.invoke([SystemMessage(f"It is {clock(0)}.\n{policy}"), HumanMessage("Hello")])
    lost = AIMessage(reply.content)
    model.invoke([SystemMessage(f"It is {clock(1)}.\n{policy}"), HumanMessage("Hello"), lost, HumanMessage("And?")])
    assert not wires.failed
    assert wires.bodies[1]["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    dropped = server.exchanges[1].response["input_transformations"]
    assert [entry["type"] for entry in dropped] == ["thinking_dropped"]
    assert [[str(found.cause) for found in row.breaks] for row in ledger.rows()] == [[], ["receipt_lost"]]


@pytest.mark.parametrize("thinking", [{}, {"thinking": {"type": "adaptive"}}])
async def test_the_provider_proves_the_prefix(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, thinking: Any, no_breaks: Any
) -> None:
    """With `verify="provider"` the API itself refuses a changed prefix; a conversation that stays is never refused."""
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    agent = create_agent(
        make_model("claude-opus-5-5", **thinking),
        desk.tools(),
        middleware=[desk.middleware(), stable(verify="provider")],
        checkpointer=InMemorySaver(),
    )
    for _ in range(2):
        await run(agent, "use alpha")
    assert not wires.failed
    asked = [(body.get("thinking") or {}).get("block_binding") for body in wires.bodies]
    assert asked == [None] + [{"prefix_mismatch_behavior": "error"}] * 3
    assert no_breaks()


async def test_the_provider_refuses_what_changed(
    claude: Any, desk: Any, stable: Any, server: Emulator, policy: str, ledger: Ledger
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"

    def agent(store: HeadStore) -> Any:
        middleware = stable(verify="provider", head_store=store)
        return create_agent(claude, desk.tools(), middleware=[desk.middleware(), middleware])

    first = agent(HeadStore()).invoke({"messages": [HumanMessage("Hello")]})["messages"]
    with pytest.raises(BadRequestError, match="created in a different conversation"):
        agent(HeadStore()).invoke({"messages": [*first, HumanMessage("And?")]})
    rows = list(ledger.rows())
    assert [str(found.cause) for found in rows[1].breaks] == ["receipt_lost"]
    assert rows[1].error is not None


async def test_what_the_application_says_itself_stands(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    own = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    model = make_model("claude-opus-5-5", thinking=own, betas=["thinking-binding-controls-2026-08-01"])
    agent = create_agent(model, desk.tools(), system_prompt=policy, middleware=[stable(verify="provider")])
    agent.invoke({"messages": [("user", "use alpha")]})
    assert [body["thinking"] for body in wires.bodies] == [own, own]
    assert not wires.failed
