"""An agent workload as a whole: its calls in time order, and what follows from their labels."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headstay.emulator import agent_workload_script
from headstay.emulator.agent_workload_labels import (
    SPECIALIST,
    AgentBreak,
    AgentCall,
    AgentThread,
    AgentTurn,
    Example,
    Summary,
    ToolForm,
)
from headstay.emulator.reply import Responder, Wire

Lane = tuple[str, str]


@dataclass(frozen=True)
class AgentWorkload:
    """Calls in the order in which they are made; those of one turn follow each other without a gap.

    Attributes:
        threads: The conversations.
        calls: All model calls, by time; not the summariser's own.
        restart: Thread and turn before which the application is restarted, or None.
        seed: What the generator was seeded with.
    """

    threads: tuple[AgentThread, ...]
    calls: tuple[AgentCall, ...]
    restart: tuple[str, int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if any(later.at <= earlier.at for earlier, later in itertools.pairwise(self.calls)):
            raise ValueError("no two calls of an agent workload may start together; sort them by `at`")

    @property
    def start(self) -> float:
        """When the first call starts, seconds since the epoch."""
        return self.calls[0].at

    @cached_property
    def turns(self) -> tuple[AgentTurn, ...]:
        """The user turns in the order in which they are played, each with its own and its specialist's calls."""
        named = {thread.name: thread for thread in self.threads}
        found: dict[tuple[str, int], list[AgentCall]] = {}
        for call in self.calls:
            found.setdefault((_root(call), call.turn), []).append(call)
        return tuple(AgentTurn(named[name], number, tuple(calls)) for (name, number), calls in found.items())

    @cached_property
    def conversations(self) -> Mapping[str, tuple[AgentCall, ...]]:
        """The calls of each conversation, in order; a specialist's conversation lasts one turn."""
        found: dict[str, list[AgentCall]] = {}
        for call in self.calls:
            found.setdefault(call.thread, []).append(call)
        return {name: tuple(calls) for name, calls in found.items()}

    @cached_property
    def summaries(self) -> Mapping[str, Summary]:
        """The summaries by thread."""
        return {thread.name: thread.summary for thread in self.threads if thread.summary is not None}

    @cached_property
    def pinned(self) -> Mapping[Lane, tuple[Example, ...]]:
        """The few-shot pairs that a lane's first call chose."""
        found: dict[Lane, tuple[Example, ...]] = {}
        for call in self.calls:
            found.setdefault(call.lane, call.examples)
        return found

    def heads(self, *, native_late_tools: bool = False) -> int:
        """Count the heads that an ideal layout needs: one for each lane, and one more at each change of its tools.

        Args:
            native_late_tools: Whether a late tool is appended to the conversation, which changes no head.
        """
        lanes: dict[Lane, _LaneTools] = {}
        for call in self.calls:
            lanes.setdefault(call.lane, _LaneTools()).causes_at(call)
        changes = [cause for lane in lanes.values() for cause in lane.changes]
        return len(lanes) + len(changes) - (changes.count("tool_added") if native_late_tools else 0)

    def summary_before(self, call: AgentCall) -> Summary | None:
        """Return the summary that stands in the history of a call, or None."""
        summary = self.summaries.get(call.thread)
        return summary if summary is not None and call.turn >= summary.turn else None

    def before(self, call: AgentCall) -> tuple[AgentCall, ...]:
        """Return the earlier calls whose messages stand in the history of a call, oldest first."""
        summary = self.summary_before(call)
        first = summary.kept_from if summary is not None else 0
        mine = (call.turn, call.step)
        return tuple(
            past for past in self.conversations[call.thread] if first <= past.turn and (past.turn, past.step) < mine
        )

    @property
    def breaks(self) -> tuple[AgentBreak, ...]:
        """All breaks made on purpose, by time; `breaks_on` leaves out those that a wire does not feel."""
        return self.breaks_on("anthropic-messages")

    def breaks_on(self, wire: Wire, *, native_late_tools: bool = False) -> tuple[AgentBreak, ...]:
        """Return the breaks made on purpose, as they appear on one wire.

        A tool that arrives late or changes its schema breaks every conversation of the lane once, at its next
        call; a removed one breaks none, as it stays declared. A structured answer changes the parameters. A change
        of `tool_choice` and the first image of a running conversation drop the messages on Anthropic only
        (provider page platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29).

        Args:
            wire: The wire format.
            native_late_tools: Whether a late tool is appended to the conversation, which breaks nothing.
        """
        lanes: dict[Lane, _LaneTools] = {}
        found: list[AgentBreak] = []
        for call in self.calls:
            causes = lanes.setdefault(call.lane, _LaneTools()).causes_at(call)
            if native_late_tools:
                causes = [cause for cause in causes if cause != "tool_added"]
            found += [AgentBreak(call.thread, call.turn, call.step, cause, "application") for cause in causes]
            found += self._others_at(call, wire)
        return tuple(found)

    def _others_at(self, call: AgentCall, wire: Wire) -> list[AgentBreak]:
        before = self.before(call)
        summary = self.summaries.get(call.thread)
        place = (call.thread, call.turn, call.step)
        found: list[AgentBreak] = []
        if summary is not None and (call.turn, call.step) == (summary.turn, 0):
            found.append(AgentBreak(*place, "history_summarised", "application"))
        if before and before[-1].structured != call.structured:
            found.append(AgentBreak(*place, "parameters_changed", "application"))
        if not before or wire != "anthropic-messages":
            return found
        if before[-1].tool_choice != call.tool_choice:
            found.append(AgentBreak(*place, "tool_choice_changed", "application"))
        if call.step == 0 and call.image is not None and all(past.image is None for past in before):
            found.append(AgentBreak(*place, "parameters_changed", "provider"))
        return found

    def refused(self) -> tuple[AgentCall, ...]:
        """Return the calls in which the model asks for a tool that it is not offered."""
        return tuple(call for call in self.calls if any(use.refused for use in call.said.uses))

    def responder(self) -> Responder:
        """Return a model that answers each request of this workload as its calls say, on every wire."""
        return agent_workload_script.Script(self.conversations, self.summaries).respond


@dataclass
class _LaneTools:
    """The tools a lane has seen, and which conversations know of each change."""

    forms: dict[str, ToolForm] = field(default_factory=dict[str, ToolForm])
    changes: list[str] = field(default_factory=list[str])
    known: dict[str, int] = field(default_factory=dict[str, int])

    def causes_at(self, call: AgentCall) -> list[str]:
        """Take in the tools of a call; return the changes its conversation meets, or that it brings itself."""
        first, already = not self.forms, len(self.changes)
        for tool in call.tools:
            known = self.forms.get(tool.name)
            if not first and known != tool:
                self.changes.append("tool_added" if known is None else "tool_schema_changed")
            self.forms[tool.name] = tool
        since = self.known.get(call.thread, already)
        self.known[call.thread] = len(self.changes)
        return self.changes[since:]


def _root(call: AgentCall) -> str:
    return call.thread.partition(":")[0] if call.agent == SPECIALIST else call.thread
