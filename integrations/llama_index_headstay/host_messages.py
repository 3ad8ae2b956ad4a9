"""Any other LLM: its messages are put into order before its class gets them, values behind the head, notes last."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock

from llama_index_headstay.tail import without_tail
from llama_index_headstay.ticket import Ticket

_TEXT = "text"


def arrange(
    model: str, messages: Sequence[ChatMessage], given: Mapping[str, Any], ticket: Ticket
) -> tuple[list[ChatMessage], dict[str, Any]]:
    """Put the messages of a call into order.

    Args:
        model: The model id, or empty.
        messages: As the application made them; they are not changed.
        given: The call's keyword arguments; a list of tools among them is put into one order.
        ticket: The call under way.

    Returns:
        Messages and keyword arguments to hand on.
    """
    bare = [without_tail(message) for message in messages]
    items = [_item(message) for message in bare]
    body: dict[str, object] = {"model": model, "messages": items}
    tools: object = given.get("tools")
    if isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in cast("list[object]", tools)):
        body["tools"] = tools
    tail = "\n\n".join(text.strip() for text in ticket.tails)
    call = ticket.call = ticket.binding.prepare(body, "host-messages", names=ticket.names, tail=tail)
    sent = cast("list[dict[str, Any]]", call.body["messages"])
    if call.unverified is not None or len(sent) != len(items):
        call.unverified = call.unverified or "the arranged messages are not the application's in number"
        return [message.model_copy() for message in messages], dict(given)
    arranged = [
        message.model_copy()
        if new is old or new["content"] == old["content"]
        else _with_content(message, new["content"])
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
        return message.model_copy(update={"blocks": [TextBlock(text=content)]})
    others = iter([block for block in message.blocks if not isinstance(block, (TextBlock, ToolCallBlock))])
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    blocks = [
        TextBlock(text=part[_TEXT]) if part.get("type") == _TEXT else next(others)
        for part in cast("list[dict[str, Any]]", content)
    ]
    return message.model_copy(update={"blocks": [*blocks, *calls]})
