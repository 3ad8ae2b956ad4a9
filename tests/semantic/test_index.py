"""The index in memory: what it finds, in small scopes and behind a sketch, and how it shrinks."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from headstay.semantic.index import SHORTLIST, SKETCH_ABOVE, Indexes, Mark, ScopeIndex

START = Mark(1, 0, 0)
FOR_EVER = (-math.inf, math.inf)


def clustered(count: int, width: int, seed: int) -> NDArray[np.float32]:
    """Unit vectors in clusters that all lean to one side, as the questions of one subject do."""
    random = np.random.default_rng(seed)
    lean = random.standard_normal(width)
    centres = random.standard_normal((200, width)) + 0.5 * lean
    return unit(centres[random.integers(0, 200, count)] + 0.6 * random.standard_normal((count, width)))


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype("<f4")
    return scaled


def filled(vectors: NDArray[np.float32]) -> ScopeIndex:
    index = ScopeIndex(vectors.shape[1], START)
    index.reserve(len(vectors))
    for start in range(0, len(vectors), 5_000):
        part = vectors[start : start + 5_000]
        index.add(range(start, start + len(part)), part.tobytes(), [FOR_EVER] * len(part))
    return index


def recall(
    index: ScopeIndex, vectors: NDArray[np.float32], asked: NDArray[np.float32], k: int, alive: NDArray[np.bool_]
) -> float:
    hits = 0
    for query in asked:
        scores = np.where(alive, vectors @ query, -2.0)
        found, _ = index.search(query.tobytes(), k, 0.0)
        hits += len({*found} & {*np.argsort(-scores)[:k].tolist()})
    return hits / (k * len(asked))


@pytest.mark.parametrize("width", [384, 100])
def test_behind_a_sketch_near_neighbours_are_found(width: int) -> None:
    vectors = clustered(SKETCH_ABOVE + 3_000, width, 1)
    index = filled(vectors)
    assert index._sketch is not None
    random = np.random.default_rng(2)
    everything = np.ones(len(vectors), bool)
    for noise, floor in ((0.3, 1.0), (0.8, 0.99)):  # cosines to the source of about 0.96 and 0.78
        picked = vectors[random.integers(0, len(vectors), 60)]
        asked = unit(picked + noise * random.standard_normal(picked.shape) / math.sqrt(width))
        assert recall(index, vectors, asked, 1, everything) >= floor
        assert recall(index, vectors, asked, 8, everything) >= floor - 0.01


def test_random_vectors_have_no_near_neighbour_and_themselves_are_found() -> None:
    random = np.random.default_rng(3)
    vectors = unit(random.standard_normal((SKETCH_ABOVE + 10, 384)))
    index = filled(vectors)
    for place in range(0, len(vectors), 997):
        assert index.search(vectors[place].tobytes(), 1, 0.0)[0] == [place]


def test_what_is_taken_out_leaves_the_others_findable() -> None:
    vectors = clustered(SKETCH_ABOVE + 5_000, 64, 4)
    index = filled(vectors)
    random = np.random.default_rng(5)
    alive = np.ones(len(vectors), bool)
    for _ in range(5):
        gone = random.choice(np.flatnonzero(alive), 3_000, replace=False)
        index.remove(gone.tolist())
        alive[gone] = False
        assert len(index) == alive.sum()
        assert index._count <= 1.34 * len(index) + 64  # the dead are compacted
        asked = vectors[random.integers(0, len(vectors), 30)]
        assert recall(index, vectors, asked, 3, alive) == 1.0
    assert index._sketch is None  # few enough to do without
    again = clustered(SKETCH_ABOVE, 64, 6)
    index.add(range(len(vectors), len(vectors) + len(again)), again.tobytes(), [FOR_EVER] * len(again))
    both = np.concatenate([vectors, again])
    assert recall(index, both, again[:30], 3, np.concatenate([alive, np.ones(len(again), bool)])) == 1.0


def test_one_by_one_is_the_same_as_all_at_once() -> None:
    vectors = clustered(300, 16, 7)
    index = ScopeIndex(16, START)
    for row, vector in enumerate(vectors):
        index.add([row], vector.tobytes(), [FOR_EVER])
    together = filled(vectors)
    for vector in vectors[::7]:
        assert index.search(vector.tobytes(), 9, 0.0) == together.search(vector.tobytes(), 9, 0.0)


def test_the_expired_are_reported_once_and_stay_out() -> None:
    vectors = np.eye(4, dtype="<f4")
    index = ScopeIndex(4, START)
    index.add([10, 20, 30, 40], vectors.tobytes(), [(0.0, 5.0), (0.0, 6.0), (3.0, math.inf), FOR_EVER])
    assert index.search(vectors[0].tobytes(), 9, 2.0) == ([10, 20, 40], [])  # 30 is not yet
    assert index.search(vectors[0].tobytes(), 1, 5.0) == ([20], [10])
    assert index.search(vectors[0].tobytes(), 9, 4.0) == ([20, 30, 40], [])
    index.remove([20, 20, 99])
    index.remove([20])
    assert len(index) == 2


def test_more_neighbours_than_the_shortlist_can_be_asked_for() -> None:
    vectors = clustered(SKETCH_ABOVE + 100, 64, 8)
    found, _ = filled(vectors).search(vectors[5].tobytes(), SHORTLIST + 500, 0.0)
    assert (len(found), len(set(found)), found[0]) == (SHORTLIST + 500, SHORTLIST + 500, 5)


def test_indexes_are_dropped_by_last_use() -> None:
    one = filled(clustered(100, 16, 9))
    indexes = Indexes(3 * one.nbytes)
    for name in "abc":
        indexes.keep(name, filled(clustered(100, 16, 9)))
    assert indexes.get("a") is not None
    indexes.keep("d", filled(clustered(100, 16, 9)))
    assert [name for name in "abcd" if indexes.get(name)] == ["a", "c", "d"]
    indexes.drop("a")
    indexes.drop("nobody")
    assert indexes.nbytes == 2 * one.nbytes
