"""From a Messages request to the steps its prompt cache walks: keys, token totals, positions and markers."""

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from headstay.emulator.anthropic_blocks import (
    THINKING,
    Part,
    Tier,
    cost,
    has_citations,
    has_image,
    render,
    tools_by_name,
)
from headstay.emulator.anthropic_cache import Step, Ttl, chain, positions
from headstay.emulator.anthropic_switches import AnthropicSwitches
from headstay.emulator.shape import compact, mapping


def steps_of(
    body: Mapping[str, Any], parts: Sequence[Part], *, workspace: str, switches: AnthropicSwitches
) -> list[Step]:
    """Lay out the blocks of a request for the cache.

    Args:
        body: The request.
        parts: Its blocks as the model sees them.
        workspace: Whose cache it is.
        switches: How contested rules are decided.
    """
    tools = tools_by_name(body)
    keys = chain(render(part, tools) for part in parts)
    scopes = scopes_of(body, parts, workspace=workspace, switches=switches)
    totals = accumulate(cost(part, tools) for part in parts)
    numbers = positions([part.kind for part in parts])
    auto = automatic(body, parts)
    return [
        Step(scopes[part.tier] + key, total, number, _ttl(part, body if index == auto else None))
        for index, (part, key, total, number) in enumerate(zip(parts, keys, totals, numbers, strict=True))
    ]


def scopes_of(
    body: Mapping[str, Any], parts: Sequence[Part], *, workspace: str, switches: AnthropicSwitches
) -> dict[Tier, bytes]:
    """Digest, for each tier, what besides content must be the same for its entries to be found.

    The provider's invalidation table, seen 2026-11-29: the model gives up all tiers; citations and `speed` system
    and messages; `tool_choice`, the presence of images, `thinking` and effort the messages. The schema of a
    structured answer is taken to be system text.
    """
    listed = list(parts)
    thinking = {k: v for k, v in mapping(body.get("thinking")).items() if k not in {"block_binding", "display"}}
    output = mapping(body.get("output_config"))
    effort = compact([thinking, output.get("effort")])
    speed = str(body.get("speed") or "standard")
    base = [workspace, str(body.get("model"))]
    if not switches.speed_keeps_tools:
        base.append(speed)
    if switches.thinking_rekeys == "all":
        base.append(effort)
    schema = compact(output.get("format") or body.get("output_format"))
    system = [*base, speed, schema, str(has_citations(listed))]
    choice = {k: v for k, v in mapping(body.get("tool_choice")).items() if v is not False}
    messages = [*system, compact(choice or {"type": "auto"}), str(has_image(listed)), effort]
    return {"tools": _digest(base), "system": _digest(system), "messages": _digest(messages)}


def automatic(body: Mapping[str, Any], parts: Sequence[Part]) -> int:
    """Return the index of the block that the top-level marker lands on, or -1.

    It goes to the last block that can carry one, and silently walks back to it.
    """
    if body.get("cache_control") is None:
        return -1
    able = (i for i, part in enumerate(parts) if carries(part))
    return max(able, default=-1)


def carries(part: Part) -> bool:
    """Say whether a block can carry a marker: no thinking, no blank text, no deferred tool."""
    return not (part.kind in THINKING or part.kind == "output_config" or part.blank or part.deferred)


def _ttl(part: Part, body: Mapping[str, Any] | None) -> Ttl | None:
    """Return the longest lifetime a block asks for, itself or by the top-level marker of a body."""
    marks = [value for _, value in part.marks]
    if body is not None:
        marks.append(body.get("cache_control"))
    asked: set[Ttl] = {"1h" if mapping(mark).get("ttl") == "1h" else "5m" for mark in marks}
    return "1h" if "1h" in asked else "5m" if asked else None


def _digest(values: Sequence[str]) -> bytes:
    return hashlib.blake2b("\x00".join(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()
