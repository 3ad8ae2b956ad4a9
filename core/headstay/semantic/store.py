"""What the semantic cache asks of a store: the smallest set that SQLite and a database server can both do well."""

from collections.abc import Sequence
from typing import Protocol, Self

from headstay.semantic.entry import Entry, Filter, Outcome, Page, Scored, Usage


class Store(Protocol):
    """Keeps entries, for several threads and processes at once.

    Every method may raise `headstay.errors.SemanticStoreError`; the cache turns that into a miss with a reason. Times
    are seconds since the epoch and come from the caller, so that one clock decides. An entry is expired when `now`
    has reached its `expires`. Once a store has seen an entry expire it never serves it again, whatever the clock
    says later, and an entry that can expire is not served while the clock stands more than a minute before its
    creation.
    """

    def get_exact(self, exact: str, now: float) -> Entry | None:
        """Return the unexpired entry of an exact key, or None."""
        ...

    def nearest(self, scope: str, vector: bytes, k: int, now: float) -> list[Scored]:
        """Return the nearest unexpired entries of a scope, best first.

        Args:
            scope: The scope's key.
            vector: A unit vector as little-endian float32, as wide as the scope's others.
            k: How many at most.
            now: Seconds since the epoch.

        Returns:
            Entries re-read from their rows, each scored against its row's own vector. Every neighbour of a
            similarity above 0.7 is found; further ones may be missing in a large scope.
        """
        ...

    def put(self, entry: Entry, *, replace: bool = True) -> Outcome:
        """Keep an entry. When this returns, the entry survives the death of the process.

        Args:
            entry: Its `created` counts as now.
            replace: Put it in the place of one with the same exact key. Otherwise an unexpired one is kept.

        Returns:
            "stored", "kept" (an unexpired one was there), or "too_large" (for the quota, by itself).
        """
        ...

    def put_many(self, entries: Sequence[Entry], *, replace: bool = True) -> list[Outcome]:
        """Keep several entries, all or none of those that fit."""
        ...

    def touch(self, entry_id: str, now: float) -> None:
        """Note that an entry was served. Cheap, and lost if the process dies soon after."""
        ...

    def feedback(self, entry_id: str, *, wrong: bool) -> bool:
        """Count a judgement. Returns whether the entry is known."""
        ...

    def texts(self, family: str, limit: int) -> list[str]:
        """Return the whole texts of a family's entries, newest first; see `headstay.semantic.query`."""
        ...

    def show(self, entry_id: str) -> Entry | None:
        """Return an entry by name, expired or not, or None."""
        ...

    def page(self, where: Filter, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Return entries, expired ones included, a page at a time."""
        ...

    def usage(self, tenant: str | None = None) -> Usage:
        """Return how full the store is, or how much of it is one tenant's."""
        ...

    def remove(self, where: Filter) -> int:
        """Remove what matches; it is never served again. Returns how many entries that were."""
        ...

    def forget(self, where: Filter) -> int:
        """Remove what matches, and every trace of it from the store's files. Takes as long as rewriting them."""
        ...

    def sweep(self, now: float) -> int:
        """Remove what is expired. Needed by nobody: it also happens a little at every `put`."""
        ...

    def lease(self, key: str, owner: str, now: float, seconds: float) -> bool:
        """Take or renew a lease, for at most some seconds. Returns False while another owner holds it."""
        ...

    def release(self, key: str, owner: str) -> None:
        """Give a lease back; that of another owner is left alone."""
        ...

    def wait(self, key: str, now: float, seconds: float) -> bool:
        """Block until nobody holds a lease. Returns False if that takes longer than some seconds."""
        ...

    def close(self) -> None:
        """Let go of files and connections; a later use opens them again."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
