"""The emulated engine: its pool of blocks, who waits for room in it, and what it counts."""

import asyncio
import threading
from dataclasses import dataclass

from headstay.emulator.vllm_cache import Held, VLLMPool, VLLMRequest, admit, empty_pool, finish
from headstay.emulator.vllm_settings import VLLMSettings


@dataclass(frozen=True)
class VLLMFigures:
    """What the engine counted.

    Attributes:
        queried: Prompt tokens that were looked up.
        read: Those of them that were read from the cache.
        usage: Share of the blocks that requests hold, 0 to 1.
    """

    queried: int
    read: int
    usage: float


@dataclass(frozen=True)
class Admission:
    """A request that has begun: what it holds, and of which pool.

    Attributes:
        held: Its blocks and figures.
        life: How often the engine had been emptied when it began.
    """

    held: Held
    life: int


class VLLMEngine:
    """Admits requests in the order in which they come; one that does not fit waits, and all behind it.

    Args:
        settings: The server.
        lock: Guards the state; `forget` comes from another thread than the rest.
    """

    def __init__(self, settings: VLLMSettings, lock: threading.RLock) -> None:
        self._settings = settings
        self._lock = lock
        self._door = asyncio.Lock()
        self._room = asyncio.Event()
        self._life = 0
        self._pool = self._empty()
        self._queried = self._read = 0

    async def admit(self, request: VLLMRequest) -> Admission:
        """Let a request begin as soon as there is room; it must fit into the context."""
        async with self._door:
            while (found := self._try(request)) is None:
                self._room.clear()
                await self._room.wait()
        return found

    def finish(self, admission: Admission) -> None:
        """Let go of what a request holds."""
        with self._lock:
            if admission.life == self._life:
                self._pool = finish(self._pool, admission.held)
        self._room.set()

    def figures(self) -> VLLMFigures:
        """Return what was counted since the start."""
        with self._lock:
            return VLLMFigures(self._queried, self._read, self._pool.usage)

    def forget(self) -> None:
        """Empty the pool and set the counters to zero; requests that run end without leaving anything."""
        with self._lock:
            self._life += 1
            self._pool = self._empty()
            self._queried = self._read = 0

    def _try(self, request: VLLMRequest) -> Admission | None:
        with self._lock:
            found = admit(self._pool, request)
            if found is None:
                return None
            self._pool, held = found
            self._queried += len(request.prompt)
            self._read += held.read
            return Admission(held, self._life)

    def _empty(self) -> VLLMPool:
        return empty_pool(block=self._settings.block, blocks=self._settings.blocks)
