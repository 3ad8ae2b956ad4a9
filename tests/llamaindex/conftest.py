"""What the tests of LlamaIndex share: a desk that answers each question in its own words, and LLMs that ask it."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from llama_index.llms.openai_like import OpenAILike
from openai import AsyncOpenAI, OpenAI

from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve

OpenAILikeMaker = Callable[..., OpenAILike]


def _respond(wire: str, body: Any) -> Reply:
    """Answer by the question in LlamaIndex's question-answering prompt, or by the last message."""
    said = str(body["messages"][-1]["content"])
    question = said.rpartition("Query: ")[2].partition("\n")[0]
    if "please refuse" in question:
        return Reply("I cannot help with that.", stop="refusal")
    if "please ramble" in question:
        return Reply("This answer is too long and was cut", stop="length")
    if "please say nothing" in question:
        return Reply("")
    if body.get("tools"):  # a structured answer, by a function that stands for its class
        return Reply(tool_calls=(ToolCall(body["tools"][0]["function"]["name"], {"price": 3.2}),))
    return Reply(f"The answer to <{question}>, in some more words than one piece of a replay has.")


@pytest.fixture(scope="session")
def _shared_desk() -> Iterator[Emulator]:
    with serve(clock=ManualClock(), responder=_respond) as running:
        yield running


@pytest.fixture
def desk(_shared_desk: Emulator) -> Emulator:
    """The emulator that all LLMs of a test ask; its `exchanges` are what reached it."""
    _shared_desk.reset()
    return _shared_desk


@pytest.fixture
async def desk_llm(desk: Emulator) -> AsyncIterator[OpenAILikeMaker]:
    """Makes LLMs that ask the desk; their connections are closed when the test is over."""
    clients: list[Any] = []  # given, so that a copy of an LLM shares them

    def make(**settings: Any) -> OpenAILike:
        known = {"model": "gpt-5.4", "api_key": "key-a", "api_base": desk.openai_url, "max_retries": 0}
        shape = {"is_chat_model": True, "is_function_calling_model": True, "context_window": 8_000}
        given = {**known, **shape, **settings}
        reached = {"api_key": given["api_key"], "base_url": given["api_base"], "max_retries": given["max_retries"]}
        client, async_client = OpenAI(**reached), AsyncOpenAI(**reached)
        clients.extend((client, async_client))
        return OpenAILike(**{"openai_client": client, "async_openai_client": async_client, **given})

    yield make
    for client in clients:
        closing = client.close()
        if closing is not None:
            await closing
