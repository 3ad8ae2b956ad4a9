"""What all wires of one running emulator share: clock, settings, failures to inject, and the record."""

import asyncio
import hashlib
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headstay.emulator.anthropic_switches import AnthropicSwitches
from headstay.emulator.reply import Reply, Responder, Wire
from headstay.emulator.responder import Ask, answer

if TYPE_CHECKING:
    from headstay.emulator.clock import Clock
    from headstay.emulator.exchange import Exchange
    from headstay.emulator.openai_switches import OpenAISwitches
    from headstay.emulator.vllm_settings import VLLMSettings


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An answer that fails on purpose.

    Attributes:
        status: The HTTP status, for a failure before the answer begins; also picks the kind when that is None.
        kind: The provider's error type, e.g. "overloaded_error"; None for the usual one of the status.
        after_events: None to fail at once; else the answer begins and, when streamed, breaks off with an error
            event after this many events.
        retry_after: Seconds for the `retry-after` header, or None.
    """

    status: int = 500
    kind: str | None = None
    after_events: int | None = None
    retry_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What is emulated.

    Attributes:
        anthropic: How contested rules of Anthropic's API are decided.
        openai: How contested rules of OpenAI's API are decided.
        vllm: The vLLM server that is emulated instead of both, or None.
    """

    anthropic: AnthropicSwitches
    openai: "OpenAISwitches"
    vllm: "VLLMSettings | None" = None


@dataclass(kw_only=True)
class EmulatorState:
    """Shared by the routes of one emulator.

    The routes run in one event loop; whoever else looks in does so from another thread and takes `lock`.

    Attributes:
        clock: Says what time it is.
        switches: How contested rules are decided.
        responder: Answers instead of the built-in one, or None.
        latency: Real seconds between the arrival of a request and the first event of its answer.
        keep: Whether exchanges are recorded.
        lock: Guards everything below it.
    """

    clock: "Clock"
    switches: Switches
    responder: Responder | None = None
    latency: float = 0.0
    keep: bool = True
    lock: threading.RLock = field(default_factory=threading.RLock)
    _exchanges: "list[Exchange]" = field(default_factory=list["Exchange"])
    _failures: deque[Failure] = field(default_factory=deque[Failure])
    _resets: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _hold: asyncio.Barrier | None = None

    def record(self, exchange: "Exchange") -> None:
        """Keep an exchange; a route calls this just before the first event of the answer leaves."""
        if self.keep:
            with self.lock:
                self._exchanges.append(exchange)

    @property
    def exchanges(self) -> "tuple[Exchange, ...]":
        """What was recorded, in the order the answers began."""
        with self.lock:
            return tuple(self._exchanges)

    def fail_next(self, failure: Failure, *, times: int = 1) -> None:
        """Queue a failure for the next requests."""
        with self.lock:
            self._failures.extend([failure] * times)

    def take_failure(self) -> Failure | None:
        """Take the failure meant for the request at hand, if any; a route calls this once a request."""
        with self.lock:
            return self._failures.popleft() if self._failures else None

    def workspace(self, headers: Mapping[str, str]) -> str:
        """Name the workspace of a request: a short digest of its API key, or "" when it has none.

        Args:
            headers: Request headers; names in lower case, or a case-insensitive mapping.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        key = (
            token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "") or headers.get("api-key", "")
        )
        return hashlib.blake2b(key.encode(), digest_size=6).hexdigest() if key else ""

    def next_id(self, prefix: str) -> str:
        """Return an id that is unique in this emulator and the same in every run, e.g. `msg_000000000001`."""
        with self.lock:
            number = self._counts.get(prefix, 0) + 1
            self._counts[prefix] = number
        return f"{prefix}{'' if prefix.endswith(('_', '-')) else '_'}{number:012d}"

    def reply(self, wire: Wire, body: Mapping[str, Any], ask: Callable[[Mapping[str, Any]], Ask]) -> Reply:
        """Answer a request with the responder that was given, else with the built-in one.

        Args:
            wire: The wire format of the body.
            body: The request body.
            ask: Reads the body of this wire into the neutral question of the built-in responder.
        """
        return self.responder(wire, body) if self.responder is not None else answer(ask(body))

    def on_reset(self, forget: Callable[[], None]) -> None:
        """Have a cache emptied when the emulator is reset; a wire calls this once, when it is mounted."""
        with self.lock:
            self._resets.append(forget)

    def reset(self) -> None:
        """Forget caches, exchanges, a hold and failures not yet taken; ids go on counting."""
        with self.lock:
            self._hold = None
            self._exchanges.clear()
            self._failures.clear()
            for forget in self._resets:
                forget()

    def hold(self, requests: int) -> None:
        """Keep the next answers back until this many requests have arrived and passed their checks."""
        with self.lock:
            self._hold = asyncio.Barrier(requests)

    @property
    def waiting(self) -> int:
        """How many requests a hold keeps back right now."""
        barrier = self._hold
        return barrier.n_waiting if barrier is not None else 0

    async def until_first_event(self) -> float:
        """Wait out the latency and a hold; return the moment at which the answer begins.

        A route awaits this after it has looked into its cache, and before it makes what it wrote readable.
        """
        barrier = self._hold
        if barrier is not None:
            await barrier.wait()
            if self._hold is barrier:
                self._hold = None
        if self.latency > 0:
            await asyncio.sleep(self.latency)
        return self.clock.now()
