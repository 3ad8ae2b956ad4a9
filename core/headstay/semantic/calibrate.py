"""What each static threshold would serve on labelled pairs of questions, how often wrongly, and which one will do.

A pair stands for a kept question and one that is asked later. It is served if the cache would serve it: both may be
compared by meaning, no veto speaks against it, and the cosine reaches the threshold. The wrong share is that of the
pairs served whose answers differ, and it holds for pairs like these: draw them from your own traffic, near misses
included.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstay.errors import ConfigError
from headstay.semantic.calibrate_bound import pairs_needed, upper_bound
from headstay.semantic.calibrate_pairs import Pair
from headstay.semantic.decide import THRESHOLD
from headstay.semantic.eligible import TokenCount, eligibility
from headstay.semantic.query import Templates, normal_text, read_query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn
from headstay.semantic.veto import veto

THRESHOLDS = tuple(hundredth / 100 for hundredth in range(99, 49, -1))
"""The thresholds that are judged, strictest first."""

_BLIND = (
    "no threshold broke the target, so these pairs hold too few different questions that are alike: add near misses, "
    "and until then keep to the default"
)


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair as the cache sees it.

    Attributes:
        same_answer: Whether one answer is right for both.
        score: Cosine similarity, 1.0 for identical texts; None where they must not be compared by meaning.
        limit: Why they must not, or None.
        veto: Why they are different questions however near they are, or None.
    """

    same_answer: bool
    score: float | None
    limit: Reason | None = None
    veto: Reason | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """What one threshold does.

    Attributes:
        threshold: Least cosine similarity.
        served: Pairs served.
        wrong: Served pairs whose answers differ.
        hit_rate: Served pairs among all.
        kept: Served pairs among those that share an answer, by count of right ones; None if no pair shares one.
        precision: Right pairs among the served; None if none is served.
        wrong_share: Wrong pairs among the served; None if none is served.
        wrong_at_most: Upper confidence bound of the wrong share; 1.0 if none is served.
    """

    threshold: float
    served: int
    wrong: int
    hit_rate: float
    kept: float | None
    precision: float | None
    wrong_share: float | None
    wrong_at_most: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """The report.

    Attributes:
        pairs: How many there are.
        same: How many of them share an answer.
        target: The wrong share asked for.
        confidence: Of the bounds, 0 to 1.
        levels: One for each of `THRESHOLDS`, strictest first.
        met: The level that serves most within the target, or None.
        reason: Why none does, or None.
        caution: What the pairs do not show, though a level was found, or None.
        limits: Pairs that are never compared by meaning, by reason.
        vetoes: Pairs at or over the laxest threshold that a veto stops, by reason; how many, and how many of them
            share an answer.
    """

    pairs: int
    same: int
    target: float
    confidence: float
    levels: tuple[Level, ...]
    met: Level | None
    reason: str | None
    caution: str | None
    limits: Mapping[str, int]
    vetoes: Mapping[str, tuple[int, int]]


class PairEmbedder:
    """Reads and embeds texts for `judge`; a text that comes twice is embedded once.

    Args:
        embedder: A `headstay.semantic.embedder.Embedder`.
    """

    def __init__(self, embedder: Any) -> None:
        self._embedder = embedder
        self._vectors: dict[str, Any] = {}
        self._limits: dict[str, Reason | None] = {}
        self._english = bool(getattr(embedder, "english", False))

    def limit(self, text: str) -> Reason | None:
        """Say why a text must not be compared by meaning, or None."""
        if text not in self._limits:
            request = AskedRequest((Turn("user", text),))
            query = read_query(request, Templates())
            tokens: TokenCount | None = None if query.reason else self._embedder.tokens(query.text)
            found = eligibility(request, query, tokens, window=self._embedder.window, english=self._english)
            self._limits[text] = found.reason
        return self._limits[text]

    def cosine(self, a: str, b: str) -> float:
        """Return the cosine similarity of two texts."""
        return float(self._vector(a) @ self._vector(b))

    def _vector(self, text: str) -> Any:
        if text not in self._vectors:
            self._vectors[text] = self._embedder.embed([text])[0]
        return self._vectors[text]


def judge(pairs: Iterable[Pair], embedder: PairEmbedder) -> Iterator[Judged]:
    """Look at each pair as the cache would.

    Args:
        pairs: The pairs.
        embedder: Reads and embeds their texts.

    Raises:
        EmbedderError: A text cannot be embedded.
    """
    for pair in pairs:
        if normal_text(pair.a) == normal_text(pair.b):  # the exact tier needs no embedder
            yield Judged(pair.same_answer, 1.0)
            continue
        limit = embedder.limit(pair.a) or embedder.limit(pair.b)
        if limit is not None:
            yield Judged(pair.same_answer, None, limit=limit)
            continue
        score = embedder.cosine(normal_text(pair.a), normal_text(pair.b))
        found = veto(normal_text(pair.b), normal_text(pair.a))
        yield Judged(pair.same_answer, score, veto=found.kind if found else None)


def calibrate(judged: Sequence[Judged], *, target: float, confidence: float = 0.95) -> Calibration:
    """Say what each threshold does, and which one serves most with its wrong share within a target.

    The bound is Clopper and Pearson's, one-sided. Thresholds are tried from the strictest that serves enough pairs to
    show the target at all, and the first that fails ends it; so the confidence holds for the one that is chosen, though
    many were looked at.

    Args:
        judged: The pairs, see `judge`.
        target: The wrong share that must be kept, over 0 and below 1.
        confidence: That it is kept, over 0 and below 1.

    Raises:
        ConfigError: `target` or `confidence` is no such number.
    """
    for name, value in (("target", target), ("confidence", confidence)):
        if not 0 < value < 1:
            raise ConfigError(f"{name}={value!r}: give a share over 0 and below 1, such as 0.01 for one in a hundred")
    same = sum(one.same_answer for one in judged)
    levels = tuple(_level(judged, same, threshold, confidence) for threshold in THRESHOLDS)
    met, reason = _chosen(levels, target, confidence, different=len(judged) - same)
    stopped = [one for one in judged if one.veto is not None and one.score is not None and one.score >= THRESHOLDS[-1]]
    right = Counter(str(one.veto) for one in stopped if one.same_answer)
    return Calibration(
        pairs=len(judged),
        same=same,
        target=target,
        confidence=confidence,
        levels=levels,
        met=met,
        reason=reason,
        caution=_BLIND if met is not None and met.threshold == THRESHOLDS[-1] else None,
        limits=dict(Counter(str(one.limit) for one in judged if one.limit is not None).most_common()),
        vetoes={kind: (count, right[kind]) for kind, count in Counter(str(one.veto) for one in stopped).most_common()},
    )


def _level(judged: Sequence[Judged], same: int, threshold: float, confidence: float) -> Level:
    served = [one for one in judged if one.veto is None and one.score is not None and one.score >= threshold]
    count = len(served)
    wrong = sum(not one.same_answer for one in served)
    return Level(
        threshold=threshold,
        served=count,
        wrong=wrong,
        hit_rate=count / len(judged) if judged else 0.0,
        kept=(count - wrong) / same if same else None,
        precision=1 - wrong / count if count else None,
        wrong_share=wrong / count if count else None,
        wrong_at_most=upper_bound(wrong, count, confidence),
    )


def _chosen(
    levels: Sequence[Level], target: float, confidence: float, *, different: int
) -> tuple[Level | None, str | None]:
    """Go from strict to lax, from the first level with enough pairs up to the first that breaks the target."""
    if not different:
        return None, "all pairs share an answer, so nothing shows which ones would be served wrongly"
    needed = pairs_needed(target, confidence)
    enough = [level for level in levels if level.served >= needed]
    if not enough:
        most = max(level.served for level in levels)
        return (
            None,
            f"at least {needed:,} served pairs are needed to show it, and no threshold serves more than {most:,}",
        )
    met: Level | None = None
    for level in enough:
        if level.wrong_at_most > target:
            break
        met = level
    if met is not None:
        return met, None
    first = enough[0]
    return None, (
        f"at {first.threshold:.2f}, {first.wrong} of {first.served:,} served pairs are wrong, "
        f"which may be up to {first.wrong_at_most:.2%} in truth"
    )


def shown_levels(report: Calibration) -> list[Level]:
    """Return the levels that a person wants to see: every fifth one, the default, and the chosen one."""
    chosen = {THRESHOLD, *(threshold for threshold in THRESHOLDS if round(100 * threshold) % 5 == 0)}
    chosen |= {report.met.threshold} if report.met else set()
    return [level for level in report.levels if level.threshold in chosen]
