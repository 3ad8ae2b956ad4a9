"""What these tests share: a desk that answers each question in its own words, models that ask it, and caches."""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve
from langchain_headstay import CacheAwareChatModel, SemanticCache

Chat = Callable[..., BaseChatModel]
Way = Callable[..., Awaitable[str]]


def _last_user_text(body: Any) -> str:
    items = body.get("messages") or body.get("input")
    if isinstance(items, str):
        return items
    said = [item for item in items if item.get("role") == "user"]
    content = said[-1]["content"] if said else ""
    if isinstance(content, str):
        return content
    return " ".join(str(block["text"]) for block in content if "text" in block)


def _respond(wire: str, body: Any) -> Reply:
    """Answer by what the last user text says; each question has an answer of its own."""
    text, whole = _last_user_text(body), json.dumps(body)
    if "Please refuse" in whole:
        return Reply("I cannot help with that.", stop="refusal")
    if "Please ramble" in whole:
        return Reply("This answer is too long and was cut", stop="length")
    if "Please say nothing" in whole:
        return Reply("")
    if "json_schema" in whole and "happy" in whole:
        return Reply('{"happy": true, "sure": true}')
    if "Please think" in whole:
        return Reply(f"Answer to <{text}>.", thinking=f"They ask {text}")
    called = any(f'"{mark}"' in whole for mark in ("tool_result", "tool_call_id", "function_call_output"))
    if "order status" in text and body.get("tools") and not called:
        return Reply(tool_calls=(ToolCall("look_up_order", {"number": 7}),))
    return Reply(f"This is the answer to <{text}>, in some more words than one piece of a replay has.")


@pytest.fixture(scope="session")
def _shared_desk() -> Iterator[Emulator]:
    with serve(clock=ManualClock(), responder=_respond) as running:
        yield running


@pytest.fixture
def desk(_shared_desk: Emulator) -> Emulator:
    """The emulator that all models of a test ask; its `exchanges` are what reached it."""
    _shared_desk.reset()
    return _shared_desk


@pytest.fixture
def claude(desk: Emulator) -> Callable[..., ChatAnthropic]:
    def make(**settings: Any) -> ChatAnthropic:
        known = {"model": "claude-opus-5-5", "api_key": "key-a", "base_url": desk.base_url, "max_retries": 0}
        return ChatAnthropic(**{**known, **settings})

    return make


@pytest.fixture
def gpt(desk: Emulator) -> Callable[..., ChatOpenAI]:
    def make(**settings: Any) -> ChatOpenAI:
        known = {"model": "gpt-5.6-terra", "api_key": "key-a", "base_url": desk.openai_url, "max_retries": 0}
        return ChatOpenAI(**{**known, "use_responses_api": False, "stream_usage": True, **settings})

    return make


@pytest.fixture
def chat(wire: str, claude: Callable[..., ChatAnthropic], gpt: Callable[..., ChatOpenAI]) -> Chat:
    """Make a bare model of the wire under test."""

    def make(**settings: Any) -> BaseChatModel:
        if wire == "anthropic-messages":
            return claude(**settings)
        return gpt(**{"use_responses_api": wire == "openai-responses", **settings})

    return make


@pytest.fixture
def cache() -> Iterator[SemanticCache]:
    with SemanticCache() as made:
        yield made


@pytest.fixture(params=["memory", "file"])
def any_cache(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SemanticCache]:
    with SemanticCache(tmp_path / "answers.db" if request.param == "file" else None) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_global_cache() -> Iterator[None]:
    yield
    set_llm_cache(None)


@pytest.fixture(params=["set_llm_cache", "model", "wrapper"])
def road(request: pytest.FixtureRequest) -> Callable[[BaseChatModel, SemanticCache], BaseChatModel]:
    """Put a cache behind a model, in each of the ways there are."""

    def put(model: BaseChatModel, cache: SemanticCache) -> BaseChatModel:
        if request.param == "set_llm_cache":
            set_llm_cache(cache)
            return model
        if request.param == "model":
            return model.model_copy(update={"cache": cache})
        return CacheAwareChatModel(model, semantic_cache=cache, on_break="record")

    return put


def _invoke(model: Any, given: Any, config: Any) -> str:
    return str(model.invoke(given, config).text)


async def _ainvoke(model: Any, given: Any, config: Any) -> str:
    return str((await model.ainvoke(given, config)).text)


def _batch(model: Any, given: Any, config: Any) -> str:
    return str(model.batch([given], config)[0].text)


async def _abatch(model: Any, given: Any, config: Any) -> str:
    return str((await model.abatch([given], config))[0].text)


def _stream(model: Any, given: Any, config: Any) -> str:
    return "".join(chunk.text for chunk in model.stream(given, config))


async def _astream(model: Any, given: Any, config: Any) -> str:
    return "".join([chunk.text async for chunk in model.astream(given, config)])


async def _astream_events(model: Any, given: Any, config: Any) -> str:
    events = [event async for event in model.astream_events(given, config, version="v2")]
    return "".join(event["data"]["chunk"].text for event in events if event["event"] == "on_chat_model_stream")


def _stream_events_v3(model: Any, given: Any, config: Any) -> str:
    return "".join(model.stream_events(given, config, version="v3").text)


async def _astream_events_v3(model: Any, given: Any, config: Any) -> str:
    stream = await model.astream_events(given, config, version="v3")
    return "".join([piece async for piece in stream.text])


WHOLE = (_invoke, _ainvoke, _batch, _abatch)
STREAMED = (_stream, _astream, _astream_events, _stream_events_v3, _astream_events_v3)


def _runner(chosen: Callable[..., Any]) -> Way:
    async def run(model: Any, given: Any, config: Any = None) -> str:
        result = chosen(model, given, config)
        return str(await result if inspect.isawaitable(result) else result)

    return run


@pytest.fixture(params=WHOLE, ids=lambda way: str(way.__name__.strip("_")))
def whole_way(request: pytest.FixtureRequest) -> Way:
    """Run a model in a way that returns the reply whole; LangChain's own caches know these only."""
    return _runner(request.param)


@pytest.fixture(params=(*WHOLE, *STREAMED), ids=lambda way: str(way.__name__.strip("_")))
def way(request: pytest.FixtureRequest) -> Way:
    """Run a model in any way; return the text of the reply."""
    return _runner(request.param)
