"""Verdicts, each row worked out by hand."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.causes import Break, Cause, Owner
from headstay.ledger.usage import Usage
from headstay.ledger.verdict import Verdict, judge

TOOL_ORDER = Break(Cause.TOOL_ORDER, "application", "tools[3]", "keep the tools in one order")
MARKERS = Break(Cause.TOOL_ADDED, "policy", "tools[9]", "batched with the next break")


def reply(read: int, *, prompt: int = 200_000) -> Usage:
    return Usage(input_tokens=prompt, cache_read_tokens=read)


@pytest.mark.parametrize(
    ("expected", "read", "status", "missing"),
    [
        (10_000, 10_000, "ok", 0),
        (10_000, 10_500, "ok", 0),  # more than expected is no fault
        (10_000, 8_000, "ok", 2_000),  # 5 % is 500, so 2,000 tokens are tolerated: exactly 2,000 still is
        (10_000, 7_999, "short", 2_001),
        (100_000, 95_000, "ok", 5_000),  # 5 % of 100,000 is 5,000: exactly 5 % still is
        (100_000, 94_999, "short", 5_001),
        (40_000, 38_000, "ok", 2_000),  # both limits meet at 40,000
        (40_000, 37_999, "short", 2_001),
        (1_500, 0, "short", 1_500),  # below 2,000, but nothing at all was read
        (1_500, 1, "ok", 1_499),
        (1, 0, "short", 1),
        (0, 0, "cold", 0),
        (0, 700, "ok", 0),  # someone else had warmed it
    ],
)
def test_tolerance(expected: int, read: int, status: str, missing: int) -> None:
    verdict = judge(expected, reply(read))
    assert (verdict.status, verdict.missing) == (status, missing)
    assert (verdict.expected, verdict.reported) == (expected, read)
    assert (verdict.cause, verdict.owner) == ((Cause.UNKNOWN, "provider") if status == "short" else (None, None))


@pytest.mark.parametrize(
    ("facts", "cause", "owner"),
    [
        ({}, Cause.UNKNOWN, "provider"),
        ({"breaks": [TOOL_ORDER]}, Cause.TOOL_ORDER, "application"),
        ({"breaks": [MARKERS, TOOL_ORDER]}, Cause.TOOL_ADDED, "policy"),  # the earliest position comes first
        ({"ttl_seconds": 300, "gap_seconds": 301}, Cause.TTL_EXPIRED, "expiry"),
        ({"ttl_seconds": 300, "gap_seconds": 300}, Cause.UNKNOWN, "provider"),  # lives to its last second
        ({"ttl_seconds": 300}, Cause.UNKNOWN, "provider"),  # an unknown gap proves nothing
        ({"gap_seconds": 9_999}, Cause.UNKNOWN, "provider"),
        ({"minimum_tokens": 4_096}, Cause.BELOW_MINIMUM, "provider"),
        ({"minimum_tokens": 3_000}, Cause.UNKNOWN, "provider"),  # exactly the minimum can be cached
        ({"writer_in_flight": True}, Cause.COLD_FAN_OUT, "application"),
        ({"routed": True}, Cause.PROVIDER_ROUTING, "provider"),
        ({"writer_in_flight": True, "routed": True}, Cause.COLD_FAN_OUT, "application"),
        # each cause in turn hides the ones after it
        (
            {
                "breaks": [TOOL_ORDER],
                "ttl_seconds": 1,
                "gap_seconds": 2,
                "minimum_tokens": 4_096,
                "writer_in_flight": True,
                "routed": True,
            },
            Cause.TOOL_ORDER,
            "application",
        ),
        (
            {"ttl_seconds": 1, "gap_seconds": 2, "minimum_tokens": 4_096, "writer_in_flight": True},
            Cause.TTL_EXPIRED,
            "expiry",
        ),
        ({"minimum_tokens": 4_096, "writer_in_flight": True}, Cause.BELOW_MINIMUM, "provider"),
    ],
)
def test_cause_of_a_short_read(facts: dict[str, Any], cause: Cause, owner: Owner) -> None:
    assert judge(3_000, reply(0), **facts) == Verdict("short", 3_000, 0, 3_000, cause, owner)


@pytest.mark.parametrize(
    ("facts", "cause", "owner"),
    [
        ({}, None, None),  # the first call of a lane needs no excuse
        ({"breaks": [TOOL_ORDER]}, Cause.TOOL_ORDER, "application"),
        ({"minimum_tokens": 1_024}, Cause.BELOW_MINIMUM, "provider"),  # all 1,000 tokens are less than 1,024
        ({"minimum_tokens": 1_000}, None, None),
        ({"ttl_seconds": 300, "gap_seconds": 400}, Cause.TTL_EXPIRED, "expiry"),
        ({"routed": True}, None, None),  # nothing was expected, so nothing is missing
    ],
)
def test_cause_of_a_cold_call(facts: dict[str, Any], cause: Cause | None, owner: Owner | None) -> None:
    assert judge(0, reply(0, prompt=1_000), **facts) == Verdict("cold", 0, 0, 0, cause, owner)


def test_a_break_that_cost_nothing_is_ok() -> None:
    assert judge(9_000, reply(9_000), breaks=[TOOL_ORDER]) == Verdict("ok", 9_000, 9_000)


@pytest.mark.parametrize(
    ("expected", "usage", "why", "reason"),
    [
        (None, reply(10), None, "no expectation for this call"),
        (10, None, None, "the provider reported no usage"),
        (None, None, None, "the provider reported no usage"),
        (10, reply(10), "the hook did not run", "the hook did not run"),
    ],
)
def test_unverified_is_never_fine(expected: int | None, usage: Usage | None, why: str | None, reason: str) -> None:
    verdict = judge(expected, usage, unverified=why, breaks=[TOOL_ORDER])
    assert (verdict.status, verdict.reason, verdict.cause) == ("unverified", reason, None)
    assert verdict.reported == (None if usage is None else 10)


@given(
    expected=st.integers(0, 1_000_000),
    read=st.integers(0, 1_000_000),
    gap=st.none() | st.floats(0, 1e6),
    minimum=st.integers(0, 5_000),
    in_flight=st.booleans(),
)
def test_short_means_a_cause_and_an_owner(
    expected: int, read: int, gap: float | None, minimum: int, in_flight: bool
) -> None:
    verdict = judge(
        expected,
        reply(read, prompt=max(read, expected)),
        ttl_seconds=300,
        gap_seconds=gap,
        minimum_tokens=minimum,
        writer_in_flight=in_flight,
    )
    assert (verdict.cause is None) == (verdict.owner is None)
    assert verdict.missing == max(0, expected - read)
    if verdict.status == "short":
        assert verdict.cause is not None
        assert read == 0 or verdict.missing > 2_000
    if verdict.status == "ok":
        assert verdict.cause is None
    assert (verdict.status == "cold") == (expected == read == 0)
