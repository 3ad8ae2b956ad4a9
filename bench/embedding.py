"""What the bundled embedder costs: milliseconds of CPU a question, the time of its first one, and memory.

A short question has 13 tokens and a long one 60. Beside them stands a product of two 384 x 384 matrices in numpy, so
that runs on different machines can be compared as ratios.

Run: python bench/embedding.py [--questions 300] [--format text|json]
"""

import argparse
import json
import platform
import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

import numpy as np

from headstay import __version__
from headstay.semantic.embedder import MiniLM
from ledger import machine

BUDGET_MS = 5.0  # a semantic hit on a short text, embedding and all
SHORT = "how can i reset the password of order number {number}"
LONG = (
    "i ordered a pair of running shoes two weeks ago and paid with my card, but the parcel that came today holds a "
    "coat, so tell me how to send the coat back, whether the shoes under order number {number} are still on their way, "
    "and when my money comes if not?"
)


@dataclass(frozen=True)
class Figures:
    """Milliseconds of one kind of question.

    Attributes:
        tokens: Tokens of a question.
        cpu: Median of the CPU time of all threads.
        wall_p50: Median of the time taken.
        wall_p95: 95th percentile of the time taken.
        tokenise: Median of the CPU time of counting its tokens, which is part of `cpu` too.
    """

    tokens: int
    cpu: float
    wall_p50: float
    wall_p95: float
    tokenise: float


def memory_mb() -> float:
    """Most memory this process has held."""
    unit = 1 if sys.platform == "darwin" else 1_024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def timed(function: Callable[[], object], clock: Callable[[], int]) -> float:
    """Run a function and return the milliseconds that passed on a clock."""
    start = clock()
    function()
    return (clock() - start) / 1e6


def measure(embedder: MiniLM, template: str, questions: int) -> Figures:
    """Embed questions that differ in a number, one at a time."""
    texts = [template.format(number=1_000 + number) for number in range(questions)]
    embedder.embed(texts[:20])
    cpu: list[float] = []
    wall: list[float] = []
    for text in texts:
        start = time.process_time_ns()
        wall.append(timed(partial(embedder.embed, [text]), time.perf_counter_ns))
        cpu.append((time.process_time_ns() - start) / 1e6)
    tokenise = [timed(partial(embedder.tokens, text), time.process_time_ns) for text in texts]
    return Figures(
        int(statistics.median(embedder.tokens(text).count for text in texts)),
        statistics.median(cpu),
        statistics.median(wall),
        statistics.quantiles(wall, n=20)[18],
        statistics.median(tokenise),
    )


def questions_a_second(embedder: MiniLM, threads: int, seconds: float = 2.0) -> float:
    """Embed short questions in several threads for a while."""
    done = [0] * threads
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        while time.perf_counter() < end:
            embedder.embed([SHORT.format(number=1_000 + done[number] % 1_000)])
            done[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(done) / seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    before = memory_mb()
    embedder = MiniLM()
    first = timed(lambda: embedder.embed(["hello"]), time.perf_counter_ns)
    short = measure(embedder, SHORT, options.questions)
    long = measure(embedder, LONG, options.questions)
    held = memory_mb()
    rates = {threads: questions_a_second(embedder, threads) for threads in (1, 2, 4)}
    square = np.ones((384, 384), dtype=np.float32)
    product = statistics.median(timed(lambda: square @ square, time.process_time_ns) for _ in range(200))
    head = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": f"Python {platform.python_version()}, headstay {__version__}, "
        + ", ".join(f"{name} {version(name)}" for name in ("onnxruntime", "tokenizers", "numpy")),
    }
    if options.format == "json":
        rows = {"short": asdict(short), "long": asdict(long), "first_ms": first, "rss_mb": held, "product_ms": product}
        print(json.dumps({**head, **rows, "rss_mb_before": before, "questions_a_second": rates}))
        return
    for name, value in head.items():
        print(f"{name:<9}{value}")
    print(f"\n{'milliseconds':<16}{'tokens':>8}{'cpu':>8}{'p50':>8}{'p95':>8}{'tokenise':>10}")
    for name, row in (("short", short), ("long", long)):
        print(f"{name:<16}{row.tokens:>8}{row.cpu:>8.2f}{row.wall_p50:>8.2f}{row.wall_p95:>8.2f}{row.tokenise:>10.3f}")
    print(f"\nfirst question, model and onnxruntime loaded: {first:.0f} ms")
    print(f"memory: {held:.0f} MB, of which {before:.0f} MB before the model")
    print(
        "short questions a second, by threads: "
        + ", ".join(f"{rate:.0f} with {threads}" for threads, rate in rates.items())
    )
    print(f"numpy product of 384 x 384 for comparison: {product:.2f} ms CPU")
    print(f"budget: short {short.cpu:.2f} of {BUDGET_MS} ms CPU: {'met' if short.cpu <= BUDGET_MS else 'MISSED'}")


if __name__ == "__main__":
    main()
