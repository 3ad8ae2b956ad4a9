"""Why the prompt cache could not reuse the previous request: the API's own diagnosis.

Source: platform.claude.com/docs/en/build-with-claude/cache-diagnostics and the types of anthropic 2.14.0, seen
2026-11-29. Nothing is ever pending here: the comparison is done before the answer begins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headstay.emulator.anthropic_blocks import Part, cost, render, tools_by_name
from headstay.emulator.anthropic_cache import chain
from headstay.emulator.shape import compact, mapping

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What is kept of a request to compare the next one with."""

    model: str
    tools: tuple[bytes, ...]
    system: tuple[bytes, ...]
    messages: tuple[bytes, ...]
    parameters: str
    costs: tuple[int, ...]


@dataclass(slots=True)
class Diagnosis:
    """The requests of one emulator, by workspace and message id."""

    _seen: dict[tuple[str, str], Fingerprint] = field(default_factory=dict[tuple[str, str], Fingerprint])

    def remember(self, workspace: str, message_id: str, fingerprint: Fingerprint) -> None:
        """Keep a request under the id of its answer; the oldest are forgotten beyond ten thousand."""
        self._seen[(workspace, message_id)] = fingerprint
        if len(self._seen) > _REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def clear(self) -> None:
        """Forget all requests."""
        self._seen.clear()

    def explain(self, workspace: str, body: Mapping[str, Any], new: Fingerprint) -> dict[str, Any] | None:
        """Return the `diagnostics` of a response: None when not asked for, on turn 1, or when nothing changed."""
        previous = mapping(body.get("diagnostics")).get("previous_message_id")
        if previous is None:
            return None
        old = self._seen.get((workspace, str(previous)))
        if old is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        kind = _reason(old, new)
        if kind is None:
            return None
        reason: dict[str, Any] = {"type": kind}
        if kind != "unavailable":
            reason["cache_missed_input_tokens"] = _missed(old, new, everything=kind == "model_changed")
        return {"cache_miss_reason": reason}


def fingerprint(body: Mapping[str, Any], parts: Sequence[Part]) -> Fingerprint:
    """Digest a request for later comparison."""
    tools = tools_by_name(body)

    def digests(tier: str) -> tuple[bytes, ...]:
        return tuple(chain([render(part, tools)])[0] for part in parts if part.tier == tier)

    parameters = [body.get("thinking"), body.get("tool_choice"), body.get("output_config")]
    return Fingerprint(
        model=f"{body.get('model')} {body.get('speed') or 'standard'}",
        tools=digests("tools"),
        system=digests("system"),
        messages=digests("messages"),
        parameters=compact(parameters),
        costs=tuple(cost(part, tools) for part in parts),
    )


def _reason(old: Fingerprint, new: Fingerprint) -> str | None:
    """Name what changed first, in the order the provider lists the reasons."""
    if old.model != new.model:
        return "model_changed"
    if old.system != new.system:
        return "system_changed"
    if old.tools != new.tools:
        return "tools_changed"
    if new.messages[: len(old.messages)] != old.messages:
        return "messages_changed"
    return "unavailable" if old.parameters != new.parameters else None


def _missed(old: Fingerprint, new: Fingerprint, *, everything: bool) -> int:
    """Count the tokens of the old request past the first block that changed."""
    before = (*old.tools, *old.system, *old.messages)
    after = (*new.tools, *new.system, *new.messages)
    same = 0
    while not everything and same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    return sum(old.costs[same:])
