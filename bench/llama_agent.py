"""What of a hostile `FunctionAgent`'s prompts is read from the cache: plain, and under `cache_aware`.

Run: python bench/llama_agent.py [--threads 20] [--longest 30] [--seed 7] [--setup NAME ...] [--format json]

The support desk is played against the loopback emulator: token counts are estimates, caches and prices are modelled.
Without `llama-index-llms-anthropic` and its SDK below 1.0, only OpenAI's model is played.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast

import time_machine
from llama_index.core.llms.function_calling import FunctionCallingLLM

from headstay.emulator import Emulator, Exchange, ManualClock, serve
from headstay.emulator.agent_oracle import agent_oracle_run
from headstay.emulator.agent_workload import AgentWorkload
from headstay.emulator.oracle import OracleResult, Prices, read_share
from headstay.emulator.reply import Wire
from headstay.ledger.price import Rates, price, rates
from headstay.ledger.usage import Usage, from_anthropic, from_openai_chat
from ledger import machine
from llama_desk import VARIANTS, Kept, Stage, Variant, play
from llama_labels import llama_workload
from llama_oracle import turn_oracle_run

PACKAGES = (
    "llama-index-core",
    "llama-index-workflows",
    "llama-index-llms-openai",
    "llama-index-llms-openai-like",
    "llama-index-llms-anthropic",
    "openai",
    "anthropic",
    "genai-prices",
)
PROMISED = {"read_share": 0.98, "writes": 1.02, "cost": 1.02}
_READ: Mapping[Wire, Callable[[Mapping[str, object]], Usage]] = {
    "anthropic-messages": from_anthropic,
    "openai-chat": from_openai_chat,
}
# Structural tokens that the emulator counts in front of each OpenAI message.
_OVERHEAD: Mapping[Wire, int] = {"anthropic-messages": 0, "openai-chat": 3}


@dataclass(frozen=True, slots=True)
class Setup:
    """One model on one wire, through one of LlamaIndex's classes.

    Attributes:
        provider: Provider name.
        wire: Wire format.
        model: Model id.
        package: Where the class is.
        kind: The class.
    """

    provider: Literal["anthropic", "openai"]
    wire: Wire
    model: str
    package: str
    kind: str

    @property
    def works(self) -> bool:
        """Whether the class is there, beside an SDK that it works with."""
        if find_spec("llama_index.llms") is None or find_spec(self.package) is None:
            return False
        return self.provider == "openai" or version("anthropic").startswith("0.")

    @property
    def rates(self) -> Rates:
        """Its prices."""
        found = rates(self.provider, self.model)
        if found is None:
            raise LookupError(f"{self.model} has no price; take a newer genai-prices")
        return found

    def llm(self, server: Emulator, tenant: str) -> FunctionCallingLLM:
        """Make the host's own LLM, pointed at the emulator; a tenant is a workspace with its own key."""
        shared: dict[str, Any] = {"model": self.model, "api_key": tenant, "max_retries": 0}
        if self.provider == "anthropic":
            shared |= {"base_url": server.base_url, "max_tokens": 4_000}
        else:
            shared |= {"api_base": server.openai_url, "context_window": 400_000}
            shared |= {"is_chat_model": True, "is_function_calling_model": True}
        made: FunctionCallingLLM = getattr(import_module(self.package), self.kind)(**shared)
        return made


OPENAI = Setup("openai", "openai-chat", "gpt-5.6-terra", "llama_index.llms.openai_like", "OpenAILike")
ANTHROPIC = Setup("anthropic", "anthropic-messages", "claude-opus-4-8", "llama_index.llms.anthropic", "Anthropic")
SETUPS: Mapping[str, Setup] = {setup.provider: setup for setup in (OPENAI, ANTHROPIC)}


@dataclass(frozen=True, slots=True)
class Run:
    """What one variant sent and got.

    Attributes:
        exchanges: Requests and answers, one for each labelled call.
        kept: What it leaves beside that.
    """

    exchanges: tuple[Exchange, ...]
    kept: Kept

    def usages(self, wire: Wire) -> list[Usage]:
        """Read what the emulator reported for each call."""
        return [_READ[wire](cast("Mapping[str, object]", one.response["usage"])) for one in self.exchanges]


def run_variant(
    workload: AgentWorkload,
    setup: Setup,
    variant: Variant,
    *,
    streaming: bool = True,
    step: Callable[[int], None] = lambda _: None,
) -> Run:
    """Play a workload on the emulator, at the labels' own times.

    Args:
        workload: The labelled calls.
        setup: Which model.
        variant: "plain" or "headstay".
        streaming: Whether the agents stream, as they do by default.
        step: Called after each turn with the number of calls made so far.
    """
    clock = ManualClock(workload.start)
    with (
        time_machine.travel(workload.start) as traveller,
        tempfile.TemporaryDirectory() as folder,
        serve(clock=clock, responder=workload.responder()) as server,
    ):

        def set_clocks(moment: float) -> None:
            clock.set(moment)
            traveller.move_to(moment)

        kept = play(
            workload,
            variant,
            lambda tenant: setup.llm(server, tenant),
            Stage(set_clocks),
            Path(folder),
            streaming=streaming,
            step=step,
        )
        return Run(server.exchanges, kept)


def oracles(workload: AgentWorkload, setup: Setup) -> dict[str, OracleResult]:
    """Play the oracles: the promised one, and the one that lets any note stand last of all."""
    table = setup.rates
    shared: dict[str, Any] = {
        "model": setup.model,
        "wire": setup.wire,
        "prices": Prices(table.input, table.output, table.read, table.write_rate()),
        "message_overhead": _OVERHEAD[setup.wire],
    }
    return {"oracle": turn_oracle_run(workload, **shared), "note last": agent_oracle_run(workload, **shared)}


def summed(workload: AgentWorkload, setup: Setup, run: Run) -> dict[str, Any]:
    """Sum up one run against the oracles of its setup."""
    used = run.usages(setup.wire)
    reads = [usage.cache_read_tokens for usage in used]
    written = sum(usage.cache_write_tokens for usage in used)
    cost = sum(map(setup.rates.usd, used))
    rows = run.kept.rows
    return {
        "calls": len(used),
        "input_tokens": sum(usage.input_tokens for usage in used),
        "cache_read_tokens": sum(reads),
        "cache_write_tokens": written,
        "cost_usd": round(cost, 4),
        "against": {
            name: {
                "read_share": round(read_share(reads, best), 4),
                "writes": round(written / best.writes, 4),
                "cost": round(cost / (best.cost or cost), 4),
            }
            for name, best in oracles(workload, setup).items()
        },
        "statuses": dict(Counter(row.unverified or row.status for row in rows)),
        "short": [
            {"conversation": call.thread, "turn": call.turn, "step": call.step, "cause": row.cause, "owner": row.owner}
            for call, row in zip(workload.calls, rows, strict=False)
            if row.status == "short"
        ],
        "breaks": [
            {"cause": cause, "owner": owner, "times": times}
            for (cause, owner), times in Counter(
                (str(found.cause), found.owner) for row in rows for found in row.breaks
            ).most_common()
        ],
    }


def measure(workload: AgentWorkload, setup: Setup, step: Callable[[str, int], None]) -> dict[str, Any]:
    """Play all variants of a setup: plain and headstay, streaming and not.

    Returns:
        A result for each variant, and whether the answers were the same.
    """
    runs: dict[str, Run] = {}
    for variant in VARIANTS:
        runs[variant] = run_variant(workload, setup, variant, step=partial(step, variant))
    whole = "headstay, not streaming"
    runs[whole] = run_variant(workload, setup, "headstay", streaming=False, step=partial(step, whole))
    answers = {run.kept.answers for run in runs.values()}
    return {
        "model": setup.model,
        "wire": setup.wire,
        "results": {name: summed(workload, setup, run) for name, run in runs.items()},
        "answers_are_the_same": len(answers) == 1,
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """Write the results of a setup as a table."""
    made = [f"{found['model']} ({found['wire']})"]
    made.append(f"  {'variant':<26}{'share':>8}{'read':>12}{'written':>11}{'x best':>8}{'USD':>10}{'x best':>8}")
    plain = found["results"]["plain"]
    for name, result in found["results"].items():
        best = result["against"]["oracle"]
        made.append(
            f"  {name:<26}{best['read_share']:>8.4f}{result['cache_read_tokens']:>12,}"
            f"{result['cache_write_tokens']:>11,}{best['writes']:>8.3f}{result['cost_usd']:>10.4f}{best['cost']:>8.3f}"
        )
    for name in [name for name in found["results"] if name != "plain"]:
        result = found["results"][name]
        other = result["against"]["note last"]
        short = Counter(f"{one['cause']} ({one['owner']})" for one in result["short"])
        made += [
            f"  {name}: {'met' if is_met(result) else 'MISSED'} (share >= 0.98, writes and cost <= 1.02)",
            f"    costs {result['cost_usd'] / plain['cost_usd']:.3f} of plain; against an oracle whose retrieved text "
            f"stands last of all: share {other['read_share']:.4f}, writes {other['writes']:.3f}, "
            f"cost {other['cost']:.3f}",
            f"    verdicts {result['statuses']}; short: {dict(short) or 'none'}",
            "    breaks " + ", ".join(f"{one['times']} x {one['cause']} ({one['owner']})" for one in result["breaks"]),
        ]
    made.append(f"  answers as those of the plain agent: {'yes' if found['answers_are_the_same'] else 'NO'}")
    return made


def is_met(result: Mapping[str, Any]) -> bool:
    """Whether a run keeps what is promised."""
    best: Mapping[str, float] = result["against"]["oracle"]
    return (
        best["read_share"] >= PROMISED["read_share"]
        and best["writes"] <= PROMISED["writes"]
        and best["cost"] <= PROMISED["cost"]
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "-"


def told(setup: Setup, variant: str, made: int) -> None:
    """Show on stderr how far a run is."""
    print(f"\r{setup.model} {variant}: {made} calls{' ' * 20}", end="", file=sys.stderr, flush=True)


def about(options: argparse.Namespace, workload: AgentWorkload, seconds: float) -> dict[str, Any]:
    """Say what was played, where and when."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "prices": str(price(Usage(), provider="anthropic", model="claude-opus-4-8").as_of),
        "seed": options.seed,
        "threads": len(workload.threads),
        "turns": len(workload.turns),
        "calls": len(workload.calls),
        "seconds": round(seconds, 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=20)
    parser.add_argument("--longest", type=int, default=30, help="user turns of the longest thread")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--setup", action="append", choices=list(SETUPS), help="default all that work here")
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    options = parser.parse_args(arguments)
    names: list[str] = options.setup or [name for name, setup in SETUPS.items() if setup.works]
    workload = llama_workload(seed=options.seed, threads=options.threads, longest=options.longest)
    began = time.monotonic()
    found = [measure(workload, SETUPS[name], partial(told, SETUPS[name])) for name in names]
    facts = about(options, workload, time.monotonic() - began)
    print(file=sys.stderr)
    if options.form == "json":
        print(json.dumps({"about": facts, "results": found}, ensure_ascii=False))
        return
    print(f"date      {facts['date']}")
    print(f"machine   {facts['machine']}")
    print("versions  " + ", ".join(f"{name} {number}" for name, number in facts["versions"].items()))
    print(
        f"workload  {facts['threads']} threads, {facts['turns']} turns, {facts['calls']} model calls, seed "
        f"{facts['seed']}; prices {facts['prices']}; caches modelled, tokens estimated; {facts['seconds']:.0f} s\n"
    )
    print("\n\n".join("\n".join(lines(one)) for one in found))


if __name__ == "__main__":
    main()
