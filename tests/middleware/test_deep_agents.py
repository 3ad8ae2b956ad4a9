"""Deep agents: `create_deep_agent` puts the vendor's caching middleware and others behind ours, and adds subagents."""

import importlib
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends.utils import create_file_data
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from headstay import Ledger, Slot
from langchain_headstay import cache_aware

FILES = ["delete", "edit_file", "glob", "grep", "ls", "read_file"]
DESK_TOOLS = ["alpha", "bravo", "charlie", *FILES, "task", "write_file"]
CLERK_TOOLS = ["alpha", "bravo", "charlie", *FILES, "write_file"]
DELEGATES = 'use alpha task{"description": "use bravo", "subagent_type": "clerk"}'


def markers(body: Any) -> list[Any]:
    """Return all markers of a body for Anthropic."""
    parts = [*body.get("tools", ()), *body.get("system", ())]
    for message in body.get("messages", ()):
        parts += message["content"] if isinstance(message["content"], list) else ()
    return [part["cache_control"] for part in parts if "cache_control" in part]


def test_deepagents_is_installed_whole() -> None:
    """LangChain's standard suites leave out a module without a word where its dependencies are not all there."""
    suites = importlib.import_module("langchain_tests.integration_tests")
    assert {"SandboxIntegrationTests", "ChatModelIntegrationTests"} <= set(suites.__all__)


@pytest.mark.parametrize("name", ["claude-opus-5-5", "gpt-6.1-sol"])
async def test_a_deep_agent_and_its_subagent_have_one_head_each(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger, caplog: Any, name: str
) -> None:
    clerk = {
        "name": "clerk",
        "description": "Looks things up.",
        "system_prompt": "You are the clerk. It is 2026-11-29T10:00:00Z.\n" + policy,
        "middleware": [stable(name="clerk", on_break="warn")],
    }
    agent = create_deep_agent(
        make_model(name),
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(on_break="warn")],
        subagents=[clerk],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one"):
        await run(agent, DELEGATES, thread)
    assert not wires.failed
    assert desk.ran == ["alpha", "bravo"] * 3
    rows = list(ledger.rows())
    assert [row.name for row in rows] == ["desk", "clerk", "clerk", "desk"] * 3
    assert [row.status for row in rows] == ["cold", "cold", *["ok"] * 10]
    assert not any(row.breaks or row.unverified or row.error for row in rows)
    for number, row in enumerate(rows):
        assert wires.tools(number) == (DESK_TOOLS if row.name == "desk" else CLERK_TOOLS)
        assert wires.head(number) == wires.head(0 if row.name == "desk" else 1)
        assert ("It is [[clock]]." in wires.head(number)) == (row.name == "clerk")
        assert 2 <= len(markers(wires.bodies[number])) <= 4 or name.startswith("gpt")
        assert "cache_control" not in wires.bodies[number]
    assert wires.extends(0, 3, kept=True)
    assert wires.extends(3, 8, kept=True)
    assert not caplog.records  # that the vendor's middleware stands behind ours cannot be helped, and costs nothing


async def test_the_subagent_that_is_always_there_goes_through_a_cache_aware_model(
    claude: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    """It takes no middleware of the application; with a bare model its calls go past us, and leave no row."""
    asked = {"messages": [("user", 'use task{"description": "use bravo", "subagent_type": "general-purpose"}')]}
    seen: list[list[str | None]] = []
    for model in ("bare", "aware"):
        ledger = Ledger()
        given = claude if model == "bare" else cache_aware(claude, name="helpers", ledger=ledger, on_break="record")
        agent = create_deep_agent(given, desk.tools(), system_prompt=policy, middleware=[stable(ledger=ledger)])
        for _ in range(2):
            agent.invoke(asked)
        rows = list(ledger.rows())
        seen.append([row.name for row in rows])
        assert not any(row.breaks or row.unverified or row.error for row in rows)
    assert not wires.failed
    assert seen == [["desk", "desk"] * 2, ["desk", "helpers", "helpers", "desk"] * 2]


async def test_memory_behind_us_is_said_and_can_be_a_slot(
    claude: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger, caplog: Any
) -> None:
    memory = Slot(r"(?s)<agent_memory>\n(?P<memory>.*?)\n</agent_memory>", every="conversation")
    agent = create_deep_agent(
        claude,
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(volatile=[memory], on_break="warn")],
        memory=["/AGENTS.md"],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one"):
        remembered = create_file_data(f"The customer of thread {thread} likes tea.")
        given: Any = {"messages": [("user", "use alpha")], "files": {"/AGENTS.md": remembered}}
        agent.invoke(given, {"configurable": {"thread_id": thread}})
    assert not wires.failed
    assert len({row.head for row in ledger.rows()}) == 1
    assert not any(row.breaks for row in ledger.rows())
    assert ["thread one likes" in text for text in wires.texts] == [True, True, False, False, True, True]
    assert ["thread two likes" in text for text in wires.texts] == [False, False, True, True, False, False]
    (said,) = [record.message for record in caplog.records]
    assert said == (
        "desk: a middleware further inside changed the system text and the cache markers: create_deep_agent puts "
        "middlewares of its own behind StableHeadMiddleware; here its model had the last word"
    )


async def test_a_human_edit_behind_us_to_a_masked_tool_is_refused(
    claude: Any, desk: Any, stable: Any, policy: str
) -> None:
    desk.offer = lambda number, tools: tools if number == 1 else [tool for tool in tools if tool.name != "bravo"]
    agent = create_deep_agent(
        claude,
        desk.tools(),
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
        interrupt_on={"alpha": True},
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "one"}}
    agent.invoke({"messages": [("user", "Hello")]}, config)
    agent.invoke({"messages": [("user", "use alpha charlie")]}, config)
    decision = {"type": "edit", "edited_action": {"name": "bravo", "args": {"x": 7}}}
    agent.invoke(Command(resume={"decisions": [decision]}), config)
    assert desk.ran == ["charlie"]
