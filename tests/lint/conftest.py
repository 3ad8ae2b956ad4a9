"""Logs of talks, built request by request, in the three wire formats."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from headstay.ledger.usage import Usage
from headstay.lint.follow import Follower, Step
from headstay.prompt import Wire
from headstay.trace.entry import Entry

WIRES: tuple[Wire, ...] = ("anthropic-messages", "openai-chat", "openai-responses")
MODELS = {"anthropic-messages": "claude-opus-5", "openai-chat": "gpt-5.4", "openai-responses": "gpt-5.4"}
RULES = " ".join(f"Rule {number} holds for case {number} and is quoted in full." for number in range(300))
MARK = {"type": "ephemeral"}
Body = dict[str, Any]
Said = Sequence[str]


def body_of(
    said: Said, system: str = RULES, *, wire: Wire = "anthropic-messages", marked: bool = True, **more: Any
) -> Body:
    """Build a request: what was said by the user and the model in turn, behind a system text."""
    roles = ("user", "assistant")
    items: list[Body] = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
    body: Body = {"model": MODELS[wire], **more}
    if wire == "openai-chat":
        return {**body, "messages": [{"role": "system", "content": system}, *items]}
    if wire == "openai-responses":
        return {**body, "instructions": system, "input": items}
    block: Body = {"type": "text", "text": system}
    if marked:
        block["cache_control"] = MARK
        items[-1] = {**items[-1], "content": [{"type": "text", "text": said[-1], "cache_control": MARK}]}
    return {**body, "max_tokens": 64, "system": [block], "messages": items}


def talk(name: str, turns: int) -> list[list[str]]:
    """Return what was said up to each turn of a talk that is like no other."""
    said: list[str] = []
    found: list[list[str]] = []
    for turn in range(turns):
        said.append(f"{name}: question number {turn}, please look into it for me")
        found.append(list(said))
        said.append(f"{name}: answer number {turn}, with everything that there is to say about it")
    return found


@dataclass
class Log:
    """A log that is written request by request."""

    wire: Wire = "anthropic-messages"
    entries: list[Entry] = field(default_factory=list[Entry])

    def ask(self, said: Said, system: str = RULES, *, entry: dict[str, Any] | None = None, **more: Any) -> Entry:
        """Write one request."""
        body = body_of(said, system, wire=self.wire, **more)
        made = Entry(**{"line": len(self.entries) + 1, "wire": self.wire, "body": body, **(entry or {})})
        self.entries.append(made)
        return made

    def steps(self, **settings: Any) -> list[Step]:
        """Follow the log."""
        follower = Follower(**settings)
        return [follower.step(entry) for entry in self.entries]

    def conversations(self) -> list[int]:
        """Return the number of each request's conversation."""
        return [step.conversation for step in self.steps()]


def used(tokens: int, read: int = 0, written: int = 0) -> Usage:
    """Return the counts of a reply."""
    return Usage(input_tokens=tokens, cache_read_tokens=read, cache_write_tokens=written, output_tokens=20)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    """Each wire format in turn."""
    found: Wire = request.param
    return found


@pytest.fixture
def log(wire: Wire) -> Log:
    """An empty log of each wire format."""
    return Log(wire)
