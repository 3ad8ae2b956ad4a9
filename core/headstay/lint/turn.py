"""One request of a log, read, with the keys by which it is found again."""

import json
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import cast

from headstay.canonical import wire_texts
from headstay.comparison import read
from headstay.comparison.likeness import likeness
from headstay.comparison.segment import Request, Segment
from headstay.fingerprint import parameter
from headstay.providers.rules import find_rules
from headstay.trace.entry import Entry

_WORDS_OF = 4_000
_LONG_WORD = 12
_REMEMBERED = 200_000
_LISTS = 64
_WHOLE_PROMPT = 20  # words from which one system text may be told to stand within another


@dataclass(frozen=True, slots=True)
class Turn:
    """One request.

    Attributes:
        number: Its place among all requests that were taken, from 1.
        entry: The log's entry.
        request: Its body, read for comparison.
        keys: For each segment of the messages a number that equal ones share.
        chains: For each length of the messages a number that equal beginnings share.
        head: The same for tools and system text together.
        cache: The same for the model and the fields that re-key its cache.
        weight: About how many characters it takes up in memory.
    """

    number: int
    entry: Entry
    request: Request
    keys: tuple[int, ...]
    chains: tuple[int, ...]
    head: int
    cache: int
    weight: int

    @property
    def lane(self) -> tuple[str, str]:
        """What must be equal for two requests to share a cache whatever their content."""
        return self.entry.wire, self.entry.account

    @property
    def said(self) -> list[Segment]:
        """What a model said in the messages."""
        return [segment for segment in self.request.messages if is_said(segment)]

    @property
    def has_reply(self) -> bool:
        """Whether the messages hold anything that a model said."""
        return any(is_said(segment) for segment in self.request.messages)


@dataclass(slots=True)
class ToolLists:
    """Keeps each list of tools once: it comes again with every request, and is often the largest part of one."""

    _known: OrderedDict[str, object] = field(default_factory=OrderedDict[str, object])

    def shared(self, entry: Entry) -> Entry:
        """Return an entry that holds the list that was kept, where it has the same."""
        tools = entry.body.get("tools")
        if not isinstance(tools, list):
            return entry
        form = json.dumps(tools, ensure_ascii=False, default=repr)
        kept = self._known.pop(form, cast("object", tools))
        self._known[form] = kept
        if len(self._known) > _LISTS:
            self._known.popitem(last=False)
        return entry if kept is tools else replace(entry, body={**entry.body, "tools": kept})


def take(number: int, entry: Entry) -> Turn:
    """Read an entry.

    Raises:
        WireError: A field of the body is not of the form the API takes.
    """
    request = read(entry.body, entry.wire)
    # Numbers of this process only: they are compared and never kept.
    keys = tuple(hash((one.role, one.kind, one.exact)) for one in request.messages)
    chains = tuple(accumulate(keys, lambda chain, key: hash((chain, key)), initial=0))[1:]
    tools = wire_texts([tool.wire for tool in request.tools]) if request.tools else ()
    head = hash((tools, tuple(one.exact for one in request.system)))
    rules = find_rules(entry.wire, request.model)
    lane = [repr(parameter(entry.body, name)) for name in rules.lane_parameters if name != rules.affinity]
    weight = sum(len(one.exact) + 300 for one in (*request.messages, *request.system)) + 2_000 * bool(tools)
    return Turn(number, entry, request, keys, chains, head, hash((request.model, *lane)), weight)


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


def system_words(request: Request) -> Counter[str]:
    """Count the words with which the system text of a request begins."""
    return words_of(" ".join(one.text[:_WORDS_OF] for one in request.system)[:_WORDS_OF])


def words_of(text: str) -> Counter[str]:
    """Count the words of a text; where a script has no blanks between them, each two characters."""
    found = Counter[str]()
    for word in text.split():
        if len(word) > _LONG_WORD and not word.isascii():
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        else:
            found[word] += 1
    return found


def are_alike(one: Counter[str], other: Counter[str]) -> bool:
    """Whether two texts are of one origin: most words of one are in the other."""
    if one == other:
        return True
    common, sizes = (one & other).total(), (one.total(), other.total())
    within = min(sizes) >= _WHOLE_PROMPT and 10 * common >= 9 * min(sizes)
    return common >= 2 and (2 * common >= max(sizes) or within)


def said_texts(segments: Sequence[Segment]) -> frozenset[str]:
    """Return what a model said in some segments: the texts, and the ids of the tool calls."""
    return frozenset(one.call or one.text for one in segments if is_said(one)) - {""}
