"""Responses the emulator remembers: to continue them, and to say why a later one missed the cache."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstay.emulator.openai_cache import Outcome
from headstay.emulator.openai_errors import ApiError
from headstay.emulator.openai_gates import Reading
from headstay.emulator.shape import compact, mapping

_KEPT = 2_000


@dataclass(frozen=True)
class Remembered:
    """What is kept of one response.

    Attributes:
        items: Its input and output items; None if it was not stored.
        aspects: The request settings that diagnostics compare, by miss reason.
        ends: Prefix hash by length, at each place where a cache entry may end.
        reusable: The longest prefix it left in the cache, in tokens.
    """

    items: Sequence[Any] | None
    aspects: Mapping[str, str]
    ends: Mapping[int, bytes]
    reusable: int


class ResponseMemory:
    """The latest responses of every workspace."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Remembered] = OrderedDict()

    def keep(self, workspace: str, name: str, reading: Reading, outcome: Outcome, output: Sequence[Any]) -> None:
        """Remember a response; `store: false` keeps its items out."""
        stored = reading.body.get("store") is not False
        prompt = reading.prompt
        ends = {*prompt.endings, *(marker.end for marker in prompt.markers), len(prompt.tokens)}
        self._kept[workspace, name] = Remembered(
            items=[*reading.items, *output] if stored else None,
            aspects=_aspects(reading),
            ends=prompt.digests(b"", ends),
            reusable=outcome.reusable,
        )
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def items(self, workspace: str, name: str) -> Sequence[Any]:
        """Return the input and output items of a stored response.

        Raises:
            ApiError: If there is no such response.
        """
        found = self._kept.get((workspace, name))
        if found is None or found.items is None:
            raise ApiError(
                f"Previous response with id '{name}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        return found.items

    def diagnose(self, workspace: str, name: str, reading: Reading, outcome: Outcome) -> dict[str, Any]:
        """Say why a request did not read what another one left in the cache.

        Source: `prompt_cache_diagnostics` in the types of openai 3.57.0, seen 2026-11-29. The order in which
        the reasons are tried is assumed.
        """
        other = self._kept.get((workspace, name))
        if other is None:
            return {"type": "comparison_response_not_found"}
        if outcome.read >= other.reusable > 0:
            return {"type": "cache_hit"}
        mine = _aspects(reading)
        reason = next((reason for reason, value in other.aspects.items() if mine[reason] != value), None)
        shared = 0
        if reason is None:
            ends = [end for end in other.ends if end <= outcome.total]
            digests = reading.prompt.digests(b"", ends)
            shared = max((end for end in ends if digests[end] == other.ends[end]), default=0)
            if shared >= other.reusable:
                return {"type": "unavailable"}
            reason = "input_changed"
        return {
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": outcome.total - shared,
            "comparison_reusable_tokens": other.reusable,
        }

    def forget(self) -> None:
        """Forget all responses."""
        self._kept.clear()


def _aspects(reading: Reading) -> dict[str, str]:
    settings = reading.settings
    tools = [mapping(reading.body).get("tools"), settings["parallel_tool_calls"]]
    return {
        "model_changed": reading.model.name,
        "prompt_cache_key_changed": compact(reading.cache.key),
        "tools_changed": compact(tools),
        "text_format_changed": compact(settings["text_format"]),
        "reasoning_effort_changed": compact(settings["reasoning_effort"]),
        "verbosity_changed": compact(settings["verbosity"]),
        "context_compacted": compact(settings["context_management"]),
        "service_tier_changed": compact(settings["service_tier"]),
    }
