"""The shape of a workload: calls of an application whose varying texts are labelled.

The labels (which text is stable, which holds for a conversation, which changes with each call) are all that
the oracle sees, so its figures cannot inherit a mistake of the layout that they are compared with.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from headstay.emulator import workload_dialogue
from headstay.emulator.reply import Reply, Responder, Wire
from headstay.emulator.workload_wire import newest_user_texts

Stability = Literal["stable", "conversation", "call"]


@dataclass(frozen=True)
class SystemPart:
    """A stretch of a system text that varies as a whole, or not at all.

    Attributes:
        text: Its characters, white space included.
        stability: "stable" for a tenant and policy, "conversation" for one conversation, "call" for one call.
        name: The name of the value, None for stable text. Parts of one name in one call have the same text.
    """

    text: str
    stability: Stability
    name: str | None = None


class Message(NamedTuple):
    """A message of a conversation: its role, its text, and a PNG in base64 or None."""

    role: Literal["user", "assistant"]
    text: str
    image: str | None = None


class Break(NamedTuple):
    """A prefix break that the workload makes on purpose: where, its cause code, and whose doing it is."""

    conversation: str
    turn: int
    cause: str
    owner: str


@dataclass(frozen=True)
class Turn:
    """One call of the application.

    Attributes:
        conversation: The conversation's identifier.
        turn: Counted from 1 within the conversation.
        tenant: The tenant's identifier; it is the provider workspace as well.
        policy: The variant of the instructions.
        at: When the call starts, seconds since the epoch.
        system: The system text, in labelled parts.
        user: What the user wrote.
        image: A PNG in base64 that came with it, or None.
        reply: What the model answers.
    """

    conversation: str
    turn: int
    tenant: str
    policy: str
    at: float
    system: tuple[SystemPart, ...]
    user: str
    image: str | None
    reply: str

    @property
    def lane(self) -> tuple[str, str]:
        """Tenant and policy: the calls that share all stable text."""
        return self.tenant, self.policy

    @property
    def system_text(self) -> str:
        """The system text as the application sends it."""
        return "".join(part.text for part in self.system)

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

    def _values_of(self, stability: Stability) -> dict[str, str]:
        named = (part for part in self.system if part.stability == stability)
        return {part.name: part.text for part in named if part.name is not None}


@dataclass(frozen=True)
class Workload:
    """Calls in the order in which they are made.

    Attributes:
        turns: All calls, by time.
        seed: What the generator was seeded with.
    """

    turns: tuple[Turn, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        if any(later.at < earlier.at for earlier, later in itertools.pairwise(self.turns)):
            raise ValueError("the turns of a workload must be in order of their start; sort them by `at`")

    @property
    def start(self) -> float:
        """When the first call starts, seconds since the epoch."""
        return self.turns[0].at

    @property
    def lanes(self) -> frozenset[tuple[str, str]]:
        """The (tenant, policy) pairs that occur."""
        return frozenset(turn.lane for turn in self.turns)

    @cached_property
    def conversations(self) -> Mapping[str, tuple[Turn, ...]]:
        """The calls of each conversation, in order; conversations by their first call."""
        found: dict[str, list[Turn]] = {}
        for turn in self.turns:
            found.setdefault(turn.conversation, []).append(turn)
        return {name: tuple(turns) for name, turns in found.items()}

    @property
    def breaks(self) -> tuple[Break, ...]:
        """All breaks made on purpose, by time; `breaks_on` leaves out those that a wire does not feel."""
        return self.breaks_on("anthropic-messages")

    def breaks_on(self, wire: Wire) -> tuple[Break, ...]:
        """Return the breaks made on purpose, as they appear on one wire.

        Changed instructions are the application's doing and break every wire. The first image of a running
        conversation drops the messages tier on Anthropic only (provider page
        platform.claude.com/docs/en/build-with-claude/prompt-caching, seen 2026-11-29).
        """
        found = (self._breaks_at(turn, wire) for turn in self.turns)
        return tuple(itertools.chain.from_iterable(found))

    def _breaks_at(self, turn: Turn, wire: Wire) -> list[Break]:
        before = self.before(turn)
        found: list[Break] = []
        if before and before[-1].policy != turn.policy:
            found.append(Break(turn.conversation, turn.turn, "system_text_changed", "application"))
        first_image = turn.image is not None and all(past.image is None for past in before)
        if before and first_image and wire == "anthropic-messages":
            found.append(Break(turn.conversation, turn.turn, "parameters_changed", "provider"))
        return found

    def before(self, turn: Turn) -> tuple[Turn, ...]:
        """Return the earlier turns of the same conversation, oldest first."""
        return tuple(past for past in self.conversations[turn.conversation] if past.turn < turn.turn)

    def history(self, turn: Turn) -> list[Message]:
        """Return the messages of the conversation before a turn, oldest first; none at the first turn."""
        pairs = (
            (Message("user", past.user, past.image), Message("assistant", past.reply)) for past in self.before(turn)
        )
        return list(itertools.chain.from_iterable(pairs))

    def template(self, tenant: str, policy: str) -> str:
        """Return a lane's system text as a format string.

        Varying values are replacement fields by name, and braces of the prose are doubled, so that
        `template(turn.tenant, turn.policy).format(**turn.values) == turn.system_text`.

        Raises:
            ValueError: No call of the workload belongs to the lane.
        """
        for turn in self.turns:
            if turn.lane == (tenant, policy):
                return "".join(_field(part) for part in turn.system)
        raise ValueError(f"no lane {(tenant, policy)!r} in this workload; it has {sorted(self.lanes)}")

    def reply_for(self, user_text: str) -> str:
        """Return what the model answers to a user text; a text from elsewhere is answered too."""
        return self._replies.get(user_text) or workload_dialogue.reply_to(user_text)

    @cached_property
    def _replies(self) -> dict[str, str]:
        replies: dict[str, str] = {}
        for turn in self.turns:
            if replies.setdefault(turn.user, turn.reply) != turn.reply:
                raise ValueError(f"{turn.conversation} turn {turn.turn}: these user words have two replies")
        return replies

    def responder(self) -> Responder:
        """Return a model that answers each request of this workload as its turns say, on every wire.

        It looks for the user's words in the newest user messages. Text that was added behind them, in the
        same block or in a block of its own, system or developer messages and images do not disturb it.
        """

        def respond(wire: Wire, body: Mapping[str, Any]) -> Reply:
            return Reply(text=self.reply_for(self._spoken(newest_user_texts(wire, body))))

        return respond

    def _spoken(self, texts: list[str]) -> str:
        known = [user for text in texts for user in self._replies if text.startswith(user)]
        return max(known, key=len) if known else next(iter(texts), "")


def _field(part: SystemPart) -> str:
    """Return a part as a piece of a format string."""
    if part.name is not None:
        return f"{{{part.name}}}"
    return part.text.replace("{", "{{").replace("}", "}}")
