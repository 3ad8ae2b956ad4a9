"""The agent oracle: each rule on a case small enough to work out by hand, and the whole against an ideal client.

A text of n words of one letter counts n tokens. The tool {"name":"a","input_schema":{"type":"object"},
"description":"d"} counts 9 + 6 + 9 + 1 + 8 + 1 = 34 on Anthropic ("description" is two pieces, "input_schema" three),
so that 966 words of stable text make a head of 1,000. The semi-static line "n: x" and the note "k: y" have 3 each.
"""

from collections.abc import Callable
from typing import Any

import pytest

from headstay.emulator.agent_oracle import agent_oracle_run
from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import (
    DESK,
    AgentCall,
    AgentThread,
    Example,
    Said,
    Summary,
    ToolForm,
    ToolUse,
)
from headstay.emulator.oracle import OracleCall, OracleResult, Prices, oracle_run
from headstay.emulator.reply import Wire
from headstay.emulator.workload import SystemPart, support_desk

CLAUDE = "claude-sonnet-5-5"  # minimum 512
GPT = "gpt-6.1-sol"  # minimum 1,024, breakpoints
OLD_GPT = "gpt-5.4"  # minimum 1,024, steps of 128
TOOL = ToolForm("a", "d", {"type": "object"})
LATE = ToolForm("b", "d", {"type": "object"})
CHANGED = ToolForm("a", "e", {"type": "object"})
USE = ToolUse("call_000000000001", "a", {"q": "z"}, "r r")


def words(letter: str, number: int) -> str:
    return " ".join([letter] * number)


def call(at: float, **changes: Any) -> AgentCall:
    """Make a call of a desk; the words of user and answer differ by turn and step."""
    turn, step = changes.get("turn", 1), changes.get("step", 0)
    head, user, said = changes.pop("head", 966), changes.pop("user", 100), changes.pop("said", 50)
    value = changes.pop("value", "x")
    parts = (
        SystemPart(words("h", head), "stable"),
        SystemPart(value, "conversation", "n"),
        SystemPart("t", "call", "k"),
    )
    answer = said if isinstance(said, Said) else Said(words("abcdef"[turn + step - 1], said))
    base = AgentCall(
        DESK, "one", turn, step, "acme", at, parts, (), (TOOL,), words("uvwxyz"[turn - 1], user), None, answer
    )
    return base._replace(**changes)


def asking(text: int = 5) -> Said:
    return Said(words("s", text), (USE,))


def workload(*calls: AgentCall, summary: Summary | None = None) -> AgentWorkload:
    names = dict.fromkeys((each.thread, each.tenant) for each in calls)
    return AgentWorkload(
        tuple(AgentThread(name, tenant, summary=summary if name == "one" else None) for name, tenant in names),
        calls,
    )


def run(*calls: AgentCall, model: str = CLAUDE, wire: Wire = "anthropic-messages", **how: Any) -> list[OracleCall]:
    return list(agent_oracle_run(workload(*calls), model=model, wire=wire, **how).calls)


def figures(calls: list[OracleCall]) -> list[tuple[int, int]]:
    return [(each.readable, each.writes) for each in calls]


def test_a_loop_reads_up_to_the_input_end_of_the_call_before() -> None:
    found = run(call(0, said=asking()), call(4, step=1), call(60, turn=2, user=40))
    # Call 1 persists 1,000 + 3 + 100 = 1,103. Text 5, call 1 + 9 ("a" and {"q":"z"}), result 2: 1,120. Then the
    # answer of 50 and 40 new words: 1,210. Notes of 3 are never read nor written.
    assert figures(found) == [(0, 1_103), (1_103, 17), (1_120, 90)]
    assert [each.uncached for each in found] == [3, 3, 3]
    assert [each.output_tokens for each in found] == [5 + 10, 50, 50]


def test_the_order_of_the_tools_does_not_matter() -> None:
    found = run(call(0, tools=(TOOL, LATE)), call(60, turn=2, tools=(LATE, TOOL)))
    # Two tools: 1,137; then answer and user: 1,287.
    assert figures(found) == [(0, 1_137), (1_137, 150)]


def test_a_removed_tool_stays_declared() -> None:
    found = run(call(0, tools=(TOOL, LATE)), call(60, turn=2, tools=(TOOL,)), call(120, turn=3, tools=()))
    assert figures(found) == [(0, 1_137), (1_137, 150), (1_287, 150)]


def test_a_late_tool_leaves_nothing_of_that_call_and_the_new_head_of_the_next_thread() -> None:
    found = run(
        call(0),
        call(10, thread="two", value="z"),
        call(60, turn=2, tools=(TOOL, LATE)),
        call(70, thread="two", turn=2, value="z", tools=(LATE, TOOL)),
        call(80, turn=3, tools=(LATE,)),
    )
    # Thread two reads the head of 1,000, later the head of 1,034.
    assert figures(found) == [(0, 1_103), (1_000, 103), (0, 1_287), (1_034, 253), (1_287, 150)]


@pytest.mark.parametrize("native", [False, True])
def test_a_changed_schema_leaves_nothing_of_that_call(native: bool) -> None:
    found = run(
        call(0),
        call(60, turn=2, tools=(CHANGED,)),
        call(70, turn=3, tools=(CHANGED,)),
        native_late_tools=native,
    )
    assert figures(found) == [(0, 1_103), (0, 1_253), (1_253, 150)]


def test_a_tool_that_is_appended_breaks_nothing_and_stays_in_each_thread() -> None:
    found = run(
        call(0),
        call(10, thread="two", value="z"),
        call(60, turn=2, tools=(TOOL, LATE)),
        call(70, thread="two", turn=2, value="z", tools=(LATE, TOOL)),
        call(80, turn=3, tools=(LATE,)),
        call(90, thread="three", value="y", tools=(LATE, TOOL)),
        native_late_tools=True,
    )
    # Each thread takes in the definition of 34 once, at the end of what it says next.
    assert figures(found) == [
        (0, 1_103),
        (1_000, 103),
        (1_103, 184),
        (1_103, 184),
        (1_287, 150),
        (1_000, 137),
    ]


def test_an_appended_tool_on_responses_stands_in_front_of_the_user() -> None:
    found = run(
        call(0, head=1_100),
        call(60, turn=2, tools=(TOOL, LATE), head=1_100),
        model=GPT,
        wire="openai-responses",
        native_late_tools=True,
    )
    # Head: the tool has one structural token and {"type":"function", 9; "name":"a", 8; "description":"d", 9;
    # "parameters": 5 and {"type":"object"}} 10: 42, so 1,100 + 42 + 3 + 100 = 1,245. The item around the definition of
    # 41: {"type": 5, "additional_tools", 7, "role": 4, "developer", 5, "tools":[ 5, ]} 2: 69.
    assert figures(found) == [(0, 1_245), (1_245, 150 + 69)]


def test_chat_has_no_way_to_append_a_tool() -> None:
    with pytest.raises(ValueError, match="Chat Completions has no way"):
        run(call(0), model=OLD_GPT, wire="openai-chat", native_late_tools=True)


def test_tool_choice_leaves_tools_and_system_on_anthropic() -> None:
    found = run(call(0), call(60, turn=2, tool_choice="none"), call(120, turn=3))
    # 1,003 is the end of the semi-static block. The third call finds the messages of the first.
    assert figures(found) == [(0, 1_103), (1_003, 250), (1_103, 300)]


def test_tool_choice_changes_nothing_on_openai() -> None:
    found = run(
        call(0, head=1_100),
        call(60, turn=2, tool_choice="none", head=1_100),
        model=GPT,
        wire="openai-responses",
    )
    assert figures(found) == [(0, 1_245), (1_245, 150)]


def test_the_first_image_leaves_tools_and_system_on_anthropic() -> None:
    found = run(call(0), call(60, turn=2, image="png"), call(120, turn=3))
    # An image has 258: 1,253 + 258 = 1,511.
    assert figures(found) == [(0, 1_103), (1_003, 508), (1_511, 150)]


def test_a_structured_answer_has_other_parameters() -> None:
    found = run(
        call(0),
        call(60, turn=2, structured=True),
        call(70, thread="two", value="z", structured=True),
        call(80, turn=3),
    )
    # The first one finds nothing, the second one the head that the first one wrote; the plain ones go on.
    assert figures(found) == [(0, 1_103), (0, 1_253), (1_000, 103), (1_103, 300)]


def test_the_form_of_a_structured_answer_is_part_of_an_openai_prompt() -> None:
    plain, structured = (
        run(call(0, head=1_100, structured=flag), model=GPT, wire="openai-responses")[0] for flag in (False, True)
    )
    assert structured.writes > plain.writes == 1_245


def test_a_summary_leaves_tools_and_system() -> None:
    summary = Summary(turn=3, kept_from=2, text="s", message=words("s", 20))
    calls = (call(0), call(60, turn=2), call(120, turn=3), call(180, turn=4))
    result = agent_oracle_run(workload(*calls, summary=summary), model=CLAUDE, wire="anthropic-messages")
    # From turn 3 on: 1,003 + 20 + 100 + 50 + 100 = 1,273; then 150 more.
    assert figures(list(result.calls)) == [(0, 1_103), (1_103, 150), (1_003, 270), (1_273, 150)]


def test_few_shot_is_pinned_by_the_first_call_of_the_lane() -> None:
    one, other = (Example("q", "a"),), (Example(words("q", 90), words("a", 90)),)
    found = run(call(0, examples=one), call(10, thread="two", value="z", examples=other))
    # "\n\nExamples:\n\ninput: q\noutput: a": 2 + 2 ("Examples", ":") + 2 + input : q 3 + newline 1 + output : a 3 = 13.
    assert figures(found) == [(0, 1_116), (1_013, 103)]


def test_kept_notes_stay_behind_each_call() -> None:
    found = run(call(0, said=asking()), call(4, step=1), call(60, turn=2, user=40), kept_notes=True)
    # Each call adds its note of 3: 1,106; 1,106 + 17 + 3 = 1,126; 1,126 + 90 + 3 = 1,219.
    assert figures(found) == [(0, 1_106), (1_106, 20), (1_126, 93)]
    assert [each.uncached for each in found] == [0, 0, 0]


def test_a_note_behind_the_user_hides_the_tool_results_until_the_next_turn() -> None:
    found = run(call(0, said=asking()), call(4, step=1), call(60, turn=2, user=40), note_behind_user=True)
    # The second call adds 17 behind a note that is its own: neither read later nor worth writing. The third one writes
    # them together with the answer of 50 and 40 new words.
    assert figures(found) == [(0, 1_103), (1_103, 0), (1_103, 17 + 90)]
    assert [each.uncached for each in found] == [3, 3 + 17, 3]


def test_thoughts_are_output_only() -> None:
    said = Said(words("a", 50), (), words("t", 7))
    (plain,), (thought,) = (run(call(0, said=said), thinking=flag) for flag in (False, True))
    assert (plain.output_tokens, thought.output_tokens) == (50, 57)
    assert plain.input_tokens == thought.input_tokens


@pytest.mark.parametrize(
    ("wire", "model", "expected"),
    [
        # Item text 3 + 5, call 3 + id 6 + name 1 + {"q":"z"} 9, result 3 + id 6 + 2.
        ("openai-responses", GPT, 8 + 19 + 11),
        # One message 3 + 5 + {"type":"function", 9 "id":"call_...", 13 "function":{ 5 "name":"a", 8 "arguments": 5
        # "{\\"q\\":\\"z\\"}" 15 }} 2, result 11.
        ("openai-chat", "gpt-5.6-terra", 8 + 57 + 11),
    ],
)
def test_calls_and_results_count_as_the_wire_writes_them(wire: Wire, model: str, expected: int) -> None:
    found = run(
        call(0, head=1_100, said=asking()),
        call(4, step=1, head=1_100),
        model=model,
        wire=wire,
        message_overhead=3,
    )
    # Head, semi-static and user have 3 each in front.
    assert found[0].writes == 1_100 + (42 if wire == "openai-responses" else 34) + 3 + 100 + 9
    assert figures(found)[1] == (found[0].writes, expected)


def test_an_empty_semi_static_block_is_not_sent() -> None:
    parts = (SystemPart(words("h", 1_100), "stable"), SystemPart("t", "call", "k"))
    (found,) = run(call(0, system=parts), model=GPT, wire="openai-responses", message_overhead=3)
    # 42 + 1,100 + 3 and 100 + 3.
    assert found.writes == 1_248


def test_an_older_openai_model_reads_the_tools_in_front_of_a_late_one() -> None:
    tools = tuple(ToolForm(f"a{words('a', 300)}{index}", "d", {"type": "object"}) for index in range(4))
    found = run(call(0, tools=tools), call(60, turn=2, tools=(*tools, LATE)), model=OLD_GPT, wire="openai-chat")
    # A name of "aa", 299 more words and a digit has 301 tokens instead of 1: four tools of 334 are 1,336; 10 x 128.
    assert found[1].readable == 1_280
    assert found[1].writes == 0


def test_tenants_and_agents_share_nothing() -> None:
    other = call(10, thread="two", tenant="bolt")
    specialist = call(20, thread="three", agent="specialist", tools=(LATE,))
    assert [each.readable for each in run(call(0), other, specialist)] == [0, 0, 0]


def test_costs_by_hand() -> None:
    prices = Prices(input=2, output=10, read=0.1, write=2.5)
    found = run(call(0, said=asking()), call(4, step=1), prices=prices)
    # 3 x 2 + 1,103 x 2.5 + 15 x 10 = 2,913.5; 3 x 2 + 1,103 x 0.1 + 17 x 2.5 + 50 x 10 = 658.8; in millionths.
    assert [each.cost for each in found] == pytest.approx([2_913.5e-6, 658.8e-6])


def test_a_first_event_that_comes_late_hides_what_was_written() -> None:
    found = run(call(0, said=asking()), call(4, step=1), call(60, turn=2, user=40), first_event_s=10)
    assert [each.readable for each in found] == [0, 0, 1_120]


def without_tools() -> AgentWorkload:
    """The support-desk chain as an agent that has no tools: each policy of a tenant an agent of its own."""
    calls = [
        AgentCall(
            turn.policy, turn.conversation, turn.turn, 0, turn.tenant, turn.at, turn.system, (), (), turn.user,
            turn.image, Said(turn.reply),
        )
        for turn in support_desk().turns
    ]  # fmt: skip
    return workload(*calls)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(
    ("model", "wire", "overhead"),
    [(CLAUDE, "anthropic-messages", 0), (GPT, "openai-responses", 3), (OLD_GPT, "openai-chat", 3)],
)
def test_without_tools_it_is_the_chain_oracle(model: str, wire: Wire, overhead: int, kept: bool) -> None:
    agent = agent_oracle_run(without_tools(), model=model, wire=wire, kept_notes=kept, message_overhead=overhead)
    chain = oracle_run(support_desk(), model=model, wire=wire, kept_notes=kept, message_overhead=overhead)
    assert agent.calls == chain.calls


WHOLE = support_agent(threads=7, longest=9)


def oracle(model: str, wire: Wire, **how: bool) -> OracleResult:
    overhead = 0 if wire == "anthropic-messages" else 3
    return agent_oracle_run(WHOLE, model=model, wire=wire, message_overhead=overhead, **how)


@pytest.mark.parametrize(
    ("model", "wire", "kept", "native"),
    [
        ("claude-opus-5-5", "anthropic-messages", True, False),
        ("claude-opus-5-5", "anthropic-messages", True, True),
        ("claude-sonnet-4-6", "anthropic-messages", False, False),
        ("gpt-6.1-sol", "openai-responses", False, False),
        ("gpt-6.1-sol", "openai-responses", False, True),
        ("gpt-5.6-terra", "openai-chat", False, False),
    ],
)
def test_an_ideal_client_gets_what_the_oracle_says(
    model: str, wire: Wire, kept: bool, native: bool, play_ideally: Callable[..., Any]
) -> None:
    expected = oracle(model, wire, kept_notes=kept, native_late_tools=native).calls
    used = play_ideally(WHOLE, model=model, wire=wire, kept_notes=kept, native=native)
    # On OpenAI a note is a message of its own, with 3 tokens of structure that the oracle leaves out.
    note = 0 if wire == "anthropic-messages" else 3
    assert [(each.read, each.written, each.total - note) for each in used] == [
        (each.readable, each.writes, each.input_tokens) for each in expected
    ]


def test_an_ideal_client_with_its_note_behind_the_user_gets_what_the_oracle_says(
    play_ideally: Callable[..., Any],
) -> None:
    model, wire = "claude-sonnet-4-6", "anthropic-messages"
    expected = oracle(model, wire, note_behind_user=True).calls
    used = play_ideally(WHOLE, model=model, wire=wire, kept_notes=False, native=False, behind_user=True)
    assert [tuple(each) for each in used] == [(each.readable, each.writes, each.input_tokens) for each in expected]


def test_an_ideal_client_of_an_older_openai_model_gets_a_step_more_at_times(
    play_ideally: Callable[..., Any],
) -> None:
    expected = oracle(OLD_GPT, "openai-chat").calls
    used = play_ideally(WHOLE, model=OLD_GPT, wire="openai-chat", kept_notes=False, native=False)
    over = [each.read - best.readable for each, best in zip(used, expected, strict=True)]
    # The note's message and the answer in its place share their first structural token; where that one completes a
    # step of 128 the server reports the step.
    assert set(over) <= {0, 128}
    assert sum(more > 0 for more in over) <= len(over) / 50
    assert not any(each.written for each in used)
