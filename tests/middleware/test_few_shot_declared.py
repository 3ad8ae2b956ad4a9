"""What can be known of `few_shot=` is said when the middleware is made; what changes later is named for what it is."""

import functools
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.example_selectors import LengthBasedExampleSelector
from langchain_core.prompts import PromptTemplate
from langgraph.checkpoint.memory import InMemorySaver

from headstay import HeadStore, Ledger
from headstay.errors import ConfigError

EXAMPLES = [{"input": "Hi", "output": "Hello."}]
Examples = list[dict[str, str]]


def every_time() -> Examples:
    return EXAMPLES


def similar(question: str) -> Examples:
    return [{"input": question, "output": "Yes."}]


def either(question: str = "") -> Examples:
    return EXAMPLES


async def soon(question: str = "") -> Examples:
    return EXAMPLES


class Plain:
    def select_examples(self, input_variables: dict[str, str]) -> Examples:
        return EXAMPLES


class Awaited:
    async def select_examples(self, input_variables: dict[str, str]) -> Examples:
        return EXAMPLES


class Narrow:
    def select_examples(self) -> Examples:
        return EXAMPLES


class Called:
    async def __call__(self, question: str = "") -> Examples:
        return EXAMPLES


@pytest.mark.parametrize(
    ("few_shot", "every", "said"),
    [
        ("ex", "lane", "few_shot= is of the type str: give a list of mappings"),
        ("ex", "conversation", "few_shot= is of the type str: give a list of mappings"),
        ({"input": "Hi", "output": "Hello."}, "lane", "few_shot= is of the type dict: give a list of mappings"),
        (7, "lane", "few_shot= is of the type int"),
        (Plain, "lane", "few_shot= is the class Plain: give an object of it"),
        (soon, "lane", "few_shot=soon is async: give a plain one"),
        (soon, "conversation", "few_shot=soon is async: give a plain one"),
        (functools.partial(soon, "Hi"), "lane", "few_shot=partial is async"),
        (Called(), "conversation", "few_shot=Called is async"),
        (Awaited(), "conversation", "few_shot=Awaited: its select_examples is async"),
        (Narrow(), "lane", r"few_shot=Narrow: its select_examples takes \(\).* and is called with one mapping"),
        (similar, "lane", r'few_shot=similar takes \(question: .*and is called without arguments: .*="conversation"'),
        (every_time, "conversation", r"few_shot=every_time takes \(\) .*first question of each conversation"),
        (None, "conversation", 'few_shot_every="conversation" needs few_shot=: a selector, or a function'),
    ],
)
def test_what_can_never_be_asked_is_refused_at_once(stable: Any, few_shot: Any, every: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        stable(few_shot=few_shot, few_shot_every=every)


@pytest.mark.parametrize("version", [2, None, 1.5, b"2"])
@pytest.mark.parametrize("few_shot", [None, EXAMPLES, every_time])
def test_a_version_is_a_text(stable: Any, version: Any, few_shot: Any) -> None:
    with pytest.raises(ConfigError, match=r'few_shot_version=.*: give a text, such as "2"'):
        stable(few_shot=few_shot, few_shot_version=version)


def decorated(function: Any) -> Any:
    """Wrap a function in one that gives it its argument."""

    @functools.wraps(function)
    def inner() -> Examples:
        return list(function("Hi"))

    return inner


@pytest.mark.parametrize(
    ("few_shot", "every"),
    [
        (every_time, "lane"),
        (similar, "conversation"),
        (either, "lane"),
        (either, "conversation"),
        (functools.partial(similar, "Hi"), "lane"),
        (decorated(similar), "lane"),
        (functools.cache(lambda: EXAMPLES), "lane"),
        (lambda *given: EXAMPLES, "lane"),
        (lambda *given: EXAMPLES, "conversation"),
        (Plain(), "lane"),
        (Plain(), "conversation"),
        (
            LengthBasedExampleSelector(
                examples=EXAMPLES, example_prompt=PromptTemplate.from_template("{input} {output}")
            ),
            "conversation",
        ),
    ],
)
def test_what_can_be_asked_is_taken(
    sonnet: Any, desk: Any, stable: Any, wires: Any, caplog: Any, few_shot: Any, every: str
) -> None:
    middleware = stable(few_shot=few_shot, few_shot_every=every, on_break="warn")
    create_agent(sonnet, desk.tools(), middleware=[middleware]).invoke({"messages": [("user", "Hello")]})
    assert not caplog.records
    assert '"text": "Examples' in wires.head() or "Examples for this conversation" in wires.texts[0]


async def test_a_coroutine_behind_a_plain_function_is_named(
    sonnet: Any, desk: Any, stable: Any, wires: Any, caplog: Any
) -> None:
    middleware = stable(few_shot=lambda: soon(), few_shot_every="lane", on_break="warn")  # noqa: PLW0108 - hides it
    agent = create_agent(sonnet, desk.tools(), middleware=[middleware])
    await agent.ainvoke({"messages": [("user", "Hello")]})
    assert not wires.failed
    (said,) = [record.message for record in caplog.records]
    assert "ConfigError: few_shot= gives a coroutine, so what it calls is async: give a plain one" in said


@pytest.mark.parametrize("every", ["lane", "conversation"])
def test_examples_that_change_in_a_conversation_have_a_remedy_of_their_own(
    sonnet: Any, desk: Any, stable: Any, policy: str, ledger: Ledger, every: str
) -> None:
    store, saver, asked = HeadStore(), InMemorySaver(), iter(range(10))

    def choose(question: str = "") -> Examples:
        number = next(asked)
        return [{"input": f"Order {number}", "output": f"On day {number}."}, *EXAMPLES]

    for version in ("1", "1", "2"):
        middleware = stable(few_shot=choose, few_shot_every=every, few_shot_version=version, head_store=store)
        agent = create_agent(sonnet, desk.tools(), system_prompt=policy, middleware=[middleware], checkpointer=saver)
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "one"}})
    assert [len(row.breaks) for row in ledger.rows()] == [0, 0, 1]
    (found,) = [found for row in ledger.rows() for found in row.breaks]
    assert str(found.cause) == "value_in_head"
    assert found.owner == "application"
    assert found.remedy == (
        "the examples changed: keep few_shot= and few_shot_version= as they are for running conversations; "
        "a change costs each of them one break"
    )


def test_a_value_beside_the_examples_keeps_its_slot_line(
    sonnet: Any, desk: Any, stable: Any, policy: str, ledger: Ledger
) -> None:
    """Also where the application's own variable has the name that the examples have elsewhere."""
    store, saver = HeadStore(), InMemorySaver()
    desk.system = lambda number: f"You have the examples {'abc'[number - 1]}.\n{policy}"
    for _ in range(2):
        middleware = stable(
            template="You have the examples {examples}.\n" + policy,
            few_shot=similar,
            few_shot_every="conversation",
            head_store=store,
        )
        agent = create_agent(sonnet, desk.tools(), middleware=[desk.middleware(), middleware], checkpointer=saver)
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "one"}})
    (found,) = [found for row in ledger.rows() for found in row.breaks]
    assert found.remedy == 'Slot("{examples}", every="call")'
