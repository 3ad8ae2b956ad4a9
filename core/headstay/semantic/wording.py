"""The words, numbers and codes of a question, in order, each in the form it is compared in."""

import re
import unicodedata
from typing import NamedTuple

from headstay.semantic.veto_words import (
    AMBIGUOUS_MONTHS,
    FUNCTION_WORDS,
    MEASURES,
    MONTH_LEADS,
    MONTHS,
    NEGATIONS,
    PERIODS,
    SCALES,
)

_TOKEN = re.compile(
    r"""
    (?P<address>https?://[^\s<>"]+|www\.[^\s<>"]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    |(?P<iso>(?<!\w)\d{4}-\d{1,2}-\d{1,2}(?![\w-]))
    |(?P<number>(?<![\w.])(?:(?<![^\s(])-)?\d+(?:[.,:/]\d+)*)(?P<suffix>%|°?[^\W\d_]{1,8})?(?![\w])(?!-\w*[^\W\d])
    |(?P<code>(?=[\w-]{0,64}\d)(?=[\w-]{0,64}[^\W\d_])\w+(?:[-.]\w+)*|\w+_\w+)
    |(?P<word>[^\W\d_]+(?:['\u2019][^\W\d_]+)*(?:\+\+|\#(?!\w))?)
    |(?P<sign>[$€£¥₹%])
    |(?P<operator>[<>]=?|[=!]=|[=+*^\u00d7\u00f7])
    |(?P<stop>[.?!:\n])
    """,
    re.VERBOSE,
)
_MOST_DIGITS = 18
_ORDINAL = frozenset({"st", "nd", "rd", "th"})


class Word(NamedTuple):
    """One token.

    Attributes:
        raw: As written.
        low: Lower case, with straight apostrophes.
        plain: Lower case without accents.
        stem: Base form for comparison.
        starts: Whether it starts a sentence.
        kind: "word", "number", "code", "date", "operator" or "sign".
        suffix: What is written onto a number, as in `5km`.
    """

    raw: str
    low: str
    plain: str
    stem: str
    starts: bool
    kind: str
    suffix: str = ""


def split_words(text: str) -> tuple[Word, ...]:
    """Return the words of a text in order, with dates joined to one word each."""
    return _with_dates(_words(text))


def plain(text: str) -> str:
    """Return a text in lower case without accents, as an uncased embedder sees it."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text.lower())
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign))


def stem(word: str) -> str:
    """Return the base form of an English word, roughly: both sides of a comparison go through it."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and any(vowel in base for vowel in "aeiouy"):
            doubled = base[-1] == base[-2] and base[-1] not in "lsz"
            return (base[:-1] if doubled else base).removesuffix("e")
    return word.removesuffix("e") if len(word) > 3 else word


def base_form(word: str) -> str:
    """Return the form that a word is compared in; words that only say how it is asked stay as they are."""
    return word if word in FUNCTION_WORDS else stem(word)


def is_negation(word: Word) -> bool:
    """Whether a word negates: `not`, `never`, `can't`, `cant`."""
    return word.low in NEGATIONS or word.low.endswith("n't")


def _words(text: str) -> list[Word]:
    words: list[Word] = []
    starts = True
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        raw = match.group()
        if kind == "stop":
            starts = True
            continue
        words.append(_word(match, raw, starts))
        starts = False
    return words


def _word(match: re.Match[str], raw: str, starts: bool) -> Word:
    number, suffix = match["number"], match["suffix"] or ""
    low = raw.lower().replace("\u2019", "'")
    if number is not None:
        unit = suffix.lower().lstrip("°")
        known = not unit or unit in _ORDINAL or unit in SCALES or unit in MEASURES or unit in PERIODS
        if known:
            value = _plain_number(number, SCALES.get(unit, 1))
            return Word(raw, value, value, value, starts, "number", "" if unit in _ORDINAL or unit in SCALES else unit)
        return Word(raw, low, low, low, starts, "code")
    if match["iso"] is not None:
        year, month, day = raw.split("-")
        date = f"{year}-{int(month)}-{int(day)}"
        return Word(raw, date, date, date, starts, "date")
    if match["word"] is None:
        return Word(
            raw, low, low, low, starts, kind if (kind := str(match.lastgroup)) in {"sign", "operator"} else "code"
        )
    # "what's" and "cards'" count as "what" and "cards"; "can't" stays, since it negates
    base = low if low.endswith("n't") else low.partition("'")[0]
    bare = plain(base)
    coded = raw.endswith(("+", "#"))
    return Word(raw, base, bare, bare if coded else base_form(bare), starts, "code" if coded else "word")


def _plain_number(text: str, scale: int = 1) -> str:
    """Return a number without thousands separators and idle decimals, times a scale where it is a whole number."""
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", digits):
        digits = digits.replace(",", "")
    digits = re.sub(r"(?<=\d)\.00?\Z", "", digits)
    return sign + (str(int(digits) * scale) if scale != 1 and is_whole(digits) else digits)


def is_whole(digits: str) -> bool:
    """Whether a text is a whole number to calculate with; `007` and the digits of a key are none."""
    return digits.isdecimal() and len(digits) <= _MOST_DIGITS and (digits == "0" or digits[0] != "0")


def _with_dates(words: list[Word]) -> tuple[Word, ...]:
    """Join a month with the day and year beside it to one date."""
    joined: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        month = MONTHS.get(word.low) if word.kind == "word" else None
        if month is None:
            joined.append(word)
            at += 1
            continue
        day = _day_before(joined)
        after = at + 1
        if not day and after < len(words) and _is_day(words[after]):
            day, after = words[after].low, after + 1
        year = ""
        if after < len(words) and words[after].kind == "number" and re.fullmatch(r"[12]\d{3}", words[after].low):
            year, after = words[after].low, after + 1
        lead = joined[-1].low if joined else ""
        if not day and not year and word.low in AMBIGUOUS_MONTHS and lead not in MONTH_LEADS:
            joined.append(word)
            at += 1
            continue
        if day and after == at + 1 + bool(year) and joined:
            del joined[-2 if joined[-1].low == "of" else -1 :]
        date = f"{year}-{month}-{day.lstrip('0')}"
        joined.append(Word(word.raw, date, date, date, word.starts, "date"))
        at = after
    return tuple(joined)


def _is_day(word: Word) -> bool:
    return word.kind == "number" and not word.suffix and re.fullmatch(r"0?[1-9]|[12]\d|3[01]", word.low) is not None


def _day_before(joined: list[Word]) -> str:
    before = joined[:-1] if joined and joined[-1].low == "of" else joined
    return before[-1].low if before and _is_day(before[-1]) else ""
