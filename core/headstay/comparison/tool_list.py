"""Two tool lists to what differs between them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from headstay.canonical import meaning_text, size_of, wire_text
from headstay.causes import Cause
from headstay.comparison.finding import TIERS, Draft, Place
from headstay.comparison.segment import Request
from headstay.excerpt import excerpt
from headstay.forms import first_difference, form_cause
from headstay.prompt import Tool

_SETS = ("required", "enum", "type")  # lists of a schema whose order means nothing
_INNER_TEXTS = ("description", "title")


class Leaf(NamedTuple):
    """One place where two JSON values differ.

    Attributes:
        cause: The code.
        path: Path from the root of the value, as in `.input_schema.properties.city`.
        before: What stands there in the earlier one; None where nothing does.
        after: What stands there in the later one; None where nothing does.
    """

    cause: Cause
    path: str
    before: object
    after: object


def compare_tools(before: Request, after: Request) -> list[Draft]:
    """Name what differs between the tool lists of two requests."""
    old, new = _named(before.tools), _named(after.tools)
    drafts: list[Draft] = []
    names = list(new)
    for index, (key, tool) in enumerate(new.items()):
        path = after.tool_paths[index]
        if key not in old:
            drafts.append(_draft(Cause.TOOL_ADDED, index, path, "", tool.name))
        else:
            drafts += _changes(old[key], tool, index, path)
    stay, order = [key for key in old if key in new], [key for key in new if key in old]
    for number, key in enumerate(old):
        if key not in new:
            follower = next((one for one in list(old)[number + 1 :] if one in new), None)
            index = names.index(follower) if follower is not None and order == stay else min(number, len(new))
            path = before.tool_paths[number]
            drafts.append(_draft(Cause.TOOL_REMOVED, index, path, old[key].name, ""))
    if order != stay:
        moved = next(number for number, (one, other) in enumerate(zip(stay, order, strict=True)) if one != other)
        index = names.index(order[moved])
        path = after.tool_paths[index]
        drafts.append(_draft(Cause.TOOL_ORDER, index, path, _names(stay[moved:]), _names(order[moved:])))
    return drafts


def tool_sizes(before: Request, after: Request) -> list[tuple[int, bool]]:
    """Return the size in bytes of each tool of the later request, and whether the earlier one has it too."""
    old = _named(before.tools)
    return [(size_of(wire_text(tool.wire)), key in old) for key, tool in _named(after.tools).items()]


def _named(tools: Sequence[Tool]) -> dict[tuple[str, int], Tool]:
    """Key tools by name; a name that comes again is counted, though no provider takes it."""
    found: dict[tuple[str, int], Tool] = {}
    for tool in tools:
        times = 0
        while (tool.name, times) in found:
            times += 1
        found[tool.name, times] = tool
    return found


def _names(keys: Sequence[tuple[str, int]]) -> str:
    text = ", ".join(name for name, _ in keys)
    return excerpt(text, 0, len(text))


def _draft(cause: Cause, index: int, path: str, before: str, after: str) -> Draft:
    return Draft(Place(TIERS["tools"], index), cause, path, before=before, after=after)


def _changes(before: Tool, after: Tool, index: int, path: str) -> Iterator[Draft]:
    """Name each way in which one tool changed, at its first place."""
    if wire_text(before.wire) == wire_text(after.wire):
        return
    seen: set[Cause] = set()
    for number, leaf in enumerate(leaves(before.wire, after.wire)):
        if leaf.cause in seen:
            continue
        seen.add(leaf.cause)
        yield leaf_draft(leaf, Place(TIERS["tools"], index, number), path)


def leaf_draft(leaf: Leaf, place: Place, path: str) -> Draft:
    """Make the draft of a finding from a place where two JSON values differ."""
    if isinstance(leaf.before, str) and isinstance(leaf.after, str):
        at = first_difference(leaf.before, leaf.after)
        start = _word_start(leaf.after, at)
        old, new = excerpt(leaf.before, start, len(leaf.before)), excerpt(leaf.after, start, len(leaf.after))
        return Draft(place, leaf.cause, path + leaf.path, at, old, new)
    old, new = (_shown(value) for value in (leaf.before, leaf.after))
    return Draft(place, leaf.cause, path + leaf.path, 0, old, new)


def _word_start(text: str, at: int) -> int:
    return text.rfind(" ", max(0, at - 30), at) + 1 or at


def _shown(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else wire_text(value)
    return excerpt(text, 0, len(text))


def leaves(before: object, after: object, path: str = "", key: str = "", *, named: bool = False) -> Iterator[Leaf]:
    """Find the places where two JSON values differ, in the order of the later one.

    Args:
        before: The earlier value.
        after: The later value.
        path: Path of both.
        key: The key under which they stand.
        named: Whether the keys of these mappings are names of parameters and not words of the schema.
    """
    if wire_text(before) == wire_text(after):
        return
    texts = isinstance(before, str) and isinstance(after, str)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        old, new = cast("Mapping[str, object]", before), cast("Mapping[str, object]", after)
        yield from _mappings(old, new, path, named)
    elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
        yield from _lists(cast("Sequence[object]", before), cast("Sequence[object]", after), path, key)
    else:
        cause = _leaf_cause(cast("str", before), cast("str", after), key) if texts else Cause.TOOL_SCHEMA_CHANGED
        yield Leaf(cause, path, before, after)


def _mappings(old: Mapping[str, object], new: Mapping[str, object], path: str, named: bool) -> Iterator[Leaf]:
    common_old, common_new = [key for key in old if key in new], [key for key in new if key in old]
    if common_old != common_new:
        yield Leaf(Cause.SCHEMA_KEY_ORDER, path, ", ".join(old), ", ".join(new))
    for key in (*new, *(key for key in old if key not in new)):
        if key in old and key in new:
            inner = not named and key in ("properties", "$defs", "definitions", "patternProperties")
            yield from leaves(old[key], new[key], f"{path}.{key}", "" if named else key, named=inner)
        elif key not in ("cache_control", "prompt_cache_breakpoint"):
            cause = Cause.TOOL_SCHEMA_CHANGED
            if key in _INNER_TEXTS and not named:
                cause = Cause.TOOL_DESCRIPTION_CHANGED
            yield Leaf(cause, f"{path}.{key}", old.get(key), new.get(key))


def _lists(old: Sequence[object], new: Sequence[object], path: str, key: str) -> Iterator[Leaf]:
    if len(old) == len(new):
        same = sorted(map(meaning_text, old)) == sorted(map(meaning_text, new))
        if same and key in _SETS and [meaning_text(item) for item in old] != [meaning_text(item) for item in new]:
            yield Leaf(Cause.SCHEMA_KEY_ORDER, path, old, new)
            return
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from leaves(one, other, f"{path}[{index}]", key if not isinstance(other, str) else "")
        return
    yield Leaf(Cause.TOOL_SCHEMA_CHANGED, path, old, new)


def _leaf_cause(before: str, after: str, key: str) -> Cause:
    changed = Cause.TOOL_DESCRIPTION_CHANGED if key in _INNER_TEXTS else Cause.TOOL_SCHEMA_CHANGED
    return form_cause(before, after) or changed
