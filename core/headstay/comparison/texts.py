"""Two system texts to what differs between them: values in place, rewritten sections, or only the form."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

from headstay.causes import Cause
from headstay.comparison.values import Sort, Stretch, count_words, is_swapped_word, sort_of, whole
from headstay.forms import first_difference, form_cause
from headstay.remedy import Cut, Variation, open_pattern, slot_source, union, variations
from headstay.sections import is_plain_value_section, section_cause

_WORDS_UP_TO = 6_000
"""Characters of a rewritten stretch up to which it is compared word by word; beyond, it is one passage."""

_FORMS = (Cause.WHITESPACE, Cause.UNICODE_FORM)
_LINES_UP_TO = 4_000
_SENTENCE = re.compile(r"[^.!?\u3002\uff01\uff1f]*(?:[.!?]+(?:\s+|(?=\S)|\Z)|[\u3002\uff01\uff1f]+\s*|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TextChange:
    """One difference between two texts.

    Attributes:
        cause: What it is.
        at: Offset of the first differing character in the later text.
        before: Where it stands in the earlier text.
        after: Where it stands in the later text.
        slot: The `Slot(...)` line that declares the span, for a value; empty where there is none.
    """

    cause: Cause
    at: int
    before: tuple[int, int]
    after: tuple[int, int]
    slot: str = ""


class _Found(NamedTuple):
    item: Variation
    sort: Sort
    cause: Cause
    wide: Variation


_CAUSES: dict[Sort, Cause] = {
    "clock": Cause.CLOCK_IN_HEAD,
    "id": Cause.RANDOM_ID_IN_HEAD,
    "value": Cause.VALUE_IN_HEAD,
    "wording": Cause.SYSTEM_TEXT_CHANGED,
}


def compare_texts(before: str, after: str, *, same_conversation: bool) -> list[TextChange]:
    """Name what differs between two system texts.

    Args:
        before: The earlier text.
        after: The later text; it is another one.
        same_conversation: Whether one conversation went over from the one to the other: its values then change by
            call.

    Returns:
        The changes in order of their place in the later text.
    """
    form = form_cause(before, after)
    if form is not None:
        at = first_difference(before, after)
        return [TextChange(form, at, (at, len(before)), (at, len(after)))]
    found = _filled_in([_named(item, before, after) for item in bounded_variations(before, after)], before, after)
    values = [one for one in found if one.cause == _CAUSES[one.sort] and one.sort != "wording"]
    passages = [one for one in found if one not in values]
    values, passages = _absorbed(values, passages, after)
    changes = [*_value_changes(values, before, after, same_conversation), *_passage_changes(passages, before, after)]
    return sorted(changes, key=lambda change: change.at)


def varying(before: str, after: str) -> list[tuple[int, int, Sort]]:
    """Find the spans of the later text that differ, whatever they are; a clock or an id is one as a whole.

    Args:
        before: The earlier text.
        after: The later text.

    Returns:
        Start, end, and what it is, in order.
    """
    found: list[tuple[int, int, Sort]] = []
    for item in bounded_variations(before, after):
        old, new = Stretch(before, item.before_start, item.before_end), Stretch(after, item.start, item.end)
        sort = sort_of(old, new)
        _, wide = whole(old, new, sort)
        found.append((wide.start, wide.end, sort))
    return found


def _absorbed(values: Sequence[_Found], passages: Sequence[_Found], after: str) -> tuple[list[_Found], list[_Found]]:
    """Make what is a part of a rewritten passage a part of it: a name, a number or a blank on the same lines.

    A clock or an id still is what it is.
    """
    bodies = [one for one in passages if one.cause not in _FORMS]
    grown: list[_Found] = []
    kept: list[_Found] = []
    for one in (*values, *(one for one in passages if one.cause in _FORMS)):
        own = _lines(one.item, after)
        near = next((body for body in bodies if _is_near(own, body, after)), None)
        if near is None or one.sort in ("clock", "id"):
            kept.append(one)
        else:
            grown.append(one._replace(sort="wording", cause=near.cause))
    found = sorted([*kept, *bodies, *grown], key=lambda one: one.item.start)
    return [one for one in found if one.sort != "wording"], [one for one in found if one.sort == "wording"]


def _is_near(own: tuple[int, int], body: _Found, after: str) -> bool:
    """Whether lines are those of a passage, next to one that goes over several lines, or its heading."""
    start, end = _lines(body.item, after)
    several = "\n" in after[body.item.start : body.item.end].strip("\n")
    gap = 1 if several or after.startswith("#", own[0]) else 0
    return start <= own[1] + gap and own[0] <= end + gap


def bounded_variations(before: str, after: str) -> Iterator[Variation]:
    """Find what differs in whole words, in time that does not run away with the length of the texts."""
    old, new = _pieces(before), _pieces(after)
    head = _common(old, new)
    foot = _common(old[head:][::-1], new[head:][::-1])
    a, b = old[head : len(old) - foot], new[head : len(new) - foot]
    at, bt = sum(map(len, old[:head])), sum(map(len, new[:head]))
    if len(a) * len(b) > _LINES_UP_TO**2 or len(a) + len(b) > _LINES_UP_TO:
        opcodes: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(a), 0, len(b))]
    else:
        opcodes = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    for tag, i1, i2, j1, j2 in opcodes:
        one, other = "".join(a[i1:i2]), "".join(b[j1:j2])
        if tag != "equal":
            for item in _stretches(one, other):
                yield Variation(item[0] + at, item[1] + at, item[2] + bt, item[3] + bt)
        at, bt = at + len(one), bt + len(other)


def _pieces(text: str) -> list[str]:
    """Cut a text into lines, and a long line into sentences."""
    lines = text.splitlines(keepends=True)
    if all(len(line) <= _WORDS_UP_TO for line in lines):
        return lines
    return [piece for line in lines for piece in (_SENTENCE.findall(line) if len(line) > _WORDS_UP_TO else [line])]


def _stretches(one: str, other: str) -> Sequence[Variation]:
    if len(one) <= _WORDS_UP_TO and len(other) <= _WORDS_UP_TO:
        return variations(one, other)
    start = first_difference(one, other)
    end = min(first_difference(one[::-1], other[::-1]), min(len(one), len(other)) - start)
    return [Variation(start, len(one) - end, start, len(other) - end)]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _named(item: Variation, before: str, after: str) -> _Found:
    old, new = Stretch(before, item.before_start, item.before_end), Stretch(after, item.start, item.end)
    sort = sort_of(old, new)
    if sort in ("clock", "id"):
        one, other = whole(old, new, sort)
        return _Found(item, sort, _CAUSES[sort], Variation(one.start, one.end, other.start, other.end))
    form = form_cause(before[item.before_start : item.before_end], after[item.start : item.end])
    if form is not None:
        return _Found(item, "wording", form, item)
    section = section_cause(after, item.start, item.end)
    if section == Cause.SYSTEM_TEXT_CHANGED and item.before_end > item.before_start:
        section = section_cause(before, item.before_start, item.before_end)
    if section == Cause.SYSTEM_TEXT_CHANGED or (sort == "value" and is_plain_value_section(after, item.start)):
        return _Found(item, sort, _CAUSES[sort], item)
    return _Found(item, "wording", section, item)


def _filled_in(found: Sequence[_Found], before: str, after: str) -> list[_Found]:
    """Take words that stand for other words on lines that are otherwise the same for what a template fills in."""
    named: list[_Found] = []
    for _, group in groupby(found, lambda one: _lines(one.item, after)):
        here = list(group)
        wording = [one for one in here if one.sort == "wording"]
        if wording and _are_swapped(wording, before, after):
            constant = _constant(here, before, after)
            if constant is not None and (len(here) == 1 or count_words(constant) > len(wording)):
                here = [one._replace(sort="value", cause=_CAUSES["value"]) if one in wording else one for one in here]
        named += here
    return named


def _are_swapped(found: Sequence[_Found], before: str, after: str) -> bool:
    return all(
        cause == Cause.SYSTEM_TEXT_CHANGED
        and is_swapped_word(Stretch(before, item.before_start, item.before_end), Stretch(after, item.start, item.end))
        for item, _, cause, _ in found
    )


def _constant(found: Sequence[_Found], before: str, after: str) -> str | None:
    """Return what two lines have in common besides what varies; None where they have lost or won something else."""
    first, last = found[0].item, found[-1].item
    old = (before.rfind("\n", 0, first.before_start) + 1, before.find("\n", last.before_end))
    one = _without(before, old[0], old[1], [(item.before_start, item.before_end) for item, *_ in found])
    other = _without(after, *_lines(last, after), [(item.start, item.end) for item, *_ in found])
    return other if one == other else None


def _without(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> str:
    pieces: list[str] = []
    for left, right in spans:
        pieces.append(text[start:left])
        start = right
    return "\0".join([*pieces, text[start : len(text) if end < 0 else end]])


def _lines(item: Variation, text: str) -> tuple[int, int]:
    end = text.find("\n", item.end)
    return text.rfind("\n", 0, item.start) + 1, len(text) if end < 0 else end


def _offset(item: Variation, before: str, after: str) -> int:
    old, new = before[item.before_start : item.before_end], after[item.start : item.end]
    if not old or not new:  # what was put in or left out may begin like what stands behind it
        return item.start + first_difference(before[item.before_start :], after[item.start :])
    return item.start + first_difference(old, new)


def _value_changes(values: Sequence[_Found], before: str, after: str, same_conversation: bool) -> Iterator[TextChange]:
    spans = union([(one.wide.start, one.wide.end) for one in values], after)
    for index, (start, end) in enumerate(spans):
        inside = [one for one in values if start <= one.wide.start and one.wide.end <= end]
        first, last = inside[0], inside[-1]
        per_call = same_conversation or first.cause != Cause.VALUE_IN_HEAD
        old = (first.wide.before_start, last.wide.before_end)
        pattern = open_pattern(after, spans, index, [Cut(before, *old)]) if end > start else ""
        slot = slot_source(pattern, every="call" if per_call else "conversation") if pattern else ""
        yield TextChange(first.cause, _offset(first.item, before, after), old, (start, end), slot)


def _passage_changes(passages: Sequence[_Found], before: str, after: str) -> Iterator[TextChange]:
    """Name each section once, at its first difference."""
    for cause in dict.fromkeys(one.cause for one in passages):
        item = next(one.item for one in passages if one.cause == cause)
        at = _offset(item, before, after)
        yield TextChange(cause, at, (item.before_start, item.before_end), (item.start, item.end))
