"""A memory that cuts its history rarely and recalls at the end."""

import asyncio
import inspect
import pickle
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.memory import ChatMemoryBuffer, InsertMethod, Memory, StaticMemoryBlock
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from tests.llamaindex.memory_bench import Diary, Remember, call, close, human, reply, result, said, stepped, words

from llama_index_headstay.memory import SteppedMemory

TAIL = "\n\n<memory>\n<diary>\n{}\n</diary>\n</memory>"


@pytest.fixture
async def remember() -> AsyncIterator[Remember]:
    made: list[Memory] = []

    def make(*blocks: Any, kind: type[Memory] = SteppedMemory, **settings: Any) -> Any:
        given = {"memory_blocks": list(blocks), "tokenizer_fn": words, "session_id": "s", **settings}
        made.append(kind.from_defaults(**given))
        return made[-1]

    yield make
    for memory in made:
        await close(memory)


async def test_what_is_recalled_stands_behind_the_latest_human_message_and_is_not_stored(remember: Remember) -> None:
    diary = Diary(pages=["likes tea", "likes milk"])
    memory = remember(diary)
    first, second = human("Hello?"), human("And now?")
    await memory.aput(first)
    assert said(await memory.aget()) == [("user", "Hello?" + TAIL.format("likes tea"))]
    await memory.aput(reply("Hi."))
    await memory.aput(second)
    assert said(await memory.aget()) == [
        ("user", "Hello?"),
        ("assistant", "Hi."),
        ("user", "And now?" + TAIL.format("likes milk")),
    ]
    assert said(await memory.aget_all()) == [("user", "Hello?"), ("assistant", "Hi."), ("user", "And now?")]
    assert (first, second) == (human("Hello?"), human("And now?"))
    assert diary.asked == [["Hello?"], ["Hello?", "Hi.", "And now?"]]


async def test_it_is_recalled_once_for_a_turn_with_tool_calls(remember: Remember) -> None:
    diary = Diary(pages=["one", "two", "three"])
    memory = remember(diary)
    await memory.aput(human("Weather?"))
    first = await memory.aget()
    assert await memory.aget(input="Weather?") == first
    assert await memory.aget(input=human("Weather?")) == first
    await memory.aput_messages([call("radar"), result("radar")])
    again = await memory.aget(input="Weather?")
    assert again[:1] == first
    await memory.aput(reply("Rain."))
    assert (await memory.aget())[:1] == first
    assert len(diary.asked) == 1
    await memory.aput(human("Weather?"))
    assert said(await memory.aget())[-1] == ("user", "Weather?" + TAIL.format("two"))
    assert said(await memory.aget())[0] == ("user", "Weather?")


async def test_a_human_message_to_come_gets_a_message_of_its_own(remember: Remember) -> None:
    diary = Diary(pages=["one", "two"])
    memory = remember(diary)
    for page in ("one", "two"):
        got = said(await memory.aget(input="Same?"))
        assert got == said(await memory.aget(input="Same?"))  # some engines ask twice
        assert got[-1] == ("user", TAIL.format(page))
        assert got[:-1] == said(await memory.aget_all())
        await memory.aput(human("Same?"))
        await memory.aput(reply("Yes."))
    assert diary.asked == [["Same?"], ["Same?", "Yes.", "Same?"]]


async def test_nothing_recalled_adds_nothing(remember: Remember) -> None:
    memory = remember(Diary(pages=[""]))
    assert await memory.aget(input="Hello?") == []
    await memory.aput(human("Hello?"))
    assert await memory.aget() == [human("Hello?")]


async def test_static_text_stays_in_the_system_message(remember: Remember) -> None:
    memory = remember(StaticMemoryBlock(name="house", static_content="No refunds."), Diary(pages=["tea"]))
    await memory.aput(human("Hello?"))
    house = "<memory>\n<house>\nNo refunds.\n</house>\n</memory>"
    assert said(await memory.aget()) == [("system", house), ("user", "Hello?" + TAIL.format("tea"))]
    await memory.aset([ChatMessage("Be kind.", role=MessageRole.SYSTEM), human("Hello?")])
    assert said(await memory.aget())[0] == ("system", f"{house}\n\nBe kind.")
    assert said(await memory.aget_all())[0] == ("system", "Be kind.")


async def test_static_text_behind_the_human_message_on_demand(remember: Remember) -> None:
    static = StaticMemoryBlock(name="house", static_content="No refunds.")
    memory = remember(static, Diary(pages=["tea"]), insert_method=InsertMethod.USER)
    await memory.aput(human("Hello?"))
    both = "<house>\nNo refunds.\n</house>\n<diary>\ntea\n</diary>"
    assert said(await memory.aget()) == [("user", f"Hello?\n\n<memory>\n{both}\n</memory>")]


async def test_recalled_messages_are_written_as_text_where_they_are_text(remember: Remember) -> None:
    memory = remember(Diary(pages=[[human("Tea?"), reply("Yes.")], [call("radar"), result("radar")]]))
    await memory.aput(human("Hello?"))
    assert said(await memory.aget()) == [("user", "Hello?" + TAIL.format("user: Tea?\nassistant: Yes."))]
    await memory.aput(human("Again?"))
    assert said(await memory.aget()) == [
        ("assistant", "calls radar"),
        ("tool", "radar says"),
        ("user", "Hello?"),
        ("user", "Again?"),
    ]


async def test_recalled_images_stand_in_front_of_recalled_text(remember: Remember) -> None:
    memory = remember(Diary(pages=[[TextBlock(text="seen"), ImageBlock(url="https://example.com/a.png")]]))
    await memory.aput(human("Hello?"))
    (message,) = await memory.aget()
    assert [type(block).__name__ for block in message.blocks] == ["TextBlock", "ImageBlock", "TextBlock", "TextBlock"]
    assert message.blocks[0] == TextBlock(text="Hello?")


async def test_what_was_got_can_be_put_back(remember: Remember) -> None:
    memory = remember(Diary(pages=["tea"]))
    await memory.aput(human("Hello?"))
    got = await memory.aget()
    await memory.aset(got)
    await memory.aput_messages(got)
    await memory.aput(got[0])
    assert said(await memory.aget_all()) == [("user", "Hello?")] * 3
    assert "<memory>" in said(got)[0][1]


@pytest.mark.parametrize(("kind", "cuts"), [(SteppedMemory, 4), (Memory, 10)])
async def test_the_history_is_cut_rarely(kind: type[Memory], cuts: int, remember: Remember) -> None:
    # An exchange is 10 words, and 100 are kept. Turn 11 passes that: 45 stay, which is full again at turns 17, 23 and
    # 29. Memory drops 20 and is full again at every second turn.
    settings = {} if kind is SteppedMemory else {"token_flush_size": 20}
    memory = remember(kind=kind, token_limit=100, chat_history_token_ratio=1.0, **settings)
    firsts: list[str] = []
    for turn in range(30):
        await memory.aput(human(f"q{turn} is what I ask"))
        firsts.append(said(await memory.aget())[0][1])
        await memory.aput(reply(f"a{turn} is the answer then"))
    assert sum(before != after for before, after in pairwise(firsts)) == cuts


async def test_a_buffer_that_slides_is_what_this_is_for() -> None:
    memory = ChatMemoryBuffer.from_defaults(token_limit=100, tokenizer_fn=words)
    firsts: list[str] = []
    for turn in range(30):
        memory.put(human(f"q{turn} is what I ask"))
        firsts.append(said(memory.get())[0][1])
        memory.put(reply(f"a{turn} is the answer then"))
    assert sum(before != after for before, after in pairwise(firsts)) == 20


async def test_flushed_messages_reach_every_block_once_and_tool_results_stay_with_their_calls(
    remember: Remember,
) -> None:
    one, two = Diary(name="one", pages=[""]), Diary(name="two", pages=[""])
    memory = remember(one, two, token_limit=40, chat_history_token_ratio=1.0)
    put: list[ChatMessage] = []
    for turn in range(12):
        exchange = [human(f"q{turn} asks"), call("radar"), result("radar"), reply(f"a{turn} answers")]
        for message in exchange:
            put.append(message)
            await memory.aput(message)
            kept = await memory.aget()
            assert kept[0].role == MessageRole.USER
            assert [*one.kept, *(str(message.content) for message in kept)] == [str(item.content) for item in put]
    assert one.kept == two.kept
    assert one.kept
    assert all("session_id" not in message.additional_kwargs for message in put)


async def test_half_of_the_limit_is_the_default_step(remember: Remember) -> None:
    assert remember(token_limit=1_000).token_flush_size == 350
    assert remember(token_limit=1_000, token_flush_size=80).token_flush_size == 80
    assert SteppedMemory(token_limit=1_000, chat_history_token_ratio=0.5).token_flush_size == 250


async def test_blocks_that_give_nothing_do_no_harm_over_the_limit(remember: Remember) -> None:
    memory = remember(Diary(pages=[""], priority=1), token_limit=2)
    await memory.aput(human("more words than the limit"))
    assert said(await memory.aget()) == [("user", "more words than the limit")]


async def test_blocks_are_cut_by_priority(remember: Remember) -> None:
    kept, dropped = Diary(name="kept", pages=["a b c"]), Diary(name="dropped", pages=["d e f"], priority=1)
    memory = remember(kept, dropped, token_limit=6)
    await memory.aput(human("x y"))
    assert said(await memory.aget()) == [("user", "x y\n\n<memory>\n<kept>\na b c\n</kept>\n</memory>")]


async def test_the_hosts_error_comes_through(remember: Remember) -> None:
    memory = remember(Diary(pages=[{"no": "text"}]))
    await memory.aput(human("Hello?"))
    with pytest.raises(ValueError, match="Invalid content type received from memory block diary"):
        await memory.aget()


async def test_conversations_in_one_store_stay_apart() -> None:
    store = SQLAlchemyChatStore(table_name="talks")
    ada = stepped(chat_store=store, session_id="ada", memory_blocks=[Diary(pages=["tea"])])
    bob = stepped(chat_store=store, session_id="bob", memory_blocks=[Diary(pages=["milk"])])
    await ada.aput(human("Hello?"))
    await bob.aput(human("Hello?"))
    assert said(await ada.aget()) == [("user", "Hello?" + TAIL.format("tea"))]
    assert said(await bob.aget()) == [("user", "Hello?" + TAIL.format("milk"))]
    await ada.areset()
    assert await bob.aget_all() == [human("Hello?")]
    await close(ada)


async def test_without_a_loop_it_works_as_memory_does(remember: Remember) -> None:
    memory = remember(Diary(pages=["tea"]), chat_history=[human("Before?"), reply("Yes.")])

    def talk() -> list[ChatMessage]:
        memory.put(human("Hello?"))
        return list(memory.get())

    assert said(await asyncio.to_thread(talk))[-1] == ("user", "Hello?" + TAIL.format("tea"))


async def test_it_is_made_and_serialised_as_memory_is(remember: Remember) -> None:
    ours, theirs = (inspect.signature(kind.from_defaults).parameters for kind in (SteppedMemory, Memory))
    assert list(ours) == list(theirs)
    different = [name for name in ours if ours[name].default != theirs[name].default]
    assert different == ["token_flush_size"]
    memory, plain = remember(token_limit=500), remember(token_limit=500, token_flush_size=175, kind=Memory)
    assert memory.to_dict() == {**plain.to_dict(), "class_name": "SteppedMemory"}
    again = pickle.loads(pickle.dumps(memory))
    assert type(again) is SteppedMemory
    assert again.to_dict() == memory.to_dict()
