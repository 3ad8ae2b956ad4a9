"""What stands around a question must change neither which answers are served nor how often.

The ways to ask are those of `bench/semantic_envelope.py`. The stream is smaller: 400 questions of five of the intents
that nothing was developed on, so that many of them are reworded repeats.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"
QUESTIONS = 400
INTENTS = 5
REPEATS = 100
LEARNING = 3  # questions that go into a template before it is known


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        envelope, stream = import_module("semantic_envelope"), import_module("semantic_stream")
        pool = stream.banking77("reported")
        chosen = sorted({question.intent for question in pool})[:INTENTS]
        dense = [question for question in pool if question.intent in chosen]
        found = envelope.run(stream.shuffled(dense, 7, QUESTIONS), stream.RememberingMiniLM())
        yield {row.name: row for row in found}


@pytest.fixture(scope="module")
def bare(rows: dict[str, Any]) -> Any:
    return rows["bare, set_llm_cache"]


def test_the_bare_questions_hit_often_enough_to_compare(bare):
    assert bare.hits >= 60
    assert bare.wrong <= 0.03 * bare.hits
    assert bare.repeats == REPEATS


def test_a_long_system_prompt_changes_no_answer(rows, bare):
    row = rows["600-token system prompt, set_llm_cache"]
    assert (row.hits, row.wrong, row.repeats) == (bare.hits, bare.wrong, REPEATS)


def test_a_template_costs_no_more_than_its_first_three_questions(rows, bare):
    row = rows["RAG template, constant context, set_llm_cache"]
    # those three are stored for identical requests only, so the next one like each of them is a miss too
    assert bare.hits - 2 * LEARNING <= row.hits <= bare.hits
    assert row.wrong <= 0.03 * row.hits
    assert row.repeats == REPEATS


def test_a_context_of_its_own_leaves_identical_requests_and_says_why(rows):
    row = rows["RAG template, own context, set_llm_cache"]
    assert row.hits == 0
    assert row.reasons == {"templated_text": QUESTIONS}
    assert row.repeats == REPEATS


def test_a_cached_chain_hits_as_the_bare_question_does_whatever_is_retrieved(rows, bare):
    row = rows["RAG chain, own context, cached(query=)"]
    assert (row.hits, row.wrong, row.repeats) == (bare.hits, bare.wrong, REPEATS)


@pytest.mark.parametrize("place", ["the tail", "a Slot"])
def test_a_clock_that_affects_no_answer_changes_none(rows, bare, place):
    row = rows[f"clock in {place}, affects_answer=False"]
    assert (row.hits, row.wrong, row.repeats) == (bare.hits, bare.wrong, REPEATS)


@pytest.mark.parametrize("place", ["the tail", "a Slot"])
def test_an_undeclared_clock_leaves_identical_requests(rows, place):
    row = rows[f"clock in {place}, undeclared"]
    assert row.hits == 0
    assert row.repeats == REPEATS
