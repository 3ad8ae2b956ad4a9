"""Late tools on the wire: appended where the model has that, in the same place ever after, and never twice."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from headstay import HeadStore, Ledger
from headstay.errors import ConfigError
from langgraph_headstay import StableHeadMiddleware

# One that binds its thinking and keeps its notes, one that drops them in place, and the other wire.
NATIVE = ("claude-opus-5-5", "claude-opus-5", "gpt-6.1-sol")
LATE = "aardvark"  # by name it would come first


@pytest.fixture(params=NATIVE)
def native(request: pytest.FixtureRequest, make_model: Any) -> Any:
    return make_model(request.param)


def since(first: int, *names: str) -> Any:
    """Offer the named tools from call `first` on, and all others always."""
    late = names or (LATE,)
    return lambda number, tools: [tool for tool in tools if tool.name not in late or number >= first]


def during(*calls: int) -> Any:
    """Offer the late tool in some calls only."""
    return lambda number, tools: [tool for tool in tools if tool.name != LATE or number in calls]


def additions(body: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return where tools are appended: the number of the message, and the tool's name."""
    found: list[tuple[int, str]] = []
    for number, item in enumerate(body.get("messages") or body["input"]):
        content = item.get("content")
        blocks = content if isinstance(content, list) else []
        found += [
            (number, block["tool"]["definition"]["name"]) for block in blocks if block.get("type") == "tool_addition"
        ]
        if item.get("type") == "additional_tools":
            found += [(number, tool["name"]) for tool in item["tools"]]
    return found


def names(body: Mapping[str, Any]) -> list[str]:
    return [name for _, name in additions(body)]


def head(body: Mapping[str, Any]) -> str:
    """Return tools and system text as they stand on the wire, markers left out."""
    system = body["system"] if "system" in body else body["input"][0]["content"]
    return json.dumps([body.get("tools"), system]).replace(', "cache_control": {"type": "ephemeral"}', "")


def breaks(ledger: Ledger) -> list[list[tuple[str, str]]]:
    return [[(str(found.cause), found.path) for found in row.breaks] for row in ledger.rows()]


def verified(ledger: Ledger) -> bool:
    return all(row.unverified is None and row.error is None for row in ledger.rows())


def once(wires: Any) -> bool:
    """Whether no tool stands twice in any request."""
    lists = [[*wires.tools(number), *names(body)] for number, body in enumerate(wires.bodies)]
    return all(len(listed) == len(set(listed)) for listed in lists)


def whole(wires: Any, numbers: Sequence[int], model: Any) -> bool:
    """Whether each of some requests continues the one before, byte for byte."""
    kept = "opus-5-5" in str(getattr(model, "model", ""))
    pairs = pairwise(numbers)
    return all(wires.extends(before, after, kept=kept) for before, after in pairs)


def make(model: Any, desk: Any, middleware: Any, policy: str, *tools: str, saver: Any = None) -> Any:
    return create_agent(
        model,
        desk.tools(*(tools or ("bravo", LATE, "alpha"))),
        system_prompt=None if desk.system else policy,
        middleware=[desk.middleware(), middleware],
        checkpointer=saver or InMemorySaver(),
    )


async def test_a_late_tool_is_appended_is_usable_and_breaks_nothing(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(3)
    agent = make(native, desk, stable(), policy)
    for question, thread in (("Hello", "one"), ("Hi", "two"), (f"use {LATE}", "one"), ("Thanks", "one"), ("Ok", "two")):
        await run(agent, question, thread)
    assert not wires.failed
    assert desk.ran == [LATE]
    assert [wires.tools(number) for number in range(6)] == [["alpha", "bravo"]] * 6
    assert len({head(body) for body in wires.bodies}) == 1
    assert [names(body) for body in wires.bodies] == [[], [], [LATE], [LATE], [LATE], [LATE]]
    assert whole(wires, (0, 2, 3, 4), native)
    assert whole(wires, (1, 5), native)
    assert breaks(ledger) == [[]] * 6
    assert verified(ledger)
    rows = list(ledger.rows())
    assert [row.epoch for row in rows] == [0] * 6
    assert [row.status for row in rows] == ["cold", "ok", "ok", "ok", "ok", "ok"]


async def test_it_arrives_in_the_middle_of_a_tool_loop(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """Behind the results, never between a call and its result."""
    desk.offer = since(2)
    agent = make(native, desk, stable(verify="provider"), policy)
    await run(agent, f"use alpha bravo then use {LATE} alpha then use bravo")
    await run(agent, "Thanks")
    assert not wires.failed
    assert sorted(desk.ran) == [LATE, "alpha", "alpha", "bravo", "bravo"]
    assert [names(body) for body in wires.bodies] == [[], [LATE], [LATE], [LATE], [LATE]]
    assert len({additions(body)[0] for body in wires.bodies[1:]}) == 1
    assert whole(wires, range(5), native)
    assert breaks(ledger) == [[]] * 5
    assert verified(ledger)


async def test_a_new_conversation_and_several_late_tools(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = lambda number, tools: [
        tool for tool in desk.shuffled(number, tools) if number >= {"zulu": 2, LATE: 3, "mike": 3}.get(tool.name, 1)
    ]
    agent = make(native, desk, stable(), policy, "alpha", "zulu", LATE, "mike")
    for thread in ("one", "one", "one", "two", "one"):
        await run(agent, f"Hello from {thread}", thread)
    assert not wires.failed
    assert [wires.tools(number) for number in range(5)] == [["alpha"]] * 5
    late = ["zulu", LATE, "mike"]  # first come, first appended; by name where they come together
    assert [names(body) for body in wires.bodies] == [[], ["zulu"], late, sorted(late), late]
    assert len({head(body) for body in wires.bodies}) == 1
    assert whole(wires, (0, 1, 2, 4), native)
    assert breaks(ledger) == [[]] * 5


async def test_after_a_restart_it_stands_where_it_stood(
    native: Any, run: Any, desk: Any, wires: Any, policy: str, tmp_path: Path, server: Any
) -> None:
    desk.offer = since(2)
    saver, ledger = InMemorySaver(), Ledger()
    for questions in (("Hello", f"use {LATE}"), ("Thanks", "use alpha"), ("Bye",)):
        with HeadStore(tmp_path / "heads.db") as store:
            middleware = StableHeadMiddleware(name="desk", head_store=store, ledger=ledger, on_break="record")
            agent = make(native, desk, middleware, policy, saver=saver)
            for question in questions:
                await run(agent, question)
    assert not wires.failed
    assert whole(wires, range(len(wires.bodies)), native)
    assert [names(body) for body in wires.bodies] == [[], *[[LATE]] * 6]
    assert breaks(ledger) == [[]] * 7


async def test_forks_and_steps_back_in_time(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(2)
    agent = make(native, desk, stable(), policy)
    config = {"configurable": {"thread_id": "one"}}
    for question in ("Hello", "Is it there?", "Thanks"):
        await run(agent, question)
    ends = [state.config for state in agent.get_state_history(config) if not state.next]
    after = {"messages": [HumanMessage("Another way")]}
    agent.invoke(after, ends[1])  # after the second answer: the tool was there
    agent.invoke(after, ends[2])  # after the first one: it comes anew
    assert not wires.failed
    assert [names(body) for body in wires.bodies] == [[], *[[LATE]] * 4]
    assert whole(wires, (0, 1, 2), native)
    assert whole(wires, (0, 1, 3), native)
    assert whole(wires, (0, 4), native)
    assert breaks(ledger) == [[]] * 5


async def test_a_history_that_the_client_holds(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(2)
    agent = create_agent(
        native,
        desk.tools("bravo", LATE, "alpha"),
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
    )
    held: list[Any] = []
    for question in ("Hello", f"use {LATE}", "Thanks", "use alpha"):
        state = await run(agent, {"messages": [*held, HumanMessage(question)]}, None)
        held = state["messages"]
    assert not wires.failed
    assert [names(body) for body in wires.bodies] == [[], *[[LATE]] * 5]
    assert whole(wires, range(6), native)
    assert breaks(ledger) == [[]] * 6


@pytest.mark.parametrize("name", NATIVE)
async def test_conversations_that_begin_alike_and_are_held_by_the_client(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str
) -> None:
    """Nothing tells them apart, so one of them may lose its prefix; no call may fail for it."""
    desk.offer = during(2, 3, 4)
    agent = create_agent(
        make_model(name),
        desk.tools("bravo", LATE, "alpha"),
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
    )
    states = [agent.invoke({"messages": [("user", "Hello")]}) for _ in range(2)]
    for number in (1, 0, 1, 0):
        states[number] = agent.invoke({"messages": [*states[number]["messages"], HumanMessage(f"Thread {number}")]})
    assert not wires.failed
    assert once(wires)


async def test_taken_away_it_stays_is_masked_and_refused(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """I5, also for an appended tool."""
    desk.offer = during(2, 5, 6)
    agent = make(native, desk, stable(), policy)
    await run(agent, "Hello")
    await run(agent, "Hello again")
    state = await run(agent, f"use {LATE} alpha")
    assert desk.ran == ["alpha"]
    results = {message.name: message.status for message in state["messages"] if message.type == "tool"}
    assert results == {LATE: "error", "alpha": "success"}
    await run(agent, f"use {LATE}")
    assert desk.ran == ["alpha", LATE]
    assert not wires.failed
    assert [names(body) for body in wires.bodies] == [[], *[[LATE]] * 5]
    assert whole(wires, range(6), native)
    assert breaks(ledger) == [[]] * 6
    if "tools" in wires.bodies[2].get("tool_choice", ()):
        listed = [[tool["name"] for tool in body["tool_choice"]["tools"]] for body in wires.bodies[2:4]]
        assert listed == [["alpha", "bravo"]] * 2
        assert "tool_choice" not in wires.bodies[4]


async def test_a_changed_definition_of_an_appended_tool_is_one_break(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    changed = desk.tool(LATE, "It eats other ants now.")
    desk.offer = lambda number, tools: [
        changed if tool.name == LATE and number >= 4 else tool for tool in tools if tool.name == "alpha" or number >= 2
    ]
    agent = make(native, desk, stable(), policy, "alpha", LATE, "bravo")
    for _ in range(5):
        await run(agent, "Hello")
    assert not wires.failed
    assert [names(body) for body in wires.bodies] == [[], *[[LATE, "bravo"]] * 2, *[["bravo"]] * 2]
    assert [wires.tools(number) for number in range(5)] == [*[["alpha"]] * 3, *[["alpha", LATE]] * 2]
    assert ["other ants" in text for text in wires.texts] == [False, False, False, True, True]
    assert once(wires)
    assert breaks(ledger) == [[], [], [], [("tool_description_changed", f"tools[{LATE}]")], []]
    assert whole(wires, (0, 1, 2), native)
    assert whole(wires, (3, 4), native)


async def test_it_joins_the_list_of_new_conversations_when_that_has_become_cheaper(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, ledger: Ledger
) -> None:
    desk.offer = since(2)
    agent = make(native, desk, stable(), "Be short. " * 100)
    await run(agent, "Hello", "first")
    await run(agent, "Hello", "t-1")
    sent = wires.bodies[1]
    added = next(
        block["tool"]["definition"] if block["type"] == "tool_addition" else block["tools"][0]
        for item in sent.get("messages") or sent["input"]
        for block in ([item] if "tools" in item else item["content"] if isinstance(item["content"], list) else [])
        if block["type"] in ("tool_addition", "additional_tools")
    )
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    size = len(json.dumps(added, **compact))
    base = sum(len(json.dumps(declared, **compact)) for declared in sent["tools"]) + len("Be short. " * 100)
    needed = ceil(base / size)  # conversations that carry it before a new head is as cheap
    assert 2 < needed < 12
    for number in range(2, needed + 3):
        await run(agent, f"Hello {number}", f"t-{number}")
    await run(agent, "And now?", "t-1")
    await run(agent, "And now?", f"t-{needed + 1}")
    assert not wires.failed
    appended = [bool(names(body)) for body in wires.bodies[1:]]
    assert appended == [*[True] * needed, *[False] * 2, True, False]
    assert wires.tools(needed + 1) == ["alpha", "bravo", LATE]
    assert wires.tools(1) == wires.tools(needed + 3) == ["alpha", "bravo"]
    assert whole(wires, (1, needed + 3), native)
    assert whole(wires, (needed + 1, needed + 4), native)
    assert [found for found in breaks(ledger) if found and found[0][0] != "tool_added"] == []
    assert sum(map(len, breaks(ledger))) <= 1


def test_late_tools_list_puts_it_into_the_list(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(2)
    agent = make(make_model("claude-opus-5-5"), desk, stable(late_tools="list"), policy)
    for _ in range(3):
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "one"}})
    assert [wires.tools(number) for number in range(3)] == [["alpha", "bravo"], *[["alpha", "bravo", LATE]] * 2]
    assert not any(names(body) for body in wires.bodies)
    assert breaks(ledger) == [[], [("tool_added", f"tools[{LATE}]")], []]


async def test_switched_to_the_list_an_appended_tool_moves_there_once(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(2)
    saver = InMemorySaver()
    for setting, times in (("auto", 2), ("list", 2), ("auto", 1)):
        agent = make(native, desk, stable(late_tools=setting), policy, saver=saver)
        for _ in range(times):
            await run(agent, "Hello")
    assert not wires.failed
    assert once(wires)
    assert [names(body) for body in wires.bodies] == [[], [LATE], [], [], []]
    assert [wires.tools(number)[2:] for number in range(5)] == [[], [], [LATE], [LATE], [LATE]]
    assert breaks(ledger) == [[], [], [("tool_added", f"tools[{LATE}]")], [], []]


def test_another_word_for_late_tools_is_refused(stable: Any) -> None:
    with pytest.raises(ConfigError, match='late_tools=\'never\': say "auto" or "list"'):
        stable(late_tools="never")


@pytest.mark.parametrize("name", ["claude-opus-5", "claude-opus-5-5"])
async def test_the_note_of_a_call_shares_its_message(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, ledger: Ledger
) -> None:
    """Two system messages in a row would be refused; dropped or kept, the tools stand in front of the note."""
    model = make_model(name)
    desk.offer = since(2)
    desk.system = lambda number: f"Now it is 2026-11-29T10:0{number}:00Z.\n{policy}"
    agent = make(model, desk, stable(), policy)
    for _ in range(3):
        await run(agent, "Hello")
    assert not wires.failed
    kinds = [
        [[block["type"] for block in message["content"]] for message in body["messages"] if _is_list(message)]
        for body in wires.bodies
    ]
    assert [["tool_addition", "text"] in found for found in kinds] == [False, True, name == "claude-opus-5-5"]
    assert wires.texts[1].count("10:02:00Z") == 1
    assert wires.texts[2].count("10:03:00Z") == 1
    assert whole(wires, (0, 1, 2), model)
    assert breaks(ledger) == [[]] * 3
    assert verified(ledger)


def _is_list(message: Mapping[str, Any]) -> bool:
    return message["role"] == "system" and isinstance(message["content"], list)


async def test_markers_stand_on_a_tool_where_the_wire_takes_them(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    desk.offer = since(2)
    agent = make(native, desk, stable(), policy)
    for _ in range(2):
        await run(agent, "Hello")
    late = wires.bodies[1]
    if "messages" in late:  # the last block of the input
        assert late["messages"][-1]["content"][0]["cache_control"] == {"type": "ephemeral"}
    else:  # never on the item; it stands in front of the user's words, which carry the marker
        assert [item["type"] for item in late["input"][-2:]] == ["additional_tools", "message"]
        assert set(late["input"][-2]) == {"type", "role", "tools"}
        assert "prompt_cache_breakpoint" in late["input"][-1]["content"][0]


async def test_what_the_provider_runs_goes_into_the_list(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 1}
    desk.offer = lambda number, tools: [tool for tool in tools if not isinstance(tool, dict) or number in (2, 3)]
    agent = create_agent(
        make_model("claude-opus-5"),
        [*desk.tools("alpha"), search],
        system_prompt=policy,
        middleware=[desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    for _ in range(4):
        await run(agent, "Hello")
    assert not any(names(body) for body in wires.bodies)
    assert [wires.tools(number)[1:] for number in range(4)] == [[], ["web_search"], ["web_search"], []]
    assert breaks(ledger) == [[], [("tool_added", "tools[web_search]")], [], []]  # the last one is the first head again


async def test_an_agent_that_had_no_tools_gets_a_list(
    native: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(2)
    agent = make(native, desk, stable(), policy, LATE)
    for _ in range(3):
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "one"}})
    assert [wires.tools(number) for number in range(3)] == [[], [LATE], [LATE]]
    assert not any(names(body) for body in wires.bodies)
    assert breaks(ledger) == [[], [("tool_added", f"tools[{LATE}]")], []]


async def test_a_definition_that_is_lost_goes_into_the_list(
    native: Any, run: Any, desk: Any, wires: Any, policy: str, tmp_path: Path
) -> None:
    desk.offer = since(2)
    saver, ledger = InMemorySaver(), Ledger()
    for process in range(2):
        with HeadStore(tmp_path / "heads.db") as store:
            middleware = StableHeadMiddleware(name="desk", head_store=store, ledger=ledger, on_break="record")
            agent = make(native, desk, middleware, policy, saver=saver)
            for _ in range(2):
                await run(agent, "Hello")
        if process == 0:
            with closing(sqlite3.connect(tmp_path / "heads.db")) as found, found:
                assert found.execute("DELETE FROM additions").rowcount == 1
    assert not wires.failed
    assert [names(body) for body in wires.bodies] == [[], [LATE], [], []]
    assert [wires.tools(number)[2:] for number in range(4)] == [[], [], [LATE], [LATE]]
    assert breaks(ledger) == [[], [], [("tool_added", f"tools[{LATE}]")], []]


async def test_a_tenant_never_gets_what_came_late_for_another(
    native: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    """I9, on one head store and one thread id."""
    desk.offer = during(2, 4)
    saver = InMemorySaver()
    for tenant, times in (("north", 2), ("south", 1), ("north", 1)):
        agent = make(native, desk, stable(tenant=tenant), policy, saver=saver)
        for _ in range(times):
            agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": tenant}})
    assert [names(body) for body in wires.bodies] == [[], [LATE], [], [LATE]]


async def test_a_summary_keeps_the_head_and_the_tool_comes_anew(
    native: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = since(2)
    agent = make(native, desk, stable(), policy)
    for question in ("One", "Two", "Three"):
        state = await run(agent, question)
    kept = [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage("Summary: one, two."), *state["messages"][-2:]]
    agent.update_state({"configurable": {"thread_id": "one"}}, {"messages": kept})
    for question in ("Four", "Five"):
        await run(agent, question)
    assert not wires.failed
    assert [names(body) for body in wires.bodies] == [[], *[[LATE]] * 4]
    assert len({head(body) for body in wires.bodies}) == 1
    assert whole(wires, (3, 4), native)
    causes = [[cause for cause, _ in found] for found in breaks(ledger)]
    assert causes[:3] == [[], [], []]
    assert causes[3][0].startswith("history_")
    assert causes[4] == []
