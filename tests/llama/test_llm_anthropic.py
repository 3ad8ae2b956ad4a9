"""`cache_aware` with LlamaIndex's Anthropic class: markers, usage, structured output and bound thinking on the wire."""

import json
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ThinkingBlock
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.anthropic import Anthropic
from pydantic import BaseModel
from tests.llamaindex.llm_ways import POLICY, WAYS, Way, asked

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve
from llama_index_headstay import cache_aware
from llama_index_headstay.tail import KEY

Maker = Callable[..., Anthropic]
Host = Callable[[Emulator], Maker]


# LlamaIndex 0.12.3 leaves a thinking block without text out of the next request, and with it its signature.
THINKING = {"type": "adaptive", "display": "summarized"}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """Makes bare LLMs that ask an emulator; their connections are closed when the test is over."""
    made: list[Anthropic] = []

    def at(server: Emulator) -> Maker:
        def make(model: str = "claude-sonnet-4-6", **settings: Any) -> Anthropic:
            known: dict[str, Any] = {"model": model, "api_key": "key-a", "base_url": server.base_url, "max_retries": 0}
            made.append(Anthropic(**{**known, **settings}))
            return made[-1]

        return make

    yield at
    for llm in made:
        llm._client.close()
        await llm._aclient.close()


@pytest.fixture
def claude(host: Host, server: Emulator) -> Maker:
    return host(server)


async def test_head_has_a_marker_and_the_second_call_reads_it(server: Emulator, claude: Maker, way: Way) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    assert isinstance(llm, Anthropic)
    await way(llm, asked("one"))
    reply = await way(llm, asked("two", at="2026-11-30T11:22:33Z"))
    first, second = (exchange.body for exchange in server.exchanges)
    assert first["system"] == second["system"]
    assert first["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert first["system"][0]["text"].endswith("Now: [[clock]]")
    assert "2026-11-30T11:22:33Z" in json.dumps(second["messages"])
    rows = list(ledger.rows())
    assert [row.status for row in rows] == ["cold", "ok"]
    read = server.exchanges[1].response["usage"]["cache_read_input_tokens"]
    assert read > 1_024
    assert rows[1].cache_read_tokens == read
    assert reply.additional_kwargs["cache_read_tokens"] == read


async def test_usage_is_whole_where_tracing_and_the_token_counter_read_it(
    server: Emulator, claude: Maker, way: Way
) -> None:
    counter = TokenCountingHandler(tokenizer=str.split)
    llm = cache_aware(claude(), on_break="record")
    llm.callback_manager = CallbackManager([counter])
    for question in ("one", "two"):
        reply = await way(llm, asked(question))
    usages = [exchange.response["usage"] for exchange in server.exchanges]
    whole = [
        usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
        for usage in usages
    ]
    assert [event.prompt_token_count for event in counter.llm_token_counts] == whole
    usage = reply.raw["usage"]
    assert usage.cache_read_input_tokens == usages[1]["cache_read_input_tokens"] > 0
    assert usage.input_tokens == usages[1]["input_tokens"]
    assert usage.prompt_tokens == whole[1]


async def test_tools_are_under_the_marker_of_the_head(server: Emulator, claude: Maker) -> None:
    def look(item: str) -> str:
        """Look an item up."""
        return item

    def ask(person: str) -> str:
        """Ask a person."""
        return person

    tools = [FunctionTool.from_defaults(look), FunctionTool.from_defaults(ask)]
    llm = cache_aware(claude(), on_break="record")
    history = [ChatMessage(role="system", content=POLICY)]
    llm.chat_with_tools(tools, user_msg="one", chat_history=history)
    await llm.achat_with_tools(tools[::-1], user_msg="two", chat_history=history)
    assert len(history) == 1
    names = [[tool["name"] for tool in exchange.body["tools"]] for exchange in server.exchanges]
    assert names == [["ask", "look"]] * 2
    assert server.exchanges[1].response["usage"]["cache_read_input_tokens"] > 1_024


async def test_own_markers_of_the_class_are_taken_over_and_do_not_stick(
    server: Emulator, claude: Maker, way: Way
) -> None:
    """LlamaIndex writes `cache_control` into the caller's messages; the API takes four markers."""
    history = [
        ChatMessage(role="user" if number % 2 == 0 else "assistant", content=f"{number}") for number in range(12)
    ]
    messages = [*asked("one")[:1], *history, ChatMessage(content="last")]
    before = [message.model_dump() for message in messages]
    await way(cache_aware(claude("claude-sonnet-4-5", cache_idx=-1), on_break="record"), messages)
    assert [message.model_dump() for message in messages] == before
    body = json.dumps(server.exchanges[0].body)
    assert 1 <= body.count("cache_control") <= 4
    assert server.exchanges[0].status == 200


class Price(BaseModel):
    """What something costs."""

    price: float


@pytest.mark.filterwarnings(
    "ignore:The 'output_format' parameter:DeprecationWarning"
)  # LlamaIndex's own use of the SDK
async def test_structured_output_keeps_the_head(host: Host) -> None:
    """It calls the SDK's client by itself, past every method of the LLM."""

    def respond(wire: str, body: Any) -> Reply:
        return Reply('{"price": 3.2}')

    ledger = Ledger()
    prompt = ChatPromptTemplate(
        [ChatMessage(role="system", content=f"{POLICY}\nNow: {{now}}"), ChatMessage(content="What is {item}?")]
    )
    with serve(responder=respond) as server:
        llm = cache_aware(host(server)("claude-sonnet-4-5"), on_break="record", ledger=ledger)
        first = llm.structured_predict(Price, prompt, item="tea", now="2026-11-30T10:00:00Z")
        second = await llm.astructured_predict(Price, prompt, item="tea", now="2026-11-30T10:00:01Z")
        assert first == second == Price(price=3.2)
        bodies = [exchange.body for exchange in server.exchanges]
        assert bodies[0]["system"] == bodies[1]["system"]
        assert server.exchanges[1].response["usage"]["cache_read_input_tokens"] > 1_024
    assert [row.unverified for row in ledger.rows()] == [None, None]


async def test_error_comes_through_and_is_accounted_for(server: Emulator, claude: Maker, way: Way) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    server.fail_next(status=529)
    with pytest.raises(Exception, match="529") as caught:
        await way(llm, asked("one"))
    assert type(caught.value).__module__.startswith("anthropic")
    assert [row.error for row in ledger.rows()] == [type(caught.value).__name__]


async def test_stream_that_breaks_off_is_an_error(server: Emulator, claude: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(claude(), on_break="record", ledger=ledger)
    server.fail_next(status=529, after_events=2)
    with pytest.raises(Exception, match="verloaded"):
        list(llm.stream_chat(asked("one")))
    (row,) = ledger.rows()
    assert row.error is not None


def _thinks(wire: str, body: Any) -> Reply:
    last = body["messages"][-1]
    results = any(block.get("type") == "tool_result" for block in last["content"] if isinstance(block, dict))
    humans = sum(
        1
        for message in body["messages"]
        if message["role"] == "user"
        and any(block.get("type") == "text" for block in message["content"] if isinstance(block, dict))
    )
    if results or not body.get("tools"):
        return Reply(f"Answer {humans}.", thinking=f"I thought of {humans}.")
    return Reply("", tool_calls=(ToolCall("look", {"item": "tea"}),), thinking=f"I should look ({humans}).")


@pytest.mark.parametrize("model", ["claude-opus-5-5"])
async def test_kept_notes_are_found_again_by_receipts_on_the_replies(host: Host, model: str, way: Way) -> None:
    """Where thinking is bound to the history, the clock of each turn stays where it was sent."""
    ledger = Ledger()
    with serve(clock=ManualClock(), responder=_thinks) as server:
        bare = host(server)(model, thinking_dict=THINKING, max_tokens=4_000)
        llm = cache_aware(bare, on_break="record", ledger=ledger, verify="provider", head_store=HeadStore())
        history: list[ChatMessage] = []
        for turn in range(3):
            history.append(ChatMessage(content=f"question {turn}"))
            system = ChatMessage(role="system", content=f"{POLICY}\nNow: 2026-11-30T10:0{turn}:00Z")
            reply = await way(llm, [system, *history])
            assert any(isinstance(block, ThinkingBlock) for block in reply.message.blocks)
            assert KEY in reply.message.additional_kwargs
            history.append(ChatMessage.model_validate_json(reply.message.model_dump_json()))
        bodies = [exchange.body for exchange in server.exchanges]
        assert [exchange.status for exchange in server.exchanges] == [200] * 3
        for before, after in pairwise(bodies):
            plain = [[_bare(message) for message in body["messages"]] for body in (before, after)]
            assert plain[1][: len(plain[0])] == plain[0]
        assert "2026-11-30T10:00:00Z" in json.dumps(bodies[2])
    rows = list(ledger.rows())
    assert [row.breaks for row in rows] == [()] * 3
    assert [row.status for row in rows] == ["cold", "ok", "ok"]


def _bare(message: Any) -> Any:
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return message["role"], [{name: item for name, item in part.items() if name != "cache_control"} for part in parts]


async def test_agent_with_bound_thinking_and_tools(host: Host) -> None:
    def look(item: str) -> str:
        """Look an item up."""
        return f"seven of {item}"

    ledger = Ledger()
    with serve(clock=ManualClock(), responder=_thinks) as server:
        bare = host(server)("claude-opus-5-5", thinking_dict=THINKING, max_tokens=4_000)
        llm = cache_aware(bare, on_break="record", ledger=ledger, verify="provider")
        agent = FunctionAgent(tools=[FunctionTool.from_defaults(look)], llm=llm, system_prompt=POLICY)
        memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
        for turn in range(2):
            output = await agent.run(f"question {turn}", memory=memory)
            assert str(output).startswith("Answer")
        assert [exchange.status for exchange in server.exchanges] == [200] * 4
    assert all(row.unverified is None for row in ledger.rows())
