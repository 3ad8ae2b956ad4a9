"""What a semantic cache keeps of one answer, and the words for asking a store about it."""

import math
import secrets
from dataclasses import dataclass
from typing import Literal, TypeAlias

ROW_BYTES = 256  # what an entry takes beside its texts and its vector: keys, times, counts, its part of the indexes

CLOCK_SLACK = 60.0  # seconds by which two readings of one machine's clock may be out of order

Outcome: TypeAlias = Literal["stored", "kept", "too_large"]


def new_id() -> str:
    """Return a random name for an entry: 128 bits, in hex."""
    return secrets.token_hex(16)


def lifetime(created: float, expires: float | None) -> tuple[float, float]:
    """Return when an entry may be served: from a moment on, and until before another.

    An entry from the future was made before the clock was turned back. Its age is not known, so one that can expire
    has to wait until the clock has caught up.
    """
    return (-math.inf, math.inf) if expires is None else (created - CLOCK_SLACK, expires)


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer and what it answers.

    Attributes:
        id: A random name, see `new_id`.
        scope: Key of everything that must be identical for the answer to be reusable, in hex.
        exact: Key of the whole request, in hex. A store keeps one entry for each.
        query: The text that was embedded.
        answer: JSON text in a schema of ours; a store does not look inside.
        vector: The query's unit vector as little-endian float32, or None: the entry is for the exact tier only.
        created: Seconds since the epoch.
        expires: Seconds since the epoch; at this very moment the entry is expired. None: never.
        tenant: Whom the answer belongs to, or None.
        user: For whom it was made, or None.
        version: What it depends on beyond the request, or None.
        tags: Names to invalidate it by.
        family: Key of all but the last human text, in hex; its texts show the template that they are made from.
        text: The whole text of which `query` is a part, or None where they are the same.
        used: When it was last served, or else created, in seconds since the epoch.
        hits: How often it was served, as far as that was written down.
        confirmed: How often someone said that it was right.
        wrong: How often someone said that it was wrong.
    """

    id: str
    scope: str
    exact: str
    query: str
    answer: str
    vector: bytes | None
    created: float
    expires: float | None = None
    tenant: str | None = None
    user: str | None = None
    version: str | None = None
    tags: tuple[str, ...] = ()
    family: str = ""
    text: str | None = None
    used: float = 0.0
    hits: int = 0
    confirmed: int = 0
    wrong: int = 0

    def alive(self, now: float) -> bool:
        """Whether it may be served at a time."""
        start, end = lifetime(self.created, self.expires)
        return start <= now < end

    @property
    def size(self) -> int:
        """Bytes that count to a quota."""
        texts = (
            self.id,
            self.exact,
            self.family,
            self.query,
            self.answer,
            self.text,
            self.tenant,
            self.user,
            self.version,
        )
        named = sum(len(text.encode("utf-8", "surrogatepass")) for text in (*texts, *self.tags) if text)
        return ROW_BYTES + named + len(self.vector or b"")


@dataclass(frozen=True, slots=True)
class Scored:
    """A neighbour.

    Attributes:
        entry: As its row stands now.
        score: Cosine similarity to the row's own vector; higher is nearer.
    """

    entry: Entry
    score: float


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries: those that match everything given. With nothing given, all of them.

    Attributes:
        ids: One of these names.
        scope: This scope.
        tenant: This tenant.
        user: This user.
        version: This version.
        tags: At least one of these tags.
    """

    ids: tuple[str, ...] | None = None
    scope: str | None = None
    tenant: str | None = None
    user: str | None = None
    version: str | None = None
    tags: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list.

    Attributes:
        entries: In the store's own order, which does not change.
        cursor: Where the next page starts, or None after the last.
    """

    entries: tuple[Entry, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Usage:
    """How full a store is.

    Attributes:
        entries: How many, expired ones that were not swept yet included.
        size: Their bytes, as they count to a quota.
    """

    entries: int
    size: int
