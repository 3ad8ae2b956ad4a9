"""The documents of a shared head store: what is written is read again, and merging loses nothing but the oldest."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headstay.headstore import CallRecord, LaneState
from headstay.headstore_rows import (
    ConversationRows,
    HeadRow,
    NoteRow,
    ScopeRows,
    merge_conversations,
    merge_scopes,
    note_row,
    read_conversation,
    read_scope,
    write_conversation,
    write_scope,
)
from headstay.toolset import ToolState

names = st.sampled_from("abcdef")
hashes = st.binary(min_size=2, max_size=3)
texts = st.text(max_size=6)


@st.composite
def tool_states(draw: Any) -> ToolState:
    order = draw(st.lists(names, unique=True))
    split = draw(st.integers(0, len(order)))
    forms = {name: draw(texts) for name in order}
    client = tuple(name for name in order if draw(st.booleans()))
    return ToolState(tuple(order[:split]), forms, client, tuple(order[split:]), draw(st.integers(0, 9)))


lanes = st.dictionaries(st.sampled_from(["l1", "l2"]), st.builds(LaneState, tool_states(), st.none() | st.floats(1, 8)))
heads = st.dictionaries(
    st.tuples(st.sampled_from(["l1", "l2"]), st.sampled_from(["0a", "0b"])),
    st.builds(HeadRow, st.none() | st.integers(0, 9), st.floats(0, 1e9)),
)
scopes = st.builds(ScopeRows, hashes, lanes, heads, st.dictionaries(names, texts))
calls = st.builds(
    CallRecord,
    scope=st.just("scope"),
    thread=names,
    link=hashes,
    lane=names,
    head=hashes,
    semi=hashes,
    model=texts,
    trail=hashes,
    conversation=texts,
    epoch=st.integers(0, 3),
    turn=st.integers(0, 3),
    held=texts,
    cached=st.none() | st.integers(0, 9),
    at=st.floats(0, 1e9),
    firm=st.none() | st.integers(0, 9),
    added=texts,
)
conversations = st.builds(
    ConversationRows,
    st.lists(calls, max_size=4).map(tuple),
    st.dictionaries(names, st.builds(NoteRow, st.floats(0, 1e9), st.none() | texts, texts)),
    st.dictionaries(names, texts),
)


@given(scopes)
def test_a_scope_is_read_as_it_was_written(rows: ScopeRows) -> None:
    text = write_scope(rows)
    assert read_scope(text) == rows
    assert list(read_scope(text).heads) == list(rows.heads)
    assert text.isascii()


@given(conversations)
def test_a_conversation_is_read_as_it_was_written(rows: ConversationRows) -> None:
    text = write_conversation(rows)
    assert read_conversation(text, "scope") == rows
    assert text.isascii()
    assert {call.scope for call in read_conversation(text, "other").calls} <= {"other"}


def test_nothing_is_known_of_what_is_not_there() -> None:
    assert read_scope(None) == ScopeRows()
    assert read_conversation(None, "scope") == ConversationRows()


@given(scopes, scopes, scopes)
def test_merged_scopes(known: ScopeRows, learnt: ScopeRows, base: ScopeRows) -> None:
    merged = merge_scopes(known, learnt, base)
    assert merged.key == (known.key or learnt.key)
    assert merged.pins == {**learnt.pins, **known.pins}
    assert merged.heads.keys() == known.heads.keys() | learnt.heads.keys()
    assert merged.lanes.keys() == known.lanes.keys() | learnt.lanes.keys()
    for lane, state in merged.lanes.items():
        tools = state.tools
        theirs, ours = (rows.lanes.get(lane, LaneState()).tools for rows in (known, learnt))
        assert tools.order[: len(theirs.order)] == theirs.order  # who came first keeps the order
        assert {*tools.order, *tools.late} == theirs.forms.keys() | ours.forms.keys()
        assert tools.forms.keys() == theirs.forms.keys() | ours.forms.keys()  # each name has a form
        assert set(tools.order).isdisjoint(tools.late)
        assert set(tools.client) == {*theirs.client, *ours.client}
        assert tools.spent >= 0


@given(scopes)
def test_what_is_known_is_not_learnt_again(known: ScopeRows) -> None:
    assert merge_scopes(known, known, known) == known
    assert merge_scopes(known, ScopeRows(), ScopeRows()) == known


@given(conversations, conversations)
def test_merged_conversations(known: ConversationRows, learnt: ConversationRows) -> None:
    merged = merge_conversations(known, learnt)
    places = {(call.thread, call.link, call.lane, call.head, call.semi, call.added) for call in merged.calls}
    assert len(places) == len(merged.calls)
    assert {*merged.calls} <= {*known.calls, *learnt.calls}
    assert merged.notes.keys() == known.notes.keys() | learnt.notes.keys()
    assert merged.additions == {**known.additions, **learnt.additions}
    assert merge_conversations(merged, learnt) == merged


def lane(*order: str, late: tuple[str, ...] = (), spent: int = 0, **forms: str) -> LaneState:
    return LaneState(ToolState(order, {**{name: name for name in (*order, *late)}, **forms}, (), late, spent))


def test_a_stale_form_does_not_come_back() -> None:
    """One worker changed the schema of a; the other one, which began before, learnt a tool and nothing of a."""
    base = ScopeRows(lanes={"l": lane("a")})
    merged = merge_scopes(
        ScopeRows(lanes={"l": lane("a", a="new")}), ScopeRows(lanes={"l": lane("a", "b")}), base
    ).lanes["l"]
    assert merged.tools.order == ("a", "b")
    assert merged.tools.forms == {"a": "new", "b": "b"}
    merged = merge_scopes(base, ScopeRows(lanes={"l": lane("a", a="new")}), base).lanes["l"]
    assert merged.tools.forms == {"a": "new"}


def test_late_tools_that_joined_the_list_stay_in_it() -> None:
    base = ScopeRows(lanes={"l": lane("a", late=("b",), spent=100)})
    joined = ScopeRows(lanes={"l": lane("a", "b")})
    other = ScopeRows(lanes={"l": lane("a", late=("b",), spent=130)})
    both = merge_scopes(joined, other, base).lanes["l"].tools
    assert (both.order, both.late, both.spent) == (("a", "b"), (), 30)
    both = merge_scopes(other, joined, base).lanes["l"].tools
    assert (both.order, both.late, both.spent) == (("a", "b"), (), 30)


def test_a_head_in_use_is_noted_once_a_minute() -> None:
    known = ScopeRows(heads={("l", "0a"): HeadRow(5, 100.0)})
    for used, noted in ((159.0, 100.0), (160.0, 160.0), (50.0, 100.0)):
        merged = merge_scopes(known, ScopeRows(heads={("l", "0a"): HeadRow(None, used)}), known)
        assert merged.heads == {("l", "0a"): HeadRow(5, noted)}


def test_the_oldest_are_left_out() -> None:
    heads = {(f"l{number // 40}", f"{number:04x}"): HeadRow(None, float(number)) for number in range(40 * 20)}
    lanes = {f"l{number}": lane("a") for number in range(20)}
    merged = merge_scopes(
        ScopeRows(), ScopeRows(b"k", lanes, heads, dict.fromkeys(map(str, range(40)), "")), ScopeRows()
    )
    assert merged.lanes.keys() == {f"l{number}" for number in range(4, 20)}
    assert len(merged.heads) == 16 * 32
    assert min(row.used for (name, _), row in merged.heads.items() if name == "l19") == 40 * 19 + 8
    assert list(merged.pins) == [str(number) for number in range(8, 40)]
    one = CallRecord("s", "t", b"", "l", b"", b"", "m", b"", "c", 0, 0, "{}", None, 0.0)
    talk = ConversationRows(
        tuple(replace(one, link=bytes([number]), at=float(number)) for number in range(40)),
        {str(number): NoteRow(float(number), "", "") for number in range(300)},
        {str(number): "" for number in range(200)},
    )
    merged_talk = merge_conversations(ConversationRows(), talk)
    assert [call.at for call in merged_talk.calls] == [float(number) for number in range(39, 7, -1)]
    assert merged_talk.notes.keys() == {str(number) for number in range(44, 300)}
    assert merged_talk.additions.keys() == {str(number) for number in range(72, 200)}


def test_a_long_note_is_a_document_of_its_own() -> None:
    assert note_row("x" * 512, 1.0) == NoteRow(1.0, "x" * 512, "")
    long, other = note_row("x" * 513, 1.0), note_row("y" * 513, 1.0)
    assert long.text is None
    assert long.part.startswith("note-")
    assert long.part == note_row("x" * 513, 2.0).part != other.part
