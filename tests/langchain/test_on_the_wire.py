"""What leaves: each current value once and as current, nothing of another conversation, nothing stale."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.history import RunnableWithMessageHistory

from headstay import Ledger
from headstay.emulator import Emulator
from langchain_headstay import cache_aware

Chat = Callable[..., BaseChatModel]
Way = Callable[[Any, Any, Any], Awaitable[str]]

# LangChain's own notices on stream_events(version="v3") and on its history wrapper.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is in beta"),
    pytest.mark.filterwarnings(r"ignore:(The class `)?\w+History`? (was|is) deprecated"),
]

PER_CALL = ("now", "request")
PER_CONVERSATION = ("customer", "account")


class Person(NamedTuple):
    tenant: str
    customer: str
    account: str


PEOPLE = [
    Person("acme", "Ada Lovelace", "ACC-1001"),
    Person("acme", "Charles Babbage", "ACC-1002"),
    Person("globex", "Grace Hopper", "ACC-2001"),
]


def values(person: Person, turn: int) -> dict[str, str]:
    """Make the values of one call; every one is a text that stands nowhere else."""
    number = PEOPLE.index(person) * 10 + turn
    return {
        "now": f"2026-11-29 10:{number:02}:07",
        "request": f"{number:08x}-0000-4000-8000-{number:012x}",
        "customer": person.customer,
        "account": person.account,
    }


@pytest.fixture
def server(quiet_server: Emulator) -> Emulator:
    quiet_server.reset()
    return quiet_server


@pytest.fixture
def prompt(policy: str) -> ChatPromptTemplate:
    system = "You support {customer}, account {account} (again: {account}).\nIt is {now}; request {request}.\n" + policy
    return ChatPromptTemplate.from_messages(
        [("system", system), MessagesPlaceholder("history", optional=True), ("human", "{question}")]
    )


def tenant_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["tenant"])


@pytest.fixture
def model(chat: Chat, aware: Chat, prompt: ChatPromptTemplate, ledger: Ledger) -> BaseChatModel:
    return aware(chat(), template=prompt, tenant=tenant_of, ledger=ledger)


def told(person: Person, turn: int) -> dict[str, Any]:
    return {**values(person, turn), "question": f"question {turn} of {person.customer}"}


def check(server: Emulator, asked: list[tuple[Person, int]]) -> None:
    """Search the recorded request bodies for every value there is."""
    assert len(server.exchanges) == len(asked)
    everything = {
        (who, turn, name): text for who in PEOPLE for turn in range(4) for name, text in values(who, turn).items()
    }
    for exchange, (person, turn) in zip(server.exchanges, asked, strict=True):
        sent = json.dumps(exchange.body, ensure_ascii=False)
        current = values(person, turn)
        for name in PER_CALL:
            assert sent.count(current[name]) == 1, name
        # Once for the model to read as a value; the customer's name also stands in the questions asked so far.
        assert sent.count(current["account"]) == 1
        assert sent.count(current["customer"]) == 1 + sent.count(f"of {current['customer']}")
        foreign = set(everything.values()) - set(current.values())
        assert [text for text in foreign if text in sent] == []


def check_heads(heads: Callable[[], list[str]], ledger: Ledger) -> None:
    """One head for everyone, one lane for each tenant, and no break."""
    assert len(set(heads())) == 1
    rows = list(ledger.rows())
    assert len({row.lane for row in rows}) == len({row.tenant for row in rows})
    assert [row.breaks for row in rows if row.breaks] == []


async def test_two_tenants_and_three_people_through_every_way(
    model: BaseChatModel,
    prompt: ChatPromptTemplate,
    way: Way,
    server: Emulator,
    ledger: Ledger,
    heads: Callable[[], list[str]],
) -> None:
    asked = []
    histories: dict[Person, list[BaseMessage]] = {person: [] for person in PEOPLE}
    for turn in range(3):
        for person in PEOPLE:
            config = {"configurable": {"tenant": person.tenant}}
            given = prompt.invoke({**told(person, turn), "history": histories[person]}).to_messages()
            text = await way(model, given, config)
            histories[person] += [given[-1], AIMessage(text)]
            asked.append((person, turn))
    check(server, asked)
    check_heads(heads, ledger)
    assert [row.tenant for row in ledger.rows()] == [person.tenant for person, _ in asked]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream", "batch", "abatch"], indirect=True)
async def test_a_chain_hands_the_config_down(
    model: BaseChatModel, prompt: ChatPromptTemplate, way: Way, server: Emulator, ledger: Ledger
) -> None:
    chain: Runnable[Any, Any] = prompt | model
    for person in PEOPLE:
        await way(chain, told(person, 0), {"configurable": {"tenant": person.tenant}})
    check(server, [(person, 0) for person in PEOPLE])
    assert [row.tenant for row in ledger.rows()] == [person.tenant for person in PEOPLE]


def test_a_bound_config_names_the_tenant(
    model: BaseChatModel, prompt: ChatPromptTemplate, server: Emulator, ledger: Ledger
) -> None:
    bound = model.with_config(configurable={"tenant": "acme"})
    bound.invoke(prompt.invoke(told(PEOPLE[0], 0)))
    (prompt | bound).invoke(told(PEOPLE[1], 0))
    check(server, [(PEOPLE[0], 0), (PEOPLE[1], 0)])
    assert [row.tenant for row in ledger.rows()] == ["acme", "acme"]


def test_one_batch_serves_several_tenants(
    model: BaseChatModel, prompt: ChatPromptTemplate, server: Emulator, ledger: Ledger
) -> None:
    configs: list[RunnableConfig] = [{"configurable": {"tenant": person.tenant}} for person in PEOPLE]
    (prompt | model).batch([told(person, 0) for person in PEOPLE], configs)
    by_tenant = sorted(str(row.tenant) for row in ledger.rows())
    assert by_tenant == ["acme", "acme", "globex"]
    for person in PEOPLE:
        holding = [one for one in server.exchanges if person.account in json.dumps(one.body)]
        assert len(holding) == 1


async def test_tasks_that_run_at_once_keep_their_tenants(
    model: BaseChatModel, prompt: ChatPromptTemplate, ledger: Ledger
) -> None:
    async def stream(person: Person) -> None:
        given = prompt.invoke(told(person, 0))
        async for _ in model.astream(given, {"configurable": {"tenant": person.tenant}}):
            await asyncio.sleep(0)

    await asyncio.gather(*(stream(person) for person in PEOPLE))
    assert sorted(str(row.tenant) for row in ledger.rows()) == ["acme", "acme", "globex"]
    assert all(row.head for row in ledger.rows())


def test_a_history_that_langchain_holds(
    model: BaseChatModel,
    prompt: ChatPromptTemplate,
    server: Emulator,
    ledger: Ledger,
    heads: Callable[[], list[str]],
) -> None:
    kept: dict[str, InMemoryChatMessageHistory] = {}
    chain = RunnableWithMessageHistory(
        prompt | model,
        lambda session_id: kept.setdefault(session_id, InMemoryChatMessageHistory()),
        input_messages_key="question",
        history_messages_key="history",
    )
    asked = []
    for turn in range(3):
        for person in PEOPLE:
            config: RunnableConfig = {"configurable": {"session_id": person.account, "tenant": person.tenant}}
            chain.invoke(told(person, turn), config)
            asked.append((person, turn))
    check(server, asked)
    check_heads(heads, ledger)
    conversations = [row.conversation for row in ledger.rows()]
    assert conversations[:3] == conversations[3:6] == conversations[6:]
    assert len(set(conversations)) == 3
    # From the second turn on, all that the turn before left is read.
    assert [row.status for row in ledger.rows()][3:] == ["ok"] * 6


def test_a_tail_is_sent_once_at_the_human_turn_and_never_again(
    chat: Chat, aware: Chat, server: Emulator, policy: str, talk: Callable[..., list[BaseMessage]]
) -> None:
    model = aware(chat(), tail=lambda config: f"Retrieved: <{config['configurable']['document']}>")
    history: list[BaseMessage] = []
    for turn in range(3):
        talk(model, policy, history, f"question {turn}", configurable={"document": f"document-{turn}"})
    for turn, exchange in enumerate(server.exchanges):
        sent = json.dumps(exchange.body)
        assert [sent.count(f"document-{number}") for number in range(3)] == [int(number == turn) for number in range(3)]
    assert all("document" not in str(message.content) for message in history if isinstance(message, HumanMessage))


def test_the_note_stands_behind_the_last_marker(
    chat: Chat, wire: str, prompt: ChatPromptTemplate, server: Emulator
) -> None:
    model = cache_aware(chat(), template=prompt)
    model.invoke(prompt.invoke(told(PEOPLE[0], 0)))
    (exchange,) = server.exchanges
    sent = json.dumps(exchange.body.get("messages") or exchange.body["input"])
    marker = "cache_control" if wire == "anthropic-messages" else "prompt_cache_breakpoint"
    assert sent.rindex(marker) < sent.index(values(PEOPLE[0], 0)["now"])
    assert sent.index("question 0") < sent.index(values(PEOPLE[0], 0)["request"])
