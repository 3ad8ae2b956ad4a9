import asyncio
import gc
import time
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from headstay.semantic import Cache
from llama_index_headstay.query_engine import SemanticCacheQueryEngine

PIECES = ["Trams ", "run ", "every ", "8 ", "minutes."]
WHOLE = "Trams run every 8 minutes."
ASKED = "How often do trams run?"


class Streaming(BaseQueryEngine):
    """Streams one answer; it notes how far its streams were read and that they were closed."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.fail_at, self.asked, self.read, self.closed = fail_at, 0, 0, 0
        super().__init__(callback_manager=None)

    def _get_prompt_modules(self) -> Any:
        return {}

    def _pieces(self) -> Generator[str, None, None]:
        try:
            for number, piece in enumerate(PIECES):
                if number == self.fail_at:
                    raise ConnectionError("the line is gone")
                self.read += 1
                yield piece
        finally:
            self.closed += 1

    async def _awaited(self) -> AsyncGenerator[str, None]:
        for piece in self._pieces():
            await asyncio.sleep(0)
            yield piece

    def _query(self, query_bundle: QueryBundle) -> Any:
        self.asked += 1
        return StreamingResponse(self._pieces(), [NodeWithScore(node=TextNode(text="line 4"), score=0.5)], {"of": 1})

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        self.asked += 1
        return AsyncStreamingResponse(self._awaited(), [NodeWithScore(node=TextNode(text="line 4"))], {"of": 1})


@pytest.fixture
def inner() -> Streaming:
    return Streaming()


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def engine(inner: Streaming, cache: Cache) -> SemanticCacheQueryEngine:
    return SemanticCacheQueryEngine(inner, cache=cache, version="1")


def test_a_stream_is_handed_on_as_it_comes_and_kept_at_its_end(
    engine: SemanticCacheQueryEngine, inner: Streaming, cache: Cache
) -> None:
    response = engine.query(ASKED)
    assert (inner.read, cache.metrics().stored) == (0, 0)
    assert next(response.response_gen) == "Trams "
    assert (inner.read, cache.metrics().stored) == (1, 0)
    assert list(response.response_gen) == PIECES[1:]
    assert (inner.closed, cache.metrics().stored) == (1, 1)
    served = engine.query(ASKED)
    assert list(served.response_gen) == [WHOLE]
    assert inner.asked == 1


def test_every_way_to_read_a_served_stream_works(
    engine: SemanticCacheQueryEngine, inner: Streaming, capsys: pytest.CaptureFixture[str]
) -> None:
    assert str(engine.query(ASKED)) == WHOLE
    assert str(engine.query(ASKED)) == WHOLE
    whole = engine.query(ASKED).get_response()
    assert (whole.response, whole.source_nodes[0].score, whole.metadata["of"]) == (WHOLE, 0.5, 1)
    assert whole.metadata["headstay"]["tier"] == "exact"
    engine.query(ASKED).print_response_stream()
    assert capsys.readouterr().out == WHOLE
    assert inner.asked == 1


async def test_every_way_to_read_a_served_async_stream_works(
    engine: SemanticCacheQueryEngine, inner: Streaming
) -> None:
    fresh = await engine.aquery(ASKED)
    assert [piece async for piece in fresh.async_response_gen()] == PIECES
    served = await engine.aquery(ASKED)
    assert "".join([piece async for piece in served.response_gen]) == WHOLE
    whole = await (await engine.aquery(ASKED)).get_response()
    assert (whole.response, whole.source_nodes[0].node.get_content()) == (WHOLE, "line 4")
    assert inner.asked == 1


def test_who_closes_early_keeps_nothing(engine: SemanticCacheQueryEngine, inner: Streaming, cache: Cache) -> None:
    response = engine.query(ASKED)
    next(response.response_gen)
    response.response_gen.close()
    assert (inner.closed, cache.metrics().stored) == (1, 0)
    assert str(engine.query(ASKED)) == WHOLE
    assert (inner.asked, cache.metrics().stored) == (2, 1)


async def test_who_closes_an_async_stream_early_keeps_nothing(
    engine: SemanticCacheQueryEngine, inner: Streaming, cache: Cache
) -> None:
    response = await engine.aquery(ASKED)
    await anext(response.response_gen)
    await response.response_gen.aclose()
    assert cache.metrics().stored == 0
    await (await engine.aquery(ASKED)).get_response()
    assert (inner.asked, cache.metrics().stored) == (2, 1)


@pytest.mark.parametrize("fail_at", [0, 3])
async def test_a_broken_stream_keeps_nothing_and_its_error_comes_through(fail_at: int, cache: Cache) -> None:
    inner = Streaming(fail_at)
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    response, awaited = engine.query(ASKED), await engine.aquery(ASKED)
    with pytest.raises(ConnectionError, match="the line is gone"):
        list(response.response_gen)
    with pytest.raises(ConnectionError, match="the line is gone"):
        await awaited.get_response()
    assert inner.asked == 2
    assert cache.metrics().stored == 0


def test_who_asks_again_does_not_wait_for_a_stream_it_has_not_read(
    engine: SemanticCacheQueryEngine, inner: Streaming
) -> None:
    started = time.monotonic()
    unread, half = engine.query(ASKED), engine.query(ASKED)
    next(half.response_gen)
    assert str(engine.query(ASKED)) == WHOLE
    assert inner.asked == 3
    assert str(unread) == WHOLE  # it goes on all the same
    assert time.monotonic() - started < 15  # the cache would wait for 30 seconds


async def test_nor_does_a_task_wait_for_its_own(engine: SemanticCacheQueryEngine, inner: Streaming) -> None:
    started = time.monotonic()
    unread = await engine.aquery(ASKED)
    assert (await (await engine.aquery(ASKED)).get_response()).response == WHOLE
    assert (await unread.get_response()).response == WHOLE
    assert inner.asked == 2
    assert time.monotonic() - started < 15


async def test_a_stream_that_nobody_reads_keeps_nobody_waiting(
    engine: SemanticCacheQueryEngine, inner: Streaming, cache: Cache
) -> None:
    async def forget() -> None:
        await engine.aquery(ASKED)

    await asyncio.create_task(forget())
    gc.collect()
    assert engine._open == {}
    started = time.monotonic()
    assert (await (await asyncio.create_task(engine.aquery(ASKED))).get_response()).response == WHOLE
    assert time.monotonic() - started < 15


async def test_another_task_waits_for_the_stream_under_way(engine: SemanticCacheQueryEngine, inner: Streaming) -> None:
    response = await engine.aquery(ASKED)
    waiting = asyncio.create_task(engine.aquery(ASKED))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    assert (await response.get_response()).response == WHOLE
    served = await waiting
    assert served.metadata["headstay"]["cache"] == "hit"
    assert inner.asked == 1


class Told(Streaming):
    """Gives a stream that was read already."""

    def _query(self, query_bundle: QueryBundle) -> Any:
        self.asked += 1
        return StreamingResponse(iter(()), response_txt=WHOLE)


def test_a_stream_that_was_read_already_is_kept_at_once(cache: Cache) -> None:
    inner = Told()
    engine = SemanticCacheQueryEngine(inner, cache=cache, version="1")
    assert [str(engine.query(ASKED)) for _ in range(2)] == [WHOLE, WHOLE]
    assert inner.asked == 1


class SyncStream(Streaming):
    """Gives a plain stream to those who await it, as some engines of applications do."""

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return self._query(query_bundle)


async def test_an_engine_that_gives_plain_streams_to_all_does_so_on_hits(cache: Cache) -> None:
    engine = SemanticCacheQueryEngine(SyncStream(), cache=cache, version="1")
    read: Callable[[Any], str] = str
    assert read(await engine.aquery(ASKED)) == WHOLE
    served = await engine.aquery(ASKED)
    assert type(served) is StreamingResponse
    assert read(served) == WHOLE
