"""The answers of Chat Completions, whole and as chunks (types of openai 3.57.0)."""

from collections.abc import Iterator, Mapping
from typing import Any

from headstay.emulator.openai_cache import Outcome
from headstay.emulator.openai_gates import Reading
from headstay.emulator.openai_output import Call, Output, deltas
from headstay.emulator.shape import mapping


def chat_usage(outcome: Outcome, output: Output, choices: int) -> dict[str, Any]:
    """Return the usage: `prompt_tokens` includes what was read from and written to the cache."""
    generated = output.tokens * choices
    return {
        "prompt_tokens": outcome.total,
        "completion_tokens": generated,
        "total_tokens": outcome.total + generated,
        "prompt_tokens_details": {
            "cached_tokens": outcome.read,
            "cache_write_tokens": outcome.written(),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": output.reasoning_tokens * choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def chat_completion(reading: Reading, outcome: Outcome, output: Output, *, name: str, created: int) -> dict[str, Any]:
    """Return a whole completion."""
    choices = max(1, int(reading.body.get("n") or 1))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if output.refused or (output.calls and not output.text) else output.text,
        "refusal": output.text if output.refused else None,
        "annotations": [],
    }
    if output.calls:
        message["tool_calls"] = [_call(call) for call in output.calls]
    return {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": reading.model.name,
        "choices": [
            {"index": index, "message": message, "logprobs": None, "finish_reason": output.finish}
            for index in range(choices)
        ],
        "usage": chat_usage(outcome, output, choices),
        "service_tier": reading.settings["service_tier"],
        "system_fingerprint": outcome.fingerprint,
    }


def chat_chunks(
    reading: Reading, completion: Mapping[str, Any], output: Output
) -> Iterator[tuple[str | None, Mapping[str, Any]]]:
    """Return the chunks of a streamed completion as (event name, data).

    The usage comes in a last chunk without choices, and only if `stream_options.include_usage` asked for it;
    the closing `[DONE]` is not among them.
    """
    wanted = mapping(reading.body.get("stream_options")).get("include_usage") is True
    frame = {key: completion[key] for key in ("id", "created", "model", "service_tier", "system_fingerprint")}
    frame["object"] = "chat.completion.chunk"
    nothing = {"usage": None} if wanted else {}

    for choice in completion["choices"]:
        for delta in _deltas(output):
            part = {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}
            yield None, {**frame, "choices": [part], **nothing}
        end: dict[str, Any] = {"index": choice["index"], "delta": {}, "logprobs": None}
        yield None, {**frame, "choices": [{**end, "finish_reason": output.finish}], **nothing}
    if wanted:
        yield None, {**frame, "choices": [], "usage": completion["usage"]}


def _deltas(output: Output) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if output.calls and not output.text else "", "refusal": None}
    for text in deltas(output.text):
        yield {"refusal" if output.refused else "content": text}
    for index, call in enumerate(output.calls):
        kind, field = ("custom", "input") if call.custom else ("function", "arguments")
        opening = {"index": index, "id": call.id, "type": kind, kind: {"name": call.name, field: ""}}
        yield {"tool_calls": [opening]}
        for text in deltas(call.arguments):
            yield {"tool_calls": [{"index": index, kind: {field: text}}]}


def _call(call: Call) -> dict[str, Any]:
    if call.custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
