"""One model call, gathered from the OpenTelemetry records that tell of it, to an entry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.errors import WireError
from headstay.ledger.usage import Usage
from headstay.prompt import Wire
from headstay.trace.answer import price_context
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import decoded
from headstay.trace.gen_ai_content import Content, answer_id, answer_texts, content_of, sent_body, texts_of
from headstay.trace.gen_ai_messages import Said, anthropic_body, chat_body, read_said
from headstay.trace.otel_records import Event, Record
from headstay.trace.otel_values import first_count
from headstay.trace.provider_names import provider_id, speaks_anthropic
from headstay.trace.untyped import first_text, items

NO_MESSAGES = (
    "an OpenTelemetry model call has no messages: switch content capture on "
    "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT)"
)
_FAILED = "an OpenTelemetry model call that failed"
_OPERATIONS = ("", "chat", "completion", "text_completion", "generate_content", "llm")
_KINDS = ("gen_ai.operation.name", "llm.request.type", "openinference.span.kind")
_NAMED = ("gen_ai.request.model", "llm.model_name", "llm.request.model_name", "gen_ai.input.messages")
_CONTENT_NAMES = ("gen_ai.input.messages", "gen_ai.prompt", "llm.input_messages")
_MESSAGE_EVENTS: Mapping[str, str] = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
DETAILS = "gen_ai.client.inference.operation.details"
_DETAILS = (DETAILS, "gen_ai.content.prompt", "gen_ai.content.completion")
_CONVERSATION = (
    *("gen_ai.conversation.id", "session.id", "langfuse.session.id", "thread.id", "conversation.id"),
    *(f"traceloop.association.properties.{name}" for name in ("session_id", "thread_id", "conversation_id", "chat_id")),
)
_FINGERPRINT = tuple(
    f"{prefix}system_fingerprint"
    for prefix in ("openai.response.", "gen_ai.openai.response.", "gen_ai.openai.", "gen_ai.response.")
)
_TIER = ("openai.response.service_tier", "gen_ai.openai.response.service_tier", "anthropic.response.service_tier")


def is_call(attributes: Json) -> bool:
    """Whether attributes are those of a call of a chat model."""
    named = any(name in attributes for name in _NAMED) or "openinference.span.kind" in attributes
    return named and not is_other_operation(attributes)


def is_other_operation(attributes: Json) -> bool:
    """Whether attributes are those of something else that is traced: an embedding, a tool, an agent, a workflow."""
    kinds = (attributes.get(name) for name in _KINDS)
    return "traceloop.span.kind" in attributes or any(
        isinstance(kind, str) and kind.lower() not in _OPERATIONS for kind in kinds
    )


def is_said(event: Event) -> bool:
    """Whether an event tells of a model call."""
    return event.name in _DETAILS or event.name in _MESSAGE_EVENTS or event.name == "gen_ai.choice"


@dataclass(slots=True)
class Call:
    """A call, as far as it is known.

    Attributes:
        line: Line of the record that its content, or else its span, stands in.
        span: Whether its span was read.
        size: About how many bytes are held.
    """

    line: int
    span: bool = False
    failed: bool = False
    started: float | None = None
    ended: float | None = None
    first_token: float | None = None
    attributes: dict[str, object] = field(default_factory=dict[str, object])
    said: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    choices: list[Json] = field(default_factory=list[Json])
    size: int = 0

    def add_span(self, record: Record) -> None:
        """Take over a span with what its events say."""
        self.span = True
        self.failed = record.failed or "error.type" in record.attributes
        self.started, self.ended, self.first_token = record.started, record.ended, record.first_token
        self._add(record.attributes)
        for event in record.events:
            if is_said(event):
                self.add_event(event, self.line)

    def add_event(self, event: Event, line: int) -> None:
        """Take over what an event says; one that only says who speaks tells nothing."""
        if not self.said and not self.span:
            self.line = line
        # Before 2025 the body stood in an attribute, as JSON.
        body = mapping(event.body) or mapping(decoded(event.attributes.get("gen_ai.event.content")))
        if event.name in _DETAILS:
            self._add(
                {**event.attributes, **{name: value for name, value in body.items() if name.startswith("gen_ai.")}}
            )
            self.ended = self.ended or event.at
        elif event.name == "gen_ai.choice":
            self.choices.append({**body, **mapping(body.get("message"))})
            self.ended = self.ended or event.at
        else:
            self.said.append({"role": _MESSAGE_EVENTS[event.name], **body})
            self.started = self.started or event.at
            self._add(_gen_ai(event.attributes))
        self.size += size_of(body)

    def _add(self, attributes: Json) -> None:
        for name, value in attributes.items():
            if name not in self.attributes or not self.span:
                self.attributes[name] = value
                self.size += size_of(value)

    def precedes(self, event: Event) -> bool:
        """Whether an event belongs to a later call, which was made within the same span of the application."""
        return bool(self.choices) and not self.span and event.name in _MESSAGE_EVENTS

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come: the span, and the content or the events up to the answer."""
        return self.span and (self.has_content or bool(self.said and self.choices))

    @property
    def has_content(self) -> bool:
        """Whether attributes hold the messages."""
        return any(name == "input.value" or name.startswith(_CONTENT_NAMES) for name in self.attributes)


def entry_of(call: Call) -> Entry | Skipped:
    """Make the entry of a call, or say why there is none."""
    if call.failed:
        return Skipped(call.line, _FAILED, bad=False)
    attributes = call.attributes
    model = first_text(attributes, "gen_ai.request.model", "llm.request.model_name", "llm.model_name")
    names = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
    provider = provider_id(first_text(attributes, *names))
    try:
        found = _body(call, provider, model)
        reply = texts_of(read_said([{"role": "assistant", **choice} for choice in call.choices]))
        reply = reply or answer_texts(attributes)
    except WireError as error:
        return Skipped(call.line, f"an OpenTelemetry model call with {error}")
    if found is None:
        return Skipped(call.line, NO_MESSAGES, bad=False)
    body, wire, exact = found
    return Entry(
        line=call.line,
        wire=wire,
        body=body,
        exact=exact,
        conversation=first_text(attributes, *_CONVERSATION),
        account=first_text(attributes, "server.address"),
        provider=provider,
        served_by=first_text(attributes, *_FINGERPRINT),
        started=call.started or call.ended,
        answered=_answered(call),
        usage=_usage(attributes),
        reply_id=answer_id(attributes),
        reply=reply,
        context=price_context({"service_tier": first_text(attributes, *_TIER)}),
    )


def _body(call: Call, provider: str, model: str) -> tuple[Json, Wire, bool] | None:
    """Return the body, its wire form, and whether it is what was sent."""
    sent = sent_body(call.attributes)
    if sent is not None:
        return *sent, True
    content = content_of(call.attributes)
    if not content.messages and call.said:
        content = Content(content.system, _spoken(call.said), content.tools, content.fields)
    if not content.messages:
        return None
    anthropic = speaks_anthropic(provider, model)
    build = anthropic_body if anthropic else chat_body
    body = {"model": model, **build(content.system, content.messages, content.tools), **(content.fields or {})}
    return body, "anthropic-messages" if anthropic else "openai-chat", False


def _spoken(messages: list[dict[str, object]]) -> list[Said]:
    """Read the messages of events; without content capture they come empty."""
    said = read_said(messages)
    return said if any(one.parts for one in said if one.role in ("system", "user")) else []


def _answered(call: Call) -> float | None:
    after = call.attributes.get("gen_ai.response.time_to_first_chunk")
    if isinstance(after, float) and call.started is not None and after >= 0:
        return call.started + after
    return call.first_token or call.ended


def _usage(attributes: Json) -> Usage | None:
    """Read the token counts.

    `gen_ai.usage.input_tokens` includes what was read and written (semantic conventions, `opentelemetry-util-genai`
    1.3b0, seen 2026-11-29), and so do the older names and those of OpenInference; where an instrumentation passes on
    the provider's count without them, as the sum shows, they are added.
    """
    total = first_count(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt")
    read = first_count(
        attributes,
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    )
    written = first_count(
        attributes,
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_write.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    )
    names = {ttl: f"anthropic.usage.cache_creation.ephemeral_{ttl}_input_tokens" for ttl in ("5m", "1h")}
    split = {ttl: tokens for ttl, name in names.items() if (tokens := first_count(attributes, name))}
    written = max(written, sum(split.values()))
    total = total if read + written <= total else total + read + written
    output = first_count(
        attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"
    )
    return Usage(total, read, written, split, output) if total else None


def _gen_ai(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if name.startswith("gen_ai.")}


def size_of(value: object) -> int:
    """Return about how many bytes a value takes: the length of its texts."""
    size, rest = 0, [value]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, Mapping):
            fields = cast("Json", one)
            size += 64 + sum(map(len, fields))
            rest += fields.values()
        elif isinstance(one, (list, tuple)):
            rest += items(cast("object", one))
    return size
