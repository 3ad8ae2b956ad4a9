"""Per-call text at the end of a human turn, such as retrieved context: how a message says that it bears some.

A message built here reads well for any model: the question first, then a text block of its own. An instrumented model
takes the block off and sends its text as the note of the call, behind the last marker, where it costs no cache. The
mark is in `additional_kwargs`, so that it is still there when a memory has written the message to its store.
"""

from collections.abc import Sequence
from typing import cast

from llama_index.core.base.llms.types import ChatMessage, ContentBlock, MessageRole, TextBlock

from headstay.errors import ConfigError

KEY = "headstay"
"""The key of `additional_kwargs` under which headstay keeps what it says of a message or a reply."""

_BLOCKS = "tail_blocks"


def with_tail(message: ChatMessage, *texts: str) -> ChatMessage:
    """Return a copy of a human message that bears per-call text.

    Args:
        message: The message; it is not changed.
        *texts: The texts, each a block of its own; an empty one adds nothing.

    Raises:
        ConfigError: It is no human message.
    """
    if not isinstance(cast("object", message), ChatMessage) or message.role != MessageRole.USER:
        given = str(message.role.value) if isinstance(cast("object", message), ChatMessage) else type(message).__name__
        raise ConfigError(f"with_tail({given}): give the ChatMessage of a user; text for one call stands in no other")
    borne = [TextBlock(text=f"\n\n{text.strip()}") for text in texts if text.strip()]
    if not borne:
        return message
    blocks: list[ContentBlock] = [*message.blocks, *borne]
    said = {**_said(message), _BLOCKS: _count(message) + len(borne)}
    return message.model_copy(update={"blocks": blocks, "additional_kwargs": {**message.additional_kwargs, KEY: said}})


def without_tail(message: ChatMessage) -> ChatMessage:
    """Return a copy of a message without the per-call text it bears; the message itself where it bears none."""
    count = _count(message)
    if not count:
        return message
    said = {name: value for name, value in _said(message).items() if name != _BLOCKS}
    kept = {name: value for name, value in message.additional_kwargs.items() if name != KEY}
    return message.model_copy(
        update={"blocks": message.blocks[:-count], "additional_kwargs": {**kept, KEY: said} if said else kept}
    )


def unmarked(message: ChatMessage) -> ChatMessage:
    """Return a message with all its text, but without headstay's mark, which LlamaIndex would write into a text."""
    if KEY not in message.additional_kwargs:
        return message
    kept = {name: value for name, value in message.additional_kwargs.items() if name != KEY}
    return message.model_copy(update={"additional_kwargs": kept})


def tail_texts(messages: Sequence[ChatMessage]) -> list[str]:
    """Return the texts that the last human message bears for this call, as they stand at its end."""
    for message in reversed(messages):
        if message.role == MessageRole.USER:
            return _borne(message)
    return []


def earlier_tail_texts(messages: Sequence[ChatMessage]) -> list[list[str]]:
    """Return the texts that the human messages of earlier turns still bear, newest message first.

    What stands between two human messages without an answer is of one turn.
    """
    last = max((at for at, message in enumerate(messages) if message.role == MessageRole.USER), default=0)
    answer = max((at for at, message in enumerate(messages[:last]) if message.role == MessageRole.ASSISTANT), default=0)
    earlier = (message for message in reversed(messages[:answer]) if message.role == MessageRole.USER)
    return [texts for message in earlier if (texts := _borne(message))]


def stands_alone(message: ChatMessage) -> bool:
    """Whether a message holds nothing but per-call text: it stays a message, for providers refuse an empty one."""
    rest = message.blocks[: len(message.blocks) - _count(message)]
    return not any(not isinstance(block, TextBlock) or block.text.strip() for block in rest)


def _borne(message: ChatMessage) -> list[str]:
    count = _count(message)
    borne = message.blocks[-count:] if count else []
    return [block.text for block in borne if isinstance(block, TextBlock)]


def _said(message: ChatMessage) -> dict[str, object]:
    said = message.additional_kwargs.get(KEY)
    return cast("dict[str, object]", said) if isinstance(said, dict) else {}


def _count(message: ChatMessage) -> int:
    count = _said(message).get(_BLOCKS)
    return count if isinstance(count, int) and 0 < count <= len(message.blocks) else 0
