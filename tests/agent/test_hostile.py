"""The hostile agent with `StableHeadMiddleware`: figures against the oracle, and every fact looked up on the wire."""

import json
import re
from collections import Counter, defaultdict
from typing import Any

import pytest

from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import support_agent
from headstay.emulator.agent_workload_labels import DESK, SPECIALIST, AgentBreak, AgentCall
from headstay.emulator.agent_workload_script import CASE
from langgraph_headstay import demo_agent
from langgraph_headstay.demo_agent import SETUPS, Run
from langgraph_headstay.demo_desk import AgentSetup

# Long enough for the price of kept notes to show; bench/prefix_reads.py plays the whole of it.
AGENT = support_agent(threads=7, longest=20)
MASKED = [call for call in AGENT.calls if any(use.refused for use in call.said.uses)]


@pytest.fixture(scope="module", params=SETUPS, ids=lambda setup: setup.model)
def setup(request: pytest.FixtureRequest) -> AgentSetup:
    chosen: AgentSetup = request.param
    return chosen


@pytest.fixture(scope="module")
def ours(setup: AgentSetup) -> Run:
    return demo_agent.run_variant(AGENT, setup, "headstay")


@pytest.fixture(scope="module")
def plain(setup: AgentSetup) -> Run:
    return demo_agent.run_variant(AGENT, setup, "plain")


@pytest.fixture(scope="module")
def results(setup: AgentSetup, ours: Run, plain: Run) -> dict[str, dict[str, Any]]:
    return {
        **{name: demo_agent.summed(AGENT, setup, name, run) for name, run in (("headstay", ours), ("plain", plain))},
        **{name: demo_agent.oracle_result(AGENT, setup, name) for name in demo_agent.oracles_of(setup)},
    }


def sent(run: Run) -> list[str]:
    """The requests as texts, characters unescaped."""
    return [json.dumps(exchange.body, ensure_ascii=False) for exchange in run.exchanges]


def places(call: AgentCall) -> tuple[str, int, int]:
    return call.thread, call.turn, call.step


def test_every_call_of_the_workload_is_made_and_accepted(ours: Run) -> None:
    assert len(ours.exchanges) == len(AGENT.calls)
    assert {exchange.status for exchange in ours.exchanges} == {200}
    assert len(ours.others) == 1  # the summariser fires once


def test_it_reads_what_the_oracle_reads(results: dict[str, dict[str, Any]]) -> None:
    assert results["headstay"]["read_share"] >= 0.98


def test_it_writes_no_more_than_the_oracle(setup: AgentSetup, results: dict[str, dict[str, Any]]) -> None:
    best = results[demo_agent.promised_oracle(setup)]
    assert results["headstay"]["cache_write_tokens"] <= 1.02 * best["cache_write_tokens"]


def test_it_costs_no_more_than_the_oracle(setup: AgentSetup, results: dict[str, dict[str, Any]]) -> None:
    # Text behind tool results is named as a cause of empty answers, so where a model takes no system message in place
    # the note stays behind the user's words: that alone costs a perfect layout 2.4% on the whole workload.
    best = demo_agent.promised_oracle(setup)
    bound = results["oracle-note" if setup.note_behind_user else best]
    assert results["headstay"]["cost_usd"] <= 1.02 * bound["cost_usd"]
    assert results["headstay"]["cost_usd"] <= 1.04 * results[best]["cost_usd"]


def test_the_plain_agent_reads_nothing_and_has_a_head_for_each_call(
    results: dict[str, dict[str, Any]],
) -> None:
    assert results["plain"]["read_share"] < 0.05
    assert results["plain"]["distinct_heads"] == len(AGENT.calls)
    assert results["plain"]["cost_usd"] > 3 * results["headstay"]["cost_usd"]


@pytest.mark.parametrize("vendor_setup", [setup for setup in SETUPS if setup.provider == "anthropic"], ids=str)
def test_the_vendor_middleware_pays_for_writes_that_nobody_reads(vendor_setup: AgentSetup) -> None:
    run = demo_agent.run_variant(AGENT, vendor_setup, "vendor")
    result = demo_agent.summed(AGENT, vendor_setup, "vendor", run)
    assert result["read_share"] < 0.05
    assert result["cache_write_tokens"] > 5 * demo_agent.oracle_result(AGENT, vendor_setup)["cache_write_tokens"]


def test_a_lane_has_one_head_and_another_one_only_where_the_application_changes_it(
    setup: AgentSetup, ours: Run
) -> None:
    heads: dict[tuple[Any, ...], set[bytes]] = defaultdict(set)
    for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True):
        heads[call.lane, call.structured].add(demo_agent.head_of(setup, exchange))
    plain_heads = {head for (_, structured), found in heads.items() if not structured for head in found}
    assert len(plain_heads) == AGENT.heads(native_late_tools=setup.native_late_tools)


def labelled_breaks(setup: AgentSetup) -> tuple[AgentBreak, ...]:
    return AGENT.breaks_on(setup.wire, native_late_tools=setup.native_late_tools)


def expected_breaks(setup: AgentSetup) -> dict[tuple[str, int, int], set[tuple[str, str]]]:
    found: dict[tuple[str, int, int], set[tuple[str, str]]] = defaultdict(set)
    for thread, turn, step, cause, owner in labelled_breaks(setup):
        found[thread, turn, step].add((cause, owner))
    if setup.note_behind_user:
        # While tools are called the note stands in front of what they return: a choice of ours, and recorded as one.
        for call in AGENT.calls:
            if call.step:
                found[places(call)].add(("clock_in_head", "policy"))
    if setup.wire == "openai-chat":
        # `create_agent` makes every tool strict as soon as an answer is structured: that changes their schemas.
        for call in AGENT.calls:
            if call.structured:
                found[places(call)].add(("tool_schema_changed", "application"))
    return found


def test_it_breaks_only_where_the_application_does(setup: AgentSetup, ours: Run) -> None:
    expected = expected_breaks(setup)
    for call, breaks in zip(AGENT.calls, ours.breaks, strict=True):
        found = {(str(each.cause), each.owner) for each in breaks}
        assert found <= expected[places(call)], f"{places(call)}: {found - expected[places(call)]}"


def test_it_reports_each_break_that_the_application_makes(setup: AgentSetup, ours: Run) -> None:
    found = {
        (*places(call), str(each.cause), each.owner)
        for call, breaks in zip(AGENT.calls, ours.breaks, strict=True)
        for each in breaks
    }
    missing = [broken for broken in labelled_breaks(setup) if tuple(broken) not in found]
    assert missing == []


def test_each_break_has_cause_owner_and_remedy(ours: Run) -> None:
    assert any(ours.breaks)
    for breaks in ours.breaks:
        assert all(each.cause and each.owner and each.remedy for each in breaks)


def test_every_current_fact_arrives_exactly_once(ours: Run) -> None:
    for call, body in zip(AGENT.calls, sent(ours), strict=True):
        for name, value in call.values.items():
            assert body.count(f"{name}: {value}") == 1, f"{places(call)}: {name}"
            assert body.count(value) == 1, f"{places(call)}: {name} stands in another place too"
        assert body.count(call.user) == 1, f"{places(call)}: the user's words"


def test_what_was_current_before_is_gone_or_stands_where_it_was_sent(setup: AgentSetup, ours: Run) -> None:
    for call, body in zip(AGENT.calls, sent(ours), strict=True):
        past = [value for before in AGENT.before(call) for value in before.call_values.values()]
        if setup.thinking:  # notes are kept, each one in its place
            assert all(body.count(value) <= 1 for value in past), places(call)
        else:
            assert not [value for value in past if value in body], places(call)


def test_kept_notes_stand_in_the_order_in_which_they_were_sent(ours: Run, setup: AgentSetup) -> None:
    if not setup.thinking:
        return
    for call, body in zip(AGENT.calls, sent(ours), strict=True):
        if AGENT.summary_before(call) is not None:
            continue  # what the summary replaced took its notes with it
        clocks = [before.values["clock"] for before in (*AGENT.before(call), call)]
        at = [body.find(clock) for clock in clocks]
        assert -1 not in at, f"{places(call)}: a kept note is lost"
        assert at == sorted(at), places(call)


def test_nothing_of_another_thread_arrives(ours: Run) -> None:
    desk = [call for call in AGENT.calls if call.agent == DESK]
    names = {call.thread: call.conversation_values["customer_name"] for call in desk}
    ids = {call.call_values["request_id"]: call.thread for call in desk}
    pattern = re.compile("|".join(map(re.escape, ids)))
    for call, body in zip(AGENT.calls, sent(ours), strict=True):
        root = call.thread.partition(":")[0]
        mine = root.rpartition("-")[2]
        assert {mark.partition(".")[0] for mark in CASE.findall(body)} == {mine}
        assert not [name for thread, name in names.items() if thread != root and name in body]
        assert {ids[found] for found in pattern.findall(body)} <= {root}
        assert call.agent == DESK or names[root] not in body


def test_a_masked_tool_never_runs_and_its_call_gets_an_error(ours: Run, plain: Run) -> None:
    assert len(MASKED) == 2
    for call in MASKED:
        assert (call.thread, call.turn, texts.REMOVED_TOOL) not in ours.ran
        assert (
            call.thread,
            call.turn,
            texts.REMOVED_TOOL,
        ) in plain.ran  # its body is there, and would have run
        following = next(i for i, each in enumerate(AGENT.calls) if places(each) == (*places(call)[:2], call.step + 1))
        assert "not available" in sent(ours)[following]


def test_every_other_tool_runs_once_for_each_call_of_the_model(ours: Run) -> None:
    expected = Counter(
        (call.thread, call.turn, use.name)
        for call in AGENT.calls
        for use in call.said.uses
        if not use.refused and use.name != texts.SUBAGENT_TOOL
    )
    assert Counter(ours.ran) == expected


def test_a_removed_tool_stays_declared(setup: AgentSetup, ours: Run) -> None:
    assert all(texts.REMOVED_TOOL not in {form.name for form in call.tools} for call in MASKED)
    for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True):
        if call.agent == DESK and not call.structured:
            assert texts.REMOVED_TOOL in json.dumps(exchange.body["tools"]), places(call)


def test_the_few_shot_choice_is_the_first_one_of_the_lane(ours: Run) -> None:
    for call, body in zip(AGENT.calls, sent(ours), strict=True):
        pinned = AGENT.pinned[call.lane]
        shown = [one for one in texts.EXAMPLES if one.answer in body]
        assert set(shown) == set(pinned), places(call)


def test_the_specialist_keeps_its_own_head(setup: AgentSetup, ours: Run) -> None:
    for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True):
        tools = json.dumps(exchange.body["tools"])
        own = [name for name in (*texts.DESK_TOOLS, *texts.SPECIALIST_TOOLS) if f'"{name}"' in tools]
        assert (set(own) <= set(texts.SPECIALIST_TOOLS)) == (call.agent == SPECIALIST)


def test_the_answers_are_those_of_the_plain_agent(setup: AgentSetup, ours: Run, plain: Run) -> None:
    assert [answer_of(setup, exchange) for exchange in ours.exchanges] == [call.said.text for call in AGENT.calls]
    assert [answer_of(setup, exchange) for exchange in plain.exchanges] == [call.said.text for call in AGENT.calls]


def answer_of(setup: AgentSetup, exchange: Any) -> str:
    response = exchange.response
    if setup.wire == "anthropic-messages":
        return "".join(block.get("text", "") for block in response["content"])
    if setup.wire == "openai-chat":
        return response["choices"][0]["message"]["content"] or ""
    items = [item for item in response["output"] if item["type"] == "message"]
    return "".join(part["text"] for item in items for part in item["content"])


def test_thinking_is_never_dropped_but_where_the_application_breaks(setup: AgentSetup, ours: Run) -> None:
    breaks = {(broken.thread, broken.turn, broken.step) for broken in labelled_breaks(setup)}
    began: set[str] = set()
    for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True):
        began |= {call.thread} if places(call) in breaks else set()
        dropped = exchange.response.get("input_transformations")
        assert not dropped or call.thread in began, places(call)


def test_the_results_have_the_form_of_the_demo_in_one_process_and_in_two() -> None:
    small, sonnet = support_agent(threads=2, longest=3), SETUPS[1]
    told: list[tuple[str, int]] = []
    one = demo_agent.run_demo([sonnet], workload=small, progress=lambda _, variant, made: told.append((variant, made)))
    two = demo_agent.run_demo([sonnet], workload=small, processes=2)
    assert one == two
    assert [result["variant"] for result in one] == ["plain", "vendor", "headstay", "oracle", "oracle-note"]
    assert dict(told) == dict.fromkeys(("plain", "vendor", "headstay"), len(small.calls))
    json.dumps(one)
    for result in one:
        assert set(result) - {"read_shares"} == {
            "provider", "wire", "model", "variant", "calls", "input_tokens", "cache_read_tokens", "cache_write_tokens",
            "read_share", "cost_usd", "distinct_heads", "breaks", "requests",
        }  # fmt: skip
        assert len(result["requests"]) == result["calls"] == len(small.calls)
        assert sum(each["cache_read_tokens"] for each in result["requests"]) == result["cache_read_tokens"]
        assert all(
            set(each) == {"cause", "owner", "conversation", "turn", "step", "remedy"} for each in result["breaks"]
        )


def test_where_a_tool_can_be_appended_there_is_a_second_oracle() -> None:
    small, opus = support_agent(threads=3, longest=4), SETUPS[0]
    results = {result["variant"]: result for result in demo_agent.run_demo([opus], workload=small)}
    assert list(results) == ["plain", "vendor", "headstay", "oracle", "oracle-native"]
    assert results["oracle-native"]["cache_write_tokens"] < results["oracle"]["cache_write_tokens"]
    shares = results["headstay"]["read_shares"]
    assert set(shares) == {"oracle", "oracle-native"}
    assert shares["oracle-native"] == results["headstay"]["read_share"]


def test_a_late_tool_is_appended_once_and_stays_out_of_the_list(setup: AgentSetup, ours: Run) -> None:
    if not setup.native_late_tools:
        return
    late = f'"{texts.LATE_TOOL}"'
    first = next(call for call in AGENT.calls if texts.LATE_TOOL in {form.name for form in call.tools})
    lane = [
        (call, exchange.body)
        for call, exchange in zip(AGENT.calls, ours.exchanges, strict=True)
        if call.lane == first.lane and not call.structured
    ]
    assert len({call.thread for call, _ in lane if call.at > first.at}) > 1
    for call, body in lane:
        assert late not in json.dumps(body["tools"]), places(call)
        history = json.dumps(body.get("messages") or body["input"])
        offered = texts.LATE_TOOL in {form.name for form in call.tools}
        assert len(re.findall(r"tool_addition|additional_tools", history)) == int(offered), places(call)
