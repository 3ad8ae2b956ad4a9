"""The request fields that re-key a cache: the model, and what the dated rules name beside it."""

from collections.abc import Mapping
from typing import cast

from headstay.canonical import meaning_text, wire_text
from headstay.causes import Cause
from headstay.comparison.finding import TIERS, Draft, Place
from headstay.comparison.likeness import shows_image
from headstay.comparison.segment import Request
from headstay.comparison.tool_list import leaf_draft, leaves
from headstay.excerpt import excerpt
from headstay.fingerprint import parameter
from headstay.forms import first_difference
from headstay.providers.rules import CacheRules

# What a field that is left out stands for (anthropic 2.14.0 and openai 3.57.0 types, seen 2026-11-29).
_DEFAULTS: Mapping[str, object] = {
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "disabled"},
    "speed": "standard",
    "parallel_tool_calls": True,
    "text.format": {"type": "text"},
    "text_format": {"type": "text"},
    "response_format": {"type": "text"},
    "text.verbosity": "medium",
    "verbosity": "medium",
    "service_tier": "auto",
}
_CAUSES: Mapping[str, Cause] = {"tool_choice": Cause.TOOL_CHOICE_CHANGED, "thinking": Cause.THINKING_CHANGED}
# Settings inside a field that say what comes back and not what is read.
_OUTPUT_ONLY = ("block_binding", "display")
_NO_REMEDY = "none: the first image of a conversation drops the cached messages; tools and system stay"


def compare_parameters(before: Request, after: Request, rules: CacheRules) -> list[Draft]:
    """Name the fields that changed and re-key the cache.

    Args:
        before: The earlier request.
        after: The later request.
        rules: What the later request's model caches by.
    """
    drafts: list[Draft] = []
    if before.model != after.model:
        at = first_difference(before.model, after.model)
        drafts.append(Draft(Place(0), Cause.MODEL_CHANGED, "model", at, before.model, after.model))
    for number, name in enumerate((*rules.lane_parameters, *rules.message_parameters), 1):
        old, new = (_value(request, name, rules) for request in (before, after))
        if meaning_text(old) == meaning_text(new) and wire_text(old) == wire_text(new):
            continue
        tier = TIERS["request" if name in rules.lane_parameters else "parameters"]
        if meaning_text(old) == meaning_text(new):
            if "format" in name:
                found = [leaf_draft(leaf, Place(tier, number), name) for leaf in leaves(old, new)]
                drafts += found[:1]
            continue
        cause = _CAUSES.get(name, Cause.PARAMETERS_CHANGED)
        at = first_difference(old, new) if isinstance(old, str) and isinstance(new, str) else 0
        drafts.append(Draft(Place(tier, number), cause, name, at, _shown(old), _shown(new)))
    return drafts


def first_image(before: Request, after: Request, rules: CacheRules, *, shared: int) -> list[Draft]:
    """Name the first image of a conversation where it re-keys the messages, as at Anthropic (prompt caching guide).

    Args:
        before: The earlier request.
        after: The later request.
        rules: What the later request's model caches by.
        shared: Number of message segments that both share from the start.
    """
    if not rules.images_rekey_messages or not shared or any(map(shows_image, before.messages)):
        return []
    image = next(filter(shows_image, after.messages), None)
    if image is None:
        return []
    place = Place(TIERS["parameters"], len(rules.lane_parameters) + len(rules.message_parameters) + 1)
    return [Draft(place, Cause.PARAMETERS_CHANGED, image.path, 0, "no image", "(image)", _NO_REMEDY)]


def _value(request: Request, name: str, rules: CacheRules) -> object:
    value = parameter(request.body, name)
    if value is None:
        return {"type": "adaptive"} if name == "thinking" and rules.thinks else _DEFAULTS.get(name)
    if name == "thinking" and isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {key: item for key, item in fields.items() if key not in _OUTPUT_ONLY}
    return value


def _shown(value: object) -> str:
    text = "" if value is None else value if isinstance(value, str) else wire_text(value)
    return excerpt(text, 0, len(text))
