"""Vetoes on what a question means: negation, opposites, things of one kind, persons, times, names."""

from collections import Counter
from itertools import pairwise

from headstay.semantic.reading import Reading
from headstay.semantic.reasons import Reason
from headstay.semantic.veto_marks import Veto, differing
from headstay.semantic.veto_words import FUNCTION_WORDS, GROUPS, NEGATING_PREFIXES, PARTICLES, SOFT_NEGATIVES
from headstay.semantic.wording import base_form, is_negation, stem

_UNSAID = frozenset({"today", "tonight"})
_TAKERS = frozenset({"me", "us"})
_SHORT = 15


def negations(asked: Reading, stored: Reading) -> Veto | None:
    """What the one denies, the other says; unless it says it by another word, as in `having trouble to`."""
    denied = _denied(asked, stored), _denied(stored, asked)
    if all(denied) or (any(denied) and len(asked.negations) != len(stored.negations)):
        first = denied[0] or denied[1]
        return Veto(Reason.VETO_NEGATION, _negated(asked) or first, _negated(stored) or first)
    return None


def _denied(reading: Reading, other: Reading) -> str:
    """Return the first word that one text only denies and that the other only says, or an empty text."""
    if any(word.low in SOFT_NEGATIVES for word in other.words):
        return ""
    said = Counter(word.stem for word in reading.words)
    affirmed = {word.stem for word in other.words} - other.denied
    once = (word for word in reading.negations if said[word] == reading.negations.count(word))
    return next((word for word in once if word in affirmed), "")


def _negated(reading: Reading) -> str:
    return " ".join(word.raw for word in reading.words if is_negation(word))


def groups(asked: Reading, stored: Reading) -> Veto | None:
    """Words of different poles of one group, each in one of the questions only; or both poles, exchanged."""
    ours, theirs = _said(asked), _said(stored)
    only_ours, only_theirs = ours - theirs, theirs - ours
    for group in _shared_groups(only_ours, only_theirs):
        a = {word: _POLES[word][group] for word in only_ours if group in _POLES.get(word, {})}
        b = {word: _POLES[word][group] for word in only_theirs if group in _POLES.get(word, {})}
        if not set(a.values()) & set(b.values()) and not (
            _KINDS[group] is Reason.VETO_POLARITY and _odd(asked, stored)
        ):
            return Veto(_KINDS[group], next(iter(a)), next(iter(b)))
    return None


def _said(reading: Reading) -> Counter[str]:
    """Count the words of a text, without the verb of `give me`: who says so wants to get."""
    pairs = zip(reading.words, (*reading.words[1:], None), strict=False)
    return Counter(
        word.stem for word, after in pairs if not (word.low == "give" and after is not None and after.low in _TAKERS)
    )


def _odd(asked: Reading, stored: Reading) -> bool:
    """Whether one text has a negation more, so that opposite words may say the same: `not happy`, `unhappy`."""
    return (len(asked.negations) - len(stored.negations)) % 2 == 1


def _shared_groups(asked: Counter[str], stored: Counter[str]) -> list[int]:
    a = {group for word in asked for group in _POLES.get(word, ())}
    return sorted(a & {group for word in stored for group in _POLES.get(word, ())})


def prefixes(asked: Reading, stored: Reading) -> Veto | None:
    """One question has a word that the other has with a prefix that turns it round: `lock`, `unlock`."""
    if _odd(asked, stored):
        return None
    ours, theirs = {word.stem for word in asked.words}, {word.stem for word in stored.words}
    for mine, others in ((ours - theirs, theirs - ours), (theirs - ours, ours - theirs)):
        for word in sorted(mine):
            turned = next((p + word for p in NEGATING_PREFIXES if len(word) > 3 and p + word in others), None)
            if turned:
                return Veto(Reason.VETO_POLARITY, *((word, turned) if word in ours else (turned, word)))
    return None


def particles(asked: Reading, stored: Reading) -> Veto | None:
    """One verb with a particle in the one question and its opposite in the other: `log in`, `log out`."""
    ours, theirs = _with_particle(asked), _with_particle(stored)
    for verb, particle in ours:
        turned = (verb, PARTICLES[particle])
        if turned in theirs and turned not in ours and (verb, particle) not in theirs:
            return Veto(Reason.VETO_POLARITY, f"{verb} {particle}", f"{verb} {PARTICLES[particle]}")
    return None


def _with_particle(reading: Reading) -> list[tuple[str, str]]:
    pairs = pairwise(reading.words)
    return [
        (word.stem, after.low) for word, after in pairs if after.low in PARTICLES and word.low not in FUNCTION_WORDS
    ]


def moments(asked: Reading, stored: Reading) -> Veto | None:
    """Another day or period. A time that only a long text names is mostly a part of its story; `today` goes unsaid."""
    ours, theirs = ({m for m in one.moments if m not in _UNSAID and m[:4] != "this"} for one in (asked, stored))
    short = max(len(asked.words), len(stored.words)) <= _SHORT
    if ours == theirs or not (short or (asked.moments and stored.moments)):
        return None
    return differing(Reason.VETO_TIME, sorted(set(asked.moments)), sorted(set(stored.moments)))


def questions(asked: Reading, stored: Reading) -> Veto | None:
    """The one asks who, when, where or why, and the other another of these."""
    if asked.asks and stored.asks and not asked.asks & stored.asks:
        return differing(Reason.VETO_QUESTION, sorted(asked.asks), sorted(stored.asks))
    return None


def names(asked: Reading, stored: Reading) -> Veto | None:
    """Each has a name that the other does not have, capital or not."""
    ours = [name for name in asked.names if not _says(stored, name)]
    theirs = [name for name in stored.names if not _says(asked, name)]
    return differing(Reason.VETO_NAME, ours, theirs) if ours and theirs else None


def _says(reading: Reading, name: str) -> bool:
    return any(word.plain == name or word.stem == stem(name) for word in reading.words)


def _poles() -> tuple[dict[str, dict[int, int]], list[Reason]]:
    """Number the groups and their poles, by stem."""
    poles: dict[str, dict[int, int]] = {}
    kinds: list[Reason] = []
    for kind, groups in GROUPS:
        for group in groups:
            for pole, words in enumerate(group.split("|")):
                for word in words.split():
                    poles.setdefault(base_form(word), {})[len(kinds)] = pole
            kinds.append(kind)
    return poles, kinds


_POLES, _KINDS = _poles()
