"""Added instructions on the wire: said once, in the same place ever after, and one break where a model has no place."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, dynamic_prompt
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from headstay import HeadStore, Ledger
from langchain_headstay import cache_aware
from langgraph_headstay import StableHeadMiddleware

# Models that take a system message in place: thinking that is bound to the history, thinking that is not, none, and the
# other wires. To be told to think makes LangChain stream blocks; its merged texts hold a blank block otherwise.
THINKING, QUIET = {"thinking": {"type": "adaptive"}}, {"thinking": {"type": "disabled"}}
IN_PLACE: dict[str, dict[str, Any]] = {
    "claude-opus-5-5": THINKING,
    "claude-opus-5": THINKING,
    "claude-opus-5 quiet": QUIET,
    "gpt-6.1-sol": {},
    "gpt-5.4": {},
}
BRIEF, KIND = "\n\n# Style\nBe very brief.", "\n- and kind"
SAID, SAID_KIND = "Added to the instructions:\n# Style\nBe very brief.", "Added to the instructions:\n- and kind"
GONE = [("system_text_changed", "application")]


@pytest.fixture(params=list(IN_PLACE))
def placed(request: pytest.FixtureRequest, make_model: Any) -> Any:
    return make_model(request.param.split()[0], **IN_PLACE[request.param])


class Prompt:
    """The application's prompt: the policy, and what it has behind it in call n, from 1."""

    def __init__(self, policy: str, more: Callable[[int], str]) -> None:
        self.policy = policy
        self.more = more
        self.calls = 0

    def middleware(self) -> AgentMiddleware[Any, Any, Any]:
        @dynamic_prompt
        def prompt(_: Any) -> str:
            self.calls += 1
            return self.policy + self.more(self.calls)

        return prompt


def since(*firsts: tuple[int, str]) -> Callable[[int], str]:
    """Add each text from its call on."""
    return lambda number: "".join(text for first, text in firsts if number >= first)


def make(model: Any, desk: Any, prompt: Prompt, middleware: Any, *, saver: Any = None) -> Any:
    tools = desk.tools("alpha", "bravo")
    return create_agent(model, tools, middleware=[prompt.middleware(), middleware], checkpointer=saver)


def words(body: Any) -> list[str]:
    """The operator's texts in the conversation, behind the head and in wire order."""
    items = body.get("messages") or body["input"]
    operator = [item for item in items if item["role" if "role" in item else "type"] in ("system", "developer")]
    if "system" not in body:
        operator = operator[1:]
    parts = [
        part["text"]
        for item in operator
        for part in ([{"text": item["content"]}] if isinstance(item["content"], str) else item["content"])
        if "text" in part
    ]
    return [part for part in parts if not part.startswith("Now:")]


def head(body: Any) -> str:
    system = body["system"] if "system" in body else (body.get("messages") or body["input"])[0]["content"]
    return str(system) if isinstance(system, str) else "".join(block["text"] for block in system)


def breaks(ledger: Ledger) -> list[list[tuple[str, str]]]:
    return [[(str(found.cause), found.owner) for found in row.breaks] for row in ledger.rows()]


def verified(ledger: Ledger) -> bool:
    return all(row.unverified is None and row.error is None for row in ledger.rows())


def whole(wires: Any, numbers: Sequence[int]) -> bool:
    """Whether each of some requests continues the one before, byte for byte."""
    return all(wires.extends(before, after, kept=True) for before, after in pairwise(numbers))


async def test_what_a_dynamic_prompt_adds_is_said_in_place_and_breaks_nothing(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    prompt = Prompt(policy, since((3, BRIEF), (5, KIND)))
    agent = make(placed, desk, prompt, stable(), saver=InMemorySaver())
    for question in ("Hello", "use alpha", "Thanks", "Go on", "Bye"):
        await run(agent, question)
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], [], [SAID], [SAID], *[[SAID, SAID_KIND]] * 2]
    assert {head(body) for body in wires.bodies} == {policy}
    assert whole(wires, range(6))
    assert breaks(ledger) == [[]] * 6
    assert verified(ledger)
    rows = list(ledger.rows())
    assert [row.epoch for row in rows] == [0] * 6
    assert [row.status for row in rows] == ["cold", "ok", "ok", "ok", "ok", "ok"]


async def test_in_the_middle_of_a_tool_loop_the_provider_finds_nothing_changed(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    prompt = Prompt(policy, since((2, BRIEF), (3, KIND)))
    agent = make(placed, desk, prompt, stable(verify="provider"), saver=InMemorySaver())
    await run(agent, "use alpha bravo then use bravo then use alpha")
    await run(agent, "Thanks")
    assert not wires.failed
    assert sorted(desk.ran) == ["alpha", "alpha", "bravo", "bravo"]
    assert [words(body) for body in wires.bodies] == [[], [SAID], *[[SAID, SAID_KIND]] * 3]
    assert whole(wires, range(5))
    assert breaks(ledger) == [[]] * 5
    assert verified(ledger)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (lambda number: BRIEF if number == 3 else "", [[], [], [], GONE, []]),
        (lambda number: ["", "", BRIEF, KIND, KIND][number - 1], [[], [], [], GONE, []]),
        (lambda number: ["", "", BRIEF + KIND, BRIEF, BRIEF][number - 1], [[], [], [], GONE, []]),
    ],
    ids=["dropped", "changed", "shorter"],
)
async def test_what_does_not_hold_any_more_stands_nowhere(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger, more: Any, expected: Any
) -> None:
    agent = make(placed, desk, Prompt(policy, more), stable(), saver=InMemorySaver())
    for _ in range(5):
        await run(agent, "Hello")
    assert not wires.failed
    for number, text in enumerate(wires.texts, 1):
        for line in ("Be very brief.", "- and kind"):
            assert text.count(line) == more(number).count(line)
    assert breaks(ledger) == expected
    assert [row.epoch for row in ledger.rows()] == [0, 0, 0, 1, 1]
    assert whole(wires, (0, 1, 2))
    assert whole(wires, (3, 4))
    assert verified(ledger)


async def test_a_model_without_a_place_for_it_gets_a_new_head_and_one_break(
    sonnet: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    agent = make(sonnet, desk, Prompt(policy, since((3, BRIEF))), stable(), saver=InMemorySaver())
    for _ in range(4):
        await run(agent, "Hello")
    assert [words(body) for body in wires.bodies] == [[]] * 4
    assert [head(body) for body in wires.bodies] == [policy, policy, policy + BRIEF, policy + BRIEF]
    assert breaks(ledger) == [[], [], GONE, []]


async def test_after_a_restart_it_stands_where_it_stood(
    placed: Any, run: Any, desk: Any, wires: Any, policy: str, tmp_path: Path, server: Any
) -> None:
    saver, ledger, prompt = InMemorySaver(), Ledger(), Prompt(policy, since((2, BRIEF)))
    for questions in (("Hello", "Hi"), ("use alpha",), ("Bye",)):
        with HeadStore(tmp_path / "heads.db") as store:
            middleware = StableHeadMiddleware(name="desk", head_store=store, ledger=ledger, on_break="record")
            agent = make(placed, desk, prompt, middleware, saver=saver)
            for question in questions:
                await run(agent, question)
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], *[[SAID]] * 4]
    assert whole(wires, range(5))
    assert breaks(ledger) == [[]] * 5


async def test_it_is_found_again_in_the_store_of_the_agent(
    placed: Any, run: Any, desk: Any, wires: Any, policy: str, server: Any
) -> None:
    """Workers without a common disk; each is new, and only saver and store are shared."""
    saver, store, ledger, prompt = InMemorySaver(), InMemoryStore(), Ledger(), Prompt(policy, since((2, BRIEF)))
    for question in ("Hello", "Hi", "use alpha"):
        middleware = StableHeadMiddleware(name="desk", head_store="runtime", ledger=ledger, on_break="record")
        agent = create_agent(
            placed, desk.tools("alpha"), middleware=[prompt.middleware(), middleware], checkpointer=saver, store=store
        )
        await run(agent, question)
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], *[[SAID]] * 3]
    assert whole(wires, range(4))
    assert breaks(ledger) == [[]] * 4


async def test_forks_and_steps_back_in_time(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    agent = make(placed, desk, Prompt(policy, since((2, BRIEF))), stable(), saver=InMemorySaver())
    for question in ("Hello", "Is it there?", "Thanks"):
        await run(agent, question)
    states = agent.get_state_history({"configurable": {"thread_id": "one"}})
    ends = [state.config for state in states if not state.next]
    after = {"messages": [HumanMessage("Another way")]}
    agent.invoke(after, ends[1])  # after the second answer: it was said there
    agent.invoke(after, ends[2])  # after the first one: it is said anew
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], *[[SAID]] * 4]
    assert whole(wires, (0, 1, 2))
    assert whole(wires, (0, 1, 3))
    assert whole(wires, (0, 4))
    assert breaks(ledger) == [[]] * 5


async def test_a_history_that_the_client_holds(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    agent = make(placed, desk, Prompt(policy, since((2, BRIEF))), stable())
    held: list[Any] = []
    for question in ("Hello", "use alpha", "Thanks"):
        state = await run(agent, {"messages": [*held, HumanMessage(question)]}, None)
        held = state["messages"]
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], *[[SAID]] * 3]
    assert whole(wires, range(4))
    assert breaks(ledger) == [[]] * 4


async def test_threads_keep_their_own_and_a_new_one_has_all_of_it_in_its_head(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    agent = make(placed, desk, Prompt(policy, since((3, BRIEF))), stable(), saver=InMemorySaver())
    for thread in ("one", "two", "one", "three", "two", "three"):
        await run(agent, f"Hello from {thread}", thread)
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], [], [SAID], [], [SAID], []]
    assert [head(body) == policy for body in wires.bodies] == [True, True, True, False, True, False]
    assert whole(wires, (0, 2))
    assert whole(wires, (1, 4))
    assert whole(wires, (3, 5))
    assert breaks(ledger) == [[]] * 6


@pytest.mark.parametrize("name", ["claude-opus-5-5", "claude-opus-5"])
async def test_tools_instructions_and_note_share_one_message(
    make_model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, name: str, ledger: Ledger
) -> None:
    desk.system = lambda number: f"Now it is 2026-11-29T10:0{number}:00Z.\n{policy}{BRIEF if number > 1 else ''}"
    desk.offer = lambda number, tools: [tool for tool in tools if tool.name == "alpha" or number > 1]
    agent = create_agent(
        make_model(name),
        desk.tools("alpha", "bravo"),
        middleware=[desk.middleware(), stable(verify="provider")],
        checkpointer=InMemorySaver(),
    )
    for _ in range(3):
        await run(agent, "Hello")
    assert not wires.failed
    asked = [item for item in wires.bodies[1]["messages"] if item["role"] == "system"][-1]["content"]
    assert [part["type"] for part in asked] == ["tool_addition", "text", "text"]
    assert [part["text"] for part in asked[1:]] == [SAID, "Now:\nclock: 2026-11-29T10:02:00Z"]
    assert words(wires.bodies[2]) == [SAID]
    assert breaks(ledger) == [[]] * 3
    assert verified(ledger)


def test_late_tools_list_does_not_switch_it_off(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    prompt = Prompt(policy, since((2, BRIEF)))
    agent = make(make_model("claude-opus-5"), desk, prompt, stable(late_tools="list"))
    held: list[Any] = []
    for question in ("Hello", "Thanks"):
        held = agent.invoke({"messages": [*held, HumanMessage(question)]})["messages"]
    assert [words(body) for body in wires.bodies] == [[], [SAID]]
    assert breaks(ledger) == [[], []]


async def test_a_block_of_its_own_behind_the_prompt_and_examples_behind_that(
    placed: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    """A middleware of the vendor's adds a block; our examples stand behind it in every call."""

    class Skills(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(self.changed(request))

        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            return await handler(self.changed(request))

        def changed(self, request: Any) -> Any:
            desk.calls += 1
            own = request.system_message.content_blocks
            more = [{"type": "text", "text": BRIEF}] if desk.calls > 1 else []
            return request.override(system_message=SystemMessage(content=[*own, *more]))

    examples = [{"input": "My tent is torn.", "output": "Rule 12 gives you a new one."}]
    agent = create_agent(
        placed, desk.tools("alpha"), system_prompt=policy, middleware=[Skills(), stable(few_shot=examples)],
        checkpointer=InMemorySaver(),
    )  # fmt: skip
    for _ in range(3):
        await run(agent, "Hello")
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], [SAID], [SAID]]
    assert ["Rule 12" in head(body) for body in wires.bodies] == [True] * 3
    assert len({head(body) for body in wires.bodies}) == 1
    assert breaks(ledger) == [[]] * 3


def test_a_tenant_never_gets_the_words_of_another(placed: Any, desk: Any, stable: Any, wires: Any, policy: str) -> None:
    """I9, on one head store and one thread id."""
    saver, prompt = InMemorySaver(), Prompt(policy, lambda number: ["", BRIEF, "", KIND, BRIEF][number - 1])
    held: dict[str, list[Any]] = {"north": [], "south": []}
    for tenant in ("north", "north", "south", "south", "north"):
        agent = make(placed, desk, prompt, stable(tenant=tenant), saver=saver)
        config = {"configurable": {"thread_id": tenant}}
        held[tenant] = agent.invoke({"messages": [HumanMessage("Hello")]}, config)["messages"]
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], [SAID], [], [SAID_KIND], [SAID]]


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_a_bare_model_does_it_too(
    placed: Any, wires: Any, policy: str, ledger: Ledger, head_store: HeadStore, way: str
) -> None:
    model = cache_aware(placed, ledger=ledger, head_store=head_store, on_break="record", name="bare")
    history: list[Any] = []
    for number in range(1, 5):
        history = [*history, HumanMessage(f"Question {number}")]
        asked = [SystemMessage(policy + since((3, BRIEF))(number)), *history]
        if way == "invoke":
            reply = model.invoke(asked)
        else:
            first, *rest = model.stream(asked)
            for chunk in rest:
                first = first + chunk
            reply = AIMessage(**{name: getattr(first, name) for name in ("content", "response_metadata")})
        history.append(reply)
    assert not wires.failed
    assert [words(body) for body in wires.bodies] == [[], [], [SAID], [SAID]]
    assert whole(wires, range(4))
    assert breaks(ledger) == [[]] * 4
    assert verified(ledger)


def test_nothing_of_it_is_kept_but_its_placeholders(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, head_store: HeadStore
) -> None:
    prompt = Prompt(policy, lambda number: f"\nAs of 2026-11-29T10:0{number}:00Z be brief." if number > 1 else "")
    agent = make(make_model("claude-opus-5"), desk, prompt, stable(), saver=InMemorySaver())
    for _ in range(3):
        agent.invoke({"messages": [HumanMessage("Hello")]}, {"configurable": {"thread_id": "one"}})
    assert words(wires.bodies[2]) == ["Added to the instructions:\nAs of [[clock]] be brief."]
    assert [json.dumps(body).count("10:0") for body in wires.bodies] == [0, 1, 1]
    assert wires.texts[2].count("Now:\\nclock: 2026-11-29T10:03:00Z") == 1
