"""A rendered OpenAI prompt: its tokens, and the places in it where a cache entry may end.

The order is tools, output format, leading developer messages, conversation (prompt-caching guide, page state
2026-09-23). Token counts are estimates. Hidden system tokens are left out, as the guide's figures leave them
out.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headstay.emulator.shape import compact
from headstay.emulator.tokens import IMAGE_TOKENS, pieces

HEADER_TOKENS = 3
"""Tokens in front of each message: its start, its role, and the start of its text."""


@dataclass(frozen=True)
class Marker:
    """An explicit breakpoint.

    Attributes:
        end: Tokens in front of it.
        ttl: "30m" or "12h", or None for the request's.
    """

    end: int
    ttl: str | None = None


@dataclass(frozen=True)
class Prompt:
    """The tokens of a request in the order the model sees them.

    Attributes:
        tokens: All tokens.
        markers: Explicit breakpoints, in order.
        endings: Where eligible messages end, in order: the last leading developer message, each user message,
            the last tool result of each run.
        developer_end: Where the leading developer block ends; 0 without one.
    """

    tokens: tuple[str, ...]
    markers: tuple[Marker, ...] = ()
    endings: tuple[int, ...] = ()
    developer_end: int = 0

    def digests(self, seed: bytes, ends: Iterable[int]) -> dict[int, bytes]:
        """Return the hash of the first n tokens, chained from a seed, for each n asked for."""
        chain = hashlib.blake2b(seed, digest_size=16)
        done = 0
        found: dict[int, bytes] = {}
        for end in sorted(set(ends)):
            chain.update("".join(f"{token}\x00" for token in self.tokens[done:end]).encode(errors="replace"))
            found[end] = chain.digest()
            done = end
        return found


class PromptBuilder:
    """Collects the pieces of a prompt in order."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._markers: list[Marker] = []
        self._endings: list[int] = []
        self._developer_end = 0
        self._leading = True
        self._in_results = False

    def tool(self, definition: Mapping[str, Any]) -> None:
        """Add a tool definition; tools come before every message."""
        self._tokens += ["<|tool|>", *pieces(compact(definition))]

    def output_format(self, definition: Mapping[str, Any]) -> None:
        """Add the schema of a structured output."""
        self._tokens += ["<|format|>", *pieces(compact(definition))]

    def start(self, role: str) -> None:
        """Open a message; its text and media follow.

        Args:
            role: "developer", "user", "assistant", "tool", or the type of another item.
        """
        self._leading = self._leading and role == "developer"
        self._in_results = self._in_results and role == "tool"
        self._tokens += ["<|start|>", role, "<|message|>"]

    def text(self, text: str) -> None:
        """Add text to the open message."""
        self._tokens += pieces(text)

    def media(self, part: Mapping[str, Any]) -> None:
        """Add an image, a file or audio to the open message; each counts `IMAGE_TOKENS`."""
        bare = {name: value for name, value in part.items() if name != "prompt_cache_breakpoint"}
        digest = hashlib.blake2b(compact(bare).encode(errors="replace"), digest_size=8).hexdigest()
        self._tokens += [f"<|media {digest}|>"] * IMAGE_TOKENS

    def mark(self, ttl: str | None) -> None:
        """Put an explicit breakpoint behind what was added last."""
        self._markers.append(Marker(len(self._tokens), ttl))

    def finish(self, role: str) -> None:
        """Close the open message and note its end if a cache entry may end there."""
        end = len(self._tokens)
        if role == "tool":
            self._end_result(end)
        elif role == "developer" and self._leading:
            if self._developer_end:
                self._endings.pop()
            self._developer_end = end
            self._endings.append(end)
        elif role == "user":
            self._endings.append(end)

    def _end_result(self, end: int) -> None:
        if self._in_results:
            self._endings.pop()
        self._in_results = True
        self._endings.append(end)

    def build(self) -> Prompt:
        """Return the finished prompt."""
        return Prompt(tuple(self._tokens), tuple(self._markers), tuple(self._endings), self._developer_end)
