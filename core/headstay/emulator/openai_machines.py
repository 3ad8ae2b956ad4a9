"""Which machine serves a request to a model before GPT-5.6: caches live on single machines."""

import hashlib
from collections import deque

from headstay.emulator.openai_prompt import Prompt
from headstay.emulator.openai_switches import OpenAISwitches

HEAD_TOKENS = 256
"""Tokens from the start of a prompt that take part in the routing."""

_MINUTE = 60.0


class Machines:
    """Routes requests by head and `prompt_cache_key`, and overflows to the next machine when one is busy.

    Source: prompt-caching guide, developers.openai.com/api/docs/guides/prompt-caching, page state 2026-09-23:
    a hash of the initial tokens and the optional key choose the machine; traffic above about 15 requests a
    minute may overflow. How many tokens are hashed varies by model; here it is 256. The real router also
    looks at load.
    """

    def __init__(self, switches: OpenAISwitches) -> None:
        self._switches = switches
        self._recent: dict[bytes, deque[float]] = {}

    def assign(self, prompt: Prompt, *, scope: bytes, key: str | None, now: float) -> int:
        """Return the machine that serves a request arriving now, and count it.

        Args:
            prompt: The rendered prompt.
            scope: Hash of organization, model and settings.
            key: The request's `prompt_cache_key`.
            now: Seconds since the epoch.
        """
        if not self._switches.shards:
            return 0
        seed = b"%d/%b/%b" % (self._switches.seed, scope, (key or "").encode(errors="replace"))
        head = min(HEAD_TOKENS, len(prompt.tokens))
        route = prompt.digests(seed, [head])[head]
        recent = self._recent.setdefault(route, deque())
        while recent and now - recent[0] >= _MINUTE:
            recent.popleft()
        overflow = len(recent) // self._switches.shard_requests_per_minute
        recent.append(now)
        home = int.from_bytes(hashlib.blake2b(route, digest_size=8).digest(), "big")
        return (home + overflow) % self._switches.machines

    def forget(self) -> None:
        """Forget all traffic."""
        self._recent.clear()
