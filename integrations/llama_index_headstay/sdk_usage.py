"""The usage that Anthropic reports, in full where LlamaIndex reads it.

LlamaIndex hands on a stream's last usage alone, which may leave out what the first event said of the cache; and its
token counter takes `input_tokens` for the whole prompt, while Anthropic leaves the cached part out of it (platform
page on prompt caching, seen 2026-11-29). So the counts of the first event are filled in, and the whole prompt is
written beside them under the name that the counter, and tracing, look for first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headstay.ledger.usage import Usage, from_anthropic

_CACHE = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")


@dataclass(frozen=True, slots=True)
class Started:
    """What the first event of a stream said of the prompt; of an answer that is no stream, nothing."""

    counts: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    def of(cls, message: Any) -> Self:
        """Read the message of `message_start`."""
        usage = getattr(message, "usage", None)
        return cls({name: getattr(usage, name, None) for name in _CACHE} if usage is not None else {})


def repaired(usage: Any, started: Started) -> Usage:
    """Fill a usage object in, and return what it then says.

    Args:
        usage: The SDK's object; it is changed.
        started: What the stream began with.
    """
    for name, value in started.counts.items():
        if value is not None and getattr(usage, name, None) is None:
            setattr(usage, name, value)
    whole = from_anthropic(usage.model_dump())
    usage.prompt_tokens = whole.input_tokens
    usage.completion_tokens = whole.output_tokens
    usage.total_tokens = whole.input_tokens + whole.output_tokens
    return whole
