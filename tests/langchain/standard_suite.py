"""LangChain's standard suites for the bare classes, for their cache-aware copies, and for the wrapper.

Not collected with the other tests: `test_standard_suites.py` runs it in a process of its own and compares.
"""

from functools import cache
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from headstay.emulator import Emulator, VLLMSettings
from langchain_headstay import CacheAwareChatModel, ChatLocal, cache_aware

pytestmark = [
    # The suite itself uses `load`, which LangChain calls a beta.
    pytest.mark.filterwarnings("ignore:The function `load` is in beta"),
    # ChatOpenAI's own: it serialises a parsed reply that its types do not announce, and mends a pydantic v1 schema.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
    pytest.mark.filterwarnings("ignore:Received a Pydantic BaseModel V1 schema"),
    # ChatAnthropic's own answer to the suite's json_mode.
    pytest.mark.filterwarnings("ignore:Unrecognized structured output method 'json_mode'"),
]


@cache
def emulator() -> Emulator:
    return Emulator().start()


@cache
def vllm() -> Emulator:
    return Emulator(vllm=VLLMSettings()).start()


class CopiedChatAnthropic(ChatAnthropic):
    def __new__(cls, **settings: Any) -> Any:
        return cache_aware(ChatAnthropic(**settings), on_break="record")


class CopiedChatOpenAI(ChatOpenAI):
    def __new__(cls, **settings: Any) -> Any:
        return cache_aware(ChatOpenAI(**settings), on_break="record")


class CopiedChatLocal(ChatLocal):
    def __new__(cls, **settings: Any) -> Any:
        return cache_aware(ChatLocal(**settings), on_break="record")


class WrappedChatAnthropic(CacheAwareChatModel):
    def __new__(cls, **settings: Any) -> Any:
        return CacheAwareChatModel(ChatAnthropic(**settings), on_break="record")


class WrappedChatOpenAI(CacheAwareChatModel):
    def __new__(cls, **settings: Any) -> Any:
        return CacheAwareChatModel(ChatOpenAI(**settings), on_break="record")


class WrappedChatLocal(CacheAwareChatModel):
    def __new__(cls, **settings: Any) -> Any:
        return CacheAwareChatModel(ChatLocal(**settings), on_break="record")


class _Serialised:
    """Stands for the suite's snapshot: every form is serialised as the bare class is."""

    def __init__(self, bare: BaseChatModel) -> None:
        self.bare = {**dumpd(bare), "name": ""}

    def __call__(self, **_: Any) -> "_Serialised":
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and {**other, "name": ""} == self.bare


class _Anthropic:
    bare: type[BaseChatModel] = ChatAnthropic
    model_override_value = "claude-opus-5-5"
    supports_anthropic_inputs = True
    init_from_env_params = (
        {"ANTHROPIC_API_KEY": "api_key", "ANTHROPIC_API_URL": "https://base.url"},
        {"model": "claude-sonnet-4-6"},
        {"anthropic_api_key": "api_key", "anthropic_api_url": "https://base.url"},
    )

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "claude-sonnet-4-6", "api_key": "key", "base_url": emulator().base_url}

    @pytest.fixture
    def snapshot(self) -> _Serialised:
        return _Serialised(self.bare(**{**self.standard_chat_model_params, **self.chat_model_params}))  # type: ignore[attr-defined] # the suite's own


class _OpenAI(_Anthropic):
    bare = ChatOpenAI
    model_override_value = "gpt-5.6-terra"
    supports_anthropic_inputs = False
    supports_json_mode = True
    init_from_env_params = (
        {"OPENAI_API_KEY": "api_key", "OPENAI_ORG_ID": "org_id", "OPENAI_API_BASE": "https://base.url"},
        {"model": "gpt-5.4"},
        {"openai_api_key": "api_key", "openai_organization": "org_id", "openai_api_base": "https://base.url"},
    )
    responses = False

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {
            "model": "gpt-5.4",
            "api_key": "key",
            "base_url": emulator().openai_url,
            "stream_usage": True,
            "use_responses_api": self.responses,
        }


class _Responses(_OpenAI):
    responses = True


class _Local(_OpenAI):
    bare = ChatLocal
    model_override_value = "another"
    init_from_env_params = (
        {"HEADSTAY_LOCAL_API_KEY": "api_key", "HEADSTAY_LOCAL_URL": "https://base.url"},
        {"model": "small"},
        {"openai_api_key": "api_key", "openai_api_base": "https://base.url"},
    )

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "small", "base_url": vllm().openai_url}


class _Unit(ChatModelUnitTests):
    @property
    def standard_chat_model_params(self) -> dict[str, Any]:
        return {key: value for key, value in super().standard_chat_model_params.items() if key != "api_key"}


class TestUnitAnthropicBare(_Anthropic, _Unit):
    chat_model_class = ChatAnthropic


class TestUnitAnthropicCopy(_Anthropic, _Unit):
    chat_model_class = CopiedChatAnthropic


class TestUnitAnthropicWrapper(_Anthropic, _Unit):
    chat_model_class = WrappedChatAnthropic


class TestUnitOpenAIBare(_OpenAI, _Unit):
    chat_model_class = ChatOpenAI


class TestUnitOpenAICopy(_OpenAI, _Unit):
    chat_model_class = CopiedChatOpenAI


class TestUnitOpenAIWrapper(_OpenAI, _Unit):
    chat_model_class = WrappedChatOpenAI


class TestUnitLocalBare(_Local, _Unit):
    chat_model_class = ChatLocal


class TestUnitLocalCopy(_Local, _Unit):
    chat_model_class = CopiedChatLocal


class TestUnitLocalWrapper(_Local, _Unit):
    chat_model_class = WrappedChatLocal


class TestAnthropicBare(_Anthropic, ChatModelIntegrationTests):
    chat_model_class = ChatAnthropic


class TestAnthropicCopy(_Anthropic, ChatModelIntegrationTests):
    chat_model_class = CopiedChatAnthropic


class TestAnthropicWrapper(_Anthropic, ChatModelIntegrationTests):
    chat_model_class = WrappedChatAnthropic


class TestOpenAIBare(_OpenAI, ChatModelIntegrationTests):
    chat_model_class = ChatOpenAI


class TestOpenAICopy(_OpenAI, ChatModelIntegrationTests):
    chat_model_class = CopiedChatOpenAI


class TestOpenAIWrapper(_OpenAI, ChatModelIntegrationTests):
    chat_model_class = WrappedChatOpenAI


class TestResponsesBare(_Responses, ChatModelIntegrationTests):
    chat_model_class = ChatOpenAI


class TestResponsesCopy(_Responses, ChatModelIntegrationTests):
    chat_model_class = CopiedChatOpenAI


class TestResponsesWrapper(_Responses, ChatModelIntegrationTests):
    chat_model_class = WrappedChatOpenAI


class TestLocalBare(_Local, ChatModelIntegrationTests):
    chat_model_class = ChatLocal


class TestLocalCopy(_Local, ChatModelIntegrationTests):
    chat_model_class = CopiedChatLocal


class TestLocalWrapper(_Local, ChatModelIntegrationTests):
    chat_model_class = WrappedChatLocal
