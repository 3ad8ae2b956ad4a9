"""The figures of the demo, its contract on stdout, and the remedies it prints."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from headstay import Slot
from headstay.emulator.oracle import oracle_run
from headstay.emulator.workload import support_desk
from headstay.ledger.price import rates
from langchain_headstay import demo
from langchain_headstay.demo import SETUPS, Setup

WORK = support_desk()
VALUES = {(turn.conversation, value) for turn in WORK.turns for name, value in turn.values.items() if name != "today"}


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: f"{setup.wire}-{setup.model}")
def setup(request):
    return request.param


@pytest.fixture(scope="module")
def results(setup):
    return {result["variant"]: result for result in demo.run_demo([setup], workload=WORK)}


@pytest.fixture(scope="module")
def declared(setup):
    return demo.run_variant(WORK, setup, declare=demo.settings_of("declared"))


def made_on_purpose(setup: Setup):
    return {(found.conversation, found.turn, found.cause, found.owner) for found in WORK.breaks_on(setup.wire)}


def found_in(result):
    return [(b["conversation"], b["turn"], b["cause"], b["owner"]) for b in result["breaks"]]


def test_declared_is_as_good_as_the_oracle(results):
    ours, best = results["declared"], results["oracle"]
    assert ours["read_share"] >= 0.98
    assert ours["cost_usd"] <= 1.02 * best["cost_usd"]
    assert ours["cache_write_tokens"] <= 1.02 * best["cache_write_tokens"]
    assert ours["calls"] == len(WORK.turns) == 120


def test_declared_has_one_head_per_lane_and_breaks_only_where_the_workload_does(results, setup):
    assert results["declared"]["distinct_heads"] == len(WORK.lanes) == 4
    assert set(found_in(results["declared"])) == made_on_purpose(setup)
    assert len(results["declared"]["breaks"]) == len(made_on_purpose(setup))


def test_the_plain_chain_has_a_head_per_call_and_the_default_lies_between(results):
    assert results["plain"]["distinct_heads"] == 120
    assert results["plain"]["breaks"] == []
    assert results["plain"]["read_share"] < results["default"]["read_share"] < results["declared"]["read_share"]
    assert results["oracle"]["cost_usd"] < 1.001 * results["declared"]["cost_usd"]  # both round to whole tokens
    assert results["declared"]["cost_usd"] < results["default"]["cost_usd"]
    assert results["default"]["cost_usd"] < results["plain"]["cost_usd"]


def test_by_default_every_new_head_is_named_with_its_remedy(setup):
    run = demo.run_variant(WORK, setup, declare=demo.settings_of("default"))
    heads = list(demo._heads(setup, run.exchanges))
    lanes, seen = set(), set()
    for turn, head, breaks in zip(WORK.turns, heads, run.breaks, strict=True):
        new = head not in seen and turn.lane in lanes
        seen.add(head)
        lanes.add(turn.lane)
        assert not new or breaks, f"{turn.conversation} turn {turn.turn}: a new head without a cause"
        assert all(found.cause and found.owner and found.remedy for found in breaks)


def test_the_printed_remedies_give_the_declared_figures(results, setup):
    lines = dict.fromkeys(b["remedy"] for b in results["default"]["breaks"] if b["remedy"].startswith("Slot("))
    pasted = [eval(line, {"Slot": Slot}) for line in lines]
    run = demo.run_variant(WORK, setup, declare=lambda _: {"volatile": pasted})
    table = rates(setup.provider, setup.model)
    oracle = oracle_run(
        WORK,
        model=setup.model,
        wire=setup.wire,
        prices=demo._prices(table),
        message_overhead=demo._OVERHEAD[setup.wire],
    )
    ours = demo.result_of(WORK, setup, "declared", run, oracle, table)
    assert ours["read_share"] >= 0.98
    assert ours["cost_usd"] <= 1.02 * oracle.cost
    assert ours["cache_write_tokens"] <= 1.02 * oracle.writes
    assert ours["distinct_heads"] == 4
    assert set(found_in(ours)) == made_on_purpose(setup)


def test_no_value_of_one_conversation_stands_in_the_request_of_another(declared):
    for turn, exchange in zip(WORK.turns, declared.exchanges, strict=True):
        sent = json.dumps(exchange.body, ensure_ascii=False)
        foreign = [value for name, value in VALUES if name != turn.conversation and value in sent]
        assert not foreign, f"{turn.conversation} turn {turn.turn} holds {foreign[:3]}"


def test_every_current_value_arrives_exactly_once_as_current(declared):
    for turn, exchange in zip(WORK.turns, declared.exchanges, strict=True):
        sent = json.dumps(exchange.body, ensure_ascii=False)
        for name, value in turn.values.items():
            # The words of a customer may hold a date or a name too; a value counts where it is given as one.
            assert sent.count(f"{name}: {value}") == 1, f"{turn.conversation} turn {turn.turn}: {name}"
        earlier = {value for past in WORK.before(turn) for value in past.call_values.values()}
        stale = [value for value in earlier - set(turn.values.values()) if value in sent]
        assert not stale or stale == [WORK.before(turn)[-1].values["today"]]


def test_the_answer_is_the_one_the_plain_chain_gets(declared, setup):
    plain = demo.run_variant(WORK, setup, declare=None)
    texts = [
        json.dumps(exchange.response.get("content") or exchange.response.get("choices")) for exchange in plain.exchanges
    ]
    ours = [
        json.dumps(exchange.response.get("content") or exchange.response.get("choices"))
        for exchange in declared.exchanges
    ]
    assert Counter(texts) == Counter(ours)


def test_the_command_prints_the_results_and_nothing_else():
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    done = subprocess.run(
        [sys.executable, "-m", "headstay.cli", "demo", "--format", "json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=environment,
    )
    printed = json.loads(done.stdout)
    assert set(printed) == {"results"}
    assert {result["wire"] for result in printed["results"]} == {
        "anthropic-messages", "openai-chat", "openai-responses"
    }  # fmt: skip
    for result in printed["results"]:
        assert set(result) == {
            "provider", "wire", "model", "variant", "calls", "input_tokens", "cache_read_tokens",
            "cache_write_tokens", "read_share", "cost_usd", "distinct_heads", "breaks",
        }  # fmt: skip
        for found in result["breaks"]:
            assert set(found) == {"cause", "owner", "conversation", "turn", "remedy"}
    assert "claude-opus-5-5: declared" in done.stderr
