"""What local vLLM reads of a hostile agent's prompts: the application's own messages, and under headstay.

Run: python bench/local_agent.py [--threads 8] [--longest 4] [--dtype NAME] [--base-url URL] [--format json]

The support desk of `bench/prefix_reads.py`, cut to 4,096 tokens, is played through LangGraph agents on `ChatLocal`;
each request generates one token. Reads are those of vLLM's usage. They are held against the reads that an ideal layout
of the workload's labels would have had, in whole blocks, by the server's own tokenizer and size of cache.
It serves SmolLM2 itself, beside any server of yours; `headstay local install` comes first.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import httpx2

from headstay import __version__
from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.errors import HeadstayError
from headstay.local.client import server_at
from headstay.local.home import find_home
from langchain_headstay import ChatLocal
from langgraph_headstay.demo_desk import Variant
from langgraph_headstay.demo_server import own_server
from ledger import machine
from local_desk import Played, cut, play, share
from local_ideal import cache_of, readable, tokenizer

PROMISED = 0.98
CONTEXT = 4_096
VARIANTS: tuple[Variant, ...] = ("plain", "headstay")
PACKAGES = ("langchain", "langgraph", "langchain-openai", "openai")


def model_maker(base_url: str, variant: Variant) -> Callable[[httpx2.Client], ChatLocal]:
    """Return what makes the model of one run; nothing that other runs left in the cache can be read by it.

    Args:
        base_url: The server.
        variant: "plain" for the application's own messages, "headstay" where headstay salts them by tenant.
    """
    server = server_at(base_url)
    name = server.models()[0]
    traits = server.traits(name)
    own: dict[str, Any] = (
        {"extra_body": {"cache_salt": uuid4().hex}} if variant == "plain" else {"salt_key": uuid4().hex}
    )

    def make(client: httpx2.Client) -> ChatLocal:
        return ChatLocal(
            model=name,
            base_url=base_url,
            block_size=traits.block or 16,
            in_place_system=bool(traits.in_place_system),
            context_length=traits.context,
            http_client=client,
            temperature=0,
            max_retries=0,
            **own,
        )

    return make


def measure(base_url: str, workload: AgentWorkload) -> dict[str, Any]:
    """Play a workload in both ways on one server.

    Args:
        base_url: The server.
        workload: The labelled calls, cut or not; they are cut to the context of the benchmark here.

    Returns:
        What was played, and a result for each variant.
    """
    tokenize = tokenizer(base_url)
    smaller = cut(workload, tokenize, CONTEXT)
    best = readable(smaller, tokenize, cache_of(base_url))
    runs: dict[str, Any] = {}
    for variant in VARIANTS:
        began = time.perf_counter()
        played = play(smaller, variant, model_maker(base_url, variant), step=partial(told, variant))
        runs[variant] = summed(smaller, played, best) | {"seconds": round(time.perf_counter() - began, 1)}
    print(file=sys.stderr)
    return {
        "threads": len(smaller.threads),
        "turns": len(smaller.turns),
        "calls": len(smaller.calls),
        "readable_tokens": sum(best),
        "runs": runs,
        "met": runs["headstay"]["share"] >= PROMISED,
    }


def told(variant: str, made: int) -> None:
    """Show on stderr how far a run is."""
    print(f"\r{variant}: {made} calls{' ' * 20}", end="", file=sys.stderr, flush=True)


def summed(workload: AgentWorkload, played: Played, best: Sequence[int]) -> dict[str, Any]:
    """Sum up one run."""
    asked = played.asked
    read_again = [one for one, most in zip(asked, best, strict=True) if most]
    return {
        "share": round(share([one.read for one in asked], best), 4),
        "prompt_tokens": sum(one.prompt for one in asked),
        "read_tokens": sum(one.read for one in asked),
        "first_token_ms": round(1e3 * statistics.median(one.seconds for one in read_again)),
        "short_of": [
            {"conversation": call.thread, "turn": call.turn, "step": call.step, "read": one.read, "readable": most}
            for call, one, most in zip(workload.calls, asked, best, strict=True)
            if one.read < most
        ],
        "statuses": dict(Counter(played.statuses)),
        "breaks": [
            {"owner": owner, "cause": cause, "times": times}
            for (owner, cause), times in sorted(
                Counter((found.owner, str(found.cause)) for breaks in played.breaks for found in breaks).items()
            )
        ],
    }


def lines(result: Mapping[str, Any]) -> list[str]:
    """Write the result as a table."""
    head = f"{'variant':<10}{'share':>8}{'prompt':>11}{'read':>11}{'first token':>13}{'calls short':>13}"
    rows = [
        f"{name:<10}{run['share']:>8.4f}{run['prompt_tokens']:>11,}{run['read_tokens']:>11,}"
        f"{run['first_token_ms']:>10,} ms{len(run['short_of']):>13}"
        for name, run in result["runs"].items()
    ]
    ours = result["runs"]["headstay"]
    found = [f"    {item['times']:>3} x {item['cause']} ({item['owner']})" for item in ours["breaks"]]
    verdict = "met" if result["met"] else "MISSED"
    return [
        f"workload  {result['threads']} threads, {result['turns']} turns, {result['calls']} model calls, "
        f"{result['readable_tokens']:,} tokens readable in an ideal layout",
        *("", head, *rows, ""),
        *("breaks that headstay found, and whose they are:", *found, ""),
        f"verdicts of its ledger on vLLM's reads: {ours['statuses']}",
        f"share of readable tokens read under headstay: {ours['share']:.4f} (>= {PROMISED}): {verdict}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--longest", type=int, default=4, help="user turns of the longest thread, before the cut")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--dtype", help="number type of the server's model; what suits the device by default")
    parser.add_argument("--base-url", help="a server that runs already, with at least 4,096 tokens of context")
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    options = parser.parse_args()
    workload = support_agent(seed=options.seed, threads=options.threads, longest=options.longest)
    try:
        if options.base_url is not None:
            device, result = options.base_url, measure(options.base_url, workload)
        else:
            dtype = ("--dtype", options.dtype) if options.dtype else ()
            arguments = (*dtype, "--context", str(CONTEXT), "--kv-gib", "1")
            with own_server(find_home(), *arguments, say=lambda line: print(line, file=sys.stderr)) as started:
                device, result = started.device, measure(started.base_url, workload)
    except HeadstayError as problem:
        sys.exit(f"local_agent: {problem}")
    about: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "server": device,
        "versions": {"headstay": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
    }
    if options.form == "json":
        print(json.dumps({"about": about, **result}, ensure_ascii=False))
        return
    print(f"date      {about['date']}")
    print(f"machine   {about['machine']}")
    print(f"server    {device}")
    print("versions  " + ", ".join(f"{name} {number}" for name, number in about["versions"].items()))
    print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
