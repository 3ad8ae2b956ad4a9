"""Vetoes on what stands in a question letter by letter: spelling, numbers, dates, codes, currencies, units, quotes."""

from collections.abc import Sequence
from dataclasses import dataclass

from headstay.semantic.reading import Number, Reading, read
from headstay.semantic.reasons import Reason
from headstay.semantic.veto_words import CASED, PLAIN_STARTS
from headstay.semantic.wording import Word, plain


@dataclass(frozen=True, slots=True)
class Veto:
    """Why one question must not get the other's answer.

    Attributes:
        kind: Which rule found it; one of the `veto_` reasons.
        asked: The piece of the question that is asked.
        stored: The piece of the kept question that stands against it; empty if it has none.
    """

    kind: Reason
    asked: str
    stored: str


def surface(asked: Reading, stored: Reading) -> Veto | None:
    """Only case, accents or spaces differ; or one word is told from another by these alone."""
    folded = [word.plain for word in asked.words] == [word.plain for word in stored.words]
    pairs = [(a, b) for a, b in zip(asked.words, stored.words, strict=False) if _blurred(a, b)] if folded else []
    for a, b in pairs:
        if not _plain_capital(a, b):
            return Veto(Reason.VETO_SURFACE, a.raw, b.raw)
    if not pairs and _squashed(asked.text) == _squashed(stored.text):
        return Veto(Reason.VETO_SURFACE, asked.text, stored.text)
    return None if folded else _accents_or_case(asked, stored)


def _blurred(a: Word, b: Word) -> bool:
    """Whether two tokens differ, and only in case or accents."""
    left, right = a.raw.replace("\u2019", "'"), b.raw.replace("\u2019", "'")
    return left != right and plain(left) == plain(right)


def _plain_capital(a: Word, b: Word) -> bool:
    """Whether two forms of a word differ only in a capital that says nothing: at a sentence's start, or `i`."""
    if a.low != b.low:
        return False
    return a.low == "i" or (a.starts and b.starts and a.raw[1:] == b.raw[1:] and a.low in PLAIN_STARTS)


def _squashed(text: str) -> str:
    return "".join(plain(text).split())


def _accents_or_case(asked: Reading, stored: Reading) -> Veto | None:
    """One word has other accents in each question, or another capital inside a sentence where that makes it another."""
    ours, theirs = _forms(asked), _forms(stored)
    for word in ours:
        a, b = ours[word], theirs.get(word, [])
        inside = [{one.raw[0].isupper() for one in forms if not one.starts} for forms in (a, b)]
        cased = word in CASED and all(inside) and not inside[0] & inside[1]
        if b and (cased or not {one.low for one in a} & {one.low for one in b}):
            return Veto(Reason.VETO_SURFACE, a[0].raw, b[0].raw)
    return None


def _forms(reading: Reading) -> dict[str, list[Word]]:
    """All words of a question by what the embedder sees of them."""
    forms: dict[str, list[Word]] = {}
    for word in reading.words:
        if word.kind == "word":
            forms.setdefault(word.plain, []).append(word)
    return forms


def numbers(asked: Reading, stored: Reading) -> Veto | None:
    """Other numbers or signs of arithmetic, or the same in another order."""
    if _agree(asked.numbers, stored.numbers):
        return unequal(Reason.VETO_NUMBER, asked.operators, stored.operators)
    return differing(Reason.VETO_NUMBER, [n.value for n in asked.numbers], [n.value for n in stored.numbers])


def _agree(asked: Sequence[Number], stored: Sequence[Number]) -> bool:
    """Whether the numbers are the same in the same order. Number words may be missing, but must not contradict."""
    fewer, more = sorted((asked, stored), key=len)
    matched = {0}
    for number in more:
        found = {at + 1 for at in matched if at < len(fewer) and fewer[at].value == number.value}
        matched = found | matched if number.loose else found
    return len(fewer) in matched


def dates(asked: Reading, stored: Reading) -> Veto | None:
    """Other dates, or the same in another order."""
    return unequal(Reason.VETO_DATE, asked.dates, stored.dates)


def codes(asked: Reading, stored: Reading) -> Veto | None:
    """Other codes, versions or addresses, or the same in another order."""
    return unequal(Reason.VETO_ID, asked.codes, stored.codes)


def currencies(asked: Reading, stored: Reading) -> Veto | None:
    """Other currencies, or the same in another order."""
    return unequal(Reason.VETO_CURRENCY, asked.currencies, stored.currencies)


def units(asked: Reading, stored: Reading) -> Veto | None:
    """Other units of measure, the same in another order, or other lengths of time, where both name one."""
    if asked.measures and stored.measures and asked.measures != stored.measures:
        return differing(Reason.VETO_UNIT, asked.measures, stored.measures)
    if asked.periods and stored.periods and not set(asked.periods) & set(stored.periods):
        return differing(Reason.VETO_UNIT, asked.periods, stored.periods)
    return None


def quotes(asked: Reading, stored: Reading) -> Veto | None:
    """A quoted text must be there, quoted or not."""
    if asked.quotes == stored.quotes:
        return None
    if asked.quotes and stored.quotes:
        return differing(Reason.VETO_QUOTE, asked.quotes, stored.quotes)
    other = {word.stem for word in (stored if asked.quotes else asked).words}
    if all(word.stem in other for quote in asked.quotes or stored.quotes for word in read(quote).words):
        return None
    return differing(Reason.VETO_QUOTE, asked.quotes, stored.quotes)


def unequal(kind: Reason, asked: Sequence[str], stored: Sequence[str]) -> Veto | None:
    """Return a veto of one kind where two sequences differ."""
    return None if asked == stored else differing(kind, asked, stored)


def differing(kind: Reason, asked: Sequence[str], stored: Sequence[str]) -> Veto:
    """Show the two sequences from the first place where they differ."""
    same = 0
    while same < min(len(asked), len(stored)) and asked[same] == stored[same]:
        same += 1
    return Veto(kind, " ".join(asked[same:]), " ".join(stored[same:]))
