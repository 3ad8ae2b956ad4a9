"""What a log's breaks cost, and what else kept a prompt from being read."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from tests.lint.conftest import MODELS, RULES, Log, body_of, talk, used

from headstay.causes import Cause
from headstay.ledger.price import rates
from headstay.lint import lint
from headstay.lint.reach import size
from headstay.lint.report import Report
from headstay.lint.turn import take
from headstay.trace.entry import Entry, Skipped

HOUR = 3600.0
START = 1_795_946_400.0  # 2026-11-29 10:00 UTC


def found(log: Log) -> list[tuple[int, Cause, int]]:
    """Return line, cause and tokens lost of each break."""
    return [(one.line, one.cause, one.lost_tokens) for one in report(log).breaks]


def report(log: Log, **settings: Any) -> Report:
    return lint(log.entries, **settings)


def whole(log: Log, line: int) -> int:
    """Return the estimated tokens of a whole request."""
    return int(size(take(1, log.entries[line - 1]).request))


def with_usage(log: Log, *reads: int, **more: Any) -> Log:
    """Give each request the usage in which its tokens are as estimated, and these were read."""
    for index, read in enumerate(reads):
        told = used(whole(log, index + 1), read, **more)
        log.entries[index] = replace(log.entries[index], usage=told)
    return log


def timed(log: Log, *seconds: float) -> Log:
    """Give each request the time at which it was sent."""
    log.entries = [replace(one, started=START + at) for one, at in zip(log.entries, seconds, strict=True)]
    return log


def test_an_empty_log_is_clean() -> None:
    told = lint([])
    assert told.clean
    assert (told.requests, told.conversations, told.breaks, told.fixes) == (0, 0, (), ())


def test_a_clock_costs_the_head_and_all_behind_it(log: Log) -> None:
    for minute, said in enumerate(talk("ada", 3)):
        log.ask(said, f"It is 10:{minute:02d}. {RULES}")
    told = report(log)
    assert [one.cause for one in told.breaks] == [Cause.CLOCK_IN_HEAD] * 2
    assert not told.clean
    assert [(one.line, one.after_line, one.conversation, one.turn) for one in told.breaks] == [
        (2, 1, 1, 2),
        (3, 2, 1, 3),
    ]
    # Nothing before the clock is long enough to be cached; before 5.6 OpenAI reads in steps of 128 tokens.
    readable = [
        whole(log, line) if log.wire == "anthropic-messages" else whole(log, line) // 128 * 128 for line in (1, 2)
    ]
    assert [one.lost_tokens for one in told.breaks] == pytest.approx(readable, abs=1)
    assert told.readable_tokens == told.lost.lost_tokens
    assert told.read_tokens == 0
    (fix,) = told.fixes
    assert (fix.cause, fix.sum.breaks, fix.lines) == (Cause.CLOCK_IN_HEAD, 2, [2, 3])
    assert "Slot(" in fix.remedy


def test_money_is_the_price_of_writing_less_that_of_reading() -> None:
    log = Log("anthropic-messages")
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:{minute:02d}. {RULES}")
    told = report(log, prices_on=date(2026, 11, 29))
    price = rates("anthropic", MODELS["anthropic-messages"])
    assert price is not None
    tokens = told.lost.lost_tokens
    assert tokens > 3_000
    assert told.lost.lost_usd == pytest.approx((price.write["5m"] - price.read) * tokens / 1e6)
    assert told.priced_on == "2026-11-29"
    assert told.price_date >= "2026-01-01"


def test_tokens_that_were_not_written_cost_the_input_price() -> None:
    log = Log("openai-chat")
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:{minute:02d}. {RULES}")
    with_usage(log, 0, 0)
    told = report(log)
    price = rates("openai", MODELS["openai-chat"])
    assert price is not None
    assert told.lost.lost_usd == pytest.approx((price.input - price.read) * told.lost.lost_tokens / 1e6)


def test_a_model_without_a_price_is_counted() -> None:
    log = Log("openai-chat")
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:{minute:02d}. {RULES}", model="my-own-model")
    told = report(log)
    assert [one.lost_usd for one in told.breaks] == [None]
    assert told.lost.lost_tokens > 0
    assert (told.lost.unpriced, told.lost.lost_usd) == (1, None)


def test_the_causes_of_one_request_add_up() -> None:
    log = Log("anthropic-messages")
    said = talk("ada", 4)[-1]
    log.ask(said)
    edited = [*said[:2], said[2] + " (edited)", *said[3:], "ada: the last answer, said at some length", "ada: bye"]
    log.ask(edited, f"{RULES} Today is 2026-11-30.")
    log.entries[0] = replace(log.entries[0], body=body_of(said, f"{RULES} Today is 2026-11-29."))
    told = report(log)
    clock, edit = told.breaks
    assert (clock.cause, edit.cause) == (Cause.CLOCK_IN_HEAD, Cause.HISTORY_EDITED)
    assert clock.lost_tokens + edit.lost_tokens == told.readable_tokens - told.read_tokens
    # With the clock mended the request reads up to the marker on the system text, and not the edited history.
    assert edit.lost_tokens == pytest.approx(sum(map(len, said)) / 4.3, abs=3)


def test_a_short_prompt_loses_nothing(log: Log) -> None:
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:{minute:02d}. Be kind.", marked=False)
    told = report(log)
    assert [(one.cause, one.lost_tokens) for one in told.breaks] == [(Cause.CLOCK_IN_HEAD, 0)]
    assert any("too short" in notice for notice in told.notices)


def test_a_name_behind_the_shared_head_is_no_break_between_conversations() -> None:
    log = Log("openai-chat")
    for name in ("Ada", "Grace"):
        log.ask([f"{name} asks for her parcel"], f"{RULES}\nThe customer is {name}.")
    told = report(log)
    assert told.clean
    assert told.read_tokens == told.readable_tokens > 3_000
    log.ask(["Joan asks for hers"], f"The customer is Joan.\n{RULES}")
    log.ask(["Mary asks for hers"], f"The customer is Mary.\n{RULES}")
    assert [(one.line, one.cause) for one in report(log).breaks][-1] == (4, Cause.VALUE_IN_HEAD)


def test_a_log_without_markers_says_so_once() -> None:
    log = Log("anthropic-messages")
    for said in talk("ada", 3):
        log.ask(said, marked=False)
    told = report(log)
    assert told.clean
    assert told.notices == (
        "nothing is cached for 2 of the requests: the one before carries no cache marker, and without one nothing is "
        "written",
    )
    assert told.read_tokens == 0
    (fix,) = told.fixes
    assert (fix.cause, fix.sum.breaks, fix.lines) == (Cause.MARKERS_MISSING, 0, [2, 3])
    assert fix.sum.lost_tokens == told.readable_tokens > 6_000
    assert fix.sum.lost_usd is not None


@pytest.mark.parametrize(("pause", "lost"), [(250.0, True), (350.0, False)])
def test_a_break_after_the_entry_had_expired_lost_nothing(pause: float, lost: bool) -> None:
    log = Log("anthropic-messages")
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:{minute:02d}. {RULES}")
    timed(log, 0.0, pause)
    ((_, cause, tokens),) = found(log)
    assert cause == Cause.CLOCK_IN_HEAD
    assert (tokens > 0) is lost


class TestWithUsage:
    """Causes that no two requests show."""

    def talked(self, wire: Any = "anthropic-messages", turns: int = 2, **more: Any) -> Log:
        log = Log(wire)
        for said in talk("ada", turns):
            log.ask(said, **more)
        return log

    def test_what_was_read_as_expected_is_clean(self, log: Log) -> None:
        for said in talk("ada", 3):
            log.ask(said)
        with_usage(log, 0, whole(log, 1), whole(log, 2))
        told = report(log)
        assert told.clean
        assert told.with_usage == 3
        assert told.read_tokens == pytest.approx(told.readable_tokens, abs=1)

    def test_expired(self) -> None:
        log = timed(with_usage(self.talked(), 0, 0), 0.0, 301.0)
        ((line, cause, tokens),) = found(log)
        assert (line, cause) == (2, Cause.TTL_EXPIRED)
        assert tokens == pytest.approx(whole(log, 1), abs=1)

    def test_an_expired_entry_takes_the_blame_for_a_break_too(self) -> None:
        log = Log("anthropic-messages")
        for minute, said in enumerate(talk("ada", 2)):
            log.ask(said, f"It is 10:{minute:02d}. {RULES}")
        timed(with_usage(log, 0, 0), 0.0, HOUR)
        clock, (line, cause, tokens) = found(log)
        assert clock == (2, Cause.CLOCK_IN_HEAD, 0)
        assert (line, cause) == (2, Cause.TTL_EXPIRED)
        assert tokens == pytest.approx(whole(log, 1), abs=1)

    def test_a_cold_fan_out(self) -> None:
        log = Log("anthropic-messages")
        for name in ("ada", "bob"):
            log.ask([f"{name}: one question"])
        with_usage(log, 0, 0)
        log.entries = [
            replace(one, started=START + at, answered=START + at + 3)
            for one, at in zip(log.entries, (0, 1), strict=True)
        ]
        assert [cause for _, cause, _ in found(log)] == [Cause.COLD_FAN_OUT]

    def test_below_the_minimum(self) -> None:
        log = Log("anthropic-messages")
        for said in talk("ada", 2):
            log.ask(said, "Be kind. " * 150)  # 1,350 characters are about 314 tokens of 512
        with_usage(log, 0, 0)
        assert [(line, cause, tokens) for line, cause, tokens in found(log)] == [(2, Cause.BELOW_MINIMUM, 0)]

    def test_another_replica(self) -> None:
        log = with_usage(self.talked("openai-chat"), 0, 0)
        log.entries = [replace(one, served_by=f"fp_{one.line}") for one in log.entries]
        assert [cause for _, cause, _ in found(log)] == [Cause.PROVIDER_ROUTING]
        (one,) = report(log).breaks
        assert (one.before, one.after) == ("fp_1", "fp_2")

    def test_more_requests_than_one_machine_takes(self) -> None:
        log = Log("openai-chat")
        for number in range(20):
            log.ask([f"{number}: a question of its own"])
        for said in talk("ada", 2):
            log.ask(said)
        head = whole(log, 1) // 128 * 128
        with_usage(log, *[head] * 20, head, 0)
        timed(log, *[float(2 * number) for number in range(22)])
        assert [(line, cause) for line, cause, _ in found(log)] == [(22, Cause.PROVIDER_ROUTING)]

    def test_unknown(self) -> None:
        log = timed(with_usage(self.talked(), 0, 0), 0.0, 60.0)
        assert [(line, cause) for line, cause, _ in found(log)] == [(2, Cause.UNKNOWN)]

    def test_without_markers_nothing_is_read_and_nothing_broke(self) -> None:
        log = with_usage(self.talked(marked=False), 0, 0)
        told = report(log)
        assert told.clean
        assert told.read_tokens == 0
        assert [(fix.cause, fix.lines) for fix in told.fixes] == [(Cause.MARKERS_MISSING, [2])]

    def test_the_providers_own_word_is_taken_where_there_is_no_other(self) -> None:
        log = timed(with_usage(self.talked(), 0, 0), 0.0, 60.0)
        log.entries[1] = replace(log.entries[1], diagnosis="tools_changed")
        ((_, cause, tokens),) = found(log)
        assert cause in (Cause.TOOL_SCHEMA_CHANGED, Cause.TOOL_ADDED)
        assert tokens > 0

    def test_a_break_that_the_provider_read_over_lost_nothing(self) -> None:
        log = Log("anthropic-messages")
        for minute, said in enumerate(talk("ada", 2)):
            log.ask(said, f"{RULES} It is 10:{minute:02d}.")
        with_usage(log, 0, whole(log, 1))
        assert found(log) == [(2, Cause.CLOCK_IN_HEAD, 0)]


def test_a_rebuilt_body_says_nothing_of_markers() -> None:
    log = Log("anthropic-messages")
    first, second = talk("ada", 2)
    log.ask(first, entry={"exact": False})
    log.ask(second, marked=False, entry={"exact": False})
    assert report(log).clean
    log.entries = [replace(one, exact=True) for one in log.entries]
    assert [cause for _, cause, _ in found(log)] == [Cause.MARKERS_MISSING]


def test_what_is_no_request_is_counted_by_reason() -> None:
    log = Log("openai-chat")
    log.ask(["One question"])
    broken = Entry(line=4, wire="openai-chat", body={"model": "gpt-5.4", "messages": "none"})
    pieces = [Skipped(2, "not JSON"), *log.entries, Skipped(3, "not JSON"), broken, Skipped(9, "a tool run", bad=False)]
    told = lint(pieces)
    assert told.clean
    assert [(one.count, one.lines, one.bad) for one in told.skipped] == [
        (2, (2, 3), True),
        (1, (4,), True),
        (1, (9,), False),
    ]
    assert "messages: expected a list" in told.skipped[1].reason


def test_two_wires_in_one_log_are_two_conversations() -> None:
    entries = []
    for said in talk("ada", 2):
        for wire in ("anthropic-messages", "openai-chat"):
            entries.append(Entry(line=len(entries) + 1, wire=wire, body=body_of(said, wire=wire), conversation="t"))
    told = lint(entries)
    assert told.clean
    assert told.conversations == 2


def test_a_report_is_plain_data(log: Log) -> None:
    for minute, said in enumerate(talk("ada", 2)):
        log.ask(said, f"It is 10:{minute:02d}. {RULES}")
    (one,) = report(log).breaks
    assert json.dumps({"cause": one.cause, "path": one.path}).startswith('{"cause": "clock_in_head"')
