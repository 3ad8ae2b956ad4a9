"""What of an input to a chain is the question, and what else has content to compare."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, cast
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_headstay import SemanticCache, cached

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"


class Plan(Enum):
    BASIC = 1
    GOLD = 2

    def __repr__(self) -> str:
        """Say what two members have in common."""
        return "a plan"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Customer:
    name: str
    since: date = date(2020, 1, 1)
    orders: list[int] = field(default_factory=list[int])


class Client:
    """Has no content to compare."""


def name_in(config: Any) -> str:
    """Read the config."""
    return str(config["configurable"]["name"])


def _with_note(note: str) -> Customer:
    customer = Customer("Ann")
    customer.__dict__["note"] = note
    return customer


def runs_of(make: Callable[[], Any], cache: SemanticCache, *, other: Callable[[], Any] | None = None) -> int:
    """Ask twice beside a value, in other words; the second time beside another one where that is given."""
    runs: list[Any] = []

    def answer(given: Any) -> str:
        runs.append(given)
        return "Use the link in the settings."

    chain = cached(RunnableLambda(answer), cache=cache, query="question", name="desk")
    chain.invoke({"question": RESET, "beside": make()})
    chain.invoke({"question": RESET_TOO, "beside": (other or make)()})
    return len(runs)


PLAIN: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: date(2026, 1, 1), lambda: date(2026, 1, 2)),
    (lambda: datetime(2026, 1, 1, tzinfo=UTC), lambda: datetime(2026, 1, 1)),
    (lambda: time(9), lambda: time(10)),
    (lambda: timedelta(days=1), lambda: timedelta(days=2)),
    (lambda: UUID(int=1), lambda: UUID(int=2)),
    (lambda: Decimal("1.5"), lambda: Decimal("1.6")),
    (lambda: Plan.BASIC, lambda: Plan.GOLD),
    (lambda: Customer("Ann"), lambda: Customer("Bob")),
    (lambda: Customer("Ann", orders=[1]), lambda: Customer("Ann", orders=[2])),
    (lambda: _with_note("a"), lambda: _with_note("b")),
    (lambda: (1, 2), lambda: (2, 1)),
    (lambda: Point(1, 2), lambda: Point(2, 1)),
    (lambda: {"b", "a"}, lambda: {"a", "c"}),
    (lambda: [{"when": date(2026, 1, 1)}], lambda: [{"when": date(2026, 1, 2)}]),
    (lambda: b"x", lambda: b"y"),
]


@pytest.mark.parametrize(("same", "other"), PLAIN)
def test_a_value_counts_by_its_content(same: Callable[[], Any], other: Callable[[], Any]) -> None:
    with SemanticCache() as cache:
        assert runs_of(same, cache) == 1
    with SemanticCache() as cache:
        assert runs_of(same, cache, other=other) == 2
        assert cache.metrics().misses == {"nothing_stored": 2}


UNKNOWN: list[Callable[[], Any]] = [
    Client,
    object,
    lambda: Customer("Ann", orders=cast("Any", [Client()])),
    lambda: [Client()],
    lambda: name_in,  # answers by anything in the config
]


@pytest.mark.parametrize("make", UNKNOWN)
def test_what_has_no_content_is_not_answered(make: Callable[[], Any], cache: SemanticCache) -> None:
    assert runs_of(make, cache) == 2
    assert cache.metrics().misses == {"opaque_schema": 2}


def _warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "headstay.semantic"]


def test_a_key_that_is_not_there_is_said_once(cache: SemanticCache, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "headstay.semantic")
    chain = cached(RunnableLambda(lambda _: "Yes."), cache=cache, query="qustion", name="desk")
    for _ in range(3):
        assert chain.invoke({"question": RESET, "style": "brief"}) == "Yes."
    assert _warned(caplog) == [
        "cached(query='qustion'): 'qustion' is no key of the input; it has: question, style; the call went on without "
        "the cache"
    ]
    assert cache.metrics().misses == {"no_query": 3}
    assert cache.metrics().stored == 0


@pytest.mark.parametrize("odd", [None, "", "  ", 7, ["translate", RESET], HumanMessage(RESET)])
def test_a_question_that_is_no_text_is_not_answered(
    odd: Any, cache: SemanticCache, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "headstay.semantic")
    chain = cached(RunnableLambda(lambda _: "Yes."), cache=cache, query="question", name="desk")
    chain.invoke({"question": odd})
    chain.invoke({"question": odd, "messages": [HumanMessage(RESET)]})
    assert cache.metrics().misses == {"no_query": 2}
    assert len(_warned(caplog)) == 1
    assert "the input has no text under 'question'" in _warned(caplog)[0]


@pytest.mark.parametrize("query", [None, lambda _: None, lambda _: 7, lambda _: ""])
def test_an_input_without_a_question_is_no_conversation(query: Any, cache: SemanticCache) -> None:
    chain = cached(RunnableLambda(lambda _: "Yes."), cache=cache, query=query, name="desk")
    chain.invoke({"question": RESET})
    chain.invoke(7)
    assert cache.metrics().misses == {"no_query": 2}
    chain.invoke([HumanMessage(RESET), AIMessage("Yes.")])
    assert cache.metrics().misses == {"no_query": 2, "not_human_last": 1}
