"""An LLM around another one, for classes that allow no subclass: it hands everything on."""

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
)
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools.types import BaseTool
from pydantic import SkipValidation

_SHARED = ("callback_manager", "rate_limiter", "system_prompt", "messages_to_prompt", "completion_to_prompt")
_SHARED_TOO = ("output_parser", "pydantic_program_mode", "query_wrapper_prompt")


class Delegating(FunctionCallingLLM):
    """Hands everything on to the LLM inside it.

    Args:
        llm: The LLM inside.
    """

    # It may lack what calls with tools need: then LlamaIndex asks its metadata first, and says so.
    llm: SkipValidation[FunctionCallingLLM] = Field(exclude=True, repr=False)

    def __init__(self, llm: BaseLLM, **settings: Any) -> None:
        shared = {name: getattr(llm, name) for name in (*_SHARED, *_SHARED_TOO) if hasattr(llm, name)}
        super().__init__(llm=llm, **{**shared, **settings})
        self.rate_limiter = None  # the one inside limits by itself

    @classmethod
    def class_name(cls) -> str:
        """Name the class, as LlamaIndex does."""
        return "headstay_delegating"

    @property
    def metadata(self) -> LLMMetadata:
        """What the LLM inside says of itself."""
        return self.llm.metadata

    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Hand it on."""
        return self.llm.chat(messages, **kwargs)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Hand it on."""
        return self.llm.complete(prompt, formatted=formatted, **kwargs)

    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseGen:
        """Hand it on."""
        return self.llm.stream_chat(messages, **kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Hand it on."""
        return self.llm.stream_complete(prompt, formatted=formatted, **kwargs)

    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """Hand it on."""
        return await self.llm.achat(messages, **kwargs)

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Hand it on."""
        return await self.llm.acomplete(prompt, formatted=formatted, **kwargs)

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        """Hand it on."""
        return await self.llm.astream_chat(messages, **kwargs)

    async def astream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseAsyncGen:
        """Hand it on."""
        return await self.llm.astream_complete(prompt, formatted=formatted, **kwargs)

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        # LlamaIndex asks the signature for `tool_required`; of the class inside it asks the same here
        return self.llm._prepare_chat_with_tools_compat(
            tools,
            user_msg=user_msg,
            chat_history=None if chat_history is None else list(chat_history),
            verbose=verbose,
            allow_parallel_tool_calls=allow_parallel_tool_calls,
            tool_required=tool_required,
            **kwargs,
        )

    def _validate_chat_with_tools_response(
        self, response: ChatResponse, tools: Sequence[BaseTool], allow_parallel_tool_calls: bool = False, **kwargs: Any
    ) -> ChatResponse:
        return self.llm._validate_chat_with_tools_response(
            response, tools, allow_parallel_tool_calls=allow_parallel_tool_calls, **kwargs
        )

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """Hand it on."""
        return self.llm.get_tool_calls_from_response(response, error_on_no_tool_call=error_on_no_tool_call, **kwargs)

    def structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """Hand it on: the class inside may have a better way than the tools that this one would use."""
        return self.llm.structured_predict(*args, **kwargs)

    def stream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """Hand it on."""
        return self.llm.stream_structured_predict(*args, **kwargs)

    async def astructured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """Hand it on."""
        return await self.llm.astructured_predict(*args, **kwargs)

    async def astream_structured_predict(self, *args: Any, **kwargs: Any) -> Any:
        """Hand it on."""
        return await self.llm.astream_structured_predict(*args, **kwargs)
