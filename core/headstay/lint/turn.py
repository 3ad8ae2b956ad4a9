"""One request of a log, read, with the keys by which it is found again."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headstay.canonical import wire_texts
from headstay.comparison import read
from headstay.comparison.likeness import likeness
from headstay.comparison.segment import Request, Segment
from headstay.trace.entry import Entry

_WORDS_OF = 4_000
_REMEMBERED = 200_000


@dataclass(frozen=True, slots=True)
class Turn:
    """One request.

    Attributes:
        number: Its place among all requests that were taken, from 1.
        entry: The log's entry.
        request: Its body, read for comparison.
        keys: For each segment of the messages a number that equal ones share.
        head: The same for tools and system text together.
        weight: About how many characters it takes up in memory.
    """

    number: int
    entry: Entry
    request: Request
    keys: tuple[int, ...]
    head: int
    weight: int

    @property
    def lane(self) -> tuple[str, str]:
        """What must be equal for two requests to share a cache whatever their content."""
        return self.entry.wire, self.entry.account

    @property
    def has_reply(self) -> bool:
        """Whether the messages hold anything that a model said."""
        return any(is_said(segment) for segment in self.request.messages)


def take(number: int, entry: Entry) -> Turn:
    """Read an entry.

    Raises:
        WireError: A field of the body is not of the form the API takes.
    """
    request = read(entry.body, entry.wire)
    # Numbers of this process only: they are compared and never kept.
    keys = tuple(hash((one.role, one.kind, one.exact)) for one in request.messages)
    tools = wire_texts([tool.wire for tool in request.tools]) if request.tools else ()
    head = hash((tools, tuple(one.exact for one in request.system)))
    weight = sum(len(one.exact) + 200 for one in (*request.messages, *request.system)) + sum(map(len, tools))
    return Turn(number, entry, request, keys, head, weight)


def is_said(segment: Segment) -> bool:
    """Whether a model said this, as opposed to the user, the operator or a tool."""
    return segment.role.startswith("assistant")


@dataclass(slots=True)
class Likenesses:
    """Remembers what a segment says whatever its form, since a history comes again with every request."""

    _known: dict[int, int] = field(default_factory=dict[int, int])

    def of(self, key: int, segment: Segment) -> int:
        """Return a number that two segments share when they say the same in another form."""
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = hash(likeness(segment))
        return found


def tool_names(request: Request) -> tuple[str, ...]:
    """Return the names of a request's tools, sorted."""
    return tuple(sorted(tool.name for tool in request.tools))


def system_words(request: Request) -> frozenset[str]:
    """Return the words with which the system text of a request begins."""
    return frozenset(" ".join(one.text[:_WORDS_OF] for one in request.system)[:_WORDS_OF].split())


def are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether two system texts are of one agent: most words of one are in the other."""
    if one == other:
        return True
    common = len(one & other)
    return common >= 2 and (2 * common >= max(len(one), len(other)) or 10 * common >= 9 * min(len(one), len(other)))


def said_texts(segments: Sequence[Segment]) -> frozenset[str]:
    """Return what a model said in some segments: the texts, and the ids of the tool calls."""
    return frozenset(one.call or one.text for one in segments if is_said(one)) - {""}
