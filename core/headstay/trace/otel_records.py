"""The spans and log records that an OpenTelemetry document holds, whichever exporter wrote it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headstay.comparison.segment import Json, mapping
from headstay.trace.fields import json_objects, moment
from headstay.trace.otel_values import attributes_of, plain
from headstay.trace.untyped import text_of

Kind = Literal["span", "log", "other"]
_LISTS = ("resourceSpans", "resourceLogs", "resourceMetrics", "resourceProfiles")
_SCOPES = {"resourceSpans": ("scopeSpans", "instrumentationLibrarySpans"), "resourceLogs": ("scopeLogs",)}
_FAILED = ("STATUS_CODE_ERROR", "ERROR", 2)
_FIRST_TOKEN = ("First Token Stream Event", "gen_ai.content.completion.chunk", "llm.content.completion.chunk")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that was said at one moment: a log record, or an event of a span.

    Attributes:
        name: Its name.
        attributes: Its attributes.
        body: Its body, decoded.
        at: When, in seconds since the epoch, or None.
    """

    name: str
    attributes: Json
    body: object = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One span or one log record.

    Attributes:
        kind: "span" or "log"; "other" for what holds neither, such as metrics.
        key: Trace id and span id; empty where a log record was written outside a span.
        attributes: Attributes of a span.
        started: When the span began, in seconds since the epoch.
        ended: When it ended.
        first_token: When the answer's first piece came, where the span has an event for it.
        failed: Whether the span's status is an error.
        events: Events of the span; of a log record, itself.
    """

    kind: Kind
    key: str = ""
    attributes: Json = field(default_factory=dict[str, object], hash=False)
    started: float | None = None
    ended: float | None = None
    first_token: float | None = None
    failed: bool = False
    events: tuple[Event, ...] = ()


def records_of(document: Json) -> list[Record] | None:
    """Return the records of a document.

    Args:
        document: An OTLP document (`resourceSpans`, `resourceLogs`), or one span or log record of a console exporter.

    Returns:
        The records in their order, or None if the document is not OpenTelemetry's.
    """
    name = next((name for name in _LISTS if isinstance(document.get(name), (list, tuple))), None)
    if name is not None:
        return list(_otlp(document, name)) if name in _SCOPES else [Record("other")]
    if not isinstance(document.get("attributes"), Mapping):
        return None
    if "trace_id" in mapping(document.get("context")) and ("start_time" in document or "kind" in document):
        return [_console_span(document)]
    if "severity_number" in document or ("observed_timestamp" in document and "trace_id" in document):
        return [_console_log(document)]
    return None


def _otlp(document: Json, name: str) -> Iterator[Record]:
    for resource in json_objects(document[name]):
        for scope_list in _SCOPES[name]:
            for scope in json_objects(resource.get(scope_list)):
                for span in json_objects(scope.get("spans")):
                    yield _otlp_span(span)
                for log in json_objects(scope.get("logRecords")):
                    yield _otlp_log(log)


def _otlp_span(span: Json) -> Record:
    events = tuple(
        Event(
            text_of(event.get("name")),
            attributes_of(event.get("attributes")),
            at=moment(event.get("timeUnixNano")),
        )
        for event in json_objects(span.get("events"))
    )
    return Record(
        "span",
        key=_key(span.get("traceId"), span.get("spanId")),
        attributes=attributes_of(span.get("attributes")),
        started=moment(span.get("startTimeUnixNano")),
        ended=moment(span.get("endTimeUnixNano")),
        first_token=_first_token(events),
        failed=mapping(span.get("status")).get("code") in _FAILED,
        events=events,
    )


def _otlp_log(log: Json) -> Record:
    attributes = attributes_of(log.get("attributes"))
    name = text_of(log.get("eventName")) or text_of(attributes.get("event.name"))
    at = moment(log.get("timeUnixNano")) or moment(log.get("observedTimeUnixNano"))
    event = Event(name, attributes, plain(log.get("body")), at)
    return Record("log", key=_key(log.get("traceId"), log.get("spanId")), events=(event,))


def _console_span(span: Json) -> Record:
    context = mapping(span.get("context"))
    events = tuple(
        Event(text_of(event.get("name")), mapping(event.get("attributes")), at=moment(event.get("timestamp")))
        for event in json_objects(span.get("events"))
    )
    status = mapping(span.get("status"))
    return Record(
        "span",
        key=_key(context.get("trace_id"), context.get("span_id")),
        attributes=mapping(span.get("attributes")),
        started=moment(span.get("start_time")),
        ended=moment(span.get("end_time")),
        first_token=_first_token(events),
        failed=status.get("status_code", span.get("status_code")) in _FAILED,
        events=events,
    )


def _console_log(log: Json) -> Record:
    attributes = mapping(log.get("attributes"))
    name = text_of(log.get("event_name")) or text_of(attributes.get("event.name"))
    at = moment(log.get("timestamp")) or moment(log.get("observed_timestamp"))
    event = Event(name, attributes, log.get("body"), at)
    return Record("log", key=_key(log.get("trace_id"), log.get("span_id")), events=(event,))


def _key(trace: object, span: object) -> str:
    """Return what names a span; empty for ids that are missing or all zeros."""
    ids = [text_of(value).lower().removeprefix("0x") for value in (trace, span)]
    return "/".join(ids) if all(one.strip("0") for one in ids) else ""


def _first_token(events: tuple[Event, ...]) -> float | None:
    return next((event.at for event in events if event.name in _FIRST_TOKEN), None)
