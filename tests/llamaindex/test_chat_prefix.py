"""What successive prompts share on the wire, before and after; the figures are those of `bench/llama_prefix.py`.

The tests are async because LlamaIndex leaves a loop open that it makes where none runs.
"""

import importlib
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from headstay.emulator import Emulator, serve

BENCH = Path(__file__).parents[2] / "bench"
# What the plain engines share at most; the note of the design measured 7.7, 21.1, 82.1, 60.7 and 82.8 % of the prompt.
PLAIN = {
    "ContextChatEngine": 0.10,
    "CondensePlusContextChatEngine": 0.25,
    "ContextChatEngine, own template": 0.95,
    "RetrieverQueryEngine, compact": 0.80,
    "same, with LLM.system_prompt": 0.95,
}


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("llama_prefix")
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def scribe(bench: ModuleType) -> Iterator[Emulator]:
    with serve(responder=bench.answer) as running:
        yield running


@pytest.mark.parametrize("variant", ["prefix_safe", "with cache_aware"])
@pytest.mark.parametrize("name", PLAIN)
async def test_the_static_part_is_kept(name: str, variant: str, bench: ModuleType, scribe: Emulator) -> None:
    path = next(path for path in bench.PATHS if path.name == name)
    rows = bench.measure(path, scribe, variant)
    assert len(rows) == 4  # pairs of five turns
    assert [row.lost for row in rows] == [()] * 4
    assert min(row.static_share for row in rows) >= bench.TARGET


@pytest.mark.parametrize("name", PLAIN)
async def test_the_measure_sees_what_plain_engines_lose(name: str, bench: ModuleType, scribe: Emulator) -> None:
    path = next(path for path in bench.PATHS if path.name == name)
    rows = bench.measure(path, scribe, "plain")
    assert [row.lost for row in rows] == [()] * 4
    assert rows[-1].static_share < PLAIN[name]


async def test_the_control_shares_everything(bench: ModuleType, scribe: Emulator) -> None:
    rows = bench.measure(bench.CONTROL, scribe, "plain")
    assert [row.share for row in rows] == [1.0] * 4


@pytest.mark.parametrize("variant", ["prefix_safe", "with cache_aware"])
async def test_a_turn_extends_the_prompt_before_up_to_its_question(
    variant: str, bench: ModuleType, scribe: Emulator
) -> None:
    for path in bench.PATHS[:3]:
        prompts = bench.play(path, scribe, variant, 5)
        for turn, (first, second) in enumerate(pairwise(prompts)):
            question = bench.QUESTIONS[turn]
            head, found, _ = first.rpartition(f"<user>{question}")
            assert found
            assert second.startswith(f"{head}<user>{question}")


async def test_compare_counts_what_stands_in_the_common_part(bench: ModuleType) -> None:
    path = bench.Path("hand", None, ("abcd", "xyz", "gone"))
    row = bench.compare(path, "plain", "abcd--1xyz", "abcd--2xyz", ("history",))
    assert (row.common, row.shorter, row.static, row.kept, row.lost) == (6, 10, 18, 4, ("gone", "history"))
