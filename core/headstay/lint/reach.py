"""How far a request could have read what an earlier one left in the cache, and how far it still could."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from headstay.causes import Cause
from headstay.comparison import Finding
from headstay.comparison.segment import Json, Request
from headstay.comparison.tool_list import tool_sizes
from headstay.layout import BYTES_PER_TOKEN
from headstay.lint.follow import Step
from headstay.lint.turn import Turn
from headstay.providers.rules import CacheRules

_ON_ITS_OWN = frozenset({Cause.MARKERS_OVER_LIMIT, Cause.MARKER_TTL_ORDER, Cause.BELOW_MINIMUM})
"""Causes that change nothing in what both requests hold: the provider refuses such a request, or never caches it."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Tokens of a request that an earlier one left in the cache.

    Attributes:
        whole: As many as it repeats, wherever they stand: what it could have read.
        kept: As many as it can read in spite of what changed.
        raw: The same before the model's minimum and its steps are considered.
        full: `whole` before they are.
        losses: For each finding, in order, what is gained when it is mended and all before it are. They add up to
            `whole - kept`.
        alone: For each finding what it would lose if it were the only one.
        unreached: Tokens that were written and are not looked for, since this request marks another place; `whole` is
            without them.
        ttl: Name of the time to live that was asked for, or None for the default.
        marked: Whether anything was cached at all: False where only markers write, and the earlier request has none.
    """

    whole: int
    kept: int
    raw: int
    full: int
    losses: tuple[int, ...]
    alone: tuple[int, ...]
    unreached: int
    ttl: str | None
    marked: bool


def reach(step: Step, rules: CacheRules, *, ratio: float) -> Reach:
    """Measure a step.

    Args:
        step: The step; it has a request before it.
        rules: What its model caches by.
        ratio: The provider's tokens for one estimated token.
    """
    before, after, divergence = step.before, step.turn, step.divergence
    assert before is not None
    governed = _is_governed(before, rules) or _is_governed(after, rules)
    written = _ends(before) if governed else []
    ends = [end for end in written if end.place in _places(after)] if _is_explicit(after.request.body) else written
    behind = [finding for finding in divergence.findings if finding.cause not in _ON_ITS_OWN]
    looked = any(finding.cause == Cause.LOOKBACK_EXCEEDED for finding in behind)
    apart = [finding.lost_tokens for finding in behind if finding.cause != Cause.LOOKBACK_EXCEEDED]
    repeated = divergence.shared_tokens + max(apart, default=0)
    stays = divergence.shared_tokens if apart else repeated
    head = size(after.request, head_only=True)

    def read(tokens: float) -> float:
        """Return the estimated tokens of the longest cached prefix within some tokens from the start."""
        return max((end.at for end in ends if end.at <= tokens + 1), default=0.0) if written else tokens

    def told(tokens: float) -> int:
        return rules.floored(tokens * ratio) if rules.known else int(tokens * ratio)

    def left(finding: Finding) -> float:
        if finding.cause in _ON_ITS_OWN:
            return repeated
        return min(repeated, head) if finding.cause == Cause.LOOKBACK_EXCEEDED else repeated - finding.lost_tokens

    whole = told(read(repeated))
    most = max((end.at for end in written if end.at <= repeated + 1), default=0.0)
    alone = [whole - told(read(left(finding))) for finding in divergence.findings]
    losses: list[int] = []
    further = 0
    for lost in reversed(alone):
        losses.append(max(0, lost - further))
        further = max(further, lost)
    reached = read(min(stays, head) if looked else stays)
    ttl = next((end.ttl for end in reversed(ends) if end.at <= repeated + 1), None)
    return Reach(
        whole=whole,
        kept=whole - further,
        raw=int(reached * ratio),
        full=int(read(repeated) * ratio),
        losses=tuple(reversed(losses)),
        alone=tuple(alone),
        unreached=max(0, told(most) - whole) if written else 0,
        ttl=ttl,
        marked=not governed or bool(before.request.marks),
    )


def size(request: Request, *, head_only: bool = False) -> float:
    """Return the estimated tokens of a whole request, or of its tools and system text; images count nothing."""
    tools = sum(size for size, _ in tool_sizes(request, request))
    messages = () if head_only else request.messages
    return (tools + sum(one.size for one in (*request.system, *messages))) / BYTES_PER_TOKEN


def _is_governed(turn: Turn, rules: CacheRules) -> bool:
    """Whether only markers write: on Anthropic's wire, and in OpenAI's explicit mode. A rebuilt body shows none."""
    explicit = rules.explicit_mode and _is_explicit(turn.request.body)
    return turn.entry.exact and (turn.request.wire == "anthropic-messages" or explicit)


class _End(NamedTuple):
    """Where a request was cached at, in estimated tokens."""

    at: float
    ttl: str | None
    place: tuple[str, int]


def _ends(turn: Turn) -> list[_End]:
    """Return where a request was cached at; empty without any marker.

    A request without one is measured as if it were marked: what it could have saved is worth knowing.
    """
    request = turn.request
    tools = [size for size, _ in tool_sizes(request, request)]
    sizes: Mapping[str, Sequence[int]] = {
        "tools": tools,
        "system": [one.size for one in request.system],
        "messages": [one.size for one in request.messages],
    }
    start = {"tools": 0, "system": sum(tools), "messages": sum(tools) + sum(sizes["system"])}
    found = [
        _End(
            (start[mark.tier] + sum(sizes[mark.tier][: mark.index + 1])) / BYTES_PER_TOKEN,
            mark.ttl,
            (mark.tier, mark.index),
        )
        for mark in request.marks
    ]
    return sorted(found, key=lambda end: end.at)


def _places(turn: Turn) -> set[tuple[str, int]]:
    """Return where a request is marked: in OpenAI's explicit mode nothing else is looked for (guide of 2026-09-23)."""
    return {(mark.tier, mark.index) for mark in turn.request.marks}


def _is_explicit(body: Json) -> bool:
    options = body.get("prompt_cache_options")
    return isinstance(options, Mapping) and cast("Json", options).get("mode") == "explicit"
