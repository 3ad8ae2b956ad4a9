"""Each way LangChain offers to run a model, on each road to the cache: a question that was answered sends nothing."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage

from headstay.emulator import Emulator
from langchain_headstay import CacheAwareChatModel, SemanticCache

Chat = Callable[..., BaseChatModel]
Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]
Way = Callable[..., Awaitable[str]]

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"
OTHER = "Where can I see the weather forecast?"

# LangChain's own notice on stream_events(version="v3"), and what ChatOpenAI says of usage fields that are null.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is in beta"),
    pytest.mark.filterwarnings("ignore:Unexpected type for token usage"),
]


async def test_whole_replies_come_from_each_road(
    chat: Chat, road: Road, whole_way: Way, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(chat(), cache)
    fresh = await whole_way(model, RESET)
    assert await whole_way(model, RESET) == await whole_way(model, RESET_TOO) == fresh
    assert RESET in fresh
    assert OTHER in await whole_way(model, OTHER)
    assert len(desk.exchanges) == 2
    counted = cache.metrics()
    assert counted.hits == {"exact": 1, "semantic": 1}
    assert (counted.lookups, counted.stored) == (4, 2)


async def test_the_wrapper_answers_in_every_way(chat: Chat, way: Way, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    fresh = await way(model, RESET)
    assert await way(model, RESET) == await way(model, RESET_TOO) == fresh
    assert len(desk.exchanges) == 1
    assert cache.metrics().hits == {"exact": 1, "semantic": 1}


async def test_what_one_way_kept_every_other_finds(chat: Chat, way: Way, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    streamed = "".join(chunk.text for chunk in model.stream(RESET))
    assert await way(model, RESET) == streamed
    assert len(desk.exchanges) == 1


def test_a_served_reply_says_so_and_cost_nothing(chat: Chat, road: Road, cache: SemanticCache) -> None:
    model = road(chat(), cache)
    fresh = model.invoke(RESET)
    usage = UsageMetadataCallbackHandler()
    exact = model.invoke(RESET, {"callbacks": [usage]})
    reworded = model.invoke(RESET_TOO, {"callbacks": [usage]})
    assert isinstance(exact, AIMessage)
    assert isinstance(reworded, AIMessage)
    for reply in (exact, reworded):
        said = reply.response_metadata["headstay"]
        assert said["cache"] == "hit"
        assert said["age"] >= 0
        assert reply.usage_metadata is not None
        assert reply.usage_metadata["total_tokens"] == reply.usage_metadata["input_tokens"] == 0
    assert exact.response_metadata["headstay"]["tier"] == "exact"
    assert exact.response_metadata["headstay"]["score"] == 1.0
    assert reworded.response_metadata["headstay"]["tier"] == "semantic"
    assert 0.92 <= reworded.response_metadata["headstay"]["score"] < 1
    assert len({fresh.id, exact.id, reworded.id}) == 3
    assert "headstay" not in fresh.response_metadata or "cache" not in fresh.response_metadata["headstay"]
    assert all(counted["total_tokens"] == 0 for counted in usage.usage_metadata.values())


def test_a_stream_replays_pieces_that_add_up(chat: Chat, cache: SemanticCache) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    fresh = model.invoke(RESET)
    chunks = list(model.stream(RESET))
    assert len(chunks) > 1
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert isinstance(whole, AIMessageChunk)
    assert whole.text == fresh.text
    assert whole.chunk_position == "last"
    assert whole.response_metadata["headstay"]["cache"] == "hit"
    assert {chunk.id for chunk in chunks} == {whole.id}
    assert sum((chunk.usage_metadata or {}).get("total_tokens", 0) for chunk in chunks) == 0


async def test_a_conversation_that_was_served_goes_on_hitting(
    chat: Chat, road: Road, whole_way: Way, cache: SemanticCache, desk: Emulator
) -> None:
    """LangChain marks a served message with a total cost; that must not make its history another one."""
    model = road(chat(), cache)

    def talk() -> list[str]:
        history: list[Any] = [SystemMessage("You help.")]
        said: list[str] = []
        for question in (RESET, OTHER, "And in the app?"):
            history.append(HumanMessage(question))
            reply = model.invoke(history)
            history.append(reply)
            said.append(reply.text)
        return said

    first = talk()
    assert len(desk.exchanges) == 3
    assert talk() == first
    assert talk() == first
    assert len(desk.exchanges) == 3
    assert cache.metrics().hits == {"exact": 6}


def test_thinking_stays_with_the_request_it_was_made_for(
    claude: Callable[..., BaseChatModel], cache: SemanticCache, desk: Emulator
) -> None:
    model = CacheAwareChatModel(
        claude(thinking={"type": "adaptive"}),
        semantic_cache=cache,
        on_break="record",
    )
    system = SystemMessage("You help. Please think.")
    fresh = model.invoke([system, HumanMessage(RESET)])
    exact = model.invoke([system, HumanMessage(RESET)])
    reworded = model.invoke([system, HumanMessage(RESET_TOO)])
    kinds = [[block["type"] for block in reply.content_blocks] for reply in (fresh, exact, reworded)]
    assert kinds == [["reasoning", "text"], ["reasoning", "text"], ["text"]]
    assert exact.text == reworded.text == fresh.text
    # The served conversations go on: the provider takes them.
    for question, reply in ((RESET, exact), (RESET_TOO, reworded)):
        assert model.invoke([system, HumanMessage(question), reply, HumanMessage(OTHER)]).text
    assert [exchange.status for exchange in desk.exchanges] == [200] * 3


def test_blocks_of_a_served_reply_have_no_ids_of_another_reply(
    gpt: Callable[..., BaseChatModel], cache: SemanticCache
) -> None:
    model = CacheAwareChatModel(gpt(use_responses_api=True), semantic_cache=cache, on_break="record")
    fresh, served = model.invoke(RESET), model.invoke(RESET)
    assert any("id" in block for block in fresh.content)
    assert served.text == fresh.text
    assert not any("id" in block for block in served.content)
    assert model.invoke([HumanMessage(RESET), served, HumanMessage(OTHER)]).text
