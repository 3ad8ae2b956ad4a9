"""A cache-aware LLM with a semantic cache: what it answers, what it never answers, and what a tracer sees."""

from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, ImageBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.llms import LLM
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from headstay import Ledger, Slot
from headstay.emulator import Emulator
from headstay.semantic import Cache
from headstay.semantic.control import caching
from llama_index_headstay import cache_aware

Maker = Callable[..., OpenAILike]
Way = Callable[[LLM, str], Awaitable[Any]]


def _said(question: str) -> list[ChatMessage]:
    return [ChatMessage(role="system", content="Be kind."), ChatMessage(role="user", content=question)]


async def _chat(llm: LLM, question: str) -> Any:
    return llm.chat(_said(question))


async def _achat(llm: LLM, question: str) -> Any:
    return await llm.achat(_said(question))


async def _stream_chat(llm: LLM, question: str) -> Any:
    chunks = list(llm.stream_chat(_said(question)))
    assert "".join(chunk.delta or "" for chunk in chunks) == chunks[-1].message.content
    return chunks[-1]


async def _astream_chat(llm: LLM, question: str) -> Any:
    chunks = [chunk async for chunk in await llm.astream_chat(_said(question))]
    assert "".join(chunk.delta or "" for chunk in chunks) == chunks[-1].message.content
    return chunks[-1]


async def _complete(llm: LLM, question: str) -> Any:
    return llm.complete(question)


async def _acomplete(llm: LLM, question: str) -> Any:
    return await llm.acomplete(question)


async def _stream_complete(llm: LLM, question: str) -> Any:
    chunks = list(llm.stream_complete(question))
    assert "".join(chunk.delta or "" for chunk in chunks) == chunks[-1].text
    return chunks[-1]


async def _astream_complete(llm: LLM, question: str) -> Any:
    chunks = [chunk async for chunk in await llm.astream_complete(question)]
    assert "".join(chunk.delta or "" for chunk in chunks) == chunks[-1].text
    return chunks[-1]


CHATS: dict[str, Way] = {
    "chat": _chat,
    "achat": _achat,
    "stream_chat": _stream_chat,
    "astream_chat": _astream_chat,
}
COMPLETIONS: dict[str, Way] = {
    "complete": _complete,
    "acomplete": _acomplete,
    "stream_complete": _stream_complete,
    "astream_complete": _astream_complete,
}


@pytest.fixture
def cache() -> Iterator[Cache]:
    with Cache() as made:
        yield made


@pytest.fixture(params=[*CHATS, *COMPLETIONS])
def way(request: pytest.FixtureRequest) -> Way:
    return {**CHATS, **COMPLETIONS}[request.param]


@pytest.fixture
def aware(desk_llm: Maker, cache: Cache) -> Callable[..., OpenAILike]:
    def make(*, bare: dict[str, Any] | None = None, **settings: Any) -> OpenAILike:
        return cache_aware(desk_llm(**(bare or {})), semantic_cache=cache, **{"on_break": "record", **settings})

    return make


FIRST = "How do I reset my password?"
REWORDED = "How can I reset my password?"
OTHER = "How do I reset my username?"


async def test_repeated_and_reworded_questions_are_answered(desk: Emulator, aware: Any, way: Way) -> None:
    llm = aware()
    fresh, again, reworded = [await way(llm, question) for question in (FIRST, FIRST, REWORDED)]
    assert len(desk.exchanges) == 1
    assert str(again) == str(fresh) == str(reworded)
    assert again.additional_kwargs["headstay"]["tier"] == "exact"
    assert reworded.additional_kwargs["headstay"]["tier"] == "semantic"
    assert again.additional_kwargs["total_tokens"] == 0
    assert dict(again.raw["usage"]) == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert "headstay" not in fresh.additional_kwargs


async def test_another_question_is_asked(desk: Emulator, aware: Any, way: Way) -> None:
    llm = aware()
    for question in (FIRST, OTHER):
        await way(llm, question)
    assert len(desk.exchanges) == 2


async def test_ways_share_what_they_keep(desk: Emulator, aware: Any) -> None:
    for model, ways in (("gpt-5.4", CHATS), ("gpt-5.5", COMPLETIONS)):
        llm = aware(bare={"model": model})
        said = {str(await one(llm, FIRST)) for one in ways.values()}
        assert len(said) == 1
    assert len(desk.exchanges) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"bare": {"model": "gpt-5.4"}}, {"bare": {"model": "gpt-5.5"}}),
        ({"bare": {"max_tokens": 50}}, {"bare": {"max_tokens": 51}}),
        ({"tenant": "acme"}, {"tenant": "zenith"}),
        ({"tenant": "acme"}, {}),
        ({"tail": "It is raining."}, {"tail": "It is dry."}),
    ],
    ids=["model", "parameters", "tenant", "no tenant", "tail"],
)
async def test_scopes_are_apart(desk: Emulator, aware: Any, first: dict[str, Any], second: dict[str, Any]) -> None:
    await _chat(aware(**first), FIRST)
    await _chat(aware(**second), FIRST)
    assert len(desk.exchanges) == 2
    await _chat(aware(**first), FIRST)
    assert len(desk.exchanges) == 2


async def test_tail_that_no_answer_depends_on_does_not_count(desk: Emulator, aware: Any) -> None:
    for clock in ("10:00", "10:01"):
        await _chat(aware(tail=f"It is {clock}.", tail_affects_answer=False), FIRST)
    assert len(desk.exchanges) == 1


async def test_value_of_the_system_text_counts_unless_declared(desk: Emulator, aware: Any) -> None:
    idle = Slot(r"Now: (\S+)", every="call", affects_answer=False)
    for settings, calls in (({"volatile": [idle]}, 1), ({}, 2)):
        desk.reset()
        llm = aware(bare={"max_tokens": 60 + calls}, **settings)
        for at in ("2026-11-30T10:00:00Z", "2026-11-30T10:00:01Z"):
            llm.chat([ChatMessage(role="system", content=f"Be kind. Now: {at}"), ChatMessage(content=FIRST)])
        assert len(desk.exchanges) == calls


async def test_history_must_be_the_same(desk: Emulator, aware: Any) -> None:
    llm = aware()
    for before in ("I use a phone.", "I use a laptop.", "I use a phone."):
        llm.chat([ChatMessage(content=before), ChatMessage(role="assistant", content="Good."), *_said(FIRST)[1:]])
    assert len(desk.exchanges) == 2


async def test_image_by_place_is_not_answered(desk: Emulator, aware: Any) -> None:
    llm = aware()
    message = ChatMessage(content=FIRST)
    message.blocks.append(ImageBlock(url="https://example.invalid/a.png"))
    for _ in range(2):
        llm.chat([message])
    assert len(desk.exchanges) == 2


async def test_image_by_content_is(desk: Emulator, aware: Any) -> None:
    llm = aware()
    pixel = b"\x89PNG\r\n\x1a\n" + b"\x00" * 20
    for image in (pixel, pixel, pixel + b"x"):
        message = ChatMessage(content=FIRST)
        message.blocks.append(ImageBlock(image=image, image_mimetype="image/png"))
        llm.chat([message])
    assert len(desk.exchanges) == 2


@pytest.mark.parametrize("question", ["please refuse", "please ramble", "please say nothing"])
async def test_what_did_not_end_well_is_not_kept(desk: Emulator, aware: Any, way: Way, question: str) -> None:
    llm = aware()
    for _ in range(2):
        await way(llm, question)
    assert len(desk.exchanges) == 2


async def test_error_comes_through_and_the_next_call_asks(desk: Emulator, aware: Any, way: Way) -> None:
    llm = aware()
    desk.fail_next(status=400)
    with pytest.raises(Exception, match="400"):
        await way(llm, FIRST)
    await way(llm, FIRST)
    assert [exchange.status for exchange in desk.exchanges] == [400, 200]


async def test_stream_left_early_is_not_kept(desk: Emulator, aware: Any) -> None:
    llm = aware()
    stream = llm.stream_chat(_said(FIRST))
    next(stream)
    stream.close()
    await _stream_chat(llm, FIRST)
    assert len(desk.exchanges) == 2


def look(item: str) -> str:
    """Look an item up."""
    return item


@pytest.mark.parametrize(("tool_calls", "asked"), [("never", 3), ("exact", 2)])
async def test_reply_that_asks_for_tools_is_replayed_only_where_that_is_wanted(
    desk: Emulator, desk_llm: Maker, tool_calls: Any, asked: int
) -> None:
    with Cache(tool_calls=tool_calls) as cache:
        llm = cache_aware(desk_llm(), semantic_cache=cache, on_break="record")
        tools = [FunctionTool.from_defaults(look)]
        calls: list[Any] = []
        for _ in range(2):
            reply = llm.chat_with_tools(tools, user_msg=FIRST)
            calls.append([(one.tool_name, one.tool_kwargs) for one in llm.get_tool_calls_from_response(reply)])
        llm.chat([ChatMessage(content=FIRST)])  # without tools it is another question
        assert calls[0] == calls[1]
        assert len(desk.exchanges) == asked


_tenant: ContextVar[str | None] = ContextVar("tenant", default=None)


async def test_callable_tenant_that_names_nobody_is_not_answered(desk: Emulator, aware: Any) -> None:
    llm = aware(tenant=_tenant.get)
    for _ in range(2):
        await _chat(llm, FIRST)
    assert len(desk.exchanges) == 2


async def test_control_of_a_block_reaches_a_stream_that_is_read_later(desk: Emulator, aware: Any) -> None:
    llm = aware()
    await _chat(llm, FIRST)
    with caching("bypass"):
        stream = llm.stream_chat(_said(FIRST))
    assert list(stream)
    assert len(desk.exchanges) == 2


async def test_token_counter_counts_misses_in_full_and_hits_not_at_all(desk: Emulator, aware: Any, way: Way) -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    llm = aware()
    llm.callback_manager = CallbackManager([counter])
    await way(llm, FIRST)
    usage = desk.exchanges[0].response["usage"]
    assert counter.total_llm_token_count == usage["total_tokens"]
    await way(llm, FIRST)
    assert counter.total_llm_token_count == usage["total_tokens"]
    assert len(counter.llm_token_counts) == 1


async def test_hit_leaves_no_row_in_the_ledger(desk: Emulator, aware: Any) -> None:
    """The ledger holds calls of a provider; what the cache saved is in its own metrics."""
    ledger = Ledger()
    llm = aware(ledger=ledger)
    for _ in range(3):
        await _chat(llm, FIRST)
    assert len(list(ledger.rows())) == 1


async def test_cache_of_langchain_can_be_shared(desk: Emulator, desk_llm: Maker, cache: Cache) -> None:
    class Shared:
        engine = cache

    llm = cache_aware(desk_llm(), semantic_cache=Shared(), on_break="record")
    for _ in range(2):
        await _chat(llm, FIRST)
    assert len(desk.exchanges) == 1


async def test_tenant_that_cannot_be_told_is_not_answered(desk: Emulator, aware: Any) -> None:
    def unknown() -> str:
        raise LookupError("no user here")

    llm = aware(tenant=unknown)
    for _ in range(2):
        assert str(await _chat(llm, FIRST))
    assert len(desk.exchanges) == 2


async def test_setting_that_cannot_be_written_is_no_error(desk: Emulator, aware: Any) -> None:
    """A value that refers to itself has no canonical form; the call goes on without the cache."""
    endless: dict[str, Any] = {}
    endless["self"] = endless
    llm = aware()
    message = ChatMessage(content=FIRST, additional_kwargs={"note": endless})
    assert str(llm.chat([message]))
    assert len(desk.exchanges) == 1
