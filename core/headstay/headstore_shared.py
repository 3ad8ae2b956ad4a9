"""A head store in memory that takes what a call needs from documents elsewhere, and says what to write back.

It does no input or output itself: `loading` and `saving` are generators that ask for documents by key and get them
sent in, so that a synchronous and an asynchronous store can serve them.
"""

import secrets
from collections import OrderedDict
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from headstay.canonical import digest
from headstay.headstore import MAX_HEADS, CallRecord, HeadRecord, HeadStore, LaneState, read_form, write_form
from headstay.headstore_rows import (
    MAX_ADDITIONS,
    MAX_CALLS,
    MAX_NOTES,
    ConversationRows,
    HeadRow,
    NoteRow,
    ScopeRows,
    head_part,
    merge_conversations,
    merge_scopes,
    newest_heads,
    note_row,
    read_conversation,
    read_scope,
    write_conversation,
    write_scope,
)

SCOPE = "scope"
"""Key of a scope's document."""

_PEERS = 8  # heads of a lane that are loaded beside those of the conversation: a new one is held against them
_KEYS_KEPT = 4_096

Key = TypeVar("Key")
Row = TypeVar("Row")


class Read(NamedTuple):
    """Asks for a document; its text is to be sent in, or None where there is none."""

    key: str


class Write(NamedTuple):
    """Asks for a document to be written, or with None to be deleted; None is to be sent in."""

    key: str
    text: str | None


Steps = Generator[Sequence[Read | Write], Sequence[str | None], None]
"""Asks for several documents at once, which may be served in any order, and takes their texts in the order asked."""


@dataclass(slots=True)
class Journal:
    """What the calls of one conversation kept that was not written back yet.

    Attributes:
        scope: Tenant and agent, hashed.
        conversation: Key of the conversation's document.
        known: The scope as it was loaded.
        missing: Keys of parts that are named and are not there.
        lanes: What they learnt of lanes.
        heads: The heads that they sent, by lane and hash in hex.
        pins: Texts that they pinned.
        calls: Where they left the conversation.
        notes: Texts of notes and when they were kept.
        additions: Definitions of tools that they appended.
    """

    scope: str
    conversation: str
    known: ScopeRows = ScopeRows()
    missing: frozenset[str] = frozenset()
    lanes: dict[str, LaneState] = field(default_factory=dict[str, LaneState])
    heads: dict[tuple[str, str], HeadRecord] = field(default_factory=dict[tuple[str, str], HeadRecord])
    pins: dict[str, str] = field(default_factory=dict[str, str])
    calls: dict[tuple[object, ...], CallRecord] = field(default_factory=dict[tuple[object, ...], CallRecord])
    notes: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    additions: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write back."""
        return not (self.lanes or self.heads or self.pins or self.calls or self.notes or self.additions)

    def take_over(self, earlier: "Journal") -> None:
        """Add what another journal of the conversation holds; of what both have, this one's stays."""
        self.lanes = {**earlier.lanes, **self.lanes}
        self.heads = _together(earlier.heads, self.heads, MAX_HEADS)
        self.pins = {**earlier.pins, **self.pins}
        self.calls = _together(earlier.calls, self.calls, MAX_CALLS)
        self.notes = _together(earlier.notes, self.notes, MAX_NOTES)
        self.additions = _together(earlier.additions, self.additions, MAX_ADDITIONS)


_current: ContextVar["tuple[SharedHeadStore, Journal] | None"] = ContextVar("headstay_journal", default=None)


class SharedHeadStore(HeadStore):
    """A head store in memory whose documents are elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: OrderedDict[str, bytes] = OrderedDict()

    @contextmanager
    def noting(self, journal: Journal) -> Generator[None]:
        """Note in a journal what is kept in this context."""
        token = _current.set((self, journal))
        try:
            yield
        finally:
            _current.reset(token)

    def _journal(self, scope: str | None = None) -> Journal | None:
        """Return the journal of the call under way; None where there is none, or it is another scope's."""
        store, journal = _current.get() or (None, None)
        return journal if store is self and journal is not None and scope in (None, journal.scope) else None

    def save_lane(self, lane: str, state: LaneState) -> None:
        """Keep what is known of a lane."""
        super().save_lane(lane, state)
        if (journal := self._journal()) is not None:
            journal.lanes[lane] = state

    def save_ratio(self, lane: str, bytes_per_token: float) -> None:
        """Keep what a lane's replies showed."""
        super().save_ratio(lane, bytes_per_token)
        if (journal := self._journal()) is not None:
            journal.lanes[lane] = replace(journal.lanes.get(lane, self.lane(lane)), bytes_per_token=bytes_per_token)

    def save_head(self, lane: str, record: HeadRecord) -> None:
        """Keep a head of a lane."""
        super().save_head(lane, record)
        if (journal := self._journal()) is not None:
            _keep(journal.heads, (lane, record.head.hex()), record, MAX_HEADS)

    def save_call(self, call: CallRecord) -> None:
        """Keep where a conversation is."""
        super().save_call(call)
        if (journal := self._journal(call.scope)) is not None:
            _keep(journal.calls, (call.thread, call.link, call.lane, call.head, call.semi, call.added), call, MAX_CALLS)

    def save_note(self, scope: str, note: str, text: str, at: float) -> None:
        """Keep the text of a note, under its name."""
        super().save_note(scope, note, text, at)
        if (journal := self._journal(scope)) is not None:
            _keep(journal.notes, note, (text, at), MAX_NOTES)

    def save_addition(self, scope: str, addition: str, form: str, at: float) -> None:
        """Keep the definition of an appended tool, under its name."""
        super().save_addition(scope, addition, form, at)
        if (journal := self._journal(scope)) is not None:
            _keep(journal.additions, addition, form, MAX_ADDITIONS)

    def pin(self, scope: str, name: str, text: str) -> str:
        """Keep a text under a name, once."""
        kept = super().pin(scope, name, text)
        if (journal := self._journal(scope)) is not None:
            journal.pins[name] = kept
        return kept

    def secret(self) -> bytes:
        """Return the key that receipts of the call's scope are made with; each scope has its own."""
        journal = self._journal()
        known = None if journal is None else journal.known.key or self._keys.get(journal.scope)
        return known or super().secret()

    def loading(self, journal: Journal) -> Steps:
        """Take in the documents of a scope and a conversation."""
        held, said = yield [Read(SCOPE), Read(journal.conversation)]
        scope = read_scope(held)
        if not scope.key:  # written now and read again, so that workers that begin together agree on one
            made = self._keys.get(journal.scope) or secrets.token_bytes(32)
            yield [Write(SCOPE, write_scope(replace(scope, key=made)))]
            (held,) = yield [Read(SCOPE)]
            scope = read_scope(held)
        talk = read_conversation(said, journal.scope)
        wanted = self._wanted(journal.scope, scope, talk)
        parts: dict[str, str] = {}
        if wanted:
            texts = yield [Read(key) for key in wanted]
            parts = {key: text for key, text in zip(wanted, texts, strict=True) if text is not None}
        rows = scope if journal.empty else merge_scopes(scope, self._learnt(journal), journal.known)
        journal.known, journal.missing = scope, frozenset(wanted) - parts.keys()
        _keep(self._keys, journal.scope, scope.key, _KEYS_KEPT)
        self._take_scope(journal.scope, rows, talk, parts)
        self._take_conversation(journal, talk, parts)

    def _wanted(self, scope: str, rows: ScopeRows, talk: ConversationRows) -> list[str]:
        """List the parts that are needed and not in memory."""
        long = {name: row.part for name, row in talk.notes.items() if row.part}
        held = {name: self.note(scope, name) for name in long}
        notes = [part for name, part in long.items() if (text := held[name]) is None or note_row(text, 0).part != part]
        heads = [
            head_part(*name) for name in _heads_of(rows, talk) if self.head(name[0], bytes.fromhex(name[1])) is None
        ]
        return [*dict.fromkeys((*heads, *notes))]

    def _take_scope(self, scope: str, rows: ScopeRows, talk: ConversationRows, parts: Mapping[str, str]) -> None:
        for lane, state in rows.lanes.items():
            if self.lane(lane) != state:
                super().save_lane(lane, state)
        for lane, head in _heads_of(rows, talk):
            known, text = self.head(lane, bytes.fromhex(head)), parts.get(head_part(lane, head))
            form = known.form if known else read_form(text) if text is not None else None
            row = rows.heads.get((lane, head), HeadRow(None, 0.0))
            if form is not None and (known is None or known.used < row.used or known.tokens != row.tokens):
                super().save_head(lane, HeadRecord(bytes.fromhex(head), form, *row))
        for name, text in rows.pins.items():
            if self.pinned(scope, name) != text:
                self.replace_pin(scope, name, text)

    def _take_conversation(self, journal: Journal, rows: ConversationRows, parts: Mapping[str, str]) -> None:
        for call in rows.calls:
            if (call.thread, call.link, call.lane, call.head, call.semi, call.added) not in journal.calls:
                super().save_call(call)
        for name, row in rows.notes.items():
            text = parts.get(row.part) if row.text is None else row.text
            if text is not None and name not in journal.notes:
                super().save_note(journal.scope, name, text, row.at)
        for name, form in rows.additions.items():
            super().save_addition(journal.scope, name, form, max((call.at for call in rows.calls), default=0.0))

    def saving(self, journal: Journal) -> Steps:
        """Write back what a journal holds, merged with what others wrote meanwhile, and clear it."""
        if journal.empty:
            return
        learnt = self._learnt(journal)
        known = journal.known
        if journal.missing or merge_scopes(known, learnt, known) != known:
            (held,) = yield [Read(SCOPE)]
            yield from self._save_scope(journal, read_scope(held), learnt)
        if journal.calls or journal.notes or journal.additions:
            (said,) = yield [Read(journal.conversation)]
            yield from _save_conversation(journal, read_conversation(said, journal.scope))
        for kept in (journal.lanes, journal.heads, journal.pins, journal.calls, journal.notes, journal.additions):
            kept.clear()

    def _learnt(self, journal: Journal) -> ScopeRows:
        lanes = dict(journal.lanes)
        for call in journal.calls.values():  # learnt while the documents could not be had
            if call.lane not in journal.known.lanes:
                lanes.setdefault(call.lane, self.lane(call.lane))
        heads = {name: HeadRow(record.tokens, record.used) for name, record in journal.heads.items()}
        return ScopeRows(journal.known.key, lanes, heads, journal.pins)

    def _save_scope(self, journal: Journal, known: ScopeRows, learnt: ScopeRows) -> Steps:
        merged = merge_scopes(known, learnt, journal.known)
        fresh = [
            Write(part, write_form(record.form))
            for name, record in journal.heads.items()
            if name in merged.heads and ((part := head_part(*name)) in journal.missing or name not in known.heads)
        ]
        if fresh:
            yield fresh
        if merged != known:
            yield [Write(SCOPE, write_scope(merged))]
        gone = [Write(head_part(*name), None) for name in known.heads if name not in merged.heads]
        if gone:
            yield gone

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as an empty one: the documents are elsewhere."""
        return SharedHeadStore, ()

    def __repr__(self) -> str:
        return "SharedHeadStore()"


def _save_conversation(journal: Journal, known: ConversationRows) -> Steps:
    notes: dict[str, NoteRow] = {name: note_row(text, at) for name, (text, at) in journal.notes.items()}
    learnt = ConversationRows(tuple(journal.calls.values()), notes, journal.additions)
    merged = merge_conversations(known, learnt)
    there = {row.part for row in known.notes.values()} - journal.missing
    kept = {row.part for row in merged.notes.values()}
    fresh = {
        row.part: journal.notes[name][0]
        for name, row in notes.items()
        if row.part in kept and row.part and row.part not in there
    }
    if fresh:
        yield [Write(part, text) for part, text in fresh.items()]
    if merged != known:
        yield [Write(journal.conversation, write_conversation(merged))]
    gone = [Write(part, None) for part in there - kept if part]
    if gone:
        yield gone


def _heads_of(rows: ScopeRows, talk: ConversationRows) -> list[tuple[str, str]]:
    """List the heads that a call may need: those its conversation had, and the last ones of each lane."""
    had = [(call.lane, call.head.hex()) for call in talk.calls]
    return [*dict.fromkeys((*had, *newest_heads(rows, _PEERS)))]


def _keep(rows: dict[Key, Row], key: Key, row: Row, number: int) -> None:
    """Put a row last, and let go of the first ones beyond a number."""
    rows.pop(key, None)
    rows[key] = row
    while len(rows) > number:
        del rows[next(iter(rows))]


def _together(earlier: Mapping[Key, Row], later: Mapping[Key, Row], number: int) -> dict[Key, Row]:
    """Bring rows together and let go of the first ones beyond a number."""
    rows = {**{key: row for key, row in earlier.items() if key not in later}, **later}
    return dict(islice(rows.items(), max(0, len(rows) - number), None))


def conversation_key(thread: str, opening: str) -> str:
    """Name the document of a conversation: by its thread, or where there is none by how it began.

    Args:
        thread: The host's thread id, or empty.
        opening: The first words of the user.
    """
    return f"thread-{digest(thread).hex()}" if thread else f"opening-{digest(opening).hex()}"
