"""Does the request that leaves hold what was planned? Read back from the payload itself, not from the plan."""

from collections.abc import Sequence
from itertools import pairwise

from headstay.fingerprint import text_digest, trail
from headstay.layout import Plan
from headstay.prompt import Block, Marker, Prompt
from headstay.providers.rules import CacheRules


def verify(sent: Prompt, plan: Plan, rules: CacheRules) -> tuple[str, ...]:
    """Hold a rendered request against its plan.

    Args:
        sent: The request as read back from the rendered payload.
        plan: What was planned.
        rules: What the provider takes.

    Returns:
        What does not fit, one clear line each; empty when the request is as planned.
    """
    problems: list[str] = []
    expected = list(plan.head)
    if plan.semi_static and rules.several_system:
        expected.append(plan.semi_static)
    elif plan.semi_static:
        expected[-1] = f"{expected[-1]}\n\n{plan.semi_static}"
    if list(sent.system) != expected:
        problems.append("the system text on the wire is not the planned head")
    if tuple(tool.wire for tool in sent.tools) != tuple(tool.wire for tool in plan.tools):
        bare = [{key: value for key, value in tool.wire.items() if key != "cache_control"} for tool in sent.tools]
        if bare != [{k: v for k, v in tool.wire.items() if k != "cache_control"} for tool in plan.tools]:
            problems.append("the tools on the wire are not the planned ones")
    if trail(_without_note(sent.blocks, plan)) != plan.trail:
        problems.append("the messages on the wire are not the application's")
    return (*problems, *_illegal(sent.markers, rules))


def _without_note(blocks: Sequence[Block], plan: Plan) -> list[Block]:
    kept = list(blocks)
    if plan.note.operator and kept and kept[-1].role == "system":
        kept.pop()
    if plan.note.user:
        note = text_digest("user", plan.note.user)[0]
        last = max((index for index, block in enumerate(kept) if block.message == plan.note.message), default=-1)
        if last >= 0 and kept[last].digest == note:
            del kept[last]
    return kept


def _illegal(markers: Sequence[Marker], rules: CacheRules) -> list[str]:
    problems: list[str] = []
    if len(markers) > rules.max_markers:
        problems.append(f"{len(markers)} cache markers, {rules.max_markers} allowed")
    seconds = [rules.ttl_seconds(marker.ttl) for marker in markers]
    if any(later > earlier for earlier, later in pairwise(seconds)):
        problems.append("a longer TTL stands behind a shorter one")
    return problems
