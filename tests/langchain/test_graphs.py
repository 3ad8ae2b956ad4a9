"""Plain LangGraph graphs: thread ids, checkpointers, and tool loops with a `ToolNode`."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from headstay import HeadStore, Ledger, Slot
from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve
from langchain_headstay import cache_aware

Chat = Callable[..., BaseChatModel]


@tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


@tool
def get_news(topic: str) -> str:
    """Tell the news on a topic."""
    return f"nothing new on {topic}"


@tool
def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


TOOLS = [get_weather, get_news, send_mail]


def clock(number: int) -> str:
    return f"2026-11-29 11:{number:02}:09"


def respond(wire: str, body: Any) -> Reply:
    """Call a tool twice in a row after each question, then answer; never repeat what was said."""
    items = body.get("messages") or body["input"]
    turn = 0
    for item in items:
        said = item.get("content") if isinstance(item.get("content"), list) else []
        result = item.get("role") == "tool" or item.get("type") == "function_call_output"
        result = result or any(part.get("type") == "tool_result" for part in said)
        turn = turn + 1 if result else 0 if item.get("role") == "user" else turn
    if body.get("tools") and turn < 2:
        return Reply(tool_calls=(ToolCall("get_weather", {"city": f"Rome {turn}"}),))
    return Reply("Noted.")


@pytest.fixture(scope="module")
def calling_server() -> Iterator[Emulator]:
    with serve(clock=ManualClock(), responder=respond) as running:
        yield running


@pytest.fixture
def server(calling_server: Emulator) -> Emulator:
    calling_server.reset()
    return calling_server


def chat_graph(model: Any, system: Callable[[], str], checkpointer: BaseCheckpointSaver[Any]) -> Any:
    graph = StateGraph(MessagesState)

    def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([SystemMessage(system()), *state["messages"]])]}

    graph.add_node("model", call)
    graph.add_edge(START, "model")
    return graph.compile(checkpointer=checkpointer)


def loop_graph(model: Any, system: Callable[[], str]) -> Any:
    """Build a tool loop whose system text and whose order of tools are new in every call."""
    graph = StateGraph(MessagesState)
    shuffler = random.Random(7)

    def call(state: MessagesState) -> dict[str, Any]:
        given = shuffler.sample(TOOLS, len(TOOLS))
        return {"messages": [model.bind_tools(given).invoke([SystemMessage(system()), *state["messages"]])]}

    graph.add_node("model", call)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=InMemorySaver())


@pytest.fixture(params=["memory", "sqlite"])
def checkpointer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseCheckpointSaver[Any]]:
    if request.param == "memory":
        yield InMemorySaver()
        return
    with SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver:
        yield saver


def test_threads_of_one_graph_share_a_head_and_keep_their_conversations(
    chat: Chat,
    aware: Chat,
    checkpointer: BaseCheckpointSaver[Any],
    ledger: Ledger,
    policy: str,
    heads: Callable[[], list[str]],
) -> None:
    calls = iter(range(60))
    graph = chat_graph(aware(chat(), ledger=ledger), lambda: f"It is {clock(next(calls))}.\n{policy}", checkpointer)
    for turn in range(3):
        for thread in ("one", "two"):
            graph.invoke({"messages": [HumanMessage(f"{turn}?")]}, {"configurable": {"thread_id": thread}})
    rows = list(ledger.rows())
    assert len(set(heads())) == 1
    assert [row.conversation for row in rows] == [rows[0].conversation, rows[1].conversation] * 3
    assert rows[0].conversation != rows[1].conversation
    assert [row.breaks for row in rows] == [()] * 6
    assert [row.status for row in rows] == ["cold"] + ["ok"] * 5


def test_a_graph_goes_on_after_a_restart(
    chat: Chat, server: Emulator, tmp_path: Path, policy: str, heads: Callable[[], list[str]]
) -> None:
    calls = iter(range(60))
    config: RunnableConfig = {"configurable": {"thread_id": "one"}}
    found = []
    for turn in range(3):  # everything is opened anew each time
        with (
            SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
            Ledger(tmp_path / "ledger.db") as ledger,
        ):
            with HeadStore(tmp_path / "heads.db") as head_store:
                model = cache_aware(chat(), head_store=head_store, ledger=ledger, on_break="record")
                graph = chat_graph(model, lambda: f"It is {clock(next(calls))}.\n{policy}", saver)
                graph.invoke({"messages": [HumanMessage(f"{turn}?")]}, config)
            found = list(ledger.rows())
    assert len(set(heads())) == 1
    assert len({row.conversation for row in found}) == 1
    assert [(row.epoch, row.status, row.breaks) for row in found] == [(0, "cold", ()), (0, "ok", ()), (0, "ok", ())]


async def test_the_caller_is_known_in_an_async_graph_and_while_streaming(
    chat: Chat, aware: Chat, ledger: Ledger
) -> None:
    model = aware(chat(), ledger=ledger, tenant=lambda config: config["configurable"]["tenant"])
    graph = StateGraph(MessagesState)

    async def call(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph.add_node("model", call)
    graph.add_edge(START, "model")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for tenant in ("acme", "globex"):
        config: RunnableConfig = {"configurable": {"thread_id": tenant, "tenant": tenant}}
        given: Any = {"messages": [HumanMessage("Hi")]}
        pieces = [chunk async for chunk, _ in compiled.astream(given, config, stream_mode="messages")]
        assert pieces
    assert [row.tenant for row in ledger.rows()] == ["acme", "globex"]


def test_tools_in_any_order_are_one_byte_form(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str, heads: Callable[[], list[str]]
) -> None:
    calls = iter(range(60))
    graph = loop_graph(aware(chat(), ledger=ledger), lambda: f"It is {clock(next(calls))}.\n{policy}")
    for turn in range(2):
        graph.invoke({"messages": [HumanMessage(f"{turn}?")]}, {"configurable": {"thread_id": "one"}})
    # Two questions, each with two tool calls: three requests a question.
    assert len(server.exchanges) == 6
    assert [exchange.status for exchange in server.exchanges] == [200] * 6
    assert len({json.dumps(exchange.body["tools"]) for exchange in server.exchanges}) == 1
    assert len(set(heads())) == 1
    rows = list(ledger.rows())
    # Where a model takes no system message in place, the clock of the note is renewed at the human turn of a loop.
    in_place = not server.exchanges[0].body["model"].startswith("claude-sonnet")
    assert {found.owner for row in rows for found in row.breaks} == (set() if in_place else {"policy"})
    assert [row.status for row in rows] == ["cold"] + ["ok"] * 5
    for number, exchange in enumerate(server.exchanges):
        sent = json.dumps(exchange.body)
        assert [sent.count(clock(other)) for other in range(6)] == [int(other == number) for other in range(6)]


@pytest.mark.parametrize(("model", "place"), [("claude-opus-5-5", "in place"), ("claude-sonnet-4-6", "human turn")])
def test_where_the_note_stands_in_a_loop(
    claude_chat: Callable[..., ChatAnthropic], aware: Chat, server: Emulator, policy: str, model: str, place: str
) -> None:
    calls = iter(range(60))
    graph = loop_graph(aware(claude_chat(model)), lambda: f"It is {clock(next(calls))}.\n{policy}")
    graph.invoke({"messages": [HumanMessage("Well?")]}, {"configurable": {"thread_id": "one"}})
    assert len(server.exchanges) == 3
    for number, exchange in enumerate(server.exchanges):
        messages = exchange.body["messages"]
        holding = [index for index, message in enumerate(messages) if clock(number) in json.dumps(message)]
        if place == "in place":
            assert holding == [len(messages) - 1]
            assert messages[-1]["role"] == "system"
        else:
            # At the human turn for the length of the loop: text after tool results is a cause of empty answers.
            assert holding == [0]
            assert clock(number) in messages[0]["content"][-1]["text"]
            assert all(part["type"] == "tool_result" for message in messages[2::2] for part in message["content"])


def test_a_value_that_is_not_harmless_never_becomes_user_text(
    claude_chat: Callable[..., ChatAnthropic], aware: Chat, server: Emulator, ledger: Ledger, policy: str
) -> None:
    slot = Slot(r"role is (?P<role>\w+)\.", every="call")
    model = aware(claude_chat(), volatile=[slot], ledger=ledger)
    for role in ("administrator", "visitor"):
        model.invoke([SystemMessage(f"The caller's role is {role}.\n{policy}"), HumanMessage("Hi")])
        body = server.exchanges[-1].body
        assert role not in json.dumps(body["messages"])
        assert json.dumps(body["system"]).count(role) == 1
    (row, _) = ledger.rows()
    assert [(found.owner, found.path) for found in row.breaks] == [("policy", "system[0]")]


@pytest.fixture(scope="module")
def thinking_server() -> Iterator[Emulator]:
    with serve(clock=ManualClock()) as running:  # the built-in model thinks when asked to
        yield running


def test_thinking_that_binds_is_never_refused_where_the_bare_class_is(
    claude_chat: Callable[..., ChatAnthropic], aware: Chat, ledger: Ledger, policy: str, thinking_server: Emulator
) -> None:
    """A model that binds its thinking to the exact request: no note may go, and no value may be lost."""
    bare = claude_chat("claude-opus-5-5", base_url=thinking_server.base_url, thinking={"type": "adaptive"})

    def run(model: Any) -> None:
        thinking_server.reset()
        calls = iter(range(60))
        graph = loop_graph(model, lambda: f"It is {clock(next(calls))}.\n{policy}")
        for question in ("What is the weather in Rome?", "Thank you."):
            graph.invoke({"messages": [HumanMessage(question)]}, {"configurable": {"thread_id": "one"}})

    with pytest.raises(Exception, match=r"`(system|tools)` before it changed"):
        run(bare)
    run(aware(bare, ledger=ledger))
    sent = thinking_server.exchanges
    assert [exchange.status for exchange in sent] == [200] * 3
    for number, exchange in enumerate(sent):
        assert json.dumps(exchange.body).count(clock(number)) == 1
        assert ('"thinking"' in json.dumps(exchange.body["messages"])) is (number > 0)
    assert [(row.error, row.input_tokens is None) for row in ledger.rows()] == [(None, False)] * 3


def test_parallel_branches_of_a_graph_do_not_mix(
    gpt_chat: Callable[..., ChatOpenAI], aware: Chat, ledger: Ledger
) -> None:
    model = aware(gpt_chat(), ledger=ledger, tenant=lambda config: config["configurable"]["tenant"])
    graph = StateGraph(MessagesState)
    for name in ("left", "right"):
        graph.add_node(name, lambda state: {"messages": [model.invoke(state["messages"])]})
        graph.add_edge(START, name)
    compiled = graph.compile()
    given: Any = {"messages": [HumanMessage("Hi")]}
    compiled.batch([given] * 3, [{"configurable": {"tenant": tenant}} for tenant in ("a", "b", "c")])
    assert sorted(str(row.tenant) for row in ledger.rows()) == ["a", "a", "b", "b", "c", "c"]
