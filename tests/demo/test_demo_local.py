"""The demo on the local model, as far as it goes without vLLM: what is played, what is sent, what is printed."""

import os
import subprocess
import sys

import pytest

from headstay.emulator import Emulator, VLLMSettings, agent_workload_text, serve
from headstay.ledger import Ledger
from langchain_headstay import ChatLocal
from langgraph_headstay.demo_local import Seen, lines, play, short_work

WORK = short_work()


def played(variant: str, work=WORK) -> tuple[list[Seen], Ledger, Emulator]:
    seen: list[Seen] = []
    ledger = Ledger()
    with serve(vllm=VLLMSettings()) as server:
        model = ChatLocal(
            model="emulated",
            base_url=server.openai_url,
            block_size=32,
            in_place_system=True,
            max_retries=0,
            max_tokens=1,
        )
        play(work, variant, model, ledger=ledger, seen=seen.append)
    return seen, ledger, server


def head_of(exchange) -> tuple[str, str]:
    return str(exchange.body["tools"]), str(exchange.body["messages"][0])


def test_what_is_played_is_a_cut_of_the_hostile_agent():
    assert {turn.thread.name[-2:] for turn in WORK.turns} == {"03", "04", "07"}
    assert [turn.number for turn in WORK.turns if turn.thread.name.endswith("07")] == [1, 2, 3]
    assert {call.agent for call in WORK.calls} == {"desk"}
    used = {use.name for call in WORK.calls for use in call.said.uses}
    assert len(used) >= 5
    assert used <= WORK.tools.keys()
    assert agent_workload_text.SUBAGENT_TOOL not in WORK.tools
    for prompt in WORK.prompts.values():
        assert all(f"{{{name}}}" in prompt for name in ("customer_name", "clock", "request_id"))


def test_every_labelled_call_is_made_and_its_reply_stands_in_the_history():
    seen, _, server = played("plain")
    assert len(seen) == len(WORK.calls) == len(server.exchanges)
    for call, exchange in zip(WORK.calls, server.exchanges, strict=True):
        said = [message for message in exchange.body["messages"] if message["role"] == "assistant"]
        before = sum(
            1 for one in WORK.calls if one.thread == call.thread and (one.turn, one.step) < (call.turn, call.step)
        )
        assert len(said) == before
        assert exchange.body["messages"][0]["content"].count(call.values["request_id"]) == 1


def test_the_plain_agent_sends_a_head_a_call_and_ours_one_for_each_tenant():
    _, _, plain = played("plain")
    seen, ledger, ours = played("headstay")
    assert len({head_of(exchange) for exchange in plain.exchanges}) == len(WORK.calls)
    sent = {(call.tenant, *head_of(exchange)) for call, exchange in zip(WORK.calls, ours.exchanges, strict=True)}
    assert len(sent) == 3  # of Larkfield two: a tool came late
    salts = {(call.tenant, one.body["cache_salt"]) for call, one in zip(WORK.calls, ours.exchanges, strict=True)}
    assert len(salts) == 2
    rows = list(ledger.rows())
    assert [row.cache_read_tokens for row in rows] == [one.cached for one in seen]
    assert not any(row.unverified for row in rows)
    assert {found.cause for row in rows for found in row.breaks} == {"tool_added"}


def result(variant: str, read: int, ms: float) -> dict[str, object]:
    return {"variant": variant, "calls": 9, "input_tokens": 9_000, "cache_read_tokens": read, "median_ms": ms}


def test_the_results_are_told_in_short_lines():
    told = {
        "server": {"model": "small", "device": "CPU, 2 cores", "block": 32, "start_s": 40.2},
        "first_token": {
            "cold": {"ms": 1_200.0, "prompt": 1_550, "cached": 0},
            "warm": {"ms": 100.0, "prompt": 1_552, "cached": 1_504},
        },
        "conversations": 3,
        "results": [
            {**result("plain", 90, 1_000.0), "verdicts": {}},
            {**result("headstay", 8_100, 120.0), "verdicts": {"cold": 2, "ok": 7}, "share_of_expected": 0.996},
        ],
    }
    text = "\n".join(lines(told))
    for said in (
        "Ready after 40 s",
        "1,504 of 1,552",
        "12.0 times",
        "90 of 9,000 (1%)",
        "8,100 of 9,000 (90%)",
        "2 cold, 7 ok; 99.6% of the reads",
    ):
        assert said in text
    assert max(map(len, lines(told))) <= 120


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--local",), "the local model is not installed; run: headstay local install"),
        (("--local", "--agent"), "leave --agent out"),
    ],
)
def test_what_cannot_be_run_is_one_clear_line(words, said, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "headstay.cli", "demo", *words],
        env={**os.environ, "HEADSTAY_LOCAL_HOME": str(tmp_path / "none")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
