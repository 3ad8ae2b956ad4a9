"""From two system texts to the spans that vary, and to the `Slot(...)` line that declares one of them."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from headstay.slots import Every, label

_TOKEN = re.compile(r"\w(?:[\w@:/+#'\u2019.,-]*\w)?|\s+|[^\w\s]")
_PLACEHOLDER = re.compile(r"\[\[\w+\]\]")
_WORD = re.compile(r"[^\W\d_]{2,}")
_MAX_VALUE = 120


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
    return "\n" not in gap and not _WORD.search(gap)


def slot_line(text: str, spans: Sequence[tuple[int, int]], target: int, *, every: Every) -> str:
    """Write the line that declares one varying span.

    Args:
        text: The system text, placeholders included.
        spans: Every varying span of it, in order.
        target: Which of them.
        every: How often it was seen to change.

    Returns:
        Python source: `Slot(r"...", every="...")`, to be pasted into `volatile=[...]`.
    """
    start, end = spans[target]
    holes = sorted([*spans, *(found.span() for found in _PLACEHOLDER.finditer(text))])
    for words in (5, 12, 60):
        left, right = _left(text, holes, start, words), _right(text, holes, end, words)
        if not _WORD.search(left) and not _WORD.search(right):
            right += _below(text, holes, end, words)
        name = label(re.sub(r"\\.|\[\\s\\S\]", " ", left.rpartition(".+?")[2])) or "value"
        body = r"[\s\S]+?" if "\n" in text[start:end].strip("\n") else ".+?"
        pattern = f"{left}(?P<{name}>{body}){right}"
        matches = list(re.finditer(pattern, text, re.MULTILINE))
        if len(matches) == 1 and matches[0].span(1) == (start, end):
            break
    return f"Slot({_raw(pattern)}, every={every!r})".replace("every='", 'every="').replace("')", '")')


def _raw(pattern: str) -> str:
    if '"' not in pattern:
        return f'r"{pattern}"'
    return f"r'{pattern}'" if "'" not in pattern else repr(pattern)


def _escape(literal: str) -> str:
    return re.sub(r"\\([ \-#&~'\"])", r"\1", re.escape(literal)).replace("\\\n", r"\n").replace("\n", r"\n")


def _left(text: str, holes: Sequence[tuple[int, int]], start: int, words: int) -> str:
    line = text.rfind("\n", 0, start) + 1
    previous = max((hole for hole in holes if line <= hole[0] and hole[1] <= start), default=None)
    begin = previous[1] if previous else line
    literal = text[begin:start]
    tail = _last_words(literal, words)
    if len(tail) < len(literal):
        return _escape(tail)
    if previous is not None and not _WORD.search(literal):
        return f"{_left(text, holes, previous[0], words)}.+?{_escape(literal)}"
    if previous is None and not _WORD.search(literal) and line > 0:  # nothing to hold on to but the line before
        above = text.rfind("\n", 0, line - 1) + 1
        above = max([above, *(hole[1] for hole in holes if above <= hole[0] and hole[1] < line)])
        if above < line - 1:
            return f"{_escape(_last_words(text[above : line - 1], words))}\\n{_escape(literal)}"
    return ("^" if previous is None else "") + _escape(literal)


def _right(text: str, holes: Sequence[tuple[int, int]], end: int, words: int) -> str:
    line = text.find("\n", end)
    line = len(text) if line < 0 else line
    following = min((hole for hole in holes if end <= hole[0] and hole[1] <= line), default=None)
    literal = text[end : following[0] if following else line]
    head = _first_words(literal, words)
    if len(head) < len(literal):
        return _escape(head)
    if following is not None:
        return (
            _escape(literal)
            if _WORD.search(literal)
            else f"{_escape(literal)}.+?{_right(text, holes, following[1], words)}"
        )
    return _escape(literal) + "$"


def _below(text: str, holes: Sequence[tuple[int, int]], end: int, words: int) -> str:
    """Return the first words below a value's line, for a value that has none beside or above it."""
    found = re.compile(r"\n+(?=[^\n])").search(text, end)
    if found is None:
        return ""
    line = text.find("\n", found.end())
    stop = min([len(text) if line < 0 else line, *(hole[0] for hole in holes if hole[0] >= found.end())])
    return _escape(found.group() + _first_words(text[found.end() : stop], words))


def _last_words(literal: str, words: int) -> str:
    found = list(re.finditer(r"\S+", literal))
    return literal if len(found) <= words else literal[found[-words].start() :]


def _first_words(literal: str, words: int) -> str:
    found = list(re.finditer(r"\S+", literal))
    return literal if len(found) <= words else literal[: found[words - 1].end()]
