"""The heads of a log: which requests are of one agent, so that the first one of a conversation has a predecessor."""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headstay.lint.turn import Turn, are_alike, system_words, tool_names
from headstay.providers.rules import find_rules

_FAMILIES = 256
_HEADS_EACH = 64
_MAX_WEIGHT = 16_000_000  # characters of requests that are kept
_WORDS_KEPT = 512


@dataclass(slots=True)
class Head:
    """One head, as it was last sent.

    Attributes:
        turn: The first request of the last conversation that was begun with it.
        used: When any request with it was last sent, in the log's time; None without one.
        answered: When the first answer to it had begun; None where that is not known.
    """

    turn: Turn
    used: float | None
    answered: float | None


@dataclass(slots=True)
class Family:
    """The heads of one agent.

    Attributes:
        names: The names of its tools.
        words: The words of its system text.
        heads: Its heads, the one used last at the end.
    """

    names: tuple[str, ...]
    words: Counter[str]
    heads: OrderedDict[int, Head] = field(default_factory=OrderedDict[int, Head])


class Families:
    """The agents of a log; the ones not seen for long are forgotten."""

    def __init__(self) -> None:
        self._found: OrderedDict[int, Family] = OrderedDict()
        self._by_head: dict[tuple[object, ...], int] = {}
        self._next = 0
        self._weight = 0

    def known(self, turn: Turn) -> Head | None:
        """Return the head that a request has, if it was sent before."""
        family = self._found.get(self._by_head.get(_name(turn), -1))
        return family.heads.get(turn.head) if family else None

    def nearest(self, turn: Turn) -> Head | None:
        """Return the head that was sent last by the agent that a request is of, or None."""
        family = self._of(turn)
        return next(reversed(family.heads.values())) if family and family.heads else None

    def note(self, turn: Turn, *, opening: bool) -> int:
        """Remember the head of a request.

        Args:
            turn: The request.
            opening: Whether it begins a conversation.

        Returns:
            The number of its agent.
        """
        name = _name(turn)
        number = self._by_head.get(name)
        family = self._found.get(number) if number is not None else None
        if number is None or family is None:
            number, family = self._place(turn)
            self._by_head[name] = number
        self._found.move_to_end(number)
        head = family.heads.pop(turn.head, None)
        if head is None:
            head = Head(turn, turn.entry.started, turn.entry.answered)
            self._weight += turn.weight
        elif opening:
            self._weight += turn.weight - head.turn.weight
            head.turn = turn
        if _has_expired(head, turn):  # this request writes it anew
            head.answered = turn.entry.answered
        head.used = turn.entry.started if turn.entry.started is not None else head.used
        family.heads[turn.head] = head
        if len(family.heads) > _HEADS_EACH:
            self._drop(family)
        self._shrink()
        return number

    def _drop(self, family: Family) -> None:
        """Forget the head of an agent that was not used for longest."""
        _, gone = family.heads.popitem(last=False)
        self._by_head.pop(_name(gone.turn), None)
        self._weight -= gone.turn.weight

    def _shrink(self) -> None:
        """Forget heads, of the agent that was not seen for longest first, until the rest is light enough."""
        while self._weight > _MAX_WEIGHT and (len(self._found) > 1 or len(next(iter(self._found.values())).heads) > 1):
            number, family = next(iter(self._found.items()))
            self._drop(family)
            if not family.heads:
                del self._found[number]

    def _place(self, turn: Turn) -> tuple[int, Family]:
        for number, family in self._candidates(turn):
            return number, family
        self._next += 1
        family = self._found[self._next] = Family(tool_names(turn.request), _words(turn))
        if len(self._found) > _FAMILIES:
            _, gone = self._found.popitem(last=False)
            while gone.heads:
                self._drop(gone)
        return self._next, family

    def _of(self, turn: Turn) -> Family | None:
        return next((family for _, family in self._candidates(turn)), None)

    def _candidates(self, turn: Turn) -> Iterator[tuple[int, Family]]:
        names, words = tool_names(turn.request), _words(turn)
        for number in reversed(self._found):
            family = self._found[number]
            same_tools = family.names == names or (family.words == words and _mostly(family.names, names))
            if not same_tools or not are_alike(family.words, words):
                continue
            latest = next(reversed(family.heads.values()), None)
            if latest is None or _peer(latest.turn, turn):
                yield number, family


def is_one_agent(one: Turn, other: Turn) -> bool:
    """Whether two requests are of one agent: like system texts, and tools that have something to do with each other."""
    if one.head == other.head:
        return True
    names, others = tool_names(one.request), tool_names(other.request)
    if one.request.system and other.request.system:
        related = not names or not others or _mostly(names, others)
        return related and are_alike(_words(one), _words(other))
    return names == others and (bool(names) or one.request.system == other.request.system)


_known_words: OrderedDict[int, Counter[str]] = OrderedDict()


def _words(turn: Turn) -> Counter[str]:
    """Return the words of a request's system text; many requests have the same."""
    found = _known_words.pop(turn.head, None)
    _known_words[turn.head] = found = system_words(turn.request) if found is None else found
    if len(_known_words) > _WORDS_KEPT:
        _known_words.popitem(last=False)
    return found


def have_nothing_in_common(one: Turn, other: Turn) -> bool:
    """Whether two requests offer tools, and none of them is the same."""
    names, others = tool_names(one.request), tool_names(other.request)
    return bool(names) and bool(others) and not {*names} & {*others}


def _has_expired(head: Head, turn: Turn) -> bool:
    if head.used is None or turn.entry.started is None:
        return False
    return turn.entry.started - head.used > find_rules(turn.entry.wire, turn.request.model).ttl_seconds(None)


def _mostly(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two lists of tools have at least half of their names in common."""
    return 2 * len({*one} & {*other}) >= max(len(one), len(other))


def _peer(one: Turn, other: Turn) -> bool:
    return one.lane == other.lane and one.cache == other.cache


def _name(turn: Turn) -> tuple[object, ...]:
    return (*turn.lane, turn.cache, turn.head)
