"""What every store of the semantic cache must do, as a pytest class to inherit from.

```python
from headstay.semantic.conformance import StoreConformance

class TestMyStore(StoreConformance):
    def make_store(self, folder: Path) -> Store:
        return MyStore(folder / "answers.db")
```
"""

import math
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headstay.errors import ConfigError, SemanticStoreError
from headstay.semantic.entry import Entry, Filter, new_id
from headstay.semantic.store import Store

NOW = 1_000_000.0


def unit(*numbers: float) -> bytes:
    """Return a vector of length 1 in a store's form."""
    norm = math.hypot(*numbers)
    return struct.pack(f"<{len(numbers)}f", *(number / norm for number in numbers))


def entry(query: str, vector: bytes | None = None, **fields: Any) -> Entry:
    """Return an entry of scope "s", made at `NOW`."""
    made = Entry(new_id(), "s", f"exact {query}", query, f'{{"text": "answer to {query}"}}', vector, NOW)
    return replace(made, **fields)


def queries(store: Store, vector: bytes, *, scope: str = "s", k: int = 8, now: float = NOW) -> list[str]:
    """Return the queries of the nearest entries, best first."""
    return [scored.entry.query for scored in store.nearest(scope, vector, k, now)]


class StoreConformance:
    """Inherit, and say how to make a store."""

    def make_store(self, folder: Path) -> Store:
        """Return an empty store that takes at least a thousand entries; `folder` is empty and the test's own."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Return the store under test."""
        with self.make_store(tmp_path) as made:
            yield made

    def test_an_entry_comes_back_as_it_was_put(self, store: Store) -> None:
        """All fields, in the exact tier, by name and among the neighbours."""
        full = entry(
            "Wie spät? 🕰\x00\n",
            unit(3.0, 4.0),
            expires=NOW + 5.5,
            tenant="acme",
            user="ann",
            version="v1",
            tags=("faq", "clock"),
            family="f",
            text="Context: none. Wie spät?",
            used=NOW + 1,
            hits=3,
            confirmed=2,
            wrong=1,
        )
        assert store.put(full) == "stored"
        assert store.get_exact(full.exact, NOW) == full
        assert store.show(full.id) == full
        assert [scored.entry for scored in store.nearest("s", unit(3.0, 4.0), 1, NOW)] == [full]

    def test_there_is_one_entry_for_an_exact_key(self, store: Store) -> None:
        """Whatever its scope: what is known of the template may have changed, and the scope with it."""
        store.put(entry("a", unit(1.0, 0.0)))
        assert store.get_exact("exact b", NOW) is None
        assert store.put(entry("a", unit(0.0, 1.0), scope="other"), replace=False) == "kept"
        assert store.put(entry("a", unit(0.0, 1.0), scope="other")) == "stored"
        assert queries(store, unit(1.0, 0.0)) == []
        assert queries(store, unit(1.0, 0.0), scope="other") == ["a"]
        assert store.usage().entries == 1

    def test_neighbours_come_best_first_with_their_cosine(self, store: Store) -> None:
        """Scores are cosines: 1 for the same direction, 0 at a right angle, negative behind."""
        store.put_many(
            [
                entry("behind", unit(-1.0, 0.0)),
                entry("aside", unit(0.0, 1.0)),
                entry("near", unit(0.8, 0.6)),
                entry("same", unit(1.0, 0.0)),
                entry("exact only"),
            ]
        )
        found = store.nearest("s", unit(1.0, 0.0), 8, NOW)
        assert [scored.entry.query for scored in found] == ["same", "near", "aside", "behind"]
        assert [scored.score for scored in found] == pytest.approx([1.0, 0.8, 0.0, -1.0], abs=1e-6)
        assert queries(store, unit(1.0, 0.0), k=2) == ["same", "near"]

    def test_neighbours_do_not_cross_scopes(self, store: Store) -> None:
        """However near an entry of another scope is."""
        store.put(entry("theirs", unit(1.0, 0.0), scope="other"))
        assert queries(store, unit(1.0, 0.0)) == []
        store.put(entry("ours", unit(0.0, 1.0)))
        assert queries(store, unit(1.0, 0.0)) == ["ours"]
        assert queries(store, unit(1.0, 0.0), scope="nobody's") == []

    def test_an_entry_expires_at_the_moment_itself(self, store: Store) -> None:
        """Age equal to the time to live is expired, in both tiers."""
        store.put(entry("a", unit(1.0, 0.0), expires=NOW + 10))
        before = math.nextafter(NOW + 10, 0.0)
        assert store.get_exact("exact a", before) is not None
        assert queries(store, unit(1.0, 0.0), now=before) == ["a"]
        assert store.get_exact("exact a", NOW + 10) is None
        assert queries(store, unit(1.0, 0.0), now=NOW + 10) == []

    def test_an_expired_neighbour_hides_no_other(self, store: Store) -> None:
        """Expiry is part of the search, not a check of what it found."""
        store.put_many([entry(f"old {n}", unit(1.0, n / 100), expires=NOW + 1) for n in range(20)])
        store.put(entry("young", unit(0.6, 0.8)))
        assert queries(store, unit(1.0, 0.0), k=1, now=NOW + 1) == ["young"]

    def test_a_clock_turned_back_brings_nothing_back(self, store: Store) -> None:
        """What was seen to be expired stays so; what comes from the future has to wait."""
        store.put(entry("a", unit(1.0, 0.0), expires=NOW + 10))
        store.put(entry("b", unit(0.6, 0.8), expires=NOW + 10))
        assert queries(store, unit(1.0, 0.0), now=NOW + 10) == []
        assert store.get_exact("exact a", NOW + 10) is None
        assert queries(store, unit(1.0, 0.0), now=NOW) == []
        assert store.get_exact("exact a", NOW) is None
        store.put(entry("future", unit(1.0, 0.0), created=NOW + 3600, expires=NOW + 7200))
        assert queries(store, unit(1.0, 0.0)) == []
        assert store.get_exact("exact future", NOW) is None
        assert queries(store, unit(1.0, 0.0), now=NOW + 3600) == ["future"]

    def test_one_that_is_put_again_takes_the_place(self, store: Store) -> None:
        """One entry for each pair of keys, in both tiers."""
        first = entry("a", unit(1.0, 0.0), tags=("t",))
        second = entry("a", unit(0.0, 1.0), answer="{}")
        store.put(first)
        assert store.put(second) == "stored"
        assert store.get_exact("exact a", NOW) == replace(second, used=NOW)
        assert [scored.entry.id for scored in store.nearest("s", unit(1.0, 0.0), 8, NOW)] == [second.id]
        assert store.show(first.id) is None
        assert store.usage().entries == 1
        assert store.remove(Filter(tags=("t",))) == 0

    def test_one_that_is_there_is_kept_unless_it_is_expired(self, store: Store) -> None:
        """As single-flight and imports need it."""
        first, second = entry("a", expires=NOW + 10), entry("a")
        store.put(first)
        assert store.put(second, replace=False) == "kept"
        assert store.show(first.id) is not None
        assert store.show(second.id) is None
        assert store.put(replace(second, created=NOW + 10), replace=False) == "stored"
        assert store.show(first.id) is None

    def test_several_are_put_in_order(self, store: Store) -> None:
        """And each gets its own outcome."""
        assert store.put_many([entry("a"), entry("b"), entry("a")], replace=False) == ["stored", "stored", "kept"]
        assert store.put_many([]) == []

    @pytest.mark.parametrize(
        "vector", [b"", b"abc", bytes(8), struct.pack("<2f", math.nan, 1.0), struct.pack("<2f", 3.0, 4.0)]
    )
    def test_what_is_no_unit_vector_is_refused(self, store: Store, vector: bytes) -> None:
        """Nothing is stored, and nothing found."""
        store.put(entry("a", unit(1.0, 0.0)))
        with pytest.raises(SemanticStoreError, match="no unit vector"):
            store.put(entry("b", vector))
        with pytest.raises(SemanticStoreError, match="no unit vector"):
            store.nearest("s", vector, 1, NOW)
        assert store.usage().entries == 1

    def test_a_scope_has_vectors_of_one_width(self, store: Store) -> None:
        """Two embedders in one scope are a mistake that must not go unnoticed."""
        store.put(entry("a", unit(1.0, 0.0)))
        with pytest.raises(SemanticStoreError, match="have 2 numbers, this one has 3"):
            store.put(entry("b", unit(1.0, 0.0, 0.0)))
        with pytest.raises(SemanticStoreError, match="have 2 numbers, this one has 3"):
            store.nearest("s", unit(1.0, 0.0, 0.0), 1, NOW)
        assert store.put(entry("b", unit(1.0, 0.0, 0.0), scope="other")) == "stored"
        assert store.usage().entries == 2

    def test_text_that_is_no_unicode_is_refused(self, store: Store) -> None:
        """With one clear error, and the store goes on."""
        with pytest.raises(SemanticStoreError, match="half a surrogate pair"):
            store.put(entry("a", answer="\ud800"))
        assert store.put(entry("a")) == "stored"

    @pytest.mark.parametrize(
        ("where", "left"),
        [
            (Filter(), ""),
            (Filter(scope="s"), "d"),
            (Filter(tenant="acme"), "bd"),
            (Filter(user="ann"), "cd"),
            (Filter(version="v1"), "bcd"),
            (Filter(tags=("x", "z")), "b"),
            (Filter(tenant="acme", tags=("y",)), "bcd"),
            (Filter(tenant="acme", user="bob"), "abcd"),
            (Filter(tags=()), "abcd"),
            (Filter(ids=()), "abcd"),
            (Filter(ids=("1" * 32, "4" * 32, "none")), "bc"),
            (Filter(scope="nobody's"), "abcd"),
        ],
    )
    @pytest.mark.parametrize("how", ["remove", "forget"])
    def test_what_matches_goes_and_the_rest_stays(self, store: Store, where: Filter, left: str, how: str) -> None:
        """Out of every tier, at once."""
        store.put(entry("a", unit(1.0, 0.0), id="1" * 32, tenant="acme", user="ann", version="v1", tags=("x", "y")))
        store.put(entry("b", unit(1.0, 0.1), id="2" * 32, user="ann", version="v2", tags=("y",)))
        store.put(entry("c", unit(1.0, 0.2), id="3" * 32, tenant="acme", tags=("x",)))
        store.put(entry("d", unit(1.0, 0.0), id="4" * 32, scope="other", tags=("z",)))
        assert queries(store, unit(1.0, 0.0)) == ["a", "b", "c"]
        assert [found.query for found in store.page(where).entries] == [q for q in "abcd" if q not in left]
        assert getattr(store, how)(where) == 4 - len(left)
        assert [found.query for found in store.page(Filter()).entries] == list(left)
        assert queries(store, unit(1.0, 0.0)) == [q for q in "abc" if q in left]
        assert [q for q in "abc" if store.get_exact(f"exact {q}", NOW)] == [q for q in "abc" if q in left]
        assert store.usage().entries == len(left)

    def test_a_scope_that_emptied_starts_anew(self, store: Store) -> None:
        """What was loaded of it before does not count."""
        for round_ in range(3):
            store.put_many([entry(f"{round_}-{n}", unit(1.0, n)) for n in range(3)])
            assert queries(store, unit(1.0, 0.0)) == [f"{round_}-{n}" for n in range(3)]
            assert store.remove(Filter(scope="s")) == 3
            assert queries(store, unit(1.0, 0.0)) == []
        assert store.put(entry("wider", unit(1.0, 0.0, 0.0))) == "stored"
        assert queries(store, unit(1.0, 0.0, 0.0)) == ["wider"]

    def test_a_search_follows_what_comes_and_goes(self, store: Store) -> None:
        """Through many more changes than a store may remember."""
        for n in range(600):
            store.put(entry(str(n), unit(1.0, n / 1000)))
            if n >= 5:
                store.remove(Filter(ids=tuple(s.entry.id for s in store.nearest("s", unit(1.0, 0.0), 1, NOW))))
        assert queries(store, unit(1.0, 0.0)) == ["595", "596", "597", "598", "599"]

    def test_what_is_expired_is_swept(self, store: Store) -> None:
        """Others stay."""
        store.put_many([entry(str(n), unit(1.0, n), expires=NOW + 1 + n) for n in range(5)])
        store.put(entry("for ever"))
        assert store.sweep(NOW + 3) == 3
        assert store.sweep(NOW + 3) == 0
        assert [found.query for found in store.page(Filter()).entries] == ["3", "4", "for ever"]

    def test_a_list_comes_in_pages(self, store: Store) -> None:
        """Each entry once, also when others come and go meanwhile."""
        store.put_many([entry(str(n), expires=NOW + 1) for n in range(7)])
        seen: list[str] = []
        page = store.page(Filter(), limit=3)
        while page.cursor is not None:
            seen += [found.query for found in page.entries]
            store.remove(Filter(ids=(page.entries[0].id,)))
            page = store.page(Filter(), limit=3, cursor=page.cursor)
        seen += [found.query for found in page.entries]
        assert sorted(seen) == [str(n) for n in range(7)]
        with pytest.raises(ConfigError, match="not a cursor"):
            store.page(Filter(), cursor="x'; DROP TABLE entries")

    def test_usage_counts_by_tenant(self, store: Store) -> None:
        """Entries, and the bytes that each says it has."""
        ours, theirs, nobodys = entry("a", tenant="acme"), entry("bb", tenant="*"), entry("ccc")
        store.put_many([ours, theirs, nobodys])
        assert store.usage().size == ours.size + theirs.size + nobodys.size
        assert (store.usage("acme").entries, store.usage("acme").size) == (1, ours.size)
        assert (store.usage("*").entries, store.usage("*").size) == (1, theirs.size)
        assert store.usage("stranger").entries == 0
        store.remove(Filter(tenant="acme"))
        assert store.usage("acme").entries == 0

    def test_what_is_served_and_judged_is_counted(self, store: Store) -> None:
        """Also across `close`."""
        made = entry("a")
        store.put(made)
        store.touch(made.id, NOW + 120)
        store.touch(made.id, NOW + 60)
        store.touch("nobody", NOW)
        assert store.feedback(made.id, wrong=True)
        assert store.feedback(made.id, wrong=False)
        assert not store.feedback("nobody", wrong=True)
        store.close()
        assert store.show(made.id) == replace(made, hits=2, used=NOW + 120, wrong=1, confirmed=1)

    def test_texts_come_newest_first(self, store: Store) -> None:
        """Whole ones, of one family, whatever their scopes."""
        given = [("a", None, "f"), ("b", "Question: b", "f"), ("c", None, "g"), ("d", None, "f")]
        for n, (query, text, family) in enumerate(given):
            store.put(entry(query, scope=query, text=text, family=family, created=NOW + n))
        assert store.texts("f", 2) == ["d", "Question: b"]
        assert store.texts("f", 9) == ["d", "Question: b", "a"]
        assert store.texts("nobody's", 2) == []

    def test_one_owner_holds_a_lease(self, store: Store) -> None:
        """Until it is given back or the deadline is reached."""
        assert store.lease("k", "ann", NOW, 10)
        assert not store.lease("k", "bob", NOW, 10)
        assert store.lease("other", "bob", NOW, 10)
        assert store.lease("k", "ann", NOW + 5, 10)
        assert not store.lease("k", "bob", math.nextafter(NOW + 15, 0.0), 10)
        store.release("k", "bob")
        assert not store.lease("k", "bob", NOW + 5, 10)
        store.release("k", "ann")
        assert store.lease("k", "bob", NOW + 5, 10)
        assert store.lease("k", "ann", NOW + 15, 10)
        assert store.lease("k", "bob", NOW - 3600, 10)
        with pytest.raises(ConfigError, match="at most 600 s"):
            store.lease("k", "ann", NOW, 3600)

    def test_a_lease_is_waited_for(self, store: Store) -> None:
        """Until it is free, or for as long as one likes."""
        assert store.wait("k", NOW, 0.0)
        store.lease("k", "ann", NOW, 10)
        assert not store.wait("k", NOW, 0.01)
        assert store.wait("k", NOW + 10, 0.0)
        assert store.wait("k", NOW + 9.99, 5.0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.wait, "k", NOW, 5.0)
            store.release("k", "ann")
            assert waiting.result()

    def test_threads_share_a_store(self, store: Store) -> None:
        """Adding, removing and searching at once, and never a score that is not the entry's own."""

        def work(thread: int) -> None:
            for n in range(40):
                angle = thread + n / 40
                made = entry(f"{thread}-{n}", unit(math.cos(angle), math.sin(angle)))
                store.put(made)
                for scored in store.nearest("s", unit(1.0, 0.0), 5, NOW):
                    across = struct.unpack("<2f", scored.entry.vector or b"")[0]
                    assert scored.score == pytest.approx(across, abs=1e-6)
                if n % 2:
                    store.remove(Filter(ids=(made.id,)))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert store.usage().entries == 160
        assert len(store.nearest("s", unit(1.0, 0.0), 1000, NOW)) == 160
