"""The `Slot(...)` line that declares the section of memory or of retrieved text that a passage stands in."""

import re

from headstay.causes import Cause
from headstay.excerpt import hidden
from headstay.remedy import Cut, escaped, group_name, slot_source
from headstay.sections import Section, sections_around
from headstay.slots import Every, Slot

SECTIONS: dict[Cause, Every] = {Cause.MEMORY_IN_HEAD: "conversation", Cause.RETRIEVAL_IN_HEAD: "call"}
_OTHERWISE = {Cause.MEMORY_IN_HEAD: "send it last", Cause.RETRIEVAL_IN_HEAD: "pass it as tail="}
_LONGEST = 60


def section_remedy(cause: Cause, before: Cut, after: Cut) -> str:
    """Say how a section is declared that a passage was changed in.

    Args:
        cause: What the change is.
        before: The passage in the earlier text.
        after: The passage in the later text.

    Returns:
        What to do, with the `Slot(...)` line where one cuts the section out of both texts. Empty for any other cause
        than memory and retrieved text.
    """
    every = SECTIONS.get(cause)
    if every is None:
        return ""
    match = section_match(cause, before, after)
    declared = f": {slot_source(match, every=every)}" if match else f' with Slot(..., every="{every}")'
    return f"declare the section{declared}, or {_OTHERWISE[cause]}"


def section_match(cause: Cause, before: Cut, after: Cut) -> str:
    """Return the heading or the pattern of a slot that cuts out the section of a passage; empty where none does.

    Args:
        cause: What the change is.
        before: The passage in the earlier text.
        after: The passage in the later text.
    """
    for section in sections_around(after.text, after.start, after.end):
        if section.cause != cause:
            continue
        match = _match(section, after)
        if match and hidden(match) == match and all(_holds(Slot(match), cut) for cut in (before, after)):
            return match
    return ""


def _match(section: Section, cut: Cut) -> str:
    """Return what the slot of a section is found by."""
    if len(section.words) > _LONGEST:
        return ""
    if section.form == "heading":
        plain = section.words.isprintable() and not re.search(r"[\"\\\\]", section.words)
        return section.words if plain else ""
    if section.form == "tag":
        name = re.escape(section.words)
        return rf"<{name}>(?P<{group_name(section.words)}>[\s\S]*?)</{name}>"
    if section.form == "line":
        line = cut.text.rfind("\n", 0, cut.start) + 1
        blanks = re.compile(r"[ \t]*").match(cut.text, line + len(section.words))
        label = section.words + (blanks.group() if blanks else "")
        return rf"^{escaped(label)}(?P<{group_name(section.words)}>.+)$"
    return ""


def _holds(slot: Slot, cut: Cut) -> bool:
    """Whether a slot is found once in a text, and holds the passage, line ends aside."""
    spans = slot.spans(cut.text)
    if len(spans) != 1:
        return False
    passage = cut.text[cut.start : cut.end]
    start = cut.start + len(passage) - len(passage.lstrip("\n")) if passage.strip("\n") else cut.start
    end = max(start, cut.start + len(passage.rstrip("\n")))
    return spans[0].start <= start and end <= spans[0].end + cut.text.startswith("\n", spans[0].end)
