"""What a question says that an embedder blurs: numbers, dates, codes, currencies, negations, names, and their order."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import NamedTuple

from headstay.semantic.veto_words import (
    AUXILIARIES,
    COUNTED_UNITS,
    CURRENCIES,
    DOUBTS,
    FUNCTION_WORDS,
    LEADS_OF_TIME,
    LOOSE_NUMBERS,
    MEASURES,
    MOMENTS,
    NUMBER_WORDS,
    PERIODS,
    QUESTIONS,
    SCALES,
    TIMED,
    UNDER_NEGATION,
    WEEKDAYS,
)
from headstay.semantic.wording import Word, is_negation, is_whole, split_words, stem

_QUOTED = re.compile(
    r"\"([^\"\n]+)\"|\u201c([^\u201d\n]+)\u201d|«([^»\n]+)»|(?<![\w'\u2019])['\u2018]([^'\u2019\n]+(?:['\u2019]\w[^'\u2019\n]*)*)['\u2019](?!\w)"
)


class Number(NamedTuple):
    """A number in its plain form; a loose one is a word ("two", "first") and counts only against another number."""

    value: str
    loose: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A question taken apart; every part keeps the order of the text."""

    text: str
    words: tuple[Word, ...]
    numbers: tuple[Number, ...]
    dates: tuple[str, ...]
    operators: tuple[str, ...]
    codes: tuple[str, ...]
    currencies: tuple[str, ...]
    measures: tuple[str, ...]
    periods: tuple[str, ...]
    quotes: tuple[str, ...]
    negations: tuple[str, ...]
    denied: frozenset[str]
    moments: tuple[str, ...]
    asks: frozenset[str]
    names: tuple[str, ...]
    content: tuple[str, ...]


def read(text: str) -> Reading:
    """Take a question apart.

    Args:
        text: The question.
    """
    text = unicodedata.normalize("NFC", text)
    words = split_words(text)
    negations, denied = _negations(words)
    return Reading(
        text=text,
        words=words,
        numbers=_numbers(words),
        dates=tuple(word.low for word in words if word.kind == "date"),
        operators=tuple(word.raw for word in words if word.kind == "operator"),
        codes=tuple(word.raw.replace("-", "") for word in words if word.kind == "code"),
        currencies=_currencies(words),
        measures=_units(words, MEASURES),
        periods=_units(words, PERIODS),
        quotes=tuple(" ".join("".join(group or "" for group in found).split()) for found in _QUOTED.findall(text)),
        negations=negations,
        denied=denied,
        moments=_moments(words),
        asks=frozenset(
            word.low for word, after in pairwise(words) if word.low in QUESTIONS and after.low in AUXILIARIES
        ),
        names=_names(words),
        content=tuple(word.stem for word in words if word.kind not in {"sign", "operator"} and not _is_function(word)),
    )


def _is_function(word: Word) -> bool:
    return word.low in FUNCTION_WORDS or is_negation(word)


def _numbers(words: tuple[Word, ...]) -> tuple[Number, ...]:
    found: list[Number] = []
    at = 0
    while at < len(words):
        word = words[at]
        if word.kind == "number" or (word.kind == "word" and (word.low in NUMBER_WORDS or word.low in SCALES)):
            value, after = _spelled(words, at)
            found.append(Number(value, loose=all(one.kind == "word" for one in words[at:after])))
            at = after
            continue
        if word.low in LOOSE_NUMBERS:
            found.append(Number(str(LOOSE_NUMBERS[word.low]), loose=True))
        at += 1
    return tuple(found)


def _spelled(words: tuple[Word, ...], at: int) -> tuple[str, int]:
    """Read one number from here on: `1234`, `two hundred and five`, `3 million`; return it and where it ends."""
    first = words[at]
    if first.kind == "number" and not is_whole(first.low):
        return first.low, at + 1
    total, part, start, tens = 0, 0, at, True
    while at < len(words):
        low = words[at].low
        if low == "and" and at > start and at + 1 < len(words) and words[at - 1].low in SCALES:
            at += 1
            continue
        small = int(low) if words[at].kind == "number" and at == start else NUMBER_WORDS.get(low)
        if low in SCALES and words[at].kind == "word":
            part = max(part, 1) * SCALES[low]
            if SCALES[low] > 100:
                total, part = total + part, 0
            tens = True
        elif small is not None and (at == start or (tens and small < 100)):
            part += small
            tens = 20 <= small < 100 and small % 10 == 0
        else:
            break
        at += 1
    return str(total + part), at


def _currencies(words: tuple[Word, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for word in words:
        code = CURRENCIES.get(word.low) or CURRENCIES.get(word.low.removesuffix("s")) or CURRENCIES.get(word.suffix)
        if code and found[-1:] != [code]:
            found.append(code)
    return tuple(found)


def _units(words: tuple[Word, ...], table: Mapping[str, str]) -> tuple[str, ...]:
    found: list[str] = []
    for before, word in zip((None, *words), words, strict=False):
        name = word.suffix if word.kind == "number" else word.low
        counted = word.kind == "number" or (before is not None and before.kind == "number" and not before.suffix)
        unit = table.get(name) or table.get(name.removesuffix("s") if len(name) > 3 else name)
        if unit and (counted or name not in COUNTED_UNITS) and found[-1:] != [unit]:
            found.append(unit)
    return tuple(found)


def _negations(words: tuple[Word, ...]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the stem of the word that each negation denies, and of all words that one may deny.

    In `isn't my card working` what is denied stands last; otherwise it is the next word that says something.
    """
    heads: list[str] = []
    reach: set[str] = set()
    for at, word in enumerate(words):
        if not is_negation(word) or (at and words[at - 1].low == "or"):
            continue
        clause = list(takewhile(lambda after: not after.starts, words[at + 1 :]))
        said = [after for after in clause if after.low not in UNDER_NEGATION]
        if not said or said[0].low in DOUBTS:
            continue
        turned = word.low.endswith("n't") and clause[0].low in _SUBJECTS
        heads.append(said[-1 if turned else 0].stem)
        reach.update(after.stem for after in (said if turned else said[:1]))
    return tuple(heads), frozenset(reach)


def _moments(words: tuple[Word, ...]) -> tuple[str, ...]:
    found: list[str] = []
    for word, after in zip(words, (*words[1:], None), strict=False):
        if word.low in MOMENTS:
            found.append(word.low)
        elif word.low in WEEKDAYS or word.stem in WEEKDAYS:
            found.append(f"day {WEEKDAYS.get(word.low) or WEEKDAYS[word.stem]}")
        elif word.low == "every" and after is not None and after.low == "other":
            found.append("every other")
        elif word.low in LEADS_OF_TIME and after is not None and after.stem in _TIMED_STEMS:
            found.append(f"{LEADS_OF_TIME[word.low]} {after.stem}")
    return tuple(found)


def _names(words: tuple[Word, ...]) -> tuple[str, ...]:
    """Return the words with a capital inside a sentence; none of a text that is mostly written in capitals."""
    inside = [word for word in words if word.kind == "word" and not word.starts and word.low != "i"]
    capital = [word for word in inside if word.raw[0].isupper()]
    if 2 * len(capital) > len(inside) + 1:
        return ()
    return tuple(word.plain for word in capital if word.low not in FUNCTION_WORDS)


_SUBJECTS = frozenset(
    ("i", "you", "he", "she", "it", "we", "they", "my", "your", "his", "her", "its", "our", "their", "the", "a", "an")
)
_TIMED_STEMS = frozenset(stem(word) for word in TIMED)
