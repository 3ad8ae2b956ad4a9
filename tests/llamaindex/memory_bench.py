"""What the tests of memories share: memories whose databases are closed, and blocks that recall what they are told."""

from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory import BaseMemoryBlock, Memory

from llama_index_headstay.memory import SteppedMemory

Remember = Callable[..., Any]


class Diary(BaseMemoryBlock[Any]):
    """Recalls something else each time it is asked, and notes what it was asked with and given."""

    name: str = "diary"
    pages: list[Any] = Field(default_factory=list)
    asked: list[list[str]] = Field(default_factory=list)
    kept: list[str] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> Any:
        self.asked.append([str(message.content) for message in messages or []])
        return self.pages[(len(self.asked) - 1) % len(self.pages)]

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.kept += [str(message.content) for message in messages]


def words(text: str) -> list[str]:
    """A tokenizer that is worked out by hand."""
    return text.split()


def human(text: str) -> ChatMessage:
    return ChatMessage(text, role=MessageRole.USER)


def reply(text: str) -> ChatMessage:
    return ChatMessage(text, role=MessageRole.ASSISTANT)


def call(name: str) -> ChatMessage:
    block = ToolCallBlock(tool_name=name, tool_call_id=name, tool_kwargs={})
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=[TextBlock(text=f"calls {name}"), block])


def result(name: str) -> ChatMessage:
    return ChatMessage(f"{name} says", role=MessageRole.TOOL, additional_kwargs={"tool_call_id": name})


def said(messages: Sequence[ChatMessage]) -> list[tuple[str, str]]:
    """Roles, and texts as OpenAI's wire joins them."""
    return [
        (message.role.value, "".join(block.text for block in message.blocks if isinstance(block, TextBlock)))
        for message in messages
    ]


def stepped(**settings: Any) -> SteppedMemory:
    return SteppedMemory.from_defaults(**{"tokenizer_fn": words, "session_id": "s", **settings})


async def close(memory: Memory) -> None:
    engine = getattr(memory.sql_store, "_async_engine", None)
    if engine is not None:
        await engine.dispose()
