"""The ways LangChain offers to run a model or a chain, and an emulated model that repeats nothing."""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from langchain_core.runnables import Runnable

from headstay.emulator import Emulator, ManualClock, Reply, serve

Way = Callable[[Runnable[Any, Any], Any, Any], Awaitable[str]]


def _invoke(model: Any, given: Any, config: Any) -> str:
    return str(model.invoke(given, config).text)


async def _ainvoke(model: Any, given: Any, config: Any) -> str:
    return str((await model.ainvoke(given, config)).text)


def _stream(model: Any, given: Any, config: Any) -> str:
    return "".join(chunk.text for chunk in model.stream(given, config))


async def _astream(model: Any, given: Any, config: Any) -> str:
    return "".join([chunk.text async for chunk in model.astream(given, config)])


def _batch(model: Any, given: Any, config: Any) -> str:
    return str(model.batch([given], config)[0].text)


async def _abatch(model: Any, given: Any, config: Any) -> str:
    return str((await model.abatch([given], config))[0].text)


def _batch_as_completed(model: Any, given: Any, config: Any) -> str:
    return str(next(iter(model.batch_as_completed([given], config)))[1].text)


def _transform(model: Any, given: Any, config: Any) -> str:
    return "".join(chunk.text for chunk in model.transform(iter([given]), config))


async def _astream_events(model: Any, given: Any, config: Any) -> str:
    events = [event async for event in model.astream_events(given, config, version="v2")]
    return "".join(event["data"]["chunk"].text for event in events if event["event"] == "on_chat_model_stream")


def _stream_events_v3(model: Any, given: Any, config: Any) -> str:
    return "".join(model.stream_events(given, config, version="v3").text)


async def _astream_events_v3(model: Any, given: Any, config: Any) -> str:
    stream = await model.astream_events(given, config, version="v3")
    return "".join([piece async for piece in stream.text])


WAYS = {
    way.__name__.strip("_"): way
    for way in (
        _invoke,
        _ainvoke,
        _stream,
        _astream,
        _batch,
        _abatch,
        _batch_as_completed,
        _transform,
        _astream_events,
        _stream_events_v3,
        _astream_events_v3,
    )
}


@pytest.fixture(scope="session")
def quiet_server() -> Iterator[Emulator]:
    """Run a model that does not repeat what it is told: it would bring values into the history by itself."""
    with serve(clock=ManualClock(), responder=lambda wire, body: Reply("Noted.")) as running:
        yield running


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """Run a model or a chain on an input with a config, in each way; return the text of the reply."""
    chosen = WAYS[request.param]

    async def run(model: Any, given: Any, config: Any) -> str:
        result = chosen(model, given, config)
        return str(await result if inspect.isawaitable(result) else result)

    return run
