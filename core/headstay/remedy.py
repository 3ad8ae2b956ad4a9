"""From two system texts to the spans that vary, and to the `Slot(...)` line that declares one of them.

The line quotes a few words from beside the value and no more: it is kept in logs and in the ledger.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from headstay.causes import value_cause
from headstay.excerpt import hidden, secret_spans
from headstay.remedies import REMEDIES
from headstay.slots import Every, label

# Where a script has no blanks, a token ends with its kind of letters: Chinese characters, Hiragana, Katakana.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\u3005"
_SPACED = rf"[^\W{_UNSPACED}]"
_TOKEN = re.compile(
    rf"[\u3400-\u9fff\u3005]+|[\u3040-\u309f]+|[\u30a0-\u30ff]+"
    rf"|{_SPACED}(?:(?:{_SPACED}|[@:/+#'\u2019.,-])*{_SPACED})?|\s+|[^\w\s]"
)
_PLACEHOLDER = re.compile(r"\[\[\w+\]\]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_NO_FILLING = re.compile(r"[\n\u3001\u3002\uff0c\uff1b]|[^\W\d_]{2}")
_QUOTED = re.compile(r"[^\s\u3001\u3002\uff0c\uff1b]+[\u3001\u3002\uff0c\uff1b]*|[\u3001\u3002\uff0c\uff1b]+")
_INSIDE = re.compile(r"\w[^.!?\n]*$")
_SPECIAL = frozenset(".^$*+?{}[]\\|()")
_MAX_VALUE = 120
_WINDOW = 300
_CROSSED = 2


class Variation(NamedTuple):
    """A stretch that differs between two texts, as offsets into each."""

    before_start: int
    before_end: int
    start: int
    end: int


def variations(before: str, after: str) -> list[Variation]:
    """Find what differs between two texts, in whole words.

    Args:
        before: The earlier text.
        after: The later text.

    Returns:
        The differing stretches in order; neighbours with only blanks or punctuation between them are one.
    """
    old_lines, new_lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    found: list[Variation] = []
    old_at = _offsets(old_lines)
    new_at = _offsets(new_lines)
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old_lines, new_lines, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        pairs = [(i1, i2, j1, j2)]
        if i2 - i1 == j2 - j1:  # line by line, lest a value be found again on another line
            pairs = [(i1 + n, i1 + n + 1, j1 + n, j1 + n + 1) for n in range(i2 - i1)]
        for a1, a2, b1, b2 in pairs:
            words = _words(before[old_at[a1] : old_at[a2]], after[new_at[b1] : new_at[b2]])
            found += [_moved(item, old_at[a1], new_at[b1]) for item in words]
    return _joined(found, before, after)


def _moved(item: Variation, before: int, after: int) -> Variation:
    return Variation(item.before_start + before, item.before_end + before, item.start + after, item.end + after)


def _offsets(pieces: Sequence[str]) -> list[int]:
    offsets = [0]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return offsets


def _words(old: str, new: str) -> list[Variation]:
    old_tokens, new_tokens = _TOKEN.findall(old), _TOKEN.findall(new)
    old_at, new_at = _offsets(old_tokens), _offsets(new_tokens)
    matcher = SequenceMatcher(None, old_tokens, new_tokens, autojunk=False)
    return [
        Variation(old_at[i1], old_at[i2], new_at[j1], new_at[j2])
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]


def _joined(found: Sequence[Variation], before: str, after: str) -> list[Variation]:
    joined: list[Variation] = []
    for item in found:
        last = joined[-1] if joined else None
        gap = after[last.end : item.start] if last else ""
        same_gap = last is not None and before[last.before_end : item.before_start] == gap
        if last is not None and same_gap and _fillable(gap):
            joined[-1] = Variation(last.before_start, item.before_end, last.start, item.end)
        else:
            joined.append(item)
    return joined


def is_value(text: str) -> bool:
    """Whether a varying stretch is short enough to be a value rather than a passage."""
    return bool(text.strip()) and len(text) <= _MAX_VALUE and "\n" not in text.strip("\n")


def union(spans: Sequence[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """Join spans that overlap or have only blanks or punctuation between them."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and (start <= joined[-1][1] or _fillable(text[joined[-1][1] : start])):
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _fillable(gap: str) -> bool:
    return not _NO_FILLING.search(gap)


class Cut(NamedTuple):
    """A text, and the span of it that a slot has to cut out."""

    text: str
    start: int
    end: int


class _Reach(NamedTuple):
    """How much a pattern may quote on each side of a value.

    Attributes:
        words: Words at most.
        chars: Characters at most.
        shy: Whether it keeps clear of what may be another value: of digits, and of names beyond the next word.
        far: Whether it goes on over other values and over the end of the line.
    """

    words: int
    chars: int
    shy: bool
    far: bool = False

    def to_line_start(self) -> "_Reach":
        """Return how much may be quoted where that is all that stands before a value on its line."""
        return self._replace(words=max(4, self.words), chars=24)

    def without(self, quoted: str) -> "_Reach":
        """Return what is left once something was quoted."""
        words = len(_few(list(_QUOTED.finditer(quoted)), self.words + 1))
        return self._replace(words=max(0, self.words - words), chars=max(0, self.chars - len(quoted)))


_REACHES = (
    *(_Reach(words, chars, shy) for words, chars in ((2, 18), (4, 22), (6, 24)) for shy in (True, False)),
    _Reach(6, 24, shy=False, far=True),
)


def slot_line(text: str, spans: Sequence[tuple[int, int]], target: int, *, every: Every) -> str:
    """Write the line that declares one varying span.

    Args:
        text: The system text, placeholders included.
        spans: Every varying span of it, in order.
        target: Which of them.
        every: How often it was seen to change.

    Returns:
        Python source: `Slot(r"...", every="...")`, to be pasted into `volatile=[...]`; where a few words do not tell
        the span from the rest of the text, what to do in general.
    """
    start, end = spans[target]
    pattern = open_pattern(text, spans, target)
    return slot_source(pattern, every=every) if pattern else REMEDIES[value_cause(text[start:end])]


def open_pattern(text: str, spans: Sequence[tuple[int, int]], target: int, others: Sequence["Cut"] = ()) -> str:
    """Find a pattern that cuts out a varying span and quotes no secret; empty where there is none.

    Args:
        text: The text.
        spans: Every varying span of it, in order.
        target: Which of them.
        others: More texts, with the span that has to be cut out of each.
    """
    start, end = spans[target]
    secrets = secret_spans(text, start, end)
    if any(left < end and start < right and not (start <= left and right <= end) for left, right in secrets):
        return ""  # a part of a secret: the rest of it would stand beside the value
    pattern = slot_pattern(text, spans, target, others=others, closed=secrets)
    source = slot_source(pattern, every="conversation")
    return pattern if hidden(source) == source else ""


def slot_pattern(
    text: str,
    spans: Sequence[tuple[int, int]],
    target: int,
    *,
    others: Sequence[Cut] = (),
    closed: Sequence[tuple[int, int]] = (),
) -> str:
    """Find a regular expression that cuts out one varying span and nothing else.

    Args:
        text: The system text, placeholders included.
        spans: Every varying span of it, in order.
        target: Which of them.
        others: More texts, with the span that has to be cut out of each.
        closed: Spans that must not be quoted.

    Returns:
        The pattern; what it quotes is at most 24 characters and 6 words on each side. Empty where there is none.
    """
    cut = Cut(text, *spans[target])
    holes = [*spans, *closed, *(found.span() for found in _PLACEHOLDER.finditer(text))]
    hard = [hole for hole in _merged(holes) if hole[1] <= cut.start or hole[0] >= cut.end]
    soft = _merged([*hard, *_digits(cut)])
    tried: set[str] = set()
    for reach in _REACHES:
        pattern = _pattern(cut, soft if reach.shy else hard, reach, others)
        if pattern not in tried and all(_cuts(pattern, one) for one in (cut, *others)):
            return pattern
        tried.add(pattern)
    return ""


def slot_source(pattern: str, *, every: Every) -> str:
    """Write the Python source of a slot: `Slot(r"...", every="...")`; of a heading it is `Slot("## ...", ...)`."""
    if pattern.startswith("#"):
        return f'Slot("{pattern}", every="{every}")'
    if '"' in pattern and "'" in pattern:
        pattern = pattern.replace('"', r"\x22")
    quote = "'" if '"' in pattern else '"'
    return f'Slot(r{quote}{pattern}{quote}, every="{every}")'


def escaped(literal: str) -> str:
    """Write a literal as a part of a regular expression, on one line and in characters that can be seen."""
    return "".join(map(_escaped, literal))


def _escaped(char: str) -> str:
    if char == "\n":
        return r"\n"
    if not char.isprintable():
        code = ord(char)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return f"\\{char}" if char in _SPECIAL else char


def group_name(words: str) -> str:
    """Make the name of a group out of the last words of a text."""
    name = label(words)
    return name if name.isidentifier() and re.fullmatch(r"\w+", name) else "value"


def _cuts(pattern: str, cut: Cut) -> bool:
    found = re.finditer(pattern, cut.text, re.MULTILINE)
    first = next(found, None)
    return first is not None and first.span(1) == (cut.start, cut.end) and next(found, None) is None


def _pattern(cut: Cut, holes: Sequence[tuple[int, int]], reach: _Reach, others: Sequence[Cut]) -> str:
    left, beside = _left(cut.text, holes, cut.start, reach)
    right, rest = _right(cut.text, holes, cut.end, reach)
    if right.endswith("$") and (reach.far or not (_WORD.search(left) or _WORD.search(right))):
        right += _below(cut.text, holes, cut.end, rest)
    values = [one.text[one.start : one.end] for one in (cut, *others)]
    body = r"[\s\S]" if any("\n" in value.strip("\n") for value in values) else "."
    left = f"\\{left}" if left.startswith("#") else left  # a slot takes what begins with # for a heading
    return f"{left}(?P<{group_name(beside)}>{body}{'+' if all(values) else '*'}?){right}"


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _digits(cut: Cut) -> Iterator[tuple[int, int]]:
    """Find the words with digits near a span: such a word may be another value, which happens to be the same so far."""
    for start, end in ((max(0, cut.start - _WINDOW), cut.start), (cut.end, cut.end + _WINDOW)):
        for found in _TOKEN.finditer(cut.text, start, min(end, len(cut.text))):
            if any(map(str.isdigit, found.group())):
                yield found.span()


def _left(text: str, holes: Sequence[tuple[int, int]], start: int, reach: _Reach) -> tuple[str, str]:
    """Return the pattern for what stands before a span, and the words that stand right before it."""
    line = text.rfind("\n", 0, start) + 1
    pattern, beside, at = "", "", start
    for crossed in range(_CROSSED + 1):
        hole = max((hole for hole in holes if line <= hole[0] and hole[1] <= at), default=None)
        literal = text[hole[1] if hole else line : at]
        whole = not hole and not crossed and _begin(literal, reach.to_line_start()) == 0
        kept = literal if whole else literal[_begin(literal, reach) :]
        pattern, reach = escaped(kept) + pattern, reach.without(kept)
        beside = beside if crossed else kept
        if len(kept) < len(literal) or (_WORD.search(literal) and not reach.far):
            return ("^" if len(kept) == len(literal) and not hole else "") + pattern, beside
        if hole is None:  # nothing to hold on to but the line before
            above = _above(text, holes, line, reach) if reach.far or not crossed else ""
            return (above or "^") + pattern, beside
        if crossed < _CROSSED:
            pattern, at = ".+?" + pattern, hole[0]
    return pattern, beside


def _above(text: str, holes: Sequence[tuple[int, int]], line: int, reach: _Reach) -> str:
    """Return the pattern for the last words above a line, its line break included."""
    end = len(text[:line].rstrip("\n"))
    begin = max([text.rfind("\n", 0, end) + 1, *(hole[1] for hole in holes if hole[0] < line and hole[1] <= line)])
    literal, breaks = text[begin:end], text[end:line]
    kept = literal[_begin(literal, reach.without(breaks)) :]
    return escaped(kept + breaks) if kept else ""


def _right(text: str, holes: Sequence[tuple[int, int]], end: int, reach: _Reach) -> tuple[str, _Reach]:
    """Return the pattern for what stands behind a span, and how much more may be quoted."""
    line = text.find("\n", end)
    line = len(text) if line < 0 else line
    pattern, at = "", end
    for crossed in range(_CROSSED + 1):
        hole = min((hole for hole in holes if at <= hole[0] and hole[1] <= line), default=None)
        literal = text[at : hole[0] if hole else line]
        kept = literal[: _stop(literal, reach)]
        pattern, reach = pattern + escaped(kept), reach.without(kept)
        if len(kept) < len(literal) or hole is None or (_WORD.search(literal) and not reach.far):
            return pattern + ("$" if len(kept) == len(literal) and not hole else ""), reach
        if crossed < _CROSSED:
            pattern, at = pattern + ".+?", hole[1]
    return pattern, reach


def _below(text: str, holes: Sequence[tuple[int, int]], end: int, reach: _Reach) -> str:
    """Return the pattern for the first words below a value's line."""
    found = re.compile(r"\n+(?=[^\n])").search(text, end)
    if found is None or text.find("\n", end) != found.start():
        return ""
    line = text.find("\n", found.end())
    stop = min([len(text) if line < 0 else line, *(hole[0] for hole in holes if hole[0] >= found.end())])
    literal = text[found.end() : stop]
    kept = literal[: _stop(literal, reach.without(found.group()))]
    return escaped(found.group() + kept) if kept else ""


def _begin(literal: str, reach: _Reach) -> int:
    """Return where the last words of a literal begin that may be quoted."""
    first = max(0, len(literal) - _WINDOW)
    words = list(_QUOTED.finditer(literal, first))
    kept = _few(words[::-1], reach.words)[::-1]
    while reach.shy and len(kept) > 1 and any(_may_be_name(word, literal) for word in kept[:-1]):
        kept = kept[1:]
    starts = [word.start() for word in kept]
    begin = first if len(kept) == len(words) else min(starts, default=len(literal))
    least = len(literal) - reach.chars
    return begin if begin >= least else min((start for start in starts if start >= least), default=least)


def _stop(literal: str, reach: _Reach) -> int:
    """Return where the first words of a literal end that may be quoted."""
    words = list(_QUOTED.finditer(literal, 0, _WINDOW))
    kept = _few(words, reach.words)
    if reach.shy:
        nearest = next((n for n, word in enumerate(kept) if _WORD.search(word.group())), len(kept))
        named = (n for n, word in enumerate(kept) if n > nearest and _may_be_name(word, literal))
        kept = kept[: next(named, len(kept))]
    ends = [word.end() for word in kept]
    stop = min(len(literal), _WINDOW) if len(kept) == len(words) else max(ends, default=0)
    return stop if stop <= reach.chars else max((end for end in ends if end <= reach.chars), default=reach.chars)


def _few(words: Sequence[re.Match[str]], count: int) -> list[re.Match[str]]:
    """Return the first words, and the punctuation between them, which does not count."""
    few: list[re.Match[str]] = []
    for word in words:
        count -= re.search(r"\w", word.group()) is not None
        if count < 0:
            break
        few.append(word)
    return few


def _may_be_name(word: re.Match[str], literal: str) -> bool:
    """Whether a word has a capital that is not that of a sentence."""
    letters = word.group().lstrip("\"'([{<*_`")
    return letters[:1].isupper() and _INSIDE.search(literal, max(0, word.start() - _WINDOW), word.start()) is not None
