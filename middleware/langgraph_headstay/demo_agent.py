"""The hostile agent end to end: a support desk built with `create_agent`, on the real SDKs against the emulator.

Its application breaks the prefix in every known way: clock, ids and few-shot in the system text, tools in another
order each call, one late, one removed, one changed, a summary, a restart. Every figure is read from what the emulator
answered; the oracle's come from the workload's labels. Token counts are estimates; caches and prices are modelled.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any, Literal, NamedTuple, cast

from langchain_core.messages import AnyMessage, messages_from_dict, messages_to_dict

from headstay.canonical import digest, wire_text
from headstay.causes import Break
from headstay.emulator import AnthropicSwitches, Exchange, ManualClock, serve
from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_oracle import agent_oracle_run
from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import (
    DESK,
    AgentCall,
)
from headstay.emulator.oracle import OracleResult, Prices, read_share
from headstay.emulator.shape import compact
from headstay.ledger.price import Rates, price, rates
from headstay.ledger.usage import Usage, from_anthropic, from_openai_chat, from_openai_responses
from headstay.wires import parse
from langgraph_headstay.demo_desk import AgentSetup, Application, Stage, Variant

_USAGE: dict[str, Callable[[Mapping[str, object]], Usage]] = {
    "anthropic-messages": from_anthropic,
    "openai-chat": from_openai_chat,
    "openai-responses": from_openai_responses,
}
# Structural tokens that the emulator counts in front of each OpenAI message.
_OVERHEAD: dict[str, int] = {"anthropic-messages": 0, "openai-chat": 3, "openai-responses": 3}

SETUPS = (
    AgentSetup("anthropic", "anthropic-messages", "claude-opus-5-5", thinking=True, native_late_tools=True),
    AgentSetup("anthropic", "anthropic-messages", "claude-sonnet-4-6", note_behind_user=True),
    AgentSetup("openai", "openai-responses", "gpt-6.1-sol", native_late_tools=True),
    AgentSetup("openai", "openai-chat", "gpt-5.4"),
)


TITLE = "Hostile support agent, 20 threads of 6 to 30 turns, on the loopback emulator"
CALLS = 652
OPTIONS = {"processes": min(2, os.cpu_count() or 1)}
DEMO = (SETUPS[0], SETUPS[2])
"""What `headstay demo --agent` runs; all of them take more than its three minutes on a busy machine."""


def lengths_of(workload: AgentWorkload) -> dict[tuple[str, int], int]:
    """Count the messages that each turn adds to its thread: the user's, the model's, and the tool results."""
    desk = {(turn.thread.name, turn.number): turn.calls for turn in workload.turns}
    own = {key: [call for call in calls if call.agent == DESK] for key, calls in desk.items()}
    return {key: 1 + sum(1 + len(call.said.uses) for call in calls) for key, calls in own.items()}


Oracle = Literal["oracle", "oracle-native", "oracle-note"]
Job = tuple[AgentSetup, Variant]
Progress = Callable[[AgentSetup, str, int], None]


class Run(NamedTuple):
    """What one variant sent and got.

    Attributes:
        exchanges: Requests and answers, one for each labelled call.
        others: The summariser's own.
        breaks: The breaks found at each call.
        ran: Thread, turn and name of each tool whose body ran.
    """

    exchanges: tuple[Exchange, ...]
    others: tuple[Exchange, ...]
    breaks: tuple[tuple[Break, ...], ...]
    ran: tuple[tuple[str, int, str], ...]


def run_variant(
    workload: AgentWorkload,
    setup: AgentSetup,
    variant: Variant,
    *,
    step: Callable[[int], None] = lambda _: None,
) -> Run:
    """Play the workload through agents of the host.

    A thinking block whose prefix changed is an error for headstay, and dropped for the others: they could not go on.

    Args:
        workload: The labelled calls.
        setup: Which model.
        variant: Which middleware is last.
        step: Called after each turn with the number of calls made so far.

    Returns:
        What was sent, and what was found.
    """
    stage = Stage(ManualClock(workload.start), lengths_of(workload))
    strict = AnthropicSwitches(thinking_mismatch="error" if variant == "headstay" else "drop_block")
    held: dict[str, list[AnyMessage]] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        serve(clock=stage.clock, responder=workload.responder(), anthropic=strict) as server,
    ):
        folder, made = Path(name), 0
        application = Application(setup, variant, server, stage, folder)
        for turn in workload.turns:
            if (turn.thread.name, turn.number) == workload.restart:
                application.close()
                held = {thread: _reloaded(kept) for thread, kept in held.items()}
                application = Application(setup, variant, server, stage, folder)
            held[turn.thread.name] = application.play(turn, held.get(turn.thread.name, []))
            made += len(turn.calls)
            step(made)
        with closing(application):
            rows = list(application.ledger.rows())
        exchanges = server.exchanges
    others = tuple(exchange for exchange in exchanges if texts.SUMMARY_REQUEST in compact(exchange.body))
    ours = tuple(exchange for exchange in exchanges if exchange not in others)
    return Run(ours, others, tuple(row.breaks for row in rows) or ((),) * len(ours), tuple(stage.ran))


def _reloaded(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Store the messages that a client holds, and read them again."""
    return cast("list[AnyMessage]", messages_from_dict(messages_to_dict(messages)))


def run_demo(
    setups: Sequence[AgentSetup] = SETUPS,
    *,
    workload: AgentWorkload | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Run every variant of every setup.

    Args:
        setups: Which models.
        workload: The labelled calls; the whole support desk by default.
        processes: How many work at once; more than one only from a program with a main guard.
        progress: Called with setup, variant and the number of calls made.

    Returns:
        One result for each setup and variant, in the form of `langchain_headstay.demo.run_demo`; beside it each has
        `requests`, one line for each model call, and a run has `read_shares` against each oracle of its setup. The
        `read_share` of a run is that against the promised oracle.
    """
    work = workload or support_agent()
    jobs: list[Job] = [(setup, variant) for setup in setups for variant in setup.variants]
    results = dict(_work(work, jobs, processes, progress or _silent))
    found: list[dict[str, Any]] = []
    for setup in setups:
        found += [results[setup, variant] for variant in setup.variants]
        found += [oracle_result(work, setup, oracle) for oracle in oracles_of(setup)]
    return found


def _silent(setup: AgentSetup, variant: str, made: int) -> None:
    """Show no progress."""


def _work(
    workload: AgentWorkload, jobs: Sequence[Job], processes: int, progress: Progress
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Do the jobs, here or in other processes; the slowest wire first, so that the last one ends early."""
    if processes <= 1:
        for job in jobs:
            yield job, _result(workload, job, partial(progress, *job))
        return
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        told: Any = manager.Queue()
        slowest_first = sorted(jobs, key=lambda job: job[0].wire != "openai-responses")
        waiting = {pool.submit(_elsewhere, workload, job, told): job for job in slowest_first}
        while waiting:
            with suppress(Empty):
                progress(*told.get(timeout=0.2))
            for done in [future for future in waiting if future.done()]:
                yield waiting.pop(done), done.result()


def _elsewhere(workload: AgentWorkload, job: Job, told: Any) -> dict[str, Any]:
    return _result(workload, job, lambda made: told.put((*job, made)))


def _result(workload: AgentWorkload, job: Job, step: Callable[[int], None]) -> dict[str, Any]:
    return summed(workload, *job, run_variant(workload, *job, step=step))


def promised_oracle(setup: AgentSetup) -> Oracle:
    """Name the oracle that the figures are held against: where tools can be appended, it appends them too."""
    return "oracle-native" if setup.native_late_tools else "oracle"


def oracles_of(setup: AgentSetup) -> tuple[Oracle, ...]:
    """Name the oracles of a setup."""
    native: tuple[Oracle, ...] = ("oracle-native",) if setup.native_late_tools else ()
    return ("oracle", *native, *(("oracle-note",) if setup.note_behind_user else ()))


def _oracle(workload: AgentWorkload, setup: AgentSetup, name: Oracle = "oracle") -> OracleResult:
    table = rates(setup.provider, setup.model)
    return agent_oracle_run(
        workload,
        model=setup.model,
        wire=setup.wire,
        prices=None if table is None else Prices(table.input, table.output, table.read, table.write_rate()),
        native_late_tools=name == "oracle-native",
        note_behind_user=name == "oracle-note",
        kept_notes=setup.thinking,
        thinking=setup.thinking,
        message_overhead=_OVERHEAD[setup.wire],
    )


def price_date() -> str:
    """Return the date of the prices used."""
    return price(Usage(), provider="anthropic", model="claude-opus-5-5").as_of


def summed(workload: AgentWorkload, setup: AgentSetup, variant: Variant, run: Run) -> dict[str, Any]:
    """Sum up one run against the oracles of its setup."""
    oracles = {name: _oracle(workload, setup, name) for name in oracles_of(setup)}
    table: Rates | None = rates(setup.provider, setup.model)
    used = [_USAGE[setup.wire](cast("Mapping[str, object]", exchange.response["usage"])) for exchange in run.exchanges]
    reads = [usage.cache_read_tokens for usage in used]
    shares = {name: round(read_share(reads, oracle), 4) for name, oracle in oracles.items()}
    heads = {head_of(setup, exchange) for exchange in run.exchanges}
    promised = promised_oracle(setup)
    return {
        **_named(setup, variant),
        "calls": len(used),
        "input_tokens": sum(usage.input_tokens for usage in used),
        "cache_read_tokens": sum(reads),
        "cache_write_tokens": sum(usage.cache_write_tokens for usage in used),
        "read_share": shares[promised],
        "read_shares": shares,
        "cost_usd": None if table is None else round(sum(table.usd(usage) for usage in used), 6),
        "distinct_heads": len(heads),
        "breaks": [
            {
                "cause": str(found.cause),
                "owner": found.owner,
                "conversation": call.thread,
                "turn": call.turn,
                "step": call.step,
                "remedy": found.remedy,
            }
            for call, breaks in zip(workload.calls, run.breaks, strict=True)
            for found in breaks
        ],
        "requests": [
            _request(call, usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, best.readable)
            for call, usage, best in zip(workload.calls, used, oracles[promised].calls, strict=True)
        ],
    }


def oracle_result(workload: AgentWorkload, setup: AgentSetup, name: Oracle = "oracle") -> dict[str, Any]:
    """Sum up what a perfect layout would have had, in the same form.

    Args:
        workload: The labelled calls.
        setup: Which model.
        name: "oracle"; "oracle-native" where late tools are appended to the conversations; "oracle-note" where a note
            stands behind the user's words also while tools are called.
    """
    native = name == "oracle-native"
    oracle = _oracle(workload, setup, name)
    breaks = workload.breaks_on(oracle.wire, native_late_tools=native)
    return {
        **_named(setup, name),
        "calls": len(oracle.calls),
        "input_tokens": oracle.input_tokens,
        "cache_read_tokens": oracle.readable,
        "cache_write_tokens": oracle.writes,
        "read_share": 1.0,
        "cost_usd": None if oracle.cost is None else round(oracle.cost, 6),
        "distinct_heads": workload.heads(native_late_tools=native),
        "breaks": [
            {"cause": cause, "owner": owner, "conversation": thread, "turn": turn, "step": step, "remedy": ""}
            for thread, turn, step, cause, owner in breaks
        ],
        "requests": [
            _request(call, best.input_tokens, best.readable, best.writes, best.readable)
            for call, best in zip(workload.calls, oracle.calls, strict=True)
        ],
    }


def _named(setup: AgentSetup, variant: str) -> dict[str, Any]:
    return {"provider": setup.provider, "wire": setup.wire, "model": setup.model, "variant": variant}


def _request(call: AgentCall, tokens: int, read: int, written: int, readable: int) -> dict[str, Any]:
    return {
        "agent": call.agent,
        "conversation": call.thread,
        "turn": call.turn,
        "step": call.step,
        "input_tokens": tokens,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "readable_tokens": readable,
    }


def head_of(setup: AgentSetup, exchange: Exchange) -> bytes:
    """Hash what a request begins with: its tools and its first system block."""
    prompt = parse(exchange.body, setup.wire)
    return digest(exchange.workspace, *(wire_text(tool.wire) for tool in prompt.tools), *prompt.system[:1])
