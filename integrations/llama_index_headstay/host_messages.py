"""Any other LLM: its messages are put into order before its class gets them, values behind the head, notes last."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import CachePoint, ChatMessage, TextBlock, ToolCallBlock

from headstay.errors import PrefixBreak
from llama_index_headstay.tail import stands_alone, unmarked, without_tail
from llama_index_headstay.ticket import Ticket

_TEXT = "text"


def arrange(
    model: str, messages: Sequence[ChatMessage], given: Mapping[str, Any], ticket: Ticket
) -> tuple[list[ChatMessage], dict[str, Any]]:
    """Put the messages of a call into order; what cannot be read goes out as it was said, and the reason is kept.

    Args:
        model: The model id, or empty.
        messages: As the application made them; they are not changed.
        given: The call's keyword arguments; a list of tools among them is put into one order.
        ticket: The call under way.

    Returns:
        Messages and keyword arguments to hand on.
    """
    try:
        return _arranged(model, messages, given, ticket)
    except PrefixBreak:
        raise
    except Exception as problem:  # noqa: BLE001 - the application's own request goes out
        if ticket.call is not None:  # it was prepared, and what came of that could not be written back
            ticket.binding.flow.abandon(ticket.call)
        reason = f"{type(problem).__name__} while the messages were read"  # its own words may quote a prompt
        ticket.call = ticket.binding.pass_on({"model": model}, "host-messages", reason, names=ticket.names)
        return _own(messages), dict(given)


def _own(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    return [copied(unmarked(message)) for message in messages]


def copied(message: ChatMessage) -> ChatMessage:
    """Copy a message with whatever a class may write on: some write markers into its dict or its blocks."""
    blocks = [block.model_copy(deep=True) if isinstance(block, CachePoint) else block for block in message.blocks]
    return message.model_copy(update={"additional_kwargs": dict(message.additional_kwargs), "blocks": blocks})


def _arranged(
    model: str, messages: Sequence[ChatMessage], given: Mapping[str, Any], ticket: Ticket
) -> tuple[list[ChatMessage], dict[str, Any]]:
    bare = [unmarked(message if stands_alone(message) else without_tail(message)) for message in messages]
    items = [_item(message) for message in bare]
    body: dict[str, object] = {"model": model, "messages": items}
    tools: object = given.get("tools")
    if isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in cast("list[object]", tools)):
        body["tools"] = tools
    call = ticket.call = ticket.binding.prepare(body, "host-messages", names=ticket.names, tail=ticket.tail)
    sent = cast("list[dict[str, Any]]", call.body["messages"])
    if call.unverified is not None or len(sent) != len(items):
        call.unverified = call.unverified or "the arranged messages are not the application's in number"
        return _own(messages), dict(given)
    arranged = [
        copied(message) if new is old or new["content"] == old["content"] else _with_content(message, new["content"])
        for message, old, new in zip(bare, items, sent, strict=True)
    ]
    return arranged, ({**given, "tools": call.body["tools"]} if "tools" in body else dict(given))


def _item(message: ChatMessage) -> dict[str, Any]:
    content = [_block(block) for block in message.blocks if not isinstance(block, ToolCallBlock)]
    item: dict[str, Any] = {"role": str(message.role.value), "content": content}
    if len(content) == 1 and content[0].get("type") == _TEXT:
        item["content"] = content[0][_TEXT]
    if "tool_call_id" in message.additional_kwargs:
        item["tool_call_id"] = message.additional_kwargs["tool_call_id"]
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if calls:
        item["tool_calls"] = [{"type": "function", "name": call.tool_name, "args": call.tool_kwargs} for call in calls]
    return item


def _block(block: Any) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": _TEXT, _TEXT: block.text}
    return {"type": block.block_type, **block.model_dump(mode="json", exclude={"block_type"})}


def _with_content(message: ChatMessage, content: Any) -> ChatMessage:
    """Write arranged texts back; blocks that hold anything else stay the application's own."""
    if isinstance(content, str):
        return copied(message.model_copy(update={"blocks": [TextBlock(text=content)]}))
    others = iter([block for block in message.blocks if not isinstance(block, (TextBlock, ToolCallBlock))])
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    blocks = [
        TextBlock(text=part[_TEXT]) if part.get("type") == _TEXT else next(others)
        for part in cast("list[dict[str, Any]]", content)
    ]
    return copied(message.model_copy(update={"blocks": [*blocks, *calls]}))
