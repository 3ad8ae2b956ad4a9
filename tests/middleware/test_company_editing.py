"""Beside middlewares that rewrite histories, system texts and tool lists: the head stays, each break has its owner."""

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    PIIMiddleware,
    ProviderToolSearchMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
    dynamic_prompt,
)
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from headstay import Ledger

CONFIG = {"configurable": {"thread_id": "one"}}
REWRITTEN = {
    "history_edited",
    "history_dropped",
    "history_summarised",
    "receipt_lost",
}


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


def causes(ledger: Ledger) -> list[set[str]]:
    """Return what broke by the application's doing, call by call."""
    return [{str(found.cause) for found in row.breaks if found.owner != "policy"} for row in ledger.rows()]


def owners(ledger: Ledger) -> set[str]:
    return {found.owner for row in ledger.rows() for found in row.breaks} - {"policy"}


def one_head(wires: Any) -> bool:
    return len({wires.head(number) for number in range(len(wires.bodies))}) == 1


@pytest.mark.parametrize("order", ["before", "after"])
async def test_context_editing(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger, order: str
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    clearing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=30, keep=1)])
    both = [clearing, stable()] if order == "before" else [stable(), clearing]
    agent = create_agent(model, desk.tools(), middleware=[desk.middleware(), *both], checkpointer=InMemorySaver())
    for _ in range(3):
        await run(agent, "use alpha then use bravo")
    assert not wires.failed
    assert one_head(wires)
    assert "[cleared]" in wires.texts[-1]
    found = causes(ledger)
    assert any(found)
    assert set().union(*found) <= REWRITTEN
    assert owners(ledger) == {"application"}
    for number, text in enumerate(wires.texts):
        assert text.count(clock(number + 1)) == 1


async def test_summarization(
    model: BaseChatModel, run: Any, make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    summariser = SummarizationMiddleware(make_model("claude-sonnet-4-6"), trigger=("messages", 7), keep=("messages", 2))
    agent = create_agent(
        model, desk.tools(), middleware=[summariser, desk.middleware(), stable()], checkpointer=InMemorySaver()
    )
    for number in range(6):
        await run(agent, f"question {number}")
    assert not wires.failed
    ours = [number for number in range(len(wires.bodies)) if wires.tools(number)]  # the summary call has no tools
    assert len(wires.bodies) > len(ours) == 6
    assert len({wires.head(number) for number in ours}) == 1
    found = causes(ledger)
    assert [bool(broken) for broken in found].count(True) == len(wires.bodies) - 6  # one for each summary
    assert set().union(*found) <= REWRITTEN
    assert owners(ledger) == {"application"}


async def test_todo_list_and_dynamic_prompt(
    model: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    numbers = iter(range(1, 10))

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"It is {clock(next(numbers))}.\n{policy}"

    agent = create_agent(
        model,
        desk.tools(),
        middleware=[prompt, TodoListMiddleware(), desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    for text in ("use alpha", "use bravo"):
        agent.invoke({"messages": [("user", text)]}, CONFIG)
    assert not wires.failed
    assert one_head(wires)
    assert wires.tools() == ["alpha", "bravo", "charlie", "write_todos"]
    assert "write_todos" in wires.head()
    assert no_breaks()


async def test_pii_is_redacted_before_it_is_sent(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    redact = PIIMiddleware("email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True)
    agent = create_agent(
        model, desk.tools(), middleware=[redact, desk.middleware(), stable()], checkpointer=InMemorySaver()
    )
    for _ in range(2):
        await run(agent, "I am ada@example.com: use alpha")
    assert not wires.failed
    assert one_head(wires)
    assert all("ada@example.com" not in text for text in wires.texts)
    assert all("[REDACTED_EMAIL]" in text for text in wires.texts)
    assert causes(ledger) == [set()] * 4


async def test_pii_in_replies_is_a_break_with_an_owner(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    redact = PIIMiddleware("email", apply_to_output=True)
    agent = create_agent(
        model, desk.tools(), system_prompt=policy, middleware=[redact, stable()], checkpointer=InMemorySaver()
    )
    for _ in range(3):
        await run(agent, "say write to ada@example.com")
    assert not wires.failed
    assert one_head(wires)
    assert owners(ledger) <= {"application"}


@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "gpt-5.4"])
async def test_a_tool_selector_before_ours(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, ledger: Ledger
) -> None:
    """It filters the tools before each call; the union stays declared once all were chosen."""
    selector = LLMToolSelectorMiddleware(max_tools=1)
    agent = create_agent(
        make_model(name),
        desk.tools(),
        system_prompt=policy,
        middleware=[selector, stable()],
        checkpointer=InMemorySaver(),
    )
    for tool in ("alpha", "bravo", "alpha"):
        await run(agent, f"use {tool}")
    assert desk.ran == ["alpha", "bravo", "alpha"]
    ours = [number for number in range(len(wires.bodies)) if "topic 7" in wires.texts[number]]
    assert len(ours) == 6
    # alpha is first seen; bravo comes late with call 3; from then on the list stays, whatever is selected.
    assert [wires.tools(number) for number in ours] == [["alpha"]] * 2 + [["alpha", "bravo"]] * 4
    assert causes(ledger) == [set(), set(), {"tool_added"}, set(), set(), set()]
    assert not wires.failed


@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "gpt-5.4"])
async def test_a_tool_selector_after_ours(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, ledger: Ledger, caplog: Any
) -> None:
    """It asks the model that we handed down: that question is not the agent's, and gets none of its tools."""
    agent = create_agent(
        make_model(name),
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(on_break="warn"), LLMToolSelectorMiddleware(max_tools=1)],
        checkpointer=InMemorySaver(),
    )
    for tool in ("alpha", "bravo"):
        await run(agent, f"use {tool}")
    assert desk.ran == ["alpha", "bravo"]
    assert not wires.failed
    ours = [number for number in range(len(wires.bodies)) if "topic 7" in wires.texts[number]]
    theirs = sorted(set(range(len(wires.bodies))) - set(ours))
    assert [wires.tools(number) for number in ours] == [["alpha"]] * 2 + [["alpha", "bravo"]] * 2
    assert all("alpha" not in wires.tools(number) for number in theirs)
    assert all("cache_control" not in wires.texts[number] for number in theirs)
    rows = list(ledger.rows())
    assert [row.unverified is None for row in rows] == [number in ours for number in range(len(rows))]
    said = [record.message for record in caplog.records]
    assert len([line for line in said if "changed the tools: put StableHeadMiddleware last" in line]) == 1
    assert len([line for line in said if "a question of its own" in line]) == 1


@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "claude-opus-5-5", "gpt-6.1-sol"])
async def test_provider_tool_search(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, no_breaks: Any
) -> None:
    desk.offer = desk.shuffled
    search = ProviderToolSearchMiddleware(searchable_tools=["bravo", "charlie"])
    agent = create_agent(
        make_model(name),
        desk.tools(),
        system_prompt=policy,
        middleware=[search, desk.middleware(), stable(on_break="raise")],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one"):
        await run(agent, "use alpha bravo", thread)
    assert not wires.failed
    assert one_head(wires)
    deferred = [tool for tool in wires.bodies[-1]["tools"] if tool.get("defer_loading")]
    assert len(deferred) == 2
    assert "cache_control" not in json.dumps(deferred)
    assert sorted(desk.ran) == ["alpha"] * 3 + ["bravo"] * 3  # a deferred tool is offered
    assert no_breaks()


async def test_a_human_in_the_loop(
    model: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    gate = HumanInTheLoopMiddleware({"alpha": True})
    agent = create_agent(
        model, desk.tools(), middleware=[gate, desk.middleware(), stable()], checkpointer=InMemorySaver()
    )
    for decision in ({"type": "approve"}, {"type": "reject", "message": "Not today."}):
        agent.invoke({"messages": [("user", "use alpha")]}, CONFIG)
        agent.invoke(Command(resume={"decisions": [decision]}), CONFIG)
    assert desk.ran == ["alpha"]
    assert not wires.failed
    assert one_head(wires)
    kept = "opus" in str(getattr(model, "model", ""))
    for number in range(3):
        assert wires.extends(number, number + 1, kept=kept)
    assert no_breaks()


async def test_retries_of_a_tool(sonnet: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str) -> None:
    """The tool runs again inside; a refused one does not run at all."""
    desk.offer = lambda number, tools: tools[:1]
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0.0, jitter=False)
    agent = create_agent(sonnet, desk.tools(), middleware=[retry, desk.middleware(), stable()])
    agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha"]
    assert not wires.failed
