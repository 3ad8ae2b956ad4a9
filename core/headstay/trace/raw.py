"""Request bodies as they were sent: one a record, bare or with what an application logged beside it.

The plain form is `{"request": body, "response_usage": {...}, "ts": seconds, "conversation": id}`. Taken as well are
the names that applications use for the same, lines of the providers' batch files, and bodies given as JSON text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headstay.comparison.segment import Json, mapping
from headstay.comparison.wire_form import objects, wire_of
from headstay.errors import WireError
from headstay.prompt import Wire
from headstay.trace.answer import Answer, answer_of, price_context, usage_of, wire_of_response, wire_of_usage
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import (
    call_at,
    conversation_of,
    first_of,
    id_of,
    is_other_call,
    json_object,
    json_objects,
    moment,
    provider_at,
)
from headstay.trace.provider_names import provider_id

_REQUESTS = ("request", "request_body", "requestBody", "params", "body", "payload", "kwargs", "data")
_IN_HTTP = ("body", "json", "json_data", "content", "data", "postData", "text")
_RESPONSES = ("response", "response_body", "responseBody", "output", "result", "completion", "reply", "answer")
_USAGES = ("response_usage", "responseUsage", "usage", "token_usage")
_STARTED = (
    *("ts", "timestamp", "time", "started", "started_at", "start_time", "startTime", "sent_at", "request_time"),
    *("created_at", "createdAt", "datetime", "@timestamp"),
)
_ANSWERED = (
    *("answered", "answered_at", "first_token_at", "first_token_time", "completion_start_time", "completionStartTime"),
    *("ended_at", "end_time", "endTime", "finished_at", "completed_at"),
)
_LATENCIES = ("ttft_ms", "time_to_first_token_ms", "latency_ms", "duration_ms", "response_time_ms")
_ACCOUNTS = ("account", "account_id", "workspace", "workspace_id", "organization", "organization_id", "api_key_alias")
_STATUSES = ("status_code", "statusCode", "http_status", "status")
_URLS = ("url", "endpoint", "path")
# What stands beside the fields of a body where it is the record itself, and what no API takes.
_NOT_SENT = frozenset(
    {*_RESPONSES, *_USAGES, *_STARTED, *_ANSWERED, *_LATENCIES, *_ACCOUNTS, *_STATUSES, *_URLS}
    | {"error", "headers", "request_headers", "conversation_id", "thread_id", "threadId", "sessionId", "request_id"}
)
_FAILURES = frozenset({"error", "failed", "failure"})
_PROVIDERS = frozenset(
    {"anthropic", "openai", "azure", "aws", "google", "openrouter", "deepseek", "mistral", "groq", "x-ai", "together"}
    | {"fireworks", "moonshotai", "cohere", "cerebras"}
)
_OTHER_MODELS = re.compile(r"embedding|moderation|rerank|whisper|tts-|dall-e|gpt-image")


@dataclass(frozen=True, slots=True)
class _Found:
    """A request in a record.

    Attributes:
        body: The request body.
        url: Where it was sent, or None.
        headers: Its headers.
        bare: Whether the record itself is the body.
    """

    body: Json
    url: object
    headers: Json
    bare: bool = False


def entries(record: Mapping[str, object], line: int) -> Iterator[Entry | Skipped]:
    """Read a record that is a request body or holds one.

    Args:
        record: The record.
        line: The number of its line.

    Yields:
        The request, or why there is none.
    """
    found = _found(record)
    if found is None:
        yield _no_request(record, line)
        return
    answer = _answer(record)
    if is_other_call(found.url) or (
        "messages" not in found.body and _OTHER_MODELS.search(str(found.body.get("model")))
    ):
        yield Skipped(line, "a call that makes no text", bad=False)
    elif answer.failed or _has_failed(record):
        yield Skipped(line, "a call that failed", bad=False)
    else:
        yield _entry(record, line, found, answer)


def request_wire(body: Json, told: Wire | None = None) -> Wire:
    """Tell the wire format of a logged body.

    Args:
        body: The request body.
        told: What is known of it from elsewhere, for a body that does not say.

    Raises:
        WireError: It is no request body.
    """
    wire, sure = wire_of(body, "body")
    if told is not None and not sure and told != "openai-responses":
        wire = told
    if wire == "openai-responses":
        given = body.get("input", ())
        if not isinstance(given, str):
            objects(given, "input")
    else:
        objects(body.get("messages"), "messages")
    return wire


def _entry(record: Json, line: int, found: _Found, answer: Answer) -> Entry | Skipped:
    body = found.body
    if found.bare and not _NOT_SENT.isdisjoint(body):
        body = {name: value for name, value in body.items() if name not in _NOT_SENT}
    counts = first_of(record, _USAGES)
    provider = _provider(record.get("provider")) or provider_at(found.url)
    told = call_at(found.url) or answer.wire or wire_of_usage(mapping(counts))
    if told is None and provider == "anthropic":
        told = "anthropic-messages"
    try:
        wire = request_wire(body, told)
    except WireError as problem:
        return Skipped(line, str(problem))
    context = {**price_context(body, mapping(counts)), **answer.context}
    if "custom_id" in record:
        context["processing"] = "batch"
    started = _time(record, _STARTED)
    return Entry(
        line=line,
        wire=wire,
        body=body,
        conversation=conversation_of(record, body, found.headers),
        account=id_of(first_of(record, _ACCOUNTS)),
        provider=provider,
        served_by=answer.served_by,
        started=started,
        answered=_answered(record, started),
        usage=usage_of(counts, wire) or answer.usage,
        reply_id=answer.reply_id,
        reply=answer.reply,
        diagnosis=answer.diagnosis,
        context=context,
    )


def _found(record: Json) -> _Found | None:
    url, headers = first_of(record, _URLS), first_of(record, ("request_headers", "headers"))
    for name in _REQUESTS:
        held = json_object(record.get(name))
        if _is_body(held):
            return _Found(held, url, mapping(headers))
        for inner in _IN_HTTP if held else ():
            body = json_object(held.get(inner))
            if _is_body(body):
                return _Found(body, held.get("url", url), mapping(held.get("headers", headers)))
    if _is_body(record):
        return _Found(record, url, mapping(headers), bare=True)
    held = json_object(record.get("input"))
    return _Found(held, url, mapping(headers)) if _is_body(held) else None


def _is_body(value: Json) -> bool:
    named = "model" in value
    if "messages" in value:
        return named or not isinstance(value["messages"], str)
    given = value.get("input")
    if isinstance(given, str):
        return named
    return bool(json_objects(given)) or (named and "instructions" in value and wire_of_response(value) is None)


def _answer(record: Json) -> Answer:
    response = first_of(record, _RESPONSES)
    found = answer_of(response)
    if found == Answer() and isinstance(response, str) and not response.lstrip().startswith(("{", "[")):
        return Answer(reply=(response,))
    return found


def _has_failed(record: Json) -> bool:
    status = first_of(record, _STATUSES)
    failed = status >= 400 if isinstance(status, int) else isinstance(status, str) and status.lower() in _FAILURES
    return failed or bool(record.get("error"))


def _provider(name: object) -> str:
    """Return a provider's id; empty for the name of something else, such as a gateway."""
    named = provider_id(name) if isinstance(name, str) else ""
    return named if named in _PROVIDERS else ""


def _time(record: Json, names: Sequence[str]) -> float | None:
    return next((time for name in names if name in record and (time := moment(record[name])) is not None), None)


def _answered(record: Json, started: float | None) -> float | None:
    """Return when the answer began, or ended; None where that is not told or cannot be."""
    if started is None:
        return None
    answered = _time(record, _ANSWERED)
    if answered is None:
        latency = first_of(record, _LATENCIES)
        if isinstance(latency, (int, float)) and not isinstance(latency, bool):
            answered = started + latency / 1000
    return answered if answered is not None and answered >= started else None


def _no_request(record: Json, line: int) -> Skipped:
    if wire_of_response(record) or _answer(record) != Answer():
        return Skipped(line, "a response without its request", bad=False)
    texts = (value for name in _REQUESTS if isinstance(value := record.get(name), str))
    if any(text.lstrip().startswith("{") and not json_object(text) for text in texts):
        return Skipped(line, "its request is no JSON, or cut off")
    return Skipped(line, "no model call", bad=False)
