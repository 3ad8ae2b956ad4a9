"""The requests of a log, each held against the one it should continue."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headstay.causes import Cause
from headstay.comparison import Divergence, Finding, compare
from headstay.comparison.segment import Request
from headstay.lint.family import Families, Head
from headstay.lint.streams import MAX_WEIGHT, Streams
from headstay.lint.turn import ToolLists, Turn, take
from headstay.trace.entry import Entry

MARKER_CAUSES = frozenset(
    {
        *(Cause.MARKERS_MISSING, Cause.MARKERS_OVER_LIMIT, Cause.MARKER_TTL_ORDER, Cause.LOOKBACK_EXCEEDED),
        Cause.BELOW_MINIMUM,
    }
)
"""Causes that are read off the cache markers; a rebuilt body does not show them."""

_OF_ONE_REQUEST = frozenset({Cause.MARKERS_OVER_LIMIT, Cause.MARKER_TTL_ORDER, Cause.BELOW_MINIMUM})


@dataclass(frozen=True, slots=True)
class Step:
    """One request, and what became of the prefix that it should continue.

    Attributes:
        turn: The request.
        agent: Number of its agent.
        conversation: Number of its conversation, from 1.
        place: Its place in the conversation, from 1.
        before: What it is held against: the request it continues; for the first one of a conversation the first one of
            an earlier conversation of the same agent; None where there is neither.
        continues: Whether `before` is of the same conversation.
        divergence: What differs. Of two conversations only the head counts.
        used: When the prefix was last used, in the log's time; None where that is not known.
        answered: When the answer that wrote it began; None where that is not known.
    """

    turn: Turn
    agent: int
    conversation: int
    place: int
    before: Turn | None
    continues: bool
    divergence: Divergence
    used: float | None
    answered: float | None


class Follower:
    """Follows the conversations of a log.

    Args:
        max_weight: Characters of requests that are kept to compare later ones with.
    """

    def __init__(self, *, max_weight: int = MAX_WEIGHT) -> None:
        self._families = Families()
        self._streams = Streams(max_weight=max_weight)
        self._tools = ToolLists()
        self._taken = 0

    @property
    def conversations(self) -> int:
        """How many conversations there were so far."""
        return self._streams.made

    @property
    def forgotten(self) -> int:
        """How many of them had to be let go to stay within memory; a request that goes on with one begins a new one."""
        return self._streams.forgotten

    def step(self, entry: Entry) -> Step:
        """Take the next request.

        Raises:
            WireError: A field of its body is not of the form the API takes.
        """
        turn = take(self._taken + 1, self._tools.shared(entry))
        self._taken += 1
        found = self._streams.find(turn)
        head = None if found else self._families.known(turn) or self._families.nearest(turn)
        divergence = _opening(turn, head) if found is None else compare(found[1].request, turn.request)
        clean = found is None or not any(
            _is_of_history(finding, found[1].request, turn.request) for finding in divergence.findings
        )
        before = found[1] if found else head.turn if head else None
        used = found[1].entry.started if found else head.used if head else None
        answered = found[1].entry.answered if found else head.answered if head else None
        stream = self._streams.keep(turn, found, clean=clean)
        agent = self._families.note(turn, opening=found is None)
        if not entry.exact:
            divergence = _only(divergence, [one for one in divergence.findings if one.cause not in MARKER_CAUSES])
        return Step(
            turn=turn,
            agent=agent,
            conversation=stream.number,
            place=stream.turns,
            before=before,
            continues=found is not None,
            divergence=divergence,
            used=used,
            answered=answered,
        )


def _opening(turn: Turn, head: Head | None) -> Divergence:
    """Hold the first request of a conversation against that of another one: what differs in the head."""
    before = head.turn.request if head else turn.request
    divergence = compare(before, turn.request, one_conversation=False)
    kept = [
        finding
        for finding in divergence.findings
        if finding.cause in _OF_ONE_REQUEST or not _is_of_history(finding, before, turn.request)
    ]
    return _only(divergence, kept)


def _is_of_history(finding: Finding, before: Request, after: Request) -> bool:
    """Whether a finding is about the messages, or about a field that re-keys no more than them."""
    if finding.path.startswith(("tools", "functions", "prompt_cache_key")):
        return False
    holders = {segment.holder for request in (before, after) for segment in request.system}
    return not any(f"{finding.path}.".startswith((f"{holder}.", f"{holder}[")) for holder in holders)


def _only(divergence: Divergence, kept: Sequence[Finding]) -> Divergence:
    """Return a divergence with some of its findings; what stood behind the others is shared."""
    if len(kept) == len(divergence.findings):
        return divergence
    lost = max((finding.lost_tokens for finding in kept), default=0)
    repeated = divergence.shared_tokens + divergence.lost_tokens
    return replace(
        divergence, clean=not kept, findings=tuple(kept), lost_tokens=lost, shared_tokens=max(0, repeated - lost)
    )
