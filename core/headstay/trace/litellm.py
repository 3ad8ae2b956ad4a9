"""LiteLLM's logs: the payload that its callbacks and buckets get, and the rows of its proxy's spend log.

Both hold the messages in OpenAI's form whatever the provider; for a model that is asked in Anthropic's form they are
brought back to it, as LiteLLM does before it sends them. Source: `StandardLoggingPayload` and `SpendLogsPayload` of
LiteLLM 1.110.2, seen 2026-11-29.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.errors import WireError
from headstay.ledger.usage import Usage
from headstay.prompt import Wire
from headstay.trace.answer import Answer, answer_of, price_context, usage_of
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import decoded, first_of, id_of, json_object, json_objects, moment
from headstay.trace.lc_anthropic import anthropic_messages
from headstay.trace.lc_messages import read_messages
from headstay.trace.provider_names import provider_id, speaks_anthropic
from headstay.trace.raw import request_wire

_PROVIDERS = {"azure_ai": "azure", "fireworks_ai": "fireworks", "moonshot": "moonshotai", "custom_openai": "openai"}
_CALLS: Mapping[str, Wire] = {
    "completion": "openai-chat",
    "acompletion": "openai-chat",
    "responses": "openai-responses",
    "aresponses": "openai-responses",
    "anthropic_messages": "anthropic-messages",
}
_REDACTED = ("redacted-by-litellm", "redacted by litellm")
# LiteLLM makes up a random trace id (version 4) for each call that was given none.
_MADE_UP = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_SESSIONS = ("session_id", "litellm_session_id", "conversation_id", "thread_id")


def entries(record: Mapping[str, object], line: int) -> Iterator[Entry | Skipped] | None:
    """Read a record that LiteLLM wrote.

    Args:
        record: The record.
        line: The number of its line.

    Returns:
        The request, or why there is none; None for a record of another kind.
    """
    payload = mapping(record.get("standard_logging_object")) or record
    if "call_type" not in payload or not ("model_parameters" in payload or "request_id" in payload):
        return None
    return iter((_read(payload, line),))


def _read(payload: Json, line: int) -> Entry | Skipped:
    wire = _CALLS.get(str(payload["call_type"]))
    body = _body(payload, wire)
    reason = _passed_over(payload, wire, body)
    if wire is None or reason:
        return Skipped(line, reason, bad=False)
    provider = _provider(payload)
    try:
        request_wire(body, wire)
        if wire == "openai-chat" and speaks_anthropic(provider, str(body.get("model"))):
            wire, body = "anthropic-messages", _anthropic(body)
    except WireError as problem:
        return Skipped(line, str(problem))
    return _entry(payload, line, wire=wire, body=body, provider=provider)


def _passed_over(payload: Json, wire: Wire | None, body: Json) -> str:
    """Say why a call is left out; nothing for one that is taken."""
    if wire is None:
        return "a call that makes no text"
    if payload.get("status") == "failure":
        return "a call that failed"
    if str(payload.get("cache_hit")).lower() == "true":
        return "a call that LiteLLM answered from its own cache"
    if not body:
        return "LiteLLM stored no prompt: set store_prompts_in_spend_logs"
    return "LiteLLM redacted the prompt: turn_off_message_logging is set" if _is_redacted(body) else ""


def _entry(payload: Json, line: int, *, wire: Wire, body: Json, provider: str) -> Entry:
    metadata = json_object(payload.get("metadata"))
    answer = answer_of(decoded(payload.get("response")))
    return Entry(
        line=line,
        wire=wire,
        body=body,
        exact=False,
        conversation=_conversation(payload, metadata, body),
        provider=provider,
        served_by=id_of(payload.get("model_id")) or answer.served_by,
        started=moment(payload.get("startTime")),
        answered=moment(first_of(payload, ("completionStartTime", "endTime"))),
        usage=_usage(payload, metadata, answer),
        reply_id=answer.reply_id or id_of(first_of(payload, ("id", "request_id"))),
        reply=tuple(text for text in answer.reply if not text.startswith(_REDACTED)),
        diagnosis=answer.diagnosis,
        context={**price_context(body), **answer.context},
    )


def _body(payload: Json, wire: Wire | None) -> Json:
    """Return the request body in the form that LiteLLM was called in; an empty one where it is not in the log."""
    asked = json_object(payload.get("proxy_server_request"))
    asked = json_object(asked.get("body")) or asked
    if "messages" in asked or "input" in asked:
        body: Json = asked
    else:
        field = "input" if wire == "openai-responses" else "messages"
        messages = decoded(payload.get("messages"))
        if not messages:
            return {}
        body = {**json_object(payload.get("model_parameters")), field: messages}
    named = id_of(payload.get("model")) or id_of(body.get("model"))
    return {**{name: value for name, value in body.items() if value is not None}, "model": named}


def _is_redacted(body: Json) -> bool:
    given = body.get("messages", body.get("input"))
    texts = [given, *(message.get("content") for message in json_objects(given))]
    return any(isinstance(text, str) and text.startswith(_REDACTED) for text in texts)


def _provider(payload: Json) -> str:
    name = id_of(payload.get("custom_llm_provider"))
    return _PROVIDERS.get(name) or provider_id(name)


def _conversation(payload: Json, metadata: Json, body: Json) -> str:
    """Return the session of a call; a trace id stands for it where the caller chose it."""
    places = [mapping(metadata.get("requester_metadata")), mapping(body.get("metadata")), body, metadata]
    if "model_parameters" in payload:  # in the rows of the spend log a trace id fills this field
        places.append(payload)
    given = next((name for place in places if (name := id_of(first_of(place, _SESSIONS)))), "")
    traces = (id_of(payload.get(name)) for name in ("session_id", "trace_id"))
    return given or next((name for name in traces if name and not _MADE_UP.fullmatch(name)), "")


def _usage(payload: Json, metadata: Json, answer: Answer) -> Usage | None:
    found = usage_of(metadata.get("usage_object")) or answer.usage
    totals = {name: payload.get(name) for name in ("prompt_tokens", "completion_tokens")}
    return found or usage_of({**mapping(metadata.get("additional_usage_values")), **totals})


def _anthropic(body: Json) -> Json:
    """Bring a request in OpenAI's form to the one that LiteLLM sends to Anthropic.

    Raises:
        WireError: Its messages are of no known form.
    """
    messages = [_with_thinking(message) for message in json_objects(body.get("messages"))]
    system, said = anthropic_messages(read_messages(messages))
    made: dict[str, object] = {**body, "messages": said}
    if system:
        made["system"] = system
    if tools := json_objects(body.get("tools")):
        made["tools"] = [_tool(tool) for tool in tools]
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        made["tool_choice"] = {"type": _CHOICES.get(choice, choice)}
    elif function := mapping(mapping(choice).get("function")):
        made["tool_choice"] = {"type": "tool", "name": function.get("name")}
    output = {"effort": made.pop("reasoning_effort", None), "format": made.pop("response_format", None)}
    if any(output.values()):
        made["output_config"] = {**output, **mapping(body.get("output_config"))}
    return made


def _with_thinking(message: Json) -> Json:
    """Put the thinking of a reply, which LiteLLM keeps beside its content, in front of it."""
    kept = message.get("thinking_blocks") or mapping(message.get("provider_specific_fields")).get("thinking_blocks")
    thinking = json_objects(kept)
    if not thinking:
        return message
    content = message.get("content")
    said: Sequence[object] = cast("Sequence[object]", content) if isinstance(content, (list, tuple)) else ()
    if isinstance(content, str) and content:
        said = [{"type": "text", "text": content}]
    return {**message, "content": [*thinking, *said]}


def _tool(tool: Json) -> Json:
    function = mapping(tool.get("function"))
    if not function:
        return tool
    made = {"name": function.get("name"), "description": function.get("description")}
    return {**{name: value for name, value in made.items() if value}, "input_schema": function.get("parameters") or {}}
