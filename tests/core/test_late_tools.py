"""Late tools: over random offers nothing sent ever moves, no tool stands twice, and every offered one is there."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay import HeadStore
from headstay.added import Addition, Place
from headstay.call import Call
from headstay.flow import Flow, Settings
from headstay.late import Carried, fresh_place, settle
from headstay.ledger.usage import Usage
from headstay.providers import anthropic, openai
from headstay.providers.rules import RULES, find_rules
from headstay.toolset import ToolState, fold, freeze_tools, merge_tools
from headstay.verify import verify
from headstay.weave import NoteText, weave
from headstay.wires import parse

Json = dict[str, Any]

MODELS = {"anthropic-messages": "claude-opus-5", "openai-responses": "gpt-6.1-sol"}
NAMES = ("alpha", "bravo", "charlie", "delta", "echo")
POLICY = "Answer briefly. " * 300
NAMED = (("alpha", 0), ("bravo", 0))


@dataclass(frozen=True)
class Step:
    """One call: whose turn it is, which tools are offered in which version, and what it adds."""

    thread: int
    offers: tuple[tuple[str, int], ...]
    results: bool
    retried: bool


OFFERS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from([0, 0, 0, 0, 0, 1])), unique_by=lambda pair: pair[0], min_size=1
)
STEPS = st.lists(
    st.builds(Step, st.integers(0, 2), OFFERS.map(tuple), st.booleans(), st.booleans()), min_size=2, max_size=14
)


def tool(wire: str, name: str, version: int) -> Json:
    about, schema = f"Does {name}, version {version}.", {"type": "object", "properties": {"x": {"type": "integer"}}}
    if wire == "anthropic-messages":
        return {"name": name, "description": about, "input_schema": schema}
    return {"type": "function", "name": name, "description": about, "parameters": schema}


def said(wire: str, number: int, *, results: bool) -> list[Json]:
    """What one call adds to its conversation: the answer before it, and a question or a tool's result."""
    call, text = f"call_{number}", f"Question {number}"
    if wire == "anthropic-messages":
        use = {"type": "tool_use", "id": call, "name": "alpha", "input": {"x": number}}
        answer: list[Json] = [use] if results else [{"type": "text", "text": f"Answer {number + 100}"}]
        given: list[Json] = [{"type": "tool_result", "tool_use_id": call, "content": "7"}]
        return [{"role": "assistant", "content": answer}, {"role": "user", "content": given if results else text}]
    if results:
        made = {"type": "function_call", "call_id": call, "name": "alpha", "arguments": "{}"}
        return [made, {"type": "function_call_output", "call_id": call, "output": "7"}]
    answer = [{"type": "output_text", "text": f"Answer {number + 100}"}]
    return [{"type": "message", "role": "assistant", "content": answer}, {"role": "user", "content": text}]


def play(wire: str, steps: Sequence[Step], stores: Iterator[HeadStore]) -> Iterator[tuple[Step, Call]]:
    """Send random calls of three conversations, each through the next head store."""
    histories: dict[int, list[Json]] = {}
    for number, step in enumerate(steps):
        history = histories.get(step.thread, [])
        if not step.retried or not history:
            opening: list[Json] = [{"role": "user", "content": f"Thread {step.thread}"}]
            history = [*history, *said(wire, number, results=step.results)] if history else opening
        histories[step.thread] = history
        body: Json = {"model": MODELS[wire], "tools": [tool(wire, *offer) for offer in step.offers]}
        if wire == "anthropic-messages":
            body |= {"system": POLICY, "messages": history, "max_tokens": 10}
        else:
            body["input"] = [{"role": "developer", "content": POLICY}, *history]
        flow = Flow(Settings("agent", union=True, on_break="record"), head_store=next(stores))
        call = flow.prepare(body, wire=wire, thread=str(step.thread), now=1_000.0 + number)
        flow.complete(call, Usage(input_tokens=2_000))
        yield step, call


def forever(store: HeadStore) -> Iterator[HeadStore]:
    while True:
        yield store


def pieces(body: Mapping[str, Any]) -> list[str]:
    """A request as a flat list in wire order, markers left out; a text alone and as a block read the same."""
    found = [json.dumps(declared) for declared in body["tools"]]
    for item in body["messages"] if "messages" in body else body["input"]:
        content = item.get("content", item.get("output"))
        blocks = [{"text": content}] if isinstance(content, str) else content or [item]
        for block in blocks:
            shown = block["text"] if "text" in block else {key: block[key] for key in block if key != "cache_control"}
            found.append(json.dumps([item.get("role"), item.get("call_id"), shown]))
    return found


def continues(after: Call, before: Call) -> bool:
    old = pieces(before.body)
    return pieces(after.body)[: len(old)] == old


def declared(body: Mapping[str, Any]) -> list[Json]:
    """All tool definitions of a request, the appended ones behind."""
    found = [{key: one[key] for key in one if key != "cache_control"} for one in body["tools"]]
    for item in body["messages"] if "messages" in body else body["input"]:
        content = item.get("content")
        blocks = [item, *(content if isinstance(content, list) else [])]
        found += [block["tool"]["definition"] for block in blocks if block.get("type") == "tool_addition"]
        found += [one for block in blocks if block.get("type") == "additional_tools" for one in block["tools"]]
    return found


@pytest.mark.parametrize("wire", MODELS)
@settings(max_examples=40)
@given(STEPS)
def test_i1_and_i2_what_was_sent_never_moves_but_by_a_recorded_break(wire: str, steps: list[Step]) -> None:
    sent: dict[int, list[tuple[Step, Call]]] = {}
    for step, call in play(wire, steps, forever(HeadStore())):
        assert call.unverified is None
        sent.setdefault(step.thread, []).append((step, call))
        tools = declared(call.body)
        names = [one["name"] for one in tools]
        assert len(names) == len(set(names))
        for name, version in step.offers:
            assert tool(wire, name, version) in tools, "what is offered is declared as it is now"
        assert call.plan is not None
        assert set(call.plan.masked) == set(names) - {name for name, _ in step.offers}
    for calls in sent.values():
        for number, (_, after) in enumerate(calls[1:], 1):
            unanswered = "call_" not in json.dumps(after.body) and "Answer 1" not in json.dumps(after.body)
            # a conversation is known from its first answer on; an old definition that comes back finds its old prefix
            assert after.breaks or unanswered or any(continues(after, before) for _, before in calls[:number])
            causes = {str(found.cause) for found in after.breaks}
            assert causes <= {"tool_description_changed"}


@pytest.mark.parametrize("wire", MODELS)
@settings(max_examples=40)
@given(STEPS)
def test_without_a_changed_definition_nothing_breaks_at_all(wire: str, steps: list[Step]) -> None:
    calm = [Step(one.thread, tuple((name, 0) for name, _ in one.offers), one.results, one.retried) for one in steps]
    sent: dict[int, Call] = {}
    for step, call in play(wire, calm, forever(HeadStore())):
        assert call.breaks == ()
        assert step.thread not in sent or continues(call, sent[step.thread])
        sent[step.thread] = call


@pytest.mark.parametrize("wire", MODELS)
@settings(max_examples=10)
@given(steps=STEPS)
def test_i7_a_store_that_is_opened_anew_for_each_call_gives_the_same_bytes(
    wire: str, steps: list[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("late") / "heads.db"

    def reopened() -> Iterator[HeadStore]:
        while True:
            with HeadStore(path, strict=True) as store:
                yield store

    one = [json.dumps(call.body) for _, call in play(wire, steps, forever(HeadStore()))]
    assert [json.dumps(call.body) for _, call in play(wire, steps, reopened())] == one


PROGRAM = """
import json, sys
from headstay import HeadStore
from tests.core.test_late_tools import Step, forever, play
offers = [("bravo",), ("bravo", "echo", "alpha"), ("alpha",), ("delta", "bravo", "charlie")]
steps = [Step(n % 2, tuple((name, 0) for name in offers[n % 4]), n % 3 == 0, False) for n in range(12)]
print(json.dumps([call.body for _, call in play(sys.argv[1], steps, forever(HeadStore()))]))
"""


@pytest.mark.parametrize("wire", MODELS)
def test_i7_two_processes_give_the_same_bytes(wire: str) -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(str(root / part) for part in (".", "core", "integrations", "middleware"))
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, wire],
            check=True,
            capture_output=True,
            text=True,
            cwd=root,
            env={"PYTHONPATH": paths, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    last = json.loads(outputs.pop())[-1]
    assert len(declared(last)) == len(NAMES)


def test_only_models_that_the_notes_name_take_a_tool_in_the_middle() -> None:
    assert find_rules("anthropic-messages", "claude-opus-5-5-20260901").late_tools == ("anthropic-messages",)
    assert find_rules("openai-responses", "gpt-5.6-terra").late_tools == ("openai-responses",)
    for model in ("claude-sonnet-4-6", "claude-sonnet-5", "claude-haiku-5-5", "claude-mythos-5", "claude-fable-5-2"):
        assert find_rules("anthropic-messages", model).late_tools == ()
    assert find_rules("openai-responses", "gpt-5.5").late_tools == ()
    assert find_rules("anthropic-messages", "claude-opus-9").late_tools == ()
    for row in RULES:
        assert row.in_place_system or not row.late_tools
        assert "openai-chat" not in row.late_tools


def test_the_list_is_joined_when_the_appended_bytes_reach_the_head() -> None:
    state = ToolState(("a",), {"a": "1", "b": "2"}, ("a", "b"), ("b",))
    once = fold(state, 60, 100)
    assert (once.order, once.late, once.spent) == (("a",), ("b",), 60)
    assert fold(once, 0, 100) is once
    twice = fold(once, 40, 100)
    assert (twice.order, twice.late, twice.spent) == (("a", "b"), (), 0)
    assert fold(twice, 0, 100) is twice


def test_what_two_calls_learnt_comes_together() -> None:
    known = ToolState(("a",), {"a": "1"}, ("a",), spent=5)
    one = ToolState(("a",), {"a": "1", "b": "2"}, ("a", "b"), ("b",))
    two = ToolState(("a",), {"a": "1", "c": "3"}, ("a", "c"), ("c",))
    both = merge_tools(merge_tools(known, one), two)
    assert both == ToolState(("a",), {"a": "1", "b": "2", "c": "3"}, ("a", "b", "c"), ("b", "c"), 5)
    folded = fold(both, 100, 100)
    assert merge_tools(folded, one).late == ()  # a call that began before the change does not undo it


def _prompt(*messages: Json, tools: Sequence[str] = ("a",)) -> Any:
    listed = [{"name": name, "input_schema": {}} for name in tools]
    return anthropic.parse({"model": "claude-opus-5", "messages": list(messages), "tools": listed})


USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}
OPERATOR = {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("messages", "blocks"),
    [
        ([USER], 1),
        ([USER, ANSWER, USER], 3),
        ([USER, ANSWER], 1),  # a begun answer: in front of it
        ([USER, OPERATOR], 2),  # joins the application's own system message
        ([], None),
        ([ANSWER], None),
    ],
)
def test_where_a_tool_goes_on_anthropics_wire(messages: list[Json], blocks: int | None) -> None:
    place = fresh_place(_prompt(*messages))
    assert (place.blocks if place else None) == blocks


def test_where_a_tool_goes_on_the_responses_wire() -> None:
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes"}]}
    made = {"type": "function_call", "call_id": "1", "name": "a", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "1", "output": "7"}
    for items, blocks in (
        ([USER], 0),
        ([USER, answer, USER, USER], 2),
        ([USER, made, result], 3),
        ([USER, made, result, USER], 3),
        ([USER, made], 0),
    ):
        place = fresh_place(openai.parse({"model": "gpt-6.1-sol", "input": items}, wire="openai-responses"))
        assert place is not None
        assert place.blocks == blocks


def test_a_place_that_the_history_no_longer_has_is_given_up() -> None:
    """The tool is appended anew where it is offered, and gone where it is not."""
    base = {"a": '{"name":"a","input_schema":{}}'}
    form = '{"name":"b","input_schema":{}}'
    record: Any = None
    gone = Carried(record, base, additions=(Addition("b", form, Place(1, b"another history!")),))
    state = ToolState(("a",), {**base, "b": form}, ("a", "b"), ("b",))
    here = settle(_prompt(USER, ANSWER, USER, tools=("a", "b")), state, gone, native=True)
    assert [(found.name, found.place.blocks) for found in here.additions] == [("b", 3)]
    away = settle(_prompt(USER, ANSWER, USER), state, gone, native=True)
    assert (away.additions, away.frozen.masked) == ((), ())


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("first", ["provider-run", "many", "deferred"])
def test_a_tool_goes_into_a_list_that_would_hold_nothing_else(wire: Any, first: str) -> None:
    """The earlier tools are gone, by revocation or as too many masked ones, or wait to be found by a search."""
    search: Json = {"type": "tool_search", "name": "tool_search"}
    before: dict[str, list[Json]] = {
        "provider-run": [{"type": "web_search", "name": "web_search"}],
        "many": [tool(wire, f"old_{number:02}", 0) for number in range(65)],
        "deferred": [search, {**tool(wire, "alpha", 0), "defer_loading": True}],
    }
    kept = before["deferred"][1:] if first == "deferred" else []
    late = tool(wire, "bravo", 0)
    flow = Flow(Settings("agent", union=True, on_break="record"), head_store=HeadStore())
    sent: list[Call] = []
    history: list[Json] = [{"role": "user", "content": "Hello"}]
    for number, tools in enumerate([before[first], [*kept, late], [*kept, late]]):
        history = [*history, *said(wire, number, results=False)] if number else history
        body: Json = {"model": MODELS[wire], "tools": tools}
        if wire == "anthropic-messages":
            body |= {"system": POLICY, "messages": history}
        else:
            body["input"] = [{"role": "developer", "content": POLICY}, *history]
        sent.append(flow.prepare(body, wire=wire, thread="one", now=1_000.0 + number))
        flow.complete(sent[-1], Usage(input_tokens=2_000))
    _, second, third = sent
    assert [call.unverified for call in sent] == [None, None, None]
    assert [one["name"] for one in second.body["tools"]] == [*(one["name"] for one in kept), "bravo"]
    assert declared(second.body) == [*kept, late]
    assert "tool_added" in [found.cause for found in second.breaks]
    assert continues(third, second)
    assert third.breaks == ()


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-4-6"])
def test_deferred_tools_do_not_stay_alone_in_a_list(model: str) -> None:
    """The search that found them is gone with the offer; a list of deferred tools only is refused."""
    wire: Any = "anthropic-messages"
    search: Json = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    alpha = {**tool(wire, "alpha", 0), "defer_loading": True}
    flow = Flow(Settings("agent", union=True, on_break="record"), head_store=HeadStore())
    for number, tools in enumerate([[alpha, search], []]):
        body: Json = {"model": model, "system": POLICY, "messages": [{"role": "user", "content": "Hello"}]}
        call = flow.prepare({**body, "tools": tools} if tools else body, wire=wire, now=1_000.0 + number)
        flow.complete(call, Usage(input_tokens=2_000))
        assert call.unverified is None
    assert "tools" not in call.body
    assert len(call.notices) == 1
    assert "are deferred like all others in the list" in call.notices[0]


@pytest.mark.parametrize("late_tools", ["auto", "list"])
@pytest.mark.parametrize("wire", MODELS)
def test_i5_a_revoked_provider_run_tool_leaves_the_list_also_where_its_name_was_the_applications(
    wire: Any, late_tools: Any
) -> None:
    alpha, own = tool(wire, "alpha", 0), tool(wire, "web_search", 0)
    theirs = {"type": "web_search", "name": "web_search"}
    flow = Flow(Settings("agent", union=True, on_break="record", late_tools=late_tools), head_store=HeadStore())
    history: list[Json] = [{"role": "user", "content": "Hello"}]
    listed: list[list[Json]] = []
    for number, tools in enumerate([[alpha, own], [alpha, theirs], [alpha]]):
        history = [*history, *said(wire, number, results=False)] if number else history
        field = "messages" if wire == "anthropic-messages" else "input"
        body: Json = {"model": MODELS[wire], "tools": tools, field: history}
        call = flow.prepare(body, wire=wire, thread="one", now=1_000.0 + number)
        flow.complete(call, Usage(input_tokens=2_000))
        assert call.unverified is None
        listed.append(declared(call.body))
    assert listed == [[alpha, own], [alpha, theirs], [alpha]]


def test_a_tool_given_twice_is_left_to_the_provider_to_refuse() -> None:
    prompt = _prompt(USER, tools=("a", "a"))
    settled = settle(prompt, ToolState(("b",), {"b": '{"name":"b"}'}, ("b",)), None, native=True)
    assert settled.frozen == freeze_tools(prompt.tools, ToolState(("b",), {"b": '{"name":"b"}'}, ("b",)), union=True)


def test_tools_and_notes_are_woven_into_one_system_message() -> None:
    woven = weave(
        _prompt(USER, ANSWER, USER), {0: NoteText("Now."), 2: NoteText("Then.", "Found.")}, {2: [{"name": "b"}]}
    )
    addition = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "b"}}}
    texts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Found."}]
    assert list(woven.messages) == [
        USER,
        {"role": "system", "content": "Now."},
        ANSWER,
        {"role": "user", "content": texts},
        {"role": "system", "content": [addition, {"type": "text", "text": "Then."}]},
    ]
    assert woven.blocks == anthropic.parse({"messages": woven.messages}).blocks
    joined = weave(_prompt(USER, OPERATOR), {}, {1: [{"name": "b"}]})
    assert joined.messages[-1] == {"role": "system", "content": [{"type": "text", "text": "Be brief."}, addition]}


@pytest.mark.parametrize("wire", MODELS)
def test_verify_sees_that_an_appended_tool_did_not_arrive(wire: Any) -> None:
    steps = [Step(0, (("alpha", 0),), results=False, retried=False), Step(0, NAMED, results=False, retried=False)]
    call = [call for _, call in play(wire, steps, forever(HeadStore()))][-1]
    assert call.plan is not None
    assert call.rules is not None
    assert verify(parse(call.body, wire), call.plan, call.rules) == ()
    field = "messages" if "messages" in call.body else "input"
    items: Any = call.body[field]
    less = [item for item in items if "bravo" not in json.dumps(item)]
    assert len(less) == len(items) - 1
    assert verify(parse({**call.body, field: less}, wire), call.plan, call.rules) != ()
