"""Replies of LangChain to answers of the cache, and back: a served reply is a new message that cost nothing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, Generation
from langchain_core.runnables.utils import AddableDict
from pydantic import BaseModel

from headstay.semantic.answer import Answer
from headstay.semantic.lookup import Lookup
from headstay.semantic.pieces import pieces_of_text
from langchain_headstay.asked import OWN

_FINISHES = ("stop_reason", "finish_reason", "done_reason", "stopReason", "status")
_TELL_THE_END = frozenset({"anthropic", "openai"})
"""Providers whose every whole reply says how it ended; a stream that was cut off says nothing."""
# What a reply says about itself that is still true of a replay. Ids, receipts and token counts are not.
_REPLAYED = ("model_name", "model", "model_provider", "stop_sequence", *_FINISHES)
_PARSED = "parsed"
"""Where ChatOpenAI puts the object that it made of a reply."""
_REASONING = ("thinking", "redacted_thinking", "reasoning")
_TEXTS = ("text", "output_text", "refusal")
_KEPT_FIELDS = ("content", "name", "tool_calls", "invalid_tool_calls")


def answer_of(generations: Sequence[Generation]) -> Answer:
    """Write a reply down.

    Args:
        generations: As LangChain holds them; several are one answer.

    Raises:
        TypeError: It holds what JSON does not have.
        ValueError: The same.
    """
    told = [_told(one) for one in generations]
    messages = [one.message for one in generations if isinstance(one, ChatGeneration)]
    replies: list[AIMessage] = [message for message in messages if isinstance(message, AIMessage)]
    usage = [reply.usage_metadata for reply in replies if reply.usage_metadata]
    return Answer(
        text="\n".join(generation.text for generation in generations),
        body={"generations": told},
        finish=next((finish for one in generations if (finish := _finish(one))), None),
        tool_calls=any(reply.tool_calls or reply.invalid_tool_calls for reply in replies),
        refused=any(reply.additional_kwargs.get("refusal") or _refused(reply) for reply in replies),
        input_tokens=sum(one.get("input_tokens", 0) for one in usage),
        output_tokens=sum(one.get("output_tokens", 0) for one in usage),
    )


def generations_of(lookup: Lookup) -> list[Generation]:
    """Make the reply of a hit.

    Raises:
        ValueError: The entry does not hold a reply; so may TypeError and KeyError.
    """
    if lookup.answer is None:
        raise ValueError("no answer")
    told: object = lookup.answer.body.get("generations")
    if told is None:  # imported, or from another host
        return [ChatGeneration(message=_made({"content": lookup.answer.text}, lookup))]
    if not isinstance(told, list) or not told:
        raise ValueError("no generations")
    return [_generation(one, lookup) for one in cast("list[dict[str, Any]]", told)]


def with_parsed(message: AIMessage, schema: object) -> AIMessage:
    """Make the object again that ChatOpenAI made of a reply, where the call gave a class for it."""
    parsed = message.additional_kwargs.get(_PARSED)
    if parsed is None or not isinstance(schema, type) or not issubclass(schema, BaseModel):
        return message
    extra = {**message.additional_kwargs, _PARSED: schema.model_validate(parsed)}
    return message.model_copy(update={"additional_kwargs": extra})


def served(message: AIMessage, lookup: Lookup) -> AIMessage:
    """Make a new message of a kept one: it cost nothing, says that it was served, and has an id of its own.

    LangGraph keeps only the last of two messages with one id, and a provider refuses two blocks with one id. Reasoning
    goes with the request it was made for; a reworded question is another.
    """
    said = {name: message.response_metadata[name] for name in _REPLAYED if name in message.response_metadata}
    extra = {name: item for name, item in message.additional_kwargs.items() if name not in (OWN, "reasoning")}
    changes: dict[str, Any] = {
        "response_metadata": {**said, OWN: lookup.metadata()},
        "additional_kwargs": extra,
        "usage_metadata": UsageMetadata(input_tokens=0, output_tokens=0, total_tokens=0),
        "id": str(uuid4()),
    }
    if isinstance(message.content, list):
        blocks = (_fresh(block, lookup) for block in message.content)
        changes["content"] = [block for block in blocks if block is not None]
    return message.model_copy(update=changes)


def chunks_of(message: AIMessage) -> Iterator[ChatGenerationChunk]:
    """Replay a served message as a stream: its text in pieces, everything else in the last chunk."""
    rest = message.model_dump(exclude={"type"})
    *pieces, last = list(_content_pieces(message.content)) or [""]
    for piece in pieces:
        yield ChatGenerationChunk(message=AIMessageChunk(content=piece, id=message.id))
    rest["content"] = last
    chunk = AIMessageChunk.model_validate({**rest, "chunk_position": "last"})
    yield ChatGenerationChunk(message=chunk)


def _content_pieces(content: str | list[str | dict[Any, Any]]) -> Iterator[Any]:
    """Cut a content into parts that LangChain adds up to it again; blocks by their index."""
    if isinstance(content, str):
        yield from pieces_of_text(content)
        return
    for index, block in enumerate(content):
        if isinstance(block, str):
            yield [block]
            continue
        texts = list(pieces_of_text(block["text"])) if block.get("type") == "text" else []
        yield [{**block, **({"text": texts[0]} if texts else {}), "index": index}]
        yield from ([{"type": "text", "text": text, "index": index}] for text in texts[1:])


def pieces_of(value: Any) -> Iterator[Any]:
    """Replay a chain's served answer as a stream: texts and messages in pieces, anything else whole."""
    if isinstance(value, AIMessage):
        yield from (chunk.message for chunk in chunks_of(value))
    elif isinstance(value, str) and value:
        yield from pieces_of_text(value)
    elif type(value) is dict:
        yield AddableDict(cast("dict[str, Any]", value))
    else:
        yield value


def _told(generation: Generation) -> dict[str, Any]:
    """Write one generation in JSON values."""
    told: dict[str, Any] = {"text": generation.text, "info": generation.generation_info}
    if isinstance(generation, ChatGeneration):
        message = generation.message
        fields = {name: value for name in _KEPT_FIELDS if (value := getattr(message, name, None))}
        said = message.response_metadata
        fields["response_metadata"] = {name: said[name] for name in _REPLAYED if said.get(name) is not None}
        extra = {name: one for name, one in message.additional_kwargs.items() if name != OWN}
        if isinstance(extra.get(_PARSED), BaseModel):
            extra[_PARSED] = extra[_PARSED].model_dump(mode="json")
        fields["additional_kwargs"] = extra
        told = {"message": fields}
    # Through JSON and back: what is kept must be plain values, and must not change with the reply.
    return cast("dict[str, Any]", json.loads(json.dumps(told, allow_nan=False)))


def _generation(told: dict[str, Any], lookup: Lookup) -> Generation:
    fields = told.get("message")
    if fields is None:
        return Generation(text=told["text"], generation_info=told.get("info"))
    return ChatGeneration(message=_made(fields, lookup))


def _made(fields: Mapping[str, Any], lookup: Lookup) -> AIMessage:
    return served(AIMessage.model_validate({"content": "", **fields}), lookup)


def _fresh(block: str | dict[Any, Any], lookup: Lookup) -> str | dict[Any, Any] | None:
    """Return a block of a served reply without what binds it to the reply it was in; None leaves it out."""
    if isinstance(block, str):
        return block
    if block.get("type") in _REASONING and (lookup.tier != "exact" or block.get("id")):
        return None
    return {name: item for name, item in block.items() if name != "id" or block.get("type") not in _TEXTS}


def _finish(generation: Generation) -> str | None:
    """Return the provider's word for how a generation ended, or that it should have said one."""
    info: dict[str, Any] = dict(generation.generation_info or {})
    if isinstance(generation, ChatGeneration):
        info = {**generation.message.response_metadata, **info}
        if isinstance(generation.message, AIMessage) and generation.message.invalid_tool_calls:
            return "invalid_tool_calls"
    incomplete = info.get("incomplete_details")
    if isinstance(incomplete, Mapping):
        return str(cast("Mapping[str, Any]", incomplete).get("reason") or "incomplete")
    words = [info[name] for name in _FINISHES if isinstance(info.get(name), str)]
    missing = "missing" if info.get("model_provider") in _TELL_THE_END else None
    return words[0] if words else missing


def _refused(message: BaseMessage) -> bool:
    """Whether a block of the content is a refusal."""
    blocks = message.content if isinstance(message.content, list) else []
    return any(isinstance(block, dict) and block.get("type") == "refusal" for block in blocks)
