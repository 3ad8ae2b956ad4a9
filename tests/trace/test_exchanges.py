"""What reached the emulator through the real SDKs, as entries of a log."""

from typing import Any

import anthropic
import openai
import pytest

from headstay.emulator import Emulator, ManualClock
from headstay.trace.entry import Entry, Skipped
from headstay.trace.exchanges import entries, entry_of

MODEL = "claude-sonnet-4-6"
TOOL = {"name": "find_order", "description": "Find an order.", "input_schema": {"type": "object", "properties": {}}}


def claude(server: Emulator, policy: str, text: str, **more: Any) -> Any:
    system = [{"type": "text", "text": policy, "cache_control": {"type": "ephemeral"}}]
    with anthropic.Anthropic(base_url=server.base_url, api_key="a", max_retries=0) as client:
        messages = [{"role": "user", "content": text}]
        return client.messages.create(
            **{"model": MODEL, "max_tokens": 64, "system": system, "messages": messages, **more}
        )


def test_anthropic(server: Emulator, clock: ManualClock, policy: str) -> None:
    first = claude(server, policy, "Hello")
    clock.advance(60)
    second = claude(server, policy, "Please find the order 17.", tools=[], metadata={"user_id": "u"})
    one, two = (entry_of(exchange, line) for line, exchange in enumerate(server.exchanges, 7))
    assert (one.line, two.line) == (7, 8)
    assert one.wire == "anthropic-messages"
    assert one.body == server.exchanges[0].body
    assert one.exact
    assert one.account == two.account == server.exchanges[0].workspace != ""
    assert one.conversation == two.conversation == ""
    assert one.started is not None
    assert two.started == one.started + 60
    assert two.answered == two.started
    assert one.usage is not None
    assert two.usage is not None
    written = first.usage.cache_creation_input_tokens
    assert one.usage.cache_write_tokens == written > 1_024
    assert one.usage.input_tokens == first.usage.input_tokens + written
    assert two.usage.cache_read_tokens == written
    assert (one.reply_id, two.reply_id) == (first.id, second.id)
    assert one.reply == ("Here is what I know about: Hello",)


def test_a_tool_call_is_told_by_its_id(server: Emulator, policy: str) -> None:
    reply = claude(server, policy, "Please find the order 17.", tools=[TOOL])
    assert entry_of(server.exchanges[0], 1).reply == (reply.content[0].id,)


def test_the_word_of_the_provider(server: Emulator, policy: str) -> None:
    first = claude(server, policy, "Hello", extra_body={"diagnostics": {"previous_message_id": None}})
    diagnostics = {"diagnostics": {"previous_message_id": first.id}}
    claude(server, policy, "Hello", tools=[TOOL], extra_body=diagnostics)
    assert [entry_of(exchange, 1).diagnosis for exchange in server.exchanges] == ["", "tools_changed"]


@pytest.mark.parametrize("stream", [False, True])
def test_openai(server: Emulator, stream: bool) -> None:
    with openai.OpenAI(base_url=server.openai_url, api_key="a", max_retries=0) as client:
        messages: list[Any] = [{"role": "user", "content": "Hello"}]
        made = client.chat.completions.create(
            model="gpt-5.4", messages=messages, service_tier="flex", stream=stream, metadata={"session_id": "s"}
        )
        if stream:
            assert list(made)
        said = client.responses.create(model="gpt-5.4", input="Hello")
    chat, responses = (entry_of(exchange, line) for line, exchange in enumerate(server.exchanges, 1))
    assert chat.wire == "openai-chat"
    assert chat.reply == ("Here is what I know about: Hello",)
    assert chat.conversation == "s"
    assert chat.context == {"service_tier": "flex"}
    assert responses.wire == "openai-responses"
    assert responses.reply_id == said.id
    assert "Here is what I know about: Hello" in responses.reply
    assert responses.usage is not None
    assert said.usage is not None
    assert responses.usage.input_tokens == said.usage.input_tokens


def test_a_failed_call_is_no_request(server: Emulator, policy: str) -> None:
    server.fail_next(status=529)
    with pytest.raises(anthropic.APIStatusError):
        claude(server, policy, "Hello")
    claude(server, policy, "Hello")
    failed, answered = entries(server.exchanges)
    assert failed == Skipped(1, "the call failed (HTTP 529)", bad=False)
    assert isinstance(answered, Entry)
    assert answered.line == 2
    alone = entry_of(server.exchanges[0], 1)
    assert (alone.usage, alone.answered, alone.reply_id, alone.reply) == (None, None, "", ())
