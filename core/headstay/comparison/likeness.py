"""When two segments of two requests stand for the same thing, and how they then differ."""

import json
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from typing import cast

from headstay.canonical import meaning_text, wire_text
from headstay.causes import Cause
from headstay.comparison.pictures import are_other_pixels
from headstay.comparison.segment import Json, Segment, mapping
from headstay.forms import first_difference, form_cause

_COMPARED_UP_TO = 4_000

Difference = tuple[Cause, str, int, str, str]
"""Cause, path, offset, and the two texts that differ."""


def likeness(segment: Segment) -> str:
    """Return a key that two segments share when they say the same in another form.

    Left out are ids, the order of keys, blanks, the Unicode form, the bytes of images and the signatures of thinking.
    """
    kind, said_by = segment.kind, f"{segment.role}\0{segment.kind}\0"
    if kind == "text":
        return said_by + folded(segment.text)
    if kind == "tool_call" and segment.name:
        return f"{said_by}{segment.name}\0{folded(_meaning(segment.text))}"
    if kind == "tool_result":
        return said_by + folded(segment.text)
    if kind in ("image", "blank"):
        return said_by
    return said_by + folded(_thought(segment.value) or segment.exact)


def folded(text: str) -> str:
    """Return a text without what form alone makes of it."""
    flat = "".join(text.split())
    return flat if flat.isascii() else unicodedata.normalize("NFC", flat)


def _meaning(arguments: str) -> str:
    try:
        return meaning_text(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _thought(value: object) -> str:
    fields = mapping(value)
    texts = [fields.get(key) for key in ("thinking", "reasoning_content", "reasoning")]
    return next((text for text in texts if isinstance(text, str)), "")


def similar(one: str, other: str) -> bool:
    """Whether one text looks like an edited form of the other."""
    if one[:_COMPARED_UP_TO] == other[:_COMPARED_UP_TO]:
        return True
    shorter, longer = sorted((one[:_COMPARED_UP_TO], other[:_COMPARED_UP_TO]), key=len)
    if len(shorter) >= 12 and shorter.strip() in longer:
        return True
    matcher = SequenceMatcher(None, one[:_COMPARED_UP_TO].split(), other[:_COMPARED_UP_TO].split(), autojunk=False)
    return matcher.ratio() >= 0.5


def shows_image(segment: Segment) -> bool:
    """Whether a segment is an image, or a result with one in it."""
    return segment.kind == "image" or (segment.kind == "tool_result" and bool(_image_blocks(segment.value)))


def form_differences(old: Segment, new: Segment, ids: Collection[str]) -> Iterator[Difference]:
    """Name how two segments differ that mean the same.

    Args:
        old: The earlier one.
        new: The later one; `likeness` of both is the same, `exact` is not.
        ids: The ids of tool calls in the earlier request: one that is among them was not made anew.
    """
    if old.kind == "thinking":
        yield Cause.THINKING_CHANGED, *thought_difference(old, new)
        return
    if old.kind == "image":
        cause = Cause.HISTORY_EDITED if are_other_pixels(old.exact, new.exact) else Cause.IMAGE_REENCODED
        yield cause, new.path, 0, *_image_ends(old.exact, new.exact)
        return
    if old.call != new.call:
        cause = Cause.IDS_REGENERATED
        if new.call in ids:
            cause = Cause.PARALLEL_RESULTS_REORDERED if old.kind == "tool_result" else Cause.MESSAGE_REORDERED
        yield cause, _id_path(new), first_difference(old.call, new.call), old.call, new.call
    if old.text != new.text:
        compared = _argument_cause if old.kind == "tool_call" else form_cause
        at = first_difference(old.text, new.text) if isinstance(_raw_text(new), str) else 0
        yield compared(old.text, new.text) or Cause.HISTORY_EDITED, new.path, at, old.text[at:], new.text[at:]
    elif old.call == new.call:
        yield from _rest(old, new)


def thought_difference(old: Segment, new: Segment) -> tuple[str, int, str, str]:
    """Return where two thinking blocks differ: in their text, in their seal, or elsewhere."""
    before, after = (_thought(segment.value) for segment in (old, new))
    if before != after:
        return new.path, first_difference(before, after), before, after
    base = new.path.removesuffix(".thinking")
    for key in ("signature", "data", "encrypted_content"):
        one, other = (mapping(segment.value).get(key) for segment in (old, new))
        if isinstance(one, str) and isinstance(other, str) and one != other:
            return f"{base}.{key}", first_difference(one, other), one, other
    return new.path, 0, old.exact, new.exact


def _rest(old: Segment, new: Segment) -> Iterator[Difference]:
    """Name what else is in a block: images of a result, citations of a text, an item of another kind."""
    if old.kind == "tool_result":
        before, after = (_pictures(segment.value) for segment in (old, new))
        if before != after and len(before) == len(after):
            yield Cause.IMAGE_REENCODED, new.path, 0, "", ""
            return
    cause = form_cause(old.exact, new.exact) or Cause.HISTORY_EDITED
    yield cause, new.path, 0, old.exact.replace("\0", " "), new.exact.replace("\0", " ")


def _pictures(value: object) -> list[str]:
    return [wire_text(block) for block in _image_blocks(value)]


def _image_blocks(value: object) -> list[Json]:
    content = mapping(value).get("content") or mapping(value).get("output")
    if not isinstance(content, (list, tuple)):
        return []
    blocks = [mapping(item) for item in cast("Sequence[object]", content)]
    return [block for block in blocks if "image" in str(block.get("type"))]


def _raw_text(segment: Segment) -> object:
    """Return what stands at the path of a segment."""
    value = mapping(segment.value)
    if segment.kind == "tool_call":
        return value.get("input", "")
    if segment.kind == "tool_result":
        return value.get("content", value.get("output"))
    return segment.text


def _argument_cause(before: str, after: str) -> Cause:
    """Name how the same arguments were written in another way."""
    try:
        old, new = json.loads(before), json.loads(after)
    except (ValueError, RecursionError):
        return form_cause(before, after) or Cause.HISTORY_EDITED
    if wire_text(old) != wire_text(new):
        if meaning_text(old) == meaning_text(new):
            return Cause.CALL_KEY_ORDER
        return form_cause(meaning_text(old), meaning_text(new)) or Cause.HISTORY_EDITED
    return Cause.WHITESPACE if "".join(before.split()) == "".join(after.split()) else Cause.UNICODE_FORM


def _id_path(segment: Segment) -> str:
    """Return where the id of a call or a result stands."""
    value = mapping(segment.value)
    for key in ("tool_use_id", "tool_call_id", "call_id", "id"):
        if key in value:
            base = segment.path.removesuffix(".input").removesuffix(".content").removesuffix(".output")
            for tail in (".function.arguments", ".custom.input", ".custom", ".arguments"):
                base = base.removesuffix(tail)
            return f"{base}.{key}"
    return segment.path


def _image_ends(before: str, after: str) -> tuple[str, str]:
    """Show an image by what stands around its first different byte."""
    at = first_difference(before, after)
    return before[at : at + 32], after[at : at + 32]
