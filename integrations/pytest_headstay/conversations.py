"""Recorded exchanges to conversations, by the history that their requests share."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headstay.emulator import Emulator, Exchange
from headstay.lint.follow import Follower, Step
from headstay.trace.exchanges import entry_of


@dataclass(frozen=True, slots=True)
class Conversation:
    """Requests that continue each other.

    Attributes:
        exchanges: The requests with their answers, in the order of the answers.
        steps: For each of them what it was held against.
    """

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    steps: list[Step] = field(default_factory=list[Step])


@dataclass(frozen=True, slots=True)
class PrefixRecorder:
    """What reached an emulator, whichever SDK or framework sent it.

    Args:
        emulator: The emulator.
    """

    emulator: Emulator

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Requests and answers so far, in the order of the answers."""
        return self.emulator.exchanges

    @property
    def conversations(self) -> tuple[tuple[Exchange, ...], ...]:
        """The answered ones by conversation, in the order in which the conversations began."""
        return tuple(tuple(one.exchanges) for one in grouped(self.exchanges))


def grouped(exchanges: Iterable[Exchange]) -> list[Conversation]:
    """Group exchanges by conversation; those that failed are left out, since they leave nothing in a cache.

    A request belongs to the conversation whose messages it begins with, or else whose replies it repeats, even where
    something was dropped from the middle. A first question alone does not tie two requests together: agents pass
    theirs on to others, and many conversations begin alike.
    """
    found: dict[int, Conversation] = {}
    follower = Follower()
    answered = (exchange for exchange in exchanges if exchange.status == 200 and "usage" in exchange.response)
    for number, exchange in enumerate(answered, 1):
        step = follower.step(entry_of(exchange, number))
        conversation = found.setdefault(step.conversation, Conversation())
        conversation.exchanges.append(exchange)
        conversation.steps.append(step)
    return list(found.values())
