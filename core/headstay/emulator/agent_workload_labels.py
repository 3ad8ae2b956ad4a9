"""The shape of an agent workload: model calls of an application whose varying parts are labelled.

The labels say which text is stable, which holds for a conversation and which changes with each call; which tools
are offered, what the model asks of them and what they return. They are all that the oracle sees.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from headstay.emulator.workload_turns import SystemPart

Holding = Literal["checkpointer", "client", "nested"]
"""Who holds the history of a thread: the agent's checkpointer, the client, or a parent graph's checkpointer."""

DESK, SPECIALIST = "desk", "specialist"
"""The names of the two agents."""


class ToolForm(NamedTuple):
    """One definition of a tool: its name, its description, and the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ToolUse(NamedTuple):
    """One tool call of the model.

    Attributes:
        id: Its number in the workload, as an id of the same length as a provider's.
        name: The tool.
        arguments: Its arguments.
        result: What the tool returns; for a call that is refused, an error text of about the right length.
        refused: Whether the tool is not offered at that moment, so that its body must not run.
    """

    id: str
    name: str
    arguments: Mapping[str, str]
    result: str
    refused: bool = False


class Said(NamedTuple):
    """What the model says in one call: text, tool calls, and what it thinks before both."""

    text: str
    uses: tuple[ToolUse, ...] = ()
    thought: str = ""


class Example(NamedTuple):
    """A few-shot pair."""

    question: str
    answer: str


class Summary(NamedTuple):
    """A summary that replaces the older part of a thread.

    Attributes:
        turn: The turn before whose first call it happens.
        kept_from: The oldest turn that is kept word for word.
        text: What the model writes when it is asked for the summary.
        message: The message that stands in the history from then on.
    """

    turn: int
    kept_from: int
    text: str
    message: str


class AgentThread(NamedTuple):
    """One conversation with a customer.

    Attributes:
        name: Its identifier.
        tenant: The tenant; it is the provider workspace as well.
        held: Who holds its history.
        summary: The summary that happens in it, or None.
    """

    name: str
    tenant: str
    held: Holding = "checkpointer"
    summary: Summary | None = None


class AgentCall(NamedTuple):
    """One call of a model.

    Attributes:
        agent: Which agent makes it: `DESK` or `SPECIALIST`.
        thread: The conversation; a specialist's is named after the turn it serves.
        turn: The user turn, from 1.
        step: The place of the call within the turn, from 0.
        tenant: The tenant.
        at: When it starts, seconds since the epoch.
        system: The system text, in labelled parts, without few-shot.
        examples: What the example selector chooses at this turn.
        tools: The tools that are offered, in the order of this call.
        user: What the user wrote in this turn.
        image: A PNG in base64 that came with it, or None.
        said: What the model answers.
        tool_choice: "none" when no tool may be called now, None for the default.
        structured: Whether the answer must follow `RESOLUTION` of the workload's texts.
    """

    agent: str
    thread: str
    turn: int
    step: int
    tenant: str
    at: float
    system: tuple[SystemPart, ...]
    examples: tuple[Example, ...]
    tools: tuple[ToolForm, ...]
    user: str
    image: str | None
    said: Said
    tool_choice: Literal["none"] | None = None
    structured: bool = False

    @property
    def lane(self) -> tuple[str, str]:
        """Agent and tenant: the calls that share all stable text."""
        return self.agent, self.tenant

    @property
    def system_text(self) -> str:
        """The system text as the application sends it, without few-shot."""
        return "".join(part.text for part in self.system)

    @property
    def stable_text(self) -> str:
        """The system text without its varying parts."""
        return "".join(part.text for part in self.system if part.stability == "stable")

    @property
    def values(self) -> dict[str, str]:
        """All varying values by name, in order of first appearance."""
        return {part.name: part.text for part in self.system if part.name is not None}

    @property
    def conversation_values(self) -> dict[str, str]:
        """The values that hold for the whole conversation."""
        return self._values_of("conversation")

    @property
    def call_values(self) -> dict[str, str]:
        """The values of this call only."""
        return self._values_of("call")

    def _values_of(self, stability: str) -> dict[str, str]:
        named = (part for part in self.system if part.stability == stability)
        return {part.name: part.text for part in named if part.name is not None}


class AgentTurn(NamedTuple):
    """One user turn: the thread, its number in it, and all model calls that it takes, by time."""

    thread: AgentThread
    number: int
    calls: tuple[AgentCall, ...]

    @property
    def user(self) -> str:
        """What the user wrote."""
        return self.calls[0].user

    @property
    def image(self) -> str | None:
        """A PNG in base64 that came with it, or None."""
        return self.calls[0].image


class AgentBreak(NamedTuple):
    """A prefix break that the workload makes on purpose: where, its cause code, and whose doing it is."""

    thread: str
    turn: int
    step: int
    cause: str
    owner: str
