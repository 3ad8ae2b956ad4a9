"""Cold fan-out: an entry is readable only once the answer of its writer has begun."""

import asyncio
from typing import Any

import anthropic

from headstay.emulator import Emulator

HEAD: list[Any] = [{"type": "text", "text": " word" * 1500, "cache_control": {"type": "ephemeral"}}]


async def head_tokens(client: anthropic.AsyncAnthropic, number: int) -> tuple[int | None, int | None]:
    """Send one request behind the shared head; return the tokens written and read."""
    said: Any = [{"role": "user", "content": f"question {number}"}]
    message = await client.messages.create(model="claude-sonnet-4-6", max_tokens=9, system=HEAD, messages=said)
    return message.usage.cache_creation_input_tokens, message.usage.cache_read_input_tokens


async def test_parallel_cold_calls_all_write(server: Emulator) -> None:
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
        server.hold(6)  # no answer begins before all six have arrived
        spent = await asyncio.gather(*(head_tokens(client, n) for n in range(6)))
        assert spent == [(1500, 0)] * 6
        assert await head_tokens(client, 7) == (0, 1500)


async def test_one_leader_and_then_a_fan_out_writes_once(server: Emulator) -> None:
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
        assert await head_tokens(client, 0) == (1500, 0)
        server.hold(5)
        spent = await asyncio.gather(*(head_tokens(client, n) for n in range(1, 6)))
        assert spent == [(0, 1500)] * 5
        writes = [x.response["usage"]["cache_creation_input_tokens"] for x in server.exchanges]
        assert sum(writes) == 1500


async def test_the_first_event_of_a_stream_is_enough(server: Emulator) -> None:
    said: Any = [{"role": "user", "content": "question"}]
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
        stream = await client.messages.create(
            model="claude-sonnet-4-6", max_tokens=9, system=HEAD, messages=said, stream=True
        )
        async for event in stream:
            assert event.type == "message_start"
            break
        assert await head_tokens(client, 1) == (0, 1500)
        await stream.close()


async def test_a_request_that_fails_writes_nothing(server: Emulator) -> None:
    async with anthropic.AsyncAnthropic(api_key="k", base_url=server.base_url) as client:
        server.fail_next(status=529, retry_after=0.01)
        # The SDK tries again by itself, and that call is cold.
        assert await head_tokens(client, 0) == (1500, 0)
        assert [exchange.status for exchange in server.exchanges] == [529, 200]
