"""What each OpenAI model accepts and how its prompt cache works.

Typed from the prompt-caching guide (developers.openai.com/api/docs/guides/prompt-caching, page state
2026-09-23) and the types of openai 3.57.0, both seen 2026-11-29.
"""

import re
from dataclasses import dataclass
from typing import Literal

Retention = Literal["in_memory", "24h"]

_VERSION = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?=$|-)")
_FIRST_MARKED = (5, 6)
_BOTH: tuple[Retention, ...] = ("in_memory", "24h")
_RESPONSES_FOR_TOOLS = ("gpt-6-astra", "gpt-6.1-sol")


@dataclass(frozen=True)
class ModelFacts:
    """The rules of one model.

    Attributes:
        name: The id as the request gave it.
        version: (major, minor) of a `gpt-` model, (0, 0) for others.
        marked: Whether it is GPT-5.6 or later: breakpoints, billed writes, exact boundaries.
        interval: Tokens between the implicit boundaries of an earlier model; 0 when `marked`.
        retentions: Values of `prompt_cache_retention` it takes; empty when `marked`.
        responses_for_tools: Whether function tools need the Responses API.
        reasoning_only: Whether it is an o-series model, which refuses `max_tokens`.
    """

    name: str
    version: tuple[int, int]
    marked: bool
    interval: int
    retentions: tuple[Retention, ...]
    responses_for_tools: bool
    reasoning_only: bool

    def default_retention(self, *, zero_data_retention: bool) -> Retention:
        """Return the retention that holds when a request names none (earlier models only)."""
        if self.retentions == _BOTH:
            return "in_memory" if zero_data_retention else "24h"
        return self.retentions[0]


def find_model(name: str) -> ModelFacts | None:
    """Return the facts of a model id, or None if there is no such model."""
    version = _version(name)
    if version is None and not _starts(name, "gpt-4o", "o1", "o3", "o3-mini", "o3-pro", "o4-mini"):
        return None
    marked = version is not None and version >= _FIRST_MARKED
    interval, retentions = (0, ()) if marked else _earlier(name)
    return ModelFacts(
        name=name,
        version=version or (0, 0),
        marked=marked,
        interval=interval,
        retentions=retentions,
        responses_for_tools=_starts(name, *_RESPONSES_FOR_TOOLS),
        reasoning_only=name.startswith("o"),
    )


def _version(name: str) -> tuple[int, int] | None:
    found = _VERSION.match(name)
    if found is None:
        return None
    version = (int(found[1]), int(found[2] or 0))
    return version if version in _KNOWN else None


_KNOWN = {(4, 1), (5, 0), (5, 1), (5, 2), (5, 3), (5, 4), (5, 5), (5, 6), (6, 0), (6, 1), (6, 2)}


def _starts(name: str, *families: str) -> bool:
    return any(name == family or name.startswith(f"{family}-") for family in families)


def _earlier(name: str) -> tuple[int, tuple[Retention, ...]]:
    if _starts(name, "gpt-5.5"):
        return 2_048, ("24h",)
    if _starts(name, "gpt-4o", "o1"):
        return 128, ("in_memory",)
    return 128, _BOTH
