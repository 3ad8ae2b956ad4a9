"""The answers of the Responses API, whole and as events (types of openai 3.57.0)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headstay.emulator.openai_cache import Outcome
from headstay.emulator.openai_gates import Reading
from headstay.emulator.openai_output import Call, Output, deltas
from headstay.emulator.shape import mapping, sequence

Event = tuple[str, dict[str, Any]]
"""A name and the data without its `type` and `sequence_number`."""


def responses_usage(reading: Reading, outcome: Outcome, output: Output) -> dict[str, Any]:
    """Return the usage: `input_tokens` includes what was read from and written to the cache."""
    details: dict[str, Any] = {"cached_tokens": outcome.read, "cache_write_tokens": outcome.written()}
    if reading.model.marked:
        details["cache_write_tokens_details"] = {
            "ttl_30m_tokens": outcome.written("30m"),
            "ttl_12h_tokens": outcome.written("12h"),
        }
    return {
        "input_tokens": outcome.total,
        "input_tokens_details": details,
        "output_tokens": output.tokens,
        "output_tokens_details": {"reasoning_tokens": output.reasoning_tokens},
        "total_tokens": outcome.total + output.tokens,
    }


def response_object(reading: Reading, *, name: str, created: float) -> dict[str, Any]:
    """Return a response that has begun: no output and no usage yet."""
    body, cache = reading.body, reading.cache
    text = mapping(body.get("text"))
    reasoning = mapping(body.get("reasoning"))
    begun: dict[str, Any] = {
        "id": name,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "max_tool_calls": body.get("max_tool_calls"),
        "metadata": body.get("metadata") or {},
        "model": reading.model.name,
        "output": [],
        "parallel_tool_calls": reading.settings["parallel_tool_calls"],
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": cache.key,
        "prompt_cache_retention": cache.retention,
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": reading.settings["service_tier"],
        "store": body.get("store") is not False,
        "temperature": body.get("temperature", 1.0),
        "text": {
            "format": text.get("format") or {"type": "text"},
            "verbosity": reading.settings["verbosity"],
        },
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": sequence(body.get("tools")),
        "top_logprobs": 0,
        "top_p": body.get("top_p", 1.0),
        "truncation": body.get("truncation") or "disabled",
        "usage": None,
        "user": body.get("user"),
    }
    if reading.model.marked:
        options: dict[str, Any] = {"mode": cache.mode, "ttl": cache.ttl}
        if cache.compare is not None:
            options["comparison_response_id"] = cache.compare
        begun["prompt_cache_options"] = options
    return begun


def finished_response(
    begun: Mapping[str, Any],
    reading: Reading,
    outcome: Outcome,
    output: Output,
    *,
    items: list[dict[str, Any]],
    completed: float,
    diagnostics: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the whole response."""
    done: dict[str, Any] = {**begun, "status": "completed", "completed_at": completed, "output": items}
    if output.finish == "length":
        done |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    if diagnostics is not None:
        done["prompt_cache_diagnostics"] = diagnostics
    done["usage"] = responses_usage(reading, outcome, output)
    return done


def output_items(reading: Reading, output: Output, new_id: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the output items of an answer: reasoning, message, tool calls."""
    items: list[dict[str, Any]] = []
    if output.thinking is not None:
        reasoning: dict[str, Any] = {"id": new_id("rs_"), "type": "reasoning"}
        reasoning["summary"] = [{"type": "summary_text", "text": output.thinking}]
        if "reasoning.encrypted_content" in sequence(reading.body.get("include")):
            reasoning["encrypted_content"] = f"sealed:{output.thinking}"
        items.append(reasoning)
    if output.text or not output.calls:
        part: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": output.text}
        if output.refused:
            part = {"type": "refusal", "refusal": output.text}
        message = {"id": new_id("msg_"), "type": "message", "role": "assistant", "content": [part]}
        message["status"] = "incomplete" if output.finish == "length" else "completed"
        items.append(message)
    items += [_call_item(call, new_id) for call in output.calls]
    return items


def _call_item(call: Call, new_id: Callable[[str], str]) -> dict[str, Any]:
    kind, prefix, field = ("function_call", "fc_", "arguments")
    if call.custom:
        kind, prefix, field = ("custom_tool_call", "ctc_", "input")
    item = {"id": new_id(prefix), "type": kind, "status": "completed", "call_id": call.id, "name": call.name}
    item[field] = call.arguments
    return item


def response_events(begun: Mapping[str, Any], done: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the events of a streamed response as (event name, data), numbered from 0."""
    for number, (name, data) in enumerate(_events(begun, done)):
        yield name, {"type": name, **data, "sequence_number": number}


def _events(begun: Mapping[str, Any], done: Mapping[str, Any]) -> Iterator[Event]:
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    for index, item in enumerate(done["output"]):
        yield from _item_events(item, index)
    yield f"response.{done['status']}", {"response": done}


def _item_events(item: Mapping[str, Any], index: int) -> Iterator[Event]:
    place = {"item_id": item["id"], "output_index": index}
    kind = item["type"]
    hollow: dict[str, Any] = {**item, "status": "in_progress"}
    if kind == "message":
        hollow["content"] = []
        inner = _part_events(item["content"][0], {**place, "content_index": 0})
    elif kind == "reasoning":
        hollow = {**item, "summary": []}
        inner = _summary_events(item["summary"][0], {**place, "summary_index": 0})
    else:
        field = "arguments" if kind == "function_call" else "input"
        hollow[field] = ""
        inner = _argument_events(kind, field, item, place)
    yield "response.output_item.added", {"output_index": index, "item": hollow}
    yield from inner
    yield "response.output_item.done", {"output_index": index, "item": dict(item)}


def _part_events(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[Event]:
    field = "refusal" if part["type"] == "refusal" else "text"
    stem = "response.refusal" if field == "refusal" else "response.output_text"
    extra: dict[str, Any] = {} if field == "refusal" else {"logprobs": []}
    yield "response.content_part.added", {**place, "part": {**part, field: ""}}
    for text in deltas(part[field]):
        yield f"{stem}.delta", {**place, "delta": text, **extra}
    yield f"{stem}.done", {**place, field: part[field], **extra}
    yield "response.content_part.done", {**place, "part": dict(part)}


def _summary_events(part: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[Event]:
    yield "response.reasoning_summary_part.added", {**place, "part": {**part, "text": ""}}
    for text in deltas(part["text"]):
        yield "response.reasoning_summary_text.delta", {**place, "delta": text}
    yield "response.reasoning_summary_text.done", {**place, "text": part["text"]}
    yield "response.reasoning_summary_part.done", {**place, "part": dict(part)}


def _argument_events(kind: str, field: str, item: Mapping[str, Any], place: Mapping[str, Any]) -> Iterator[Event]:
    stem = f"response.{kind}_{field}"
    for text in deltas(item[field]):
        yield f"{stem}.delta", {**place, "delta": text}
    extra = {"name": item["name"]} if kind == "function_call" else {}
    yield f"{stem}.done", {**place, field: item[field], **extra}
