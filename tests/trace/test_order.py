"""Requests come out in the order in which they were sent, however long the log is."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.ledger.usage import Usage
from headstay.trace.entry import Entry, Skipped
from headstay.trace.order import in_order

BODY = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "x" * 400}]}


def entries(times: list[float | None]) -> list[Entry]:
    return [Entry(line=number, wire="openai-chat", body=BODY, started=time) for number, time in enumerate(times, 1)]


def lines(pieces: list[Entry | Skipped], window: int) -> list[int]:
    return [piece.line for piece in in_order(pieces, window=window)]


@pytest.mark.parametrize("window", [1_500, 2_000, 1_000_000])
@pytest.mark.parametrize("times", [[9.0, 8.0, 7.0, 6.0, 5.0, 4.0], [3.0, 1.0, 2.0, 3.0, 1.0, 9.0], [None] * 6])
def test_any_window_gives_the_order_of_sending(times: list[float | None], window: int) -> None:
    expected = sorted(range(1, 7), key=lambda line: (times[line - 1] or 0.0, line))
    assert lines([*entries(times)], window) == expected


def test_a_request_that_is_a_little_late_is_put_right_within_the_window() -> None:
    times = [float(number) for number in range(100)]
    times[50], times[51] = times[51], times[50]
    assert lines([*entries([*times])], 5_000) == [*range(1, 51), 52, 51, *range(53, 101)]


@given(times=st.lists(st.none() | st.floats(0, 100), max_size=40), window=st.integers(0, 20_000))
def test_nothing_is_lost_or_doubled(times: list[float | None], window: int) -> None:
    assert sorted(lines([*entries(times)], window)) == list(range(1, len(times) + 1))


def test_a_request_without_a_time_stays_behind_the_one_before_it() -> None:
    assert lines([*entries([5.0, None, 3.0, None])], 1_000_000) == [3, 4, 1, 2]


def test_what_waits_in_a_file_comes_back_whole() -> None:
    usage = Usage(input_tokens=10, cache_read_tokens=4, cache_write_tokens=3, write_by_ttl={"1h": 3}, output_tokens=2)
    told = {"conversation": "t", "account": "a", "served_by": "fp", "reply": ("x", "é\ud800"), "context": {"a": "b"}}
    full = [
        replace(one, usage=usage, answered=9.5, reply_id="r", exact=False, **told) for one in entries([3.0, 2.0, 1.0])
    ]
    skipped = Skipped(4, "not JSON")
    assert list(in_order([*full, skipped], window=1_000)) == [skipped, *reversed(full)]
