"""Any other LLM: its messages are put into order; and a class that allows no subclass gets an LLM around it."""

from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ImageBlock,
    LLMMetadata,
    TextBlock,
)
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.tools import FunctionTool
from pydantic import PrivateAttr

from headstay import Ledger, Slot
from llama_index_headstay import cache_aware
from llama_index_headstay.tail import with_tail


class Parrot(CustomLLM):
    """Says what it was asked, as its own template of a prompt puts it."""

    _asked: list[str] = PrivateAttr(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="parrot", is_function_calling_model=False)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        self._asked.append(prompt)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
        return CompletionResponse(text="so you say", raw={"usage": usage})

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        self._asked.append(prompt)

        def pieces() -> Any:
            for number, word in enumerate(("so", " you", " say")):
                yield CompletionResponse(text="so you say"[: (2, 6, 10)[number]], delta=word)

        return pieces()


def asked(customer: str, at: str) -> list[ChatMessage]:
    system = f"You serve {customer}. Now: {at}. Be kind."
    return [ChatMessage(role="system", content=system), with_tail(ChatMessage(content="hello"), "Found: a page")]


async def test_values_go_behind_the_head_whatever_method_is_called() -> None:
    ledger = Ledger()
    llm = cache_aware(
        Parrot(), on_break="record", ledger=ledger, volatile=[Slot(r"serve (\w+)\.", every="conversation")]
    )
    said = [
        llm.chat(asked("Ada", "2026-11-30T10:00:00Z")).message.content,
        (await llm.achat(asked("Bob", "2026-11-30T10:00:01Z"))).message.content,
        list(llm.stream_chat(asked("Ada", "2026-11-30T10:00:02Z")))[-1].message.content,
        [chunk async for chunk in await llm.astream_chat(asked("Bob", "2026-11-30T10:00:03Z"))][-1].message.content,
    ]
    assert said == ["so you say"] * 4
    prompts = llm._asked
    assert len(prompts) == 4
    for number, prompt in enumerate(prompts):
        assert "Now: [[clock]]. Be kind." in prompt
        assert prompt.index("[[") < prompt.index(f"2026-11-30T10:00:0{number}Z")
        assert prompt.count("Found: a page") == 1
        assert prompt.index("hello") < prompt.index("Found: a page")
        assert ("Ada" if number % 2 == 0 else "Bob") in prompt
    rows = list(ledger.rows())
    assert {row.unverified for row in rows[:2]} == {"no expectation for this call"}  # nothing is known of its cache
    assert rows[0].input_tokens == len(prompts[0])


async def test_completion_of_such_a_class_is_accounted_for() -> None:
    ledger = Ledger()
    llm = cache_aware(Parrot(), on_break="record", ledger=ledger)
    assert llm.complete("hello").text == "so you say"
    assert list(llm.stream_complete("hello"))[-1].text == "so you say"
    assert {row.unverified for row in ledger.rows()} == {"a text completion has no head to keep"}


async def test_stream_of_such_a_class_that_is_never_read_leaves_nothing() -> None:
    ledger = Ledger()
    llm = cache_aware(Parrot(), on_break="record", ledger=ledger)
    llm.stream_chat([ChatMessage(content="hello")])
    assert list(ledger.rows()) == []


class Keeper(MockFunctionCallingLLM):
    """Keeps what it was asked."""

    _asked: list[Any] = PrivateAttr(default_factory=list)

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        self._asked.append(messages)
        return ChatResponse(message=ChatMessage(role="assistant", content="a tea pot"))


async def test_pictures_stay_where_they_are() -> None:
    llm = cache_aware(Keeper(), on_break="record")
    picture = ImageBlock(image=b"\x89PNG\r\n\x1a\n" + b"\x00" * 20, image_mimetype="image/png")
    message = ChatMessage(role="user", blocks=[TextBlock(text="what is this?"), picture])
    llm.chat([ChatMessage(role="system", content="Now: 2026-11-30T10:00:00Z"), message])
    sent = llm._asked[0][-1].blocks
    assert sent[:2] == [TextBlock(text="what is this?"), picture]
    assert "2026-11-30T10:00:00Z" in sent[2].text
    assert message.blocks == [TextBlock(text="what is this?"), picture]


async def test_function_agent_refuses_what_calls_no_functions_with_its_own_words() -> None:
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(str.upper)], llm=cache_aware(Parrot()), system_prompt="x")
    with pytest.raises(ValueError, match="LLM must be a FunctionCallingLLM"):
        await agent.run("hello")


class Closed(FunctionCallingLLM):
    """A class that allows no subclass."""

    _required: list[bool] = PrivateAttr(default_factory=list)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        raise TypeError("Closed allows no subclass")

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="closed", is_chat_model=True, is_function_calling_model=True)

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        text = " | ".join(f"{message.role.value}: {message.content}" for message in messages)
        return ChatResponse(message=ChatMessage(role="assistant", content=text))

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=prompt)

    def stream_chat(self, messages: Any, **kwargs: Any) -> Any:
        yield self.chat(messages)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt)

    async def achat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        return self.chat(messages)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return self.complete(prompt)

    async def astream_chat(self, messages: Any, **kwargs: Any) -> Any:
        async def pieces() -> Any:
            yield self.chat(messages)

        return pieces()

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        async def pieces() -> Any:
            yield self.complete(prompt)

        return pieces()

    def _prepare_chat_with_tools(
        self,
        tools: Any,
        user_msg: Any = None,
        chat_history: Any = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        self._required.append(tool_required)
        chat_history = chat_history or []
        if user_msg is not None:
            chat_history.append(ChatMessage(content=str(user_msg)))
        return {"messages": chat_history}

    def get_tool_calls_from_response(self, response: ChatResponse, **kwargs: Any) -> list[ToolSelection]:
        return []


async def test_llm_around_one_that_allows_no_subclass() -> None:
    inner = Closed()
    llm = cache_aware(inner, on_break="record")
    assert isinstance(llm, FunctionCallingLLM)
    assert llm.metadata == inner.metadata
    reply = llm.chat([ChatMessage(role="system", content="Now: 2026-11-30T10:00:00Z"), ChatMessage(content="hello")])
    assert str(reply.message.content).startswith("system: Now: [[clock]] | user: hello")
    assert "2026-11-30T10:00:00Z" in str(reply.message.content)
    history = [ChatMessage(role="system", content="Be kind.")]
    llm.chat_with_tools(
        [FunctionTool.from_defaults(str.upper)], user_msg="hi", chat_history=history, tool_required=True
    )
    assert len(history) == 1
    assert inner._required == [True]
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(str.upper)], llm=llm, system_prompt="Be kind.")
    assert "hello there" in str(await agent.run("hello there"))
