"""What the cache did in this process: hits by tier, misses by reason, tokens that were not bought again."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from headstay.semantic.forking import ForkedLock
from headstay.semantic.lookup import Admission, Lookup


@dataclass(frozen=True, slots=True)
class Metrics:
    """A snapshot.

    Attributes:
        lookups: How many questions came.
        hits: Served answers by tier ("exact", "semantic").
        misses: By reason.
        limits: By reason: questions for which only an identical request could be served.
        stored: Answers kept.
        not_stored: By reason.
        shadow: Dry runs: answers that would have been served, "same" or "other" than the fresh ones.
        input_tokens: Not sent again.
        output_tokens: Not written again.
    """

    lookups: int
    hits: Mapping[str, int]
    misses: Mapping[str, int]
    limits: Mapping[str, int]
    stored: int
    not_stored: Mapping[str, int]
    shadow: Mapping[str, int]
    input_tokens: int
    output_tokens: int

    @property
    def hit_share(self) -> float:
        """Hits among lookups, 0 to 1."""
        return sum(self.hits.values()) / self.lookups if self.lookups else 0.0


class Counts:
    """Counts, for several threads."""

    def __init__(self) -> None:
        self._lock = ForkedLock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def looked_up(self, lookup: Lookup) -> None:
        """Count a question, and the answer that was served."""
        answer = lookup.answer
        with self._lock:
            self._counts["lookups", ""] += 1
            if lookup.limit is not None:
                self._counts["limits", lookup.limit] += 1
            if answer is not None and lookup.tier is not None:
                self._counts["hits", lookup.tier] += 1
                self._counts["tokens", "in"] += answer.input_tokens
                self._counts["tokens", "out"] += answer.output_tokens
            elif lookup.reason is not None:
                self._counts["misses", lookup.reason] += 1

    def admitted(self, admission: Admission) -> None:
        """Count an answer that was to be kept."""
        with self._lock:
            if admission.reason is None:
                self._counts["stored", ""] += 1
            else:
                self._counts["not_stored", admission.reason] += 1

    def shadowed(self, *, same: bool) -> None:
        """Count the comparison of a dry run."""
        with self._lock:
            self._counts["shadow", "same" if same else "other"] += 1

    def snapshot(self) -> Metrics:
        """Return the counts of now."""
        with self._lock:
            counts = dict(self._counts)

        def by(what: str) -> dict[str, int]:
            return {str(name): count for (kind, name), count in counts.items() if kind == what}

        return Metrics(
            lookups=counts.get(("lookups", ""), 0),
            hits=by("hits"),
            misses=by("misses"),
            limits=by("limits"),
            stored=counts.get(("stored", ""), 0),
            not_stored=by("not_stored"),
            shadow=by("shadow"),
            input_tokens=counts.get(("tokens", "in"), 0),
            output_tokens=counts.get(("tokens", "out"), 0),
        )
