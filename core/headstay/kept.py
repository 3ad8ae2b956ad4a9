"""Kept notes: where a model binds its thinking to the exact history, a note stays where it was sent.

Thinking is bound to the request that produced it, so a note must stay from the first reply on that holds thinking. A
note before that is dropped as any other: each later call finds the same replies and so decides the same.

The notes of earlier calls are put back into the history before it is arranged, so everything after treats them as the
part of the body that they are. Rule: platform.claude.com, preserved-thinking pages, seen 2026-11-29.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from headstay.canonical import digest
from headstay.fingerprint import links, trail
from headstay.headstore import HeadStore
from headstay.layout import Lane, binds
from headstay.prompt import Prompt
from headstay.providers.rules import CacheRules
from headstay.receipt import Receipt, checks, issue, note_name, read
from headstay.values import CALL_TITLE, Value, render
from headstay.weave import NoteText, Woven, weave


@dataclass(frozen=True, slots=True)
class Kept:
    """A history with its notes put back.

    Attributes:
        prompt: The request with all notes, this call's included.
        receipt: What the reply carries; None where this call adds no note.
        found: How many notes of earlier calls were put back.
        idle: How many need not stay: no reply up to theirs holds thinking, so nothing is bound to them.
        lost: How many receipts did not check or have no text any more.
        bound: Whether the history holds thinking at all; without it no note is missed.
        added: How many blocks the note of this call adds to the body.
    """

    prompt: Prompt
    receipt: Receipt | None
    found: int
    idle: int
    lost: int
    bound: bool
    added: int


def keeps_notes(prompt: Prompt, rules: CacheRules) -> bool:
    """Whether the notes of a request must stay where they are sent."""
    ends_well = bool(prompt.blocks) and prompt.blocks[-1].role != "assistant"
    return binds(prompt, rules) and rules.in_place_system and ends_well


def put_back(
    prompt: Prompt,
    values: Sequence[Value],
    store: HeadStore,
    lane: Lane,
    *,
    replies: Sequence[object],
    thread: str,
    tail: str,
    now: float,
    added: Mapping[int, Sequence[Woven]] | None = None,
) -> Kept:
    """Put the notes of earlier calls back, and this call's behind them where it says something new.

    Args:
        prompt: The request.
        values: The values of its system text.
        store: Where the notes' texts and the key are.
        lane: The request's lane.
        replies: For each assistant message of the request, in order, what the host kept on it under "headstay".
        thread: The host's thread id, hashed, or empty.
        tail: Per-call text for the human turn.
        now: Seconds since the epoch.
        added: Tools and instructions that stand in the messages, by the message that they follow; they do not count for
            what a note belongs to.

    Returns:
        The request to arrange.
    """
    sent, lost = _earlier(prompt, store, lane, replies, thread)
    thought = min((block.message for block in prompt.blocks if block.kind == "thinking"), default=len(prompt.messages))
    notes = {number: note for number, note in sent.items() if number + 1 >= thought}
    text = render(CALL_TITLE, [value for value in values if value.every == "call"])
    texts = {number: _read(note) for number, note in sorted(notes.items())}
    said = list(reversed(texts.values()))
    fresh = NoteText(
        operator=text if text != next((note.operator for note in said if note.operator), "") else "",
        user=tail if tail != next((note.user for note in said if note.user), "") else "",
    )
    receipt = None
    last = len(prompt.messages) - 1
    found = len(notes)
    if any(fresh):
        written = json.dumps(fresh._asdict(), ensure_ascii=False)
        (anchor,) = anchors(prompt, [last], thread)
        receipt = issue(store.secret(), tenant=lane.tenant, lane=lane.key, anchor=anchor, note=written)
        store.save_note(lane.scope, receipt.note, written, now)
        texts[last] = fresh
    blocks = sum(bool(text) for text in fresh)
    bound = thought < len(prompt.messages)
    return Kept(weave(prompt, texts, added or {}), receipt, found, len(sent) - found, lost, bound, blocks)


def anchors(prompt: Prompt, messages: Sequence[int], thread: str) -> tuple[bytes, ...]:
    """Hash the history up to each of some messages, in rising order; the notes in it do not count.

    A note belongs to the whole history it was sent behind, not to one message: two conversations can say the same
    thing, and what one of them was told must not come up in a history merged from both. Nor in another thread that
    began with the same words: a reply out of somebody's cache would bring it there.
    """
    ends: list[int] = []
    end = 0
    for message in messages:
        while end < len(prompt.blocks) and prompt.blocks[end].message <= message:
            end += 1
        ends.append(end)
    return tuple(digest(thread, link) for link in links(trail(prompt.blocks), ends))


def _earlier(
    prompt: Prompt, store: HeadStore, lane: Lane, replies: Sequence[object], thread: str
) -> tuple[dict[int, str], int]:
    """Read the receipts of a history: the message that each note follows, to its text."""
    said = [number for number, message in enumerate(prompt.messages) if message.get("role") == "assistant"]
    if len(said) != len(replies):  # the host left a reply out: nothing can be matched safely
        return {}, sum(read(reply) is not None for reply in replies)
    receipts = {number: found for number, reply in zip(said, replies, strict=True) if (found := read(reply))}
    notes: dict[int, str] = {}
    key = store.secret() if receipts else b""
    places = anchors(prompt, [number - 1 for number in receipts], thread)
    for (number, receipt), anchor in zip(receipts.items(), places, strict=True):
        good = number > 0 and checks(receipt, key, tenant=lane.tenant, lane=lane.key, anchor=anchor)
        text = store.note(lane.scope, receipt.note) if good else None
        if text is not None and note_name(text) == receipt.note:
            notes[number - 1] = text
    return notes, len(receipts) - len(notes)


def _read(note: str) -> NoteText:
    return NoteText(**cast("dict[str, str]", json.loads(note)))
