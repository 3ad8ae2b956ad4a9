"""Invariants over random histories: real agents on the wire, and conversations whose receipts are tampered with."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from headstay import HeadStore, Ledger
from headstay.call import Call
from headstay.emulator import Emulator
from headstay.flow import Flow, Settings
from langgraph_headstay import StableHeadMiddleware

NOTES = r"Now:|Private to"
TOOLS = ("alpha", "bravo", "charlie")
THREADS = (("north", 0), ("north", 1), ("south", 0))

turns = st.tuples(
    st.just("turn"),
    st.sampled_from(THREADS),
    st.lists(st.sampled_from([*TOOLS, "ghost"]), max_size=3),  # what the model calls, offered or not
    st.sets(st.sampled_from(TOOLS), min_size=1),  # what the application offers
    st.randoms(use_true_random=False),
)
forks = st.tuples(st.just("fork"), st.sampled_from(THREADS), st.integers(0, 3))


def mark(number: int) -> str:
    return f"2026-11-29T{10 + number // 60:02d}:{number % 60:02d}:00Z"


class Play:
    """Random turns and forks of one agent with two tenants, checked call by call."""

    def __init__(self, server: Emulator, model: str, desk: Any, wires: Any, policy: str) -> None:
        server.reset()
        self.wires, self.desk, self.ledger = wires, desk, Ledger()
        self.kept = "opus" in model
        common: dict[str, Any] = {"model": model, "api_key": "key-a", "max_retries": 0}
        made = (
            ChatAnthropic(**common, base_url=server.base_url, max_tokens=4_000)
            if model.startswith("claude")
            else ChatOpenAI(**common, base_url=server.openai_url, use_responses_api=True)
        )
        desk.system = lambda number: f"It is {mark(number)}.\n{policy}"
        desk.offer = lambda number, tools: self.offered(tools)
        ours = StableHeadMiddleware(
            name="desk",
            ledger=self.ledger,
            tenant=lambda runtime: runtime.context[0],
            tail=lambda runtime: f"Private to {runtime.context}.",
            on_break="record",
        )
        self.agent = create_agent(
            made,
            desk.tools(*TOOLS),
            middleware=[desk.middleware(), ours],
            checkpointer=InMemorySaver(),
            context_schema=tuple,
        )
        self.offers: set[str] = set(TOOLS)
        self.order: Any = None
        self.config: dict[Any, Any] = {thread: {"configurable": {"thread_id": str(thread)}} for thread in THREADS}
        self.parent: dict[Any, int] = {}  # the last call of each thread's branch
        self.lineage: dict[int, list[int]] = {}  # a call to those it continues
        self.owner: dict[int, Any] = {}
        self.at: dict[str, int] = {}  # checkpoint to the last call before it

    def offered(self, tools: Sequence[Any]) -> list[Any]:
        chosen = [tool for tool in tools if tool.name in self.offers]
        self.order.shuffle(chosen)
        return chosen

    def turn(self, thread: Any, called: list[str], offers: set[str], order: Any) -> None:
        self.offers, self.order = offers, order
        first = len(self.wires.bodies)
        del self.desk.ran[:]
        text = f"use {' '.join(called)}" if called else "Hello"
        self.agent.invoke({"messages": [("user", f"{first}: {text}")]}, self.config[thread], context=thread)
        self.config[thread] = {"configurable": {"thread_id": str(thread)}}
        assert sorted(self.desk.ran) == sorted(name for name in called if name in offers)  # I5
        for number in range(first, len(self.wires.bodies)):
            self.check(number, thread)
        latest = self.agent.get_state(self.config[thread]).config["configurable"]["checkpoint_id"]
        self.at[latest] = self.parent[thread]

    def fork(self, thread: Any, back: int) -> None:
        known = [
            state
            for state in self.agent.get_state_history(self.config[thread])
            if state.config["configurable"]["checkpoint_id"] in self.at
        ]
        if known:
            chosen = known[min(back, len(known) - 1)]
            self.config[thread] = chosen.config
            self.parent[thread] = self.at[chosen.config["configurable"]["checkpoint_id"]]

    def check(self, number: int, thread: Any) -> None:
        text, row = self.wires.texts[number], list(self.ledger.rows())[number]
        before = self.parent.get(thread)
        self.lineage[number] = [*self.lineage[before], before] if before is not None else []
        self.owner[number], self.parent[thread] = thread, number
        assert row.unverified is None
        assert row.error is None
        assert all(found.remedy for found in row.breaks)  # I10
        broken = {(str(found.cause), found.owner) for found in row.breaks}
        # Sonnet 4.6 has its note renewed at the human turn within a tool loop.
        assert broken <= {("tool_added", "application"), ("clock_in_head", "policy")}
        if before is not None and ("tool_added", "application") not in broken:
            assert self.wires.extends(before, number, kept=self.kept, notes=NOTES)  # I1, I2
        for other in range(number + 1):  # I3
            expected = int(other == number or (self.kept and other in self.lineage[number]))
            assert text.count(mark(other + 1)) == expected
        for other in THREADS:  # I9
            assert (f"Private to {other}." in text) == (other == thread)
        assert set(self.wires.tools(number)) <= set(TOOLS)


def play(server: Emulator, wires: Any, desk: Any, policy: str, model: str, steps: list[Any]) -> None:
    playing = Play(server, model, desk, wires, policy)
    for kind, thread, *rest in steps:
        getattr(playing, kind)(thread, *rest)
    assert not wires.failed
    declared: dict[str, set[str]] = {}
    for number, owner in playing.owner.items():
        declared.setdefault(owner[0], set()).update(wires.tools(number))


@settings(max_examples=12, deadline=None)
@given(
    model=st.sampled_from(["claude-opus-5-5", "claude-sonnet-4-6", "gpt-6.1-sol"]),
    steps=st.lists(st.one_of(turns, turns, turns, forks), min_size=3, max_size=7),
)
def test_random_agents(
    script_server: Emulator, make_desk: Callable[[], Any], make_wire: Callable[[], Any], model: str, steps: list[Any]
) -> None:
    """I1, I2, I3, I5, I9 and I10 over random turns, tool lists, tool calls, forks, threads and tenants."""
    play(script_server, make_wire(), make_desk(), "Be kind and brief. " * 300, model, steps)


TAMPERED = ("none", "drop", "swap", "forge", "trim", "merge", "double")
moves = st.tuples(
    st.integers(0, 3),  # which conversation: 0 and 1 of the first tenant, 2 and 3 of the second
    st.sampled_from(TAMPERED),
    st.integers(0, 3),  # with which other one
    st.integers(0, 9),  # where
    st.sampled_from(["Hello", "And then?"]),
)


class Talk:
    """Conversations on a model that binds its thinking, at the level of request bodies."""

    def __init__(self) -> None:
        self.flow = Flow(Settings("desk", on_break="record"), head_store=HeadStore(), ledger=Ledger())
        self.said: list[list[dict[str, Any]]] = [[] for _ in range(4)]
        self.receipts: list[list[Any]] = [[] for _ in range(4)]
        self.owner: list[int] = []
        self.sent: dict[int, list[str]] = {}

    def ask(self, number: int, text: str) -> Call:
        call_number = len(self.owner)
        self.owner.append(number)
        self.said[number].append({"role": "user", "content": text})
        body = {
            "model": "claude-opus-5-5",
            "max_tokens": 4_000,
            "thinking": {"type": "adaptive"},
            "system": f"It is {mark(call_number)}.\nBe kind.",
            "messages": list(self.said[number]),
        }
        call = self.flow.prepare(
            body,
            wire="anthropic-messages",
            tenant=f"tenant {number // 2}",
            thread=f"thread {number}",
            tail=f"Private {call_number}.",
            replies=list(self.receipts[number]),
            now=float(call_number),
        )
        self.flow.complete(call, None)
        thought = {"type": "thinking", "thinking": "", "signature": f"signed {call_number}"}
        self.said[number].append({"role": "assistant", "content": [thought, {"type": "text", "text": "Settled."}]})
        self.receipts[number].append(call.receipt)
        return call

    def tamper(self, kind: str, number: int, other: int, place: int) -> None:
        said, receipts = self.said[number], self.receipts[number]
        if not receipts:
            return
        place %= len(receipts)
        if kind == "drop":
            receipts[place] = None
        elif kind == "swap" and self.receipts[other]:
            receipts[place] = self.receipts[other][place % len(self.receipts[other])]
        elif kind == "forge":
            receipts[place] = {**(receipts[place] or {"note": "A" * 16}), "mac": "A" * 20}
        elif kind == "trim":
            del said[: 2 * place], receipts[:place]
        elif kind == "merge" and other != number:
            said += self.said[other]
            receipts += self.receipts[other]
        elif kind == "double":
            said += said[2 * place :]
            receipts += receipts[place:]


# Two conversations of one tenant begin alike, and one gets the other's reply out of a cache.
@example([(0, "none", 0, 0, "Hello"), (1, "none", 0, 0, "Hello"), (1, "swap", 0, 0, "And then?")])
@settings(max_examples=150, deadline=None)
@given(st.lists(moves, min_size=2, max_size=14))
def test_tampered_receipts(steps: list[Any]) -> None:
    """Whatever becomes of receipts: never another conversation's value, no failing call, each break recorded."""
    talk = Talk()
    tampered = [False] * 4
    for number, kind, other, place, text in steps:
        talk.tamper(kind, number, other, place)
        tampered[number] |= kind != "none"
        call = talk.ask(number, text)
        assert call.unverified is None
        sent = json.dumps(call.body)
        latest = len(talk.owner) - 1
        for earlier, owner in enumerate(talk.owner):
            for value in (mark(earlier), f"Private {earlier}."):
                assert sent.count(value) <= 1
                assert owner == number or value not in sent
        assert sent.count(mark(latest)) == sent.count(f"Private {latest}.") == 1
        pieces = [json.dumps(message) for message in call.body["messages"]]  # type: ignore[attr-defined]
        before = talk.sent.get(number)
        if before is not None and pieces[: len(before)] != before and _thought(before):
            # The history is not what this model's thinking was bound to: told to the provider, owned in the ledger.
            assert "drop_block" in sent
        if not tampered[number]:
            assert call.breaks == ()
            assert before is None or pieces[: len(before)] == before
            assert "drop_block" not in sent
        talk.sent[number] = pieces


def _thought(messages: list[str]) -> bool:
    return any("signature" in message for message in messages)
