"""How agents of each kind are asked, and what the processes they run in find; all within this process."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import aiosqlite
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph

from headstay.emulator import Emulator
from headstay.rehearsal import RehearsalError
from headstay.rehearsal.drive import Driver, kind_of
from headstay.rehearsal.failure import one_line
from headstay.rehearsal.run import TURNS
from headstay.rehearsal.surroundings import FIRST_SEED, environment, other_seed

QUESTIONS = ("Hi, how are you?", "And why is it so?")
KEPT = [1, 3]
ALONE = [1, 1]
Gpt = Callable[..., Any]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def gpt(gpt_chat: Gpt) -> Any:
    return gpt_chat("gpt-5.4")


@pytest.fixture
def lengths(server: Emulator, runner: asyncio.Runner) -> Callable[..., list[int]]:
    """Ask an agent two questions; return how many messages there were in each request, system text aside."""

    def ask(made: Any, *, prefer_async: bool = False) -> list[int]:
        Driver(made, runner, prefer_async, "a").hold(QUESTIONS)
        sent = [exchange.body["messages"] for exchange in server.exchanges]
        assert [said[-1]["content"] for said in sent] == list(QUESTIONS)
        return [sum(item["role"] != "system" for item in said) for said in sent]

    return ask


class Named(MessagesState):
    user: str


def graph(gpt: Any) -> Any:
    made = StateGraph(Named)
    made.add_node("a", lambda state: {"messages": [gpt.invoke([("system", state["user"]), *state["messages"]])]})
    made.add_edge(START, "a")
    return made


@dataclass(frozen=True)
class Key:
    id: str


class Sessions:
    """Keeps histories by an id in the config, as a runnable with message history does."""

    history_factory_config = (Key("session_id"),)

    def __init__(self, gpt: Any) -> None:
        self.gpt = gpt
        self.store: dict[str, list[Any]] = {}

    def get_session_history(self, session_id: str) -> list[Any]:
        return self.store.setdefault(session_id, [])

    def invoke(self, text: str, config: Any = None) -> str:
        said = self.get_session_history(config["configurable"]["session_id"])
        said.append(("user", text))
        said.append(self.gpt.invoke(said))
        return str(said[-1].content)


def functional(gpt: Any) -> Any:
    @entrypoint(checkpointer=InMemorySaver())
    def workflow(question: str) -> str:
        return str(gpt.invoke(question).content)

    return workflow


HISTORY = ChatPromptTemplate([("system", "{rules}"), MessagesPlaceholder("history"), ("human", "{question}")])
RETRIEVED = {"context": RunnableLambda(lambda _: "c"), "question": RunnablePassthrough()}
CASES: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "chat model": (lambda gpt: gpt, KEPT),
    "agent": (lambda gpt: create_agent(gpt, [], system_prompt="s"), KEPT),
    "agent with a checkpointer": (lambda gpt: create_agent(gpt, [], checkpointer=InMemorySaver()), KEPT),
    "agent bound to a config": (lambda gpt: create_agent(gpt, []).with_config({"tags": ["x"]}), KEPT),
    "graph with a further field": (lambda gpt: graph(gpt).compile(checkpointer=InMemorySaver()), KEPT),
    "functional graph": (functional, ALONE),
    "messages placeholder": (lambda gpt: ChatPromptTemplate([MessagesPlaceholder("messages")]) | gpt, KEPT),
    "history placeholder": (lambda gpt: HISTORY | gpt, KEPT),
    "session history": (Sessions, KEPT),
    "retrieval chain": (lambda gpt: RETRIEVED | ChatPromptTemplate([("human", "{question}")]) | gpt, ALONE),
    "item of a dict": (lambda gpt: {"q": itemgetter("query")} | PromptTemplate.from_template("{q}") | gpt, ALONE),
    "untyped function": (lambda gpt: RunnableLambda(gpt.invoke), ALONE),
    "function of a dict": (lambda gpt: RunnableLambda(lambda fields: gpt.invoke(fields["question"])), ALONE),
    "function of messages": (lambda gpt: RunnableLambda(lambda said: gpt.invoke(said[-1]["content"])), ALONE),
}


@pytest.mark.parametrize("name", CASES)
def test_langchain_and_langgraph(lengths: Callable[..., list[int]], gpt: Any, name: str) -> None:
    make, expected = CASES[name]
    assert lengths(make(gpt)) == expected


def test_a_checkpointer_that_is_only_async(lengths: Callable[..., list[int]], runner: asyncio.Runner, gpt: Any) -> None:
    stack = contextlib.AsyncExitStack()

    async def make() -> Any:
        saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(":memory:"))
        return graph(gpt).compile(checkpointer=saver)

    made = runner.run(make())
    try:
        assert lengths(made, prefer_async=True) == KEPT
    finally:
        runner.run(stack.aclose())


@pytest.mark.parametrize("prefer_async", [False, True])
def test_a_checkpointer_whose_loop_has_ended(lengths: Callable[..., list[int]], gpt: Any, prefer_async: bool) -> None:
    """Its methods that are not async would wait for that loop for ever."""

    async def make() -> Any:
        return graph(gpt).compile(checkpointer=AsyncSqliteSaver(await aiosqlite.connect(":memory:")))

    made = asyncio.run(make())
    try:
        assert lengths(made.with_config({"tags": ["x"]}), prefer_async=prefer_async) == KEPT
    finally:
        asyncio.run(made.checkpointer.conn.close())


def test_a_checkpointer_that_is_not_async(lengths: Callable[..., list[int]], gpt: Any) -> None:
    """The graph has `ainvoke` all the same, and it is tried first."""
    with SqliteSaver.from_conn_string(":memory:") as saver:
        assert lengths(graph(gpt).compile(checkpointer=saver), prefer_async=True) == KEPT


@pytest.mark.parametrize("text", [text for turns, other in TURNS for text in (*turns, other)])
def test_no_question_names_a_tool(text: str) -> None:
    """Tools of a user's agent do something: the emulated model calls one whose longer words are in the question."""
    assert not [word for word in text.replace("?", " ").replace(",", " ").split() if len(word) >= 4]


class Engine:
    """Has the methods of a chat engine; it holds its own history."""

    def __init__(self, server: Emulator) -> None:
        self.said: list[Any] = []
        self.server = server

    def chat(self, message: str) -> str:
        self.said.append({"role": "user", "content": message})
        with openai.OpenAI(base_url=self.server.openai_url, api_key="a") as client:
            reply = client.chat.completions.create(model="gpt-5.4", messages=self.said)
        self.said.append({"role": "assistant", "content": reply.choices[0].message.content})
        return "done"

    def reset(self) -> None:
        self.said.clear()


class Query:
    def __init__(self, server: Emulator) -> None:
        self.server = server

    async def aquery(self, text: str) -> str:
        async with openai.AsyncOpenAI(base_url=self.server.openai_url, api_key="a") as client:
            await client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": text}])
        return "done"


class Workflow(Query):
    def run(self, user_msg: str) -> "asyncio.Task[str]":
        """Needs a running loop, and returns what is to be awaited."""
        return asyncio.get_running_loop().create_task(self.aquery(user_msg))


def test_a_chat_engine_is_reset_for_a_second_conversation(server: Emulator, runner: asyncio.Runner) -> None:
    driver = Driver(Engine(server), runner, False, "a")
    driver.hold(QUESTIONS)
    driver.hold(QUESTIONS[:1])
    assert [len(exchange.body["messages"]) for exchange in server.exchanges] == [1, 3, 1]


@pytest.mark.parametrize("kind", [Query, Workflow])
def test_query_engines_and_workflows(lengths: Callable[..., list[int]], server: Emulator, kind: type[Query]) -> None:
    assert lengths(kind(server)) == ALONE


def test_what_cannot_be_asked() -> None:
    class Server:
        def run(self, host: str, **options: object) -> None: ...

    assert kind_of(Server()) is None
    assert kind_of(Engine) is None
    assert kind_of(subprocess) is None
    assert kind_of("text") is None


def test_inputs_that_nobody_can_guess(runner: asyncio.Runner, gpt: Any) -> None:
    class Counted(MessagesState):
        count: int

    made = StateGraph(Counted)
    made.add_node("a", lambda state: {"messages": []})
    made.add_edge(START, "a")
    with pytest.raises(RehearsalError, match="its input 'count' is neither a text nor a list of messages; write a fun"):
        Driver(made.compile(), runner, False, "a").hold(QUESTIONS)
    wanting = RunnableLambda(lambda _: int("x"))
    with pytest.raises(RehearsalError, match=r"took neither a text, nor a dict, .* with a text: ValueError: invalid"):
        Driver(wanting, runner, False, "a").hold(QUESTIONS)


def test_the_environment_holds_no_key_and_leads_to_the_emulator() -> None:
    theirs = {
        **dict.fromkeys(("OPENAI_API_KEY", "anthropic_api_key", "TAVILY_API_KEY", "LANGSMITH_API_KEY"), "secret"),
        **dict.fromkeys(("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "AZURE_OPENAI_AD_TOKEN"), "secret"),
        **dict.fromkeys(("OPENAI_API_BASE", "ANTHROPIC_API_URL", "AZURE_OPENAI_ENDPOINT"), "https://gateway"),
        "LANGSMITH_TRACING": "true",
        **dict.fromkeys(("HTTP_PROXY", "https_proxy", "ALL_PROXY", "NO_PROXY", "ANTHROPIC_PROXY"), "http://proxy"),
        "PYTHONHASHSEED": "0",
        "DATABASE_URL": "db://host",
    }
    found = environment(theirs, base_url="http://127.0.0.1:7", openai_url="http://127.0.0.1:7/v1", seed=5)
    assert "secret" not in found.values()
    assert "https://gateway" not in found.values()
    assert found["OPENAI_API_KEY"] == found["ANTHROPIC_API_KEY"] == found["TAVILY_API_KEY"] == "none"
    assert found["OPENAI_BASE_URL"] == found["OPENAI_API_BASE"] == "http://127.0.0.1:7/v1"
    assert found["ANTHROPIC_BASE_URL"] == found["ANTHROPIC_API_URL"] == "http://127.0.0.1:7"
    assert found["LANGSMITH_TRACING"] == "false"
    assert {name: text for name, text in found.items() if name.upper().endswith("PROXY")} == {
        "NO_PROXY": "*",
        "no_proxy": "*",
        "grpc_proxy": "http://127.0.0.1:9",
        "no_grpc_proxy": "127.0.0.1,localhost",
    }
    assert found["DATABASE_URL"] == "db://host"
    assert found["PYTHONHASHSEED"] == "5"


@pytest.mark.parametrize("names", [["a", "b"], ["find_order", "refund"], ["x", "y", "z"]])
def test_a_seed_that_turns_a_set_of_names_around(names: list[str]) -> None:
    seeds = (FIRST_SEED, other_seed([[], names, ["alone"]]))
    script = "import sys; print(list(set(sys.argv[1:])))"
    one, other = (
        subprocess.run(
            [sys.executable, "-c", script, *names], check=True, capture_output=True, env={"PYTHONHASHSEED": str(seed)}
        ).stdout
        for seed in seeds
    )
    assert one != other


def test_a_seed_where_there_is_no_order() -> None:
    assert other_seed([]) == other_seed([["alone"], ["alone", "alone"]]) != FIRST_SEED


@given(st.text())
def test_one_line_is_one_line(text: str) -> None:
    shown = one_line(text)
    assert len(shown.splitlines()) <= 1
    assert len(shown) <= 400
