"""What `headstay.diff` takes: milliseconds for pairs of 200 messages and 50 tools, and for an image of 10 MB.

Run: python bench/diff.py [--times 50] [--format text|json]
"""

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from headstay import __version__, diff
from ledger import machine

BUDGET_MS = 5.0
MESSAGES = 200
TOOLS = 50
WIRES = ("anthropic-messages", "openai-chat", "openai-responses")
SENTENCE = "Answer briefly, quote the policy that applies, and say what happens next and when. "
Body = dict[str, Any]


def body_of(wire: str) -> Body:
    """Build a request of 200 messages; a third are calls and results, texts are 40 to 600 characters long."""
    field = "input" if wire == "openai-responses" else "messages"
    items: list[Body] = []
    for number in range(MESSAGES // 4):
        text = f"{number}: {SENTENCE * (number % 7) + SENTENCE[:40]}"
        arguments = {"order": number, "city": "Oslo", "notes": text[:80]}
        items += [{"role": "user", "content": text}, *_call(wire, number, arguments), *_result(wire, number, text)]
        items.append({"role": "assistant", "content": text[::-1]})
    schema = {"type": "object", "properties": {f"field_{n}": {"type": "string"} for n in range(6)}}
    key = "input_schema" if wire == "anthropic-messages" else "parameters"
    tools: list[Body] = [{"name": f"tool_{n:02d}", "description": SENTENCE, key: schema} for n in range(TOOLS)]
    system = f"You serve Ada.\nToday is 2026-11-29.\n{SENTENCE * 110}"
    if wire == "anthropic-messages":
        return {"model": "claude-opus-5", "max_tokens": 9, "system": system, "tools": tools, field: items}
    if wire == "openai-chat":
        functions = [{"type": "function", "function": tool} for tool in tools]
        return {"model": "gpt-5.4", "tools": functions, field: [{"role": "system", "content": system}, *items]}
    return {
        "model": "gpt-5.4",
        "tools": [{"type": "function", **tool} for tool in tools],
        "instructions": system,
        field: items,
    }


def _call(wire: str, number: int, arguments: Body) -> list[Body]:
    if wire == "anthropic-messages":
        call = {"type": "tool_use", "id": f"c{number}", "name": "tool_01", "input": arguments}
        return [{"role": "assistant", "content": [call]}]
    text = json.dumps(arguments)
    if wire == "openai-chat":
        call = {"id": f"c{number}", "type": "function", "function": {"name": "tool_01", "arguments": text}}
        return [{"role": "assistant", "content": None, "tool_calls": [call]}]
    return [{"type": "function_call", "call_id": f"c{number}", "name": "tool_01", "arguments": text}]


def _result(wire: str, number: int, text: str) -> list[Body]:
    if wire == "anthropic-messages":
        return [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": text}]}]
    if wire == "openai-chat":
        return [{"role": "tool", "tool_call_id": f"c{number}", "content": text}]
    return [{"type": "function_call_output", "call_id": f"c{number}", "output": text}]


def _items(body: Body) -> list[Body]:
    found: list[Body] = body.get("messages") or body["input"]
    return found


def continued(body: Body) -> None:
    """Add a turn."""
    _items(body).extend([{"role": "assistant", "content": "Well."}, {"role": "user", "content": "And?"}])


def clock(body: Body) -> None:
    """Change the date in the system text."""
    continued(body)
    holder, key = (body, "system") if "system" in body else (body, "instructions")
    if key not in body:
        holder, key = _items(body)[0], "content"
    holder[key] = holder[key].replace("11-29", "11-30")


def dropped(body: Body) -> None:
    """Leave out forty messages from the middle."""
    continued(body)
    del _items(body)[41:81]


def ids(body: Body) -> None:
    """Give every tool call another id."""
    continued(body)
    for item in _items(body):
        parts = item["content"] if isinstance(item.get("content"), list) else []
        for holder in (item, *item.get("tool_calls", ()), *parts):
            for key in ("id", "call_id", "tool_call_id", "tool_use_id"):
                if key in holder:
                    holder[key] = f"new_{holder[key]}"


def edited(body: Body) -> None:
    """Write a third of the messages in other words."""
    continued(body)
    for item in _items(body)[3::3]:
        if isinstance(item.get("content"), str):
            item["content"] = item["content"].replace("Answer briefly", "Always answer in brief")


def image(body: Body) -> None:
    """Put an image of 10 MB in front."""
    block: Body = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 10_000_000}}
    _items(body).insert(1, {"role": "user", "content": [block]})


CHANGES: tuple[Callable[[Body], None], ...] = (continued, clock, dropped, ids, edited)


def milliseconds(before: Body, after: Body, times: int) -> tuple[float, list[str]]:
    """Return the median CPU time of a comparison, and what it found."""
    taken: list[float] = []
    found: list[str] = []
    for _ in range(times):
        start = time.process_time_ns()
        found = [str(finding.cause) for finding in diff(before, after).findings]
        taken.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(taken), found


def main() -> None:
    """Measure, and say whether the budget is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for wire in WIRES:
        before = body_of(wire)
        for change in CHANGES:
            after = copy.deepcopy(before)
            change(after)
            median, found = milliseconds(before, after, options.times)
            rows.append({"wire": wire, "change": change.__name__, "ms": round(median, 2), "found": found})
    large = body_of("anthropic-messages")
    image(large)
    after = copy.deepcopy(large)
    continued(after)
    median, found = milliseconds(large, after, 5)
    picture = {"wire": "anthropic-messages", "change": "image of 10 MB", "ms": round(median, 2), "found": found}
    worst = max(row["ms"] for row in rows)
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    if options.format == "json":
        print(json.dumps({"rows": [*rows, picture], "worst_ms": worst, "budget_ms": BUDGET_MS, "made": made}))
        return
    print(f"headstay {__version__}, {made}, {machine()}; median of {options.times}, CPU time")
    for row in [*rows, picture]:
        print(f"{row['wire']:<20} {row['change']:<16} {row['ms']:>8.2f} ms  {', '.join(row['found']) or 'clean'}")
    verdict = "kept" if worst <= BUDGET_MS else "missed"
    print(f"worst of {MESSAGES} messages: {worst:.2f} ms, budget {BUDGET_MS:g} ms: {verdict}")


if __name__ == "__main__":
    main()
