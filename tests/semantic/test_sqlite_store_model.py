"""Random sequences of operations on two handles of one file do what a dictionary would."""

import math
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headstay.semantic.conformance import NOW, entry, unit
from headstay.semantic.entry import Entry, Filter
from headstay.semantic.sqlite_store import SQLiteStore

SCOPES = strategies.sampled_from(["s", "t"])
KEYS = strategies.sampled_from("abcdef")
ANGLES = strategies.integers(0, 35)
OWNERS = strategies.sampled_from([None, "ann", "bob"])
HANDLES = strategies.integers(0, 1)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "answers.db"
        self.stores = [SQLiteStore(path), SQLiteStore(path)]
        self.known: dict[str, Entry] = {}
        self.now = NOW

    def alive(self, scope: str) -> list[Entry]:
        return [one for one in self.known.values() if one.scope == scope and one.alive(self.now)]

    @rule(
        handle=HANDLES,
        scope=SCOPES,
        key=KEYS,
        angle=ANGLES,
        user=OWNERS,
        life=strategies.sampled_from([None, 1, 3]),
        again=strategies.booleans(),
    )
    def put(
        self, handle: int, scope: str, key: str, angle: int, user: str | None, life: int | None, again: bool
    ) -> None:
        vector = unit(math.cos(math.radians(10 * angle)), math.sin(math.radians(10 * angle)))
        ends = None if life is None else self.now + life
        made = entry(key, vector, scope=scope, user=user, created=self.now, expires=ends, tags=(f"tag {user}",))
        there = self.known.get(made.exact)
        kept = not again and there is not None and there.alive(self.now)
        assert self.stores[handle].put(made, replace=again) == ("kept" if kept else "stored")
        if not kept:
            self.known[made.exact] = replace(made, used=self.now)

    @rule(handle=HANDLES, user=OWNERS)
    def remove(self, handle: int, user: str | None) -> None:
        gone = [one for one in self.known.values() if one.user == user and one.alive(self.now)]
        assert self.stores[handle].remove(Filter(tags=(f"tag {user}",))) >= len(gone)
        self.known = {exact: one for exact, one in self.known.items() if one.user != user}

    @rule(handle=HANDLES, user=strategies.sampled_from(["ann", "bob"]))
    def forget(self, handle: int, user: str) -> None:
        self.stores[handle].forget(Filter(user=user))
        self.known = {exact: one for exact, one in self.known.items() if one.user != user}

    @rule(handle=HANDLES)
    def sweep(self, handle: int) -> None:
        self.stores[handle].sweep(self.now)
        left = {one.exact for one in self.stores[handle].page(Filter()).entries}
        assert left == {exact for exact, one in self.known.items() if one.expires is None or one.expires > self.now}

    @rule(seconds=strategies.integers(0, 2))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(handle=HANDLES)
    def close(self, handle: int) -> None:
        self.stores[handle].close()

    @rule(handle=HANDLES, scope=SCOPES, angle=ANGLES, k=strategies.integers(1, 7))
    def search(self, handle: int, scope: str, angle: int, k: int) -> None:
        asked = unit(math.cos(math.radians(10 * angle + 3)), math.sin(math.radians(10 * angle + 3)))
        found = self.stores[handle].nearest(scope, asked, k, self.now)
        scores = sorted((score(one, asked) for one in self.alive(scope)), reverse=True)[:k]
        assert len(found) == len(scores)
        for got, wanted in zip(found, scores, strict=True):
            assert got.entry == self.known[got.entry.exact]
            assert abs(got.score - wanted) < 1e-5
            assert abs(got.score - score(got.entry, asked)) < 1e-5

    @invariant()
    def exact_matches_agree(self) -> None:
        for store in self.stores:
            for key in "abcdef":
                wanted = self.known.get(f"exact {key}")
                found = store.get_exact(f"exact {key}", self.now)
                assert found == (wanted if wanted is not None and wanted.alive(self.now) else None)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        self.folder.cleanup()


def score(one: Entry, asked: bytes) -> float:
    ours: tuple[float, ...] = struct.unpack("<2f", one.vector or b"")
    theirs: tuple[float, ...] = struct.unpack("<2f", asked)
    return sum(a * b for a, b in zip(ours, theirs, strict=True))


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
