"""The rows of a head store as texts, for a store of documents that several machines share.

A scope (one tenant and one agent) has one document, and each of its conversations has one. What is long and never
changes, a head or a long note, is a *part*: a document of its own, which the other two name and which is written once.
Everything here is pure. Two workers' versions of a document are merged as unions, so neither loses what it learnt.
"""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, NamedTuple, cast

from headstay.canonical import digest
from headstay.headstore import MAX_HEADS, CallRecord, LaneState, read_tools, write_tools
from headstay.toolset import merge_tools

MAX_LANES = 16
MAX_PINS = 32
MAX_CALLS = 32  # of one conversation; the last dozen is looked for, the others are there for forks
MAX_NOTES = 256
MAX_ADDITIONS = 128
INLINE_CHARACTERS = 512
FRESH_S = 60.0  # a head in constant use does not make a new document with every call


class HeadRow(NamedTuple):
    """What is known of a head beside its texts.

    Attributes:
        tokens: Its size as a reply's usage showed, or None.
        used: When it was last sent, in seconds since the epoch, to a minute.
    """

    tokens: int | None
    used: float


class NoteRow(NamedTuple):
    """A kept note.

    Attributes:
        at: When it was kept, in seconds since the epoch.
        text: The text, or None where that is long.
        part: The key of the long text, or empty.
    """

    at: float
    text: str | None
    part: str


@dataclass(frozen=True, slots=True)
class ScopeRows:
    """What all conversations of a scope share.

    Attributes:
        key: The key that receipts are made with; empty where there is none yet.
        lanes: Lane to its tools.
        heads: Lane and head hash in hex, to what is known of the head.
        pins: Pinned texts by name.
    """

    key: bytes = b""
    lanes: Mapping[str, LaneState] = field(default_factory=dict[str, LaneState])
    heads: Mapping[tuple[str, str], HeadRow] = field(default_factory=dict[tuple[str, str], HeadRow])
    pins: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ConversationRows:
    """What belongs to one conversation.

    Attributes:
        calls: Its last calls, newest first.
        notes: Kept notes by name, newest first.
        additions: Definitions of appended tools by name.
    """

    calls: tuple[CallRecord, ...] = ()
    notes: Mapping[str, NoteRow] = field(default_factory=dict[str, NoteRow])
    additions: Mapping[str, str] = field(default_factory=dict[str, str])


def head_part(lane: str, head: str) -> str:
    """Name the part that holds a head's texts and tools."""
    return f"head-{lane}-{head}"


def note_row(text: str, at: float) -> NoteRow:
    """Make the row of a note; a long text becomes a part, named by its hash."""
    if len(text) <= INLINE_CHARACTERS:
        return NoteRow(at, text, "")
    return NoteRow(at, None, f"note-{digest(text).hex()}")


def merge_scopes(known: ScopeRows, learnt: ScopeRows, base: ScopeRows) -> ScopeRows:
    """Add what a call learnt to a scope that others may have changed meanwhile.

    Args:
        known: The scope as it is now; its key, its order of tools and its pins come first.
        learnt: What the call saw and used.
        base: The scope as the call began with; only what differs from it counts as learnt.
    """
    lanes = dict(known.lanes)
    for lane, state in learnt.lanes.items():
        lanes[lane] = _merge_lanes(known.lanes.get(lane, LaneState()), state, base.lanes.get(lane, LaneState()))
    heads = dict(known.heads)
    for name, row in learnt.heads.items():
        heads[name] = _merge_heads(known.heads.get(name), row)
    heads = _newest_heads(heads)
    used = dict.fromkeys(lane for lane, _ in heads)
    lanes = {lane: state for lane, state in lanes.items() if lane in used or len(lanes) <= MAX_LANES}
    pins = {**known.pins, **{name: text for name, text in learnt.pins.items() if name not in known.pins}}
    return ScopeRows(known.key or learnt.key, lanes, heads, dict(_last(pins.items(), MAX_PINS)))


def _merge_lanes(known: LaneState, learnt: LaneState, base: LaneState) -> LaneState:
    ours, theirs, before = learnt.tools, known.tools, base.tools
    changed = {
        name: form
        for name, form in ours.forms.items()
        if name not in theirs.forms or before.forms.get(name, form) != form
    }
    tools = merge_tools(theirs, replace(ours, forms=changed))
    tools = replace(tools, spent=max(0, theirs.spent + ours.spent - before.spent))
    told = learnt.bytes_per_token != base.bytes_per_token
    return LaneState(tools, learnt.bytes_per_token if told else known.bytes_per_token)


def _merge_heads(known: HeadRow | None, learnt: HeadRow) -> HeadRow:
    if known is None:
        return learnt
    tokens = known.tokens if learnt.tokens is None else learnt.tokens
    return HeadRow(tokens, learnt.used if learnt.used - known.used >= FRESH_S else known.used)


def _newest_heads(heads: Mapping[tuple[str, str], HeadRow]) -> dict[tuple[str, str], HeadRow]:
    """Keep the heads last used of the lanes last used."""
    kept: dict[str, int] = {}
    found: dict[tuple[str, str], HeadRow] = {}
    for (lane, head), row in sorted(heads.items(), key=lambda item: item[1].used, reverse=True):
        if lane not in kept and len(kept) == MAX_LANES:
            continue
        kept[lane] = kept.get(lane, 0) + 1
        if kept[lane] <= MAX_HEADS:
            found[lane, head] = row
    return found


def merge_conversations(known: ConversationRows, learnt: ConversationRows) -> ConversationRows:
    """Add a call's rows to those of its conversation, and leave out the oldest."""
    calls = {_place(call): call for call in (*known.calls, *learnt.calls)}
    notes = {**known.notes, **{name: row for name, row in learnt.notes.items() if _says_more(row, known.notes, name)}}
    additions = {**known.additions, **learnt.additions}
    return ConversationRows(
        tuple(sorted(calls.values(), key=lambda call: (call.at, call.turn), reverse=True)[:MAX_CALLS]),
        dict(sorted(notes.items(), key=lambda item: item[1].at, reverse=True)[:MAX_NOTES]),
        dict(_last(additions.items(), MAX_ADDITIONS)),
    )


def _place(call: CallRecord) -> tuple[object, ...]:
    return call.thread, call.link, call.lane, call.head, call.semi, call.added


def _says_more(row: NoteRow, known: Mapping[str, NoteRow], name: str) -> bool:
    return name not in known or row.at >= known[name].at


def _last(items: Iterable[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    return list(items)[-number:]


def write_scope(rows: ScopeRows) -> str:
    """Write a scope as JSON in ASCII."""
    lanes = [[lane, write_tools(state.tools), state.bytes_per_token] for lane, state in rows.lanes.items()]
    heads = [[lane, head, *row] for (lane, head), row in rows.heads.items()]
    return _text({"key": rows.key.hex(), "lanes": lanes, "heads": heads, "pins": dict(rows.pins)})


def read_scope(text: str | None) -> ScopeRows:
    """Read what `write_scope` wrote; None is a scope that nothing is known of."""
    if text is None:
        return ScopeRows()
    held = cast("dict[str, Any]", json.loads(text))
    return ScopeRows(
        bytes.fromhex(held["key"]),
        {lane: LaneState(read_tools(tools), ratio) for lane, tools, ratio in held["lanes"]},
        {(lane, head): HeadRow(tokens, used) for lane, head, tokens, used in held["heads"]},
        held["pins"],
    )


_BYTES = ("link", "head", "semi", "trail")
_FIELDS = tuple(one.name for one in fields(CallRecord) if one.name != "scope")  # that is the document's own


def write_conversation(rows: ConversationRows) -> str:
    """Write a conversation as JSON in ASCII."""
    calls = [[_written(name, getattr(call, name)) for name in _FIELDS] for call in rows.calls]
    notes = [[name, *row] for name, row in rows.notes.items()]
    return _text({"calls": calls, "notes": notes, "additions": dict(rows.additions)})


def read_conversation(text: str | None, scope: str) -> ConversationRows:
    """Read what `write_conversation` wrote.

    Args:
        text: The document; None is a conversation that nothing is known of.
        scope: Whose document it is.
    """
    if text is None:
        return ConversationRows()
    held = cast("dict[str, Any]", json.loads(text))
    return ConversationRows(
        tuple(_call(scope, values) for values in held["calls"]),
        {name: NoteRow(*row) for name, *row in held["notes"]},
        held["additions"],
    )


def _call(scope: str, values: Sequence[Any]) -> CallRecord:
    named: dict[str, Any] = dict(zip(_FIELDS, values, strict=True))
    named.update((name, base64.b64decode(named[name])) for name in _BYTES)
    return CallRecord(scope=scope, **named)


def _written(name: str, value: Any) -> Any:
    return base64.b64encode(value).decode() if name in _BYTES else value


def _text(held: Mapping[str, object]) -> str:
    """Write a text that any store takes: ASCII, since some refuse a NUL or half of a surrogate pair."""
    return json.dumps(held, separators=(",", ":"))


def newest_heads(rows: ScopeRows, number: int) -> Iterable[tuple[str, str]]:
    """Return the heads that were used last, of each lane at most a number of them."""
    for lane in rows.lanes:
        yield from islice((name for name in rows.heads if name[0] == lane), number)
