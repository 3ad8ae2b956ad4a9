"""Few-shot examples: chosen once for a lane, the same bytes for everyone, in system text or as messages."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.example_selectors import LengthBasedExampleSelector
from langchain_core.prompts import PromptTemplate, SystemMessagePromptTemplate
from langgraph.checkpoint.memory import InMemorySaver

from headstay import HeadStore
from headstay.errors import ConfigError

EXAMPLES = [{"input": "Where is it?", "output": "On its way."}, {"input": "Refund?", "output": "Of course."}]
TEXT = "Examples:\n\ninput: Where is it?\noutput: On its way.\n\ninput: Refund?\noutput: Of course."


class Selector:
    """Chooses other examples with each call, as a selector by similarity does."""

    def __init__(self) -> None:
        self.asked = 0
        self._lock = Lock()

    def select_examples(self, input_variables: dict[str, str]) -> list[dict[str, str]]:
        with self._lock:
            self.asked += 1
            return [{"input": f"question {self.asked}", "output": f"answer {self.asked}"}]


async def test_a_list_stands_behind_the_system_text(
    model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    agent = create_agent(
        model,
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(few_shot=EXAMPLES, on_break="raise")],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one"):
        state = await run(agent, "use alpha", thread)
    assert not wires.failed
    assert len({wires.head(number) for number in range(6)}) == 1
    assert all(text.count("On its way.") == 1 for text in wires.texts)
    assert TEXT.replace("\n", "\\n") in wires.head()
    assert policy.replace("\n", "\\n") in wires.head()
    assert "On its way" not in str(state)
    assert no_breaks()


async def test_a_selector_is_asked_once(sonnet: Any, desk: Any, stable: Any, wires: Any, tmp_path: Path) -> None:
    """Ten threads at once, then a restart: new objects and a new selector on the same file."""
    first, second = Selector(), Selector()

    def agent(selector: Selector) -> Any:
        store = HeadStore(tmp_path / "heads.db")
        return create_agent(sonnet, desk.tools(), middleware=[stable(few_shot=selector, head_store=store)])

    running = agent(first)
    with ThreadPoolExecutor(10) as threads:
        list(threads.map(lambda number: running.invoke({"messages": [("user", f"{number}")]}), range(10)))
    agent(second).invoke({"messages": [("user", "Hello")]})
    assert (first.asked, second.asked) == (1, 0)
    assert len(wires.bodies) == 11
    assert all(text.count("answer 1") == 1 for text in wires.texts)
    assert len({wires.head(number) for number in range(11)}) == 1


async def test_each_tenant_has_a_choice_of_its_own(sonnet: Any, desk: Any, stable: Any, wires: Any) -> None:
    selector = Selector()
    middleware = stable(few_shot=selector.select_examples.__self__, tenant=lambda runtime: runtime.context)
    agent = create_agent(sonnet, desk.tools(), middleware=[middleware], context_schema=str)
    for tenant in ("north", "south", "north"):
        agent.invoke({"messages": [("user", "Hello")]}, context=tenant)
    assert selector.asked == 2
    assert ["answer 1" in text for text in wires.texts] == [True, False, True]
    assert ["answer 2" in text for text in wires.texts] == [False, True, False]


async def test_a_callable_and_a_selector_of_langchain(sonnet: Any, desk: Any, stable: Any, wires: Any) -> None:
    asked: list[int] = []

    def choose() -> list[dict[str, str]]:
        asked.append(1)
        return EXAMPLES

    shown = PromptTemplate.from_template("{input} {output}")
    by_length = LengthBasedExampleSelector(examples=EXAMPLES, example_prompt=shown, max_length=4)
    for few_shot, name in ((choose, "one"), (by_length, "two")):
        agent = create_agent(sonnet, desk.tools(), middleware=[stable(few_shot=few_shot, name=name)])
        for _ in range(2):
            agent.invoke({"messages": [("user", "Hello")]})
    assert asked == [1]
    # The selector takes what fits into four words: "Where is it? On its way." alone has six.
    assert ["On its way" in text for text in wires.texts] == [True, True, False, False]


async def test_as_messages(
    model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Any
) -> None:
    agent = create_agent(
        model,
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(few_shot=EXAMPLES, few_shot_as="messages", on_break="raise")],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one"):
        state = await run(agent, "use alpha", thread)
    assert not wires.failed
    for body in wires.bodies:
        items = body.get("messages") or body.get("input")
        said = [item for item in items if item["role"] not in ("system", "developer")] if "input" not in body else []
        if said:
            assert [item["role"] for item in said[:4]] == ["user", "assistant", "user", "assistant"]
            assert "On its way." in str(said[1])
    assert all(text.count("Of course.") == 1 for text in wires.texts)
    assert [message.type for message in state["messages"][:2]] == ["human", "ai"]
    assert "Of course" not in str(state)
    assert no_breaks()
    assert len({row.conversation for row in ledger.rows()}) == 2


async def test_values_in_examples_are_examples(sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str) -> None:
    """A date in an example is not the time of this call."""
    examples = [
        {"input": "When?", "output": "It was 2024-03-01T08:00:00Z, order 6f1c0b1e-1111-4222-8333-123456789abc."}
    ]
    template = SystemMessagePromptTemplate.from_template("It is {clock}.\n" + policy)
    desk.system = lambda number: f"It is 2026-11-29T10:00:0{number}Z.\n{policy}"
    middleware = stable(few_shot=examples, template=template, on_break="raise")
    agent = create_agent(sonnet, desk.tools(), middleware=[desk.middleware(), middleware])
    for _ in range(2):
        agent.invoke({"messages": [("user", "Hello")]})
    assert len({wires.head(number) for number in range(2)}) == 1
    assert all(text.count("2024-03-01T08:00:00Z") == 1 for text in wires.texts)
    assert "It was 2024-03-01T08:00:00Z, order 6f1c0b1e" in wires.head()
    assert "It is [[clock]]" in wires.head()


async def test_a_broken_selector_costs_the_examples_and_nothing_else(
    sonnet: Any, desk: Any, stable: Any, wires: Any, caplog: Any
) -> None:
    def broken() -> list[dict[str, str]]:
        raise LookupError("the vector store is down")

    agent = create_agent(sonnet, desk.tools(), middleware=[stable(few_shot=broken, on_break="warn")])
    for _ in range(2):
        agent.invoke({"messages": [("user", "Hello")]})
    assert not wires.failed
    (said,) = [record.message for record in caplog.records if "few_shot" in record.message]
    assert "LookupError: the vector store is down" in said


def test_what_cannot_work_is_refused_at_once(stable: Any) -> None:
    with pytest.raises(ConfigError, match="no list of examples"):
        stable(few_shot=["a text"])
    with pytest.raises(ConfigError, match="needs 'input' and 'output'"):
        stable(few_shot=[{"q": "x"}], few_shot_as="messages")
    with pytest.raises(ConfigError, match='say "system" or "messages"'):
        stable(few_shot_as="text")
    with pytest.raises(ConfigError, match='say "auto" or "list"'):
        stable(late_tools="native")
