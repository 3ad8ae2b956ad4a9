"""Prefill a head before the first user asks, and prove by the server's own count that it is there."""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from headstay.errors import ConfigError, LocalError
from headstay.local.client import Server
from headstay.local.home import Home

KEPT = 16  # heads that are warmed again after a restart
PLACEHOLDERS = ("Hello.", "Good day to you.")  # they differ from their first token on
# What decides the bytes of the head, or who may read it. The rest of a request does not change the prompt.
_SHAPING = (
    *("model", "tools", "tool_choice", "chat_template", "chat_template_kwargs", "cache_salt", "reasoning_effort"),
    *("documents", "add_special_tokens"),
)
_OPERATOR = ("system", "developer")


@dataclass(frozen=True, slots=True)
class Warmth:
    """What warming did.

    Attributes:
        head_tokens: Tokens that every request with this head begins with, or None if the server does not tell.
        block: Tokens of a block, or None if the server does not tell.
        expected: Tokens that can be read, as only whole blocks are; None where the two above are.
        before: Tokens that were read when it was sent first: what was warm already.
        cached: Tokens that were read when it was sent again.
        seconds: How long the first took.
    """

    head_tokens: int | None
    block: int | None
    expected: int | None
    before: int
    cached: int
    seconds: float

    @property
    def is_warm(self) -> bool:
        """Whether the whole head was read the second time; without an expectation, whether anything was."""
        return self.cached >= self.expected if self.expected is not None else self.cached > 0


def head_of(body: Mapping[str, Any], salt: str | None = None) -> dict[str, Any]:
    """Return the head of a chat request: what shapes it, and the operator's messages that it begins with.

    Args:
        body: The request's body, as OpenAI's Chat Completions has it.
        salt: The tenant's cache salt, in place of the body's.

    Raises:
        ConfigError: It is no chat request, or has neither operator's messages nor tools.
    """
    messages: Any = body.get("messages")
    if not isinstance(messages, list):
        raise ConfigError("the request has no list of messages: give a body of Chat Completions")
    head: list[Any] = []
    for message in cast("list[object]", messages):
        if not isinstance(message, dict) or cast("dict[str, Any]", message).get("role") not in _OPERATOR:
            break
        head.append(message)
    if not head and not body.get("tools"):
        raise ConfigError("the request begins with no system message and has no tools: there is no head to warm")
    kept = {name: body[name] for name in _SHAPING if body.get(name) is not None}
    return {**kept, **({"cache_salt": salt} if salt else {}), "messages": head}


def warm(
    server: Server, head: Mapping[str, Any], *, timeout: float = 600.0, headers: Mapping[str, str] | None = None
) -> Warmth:
    """Send a head twice, each time with one placeholder turn and one token asked for.

    Args:
        server: The server.
        head: What `head_of` returned.
        timeout: Seconds to wait for each answer.
        headers: Headers that a router goes by, so that the server is warmed that will be asked.

    Raises:
        LocalError: The server cannot be reached, refuses the request, or does not say what it read.
    """
    first, second = (_with_turn(head, text) for text in PLACEHOLDERS)
    started = time.monotonic()
    before = cached_tokens(server.complete(first, timeout, headers))
    seconds = time.monotonic() - started
    cached = cached_tokens(server.complete(second, timeout, headers))
    if before is None or cached is None:
        raise LocalError(
            f"{server.base_url}: its usage does not say what was read from the cache; start vLLM with "
            "--enable-prompt-tokens-details"
        )
    tokens = [server.tokens(body) for body in (first, second)]
    figures = server.figures()
    length = None if tokens[0] is None or tokens[1] is None else shared(tokens[0], tokens[1])
    block = None if figures is None else figures.block
    expected = None if length is None or block is None else length // block * block
    return Warmth(length, block, expected, before, cached, seconds)


def cached_tokens(response: Mapping[str, Any]) -> int | None:
    """Return the prompt tokens that a response says were read from the cache."""
    usage = response.get("usage")
    details = cast("dict[str, Any]", usage).get("prompt_tokens_details") if isinstance(usage, dict) else None
    value = cast("dict[str, Any]", details).get("cached_tokens") if isinstance(details, dict) else None
    return value if isinstance(value, int) else None


def shared(one: list[int], other: list[int]) -> int:
    """Return how many tokens two prompts begin with in common."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def remember(home: Home, head: Mapping[str, Any]) -> None:
    """Keep a head, so that the supervisor warms it again when the server has lost it.

    Raises:
        LocalError: It cannot be written.
    """
    text = json.dumps(head)
    path = home.run / "heads" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
        for old in _kept(home)[KEPT:]:
            old.unlink(missing_ok=True)
    except OSError as problem:
        raise LocalError(f"{path}: cannot be written: {problem.strerror or problem}") from problem


def forget_all(home: Home) -> None:
    """Forget every kept head: a new server starts without those of the one before."""
    for path in _kept(home):
        path.unlink(missing_ok=True)


def remembered(home: Home) -> list[dict[str, Any]]:
    """Return the kept heads, the newest first; what cannot be read is left out."""
    heads: list[dict[str, Any]] = []
    for path in _kept(home):
        try:
            heads.append(cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError):
            continue
    return heads


def _kept(home: Home) -> list[Path]:
    def age(path: Path) -> float:
        try:
            return -path.stat().st_mtime
        except OSError:
            return 0.0

    return sorted((home.run / "heads").glob("*.json"), key=age)


def _with_turn(head: Mapping[str, Any], text: str) -> dict[str, Any]:
    turn = {"role": "user", "content": text}
    return {**head, "messages": [*head["messages"], turn], "max_tokens": 1, "temperature": 0}
