"""Not last in the list: said once, and the model that was handed down still has the last word."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from headstay import Ledger
from langchain_headstay import cache_aware

LINE = "put StableHeadMiddleware last in middleware=[...]"


class Inner(AgentMiddleware[Any, Any, Any]):
    """Changes what was handed down."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self._change, self._calls = change, 0

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._calls += 1
        return handler(request.override(**self._change(request, self._calls)))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self._calls += 1
        return await handler(request.override(**self._change(request, self._calls)))


def fewer(request: Any, number: int) -> Any:
    return {"tools": request.tools[:1]}


def clocked(request: Any, number: int) -> Any:
    text = f"{request.system_message.text}\nIt is 2026-11-29T10:00:0{number}Z."
    return {"system_message": SystemMessage(text)}


def marked(request: Any, number: int) -> Any:
    return {"model_settings": {"cache_control": {"type": "ephemeral"}}}


CHANGES = [(fewer, "the tools"), (clocked, "the system text"), (marked, "the cache markers")]


@pytest.mark.parametrize(("change", "what"), CHANGES)
async def test_what_was_changed_is_said_once(
    sonnet: Any,
    run: Any,
    desk: Any,
    stable: Any,
    wires: Any,
    policy: str,
    ledger: Ledger,
    caplog: Any,
    change: Any,
    what: str,
    no_breaks: Any,
) -> None:
    agent = create_agent(
        sonnet,
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(on_break="warn"), Inner(change)],
        checkpointer=InMemorySaver(),
    )
    for _ in range(3):
        await run(agent, "Hello")
    (said,) = [record.message for record in caplog.records]
    assert LINE in said
    assert f"changed {what}:" in said
    # The last word: still one head, legal markers, the volatile text in the note.
    assert not wires.failed
    assert len({wires.head(number) for number in range(3)}) == 1
    assert all("cache_control" not in body for body in wires.bodies)
    assert no_breaks()
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok"]


async def test_tools_taken_away_inside_are_refused(sonnet: Any, desk: Any, stable: Any, wires: Any) -> None:
    agent = create_agent(sonnet, desk.tools(), middleware=[stable(), Inner(fewer)])
    agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha"]


async def test_nothing_is_said_where_nothing_was_changed(
    model: Any, run: Any, desk: Any, stable: Any, policy: str, caplog: Any
) -> None:
    def same(request: Any, number: int) -> Any:
        return {"tools": list(reversed(request.tools))}  # our order wins, whatever comes

    mark = {"cache_control": {"type": "ephemeral"}} if "claude" in str(getattr(model, "model", "")) else {}
    system = SystemMessage([{"type": "text", "text": policy, **mark}, {"type": "text", "text": "  Be kind.  "}])
    middleware = stable(on_break="warn", few_shot=[{"input": "Hi", "output": "Hello"}])
    agent = create_agent(model, desk.tools(), system_prompt=system, middleware=[middleware, Inner(same)])
    first = [SystemMessage("A note of the application."), ("user", "use alpha")]
    await run(agent, {"messages": first}, None)
    assert not [record.message for record in caplog.records if LINE in record.message]


async def test_another_instrumented_model_meanwhile_is_left_alone(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """A middleware inside may call a cache-aware model of its own: it is not the agent's call."""
    own = Ledger()
    helper = cache_aware(sonnet, name="helper", ledger=own, on_break="record")

    def asks(request: Any, number: int) -> Any:
        helper.invoke([SystemMessage("Rate the question."), *request.messages])
        return {}

    agent = create_agent(sonnet, desk.tools(), system_prompt=policy, middleware=[stable(), Inner(asks)])
    agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert sorted(desk.ran) == ["alpha", "bravo"]
    assert [row.name for row in own.rows()] == ["helper"] * 2
    assert [row.name for row in ledger.rows()] == ["desk"] * 2
    assert wires.tools(0) == []
    assert [row.unverified for row in ledger.rows()] == [None, None]
    # The helper's prompts are too short to expect anything of; they were arranged all the same.
    assert not any("question of its own" in (row.unverified or "") for row in own.rows())
