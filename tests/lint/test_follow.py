"""Which conversation a request belongs to, and which request it continues."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lint.conftest import RULES, Log, body_of, talk

from headstay.causes import Cause
from headstay.trace.entry import Entry


def causes(log: Log) -> list[list[Cause]]:
    return [[finding.cause for finding in step.divergence.findings] for step in log.steps()]


def test_a_talk_is_one_conversation_and_clean(log: Log) -> None:
    for said in talk("ada", 5):
        log.ask(said)
    assert log.conversations() == [1] * 5
    assert causes(log) == [[]] * 5
    assert [step.place for step in log.steps()] == [1, 2, 3, 4, 5]


@given(order=st.permutations([0] * 4 + [1] * 3 + [2] * 5), named=st.booleans())
def test_interleaved_talks_are_told_apart(order: list[int], named: bool) -> None:
    turns = [talk("ada", 4), talk("bob", 3), talk("cy", 5)]
    at = [0, 0, 0]
    log = Log("openai-chat")
    for who in order:
        log.ask(turns[who][at[who]], entry={"conversation": f"t{who}"} if named else None)
        at[who] += 1
    begun = list(dict.fromkeys(order))
    assert log.conversations() == [begun.index(who) + 1 for who in order]
    assert causes(log) == [[]] * len(order)


def test_talks_that_begin_alike_are_told_apart_by_their_replies(log: Log) -> None:
    log.ask(["Hi"])
    log.ask(["Hi"])
    log.ask(["Hi", "Hello, this is the desk; what can I do for you today?", "My parcel is late"])
    log.ask(["Hi", "Good morning! What brings you here, and how may I help?", "My refund is late"])
    conversations = log.conversations()
    assert len(set(conversations[:2])) == 2
    assert sorted(conversations[2:]) == sorted(conversations[:2])
    assert causes(log) == [[]] * 4


def test_a_known_reply_says_which_of_two_equal_beginnings_goes_on(log: Log) -> None:
    log.ask(["Hi"], entry={"reply": ("Good day.",)})
    log.ask(["Hi"], entry={"reply": ("Hello.",)})
    log.ask(["Hi", "Good day.", "My parcel is late"])
    assert log.conversations() == [1, 2, 1]


@pytest.mark.parametrize("named", [True, False])
def test_a_drop_in_the_middle_is_no_new_conversation(log: Log, named: bool) -> None:
    entry = {"conversation": "t"} if named else None
    said = talk("ada", 6)[-1]
    log.ask(said, entry=entry)
    log.ask([*said[4:], "ada: a long last answer about it, with all the details", "ada: thanks"], entry=entry)
    assert log.conversations() == [1, 1]
    assert causes(log) == [[], [Cause.HISTORY_DROPPED]]


def test_long_questions_from_one_template_are_conversations_of_their_own(log: Log) -> None:
    template = "Look at the ticket below, find the order in it, and answer kindly and briefly. Ticket: " * 3
    for name in ("ada", "bob"):
        said = [template + name]
        for turn in range(3):
            log.ask(said)
            said = [
                *said,
                f"{name}: answer {turn}, and the order in the ticket below is on its way",
                f"{name}: and {turn}?",
            ]
    assert log.conversations() == [1, 1, 1, 2, 2, 2]
    assert causes(log) == [[]] * 6


def test_a_window_of_one_question_is_no_new_conversation(log: Log) -> None:
    log.ask(["ada: the first question", "Yes.", "ada: the second question"])
    log.ask(["ada: the second question", "No.", "ada: the third question"])
    log.ask(["bob: the first question", "Yes.", "bob: the second question"])
    assert log.conversations() == [1, 1, 2]
    assert causes(log) == [[], [Cause.HISTORY_DROPPED], []]


@pytest.mark.parametrize("named", [True, False])
def test_a_summary_is_no_new_conversation(log: Log, named: bool) -> None:
    entry = {"conversation": "t"} if named else None
    log.ask(talk("ada", 6)[-1], entry=entry)
    log.ask(["Summary of the conversation so far: ada asked six questions, each was answered in full."], entry=entry)
    assert log.conversations() == [1, 1]
    assert causes(log) == [[], [Cause.HISTORY_SUMMARISED]]


def test_an_edited_message_is_no_new_conversation(log: Log) -> None:
    said = talk("ada", 4)[-1]
    log.ask(said)
    edited = list(said)
    edited[0] += " (edited)"
    log.ask([*edited, "ada: the last answer, as long as all the others were", "ada: thanks"])
    assert log.conversations() == [1, 1]
    assert causes(log) == [[], [Cause.HISTORY_EDITED]]


def test_a_note_that_moves_out_of_the_first_question_is_an_edit(log: Log) -> None:
    log.ask(["<time>10:00</time> Where is my parcel?"])
    log.ask(["Where is my parcel?", "In Oslo.", "<time>10:02</time> And now?"])
    assert log.conversations() == [1, 1]
    assert [found[:1] for found in causes(log)] == [[], [Cause.HISTORY_EDITED]]


@pytest.mark.parametrize("named", [True, False])
def test_both_branches_of_a_fork_go_on(log: Log, named: bool) -> None:
    """Without an id a branch may as well be another talk that begins with the same greeting."""
    entry = {"conversation": "t"} if named else None
    trunk = talk("ada", 2)[-1]
    answer = "ada: the answer at which the talk forks, said at length"
    left, right = [*trunk, answer, "to the left?"], [*trunk, answer, "to the right?"]
    log.ask(left, entry=entry)
    log.ask(right, entry=entry)
    log.ask([*left, "The left answer has forty characters or more.", "go on left"], entry=entry)
    log.ask([*right, "The right answer has forty characters or more.", "go on right"], entry=entry)
    steps = log.steps()
    assert [step.conversation for step in steps] == ([1, 1, 1, 1] if named else [1, 2, 1, 2])
    assert [step.before.number if step.before else 0 for step in steps] == [0, 1, 1, 2]
    assert causes(log) == [[]] * 4


def test_two_agents_of_one_thread_are_two_conversations(log: Log) -> None:
    title = "Write a title of three words for what follows. Nothing else, no punctuation."
    entry = {"conversation": "t"}
    for said in talk("ada", 3):
        log.ask(said, entry=entry)
        log.ask([said[-1]], title, entry=entry, marked=False)
    assert log.conversations() == [1, 2, 1, 2, 1, 2]
    assert causes(log) == [[]] * 6


def test_the_first_request_is_held_against_the_head_of_another_conversation(log: Log) -> None:
    log.ask(["One question of Ada's"], f"Today is 2026-11-29. {RULES}")
    log.ask(["Another question of Bob's"], f"Today is 2026-11-30. {RULES}")
    first, second = log.steps()
    assert first.before is None
    assert second.before is not None
    assert not second.continues
    assert [finding.cause for finding in second.divergence.findings] == [Cause.CLOCK_IN_HEAD]


def test_other_agents_and_accounts_are_not_compared(log: Log) -> None:
    log.ask(["A question"], "You translate whatever you get into Norwegian and say nothing else.")
    log.ask(["A question"], RULES)
    log.ask(["A question"], RULES, entry={"account": "other"})
    assert [step.before for step in log.steps()] == [None, None, None]


def test_a_held_history_is_followed_by_the_id_of_the_reply() -> None:
    log = Log("openai-responses")
    log.ask(["A question"], entry={"reply_id": "resp_1"})
    log.ask(["Unrelated"], entry={"reply_id": "resp_2"})
    log.ask(["Another"], entry={"reply_id": "resp_3"}, previous_response_id="resp_1")
    log.ask(["And another"], f"{RULES} Be brief.", previous_response_id="resp_3")
    assert log.conversations() == [1, 2, 1, 1]
    assert causes(log)[2:] == [[], [Cause.SYSTEM_TEXT_CHANGED]]


def test_ids_made_anew_do_not_hide_the_conversation() -> None:
    def called(name: str) -> list[dict[str, Any]]:
        call = {"id": name, "type": "function", "function": {"name": "find", "arguments": '{"order": 17}'}}
        return [
            {"role": "system", "content": RULES},
            {"role": "user", "content": "Where is order 17?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": "In Oslo."},
        ]

    later = [{"role": "assistant", "content": "It is in Oslo."}, {"role": "user", "content": "Thanks"}]
    log = Log("openai-chat")
    log.ask(["Where is order 17?"])
    for messages in (called("call_a1"), [*called("call_b2"), *later]):
        body = {"model": "gpt-5.4", "messages": messages}
        log.entries.append(Entry(line=len(log.entries) + 1, wire="openai-chat", body=body))
    assert log.conversations() == [1, 1, 1]
    assert causes(log)[2] == [Cause.IDS_REGENERATED]


def test_only_so_much_is_kept(log: Log) -> None:
    turns = [talk(str(number), 2) for number in range(20)]
    for first, _ in turns:
        log.ask(first)
    for _, second in turns:
        log.ask(second)
    weight = 3 * len(str(body_of(turns[0][0], wire=log.wire)))
    steps = log.steps(max_weight=weight)
    assert steps[-1].conversation == 40, "what was let go begins anew"
    assert [step.continues for step in steps] == [False] * 40
    assert [step.divergence.clean for step in steps] == [True] * 40
