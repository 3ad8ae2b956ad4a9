"""I5 where the reply alone does not tell: edited calls, replies that lost id and metadata, tools added natively."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Command

from headstay import HeadStore
from langgraph_headstay.offers import Offers, place_of

CONFIG: Any = {"configurable": {"thread_id": "one"}}


def without(*names: str) -> Any:
    return lambda number, tools: [tool for tool in tools if tool.name not in names]


def edit(name: str) -> Any:
    return {"type": "edit", "edited_action": {"name": name, "args": {"x": 7}}}


def statuses(state: Any) -> dict[str, str]:
    return {message.name: message.status for message in state["messages"] if message.type == "tool"}


@pytest.mark.parametrize("order", ["reviewed before", "reviewed behind"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_human_edit_to_a_masked_tool_is_refused(
    make_model: Any, desk: Any, stable: Any, tmp_path: Path, order: str, restarted: bool
) -> None:
    """The model called alpha and charlie, both offered; the human turns alpha into bravo, which is not."""
    desk.offer = lambda number, tools: tools if number == 1 else without("bravo")(number, tools)

    def agent() -> Any:
        ours = stable(head_store=HeadStore(tmp_path / "heads.db"))
        review = HumanInTheLoopMiddleware(dict.fromkeys(("alpha", "bravo", "charlie"), True))
        middleware = (
            [review, desk.middleware(), ours] if order == "reviewed before" else [desk.middleware(), ours, review]
        )
        return create_agent(make_model("claude-opus-5-5"), desk.tools(), middleware=middleware, checkpointer=saver)

    with closing(sqlite3.connect(tmp_path / "threads.db", check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        running = agent()
        running.invoke({"messages": [("user", "Hello")]}, CONFIG)
        running.invoke({"messages": [("user", "use alpha charlie")]}, CONFIG)
        if restarted:
            running = agent()
        state = running.invoke(Command(resume={"decisions": [edit("bravo"), edit("alpha")]}), CONFIG)
    assert desk.ran == ["alpha"]
    (refused,) = [message for message in state["messages"] if message.type == "tool" and message.status == "error"]
    assert refused.content.endswith("Error: the tool bravo is not available now. Go on without it.")


@pytest.mark.parametrize("order", ["reviewed before", "reviewed behind"])
async def test_a_human_edit_of_a_masked_call_to_an_offered_tool_runs(
    make_model: Any, desk: Any, stable: Any, order: str
) -> None:
    desk.offer = without("bravo")
    review, ours = HumanInTheLoopMiddleware({"bravo": True}), stable()
    middleware = [review, desk.middleware(), ours] if order == "reviewed before" else [desk.middleware(), ours, review]
    agent = create_agent(
        make_model("claude-opus-5-5"), desk.tools(), middleware=middleware, checkpointer=InMemorySaver()
    )
    agent.invoke({"messages": [("user", "use bravo")]}, CONFIG)
    agent.invoke(Command(resume={"decisions": [edit("alpha")]}), CONFIG)
    assert desk.ran == ["alpha"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("name", ["claude-opus-5-5", "gpt-5.4"])
async def test_a_reply_that_lost_its_metadata_in_another_process(
    make_model: Any, desk: Any, stable: Any, tmp_path: Path, name: str, way: str
) -> None:
    """The client held the history in OpenAI's form, which has neither ids of messages nor metadata."""
    desk.offer = lambda number, tools: tools if number == 1 else without("bravo")(number, tools)
    saver = InMemorySaver()

    def agent() -> Any:
        review = HumanInTheLoopMiddleware({"alpha": True, "bravo": True})
        ours = stable(head_store=HeadStore(tmp_path / "heads.db"))
        return create_agent(
            make_model(name), desk.tools(), middleware=[review, desk.middleware(), ours], checkpointer=saver
        )

    first = agent()
    first.invoke({"messages": [("user", "Hello")]}, CONFIG)
    state = first.invoke({"messages": [("user", "use alpha bravo")]}, CONFIG)
    held = convert_to_messages(convert_to_openai_messages(state["messages"]))
    assert not any(message.id or message.response_metadata for message in held)

    second = agent()
    second.update_state(CONFIG, {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *held]}, as_node="model")
    for given_now in (None, Command(resume={"decisions": [{"type": "approve"}] * 2})):
        state = await second.ainvoke(given_now, CONFIG) if way == "ainvoke" else second.invoke(given_now, CONFIG)
    assert desk.ran == ["alpha"]
    assert statuses(state) == {"alpha": "success", "bravo": "error"}


async def test_a_reply_that_another_middleware_makes_anew_without_a_thread(sonnet: Any, desk: Any, stable: Any) -> None:
    class Anew(AgentMiddleware[Any, Any, Any]):
        def after_model(self, state: Any, runtime: Any) -> Any:
            last = state["messages"][-1]
            return {"messages": [RemoveMessage(last.id), AIMessage(last.text, tool_calls=last.tool_calls)]}

    desk.offer = without("bravo")
    agent = create_agent(sonnet, desk.tools(), middleware=[Anew(), desk.middleware(), stable()])
    state = agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha"]
    assert statuses(state) == {"alpha": "success", "bravo": "error"}


async def test_calls_numbered_from_one_in_every_turn_of_a_thread(
    make_model: Any, desk: Any, stable: Any, tmp_path: Path
) -> None:
    """What was refused in one turn runs in the next, where it is offered, also in a process that saw neither."""

    class SameIds(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            response = handler(request)
            (reply,) = response.result
            calls = [{**call, "id": f"call_{number}"} for number, call in enumerate(reply.tool_calls)]
            response.result = [AIMessage(reply.text, tool_calls=calls)]
            return response

    desk.offer = lambda number, tools: tools if number != 2 else without("alpha")(number, tools)
    saver = InMemorySaver()

    def agent() -> Any:
        review = HumanInTheLoopMiddleware({"alpha": True})
        ours = stable(head_store=HeadStore(tmp_path / "heads.db"))
        middleware = [review, desk.middleware(), ours, SameIds()]
        return create_agent(make_model("gpt-5.4"), desk.tools(), middleware=middleware, checkpointer=saver)

    agent().invoke({"messages": [("user", "Hello")]}, CONFIG)
    for _ in range(2):
        agent().invoke({"messages": [("user", "use alpha")]}, CONFIG)
        agent().invoke(Command(resume={"decisions": [{"type": "approve"}]}), CONFIG)
        desk.ran.append("|")
    assert desk.ran == ["|", "alpha", "|"]


@pytest.mark.parametrize("name", ["claude-opus-5-5", "gpt-6.1-sol"])
async def test_a_tool_that_a_middleware_further_inside_adds_natively_is_offered(
    make_model: Any, desk: Any, stable: Any, wires: Any, name: str
) -> None:
    """As skills of deepagents do: the definition comes in the conversation, behind our back."""
    alpha, bravo = desk.tools("alpha", "bravo")
    about, schema = {"name": "bravo", "description": bravo.description}, bravo.args_schema.model_json_schema()
    blocks: dict[str, Any] = {
        "claude-opus-5-5": {
            "type": "tool_addition",
            "tool": {"type": "tool_definition", "definition": {**about, "input_schema": schema}},
        },
        "gpt-6.1-sol": {
            "type": "additional_tools",
            "role": "developer",
            "tools": [{"type": "function", **about, "parameters": schema}],
        },
    }
    betas = {"betas": ["mid-conversation-tool-changes-2026-07-01"]} if name.startswith("claude") else {}

    class Discloses(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            first, *rest = request.messages
            messages = [first, SystemMessage([blocks[name]]), *rest]
            return handler(request.override(messages=messages, model_settings=betas))

    desk.offer = without("bravo")
    agent = create_agent(make_model(name), [alpha, bravo], middleware=[desk.middleware(), stable(), Discloses()])
    state = agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert not wires.failed
    assert sorted(desk.ran) == ["alpha", "bravo"]
    assert statuses(state) == {"alpha": "success", "bravo": "success"}


async def test_a_head_store_that_fails_costs_no_answer_and_no_refusal(
    make_model: Any, desk: Any, stable: Any, tmp_path: Path, caplog: Any
) -> None:
    store = HeadStore(tmp_path / "heads.db", strict=True)
    desk.offer = without("bravo")

    class Spoils(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            response = handler(request)
            with closing(sqlite3.connect(tmp_path / "heads.db")) as connection:
                connection.execute("DROP TABLE IF EXISTS notes")
            return response

    ours = stable(head_store=store, on_break="warn")
    agent = create_agent(make_model("gpt-5.4"), desk.tools(), middleware=[desk.middleware(), ours, Spoils()])
    agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha"]
    assert [record.message for record in caplog.records if "what was offered could not be kept" in record.message]


NAMES = ("alpha", "bravo", "charlie")
OFFERS = st.frozensets(st.sampled_from(NAMES))
REPLIES = st.lists(
    st.tuples(st.sampled_from(["one", "two", ""]), st.sampled_from(["Hello", "Help"]), st.booleans(), OFFERS),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(replies=REPLIES)
def test_an_offered_tool_is_never_refused_and_a_withheld_one_always(replies: list[Any]) -> None:
    """Numbered call ids, ids of messages or none; the process that made the reply, and another on the same store."""
    store = HeadStore()
    here = Offers(store)
    for number, (thread, said, has_id, offered) in enumerate(replies):
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": f"model:{number}"}}
        call = {"name": "alpha", "args": {}, "id": "call_0", "type": "tool_call"}
        reply = AIMessage("", id=f"reply-{number}" if has_id else None, tool_calls=[call])
        state = {"messages": [HumanMessage(said)]}
        here.keep(place_of("scope", config, state), reply, offered, withheld=offered != frozenset(NAMES))
        after: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": f"tools:{number}"}}
        place = place_of("scope", after, {"messages": [*state["messages"], reply]})
        for asked in (here, Offers(store)):
            assert [asked.refuses(place, reply, name) for name in NAMES] == [name not in offered for name in NAMES]
            assert not asked.refuses(place_of("other", after, state), reply, "alpha")  # nothing crosses tenants
