"""Two requests to the causes of their difference: the head against a known head, the history against what was sent."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from headstay.canonical import meaning_text
from headstay.causes import Break, Cause, shorten, value_cause
from headstay.fingerprint import shared_blocks, split_trail
from headstay.forms import first_difference, form_cause
from headstay.remedies import REMEDIES
from headstay.remedy import is_value, slot_line, union, variations
from headstay.sections import section_cause


@dataclass(frozen=True, slots=True)
class HeadForm:
    """A head in the form it was sent.

    Attributes:
        system: The system texts with placeholders.
        tools: Tool name to wire form, in wire order.
    """

    system: tuple[str, ...]
    tools: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HeadDifference:
    """How a head differs from a known one.

    Attributes:
        breaks: The causes, in order of position.
        variant: Whether the texts differ by passages and not by values: another head of the lane's own, not a break,
            unless a conversation changes over to it.
    """

    breaks: tuple[Break, ...]
    variant: bool


def nearest(heads: Sequence[HeadForm], head: HeadForm) -> HeadForm | None:
    """Return the known head that has the most lines in common with a new one."""
    lines = Counter(line for text in head.system for line in text.splitlines())

    def common(other: HeadForm) -> int:
        return sum((lines & Counter(line for text in other.system for line in text.splitlines())).values())

    return max(heads, key=common, default=None)


def compare_heads(
    before: HeadForm, after: HeadForm, *, same_conversation: bool, others: Sequence[HeadForm] = ()
) -> HeadDifference:
    """Name what a new head changed.

    Args:
        before: The head it is held against.
        after: The new head.
        same_conversation: Whether one conversation went over from the one to the other.
        others: More heads of the lane; what varies among them too widens the reported spans.

    Returns:
        The breaks and whether it is a variant.
    """
    breaks = _compare_tools(before.tools, after.tools)
    if before.system == after.system:
        return HeadDifference(breaks, variant=False)
    if len(before.system) != len(after.system):
        what = f"{len(before.system)} system blocks became {len(after.system)}"
        return HeadDifference((*breaks, _passage("system", 0, what, "", Cause.SYSTEM_TEXT_CHANGED)), variant=True)
    passages: list[Break] = []
    for number, (old, new) in enumerate(zip(before.system, after.system, strict=True)):
        if old == new:
            continue
        peers = [other.system[number] for other in others if len(other.system) == len(after.system)]
        values, long = _compare_texts(old, new, peers, f"system[{number}]", same_conversation=same_conversation)
        breaks += values
        passages += long
    variant = any(found.cause == Cause.SYSTEM_TEXT_CHANGED for found in passages)
    return HeadDifference((*breaks, *passages), variant=variant)


def _compare_texts(
    old: str, new: str, peers: Sequence[str], path: str, *, same_conversation: bool
) -> tuple[tuple[Break, ...], list[Break]]:
    whole = _same_but_form(old, new, path)
    if whole is not None:
        return (whole,), []
    found = variations(old, new)
    passages = [item for item in found if not _value_pair(old[item.before_start : item.before_end], new, item)]
    if passages:
        first = passages[0]
        cause = section_cause(new, first.start, first.end)
        before, after = old[first.before_start : first.before_end], new[first.start : first.end]
        reports = [_passage(path, first.start, before, after, cause)]
        # In a rewritten text a changed number is part of the rewriting; a clock or an id still is what it is.
        found = [item for item in found if value_cause(new[item.start : item.end]) != Cause.VALUE_IN_HEAD]
    else:
        reports = list[Break]()
    spans = union([*((item.start, item.end) for item in found), *_also_varying(new, peers)], new)
    breaks: list[Break] = []
    for index, (start, end) in enumerate(spans):
        touching = [item for item in found if item.start < end and start < item.end]
        if not touching:
            continue
        value = new[start:end]
        cause = value_cause(value)
        earlier = old[touching[0].before_start : touching[-1].before_end]
        per_call = same_conversation or cause != Cause.VALUE_IN_HEAD
        remedy = slot_line(new, spans, index, every="call" if per_call else "conversation")
        breaks.append(Break(cause, "application", path, remedy, start, shorten(earlier), shorten(value)))
    return tuple(breaks), reports


def _value_pair(earlier: str, new: str, item: tuple[int, int, int, int]) -> bool:
    return is_value(earlier) and is_value(new[item[2] : item[3]])


def _also_varying(new: str, peers: Sequence[str]) -> list[tuple[int, int]]:
    """Find what varies against other heads that differ from this one by values only."""
    spans: list[tuple[int, int]] = []
    for peer in peers:
        found = variations(peer, new)
        if all(_value_pair(peer[item.before_start : item.before_end], new, item) for item in found):
            spans += [(item.start, item.end) for item in found]
    return spans


def _same_but_form(old: str, new: str, path: str) -> Break | None:
    """Tell a change of form only: blanks, or the Unicode form."""
    cause = form_cause(old, new)
    if cause is None:
        return None
    at = first_difference(old, new)
    return Break(cause, "application", path, REMEDIES[cause], at, shorten(old[at:]), shorten(new[at:]))


def _passage(path: str, at: int, before: str, after: str, cause: Cause) -> Break:
    return Break(cause, "application", path, REMEDIES[cause], at, shorten(before), shorten(after))


def _compare_tools(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Break, ...]:
    breaks: list[Break] = []
    for name in after:
        if name not in before:
            breaks.append(_tool_break(Cause.TOOL_ADDED, name))
        elif before[name] != after[name]:
            breaks.append(_tool_break(_tool_change(before[name], after[name]), name))
    breaks += [_tool_break(Cause.TOOL_REMOVED, name) for name in before if name not in after]
    order = [name for name in before if name in after]
    if not breaks and order != list(after):
        breaks.append(_tool_break(Cause.TOOL_ORDER, order[0]))
    return tuple(breaks)


def _tool_break(cause: Cause, name: str) -> Break:
    return Break(cause, "application", f"tools[{name}]", REMEDIES[cause])


def _tool_change(before: str, after: str) -> Cause:
    old, new = (cast("dict[str, object]", json.loads(form)) for form in (before, after))
    if meaning_text(old) == meaning_text(new):
        return Cause.SCHEMA_KEY_ORDER
    bare_old, bare_new = (_without_description(form) for form in (old, new))
    same = meaning_text(bare_old) == meaning_text(bare_new)
    return Cause.TOOL_DESCRIPTION_CHANGED if same else Cause.TOOL_SCHEMA_CHANGED


def _without_description(value: object) -> object:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: _without_description(item) for key, item in items if key != "description"}
    if isinstance(value, list):
        return [_without_description(item) for item in cast("list[object]", value)]
    return value


def compare_histories(before: bytes, after: bytes) -> Break | None:
    """Name what happened to a history that was not simply continued.

    Args:
        before: Trail of the request before.
        after: Trail of this request.

    Returns:
        The break, or None where the later continues the earlier.
    """
    if after.startswith(before):
        return None
    shared = shared_blocks(before, after)
    old, new = split_trail(before), split_trail(after)
    cause = _history_cause(old, new, shared)
    return Break(cause, "application", f"blocks[{shared}]", REMEDIES[cause])


def _history_cause(old: list[bytes], new: list[bytes], shared: int) -> Cause:
    kept = Counter(old) & Counter(new)
    rest = iter(new)
    if all(link in rest for link in old):  # every old message in its order: something was put in between
        return Cause.HISTORY_EDITED
    if sum(kept.values()) == len(old) and len(new) >= len(old):
        return Cause.MESSAGE_REORDERED
    if new[shared : shared + 1] and kept[new[shared]]:
        return Cause.HISTORY_DROPPED
    return Cause.HISTORY_SUMMARISED if len(new) < len(old) and new[-1:] != old[-1:] else Cause.HISTORY_EDITED
