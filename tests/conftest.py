"""What the tests share: one emulator that forgets between tests, and chat models of each wire that talk to it.

The fixtures that make LangChain's models import it themselves: some tests run where it is not installed.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from headstay import Ledger
from headstay.emulator import Emulator, ManualClock, serve

if TYPE_CHECKING:
    from langchain_anthropic import ChatAnthropic
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage
    from langchain_openai import ChatOpenAI

# A loaded machine is no fault of the code.
settings.register_profile("headstay", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headstay")

WIRES = ("anthropic-messages", "openai-chat", "openai-responses")
# About 1,900 tokens: enough for every minimum of the models used here (512 and 1,024).
POLICY = "\n".join(f"Rule {number}: answer questions on topic {number} briefly and kindly." for number in range(150))


@pytest.fixture(scope="session", autouse=True)
def no_loop_of_the_thread() -> None:
    """Be as after `asyncio.run`: LlamaIndex would make a loop for the thread in methods without async, and leave it."""
    asyncio.set_event_loop(None)


@pytest.fixture(scope="session")
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def shared_server(clock: ManualClock) -> Iterator[Emulator]:
    with serve(clock=clock) as running:
        yield running


@pytest.fixture
def server(shared_server: Emulator) -> Emulator:
    shared_server.reset()
    return shared_server


@pytest.fixture
def claude_chat(server: Emulator) -> "Callable[..., ChatAnthropic]":
    """Make a ChatAnthropic; claude-sonnet-4-6 takes no system message in place, claude-opus-5-5 does."""
    from langchain_anthropic import ChatAnthropic

    def make(model: str = "claude-sonnet-4-6", **settings: Any) -> "ChatAnthropic":
        return ChatAnthropic(
            **{"model": model, "api_key": "key-a", "base_url": server.base_url, "max_retries": 0, **settings}
        )

    return make


@pytest.fixture
def gpt_chat(server: Emulator) -> "Callable[..., ChatOpenAI]":
    """Make a ChatOpenAI; gpt-5.4 has no breakpoints, gpt-5.6-terra has."""
    from langchain_openai import ChatOpenAI

    def make(model: str = "gpt-5.6-terra", **settings: Any) -> "ChatOpenAI":
        defaults = {"use_responses_api": False, "stream_usage": True}
        return ChatOpenAI(
            **{
                "model": model,
                "api_key": "key-a",
                "base_url": server.openai_url,
                "max_retries": 0,
                **defaults,
                **settings,
            }
        )

    return make


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chat(
    wire: str, claude_chat: "Callable[..., ChatAnthropic]", gpt_chat: "Callable[..., ChatOpenAI]"
) -> "Callable[..., BaseChatModel]":
    """Make a bare model of the wire under test."""

    def make(**settings: Any) -> "BaseChatModel":
        if wire == "anthropic-messages":
            return claude_chat(**settings)
        return gpt_chat(**{"use_responses_api": wire == "openai-responses", **settings})

    return make


@pytest.fixture(params=["copy", "wrapper"])
def aware(request: pytest.FixtureRequest) -> "Callable[..., BaseChatModel]":
    """Make a model cache-aware, in each of the two forms."""
    from langchain_headstay import CacheAwareChatModel, cache_aware

    def make(model: "BaseChatModel", **settings: Any) -> "BaseChatModel":
        quiet = {"on_break": "record", **settings}
        return cache_aware(model, **quiet) if request.param == "copy" else CacheAwareChatModel(model, **quiet)

    return make


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def policy() -> str:
    return POLICY


@pytest.fixture
def bodies(server: Emulator) -> Callable[[], list[str]]:
    """Return what was sent so far, one JSON text for each request."""
    return lambda: [json.dumps(exchange.body, ensure_ascii=False) for exchange in server.exchanges]


@pytest.fixture
def heads(server: Emulator) -> Callable[[], list[str]]:
    """Return the head of each request so far: the tools and the first system text, as sent."""

    def read() -> list[str]:
        return [json.dumps(_head(exchange.body), ensure_ascii=False) for exchange in server.exchanges]

    return read


def _head(body: Any) -> tuple[Any, Any]:
    items = body.get("messages") or body.get("input")
    if "system" in body:
        system = body["system"] if isinstance(body["system"], str) else body["system"][0]
    elif isinstance(items, list) and items[0].get("role") in ("system", "developer"):
        system = items[0]
    else:
        system = None
    return body.get("tools"), system


@pytest.fixture
def talk() -> "Callable[..., list[BaseMessage]]":
    """Say one thing in a conversation that the client holds: system text, history, question; the reply is appended."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    def say(
        model: Any, system: str | None, history: "list[BaseMessage]", text: str, **config: Any
    ) -> "list[BaseMessage]":
        history.append(HumanMessage(text))
        head: list[BaseMessage] = [] if system is None else [SystemMessage(system)]
        reply = model.invoke([*head, *history], config or None)
        assert isinstance(reply, AIMessage)
        history.append(reply)
        return history

    return say
