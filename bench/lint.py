"""How fast `headstay lint` goes through a log, and how much memory it takes.

Run: python bench/lint.py [--megabytes 50] [--format text|json]

Each log is written to a temporary folder first: long agent conversations, and many short chats side by side; with a
clock in the head of every call (so that every request has a finding), and clean. The command runs as a user runs it,
in a process of its own.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headstay import __version__
from ledger import machine

BUDGET_S = 60.0  # for 50 MB
SENTENCE = "Answer briefly, quote the policy that applies, and say what happens next and when. "
Body = dict[str, Any]


def agent(rng: random.Random, *, broken: bool) -> Iterator[Body]:
    """Yield the requests of conversations of 100 calls with tools, one conversation after the other."""
    tools = [
        {"name": f"tool_{n:02d}", "description": SENTENCE, "input_schema": {"type": "object", "properties": {}}}
        for n in range(20)
    ]
    while True:
        messages: list[Body] = [{"role": "user", "content": f"{rng.random()}: {SENTENCE * 3}"}]
        for turn in range(100):
            yield _request(broken, turn, rng, messages, tools=tools)
            call = {"type": "tool_use", "id": f"c{rng.random()}", "name": "tool_01", "input": {"order": rng.random()}}
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": f"{rng.random()} {SENTENCE * 4}"}
            messages += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def chats(rng: random.Random, *, broken: bool) -> Iterator[Body]:
    """Yield the requests of 50 short chats at a time, side by side, without any id."""
    while True:
        talks: list[list[Body]] = [[] for _ in range(50)]
        for turn in range(4):
            for said in talks:
                said.append({"role": "user", "content": f"{rng.random()}: where is my order?"})
                yield _request(broken, turn, rng, said)
                said.append({"role": "assistant", "content": f"{rng.random()}: {SENTENCE}"})


def _request(broken: bool, turn: int, rng: random.Random, messages: list[Body], **more: Any) -> Body:
    clock = f"Now: 10:{rng.randrange(60):02d}:{turn:02d}.\n" if broken else ""
    system = {"type": "text", "text": clock + SENTENCE * 15, "cache_control": {"type": "ephemeral"}}
    return {"model": "claude-opus-5", "max_tokens": 64, "system": [system], "messages": messages, **more}


def write(path: Path, requests: Iterator[Body], megabytes: float) -> int:
    """Write a log of some size; return the number of requests."""
    count, size = 0, 0
    with path.open("w", encoding="utf-8") as file:
        for body in requests:
            size += file.write(json.dumps({"request": body, "ts": 1_795_946_400 + count}) + "\n")
            count += 1
            if size >= megabytes * 1e6:
                return count
    return count


def measure(path: Path, requests: int) -> dict[str, Any]:
    """Run the command on a log; the peak of memory is that of all children so far, so the largest comes last."""
    size = path.stat().st_size / 1e6
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "headstay.cli", "lint", str(path), "--format", "json"],
        capture_output=True,
        check=False,
        text=True,
    )
    took = time.perf_counter() - start
    if done.returncode > 1:
        raise SystemExit(done.stderr)
    told = json.loads(done.stdout)
    assert told["requests"] == requests
    return {
        "log": path.stem,
        "megabytes": round(size, 1),
        "requests": requests,
        "breaks": told["totals"]["breaks"],
        "seconds": round(took, 1),
        "megabytes_per_s": round(size / took, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, maker in (("chats", chats), ("agent", agent)):
            for broken in (False, True):
                path = Path(folder) / f"{name}-{'clock' if broken else 'clean'}.jsonl"
                count = write(path, maker(random.Random(7), broken=broken), arguments.megabytes)
                rows.append(measure(path, count))
                path.unlink()
    told = {"machine": machine(), "headstay": __version__, "date": datetime.now(UTC).date().isoformat(), "rows": rows}
    if arguments.format == "json":
        print(json.dumps(told))
        return
    print(f"{told['machine']}; headstay {__version__}; {told['date']}")
    for row in rows:
        print(
            f"{row['log']:<12} {row['megabytes']:>5} MB, {row['requests']:>6} requests, {row['breaks']:>6} breaks: "
            f"{row['seconds']:>5} s, {row['megabytes_per_s']:>5} MB/s, peak {row['peak_mb']} MB"
        )
    print(f"budget: 50 MB in {BUDGET_S:.0f} s")


if __name__ == "__main__":
    main()
