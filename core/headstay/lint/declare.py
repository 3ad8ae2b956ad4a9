"""All known system texts of one agent to the `Slot(...)` lines that declare what varies among them."""

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from headstay.comparison.section_slot import SECTIONS, section_match
from headstay.comparison.texts import bounded_variations, varying
from headstay.remedy import Cut, is_value, open_pattern, slot_source, union
from headstay.sections import section_cause
from headstay.slots import Every, Slot, Template
from headstay.values import Declared, extract

_REFERENCES = 4
_MOST_SLOTS = 12
_SECTIONS_OF = 8
_WORDS = 8


class KnownText(NamedTuple):
    """A system text that an agent has sent.

    Attributes:
        text: The text.
        conversation: What tells its conversation from the others.
    """

    text: str
    conversation: Hashable


class _Varying(NamedTuple):
    """What varies among some texts.

    Attributes:
        spans: Where, in the text that the others are held against.
        timed: For each, whether it is a clock or an id somewhere.
        placed: For each text where the spans are in it.
    """

    spans: tuple[tuple[int, int], ...]
    timed: tuple[bool, ...]
    placed: dict[str, tuple[Cut, ...]]


def slot_lines(known: Sequence[KnownText]) -> tuple[str, ...]:
    """Write the lines that declare everything that varies among the system texts of an agent.

    What stays the same within each conversation is declared for the conversation, anything else for the call; a clock
    or an id too, as long as no conversation is known with two texts.

    Args:
        known: The texts at one place of the request, in order of use.

    Returns:
        Python source, one `Slot(r"...", every="...")` for each value or section. With all of them pasted, the
        texts are one. Nothing where values do not tell the texts apart.
    """
    texts = tuple(dict.fromkeys(one.text for one in known))
    if len(texts) < 2:
        return ()
    sections = _sections(texts)
    cut = _without(texts, sections)
    left = [KnownText(cut[one.text], one.conversation) for one in known]
    for reference in tuple(dict.fromkeys(one.text for one in left[::-1]))[:_REFERENCES]:
        found = _compare(reference, tuple(cut.values()))
        slots = sections | (_declared(found, reference, left) if found else {})
        if slots and _is_one(texts, slots):
            return tuple(slot_source(match, every=every) for match, every in slots.items())
    return ()


def _sections(texts: Sequence[str]) -> dict[str, Every]:
    """Find the sections of memory and of retrieved text that change as a whole, as `Slot(...)` takes them."""
    found: dict[str, Every] = {}
    last = texts[-1]
    for text in texts[:-1][-_SECTIONS_OF:]:
        for item in bounded_variations(text, last):
            before, after = Cut(text, item.before_start, item.before_end), Cut(last, item.start, item.end)
            cause = section_cause(last, item.start, item.end)
            if cause in SECTIONS and not (_is_short(before) and _is_short(after)):
                match = section_match(cause, before, after)
                found.update({match: SECTIONS[cause]} if match else {})
    return found


def _without(texts: Sequence[str], slots: Mapping[str, Every]) -> dict[str, str]:
    """Return each text with placeholders for what slots cut out of it."""
    declared = Declared((), tuple(Slot(match, every=every) for match, every in slots.items()), strict=False)
    return {text: extract([text], declared).head[0] for text in texts}


def _compare(reference: str, texts: Sequence[str]) -> _Varying | None:
    """Find what varies between one text and all the others; None where that is more than values in their places."""
    items: list[tuple[int, int, str]] = []
    spans: list[tuple[int, int]] = []
    for text in texts:
        if _placed(reference, spans, text):  # what is known to vary is all that is different here too
            continue
        found = varying(text, reference)
        if any(sort == "wording" and _is_line(reference, start, end) for start, end, sort in found):
            return None
        items += found
        spans = union([(start, end) for start, end, _ in items], reference)
        if len(spans) > _MOST_SLOTS or not all(_is_short(Cut(reference, *span)) for span in spans):
            return None
    placed = {text: _placed(reference, spans, text) for text in texts}
    if not spans or not all(placed.values()):
        return None
    timed = tuple(
        any(sort in ("clock", "id") and start <= left and right <= end for left, right, sort in items)
        for start, end in spans
    )
    return _Varying(tuple(spans), timed, placed)


def _placed(reference: str, spans: Sequence[tuple[int, int]], text: str) -> tuple[Cut, ...]:
    """Find the spans of one text in another; nothing where the rest differs, or more than values stand there."""
    borders = [0, *(at for span in spans for at in span), len(reference)]
    literals = tuple(reference[borders[n] : borders[n + 1]] for n in range(0, len(borders), 2))
    found = Template(literals, tuple(f"v{n}" for n in range(len(spans)))).spans(text)
    cuts = () if isinstance(found, int) else tuple(Cut(text, span.start, span.end) for span in found)
    return cuts if all(map(_is_short, cuts)) else ()


def _is_short(cut: Cut) -> bool:
    """Whether a value stands there, or nothing: no passage, and no sentence."""
    value = cut.text[cut.start : cut.end]
    return not value or (is_value(value) and "\n" not in value and len(value.split()) <= _WORDS)


def _is_line(text: str, start: int, end: int) -> bool:
    """Whether a span is all that stands on its line, marks aside."""
    stop = text.find("\n", end)
    beside = text[text.rfind("\n", 0, start) + 1 : start] + text[end : len(text) if stop < 0 else stop]
    return start < end and not re.search(r"\w", beside)


def _declared(found: _Varying, reference: str, known: Sequence[KnownText]) -> dict[str, Every]:
    """Return pattern and kind of each slot; nothing where one has no pattern."""
    slots: dict[str, Every] = {}
    for index in range(len(found.spans)):
        others = [cuts[index] for text, cuts in found.placed.items() if text != reference]
        pattern = open_pattern(reference, found.spans, index, others)
        if not pattern:
            return {}
        slots[pattern] = _every(found, index, known)
    return slots


def _every(found: _Varying, index: int, known: Sequence[KnownText]) -> Every:
    values: dict[Hashable, set[str]] = {}
    for one in known:
        cut = found.placed[one.text][index]
        values.setdefault(one.conversation, set()).add(one.text[cut.start : cut.end])
    if any(len(seen) > 1 for seen in values.values()):
        return "call"
    seen_again = len({(one.text, one.conversation) for one in known}) > len(values)
    return "call" if found.timed[index] and not seen_again else "conversation"


def _is_one(texts: Sequence[str], slots: Mapping[str, Every]) -> bool:
    """Whether the texts are the same once the slots are cut out, and something is left of them."""
    declared = Declared((), tuple(Slot(match, every=every) for match, every in slots.items()))
    taken = [extract([text], declared) for text in texts]
    return len({one.head for one in taken}) == 1 and not any(one.notices for one in taken)
