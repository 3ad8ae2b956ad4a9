"""Added instructions: over random changes of the system text nothing sent ever moves, and each request holds the text.

The text of a call is read back from its request by the words of each rule: a rule that holds stands there once, one
that holds no more, or in another conversation, stands nowhere.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as defined
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay import HeadStore
from headstay.added import joined, remainder, wording
from headstay.call import Call
from headstay.emulator.anthropic_models import find
from headstay.emulator.anthropic_turns import check_messages
from headstay.emulator.openai_chat_body import read_chat
from headstay.emulator.openai_responses_body import read_responses
from headstay.flow import Flow, Settings
from headstay.ledger.usage import Usage
from headstay.prompt import Wire
from headstay.slots import Slot
from headstay.values import EXAMPLES_TITLE, Declared
from headstay.verify import verify
from headstay.wires import parse

Json = dict[str, Any]

TARGETS: tuple[tuple[Wire, str], ...] = (
    ("anthropic-messages", "claude-opus-5"),
    ("openai-responses", "gpt-6.1-sol"),
    ("openai-chat", "gpt-5.6-terra"),
    ("openai-chat", "gpt-5.4"),
)
POLICY = "Answer briefly. " * 300
CLOCK = "2026-11-29T10:{:02d}:00Z"
OPS = ("same", "block", "line", "clock", "change", "drop", "rewrite")


@dataclass(frozen=True)
class Step:
    """One call: whose turn it is, what becomes of the system text, and what the call adds to the conversation."""

    thread: int
    ops: tuple[str, ...]
    results: bool
    retried: bool


@dataclass
class Talk:
    """One conversation: its rules, each as (whether it is a block of its own, its words), and what was said."""

    rules: list[tuple[bool, str]] = defined(default_factory=list)
    history: list[Json] = defined(default_factory=list)

    def texts(self, number: int) -> list[str]:
        """The system text of one call, in blocks."""
        blocks = [POLICY]
        for own, words in self.rules:
            said = words.replace("NOW", CLOCK.format(number))
            if own:
                blocks.append(f"\n\n{said}")
            else:
                blocks[-1] += f"\n{said}"
        return blocks

    def change(self, op: str, serial: int) -> None:
        rule = f"Keep rule{serial}z."
        if op in ("block", "line"):
            self.rules.append((op == "block", rule))
        elif op == "clock":
            self.rules.append((True, f"At NOW keep rule{serial}z."))
        elif op == "change" and self.rules:
            self.rules[-1] = (self.rules[-1][0], rule)
        elif op == "drop" and self.rules:
            self.rules.pop()
        elif op == "rewrite":
            self.rules[:1] = [(False, rule)]


def steps(ops: Sequence[str], *, retries: bool) -> st.SearchStrategy[list[Step]]:
    some = st.sampled_from([(op,) for op in ops]) | st.tuples(st.sampled_from(ops), st.sampled_from(ops))
    retried = st.sampled_from([False, False, False, retries])
    return st.lists(st.builds(Step, st.integers(0, 1), some, st.booleans(), retried), min_size=8, max_size=14)


def said(wire: Wire, number: int, *, results: bool) -> list[Json]:
    """What one call adds: the answer before it, and a question or a tool's result."""
    call = f"call_{number}"
    question: Json = {"role": "user", "content": f"Question {number}"}
    if wire == "anthropic-messages":
        use = {"type": "tool_use", "id": call, "name": "alpha", "input": {"x": number}}
        answer: list[Json] = [use] if results else [{"type": "text", "text": f"Answer {number}"}]
        given: list[Json] = [{"type": "tool_result", "tool_use_id": call, "content": "7"}]
        return [{"role": "assistant", "content": answer}, {"role": "user", "content": given} if results else question]
    made: Json = {"type": "function_call", "call_id": call, "name": "alpha", "arguments": "{}"}
    if wire == "openai-responses":
        if results:
            return [made, {"type": "function_call_output", "call_id": call, "output": "7"}]
        answer = [{"type": "output_text", "text": f"Answer {number}"}]
        return [{"type": "message", "role": "assistant", "content": answer}, question]
    if results:
        made = {"id": call, "type": "function", "function": {"name": "alpha", "arguments": "{}"}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": call, "content": "7"},
        ]
    return [{"role": "assistant", "content": f"Answer {number}"}, question]


def request(wire: Wire, model: str, texts: Sequence[str], history: Sequence[Json]) -> Json:
    name = "input_text" if wire == "openai-responses" else "text"
    blocks = [{"type": name, "text": text} for text in texts]
    if wire == "anthropic-messages":
        return {"model": model, "system": blocks, "messages": [*history], "max_tokens": 10}
    items = [{"role": "developer", "content": blocks}, *history]
    return {"model": model, "input" if wire == "openai-responses" else "messages": items}


def play(wire: Wire, model: str, script: Sequence[Step], store: HeadStore) -> Iterator[tuple[Step, Call, Talk]]:
    """Send random calls of two conversations."""
    talks: dict[int, Talk] = {}
    for number, step in enumerate(script):
        talk = talks.setdefault(step.thread, Talk())
        if not talk.history:
            talk.history = [{"role": "user", "content": f"Thread {step.thread}"}]
        elif not step.retried:
            talk.history = [*talk.history, *said(wire, number, results=step.results)]
        for place, op in enumerate(step.ops):
            talk.change(op, 10 * number + place)
        flow = Flow(Settings("agent", on_break="record"), head_store=store)
        body = request(wire, model, talk.texts(number), talk.history)
        call = flow.prepare(body, wire=wire, thread=str(step.thread), now=1_000.0 + number)
        flow.complete(call, Usage(input_tokens=2_000))
        yield step, call, talk


def pieces(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A request as a flat list of (who, what) in wire order, without markers and without a dropped note."""
    given = body.get("system") or []
    system = [{"text": given}] if isinstance(given, str) else given
    found = [("head", block["text"]) for block in system]
    for item in body.get("messages") or body["input"]:
        content = item.get("content", item.get("output"))
        blocks = [{"text": content}] if isinstance(content, str) else content or ()
        who = str(item.get("role", item.get("call_id")))
        found += [(who, block["text"] if "text" in block else json.dumps(block)) for block in blocks]
        found += [(who, json.dumps(item[name])) for name in ("tool_calls", "arguments") if name in item]
    return [(who, re.sub(r', "\w+": \{"type": "ephemeral"\}', "", what)) for who, what in found if what[:4] != "Now:"]


def continues(after: Call, before: Call) -> bool:
    old = pieces(before.body)
    return pieces(after.body)[: len(old)] == old


def heads(call: Call) -> tuple[str, ...]:
    return call.plan.head if call.plan is not None else ()


def legal(call: Call) -> None:
    """Let the emulator refuse what the provider would refuse of the places of system messages."""
    if call.wire == "anthropic-messages":
        row = find(call.model)
        assert row is not None
        check_messages(call.body, row, betas=frozenset())
    elif call.wire == "openai-chat":
        read_chat(call.body)
    else:
        read_responses(call.body)


@pytest.mark.parametrize(("wire", "model"), TARGETS)
@settings(max_examples=50)
@given(steps(OPS, retries=True))
def test_i1_to_i4_over_random_changes(wire: Wire, model: str, script: list[Step]) -> None:
    sent: dict[int, list[Call]] = {}
    asked: dict[int, list[Call]] = {}  # of those the ones with the last history: the call before, and it once more
    for number, (step, call, talk) in enumerate(play(wire, model, script, HeadStore())):
        assert call.unverified is None
        legal(call)
        text = json.dumps(call.body)
        holding = "".join(talk.texts(number))
        assert Counter(re.findall(r"rule\d+z", text)) == Counter(re.findall(r"rule\d+z", holding))
        clocks = set(re.findall(r"2026-11-29T\S+?Z", holding))
        assert Counter(re.findall(r"2026-11-29T\S+?Z", text)) == Counter(clocks)
        users = [what for who, what in pieces(call.body) if who not in ("head", "system", "developer")]
        assert not re.search(r"rule\d+z", "".join(users)), "the operator's words stay the operator's"
        before = sent.setdefault(step.thread, [])
        opening = not any(who == "assistant" or "call_" in who for who, _ in pieces(call.body))
        assert call.breaks or opening or not before or any(continues(call, one) for one in before)
        assert {found.owner for found in call.breaks} <= {"application"}
        last = asked.get(step.thread, [])
        if call.breaks == () and not opening and not step.retried and heads(call) in map(heads, last):
            assert any(continues(call, one) for one in last), "in one life of a head nothing goes unnoticed"
        asked[step.thread] = [*last, call] if step.retried else [call]
        before.append(call)


@pytest.mark.parametrize(("wire", "model"), TARGETS)
@settings(max_examples=40)
@given(steps(("same", "block", "line", "clock"), retries=False))
def test_i1_and_i2_what_is_only_added_to_breaks_nothing(wire: Wire, model: str, script: list[Step]) -> None:
    sent: dict[int, Call] = {}
    for step, call, _ in play(wire, model, script, HeadStore()):
        before = sent.get(step.thread)
        assert before is None or (call.breaks == () and continues(call, before))
        assert call.plan is not None
        assert before is None or before.plan is None or call.plan.head == before.plan.head
        sent[step.thread] = call


class Desk:
    """An application on one wire whose conversation goes on with each call."""

    def __init__(self, target: tuple[Wire, str] = TARGETS[0], declared: Declared | None = None) -> None:
        self.wire, self.model = target
        self.store = HeadStore()
        self.settings = Settings("desk", declared or Declared(), on_break="record")
        self.calls: list[Call] = []
        self.history: list[Json] = [{"role": "user", "content": "Hello"}]

    def ask(self, *texts: str, thread: str = "one", constant: str = "", **more: Any) -> Call:
        """Send the conversation so far and one question more."""
        if self.calls:
            self.history = [*self.history, *said(self.wire, len(self.calls), results=False)]
        return self.send(*texts, thread=thread, constant=constant, **more)

    def send(self, *texts: str, thread: str = "one", constant: str = "", **more: Any) -> Call:
        """Send the conversation as it is."""
        flow = Flow(self.settings, head_store=self.store)
        body = {**request(self.wire, self.model, texts, self.history), **more}
        now, fixed = float(len(self.calls)), frozenset({constant} if constant else ())
        call = flow.prepare(body, wire=self.wire, thread=thread, constant=fixed, now=now)
        flow.complete(call, Usage(input_tokens=2_000, cache_write_tokens=1_900))
        assert call.unverified is None
        legal(call)
        self.calls.append(call)
        return call


def causes(call: Call) -> list[tuple[str, str]]:
    return [(str(found.cause), found.owner) for found in call.breaks]


def operator(call: Call) -> list[str]:
    """The operator's texts behind the head."""
    (_, *rest) = [what for who, what in pieces(call.body) if who in ("head", "system", "developer")]
    return rest


BRIEF = "\n\nBe brief."
SAID = "Added to the instructions:\nBe brief."


@pytest.mark.parametrize("target", TARGETS)
def test_it_is_said_at_the_end_and_stands_there(target: tuple[Wire, str]) -> None:
    desk = Desk(target)
    desk.ask(POLICY)
    added = desk.ask(POLICY + BRIEF)
    assert [what for _, what in pieces(added.body)][-2:] == ["Question 1", SAID]
    assert added.expected == 1_900 or desk.model == "gpt-5.4"
    later = desk.ask(POLICY + BRIEF)
    assert operator(later) == [SAID]
    more = desk.ask(POLICY + BRIEF, "Be kind.\n")
    assert operator(more) == [SAID, "Added to the instructions:\nBe kind."]
    assert [one.breaks for one in desk.calls] == [()] * 4
    assert all(continues(after, before) for before, after in zip(desk.calls, desk.calls[1:], strict=False))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("now", "cause"),
    [
        ([POLICY], "system_text_changed"),
        ([POLICY + "\n\nBe kind."], "value_in_head"),
        (["It is important. " + POLICY + BRIEF], "system_text_changed"),
        ([POLICY, "Be brief."], "system_text_changed"),
    ],
)
def test_another_text_is_a_new_head_and_one_break(target: tuple[Wire, str], now: list[str], cause: str) -> None:
    desk = Desk(target)
    for texts in ([POLICY], [POLICY + BRIEF], now, now):
        desk.ask(*texts)
    assert [causes(one) for one in desk.calls] == [[], [], [(cause, "application")], []]
    assert [one.record and one.record.epoch for one in desk.calls] == [0, 0, 1, 1]
    for call in desk.calls[2:]:
        assert operator(call) == now[1:]
        assert pieces(call.body)[0][1] == now[0]
    assert continues(desk.calls[3], desk.calls[2])


def test_a_suffix_that_changes_with_each_call_piles_nothing_up() -> None:
    desk = Desk()
    desk.ask(POLICY)
    for number in range(1, 5):
        call = desk.ask(f"{POLICY}\nStock: {number * 111} tents")
        assert json.dumps(call.body).count("Stock") == 1
        assert operator(call) == (["Added to the instructions:\nStock: 111 tents"] if number == 1 else [])
    assert [causes(one) for one in desk.calls[2:]] == [[("value_in_head", "application")]] * 3
    assert 'every="call"' in desk.calls[2].breaks[0].remedy


def test_words_that_come_and_go_are_a_break_when_they_go() -> None:
    desk = Desk()
    for texts in ([POLICY], [POLICY + BRIEF], [POLICY], [POLICY + BRIEF], [POLICY]):
        desk.ask(*texts)
    gone = [("system_text_changed", "application")]
    assert [causes(one) for one in desk.calls] == [[], [], gone, [], gone]
    assert [operator(one) for one in desk.calls] == [[], [SAID], [], [SAID], []]


def test_sent_once_more_with_another_text() -> None:
    """A retry goes back to the call before; there the words may come, go and change."""
    desk = Desk()
    desk.ask(POLICY)
    desk.ask(POLICY)
    for texts, words in (([POLICY + BRIEF], [SAID]), ([POLICY], [])):
        assert operator(desk.send(*texts)) == words
    on = desk.ask(POLICY + BRIEF)  # of what was sent with these words, the one that had them said is continued
    assert operator(on) == [SAID]
    assert continues(on, desk.calls[2])
    assert [one.breaks for one in desk.calls] == [()] * 5


def test_a_new_conversation_has_the_whole_text_as_its_head() -> None:
    desk = Desk()
    desk.ask(POLICY, thread="one")
    desk.ask(POLICY + BRIEF, thread="one")
    desk.history = [{"role": "user", "content": "Good morning"}]
    new = desk.send(POLICY + BRIEF, thread="two")
    assert (operator(new), new.breaks) == ([], ())
    assert pieces(new.body)[0] == ("head", POLICY + BRIEF)


def test_an_agent_without_instructions_that_gets_some_begins_a_head() -> None:
    desk = Desk()
    desk.ask()
    call = desk.ask(POLICY)
    assert pieces(call.body)[0] == ("head", POLICY)
    assert causes(call) == [("system_text_changed", "application")]


def test_a_missing_system_text_is_not_restored() -> None:
    desk = Desk()
    desk.ask(POLICY)
    desk.ask(POLICY + BRIEF)
    call = desk.ask()
    assert "briefly" not in json.dumps(call.body)
    assert "Be brief" not in json.dumps(call.body)
    assert causes(call) == [("system_text_changed", "application")]


def test_the_values_of_an_addition_go_where_values_go() -> None:
    desk = Desk(
        declared=Declared((), (Slot(r"^Order (?P<order>\w+)\.$"), Slot(r"^For (?P<who>.+)$", every="conversation")))
    )
    desk.ask(POLICY)
    for order in ("A1", "B2"):
        call = desk.ask(f"{POLICY}\nOrder {order}.")
        assert operator(call) == ["Added to the instructions:\nOrder [[order]]."]
        assert json.dumps(call.body).count(f"Now:\\norder: {order}") == 1
    assert [one.breaks for one in desk.calls] == [()] * 3
    whole = desk.ask(f"{POLICY}\nOrder C3.\nFor Jane")  # stands right behind the head, which would break it anyway
    assert operator(whole) == ["Values for this conversation:\nwho: Jane"]
    assert causes(whole) == [("system_text_changed", "application")]


def test_examples_at_the_end_stay_in_the_head() -> None:
    examples = "Examples:\nQ: Hi\nA: Hello"
    desk = Desk()
    desk.ask(POLICY, examples, constant=examples)
    call = desk.ask(POLICY + BRIEF, examples, constant=examples)
    assert operator(call) == [examples, SAID]
    assert operator(desk.ask(POLICY + BRIEF, "Be kind.", examples, constant=examples))[-1][-8:] == "Be kind."
    own = f"{EXAMPLES_TITLE}\nQ: Hi\nA: Hello"
    desk = Desk(declared=Declared(examples=True))
    desk.ask(POLICY, own)
    call = desk.ask(POLICY + BRIEF, own)
    assert operator(call)[-1] == SAID
    assert [one.breaks for one in desk.calls] == [(), ()]


def test_words_that_the_store_has_lost_are_one_break() -> None:
    desk = Desk()
    desk.ask(POLICY)
    desk.ask(POLICY + BRIEF)
    desk.store._run("DELETE FROM additions", ())  # what pruning does
    lost = desk.ask(POLICY + BRIEF)
    assert pieces(lost.body)[0] == ("head", POLICY + BRIEF)
    assert causes(lost) == [("system_text_changed", "application")]
    assert "head store" in lost.breaks[0].remedy
    assert desk.ask(POLICY + BRIEF).breaks == ()


def test_a_question_that_goes_on_has_the_words_behind_it() -> None:
    """Without the reply in between, two questions are one message on Anthropic's wire."""
    desk = Desk()
    desk.ask(POLICY)
    desk.ask(POLICY + BRIEF)
    texts = [{"type": "text", "text": "Question 1"}, {"type": "text", "text": "And quickly."}]
    desk.history = [*desk.history[:-1], {"role": "user", "content": texts}]
    moved = desk.send(POLICY + BRIEF)
    assert [what for _, what in pieces(moved.body)][-2:] == ["And quickly.", SAID]
    assert moved.breaks == ()
    assert continues(moved, desk.calls[0])


def test_a_summary_has_the_words_said_anew() -> None:
    desk = Desk()
    for texts in ([POLICY], [POLICY + BRIEF], [POLICY + BRIEF]):
        desk.ask(*texts)
    desk.history = [{"role": "user", "content": "Summary."}, *desk.history[-2:]]
    call = desk.ask(POLICY + BRIEF)
    assert operator(call) == [SAID]
    assert pieces(call.body)[-1][1] == SAID
    assert [cause[:8] for cause, _ in causes(call)] == ["history_"]


def test_without_a_thread_id_nothing_of_another_conversation_comes_along() -> None:
    one, two = Desk(), Desk()
    two.store = one.store
    for desk in (one, two, one):
        desk.ask(POLICY, thread="")
    one.ask(POLICY + BRIEF, thread="")
    call = two.ask(POLICY + "\n\nBe kind.", thread="")
    assert operator(call) == ["Added to the instructions:\nBe kind."]
    assert operator(one.ask(POLICY + BRIEF, thread="")) == [SAID]


def test_verify_sees_that_words_did_not_arrive() -> None:
    desk = Desk()
    desk.ask(POLICY)
    call = desk.ask(POLICY + BRIEF)
    assert call.plan is not None
    assert call.rules is not None
    assert verify(parse(call.body, desk.wire), call.plan, call.rules) == ()
    less = {**call.body, "messages": call.body["messages"][:-1]}  # type: ignore[index]
    assert verify(parse(less, desk.wire), call.plan, call.rules) != ()
    elsewhere = replace(call.plan, additions=())
    (problem,) = verify(parse(call.body, desk.wire), elsewhere, call.rules)
    assert "not the application's system text" in problem


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        (["A."], ["A."], ""),
        (["A."], ["A.\nB."], '[0,"\\nB."]'),
        (["A.\n"], ["A.\nB."], '[0,"B."]'),
        (["A."], ["A.\r\nB."], '[0,"\\r\\nB."]'),
        (["A."], ["A. B."], None),
        (["A."], ["A.", "B.", "C."], '[0,"","B.","C."]'),
        (["A.", "B."], ["A.", "B.\nC.", "D."], '[1,"\\nC.","D."]'),
        (["A.", "B."], ["A.\nC.", "B."], None),
        (["A.", "B."], ["A."], None),
        (["A.\nB."], ["A."], None),
        ([], ["A."], None),
    ],
)
def test_what_a_text_has_more_than_an_earlier_one(before: list[str], now: list[str], added: str | None) -> None:
    found = remainder(before, now)
    assert found == added
    if found:
        assert joined(before, [found]) == tuple(now)


@settings(max_examples=50)
@given(
    st.lists(st.text(max_size=4), min_size=1, max_size=3),
    st.lists(st.text("\n a", max_size=4), max_size=2),
    st.lists(st.lists(st.text(max_size=4), min_size=1, max_size=2), max_size=3),
)
def test_additions_one_after_the_other_give_the_text(head: list[str], fixed: list[str], added: list[list[str]]) -> None:
    now, forms = [*head, *fixed], list[str]()
    for more in added:
        before, end = now, len(now) - len(fixed)
        now = [*now[: end - 1], f"{now[end - 1]}\n{more[0]}", *more[1:], *now[end:]]
        forms.append(remainder(before, now, fixed=len(fixed)) or "")
    assert joined([*head, *fixed], forms) == tuple(now)


def test_words_that_cannot_be_seen_are_not_said() -> None:
    assert wording('[0,"\\n \\n","\\n"]') == ""
    assert wording('[0,"\\n\\n- b\\n","","\\nC."]') == "Added to the instructions:\n- b\n\nC."
    desk = Desk()
    desk.ask(POLICY)
    assert operator(desk.ask(POLICY, "\n")) == ["\n"]
