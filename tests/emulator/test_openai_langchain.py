"""LangChain's own integration suite, run by the plain `ChatOpenAI` against the emulator."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

from headstay.emulator import Emulator, serve

# Both are the host's own: a parsed completion is dumped with its parsed model, and a Pydantic 1 schema is refused.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
    pytest.mark.filterwarnings("ignore:Received a Pydantic BaseModel V1 schema:UserWarning"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Emulator]:
    with serve() as running:
        yield running


class _Suite(ChatModelIntegrationTests):
    settings: ClassVar[dict[str, Any]]

    @pytest.fixture(autouse=True)
    def _use(self, server: Emulator) -> None:
        self._server = server

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"base_url": self._server.openai_url, "api_key": "k", "max_retries": 0, **self.settings}

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "gpt-5.4-mini"


class TestChat(_Suite):
    settings: ClassVar[dict[str, Any]] = {"model": "gpt-5.4", "stream_usage": True}


class TestResponses(_Suite):
    settings: ClassVar[dict[str, Any]] = {"model": "gpt-5.4", "use_responses_api": True}
