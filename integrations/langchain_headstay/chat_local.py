"""`ChatLocal`: LangChain's chat model for a vLLM server, headstay's own or another."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import BaseMessage
from langchain_core.tools import BaseTool
from langchain_core.utils import secret_from_env
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from openai import DefaultAsyncHttpxClient, DefaultHttpxClient
from pydantic import Field, SecretStr, SkipValidation

from headstay.errors import ConfigError
from headstay.local import state as states
from headstay.local.client import Server, server_at
from headstay.local.home import find_home
from headstay.providers.vllm import SALT_KEY, Engine, Session
from langchain_headstay.echo import Echo

URL = "HEADSTAY_LOCAL_URL"
KEY = "HEADSTAY_LOCAL_API_KEY"
_CLIENTS = ("http_client", "http_async_client")
_NO_KEY = "none"  # the SDK wants one, vLLM without --api-key takes any


class ChatLocal(ChatOpenAI):
    """A chat model on a vLLM server; a `ChatOpenAI` with the defaults that such a server needs.

    Without a URL it calls the server that `headstay local serve` runs for this user. Like any chat model it keeps its
    head under `CacheAwareChatModel`, `cache_aware` or the agent middleware, which then know vLLM's cache: whole
    blocks, no markers, no expiry, a salt per tenant.

    Args:
        model: What the server calls the model; by default that of the user's own server.
        base_url: URL of a server or a gateway; by default `HEADSTAY_LOCAL_URL`, else the user's own server.
        api_key: Key of the server; by default `HEADSTAY_LOCAL_API_KEY`. Keys of OpenAI's are never sent.
        block_size: Tokens of a block of its cache; by default as the user's own server says, else 16.
        in_place_system: Whether its chat template takes a system message behind others; by default as the user's own
            server says, else no.
        context_length: Most tokens of a request and its answer; by default as the user's own server says.
        session_header: Name of the header that tells a router which server to take, or None to send none.
        session: What that header names: the "conversation", or the "head" that many conversations share.
        token_header: Name of a header that a gateway answers with and wants back in the next requests of a session,
            such as llm-d's "x-session-token"; None if there is none.
        salt_key: Secret of at least 16 characters that tenants' salts are made with; by default `HEADSTAY_SALT_KEY`.

    Raises:
        ConfigError: There is no server, or a setting cannot work; the message says what to do.

    Examples:
        >>> model = ChatLocal(temperature=0)  # doctest: +SKIP
    """

    block_size: int = 16
    in_place_system: bool = False
    context_length: int | None = None
    session_header: str | None = "X-Session-ID"
    session: SkipValidation[Session] = "conversation"
    token_header: str | None = None
    salt_key: SecretStr | None = Field(default_factory=secret_from_env(SALT_KEY, default=None), exclude=True)

    def __init__(self, **settings: Any) -> None:
        """Find the server, and leave nothing to the settings of OpenAI's own API."""
        given = dict(settings)
        if not _has(given, "base_url", "openai_api_base"):
            given.pop("openai_api_base", None)
            given["base_url"] = os.environ.get(URL)
        _take_running(given)
        if not _has(given, "model", "model_name"):
            raise ConfigError("ChatLocal: say model=, the name that the server at base_url= has for it")
        if not _has(given, "api_key", "openai_api_key"):
            given["api_key"] = os.environ.get(KEY) or _NO_KEY
        given.setdefault("stream_usage", True)
        given.setdefault("use_responses_api", False)
        given.setdefault("openai_proxy", None)
        if given.get("token_header") is not None:
            _echo(given)
        elif _is_proxied(given):
            own = _direct_clients()
            for name, client in zip(_CLIENTS, own, strict=True):
                given[name] = given.get(name) or client
        super().__init__(**given)
        Engine(self.block_size, self.in_place_system, self.session_header, self.session, self._salt_key)
        if not _has(given, "organization", "openai_organization"):  # the SDK takes them from the environment
            self.openai_organization = None
            for root in (self.root_client, self.root_async_client):
                root.organization = root.project = None

    @property
    def headstay_engine(self) -> Engine:
        """What headstay knows of the server."""
        names = {name.lower() for name in self.default_headers or ()}
        header = self.session_header
        if header is not None and header.lower() in names:  # the application's own stays
            header = None
        return Engine(self.block_size, self.in_place_system, header, self.session, self._salt_key)

    @property
    def _salt_key(self) -> bytes:
        return b"" if self.salt_key is None else self.salt_key.get_secret_value().encode()

    @property
    def _llm_type(self) -> str:
        return "headstay-local"

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Name the environment variables of the secrets."""
        return {"openai_api_key": KEY, "salt_key": SALT_KEY}

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        """Name the home of the class for traces."""
        return ["langchain_headstay", "chat_local"]

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Say no: LangChain loads classes of its own list only."""
        return False

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Name the server, too: of two that call a model alike, a cache must not give one's answers to the other."""
        return {**super()._get_invocation_params(stop=stop, **kwargs), "base_url": self.headstay_server.base_url}

    def _resolve_model_profile(self) -> ModelProfile | None:
        return None if self.context_length is None else ModelProfile(max_input_tokens=self.context_length)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_provider": "vllm"}

    def get_token_ids(self, text: str) -> list[int]:
        """Tokenise a text as the server does, which is asked for it.

        Raises:
            LocalError: The server does not tell.
        """
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return self.headstay_server.tokenize({"model": self.model_name, "prompt": text, "add_special_tokens": False})

    def get_num_tokens_from_messages(
        self,
        messages: Sequence[BaseMessage],
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool] | None = None,
        **_kwargs: Any,
    ) -> int:
        """Count the tokens of a prompt as the server does, with its chat template.

        Raises:
            LocalError: The server does not tell.
        """
        build = cast("Any", ChatOpenAI)._get_request_payload  # not the one that headstay plans in
        chat = self.model_copy(update={"use_responses_api": False}) if self.use_responses_api else self
        payload: dict[str, Any] = build(chat, list(messages))
        extra: dict[str, Any] = payload.get("extra_body") or {}
        body = {"model": self.model_name, "messages": payload["messages"], **extra}
        if tools:
            body["tools"] = [convert_to_openai_tool(tool) for tool in tools]
        return len(self.headstay_server.tokenize(body))

    @property
    def headstay_server(self) -> Server:
        """The server, for what is no chat: tokens, warming, figures."""
        key = cast("SecretStr | None", self.openai_api_key)
        return server_at(self.openai_api_base or "", key.get_secret_value() if isinstance(key, SecretStr) else None)


def _has(given: Mapping[str, Any], *names: str) -> bool:
    return any(given.get(name) for name in names)


def _take_running(given: dict[str, Any]) -> None:
    """Fill in what the user's own server says of itself, where that one is meant.

    Raises:
        ConfigError: No server is named, and none of the user's own is ready.
    """
    state = states.read(find_home())
    running = state is not None and state.is_alive
    if named := given.get("base_url") or given.get("openai_api_base"):
        if state is None or not running or str(named).rstrip("/") != state.base_url:
            return
    elif state is None or not running:
        raise ConfigError(
            "ChatLocal: no server runs; start one with `headstay local serve`, or give base_url= and model= of another"
        )
    elif state.phase not in ("ready", "restarting"):
        raise ConfigError(
            f"ChatLocal: the server is {state.phase}; wait until `headstay local status` says that it is ready"
        )
    else:
        given["base_url"] = state.base_url
    if not _has(given, "model", "model_name"):
        given.pop("model_name", None)
        given["model"] = state.model
    told = {"block_size": state.block, "in_place_system": state.in_place_system, "context_length": state.context}
    for name, value in told.items():
        if value is not None:
            given.setdefault(name, value)


def _is_proxied(given: Mapping[str, Any]) -> bool:
    """Whether a proxy of the environment's would get what is meant for this machine."""
    host = urlsplit(str(given.get("base_url") or given.get("openai_api_base"))).hostname or ""
    own = host == "localhost" or host.startswith("127.") or host == "::1"
    return own and bool(getproxies()) and not proxy_bypass(host)


@cache
def _direct_clients() -> tuple[DefaultHttpxClient, DefaultAsyncHttpxClient]:
    return DefaultHttpxClient(trust_env=False), DefaultAsyncHttpxClient(trust_env=False)


def _echo(given: dict[str, Any]) -> None:
    """Give the model clients that send a gateway's token back.

    Raises:
        ConfigError: No header names the session that the token belongs to, or a header has no name.
    """
    session = given.get("session_header", "X-Session-ID")
    if session is None:
        raise ConfigError("ChatLocal: token_header= needs a session_header=: the token belongs to a session")
    echo = Echo(session_header=session, token_header=given["token_header"])
    for name, client in zip(_CLIENTS, echo.clients(trust_env=not _is_proxied(given)), strict=True):
        if given.get(name) is None:
            given[name] = client
        else:
            echo.attach(given[name])
