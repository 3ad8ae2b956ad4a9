"""Echo of the token that a gateway issues in a response, so that a session stays on the replica that holds its head.

A request that names a session, and for which the gateway has issued a token, carries that token. Nothing else changes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from inspect import iscoroutinefunction
from threading import Lock
from typing import Any, Protocol
from urllib.parse import urlsplit
from weakref import finalize

from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from headstay.errors import ConfigError
from headstay.providers.vllm import check_header

LONGEST = 4096  # characters of a token or a session id; servers refuse longer headers, and the memory stays bounded
NOTED = "headstay_echo"  # under this name a request keeps the token that it was given here

Key = tuple[str, str]  # gateway, session id


class Request(Protocol):
    """A request as httpx and httpx2 have it."""

    @property
    def url(self) -> object:
        """Where it goes."""
        ...

    @property
    def headers(self) -> MutableMapping[str, str]:
        """What it carries."""
        ...

    @property
    def extensions(self) -> MutableMapping[str, Any]:
        """What is noted on it, and on what follows a redirect."""
        ...


class Response(Protocol):
    """A response, of which the headers have come and the body has not."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """What it carries."""
        ...

    @property
    def request(self) -> Request:
        """What it answers."""
        ...


class Echo:
    """What gateways have issued to which session: at most so many tokens, the least recently used goes first.

    A token is sent to the gateway that issued it, with the session that it was issued to, and nowhere else. Answers
    with an error teach nothing. A token that the application sends itself is left alone. No call fails because of it.
    It may be shared by threads, event loops and clients.

        echo = Echo()
        client, async_client = echo.clients()
        model = ChatOpenAI(..., http_client=client, http_async_client=async_client)

    llm-d issues such tokens where its plugin `session-affinity-scorer` or `session-affinity-filter` has the strategy
    `encoded_endpoint_header`, the default (llm-d-router, source of 2026-08-22).

    Args:
        session_header: The request header that names the session.
        token_header: The header of the token, in responses and in requests.
        most: How many tokens are kept.

    Raises:
        ConfigError: A header has no name, both are the same, or nothing could be kept.
    """

    def __init__(
        self,
        *,
        session_header: str = "X-Session-ID",
        token_header: str = "x-session-token",  # noqa: S107 - the name of a header, and no secret
        most: int = 10_000,
    ) -> None:
        for name, header in (("session_header", session_header), ("token_header", token_header)):
            check_header(name, header)
        if session_header.lower() == token_header.lower():
            raise ConfigError(f"session_header and token_header are both {token_header}; give two headers")
        if most < 1:
            raise ConfigError(f"most={most}: at least one token must be kept")
        self.session_header = session_header
        self.token_header = token_header
        self.most = most
        self._tokens: OrderedDict[Key, str] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        """How many tokens are kept."""
        with self._lock:
            return len(self._tokens)

    def clients(self, *, trust_env: bool = True) -> tuple[DefaultHttpxClient, DefaultAsyncHttpxClient]:
        """Return two new clients with the OpenAI SDK's own defaults, for `http_client` and `http_async_client`.

        Their connections are closed when nothing refers to them any more.

        Args:
            trust_env: Whether they heed the proxies of the environment.
        """
        client, async_client = DefaultHttpxClient(trust_env=trust_env), DefaultAsyncHttpxClient(trust_env=trust_env)
        self.attach(client)
        self.attach(async_client)
        # `ChatOpenAI` has no end at which it would close them; a `__del__` runs after that of the sockets in a cycle
        finalize(client, _close, _transports(client))
        finalize(async_client, _aclose, _transports(async_client))
        return client, async_client

    def attach(self, client: Any) -> None:
        """Let a client of the application's own echo tokens too.

        Args:
            client: A `Client` or `AsyncClient` of httpx or httpx2. Its own hooks stay, and come first. One that echoes
                these headers already is left as it is.
        """
        if any(self._is_alike(getattr(hook, "__self__", None)) for hook in client.event_hooks.get("request", ())):
            return
        hooks = (self._asends, self._ahas_come) if iscoroutinefunction(client.send) else (self._sends, self._has_come)
        own = client.event_hooks
        client.event_hooks = {
            "request": [*own.get("request", ()), hooks[0]],
            "response": [*own.get("response", ()), hooks[1]],
        }

    def _is_alike(self, other: object) -> bool:
        ours = (self.session_header.lower(), self.token_header.lower())
        return isinstance(other, Echo) and (other.session_header.lower(), other.token_header.lower()) == ours

    def _sends(self, request: Request) -> None:
        with suppress(Exception):
            before = request.extensions.pop(NOTED, None)
            if before is not None and request.headers.get(self.token_header) == before:
                del request.headers[self.token_header]  # a redirect took it along, maybe to another gateway
            key = self._key(request)
            if key is None or self.token_header in request.headers:
                return
            with self._lock:
                token = self._tokens.get(key)
                if token is not None:
                    self._tokens.move_to_end(key)
            if token is not None:
                request.headers[self.token_header] = token
                request.extensions[NOTED] = token

    def _has_come(self, response: Response) -> None:
        with suppress(Exception):
            token = response.headers.get(self.token_header, "")
            key = self._key(response.request)
            if response.status_code >= 400 or key is None or not _is_sendable(token):
                return
            with self._lock:
                self._tokens[key] = token
                self._tokens.move_to_end(key)
                while len(self._tokens) > self.most:
                    self._tokens.popitem(last=False)

    async def _asends(self, request: Request) -> None:
        self._sends(request)

    async def _ahas_come(self, response: Response) -> None:
        self._has_come(response)

    def _key(self, request: Request) -> Key | None:
        session = request.headers.get(self.session_header, "")
        if not session or len(session) > LONGEST:
            return None
        where = urlsplit(str(request.url))
        return f"{where.scheme}://{where.netloc}", session


def _is_sendable(token: str) -> bool:
    """Tell whether a header can hold it."""
    return 0 < len(token) <= LONGEST and token.isascii() and token.isprintable()


def _close(transports: Sequence[Any]) -> None:
    """Close the connections of a client that is gone."""
    for transport in transports:
        with suppress(Exception):
            transport.close()


def _aclose(transports: Sequence[Any]) -> None:
    """Close the connections of a client that is gone, if an event loop still runs to do it."""
    for transport in transports:
        with suppress(Exception):
            asyncio.get_running_loop().create_task(_quietly(transport.aclose()))


async def _quietly(closing: Awaitable[None]) -> None:
    with suppress(Exception):  # connections of another event loop cannot be closed in this one
        await closing


def _transports(client: DefaultHttpxClient | DefaultAsyncHttpxClient) -> list[Any]:
    """Return what holds a client's connections: the client itself must not be kept alive by it."""
    return [held for held in (client._transport, *client._mounts.values()) if held is not None]
