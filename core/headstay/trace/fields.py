"""Where logs put times, ids and addresses: what the kinds of log have in common."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import cast
from urllib.parse import urlsplit

from headstay.comparison.segment import Json, mapping
from headstay.prompt import Wire

CONVERSATION = (
    *("conversation", "conversation_id", "conversationId", "session_id", "sessionId", "session", "chat_id", "chatId"),
    *("thread_id", "threadId"),
)
"""Names under which a record or its metadata holds the id of the conversation."""

_HEADERS = ("x-session-id", "x-conversation-id", "x-grok-conv-id", "helicone-session-id")
# Counted from the epoch in seconds, milliseconds, microseconds or nanoseconds; the first three end in the year 5138.
_UNITS = ((1e11, 1.0), (1e14, 1e3), (1e17, 1e6), (float("inf"), 1e9))
_HOSTS = {
    "anthropic.com": "anthropic",
    "openai.com": "openai",
    "openai.azure.com": "azure",
    "cognitiveservices.azure.com": "azure",
    "openrouter.ai": "openrouter",
    "deepseek.com": "deepseek",
    "x.ai": "x-ai",
    "mistral.ai": "mistral",
    "groq.com": "groq",
    "moonshot.ai": "moonshotai",
}
_CALLS: Mapping[str, Wire] = {
    "/messages": "anthropic-messages",
    "/chat/completions": "openai-chat",
    "/responses": "openai-responses",
}
_OTHER_CALLS = re.compile(
    r"/(?:embeddings|moderations|rerank|count_tokens|input_tokens|compact|images/\w+|audio/\w+)/?$", re.ASCII
)


def decoded(value: object) -> object:
    """Return what the JSON text of an object or a list holds; any other value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def json_object(value: object) -> Json:
    """Return a JSON object that is given as it is or as text; an empty one for anything else."""
    return mapping(decoded(value))


def json_objects(value: object) -> list[Json]:
    """Return the JSON objects of a list; none for anything else."""
    if not isinstance(value, (list, tuple)):
        return []
    return [cast("Json", item) for item in cast("Sequence[object]", value) if isinstance(item, Mapping)]


def first_of(record: Json, names: Sequence[str]) -> object:
    """Return the first of several fields that is there and says something, or None."""
    for name in names:
        value = record.get(name)
        if value is not None and value != "":
            return value
    return None


def id_of(value: object) -> str:
    """Return an id as text; empty for what is none."""
    if isinstance(value, Mapping):
        value = cast("Json", value).get("id")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else ""


def moment(value: object) -> float | None:
    """Return a time in seconds since the epoch.

    Args:
        value: Seconds, milliseconds, microseconds or nanoseconds as a number or in digits, or a time in ISO 8601;
            one without a zone is in UTC.

    Returns:
        The time, or None for what is no time.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text)
        except ValueError:
            return _from_text(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    if not isfinite(number) or number < 0:
        return None
    return next(number / unit for limit, unit in _UNITS if number < limit)


def _from_text(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text.removesuffix(" UTC").replace(",", "."))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def conversation_of(record: Json, body: Json, headers: Json | None = None) -> str:
    """Return the id of the conversation; empty where nothing gives one.

    Args:
        record: The record of the log, apart from the request body.
        body: The request body.
        headers: The request's headers.
    """
    sent = {name.lower(): value for name, value in (headers or {}).items()}
    found = (
        _conversation_in(record),
        _conversation_in(json_object(record.get("metadata"))),
        first_of(body, ("conversation", "session_id")),
        _conversation_in(mapping(body.get("metadata"))),
        first_of(sent, _HEADERS),
    )
    return next((name for value in found if (name := id_of(value))), "")


def _conversation_in(place: Json) -> object:
    """Return what may be the id of the conversation; a number of a thread is the operating system's."""
    found = first_of(place, CONVERSATION[:-2])
    return found or next((name for key in CONVERSATION[-2:] if isinstance(name := place.get(key), str) and name), None)


def call_at(url: object) -> Wire | None:
    """Return the wire format of the API at a URL or path; None where it is none of the three that are known."""
    path = url.partition("?")[0].rstrip("/") if isinstance(url, str) else ""
    return next((wire for ending, wire in _CALLS.items() if path.endswith(ending)), None)


def is_other_call(url: object) -> bool:
    """Whether a URL or path is of an API that makes no text, such as embeddings."""
    return isinstance(url, str) and bool(_OTHER_CALLS.search(url.partition("?")[0]))


def provider_at(url: object) -> str:
    """Return whose API a URL is of, as `genai-prices` spells it; empty where that is not known."""
    try:
        host = urlsplit(url).hostname if isinstance(url, str) else None
    except ValueError:
        return ""
    return next((provider for name, provider in _HOSTS.items() if f".{host}".endswith(f".{name}")), "")
