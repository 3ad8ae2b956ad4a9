"""What came of a question to the cache, and what came of keeping an answer."""

from dataclasses import dataclass
from typing import Any, Literal

from headstay.semantic.answer import Answer
from headstay.semantic.control import Mode
from headstay.semantic.decide import Decision
from headstay.semantic.entry import Entry
from headstay.semantic.query import Query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest

Tier = Literal["exact", "semantic"]


@dataclass(frozen=True, slots=True)
class Lookup:
    """One question to the cache.

    Attributes:
        request: What was asked.
        at: When, in seconds since the epoch.
        mode: What the call asked of the cache.
        query: The text that is compared by meaning, or None where it did not come to that.
        family: Key of all but the last human text; empty where nothing may be looked up or kept.
        scope: Key of all but the query.
        exact: Key of the whole request.
        vector: The query's, or None: identical requests only.
        entry: What is served, or None.
        tier: How it was found.
        score: Similarity to it, 1.0 for an identical request; on a miss that of the nearest, or None.
        reason: Why nothing is served, or None on a hit.
        limit: Why only an identical request could have been served, or None.
        decision: How the neighbours were judged, or None where it did not come to that.
        shadow: In a dry run, what would have been served.
        answer: What the served entry holds, or None on a miss.
        reply: What the host made of that answer, or None.
        outdated: Whether a fresh answer takes the place of the kept one, which may not be served any more.
        detail: Which exception, where something failed; or what of the request has no content to compare.
    """

    request: AskedRequest
    at: float
    mode: Mode = "use"
    query: Query | None = None
    family: str = ""
    scope: str = ""
    exact: str = ""
    vector: bytes | None = None
    entry: Entry | None = None
    tier: Tier | None = None
    score: float | None = None
    reason: Reason | None = None
    limit: Reason | None = None
    decision: Decision[Entry] | None = None
    shadow: Entry | None = None
    answer: Answer | None = None
    reply: Any = None
    outdated: bool = False
    detail: str = ""

    @property
    def age(self) -> float | None:
        """Seconds since the served answer was made, or None on a miss."""
        return None if self.entry is None else max(0.0, self.at - self.entry.created)

    def metadata(self) -> dict[str, object]:
        """What a served reply carries under "headstay"."""
        if self.entry is None:
            return {"cache": "miss", "reason": str(self.reason) if self.reason else None}
        return {
            "cache": "hit",
            "tier": self.tier,
            "score": round(self.score or 0.0, 4),
            "entry": self.entry.id,
            "age": round(self.age or 0.0, 3),
        }

    def explain(self) -> str:
        """Say in a few lines what was decided and why."""
        lines: list[str] = []
        if self.entry is not None:
            lines.append(f"hit ({self.tier}, similarity {self.score or 0.0:.3f}): {self.entry.query!r}")
        elif self.reason is not None:
            near = "" if self.score is None else f" (nearest {self.score:.3f})"
            lines.append(f"miss, {self.reason}{near}: {self.reason.text}")
        if self.limit is not None and self.limit is not self.reason:
            lines.append(f"{self.limit}: {self.limit.text}")
        if self.query is not None:
            lines.append(f"compared: {self.query.text!r} ({self.query.how})")
        for refusal in self.decision.refused if self.decision else ():
            kept, veto = refusal.candidate, refusal.veto
            lines.append(
                f"refused {kept.text!r} at {kept.score:.3f}, {veto.kind}: {veto.asked!r} against {veto.stored!r}"
            )
        if self.detail:
            lines.append(self.detail)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether an answer was kept.

    Attributes:
        entry: Name of the entry that now holds an answer to the request, or None.
        reason: Why the answer was not kept, or None.
    """

    entry: str | None = None
    reason: Reason | None = None
