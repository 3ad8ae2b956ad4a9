"""The hostile `FunctionAgent` under `cache_aware`: figures against the oracle, and every fact looked up on the wire.

`bench/llama_agent.py` plays the whole of it. The models are those whose LlamaIndex class works here.
"""

import json
import re
from collections import Counter, defaultdict
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headstay.canonical import digest, wire_text
from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload_labels import DESK, AgentCall
from headstay.emulator.agent_workload_script import CASE
from headstay.wires import parse

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    bench: Any = import_module("llama_agent")
    labels: Any = import_module("llama_labels")

SETUPS = [setup for setup in bench.SETUPS.values() if setup.works]
AGENT = labels.llama_workload(threads=5, longest=4)


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: str(setup.model))
def setup(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def plain(setup: Any) -> Any:
    return bench.run_variant(AGENT, setup, "plain")


@pytest.fixture(scope="module")
def streamed(setup: Any) -> Any:
    return bench.run_variant(AGENT, setup, "headstay")


@pytest.fixture(scope="module")
def whole(setup: Any) -> Any:
    return bench.run_variant(AGENT, setup, "headstay", streaming=False)


@pytest.fixture(params=["streamed", "whole"])
def ours(request: pytest.FixtureRequest, setup: Any) -> Any:
    """A run under headstay: the agents stream, as they do by default, or do not."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def bodies(ours: Any) -> list[str]:
    """The requests as texts, characters unescaped."""
    return [json.dumps(exchange.body, ensure_ascii=False) for exchange in ours.exchanges]


def places(call: AgentCall) -> tuple[str, int, int]:
    return call.thread, call.turn, call.step


def written(text: str) -> str:
    """Write a text as it stands inside JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def test_the_cut_leaves_what_makes_the_agent_hostile() -> None:
    assert {str(found.cause) for found in AGENT.breaks} == {"tool_added", "tool_schema_changed", "parameters_changed"}
    assert {thread.held for thread in AGENT.threads} == {"checkpointer", "client", "nested"}
    assert {call.agent for call in AGENT.calls} == {"desk", "specialist"}
    assert {call.tenant for call in AGENT.calls} == {"larkfield", "marlow"}
    assert max(len(call.said.uses) for call in AGENT.calls) == 24  # tool calls at once
    assert AGENT.restart in {(turn.thread.name, turn.number) for turn in AGENT.turns}
    orders = {tuple(form.name for form in call.tools) for call in AGENT.calls if call.agent == DESK}
    assert len(orders) > 30


def test_every_call_of_the_workload_is_made_and_accepted(ours: Any) -> None:
    assert len(ours.exchanges) == len(ours.kept.rows) == len(AGENT.calls)
    assert {exchange.status for exchange in ours.exchanges} == {200}


def test_it_reads_what_the_oracle_reads_and_writes_and_costs_no_more(setup: Any, ours: Any) -> None:
    found = bench.summed(AGENT, setup, ours)["against"]["oracle"]
    assert found["read_share"] >= 0.98
    assert found["writes"] <= 1.02
    assert found["cost"] <= 1.02


def test_of_a_layout_with_every_note_last_of_all_it_reads_as_much(setup: Any, ours: Any) -> None:
    assert bench.summed(AGENT, setup, ours)["against"]["note last"]["read_share"] >= 0.98


def test_the_plain_agent_reads_nothing_and_pays_for_it(setup: Any, plain: Any, streamed: Any) -> None:
    alone, beside = (bench.summed(AGENT, setup, run) for run in (plain, streamed))
    assert alone["against"]["oracle"]["read_share"] < 0.05
    assert alone["cost_usd"] > 2.5 * beside["cost_usd"]


def test_the_answers_are_those_of_the_plain_agent(plain: Any, ours: Any) -> None:
    last = {(call.thread, call.turn): call.said.text for call in AGENT.calls if call.agent == DESK}
    assert {(thread, turn): text for thread, turn, text in ours.kept.answers} == last
    assert ours.kept.answers == plain.kept.answers


def test_every_tool_runs_once_for_each_call_of_the_model(plain: Any, ours: Any) -> None:
    asked = [(call.thread, call.turn, use.name) for call in AGENT.calls for use in call.said.uses]
    expected = Counter(one for one in asked if one[2] != texts.SUBAGENT_TOOL)
    assert Counter(ours.kept.ran) == Counter(plain.kept.ran) == expected


def test_the_ledger_says_cold_where_nothing_can_be_read_and_nothing_false_of_the_rest(setup: Any, ours: Any) -> None:
    best = bench.oracles(AGENT, setup)["oracle"].calls
    for call, row, most, used in zip(AGENT.calls, ours.kept.rows, best, ours.usages(setup.wire), strict=True):
        assert row.status == ("ok" if most.readable else "cold"), places(call)
        assert (row.tenant, row.name) == (call.tenant, call.agent)
        assert row.input_tokens == used.input_tokens, places(call)
        assert (row.cache_read_tokens, row.cache_write_tokens) == (used.cache_read_tokens, used.cache_write_tokens)


def test_it_breaks_only_where_the_application_does_and_says_so_each_time(setup: Any, ours: Any) -> None:
    expected: dict[tuple[str, int, int], set[tuple[str, str]]] = defaultdict(set)
    for thread, turn, step, cause, owner in AGENT.breaks_on(setup.wire):
        expected[thread, turn, step].add((cause, owner))
    assert len(expected) >= 5
    for call, row in zip(AGENT.calls, ours.kept.rows, strict=True):
        assert {(str(found.cause), found.owner) for found in row.breaks} == expected[places(call)], places(call)
        assert all(found.remedy for found in row.breaks)


def test_a_lane_has_one_head_and_another_one_only_where_its_tools_change(setup: Any, ours: Any) -> None:
    heads = {head_of(setup.wire, exchange) for exchange in ours.exchanges}
    # two desks and two specialists; a tool arrives late in one lane, one changes in the other
    assert len(heads) == AGENT.heads() == 6


def head_of(wire: Any, exchange: Any) -> bytes:
    prompt = parse(exchange.body, wire)
    return digest(exchange.workspace, *(wire_text(tool.wire) for tool in prompt.tools), *prompt.system[:1])


def test_every_current_fact_arrives_exactly_once(bodies: list[str]) -> None:
    for call, body in zip(AGENT.calls, bodies, strict=True):
        for name, value in call.values.items():
            text = written(value.strip())
            assert body.count(text) == 1, f"{places(call)}: {name}"
            assert name == labels.HANDBOOK or f"{name}: {text}" in body, f"{places(call)}: {name}"
        assert body.count(written(call.user)) == 1, f"{places(call)}: the user's words"


def test_what_was_current_before_is_gone(bodies: list[str]) -> None:
    for call, body in zip(AGENT.calls, bodies, strict=True):
        past = {value.strip() for before in AGENT.before(call) for value in before.call_values.values()}
        now = {value.strip() for value in call.values.values()}
        assert not [value for value in past - now if written(value) in body], places(call)


def test_nothing_of_another_thread_arrives(bodies: list[str]) -> None:
    desk = [call for call in AGENT.calls if call.agent == DESK]
    names = {call.thread: call.conversation_values["customer_name"] for call in desk}
    ids = {call.call_values["request_id"]: call.thread for call in desk}
    pattern = re.compile("|".join(map(re.escape, ids)))
    for call, body in zip(AGENT.calls, bodies, strict=True):
        root = call.thread.partition(":")[0]
        assert {mark.partition(".")[0] for mark in CASE.findall(body)} == {root.rpartition("-")[2]}
        assert not [name for thread, name in names.items() if thread != root and name in body]
        assert {ids[found] for found in pattern.findall(body)} <= {root}
        assert call.agent == DESK or names[root] not in body


def test_retrieved_text_never_has_the_operators_authority(ours: Any) -> None:
    for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True):
        if call.agent == DESK:
            assert roles_of(exchange.body, written(call.values[labels.HANDBOOK].strip())) == ["user"], places(call)


def test_a_clock_stands_behind_everything_that_is_sent_again(ours: Any) -> None:
    for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True):
        last = json.dumps(exchange.body["messages"][-1], ensure_ascii=False)
        assert call.values["clock"] in last, places(call)


def roles_of(body: Any, text: str) -> list[str]:
    """Say who speaks the messages in which a text stands."""
    system = [{"role": "system", "content": body["system"]}] if "system" in body else []
    return [
        message["role"]
        for message in (*system, *body["messages"])
        if text in json.dumps(message["content"], ensure_ascii=False)
    ]


def test_another_seed_has_other_texts_and_the_same_figures() -> None:
    other, setup = labels.llama_workload(seed=11, threads=3, longest=3), SETUPS[-1]
    assert {call.user for call in other.calls}.isdisjoint({call.user for call in AGENT.calls})
    found = bench.summed(other, setup, bench.run_variant(other, setup, "headstay"))["against"]["oracle"]
    assert found["read_share"] >= 0.98
    assert found["writes"] <= 1.02
