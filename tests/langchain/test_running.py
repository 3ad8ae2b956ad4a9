"""Ways to run a model: each sends one request, leaves one row, and calls back as often as the bare class does."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.tools import tool

from headstay import Ledger
from headstay.emulator import Emulator

Chat = Callable[..., BaseChatModel]
Way = Callable[[Any, Any, Any], Awaitable[str]]

# LangChain's own notice on stream_events(version="v3").
v3 = pytest.mark.filterwarnings("ignore:.*is in beta")


class Counting(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        self.seen["start"] += 1

    def on_llm_end(self, *_: Any, **__: Any) -> None:
        self.seen["end"] += 1

    def on_llm_error(self, *_: Any, **__: Any) -> None:
        self.seen["error"] += 1

    def on_llm_new_token(self, *_: Any, **__: Any) -> None:
        self.seen["token"] += 1


@v3
async def test_each_way_sends_and_accounts_once(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, way: Way
) -> None:
    expected, found = Counting(), Counting()
    plain = await way(chat(), "Hi", {"callbacks": [expected]})
    usage = UsageMetadataCallbackHandler()
    text = await way(aware(chat(), ledger=ledger), "Hi", {"callbacks": [found, usage]})
    assert text == plain != ""
    async with asyncio.timeout(5):  # astream_events(version="v3") calls back in a task of its own
        while not (found.seen["end"] and list(ledger.rows())):
            await asyncio.sleep(0.001)
    assert found.seen == expected.seen
    assert found.seen["start"] == found.seen["end"] == 1
    assert len(server.exchanges) == 2
    (row,) = ledger.rows()
    assert row.head, "the hook did not run"
    # Reported once to the ledger and once to LangChain's own counter, with the same figures.
    (counted,) = usage.usage_metadata.values()
    assert (counted["input_tokens"], counted["output_tokens"]) == (row.input_tokens, row.output_tokens)


@pytest.mark.parametrize("settings", [{"disable_streaming": True}, {"streaming": True}, {"streaming": False}])
@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"], indirect=True)
async def test_streaming_switches_do_what_they_do_on_the_bare_class(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, settings: dict[str, Any], way: Way
) -> None:
    plain = await way(chat(**settings), "Hi", {})
    assert await way(aware(chat(**settings), ledger=ledger), "Hi", {}) == plain
    bare, ours = server.exchanges
    assert bare.body.get("stream") == ours.body.get("stream")
    assert len(list(ledger.rows())) == 1


@pytest.mark.parametrize("tools", [False, True])
def test_streaming_is_disabled_for_tools_only(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, tools: bool
) -> None:
    @tool
    def clock(zone: str) -> str:
        """Tell the time."""
        return zone

    model: Any = aware(chat(disable_streaming="tool_calling"), ledger=ledger)
    model = model.bind_tools([clock]) if tools else model
    assert list(model.stream("Hi"))
    (sent,) = server.exchanges
    assert bool(sent.body.get("stream")) is not tools


# ChatOpenAI's own: it cannot add up usage fields that are null.
@pytest.mark.filterwarnings("ignore:Unexpected type for token usage")
def test_generate_accounts_once_for_each_list(chat: Chat, aware: Chat, server: Emulator, ledger: Ledger) -> None:
    prompts = [[HumanMessage("Hi")], [HumanMessage("Bye")]]
    plain, result = chat().generate(prompts), aware(chat(), ledger=ledger).generate(prompts)
    assert [one[0].text for one in result.generations] == [one[0].text for one in plain.generations]
    assert (result.llm_output or {}).keys() == (plain.llm_output or {}).keys()
    assert (len(server.exchanges), len(list(ledger.rows()))) == (4, 2)


def test_a_streaming_handler_streams_an_invoke(chat: Chat, aware: Chat, ledger: Ledger) -> None:
    plain, ours = Counting(), Counting()
    chat(streaming=True).invoke("Hi", {"callbacks": [plain]})
    aware(chat(streaming=True), ledger=ledger).invoke("Hi", {"callbacks": [ours]})
    assert ours.seen == plain.seen
    assert ours.seen["token"] > 1
    (row,) = ledger.rows()
    assert row.time_to_first_token_s is not None


def test_stop_sequences_reach_the_wire(chat: Chat, aware: Chat, wire: str, server: Emulator) -> None:
    if wire == "openai-responses":  # has no stop parameter: whatever the bare class does with it
        return
    aware(chat()).invoke("Hi", stop=["###"])
    (sent,) = server.exchanges
    assert (sent.body.get("stop_sequences") or sent.body.get("stop")) == ["###"]


@pytest.fixture
def llm_cache() -> Iterator[InMemoryCache]:
    cache = InMemoryCache()
    set_llm_cache(cache)
    yield cache
    set_llm_cache(None)


def test_a_hit_of_the_llm_cache_sends_nothing(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, llm_cache: InMemoryCache
) -> None:
    model = aware(chat(), ledger=ledger)
    first, second = model.invoke("Hi"), model.invoke("Hi")
    assert first.text == second.text
    assert (len(server.exchanges), len(list(ledger.rows()))) == (1, 1)
    # The bare model finds the same entry: the cache's key is the same.
    assert chat().invoke("Hi").text == first.text
    assert len(server.exchanges) == 1


def test_a_cache_of_its_own_is_used(chat: Chat, aware: Chat, server: Emulator) -> None:
    cache = InMemoryCache()
    model = aware(chat(cache=cache))
    model.invoke("Hi")
    model.invoke("Hi")
    assert len(server.exchanges) == 1


class Turnstile(InMemoryRateLimiter):
    def __init__(self) -> None:
        super().__init__(requests_per_second=1_000, check_every_n_seconds=0.001, max_bucket_size=10)
        self.passed = itertools.count()

    def acquire(self, *, blocking: bool = True) -> bool:
        next(self.passed)
        return True


@pytest.mark.parametrize("way", ["invoke", "stream"], indirect=True)
async def test_the_rate_limiter_is_asked_once(chat: Chat, aware: Chat, way: Way) -> None:
    turnstile = Turnstile()
    await way(aware(chat(rate_limiter=turnstile)), "Hi", {})
    assert next(turnstile.passed) == 1


async def test_a_stream_left_early_is_closed_and_accounted_for(chat: Chat, aware: Chat, ledger: Ledger) -> None:
    for name in ("stream", "astream"):
        plain, ours = Counting(), Counting()
        for counting, model in ((plain, chat()), (ours, aware(chat(), ledger=ledger))):
            if name == "stream":
                chunks = model.stream("Tell me a story", {"callbacks": [counting]})
                next(chunks)
                chunks.close()  # type: ignore[attr-defined] # a generator, as in the bare class
            else:
                achunks = model.astream("Tell me a story", {"callbacks": [counting]})
                await anext(achunks)
                await achunks.aclose()  # type: ignore[attr-defined] # a generator, as in the bare class
        assert ours.seen == plain.seen
        assert ours.seen["error"] == 1
    await asyncio.sleep(0)
    rows = list(ledger.rows())
    assert [row.unverified for row in rows] == ["the stream was closed before its end"] * 2
    assert [row.error for row in rows] == [None, None]


async def test_a_cancelled_call_leaves_a_row(chat: Chat, aware: Chat, server: Emulator, ledger: Ledger) -> None:
    server.hold(2)  # the only request waits for a second one
    task = asyncio.create_task(aware(chat(), ledger=ledger).ainvoke("Hi"))
    while not server.waiting:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await chat().ainvoke("Hi")  # the second one lets the held answer go
    (row,) = ledger.rows()
    assert row.error == "CancelledError"
