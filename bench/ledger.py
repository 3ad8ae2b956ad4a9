"""What the ledger adds to a model call: microseconds per `append`, and rows per second with many writers.

Run: python bench/ledger.py [--rows 20000] [--directory DIR]
"""

import argparse
import multiprocessing
import os
import platform
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from headstay.ledger import Ledger, Row, Usage
from headstay.ledger.verdict import judge

BUDGET_US = 300
USAGE = Usage(12_450, 12_000, 400, {"5m": 400}, 250)
ROW = Row(
    ts=1_795_910_400.0,
    lane="0f" * 16,
    head="a5" * 16,
    conversation="c3" * 16,
    tenant="acme",
    name="support",
    provider="anthropic",
    wire="anthropic-messages",
    model="claude-opus-5-5",
    time_to_first_token_s=0.4,
    duration_s=2.5,
)


def machine() -> str:
    """One line on the processor, for the reader of the figures."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if "model name" in line]
        cpu = names[0] if names else cpu
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{cpu}, {os.cpu_count()} cores{load}"


def microseconds(ledger: Ledger, rows: int) -> list[float]:
    """Time of each call's accounting: fill the row, judge it, append it."""
    taken: list[float] = []
    for _ in range(rows):
        start = time.perf_counter_ns()
        ledger.append(ROW.with_usage(USAGE).with_verdict(judge(12_000, USAGE)))
        taken.append((time.perf_counter_ns() - start) / 1_000)
    return taken


def line(name: str, taken: Sequence[float]) -> str:
    """Median and tail of one series."""
    cuts = statistics.quantiles(taken, n=100)
    return f"{name:<24}{statistics.median(taken):>10.1f}{cuts[94]:>10.1f}{cuts[98]:>10.1f}{max(taken):>12.1f}"


def write(path: str, threads: int, rows: int) -> None:
    """Write from several threads of this process."""
    with Ledger(path, strict=True) as ledger:
        workers = [threading.Thread(target=microseconds, args=(ledger, rows)) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def crowd(path: Path, processes: int, threads: int, rows: int) -> str:
    """Rows per second that arrive in one file from many writers."""
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write, args=(str(path), threads, rows)) for _ in range(processes)]
    start = time.perf_counter()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    taken = time.perf_counter() - start
    with Ledger(path, read_only=True) as ledger:
        arrived = sum(1 for _ in ledger.rows())
    expected = processes * threads * rows
    return (
        f"{processes} processes x {threads} threads: {arrived:,} of {expected:,} rows arrived, {arrived / taken:,.0f}/s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--directory", type=Path, help="where the SQLite file is made; default a temporary folder")
    options = parser.parse_args()
    print(f"date     {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"machine  {machine()}")
    print(
        f"versions Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"genai-prices {version('genai-prices')}"
    )
    print(f"\n{options.rows:,} calls, microseconds{'median':>14}{'p95':>10}{'p99':>10}{'max':>12}")
    print(line("memory", microseconds(Ledger(), options.rows)))
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        with Ledger(Path(folder) / "one.db", strict=True) as ledger:
            taken = microseconds(ledger, options.rows)
            print(line("SQLite", taken))
            start = time.perf_counter()
            totals = ledger.totals()
            seconds = time.perf_counter() - start
        median = statistics.median(taken)
        print(f"\nbudget: median {median:.0f} of {BUDGET_US} us: {'met' if median <= BUDGET_US else 'MISSED'}")
        print(f"totals with prices over {totals.calls:,} rows: {seconds:.2f} s, price table import included")
        print(crowd(Path(folder) / "many.db", processes=4, threads=4, rows=max(1, options.rows // 40)))


if __name__ == "__main__":
    main()
