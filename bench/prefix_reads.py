"""What of a hostile agent's prompts is read from the cache: plain, with the vendor's middleware, with headstay.

Run: python bench/prefix_reads.py [--threads 20] [--longest 30] [--model NAME ...] [--processes 2] [--format json]

The agent is played against the loopback emulator; token counts are estimates, caches and prices are modelled.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from headstay.emulator.agent_workload import support_agent
from langgraph_headstay.demo_agent import SETUPS, AgentSetup, price_date, promised_oracle, run_demo
from ledger import machine

PACKAGES = (
    "langchain",
    "langgraph",
    "langgraph-checkpoint-sqlite",
    "langchain-anthropic",
    "langchain-openai",
    "anthropic",
    "openai",
    "genai-prices",
)
BEST = {setup.model: promised_oracle(setup) for setup in SETUPS}
PROMISED = {"read share": 0.98, "writes": 1.02, "cost": 1.02}


def told(setup: AgentSetup, variant: str, made: int) -> None:
    """Show on stderr how far a run is."""
    print(f"\r{setup.model} {variant}: {made} calls{' ' * 20}", end="", file=sys.stderr, flush=True)


def line(result: Mapping[str, Any], best: Mapping[str, Any], plain: Mapping[str, Any]) -> str:
    """One line of the table: a run beside the oracle's and the plain one's."""
    writes = best["cache_write_tokens"]
    ratio = f"{result['cache_write_tokens'] / writes:.3f}" if writes else "-"
    priced = None not in (result["cost_usd"], best["cost_usd"], plain["cost_usd"])
    money = (
        f"{result['cost_usd']:>10.4f}{result['cost_usd'] / best['cost_usd']:>9.3f}"
        f"{result['cost_usd'] / plain['cost_usd']:>9.3f}"
        if priced
        else f"{'-':>10}{'-':>9}{'-':>9}"
    )
    return (
        f"{result['model']:<18}{result['variant']:<15}{result['read_share']:>8.4f}"
        f"{result['cache_read_tokens']:>12,}{result['cache_write_tokens']:>11,}{ratio:>8}{money}"
        f"{result['distinct_heads']:>7}{len(result['breaks']):>8}"
    )


def table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The whole table, one block for each model."""
    lines = [
        f"{'model':<18}{'variant':<15}{'share':>8}{'read':>12}{'written':>11}{'x best':>8}{'USD':>10}{'x best':>9}"
        f"{'x plain':>9}{'heads':>7}{'breaks':>8}"
    ]
    for model in dict.fromkeys(result["model"] for result in results):
        runs = {result["variant"]: result for result in results if result["model"] == model}
        lines += ["", *(line(result, runs[BEST[model]], runs["plain"]) for result in runs.values())]
        found = Counter((item["cause"], item["owner"]) for item in runs["headstay"]["breaks"])
        lines += [f"    {times:>3} x {cause} ({owner})" for (cause, owner), times in found.most_common()]
    return lines


def verdicts(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say for each model whether what is promised was met, and what the figures are against its other oracles."""
    lines: list[str] = []
    for ours in (result for result in results if result["variant"] == "headstay"):
        runs = {result["variant"]: result for result in results if result["model"] == ours["model"]}
        promised = BEST[ours["model"]]
        best = runs[promised]
        share, writes, cost = ours["read_share"], ratio(ours, best, "cache_write_tokens"), ratio(ours, best, "cost_usd")
        met = share >= PROMISED["read share"] and writes <= PROMISED["writes"] and cost <= PROMISED["cost"]
        others = [
            f"; against {name}: read share {ours['read_shares'][name]:.4f}, "
            f"writes {ratio(ours, run, 'cache_write_tokens'):.3f}, cost {ratio(ours, run, 'cost_usd'):.3f}"
            for name, run in runs.items()
            if name.startswith("oracle") and name != promised
        ]
        lines.append(
            f"{ours['model']:<18}against {promised}: read share {share:.4f} (>= 0.98), writes {writes:.3f} (<= 1.02), "
            f"cost {cost:.3f} (<= 1.02): {'met' if met else 'MISSED'}{''.join(others)}"
        )
    return lines


def ratio(ours: Mapping[str, Any], best: Mapping[str, Any], name: str) -> float:
    """Divide a figure by the oracle's; 1 where the oracle has none."""
    return ours[name] / best[name] if best[name] else 1.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--longest", type=int, default=30, help="user turns of the longest thread")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--model", action="append", choices=[setup.model for setup in SETUPS], help="default all")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    options = parser.parse_args()
    chosen = [setup for setup in SETUPS if not options.model or setup.model in options.model]
    workload = support_agent(seed=options.seed, threads=options.threads, longest=options.longest)
    began = time.perf_counter()
    results = run_demo(chosen, workload=workload, processes=options.processes, progress=told)
    took = time.perf_counter() - began
    print(file=sys.stderr)
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "prices": str(price_date()),
        "threads": len(workload.threads),
        "turns": len(workload.turns),
        "calls": len(workload.calls),
        "seconds": round(took, 1),
    }
    if options.form == "json":
        print(json.dumps({"about": about, "results": results}, ensure_ascii=False))
        return
    print(f"date      {about['date']}")
    print(f"machine   {about['machine']}")
    print("versions  " + ", ".join(f"{name} {number}" for name, number in about["versions"].items()))
    print(f"workload  {len(workload.threads)} threads, {len(workload.turns)} turns, {len(workload.calls)} model calls")
    print(f"prices    {about['prices']}; caches modelled, tokens estimated; {took:.0f} s\n")
    print("\n".join(table(results)))
    print()
    print("\n".join(verdicts(results)))


if __name__ == "__main__":
    main()
