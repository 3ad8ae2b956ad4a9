"""`head_store="runtime"` where the store is missing, fails, is slow, or is written to by others at the same time."""

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import GetOp, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator
from headstay.errors import ConfigError
from headstay.headstore import LaneState
from headstay.headstore_shared import conversation_key
from headstay.toolset import ToolState
from langgraph_headstay import StableHeadMiddleware
from langgraph_headstay.runtime_store import Conversation, RuntimeStore

CONFIG: Any = {"configurable": {"thread_id": "one"}}
HELLO: Any = {"messages": [("user", "Hello")]}
HERE = Conversation("5c09e", conversation_key("one", ""))


class Watched(InMemoryStore):
    """Counts what is asked of it, and fails or waits as told."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.asked: list[str] = []
        self.values: list[Any] = []
        self.fails: tuple[str, ...] = ()
        self.free = threading.Event()
        self.free.set()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        for op in ops:
            kind = "get" if isinstance(op, GetOp) else "put"
            self.asked.append(kind)
            if kind in self.fails:
                raise ConnectionError("the database is gone")
            if isinstance(op, PutOp):
                self.values.append(op.value)
        assert self.free.wait(5)
        return super().batch(ops)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        while not self.free.is_set():
            await asyncio.sleep(0.001)
        return self.batch(ops)

    def text(self, key: str) -> Any:
        (space,) = self.list_namespaces(prefix=("headstay",))
        item = self.get(space, key)
        assert item is not None
        return json.loads(item.value["text"])


@pytest.fixture
def agent(make_model: Any, desk: Any, stable: Any, policy: str) -> Callable[..., Any]:
    def make(store: Any, model: str = "claude-sonnet-4-6", **given: Any) -> Any:
        ours = stable(**{"head_store": "runtime", "on_break": "warn", **given})
        return create_agent(
            make_model(model),
            desk.tools(),
            system_prompt=policy,
            middleware=[ours],
            checkpointer=InMemorySaver(),
            store=store,
        )

    return make


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("headstay")]


async def test_no_store(agent: Any, run: Any, ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    running = agent(None)
    for _ in range(2):
        await run(running, "use alpha")
    assert lines(caplog) == [
        'desk: head_store="runtime": this agent has no store, so heads, tools, notes and conversations stay in the '
        "memory of this process; give one: create_agent(..., store=...)"
    ]
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok", "ok"]


@pytest.mark.parametrize("fails", [("get",), ("put",), ("get", "put")])
async def test_a_store_that_raises(
    agent: Any, run: Any, wires: Any, ledger: Ledger, fails: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    store = Watched()
    store.fails = fails
    running = agent(store)
    for _ in range(3):
        state = await run(running, "use alpha")
        assert state["messages"][-1].text == "That is settled."
    what = "read" if "get" in fails else "written"
    (line,) = lines(caplog)
    if what == "read":
        assert line.startswith("desk: runtime.store could not be read: ConnectionError: the database is gone. The call")
    assert 1 <= store.asked.count(fails[0]) <= 2  # two documents may be asked for at once; then it is left alone
    assert [row.status for row in ledger.rows()] == ["cold"] + ["ok"] * 5
    assert all(row.unverified is None and not row.breaks for row in ledger.rows())
    assert not wires.failed


def test_what_could_not_be_written_is_written_later() -> None:
    """A key written at the beginning, then an outage; the note of the first call comes with the second."""
    store, said = Watched(), list[str]()
    ours = RuntimeStore(said.append, rest_s=0.0)
    with ours.sharing(store, HERE):
        ours.head_store.save_note(HERE.scope, "first", "said first", 1.0)
        store.fails = ("put",)
    store.fails = ()
    with ours.sharing(store, HERE):
        ours.head_store.save_note(HERE.scope, "second", "said second", 2.0)
    other = RuntimeStore(said.append)
    with other.sharing(store, HERE):
        assert other.head_store.note(HERE.scope, "first") == "said first"
        assert other.head_store.note(HERE.scope, "second") == "said second"
    assert len(said) == 1
    assert "could not be written: ConnectionError: the database is gone." in said[0]


def test_what_two_calls_of_a_conversation_could_not_write_is_written_later() -> None:
    """Two branches at once, both during an outage: neither's notes push the other's out."""
    store, said = Watched(), list[str]()
    ours = RuntimeStore(said.append, rest_s=0.0)
    with ExitStack() as outer, ExitStack() as inner:
        outer.enter_context(ours.sharing(store, HERE))
        ours.head_store.save_note(HERE.scope, "first", "said first", 1.0)
        inner.enter_context(ours.sharing(store, HERE))
        ours.head_store.save_note(HERE.scope, "second", "said second", 2.0)
        store.fails = ("put",)
    store.fails = ()
    with ours.sharing(store, HERE):
        pass
    other = RuntimeStore(said.append)
    with other.sharing(store, HERE):
        assert other.head_store.note(HERE.scope, "first") == "said first"
        assert other.head_store.note(HERE.scope, "second") == "said second"


def test_a_call_that_fails_keeps_what_it_learnt() -> None:
    store = InMemoryStore()
    ours, other = RuntimeStore(print), RuntimeStore(print)

    def call() -> None:
        with ours.sharing(store, HERE):
            ours.head_store.pin(HERE.scope, "few-shot", "chosen")
            raise LookupError

    with pytest.raises(LookupError):
        call()
    with other.sharing(store, HERE):
        assert other.head_store.pinned(HERE.scope, "few-shot") == "chosen"


async def test_a_call_that_is_cancelled_keeps_what_it_learnt() -> None:
    store, began = InMemoryStore(), asyncio.Event()
    ours, other = RuntimeStore(print), RuntimeStore(print)

    async def call() -> None:
        async with ours.asharing(store, HERE):
            ours.head_store.save_note(HERE.scope, "note", "said", 1.0)
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with ours.asharing(store, HERE):
        pass
    async with other.asharing(store, HERE):
        assert other.head_store.note(HERE.scope, "note") == "said"


@pytest.mark.parametrize("while_it", ["reads", "writes"])
async def test_a_call_that_is_cancelled_in_the_store_keeps_what_it_learnt(while_it: str) -> None:
    store = Watched()
    ours, other = RuntimeStore(print, rest_s=0.0), RuntimeStore(print)
    if while_it == "reads":  # with a note of the call before that is still to be written
        async with ours.asharing(store, HERE):
            ours.head_store.save_note(HERE.scope, "note", "said", 1.0)
            store.fails = ("put",)
        store.fails = ()
        store.free.clear()

    async def call() -> None:
        async with ours.asharing(store, HERE):
            ours.head_store.save_note(HERE.scope, "note", "said", 1.0)
            store.free.clear()

    task = asyncio.create_task(call())
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert not store.free.is_set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    store.free.set()
    async with ours.asharing(store, HERE):
        pass
    async with other.asharing(store, HERE):
        assert other.head_store.note(HERE.scope, "note") == "said"


def test_a_slow_store() -> None:
    store, said = Watched(), list[str]()
    store.free.clear()
    ours = RuntimeStore(said.append, patience_s=0.01)
    for _ in range(3):
        with ours.sharing(store, HERE):
            ours.head_store.save_note(HERE.scope, "note", "said", 1.0)
    store.free.set()
    assert ours.head_store.note(HERE.scope, "note") == "said"
    assert store.asked in ([], ["get"], ["get", "get"])  # of the first call, as far as it came
    assert said == [
        "runtime.store could not be read: it took more than 0.01 s. The call went on with what is in memory, and the "
        "store is left alone for 30 s"
    ]


async def test_a_slow_async_store() -> None:
    store, said = Watched(), list[str]()
    store.free.clear()
    ours = RuntimeStore(said.append, patience_s=0.01)
    for _ in range(3):
        async with ours.asharing(store, HERE):
            ours.head_store.save_note(HERE.scope, "note", "said", 1.0)
    store.free.set()
    assert ours.head_store.note(HERE.scope, "note") == "said"
    assert store.asked == []
    assert len(said) == 1


async def test_it_comes_back_after_its_rest() -> None:
    store, said = Watched(), list[str]()
    store.fails = ("get",)
    ours, other = RuntimeStore(said.append, rest_s=0.0), RuntimeStore(said.append)
    async with ours.asharing(store, HERE):
        ours.head_store.save_lane("lane", LaneState(ToolState(("a",), {"a": "{}"}, ("a",))))
        store.fails = ()
    async with other.asharing(store, HERE):
        assert other.head_store.lane("lane").tools.order == ("a",)


async def test_a_store_of_the_loop_refuses_a_synchronous_call_at_once(
    agent: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`invoke` on the event loop of an `AsyncSqliteStore`; AsyncPostgresStore does the same."""
    caplog.set_level(logging.WARNING)
    async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
        state = agent(store).invoke(HELLO, CONFIG)
    assert state["messages"][-1].text == "That is settled."
    (line,) = lines(caplog)
    assert "could not be read: InvalidStateError: Synchronous calls to AsyncSqliteStore" in line


async def test_a_synchronous_store_of_an_asynchronous_agent(
    agent: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
        store.setup()
        state = await agent(store).ainvoke(HELLO, CONFIG)
    assert state["messages"][-1].text == "That is settled."
    (line,) = lines(caplog)
    assert "NotImplementedError" in line


def test_threads_of_a_synchronous_agent(agent: Any, wires: Any, ledger: Ledger, tmp_path: Path) -> None:
    """Without an event loop the store is asked in a thread of its own."""
    with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
        store.setup()
        workers = [agent(store, "claude-opus-5-5", tail=lambda runtime: "Found: it.") for _ in range(2)]
        for number in range(4):
            given = {"messages": [("user", "use alpha")]}
            workers[number % 2].invoke(given, {"configurable": {"thread_id": str(number // 2)}})
    assert not wires.failed
    assert [row.status for row in ledger.rows()] == ["cold"] + ["ok"] * 7
    assert not any(row.breaks for row in ledger.rows())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"form": 3, "text": "{}"}, "a document is in form 3, and this version of headstay reads form 2; run one"),
        (
            {"form": 2, "text": "{}"},
            "KeyError: 'key'; if a document is damaged, delete the namespace ('headstay', '5c09e')",
        ),
        ({"form": 2, "text": "no"}, "JSONDecodeError: Expecting value"),
    ],
)
def test_a_document_that_cannot_be_read_is_left_as_it_is(value: Any, words: str) -> None:
    store, said = InMemoryStore(), list[str]()
    store.put(("headstay", HERE.scope), "scope", value)
    ours = RuntimeStore(said.append)
    with ours.sharing(store, HERE):
        ours.head_store.save_note(HERE.scope, "note", "said", 1.0)
    assert len(said) == 1
    assert words in said[0]
    assert [item.value for item in store.search(("headstay",))] == [value]


def test_a_damaged_document_of_one_tenant_stops_no_other() -> None:
    store, said = InMemoryStore(), list[str]()
    there = Conversation("07e4a", HERE.key)
    store.put(("headstay", HERE.scope), "scope", {"form": 2, "text": "no"})
    ours = RuntimeStore(said.append)
    with ours.sharing(store, HERE):
        pass
    with ours.sharing(store, there):
        ours.head_store.save_note(there.scope, "note", "said", 1.0)
    other = RuntimeStore(said.append)
    with other.sharing(store, there):
        assert other.head_store.note(there.scope, "note") == "said"
    assert len(said) == 1
    assert said[0].endswith("and these documents are left alone for 30 s")


def test_another_text_is_no_head_store() -> None:
    with pytest.raises(ConfigError, match=r"head_store='heads\.db': give a HeadStore"):
        StableHeadMiddleware(head_store="heads.db")  # type: ignore[arg-type]  # what a user may write


def test_workers_that_begin_together_agree_on_a_key() -> None:
    store = InMemoryStore()
    workers = [RuntimeStore(print) for _ in range(3)]
    keys = []
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker.sharing(store, HERE))
            keys.append(worker.head_store.secret())
    assert len(set(keys)) == 1
    with workers[0].sharing(store, Conversation("07e52", HERE.key)):
        assert workers[0].head_store.secret() not in keys  # a scope has its own


def test_two_workers_at_once_lose_nothing() -> None:
    """Both load before either saves: lanes, pins and notes are merged, and who saves first is first."""
    store = InMemoryStore()
    one, two, three = (RuntimeStore(print) for _ in range(3))
    with ExitStack() as first:
        first.enter_context(one.sharing(store, HERE))
        one.head_store.save_lane("lane", LaneState(ToolState(("a", "b"), {"a": "A", "b": "B"}, ("a", "b")), 4.0))
        one.head_store.pin(HERE.scope, "few-shot", "of one")
        one.head_store.save_note(HERE.scope, "one", "x" * 2_000, 1.0)
        with two.sharing(store, HERE):
            two.head_store.save_lane("lane", LaneState(ToolState(("b", "c"), {"b": "b", "c": "C"}, ("c",))))
            two.head_store.pin(HERE.scope, "few-shot", "of two")
            two.head_store.save_note(HERE.scope, "two", "of two", 2.0)
    for worker in (one, two, three):
        with worker.sharing(store, HERE):
            lane = worker.head_store.lane("lane")
            assert lane.tools.order == ("b", "c", "a")
            assert dict(lane.tools.forms) == {"b": "b", "c": "C", "a": "A"}
            assert lane.tools.client == ("c", "a", "b")
            assert lane.bytes_per_token == 4.0
            assert worker.head_store.pinned(HERE.scope, "few-shot") == "of two"
            assert worker.head_store.note(HERE.scope, "one") == "x" * 2_000
            assert worker.head_store.note(HERE.scope, "two") == "of two"


def test_nothing_is_written_that_did_not_change(agent: Any) -> None:
    """A key, then head, scope and conversation; from then on one document for each call."""
    store = Watched()
    running = agent(store)
    writes = []
    for _ in range(3):
        before = store.asked.count("put")
        running.invoke(HELLO, CONFIG)
        writes.append(store.asked.count("put") - before)
    assert writes == [4, 1, 1]


def test_documents_stay_small(agent: Any, policy: str) -> None:
    """The head's text stands in a document of its own, once."""
    store = Watched()
    running = agent(store)
    for _ in range(40):
        running.invoke(HELLO, CONFIG)
    assert len(store.text(conversation_key("one", ""))["calls"]) == 32
    assert policy[:50] not in json.dumps(store.text("scope"))
    (space,) = store.list_namespaces(prefix=("headstay",))
    assert sum(policy[:50] in json.dumps(item.value) for item in store.search(space, limit=100)) == 1


def test_a_store_that_embeds_what_it_holds(agent: Any) -> None:
    def embed(texts: Any) -> Any:
        raise AssertionError("nothing of ours is to be embedded")

    agent(InMemoryStore(index={"dims": 2, "embed": embed})).invoke(HELLO, CONFIG)


class Jsonb(InMemoryStore):
    """Holds values as PostgreSQL's jsonb does: keys in another order, and no NUL."""

    def put(self, namespace: tuple[str, ...], key: str, value: Any, index: Any = None, **given: Any) -> None:
        text = json.dumps(value, sort_keys=True)
        assert "\\u0000" not in text.replace("\\\\", "")
        super().put(namespace, key, json.loads(text), index, **given)


def test_a_store_that_sorts_keys_and_refuses_nul() -> None:
    store = Jsonb()
    one, two = RuntimeStore(print), RuntimeStore(print)
    with one.sharing(store, HERE):
        one.head_store.save_note(HERE.scope, "note", "a\x00b", 1.0)
        one.head_store.save_lane("lane", LaneState(ToolState(("z", "a"), {"z": "Z", "a": "A"})))
    with two.sharing(store, HERE):
        assert two.head_store.note(HERE.scope, "note") == "a\x00b"
        assert list(two.head_store.lane("lane").tools.forms) == ["z", "a"]


turns = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", ""]),
        st.lists(st.sampled_from(["alpha", "bravo", "charlie"]), max_size=2),
        st.sets(st.sampled_from(["alpha", "bravo", "charlie"]), min_size=1),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


def bare(body: str) -> str:
    """Leave out what the emulator counts up from test to test: ids, and signatures over them."""
    return re.sub(r'("(?:signature|encrypted_content)": ")[^"]+|\b([a-z]+_)[0-9]{6,}', r"\1\2", body)


@settings(max_examples=15, deadline=None)
@given(model=st.sampled_from(["claude-opus-5-5", "claude-sonnet-4-6", "gpt-6.1-sol", "gpt-5.4"]), steps=turns)
def test_one_worker_sends_the_same_bytes_as_with_a_head_store_in_memory(
    script_server: Emulator, make_desk: Any, make_wire: Any, model: str, steps: Any
) -> None:
    sent = []
    for head_store in (HeadStore(), "runtime"):
        script_server.reset()
        desk, common = make_desk(), {"model": model, "api_key": "key-a", "max_retries": 0}
        made = (
            ChatAnthropic(**common, base_url=script_server.base_url, max_tokens=4_000)
            if model.startswith("claude")
            else ChatOpenAI(**common, base_url=script_server.openai_url, use_responses_api=model == "gpt-6.1-sol")
        )
        desk.system = lambda number: f"It is 2026-11-29T10:{number:02d}:00Z.\n" + "Be kind and brief. " * 300
        asked = iter(range(1, 100))
        ours = StableHeadMiddleware(
            name="desk",
            head_store=head_store,
            few_shot=lambda question, asked=asked: [{"input": question, "output": f"Choice {next(asked)}"}],
            few_shot_every="conversation",
            on_break="record",
        )
        ledger: Any = ours.flow.ledger
        shared: dict[str, Any] = {"middleware": [desk.middleware(), ours], "store": InMemoryStore()}
        agent = create_agent(made, desk.tools(), checkpointer=InMemorySaver(), **shared)
        plain = create_agent(made, desk.tools(), **shared)
        for thread, called, offered, again in steps:
            desk.offer = lambda number, tools, offered=offered: [one for one in tools if one.name in offered]
            text = f"use {' '.join(called)}" if called else "Hello"
            for _ in range(1 + again):
                running = agent if thread else plain
                running.invoke(
                    {"messages": [("user", text)]}, {"configurable": {"thread_id": thread}} if thread else {}
                )
        rows = [(row.head, row.status, row.epoch, [str(found.cause) for found in row.breaks]) for row in ledger.rows()]
        sent.append(([bare(json.dumps(body)) for body in make_wire().bodies], rows))
    assert sent[0][0] == sent[1][0]
    assert sent[0][1] == sent[1][1]
