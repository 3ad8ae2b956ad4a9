"""Vetoes on who does what to whom: the words are the same and their places are not."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from headstay.semantic.reading import Reading
from headstay.semantic.reasons import Reason
from headstay.semantic.veto_marks import Veto, differing
from headstay.semantic.veto_words import FUNCTION_WORDS
from headstay.semantic.wording import Word

_LONGEST_LINK = 5
_ARTICLES = frozenset({"a", "an", "the"})
_SYMMETRIC = frozenset({"and", "or", "with", "vs", "versus", "plus", "between"})
_LEADS = {"from": "from", "to": "to", "into": "to", "onto": "to"}


def direction(asked: Reading, stored: Reading) -> Veto | None:
    """What the one comes from, the other goes to."""
    ours, theirs = _led(asked), _led(stored)
    for word, lead in ours.items():
        other = theirs.get(word)
        if other is not None and other != lead:
            return Veto(Reason.VETO_ORDER, f"{lead} {word}", f"{other} {word}")
    return None


def _led(reading: Reading) -> dict[str, str]:
    """Return what stands behind `from` and `to`, each with its lead; nothing that has both."""
    found: dict[str, str] = {}
    both: set[str] = set()
    words = reading.words
    for at, word in enumerate(words):
        lead = _LEADS.get(word.low)
        after = next((next_ for next_ in words[at + 1 : at + 4] if next_.low not in FUNCTION_WORDS), None)
        if lead and after is not None and found.setdefault(after.stem, lead) != lead:
            both.add(after.stem)
    return {word: lead for word, lead in found.items() if word not in both}


def order(asked: Reading, stored: Reading) -> Veto | None:
    """Two things around the same words have changed places: `Ann manages Bob`, `call me`; or who does it to whom."""
    ours, theirs = _roles(asked), _roles(stored)
    for start in range(1, len(ours) - 1):
        for at in _places(theirs, ours[start]):
            for size in range(1, _LONGEST_LINK + 1):
                if ours[start : start + size] != theirs[at : at + size]:
                    break
                turned = _turned(ours, theirs, start, at, size)
                if turned:
                    return turned
    limited = _limited(asked), _limited(stored)
    if all(limited) and limited[0] != limited[1] and Counter(asked.content) == Counter(stored.content):
        return Veto(Reason.VETO_ORDER, *limited)
    exchanged = {_asked_role(asked), _asked_role(stored)} == {"subject", "object"}
    if exchanged and Counter(asked.content) == Counter(stored.content):
        return differing(Reason.VETO_ORDER, asked.content, stored.content)
    return None


def _roles(reading: Reading) -> list[str]:
    """The words by stem, articles left out, `me` as `i`; a letter that is a name (`is A faster than B`) stays one."""
    return [_role(word) for word in reading.words if word.low not in _ARTICLES or _is_letter(word)]


def _role(word: Word) -> str:
    if _is_letter(word):
        return f"letter {word.raw}"
    return "i" if word.low == "me" else word.stem


def _is_letter(word: Word) -> bool:
    return len(word.raw) == 1 and word.raw.isupper() and word.raw != "I" and not word.starts


def _places(words: list[str], word: str) -> Iterator[int]:
    return (at for at in range(1, len(words) - 1) if words[at] == word)


def _turned(ours: list[str], theirs: list[str], start: int, at: int, size: int) -> Veto | None:
    """Compare what stands around a link of some words in both, up to three words on each side."""
    link = ours[start : start + size]
    if _SYMMETRIC.issuperset(link):
        return None
    end, after = start + size, at + size
    for left in range(1, 4):
        for right in range(1, 4):
            a = ours[max(start - left, 0) : start], ours[end : end + right]
            b = theirs[max(at - right, 0) : at], theirs[after : after + left]
            if a[0] == b[1] and a[1] == b[0] and a[0] != a[1] and _are_things(*a):
                return Veto(Reason.VETO_ORDER, *(" ".join([*x, *link, *y]) for x, y in (a, b)))
    return None


def _are_things(left: list[str], right: list[str]) -> bool:
    """Whether both sides are words that say something, or both a speaker."""
    words = [*left, *right]
    return bool(left and right) and (not FUNCTION_WORDS.intersection(words) or set(words) == {"i", "you"})


def _limited(reading: Reading) -> str:
    """What `only` stands before, or an empty text."""
    return next((f"only {after.stem}" for word, after in pairwise(reading.words) if word.low == "only"), "")


def _asked_role(reading: Reading) -> str:
    """Whether `who` asks for the one who does it or for the one it is done to."""
    for word, after in pairwise(reading.words):
        if word.low in {"who", "whom"}:
            role = "object" if after.low in {"do", "does", "did"} else "subject"
            return role if role == "object" or after.low not in FUNCTION_WORDS else ""
    return ""
