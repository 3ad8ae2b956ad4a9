"""The agent workload: its shape, its labels, and the model that plays its answers."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import CALL_S, AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import DESK, SPECIALIST, AgentCall
from headstay.emulator.agent_workload_script import CASE, case_of
from headstay.emulator.reply import Reply, Wire
from headstay.emulator.shape import compact
from headstay.emulator.tokens import count
from headstay.emulator.workload_text import TENANTS

AGENT = support_agent()
LARKFIELD, MARLOW = (tenant.name for tenant in TENANTS)
WIRES: tuple[Wire, ...] = ("anthropic-messages", "openai-chat", "openai-responses")


def offered(call: AgentCall) -> set[str]:
    return {form.name for form in call.tools}


def test_twenty_threads_of_six_to_thirty_turns() -> None:
    lengths = Counter(turn.thread.name for turn in AGENT.turns)
    assert len(lengths) == len(AGENT.threads) == 20
    assert (min(lengths.values()), max(lengths.values())) == (6, 30)
    assert 260 <= len(AGENT.turns) <= 320
    assert 600 <= len(AGENT.calls) <= 700


def test_calls_come_in_order_far_enough_apart_and_no_thread_waits_out_five_minutes() -> None:
    starts = [call.at for call in AGENT.calls]
    assert all(later - earlier >= CALL_S for earlier, later in itertools.pairwise(starts))
    for calls in AGENT.conversations.values():
        assert max((b.at - a.at for a, b in itertools.pairwise(calls)), default=0) < 300
        assert [(call.turn, call.step) for call in calls] == sorted((call.turn, call.step) for call in calls)


def test_the_calls_of_a_turn_follow_each_other() -> None:
    assert [call for turn in AGENT.turns for call in turn.calls] == list(AGENT.calls)


def test_the_system_text_is_a_template_with_three_values() -> None:
    for call in AGENT.calls:
        tenant = next(tenant for tenant in TENANTS if tenant.name == call.tenant)
        prompt = (texts.desk_prompt if call.agent == DESK else texts.specialist_prompt)(tenant)
        assert texts.as_format(prompt).format(**call.values) == call.system_text
        names = ["customer_name", "clock", "request_id"] if call.agent == DESK else ["clock"]
        assert list(call.values) == names
        assert datetime.fromisoformat(call.values["clock"]).timestamp() == call.at
    assert 2_350 < count(AGENT.calls[0].system_text) < 2_650


def test_the_specialist_has_its_own_head_above_the_minimum_in_both_lanes() -> None:
    asked = [call for call in AGENT.calls if call.agent == SPECIALIST]
    assert {call.tenant for call in asked} == {LARKFIELD, MARLOW}
    assert all(1_024 < count(call.stable_text) < 1_800 for call in asked)
    assert all(not call.examples and not call.conversation_values for call in asked)
    for turn in AGENT.turns:
        uses = [use.name for call in turn.calls for use in call.said.uses if call.agent == DESK]
        assert uses.count(texts.SUBAGENT_TOOL) * 2 == sum(call.agent == SPECIALIST for call in turn.calls)


def test_values_of_a_call_are_unique_and_those_of_a_conversation_hold() -> None:
    desk = [call for call in AGENT.calls if call.agent == DESK]
    assert len({value for call in AGENT.calls for value in call.call_values.values()}) == len(AGENT.calls) + len(desk)
    names = {call.thread: call.conversation_values["customer_name"] for call in desk}
    assert len(set(names.values())) == 20
    assert all(call.conversation_values == {"customer_name": names[call.thread]} for call in desk)


def test_a_value_occurs_nowhere_but_in_its_own_slot() -> None:
    said = " ".join(
        [call.user + call.said.text + compact([use[1:] for use in call.said.uses]) for call in AGENT.calls]
        + [call.stable_text for call in AGENT.calls[:40]]
    )
    for call in AGENT.calls:
        assert not [value for value in call.values.values() if value in said]


def test_twelve_tools_in_another_order_each_call() -> None:
    desk = [call for call in AGENT.calls if call.agent == DESK]
    assert len({name for call in desk for name in offered(call)}) == len(texts.DESK_TOOLS) == 12
    orders = [tuple(form.name for form in call.tools) for call in desk]
    assert len(set(orders)) > 0.99 * len(orders)
    assert all(len(offered(call)) == len(call.tools) for call in desk)
    sizes = [count(compact({"name": f.name, "description": f.description, "s": f.schema})) for f in desk[0].tools]
    assert 1_200 < sum(sizes) < 2_200


def test_one_tool_arrives_late_in_one_lane_one_goes_and_one_changes() -> None:
    desk = [call for call in AGENT.calls if call.agent == DESK]
    late = [texts.LATE_TOOL in offered(call) for call in desk if call.tenant == LARKFIELD]
    assert late == sorted(late)
    assert 0.2 < late.index(True) / len(late) < 0.6
    assert not any(texts.LATE_TOOL in offered(call) for call in desk if call.tenant == MARLOW)
    for tenant in (LARKFIELD, MARLOW):
        there = [texts.REMOVED_TOOL in offered(call) for call in desk if call.tenant == tenant]
        assert there == sorted(there, reverse=True)
        assert {True, False} == set(there)
    changed = [texts.CHANGED_FORM in call.tools for call in desk if call.tenant == MARLOW]
    assert changed == sorted(changed)
    assert {True, False} == set(changed)
    assert not any(texts.CHANGED_FORM in call.tools for call in desk if call.tenant == LARKFIELD)


def test_the_removed_tool_is_still_called_and_every_other_call_is_of_an_offered_tool() -> None:
    assert {call.tenant for call in AGENT.refused()} == {LARKFIELD, MARLOW}
    for call in AGENT.calls:
        for use in call.said.uses:
            assert use.refused == (use.name not in offered(call))
            assert not use.refused or use.name == texts.REMOVED_TOOL


def test_one_turn_makes_twenty_four_calls_at_once() -> None:
    fans = [call for call in AGENT.calls if len(call.said.uses) == 24]
    assert len(fans) == 1
    assert len({compact(use.arguments) for use in fans[0].said.uses}) == 24
    ids = [use.id for call in AGENT.calls for use in call.said.uses]
    assert len(set(ids)) == len(ids)
    assert {len(each) for each in ids} == {len("call_000000000001")}


def test_a_turn_has_up_to_two_rounds_of_tools() -> None:
    rounds = Counter(sum(call.agent == DESK for call in turn.calls) - 1 for turn in AGENT.turns)
    assert set(rounds) <= {0, 1, 2, 3}
    assert rounds[3] <= 2  # only where the removed tool was called first
    assert min(rounds[0], rounds[1], rounds[2]) > 50
    assert all(not turn.calls[-1].said.uses for turn in AGENT.turns)


def test_the_special_threads() -> None:
    assert Counter(thread.held for thread in AGENT.threads) == {"checkpointer": 18, "client": 1, "nested": 1}
    assert len(AGENT.summaries) == 1
    assert AGENT.restart is not None
    place = [(turn.thread.name, turn.number) for turn in AGENT.turns].index(AGENT.restart)
    assert 0.4 < place / len(AGENT.turns) < 0.6
    photos = {(call.thread, call.turn) for call in AGENT.calls if call.image}
    assert photos == {(AGENT.threads[4].name, 3)}
    assert [call.thread for call in AGENT.calls if call.tool_choice] == [AGENT.threads[5].name]
    structured = [call for call in AGENT.calls if call.structured]
    assert {call.tenant for call in structured} == {LARKFIELD, MARLOW}
    for call in structured:
        assert call.turn == max(other.turn for other in AGENT.conversations[call.thread])
        assert set(json.loads(call.said.text)) == set(texts.RESOLUTION["required"])


def test_a_summary_cuts_the_history_of_its_thread() -> None:
    ((name, summary),) = AGENT.summaries.items()
    calls = AGENT.conversations[name]
    first = next(call for call in calls if call.turn == summary.turn)
    before = next(call for call in reversed(calls) if call.turn == summary.turn - 1)
    assert AGENT.summary_before(before) is None
    assert {past.turn for past in AGENT.before(before)} == set(range(1, summary.turn))
    assert AGENT.summary_before(first) == summary
    assert {past.turn for past in AGENT.before(first)} == set(range(summary.kept_from, summary.turn))
    assert not CASE.search(summary.message)
    assert summary.text in summary.message


def test_the_choice_of_examples_varies_and_the_lane_keeps_the_first_one() -> None:
    desk = [call for call in AGENT.calls if call.agent == DESK]
    assert len({call.examples for call in desk}) > 50
    for tenant in (LARKFIELD, MARLOW):
        assert AGENT.pinned[DESK, tenant] == next(call.examples for call in desk if call.tenant == tenant)
    turns = {(call.thread, call.turn): call.examples for call in desk}
    assert all(turns[call.thread, call.turn] == call.examples for call in desk)


def test_breaks_by_hand_on_a_small_shape() -> None:
    small = support_agent(threads=4, longest=6)
    late = next(turn for turn in small.turns if texts.LATE_TOOL in offered(turn.calls[0]))
    found = [broken for broken in small.breaks if broken.cause == "tool_added"]
    # Threads 1 and 3 are the first tenant's; each meets the late tool once, in its first turn with it.
    assert len(found) == 2
    assert found[0] == (late.thread.name, late.number, 0, "tool_added", "application")
    assert {broken.thread for broken in found} == {small.threads[0].name, small.threads[2].name}
    assert [b for b in small.breaks_on("openai-chat", native_late_tools=True) if b.cause == "tool_added"] == []


def test_breaks_name_each_kind() -> None:
    kinds = Counter((broken.cause, broken.owner) for broken in AGENT.breaks)
    structured = sum(call.structured for call in AGENT.calls)
    assert kinds["parameters_changed", "application"] == structured
    assert kinds["parameters_changed", "provider"] == 1
    assert kinds["tool_choice_changed", "application"] == 1
    assert kinds["history_summarised", "application"] == 1
    assert set(kinds) - {("tool_added", "application"), ("tool_schema_changed", "application")} == {
        ("parameters_changed", "application"), ("parameters_changed", "provider"),
        ("tool_choice_changed", "application"), ("history_summarised", "application"),
    }  # fmt: skip
    felt = {broken.cause for broken in AGENT.breaks_on("openai-responses")}
    assert felt == {"tool_added", "tool_schema_changed", "parameters_changed", "history_summarised"}
    # Four lanes; one late tool, one changed one.
    assert (AGENT.heads(), AGENT.heads(native_late_tools=True)) == (6, 5)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 12), st.integers(3, 10), st.integers(0, 5))
def test_any_size_holds_what_fits(threads: int, longest: int, seed: int) -> None:
    small = support_agent(seed=seed, threads=threads, longest=longest)
    lengths = Counter(turn.thread.name for turn in small.turns)
    assert len(lengths) == threads
    assert max(lengths.values()) == longest
    assert min(lengths.values()) >= min(6, longest)
    assert [call.at for call in small.calls] == sorted({call.at for call in small.calls})
    respond = small.responder()
    for call in small.calls:
        assert respond("openai-chat", body_of(small, call, "openai-chat")).text == call.said.text


@pytest.mark.parametrize(("threads", "longest"), [(1, 9), (101, 9), (4, 2)])
def test_a_size_out_of_range_is_an_error(threads: int, longest: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        support_agent(threads=threads, longest=longest)


def test_another_seed_is_another_workload_of_the_same_structure() -> None:
    other = support_agent(seed=8)
    assert Counter(turn.thread.name for turn in other.turns) == Counter(turn.thread.name for turn in AGENT.turns)
    ids = [{call.values["request_id"] for call in each.calls if call.agent == DESK} for each in (other, AGENT)]
    assert not ids[0] & ids[1]
    assert {broken.cause for broken in other.breaks} == {broken.cause for broken in AGENT.breaks}


PRINT_DIGEST = """
import hashlib
from headstay.emulator.agent_oracle import agent_oracle_run
from headstay.emulator.agent_workload import support_agent
agent = support_agent(threads=8, longest=9)
runs = [agent_oracle_run(agent, model=model, wire=wire).calls for model, wire in
        (("claude-opus-5-5", "anthropic-messages"), ("gpt-5.4", "openai-chat"))]
print(hashlib.sha256(repr((agent.calls, agent.breaks, runs)).encode()).hexdigest())
"""


def digest_in_a_new_process(hash_seed: str) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_workload_and_oracle_are_the_same_in_every_process() -> None:
    one, other = digest_in_a_new_process("1"), digest_in_a_new_process("2")
    assert len(one.strip()) == 64
    assert one == other


def body_of(workload: AgentWorkload, call: AgentCall, wire: Wire, note: str | None = None) -> dict[str, Any]:
    """Build a request as a client would: few-shot pairs in front, the history, and a note behind the user's words."""
    part = "input_text" if wire == "openai-responses" else "text"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Where is the label?"},
        {"role": "assistant", "content": "It was sent."},
    ]
    for past in (*workload.before(call), call):
        if past.step == 0:
            texts_of_user = [past.user] if note is None or past is not call else [past.user, note]
            messages.append({"role": "user", "content": [{"type": part, "text": text} for text in texts_of_user]})
        if past is not call:
            messages += _answer(past, wire)
    if note is not None:
        messages.append({"role": "system", "content": [{"type": part, "text": note}]})
    return {"input" if wire == "openai-responses" else "messages": messages}


def _answer(call: AgentCall, wire: Wire) -> list[dict[str, Any]]:
    uses = call.said.uses
    if wire == "anthropic-messages":
        calls = [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.arguments} for use in uses]
        results = [{"type": "tool_result", "tool_use_id": use.id, "content": use.result} for use in uses]
        answer = {"role": "assistant", "content": [{"type": "text", "text": call.said.text}, *calls]}
        return [answer, {"role": "user", "content": results}] if results else [answer]
    if wire == "openai-chat":
        results = [{"role": "tool", "tool_call_id": use.id, "content": use.result} for use in uses]
        return [{"role": "assistant", "content": call.said.text}, *results]
    items = [{"type": "function_call", "call_id": use.id, "name": use.name, "arguments": "{}"} for use in uses]
    results = [{"type": "function_call_output", "call_id": use.id, "output": use.result} for use in uses]
    return [{"role": "assistant", "content": call.said.text}, *items, *results]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("note", [None, "Now:\nclock: 2026-04-14T09:00:00Z"])
def test_the_responder_answers_each_call(wire: Wire, note: str | None) -> None:
    respond = AGENT.responder()
    for call in AGENT.calls[::3]:
        reply = respond(wire, body_of(AGENT, call, wire, note))
        assert reply.text == call.said.text
        assert [(use.name, use.arguments) for use in reply.tool_calls] == [
            (use.name, use.arguments) for use in call.said.uses
        ]
        assert reply.thinking == (call.said.thought if wire == "anthropic-messages" else None)


def test_the_responder_writes_the_summary_when_it_is_asked_for_one() -> None:
    ((name, summary),) = AGENT.summaries.items()
    told = "\n".join(f"Human: {call.user}" for call in AGENT.conversations[name][:6])
    asked = texts.SUMMARY_PROMPT.format(messages=told)
    assert AGENT.responder()("openai-chat", {"messages": [{"role": "user", "content": asked}]}) == Reply(
        text=summary.text
    )


def test_the_responder_takes_a_plain_string() -> None:
    call = AGENT.calls[0]
    assert AGENT.responder()("openai-responses", {"input": call.user}).text == call.said.text


def test_words_from_elsewhere_cannot_be_answered() -> None:
    with pytest.raises(ValueError, match="no user text of this workload"):
        AGENT.responder()("openai-chat", {"messages": [{"role": "user", "content": "Hello?"}]})
    with pytest.raises(ValueError, match="without its case mark"):
        case_of("Hello?")


def test_calls_that_start_together_are_refused() -> None:
    first, second = AGENT.calls[:2]
    with pytest.raises(ValueError, match="start together"):
        AgentWorkload(AGENT.threads, (first, second._replace(at=first.at)))
