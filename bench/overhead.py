"""What planning and verifying add to a call: milliseconds of CPU at 50, 200 and 800 messages with 50 tools.

Every call continues a conversation: the history of the call before and two messages more, in new objects, as a host
that reads it from a client or a database sends it. Beside it stands what every SDK does with the same body, writing it
as JSON, so that runs on different machines can be compared as ratios.

Run: python bench/overhead.py [--calls 200] [--format text|json]
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from headstay import Declared, Flow, Settings, Template, __version__
from headstay.layout import arrange, lane_of
from headstay.ledger import Usage
from headstay.prompt import Wire
from headstay.providers.rules import find_rules
from headstay.toolset import ToolState
from headstay.verify import verify
from headstay.wires import parse, render
from ledger import machine

BUDGET_MS = 1.0
BUDGET_AT = 200
SIZES = (50, 200, 800)
TOOLS = 50
MODELS: dict[Wire, str] = {
    "anthropic-messages": "claude-opus-5",
    "openai-chat": "gpt-5.6-terra",
    "openai-responses": "gpt-6.1-sol",
}
SENTENCE = "Answer briefly, quote the policy that applies, and say what happens next and when. "
POLICY = SENTENCE * 110  # some 9,000 characters, or 2,100 tokens
DECLARED = Declared(
    (Template(("You serve ", ", account ", ".\nIt is ", ".\n" + POLICY), ("customer", "account", "clock")),)
)


@dataclass(frozen=True)
class Figures:
    """Medians of one wire and size, in milliseconds of CPU.

    Attributes:
        wire: The wire format.
        messages: How long the history is at the first call.
        plan: Reading the body, arranging it and writing the arranged one.
        verify: Reading what was written and holding it against the plan.
        prepare: The whole of `Flow.prepare`, head store in memory included.
        complete: The whole of `Flow.complete`, head store and ledger in memory included.
        first_plan: Planning when nothing of the history was seen before.
        encode: `json.dumps` of the body, for comparison.
    """

    wire: Wire
    messages: int
    plan: float
    verify: float
    prepare: float
    complete: float
    first_plan: float
    encode: float


def body_of(wire: Wire, messages: int, call: int) -> dict[str, Any]:
    """Build a request of one conversation; texts are 40 to 600 characters long."""
    clock = f"2026-11-29T10:{call // 60 % 60:02d}:{call % 60:02d}Z"
    system = f"You serve Ada Lovelace, account 10-{messages}.\nIt is {clock}.\n{POLICY}"
    texts = [f"{number} of {call // 10**6}: {SENTENCE * (number % 7) + SENTENCE[:40]}" for number in range(messages)]
    fields = {f"field_{n}": {"type": "string", "description": SENTENCE[: 20 + n]} for n in range(6)}
    schema = {"type": "object", "properties": fields, "required": ["field_0"]}
    named = [{"name": f"tool_{number:02d}", "description": SENTENCE} for number in range(TOOLS)]
    roles = ("user", "assistant")
    body: dict[str, Any] = {"model": MODELS[wire]}
    if wire == "anthropic-messages":
        body["max_tokens"], body["system"] = 1_000, system
        body["tools"] = [{**tool, "input_schema": schema} for tool in named]
        body["messages"] = [
            {"role": roles[n % 2], "content": [{"type": "text", "text": text}]} for n, text in enumerate(texts)
        ]
    elif wire == "openai-chat":
        body["tools"] = [{"type": "function", "function": {**tool, "parameters": schema}} for tool in named]
        body["messages"] = [{"role": "developer", "content": system}]
        body["messages"] += [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    else:
        kinds = ("input_text", "output_text")
        body["tools"] = [{"type": "function", **tool, "parameters": schema} for tool in named]
        body["input"] = [{"role": "developer", "content": system}]
        body["input"] += [
            {"type": "message", "role": roles[n % 2], "content": [{"type": kinds[n % 2], "text": text}]}
            for n, text in enumerate(texts)
        ]
    return body


def bodies(wire: Wire, messages: int, calls: int) -> Iterator[dict[str, Any]]:
    """Yield the requests of one conversation: an odd number of messages, two more with each call."""
    for call in range(calls):
        yield body_of(wire, messages - 1 + 2 * (call % 20), call)


def milliseconds(start: int) -> float:
    """CPU time of this thread since a reading of its clock."""
    return (time.thread_time_ns() - start) / 1e6


def plan_and_verify(wire: Wire, messages: int, calls: int) -> tuple[list[float], list[float]]:
    """Time planning and verifying, apart from each other, for each call of a conversation."""
    planning: list[float] = []
    verifying: list[float] = []
    tools = ToolState()
    for call, body in enumerate(bodies(wire, messages, calls)):
        start = time.thread_time_ns()
        prompt = parse(body, wire)
        rules = find_rules(wire, prompt.model)
        lane = lane_of(prompt, rules, tenant=None, endpoint="", agent="bench")
        plan = arrange(prompt, lane, rules, float(call), declared=DECLARED, tools=tools)
        sent = render(body, prompt, plan, rules)
        planning.append(milliseconds(start))
        tools = plan.tool_state
        start = time.thread_time_ns()
        problems = verify(parse(sent, wire), plan, rules)
        verifying.append(milliseconds(start))
        if problems:
            raise RuntimeError("; ".join(problems))
    return planning, verifying


def whole(wire: Wire, messages: int, calls: int) -> tuple[list[float], list[float]]:
    """Time everything headstay does before and after each call of a conversation."""
    flow = Flow(Settings("bench", DECLARED, on_break="record"))
    before: list[float] = []
    after: list[float] = []
    for call, body in enumerate(bodies(wire, messages, calls)):
        start = time.thread_time_ns()
        prepared = flow.prepare(body, wire=wire, now=float(call))
        before.append(milliseconds(start))
        start = time.thread_time_ns()
        flow.complete(prepared, Usage(20_000 + call, 19_000, 500, {}, 100))
        after.append(milliseconds(start))
        if prepared.unverified:
            raise RuntimeError(prepared.unverified)
    return before, after


def first_plans(wire: Wire, messages: int, calls: int) -> list[float]:
    """Time planning of conversations that were never seen."""
    taken: list[float] = []
    for call in range(calls):
        body = body_of(wire, messages - 1, (call + 1) * 10**6)
        start = time.thread_time_ns()
        prompt = parse(body, wire)
        rules = find_rules(wire, prompt.model)
        lane = lane_of(prompt, rules, tenant=None, endpoint="", agent="bench")
        render(body, prompt, arrange(prompt, lane, rules, float(call), declared=DECLARED), rules)
        taken.append(milliseconds(start))
    return taken


def encodings(wire: Wire, messages: int, calls: int) -> list[float]:
    """Time writing the bodies as JSON."""
    taken: list[float] = []
    for body in bodies(wire, messages, calls):
        start = time.thread_time_ns()
        json.dumps(body)
        taken.append(milliseconds(start))
    return taken


def measure(wire: Wire, messages: int, calls: int) -> Figures:
    """Take all medians of one wire and size."""
    planning, verifying = plan_and_verify(wire, messages, calls)
    before, after = whole(wire, messages, calls)
    series = (
        planning,
        verifying,
        before,
        after,
        first_plans(wire, messages, min(calls, 30)),
        encodings(wire, messages, calls),
    )
    return Figures(wire, messages, *(round(statistics.median(taken), 3) for taken in series))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    found = [measure(wire, messages, options.calls) for wire in MODELS for messages in SIZES]
    held = [row for row in found if row.messages == BUDGET_AT]
    met = all(max(row.plan, row.verify) <= BUDGET_MS for row in held)
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": f"Python {platform.python_version()}, headstay {__version__}",
        "calls": options.calls,
        "tools": TOOLS,
        "budget_ms": BUDGET_MS,
        "budget_at": BUDGET_AT,
        "met": met,
    }
    if options.format == "json":
        print(json.dumps({**about, "results": [asdict(row) for row in found]}))
        return
    for name in ("date", "machine", "versions"):
        print(f"{name:<9}{about[name]}")
    columns = ("plan", "verify", "prepare", "complete", "first_plan", "encode")
    print(f"\nmilliseconds of CPU, medians of {options.calls} calls, {TOOLS} tools; in brackets the ratio to encode")
    print(f"{'wire':<20}{'messages':>8}" + "".join(f"{name:>16}" for name in columns))
    for row in found:
        figures = [getattr(row, name) for name in columns]
        cells = "".join(f"{figure:>9.3f} ({figure / row.encode:>4.2f})" for figure in figures)
        print(f"{row.wire:<20}{row.messages:>8}{cells}")
    print(f"\nbudget: plan and verify each <= {BUDGET_MS} ms at {BUDGET_AT} messages: {'met' if met else 'MISSED'}")


if __name__ == "__main__":
    main()
