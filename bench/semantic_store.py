"""The semantic cache's store at size: opening, looking up, putting and removing, with synthetic clustered vectors.

Run: python bench/semantic_store.py [--entries 100000] [--scopes 1] [--lookups 1000] [--directory DIR]
"""

import argparse
import math
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headstay.semantic.entry import Entry, Filter
from headstay.semantic.sqlite_store import SQLiteStore
from ledger import machine

WIDTH = 384
BATCH = 2_000
NOW = 1_795_910_400.0
LOOKUP_BUDGET_MS = 5.0
OPEN_BUDGET_S = 15.0
Taken = tuple[float, float]  # milliseconds that one thing took: on the wall clock, and of this process's CPU time
ANSWER = '{"v": 1, "text": "' + "An answer of the usual length, with a reason and an example. " * 15 + '"}'


def resident_mb() -> float:
    """Memory of this process now, in megabytes; nan where the system does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), math.nan)


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    """Bring vectors to length 1."""
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype("<f4")
    return scaled


def batch(number: int, size: int) -> NDArray[np.float32]:
    """One batch of vectors, the same for every caller: clusters that all lean to one side."""
    shared = np.random.default_rng(0)
    lean = shared.standard_normal(WIDTH)
    centres = shared.standard_normal((1_000, WIDTH)) + 0.5 * lean
    random = np.random.default_rng(number + 1)
    return unit(centres[random.integers(0, 1_000, size)] + 0.6 * random.standard_normal((size, WIDTH)))


def scope_of(number: int, scopes: int) -> str:
    """The scope of an entry. Scopes take turns of 100 entries, so that those of one lie apart in time."""
    return f"{number // 100 % scopes:064x}"


def entries(total: int, scopes: int) -> Iterator[list[Entry]]:
    """All entries, a batch at a time."""
    for first in range(0, total, BATCH):
        vectors = batch(first // BATCH, min(BATCH, total - first))
        yield [
            Entry(
                id=f"{n:032x}",
                scope=scope_of(n, scopes),
                exact=f"{n:064x}",
                query=f"What about number {n} of the many questions that people ask?",
                answer=ANSWER,
                vector=vectors[n - first].tobytes(),
                created=NOW,
                expires=NOW + 86_400,
                tenant=f"tenant {n % 10}",
                family=scope_of(n, scopes),
            )
            for n in range(first, first + len(vectors))
        ]


def tail(taken: Sequence[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(taken, n=100)[94]


def line(name: str, taken: Sequence[Taken]) -> str:
    """Median and tail of one series. On a busy machine the tail on the wall clock is other people's work."""
    wall, cpu = zip(*taken, strict=True)
    return (
        f"{name:<34}{statistics.median(wall):>9.3f}{tail(wall):>9.3f}{max(wall):>10.3f}"
        f"{statistics.median(cpu):>12.3f}{tail(cpu):>9.3f}"
    )


def timed(work: Callable[[], object]) -> Taken:
    """Milliseconds that something takes."""
    start, cpu = time.perf_counter_ns(), time.process_time_ns()
    work()
    return (time.perf_counter_ns() - start) / 1e6, (time.process_time_ns() - cpu) / 1e6


def opened(path: Path, total: int) -> SQLiteStore:
    """A store with room for everything, in the file and in memory."""
    return SQLiteStore(path, max_entries=2 * total, max_bytes=1 << 40, max_index_bytes=1 << 34)


def fill(path: Path, total: int, scopes: int) -> None:
    """Write all entries, and say how long that took."""
    start = time.perf_counter()
    with opened(path, total) as store:
        for part in entries(total, scopes):
            store.put_many(part)
    seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in path.parent.iterdir()) / 1e9
    print(f"filled {total:,} entries in {seconds:.0f} s ({total / seconds:,.0f}/s, vectors included), {size:.2f} GB")


def lookups(store: SQLiteStore, total: int, scopes: int, count: int) -> tuple[list[Taken], int]:
    """Ask for near copies of stored entries in random scopes, and count those whose source comes first."""
    random = np.random.default_rng(99)
    taken: list[Taken] = []
    found = 0
    for _ in range(count):
        n = int(random.integers(0, total))
        first = n - n % BATCH
        source = batch(first // BATCH, min(BATCH, total - first))[n - first]
        asked = unit(source + 0.35 * random.standard_normal(WIDTH) / math.sqrt(WIDTH)).tobytes()  # cosine 0.94
        ask = partial(store.nearest, scope_of(n, scopes), asked, 8, NOW + 1)
        taken.append(timed(ask))
        found += [scored.entry.id for scored in ask()][:1] == [f"{n:032x}"]
    return taken, found


def measure(path: Path, total: int, scopes: int, count: int) -> None:
    """Open the filled file in this fresh process and measure."""
    batch(0, 1)  # numpy is loaded before memory is read
    before = resident_mb()
    start = time.perf_counter()
    store = opened(path, total)
    ready = time.perf_counter() - start
    vector = batch(0, 1)[0].tobytes()
    first = timed(lambda: store.nearest(f"{0:064x}", vector, 8, NOW + 1))[0] / 1e3
    cold, _ = lookups(store, total, scopes, count) if scopes > 1 else ([], 0)
    start = time.perf_counter()
    for scope in range(scopes):
        store.nearest(f"{scope:064x}", vector, 1, NOW + 1)
    loaded = ready + first + time.perf_counter() - start
    memory = resident_mb()
    taken, found = lookups(store, total, scopes, count)
    print(f"\nopen {ready * 1e3:.1f} ms; first lookup in a scope {first:.2f} s; every scope loaded {loaded:.1f} s")
    print(f"memory {before:.0f} MB before, {memory:.0f} MB with every scope loaded")
    print(f"\n{'milliseconds':<34}{'median':>9}{'p95':>9}{'max':>10}{'CPU median':>12}{'p95':>9}")
    if cold:
        print(line("nearest, most scopes not loaded", cold))
    print(line("nearest, all loaded", taken))
    exact = [timed(partial(store.get_exact, f"{n * 7919 % total:064x}", NOW + 1)) for n in range(count)]
    print(line("exact hit", exact))
    made = next(entries(min(total, BATCH), scopes))[0]
    names = [f"{total + n:032x}" for n in range(count)]
    puts = [timed(partial(store.put, _renamed(made, name))) for name in names]
    print(line("put", puts))
    print(line("remove one", [timed(partial(store.remove, Filter(ids=(name,)))) for name in names]))
    wall, cpu = (tail(series) for series in zip(*taken, strict=True))
    print(f"\nsource of a near copy (cosine 0.94) found first: {found:,} of {count:,}")
    verdict = "met" if wall <= LOOKUP_BUDGET_MS else "met in CPU time" if cpu <= LOOKUP_BUDGET_MS else "MISSED"
    print(f"budget: lookup p95 {wall:.2f} ms, CPU {cpu:.2f}, of {LOOKUP_BUDGET_MS:g} ms: {verdict}")
    print(f"budget: open {ready + first:.2f} of {OPEN_BUDGET_S:g} s, every scope {loaded:.1f} s")
    store.close()


def _renamed(made: Entry, name: str) -> Entry:
    return Entry(name, made.scope, name, made.query, made.answer, made.vector, NOW, NOW + 86_400, made.tenant)


def main() -> None:
    """Fill a file, then measure it in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--scopes", type=int, default=1)
    parser.add_argument("--lookups", type=int, default=1_000)
    parser.add_argument("--directory", type=Path, help="where the file is made; default a temporary folder")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.entries, options.scopes, options.lookups)
        return
    print(f"date     {datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
    print(f"machine  {machine()}")
    print(f"versions Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, numpy {np.__version__}")
    print(f"data     {options.entries:,} entries in {options.scopes:,} scopes, {WIDTH} numbers a vector\n")
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        path = Path(folder) / "answers.db"
        fill(path, options.entries, options.scopes)
        sizes = [f"--{name}={getattr(options, name)}" for name in ("entries", "scopes", "lookups")]
        subprocess.run([sys.executable, __file__, *sizes, f"--measure={path}"], check=True)


if __name__ == "__main__":
    main()
