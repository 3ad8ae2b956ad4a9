"""The oracle with retrieved text in it, held against figures worked out by hand on a workload of three calls."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from headstay.emulator.agent_oracle import agent_oracle_run
from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import DESK, AgentCall, AgentThread, Said, ToolForm, ToolUse
from headstay.emulator.oracle import Prices
from headstay.emulator.tokens import count
from headstay.emulator.workload_turns import SystemPart

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    labels: Any = import_module("llama_labels")
    oracle: Any = import_module("llama_oracle")

STABLE = "rule " * 2_000
TOOL = ToolForm("look", "Looks.", {"type": "object", "properties": {}})
WRITTEN = '{"name":"look","input_schema":{"type":"object","properties":{}},"description":"Looks."}'
RESULT = "the parcel is in the next town"
RETRIEVED = "Handbook 1: a late parcel is paid back"


def call(turn: int, step: int, said: Said, retrieved: str) -> AgentCall:
    values = (SystemPart("2026-04-14T09:00:00Z", "call", "clock"), SystemPart(retrieved, "call", labels.HANDBOOK))
    return AgentCall(
        agent=DESK,
        thread="a-t01",
        turn=turn,
        step=step,
        tenant="a",
        at=1_000.0 + 10 * turn + step,
        system=(SystemPart(STABLE, "stable"), SystemPart("Ann", "conversation", "customer_name"), *values),
        examples=(),
        tools=(TOOL,),
        user=f"question {turn}",
        image=None,
        said=said,
    )


@pytest.fixture
def workload() -> AgentWorkload:
    """One turn that calls a tool, and one that does not."""
    used = Said("I look.", (ToolUse("call_1", "look", {}, RESULT),))
    calls = (
        call(1, 0, used, RETRIEVED),
        call(1, 1, Said("In the next town."), RETRIEVED),
        call(2, 0, Said("Good-bye."), "Handbook 2: be kind"),
    )
    return AgentWorkload((AgentThread("a-t01", "a"),), calls)


def test_retrieved_text_is_read_like_a_message_in_its_turn_and_is_gone_in_the_next(workload: AgentWorkload) -> None:
    first, second, third = oracle.turn_oracle_run(workload, model="claude-opus-4-8", wire="anthropic-messages").calls
    front = count(WRITTEN + STABLE) + count("customer_name: Ann")
    asked, looked = count("question 1"), count("I look.") + count("look{}") + count(RESULT)
    assert (first.readable, first.writes) == (0, front + asked)
    assert (second.readable, second.writes) == (front + asked, count(RETRIEVED) + looked)
    # what the tool returned stood behind the retrieved text, which is gone: it is written once more
    answered = looked + count("In the next town.") + count("question 2")
    assert (third.readable, third.writes) == (front + asked, answered)


def test_what_is_for_one_call_is_neither_read_nor_written(workload: AgentWorkload) -> None:
    first, second, _ = oracle.turn_oracle_run(workload, model="claude-opus-4-8", wire="anthropic-messages").calls
    clock = "clock: 2026-04-14T09:00:00Z"
    assert first.uncached == count(f"{RETRIEVED}\n{clock}")
    assert second.uncached == count(clock)


def test_costs_are_those_of_its_tokens(workload: AgentWorkload) -> None:
    prices = Prices(input=1e6, output=0, read=1e5, write=2e6)
    for one in oracle.turn_oracle_run(workload, model="gpt-5.6", wire="openai-chat", prices=prices).calls:
        assert one.cost == pytest.approx(one.uncached + 0.1 * one.readable + 2 * one.writes)


def test_without_retrieved_text_it_is_the_oracle_of_the_workload() -> None:
    workload = labels.relabelled(support_agent(threads=4, longest=4))
    bare = AgentWorkload(
        workload.threads,
        tuple(
            one._replace(system=tuple(part for part in one.system if part.name != labels.HANDBOOK))
            for one in workload.calls
        ),
    )
    found = oracle.turn_oracle_run(bare, model="gpt-5.6", wire="openai-chat", message_overhead=3)
    known = agent_oracle_run(bare, model="gpt-5.6", wire="openai-chat", message_overhead=3)
    assert [(one.readable, one.writes, one.uncached) for one in found.calls] == [
        (one.readable, one.writes, one.uncached) for one in known.calls
    ]
