"""What the tests of a cache-aware LLM share: the ways to ask for a chat reply, and a head that is worth caching."""

from collections.abc import Awaitable, Callable
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM

Way = Callable[[LLM, list[ChatMessage]], Awaitable[Any]]

POLICY = "\n".join(f"Rule {number}: answer questions on topic {number} briefly and kindly." for number in range(150))


async def _chat(llm: LLM, messages: list[ChatMessage]) -> Any:
    return llm.chat(messages)


async def _achat(llm: LLM, messages: list[ChatMessage]) -> Any:
    return await llm.achat(messages)


async def _stream_chat(llm: LLM, messages: list[ChatMessage]) -> Any:
    return list(llm.stream_chat(messages))[-1]


async def _astream_chat(llm: LLM, messages: list[ChatMessage]) -> Any:
    return [chunk async for chunk in await llm.astream_chat(messages)][-1]


WAYS: dict[str, Way] = {
    "chat": _chat,
    "achat": _achat,
    "stream_chat": _stream_chat,
    "astream_chat": _astream_chat,
}


def asked(question: str, *, at: str = "2026-11-30T10:00:00Z") -> list[ChatMessage]:
    """A question under the policy and a clock."""
    system = f"{POLICY}\nNow: {at}"
    return [ChatMessage(role="system", content=system), ChatMessage(role="user", content=question)]
