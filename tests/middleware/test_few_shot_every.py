"""Few-shot examples for a conversation: asked once with its first question, behind a head that all share."""

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.example_selectors import LengthBasedExampleSelector
from langchain_core.prompts import PromptTemplate, SystemMessagePromptTemplate
from langgraph.checkpoint.memory import InMemorySaver

from headstay import HeadStore, Ledger
from headstay.errors import ConfigError

ORDER = "Where is my order?"
TENT = "My tent is torn."


class Similar:
    """Answers each question with an example of its own; asked again, it would choose another one."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.threads: set[bool] = set()

    def select_examples(self, input_variables: dict[str, str]) -> list[dict[str, str]]:
        self.asked.append(input_variables)
        self.threads.add(current_thread() is main_thread())
        question = next(iter(input_variables.values()), "any question")
        return [{"input": f"Like: {question}", "output": f"Choice {len(self.asked)}, of 2024-03-01T08:00:00Z."}]


@pytest.mark.parametrize("placed", ["system", "messages"])
async def test_each_conversation_has_its_own_behind_one_head(
    model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Ledger, placed: str
) -> None:
    selector = Similar()
    middleware = stable(few_shot=selector, few_shot_every="conversation", few_shot_as=placed, on_break="raise")
    agent = create_agent(
        model, desk.tools(), system_prompt=policy, middleware=[middleware], checkpointer=InMemorySaver()
    )
    for question, thread in ((ORDER, "one"), (TENT, "two"), ("use alpha", "one"), ("Thanks!", "two")):
        state = await run(agent, question, thread)
    assert selector.asked == [{"input": ORDER}, {"input": TENT}]
    assert not wires.failed
    for number, (own, foreign) in enumerate(
        [(ORDER, TENT), (TENT, ORDER), (ORDER, TENT), (ORDER, TENT), (TENT, ORDER)]
    ):
        assert wires.texts[number].count(f"Like: {own}") == 1
        assert f"Like: {foreign}" not in wires.texts[number]
        assert wires.texts[number].count("2024-03-01T08:00:00Z") == 1
    rows = list(ledger.rows())
    assert len({row.head for row in rows}) == 1
    assert [row.cache_read_tokens > 0 for row in rows] == [False, True, True, True, True]
    assert wires.extends(0, 2, kept=True)
    assert wires.extends(1, 4, kept=True)
    assert no_breaks()
    assert "Like:" not in str(state)


async def test_it_stands_behind_the_lanes_head_in_a_block_of_its_own(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    template = SystemMessagePromptTemplate.from_template("You help {name}.\n" + policy)
    desk.system = lambda number: f"You help Ada.\n{policy}"
    middleware = stable(few_shot=Similar(), few_shot_every="conversation", template=template)
    agent = create_agent(sonnet, desk.tools(), middleware=[desk.middleware(), middleware])
    agent.invoke({"messages": [("user", TENT)]})
    assert [block["text"] for block in wires.bodies[0]["system"]] == [
        f"You help [[name]].\n{policy}",
        "Examples for this conversation:\n[[examples]]",
        "Values for this conversation:\nname: Ada\n<examples>\n"
        f"input: Like: {TENT}\noutput: Choice 1, of 2024-03-01T08:00:00Z.\n</examples>",
    ]


async def test_without_a_thread_the_first_question_names_the_conversation(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    selector = Similar()
    middleware = stable(few_shot=selector, few_shot_every="conversation")
    agent = create_agent(sonnet, desk.tools(), system_prompt=policy, middleware=[middleware])
    for question in (ORDER, TENT):
        state = agent.invoke({"messages": [("user", question)]})
        agent.invoke({"messages": [*state["messages"], ("user", "And now?")]})
    assert [asked["input"] for asked in selector.asked] == [ORDER, TENT]
    assert ["Choice 1" in text for text in wires.texts] == [True, True, False, False]
    assert ["Choice 2" in text for text in wires.texts] == [False, False, True, True]


async def test_a_restart_and_ten_workers_keep_the_choice(
    sonnet: Any, desk: Any, stable: Any, wires: Any, tmp_path: Path
) -> None:
    def agent(selector: Similar) -> Any:
        store = HeadStore(tmp_path / "heads.db")
        middleware = stable(few_shot=selector, few_shot_every="conversation", head_store=store)
        return create_agent(sonnet, desk.tools(), middleware=[middleware])

    first, second = Similar(), Similar()
    running = agent(first)
    running.invoke({"messages": [("user", TENT)]}, {"configurable": {"thread_id": "one"}})
    again = agent(second)
    with ThreadPoolExecutor(10) as threads:
        asked = [{"messages": [("user", f"{number}")]} for number in range(10)]
        list(threads.map(lambda given: again.invoke(given, {"configurable": {"thread_id": "one"}}), asked))
    assert (len(first.asked), len(second.asked)) == (1, 0)
    assert all(text.count("Choice 1") == 1 for text in wires.texts)


async def test_tenants_share_no_choice(sonnet: Any, desk: Any, stable: Any, wires: Any) -> None:
    selector = Similar()
    middleware = stable(few_shot=selector, few_shot_every="conversation", tenant=lambda runtime: runtime.context)
    agent = create_agent(sonnet, desk.tools(), middleware=[middleware], context_schema=str)
    for tenant in ("north", "south", "north"):
        agent.invoke({"messages": [("user", TENT)]}, {"configurable": {"thread_id": "one"}}, context=tenant)
    assert [f"Choice {number}" in text for text, number in zip(wires.texts, (1, 2, 1), strict=True)] == [True] * 3
    assert len(selector.asked) == 2


async def test_a_function_and_input_keys_get_the_question(sonnet: Any, desk: Any, stable: Any, wires: Any) -> None:
    def similar(question: str) -> list[dict[str, str]]:
        return [{"input": f"Like: {question}", "output": "Yes."}]

    class Keyed(Similar):
        input_keys = ("query", "topic")

    keyed = Keyed()
    for few_shot in (similar, keyed):
        middleware = stable(few_shot=few_shot, few_shot_every="conversation")
        create_agent(sonnet, desk.tools(), middleware=[middleware]).invoke({"messages": [("user", TENT)]})
    assert all(f"Like: {TENT}" in text for text in wires.texts)
    assert keyed.asked == [{"query": TENT, "topic": TENT}]


async def test_a_selector_does_not_hold_up_the_event_loop(sonnet: Any, desk: Any, stable: Any) -> None:
    for every in ("lane", "conversation"):
        selector = Similar()
        middleware = stable(few_shot=selector, few_shot_every=every, name=every)
        agent = create_agent(sonnet, desk.tools(), middleware=[middleware])
        await agent.ainvoke({"messages": [("user", TENT)]})
        assert selector.threads == {False}


async def test_a_broken_selector_costs_the_examples_and_not_the_head(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger, caplog: Any
) -> None:
    def similar(question: str) -> list[dict[str, str]]:
        if question == TENT:
            raise LookupError("the vector store is down")
        return [{"question": question, "answer": "Yes."}] if question == ORDER else []

    middleware = stable(few_shot=similar, few_shot_every="conversation", on_break="warn")
    agent = create_agent(sonnet, desk.tools(), system_prompt=policy, middleware=[middleware])
    for question in (ORDER, TENT, "Nothing is like this."):
        agent.invoke({"messages": [("user", question)]})
    assert not wires.failed
    assert len({row.head for row in ledger.rows()}) == 1
    assert [row.cache_read_tokens > 0 for row in ledger.rows()] == [False, True, True]
    assert all("Examples for this conversation:\\n[[examples]]" in text for text in wires.texts)
    (said,) = [record.message for record in caplog.records]
    assert said == "desk: few_shot= could not be used: LookupError: the vector store is down"


async def test_what_cannot_be_written_as_messages_is_said_and_not_kept(
    sonnet: Any, desk: Any, stable: Any, wires: Any, caplog: Any
) -> None:
    few_shot = [[{"q": "x"}], [{"input": "Hi", "output": "Hello."}]]
    for every in ("lane", "conversation"):
        chosen = iter(few_shot)
        middleware = stable(
            few_shot=lambda *question, chosen=chosen: next(chosen),
            few_shot_every=every,
            few_shot_as="messages",
            on_break="warn",
            name=every,
        )
        agent = create_agent(sonnet, desk.tools(), middleware=[middleware])
        for _ in range(3):
            agent.invoke({"messages": [("user", TENT)]})
    assert not wires.failed
    assert [len(body["messages"]) for body in wires.bodies] == [1, 3, 3] * 2
    assert ["needs 'input' and 'output'" in record.message for record in caplog.records] == [True, True]


@dataclass
class Nearest:
    """A selector with declared settings, and with something that no declaration holds."""

    index: object
    k: int = 1
    asked: int = 0

    def __post_init__(self) -> None:
        self.connection = object()

    def select_examples(self, input_variables: dict[str, str]) -> list[dict[str, str]]:
        self.asked += 1
        return [{"input": f"{self.k} nearest", "output": "Yes."}]


@pytest.mark.parametrize("every", ["lane", "conversation"])
async def test_a_deploy_with_another_declaration_does_not_bring_the_old_examples_back(
    sonnet: Any, desk: Any, stable: Any, wires: Any, tmp_path: Path, every: str
) -> None:
    def deploy(few_shot: Any, **settings: Any) -> str:
        with HeadStore(tmp_path / "heads.db") as store:
            middleware = stable(few_shot=few_shot, few_shot_every=every, head_store=store, **settings)
            agent = create_agent(sonnet, desk.tools(), middleware=[middleware])
            agent.invoke({"messages": [("user", TENT)]}, {"configurable": {"thread_id": "one"}})
        return str(wires.texts[-1])

    shown = PromptTemplate.from_template("{input} {output}")

    def by_length(*answers: str) -> Any:
        examples = [{"input": "Hi", "output": answer} for answer in answers]
        return LengthBasedExampleSelector(examples=examples, example_prompt=shown, max_length=30)

    assert "1 nearest" in deploy(Nearest(object()))
    kept = Nearest(object())
    assert "1 nearest" in deploy(kept)
    assert kept.asked == 0  # another index object is no other declaration
    assert "2 nearest" in deploy(Nearest(object(), k=2))
    assert "Hello" in deploy(by_length("Hello"))
    assert "Good day" in deploy(by_length("Good day"))  # the examples are a declared field of LangChain's own

    similar = Similar()  # nothing of it is declared: only its name counts, until the application says otherwise
    assert "Choice 1" in deploy(similar)
    assert "Choice 1" in deploy(similar)
    assert "Choice 2" in deploy(similar, few_shot_version="2026-12")
    assert "Choice 1" in deploy(similar)


def test_a_choice_in_use_is_not_among_the_oldest_that_the_store_forgets(
    sonnet: Any, desk: Any, stable: Any, wires: Any, tmp_path: Path
) -> None:
    store = HeadStore(tmp_path / "heads.db")
    selector = Similar()
    agent = create_agent(
        sonnet,
        desk.tools(),
        middleware=[stable(few_shot=selector, few_shot_every="conversation", head_store=store)],
    )
    agent.invoke({"messages": [("user", TENT)]})
    with closing(sqlite3.connect(tmp_path / "heads.db", isolation_level=None)) as connection:
        ((text, at),) = connection.execute("SELECT text, at FROM notes").fetchall()
        held = {**json.loads(text), "at": at - 7_200}  # two hours ago
        connection.execute("UPDATE notes SET text = ?, at = ?", (json.dumps(held), at - 7_200))
        agent.invoke({"messages": [("user", TENT)]})
        ((renewed,),) = connection.execute("SELECT at FROM notes").fetchall()
        assert renewed >= at
        agent.invoke({"messages": [("user", TENT)]})
        assert connection.execute("SELECT at FROM notes").fetchall() == [(renewed,)]  # not with every call
    assert len(selector.asked) == 1
    assert all(text.count("Choice 1") == 1 for text in wires.texts)


def test_what_cannot_work_is_refused_at_once(stable: Any) -> None:
    with pytest.raises(ConfigError, match='few_shot_every="conversation" needs a selector or a function'):
        stable(few_shot=[{"input": "Hi", "output": "Hello."}], few_shot_every="conversation")
    with pytest.raises(ConfigError, match='few_shot_every=\'call\': say "lane" or "conversation"'):
        stable(few_shot=Similar(), few_shot_every="call")
