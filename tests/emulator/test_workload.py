"""The support-desk workload: its shape, its labels, and the model that plays its replies."""

import base64
import itertools
import os
import re
import string
import struct
import subprocess
import sys
import unicodedata
import zlib
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay.emulator.reply import Reply, Wire
from headstay.emulator.tokens import count
from headstay.emulator.workload import START, Break, Message, SystemPart, Turn, Workload, support_desk

DESK = support_desk()
WIRES: tuple[Wire, ...] = ("anthropic-messages", "openai-chat", "openai-responses")


def test_twenty_conversations_of_six_turns_in_time_order() -> None:
    assert len(DESK.turns) == 120
    assert [turn.at for turn in DESK.turns] == sorted(turn.at for turn in DESK.turns)
    assert len(DESK.conversations) == 20
    for turns in DESK.conversations.values():
        assert [turn.turn for turn in turns] == [1, 2, 3, 4, 5, 6]
        assert len({turn.tenant for turn in turns}) == 1


def test_two_tenants_with_two_policies_each() -> None:
    assert DESK.lanes == {(tenant, policy) for tenant in ("larkfield", "marlow") for policy in "AB"}


def test_a_lane_has_one_template_that_restores_each_system_text() -> None:
    for turn in DESK.turns:
        template = DESK.template(turn.tenant, turn.policy)
        assert template.format(**turn.values) == turn.system_text


def test_the_template_names_five_values_and_the_account_twice() -> None:
    template = DESK.template("larkfield", "A")
    fields = Counter(name for _, name, _, _ in string.Formatter().parse(template) if name)
    assert fields == {"customer_name": 1, "account": 2, "clock": 1, "today": 1, "request_id": 1}
    assert [line.count("{account}") for line in template.splitlines() if "{account}" in line] == [2]
    assert "Today is {today}." in template.splitlines()


def test_the_prose_has_braces_of_its_own() -> None:
    assert "{first_name} or {{order}}" in DESK.turns[0].system_text
    assert "{{first_name}} or {{{{order}}}}" in DESK.template("larkfield", "A")


def test_the_clock_stands_inside_a_sentence_in_the_middle_and_the_name_early() -> None:
    for turn in DESK.turns:
        text = turn.system_text
        clock = text.index(turn.values["clock"])
        assert 0.3 < clock / len(text) < 0.7
        assert text[clock - 1] == " "
        assert text[:clock].rstrip()[-1].isalpha()
        assert count(text[: text.index(turn.values["customer_name"])]) < 60


def test_an_unknown_lane_is_an_error_that_lists_the_lanes() -> None:
    with pytest.raises(ValueError, match=r"'nobody'.*'larkfield', 'A'"):
        DESK.template("nobody", "A")


def test_system_texts_have_about_2500_tokens() -> None:
    sizes = [count(turn.system_text) for turn in DESK.turns]
    assert min(sizes) > 2_350
    assert max(sizes) < 2_650


def test_policies_and_tenants_differ_in_real_text() -> None:
    def paragraphs(tenant: str, policy: str) -> set[str]:
        return set(DESK.template(tenant, policy).split("\n\n"))

    for tenant in ("larkfield", "marlow"):
        one, other = paragraphs(tenant, "A"), paragraphs(tenant, "B")
        assert min(len(one - other), len(other - one)) >= 8
        assert len(one & other) >= 15
    assert paragraphs("larkfield", "A") != paragraphs("marlow", "A")
    assert "Larkfield Audio" in DESK.template("larkfield", "A")
    assert "Larkfield Audio" not in DESK.template("marlow", "A")


def test_values_are_unique_but_for_the_date() -> None:
    by_call = [(name, value) for turn in DESK.turns for name, value in turn.call_values.items() if name != "today"]
    assert len(by_call) == 240
    assert len({value for _, value in by_call}) == 240
    of_all = {turns[0].conversation: turns[0].conversation_values for turns in DESK.conversations.values()}
    assert len({value for values in of_all.values() for value in values.values()}) == 40


def test_conversation_values_hold_for_the_conversation() -> None:
    for turns in DESK.conversations.values():
        assert all(turn.conversation_values == turns[0].conversation_values for turn in turns)
        assert set(turns[0].conversation_values) == {"customer_name", "account"}
        assert set(turns[0].call_values) == {"clock", "today", "request_id"}


def test_a_value_occurs_nowhere_but_in_its_own_slots() -> None:
    stable = "".join(DESK.template(*lane) for lane in DESK.lanes)
    said = "".join(turn.user + turn.reply for turn in DESK.turns)
    names = {turn.values["customer_name"] for turn in DESK.turns}
    for turn in DESK.turns:
        for name, value in turn.values.items():
            assert value not in stable
            assert value not in said
            assert turn.system_text.count(value) == {"account": 2, "today": 2}.get(name, 1)
    assert not any(one in other for one, other in itertools.permutations(names, 2))


def test_names_have_several_words_and_some_are_awkward() -> None:
    names = {turn.values["customer_name"] for turn in DESK.turns}
    assert all(" " in name for name in names)
    assert all(unicodedata.is_normalized("NFC", name) for name in names)
    assert any("'" in name for name in names)
    assert any("," in name for name in names)
    assert any(not name.isascii() for name in names)


def test_clocks_tell_the_time_of_the_call_and_the_date_changes_once() -> None:
    for turn in DESK.turns:
        assert datetime.fromisoformat(turn.values["clock"]).timestamp() == turn.at
        assert turn.values["clock"].startswith(turn.values["today"] + "T")
        assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", turn.values["request_id"])
    dates = [date for date, _ in itertools.groupby(turn.values["today"] for turn in DESK.turns)]
    assert dates == ["2026-03-31", "2026-04-01"]


def test_it_starts_at_a_quarter_to_midnight_and_takes_half_an_hour() -> None:
    assert DESK.start == START == datetime(2026, 3, 31, 23, 45, tzinfo=UTC).timestamp()
    assert 25 * 60 <= DESK.turns[-1].at - START <= 30 * 60


def test_gaps_stay_within_the_shortest_lifetime() -> None:
    for turns in DESK.conversations.values():
        assert all(30 <= later.at - earlier.at <= 150 for earlier, later in itertools.pairwise(turns))
    for lane in DESK.lanes:
        times = [turn.at for turn in DESK.turns if turn.lane == lane]
        assert all(later - earlier < 300 for earlier, later in itertools.pairwise(times))


def test_conversations_interleave() -> None:
    changes = sum(one.conversation != other.conversation for one, other in itertools.pairwise(DESK.turns))
    assert changes > 100


def test_at_least_five_conversations_of_a_lane_open_alike() -> None:
    openings = Counter((turns[0].lane, turns[0].user) for turns in DESK.conversations.values())
    ((lane, user), times), (_, second) = openings.most_common(2)
    assert (lane, times, second) == (("larkfield", "A"), 5, 1)
    alike = [turn for turn in DESK.turns if turn.user == user]
    assert len({turn.reply for turn in alike}) == 1
    assert all(turn.image is None for turn in alike)


def test_all_other_user_texts_are_different() -> None:
    assert len({turn.user for turn in DESK.turns}) == 116


def test_lengths_are_those_of_a_chat() -> None:
    assert all(40 <= len(turn.user.split()) <= 120 for turn in DESK.turns)
    assert all(60 <= len(turn.reply.split()) <= 180 for turn in DESK.turns)


def test_the_breaks_made_on_purpose_are_labelled() -> None:
    changed = Break("marlow-006", 4, "system_text_changed", "application")
    late = Break("larkfield-003", 3, "parameters_changed", "provider")
    assert DESK.breaks == DESK.breaks_on("anthropic-messages") == (late, changed)
    assert DESK.breaks_on("openai-chat") == DESK.breaks_on("openai-responses") == (changed,)
    policies = [turn.policy for turn in DESK.conversations["marlow-006"]]
    assert policies == ["A", "A", "A", "B", "B", "B"]
    assert all(
        len({turn.policy for turn in turns}) == 1 for name, turns in DESK.conversations.items() if name != "marlow-006"
    )


def test_the_new_instructions_find_a_warm_lane() -> None:
    change = DESK.conversations["marlow-006"][3]
    others = [turn.at for turn in DESK.turns if turn.lane == ("marlow", "B") and turn.at < change.at]
    assert change.at - max(others) < 300


def test_some_photos_come_first_and_one_comes_late() -> None:
    with_image = Counter((turn.conversation, turn.turn) for turn in DESK.turns if turn.image)
    assert sorted(turn for _, turn in with_image) == [1, 1, 1, 1, 3]
    assert len({turn.image for turn in DESK.turns if turn.image}) == 5


def png_pixels(encoded: str) -> tuple[int, int, bytes]:
    """Read width, height and unfiltered rows of an RGB PNG, checking every chunk."""
    data = base64.b64decode(encoded, validate=True)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        (crc,) = struct.unpack(">I", data[at + 8 + size : at + 12 + size])
        assert crc == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour) == (8, 2)
    return width, height, zlib.decompress(chunks[b"IDAT"])


def test_photos_are_real_pictures() -> None:
    for image in {turn.image for turn in DESK.turns if turn.image}:
        width, height, rows = png_pixels(image)
        assert (width, height) == (12, 8)
        assert len(rows) == height * (1 + 3 * width)


def test_history_is_what_was_said_before() -> None:
    first, second, third, *_ = DESK.conversations["marlow-002"]
    assert DESK.history(first) == []
    assert first.image is not None
    assert DESK.history(third) == [
        Message("user", first.user, first.image),
        Message("assistant", first.reply),
        Message("user", second.user),
        Message("assistant", second.reply),
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 9))
def test_other_shapes_keep_the_rules(seed: int, conversations: int, turns: int) -> None:
    desk = support_desk(seed=seed, conversations=conversations, turns=turns)
    assert len(desk.turns) == conversations * turns
    assert len({turn.values["clock"] for turn in desk.turns}) == len(desk.turns)
    assert len({turn.values["request_id"] for turn in desk.turns}) == len(desk.turns)
    assert len({turn.values["account"] for turn in desk.turns}) == conversations
    for turn in desk.turns:
        assert desk.template(*turn.lane).format(**turn.values) == turn.system_text
        assert desk.reply_for(turn.user) == turn.reply
    for lane in desk.conversations.values():
        assert all(30 <= later.at - earlier.at <= 150 for earlier, later in itertools.pairwise(lane))
    causes = {broken.cause for broken in desk.breaks}
    assert ("system_text_changed" in causes) == (conversations >= 6 and turns >= 4)
    assert ("parameters_changed" in causes) == (conversations >= 3 and turns >= 3)


@pytest.mark.parametrize(("conversations", "turns"), [(0, 6), (401, 6), (20, 0)])
def test_impossible_shapes_are_refused(conversations: int, turns: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        support_desk(conversations=conversations, turns=turns)


def test_another_seed_is_another_workload_of_the_same_structure() -> None:
    other = support_desk(seed=8)
    assert other != DESK
    assert other.lanes == DESK.lanes
    assert {broken[:3] for broken in other.breaks} == {broken[:3] for broken in DESK.breaks}
    assert not {turn.values["account"] for turn in other.turns} & {turn.values["account"] for turn in DESK.turns}


PRINT_DIGEST = """
import hashlib
from headstay.emulator.oracle import oracle_run
from headstay.emulator.workload import support_desk
desk = support_desk()
runs = [oracle_run(desk, model=model, wire=wire).calls for model, wire in
        (("claude-opus-5-5", "anthropic-messages"), ("gpt-5.4", "openai-chat"))]
print(hashlib.sha256(repr((desk.turns, desk.breaks, runs)).encode()).hexdigest())
"""


def digest_in_a_new_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_workload_and_oracle_are_the_same_in_every_process() -> None:
    one, other = digest_in_a_new_process("1"), digest_in_a_new_process("2")
    assert len(one.strip()) == 64
    assert one == other


def body_of(wire: Wire, turn: Turn, note: str | None, *, in_block: bool = False) -> dict[str, Any]:
    """Build a request for a turn as a client would: history, parts, and a note behind the user's words."""
    kinds: dict[Wire, tuple[str, dict[str, Any]]] = {
        "anthropic-messages": ("text", {"type": "image", "source": {"type": "base64", "data": turn.image}}),
        "openai-chat": ("text", {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{turn.image}"}}),
        "openai-responses": ("input_text", {"type": "input_image", "image_url": f"data:image/png;base64,{turn.image}"}),
    }
    text_type, image = kinds[wire]
    spoken = turn.user if note is None or not in_block else f"{turn.user}\n\n{note}"
    parts: list[dict[str, Any]] = [image] if turn.image else []
    parts.append({"type": text_type, "text": spoken})
    if note is not None and not in_block:
        parts.append({"type": text_type, "text": note})
    history = [{"role": role, "content": text} for role, text, _ in DESK.history(turn)]
    messages = [{"role": "system", "content": turn.system_text}, *history, {"role": "user", "content": parts}]
    return {"input" if wire == "openai-responses" else "messages": messages}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("note", [None, "Current values\nclock: 2026-03-31T23:59:01Z"])
@pytest.mark.parametrize("in_block", [False, True])
def test_the_responder_answers_each_turn(wire: Wire, note: str | None, in_block: bool) -> None:
    respond = DESK.responder()
    for turn in DESK.turns:
        assert respond(wire, body_of(wire, turn, note, in_block=in_block)) == Reply(text=turn.reply)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("role", ["system", "developer"])
def test_the_responder_passes_over_a_trailing_operator_message(wire: Wire, role: str) -> None:
    turn = DESK.conversations["marlow-002"][2]
    body = body_of(wire, turn, None)
    messages = body["input" if wire == "openai-responses" else "messages"]
    messages.append({"role": role, "content": [{"type": "text", "text": "Current values"}]})
    assert DESK.responder()(wire, body).text == turn.reply


def test_the_responder_takes_plain_strings() -> None:
    turn = DESK.turns[0]
    respond = DESK.responder()
    assert respond("openai-responses", {"input": turn.user}).text == turn.reply
    for wire in WIRES:
        key = "input" if wire == "openai-responses" else "messages"
        assert respond(wire, {key: [{"role": "user", "content": turn.user}]}).text == turn.reply


def test_the_responder_does_not_answer_an_old_question_again() -> None:
    old = DESK.turns[0]
    messages = [
        {"role": "user", "content": old.user},
        {"role": "assistant", "content": old.reply},
        {"role": "user", "content": "Something this workload never says."},
    ]
    answer = DESK.responder()("openai-chat", {"messages": messages}).text
    assert answer == DESK.reply_for("Something this workload never says.") != old.reply


def test_the_responder_looks_behind_tool_results() -> None:
    turn = DESK.turns[0]
    anthropic = [
        {"role": "user", "content": turn.user},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "shipped"}]},
    ]
    assert DESK.responder()("anthropic-messages", {"messages": anthropic}).text == turn.reply
    responses = [
        {"role": "user", "content": turn.user},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "shipped"},
    ]
    assert DESK.responder()("openai-responses", {"input": responses}).text == turn.reply


def test_words_with_two_replies_cannot_be_answered() -> None:
    part = SystemPart("Be brief.", "stable")
    turns = tuple(
        Turn(name, 1, "acme", "A", 0.0, (part,), "Hello?", None, reply) for name, reply in (("a", "x"), ("b", "y"))
    )
    with pytest.raises(ValueError, match="two replies"):
        Workload(turns).reply_for("Hello?")
