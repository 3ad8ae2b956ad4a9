"""`cache_aware` on the wire: whatever method is called, the head stays, and the rest arrives as it was said."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from openai import NotFoundError
from tests.llamaindex.llm_ways import POLICY, WAYS, Way, asked

from headstay import Ledger, Slot
from headstay.emulator import Emulator
from headstay.errors import PrefixBreak
from llama_index_headstay import cache_aware
from llama_index_headstay.tail import with_tail

Maker = Callable[..., OpenAILike]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def texts(message: Any) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


async def test_head_is_the_same_bytes_and_the_clock_comes_last(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    llm = cache_aware(desk_llm(), on_break="record")
    await way(llm, asked("one", at="2026-11-30T10:00:00Z"))
    await way(llm, asked("two", at="2026-11-30T11:22:33Z"))
    first, second = (exchange.body["messages"] for exchange in desk.exchanges)
    assert first[0] == second[0]
    assert texts(first[0]) == [f"{POLICY}\nNow: [[clock]]"]
    assert "2026-11-30T10:00:00Z" in json.dumps(first[1:])
    assert "2026-11-30T11:22:33Z" in json.dumps(second[1:])
    assert "2026-11-30T10:00:00Z" not in json.dumps(second)


async def test_second_call_reads_the_head(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), on_break="record", ledger=ledger)
    await way(llm, asked("one", at="2026-11-30T10:00:00Z"))
    reply = await way(llm, asked("two", at="2026-11-30T11:22:33Z"))
    first, second = ledger.rows()
    assert (first.cache_read_tokens, first.unverified) == (0, None)
    assert second.cache_read_tokens > 1_024
    assert second.status == "ok"
    assert reply.additional_kwargs["cache_read_tokens"] == second.cache_read_tokens
    assert reply.additional_kwargs["prompt_tokens"] == second.input_tokens
    assert reply.raw.usage.prompt_tokens_details.cached_tokens == second.cache_read_tokens


async def test_plain_llm_beside_it_reads_nothing(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    """The clock stands behind the policy here; before it, as in most prompts, nothing could be read."""
    llm = desk_llm()
    for at in ("2026-11-30T10:00:00Z", "2026-11-30T11:22:33Z"):
        await way(llm, [ChatMessage(role="system", content=f"Now: {at}\n{POLICY}"), ChatMessage(content="one")])
    assert desk.exchanges[1].response["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_messages_of_the_caller_are_not_changed(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    messages = [*asked("one"), with_tail(ChatMessage(content="two"), "read this")]
    before = [message.model_dump() for message in messages]
    await way(cache_aware(desk_llm(), on_break="record", tail="and this"), messages)
    assert [message.model_dump() for message in messages] == before


async def test_tail_blocks_come_behind_everything_and_once(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    llm = cache_aware(desk_llm(), on_break="record", tail="of the call")
    await way(
        llm, [ChatMessage(role="system", content=POLICY), with_tail(ChatMessage(content="why?"), "Found: a page")]
    )
    sent = desk.exchanges[0].body["messages"]
    assert texts(sent[-1]) == ["why?", "of the call\n\nFound: a page"] or "".join(texts(sent[-1])).startswith("why?")
    assert json.dumps(sent).count("Found: a page") == 1
    assert json.dumps(sent).count("of the call") == 1
    assert "headstay" not in json.dumps(sent)


async def test_marks_of_headstay_never_reach_the_wire(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    """LlamaIndex writes `additional_kwargs` of a message with tool calls onto the wire."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call], "headstay": {"hit": 1}})
    result = ChatMessage(role="tool", content="seven", additional_kwargs={"tool_call_id": "c1"})
    await way(cache_aware(desk_llm(), on_break="record"), [*asked("how many?"), said, result])
    assert "headstay" not in json.dumps(desk.exchanges[0].body)
    calls = [message["tool_calls"] for message in desk.exchanges[0].body["messages"] if "tool_calls" in message]
    assert calls == [[call]]


async def test_calls_with_tools_leave_the_history_and_put_tools_into_one_order(desk: Emulator, desk_llm: Maker) -> None:
    def look(item: str) -> str:
        """Look an item up."""
        return item

    def ask(person: str) -> str:
        """Ask a person."""
        return person

    tools = [FunctionTool.from_defaults(look), FunctionTool.from_defaults(ask)]
    llm = cache_aware(desk_llm(), on_break="record")
    history = [ChatMessage(role="system", content=POLICY)]
    llm.chat_with_tools(tools, user_msg="one", chat_history=history)
    await llm.achat_with_tools(tools[::-1], user_msg="two", chat_history=history, tool_required=True)
    list(llm.stream_chat_with_tools(tools, user_msg="three", chat_history=history))
    async for _ in await llm.astream_chat_with_tools(tools[::-1], user_msg="four", chat_history=history):
        pass
    assert len(history) == 1
    bodies = [exchange.body for exchange in desk.exchanges]
    assert [[tool["function"]["name"] for tool in body["tools"]] for body in bodies] == [["ask", "look"]] * 4
    assert [body["tool_choice"] for body in bodies] == ["auto", "required", "auto", "auto"]


async def test_completion_goes_the_same_way(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), on_break="record", ledger=ledger)
    assert llm.complete("one").text
    assert (await llm.acomplete("two")).text
    assert list(llm.stream_complete("three"))[-1].text
    assert [chunk async for chunk in await llm.astream_complete("four")][-1].text
    rows = list(ledger.rows())
    assert [row.unverified for row in rows] == [None] * 4
    assert all(row.output_tokens for row in rows)


async def test_text_completion_api_has_no_head_and_says_so(desk: Emulator, desk_llm: Maker) -> None:
    """The emulator has no such API: the host's own error comes through, and the row has the reason."""
    ledger = Ledger()
    llm = cache_aware(desk_llm(is_chat_model=False), on_break="record", ledger=ledger)
    with pytest.raises(NotFoundError):
        llm.complete("one")
    (row,) = ledger.rows()
    assert row.unverified == "a text completion has no head to keep; an OpenAILike chat model needs is_chat_model=True"
    assert row.error == "NotFoundError"


async def test_error_of_the_provider_comes_through_and_is_accounted_for(
    desk: Emulator, desk_llm: Maker, way: Way
) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), on_break="record", ledger=ledger)
    desk.fail_next(status=400)
    with pytest.raises(Exception, match="400") as caught:
        await way(llm, asked("one"))
    assert type(caught.value).__name__ == "BadRequestError"
    assert [row.error for row in ledger.rows()] == ["BadRequestError"]


async def test_stream_that_is_left_early_is_unverified(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), on_break="record", ledger=ledger)
    stream = llm.stream_chat(asked("one"))
    next(stream)
    stream.close()
    astream = await llm.astream_chat(asked("one"))
    await anext(astream)
    await astream.aclose()
    assert [row.unverified for row in ledger.rows()] == ["the stream was closed before its end"] * 2


class _Plain(BaseHTTPRequestHandler):
    """A server of OpenAI's wire that knows no `stream_options`."""

    asked: ClassVar[list[bool]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append("stream_options" in body)
        if "stream_options" in body:
            said, status = json.dumps({"error": {"message": "Unknown parameter: stream_options"}}), 400
        else:
            choice = {"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
            said, status = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n", 200
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 400 else "text/event-stream")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        pass


async def test_server_that_takes_no_stream_options_is_asked_without(desk_llm: Maker) -> None:
    ledger = Ledger()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Plain) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        llm = cache_aware(desk_llm(api_base=url, model="m"), on_break="record", ledger=ledger)
        assert list(llm.stream_chat(asked("one")))[-1].message.content == "hello"
        assert [chunk async for chunk in await llm.astream_chat(asked("two"))][-1].message.content == "hello"
        server.shutdown()
    assert _Plain.asked == [True, False, False]
    assert [row.error for row in ledger.rows()] == [None, None]


async def test_options_of_the_application_stay(desk: Emulator, desk_llm: Maker) -> None:
    llm = cache_aware(desk_llm(additional_kwargs={"stream_options": {"include_usage": False}}), on_break="record")
    list(llm.stream_chat(asked("one")))
    assert desk.exchanges[0].body["stream_options"] == {"include_usage": False}


async def test_break_of_the_application_is_raised_where_that_is_asked_for(
    desk: Emulator, desk_llm: Maker, way: Way
) -> None:
    llm = cache_aware(desk_llm(), on_break="raise")
    await way(llm, [ChatMessage(role="system", content=f"For Ada.\n{POLICY}"), ChatMessage(content="one")])
    with pytest.raises(PrefixBreak, match="value_in_head"):
        await way(llm, [ChatMessage(role="system", content=f"For Bob.\n{POLICY}"), ChatMessage(content="one")])
    assert len(desk.exchanges) == 1


async def test_declared_slot_goes_behind_the_head(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    llm = cache_aware(desk_llm(), on_break="raise", volatile=[Slot(r"For (\w+)\.", every="conversation")])
    for name in ("Ada", "Bob"):
        await way(llm, [ChatMessage(role="system", content=f"For {name}.\n{POLICY}"), ChatMessage(content="one")])
    first, second = (exchange.body["messages"] for exchange in desk.exchanges)
    assert first[0] == second[0]
    assert "Bob" in json.dumps(second[1:])
    assert "Ada" not in json.dumps(second)


async def test_text_blocks_of_the_caller_stay_several(desk: Emulator, desk_llm: Maker, way: Way) -> None:
    message = ChatMessage(role="user", blocks=[TextBlock(text="first "), TextBlock(text="second")])
    await way(cache_aware(desk_llm(), on_break="record"), [ChatMessage(role="system", content=POLICY), message])
    await way(desk_llm(), [ChatMessage(role="system", content=POLICY), message])
    ours, theirs = (exchange.body["messages"][-1] for exchange in desk.exchanges)
    assert "".join(texts(ours)) == "".join(texts(theirs))
