"""What memory blocks gave for one human turn, and where it stands among the messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from llama_index.core.base.llms.types import ChatMessage, ContentBlock, MessageRole, TextBlock, ToolCallBlock

from llama_index_headstay.chat_prompt import last_human
from llama_index_headstay.tail import with_tail


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the memory blocks gave.

    Attributes:
        system: What stands in the system message.
        tail: Texts behind the human message.
        media: Images and other blocks without text, which stand in front of those texts.
        messages: Messages that cannot be written as text; they stand in front of the history.
    """

    system: tuple[ContentBlock, ...] = ()
    tail: tuple[str, ...] = ()
    media: tuple[ContentBlock, ...] = ()
    messages: tuple[ChatMessage, ...] = ()


def place(history: Sequence[ChatMessage], asked: int, remembered: Remembered) -> list[ChatMessage]:
    """Add what was remembered to copies of the messages it belongs to.

    Args:
        history: The messages.
        asked: Where the human message of this turn is, or -1 where it is still to come: then a message with nothing
            but the additions stands at the end.
        remembered: The additions.
    """
    placed = list(history)
    if remembered.tail or remembered.media:
        if asked < 0:
            placed.append(ChatMessage(role=MessageRole.USER, blocks=[]))
        message = placed[asked]
        message = message.model_copy(update={"blocks": [*message.blocks, *remembered.media]})
        placed[asked] = with_tail(message, *remembered.tail)
    if remembered.system and placed and placed[0].role == MessageRole.SYSTEM:
        blocks = [*remembered.system, TextBlock(text="\n\n"), *placed[0].blocks]
        placed[0] = placed[0].model_copy(update={"blocks": blocks})
    elif remembered.system:
        placed.insert(0, ChatMessage(role=MessageRole.SYSTEM, blocks=list(remembered.system)))
    return [*remembered.messages, *placed]


def turn_of(history: Sequence[ChatMessage], question: str | None, *, begun: bool) -> int:
    """Return where the human message of this turn is, or -1 where it is not in the history yet.

    Args:
        history: The messages.
        question: The text of the human message, or None where it was not told: then it is the last one.
        begun: Whether the turn of the last human message is known to go on.
    """
    at = last_human(history)
    if at < 0 or question is None:
        return at
    same = (history[at].content or "") == question
    return at if same and (begun or not any(_is_answer(message) for message in history[at + 1 :])) else -1


def as_text(content: object) -> object:
    """Write messages of a human and an assistant as one text; anything else is returned as it is."""
    messages = _messages(content)
    if not messages or not all(map(_is_talk, messages)):
        return content
    return "\n".join(f"{message.role.value}: {message.content}" for message in messages)


def _messages(content: object) -> list[ChatMessage]:
    items = cast("list[object]", content) if isinstance(content, list) else []
    messages = [item for item in items if isinstance(item, ChatMessage)]
    return messages if len(messages) == len(items) else []


def _is_talk(message: ChatMessage) -> bool:
    spoken = message.role in (MessageRole.USER, MessageRole.ASSISTANT)
    return spoken and bool(message.blocks) and all(isinstance(block, TextBlock) for block in message.blocks)


def _is_answer(message: ChatMessage) -> bool:
    """Whether a message ends a turn: an assistant's that calls no tool."""
    calls = message.additional_kwargs.get("tool_calls") or any(isinstance(b, ToolCallBlock) for b in message.blocks)
    return message.role == MessageRole.ASSISTANT and not calls
