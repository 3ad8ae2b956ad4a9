"""The scripted model of an agent workload: what it answers depends on what it finds in the request alone.

A user's text names its thread and turn in a mark such as `[case t07.03]`. The tool results behind that text say how
far the turn has come. Notes, in-place system messages, few-shot messages and images do not disturb it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headstay.emulator.agent_workload_labels import AgentCall, Summary
from headstay.emulator.agent_workload_text import SUMMARY_REQUEST
from headstay.emulator.reply import Reply, ToolCall, Wire
from headstay.emulator.shape import mapping, sequence

CASE = re.compile(r"\[case (t\d+\.\d+s?)\]")
"""The mark of a user's text: thread, turn, and an `s` when a colleague asks the specialist."""

_TEXTS = frozenset({"text", "input_text"})


class Script:
    """Answers requests by the labels of a workload.

    Args:
        conversations: The calls of each conversation, in order.
        summaries: The summaries by thread.
    """

    def __init__(self, conversations: Mapping[str, tuple[AgentCall, ...]], summaries: Mapping[str, Summary]) -> None:
        self._turns: dict[str, list[AgentCall]] = {}
        self._summaries: dict[str, str] = {}
        for name, calls in conversations.items():
            for call in calls:
                self._turns.setdefault(case_of(call.user), []).append(call)
            if name in summaries:
                self._summaries[case_of(calls[0].user).partition(".")[0]] = summaries[name].text

    def respond(self, wire: Wire, body: Mapping[str, Any]) -> Reply:
        """Answer a request.

        Raises:
            ValueError: It holds no user text of the workload.
        """
        found = read(wire, body)
        if SUMMARY_REQUEST in found.text:
            return Reply(text=self._summaries[found.cases[0].partition(".")[0]])
        if not found.cases:
            raise ValueError(f"no user text of this workload in the request; its last one is {found.text[:80]!r}")
        said = self._call(found.cases[-1], found.results).said
        calls = tuple(ToolCall(use.name, dict(use.arguments)) for use in said.uses)
        thinking = said.thought if wire == "anthropic-messages" else None
        return Reply(text=said.text, tool_calls=calls, thinking=thinking or None)

    def _call(self, case: str, results: int) -> AgentCall:
        """Return the call that comes once so many results are back."""
        calls = self._turns[case]
        for call in calls:
            if results <= 0:
                return call
            results -= len(call.said.uses)
        return calls[-1]


class Found(NamedTuple):
    """What a request says of where its conversation stands.

    Attributes:
        text: The last user text with a mark, or the last one of all.
        cases: The marks in it, in order.
        results: How many tool results came after it.
    """

    text: str
    cases: tuple[str, ...]
    results: int


def read(wire: Wire, body: Mapping[str, Any]) -> Found:
    """Find the newest marked user text of a request, and count the tool results behind it."""
    items = body["input" if wire == "openai-responses" else "messages"]
    results = 0
    last = ""
    for item in reversed([{"role": "user", "content": items}] if isinstance(items, str) else items):
        texts = list(_texts(item.get("content"))) if item.get("role") == "user" else []
        marked = [text for text in texts if CASE.search(text)]
        if marked:
            return Found(marked[-1], tuple(CASE.findall(marked[-1])), results)
        results += _results_in(item)
        last = last or "\n".join(texts)
    return Found(last, (), results)


def case_of(user_text: str) -> str:
    """Return the mark of a user's text.

    Raises:
        ValueError: It has none.
    """
    found = CASE.search(user_text)
    if found is None:
        raise ValueError(f"a user text without its case mark: {user_text[:60]!r}")
    return found[1]


def _results_in(item: Mapping[str, Any]) -> int:
    if item.get("role") == "tool" or item.get("type") == "function_call_output":
        return 1
    parts = sequence(item.get("content")) if item.get("role") == "user" else []
    return sum(mapping(part).get("type") == "tool_result" for part in parts)


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    for part in content or ():
        if part.get("type") in _TEXTS:
            yield part["text"]
