"""Structured answers by both strategies: LangChain adds their tool after the last hook, and it is never refused."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel


class Verdict(BaseModel):
    """What to do."""

    refund: bool


# Opus 5.5 cannot be forced to call a tool; LangChain's tool strategy always forces one.
@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "gpt-5.4", "gpt-6.1-sol"])
async def test_by_a_tool(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, no_breaks: Any
) -> None:
    desk.offer = lambda number, tools: tools if number == 1 else tools[1:]
    agent = create_agent(
        make_model(name),
        desk.tools("alpha", "bravo"),
        system_prompt=policy,
        middleware=[desk.middleware(), stable(on_break="raise")],
        response_format=ToolStrategy(Verdict),
        checkpointer=InMemorySaver(),
    )
    for _ in range(2):
        state = await run(agent, 'use alpha then use Verdict{"refund": true}')
        assert state["structured_response"] == Verdict(refund=True)
    assert not wires.failed
    assert {tuple(wires.tools(number)) for number in range(len(wires.bodies))} == {("Verdict", "alpha", "bravo")}
    # It was offered with the first call only.
    assert desk.ran == ["alpha"]
    assert no_breaks()
    marked = [message.response_metadata.get("headstay", {}) for message in state["messages"] if message.type == "ai"]
    assert [own.get("masked") for own in marked] == [None, None, ["alpha"], None]
    if name == "gpt-5.4":
        offered = [tool["function"]["name"] for tool in wires.bodies[-1]["tool_choice"]["allowed_tools"]["tools"]]
        assert offered == ["Verdict", "bravo"]
        assert wires.bodies[-1]["tool_choice"]["allowed_tools"]["mode"] == "required"


async def test_by_the_provider(
    model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Any
) -> None:
    agent = create_agent(
        model,
        desk.tools("bravo", "alpha"),
        system_prompt=policy,
        middleware=[stable(on_break="raise")],
        response_format=ProviderStrategy(Verdict),
        checkpointer=InMemorySaver(),
    )
    for _ in range(2):
        state = await run(agent, 'use alpha then say {"refund": false}')
        assert state["structured_response"] == Verdict(refund=False)
    assert not wires.failed
    assert len({wires.head(number) for number in range(4)}) == 1
    assert wires.tools() == ["alpha", "bravo"]
    assert desk.ran == ["alpha", "alpha"]
    assert no_breaks()
    assert len(list(ledger.rows())) == 4


async def test_a_schema_that_langchain_decides_on(make_model: Any, desk: Any, stable: Any, caplog: Any) -> None:
    """A bare schema becomes either strategy; neither looks like another middleware's doing."""
    for name, said in (("gpt-5.4", 'say {"refund": true}'), ("claude-sonnet-4-6", 'say {"refund": true}')):
        agent = create_agent(
            make_model(name), desk.tools("alpha"), middleware=[stable(on_break="warn")], response_format=Verdict
        )
        assert agent.invoke({"messages": [("user", said)]})["structured_response"] == Verdict(refund=True)
    assert not caplog.records
