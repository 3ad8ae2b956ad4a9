"""What a step of a log lost, by cause: what changed in the request, and what else kept it from being read."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headstay.causes import Cause
from headstay.comparison import Finding
from headstay.diagnosis import MEANINGS
from headstay.ledger.usage import Usage
from headstay.ledger.verdict import judge
from headstay.lint.follow import MARKER_CAUSES, Step
from headstay.lint.reach import Reach, reach, size
from headstay.providers.rules import CacheRules, find_rules
from headstay.rate import PerMinute
from headstay.remedies import REMEDIES

ANSWER_TAKES_S = 1.0
"""Seconds for which a request is taken to be unanswered where the log does not say: a long prompt takes longer."""

_ESTIMATE = 0.02  # of a length that is told from bytes

_REPEAT_MARKER = (
    "in explicit mode only what this request marks is looked for: leave the marker of the message before in its place, "
    "and mark the new last one too"
)
_WHOLLY = frozenset({Cause.TTL_EXPIRED, Cause.COLD_FAN_OUT})  # nothing was there to be read, whatever else changed


@dataclass(frozen=True, slots=True)
class Loss:
    """One cause of a step, and what it lost.

    Attributes:
        finding: Cause, place, both sides and remedy.
        tokens: Tokens that were paid for again because of it, where all before it were mended.
        alone: As many as it would cost if it were the only one.
    """

    finding: Finding
    tokens: int
    alone: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of a step.

    Attributes:
        reach: How far it could read; None for the first request of an agent.
        read: What it did read: as reported, or else as far as the cache must have reached.
        losses: The causes, the one at the earliest place first.
        short: Whether the request is below the model's minimum, and nothing was done about it.
        expired: Tokens that it could not read, by the log's times, because their entry had expired; only without usage.
        unmarked: Tokens that it could not read because nothing is cached without a marker.
    """

    reach: Reach | None
    read: int
    losses: tuple[Loss, ...]
    short: bool = False
    expired: int = 0
    unmarked: int = 0


@dataclass(slots=True)
class Judge:
    """Judges the steps of a log in their order."""

    _ratios: dict[tuple[object, ...], float] = field(default_factory=dict[tuple[object, ...], float])
    _sent: PerMinute = field(default_factory=PerMinute)

    def judge(self, step: Step) -> Judgement:
        """Say what a step lost, and why."""
        rules = find_rules(step.turn.entry.wire, step.turn.request.model)
        ratio = self._ratio(step)
        crowded = self._is_crowded(step, rules)
        usage = step.turn.entry.usage
        if step.before is None:
            losses = tuple(Loss(finding, 0) for finding in step.divergence.findings)
            return Judgement(None, usage.cache_read_tokens if usage else 0, losses)
        far = reach(step, rules, ratio=ratio)
        if not step.continues:
            step, far = _without_tails(step, far)
        gap = _gap(step)
        if usage is not None:
            return self._by_usage(step, rules, far, usage, gap, crowded=crowded)
        short = _is_below(far, rules)
        if not far.marked:
            losses = _seen(step, far, far.losses)
            return Judgement(far, 0, losses, short=short, unmarked=far.kept)
        if gap is not None and rules.known and gap > rules.ttl_seconds(far.ttl):
            return Judgement(far, 0, _seen(step, far, [0] * len(far.losses)), short=short, expired=far.whole)
        return Judgement(far, far.kept, _seen(step, far, far.losses) + _unreached(step, far), short=short)

    def _by_usage(
        self, step: Step, rules: CacheRules, far: Reach, usage: Usage, gap: float | None, *, crowded: bool
    ) -> Judgement:
        read = usage.cache_read_tokens
        if not far.marked and not read:
            return Judgement(far, 0, _seen(step, far, far.losses), short=_is_below(far, rules), unmarked=far.kept)
        elsewhere = self._elsewhere(step, rules, far, usage, gap, crowded=crowded)
        # What a change explains is lost from the first token on; the tolerance is for what nothing explains.
        missing = max(0, far.whole - read)
        lost = missing if elsewhere or missing > max(rules.step, _ESTIMATE * far.whole) else 0
        of_requests = 0 if elsewhere in _WHOLLY else min(lost, far.whole - far.kept)
        losses = _seen(step, far, _scaled(far.losses, of_requests))
        losses += _unreached(step, far)
        if elsewhere is not None:
            losses += (Loss(_finding(step, elsewhere, gap), lost - of_requests, lost - of_requests),)
        return Judgement(replace(far, whole=max(far.whole, read)), read, losses, short=_is_below(far, rules))

    def _elsewhere(
        self, step: Step, rules: CacheRules, far: Reach, usage: Usage, gap: float | None, *, crowded: bool
    ) -> Cause | None:
        """Name what the requests do not show: why not even that was read which did not change."""
        if not rules.known:
            return None
        flight = _in_flight(step)
        life = rules.ttl_seconds(far.ttl)
        gone = judge(far.whole, usage, ttl_seconds=life, gap_seconds=gap, writer_in_flight=flight)
        if gone.status == "short" and gone.cause in _WHOLLY:
            return gone.cause
        if far.kept == 0 < far.raw < rules.min_tokens and judge(far.raw, usage).status == "short":
            # Else it was never meant to be cached, or a change has shortened what stays.
            return None if step.divergence.findings or not step.turn.request.marks else Cause.BELOW_MINIMUM
        if judge(far.kept, usage).status != "short":
            return None
        return self._unknown(step, rules, usage, crowded=crowded)

    def _unknown(self, step: Step, rules: CacheRules, usage: Usage, *, crowded: bool) -> Cause | None:
        told = MEANINGS.get(step.turn.entry.diagnosis)
        if told is not None and not step.divergence.findings:
            return told.cause
        implicit = rules.explicit_mode and not step.turn.request.marks
        if not step.continues and implicit:  # whether an unmarked head is found again there is not settled
            return None
        before, now = (turn.entry.served_by for turn in (step.before or step.turn, step.turn))
        if (before and now and before != now) or crowded:
            return Cause.PROVIDER_ROUTING
        return Cause.UNKNOWN if not usage.cache_read_tokens or step.continues else None

    def _ratio(self, step: Step) -> float:
        """Return the provider's tokens for one that is estimated from bytes."""
        lane = (step.turn.lane, step.turn.request.model)
        for turn in (step.before, step.turn):
            if turn is None or turn.entry.usage is None:
                continue
            whole = size(turn.request)
            if whole > 0 and turn.entry.usage.input_tokens > 0 and not turn.request.held:
                self._ratios[lane] = turn.entry.usage.input_tokens / whole
                return self._ratios[lane]
        return self._ratios.get(lane, 1.0)

    def _is_crowded(self, step: Step, rules: CacheRules) -> bool:
        """Whether more requests were sent under one cache key within a minute than one machine takes."""
        started = step.turn.entry.started
        most = rules.requests_per_minute
        if rules.affinity is None or not most or started is None:
            return False
        cache_key = str(step.turn.request.body.get(rules.affinity))
        key = (step.turn.lane, step.turn.request.model, step.turn.head, cache_key)
        return self._sent.count(key, started) > most


def _seen(step: Step, far: Reach, shares: Sequence[int]) -> tuple[Loss, ...]:
    found = zip(step.divergence.findings, shares, far.alone, strict=True)
    return tuple(Loss(finding, tokens, alone if any(shares) else 0) for finding, tokens, alone in found)


def _unreached(step: Step, far: Reach) -> tuple[Loss, ...]:
    """Name the marker that a request in OpenAI's explicit mode does not repeat, so that what it wrote is not found."""
    if not step.continues or not far.unreached:
        return ()
    finding = Finding(Cause.MARKERS_MISSING, "", 0, "", "", _REPEAT_MARKER, far.unreached)
    return (Loss(finding, far.unreached, far.unreached),)


def _without_tails(step: Step, far: Reach) -> tuple[Step, Reach]:
    """Leave out what differs between two conversations where it costs nothing: a name behind all that is shared."""
    findings = step.divergence.findings
    kept = [
        index
        for index, finding in enumerate(findings)
        if far.alone[index] or not far.whole or finding.cause in MARKER_CAUSES
    ]
    told = tuple(findings[index] for index in kept)
    losses, alone = (tuple(values[index] for index in kept) for values in (far.losses, far.alone))
    divergence = replace(step.divergence, findings=told, clean=not told)
    return replace(step, divergence=divergence), replace(far, losses=losses, alone=alone)


def _scaled(losses: Sequence[int], total: int) -> list[int]:
    """Share a smaller loss out among the causes of the estimated one."""
    whole = sum(losses)
    return [round(lost * total / whole) if whole else 0 for lost in losses]


def _gap(step: Step) -> float | None:
    started = step.turn.entry.started
    return None if started is None or step.used is None else max(0.0, started - step.used)


def _in_flight(step: Step) -> bool:
    """Whether the request that writes the prefix had not begun to be answered when this one was sent."""
    started = step.turn.entry.started
    if started is None or step.used is None:
        return False
    if step.continues and step.before is not None and len(step.turn.said) > len(step.before.said):
        return False  # it holds the answer
    if step.answered is not None:
        return started <= step.answered
    guessed = not step.continues and not step.divergence.findings  # what changed explains it better than a guess
    return guessed and started - step.used < ANSWER_TAKES_S


def _is_below(far: Reach, rules: CacheRules) -> bool:
    return rules.known and 0 < far.full < rules.min_tokens


def _finding(step: Step, cause: Cause, gap: float | None) -> Finding:
    told = f"{gap:,.0f} s after the last use" if cause == Cause.TTL_EXPIRED and gap is not None else ""
    served = [turn.entry.served_by for turn in (step.before, step.turn) if turn is not None]
    before, after = served if cause == Cause.PROVIDER_ROUTING and len(set(served)) == 2 else ("", told)
    return Finding(cause, "", 0, before, after, REMEDIES[cause], 0)
