"""I10: every change of a prefix has a cause and an owner, and the conversation it belongs to is found again."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import pytest

from headstay.causes import Cause
from headstay.divergence import HeadForm, compare_heads, compare_histories
from headstay.fingerprint import text_digest
from headstay.flow import Call, Flow, Settings
from headstay.headstore import HeadStore
from headstay.ledger import Usage
from headstay.slots import Slot
from headstay.values import Declared

POLICY = "You are the support desk.\n# Policy\nBe kind, be brief, and quote the rule that applies.\n"
GREETING = ("Hello!", "How can I help?")
CUSTOMER = Declared((), (Slot(r"^Customer: (?P<customer>.+)$", every="conversation"),))


class Desk:
    """An application that talks to one model; each call is answered and accounted for."""

    def __init__(self, declared: Declared | None = None, *, store: HeadStore | None = None, **settings: Any) -> None:
        self.flow = Flow(Settings("desk", declared or Declared(), on_break="record", **settings), head_store=store)
        self.now = 0.0

    def ask(self, said: Sequence[str], system: str | None = POLICY, *, thread: str = "", **body: Any) -> Call:
        """Send a conversation, what was said by the user and the model in turn, and take the answer."""
        call = self.send(said, system, thread=thread, **body)
        self.flow.complete(call, Usage(1_000, 0, 900))
        return call

    def send(self, said: Sequence[str], system: str | None = POLICY, *, thread: str = "", **body: Any) -> Call:
        """Send a conversation that is not yet answered."""
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
        request: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 9, "messages": messages, **body}
        if system is not None:
            request["system"] = system
        self.now += 1
        call = self.flow.prepare(request, wire="anthropic-messages", thread=thread, now=self.now)
        assert call.unverified is None
        return call


def causes(call: Call) -> list[tuple[str, str]]:
    return [(found.cause.value, found.owner) for found in call.breaks]


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}, **more}


BASE: dict[str, Any] = {"tools": [tool("a"), tool("b")], "tool_choice": {"type": "auto"}}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, []),
        ({"system": POLICY + "It is 2026-11-29."}, None),
        ({"tools": [tool("b"), tool("a")]}, []),  # the lane has one order
        ({"tools": [tool("a", description="x"), tool("b")]}, ["tool_description_changed"]),
        ({"tools": [tool("a", input_schema={"type": "object"}), tool("b")]}, ["tool_schema_changed"]),
        ({"tools": [{"input_schema": {"properties": {}, "type": "object"}, "name": "a"}, tool("b")]}, []),
        ({"tools": [tool("a"), tool("b"), tool("c")]}, ["tool_added"]),
        ({"tools": [tool("b")]}, ["tool_removed"]),
        ({"tools": [tool("c")]}, ["tool_added", "tool_removed", "tool_removed"]),
        ({"tool_choice": {"type": "none"}}, ["tool_choice_changed"]),
        ({"model": "claude-opus-4-8"}, ["model_changed"]),
        ({"speed": "fast"}, ["parameters_changed"]),
        ({"thinking": {"type": "adaptive"}}, ["thinking_changed"]),
        ({"output_config": {"effort": "low"}}, ["parameters_changed"]),
        ({"max_tokens": 50, "temperature": 0.5, "metadata": {"user_id": "u"}}, []),
    ],
)  # fmt: skip
def test_a_change_within_a_conversation(change: dict[str, Any], expected: list[str] | None) -> None:
    desk = Desk()
    assert desk.ask(["Hello!"], **BASE).breaks == ()
    second = desk.ask([*GREETING, "Where is it?"], **BASE)
    assert (second.breaks, second.record and second.record.epoch) == ((), 0)
    third = desk.ask([*GREETING, "Where is it?", "Here.", "Thanks!"], **{**BASE, **change})
    found = causes(third)
    if expected is not None:
        assert found == [(cause, "application") for cause in expected]
    assert third.record is not None
    assert (third.record.turn, third.record.epoch) == (2, int(bool(found)))
    assert third.record.conversation == (second.record and second.record.conversation)


def test_a_change_of_instructions_that_is_no_addition_is_one_break() -> None:
    desk = Desk()
    desk.ask(["Hello!"])
    desk.ask([*GREETING, "Where is it?"])
    other = "# Returns\nEvery item may be sent back.\nWithin thirty days, that is.\n" + POLICY
    changed = desk.ask([*GREETING, "Where is it?", "Here.", "Thanks!"], other)
    assert causes(changed) == [("system_text_changed", "application")]
    after = desk.ask([*GREETING, "Where is it?", "Here.", "Thanks!", "Bye.", "One more?"], other)
    assert after.breaks == ()
    assert after.record is not None
    assert (after.record.turn, after.record.epoch) == (3, 1)


@pytest.mark.parametrize(
    ("one", "two", "cause"),
    [
        ("It is 2026-11-29.", "It is 2026-11-30.", "clock_in_head"),
        ("Trace 8f3a2b1c9d.", "Trace 1c9d8f3a2b.", "random_id_in_head"),
        ("For Ada Byron only.", "For Max Planck only.", "value_in_head"),
        ("Tab \t here.", "Tab here.", "whitespace"),
        ("Café", unicodedata.normalize("NFD", "Café"), "unicode_form"),
    ],
)
def test_a_new_conversation_is_held_against_the_lanes_heads(one: str, two: str, cause: str) -> None:
    desk = Desk()
    desk.ask(["Hello!"], POLICY + one)
    (found,) = desk.ask(["Good morning!"], POLICY + two).breaks
    assert (found.cause, found.owner, found.path) == (cause, "application", "system[0]")
    assert found.at >= len(POLICY)
    assert found.remedy


def test_a_name_that_goes_on_is_a_value_where_another_head_tells() -> None:
    desk = Desk()
    for name in ("Max Planck", "Ada"):
        desk.ask(["Hello!"], f"{POLICY}For {name} only.")
    # "King" seems to be a word put in; against "Max Planck" it is a part of a name
    (found,) = desk.ask(["Hello!"], f"{POLICY}For Ada King only.").breaks
    assert (found.cause, found.after) == ("value_in_head", "Ada King")


def test_another_policy_is_no_break_for_a_new_conversation() -> None:
    desk = Desk()
    desk.ask(["Hello!"])
    long = POLICY + "# Returns\nEvery item may be sent back.\nWithin thirty days, that is.\n"
    assert desk.ask(["Good morning!"], long).breaks == ()
    assert desk.ask(["Good evening!"], POLICY, tools=[tool("a")]).breaks == ()


@pytest.mark.parametrize(
    ("heading", "cause"),
    [("# Memory", "memory_in_head"), ("# Context", "retrieval_in_head"), ("# Law", "system_text_changed")],
)
def test_a_rewritten_section_is_named_by_its_heading(heading: str, cause: str) -> None:
    before = HeadForm((f"{POLICY}{heading}\nlikes tea\nhas two cats\n# End\n",), {})
    after = HeadForm((f"{POLICY}{heading}\nfar away\nin a land\nlived a king\n# End\n",), {})
    difference = compare_heads(before, after, same_conversation=True)
    assert [found.cause for found in difference.breaks] == [cause]
    assert difference.variant == (cause == "system_text_changed")


def test_tool_forms_are_compared_one_by_one() -> None:
    before = HeadForm((), {"a": '{"name":"a","x":1}', "b": '{"name":"b"}'})
    keys = HeadForm((), {"a": '{"x":1,"name":"a"}', "b": '{"name":"b"}'})
    (found,) = compare_heads(before, keys, same_conversation=True).breaks
    assert (found.cause, found.path) == (Cause.SCHEMA_KEY_ORDER, "tools[a]")
    turned = HeadForm((), {"b": before.tools["b"], "a": before.tools["a"]})
    (found,) = compare_heads(before, turned, same_conversation=True).breaks
    assert found.cause == Cause.TOOL_ORDER


A, B, C, D, E, S, X = (text_digest("user", name)[0] for name in "ABCDESX")


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        ([A, B, C], [A, B, C, D], None),
        ([A, B, C], [A, B, C], None),
        ([A, B, C, D], [C, D, E], Cause.HISTORY_DROPPED),
        ([A, B, C], [A, C, D], Cause.HISTORY_DROPPED),
        ([A, B, C, D], [S, D, E], Cause.HISTORY_SUMMARISED),
        ([A, B, C], [A, X, C, D], Cause.HISTORY_EDITED),
        ([A, B, C], [A, X, B, C, D], Cause.HISTORY_EDITED),  # put in between
        ([A, B, C], [B, A, C, D], Cause.MESSAGE_REORDERED),
        ([A, B, C], [A, C, B], Cause.MESSAGE_REORDERED),
    ],
)
def test_what_happened_to_a_history(before: list[bytes], after: list[bytes], cause: Cause | None) -> None:
    found = compare_histories(b"".join(before), b"".join(after))
    assert (found and found.cause) == cause
    assert found is None or found.owner == "application"


LONG = ["one", "1", "two", "2", "three", "3", "four"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda said: said, []),
        (lambda said: ["ONE", *said[1:]], ["history_edited"]),
        (lambda said: [*said[:2], "TWO", *said[3:]], ["history_edited"]),  # behind what an earlier call left
        (lambda said: [*said[:5], "THREE", *said[6:]], ["history_edited"]),
        (lambda said: said[2:], ["history_dropped"]),
        (lambda said: ["So far: much.", "Yes.", *said[6:]], ["history_summarised"]),
        (lambda said: [*said[2:4], *said[:2], *said[4:]], ["message_reordered"]),
        (lambda said: [*said[:2], "another way"], []),  # a fork takes the rest back, and rewrites nothing
        (lambda said: said[:5], []),  # a retry
    ],
)
def test_a_rewritten_history_is_named_where_the_thread_is_known(change: Any, expected: list[str]) -> None:
    desk = Desk()
    for end in (1, 3, 5, 7):
        assert desk.ask(LONG[:end], thread="t1").breaks == ()
    assert causes(desk.ask(change([*LONG, "4", "five"]), thread="t1")) == [(cause, "application") for cause in expected]


def test_without_a_thread_a_rewritten_history_is_a_fork() -> None:
    desk = Desk()
    for end in (1, 3, 5, 7):
        desk.ask(LONG[:end])
    assert desk.ask([*LONG[:2], "TWO", *LONG[3:], "4", "five"]).breaks == ()


def test_a_value_that_does_not_hold_is_named() -> None:
    desk = Desk(CUSTOMER)
    ada, max_ = (f"{POLICY}Customer: {name}\n# End" for name in ("Ada", "Max"))
    desk.ask(["Hello!"], ada)
    desk.ask([*GREETING, "Where is it?"], ada)
    (found,) = desk.ask([*GREETING, "Where is it?", "Here.", "Thanks!"], max_).breaks
    assert (found.cause, found.owner, found.path) == ("value_in_head", "application", "semi-static[customer]")
    declared = eval(found.remedy, {"Slot": Slot})
    assert (declared.match, declared.every) == (CUSTOMER.slots[0].match, "call")


def test_five_conversations_with_the_same_opening_stay_apart() -> None:
    desk = Desk(CUSTOMER)
    said = [*GREETING, "Where is it?", "Here.", "Thanks!"]
    for length in (1, 3, 5):
        for number in range(5):
            call = desk.ask(said[:length], f"{POLICY}Customer: Person {number}\n# End")
            assert call.breaks == ()
            assert call.record is not None
            assert call.record.turn == length // 2


def test_what_an_earlier_call_left_is_expected_of_the_next() -> None:
    desk = Desk()
    first = desk.ask(["Hello!"])
    assert (first.expected, first.gap) == (0, None)
    second = desk.ask([*GREETING, "Where is it?"])
    assert (second.expected, second.gap) == (900, 1.0)  # the tokens that the answer to the first call showed
    # a new head was never sent: nothing can be read; the old one is as large as a first turn's reads have shown
    assert desk.ask(["Hello!"], POLICY + "Be brief.").expected == 0


def test_the_size_of_a_head_is_learnt_from_first_turns_only() -> None:
    desk = Desk()
    for said, reads in (
        (["Hello!"], 0),
        (["Good morning!"], 600),
        (["Good morning!"], 900),
        ([*GREETING, "Go on."], 950),
    ):
        desk.flow.complete(desk.send(said), Usage(1_000, reads, 0))
    assert desk.ask(["Good evening!"]).expected == 600  # what the second conversation could read at its start


def test_calls_that_start_together_wait_for_the_first_ones_answer() -> None:
    desk = Desk()
    first, second = desk.send(["Hello!"]), desk.send(["Good morning!"])
    assert [call.writer_in_flight for call in (first, second)] == [False, True]
    desk.flow.complete(first, Usage(1_000, 0, 900))
    desk.flow.abandon(second)
    third = desk.send(["Good evening!"])
    assert not third.writer_in_flight
    assert (
        desk.send([*GREETING, "Where is it?"]).writer_in_flight is False
    )  # its own prefix stands since the first call


def test_where_two_conversations_could_be_meant_none_is_accused() -> None:
    desk = Desk(CUSTOMER)
    said = [*GREETING, "Where is it?", "Here.", "Thanks!"]
    for name in ("Ada", "Max"):
        for length in (1, 3):
            desk.ask(said[:length], f"{POLICY}Customer: {name}\n# End")
    assert desk.ask(said, f"{POLICY}Customer: Eve\n# End").breaks == ()


def test_a_fork_under_another_head_rewrites_nothing() -> None:
    desk = Desk()
    for end in (1, 3, 5):
        desk.ask(LONG[:end], thread="t1")
    other = "# Returns\nEvery item may be sent back.\nWithin thirty days, that is.\n" + POLICY
    assert causes(desk.ask([*LONG[:4], "THREE"], other, thread="t1")) == [("system_text_changed", "application")]


def test_a_shared_opening_is_no_evidence() -> None:
    """Somebody else's conversation with the same words must not be taken for a broken one."""
    desk = Desk(CUSTOMER)
    desk.ask(["Hello!"], f"{POLICY}Customer: Ada\n# End")
    assert desk.ask([*GREETING, "Where is it?"], f"{POLICY}Customer: Max\n# End").breaks == ()
    assert desk.ask(["Hello!"], f"{POLICY}Customer: Eve\n# End", tool_choice={"type": "none"}).breaks == ()


def test_a_fork_and_a_retry_continue_what_they_came_from() -> None:
    desk = Desk()
    desk.ask(["Hello!"])
    desk.ask([*GREETING, "Where is it?"])
    fork = desk.ask([*GREETING, "Where was it?"])
    retry = desk.ask([*GREETING, "Where was it?"])
    beyond = desk.ask([*GREETING, "Where was it?", "There.", "Thanks!"])
    turns = [call.record.turn for call in (fork, retry, beyond) if call.record]
    assert turns == [1, 1, 2]
    assert [call.breaks for call in (fork, retry, beyond)] == [(), (), ()]


def test_a_dropped_system_message_is_the_applications_change() -> None:
    desk = Desk()
    desk.ask(["Hello!"])
    desk.ask([*GREETING, "Where is it?"])
    dropped = desk.ask([*GREETING, "Where is it?", "Here.", "Thanks!"], None)
    assert causes(dropped) == [("system_text_changed", "application")]
    assert "system" not in dropped.body  # nothing is restored


def test_regenerated_ids_of_messages_are_not_content() -> None:
    desk = Desk()
    desk.ask(["Hello!"])
    reply = [{"type": "text", "text": "How can I help?", "id": "msg_1", "index": 0}]
    messages = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": reply}]
    body: dict[str, Any] = {"messages": [*messages, {"role": "user", "content": "Where?"}]}
    call = desk.ask([], **body)
    assert (call.breaks, call.record and call.record.turn) == ((), 1)


def test_the_first_image_is_the_providers_break() -> None:
    desk = Desk()
    desk.ask(["Hello!"])
    desk.ask([*GREETING, "Where is it?"])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    said = [*GREETING, "Where is it?", "Here."]
    messages: list[Any] = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    messages.append({"role": "user", "content": [image, {"type": "text", "text": "This?"}]})
    assert causes(desk.ask([], messages=messages)) == [("parameters_changed", "provider")]
    messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"}]
    assert desk.ask([], messages=messages).breaks == ()


@pytest.mark.parametrize("change", [{"tools": [tool("a"), tool("a")]}, {"tools": [tool("a", type="custom")]}])
def test_no_changed_head_is_without_a_cause(change: dict[str, Any]) -> None:
    desk = Desk()
    desk.ask(["Hello!"], tools=[tool("a")])
    desk.ask([*GREETING, "Where is it?"], tools=[tool("a")])
    changed = desk.ask([*GREETING, "Where is it?", "Here.", "Thanks!"], **change)
    assert len(changed.breaks) == 1
