"""Shapes an answer as a Messages response, whole or as the events of a stream."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headstay.emulator.anthropic_cache import Outcome
from headstay.emulator.reply import Reply
from headstay.emulator.shape import compact, mapping, sequence
from headstay.emulator.tokens import count, pieces

_PIECES_AN_EVENT = 6
_CHARACTERS_AN_EVENT = 24

_STOPS = {"end": "end_turn", "length": "max_tokens", "refusal": "refusal"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The content of a response: blocks, why it stopped, and what it cost."""

    content: tuple[dict[str, Any], ...]
    stop_reason: str
    stop_sequence: str | None
    thinking_tokens: int
    output_tokens: int


def shape_answer(
    reply: Reply, body: Mapping[str, Any], *, thinking: dict[str, Any] | None, call_ids: Sequence[str]
) -> Answer:
    """Turn a reply into content blocks, cut at the first stop sequence and at `max_tokens`.

    Args:
        reply: What the model says.
        body: The request.
        thinking: The signed thinking block to send first, or None.
        call_ids: One id for each tool call.
    """
    maximum = int(body["max_tokens"])
    if maximum == 0:
        return Answer((), "max_tokens", None, 0, 0)
    thought = count(reply.thinking or "") if thinking is not None else 0
    content: list[dict[str, Any]] = [thinking] if thinking is not None else []
    text, sequence_found = _stopped(reply.text, body)
    shown = pieces(text)[: max(0, maximum - thought)]
    cut = len(shown) < len(pieces(text))
    if shown:
        content.append({"type": "text", "text": "".join(shown)})
    spent = thought + len(shown)
    calls = () if sequence_found or cut else reply.tool_calls
    for call, name in zip(calls, call_ids, strict=False):
        block = {"type": "tool_use", "id": name, "name": call.name, "input": dict(call.arguments)}
        cost = count(call.name) + count(compact(block["input"]))
        if spent + cost > maximum:
            cut = True
            break
        content.append(block)
        spent += cost
    if cut:
        reason = "max_tokens"
    elif sequence_found:
        reason = "stop_sequence"
    else:
        reason = "tool_use" if calls else _STOPS[reply.stop]
    return Answer(tuple(content), reason, sequence_found if reason == "stop_sequence" else None, thought, spent)


def usage_of(outcome: Outcome, body: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """Return the `usage` of a response; `input_tokens` leaves out what was read and written."""
    usage: dict[str, Any] = {
        "input_tokens": outcome.uncached,
        "cache_creation_input_tokens": outcome.written(),
        "cache_read_input_tokens": outcome.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": outcome.written("5m"),
            "ephemeral_1h_input_tokens": outcome.written("1h"),
        },
        "output_tokens": answer.output_tokens,
        "service_tier": "standard",
    }
    if answer.thinking_tokens:
        usage["output_tokens_details"] = {"thinking_tokens": answer.thinking_tokens}
    if body.get("speed") is not None:
        usage["speed"] = body["speed"]
    return usage


def events_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream that adds up to a message.

    `message_start` carries the usage in full; `message_delta` repeats it cumulatively, without the split by
    lifetime (SDK types of anthropic 2.14.0, recorded streams seen 2026-11-29).
    """
    usage = mapping(message.get("usage"))
    started: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    started["usage"] = {**usage, "output_tokens": 1}
    transformed = started.pop("input_transformations", None)
    yield {"type": "message_start", "message": started}
    for index, block in enumerate(sequence(message.get("content"))):
        yield from _block_events(index, block)
        if index == 0:
            yield {"type": "ping"}
    hidden = {"cache_creation", "service_tier", "speed"}
    delta = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    final = {"type": "message_delta", "delta": delta}
    final["usage"] = {key: value for key, value in usage.items() if key not in hidden}
    yield final if transformed is None else {**final, "input_transformations": transformed}
    yield {"type": "message_stop"}


def encoded(event: Mapping[str, Any]) -> bytes:
    """Write one event of a stream as bytes."""
    return f"event: {event['type']}\ndata: {compact(event)}\n\n".encode("utf-8", "surrogatepass")


def _stopped(text: str, body: Mapping[str, Any]) -> tuple[str, str | None]:
    """Cut a text before the first stop sequence in it; return that sequence too."""
    asked = [str(stop) for stop in sequence(body.get("stop_sequences"))]
    found = [(text.find(stop), stop) for stop in asked if stop and stop in text]
    if not found:
        return text, None
    at, stop = min(found)
    return text[:at], stop


def _block_events(index: int, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = block["type"]
    if kind == "text":
        empty: dict[str, Any] = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": text} for text in _chunks(pieces(block["text"]))]
    elif kind == "thinking":
        empty = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": text} for text in _chunks(pieces(block["thinking"]))]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        empty = {**block, "input": {}}
        written = compact(block["input"])
        cuts = range(0, len(written), _CHARACTERS_AN_EVENT)
        texts = ["", *(written[cut : cut + _CHARACTERS_AN_EVENT] for cut in cuts)]
        deltas = [{"type": "input_json_delta", "partial_json": text} for text in texts]
    yield {"type": "content_block_start", "index": index, "content_block": empty}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _chunks(tokens: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(tokens), _PIECES_AN_EVENT):
        yield "".join(tokens[start : start + _PIECES_AN_EVENT])
