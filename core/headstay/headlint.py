"""Texts of a head, read once: what in them will be another in the next process, call or day.

`diff` and `lint` compare what was sent. This reads a head before anything is sent, so it names only what tells by its
form that it will not stay: a date, a random id, the address of an object.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, cast

from headstay.causes import Cause
from headstay.comparison.clocks import DAY, MONTH
from headstay.errors import ConfigError
from headstay.excerpt import excerpt
from headstay.remedy import slot_line
from headstay.slots import STRICT_ID
from headstay.values import Declared, extract

Kind = Literal[
    "address",
    "timestamp",
    "date",
    "id",
    "temporary_path",
    "duplicate_tool_name",
    "unordered_tools",
    "tools_by_query",
    "tool_choice_once",
    "retrieval_first",
]
Place = Literal["system", "tool", "message"]
Known = str | re.Pattern[str]

_TIME = (
    r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?: ?[AaPp]\.?[Mm]\b\.?)?"
    r"(?: ?(?:Z|UTC|GMT|CES?T|E[SD]T|P[SD]T)\b| ?[+-]\d{2}:?\d{2}\b)?"
)
# With day and year, so that opening hours, weekdays and the month of a model's knowledge are no findings.
_DATES = (
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}",
    r"\d{1,2}[./-]\d{1,2}[./-]\d{4}",
    rf"(?:{DAY},? )?{MONTH}\.? \d{{1,2}}(?:[a-z]{{2}})?,? \d{{4}}",
    rf"(?:{DAY},? )?\d{{1,2}}(?:[a-z]{{2}}|º)?\.?(?: of| de)? {MONTH}\.?,?(?: de| del)? \d{{4}}",
)
_EAST_ASIAN_DATE = r"(?<!\d)\d{4} ?[年년] ?\d{1,2} ?[月월] ?\d{1,2} ?[日일]"
_AT = r"(?:T|,? at |,? um |,? à |,? a las |,? )"
_RUN = r"(?:request|session|trace|run|correlation|invocation|execution|conversation|thread|nonce|salt|build)"
_PART = r"[^\s'\"(),;/]"
# As the standard library and others name temporary files; a fixed name, such as /tmp/plot.png, stays.
_TEMPORARY = rf"/(?:tmp|var/tmp)/(?:{_PART}+/)*(?:tmp[a-z0-9_]{{8}}(?!\w)|{_PART}*\d{{4}}|(?=[a-f]*\d)[0-9a-f]{{8}})"
_PATTERNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("address", re.compile(r"<[^<>\n]{0,40}(?:<[^<>\n]{1,20}>)?[^<>\n]{0,80} at 0x[0-9a-fA-F]{5,16}>")),
    ("address", re.compile(r"\bat 0x[0-9a-fA-F]{5,16}\b|\b0x[0-9a-f]{9,16}\b")),
    ("timestamp", re.compile(rf"(?<![\w.-])(?:{'|'.join(_DATES)}){_AT}{_TIME}(?!\w|[.:]\d)")),
    ("timestamp", re.compile(r"\bdatetime\.(?:datetime|date|time)\(\d+(?:, ?\d+)+[^()]{0,60}(?:\([^()]{0,40}\))?\)")),
    ("timestamp", re.compile(r"(?<![\w.])1[5-9]\d{8}\.\d{1,9}(?!\w)|(?<![\w-])\d{8}T\d{6}Z?(?!\w)")),
    (
        "timestamp",
        re.compile(r"(?i:\b(?:timestamp|epoch|unix time|now|time)\W{1,4})(?P<found>1[5-9]\d{8}(?:\d{3})?)\b"),
    ),
    ("date", re.compile(rf"(?<![\w.-])(?:{'|'.join(_DATES)})(?!\w|[.:-]\d)|{_EAST_ASIAN_DATE}")),
    ("id", STRICT_ID),
    (
        "id",
        re.compile(
            rf"(?i:\b{_RUN}(?:[-_ ]?(?:id|token|key)\W{{1,4}}|(?:[-_ ]?(?:no\.?|number))? ?[:=#] ?))"
            r"(?P<found>(?=[\w-]*\d)[0-9A-Za-z][\w-]{4,})"
        ),
    ),
    ("id", re.compile(rf"(?i:\b{_RUN} )(?P<found>(?P<random>[0-9A-Za-z]{{5,}}))(?![\w-])")),
    ("id", re.compile(r"(?<![\w./-])(?:[A-Za-z]{2,12}[-_])?(?P<random>[0-9A-Za-z]{12,64})(?![\w/-])")),
    ("temporary_path", re.compile(rf"(?<![\w.])(?:{_TEMPORARY}|/var/folders/){_PART}*(?:/{_PART}*)*")),
)
_CAUSES: dict[Kind, Cause] = {
    "address": Cause.RANDOM_ID_IN_HEAD,
    "timestamp": Cause.CLOCK_IN_HEAD,
    "date": Cause.CLOCK_IN_HEAD,
    "id": Cause.RANDOM_ID_IN_HEAD,
    "temporary_path": Cause.VALUE_IN_HEAD,
    "unordered_tools": Cause.TOOL_ORDER,
    "tools_by_query": Cause.TOOL_ADDED,
    "tool_choice_once": Cause.TOOL_CHOICE_CHANGED,
    "retrieval_first": Cause.RETRIEVAL_IN_HEAD,
}
_ADDRESS_REMEDY = "an object prints another address in each process: give it a __repr__, or write the text by hand"
_TOOL_REMEDY = (
    "keep it out of the tool's name, description and defaults; the tool can return it, or the question hold it"
)
_MESSAGE_REMEDY = "keep it out of what stands before the conversation, unless it never changes"


class HeadText(NamedTuple):
    """One text of a head.

    Attributes:
        path: Where it stands, as the application names it.
        text: The text.
        place: What it is: instructions, a part of a tool, or a message such as an example.
        declared: What is cut out of it before it is sent, or None where all of it is sent.
    """

    path: str
    text: str
    place: Place = "system"
    declared: Declared | None = None


@dataclass(frozen=True, slots=True)
class HeadFinding:
    """Something in a head that will not stay.

    Attributes:
        kind: What it is.
        path: Where it stands.
        text: What was found, at most 80 characters, secrets hidden.
        remedy: What to do; for a varying part of the instructions the `Slot(...)` line to paste.
        at: Offset in characters in the text at `path`.
    """

    kind: Kind
    path: str
    text: str
    remedy: str
    at: int = 0

    @property
    def cause(self) -> Cause | None:
        """The cause that `diff` and the ledger will name; None where the provider refuses the request instead."""
        return _CAUSES.get(self.kind)

    def __str__(self) -> str:
        """One line for a log or a failed assertion."""
        cause = f" ({self.cause})" if self.cause else ""
        return f"{self.path}: {self.kind}{cause}: {self.text!r}. What to do: {self.remedy}"


def check_known(known: object) -> tuple[Known, ...]:
    """Return what is known to stay, as a tuple.

    Raises:
        ConfigError: It is no list of texts and patterns.
    """
    if not isinstance(known, Iterable) or isinstance(known, (str, bytes)):
        raise ConfigError(f"ignore={known!r}: give a list of texts and compiled patterns, such as ['2024-01-01']")
    items = tuple(cast("Iterable[object]", known))
    for item in items:
        if not isinstance(item, (str, re.Pattern)):
            raise ConfigError(f"ignore=: {type(item).__name__} is neither a text nor a compiled pattern")
    return cast("tuple[Known, ...]", items)


def lint_texts(texts: Iterable[HeadText], *, ignore: Sequence[Known] = ()) -> tuple[HeadFinding, ...]:
    """Name what will not stay in the texts of a head.

    Args:
        texts: The texts, in the order in which they are sent.
        ignore: What is known to stay although it looks otherwise: texts that a finding equals, and patterns that are
            searched in it.

    Returns:
        The findings in the order of the texts; none means that nothing tells by its form that it will change.
    """
    return tuple(finding for item in texts for finding in _findings(item, ignore))


def _findings(item: HeadText, ignore: Sequence[Known]) -> Iterator[HeadFinding]:
    cut = _cut(item)
    found: list[tuple[int, int, Kind]] = [
        (start, end, kind)
        for start, end, kind in _spans(item.text)
        if not _is_known(item.text[start:end], ignore) and not any(at <= start and end <= to for at, to in cut)
    ]
    spans = [(start, end) for start, end, _ in found]
    for index, (start, end, kind) in enumerate(found):
        remedy = _remedy(item, kind, spans, index)
        yield HeadFinding(kind, item.path, excerpt(item.text, start, end), remedy, start)


def _cut(item: HeadText) -> list[tuple[int, int]]:
    """Find what does not reach the provider as a part of the head."""
    if item.declared is None:
        return []
    values = extract((item.text,), item.declared).values
    return [(value.start, value.start + len(value.text)) for value in values]


def _remedy(item: HeadText, kind: Kind, spans: Sequence[tuple[int, int]], index: int) -> str:
    if kind == "address":
        return _ADDRESS_REMEDY
    if item.place == "tool":
        return _TOOL_REMEDY
    if item.place == "message":
        return _MESSAGE_REMEDY
    line = slot_line(item.text, spans, index, every="call")
    return f"if it changes, declare it: volatile=[{line}]" if line.startswith("Slot(") else line


def _is_known(text: str, ignore: Sequence[Known]) -> bool:
    return any(text == known if isinstance(known, str) else known.search(text) is not None for known in ignore)


def _spans(text: str) -> list[tuple[int, int, Kind]]:
    """Find everything by pattern; of two that overlap, the one whose pattern stands first."""
    taken: list[tuple[int, int, Kind]] = []
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            if "random" in pattern.groupindex and not _looks_random(match["random"]):
                continue
            start, end = match.span("found" if "found" in pattern.groupindex else 0)
            if all(end <= other[0] or other[1] <= start for other in taken):
                taken.append((start, end, kind))
    return sorted(taken)


def _looks_random(token: str) -> bool:
    """Whether letters and digits alternate as they do in ids and not in names or versions."""
    switches = sum(one.isdigit() != two.isdigit() for one, two in pairwise(token))
    return switches >= 4
