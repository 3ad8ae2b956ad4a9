"""What each provider does with a prefix, as dated data.

Every row names where it was read and when. A model without a row gets the careful row of its wire: no parameter that
a server might reject, and the highest minimum, so that nothing is promised that was not read.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Literal

from headstay.prompt import Wire

AS_OF = "2026-11-29"
"""The day on which the sources below were read."""

_ANTHROPIC = (
    "platform.claude.com/docs/en/build-with-claude/prompt-caching and preserved-thinking; anthropic 2.14.0 types"
)
_OPENAI = "developers.openai.com/api/docs/guides/prompt-caching (state of 2026-09-23); openai 3.57.0 types"

Provider = Literal["anthropic", "openai", "vllm", "unknown"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The caching behaviour of one family of models.

    Attributes:
        provider: Who runs the model.
        models: Patterns of model ids, as in `fnmatch`.
        min_tokens: A shorter prefix is not cached.
        max_markers: Explicit breakpoints a request may carry; 0 where there are none.
        ttls: Name to seconds of the times to live on offer.
        default_ttl: The name used when none is set; empty where it is not chosen per request.
        unnamed_ttl_seconds: Seconds that a prefix lives where its TTL has no name here; infinite where none expires.
        read_multiplier: Price of a cached token relative to an uncached one.
        write_multipliers: Price of writing a token, by TTL name.
        step: Reported reads are rounded down to a multiple of this many tokens.
        lookback: Positions a marker looks back for an earlier entry, or None where there is no limit.
        explicit_mode: Whether caching must be put into explicit mode for markers to govern (OpenAI 5.6+).
        affinity: The request field that routes to one cache, or None.
        retention: The request field that takes the TTL where there are no markers, or None.
        in_place_system: Whether a system message may stand last in the messages.
        late_tools: Wires on which a tool can be appended to a running conversation.
        several_system: Whether more than one leading system block is accepted.
        binds_thinking: Whether thinking blocks are bound to the exact history.
        thinks: Whether the model thinks when the request does not say.
        lane_parameters: Request fields that re-key everything, tools and system included.
        message_parameters: Request fields that re-key only the messages.
        images_rekey_messages: Whether the first image of a conversation drops the cached messages.
        diagnoses: Wires on which the API says, when asked, why a prefix was not read.
        allowed_tools: Whether a request can name the tools that it offers out of those that it declares.
        tolerated_tokens: Reads that are short by so much are not called short: expectations are estimates.
        requests_per_minute: Above this many with one head and one cache key, some go to another machine, which has
            not cached them; 0 where no such figure was read.
        source: Where the row was read.
        as_of: When.
    """

    provider: Provider
    models: tuple[str, ...]
    min_tokens: int
    max_markers: int
    ttls: Mapping[str, int]
    default_ttl: str
    read_multiplier: float
    write_multipliers: Mapping[str, float] = field(default_factory=dict[str, float])
    step: int = 1
    lookback: int | None = None
    explicit_mode: bool = False
    affinity: str | None = None
    retention: str | None = None
    in_place_system: bool = False
    late_tools: tuple[Wire, ...] = ()
    several_system: bool = True
    binds_thinking: bool = False
    thinks: bool = False
    lane_parameters: tuple[str, ...] = ()
    message_parameters: tuple[str, ...] = ()
    images_rekey_messages: bool = False
    diagnoses: tuple[Wire, ...] = ()
    unnamed_ttl_seconds: float = 300
    allowed_tools: bool = True
    tolerated_tokens: int = 2_000
    requests_per_minute: int = 0
    source: str = ""
    as_of: str = AS_OF

    @property
    def known(self) -> bool:
        """Whether the row was read from the provider's pages, not assumed."""
        return self.provider != "unknown"

    def floored(self, tokens: float) -> int:
        """Round an expectation down to what the provider reports: whole steps, and nothing below the minimum."""
        whole = int(tokens) // self.step * self.step
        return whole if whole >= self.min_tokens else 0

    def ttl_seconds(self, ttl: str | None) -> float:
        """Return the seconds of a TTL name, or of the default for None."""
        return self.ttls.get(ttl or self.default_ttl, self.unnamed_ttl_seconds)


_SNAPSHOTS = ("", "-20[0-9][0-9][0-9][0-9][0-9][0-9]", "-latest", "-0")
"""How a model's name may go on: Anthropic's dated snapshots and aliases. `claude-opus-5-9` is another model."""


def _families(models: str) -> tuple[str, ...]:
    return tuple(pattern for name in models.split("|") for pattern in (name, f"{name}-*"))


def _anthropic(
    models: str,
    minimum: int,
    read: float,
    *,
    in_place: bool = False,
    late: bool = False,
    binds: bool = False,
    thinks: bool = False,
) -> CacheRules:
    return CacheRules(
        provider="anthropic",
        models=tuple(f"{name}{end}" for name in models.split("|") for end in _SNAPSHOTS),
        min_tokens=minimum,
        max_markers=4,
        ttls={"5m": 300, "1h": 3600},
        default_ttl="5m",
        read_multiplier=read,
        write_multipliers={"5m": 1.25, "1h": 2.0},
        lookback=20,
        in_place_system=in_place,
        late_tools=("anthropic-messages",) if late else (),
        binds_thinking=binds,
        thinks=thinks,
        lane_parameters=("speed",),
        message_parameters=("tool_choice", "thinking", "output_config.effort", "output_config.format"),
        images_rekey_messages=True,
        diagnoses=("anthropic-messages",),  # cache-diagnostics page: GA 2026-09-23, on the Claude API only
        source=_ANTHROPIC,
    )


_OPENAI_LANE = (
    "parallel_tool_calls",
    "text.format",
    "response_format",
    "text_format",
    "reasoning.effort",
    "reasoning_effort",
    "text.verbosity",
    "verbosity",
    "context_management",
    "service_tier",
    "prompt_cache_key",
)


def _openai_explicit(models: str, read: float) -> CacheRules:
    return CacheRules(
        provider="openai",
        models=_families(models),
        min_tokens=1024,
        max_markers=4,
        # "12h" is in the SDK's types and a price map, on no page seen yet; a breakpoint may name it on both APIs.
        ttls={"30m": 1800, "12h": 43_200},
        default_ttl="30m",
        read_multiplier=read,
        write_multipliers={"30m": 1.25, "12h": 2.5},
        explicit_mode=True,
        affinity="prompt_cache_key",
        in_place_system=True,
        # The page names `additional_tools` beside these models; for earlier ones and for Chat Completions nothing does.
        late_tools=("openai-responses",),
        diagnoses=("openai-responses",),  # types of openai 3.57.0: a field of the options that these models take
        lane_parameters=_OPENAI_LANE,
        source=_OPENAI,
    )


_LIVES = {"in_memory": 300, "24h": 1800}
"""Seconds that may be promised: in memory 5 to 10 minutes, and typically 30 with "24h"."""


def _openai_implicit(
    models: str, read: float, *, step: int = 128, lives: tuple[str, ...] = ("in_memory", "24h")
) -> CacheRules:
    return CacheRules(
        provider="openai",
        models=_families(models),
        min_tokens=1024,
        max_markers=0,
        ttls={name: _LIVES[name] for name in lives},
        default_ttl=lives[0],
        read_multiplier=read,
        step=step,
        affinity="prompt_cache_key",
        retention="prompt_cache_retention",
        in_place_system=True,
        lane_parameters=_OPENAI_LANE,
        requests_per_minute=15,  # the guide says about, and for all requests with one prefix and one key
        source=_OPENAI,
    )


RULES: tuple[CacheRules, ...] = (
    # Not named among the models that take a system message in place, and so not assumed to: Mythos, Haiku 5.5.
    # `tool_addition` stands in such a message, so those that take none are left out of it too. Fable 5.2 is on no list
    # of models that take it (profiles of langchain-anthropic 1.7.10).
    _anthropic("claude-fable-5-2", 512, 0.025, in_place=True, binds=True, thinks=True),
    _anthropic("claude-fable-5-1", 512, 0.025, in_place=True, late=True, binds=True, thinks=True),
    _anthropic("claude-mythos-5-2|claude-mythos-5-1", 512, 0.025, binds=True, thinks=True),
    _anthropic("claude-fable-5", 512, 0.1, in_place=True, late=True),
    _anthropic("claude-mythos-5", 512, 0.1),
    _anthropic("claude-opus-5-5|claude-sonnet-5-5", 512, 0.05, in_place=True, late=True, binds=True, thinks=True),
    _anthropic("claude-haiku-5-5", 512, 0.1, binds=True),
    _anthropic("claude-opus-5", 512, 0.1, in_place=True, late=True),
    _anthropic("claude-opus-4-8", 1024, 0.1, in_place=True, late=True),
    _anthropic("claude-mythos-preview|claude-opus-4-7", 2048, 0.1),
    _anthropic("claude-opus-4-6|claude-opus-4-5|claude-haiku-4-5", 4096, 0.1),
    _anthropic("claude-sonnet-5|claude-sonnet-4-6|claude-sonnet-4-5|claude-sonnet-4", 1024, 0.1),
    _anthropic("claude-opus-4-1|claude-opus-4", 1024, 0.1),
    _openai_explicit("gpt-6.1-sol|gpt-6.1-terra|gpt-6.2", 0.05),
    _openai_explicit("gpt-6-astra|gpt-6-sol|gpt-6-luna|gpt-5.6", 0.1),
    _openai_implicit("gpt-5.5", 0.1, step=2048, lives=("24h",)),
    _openai_implicit("gpt-5.4|gpt-5.3|gpt-5.2|gpt-5.1|gpt-5", 0.1),
    _openai_implicit("gpt-4.1|o3|o4-mini", 0.25),
    _openai_implicit("gpt-4o|o1", 0.5, lives=("in_memory",)),
)
"""First match wins. No pattern reaches into a generation that was not read about."""

_CAREFUL_ANTHROPIC = CacheRules(
    provider="unknown",
    models=("*",),
    min_tokens=4096,
    max_markers=4,
    ttls={"5m": 300, "1h": 3600},
    default_ttl="5m",
    read_multiplier=0.1,
    write_multipliers={"5m": 1.25, "1h": 2.0},
    lookback=20,
    lane_parameters=("speed",),
    message_parameters=("tool_choice", "thinking", "output_config.effort", "output_config.format"),
    images_rekey_messages=True,
    source="assumed: the strictest of the rows of the same wire",
)

_CAREFUL_OTHER = CacheRules(
    provider="unknown",
    models=("*",),
    min_tokens=4096,
    max_markers=0,
    ttls={},
    default_ttl="",
    read_multiplier=1.0,
    several_system=False,
    lane_parameters=_OPENAI_LANE,
    source="assumed: order only, no marker and no parameter",
)


_VLLM_LANE = (
    *("cache_salt", "chat_template", "chat_template_kwargs", "reasoning_effort"),
    *("documents", "add_special_tokens"),
)

VLLM = CacheRules(
    provider="vllm",
    models=("*",),
    min_tokens=16,
    max_markers=0,
    ttls={},  # blocks are kept until others need their room, the one that was used longest ago first
    default_ttl="",
    unnamed_ttl_seconds=math.inf,
    read_multiplier=0.0,
    step=16,  # --block-size; 16 on CUDA by default
    # A chat template decides what it takes. One leading system message, and no other, is what all of them take.
    several_system=False,
    allowed_tools=False,  # `tool_choice` takes "none", "auto", "required" and the name of one function
    # The last three are in no prompt, but hosts make every tool strict beside them, and the SDK then takes no other.
    lane_parameters=(
        *_VLLM_LANE,
        *(f"extra_body.{name}" for name in _VLLM_LANE),
        *("response_format", "text.format", "text_format"),
    ),
    source="source of vllm 0.32.0 (entrypoints/openai, v1/core) and its answers on a CPU",
)
"""A server of vLLM's, whatever the model; `headstay.providers.vllm.Engine` knows its block."""


@lru_cache(maxsize=256)
def find_rules(wire: Wire, model: str) -> CacheRules:
    """Return the rules of a model.

    Args:
        wire: The wire format of the request.
        model: The model id, or an Azure deployment's model name; a `provider/` prefix is ignored.

    Returns:
        The first row whose pattern matches, else the careful row of the wire (`known` is then False).
    """
    name = model.rsplit("/", 1)[-1].lower()
    provider = "anthropic" if wire == "anthropic-messages" else "openai"
    if wire != "host-messages":
        for rules in RULES:
            if rules.provider == provider and any(fnmatchcase(name, pattern) for pattern in rules.models):
                return rules
    return _CAREFUL_ANTHROPIC if wire == "anthropic-messages" else _CAREFUL_OTHER
