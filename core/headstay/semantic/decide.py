"""Which kept answer may be served: the nearest one over the threshold that no veto speaks against."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from headstay.errors import ConfigError
from headstay.semantic.reading import read
from headstay.semantic.reasons import Reason
from headstay.semantic.veto import Veto, compare

EntryT = TypeVar("EntryT")

THRESHOLD = 0.92
"""Least cosine similarity of two questions that share an answer, where nothing has been calibrated."""


@dataclass(frozen=True, slots=True)
class Candidate(Generic[EntryT]):
    """A kept question near the one that is asked.

    Attributes:
        entry: What is served if it is chosen.
        text: The question it answers, as it was embedded.
        score: Cosine similarity, -1 to 1.
    """

    entry: EntryT
    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Refusal(Generic[EntryT]):
    """A candidate that was near enough and still is another question."""

    candidate: Candidate[EntryT]
    veto: Veto


@dataclass(frozen=True, slots=True)
class Decision(Generic[EntryT]):
    """What was decided, and why.

    Attributes:
        hit: The entry to serve, or None.
        score: Its similarity; on a miss that of the nearest candidate, None if there was none.
        reason: Why nothing is served: nothing stored, nothing near enough, or the veto on the nearest. None on a hit.
        refused: The candidates over the threshold that a veto spoke against, best first, up to the hit.
    """

    hit: EntryT | None
    score: float | None
    reason: Reason | None
    refused: tuple[Refusal[EntryT], ...] = ()


def decide(asked: str, candidates: Sequence[Candidate[EntryT]], *, threshold: float = THRESHOLD) -> Decision[EntryT]:
    """Choose among the nearest kept questions of one scope.

    Args:
        asked: The query.
        candidates: Kept questions, best first. A score that is no number never wins.
        threshold: Least cosine similarity, over 0 and up to 1; more is stricter.

    Raises:
        ConfigError: The threshold is no such number.
    """
    check_threshold(threshold)
    refused: list[Refusal[EntryT]] = []
    question = read(asked)
    for candidate in candidates:
        if not candidate.score >= threshold:
            continue
        veto = compare(question, read(candidate.text))
        if veto is None:
            return Decision(candidate.entry, candidate.score, None, tuple(refused))
        refused.append(Refusal(candidate, veto))
    best = max((found.score for found in candidates if not math.isnan(found.score)), default=None)
    if refused:
        return Decision(None, best, refused[0].veto.kind, tuple(refused))
    return Decision(None, best, Reason.BELOW_THRESHOLD if candidates else Reason.NOTHING_STORED)


def check_threshold(threshold: object, *, where: str = "threshold") -> float:
    """Return a threshold that can work.

    Args:
        threshold: The value given.
        where: Its name in the message.

    Raises:
        ConfigError: It is not a number over 0 and up to 1.
    """
    if isinstance(threshold, (int, float)) and not isinstance(threshold, bool) and 0 < threshold <= 1:
        return float(threshold)
    raise ConfigError(
        f"{where}={threshold!r}: give a cosine similarity over 0 and up to 1, where 1 serves identical meaning only; "
        f"{THRESHOLD} is the default. A distance d is a similarity of 1 - d"
    )


def tighter(threshold: float, asked: float | None) -> float:
    """Return the threshold of one call: a call may ask for more likeness than configured, never for less."""
    return threshold if asked is None else max(threshold, check_threshold(asked))
