import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.storage.chat_store.base_db import MessageStatus
from pydantic import Field
from tests.llamaindex.memory_bench import close

from llama_index_headstay.memory import SteppedMemory

LIMIT, STEP = 60, 30


class Holds(BaseMemoryBlock[str]):
    """Recalls how often it was asked, and keeps what was flushed to it."""

    name: str = "holds"
    asked: int = 0
    flushed: list[str] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        self.asked += 1
        return f"recalled {self.asked}"

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.flushed += [str(message.content) for message in messages]


def count(text: str) -> list[str]:
    return text.split()


def called(name: str) -> dict[str, Any]:
    return {"tool_calls": [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}]}


@st.composite
def turns(draw: st.DrawFn) -> list[list[ChatMessage]]:
    """Turns of an agent: human messages, calls with their results, and an answer; the last may be under way."""
    made: list[list[ChatMessage]] = []
    for number in range(draw(st.integers(1, 8))):

        def say(role: MessageRole, of: int = number, **more: Any) -> ChatMessage:
            return ChatMessage(role=role, content=f"{of} " + "w " * draw(st.integers(0, 25)), **more)

        turn = [say(MessageRole.USER) for _ in range(draw(st.integers(1, 2)))]
        for call in range(draw(st.integers(0, 2))):
            turn.append(say(MessageRole.ASSISTANT, additional_kwargs=called(f"call {number} {call}")))
            turn += [
                say(MessageRole.TOOL, additional_kwargs={"tool_call_id": f"call {number} {call}"})
                for _ in range(draw(st.integers(1, 2)))
            ]
        made.append([*turn, say(MessageRole.ASSISTANT)])
    return [*made[:-1], made[-1][: draw(st.integers(1, len(made[-1])))]]


@given(turns())
@settings(max_examples=60, deadline=None)
def test_no_history_is_cut_inside_an_exchange_and_nothing_is_lost(conversation: list[list[ChatMessage]]) -> None:
    async def run() -> None:
        block = Holds()
        memory = SteppedMemory.from_defaults(
            token_limit=LIMIT,
            chat_history_token_ratio=1.0,
            token_flush_size=STEP,
            tokenizer_fn=count,
            memory_blocks=[block],
        )
        every: list[ChatMessage] = []
        first_kept: list[int] = []
        for turn in conversation:
            for message in turn:
                await memory.aput(message)
                every.append(message)
                kept = await memory.sql_store.get_messages(memory.session_id, status=MessageStatus.ACTIVE)
                assert kept[0].role == MessageRole.USER
                assert texts(kept) == texts(every)[len(every) - len(kept) :]
                assert block.flushed == texts(every)[: len(every) - len(kept)]
                assert kept[0].content == turn_of(every, kept[0])[0].content  # the whole exchange is there
                if memory._estimate_token_count(kept) > LIMIT:
                    assert {number(one) for one in kept} == {number(kept[-1])}  # only the one that goes on
                first_kept.append(len(every) - len(kept))
        await close(memory)  # its connection belongs to this loop
        assert first_kept == sorted(first_kept)

    asyncio.run(run())


def texts(messages: Sequence[ChatMessage]) -> list[str]:
    return [str(message.content) for message in messages]


def number(message: ChatMessage) -> str:
    return str(message.content).partition(" ")[0]


def turn_of(every: Sequence[ChatMessage], message: ChatMessage) -> list[ChatMessage]:
    return [one for one in every if number(one) == number(message)]


async def test_a_restart_in_the_middle_of_a_turn_sends_the_same_history(tmp_path: Any) -> None:
    where: dict[str, Any] = {"async_database_uri": f"sqlite+aiosqlite:///{tmp_path / 'chat.db'}", "session_id": "one"}

    def open_it() -> SteppedMemory:
        return SteppedMemory.from_defaults(
            token_limit=LIMIT, chat_history_token_ratio=1.0, tokenizer_fn=count, memory_blocks=[Holds()], **where
        )

    first = open_it()
    for turn in range(4):
        await first.aput(ChatMessage(role="user", content=f"question {turn} " + "w " * 12))
        await first.aput(ChatMessage(role="assistant", content=f"answer {turn}"))
    await first.aput(ChatMessage(role="user", content="the last"))
    before = await first.aget()
    await first.aput(ChatMessage(role="assistant", content="", additional_kwargs=called("look up")))
    second = open_it()
    after = await second.aget(input="the last")
    assert [one.model_dump() for one in after[: len(before) - 1]] == [one.model_dump() for one in before[:-1]]
    assert after[-1].additional_kwargs == called("look up")
    assert str(after[-2].content).startswith("the last\n")
    assert "recalled 1" in str(after[-2].content)
    for memory in (first, second):
        await close(memory)


async def test_an_agent_that_hands_off_after_it_wrote_its_thoughts_down_is_in_the_same_turn() -> None:
    memory = SteppedMemory.from_defaults(token_limit=9_000, memory_blocks=[Holds()])
    await memory.aput(ChatMessage(role="user", content="Is it open?"))
    before = await memory.aget()
    await memory.aput(ChatMessage(role="assistant", content="Thought: the other agent knows."))  # as ReActAgent does
    after = await memory.aget(input="Is it open?")
    assert after[0] == before[0]
    assert "recalled 1" in str(after[0].content)
    assert len(after) == 2
    await close(memory)


@pytest.mark.parametrize("text", ["", "   ", "{", "{x}", "<memory>", "smile \U0001f600"])
async def test_odd_texts_come_back(text: str) -> None:
    memory = SteppedMemory.from_defaults(token_limit=9_000, memory_blocks=[Holds()])
    await memory.aput(ChatMessage(role="user", content=text))
    assert [one.content for one in await memory.aget_all()] == [text]
    assert "recalled 1" in str((await memory.aget())[-1].content)
    await close(memory)
