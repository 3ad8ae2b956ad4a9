"""What users of other semantic caches complained about and a store can answer for."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from headstay.errors import SemanticStoreError
from headstay.semantic.conformance import NOW, entry, queries, unit
from headstay.semantic.entry import Filter
from headstay.semantic.sqlite_store import SQLiteStore


def test_complaint_12_another_width_is_an_error_and_not_silence() -> None:
    store = SQLiteStore()
    store.put(entry("a", unit(*[1.0] * 384)))
    with pytest.raises(SemanticStoreError, match=r"have 384 numbers, this one has 768.* embedder's fingerprint"):
        store.nearest("s", unit(*[1.0] * 768), 1, NOW)


def test_complaint_13_a_popular_answer_expires_like_any_other() -> None:
    store = SQLiteStore()
    made = entry("a", unit(1.0, 0.0), expires=NOW + 60)
    store.put(made)
    for second in range(60):
        assert store.get_exact(made.exact, NOW + second) is not None
        store.touch(made.id, NOW + second)
        store.put(entry(f"other {second}", created=NOW + second))
    assert store.get_exact(made.exact, NOW + 60) is None
    assert queries(store, unit(1.0, 0.0), now=NOW + 60) == []


def test_complaint_14_each_entry_has_its_own_time_and_an_expired_one_does_not_win() -> None:
    store = SQLiteStore()
    for n, seconds in enumerate((1.0, 0.5, 3600.0, 1e-3)):
        store.put(entry(str(n), unit(1.0, n / 10), expires=NOW + seconds))
    at = {0.0: ["0", "1", "2", "3"], 1e-3: ["0", "1", "2"], 0.5: ["0", "2"], 1.0: ["2"], 3599.999: ["2"], 3600.0: []}
    for seconds, alive in at.items():
        assert queries(store, unit(1.0, 0.0), k=1, now=NOW + seconds) == alive[:1]
        assert queries(store, unit(1.0, 0.0), now=NOW + seconds) == alive
    # no time of day or zone is in it: a second is a second at any date
    far = 4_102_444_800.25
    store.put(entry("far", unit(1.0, 0.0), created=far, expires=far + 0.25))
    assert queries(store, unit(1.0, 0.0), now=far + 0.125) == ["far"]
    assert queries(store, unit(1.0, 0.0), now=far + 0.25) == []


def test_complaint_16_the_expired_do_not_stay_in_memory() -> None:
    store = SQLiteStore()
    for n in range(2_000):
        store.put(entry(str(n), unit(1.0, n), created=NOW + n, expires=NOW + n + 50))
        store.nearest("s", unit(1.0, 0.0), 1, NOW + n)
    index = store._searcher().indexes.get("s")
    assert index is not None
    assert (len(index), len(index._rows) < 500) == (50, True)
    assert store.usage().entries == len(store.page(Filter(), limit=1_000).entries) == 50


def test_complaint_24_scores_of_concurrent_requests_do_not_mix() -> None:
    store = SQLiteStore()
    store.put(entry("a", unit(1.0, 0.0)))

    def ask(degrees: int) -> float:
        angle = math.radians(degrees)
        return store.nearest("s", unit(math.cos(angle), math.sin(angle)), 1, NOW)[0].score

    with ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(ask, [*range(360)] * 3))
    assert scores == pytest.approx([math.cos(math.radians(degrees)) for degrees in range(360)] * 3, abs=1e-6)
