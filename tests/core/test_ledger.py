"""The ledger: what goes in comes out, and nothing it does disturbs a call."""

import copy
import logging
import pickle
import sqlite3
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay import database
from headstay.causes import Break, Cause
from headstay.errors import LedgerError
from headstay.ledger import Ledger, Row, Usage, record
from headstay.ledger.row import COLUMNS, Totals, from_record, sum_up, to_record
from headstay.ledger.verdict import judge

BREAK = Break(Cause.TOOL_ORDER, "application", "tools[3]", "keep one order", 7, "secret text", "other secret")
FULL = Row(
    ts=1_795_910_400.25,
    lane="a1",
    head="b2",
    epoch=3,
    conversation="c3",
    tenant="acme",
    name="support",
    provider="anthropic",
    wire="anthropic-messages",
    model="claude-opus-5-5",
    expected_read=12_000,
    input_tokens=12_450,
    cache_read_tokens=12_000,
    cache_write_tokens=400,
    write_by_ttl={"5m": 100, "1h": 300},
    output_tokens=250,
    status="ok",
    cause="tool_order",
    owner="application",
    breaks=(BREAK,),
    diagnosis="tools_changed",
    diagnosis_tokens=4_100,
    price_context={"speed": "fast"},
    time_to_first_token_s=0.25,
    duration_s=1.5,
    cost_usd=0.01,
    price_date="2026-11-03",
    error="TimeoutError",
    unverified="no",
    note="näive",
)


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    return Ledger(None if request.param == "memory" else tmp_path / "ledger.db")


def test_rows_come_back_as_they_went_in(ledger: Ledger) -> None:
    with ledger:
        rows = [FULL, Row(ts=2.0), replace(FULL, epoch=4)]
        for row in rows:
            ledger.append(row)
        assert list(ledger.rows()) == rows
    assert ledger.errors == ()


def test_a_row_holds_no_prompt_text(tmp_path: Path) -> None:
    (kept,) = FULL.breaks
    assert kept == Break(Cause.TOOL_ORDER, "application", "tools[3]", "keep one order", 7)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.append(FULL)
    assert b"keep one order" in path.read_bytes()
    assert b"secret" not in path.read_bytes()


def test_usage_and_verdict_fill_a_row() -> None:
    usage = Usage(10_000, 0, 9_000, {"5m": 9_000}, 12)
    row = Row(ts=1.0).with_usage(usage).with_verdict(judge(8_000, usage, ttl_seconds=300, gap_seconds=900))
    assert row.usage == usage
    assert (row.status, row.cause, row.owner, row.expected_read) == ("short", "ttl_expired", "expiry", 8_000)
    unknown = Row(ts=1.0).with_verdict(judge(8_000, None))
    assert unknown.usage is None
    assert (unknown.status, unknown.unverified) == ("unverified", "the provider reported no usage")


TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    ts=st.floats(0, 4e9),
    counts=st.lists(st.integers(0, 2**62), min_size=4, max_size=4),
    tenant=st.none() | TEXT,
    note=st.none() | TEXT,
    split=st.dictionaries(TEXT, st.integers(0, 2**62), max_size=2),
    causes=st.lists(st.sampled_from(Cause), max_size=3),
)
def test_records_round_trip(
    ts: float,
    counts: list[int],
    tenant: str | None,
    note: str | None,
    split: dict[str, int],
    causes: list[Cause],
) -> None:
    row = Row(
        ts=ts,
        tenant=tenant,
        note=note,
        input_tokens=counts[0],
        cache_read_tokens=counts[1],
        cache_write_tokens=counts[2],
        output_tokens=counts[3],
        write_by_ttl=split,
        breaks=tuple(Break(cause, "policy", "system[0]", "none") for cause in causes),
    )
    assert from_record(to_record(row)) == row


def test_a_cause_of_another_version_reads_as_unknown() -> None:
    values = dict(zip(COLUMNS, to_record(FULL), strict=True))
    values["breaks"] = str(values["breaks"]).replace("tool_order", "sun_spots")
    (found,) = from_record(tuple(values.values())).breaks
    assert (found.cause, found.owner, found.path) == (Cause.UNKNOWN, "application", "tools[3]")


def test_rows_since(ledger: Ledger) -> None:
    with ledger:
        for ts in (100.0, 300.0, 200.0, 300.5):
            ledger.append(Row(ts=ts))
        assert [row.ts for row in ledger.rows(200)] == [300.0, 200.0, 300.5]  # in the order recorded
        noon = datetime.fromtimestamp(300.25, UTC)
        assert [row.ts for row in ledger.rows(noon)] == [300.5]
        assert [row.ts for row in ledger.rows(noon.replace(tzinfo=None))] == [300.5]
        assert ledger.totals(since=301).calls == 0


def test_more_rows_than_one_page(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        for number in range(2_500):
            ledger.append(Row(ts=float(number)))
        seen = ledger.rows()
        first = next(seen)
        ledger.append(Row(ts=9_999.0))  # a reader sees what was there when it began
        assert [first.ts, *(row.ts for row in seen)] == [float(number) for number in range(2_500)]


def test_totals(ledger: Ledger) -> None:
    with ledger:
        # opus 5.5 on 2026-11-29: 400 x 4 + 10,000 x 0.20 + 600 x 5 + 100 x 20 = 8,600 millionths
        good = Usage(11_000, 10_000, 600, {"5m": 600}, 100)
        base = Row(ts=1_795_910_400.0, provider="anthropic", model="claude-opus-5-5")
        ledger.append(base.with_usage(good).with_verdict(judge(9_000, good)))
        # nothing read of 8,000: 11,000 x 4 = 44,000 millionths
        bad = Usage(11_000, 0, 0, {}, 0)
        ledger.append(base.with_usage(bad).with_verdict(judge(8_000, bad, breaks=[BREAK])))
        # no price, no verdict
        odd = replace(base, model="unheard-of").with_usage(Usage(7, 5, 0, {}, 1))
        ledger.append(odd.with_verdict(judge(4, odd.usage, unverified="no hook")))
        ledger.append(replace(base, error="TimeoutError"))
        totals = ledger.totals()
    assert totals == Totals(
        calls=4,
        by_status={"ok": 1, "short": 1, "unverified": 2},
        errors=1,
        input_tokens=22_007,
        cache_read_tokens=10_005,
        cache_write_tokens=600,
        output_tokens=101,
        expected_read=17_000,  # 9,000 + 8,000; the unverified row stays out
        matched_read=9_000,  # 10,000 were read, 9,000 were expected
        missing_by_cause={"tool_order": 8_000},
        cost_usd=totals.cost_usd,
        unpriced=1,
        dropped=0,
    )
    assert totals.cost_usd == pytest.approx(0.0526)
    assert totals.read_share == pytest.approx(9 / 17)
    assert sum_up([]).read_share is None


def test_costs_are_filled_on_request_only(ledger: Ledger) -> None:
    with ledger:
        row = Row(ts=1_795_910_400.0, provider="anthropic", model="claude-opus-5-5", input_tokens=1_000)
        ledger.append(row)
        assert [found.cost_usd for found in ledger.rows()] == [None]
        assert [found.cost_usd for found in ledger.rows(with_cost=True)] == [pytest.approx(0.004)]
        assert (ledger.totals(with_cost=False).cost_usd, ledger.totals(with_cost=False).unpriced) == (0.0, 1)


def test_the_file_is_private_and_its_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "ledger.db"
    with Ledger(path) as ledger:
        ledger.append(FULL)
        for name in (path, path.with_name("ledger.db-wal"), path.with_name("ledger.db-shm")):
            assert stat.S_IMODE(name.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_columns_of_the_file_are_the_fields_of_a_row(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        names = [column[1] for column in raw.execute("PRAGMA table_info(calls)")]
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    raw.close()
    assert names == ["id", *COLUMNS]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE calls SET cost_usd = 0",
        "DELETE FROM calls",
        "DELETE FROM calls WHERE id = 1",
        "INSERT OR REPLACE INTO calls SELECT * FROM calls",
        "UPDATE OR IGNORE calls SET id = 5",
    ],
)
def test_recorded_rows_cannot_be_changed(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.append(FULL)
    raw = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        raw.execute(statement)
    raw.close()
    with Ledger(path) as ledger:
        assert list(ledger.rows()) == [FULL]


def foreign(path: Path) -> None:
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE theirs (x)")
    raw.commit()
    raw.close()


def newer(path: Path) -> None:
    Ledger(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()


def damaged(path: Path) -> None:
    Ledger(path).close()
    path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4_000)


def text(path: Path) -> None:
    path.write_text("not a database, but long enough to be read as one" * 9)


UNUSABLE: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder": (Path.mkdir, "Is a directory"),
    "text": (text, "not a database"),
    "foreign": (foreign, "not one of headstay's files"),
    "newer": (newer, r"schema 99, this one knows 2\)"),
    "damaged": (damaged, "malformed|not a database"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_file_is_named_when_strict(tmp_path: Path, case: str) -> None:
    spoil, message = UNUSABLE[case]
    path = tmp_path / "ledger.db"
    spoil(path)
    with pytest.raises(LedgerError, match=message) as caught:
        Ledger(path, strict=True)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_path_below_a_file_is_named_when_strict(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot open the ledger .*Give a path"):
        Ledger(tmp_path / "file" / "ledger.db", strict=True)


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_file_means_memory_and_one_warning(
    tmp_path: Path, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil, _ = UNUSABLE[case]
    path = tmp_path / "ledger.db"
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    with Ledger(path) as ledger:
        ledger.append(FULL)
        assert list(ledger.rows()) == [FULL]
        assert len(ledger.errors) == 1
    assert [entry.levelno for entry in caplog.records] == [logging.WARNING]
    assert "kept in memory" in caplog.text
    assert (path.read_bytes() if path.is_file() else None) == before  # nobody's file is touched


def test_read_only(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with pytest.raises(LedgerError, match="unable to open"):
        Ledger(path, read_only=True)
    assert not path.exists()
    with Ledger(path) as writer:
        writer.append(FULL)
        with Ledger(path, read_only=True) as reader:
            assert list(reader.rows()) == [FULL]
            reader.append(Row(ts=1.0))
            assert len(reader.errors) == 1
            assert "readonly" in reader.errors[0]
        assert list(writer.rows()) == [FULL]


def test_rows_wait_while_the_file_is_locked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.0)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.append(Row(ts=1.0))
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        for ts in (2.0, 3.0, 4.0):
            ledger.append(Row(ts=ts))  # only the first one waits for the lock
        assert len(ledger.errors) == 1
        assert "locked" in ledger.errors[0]
        assert [row.ts for row in ledger.rows()] == [1.0, 2.0, 3.0, 4.0]
        lock.execute("ROLLBACK")
        lock.close()
    assert len(caplog.records) == 1
    with Ledger(path, strict=True) as again:
        assert [row.ts for row in again.rows()] == [1.0, 2.0, 3.0, 4.0]
    assert ledger.dropped == 0


def test_waiting_rows_go_with_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.0)
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        lock = sqlite3.connect(path, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        ledger.append(Row(ts=1.0))
        ledger.append(Row(ts=2.0))
        lock.execute("ROLLBACK")
        lock.close()
        ledger.append(Row(ts=3.0))
        with Ledger(path, read_only=True) as reader:
            assert [row.ts for row in reader.rows()] == [1.0, 2.0, 3.0]


# a caller's mistake must not surface in its model call
MISTAKES: list[dict[str, Any]] = [
    {"ts": float("nan")},
    {"ts": "noon"},
    {"ts": 1.0, "input_tokens": 2**70},
    {"ts": 1.0, "note": "\ud800"},
    {"ts": 1.0, "model": None},
    {"ts": 1.0, "name": object()},
    {"ts": 1.0, "write_by_ttl": object()},
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_row_that_cannot_be_stored_takes_no_other_with_it(
    tmp_path: Path, mistake: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    bad = Row(**mistake)
    with Ledger(tmp_path / "ledger.db") as ledger:
        for row in (FULL, bad, FULL):
            ledger.append(row)
        assert list(ledger.rows()) == [FULL, FULL]
        assert (len(ledger.errors), ledger.dropped) == (1, 1)
        ledger.append(bad)
        assert (len(ledger.errors), ledger.dropped) == (2, 2)
        assert ledger.totals(with_cost=False).dropped == 2
    assert len(caplog.records) == 1


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MEMORY_ROWS", 3)
    ledger = Ledger()
    for number in range(5):
        ledger.append(Row(ts=float(number)))
    assert [row.ts for row in ledger.rows()] == [2.0, 3.0, 4.0]
    assert ledger.totals().dropped == ledger.dropped == 2


def test_a_closed_ledger_opens_again(ledger: Ledger) -> None:
    ledger.append(Row(ts=1.0))
    ledger.close()
    ledger.close()
    ledger.append(Row(ts=2.0))
    assert [row.ts for row in ledger.rows()] == [1.0, 2.0]
    ledger.close()


def test_copies_share_the_ledger_and_pickles_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        assert copy.copy(ledger) is copy.deepcopy([ledger])[0] is ledger
        ledger.append(FULL)
        with pickle.loads(pickle.dumps(ledger)) as other:
            assert list(other.rows()) == [FULL]
    assert list(pickle.loads(pickle.dumps(Ledger())).rows()) == []


def test_sqlites_memory_name_makes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger(":memory:") as ledger:
        ledger.append(FULL)
        assert list(ledger.rows()) == [FULL]
    assert list(tmp_path.iterdir()) == []


def test_odd_characters_in_the_path(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%20é.db"
    with Ledger(path) as ledger:
        ledger.append(FULL)
    with Ledger(str(path), read_only=True) as reader:
        assert list(reader.rows()) == [FULL]
