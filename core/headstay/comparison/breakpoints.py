"""What request B's cache breakpoints, taken for themselves and against A's, keep from being read.

Only what is certain is named. Markers are no content: where they merely moved there is nothing to say.
"""

from collections.abc import Mapping, Sequence
from typing import cast

from headstay.causes import Cause
from headstay.comparison.finding import TIERS, Draft, Place
from headstay.comparison.segment import Json, Mark, Request, Segment
from headstay.providers.rules import CacheRules

_LEAST_BYTES = 2.5
"""Bytes that a token has at the very least: a prompt that is too short even so is too short."""

_TIERS = ("tools", "system", "messages")


def compare_marks(before: Request, after: Request, rules: CacheRules, *, shared: int, head_same: bool) -> list[Draft]:
    """Name what is wrong with the breakpoints of the later request.

    Args:
        before: The earlier request.
        after: The later request.
        rules: What the later request's model takes.
        shared: Number of message segments that both share from the start.
        head_same: Whether tools and system text are the same in both.
    """
    drafts = _over_limit(after, rules)
    if after.wire == "anthropic-messages":
        drafts += _ttl_order(after, rules)
    missing = _missing(before, after, rules, shared, head_same=head_same)
    drafts += missing
    if not missing and head_same and rules.lookback and after.wire == "anthropic-messages":
        drafts += _lookback(before, after, rules.lookback, shared)
    return drafts + _below_minimum(after, rules)


def last_written(request: Request) -> int:
    """Return the message segment up to which a request is cached at most; -1 where breakpoints do not decide that."""
    if request.wire != "anthropic-messages" and not _is_explicit(request.body):
        return -1
    return max((mark.index for mark in request.marks if mark.tier == "messages"), default=-1)


def _draft(cause: Cause, mark: Mark, after: str = "", before: str = "") -> Draft:
    tier = "end" if mark.automatic else mark.tier
    return Draft(Place(TIERS[tier], mark.index), cause, mark.path, 0, before, after, lost=0)


def _over_limit(after: Request, rules: CacheRules) -> list[Draft]:
    """Find the marker that is one too many; OpenAI drops the oldest ones, and reads them still."""
    limit = rules.max_markers
    if after.wire != "anthropic-messages" or len(after.marks) <= limit:
        return []
    ordered = sorted(after.marks, key=lambda mark: mark.automatic)
    return [_draft(Cause.MARKERS_OVER_LIMIT, ordered[limit], f"{len(after.marks)} markers, {limit} allowed")]


def _ttl_order(after: Request, rules: CacheRules) -> list[Draft]:
    shortest: Mark | None = None
    for mark in sorted(after.marks, key=lambda mark: (mark.automatic, _TIERS.index(mark.tier), mark.index)):
        if shortest is not None and rules.ttl_seconds(mark.ttl) > rules.ttl_seconds(shortest.ttl):
            said = [f"{one.path}: {one.ttl or rules.default_ttl}" for one in (shortest, mark)]
            return [_draft(Cause.MARKER_TTL_ORDER, mark, said[1], said[0])]
        if shortest is None or rules.ttl_seconds(mark.ttl) < rules.ttl_seconds(shortest.ttl):
            shortest = mark
    return []


def _missing(before: Request, after: Request, rules: CacheRules, shared: int, *, head_same: bool) -> list[Draft]:
    """Find the markers of the earlier request that nothing of the later one reaches, where markers govern."""
    off = rules.explicit_mode and _is_explicit(after.body) and not after.marks
    if off and not before.marks:
        return [Draft(Place(0), Cause.MARKERS_MISSING, "prompt_cache_options", 0, "", "explicit mode, no breakpoint")]
    governed = after.wire == "anthropic-messages" or _is_explicit(after.body) or "claude" in after.model
    if not governed or not before.marks:
        return []
    last = max(map(_rank, after.marks), default=(-1, -1))
    lost = [mark for mark in before.marks if _rank(mark) > last]
    shifted = any(mark.tier == "messages" and mark.index >= shared for mark in lost) or not head_same
    if not lost or (after.marks and shifted and (last[0] == 2 or len(after.messages) < len(before.messages))):
        return []
    first = min(lost, key=_rank)
    told = f"{len(lost)} {'marker' if len(lost) == 1 else 'markers'}"
    return [Draft(Place(TIERS[first.tier], first.index), Cause.MARKERS_MISSING, first.path, 0, told, "")]


def _rank(mark: Mark) -> tuple[int, int]:
    return _TIERS.index(mark.tier), mark.index


def _lookback(before: Request, after: Request, reach: int, shared: int) -> list[Draft]:
    """Find an entry that the earlier request wrote and no marker of the later one looks back to."""
    written = [mark.index for mark in before.marks if mark.tier == "messages" and mark.index < shared]
    marked = sorted({mark.index: mark for mark in after.marks if mark.tier == "messages"}.items())
    if not written or not marked:
        return []
    entry = max(written)
    positions = _positions(after.messages)
    behind = [(index, mark) for index, mark in marked if index >= entry]
    if not behind or any(positions[index] - positions[entry] < reach for index, _ in behind):
        return []
    index, mark = behind[0]
    gap = positions[index] - positions[entry]
    size = sum(segment.size for segment in after.messages[: entry + 1])
    told = f"{gap} positions behind the last entry; {reach} are looked at"
    return [Draft(Place(TIERS["end"], index), Cause.LOOKBACK_EXCEEDED, mark.path, 0, "", told, lost=size)]


def _positions(segments: Sequence[Segment]) -> list[int]:
    """Number segments as the lookback counts them: a run of tool calls, or of results, is one position."""
    found: list[int] = []
    for index, segment in enumerate(segments):
        joins = (
            index > 0
            and segment.kind in ("tool_call", "tool_result")
            and segments[index - 1].kind == segment.kind
            and segments[index - 1].message == segment.message
        )
        found.append((found[-1] if found else 0) + (not joins) * bool(index))
    return found


def _below_minimum(after: Request, rules: CacheRules) -> list[Draft]:
    """Name a marked prompt that is too short to be cached whatever its tokens are; images may be of any size."""
    segments = [*after.system, *after.messages]
    if not rules.known or not after.marks or any(one.kind in ("image", "file") for one in segments):
        return []
    size = sum(one.size for one in segments) + sum(len(str(tool.wire)) for tool in after.tools)
    if size / _LEAST_BYTES >= rules.min_tokens:
        return []
    told = f"at most {int(size / _LEAST_BYTES)} tokens, {rules.min_tokens} needed"
    return [Draft(Place(TIERS["end"], len(segments)), Cause.BELOW_MINIMUM, after.marks[0].path, 0, "", told, lost=0)]


def _is_explicit(body: Json) -> bool:
    options = body.get("prompt_cache_options")
    return isinstance(options, Mapping) and cast("Json", options).get("mode") == "explicit"
