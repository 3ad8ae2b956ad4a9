"""What was added to a running conversation, and where: the tools and the instructions that its head does not hold.

The forms are kept in the head store under their hashes, the places with each call.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from headstay.canonical import digest

ADDED_TITLE = "Added to the instructions:"


class Place(NamedTuple):
    """Where in a conversation something was added.

    Attributes:
        blocks: How many of the application's own blocks stand before it.
        link: Their hash.
    """

    blocks: int
    link: bytes


class Addition(NamedTuple):
    """One tool, or one piece of the system text, that was added.

    Attributes:
        name: The tool's name; empty for instructions.
        form: The tool's definition in wire form; for instructions what `remainder` returns.
        place: Where it stands.
    """

    name: str
    form: str
    place: Place


class Entry(NamedTuple):
    """An addition as it is kept with a call: the hash of its form instead of the form."""

    name: str
    form: str
    place: Place


def form_name(form: str) -> str:
    """Name a form by its hash."""
    return digest("addition", form).hex()


def entries(additions: Iterable[Addition]) -> tuple[Entry, ...]:
    """Name what was added, each by its hash and place."""
    return tuple(Entry(found.name, form_name(found.form), found.place) for found in additions)


def written(additions: Sequence[Addition]) -> str:
    """Return the form that is kept with a call; empty where nothing was added."""
    if not additions:
        return ""
    rows = [[name, form, place.blocks, place.link.hex()] for name, form, place in entries(additions)]
    return json.dumps(rows, separators=(",", ":"))


def read(added: str) -> tuple[Entry, ...]:
    """Read what `written` wrote."""
    rows = cast("list[tuple[str, str, int, str]]", json.loads(added)) if added else []
    return tuple(Entry(name, form, Place(blocks, bytes.fromhex(link))) for name, form, blocks, link in rows)


def remainder(before: Sequence[str], now: Sequence[str], *, fixed: int = 0) -> str | None:
    r"""Find what a system text has more than an earlier one, at its end.

    That is text at the end of the last block, behind a line break, and whole blocks behind it.

    Args:
        before: The blocks of the earlier text.
        now: The blocks of the later one.
        fixed: How many blocks at the end of both are not the application's: what is added stands before them.

    Returns:
        The form of the addition, empty where there is none; None where the later text does not continue the earlier.

    Examples:
        >>> remainder(["Be kind."], ["Be kind.\n\nBe brief."])
        '[0,"\\n\\nBe brief."]'
    """
    last, end = len(before) - fixed - 1, len(now) - fixed
    if (
        last < 0
        or end <= last
        or list(now[end:]) != list(before[last + 1 :])
        or list(now[:last]) != list(before[:last])
    ):
        return None
    own, text = before[last], now[last]
    more = text[len(own) :]
    if not text.startswith(own) or (more and not own.endswith("\n") and not more.startswith(("\n", "\r\n"))):
        return None
    if not more and end == last + 1:
        return ""
    return json.dumps([last, more, *now[last + 1 : end]], ensure_ascii=False, separators=(",", ":"))


def joined(head: Sequence[str], forms: Iterable[str]) -> tuple[str, ...]:
    """Put added pieces back to where the application has them: the system text of which they are the additions.

    Args:
        head: The blocks that stand in the head.
        forms: What was added since, in order, as `remainder` returned it.
    """
    blocks = list(head)
    for form in forms:
        at, more, *further = cast("tuple[int, str, *tuple[str, ...]]", json.loads(form))
        blocks[at : at + 1] = [blocks[at] + more, *further]
    return tuple(blocks)


def wording(form: str) -> str:
    """Write added instructions as they are sent, or an empty text where nothing of them can be seen."""
    _, *pieces = cast("tuple[int, *tuple[str, ...]]", json.loads(form))
    said = [piece.strip("\r\n") for piece in pieces if piece.strip()]
    return "\n\n".join([f"{ADDED_TITLE}\n{said[0]}", *said[1:]]) if said else ""
