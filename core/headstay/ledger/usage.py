"""Token counts of one reply in one form, whatever the wire format called them.

The identity that every constructor keeps: `input_tokens` is the whole prompt, and
`input_tokens = uncached_tokens + cache_read_tokens + cache_write_tokens`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import cast

_EPHEMERAL = re.compile(r"ephemeral_(\w+)_input_tokens")
_TTL_TOKENS = re.compile(r"ttl_(\w+)_tokens")


_ABSURD = 10**12


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply. All counts are whole tokens and never negative.

    A provider that counts its input without the cached part is brought to the inclusive form, and counts
    that contradict each other are widened, not rejected: accounting must not fail inside a model call.

    Args:
        input_tokens: The whole prompt, cache reads and writes included.
        cache_read_tokens: Prompt tokens served from the cache.
        cache_write_tokens: Prompt tokens written to the cache.
        write_by_ttl: The part of the writes whose lifetime is known, by TTL as the provider spells it
            (`"5m"`, `"1h"`, `"30m"`, `"12h"`).
        output_tokens: Everything generated, reasoning included.
    """

    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    write_by_ttl: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    output_tokens: int = 0

    def __post_init__(self) -> None:
        split = {ttl: n for ttl, tokens in self.write_by_ttl.items() if (n := _count(tokens))}
        read = _count(self.cache_read_tokens)
        written = max(_count(self.cache_write_tokens), sum(split.values()))
        for name, value in (
            ("input_tokens", max(_count(self.input_tokens), read + written)),
            ("cache_read_tokens", read),
            ("cache_write_tokens", written),
            ("write_by_ttl", split),
            ("output_tokens", _count(self.output_tokens)),
        ):
            object.__setattr__(self, name, value)

    @property
    def uncached_tokens(self) -> int:
        """Prompt tokens neither read from nor written to a cache: billed at the plain input price."""
        return self.input_tokens - self.cache_read_tokens - self.cache_write_tokens

    def attribute_writes(self, ttl: str) -> "Usage":
        """Count the writes of unknown lifetime as bought for `ttl`.

        Anthropic's streams repeat the totals in `message_delta` without the split by TTL (same source as
        `from_anthropic`); whoever set the markers knows what was bought.
        """
        rest = self.cache_write_tokens - sum(self.write_by_ttl.values())
        if not rest:
            return self
        return replace(self, write_by_ttl={**self.write_by_ttl, ttl: self.write_by_ttl.get(ttl, 0) + rest})


def from_anthropic(usage: Mapping[str, object]) -> Usage:
    """Read the `usage` object of an Anthropic Messages reply.

    Its `input_tokens` excludes cache reads and writes (provider page
    platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29).
    """
    read = _count(usage.get("cache_read_input_tokens"))
    split = _by_ttl(_EPHEMERAL, _mapping(usage.get("cache_creation")))
    written = max(_count(usage.get("cache_creation_input_tokens")), sum(split.values()))
    return Usage(
        input_tokens=_count(usage.get("input_tokens")) + read + written,
        cache_read_tokens=read,
        cache_write_tokens=written,
        write_by_ttl=split,
        output_tokens=_count(usage.get("output_tokens")),
    )


def from_openai_chat(usage: Mapping[str, object]) -> Usage:
    """Read the `usage` object of an OpenAI Chat Completions reply.

    `prompt_tokens` includes reads and writes (openai 3.57.0 types, seen 2026-11-29).
    """
    return _from_openai(usage.get("prompt_tokens"), usage.get("prompt_tokens_details"), usage.get("completion_tokens"))


def from_openai_responses(usage: Mapping[str, object]) -> Usage:
    """Read the `usage` object of an OpenAI Responses reply.

    `input_tokens` includes reads and writes; the writes may be split into 30 minutes and 12 hours
    (openai 3.57.0 types, seen 2026-11-29).
    """
    return _from_openai(usage.get("input_tokens"), usage.get("input_tokens_details"), usage.get("output_tokens"))


def from_langchain(usage_metadata: Mapping[str, object]) -> Usage:
    """Read the `usage_metadata` of a LangChain message.

    There `input_tokens` includes reads and writes for every provider. `cache_creation` holds only the writes
    without a known TTL (it is 0 where the `ephemeral_*` split exists), so the three are summed; if their sum
    does not fit into the prompt, `cache_creation` was the total already. On OpenAI's priority and flex tiers
    the names carry the tier as a prefix (langchain-anthropic 1.7.10, langchain-openai 1.7.4).
    """
    details = _mapping(usage_metadata.get("input_token_details"))
    total = _count(usage_metadata.get("input_tokens"))
    read = _sum_of("cache_read", details)
    split = _by_ttl(_EPHEMERAL, details)
    known = sum(split.values())
    unsplit = _sum_of("cache_creation", details)
    is_total = unsplit >= known and read + known + unsplit > total
    return Usage(
        input_tokens=total,
        cache_read_tokens=read,
        cache_write_tokens=unsplit if is_total else known + unsplit,
        write_by_ttl=split,
        output_tokens=_count(usage_metadata.get("output_tokens")),
    )


def _from_openai(total: object, details: object, output: object) -> Usage:
    detail = _mapping(details)
    return Usage(
        input_tokens=_count(total),
        cache_read_tokens=_count(detail.get("cached_tokens")),
        cache_write_tokens=_count(detail.get("cache_write_tokens")),
        write_by_ttl=_by_ttl(_TTL_TOKENS, _mapping(detail.get("cache_write_tokens_details"))),
        output_tokens=_count(output),
    )


def _sum_of(key: str, details: Mapping[str, object]) -> int:
    return sum(_count(value) for name, value in details.items() if name == key or name.endswith(f"_{key}"))


def _by_ttl(pattern: re.Pattern[str], counts: Mapping[str, object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in counts.items():
        match = pattern.fullmatch(name)
        if match and (tokens := _count(value)):
            found[match[1]] = tokens
    return found


def _count(value: object) -> int:
    """A token count, 0 for anything that is none: an absent field, a null, a negative, infinite or absurd number."""
    if isinstance(value, float) and isfinite(value):
        value = int(value)
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) and value < _ABSURD else 0


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
