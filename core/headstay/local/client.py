"""What is asked of a running server, ours or another: is it well, what does it serve, what did it read."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, cast
from urllib.parse import urlsplit

from headstay.errors import ConfigError, LocalError

_SAMPLE = re.compile(r"^(vllm:\w+)(?:\{(.*)\})? ([0-9.eE+-]+)$")
_NO_ANSWER = (OSError, HTTPException)
_BLOCK = re.compile(r'block_size="(\d+)"')


@dataclass(frozen=True, slots=True)
class Figures:
    """What the server counted since it started.

    Attributes:
        queried_tokens: Prompt tokens that were looked up in the prefix cache.
        read_tokens: Those of them that were read from it.
        kv_used: Share of the cache's room in use, 0 to 1.
        block: Tokens of a block, or None if it does not say.
    """

    queried_tokens: int
    read_tokens: int
    kv_used: float
    block: int | None


@dataclass(frozen=True, slots=True)
class Traits:
    """What a server takes, and how it caches; None where it does not say.

    Attributes:
        block: Tokens of a block of its cache.
        context: Most tokens of a request and its answer.
        in_place_system: Whether the chat template takes a system message behind other messages.
    """

    block: int | None = None
    context: int | None = None
    in_place_system: bool | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """A server that speaks the OpenAI API.

    Attributes:
        origin: Scheme, host and port, and a path before `/v1` if there is one.
        api_key: Sent as a bearer token, if given.
    """

    origin: str
    api_key: str | None = None

    @property
    def base_url(self) -> str:
        """The URL to give to an OpenAI client."""
        return f"{self.origin}/v1"

    def is_healthy(self, timeout: float = 2.0) -> bool:
        """Tell whether it says that it can serve."""
        try:
            return self._ask("GET", "/health", None, timeout)[0] == 200
        except (*_NO_ANSWER, ValueError):
            return False

    def models(self) -> list[str]:
        """Return the names that requests may use.

        Raises:
            LocalError: It cannot be reached, or does not answer as an OpenAI server does.
        """
        return [name for name, _ in self._served()]

    def _served(self) -> list[tuple[str, int | None]]:
        """Return the names of the models and the most tokens of a request to each."""
        told = self._json("GET", "/v1/models", None, 10.0)
        try:
            found = [(str(model["id"]), model.get("max_model_len")) for model in told["data"]]
        except (KeyError, TypeError, AttributeError) as problem:
            raise LocalError(f"{self.base_url}/models: this is no list of models as OpenAI's API has it") from problem
        return [(name, length if isinstance(length, int) else None) for name, length in found]

    def traits(self, model: str) -> Traits:
        """Find out what a served model takes. Nothing is generated, and what is not told is left open.

        Args:
            model: The name that requests use.
        """
        figures = self.figures()
        return Traits(None if figures is None else figures.block, self._context(model), self._takes_system(model))

    def _context(self, model: str) -> int | None:
        with suppress(LocalError):
            return next((length for name, length in self._served() if name == model), None)
        return None

    def _takes_system(self, model: str) -> bool | None:
        """Render a conversation that ends with a system message: some templates refuse it, or leave it out."""
        said = [{"role": "system", "content": "One."}, {"role": "user", "content": "Two."}]
        plain = self.tokens({"model": model, "messages": said})
        if plain is None:
            return None
        longer = self.tokens({"model": model, "messages": [*said, {"role": "system", "content": "Three."}]})
        # what stands behind must come behind: a template may move it into the first system message
        ends = self.tokens({"model": model, "messages": said, "add_generation_prompt": False}) or plain
        return longer is not None and len(longer) > len(plain) and longer[: len(ends)] == ends

    def figures(self) -> Figures | None:
        """Return what it counted, or None if it has no counters of vLLM's."""
        try:
            status, text = self._ask("GET", "/metrics", None, 10.0)
        except (*_NO_ANSWER, ValueError):
            return None
        return parse_figures(text) if status == 200 else None

    def tokens(self, body: Mapping[str, Any]) -> list[int] | None:
        """Return the tokens of a chat request's prompt, or None if the server does not tell."""
        try:
            return self.tokenize(body)
        except LocalError:
            return None

    def tokenize(self, body: Mapping[str, Any]) -> list[int]:
        """Return the tokens of a chat request's prompt, or of a text.

        Args:
            body: A body of Chat Completions, or `model`, `prompt` and `add_special_tokens`.

        Raises:
            LocalError: The server cannot be reached, or does not tell.
        """
        asked = {name: value for name, value in body.items() if name in _TOKENIZED}
        found: object = self._json("POST", "/tokenize", asked, 60.0).get("tokens")
        if isinstance(found, list) and all(isinstance(token, int) for token in cast("list[object]", found)):
            return cast("list[int]", found)
        raise LocalError(f"{self.origin}/tokenize: the server does not say how it tokenises")

    def complete(
        self, body: Mapping[str, Any], timeout: float, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Send a chat request and return the response's body.

        Args:
            body: The request's body.
            timeout: Seconds to wait for the answer.
            headers: Headers beside the usual ones.

        Raises:
            LocalError: It cannot be reached, or refuses the request; the message holds its words.
        """
        return self._json("POST", "/v1/chat/completions", body, timeout, headers)

    def _json(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout: float,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        try:
            status, text = self._ask(method, path, body, timeout, headers)
        except _NO_ANSWER as problem:
            raise LocalError(f"{self.origin}: no answer: {problem}. Is the server running?") from problem
        except ValueError as problem:  # of the key, say; its words would show it
            raise LocalError(
                f"{self.origin}: cannot be asked: the URL, the key or a header has a character that none may have"
            ) from problem
        if status != 200:
            raise LocalError(f"{self.origin}{path}: HTTP {status}: {_words(text)}")
        try:
            told: object = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise LocalError(f"{self.origin}{path}: the answer is no JSON") from problem
        if not isinstance(told, dict):
            raise LocalError(f"{self.origin}{path}: the answer is no JSON object")
        return cast("dict[str, Any]", told)

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout: float,
        more: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        parts = urlsplit(self.origin)
        maker = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = maker(parts.hostname or "", parts.port, timeout=timeout)
        headers = {**(more or {}), "Content-Type": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        try:
            sent = None if body is None else json.dumps(body)
            connection.request(method, f"{parts.path}{path}", body=sent, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode("utf-8", errors="replace")
        finally:
            connection.close()


_TOKENIZED = frozenset(
    {
        "model",
        "messages",
        "prompt",
        "tools",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "add_special_tokens",
    }
)


def server_at(url: str, api_key: str | None = None) -> Server:
    """Return the server at a URL, with or without `/v1` at its end.

    Raises:
        ConfigError: It is no URL of a server.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        (parts.hostname or "").encode("idna")
    except ValueError:  # a port that is none, a host name that is none
        usable, parts = False, urlsplit("")
    if not usable:
        raise ConfigError(f"--base-url {url}: give a URL like http://127.0.0.1:8000/v1")
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return Server(bare.rstrip("/").removesuffix("/v1"), (api_key or "").strip() or None)


def parse_figures(text: str) -> Figures | None:
    """Read vLLM's counters from the text of `/metrics`; several engines are added up."""
    sums: dict[str, float] = {}
    block: int | None = None
    shares: list[float] = []
    for line in text.splitlines():
        if found := _SAMPLE.match(line):
            name, labels, value = found[1], found[2] or "", _number(found[3])
            sums[name] = sums.get(name, 0.0) + value
            if name == "vllm:kv_cache_usage_perc":
                shares.append(value)
            if name == "vllm:cache_config_info" and (size := _BLOCK.search(labels)):
                block = int(size[1])
    if "vllm:prefix_cache_queries_total" not in sums:
        return None
    return Figures(
        queried_tokens=int(sums["vllm:prefix_cache_queries_total"]),
        read_tokens=int(sums.get("vllm:prefix_cache_hits_total", 0)),
        kv_used=max(shares, default=0.0),
        block=block,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _words(text: str) -> str:
    """Return what the server said is wrong, in a line."""
    try:
        told: Any = json.loads(text)
        words = str(told.get("error", told)["message"])
    except (ValueError, KeyError, AttributeError, TypeError):
        words = text
    return " ".join(words.split())[:300] or "no reason given"
