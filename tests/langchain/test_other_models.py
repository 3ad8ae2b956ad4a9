"""Models whose requests cannot be seen: they are put in order, and never called fine."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

from headstay import Ledger, Slot
from headstay.emulator import Emulator
from langchain_headstay import cache_aware

Chat = Callable[..., BaseChatModel]

CLOCK, CUSTOMER = "2026-11-29 10:15:00", "Ada Lovelace"
SYSTEM = f"You are a support agent. It is {CLOCK} now. You talk to {CUSTOMER}."
SLOTS = [Slot(r"You talk to (?P<customer>.+?)\.", every="conversation")]


class Echo(BaseChatModel):
    """Answers with the roles and texts it was sent; `_generate` takes no run manager, as LangChain allows."""

    seen: list[list[BaseMessage]]
    tools_seen: list[Any]

    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(  # type: ignore[override] # the point: a signature without run_manager
        self, messages: list[BaseMessage], stop: list[str] | None = None, *, tools: Any = None
    ) -> ChatResult:
        self.seen.append(messages)
        self.tools_seen.append(tools)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(f"{len(messages)} messages"))])

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        return self.bind(tools=[{"type": "function", "function": {"name": name}} for name in tools], **kwargs)


class Narrator(Echo):
    """Streams through its own `_generate`, as several classes do."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        text = self._generate(messages, stop, **kwargs).generations[0].text
        for word in text.split():
            yield ChatGenerationChunk(message=AIMessageChunk(word))


def only(ledger: Ledger) -> Any:
    (row,) = ledger.rows()
    return row


@pytest.mark.parametrize("kind", [Echo, Narrator])
@pytest.mark.parametrize("name", ["invoke", "ainvoke", "stream", "astream", "batch"])
async def test_each_call_is_arranged_once_and_leaves_one_row(
    aware: Chat, ledger: Ledger, kind: type[Echo], name: str
) -> None:
    inner = kind(seen=[], tools_seen=[])
    model = aware(inner, ledger=ledger, volatile=SLOTS)
    messages = [SystemMessage(SYSTEM), HumanMessage("Hi")]
    if name == "invoke":
        model.invoke(messages)
    elif name == "ainvoke":
        await model.ainvoke(messages)
    elif name == "stream":
        list(model.stream(messages))
    elif name == "astream":
        _ = [chunk async for chunk in model.astream(messages)]
    else:
        model.batch([messages])
    row = only(ledger)
    assert (row.status, row.unverified) == ("unverified", "the provider reported no usage")
    (sent,) = inner.seen
    assert [message.type for message in sent] == ["system", "human"]
    system, human = str(sent[0].content), str(sent[1].content)
    # The value of the conversation stands behind the head in the one system message; the clock at the human turn.
    assert system.index("[[clock]] now. You talk to [[customer]].") < system.index(CUSTOMER)
    assert CLOCK not in system
    assert (human.count(CLOCK), system.count(CUSTOMER), human.count(CUSTOMER)) == (1, 1, 0)
    assert "no cache rules" in row.note


def test_the_chunks_of_an_earlier_stream_are_the_models_words(aware: Chat) -> None:
    inner = Echo(seen=[], tools_seen=[])
    said = AIMessageChunk("Hello ") + AIMessageChunk("there")
    aware(inner).invoke([SystemMessage(SYSTEM), HumanMessage("Hi"), said, HumanMessage("And?"), said])
    (sent,) = inner.seen
    assert [CLOCK in str(message.content) for message in sent] == [False, False, False, True, False]


def test_tools_are_sent_in_one_order(aware: Chat) -> None:
    inner = Echo(seen=[], tools_seen=[])
    model = aware(inner)
    for names in (["b", "a"], ["a", "b"]):
        model.bind_tools(names).invoke("Hi")
    assert inner.tools_seen[0] == inner.tools_seen[1]


def test_a_model_that_does_not_stream_does_not_seem_to(aware: Chat, ledger: Ledger) -> None:
    inner = Echo(seen=[], tools_seen=[])
    assert [chunk.text for chunk in aware(inner, ledger=ledger).stream("Hi")] == ["1 messages"]
    assert [type(chunk) for chunk in inner.stream("Hi")] == [type(chunk) for chunk in aware(inner).stream("Hi")]
    assert cache_aware(inner)._should_stream(async_api=False) is inner._should_stream(async_api=False) is False


def test_langchains_own_fakes_answer_as_before(aware: Chat, ledger: Ledger) -> None:
    fake = FakeListChatModel(responses=["one", "two"])
    assert [fake.model_copy().invoke("x").text, aware(fake, ledger=ledger).invoke("x").text] == ["one", "one"]
    story = [AIMessage("once upon a time"), AIMessage("the end")]
    model = aware(GenericFakeChatModel(messages=iter(story)), ledger=ledger)
    assert "".join(chunk.text for chunk in model.stream("x")) == "once upon a time"
    assert model.invoke("x").text == "the end"
    assert [row.status for row in ledger.rows()] == ["unverified"] * 3


class OwnRequest(ChatAnthropic):
    """An unknown subclass that builds its request in a way of its own."""

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        said = [{"role": "user", "content": str(message.content)} for message in messages]
        reply = self._client.messages.create(model=self.model, max_tokens=20, messages=said, **kwargs)
        return self._format_output(reply)


def test_a_class_that_builds_its_request_elsewhere_is_unverified(server: Emulator, aware: Chat, ledger: Ledger) -> None:
    inner = OwnRequest(model="claude-sonnet-4-6", api_key="key-a", base_url=server.base_url, max_retries=0)
    assert aware(inner, ledger=ledger).invoke("Hi").text
    (sent,) = server.exchanges
    assert sent.status == 200
    row = only(ledger)
    assert (row.status, row.model) == ("unverified", "claude-sonnet-4-6")
    assert row.unverified == "the model's class did not build its request where it could be seen"


def test_a_history_that_the_provider_holds_is_unverified(
    gpt_chat: Callable[..., ChatOpenAI], server: Emulator, aware: Chat, ledger: Ledger, policy: str
) -> None:
    model = aware(gpt_chat(use_responses_api=True, use_previous_response_id=True), ledger=ledger)
    messages: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hi")]
    messages.append(model.invoke(messages))
    messages.append(HumanMessage("And?"))
    assert model.invoke(messages).text
    assert "previous_response_id" in server.exchanges[1].body
    first, second = ledger.rows()
    assert (first.status, second.status) == ("cold", "unverified")
    assert second.unverified == "the history is held by the provider (previous_response_id)"


def test_a_fallback_that_is_not_cache_aware_leaves_no_false_row(
    claude_chat: Callable[..., ChatAnthropic],
    gpt_chat: Callable[..., ChatOpenAI],
    aware: Chat,
    ledger: Ledger,
    server: Emulator,
) -> None:
    server.fail_next(status=529)
    chain = aware(claude_chat(), ledger=ledger).with_fallbacks([gpt_chat()])
    assert chain.invoke("Hi").text
    row = only(ledger)
    assert (row.status, row.wire) == ("unverified", "anthropic-messages")
    assert row.error


def test_each_model_of_a_fallback_accounts_for_itself(
    claude_chat: Callable[..., ChatAnthropic],
    gpt_chat: Callable[..., ChatOpenAI],
    aware: Chat,
    ledger: Ledger,
    server: Emulator,
    policy: str,
) -> None:
    chain = aware(claude_chat(), ledger=ledger).with_fallbacks([aware(gpt_chat(), ledger=ledger)])
    messages = [SystemMessage(policy), HumanMessage("Hi")]
    assert chain.invoke(messages).text
    server.fail_next(status=529)
    assert chain.invoke(messages).text
    assert [(row.wire, row.status, row.error is None) for row in ledger.rows()] == [
        ("anthropic-messages", "cold", True),
        ("anthropic-messages", "unverified", False),
        ("openai-chat", "cold", True),
    ]
