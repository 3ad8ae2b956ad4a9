"""LangSmith runs: exports (`list_runs`, the UI, bulk rows) and the bodies that its tracer posts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headstay.comparison.segment import Json, mapping
from headstay.comparison.wire_form import wire_of
from headstay.errors import WireError
from headstay.ledger.usage import Usage, from_langchain
from headstay.prompt import Wire
from headstay.trace.answer import answer_of, price_context, usage_of
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import CONVERSATION, decoded, json_object, json_objects, moment
from headstay.trace.lc_body import held_by_provider, reply_id, request_body, uses_responses, without_system_message
from headstay.trace.lc_messages import Message, read_message, read_messages
from headstay.trace.provider_names import provider_id, speaks_anthropic
from headstay.trace.untyped import first_text, is_list, items, text_of

_RUN_KEYS = ("inputs", "outputs", "dotted_order", "trace_id", "session_id", "session_name", "extra", "parent_run_id")
_DEEPEST = 64
_OTHER = "a LangSmith run that is no model call"
_UPDATE = "an update of a LangSmith run that was posted elsewhere"
_FAILED = "a LangSmith run of a call that failed"
_HIDDEN = "a LangSmith run without inputs: they were hidden or not exported"
_NO_CHAT = "a LangSmith run whose inputs are no chat messages"


def entries(record: Mapping[str, object], line: int) -> Iterator[Entry | Skipped] | None:
    """Read the requests of a LangSmith record.

    Args:
        record: A run, with its children where they were exported with it, or a batch that a tracer posted.
        line: Its line in the log.

    Returns:
        What was found, or None if the record is not LangSmith's.
    """
    if _is_batch(record):
        return _batch(record, line)
    if isinstance(record.get("run_type"), str) and any(key in record for key in _RUN_KEYS):
        return _tree(record, line, 0)
    if "dotted_order" in record and "trace_id" in record:
        return iter((Skipped(line, _UPDATE, bad=False),))
    return None


def _is_batch(record: Json) -> bool:
    runs = [*json_objects(record.get("post")), *json_objects(record.get("patch"))]
    return bool(runs) and all("trace_id" in run or "run_type" in run for run in runs)


def _batch(record: Json, line: int) -> Iterator[Entry | Skipped]:
    """Read a posted batch, in which a run's start and its end may stand apart."""
    runs: dict[str, dict[str, object]] = {}
    for run in (*json_objects(record.get("post")), *json_objects(record.get("patch"))):
        held = runs.setdefault(first_text(run, "id"), {})
        held.update({key: value for key, value in run.items() if value is not None})
    for run in runs.values():
        yield from _tree(run, line, 0) if "run_type" in run else (Skipped(line, _UPDATE, bad=False),)


def _tree(run: Json, line: int, depth: int) -> Iterator[Entry | Skipped]:
    yield _entry(run, line)
    if depth < _DEEPEST:
        for child in json_objects(run.get("child_runs")):
            yield from _tree(child, line, depth + 1)


def _entry(run: Json, line: int) -> Entry | Skipped:
    if run.get("run_type") != "llm":
        return Skipped(line, _OTHER, bad=False)
    if run.get("error") or run.get("status") == "error":
        return Skipped(line, _FAILED, bad=False)
    inputs = json_object(run.get("inputs"))
    if not inputs:
        return Skipped(line, _HIDDEN, bad=False)
    try:
        found = _run(run, inputs)
        body, wire, exact = _body(found)
    except WireError as error:
        return Skipped(line, f"a LangSmith run with {error}")
    if body is None:
        return Skipped(line, _NO_CHAT, bad=False)
    details = _details(found)
    answer = answer_of({**details, "choices": []})
    return Entry(
        line=line,
        wire=wire,
        body=body,
        exact=exact,
        conversation=first_text(found.metadata, *CONVERSATION) or first_text(run, "thread_id"),
        account=first_text(run, "session_id", "session_name"),
        provider=found.provider,
        served_by=answer.served_by,
        started=moment(run.get("start_time")),
        answered=_answered(run),
        usage=_usage(run, found, wire),
        reply_id=next((told for told in _reply_ids(found) if told), ""),
        reply=_reply(found),
        diagnosis=answer.diagnosis,
        context=price_context(details, mapping(details.get("usage"))),
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """What of a run the request and its answer are read from."""

    inputs: Json
    outputs: Json
    metadata: Json
    params: Json
    settings: Json
    model: str
    provider: str
    reply: Message | None
    text: str
    model_output: Json


def _run(run: Json, inputs: Json) -> _Run:
    """Bring the fields of a run together; in bulk exports they are JSON texts."""
    outputs = json_object(run.get("outputs"))
    extra = json_object(run.get("extra"))
    metadata = {**json_object(run.get("metadata")), **mapping(extra.get("metadata"))}
    params = mapping(extra.get("invocation_params")) or mapping(metadata.get("ls_invocation_params"))
    named = first_text(inputs, "model") or first_text(params, "model", "model_name", "model_id")
    generations = items(outputs.get("generations"))
    nested = items(generations[0]) if generations else ()
    generation = mapping(nested[0] if nested else generations[0] if generations else None)
    said = generation.get("message", outputs.get("message", outputs if "role" in outputs else None))
    return _Run(
        inputs=inputs,
        outputs=outputs,
        metadata=metadata,
        params=params,
        settings=mapping(json_object(run.get("serialized")).get("kwargs")),
        model=named or first_text(metadata, "ls_model_name"),
        provider=provider_id(first_text(metadata, "ls_provider")),
        reply=_message(said),
        text=text_of(generation.get("text")),
        model_output=mapping(outputs.get("llm_output")),
    )


def _message(said: object) -> Message | None:
    """Read the answer; one that cannot be read is as good as none."""
    try:
        return read_message(said)
    except WireError:
        return None


def _body(run: _Run) -> tuple[Json | None, Wire, bool]:
    """Return the request body, its wire form, and whether it is the one that was sent; None if it is no chat."""
    told = run.inputs.get("messages")
    messages = items(told)
    if told and not messages:
        raise WireError("messages that are no list")
    if not messages:
        given = run.inputs.get("input")
        sent = isinstance(given, str) or (bool(json_objects(given)) and len(json_objects(given)) == len(items(given)))
        return (_raw(run) if sent and run.model else None), "openai-responses", "model" in run.inputs
    if is_list(messages[0]):
        messages = items(messages[0])
    elif _is_raw(messages):
        body = _raw(run)
        return body, _wire_of_raw(run, body), "model" in run.inputs
    read = read_messages(messages)
    wire: Wire = "anthropic-messages" if speaks_anthropic(run.provider, run.model) else "openai-chat"
    if wire == "openai-chat" and uses_responses(run.params, run.settings, read, run.reply):
        wire = "openai-responses"
    if wire == "openai-responses" and run.settings.get("use_previous_response_id"):
        rest, continued = held_by_provider(read)
        held = {"previous_response_id": continued} if continued else {}
        return {**request_body(rest, run.params, model=run.model, wire=wire), **held}, wire, False
    return request_body(read, run.params, model=run.model, wire=wire), wire, False


def _is_raw(messages: object) -> bool:
    """Whether messages are in a provider's form, as the wrappers of the SDKs log them."""
    first = mapping(items(messages)[0])
    return "role" in first and first.get("type") in (None, "message") and "data" not in first


def _raw(run: _Run) -> Json:
    """Return inputs that are a request body; what a tracing decorator left out of them stands in the parameters."""
    body = {key: value for key, value in run.inputs.items() if value is not None}
    if "model" not in body:
        params = {key: value for key, value in run.params.items() if value is not None and not key.startswith("_")}
        body = {"model": run.model, **params, **body}
    for key in ("messages", "input"):
        given = body.get(key)
        if is_list(given) and len(json_objects(given)) != len(given):
            raise WireError("a message that is no object")
    return without_system_message(body) if speaks_anthropic(run.provider, run.model) else body


def _wire_of_raw(run: _Run, body: Json) -> Wire:
    if speaks_anthropic(run.provider, run.model):
        return "anthropic-messages"
    wire, sure = wire_of(body, "inputs")
    return wire if sure or not run.provider else "openai-chat"


def _answered(run: Json) -> float | None:
    """Return when the answer began: the first token of a stream, else the end."""
    tokens = [event for event in json_objects(decoded(run.get("events"))) if event.get("name") == "new_token"]
    for value in (run.get("first_token_time"), *(event.get("time") for event in tokens[:1]), run.get("end_time")):
        at = moment(value)
        if at is not None:
            return at
    return None


def _usage(run: Json, found: _Run, wire: Wire) -> Usage | None:
    """Return the token counts, from the place that says most of them."""
    own = usage_of(found.model_output.get("usage") or found.outputs.get("usage"), wire)
    if own is not None:
        return own
    counts = {"input_tokens": run.get("prompt_tokens"), "output_tokens": run.get("completion_tokens")}
    in_langchain = (
        found.reply.usage if found.reply else mapping(None),
        mapping(found.outputs.get("usage_metadata")),
        mapping(found.metadata.get("usage_metadata")),
        {**counts, "input_token_details": json_object(run.get("prompt_token_details"))},
    )
    usages = [from_langchain(usage) for usage in in_langchain]
    token_usage = usage_of(found.model_output.get("token_usage"), "openai-chat")
    return next((usage for usage in usages if usage.input_tokens), token_usage)


def _details(run: _Run) -> Json:
    """Return what is said about the answer, in whichever of the places it stands."""
    places = (run.outputs, run.model_output, run.reply.metadata if run.reply else mapping(None))
    return {name: value for place in places for name, value in place.items() if value is not None}


def _reply_ids(run: _Run) -> Iterator[str]:
    yield reply_id(run.reply) if run.reply else ""
    yield first_text(run.model_output, "id")
    yield first_text(run.outputs, "id")


def _reply(run: _Run) -> tuple[str, ...]:
    """Return the texts of the answer and the ids of its calls."""
    if run.reply is None:
        return answer_of(run.outputs).reply or ((run.text,) if run.text else ())
    blocks = run.reply.blocks
    calls = [first_text(block, "id") for block in blocks if block.get("type") == "tool_use"]
    calls += [call.id for call in run.reply.calls]
    found = (*(text_of(block.get("text")) for block in blocks), *calls)
    return tuple(dict.fromkeys(text for text in found if text.strip()))
