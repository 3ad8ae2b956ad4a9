"""The tool list of a lane: one order, a union, late ones last, removed ones masked, changed ones in place."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.memory import InMemorySaver

from headstay import Ledger


def named(tools: list[Any], *names: str) -> list[Any]:
    by_name = {tool.name if not isinstance(tool, dict) else tool["type"]: tool for tool in tools}
    return [by_name[name] for name in names]


@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "gpt-5.4"])
async def test_a_late_tool_goes_last_and_breaks_each_running_conversation_once(
    make_model: Any, name: str, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    # "aardvark" would come first by name; it arrives with call 3.
    desk.offer = lambda number, tools: [tool for tool in tools if tool.name != "aardvark" or number >= 3]
    agent = create_agent(
        make_model(name),
        desk.tools("bravo", "aardvark", "alpha"),
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one", "two", "one", "three"):
        await run(agent, "Hello", thread)
    assert not wires.failed
    assert [wires.tools(number) for number in range(2)] == [["alpha", "bravo"]] * 2
    assert [wires.tools(number) for number in range(2, 6)] == [["alpha", "bravo", "aardvark"]] * 4
    breaks = [[(str(found.cause), found.owner) for found in row.breaks] for row in ledger.rows()]
    late = [("tool_added", "application")]
    assert breaks == [[], [], late, late, [], []]
    assert all(found.remedy for row in ledger.rows() for found in row.breaks)
    assert [row.epoch for row in ledger.rows()] == [0, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("name", ["gpt-5.4", "gpt-6.1-sol", "claude-sonnet-4-6", "claude-opus-5-5"])
async def test_a_removed_tool_stays_declared_is_masked_and_refused(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, no_breaks: Any
) -> None:
    desk.offer = lambda number, tools: [tool for tool in tools if tool.name != "bravo" or number == 1]
    agent = create_agent(
        make_model(name),
        desk.tools(),
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    await run(agent, "Hello")
    state = await run(agent, "use alpha bravo charlie")
    assert not wires.failed
    assert [wires.tools(number) for number in range(3)] == [["alpha", "bravo", "charlie"]] * 3
    assert desk.ran == ["alpha", "charlie"] or desk.ran == ["charlie", "alpha"]
    results = {message.name: message for message in state["messages"] if message.type == "tool"}
    assert results["bravo"].status == "error"
    assert "not available" in results["bravo"].content
    assert results["alpha"].content == "alpha gave 1"
    assert no_breaks()
    choices = [body.get("tool_choice") for body in wires.bodies]
    if name == "gpt-5.4":
        functions = [{"type": "function", "function": {"name": offered}} for offered in ("alpha", "charlie")]
        masked = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": functions}}
        assert choices == [None, masked, masked]
    elif name == "gpt-6.1-sol":
        tools = [{"type": "function", "name": offered} for offered in ("alpha", "charlie")]
        masked = {"type": "allowed_tools", "mode": "auto", "tools": tools}
        assert choices == [None, masked, masked]
    else:
        assert choices == [None] * 3  # Anthropic has no such choice; a call is refused where the tool would run


async def test_all_tools_removed(make_model: Any, desk: Any, run: Any, stable: Any, wires: Any, policy: str) -> None:
    desk.offer = lambda number, tools: tools if number == 1 else []
    agent = create_agent(
        make_model("gpt-5.4"), desk.tools(), system_prompt=policy, middleware=[desk.middleware(), stable()]
    )
    await run(agent, "Hello")
    await run(agent, "use alpha")
    assert not wires.failed
    assert wires.tools(1) == ["alpha", "bravo", "charlie"]
    assert wires.bodies[1]["tool_choice"] == "none"
    assert desk.ran == []


async def test_a_changed_schema_is_one_break_in_place(
    sonnet: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    changed = desk.tool("bravo", "It answers other questions now.")
    desk.offer = lambda number, tools: [changed if tool.name == "bravo" and number > 2 else tool for tool in tools]
    agent = create_agent(
        sonnet,
        desk.tools(),
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    for _ in range(4):
        await run(agent, "Hello")
    assert [wires.tools(number) for number in range(4)] == [["alpha", "bravo", "charlie"]] * 4
    assert ["other questions" in text for text in wires.texts] == [False, False, True, True]
    breaks = [[(str(found.cause), found.owner, found.path) for found in row.breaks] for row in ledger.rows()]
    assert breaks == [[], [], [("tool_description_changed", "application", "tools[bravo]")], []]


async def test_a_provider_run_tool_that_is_removed_leaves_the_list_at_once(
    sonnet: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}
    desk.offer = lambda number, tools: [tool for tool in tools if not isinstance(tool, dict) or number < 2]
    agent = create_agent(
        sonnet,
        [*desk.tools("alpha"), search],
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    for _ in range(3):
        await run(agent, "Hello")
    assert [wires.tools(number) for number in range(3)] == [["alpha", "web_search"], ["alpha"], ["alpha"]]
    breaks = [[str(found.cause) for found in row.breaks] for row in ledger.rows()]
    assert breaks == [[], ["tool_removed"], []]


async def test_tools_of_other_tenants_and_agents_are_not_declared(
    sonnet: BaseChatModel, desk: Any, stable: Any, wires: Any, policy: str, head_store: Any
) -> None:
    """I9: the union is of one tenant and one agent, also in one head store."""

    def agent(tool: str, **settings: Any) -> Any:
        return create_agent(sonnet, desk.tools(tool), system_prompt=policy, middleware=[stable(**settings)])

    for tool, settings in (
        ("alpha", {"tenant": "north"}),
        ("bravo", {"tenant": "south"}),
        ("charlie", {"tenant": "north", "name": "other"}),
        ("delta", {"tenant": "north"}),
    ):
        agent(tool, **settings).invoke({"messages": [("user", "Hello")]})
    assert [wires.tools(number) for number in range(4)] == [["alpha"], ["bravo"], ["charlie"], ["alpha", "delta"]]
