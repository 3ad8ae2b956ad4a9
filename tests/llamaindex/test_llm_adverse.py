"""`cache_aware` where things go wrong: calls inside calls, copies, streams left alone, and what goes out as it is."""

import asyncio
import copy
import gc
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    LogProb,
    TextBlock,
    ThinkingBlock,
)
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMChatStartEvent
from llama_index.core.llms.custom import CustomLLM
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAI as Client
from pydantic import PrivateAttr

from headstay import Ledger
from headstay.emulator import Emulator
from headstay.semantic import Cache
from llama_index_headstay import cache_aware
from llama_index_headstay.tail import with_tail

Maker = Callable[..., OpenAILike]
Act = Callable[[], object]
Watch = Callable[[type[BaseEvent], Act], None]

POLICY = "\n".join(f"Rule {number}: answer questions on topic {number} briefly and kindly." for number in range(150))
SYSTEM = ChatMessage(role="system", content=POLICY)
QUESTION = "How do I reset my password?"


def said(question: str) -> list[ChatMessage]:
    return [SYSTEM, ChatMessage(role="user", content=question)]


def bodies(server: Emulator) -> list[str]:
    return [json.dumps(exchange.body) for exchange in server.exchanges]


def under_way(llm: Any) -> int:
    return llm.headstay_binding.flow.traffic.under_way


# Requests that go out as the application made them


def nobody() -> str:
    raise LookupError("no user here")


async def test_per_call_text_stays_where_the_request_goes_out_as_it_was(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), tenant=nobody, on_break="record", ledger=ledger)
    earlier = [with_tail(ChatMessage(content="who?"), "Found: a person"), ChatMessage(role="assistant", content="she")]
    llm.chat([SYSTEM, *earlier, with_tail(ChatMessage(content="why?"), "Found: a page")])
    (sent,) = bodies(desk)
    assert sent.count("Found: a page") == sent.count("Found: a person") == 1
    assert "tail_blocks" not in sent
    assert [row.unverified for row in ledger.rows()] == ["tenant= raised LookupError"]


def test_per_call_text_is_sent_where_the_history_is_at_the_provider(server: Emulator) -> None:
    with Client(api_key="key-a", base_url=server.openai_url, max_retries=0) as client:
        bare = OpenAIResponses(model="gpt-5.4", api_key="key-a", openai_client=client, track_previous_responses=True)
        llm = cache_aware(bare, on_break="record", tail="It is raining.")
        for _ in range(2):
            llm.chat([SYSTEM, with_tail(ChatMessage(content="why?"), "Found: a page")])
    assert [bool(exchange.body.get("previous_response_id")) for exchange in server.exchanges] == [False, True]
    for sent in bodies(server):
        assert sent.count("Found: a page") == sent.count("It is raining.") == 1


@pytest.mark.parametrize("own", [[], [TextBlock(text="")]], ids=["no blocks", "an empty one"])
async def test_message_of_per_call_text_alone_stays_a_message(desk: Emulator, desk_llm: Maker, own: Any) -> None:
    alone = with_tail(ChatMessage(role="user", blocks=own), "Found: a page")
    cache_aware(desk_llm(), on_break="record").chat([SYSTEM, alone])
    last = desk.exchanges[0].body["messages"][-1]
    assert last["role"] == "user"
    assert json.dumps(last).count("Found: a page") == 1
    assert '"text": ""' not in json.dumps(last)


# Calls inside calls


class _Handler(BaseEventHandler):
    """Does something on each event of a kind, once at a time."""

    kind: type[BaseEvent]
    act: Act
    _busy: bool = PrivateAttr(default=False)

    @classmethod
    def class_name(cls) -> str:
        return "_Handler"

    def handle(self, event: BaseEvent, **_: Any) -> None:
        if isinstance(event, self.kind) and not self._busy:
            self._busy = True
            self.act()
            self._busy = False


@pytest.fixture
def on_event() -> Iterator[Watch]:
    made: list[BaseEventHandler] = []
    root = get_dispatcher()

    def add(kind: type[BaseEvent], act: Act) -> None:
        made.append(_Handler(kind=kind, act=act))
        root.add_event_handler(made[-1])

    yield add
    for handler in made:
        root.event_handlers.remove(handler)


@pytest.mark.parametrize("kind", [LLMChatStartEvent, LLMChatEndEvent])
async def test_call_in_an_event_handler_is_a_call_of_its_own(
    desk: Emulator, desk_llm: Maker, on_event: Watch, kind: type[BaseEvent]
) -> None:
    """It is neither given what belongs to the call around it, nor taken for its request."""
    ledger = Ledger()
    llm = cache_aware(desk_llm(), ledger=ledger, on_break="record")
    inner: list[ChatResponse] = []
    on_event(kind, lambda: inner.append(llm.chat([with_tail(ChatMessage(content="Be my judge."), "Kindly.")])))
    outer = llm.chat([SYSTEM, with_tail(ChatMessage(content="why?"), "Found: a page")])
    assert len(inner) == 1
    for reply, own, foreign in ((outer, "Found: a page", "Kindly."), (inner[0], "Kindly.", "Found: a page")):
        (exchange,) = (one for one in desk.exchanges if own in json.dumps(one.body))
        assert json.dumps(exchange.body).count(own) == 1
        assert foreign not in json.dumps(exchange.body)
        assert reply.additional_kwargs["prompt_tokens"] == exchange.response["usage"]["prompt_tokens"]
        assert "cache_read_tokens" in reply.additional_kwargs
    assert [row.unverified for row in ledger.rows()] == [None, None]
    assert under_way(llm) == 0


async def test_task_begun_inside_a_call_is_free_when_that_is_over(
    desk: Emulator, desk_llm: Maker, on_event: Watch
) -> None:
    """A task keeps the context that it was begun in; its own calls are answered from the cache all the same."""
    go = asyncio.Event()
    tasks: list[asyncio.Task[ChatResponse]] = []
    with Cache() as cache:
        llm = cache_aware(desk_llm(), semantic_cache=cache, on_break="record")

        async def later() -> ChatResponse:
            await go.wait()
            return await llm.achat(said(QUESTION))

        on_event(LLMChatStartEvent, lambda: tasks.append(asyncio.create_task(later())))
        await llm.achat(said(QUESTION))
        go.set()
        reply = await tasks[0]
    assert reply.additional_kwargs["headstay"]["tier"] == "exact"
    assert len(desk.exchanges) == 1


class Critic(OpenAILike):
    """Has its own answer improved before it gives it."""

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        draft = super().chat(messages, **kwargs)
        return super().chat([*messages, draft.message, ChatMessage(content="Do better.")], **kwargs)


async def test_class_that_asks_twice_has_two_rows_and_the_last_usage(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    client = desk_llm()._client
    bare = Critic(model="gpt-5.4", api_key="key-a", is_chat_model=True, max_retries=0, openai_client=client)
    reply = cache_aware(bare, ledger=ledger, on_break="record").chat(said("why?"))
    assert [row.unverified for row in ledger.rows()] == [None, None]
    assert reply.additional_kwargs["prompt_tokens"] == desk.exchanges[1].response["usage"]["prompt_tokens"]


async def test_many_tasks_and_threads_keep_their_own_text(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), ledger=ledger, on_break="record")

    def asked(number: int) -> list[ChatMessage]:
        return [SYSTEM, with_tail(ChatMessage(content=f"question-{number}."), f"context-{number}.")]

    async def in_loop(number: int) -> None:
        if number % 2:
            await llm.achat(asked(number))
        else:
            assert [chunk async for chunk in await llm.astream_chat(asked(number))]

    def in_thread(number: int) -> None:
        assert llm.chat(asked(number)) if number % 2 else list(llm.stream_chat(asked(number)))

    loops = (in_loop(number) for number in range(12))
    await asyncio.gather(*loops, *(asyncio.to_thread(in_thread, number) for number in range(12, 24)))
    for number in range(24):
        (sent,) = (body for body in bodies(desk) if f"question-{number}." in body)
        assert sent.count("context-") == sent.count(f"context-{number}.") == 1
    rows = list(ledger.rows())
    assert [row.unverified for row in rows] == [None] * 24
    assert all(row.input_tokens for row in rows)
    assert under_way(llm) == 0


async def test_cancelled_request_is_accounted_for(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(), ledger=ledger, on_break="record")
    desk.hold(2)
    task = asyncio.create_task(llm.achat(said("one")))
    while not desk.waiting:
        await asyncio.sleep(0.002)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    desk.reset()
    assert [row.error for row in ledger.rows()] == ["CancelledError"]
    assert under_way(llm) == 0


async def test_cancelled_question_lets_the_next_one_ask(desk: Emulator, desk_llm: Maker) -> None:
    with Cache() as cache:
        llm = cache_aware(desk_llm(), semantic_cache=cache, on_break="record")
        desk.hold(2)
        first = asyncio.create_task(llm.achat(said(QUESTION)))
        while not desk.waiting:
            await asyncio.sleep(0.002)
        second = asyncio.create_task(llm.achat(said(QUESTION)))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        desk.reset()
        assert (await asyncio.wait_for(second, 5)).message.content


# Copies


def test_deep_copy_has_settings_of_its_own() -> None:
    llm = cache_aware(OpenAILike(model="gpt-5.4", api_key="key-a", additional_kwargs={"metadata": {"team": "a"}}))
    copied = copy.deepcopy(llm)
    copied.additional_kwargs["metadata"]["team"] = "b"
    assert llm.additional_kwargs == {"metadata": {"team": "a"}}
    assert copied.headstay_binding is llm.headstay_binding  # type: ignore[attr-defined]


async def test_client_set_later_is_the_one_that_is_used(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(api_key="key-1"), ledger=ledger, on_break="record")
    other = llm.model_copy()
    with Client(api_key="key-2", base_url=desk.openai_url, max_retries=0) as client:
        other._client = client
        for one in (llm, other, llm):
            one.chat(said("one"))
    spaces = [exchange.workspace for exchange in desk.exchanges]
    assert spaces[0] == spaces[2] != spaces[1]
    assert [row.unverified for row in ledger.rows()] == [None] * 3


async def test_client_for_each_request_is_watched_too(desk: Emulator, desk_llm: Maker) -> None:
    ledger = Ledger()
    llm = cache_aware(desk_llm(reuse_client=False), ledger=ledger, on_break="record")
    llm.chat(said("one"))
    await llm.achat(said("two"))
    assert [row.unverified for row in ledger.rows()] == [None, None]
    assert [row.status for row in ledger.rows()] == ["cold", "ok"]


def test_classes_go_when_their_llms_do() -> None:
    def alive() -> int:
        gc.collect()
        return len(OpenAILike.__subclasses__())

    bare = OpenAILike(model="gpt-5.4", api_key="key-a")
    before = alive()
    for _ in range(20):
        cache_aware(bare)
    assert alive() <= before


# Any other LLM


class Scribbler(CustomLLM):
    """Answers with likelihoods, and writes on what it is given."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="scribbler")

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        for message in messages:
            message.additional_kwargs["seen"] = True
            for block in message.blocks:
                if isinstance(block, CachePoint):
                    block.cache_control.type = "default"
            message.blocks.append(TextBlock(text="seen"))
        self._asked.append(str(messages[-1].content))
        likely = [[LogProb(token="so", logprob=-0.1)]]
        return ChatResponse(message=ChatMessage(role="assistant", content="so you say"), logprobs=likely)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="so you say")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield CompletionResponse(text="so you say", delta="so you say")


@pytest.mark.parametrize("tenant", ["acme", nobody], ids=["arranged", "as it was"])
def test_class_that_writes_on_its_messages_writes_on_copies(tenant: Any) -> None:
    point = CachePoint(cache_control=CacheControl(type="ephemeral"))
    messages = [SYSTEM, ChatMessage(role="user", blocks=[TextBlock(text="hello"), point])]
    before = [message.model_dump() for message in messages]
    cache_aware(Scribbler(), on_break="record", tenant=tenant).chat(messages)
    assert [message.model_dump() for message in messages] == before


def test_block_that_cannot_be_written_is_no_error() -> None:
    ledger = Ledger()
    llm = cache_aware(Scribbler(), on_break="record", ledger=ledger)
    thought = ThinkingBlock(content="hm", additional_information={"by": object()})
    history = [ChatMessage(role="assistant", blocks=[thought, TextBlock(text="I see")])]
    assert llm.chat([*history, with_tail(ChatMessage(content="hello"), "Found: a page")]).message.content
    (asked,) = llm._asked
    assert asked.count("hello") == asked.count("Found: a page") == 1
    (row,) = ledger.rows()
    assert row.unverified == "PydanticSerializationError while the messages were read"


def test_reply_with_likelihoods_is_not_answered_without_them() -> None:
    with Cache() as cache:
        llm = cache_aware(Scribbler(), semantic_cache=cache, on_break="record")
        assert all(llm.chat([ChatMessage(content=QUESTION)]).logprobs for _ in range(2))
        assert len(llm._asked) == 2
