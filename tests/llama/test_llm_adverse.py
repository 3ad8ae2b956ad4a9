"""`cache_aware` with LlamaIndex's Anthropic class where things go wrong: streams left alone, markers of everybody's."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.tools import FunctionTool
from llama_index.llms.anthropic import Anthropic

from headstay import Ledger
from headstay.emulator import Emulator
from llama_index_headstay import cache_aware
from llama_index_headstay.tail import with_tail

Maker = Callable[..., Anthropic]
Way = Callable[[Anthropic, list[FunctionTool], list[ChatMessage]], Awaitable[Any]]

POLICY = "\n".join(f"Rule {number}: answer questions on topic {number} briefly and kindly." for number in range(150))
SYSTEM = ChatMessage(role="system", content=POLICY)
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20


@pytest.fixture
async def claude(server: Emulator) -> AsyncIterator[Maker]:
    made: list[Anthropic] = []

    def make(model: str = "claude-sonnet-4-6", **settings: Any) -> Anthropic:
        known: dict[str, Any] = {"model": model, "api_key": "key-a", "base_url": server.base_url, "max_retries": 0}
        made.append(Anthropic(**{**known, **settings}))
        return made[-1]

    yield make
    for llm in made:
        llm._client.close()
        await llm._aclient.close()


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is let go must end by itself, and not when the collector comes by."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def said(question: str) -> list[ChatMessage]:
    return [SYSTEM, ChatMessage(role="user", content=question)]


def under_way(llm: Any) -> int:
    return llm.headstay_binding.flow.traffic.under_way


# Streams: this class sends its request before its stream is read


@pytest.mark.usefixtures("no_collector")
async def test_stream_that_is_never_read_is_accounted_for_when_it_is_let_go(claude: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    stream = llm.stream_chat(said("one"))
    assert under_way(llm) == 1
    del stream
    astream = await llm.astream_chat(said("two"))
    del astream
    assert [row.unverified for row in ledger.rows()] == ["the stream was closed before its end"] * 2
    assert under_way(llm) == 0


@pytest.mark.usefixtures("no_collector")
async def test_reader_that_fails_ends_the_call(claude: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)

    def read() -> None:
        for _ in llm.stream_chat(said("one")):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()
    assert [row.unverified for row in ledger.rows()] == ["the stream was closed before its end"]
    assert under_way(llm) == 0


async def test_stream_begun_here_and_read_in_a_thread(claude: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    stream = llm.stream_chat(said("one"))
    assert (await asyncio.to_thread(list, stream))[-1].message.content
    stream.close()
    stream.close()
    assert [row.unverified for row in ledger.rows()] == [None]


async def test_cancelled_reader_ends_the_call(claude: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    begun = asyncio.Event()

    async def read() -> None:
        async for _ in await llm.astream_chat(said("one")):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    for _ in range(100):
        if not under_way(llm):
            break
        await asyncio.sleep(0.002)  # the loop closes what the reader left open
    assert [row.unverified for row in ledger.rows()] == ["the stream was closed before its end"]
    assert under_way(llm) == 0


# Markers: the class's, the application's and ours


def look(item: str) -> str:
    """Look an item up."""
    return item


async def _chat(llm: Anthropic, tools: list[FunctionTool], history: list[ChatMessage]) -> Any:
    return llm.chat_with_tools(tools, chat_history=history)


async def _astream(llm: Anthropic, tools: list[FunctionTool], history: list[ChatMessage]) -> Any:
    return [chunk async for chunk in await llm.astream_chat_with_tools(tools, chat_history=history)]


BETA = {"additional_kwargs": {"extra_headers": {"anthropic-beta": "prompt-caching-2024-07-31"}}}


@pytest.mark.parametrize("way", [_chat, _astream])
@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-sonnet-4-5-20250929", "claude-opus-5-5"])
@pytest.mark.parametrize(
    ("settings", "points"),
    [(BETA, False), ({"cache_idx": -1}, False), ({}, True), ({"cache_idx": -1, **BETA}, True)],
    ids=["tools", "cache_idx", "cache points", "all of them"],
)
async def test_markers_of_everybody_are_four_at_most(
    server: Emulator, claude: Maker, way: Way, model: str, settings: dict[str, Any], points: bool
) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(model, **settings), on_break="record", ledger=ledger)
    history = [SYSTEM]
    for number in range(8):
        blocks: list[Any] = [TextBlock(text=f"question {number} " + "word " * 300)]
        blocks += [CachePoint(cache_control=CacheControl(type="ephemeral"))] if points else []
        history += [ChatMessage(role="user", blocks=blocks), ChatMessage(role="assistant", content="fine")]
    history.append(ChatMessage(content="and now?"))
    before = [message.model_dump() for message in history]
    for _ in range(2):
        await way(llm, [FunctionTool.from_defaults(look)], history)
    assert [message.model_dump() for message in history] == before
    assert [exchange.status for exchange in server.exchanges] == [200, 200]
    for exchange in server.exchanges:
        assert 1 <= json.dumps(exchange.body).count('"cache_control"') <= 4
    assert [row.unverified for row in ledger.rows()] == [None, None]
    assert server.exchanges[1].response["usage"]["cache_read_input_tokens"] > 1_024


# Per-call text


def _human(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


CALL = ChatMessage(
    role="assistant", blocks=[ToolCallBlock(tool_call_id="t1", tool_name="look", tool_kwargs={"item": "a"})]
)
RESULT = ChatMessage(
    role="tool",
    blocks=[TextBlock(text="seven"), ImageBlock(image=PIXEL, image_mimetype="image/png")],
    additional_kwargs={"tool_call_id": "t1"},
)


@pytest.mark.parametrize(
    ("messages", "last"),
    [
        ([with_tail(ChatMessage(role="user", blocks=[]), "Found")], ["\n\nFound"]),
        ([with_tail(_human("why?"), "Found")], ["why?", "Found"]),
        ([with_tail(_human("Found"), "Found")], ["Found", "Found"]),
        ([_human("why?"), with_tail(_human("how?"), "Found")], ["why?", "how?", "Found"]),
        ([with_tail(_human("why?"), "Found"), _human("how?")], ["why?", "\n\nFound", "how?"]),
        ([with_tail(with_tail(_human("why?"), "Found"), "more")], ["why?", "Found\n\nmore"]),
        ([with_tail(_human("wh\u00e9 \U0001f600?"), "Fo\u0301und")], ["wh\u00e9 \U0001f600?", "Fo\u0301und"]),
    ],
    ids=["alone", "plain", "equal to the question", "merged, last", "merged, first", "two", "other scripts"],
)
async def test_per_call_text_comes_once_and_no_block_is_empty(
    server: Emulator, claude: Maker, messages: list[ChatMessage], last: list[str]
) -> None:
    cache_aware(claude(), on_break="record").chat([SYSTEM, *messages])
    (exchange,) = server.exchanges
    assert exchange.status == 200
    assert [part["text"] for part in exchange.body["messages"][-1]["content"]] == last


async def test_per_call_text_stays_at_the_human_turn_while_tools_run(server: Emulator, claude: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    llm.chat([SYSTEM, with_tail(_human("why?"), "Found"), CALL, RESULT])
    (exchange,) = server.exchanges
    assert exchange.status == 200
    assert [part["text"] for part in exchange.body["messages"][0]["content"]] == ["why?", "Found"]
    (result,) = exchange.body["messages"][-1]["content"]
    assert [part["type"] for part in result["content"]] == ["text", "image"]
    assert [row.unverified for row in ledger.rows()] == [None]


@pytest.mark.parametrize(
    "messages",
    [[], [_human("")], [SYSTEM], [ChatMessage(role="assistant", content="x")], [ChatMessage(role="user", blocks=[])]],
    ids=["none", "empty", "system only", "reply only", "no blocks"],
)
async def test_error_for_messages_that_make_no_request_is_the_same(claude: Maker, messages: list[ChatMessage]) -> None:
    ledger = Ledger()
    caught: list[str] = []
    for llm in (claude(), cache_aware(claude(), on_break="record", ledger=ledger)):
        with pytest.raises(Exception, match="400") as one:
            llm.chat(messages)
        caught.append(type(one.value).__name__)
    assert caught[0] == caught[1]
    assert [row.error for row in ledger.rows()] == [caught[0]]
    assert under_way(llm) == 0
