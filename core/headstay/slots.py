"""Slots: the spans of the system text that vary, and how they are found.

A slot is declared (a pattern, a heading, a callable, or the variable of a template) or strictly recognised (a full
timestamp, a UUID). Nothing else is guessed. What a slot finds is cut out of the head, which keeps a constant
placeholder, and is sent behind it: for the conversation in the semi-static block, for the call in the note.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import index
from typing import Literal, NamedTuple, cast

from headstay.errors import ConfigError

Every = Literal["call", "conversation"]
ValueKind = Literal["clock", "id", "number", "text"]

_DATE = r"\d{4}-\d{2}-\d{2}"
_TIME = r"\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
_ZONE = r"(?:Z\b| ?UTC\b| ?GMT\b| ?[+-]\d{2}:?\d{2}\b)?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},? )?"
_LONG_DATE = rf"(?:\d{{1,2}} {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})"

STRICT_CLOCK = re.compile(
    rf"(?<![\w-])(?:{_DATE}(?:[T ]|, | at ){_TIME}{_ZONE}"
    rf"|{_WEEKDAY}{_LONG_DATE}(?:,? at |,? ){_TIME}(?: ?[AP]M\b)?{_ZONE})(?![\w-]|[:.,]\d)"
)
"""A full timestamp: a date together with a time. A date alone is not recognised, only declared."""

STRICT_ID = re.compile(
    r"(?<![\w-])[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?![\w-])"
)
"""A UUID in its usual form."""

_CLOCK_VALUE = re.compile(
    rf"{_WEEKDAY}(?:{_DATE}|{_LONG_DATE}|\d{{1,2}}[./]\d{{1,2}}[./]\d{{2,4}})?(?:[T ]|, | at )*"
    rf"(?:{_TIME}(?: ?[AP]M)?{_ZONE})?\.?",
    re.IGNORECASE,
)
_ID_VALUE = re.compile(r"(?=[^\W_]*\d)(?=[0-9-]*[A-Za-z])[A-Za-z]{0,8}[-_]?[0-9A-Za-z]{8,64}")
_HEX_VALUE = re.compile(r"[A-Za-z]{0,8}[-_:]?(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{6,64}")
_NUMBER_VALUE = re.compile(r"[#$€£]?[\d][\d.,:/ -]*%?")
_SLOT_NAME = re.compile(r"[^\W\d]\w*")
_TRIES = 1_000


class Span(NamedTuple):
    """Where a slot stands in a text, and what it is called."""

    start: int
    end: int
    name: str
    every: Every
    harmless: bool | None = None


Placement = tuple[tuple[int, int, str], ...]
Match = str | re.Pattern[str] | Callable[[str], Iterable[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class Slot:
    r"""A declared span of the system text that varies.

    Args:
        match: A regular expression (text or compiled; `^` and `$` match at lines): the group named in it, else its
            first group, else the whole match is the slot. Or a Markdown heading such as `"## Customer"`: the slot is
            what stands under it. Or `"{variable}"`: that variable of `template=`. Or a callable that takes the text
            and returns `(start, end)` offsets.
        every: "call" when the value may change with each call, "conversation" when it holds for a conversation.
        harmless: Whether a per-call value may stand in user text where a model takes no system message in place.
            None: clocks and ids are, anything else is not.
        affects_answer: Whether another value can make another answer. With False the value does not count for the
            semantic cache; say so of a clock that no answer depends on.

    Raises:
        ConfigError: The pattern does not compile, or `every` is neither word.

    Examples:
        >>> Slot(r"^Today is (?P<today>.+?)\\.$", every="call").every
        'call'
    """

    match: Match
    every: Every = "call"
    harmless: bool | None = None
    affects_answer: bool = True

    def __init__(
        self, match: Match, *, every: Every = "call", harmless: bool | None = None, affects_answer: bool = True
    ) -> None:
        if every not in ("call", "conversation"):
            raise ConfigError(f'Slot(every={every!r}): say "call" or "conversation"')
        if isinstance(match, str) and not _is_reference(match) and not match.startswith("#"):
            try:
                match = re.compile(match, re.MULTILINE)
            except re.error as problem:
                raise ConfigError(f"Slot({match!r}): not a regular expression: {problem}") from problem
        elif not isinstance(match, (str, re.Pattern)) and not callable(match):
            raise ConfigError(f"Slot({match!r}): give a pattern, a heading, a template variable or a callable")
        object.__setattr__(self, "match", match)
        object.__setattr__(self, "every", every)
        object.__setattr__(self, "harmless", harmless)
        object.__setattr__(self, "affects_answer", affects_answer)

    def __repr__(self) -> str:
        """Show the line that makes this slot."""
        if isinstance(self.match, (str, re.Pattern)):
            shown = repr(self.match if isinstance(self.match, str) else self.match.pattern)
        else:  # by name: an address would be another one in each process
            shown = str(getattr(self.match, "__qualname__", type(self.match).__qualname__))
        extra = "" if self.harmless is None else f", harmless={self.harmless}"
        extra += "" if self.affects_answer else ", affects_answer=False"
        return f"Slot({shown}, every={self.every!r}{extra})"

    @property
    def variable(self) -> str | None:
        """The template variable this slot speaks of, or None."""
        return self.match[1:-1] if isinstance(self.match, str) and _is_reference(self.match) else None

    @property
    def called(self) -> str:
        """The name of its values: the group's, the heading's, the variable's, or "value"."""
        if isinstance(self.match, re.Pattern):
            return next(iter(self.match.groupindex), "value")
        return self.variable or (label(self.match) if isinstance(self.match, str) else "value")

    def spans(self, text: str) -> list[Span]:
        """Find this slot in a text.

        Args:
            text: One system block.

        Returns:
            The spans in order. An empty one is a value too, where something was found around it.

        Raises:
            ConfigError: The callable raised, or gave no pairs of offsets; the message names the slot.
        """
        if self.variable is not None:
            return []
        if isinstance(self.match, str):
            found = _under_heading(self.match, text)
        elif isinstance(self.match, re.Pattern):
            found = _pattern_spans(self.match, text)
        else:
            found = self._called(self.match, text)
        return [
            Span(start, end, name, self.every, self.harmless)
            for start, end, name in found
            if 0 <= start <= end <= len(text)
        ]

    def _called(self, match: Callable[[str], Iterable[tuple[int, int]]], text: str) -> list[tuple[int, int, str]]:
        try:
            return [(index(start), index(end), "value") for start, end in match(text)]
        except Exception as problem:  # what it says may quote the text, so it stays with the cause
            raise ConfigError(f"{self!r} raised {type(problem).__name__}; it must give (start, end) pairs") from problem


def read_slots(volatile: object) -> tuple[Slot, ...]:
    """Return the slots that a host was given as `volatile=`.

    Args:
        volatile: "strict", None, a `Slot` or a list of them.

    Raises:
        ConfigError: It is none of these.
    """
    if volatile is None or volatile == "strict":
        return ()
    slots = [volatile] if isinstance(volatile, Slot) else volatile
    if isinstance(slots, (list, tuple)) and all(isinstance(slot, Slot) for slot in cast("list[object]", slots)):
        return tuple(cast("list[Slot]", slots))
    raise ConfigError(f'volatile={volatile!r}: say "strict", None, or a list of Slot(...)')


def _is_reference(match: str) -> bool:
    return match.startswith("{") and match.endswith("}") and bool(_SLOT_NAME.fullmatch(match[1:-1]))


def _pattern_spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int, str]]:
    group = next(iter(pattern.groupindex), None)
    number = pattern.groupindex[group] if group else min(pattern.groups, 1)
    return [(*found.span(number), group or "value") for found in pattern.finditer(text) if found.group()]


def _under_heading(heading: str, text: str) -> list[tuple[int, int, str]]:
    level = len(heading) - len(heading.lstrip("#"))
    found = re.search(rf"^{re.escape(heading.strip())}[ \t]*$\n?", text, re.MULTILINE)
    if found is None:
        return []
    following = re.compile(rf"^#{{1,{level}}} ", re.MULTILINE).search(text, found.end())
    end = len(text)
    if following:  # the last line break belongs to the heading behind it, so that an empty section leaves the same head
        end = following.start() - text.endswith("\n", found.end(), following.start())
    return [(found.end(), end, label(heading) or "value")]


@dataclass(frozen=True, slots=True)
class Template:
    """A system text with named variables: literal, variable, literal, ..., variable, literal.

    Attributes:
        literals: The constant texts, one more than there are variables; some may be empty.
        variables: The names of the variables, in order; a name may come again.
    """

    literals: tuple[str, ...]
    variables: tuple[str, ...]

    def spans(self, text: str, overrides: Sequence[Slot] = ()) -> list[Span] | int:
        """Find the variables in a text made from this template.

        Values may be of any length and hold line breaks. Where a value holds a literal too, the first placement
        counts in which each variable has one value; the head is the same for any of them.

        Args:
            text: One system block.
            overrides: Slots that name a variable of this template and say how often it changes.

        Returns:
            The spans, empty values included; or, where the text is not of this template, the offset up to which it
            fits.
        """
        found = self._first(text)
        if isinstance(found, int):
            return found
        if len(set(self.variables)) < len(self.variables):
            found = self._consistent(text, iter(range(_TRIES))) or found
        declared = {slot.variable: slot for slot in overrides if slot.variable}
        return [_template_span(start, end, name, declared, text) for start, end, name in found]

    def missing(self, text: str) -> tuple[int, str]:
        """Return how far a text fits that is not of this template, and the literal that is missing there."""
        if not text.startswith(self.literals[0]):
            return 0, self.literals[0]
        at = len(self.literals[0])
        for literal in self.literals[1:-1]:
            end = text.find(literal, at)
            if end < 0:
                return at, literal
            at = end + len(literal)
        return at, self.literals[-1]

    def _first(self, text: str) -> Placement | int:
        """Seek each literal at its first place after the one before: where any placement fits, this one does."""
        if not text.startswith(self.literals[0]):
            return 0
        position = len(self.literals[0])
        found: Placement = ()
        for name, literal in zip(self.variables, self.literals[1:], strict=True):
            if len(found) == len(self.variables) - 1:
                end = len(text) - len(literal) if text.endswith(literal) else -1
            else:
                end = text.find(literal, position)
            if end < position:
                return position
            found = (*found, (position, end, name))
            position = end + len(literal)
        return found if position == len(text) else position

    def _consistent(self, text: str, tries: Iterator[int], found: Placement = ()) -> Placement | None:
        """Find a placement that gives a variable the same value wherever it stands: values may hold literals."""
        index = len(found)
        position = found[-1][1] + len(self.literals[index]) if found else len(self.literals[0])
        if index == len(self.variables):
            return found if position == len(text) else None
        name, literal = self.variables[index], self.literals[index + 1]
        earlier = next((text[start:end] for start, end, called in found if called == name), None)
        ends: Iterable[int] = _occurrences(text, literal, position)
        if earlier is not None:
            ends = [position + len(earlier)] if text.startswith(earlier + literal, position) else []
        for end in ends:
            if next(tries, None) is None:
                return None
            placed = self._consistent(text, tries, (*found, (position, end, name)))
            if placed is not None:
                return placed
        return None


def _occurrences(text: str, literal: str, start: int) -> Iterator[int]:
    while (start := text.find(literal, start)) >= 0:
        yield start
        start += 1


def _template_span(start: int, end: int, name: str, declared: Mapping[str, Slot], text: str) -> Span:
    slot = declared.get(name)
    if slot is not None:
        return Span(start, end, name, slot.every, slot.harmless)
    value = text[start:end]
    per_call = STRICT_CLOCK.fullmatch(value) or STRICT_ID.fullmatch(value)
    return Span(start, end, name, "call" if per_call else "conversation")


def strict_spans(text: str) -> tuple[Span, ...]:
    """Find full timestamps and UUIDs: per-call slots unless switched off."""
    return _remembered(text) if len(text) <= _REMEMBERED else _strict_spans(text)


def _strict_spans(text: str) -> tuple[Span, ...]:
    clocks = [Span(*found.span(), "clock", "call") for found in STRICT_CLOCK.finditer(text)]
    ids = [Span(*found.span(), "id", "call") for found in STRICT_ID.finditer(text)]
    return (*clocks, *ids)


# A text without either comes again with every call. The cache holds the texts: 64 of at most 65,536 characters.
_REMEMBERED = 65_536
_remembered = lru_cache(maxsize=64)(_strict_spans)


def merge(spans: Iterable[Span]) -> list[Span]:
    """Order spans and resolve overlaps: the wider one stands; on equal spans "call" wins over "conversation"."""
    ordered = sorted(spans, key=lambda span: (span.start, span.start < span.end, -span.end, span.every != "call"))
    kept: list[Span] = []
    for span in ordered:
        if kept and span.start < kept[-1].end:
            if span.end > kept[-1].end:  # a partial overlap: one slot over both, as volatile as either
                every: Every = "call" if "call" in (span.every, kept[-1].every) else "conversation"
                kept[-1] = kept[-1]._replace(end=span.end, every=every, harmless=None)
        else:
            kept.append(span)
    return kept


def classify(value: str) -> ValueKind:
    """Say what a value looks like: a clock, an id, a number, or other text."""
    text = value.strip()
    if STRICT_CLOCK.fullmatch(text) or (any(char.isdigit() for char in text) and _CLOCK_VALUE.fullmatch(text)):
        return "clock"
    if STRICT_ID.fullmatch(text) or _HEX_VALUE.fullmatch(text):
        return "id"
    if _NUMBER_VALUE.fullmatch(text):
        return "number"
    if _ID_VALUE.fullmatch(text):
        return "id"
    return "text"


def label(text: str) -> str:
    """Make an identifier out of the last words of a text; empty where there are none."""
    words = cast("list[str]", re.findall(r"[^\W\d_]+", text))
    return "_".join(word.lower() for word in words[-2:])
