"""The hostile agent on the real engine: what is read of what an ideal layout would have read, in whole blocks.

The agent is that of `bench/local_agent.py`, which plays more of it. What could have been read comes from the workload's
labels, the server's own tokenizer and a model of vLLM's cache, and never from what was sent.
"""

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.local.client import server_at

BENCH = Path(__file__).parents[2] / "bench"
CONTEXT = 4_096


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield import_module("local_agent")


@pytest.fixture(scope="module")
def workload(bench: Any, base_url: str) -> AgentWorkload:
    made: AgentWorkload = bench.cut(support_agent(threads=4, longest=4), bench.tokenizer(base_url), CONTEXT)
    return made


@pytest.fixture(scope="module")
def best(bench: Any, workload: AgentWorkload, base_url: str) -> list[int]:
    found: list[int] = bench.readable(workload, bench.tokenizer(base_url), bench.cache_of(base_url))
    return found


@pytest.fixture(scope="module")
def runs(bench: Any, workload: AgentWorkload, base_url: str) -> dict[str, Any]:
    return {name: bench.play(workload, name, bench.model_maker(base_url, name)) for name in bench.VARIANTS}


def share(bench: Any, run: Any, best: list[int]) -> float:
    return float(bench.share([one.read for one in run.asked], best))


def test_the_cut_leaves_what_makes_the_agent_hostile(workload: AgentWorkload) -> None:
    assert len(workload.calls) >= 25
    assert {str(found.cause) for found in workload.breaks} >= {
        "tool_added",
        "tool_schema_changed",
        "history_summarised",
        "parameters_changed",
    }
    assert workload.restart in {(turn.thread.name, turn.number) for turn in workload.turns}
    assert {thread.held for thread in workload.threads} == {"checkpointer", "client", "nested"}
    assert {call.agent for call in workload.calls} == {"desk", "specialist"}


def test_every_call_is_made_and_fits(workload: AgentWorkload, runs: dict[str, Any]) -> None:
    for run in runs.values():
        assert len(run.asked) == len(workload.calls)
        assert max(one.prompt for one in run.asked) < CONTEXT


def test_the_ideal_layout_starts_cold_once_for_each_agent_and_tenant(workload: AgentWorkload, best: list[int]) -> None:
    cold = [call.lane for call, most in zip(workload.calls, best, strict=True) if not most]
    assert sorted(cold) == sorted({call.lane for call in workload.calls})


def test_the_engine_reads_of_the_ideal_layout_what_the_oracle_says(
    bench: Any, workload: AgentWorkload, best: list[int], base_url: str
) -> None:
    server, ideal = server_at(base_url), import_module("local_ideal").Ideal(workload)
    name, salts = server.models()[0], {tenant: uuid4().hex for tenant in {call.tenant for call in workload.calls}}
    read: list[int] = []
    for call in workload.calls:
        asked = {"model": name, "max_tokens": 1, "cache_salt": salts[call.tenant], **ideal.body(call)}
        read.append(server.complete(asked, 300)["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert read == best


def test_headstay_reads_what_an_ideal_layout_reads_and_the_application_a_part_of_it(
    bench: Any, runs: dict[str, Any], best: list[int], block: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {name: share(bench, run, best) for name, run in runs.items()}
    with capsys.disabled():
        print(f"\n{len(best)} calls, {sum(best)} tokens readable; shares read: {found}")
    assert {one.read % block for run in runs.values() for one in run.asked} == {0}
    assert found["headstay"] >= 0.98
    assert found["plain"] <= 0.5


def test_the_ledger_calls_no_read_of_the_engines_short_and_no_break_its_own(
    workload: AgentWorkload, runs: dict[str, Any]
) -> None:
    ours = runs["headstay"]
    assert Counter(ours.statuses) == {"cold": 4, "ok": len(workload.calls) - 4}
    owners = {found.owner for breaks in ours.breaks for found in breaks}
    assert owners == {"application"}
