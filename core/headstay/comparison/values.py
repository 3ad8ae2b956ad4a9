"""What a varying stretch of a text is, seen in its sentence: a clock, an id, another value, or wording."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

from headstay.comparison.clocks import CLOCK, DAY, DAY_AND_DATE, MONTH
from headstay.forms import first_difference
from headstay.slots import classify

Sort = Literal["clock", "id", "value", "wording"]

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_ID = re.compile(rf"{_UUID}|[A-Za-z0-9][\w+/=-]{{5,}}")
_ABOUT_TIME = re.compile(
    r"(?<![^\W_])(?<!this )(?<!per )(?<!each )(?<!every )(?:now|today|time|date|clock|timestamp|ts|epoch|unix|as of"
    r"|hour|minute|day|week|month|quarter|year|generated|updated)\b[^\n.]{0,24}$",
    re.IGNORECASE,
)
_PART_OF_DAY = "(?:morning|noon|afternoon|evening|night)"
_AGO = re.compile(r" ?[^\W\d_]+ ago\b")
_QUANTITY = re.compile(r" ?[%€$£°]| ?(?!(?:of|and|in|at|on|to)\b)[^\W\d_]+")
_ABOUT_ID = re.compile(
    r"\b(?:request|session|trace|run|nonce|seed|correlation|span|salt|invocation|execution|uuid|guid|hash"
    r"|checksum|cache[-_ ]?bust(?:er)?|conversation|thread|random)(?:[-_ ]?(?:id|token|key|no\.?|number))?"
    r"\W{0,4}$|_?id\W{0,3}$",
    re.IGNORECASE,
)
_RANDOM_BY_NAME = re.compile(r"\b(?:nonce|salt|hash|checksum|guid|uuid|cache[-_ ]?bust(?:er)?)\W{0,4}$", re.IGNORECASE)
_KEYED = re.compile(r"(?:[:=][ \t]*[^\s\w]*|[\"'`\u201c\u2018(\[{<|])[ \t]*$")
_LABELLED = re.compile(r"[ \t]*(?:[-*][ \t]+)?[\w .-]{1,40}[:=]")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{1,6}")  # Japanese or Chinese, as long as a name
_KIND_OF_VALUE = re.compile(
    r"(?:user|customer|client|account|tenant|plan|tier|region|locale|language|currency|city|country|company|team"
    r"|organi[sz]ation|name|named|called|role|version|status|balance|credits?|username|serve|help|helping|assisting)",
    re.IGNORECASE,
)
_DATE_BEHIND = re.compile(rf"[\s,(]{{1,2}}(?:den )?({CLOCK.pattern})")
_DATE_BEFORE = re.compile(rf"({CLOCK.pattern})[\s,(]{{1,2}}$")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_CONNECTORS = frozenset(
    {"of", "the", "and", "von", "van", "de", "da", "der", "den", "di", "la", "le", "el", "bin", "al"}
)


# One of these for another changes what is asked for, and is no value.
_GRAMMAR = re.compile(
    r"(?:an?|the|this|that|these|those|and|or|but|if|when|unless|until|always|never|often|sometimes|usually|not?|don?|does"
    r"|did|must|may|might|can(?:not)?|could|should|shall|will|would|is|are|was|were|be|been|has|have|had|only|also|all|any"
    r"|some|every|each|both|none|before|after|with(?:out)?|in|on|at|to|from|for|of|by|as|than|very|more|most|less|least"
    r"|its?|your?|they|their|we|our|i)",
    re.IGNORECASE,
)


class Stretch(NamedTuple):
    """A stretch of a text."""

    text: str
    start: int
    end: int

    @property
    def value(self) -> str:
        """What stands there."""
        return self.text[self.start : self.end]

    @property
    def line(self) -> str:
        """What stands before it on its line."""
        return self.text[self.text.rfind("\n", 0, self.start) + 1 : self.start]

    @property
    def rest(self) -> str:
        """What stands behind it on its line."""
        end = self.text.find("\n", self.end)
        return self.text[self.end : len(self.text) if end < 0 else end]


def sort_of(before: Stretch, after: Stretch) -> Sort:
    """Say what a stretch is that differs between two texts.

    Both sides count: a date that became a word is wording, and of `November 29, 2026` only the `29` may differ.

    Args:
        before: The stretch in the earlier text; may be empty.
        after: The stretch in the later text; may be empty.
    """
    sides = (before, after)
    cores = _cores(before, after)
    if all(map(_is_clock, sides)) or all(map(_in_clock, cores)) or all(map(_are_clocks, sides)):
        return "clock"
    if _are_days(before, after):
        return "clock"
    if all(map(_is_id, sides)) or all(map(_in_id, cores)) or _are_codes(before.value, after.value):
        return "id"
    filled = [side for side in sides if side.value.strip()]
    if any(len(side.value) > 120 or "\n" in side.value.strip("\n") for side in filled):
        return "wording"
    if any("\n" in side.value for side in filled) and len(filled) < 2:
        return "wording"  # whole lines came or went
    unspaced = all(_UNSPACED.fullmatch(core.value) for core in cores)
    return "value" if filled and (unspaced or all(map(_is_value, filled))) else "wording"


def is_swapped_word(before: Stretch, after: Stretch) -> bool:
    """Whether one word stands for another inside a sentence, as where a template fills one in."""
    words = [side.value.strip() for side in (before, after)]
    if not all(_WORD.fullmatch(word) and not _GRAMMAR.fullmatch(word) for word in words):
        return False
    return bool(_WORD.search(after.line))


def count_words(text: str) -> int:
    """Count the words of a text, numbers left out."""
    return len(_WORD.findall(text))


def _cores(before: Stretch, after: Stretch) -> tuple[Stretch, Stretch]:
    """Cut off what both stretches begin and end with: where a script has no blanks, a word is a whole sentence."""
    old, new = before.value, after.value
    start = first_difference(old, new)
    end = min(first_difference(old[::-1], new[::-1]), min(len(old), len(new)) - start)
    return (
        before._replace(start=before.start + start, end=before.end - end),
        after._replace(start=after.start + start, end=after.end - end),
    )


def whole(before: Stretch, after: Stretch, sort: Sort) -> tuple[Stretch, Stretch]:
    """Return the clocks or ids that two stretches are a part of; the stretches themselves where they are all of it."""
    patterns = {"clock": (CLOCK, DAY_AND_DATE), "id": (_ID,)}.get(sort, ())
    cores = _cores(before, after)
    found = [next((item for pattern in patterns for item in _around(core, pattern)), None) for core in cores]
    if found[0] is None or found[1] is None:
        return before, after
    one, other = (
        core._replace(start=item.start(), end=item.end()) for core, item in zip(cores, found, strict=True) if item
    )
    return one, other


def _around(stretch: Stretch, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Find matches of a pattern that hold a stretch, blanks and end punctuation aside."""
    text, value = stretch.text, stretch.value
    start = stretch.start + len(value) - len(value.lstrip())
    end = start + len(value.strip().rstrip(".,;:!?)\"'"))
    left, right = max(0, start - 60), min(len(text), end + 60)
    left = max(left, text.rfind("\n", 0, start) + 1)
    for found in pattern.finditer(text, left, right):
        if found.start() <= start and end <= found.end():
            yield found


def _is_clock(stretch: Stretch) -> bool:
    value = stretch.value.strip().rstrip(".,;")
    if not value or _in_clock(stretch):
        return bool(value)
    if re.fullmatch(r"1[5-9]\d{8}(?:\d{3}|\.\d+)?|2[01]\d{8}", value):  # seconds or milliseconds since the epoch
        return not _ABOUT_ID.search(stretch.line)
    if re.fullmatch(r"\d+(?:\.\d+)+", value):  # a version
        return False
    if classify(value) == "clock" or (value.isdigit() and _AGO.match(stretch.rest)):
        return True
    about_time = _ABOUT_TIME.search(stretch.line) is not None and not (
        value.isdigit() and _QUANTITY.match(stretch.rest)
    )
    numeric = re.fullmatch(r"(?:Q[1-4]|[Ww]eek|[Dd]ay|\d[\d:.,/ -]*)(?: ?\d+)?", value) is not None
    named = re.fullmatch(rf"(?:{DAY}|{MONTH})(?:[ ,]+(?:\d+|{_PART_OF_DAY}))*|{_PART_OF_DAY}", value) is not None
    return (about_time and numeric) or (named and (value.lower() != "may" or about_time))


def _are_clocks(stretch: Stretch) -> bool:
    """Whether a stretch is several clocks with brackets and commas between them."""
    parts = _parts(stretch)
    return len(parts) > 1 and all(map(_is_clock, parts))


def _in_clock(core: Stretch) -> bool:
    return any(_around(core, CLOCK)) or any(_around(core, DAY_AND_DATE))


def _are_days(before: Stretch, after: Stretch) -> bool:
    """Whether two words stand beside dates that differ too: the names of days, in whatever language."""
    if not all(re.fullmatch(r"[^\W\d_]+", side.value.strip()) for side in (before, after)):
        return False
    old, new = _date_beside(before), _date_beside(after)
    return bool(old and new) and old != new


def _date_beside(stretch: Stretch) -> str:
    found = _DATE_BEHIND.match(stretch.rest) or _DATE_BEFORE.search(stretch.line)
    return found[1] if found else ""


def _is_id(stretch: Stretch) -> bool:
    value = stretch.value.strip().rstrip(".,;")
    if not value:
        return False
    if _ABOUT_ID.search(stretch.line) and re.fullmatch(r"#?(?=\S*\d)[\w.:/+=-]{5,}", value):
        return True
    if _RANDOM_BY_NAME.search(stretch.line) and re.fullmatch(r"\w{6,}", value):
        return True
    if classify(value) == "id" and not re.fullmatch(r"[A-Z]?[a-z]+\d{1,4}", value):
        return True
    return _in_id(stretch)


def _are_codes(before: str, after: str) -> bool:
    """Whether both are hexadecimal codes of one length, of which one may happen to hold digits only."""
    both = [value.strip().rstrip(".,;") for value in (before, after)]
    codes = len(both[0]) == len(both[1]) and all(re.fullmatch(r"[0-9a-f]{5,}", value) for value in both)
    return codes and any(re.search(r"\d", value) and re.search(r"[a-f]", value) for value in both)


def _in_id(core: Stretch) -> bool:
    return any(_looks_random(found.group()) for found in _around(core, _ID))


def _looks_random(token: str) -> bool:
    """Whether letters and digits are mixed as they are in ids and not in names, versions or dates."""
    if re.fullmatch(_UUID, token) or classify(token) == "id":
        return True
    body = re.sub(r"^[A-Za-z]{2,12}[-_]", "", token)
    if len(body) < 6 or not any(char.isdigit() for char in body) or not any(char.isalpha() for char in body):
        return False
    inner = [(one, two) for one, two in pairwise(body) if one.isalnum() and two.isalnum()]
    switches = sum(one.isdigit() != two.isdigit() for one, two in inner)
    cases = sum(one.islower() and two.isupper() for one, two in inner)
    return switches >= 3 or (switches >= 2 and len(body) >= 10) or (cases >= 3 and len(body) >= 16)


def _is_value(stretch: Stretch) -> bool:
    """Whether every part of a stretch, between brackets and commas, is a value."""
    parts = _parts(stretch)
    return _is_one_value(stretch) or (1 < len(parts) <= 5 and all(_is_one_value(part) for part in parts))


def _parts(stretch: Stretch) -> list[Stretch]:
    found = re.finditer(r"[^(),;/|\[\]]+", stretch.value)
    return [stretch._replace(start=stretch.start + part.start(), end=stretch.start + part.end()) for part in found]


def _is_one_value(stretch: Stretch) -> bool:
    """Whether a stretch is a name, a number, a plan or the like, and not a part of how a sentence is worded."""
    value = stretch.value.strip()
    words: list[str] = _WORD.findall(value)
    if re.search(r"[.!?;]\s+\S|[.!?]$", value) and len(words) > 3:
        return False
    if any(char.isdigit() for char in value) and len(words) <= 6:
        return True
    if (_KEYED.search(stretch.line) and len(words) <= 6) or _is_listed(stretch):
        return True
    if not words or re.search(r"[\w.+-]+@[\w-]+\.\w", value):
        return bool(re.search(r"\w", value))
    capitals = [word[0].isupper() for word in words if word.lower() not in _CONNECTORS]
    opens = not re.search(r"\w[^.!?\n]*$", stretch.line.rstrip(" \t-*#>"))  # at the start of a sentence
    if capitals and all(capitals) and len(words) <= 5 and (len(words) > 1 or not opens):
        return True
    return len(words) <= 2 and _beside_a_kind(stretch)


def _is_listed(stretch: Stretch) -> bool:
    """Whether a stretch stands in a list of short items behind a label, as in `Open files: a.py, b.py`."""
    labelled = _LABELLED.match(stretch.line + stretch.value + stretch.rest)
    if labelled is None or labelled.end() > len(stretch.line):
        return False
    items: list[str] = re.split(r"[,;|]", labelled.string[labelled.end() :])
    return len(items) > 1 and all(len(item.split()) <= 3 for item in items)


def _beside_a_kind(stretch: Stretch) -> bool:
    before = _WORD.findall(stretch.line)
    line_end = stretch.text.find("\n", stretch.end)
    after = _WORD.findall(stretch.text[stretch.end : len(stretch.text) if line_end < 0 else line_end])
    neighbours = [*before[-1:], *after[:1]]
    return any(_KIND_OF_VALUE.fullmatch(word) for word in neighbours)
