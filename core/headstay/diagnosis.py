"""The provider's own account of a cache miss: how a request asks for it, and what its words mean in our causes.

Sources: platform.claude.com/docs/en/build-with-claude/cache-diagnostics and the types of anthropic 2.14.0
(`diagnostics`, GA 2026-09-23, Claude API only); the types of openai 3.57.0 (`comparison_response_id` in
`prompt_cache_options`, Responses only). Seen 2026-11-29.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from headstay.causes import Break, Cause
from headstay.prompt import Wire

_FOUND = "look for what changes requests on their way: a proxy, a gateway, a hook of the HTTP client"


class Meaning(NamedTuple):
    """What one of the provider's words says.

    Attributes:
        cause: In our vocabulary.
        path: The part of the request that it is about.
        tier: How early that part comes: 0 re-keys everything, 1 tools, 2 system, 3 messages, and 4 for what follows
            from other changes.
    """

    cause: Cause
    path: str
    tier: int


MEANINGS: Mapping[str, Meaning] = {
    "model_changed": Meaning(Cause.MODEL_CHANGED, "model", 0),
    "text_format_changed": Meaning(Cause.PARAMETERS_CHANGED, "text.format", 0),
    "reasoning_effort_changed": Meaning(Cause.PARAMETERS_CHANGED, "reasoning.effort", 0),
    "verbosity_changed": Meaning(Cause.PARAMETERS_CHANGED, "text.verbosity", 0),
    "service_tier_changed": Meaning(Cause.PARAMETERS_CHANGED, "service_tier", 0),
    "tools_changed": Meaning(Cause.TOOL_SCHEMA_CHANGED, "tools", 1),
    "system_changed": Meaning(Cause.SYSTEM_TEXT_CHANGED, "system", 2),
    "messages_changed": Meaning(Cause.HISTORY_EDITED, "messages", 3),
    "input_changed": Meaning(Cause.HISTORY_EDITED, "messages", 3),
    "context_compacted": Meaning(Cause.HISTORY_SUMMARISED, "messages", 3),
    # the key that headstay sets holds the hash of the head, so whatever changes the head changes it too
    "prompt_cache_key_changed": Meaning(Cause.PARAMETERS_CHANGED, "prompt_cache_key", 4),
}
"""The words that name a cause; `cache_hit`, `unavailable` and `..._not_found` name none."""

_TIERS = {"model": 0, "parameters": 0, "tools": 1, "head": 1, "system": 2, "semi-static": 2}


@dataclass(frozen=True, slots=True)
class Reply:
    """What a reply says of itself beside its usage, as far as it bears on the cache.

    Attributes:
        id: Its id; empty where nobody will ask about it.
        fingerprint: OpenAI's `system_fingerprint`, or empty.
        tier: The service tier that it was served with, or empty.
        word: The provider's word for a miss, or for why it has none; None where it said nothing (yet).
        missed: Tokens that the provider says were missed.
        reusable: Tokens of the compared request that could have been read (OpenAI).
    """

    id: str = ""
    fingerprint: str = ""
    tier: str = ""
    word: str | None = None
    missed: int | None = None
    reusable: int | None = None

    def kept(self, wire: Wire, *, noted: bool) -> str:
        """Return what is kept with a call for the one that continues it; empty where there is nothing.

        Args:
            wire: The wire format of the call.
            noted: Whether its request ended with a note that is not sent again.
        """
        if not (self.id or self.fingerprint or self.tier):
            return ""
        return json.dumps([wire, self.id, self.fingerprint, self.tier, noted], separators=(",", ":"))


class Earlier(NamedTuple):
    """What was kept of the reply that a call continues.

    Attributes:
        wire: The wire format that it came by; another one's ids mean nothing.
        id: Its id, or empty.
        fingerprint: OpenAI's `system_fingerprint`, or empty.
        tier: The service tier that it was served with, or empty.
        noted: Whether its request ended with a note that is not sent again.
    """

    wire: str = ""
    id: str = ""
    fingerprint: str = ""
    tier: str = ""
    noted: bool = False


def read_kept(text: str) -> Earlier:
    """Read what `Reply.kept` wrote."""
    return Earlier(*json.loads(text)) if text else Earlier()


def ask(body: dict[str, object], wire: Wire, earlier: Earlier) -> dict[str, object] | None:
    """Ask for the provider's diagnosis of a request.

    Args:
        body: A rendered request; it is not changed.
        wire: Its wire format: "anthropic-messages" or "openai-responses".
        earlier: The reply that it continues. Anthropic keeps a request for a later comparison only where that asks
            too, so the first one of a conversation asks with a null id.

    Returns:
        The body to send, or None where it stays as it is: the application asks itself, or there is nothing to ask.
    """
    name = earlier.id if earlier.wire == wire else ""
    if wire == "anthropic-messages":
        return None if "diagnostics" in body else {**body, "diagnostics": {"previous_message_id": name or None}}
    given = body.get("prompt_cache_options")
    options = cast("Mapping[str, object]", given) if isinstance(given, Mapping) else dict[str, object]()
    if not name or "comparison_response_id" in options:
        return None
    return {**body, "prompt_cache_options": {**options, "comparison_response_id": name}}


ASKED_WITH = ("diagnostics", "comparison_response_id")
"""The names that a server which does not know them would complain about."""


def read_diagnosis(told: object) -> tuple[str | None, int | None, int | None]:
    """Read the `diagnostics` of an Anthropic message, or the `prompt_cache_diagnostics` of an OpenAI response.

    Returns:
        The provider's word, the tokens it says were missed, and those that could have been reused. All of them are
        None where it found nothing, or where the comparison was not done yet when the reply was written.
    """
    if not isinstance(told, Mapping):
        return None, None, None
    found = cast("Mapping[str, object]", told)
    if "cache_miss_reason" in found:
        reason = found["cache_miss_reason"]
        if not isinstance(reason, Mapping):
            return None, None, None
        found = cast("Mapping[str, object]", reason)
    word = found.get("reason") or found.get("type")
    missed = found.get("cache_missed_input_tokens", found.get("cache_missed_tokens"))
    return str(word) if word else None, _count(missed), _count(found.get("comparison_reusable_tokens"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def told(reply: Reply, earlier: Earlier, *, input_tokens: int, head_tokens: float) -> tuple[Break, int] | None:
    """Say which change of the prefix the provider's word names.

    Args:
        reply: The reply with the word.
        earlier: What was kept of the reply that the request continues, the one that it was compared with.
        input_tokens: Tokens of the whole request.
        head_tokens: About how many of them are tools and system text.

    Returns:
        The change and the tier of `Meaning`; None where the word names none, or one that explains nothing: the note
        at the end of the earlier request is not sent again, so the provider finds its messages changed, although what
        could be read of them is all there.
    """
    meaning = MEANINGS.get(reply.word or "")
    if meaning is None or (earlier.noted and reply.word == "messages_changed"):
        return None
    if reply.word == "input_changed" and reply.missed is not None:
        shared = input_tokens - reply.missed
        if reply.reusable is not None and shared >= reply.reusable:
            return None
        if shared < head_tokens:
            meaning = MEANINGS["system_changed"]
    remedy = f"the provider compared it with the call before and says {reply.word}; here it left unchanged: {_FOUND}"
    return Break(meaning.cause, "application", meaning.path, remedy), meaning.tier


def combined(breaks: Sequence[Break], found: tuple[Break, int] | None) -> Sequence[Break]:
    """Put the provider's word in its place among the changes that were found here, the earliest first.

    What was found here is more precise, so it comes first where both are about the same part of the request.
    """
    named = [one for one in breaks if one.cause is not Cause.UNKNOWN]
    if found is None or any(_TIERS.get(one.path.partition("[")[0], 3) <= found[1] for one in named):
        return breaks
    return (found[0], *breaks)


def routed_elsewhere(reply: Reply, earlier: Earlier) -> str | None:
    """Say what shows that another backend served a reply than the one before; None where nothing does.

    OpenAI's `system_fingerprint` stands for the configuration that a model runs with, and each service tier is served
    apart (openai 3.57.0 types, seen 2026-11-29).
    """
    for what, before, now in (
        ("system_fingerprint", earlier.fingerprint, reply.fingerprint),
        ("service_tier", earlier.tier, reply.tier),
    ):
        if before and now and before != now:
            return f"the reply's {what} is {now}, that of the one before was {before}"
    return None
