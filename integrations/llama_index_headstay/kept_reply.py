"""An LLM's reply as the semantic cache keeps it, and back: texts and tool calls, JSON values only."""

import json
from dataclasses import replace
from typing import Any, cast

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ContentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from headstay.ledger.usage import Usage
from headstay.semantic.answer import Answer
from headstay.semantic.lookup import Lookup
from llama_index_headstay.sdk_reply import REFUSED
from llama_index_headstay.tail import KEY
from llama_index_headstay.ticket import Ticket, token_counts, usage_in

_BODY = "blocks"


def answer_of(reply: ChatResponse | CompletionResponse, text: str | None, ticket: Ticket) -> Answer:
    """Write a reply for the cache.

    Args:
        reply: The reply, or the last chunk of its stream.
        text: What a stream said in all; None for a whole reply.
        ticket: The call, which knows how it ended and what it took.

    Raises:
        ValueError: There is something in it that could not be read back as it was; so may TypeError.
    """
    usage = ticket.usage or usage_in(reply) or Usage()
    blank = Answer(
        "",
        finish=ticket.ended,
        refused=ticket.ended == REFUSED,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )
    if reply.logprobs:
        raise ValueError("likelihoods of tokens")
    if isinstance(reply, CompletionResponse):
        return replace(blank, text=reply.text if text is None else text)
    blocks = [block for block in reply.message.blocks if not isinstance(block, (TextBlock, ThinkingBlock))]
    if not all(isinstance(block, ToolCallBlock) for block in blocks):
        raise ValueError("a block that is neither text nor a tool call")
    calls = [
        {"id": block.tool_call_id, "name": block.tool_name, "arguments": block.tool_kwargs}
        for block in cast("list[ToolCallBlock]", blocks)
    ]
    whole = reply.message.content or "" if text is None else text
    body: dict[str, Any] = json.loads(json.dumps({_BODY: {"calls": calls}}, allow_nan=False))
    return replace(blank, text=whole, body=body, tool_calls=bool(calls))


def reply_of(lookup: Lookup, *, completes: bool) -> ChatResponse | CompletionResponse:
    """Make the reply of a hit: new objects, no usage, and what the cache says of it under "headstay".

    Args:
        lookup: The hit.
        completes: Whether a completion was asked for.

    Raises:
        ValueError: The entry holds no reply; so may KeyError and TypeError.
    """
    if lookup.answer is None:
        raise ValueError("no answer")
    extra: dict[str, Any] = {KEY: lookup.metadata(), **token_counts(Usage())}
    if completes:
        return CompletionResponse(text=lookup.answer.text, additional_kwargs=extra)
    calls = cast("list[dict[str, Any]]", lookup.answer.body.get(_BODY, {}).get("calls", []))
    text: list[ContentBlock] = [TextBlock(text=lookup.answer.text)] if lookup.answer.text else []
    blocks: list[ContentBlock] = [
        ToolCallBlock(tool_call_id=call["id"], tool_name=call["name"], tool_kwargs=call["arguments"]) for call in calls
    ]
    message = ChatMessage(role=MessageRole.ASSISTANT, blocks=[*text, *blocks])
    return ChatResponse(message=message, additional_kwargs=extra)
