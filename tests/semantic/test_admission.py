"""What is not kept: refusals, cut and empty replies, failures, streams that did not end, tool calls."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.tools import tool

from headstay.emulator import Emulator
from langchain_headstay import CacheAwareChatModel, SemanticCache

Chat = Callable[..., BaseChatModel]
Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]
Way = Callable[..., Awaitable[str]]

RESET = "How do I reset my password?"

# LangChain's own notice on stream_events(version="v3"), and what ChatOpenAI says of usage fields that are null.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is in beta"),
    pytest.mark.filterwarnings("ignore:Unexpected type for token usage"),
]


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("Please refuse this.", "not_admitted_refusal"),
        ("Please ramble on.", "not_admitted_truncated"),
        ("Please say nothing.", "not_admitted_empty"),
    ],
)
async def test_a_reply_that_did_not_end_well_is_not_kept(
    question: str, reason: str, chat: Chat, way: Way, cache: SemanticCache, desk: Emulator
) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    await way(model, question)
    await way(model, question)
    assert len(desk.exchanges) == 2
    # ChatOpenAI loses the words of a refusal that is streamed over Chat Completions.
    assert cache.metrics().not_stored in ({reason: 2}, {"not_admitted_empty": 2})
    assert cache.metrics().stored == 0


@pytest.mark.parametrize("question", ["Please refuse this.", "Please ramble on.", "Please say nothing."])
def test_behind_langchains_own_caches_neither(
    question: str, chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(chat(), cache)
    model.invoke(question)
    model.invoke(question)
    assert len(desk.exchanges) == 2
    assert cache.metrics().stored == 0


@pytest.mark.parametrize(
    ("finish", "kept"),
    [
        ({"finish_reason": "STOP"}, True),
        ({"done_reason": "stop"}, True),
        ({"stopReason": "end_turn"}, True),
        ({}, True),
        ({"finish_reason": "content_filter"}, False),
        ({"finish_reason": "SAFETY"}, False),
        ({"stopReason": "guardrail_intervened"}, False),
        ({"stop_reason": "pause_turn"}, False),
        ({"finish_reason": "MALFORMED_FUNCTION_CALL"}, False),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, False),
        ({"model_provider": "openai"}, False),  # each whole reply of theirs says how it ended
        ({"model_provider": "ollama"}, True),
    ],
)
def test_the_word_of_the_provider_decides(finish: dict[str, Any], kept: bool, cache: SemanticCache) -> None:
    reply = AIMessage("In the settings.", response_metadata=finish)
    cache.update(RESET, "model", [ChatGeneration(message=reply)])
    assert (cache.lookup(RESET, "model") is not None) is kept


def test_a_reply_that_no_json_can_hold_is_not_kept(cache: SemanticCache) -> None:
    for odd in (float("nan"), object(), {1, 2}):
        cache.update(RESET, "model", [Generation(text="In the settings.", generation_info={"odd": odd})])
    assert cache.lookup(RESET, "model") is None
    assert cache.metrics().not_stored == {"not_admitted_form": 3}


async def test_a_failing_call_is_not_kept(chat: Chat, way: Way, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    desk.fail_next(status=500)
    with pytest.raises(Exception, match=r"."):
        await way(model, RESET)
    assert cache.metrics().stored == 0
    assert RESET in await way(model, RESET)
    assert cache.metrics().stored == 1


@pytest.mark.parametrize("after", [1, 4])
async def test_a_stream_that_breaks_off_is_not_kept(
    after: int, chat: Chat, cache: SemanticCache, desk: Emulator
) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    for _ in range(2):
        desk.fail_next(status=529, after_events=after)
        with pytest.raises(Exception, match=r"."):
            list(model.stream(RESET))
        desk.fail_next(status=529, after_events=after)
        with pytest.raises(Exception, match=r"."):
            [chunk async for chunk in model.astream(RESET)]
    assert cache.metrics().stored == 0
    assert RESET in "".join(chunk.text for chunk in model.stream(RESET))
    assert cache.metrics().stored == 1


async def test_a_stream_left_early_is_not_kept(chat: Chat, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    chunks: Any = model.stream(RESET)
    next(chunks)
    chunks.close()
    achunks: Any = model.astream(RESET)
    await anext(achunks)
    await achunks.aclose()
    assert cache.metrics().stored == 0
    assert RESET in model.invoke(RESET).text  # and nobody waits for those who left
    assert len(desk.exchanges) == 3


class Cut(httpx.SyncByteStream):
    """Ends a stream after some bytes, as a proxy does that closes a connection in good order."""

    def __init__(self, inner: Any, most: int) -> None:
        self.inner, self.most = inner, most

    def __iter__(self) -> Generator[bytes]:
        sent = 0
        for part in self.inner:
            yield part[: self.most - sent]
            sent += len(part)
            if sent >= self.most:
                return


class Proxy(httpx.HTTPTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        headers = [(name, value) for name, value in response.headers.items() if name != "transfer-encoding"]
        return httpx.Response(response.status_code, headers=headers, stream=Cut(response.stream, 700))


def test_a_stream_that_a_proxy_cuts_in_good_order_is_not_kept(
    gpt: Callable[..., BaseChatModel], cache: SemanticCache
) -> None:
    with httpx.Client(transport=Proxy()) as client:
        model = CacheAwareChatModel(gpt(http_client=client), semantic_cache=cache, on_break="record")
        said = "".join(chunk.text for chunk in model.stream(RESET))
    assert "This is" in said
    assert "piece of a replay" not in said
    assert cache.metrics().not_stored == {"not_admitted_unfinished": 1}


# --- tool calls


@tool
def look_up_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number} is on its way."


STATUS = "What is my order status?"
STATUS_TOO = "What's my order status?"


def test_a_reply_that_asks_for_tools_is_not_kept(chat: Chat, road: Road, cache: SemanticCache, desk: Emulator) -> None:
    model = road(chat(), cache).bind_tools([look_up_order])
    assert model.invoke(STATUS).tool_calls
    assert model.invoke(STATUS).tool_calls
    assert len(desk.exchanges) == 2
    assert cache.metrics().not_stored == {"not_admitted_tool_calls": 2}


async def test_by_opt_in_tool_calls_are_replayed_for_identical_requests(chat: Chat, way: Way, desk: Emulator) -> None:
    cache = SemanticCache(tool_calls="exact")
    model: Any = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record").bind_tools([look_up_order])
    fresh = model.invoke(STATUS)
    await way(model, STATUS)
    again = model.invoke(STATUS)
    assert len(desk.exchanges) == 1
    assert [(call["name"], call["args"]) for call in again.tool_calls] == [("look_up_order", {"number": 7})]
    assert again.id != fresh.id
    whole = None
    for chunk in model.stream(STATUS):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert [call["args"] for call in whole.tool_calls] == [{"number": 7}]
    assert len(desk.exchanges) == 1
    await way(model, STATUS_TOO)  # never by meaning
    assert len(desk.exchanges) == 2


def test_tool_calls_kept_by_another_setting_are_not_replayed(claude: Chat, desk: Emulator, tmp_path: Any) -> None:
    file = tmp_path / "answers.db"
    with SemanticCache(file, tool_calls="exact") as cache:
        CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record").bind_tools([look_up_order]).invoke(
            STATUS
        )
    with SemanticCache(file) as cache:
        model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record").bind_tools([look_up_order])
        model.invoke(STATUS)
        assert cache.metrics().misses == {"tool_calls_not_replayed": 1}
    assert len(desk.exchanges) == 2


def test_after_a_tool_result_nothing_is_answered_from_the_cache(
    chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(chat(), cache).bind_tools([look_up_order])
    history: list[Any] = [HumanMessage(STATUS)]
    reply = model.invoke(history)
    history += [reply, look_up_order.invoke(reply.tool_calls[0])]
    with_result = list(history)
    model.invoke(with_result)
    model.invoke(with_result)
    assert len(desk.exchanges) == 3
    assert cache.metrics().misses["tool_result_last"] == 2


def test_several_replies_at_once_are_not_answered(gpt: Chat, road: Road, cache: SemanticCache, desk: Emulator) -> None:
    model = road(gpt(n=2), cache)
    model.invoke(RESET)
    model.invoke(RESET)
    assert len(desk.exchanges) == 2
    assert cache.metrics().misses == {"several_generations": 2}


@contextmanager
def in_a_thread(work: Callable[[], object]) -> Generator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()


async def test_a_cancelled_call_is_not_kept_and_keeps_nobody_waiting(
    claude: Chat, cache: SemanticCache, desk: Emulator
) -> None:
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    desk.hold(2)
    task = asyncio.create_task(model.ainvoke(RESET))
    while not desk.waiting:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cache.metrics().stored == 0
    async with asyncio.timeout(5):
        assert RESET in (await model.ainvoke(RESET)).text
