"""Sees how the calls inside a chain ended, for its answer is no better than they are."""

from dataclasses import replace
from threading import Lock
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import LLMResult

from headstay.semantic.answer import not_admitted
from headstay.semantic.reasons import Reason
from langchain_headstay.replay import answer_of


class Watch(BaseCallbackHandler):
    """Sees how the calls inside a chain ended.

    Attributes:
        refused: Why the chain's answer must not be kept, or None.
        input_tokens: What its models read.
        output_tokens: What its models wrote.
    """

    def __init__(self) -> None:
        self.refused: Reason | None = None
        self.input_tokens = self.output_tokens = 0
        self._lock = Lock()

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note an end that is no normal one; tools are called inside an agent, and that is one."""
        for generations in response.generations:
            try:
                answer = answer_of(generations)
            except (AttributeError, RecursionError, TypeError, ValueError):
                continue
            refused = not_admitted(replace(answer, text=answer.text or "called"), tool_calls=True)
            with self._lock:
                self.refused = self.refused or refused
                self.input_tokens += answer.input_tokens
                self.output_tokens += answer.output_tokens

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing; without this LangChain would write the messages out as one text."""

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note a failure, even if a fallback answered: an answer in need is not to be kept."""
        self._failed()

    def on_chain_error(self, error: BaseException, **kwargs: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note a failure, as `on_llm_error` does."""
        self._failed()

    def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note a failure, as `on_llm_error` does."""
        self._failed()

    def on_retriever_error(self, error: BaseException, **kwargs: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note a failure, as `on_llm_error` does."""
        self._failed()

    def _failed(self) -> None:
        with self._lock:
            self.refused = self.refused or Reason.NOT_ADMITTED_ERROR
