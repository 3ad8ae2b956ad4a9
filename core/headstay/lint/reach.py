"""How far a request could have read what an earlier one left in the cache, and how far it still could."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from headstay.comparison.segment import Json, Request
from headstay.comparison.tool_list import tool_sizes
from headstay.layout import BYTES_PER_TOKEN
from headstay.lint.follow import Step
from headstay.lint.turn import Turn
from headstay.providers.rules import CacheRules


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
        ttl: Name of the time to live that was asked for, or None for the default.
        marked: Whether a cache marker is set anywhere, in this request or the one before.
    """

    whole: int
    kept: int
    raw: int
    full: int
    losses: tuple[int, ...]
    alone: tuple[int, ...]
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
    ends = _ends(before, rules) if before.entry.exact else []
    repeated = divergence.shared_tokens + divergence.lost_tokens

    def read(tokens: float) -> float:
        """Return the estimated tokens of the longest cached prefix within some tokens from the start."""
        return max((end for end, _ in ends if end <= tokens + 1), default=0.0) if ends else tokens

    def told(tokens: float) -> int:
        return rules.floored(tokens * ratio) if rules.known else int(tokens * ratio)

    stays = divergence.shared_tokens if divergence.findings else repeated
    whole, kept = told(read(repeated)), told(read(stays))
    alone = [whole - told(read(repeated - finding.lost_tokens)) for finding in divergence.findings]
    losses: list[int] = []
    behind = 0
    for lost in reversed(alone):
        losses.append(max(0, lost - behind))
        behind = max(behind, lost)
    marks = (*before.request.marks, *after.request.marks)
    raw, full = int(read(stays) * ratio), int(read(repeated) * ratio)
    ttl = next((ttl for end, ttl in reversed(ends) if end <= repeated + 1), None)
    return Reach(
        whole, kept, raw, full, tuple(reversed(losses)), tuple(alone), ttl, bool(marks) or not before.entry.exact
    )


def size(request: Request) -> float:
    """Return the estimated tokens of a whole request; images and files count nothing."""
    tools = sum(size for size, _ in tool_sizes(request, request))
    return (tools + sum(one.size for one in (*request.system, *request.messages))) / BYTES_PER_TOKEN


def _ends(turn: Turn, rules: CacheRules) -> list[tuple[float, str | None]]:
    """Return where a request was cached at, in estimated tokens, with the TTL asked for; empty where that is anywhere.

    On Anthropic's wire and in OpenAI's explicit mode only markers write. A request without one is taken as if it were
    marked: what it could have saved is worth knowing, and the report says that it is not.
    """
    request = turn.request
    governed = request.wire == "anthropic-messages" or (rules.explicit_mode and _is_explicit(request.body))
    if not governed or not request.marks:
        return []
    tools = [size for size, _ in tool_sizes(request, request)]
    sizes: Mapping[str, Sequence[int]] = {
        "tools": tools,
        "system": [one.size for one in request.system],
        "messages": [one.size for one in request.messages],
    }
    start = {"tools": 0, "system": sum(tools), "messages": sum(tools) + sum(sizes["system"])}
    found = [
        ((start[mark.tier] + sum(sizes[mark.tier][: mark.index + 1])) / BYTES_PER_TOKEN, mark.ttl)
        for mark in request.marks
    ]
    return sorted(found, key=lambda end: end[0])


def _is_explicit(body: Json) -> bool:
    options = body.get("prompt_cache_options")
    return isinstance(options, Mapping) and cast("Json", options).get("mode") == "explicit"
