"""The cache rules the oracle judges by, typed from the provider pages and from nothing else in this package.

Sources, all seen 2026-11-29: platform.claude.com/docs/en/build-with-claude/prompt-caching and the models pages;
developers.openai.com/api/docs/guides/prompt-caching (page state 2026-09-23) and the types of openai 3.57.0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headstay.emulator.reply import Wire


@dataclass(frozen=True)
class OracleRules:
    """How one model's prompt cache matches, on the wire it is asked over.

    Attributes:
        minimum: Shortest cached prefix, in tokens.
        ttls: Seconds since the last use that each lifetime lasts; the first one is the default.
        marked: Whether a prefix must end at a breakpoint (Anthropic, GPT-5.6 and later). Otherwise any common
            prefix counts, floored to `interval`, and writes are free of charge.
        interval: Tokens between the boundaries of an unmarked cache. Reports are floored to 128, so 128 stands
            for an interval that is not known, and every interval is a multiple of it.
        images_split_messages: Whether the first image of a conversation leaves the messages cached without it
            unreadable, while tools and system stay (Anthropic).
    """

    minimum: int
    ttls: Mapping[str, float]
    marked: bool
    interval: int = 1
    images_split_messages: bool = False

    def ttl_seconds(self, ttl: str | None) -> float:
        """Return the seconds of a lifetime, of the default one for None.

        Raises:
            ValueError: The model has no such lifetime.
        """
        if ttl is None:
            return next(iter(self.ttls.values()))
        if ttl not in self.ttls:
            raise ValueError(f"ttl {ttl!r} is not offered by this model; choose from {list(self.ttls)}")
        return self.ttls[ttl]


_ANTHROPIC_MINIMUM: Mapping[str, int] = {
    "fable-5-2": 512,
    "mythos-5-2": 512,
    "fable-5-1": 512,
    "mythos-5-1": 512,
    "fable-5": 512,
    "mythos-5": 512,
    "opus-5-5": 512,
    "opus-5": 512,
    "sonnet-5-5": 512,
    "haiku-5-5": 512,
    "opus-4-8": 1_024,
    "sonnet-5": 1_024,
    "sonnet-4-6": 1_024,
    "sonnet-4-5": 1_024,
    "opus-4-1": 1_024,
    "opus-4": 1_024,
    "sonnet-4": 1_024,
    "mythos-preview": 2_048,
    "opus-4-7": 2_048,
    "opus-4-6": 4_096,
    "opus-4-5": 4_096,
    "haiku-4-5": 4_096,
}
"""The minimum of fable-5-2 and mythos-5-2 is inferred from 5-1; that of mythos-preview is contested (512)."""

_ANTHROPIC_TTLS = {"5m": 300.0, "1h": 3_600.0}
_MARKED_TTLS = {"30m": 1_800.0, "12h": 43_200.0}
_IN_MEMORY = {"in_memory": 600.0}
"""The guide says 5 to 10 minutes of idle time; what is possible binds an upper bound. Its cap of 1 hour is left out."""
_DAY = {"24h": 1_800.0}
"""Extended retention: about 30 minutes of idle time is typical, though up to 24 hours are allowed."""

_DATE = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)$")
_GPT = re.compile(r"gpt-(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:-[a-z][a-z0-9-]*)?")
_BEFORE_GPT_5 = re.compile(r"(?:gpt-4o|o1|o3|o4-mini)(?:-[a-z][a-z0-9-]*)?")
_EARLY = re.compile(r"gpt-4o|o1")


def rules_for(model: str, wire: Wire) -> OracleRules:
    """Look up the rules of a model.

    Raises:
        ValueError: The model is unknown, or is not sold over this wire.
    """
    name = _DATE.sub("", model)
    if wire == "anthropic-messages":
        return _anthropic(name)
    return _openai(name)


def _anthropic(name: str) -> OracleRules:
    minimum = _ANTHROPIC_MINIMUM.get(name.removeprefix("claude-")) if name.startswith("claude-") else None
    if minimum is None:
        known = ", ".join(f"claude-{family}" for family in _ANTHROPIC_MINIMUM)
        raise ValueError(f"no cache rules for {name!r} on anthropic-messages; known models: {known}")
    return OracleRules(minimum, _ANTHROPIC_TTLS, marked=True, images_split_messages=True)


def _openai(name: str) -> OracleRules:
    found = _GPT.fullmatch(name)
    version = [int(found["major"]), int(found["minor"] or 0)] if found else [0, 0]
    if version >= [5, 6]:
        return OracleRules(1_024, _MARKED_TTLS, marked=True)
    if version == [5, 5]:
        return OracleRules(1_024, _DAY, marked=False, interval=2_048)
    if version >= [4, 1]:
        return OracleRules(1_024, {**_DAY, **_IN_MEMORY}, marked=False, interval=128)
    if _BEFORE_GPT_5.fullmatch(name):
        ttls = _IN_MEMORY if _EARLY.match(name) else {**_DAY, **_IN_MEMORY}
        return OracleRules(1_024, ttls, marked=False, interval=128)
    raise ValueError(
        f"no cache rules for {name!r} on an OpenAI wire; known: gpt-4.1 and later, gpt-4o, o1, o3, o4-mini"
    )
