"""OpenAI's prompt cache as pure decisions: what one request reads and writes, given the living entries.

Sources: prompt-caching guide, developers.openai.com/api/docs/guides/prompt-caching, page state 2026-09-23,
and the types of openai 3.57.0; both seen 2026-11-29. Where they leave a question open the docstring says what
is assumed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from headstay.emulator.openai_prompt import Marker, Prompt
from headstay.emulator.openai_switches import OpenAISwitches

MINIMUM_TOKENS = 1_024
"""The shortest prefix that is cached, in visible input tokens."""

TTL_SECONDS = {"30m": 1_800.0, "12h": 43_200.0}
"""Least lifetime after the last write or reuse, GPT-5.6 and later."""

MAX_WRITES = 4
"""Breakpoints one request can write; in implicit mode the implicit one is among them."""

_REPORT_STEP = 128


@dataclass(frozen=True)
class Entry:
    """A prefix that is in the cache.

    Attributes:
        ttl: Seconds it lives after its last use.
        last_use: When it was last written or read, seconds since the epoch.
        born: When it was first written.
        cap: Seconds after `born` at which it ends whatever its use.
    """

    ttl: float
    last_use: float
    born: float
    cap: float = float("inf")

    def alive(self, now: float) -> bool:
        """Say whether it can still be read at a moment."""
        return now - self.last_use <= self.ttl and now - self.born <= self.cap

    def used(self, now: float) -> "Entry":
        """Return it with its lifetime started afresh; reuse is free."""
        return replace(self, last_use=now)


@dataclass(frozen=True)
class Write:
    """One prefix a request puts into the cache.

    Attributes:
        end: Its length in tokens.
        digest: The hash of those tokens.
        ttl: Seconds it will live after its last use.
        tokens: Tokens billed for it: those past the write or the read before it.
    """

    end: int
    digest: bytes
    ttl: float
    tokens: int


@dataclass(frozen=True)
class Outcome:
    """What one request reads and writes.

    Attributes:
        total: All input tokens; `read` and the billed writes are parts of it.
        read: Tokens read from the cache.
        writes: Prefixes to store once the response begins.
        refreshed: Hashes of the entries whose lifetime starts afresh.
        reusable: The longest prefix it leaves in the cache, in tokens.
        fingerprint: The `system_fingerprint` of who served it.
    """

    total: int
    read: int = 0
    writes: tuple[Write, ...] = ()
    refreshed: tuple[bytes, ...] = ()
    reusable: int = 0
    fingerprint: str = "fp_emulated"

    def written(self, ttl: str | None = None) -> int:
        """Return billed write tokens, of one lifetime ("30m" or "12h") or of all."""
        seconds = None if ttl is None else TTL_SECONDS[ttl]
        return sum(write.tokens for write in self.writes if seconds is None or write.ttl == seconds)


@dataclass(frozen=True)
class MarkedRequest:
    """A request to GPT-5.6 or later.

    Attributes:
        prompt: The rendered prompt.
        seed: Hash of everything beside the tokens that a match needs: organization, model, settings, cache
            key.
        mode: Whether there is an implicit breakpoint.
        ttl: "30m" or "12h" for breakpoints that name none.
    """

    prompt: Prompt
    seed: bytes
    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: str = "30m"


Find = Callable[[bytes], Entry | None]
"""Returns the living entry of a hash."""


def decide_marked(request: MarkedRequest, find: Find, switches: OpenAISwitches) -> Outcome:
    """Decide reads and writes of a request to GPT-5.6 or later.

    The longest living entry at one of the request's lookup boundaries is read; boundaries are exact. Then up
    to four breakpoints are written, each billed for what lies past the one before it. Explicit mode without a
    marker neither reads nor writes.

    Assumed: a breakpoint inside the part that was read is stored without a charge and for no longer than the
        entry
    read; a reuse refreshes every entry the request looked at inside the part it read; a reuse never lengthens
    an entry's lifetime class.
    """
    prompt, total = request.prompt, len(request.prompt.tokens)
    targets = _write_targets(request, switches)
    candidates = {end for end in _lookup_ends(request, switches) if end >= MINIMUM_TOKENS}
    digests = prompt.digests(request.seed, candidates | set(targets))
    found = {end: entry for end in candidates if (entry := find(digests[end])) is not None}
    read = max(found, default=0)
    writes: list[Write] = []
    paid = read
    for end, ttl in sorted(targets.items()):
        if end in found:
            continue
        bought = ttl if end > read else min(ttl, found[read].ttl)
        writes.append(Write(end, digests[end], bought, max(0, end - paid)))
        paid = max(paid, end)
    return Outcome(
        total=total,
        read=read,
        writes=tuple(writes),
        refreshed=tuple(digests[end] for end in sorted(found)),
        reusable=paid,
    )


def _write_targets(request: MarkedRequest, switches: OpenAISwitches) -> dict[int, float]:
    """Return where the request writes and how many seconds each entry lives; surplus old markers drop out."""
    prompt, implicit = request.prompt, _implicit_end(request)
    chosen = [*prompt.markers[-(MAX_WRITES - 1 if request.mode == "implicit" else MAX_WRITES) :]]
    if implicit is not None:
        chosen.append(Marker(implicit))
        if switches.implicit_developer_reuse and prompt.developer_end:
            chosen.append(Marker(prompt.developer_end))
    targets: dict[int, float] = {}
    for marker in chosen:
        if marker.end >= MINIMUM_TOKENS:
            seconds = TTL_SECONDS[marker.ttl or request.ttl]
            targets[marker.end] = max(seconds, targets.get(marker.end, 0.0))
    return targets


def _implicit_end(request: MarkedRequest) -> int | None:
    if request.mode == "explicit" or not request.prompt.endings:
        return None
    return request.prompt.endings[-1]


def _lookup_ends(request: MarkedRequest, switches: OpenAISwitches) -> set[int]:
    prompt = request.prompt
    marked = [marker.end for marker in prompt.markers]
    if switches.lookup == "sdk":
        natural = prompt.endings if request.mode == "implicit" else ()
        return set(sorted({*marked, *natural})[-80:])
    looked = {*marked[:2], *marked[-50:]}
    if request.mode == "implicit":
        looked.update(prompt.endings[-21:])
        looked.add(prompt.developer_end)
    return looked


@dataclass(frozen=True)
class EarlierRequest:
    """A request to a model before GPT-5.6.

    Attributes:
        prompt: The rendered prompt.
        seed: As in `MarkedRequest`, with the machine instead of the cache key.
        interval: Tokens between implicit boundaries.
        idle: Seconds an entry lives after its last use.
        cap: Seconds an entry lives at most.
    """

    prompt: Prompt
    seed: bytes
    interval: int
    idle: float
    cap: float


def decide_earlier(request: EarlierRequest, find: Find) -> Outcome:
    """Decide what a request to a model before GPT-5.6 reads.

    It reads the longest prefix it shares with an earlier prompt on the same machine, cut to the model's
    interval; the figure is reported in whole steps of 128 and is 0 below 1,024. Writing costs nothing.
    """
    total = len(request.prompt.tokens)
    first = max(1, -(-MINIMUM_TOKENS // request.interval))
    ends = [step * request.interval for step in range(first, total // request.interval + 1)]
    digests = request.prompt.digests(request.seed, ends)
    living = [end for end in ends if find(digests[end]) is not None]
    matched, seen = max(living, default=0), set(living)
    return Outcome(
        total=total,
        read=matched // _REPORT_STEP * _REPORT_STEP,
        writes=tuple(Write(end, digests[end], request.idle, 0) for end in ends if end not in seen),
        refreshed=tuple(digests[end] for end in living),
        reusable=max(ends, default=0) // _REPORT_STEP * _REPORT_STEP,
    )
