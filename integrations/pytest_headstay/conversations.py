"""Recorded exchanges to conversations, by the history that their requests share."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from headstay.causes import Cause
from headstay.comparison import reading_anthropic, reading_openai
from headstay.comparison.history import compare_histories
from headstay.comparison.likeness import similar
from headstay.comparison.segment import Request
from headstay.emulator import Emulator, Exchange

# What makes a request without any reply go on; every other one is a first question.
_SHORTENED = (Cause.HISTORY_SUMMARISED, Cause.HISTORY_DROPPED)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation.

    Attributes:
        number: Its place among all requests that were answered, from 1.
        exchange: The request with its answer.
        request: The request, read for comparison.
    """

    number: int
    exchange: Exchange
    request: Request


@dataclass(frozen=True, slots=True)
class Conversation:
    """Requests that continue each other.

    Attributes:
        turns: The requests, in the order of their answers.
        like: The first request of the latest earlier conversation with a like head, or None.
    """

    turns: list[Turn] = field(default_factory=list[Turn])
    like: Turn | None = None


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
        return tuple(tuple(turn.exchange for turn in one.turns) for one in grouped(self.exchanges))


def grouped(exchanges: Iterable[Exchange]) -> list[Conversation]:
    """Group exchanges by conversation; those that failed are left out, since they leave nothing in a cache.

    A request belongs to the conversation of which it holds most replies, and else most of the history, even where
    something was dropped from the middle. A first question alone does not tie two requests together: agents pass
    theirs on to others, and many conversations begin alike.
    """
    found: list[Conversation] = []
    answered = (exchange for exchange in exchanges if exchange.status == 200 and "usage" in exchange.response)
    for number, exchange in enumerate(answered, 1):
        turn = Turn(number, exchange, _read(exchange))
        peers = [one for one in found if _same_account(one.turns[-1].exchange, exchange)]
        ties = [(tie, index) for index, one in enumerate(peers) if (tie := _tie(one, turn))]
        if ties:
            peers[max(ties)[1]].turns.append(turn)
        else:
            like = next((one.turns[0] for one in reversed(peers) if _like_heads(one.turns[0], turn)), None)
            found.append(Conversation([turn], like))
    return found


def _read(exchange: Exchange) -> Request:
    if exchange.wire == "anthropic-messages":
        return reading_anthropic.read(exchange.body)
    return reading_openai.read(exchange.body, exchange.wire)


def _same_account(one: Exchange, other: Exchange) -> bool:
    return one.wire == other.wire and one.workspace == other.workspace


def _tie(conversation: Conversation, turn: Turn) -> tuple[int, bool, bool, int] | None:
    """Return how closely a request is tied to a conversation: by replies, head and history; None if not."""
    last = conversation.turns[-1]
    held = turn.exchange.body.get("previous_response_id")
    if held is not None:
        return (1, True, True, 0) if held == last.exchange.response.get("id") else None
    new = turn.request.messages
    aligned = compare_histories(last.request.messages, new)
    said = [index for index, segment in enumerate(new) if segment.role.startswith("assistant")]
    texts = frozenset(new[index].call or new[index].text for index in said) - {""}
    replied = sum(not texts.isdisjoint(_strings(one.exchange.response)) for one in conversation.turns)
    alike = _like_heads(last, turn)
    continued = aligned.shared and (replied or any(index < aligned.shared for index in said))
    edited = [draft for draft in aligned.drafts if said or draft.cause in _SHORTENED] if replied or alike else []
    return (replied, alike, not aligned.drafts, sum(aligned.kept)) if continued or edited else None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in cast("Mapping[str, object]", value).values():
            yield from _strings(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from _strings(inner)


def _like_heads(one: Turn, other: Turn) -> bool:
    """Whether two requests are of one agent: the same tools by name, or system texts that are mostly the same."""
    texts = [" ".join(segment.text for segment in turn.request.system) for turn in (one, other)]
    if all(texts):
        return similar(*texts)
    names = [sorted(tool.name for tool in turn.request.tools) for turn in (one, other)]
    return texts[0] == texts[1] and names[0] == names[1]
