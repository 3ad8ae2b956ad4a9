"""What a logged response says: who answered, the token counts, the texts and ids that find the next request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.diagnosis import read_diagnosis
from headstay.ledger.usage import Usage, from_anthropic, from_langchain, from_openai_chat, from_openai_responses
from headstay.prompt import Wire
from headstay.trace.fields import id_of, json_object, json_objects
from headstay.trace.streamed import events_of, joined

_INSIDE = ("body", "response", "message", "result", "data")
_DEPTH = 3
_TEXTS = ("text", "output_text")
_TIERS = ("flex", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is known of the answer to a request; the fields are those of `Entry`.

    Attributes:
        wire: The wire format of the response; None where it does not show.
        usage: The token counts, or None.
        reply_id: The response's id, or empty.
        reply: The texts, then the ids of the tool calls.
        served_by: Which of several providers or backends answered; empty where it is not told.
        diagnosis: The provider's own word for a cache miss; empty where it said nothing.
        context: Variant of the call that changes its price.
        failed: Whether the response is an error.
    """

    wire: Wire | None = None
    usage: Usage | None = None
    reply_id: str = ""
    reply: tuple[str, ...] = ()
    served_by: str = ""
    diagnosis: str = ""
    context: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    failed: bool = False


def answer_of(response: object) -> Answer:
    """Read a response: an Anthropic message, a chat completion or an OpenAI Responses object.

    Args:
        response: The object, or its JSON text, or its events as a list or as server-sent events, or what holds one of
            them together with an HTTP status.

    Returns:
        What it says; an empty answer for what is no response. Never raises.
    """
    found, failed = _unwrapped(response)
    if failed or found.get("type") == "error" or (found.get("error") and not found.get("choices")):
        return Answer(failed=True)
    wire = wire_of_response(found)
    if wire is None:
        return Answer(usage=usage_of(found.get("usage")))
    usage = mapping(found.get("usage"))
    texts, calls = {"anthropic-messages": _said_message, "openai-chat": _said_chat}.get(wire, _said_response)(found)
    return Answer(
        wire=wire,
        usage=usage_of(usage, wire),
        reply_id=id_of(found.get("id")),
        reply=(*(text for text in texts if text.strip()), *(call for call in calls if call)),
        served_by=id_of(found.get("provider")) or id_of(found.get("system_fingerprint")),
        diagnosis=_diagnosis(found),
        context=price_context(found, usage),
        failed=found.get("status") == "failed",
    )


def wire_of_response(found: Json) -> Wire | None:
    """Tell the wire format of a response object; None for what is none."""
    if found.get("type") == "message" and found.get("role") == "assistant" and "content" in found:
        return "anthropic-messages"
    if isinstance(found.get("choices"), (list, tuple)):
        return "openai-chat"
    if found.get("object") == "response" or (isinstance(found.get("output"), (list, tuple)) and "input" not in found):
        return "openai-responses"
    return None


def wire_of_usage(counts: Json) -> Wire | None:
    """Tell the wire format that a usage object is of by the names that only one has."""
    if "prompt_tokens" in counts:
        return "openai-chat"
    return "anthropic-messages" if _has_anthropic_counts(counts) else None


def usage_of(usage: object, wire: Wire | None = None) -> Usage | None:
    """Read a usage object of any spelling: a provider's, LiteLLM's, LangChain's, or that of `Usage` itself.

    Args:
        usage: The object.
        wire: The wire format it came with, where the names alone do not tell.

    Returns:
        The counts, or None where it holds none.
    """
    counts = mapping(usage)
    if not counts:
        return None
    if "prompt_tokens" in counts:
        found = _chat_usage(counts)
    elif "input_token_details" in counts:
        found = from_langchain(counts)
    elif "cache_read_tokens" in counts:
        names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
        numbers = {name: cast("int", counts.get(name)) for name in names}
        found = Usage(**numbers, write_by_ttl=cast("Mapping[str, int]", mapping(counts.get("write_by_ttl"))))
    elif "input_tokens_details" in counts or (wire != "anthropic-messages" and not _has_anthropic_counts(counts)):
        found = from_openai_responses(counts)
    else:
        found = from_anthropic(counts)
    return found if found.input_tokens or found.output_tokens else None


def price_context(*places: Json) -> dict[str, str]:
    """Return the variant of a call that changes its price, from its request, its response or the usage object."""
    context: dict[str, str] = {}
    for place in places:
        tier = place.get("service_tier")
        if tier in _TIERS:
            context["service_tier"] = str(tier)
        elif tier == "batch":
            context["processing"] = "batch"
        if place.get("speed") == "fast":
            context["speed"] = "fast"
    return context


def _unwrapped(response: object) -> tuple[Json, bool]:
    """Return the response object that something holds, and whether an HTTP status says that the call failed."""
    for _ in range(_DEPTH):
        if isinstance(response, str) and response.lstrip().startswith(("data:", "event:")):
            response = joined(events_of(response))
        elif isinstance(response, (list, tuple)):
            response = joined(json_objects(cast("object", response)))
        found = json_object(response)
        status = found.get("status_code", found.get("status"))
        if isinstance(status, int) and status >= 400:
            return found, True
        inside = next((found[name] for name in _INSIDE if isinstance(found.get(name), (str, Mapping, list))), None)
        if inside is None or wire_of_response(found) is not None or found.get("error"):
            return found, False
        response = inside
    return json_object(response), False


def _said_message(message: Json) -> tuple[list[str], list[str]]:
    blocks = json_objects(message.get("content"))
    return _texts(blocks), [id_of(block.get("id")) for block in blocks if block.get("type") == "tool_use"]


def _said_chat(completion: Json) -> tuple[list[str], list[str]]:
    texts: list[str] = []
    calls: list[str] = []
    for choice in json_objects(completion.get("choices")):
        message = mapping(choice.get("message"))
        content = message.get("content")
        texts += [content] if isinstance(content, str) else _texts(json_objects(content))
        calls += [id_of(call.get("id")) for call in json_objects(message.get("tool_calls"))]
    return texts, calls


def _said_response(response: Json) -> tuple[list[str], list[str]]:
    items = json_objects(response.get("output"))
    texts = [text for item in items for text in _texts(json_objects(item.get("content")))]
    return texts, [id_of(item.get("call_id")) for item in items]


def _texts(blocks: Sequence[Json]) -> list[str]:
    return [text for block in blocks if block.get("type") in _TEXTS and isinstance(text := block.get("text"), str)]


def _diagnosis(response: Json) -> str:
    """Return the provider's word for a miss."""
    words = (read_diagnosis(response.get(name))[0] for name in ("diagnostics", "prompt_cache_diagnostics"))
    return next((word for word in words if word and word != "cache_hit"), "")


def _has_anthropic_counts(counts: Json) -> bool:
    return any(name.startswith(("cache_creation", "cache_read_input")) for name in counts)


def _chat_usage(counts: Json) -> Usage:
    """Read the usage of a chat completion, with the fields that gateways and other providers add to it.

    LiteLLM (1.110.2) counts reads and writes into `prompt_tokens` for every provider and repeats Anthropic's names;
    DeepSeek names only the reads.
    """
    details = mapping(counts.get("prompt_tokens_details"))
    more = {
        "cached_tokens": counts.get("prompt_cache_hit_tokens"),
        "cache_write_tokens": details.get("cache_creation_tokens"),
    }
    plain = from_openai_chat(counts)
    every = (
        plain,
        from_anthropic(counts),
        from_anthropic({"cache_creation": details.get("cache_creation_token_details")}),
        from_openai_chat({"prompt_tokens_details": more}),
    )
    return replace(
        plain,
        cache_read_tokens=max(one.cache_read_tokens for one in every),
        cache_write_tokens=max(one.cache_write_tokens for one in every),
        write_by_ttl=next((one.write_by_ttl for one in every if one.write_by_ttl), plain.write_by_ttl),
    )
