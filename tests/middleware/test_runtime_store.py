"""`head_store="runtime"`: workers without a common disk are one, over a store of LangGraph."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import messages_from_dict, messages_to_dict
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore
from langgraph.types import Command

from headstay import Ledger

LATE = "aardvark"  # by name it would come first
NATIVE = ("claude-opus-5-5", "claude-opus-5", "gpt-6.1-sol")


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


@pytest_asyncio.fixture(params=["memory", "sqlite"], loop_scope="session")
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BaseStore]:
    """Make a store; of the two for SQLite the one that suits how the agent is run."""
    if request.param == "memory":
        yield InMemoryStore()
    elif request.node.callspec.params["run"].startswith("a"):
        async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as running:
            yield running
    else:
        with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as opened:
            opened.setup()
            yield opened


@pytest.fixture
def workers(desk: Any, stable: Any) -> Callable[..., list[Any]]:
    """Make agents as two processes would: nothing in common but checkpoints and store."""

    def make(
        model: Any,
        store: BaseStore | None,
        *,
        tools: Sequence[Sequence[str]] = ((), ()),
        policy: str | None = None,
        number: int = 2,
        saver: Any = True,
        **given: Any,
    ) -> list[Any]:
        kept = InMemorySaver() if saver is True else saver
        return [
            create_agent(
                model,
                desk.tools(*names),
                system_prompt=policy,
                middleware=[
                    desk.middleware(),
                    stable(**{"head_store": "runtime", **{key: value() for key, value in given.items()}}),
                ],
                checkpointer=kept,
                store=store,
                context_schema=tuple,
            )
            for names, _ in zip(cycle(tools), range(number), strict=False)
        ]

    return make


def always(value: Any) -> Callable[[], Any]:
    return lambda: value


def since(first: int) -> Any:
    return lambda number, tools: [one for one in tools if one.name != LATE or number >= first]


def appended(body: Any) -> list[str]:
    found: list[str] = []
    for item in body.get("messages") or body["input"]:
        blocks = item["content"] if isinstance(item.get("content"), list) else []
        found += [block["tool"]["definition"]["name"] for block in blocks if block.get("type") == "tool_addition"]
        found += [one["name"] for one in item["tools"]] if item.get("type") == "additional_tools" else []
    return found


def quiet(ledger: Ledger) -> bool:
    return all(not row.breaks and row.unverified is None and row.error is None for row in ledger.rows())


async def test_they_share_one_order_of_tools_and_one_head(
    model: Any, run: Any, workers: Any, store: BaseStore, wires: Any, policy: str, ledger: Ledger
) -> None:
    """The second one offers another list: alone it would declare charlie before delta."""
    first, second = workers(model, store, tools=(("delta", "alpha"), ("charlie", "alpha")), policy=policy)
    for agent, thread in ((first, "one"), (second, "two"), (first, "three"), (second, "one")):
        await run(agent, "Hello", thread)
    tools = [wires.tools(number) for number in range(4)]
    native = getattr(model, "model", "") == "claude-opus-5-5" or getattr(model, "model_name", "") == "gpt-6.1-sol"
    assert tools[0] == ["alpha", "delta"]
    if native:  # a new conversation begins with the lane's list, and what is late is appended to it
        assert tools == [["alpha", "delta"]] * 4
        assert len({row.head for row in ledger.rows()}) == 1
    else:
        assert tools[1:] == [["alpha", "delta", "charlie"]] * 3
        assert len({row.head for row in ledger.rows()}) == 2
    found = [str(broken.cause) for row in ledger.rows() for broken in row.breaks]
    assert found == ([] if native else ["tool_added"] * len(found))
    assert len({row.lane for row in ledger.rows()}) == 1
    assert wires.extends(0, 3, kept=True) or not native
    assert not wires.failed


async def test_kept_notes_and_receipts_of_a_thinking_model(
    claude: Any, run: Any, workers: Any, store: BaseStore, desk: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """The API is asked to refuse what does not fit: each worker puts back the notes that the other one sent."""
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    agents = workers(claude, store, verify=always("provider"), tail=always("Found: " + "a long text. " * 100))
    for number in range(4):
        await run(agents[number % 2], "use alpha then use bravo")
    assert not wires.failed
    assert len(wires.bodies) == 12
    assert all(wires.extends(number, number + 1, kept=True) for number in range(11))
    assert quiet(ledger)
    assert [row.status for row in ledger.rows()] == ["cold"] + ["ok"] * 11
    assert [row.epoch for row in ledger.rows()] == [0] * 12
    assert len({row.conversation for row in ledger.rows()}) == 1


@pytest.mark.parametrize("name", NATIVE)
async def test_tools_that_were_appended_stay_where_they_are(
    make_model: Any,
    run: Any,
    workers: Any,
    store: BaseStore,
    desk: Any,
    wires: Any,
    policy: str,
    ledger: Ledger,
    name: str,
) -> None:
    desk.offer = since(3)
    agents = workers(make_model(name), store, tools=[("bravo", LATE, "alpha")], policy=policy)
    for number, question in enumerate(("Hello", "Hi", f"use {LATE}", "Thanks", "Bye")):
        await run(agents[number % 2], question)
    assert not wires.failed
    assert desk.ran == [LATE]
    assert [wires.tools(number) for number in range(6)] == [["alpha", "bravo"]] * 6
    assert [appended(body) for body in wires.bodies] == [[], [], *[[LATE]] * 4]
    assert all(wires.extends(number, number + 1, kept=name == "claude-opus-5-5") for number in range(5))
    assert quiet(ledger)


class Selector:
    """Chooses something else each time it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def with_question(self, question: str) -> list[dict[str, str]]:
        return self.without_question()

    def without_question(self) -> list[dict[str, str]]:
        self.asked += 1
        return [{"input": f"Case {self.asked}", "output": f"Choice {self.asked} " + "of many words. " * 50}]


@pytest.mark.parametrize("every", ["lane", "conversation"])
async def test_few_shot_is_chosen_once(
    sonnet: Any, run: Any, workers: Any, store: BaseStore, wires: Any, policy: str, ledger: Ledger, every: str
) -> None:
    selector = Selector()
    choose = selector.without_question if every == "lane" else selector.with_question
    agents = workers(sonnet, store, policy=policy, few_shot=always(choose), few_shot_every=always(every))
    for number, thread in enumerate(("one", "one", "two", "two", "one")):
        await run(agents[number % 2], f"Hello from {thread}", thread)
    chosen = ["Choice 1"] * 5 if every == "lane" else [f"Choice {n}" for n in (1, 1, 2, 2, 1)]
    assert [[word for word in ("Choice 1 ", "Choice 2 ") if word in text] for text in wires.texts] == [
        [f"{one} "] for one in chosen
    ]
    assert selector.asked == (1 if every == "lane" else 2)
    assert quiet(ledger)


async def test_a_restart(
    claude: Any, run: Any, workers: Any, store: BaseStore, desk: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    saver = InMemorySaver()
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    for _ in range(4):
        (agent,) = workers(claude, store, number=1, saver=saver, verify=always("provider"))
        await run(agent, "use alpha")
    assert not wires.failed
    assert all(wires.extends(number, number + 1, kept=True) for number in range(7))
    assert [row.status for row in ledger.rows()] == ["cold"] + ["ok"] * 7
    assert quiet(ledger)


async def test_a_conversation_that_the_client_holds(
    claude: Any, run: Any, workers: Any, store: BaseStore, desk: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """No thread id: the first words of the user name the conversation."""
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    desk.offer = since(4)
    agents = workers(claude, store, tools=[("alpha", LATE)], saver=None, verify=always("provider"))
    held: list[Any] = []
    for number in range(5):
        given = [*messages_from_dict(json.loads(json.dumps(held))), ("user", "use alpha")]
        held = messages_to_dict((await run(agents[number % 2], {"messages": given}, None))["messages"])
    assert not wires.failed
    assert all(wires.extends(number, number + 1, kept=True) for number in range(9))
    assert appended(wires.bodies[-1]) == [LATE]
    assert quiet(ledger)


async def test_a_masked_call_is_refused_by_another_worker(
    make_model: Any, run: Any, desk: Any, stable: Any, store: BaseStore
) -> None:
    """I5: the reply was made by one worker; another one runs its calls, and a human chose a tool not offered."""
    desk.offer = lambda number, tools: tools if number == 1 else [one for one in tools if one.name != "bravo"]
    saver = InMemorySaver()

    def agent() -> Any:
        review = HumanInTheLoopMiddleware(dict.fromkeys(("alpha", "bravo", "charlie"), True))
        middleware = [review, desk.middleware(), stable(head_store="runtime")]
        return create_agent(
            make_model("claude-opus-5-5"), desk.tools(), middleware=middleware, checkpointer=saver, store=store
        )

    await run(agent(), "Hello")
    await run(agent(), "use alpha charlie")
    changed = {"type": "edit", "edited_action": {"name": "bravo", "args": {"x": 7}}}
    same = {"type": "edit", "edited_action": {"name": "alpha", "args": {"x": 7}}}
    state = await run(agent(), Command(resume={"decisions": [changed, same]}))
    assert desk.ran == ["alpha"]
    (refused,) = [message for message in state["messages"] if message.type == "tool" and message.status == "error"]
    assert "the tool bravo is not available now" in refused.text


async def test_tenants_are_apart(
    claude: Any, run: Any, workers: Any, desk: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """I9: two documents with nothing of each other, each with a key of its own."""
    store = InMemoryStore()
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    desk.offer = lambda number, tools: [one for one in tools if one.name != ("alpha", "bravo")[number % 2]]
    agents = workers(
        claude,
        store,
        tenant=always(lambda runtime: runtime.context[0]),
        tail=always(lambda runtime: f"Private to {runtime.context[0]}."),
    )
    for number, tenant in enumerate(("north", "south") * 3):
        await run(agents[number // 2 % 2], "Hello", f"thread of {tenant}", context=(tenant,))
    assert [sorted(wires.tools(number)) for number in range(6)] == [["alpha", "charlie"], ["bravo", "charlie"]] * 3
    for number, text in enumerate(wires.texts):
        assert [f"Private to {tenant}." in text for tenant in ("north", "south")] == [number % 2 == 0, number % 2 == 1]
    assert quiet(ledger)
    spaces = store.list_namespaces(prefix=("headstay",))
    assert len(spaces) == 2
    kept = [{item.key: item.value["text"] for item in store.search(space)} for space in spaces]
    assert sorted("Private to north" in "".join(one.values()) for one in kept) == [False, True]
    assert sorted("Private to south" in "".join(one.values()) for one in kept) == [False, True]
    north, south = (json.loads(one["scope"]) for one in kept)
    assert north["key"] != south["key"]
    assert {lane for lane, *_ in north["lanes"]}.isdisjoint(lane for lane, *_ in south["lanes"])
    assert not any(
        "Hello" in text or "settled" in text for one in kept for text in one.values()
    )  # no message, no reply


@pytest.mark.parametrize("own_coroutine", [True, False])
async def test_subagents(
    claude: Any,
    run: Any,
    desk: Any,
    stable: Any,
    store: BaseStore,
    wires: Any,
    policy: str,
    ledger: Ledger,
    own_coroutine: bool,
) -> None:
    """The inner agent has no store of its own: it gets the outer one's."""

    def agent(saver: Any, *tools: str) -> Any:
        kept: dict[str, Any] = {"head_store": "runtime", "tail": lambda runtime: "Found: it.", "verify": "provider"}
        clerk = create_agent(
            claude,
            desk.tools(*tools),
            system_prompt=f"The clerk.\n{policy}",
            middleware=[stable(name="clerk", **kept)],
        )

        def ask_clerk(x: int) -> str:
            return str(clerk.invoke({"messages": [("user", "use alpha")]})["messages"][-1].text)

        async def aask_clerk(x: int) -> str:
            return str((await clerk.ainvoke({"messages": [("user", "use alpha")]}))["messages"][-1].text)

        coroutine = {"coroutine": aask_clerk} if own_coroutine else {}
        ask = StructuredTool.from_function(ask_clerk, name="ask_clerk", description="Ask the clerk.", **coroutine)
        return create_agent(
            claude,
            [ask],
            system_prompt=policy,
            middleware=[stable(**kept)],
            checkpointer=saver,
            store=store,
        )

    saver = InMemorySaver()
    agents = [agent(saver, "bravo", "alpha"), agent(saver, "charlie", "alpha")]
    for number in range(4):
        await run(agents[number % 2], "use ask_clerk")
    assert not wires.failed
    assert [row.name for row in ledger.rows()] == ["desk", "clerk", "clerk", "desk"] * 4
    assert [row.status for row in ledger.rows()] == ["cold", "cold", "ok", "ok"] + ["ok"] * 12
    assert quiet(ledger)
    assert len({row.head for row in ledger.rows()}) == 2
