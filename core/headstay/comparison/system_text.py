"""Two leading system texts, each in one or several blocks, to what differs between them."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from headstay.causes import Cause
from headstay.comparison.finding import TIERS, Draft, Place
from headstay.comparison.history import is_summary
from headstay.comparison.section_slot import section_remedy
from headstay.comparison.segment import Segment
from headstay.comparison.texts import TextChange, compare_texts
from headstay.excerpt import excerpt
from headstay.forms import form_cause
from headstay.remedy import Cut
from headstay.sections import section_cause


def compare_system(old: Sequence[Segment], new: Sequence[Segment], *, same_conversation: bool) -> list[Draft]:
    """Name what differs between two system texts.

    Args:
        old: The blocks of the earlier request.
        new: The blocks of the later request.
        same_conversation: Whether both requests are of one conversation.
    """
    drafts: list[Draft] = []
    for i, j in paired(old, new):
        if j is None:
            index = min(i or 0, len(new))
            drafts.append(_whole(old[i or 0], index, gone=True))
        elif i is None:
            drafts.append(_whole(new[j], j, gone=False))
        elif old[i].text != new[j].text:
            if j and is_summary(old[i].text) and is_summary(new[j].text):  # it is told anew
                drafts.append(_whole(new[j], j, gone=False))
                continue
            changes = compare_texts(old[i].text, new[j].text, same_conversation=same_conversation)
            drafts += [_change(change, old[i], new[j], j) for change in changes]
        elif old[i].exact != new[j].exact:
            drafts.append(Draft(Place(TIERS["system"], j), Cause.SYSTEM_TEXT_CHANGED, new[j].path))
    if len(old) != len(new) and old and new and _same_text(old, new):
        return [drafts[0]] if len(drafts) == 1 and drafts[0].cause == Cause.WHITESPACE else [_split(drafts[0])]
    return drafts


def paired(old: Sequence[Segment], new: Sequence[Segment]) -> Iterator[tuple[int | None, int | None]]:
    """Pair the blocks of two system texts: equal ones first, the others in their order; None where one is alone."""
    if len(old) == len(new):
        yield from zip(range(len(old)), range(len(new)), strict=True)
        return
    matcher = SequenceMatcher(None, [one.text for one in old], [one.text for one in new], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "equal":
            yield from zip(range(i1, i2), range(j1, j2), strict=True)
            continue
        both = min(i2 - i1, j2 - j1)
        yield from zip(range(i1, i1 + both), range(j1, j1 + both), strict=True)
        yield from ((i, None) for i in range(i1 + both, i2))
        yield from ((None, j) for j in range(j1 + both, j2))


def _same_text(old: Sequence[Segment], new: Sequence[Segment]) -> bool:
    one, other = (" ".join(segment.text for segment in segments) for segments in (old, new))
    return form_cause(one, other) == Cause.WHITESPACE or one == other


def _split(draft: Draft) -> Draft:
    """Make the finding for a text that was only cut into blocks in another way."""
    return Draft(draft.place, Cause.WHITESPACE, draft.path, draft.at, draft.before, draft.after)


def _whole(block: Segment, index: int, *, gone: bool) -> Draft:
    text = block.text
    cause = Cause.WHITESPACE if block.kind == "blank" else section_cause(text, 0, len(text))
    if cause == Cause.SYSTEM_TEXT_CHANGED and index and is_summary(text):
        cause = Cause.HISTORY_SUMMARISED
    shown = excerpt(text, 0, len(text))
    remedy = section_remedy(cause, Cut("", 0, 0), Cut(text, 0, len(text)))
    sides = (shown, "") if gone else ("", shown)
    return Draft(Place(TIERS["system"], index), cause, block.path, 0, *sides, remedy)


def _change(change: TextChange, old: Segment, new: Segment, index: int) -> Draft:
    declared = change.slot and f"declare it: {change.slot}"
    return Draft(
        Place(TIERS["system"], index, change.at),
        change.cause,
        new.path,
        change.at,
        excerpt(old.text, *change.before),
        excerpt(new.text, *change.after),
        declared or section_remedy(change.cause, Cut(old.text, *change.before), Cut(new.text, *change.after)),
    )
