"""The living entries of the emulated OpenAI cache; the decisions are in `openai_cache`."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from headstay.emulator.openai_cache import (
    EarlierRequest,
    Entry,
    MarkedRequest,
    Outcome,
    decide_earlier,
    decide_marked,
)
from headstay.emulator.openai_machines import Machines
from headstay.emulator.openai_models import ModelFacts, Retention
from headstay.emulator.openai_prompt import Prompt
from headstay.emulator.openai_switches import OpenAISwitches
from headstay.emulator.shape import compact

IDLE_SECONDS: Mapping[Retention, float] = {"in_memory": 600.0, "24h": 1_800.0}
"""How long an unused entry of an earlier model typically lives: 5 to 10 minutes, and about 30."""

CAP_SECONDS: Mapping[Retention, float] = {"in_memory": 3_600.0, "24h": 86_400.0}
"""How long an entry of an earlier model lives at most."""

_SWEEP_EVERY = 256


@dataclass(frozen=True)
class CacheCall:
    """What the cache needs to know of a request.

    Attributes:
        prompt: The rendered prompt.
        model: The model's facts.
        organization: Whose cache it is.
        settings: The parameters that are part of the prefix without being tokens, by name.
        key: `prompt_cache_key`.
        mode: `prompt_cache_options.mode`, GPT-5.6 and later.
        ttl: `prompt_cache_options.ttl`, GPT-5.6 and later.
        retention: `prompt_cache_retention`, earlier models; None for the organization's default.
    """

    prompt: Prompt
    model: ModelFacts
    organization: str
    settings: Mapping[str, object]
    key: str | None = None
    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: str = "30m"
    retention: Retention | None = None


class OpenAICache:
    """Looks up and stores prefixes. Not safe for use from several threads without a lock.

    Args:
        switches: How contested rules are decided.
    """

    def __init__(self, switches: OpenAISwitches) -> None:
        self._switches = switches
        self._entries: dict[bytes, Entry] = {}
        self._machines = Machines(switches)
        self._commits = 0

    def look_up(self, call: CacheCall, now: float) -> Outcome:
        """Decide what a request arriving now reads and writes; nothing is stored yet."""

        def find(digest: bytes) -> Entry | None:
            entry = self._entries.get(digest)
            return entry if entry is not None and entry.alive(now) else None

        scope = _digest([call.organization, call.model.name, dict(call.settings)])
        if call.model.marked:
            mode = call.mode if self._switches.mode_in_key else ""
            seed = _digest([scope.hex(), call.key, mode])
            return decide_marked(MarkedRequest(call.prompt, seed, call.mode, call.ttl), find, self._switches)
        machine = self._machines.assign(call.prompt, scope=scope, key=call.key, now=now)
        retention = self._retention(call)
        request = EarlierRequest(
            call.prompt,
            _digest([scope.hex(), machine]),
            call.model.interval,
            IDLE_SECONDS[retention],
            CAP_SECONDS[retention],
        )
        outcome = decide_earlier(request, find)
        if not self._switches.fingerprint_by_machine:
            return outcome
        return replace(outcome, fingerprint=f"{outcome.fingerprint}_{machine}")

    def commit(self, call: CacheCall, outcome: Outcome, now: float) -> None:
        """Store what a request wrote and refresh what it read, at the moment its answer begins."""
        for digest in outcome.refreshed:
            entry = self._entries.get(digest)
            if entry is not None:
                self._entries[digest] = entry.used(now)
        cap = float("inf") if call.model.marked else CAP_SECONDS[self._retention(call)]
        for write in outcome.writes:
            known = self._entries.get(write.digest)
            ttl = max(write.ttl, known.ttl) if known is not None and known.alive(now) else write.ttl
            self._entries[write.digest] = Entry(ttl, last_use=now, born=now, cap=cap)
        self._commits += 1
        if self._commits % _SWEEP_EVERY == 0:
            self._entries = {digest: entry for digest, entry in self._entries.items() if entry.alive(now)}

    def forget(self) -> None:
        """Empty the cache."""
        self._entries.clear()
        self._machines.forget()

    def _retention(self, call: CacheCall) -> Retention:
        zero = self._switches.zero_data_retention
        return call.retention or call.model.default_retention(zero_data_retention=zero)


def _digest(value: object) -> bytes:
    return hashlib.blake2b(compact(value).encode(errors="replace"), digest_size=16).digest()
