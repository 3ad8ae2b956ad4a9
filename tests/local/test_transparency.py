"""A prefix cache changes no answer: greedy tokens with it and without, with headstay and without.

In float32, one request at a time, each request without the cache under a salt of its own. `bench/local_transparency.py`
holds a server with the cache switched off beside it, and shows what bfloat16 gives.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headstay.local.device import BFLOAT16_FLAGS, OLDEST_PYTHON, read_facts
from langgraph_headstay.demo_server import own_server

BENCH = Path(__file__).parents[2] / "bench"
PROMPTS = 20
GENERATED = 16


@pytest.fixture(scope="module")
def bench() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield import_module("local_transparency")


@pytest.fixture(scope="module")
def texts(bench: Any) -> Any:
    return import_module("local_prompts")


@pytest.fixture(scope="module")
def askers(bench: Any, local: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Ask the shared server where it computes in float32, else one that does."""
    if not BFLOAT16_FLAGS & read_facts(OLDEST_PYTHON).flags:
        made = bench.Askers(request.getfixturevalue("base_url"))
        yield made
        made.close()
        return
    with own_server(local.home, "--dtype", "float32", "--context", "4096", "--kv-gib", "1") as started:
        made = bench.Askers(started.base_url)
        yield made
        made.close()


@pytest.fixture(scope="module")
def pairs(bench: Any, texts: Any, askers: Any) -> list[Any]:
    """Ask every prompt in four ways, and pair the answers with the bare client's without the cache."""
    found: list[Any] = []
    for kind in texts.KINDS:
        asked = texts.prompts(kind)
        answers = zip(asked, bench.without_cache(askers, asked), bench.with_cache(askers, asked), strict=True)
        for prompt, off, on in answers:
            assert [one.read for one in off.values()] == [0, 0]
            found += bench.pairs_of(prompt, off, on)
    return found


def test_the_answers_are_the_same_with_the_cache_and_without_with_headstay_and_without(
    bench: Any, pairs: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    told = bench.summed(pairs)
    with capsys.disabled():
        print("\n" + "\n".join(bench.lines({"dtype": "float32", **told})))
    assert told["compared"] == 3 * PROMPTS
    assert told["different"] == []
    assert told["equal"] + len(told["excused"]) == 3 * PROMPTS
    assert {len(pair.other.tokens) for pair in pairs} == {GENERATED}


def test_the_prompts_are_the_same_token_by_token_and_of_many_lengths(pairs: list[Any]) -> None:
    assert all(pair.other.prompt == pair.reference.prompt for pair in pairs)
    sizes = sorted({len(pair.reference.prompt) for pair in pairs})
    assert len(sizes) >= PROMPTS - 2
    assert 300 <= sizes[0] < 350
    assert 1_400 < sizes[-1] <= 1_500


def test_what_stood_in_the_cache_was_read(pairs: list[Any]) -> None:
    on = [pair for pair in pairs if pair.name.startswith("cache on")]
    assert len(on) == 2 * PROMPTS
    assert all(pair.other.read > 0 for pair in on)
    # headstay's requests find all of the prompt there, but for its last token and the block around it
    ours = [pair for pair in on if pair.name.endswith("headstay")]
    assert all(len(pair.other.prompt) - pair.other.read <= 32 for pair in ours)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_head_with_its_clock_taken_out_answers_alike_from_the_cache(
    bench: Any, texts: Any, askers: Any, number: int
) -> None:
    earlier, now = (texts.clocked(number, f"2026-11-29T10:0{minute}:00Z") for minute in (1, 7))
    salt = uuid4().hex
    assert askers.headstay(earlier, salt).read == 0
    warm, cold = askers.headstay(now, salt), askers.headstay(now, uuid4().hex)
    pair = bench.Pair(now, "with a slot", cold, warm)
    assert warm.prompt == cold.prompt
    assert cold.read == 0
    # the clock stands in the second sentence, and yet only the question and what is behind it is computed
    assert len(warm.prompt) - warm.read <= 32 + 100
    assert pair.parts_at is None or pair.is_excused, str(pair)


def test_headstay_verified_each_of_its_calls(askers: Any, pairs: list[Any]) -> None:
    rows = list(askers.ledger.rows())
    assert len(rows) >= 2 * PROMPTS
    assert {row.status for row in rows} <= {"cold", "ok"}
    assert {row.unverified for row in rows} == {None}
