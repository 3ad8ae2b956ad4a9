"""Does the request that leaves hold what was planned? Read back from the payload itself, not from the plan."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from headstay.added import joined
from headstay.canonical import MARKER_KEYS
from headstay.fingerprint import speaker, text_digest, trail
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
    if joined(plan.head, [found.form for found in plan.additions if not found.name]) != plan.whole:
        problems.append("the head and the instructions added since are not the application's system text")
    if list(sent.system) != expected:
        problems.append("the system text on the wire is not the planned head")
    if [_bare(tool.wire) for tool in sent.tools] != [_bare(tool.wire) for tool in plan.tools]:
        problems.append("the tools on the wire are not the planned ones")
    if trail(_without_note(sent, plan)) != plan.trail:
        problems.append("the messages on the wire are not the application's")
    return (*problems, *_illegal(sent.markers, rules))


def _bare(tool: Mapping[str, object]) -> Mapping[str, object]:
    return {key: value for key, value in tool.items() if key not in MARKER_KEYS} if "cache_control" in tool else tool


def _without_note(sent: Prompt, plan: Plan) -> list[Block]:
    """Take the note out where it was planned, and only if it is that note."""
    kept = list(sent.blocks)
    if plan.note.operator and kept and _says(sent, kept[-1], plan.note.operator):
        kept.pop()
    if plan.note.user:
        message = plan.note.message if plan.note.message >= 0 else len(sent.messages) - 1
        last = next((index for index in range(len(kept) - 1, -1, -1) if kept[index].message == message), -1)
        if last >= 0 and _says(sent, kept[last], plan.note.user):
            del kept[last]
    return kept


def _says(sent: Prompt, block: Block, text: str) -> bool:
    return block.digest == text_digest(speaker(sent.messages[block.message]), text)[0]


def _illegal(markers: Sequence[Marker], rules: CacheRules) -> list[str]:
    problems: list[str] = []
    if len(markers) > rules.max_markers:
        problems.append(f"{len(markers)} cache markers, {rules.max_markers} allowed")
    seconds = [rules.ttl_seconds(marker.ttl) for marker in markers]
    if any(later > earlier for earlier, later in pairwise(seconds)):
        problems.append("a longer TTL stands behind a shorter one")
    return problems
