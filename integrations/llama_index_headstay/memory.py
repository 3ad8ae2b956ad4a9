"""A chat memory whose history stays the same from turn to turn: it is cut rarely, and what is recalled stands last."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage, ContentBlock, MessageRole, TextBlock
from llama_index.core.bridge.pydantic import PrivateAttr, model_validator
from llama_index.core.memory import BaseMemoryBlock, InsertMethod, Memory, StaticMemoryBlock
from llama_index.core.memory.memory import DEFAULT_MEMORY_BLOCKS_TEMPLATE, DEFAULT_TOKEN_LIMIT
from llama_index.core.prompts import RichPromptTemplate
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from sqlalchemy.ext.asyncio import AsyncEngine

from llama_index_headstay.chat_prompt import last_human
from llama_index_headstay.memory_blocks import Remembered, as_text, place, turn_of
from llama_index_headstay.memory_flush import exchange_starts, flush_count
from llama_index_headstay.tail import tail_texts, with_tail, without_tail

_RATIO = 0.7


def _half(limit: int, ratio: float) -> int:
    """Return the tokens of a step where none is given: half of the history's share."""
    return max(1, int(limit * ratio / 2))


class SteppedMemory(Memory):
    """LlamaIndex's `Memory` with a history that keeps its head.

    It takes what `Memory` takes and keeps messages in the same store. Three things differ.

    The history is cut in large steps. Once it passes `token_limit * chat_history_token_ratio`, whole exchanges are
    flushed until it is `token_flush_size` below that, by default half of it. So the first message sent stays the same
    for many turns, tool calls stay with their results, and the first message kept is a human one. The exchange that
    goes on is never cut.

    What memory blocks recall stands behind the latest human message, as text for this call that is never stored. It is
    recalled once for each human turn, so it stays the same while an agent calls tools. Where the human message is not
    in the history yet, as in `ContextChatEngine`, a message with nothing but that text ends the history;
    `prefix_safe` engines take it into the question. Blocks that recall messages are written as text, too, unless these
    hold tool calls, media or system messages: such messages stand in front of the history, as in `Memory`.

    A `StaticMemoryBlock` is the application's own text and the same in each turn, so it stays in a system message in
    front. With `insert_method=InsertMethod.USER` it stands behind the human message with the others: choose that for
    a server that takes one system message only, and for `ReActAgent`, which drops the first one.
    """

    _turn: tuple[ChatMessage | str | None, Remembered] | None = PrivateAttr(default=None)
    _supplied: tuple[ChatMessage, list[str]] | None = PrivateAttr(default=None)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which it is serialised."""
        return "SteppedMemory"

    @model_validator(mode="before")
    @classmethod
    def step_in_halves(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in the size of a step where none is given."""
        limit = values.get("token_limit", -1)
        if values.get("token_flush_size") is None and isinstance(limit, int) and limit > 0:
            share = values.get("chat_history_token_ratio", _RATIO)
            return {**values, "token_flush_size": _half(limit, share)}
        return values

    @classmethod
    def from_defaults(  # type: ignore[override]  # as in Memory, which spells its arguments out
        cls,
        session_id: str | None = None,
        chat_history: list[ChatMessage] | None = None,
        token_limit: int = DEFAULT_TOKEN_LIMIT,
        memory_blocks: list[BaseMemoryBlock[Any]] | None = None,
        tokenizer_fn: Callable[[str], list[Any]] | None = None,
        chat_history_token_ratio: float = _RATIO,
        token_flush_size: int | None = None,
        memory_blocks_template: RichPromptTemplate = DEFAULT_MEMORY_BLOCKS_TEMPLATE,
        insert_method: InsertMethod = InsertMethod.SYSTEM,
        image_token_size_estimate: int = 256,
        audio_token_size_estimate: int = 256,
        video_token_size_estimate: int = 256,
        chat_store: AsyncDBChatStore | None = None,
        table_name: str = "llama_index_memory",
        async_database_uri: str | None = None,
        async_engine: AsyncEngine | None = None,
        db_schema: str | None = None,
    ) -> "SteppedMemory":
        """Make one; the arguments are those of `Memory.from_defaults`.

        Args:
            session_id: Key of the conversation in the store; None makes one.
            chat_history: Messages to begin with.
            token_limit: What history and memory blocks may take together.
            memory_blocks: What recalls texts for each turn.
            tokenizer_fn: Cuts a text into tokens.
            chat_history_token_ratio: The history's share of the limit.
            token_flush_size: How far below its share the history is cut; None for half of it.
            memory_blocks_template: How recalled texts are written.
            insert_method: Where static blocks stand; see the class.
            image_token_size_estimate: Tokens of an image.
            audio_token_size_estimate: Tokens of an audio block.
            video_token_size_estimate: Tokens of a video block.
            chat_store: Where messages are kept; the arguments after it are then without effect.
            table_name: Table of the messages.
            async_database_uri: Database of the messages; None for one in memory.
            async_engine: SQLAlchemy's engine for it.
            db_schema: Schema of the table.
        """
        step = _half(token_limit, chat_history_token_ratio) if token_flush_size is None else token_flush_size
        made = super().from_defaults(  # pyright: ignore[reportUnknownMemberType]  # a bare List in the host's signature
            session_id=session_id,
            chat_history=None if chat_history is None else [without_tail(message) for message in chat_history],
            token_limit=token_limit,
            memory_blocks=memory_blocks,
            tokenizer_fn=tokenizer_fn,
            chat_history_token_ratio=chat_history_token_ratio,
            token_flush_size=step,
            memory_blocks_template=memory_blocks_template,
            insert_method=insert_method,
            image_token_size_estimate=image_token_size_estimate,
            audio_token_size_estimate=audio_token_size_estimate,
            video_token_size_estimate=video_token_size_estimate,
            chat_store=chat_store,
            table_name=table_name,
            async_database_uri=async_database_uri,
            async_engine=async_engine,
            db_schema=db_schema,
        )
        return cast("SteppedMemory", made)

    async def aget(
        self,
        input: str | ChatMessage | None = None,  # noqa: A002 - the host's name
        **block_kwargs: Any,
    ) -> list[ChatMessage]:
        """Return the history, with what the memory blocks recall for this turn."""
        history = await self.sql_store.get_messages(self.session_id, status=MessageStatus.ACTIVE)
        question = self._as_stored((input.content or "") if isinstance(input, ChatMessage) else input)
        placed = await self._with_recalled(history, question, block_kwargs)
        return self._with_supplied(history, placed) if turn_of(history, question, begun=True) >= 0 else placed

    async def _with_recalled(
        self, history: list[ChatMessage], question: str | None, block_kwargs: Mapping[str, Any]
    ) -> list[ChatMessage]:
        if not self._blocks:
            return history
        asked = turn_of(history, question, begun=self._turn is not None and self._turn[0] in history)
        turn = question if asked < 0 else history[asked].model_copy(deep=True)  # an agent may write its state into it
        if self._turn is None or self._turn[0] != turn:
            recalled = await self._recall(history, question if asked < 0 else None, block_kwargs)
            self._turn = (turn, recalled)
        return place(history, asked, self._turn[1])

    async def aput(self, message: ChatMessage) -> None:
        """Store a message, without text that was for one call; cut the history if need be."""
        self._begin(message)
        await super().aput(without_tail(message))

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Store messages, without text that was for one call; cut the history if need be."""
        self._begin(*messages)
        await super().aput_messages([without_tail(message) for message in messages])

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replace the history."""
        self._turn = self._supplied = None
        self._begin(*messages[-1:])
        await super().aset([without_tail(message) for message in messages])

    async def areset(self, status: MessageStatus | None = None) -> None:
        """Forget the history."""
        self._turn = self._supplied = None
        await super().areset(status)

    @property
    def _blocks(self) -> list[BaseMemoryBlock[Any]]:
        held = cast("object", self.memory_blocks)  # pyright: ignore[reportUnknownMemberType]  # of bare blocks
        return cast("list[BaseMemoryBlock[Any]]", held)

    def _begin(self, *messages: ChatMessage) -> None:
        """Begin a turn with a human message, and keep the text it bears for as long as the turn goes on."""
        said = [message for message in messages if message.role == MessageRole.USER]
        if said:
            texts = tail_texts(said)
            self._turn, self._supplied = None, (without_tail(said[-1]), texts) if texts else None

    def _as_stored(self, question: str | None) -> str | None:
        """Return a question as it was stored: an agent asks with all the text of the message that it was given."""
        if self._supplied is None:
            return question
        stored, texts = self._supplied
        return (stored.content or "") if question == with_tail(stored, *texts).content else question

    def _with_supplied(self, history: Sequence[ChatMessage], placed: list[ChatMessage]) -> list[ChatMessage]:
        """Put the text that the application supplied with this turn's message back behind it."""
        stored, asked = last_human(history), last_human(placed)
        if self._supplied is None or stored < 0 or history[stored] != self._supplied[0]:
            return placed
        return [*placed[:asked], with_tail(placed[asked], *self._supplied[1]), *placed[asked + 1 :]]

    async def _recall(
        self, history: list[ChatMessage], question: str | None, block_kwargs: Mapping[str, Any]
    ) -> Remembered:
        """Ask the memory blocks, and cut what they gave to what is left of the limit."""
        found = await self._get_memory_blocks_content(history, input=question, **block_kwargs)
        content = {block.name: as_text(found.get(block.name, [])) for block in self._blocks}
        tokens = sum(self._estimate_token_count(cast("Any", item)) for item in content.values())
        held = sum(self._estimate_token_count(message) for message in history)
        content = await self._truncate_memory_blocks(content, tokens, held)
        in_system = self.insert_method == InsertMethod.SYSTEM
        static = {block.name for block in self._blocks if in_system and isinstance(block, StaticMemoryBlock)}
        system, _ = await self._written({name: item for name, item in content.items() if name in static})
        blocks, messages = await self._written({name: item for name, item in content.items() if name not in static})
        return Remembered(
            system=tuple(system),
            tail=tuple(block.text for block in blocks if isinstance(block, TextBlock)),
            media=tuple(block for block in blocks if not isinstance(block, TextBlock)),
            messages=tuple(messages),
        )

    async def _written(self, content: dict[str, Any]) -> tuple[list[ContentBlock], list[ChatMessage]]:
        """Write what blocks gave by the template; return messages apart."""
        texts, messages = await self._format_memory_blocks(content)
        if not texts:
            return [], messages
        written = self.memory_blocks_template.format_messages(memory_blocks=texts)
        return [block for message in written for block in message.blocks], messages

    async def _manage_queue(self) -> None:
        """Flush the oldest exchanges where the history is over its limit."""
        queue = await self.sql_store.get_messages(self.session_id, status=MessageStatus.ACTIVE)
        sizes = [self._estimate_token_count(message) for message in queue]
        limit = self.token_limit * self.chat_history_token_ratio
        count = flush_count(sizes, exchange_starts(queue), limit=limit, step=self.token_flush_size)
        if not count:
            return
        await self.sql_store.archive_oldest_messages(self.session_id, n=count)
        flushed = [message.model_copy(deep=True) for message in queue[:count]]  # blocks write their session into them
        await asyncio.gather(
            *(block.aput(flushed, from_short_term_memory=True, session_id=self.session_id) for block in self._blocks)
        )
