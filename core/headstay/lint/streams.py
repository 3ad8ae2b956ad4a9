"""The conversations of a log: for each request the one it continues.

A log names its conversations, or it does not. Where it does, several agents may still share one id (a supervisor and
its subagents, a summariser). Where it does not, a request continues the one whose messages it begins with; and if
something was dropped, edited or summarised in the middle, the one whose replies it repeats. It must not seem to be a
new conversation then: that would hide the break.

Bounded: only the last requests of each conversation are kept, and of those the ones used last.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from headstay.comparison.history import compare_histories, is_summary
from headstay.lint.family import have_nothing_in_common, is_one_agent
from headstay.lint.turn import Likenesses, Turn, is_said, said_texts, words_of

MAX_WEIGHT = 64_000_000
"""Characters of requests that are kept to compare later ones with."""

_TIPS = 16  # of one conversation: it may have been forked, or its agents ask side by side
_AGENTS = 3  # that take turns in one conversation, beside the one that spoke last
_SAME_REPLY = 3  # conversations that hold a reply; one that as many begin with or repeat ties none together
_SAME_START = 64  # conversations that are looked at because a request begins with their messages
_LOOKED_AT = 8  # conversations that are looked at where nothing else ties a request to one
_TELLING = 40  # characters from which a reply is not said twice by chance
_QUESTION = 20  # characters from which a question is not asked twice by chance
_SHARED_REPLIES = 0.3
_RETOLD = 200  # characters from which a text may tell a whole history in other words
_SAME_QUESTION = 12  # characters from which one question may be told to stand within another


@dataclass(slots=True)
class Stream:
    """One conversation.

    Attributes:
        number: Its place among the conversations, from 1.
        name: The id that the log gives it, or empty.
        turns: How many requests it has had.
        tips: Its last requests; more than one where it was forked.
        superseded: Numbers of those that were continued with another head or model: only their own goes on with them.
        said: The keys of the replies it is found by.
    """

    number: int
    name: str
    turns: int = 0
    tips: list[Turn] = field(default_factory=list[Turn])
    superseded: set[int] = field(default_factory=set[int])
    said: set[tuple[object, ...]] = field(default_factory=set[tuple[object, ...]])

    def tips_for(self, turn: Turn) -> list[Turn]:
        """Return the last requests that another one may continue."""
        return [tip for tip in self.tips if tip.number not in self.superseded or _same_lane(tip, turn)]


class Streams:
    """Finds the conversation of each request.

    Args:
        max_weight: Characters of requests that are kept.
    """

    def __init__(self, *, max_weight: int = MAX_WEIGHT) -> None:
        self._max_weight = max_weight
        self._open: OrderedDict[int, Stream] = OrderedDict()
        self._by_name: dict[tuple[object, ...], list[int]] = {}
        self._by_chain: dict[tuple[object, ...], list[int]] = {}
        self._by_said: dict[tuple[object, ...], list[int]] = {}
        self._by_question: dict[tuple[object, ...], list[int]] = {}
        self._by_answer: dict[tuple[object, ...], list[int]] = {}
        self._by_reply: dict[tuple[object, ...], int] = {}
        self._likenesses = Likenesses()
        self._weight = 0
        self.made = 0
        self.forgotten = 0

    def find(self, turn: Turn) -> tuple[Stream, Turn] | None:
        """Return the conversation that a request continues, and the request it is to be held against."""
        held = turn.entry.body.get("previous_response_id")
        if isinstance(held, str) and held:
            return self._continued(turn, held)
        if turn.entry.conversation:
            return self._named(turn)
        return self._direct(turn) or self._repeated(turn) or self._asked(turn) or self._retold(turn)

    def keep(self, turn: Turn, found: tuple[Stream, Turn] | None, *, clean: bool) -> Stream:
        """Make a request the last of its conversation.

        Args:
            turn: The request.
            found: As `find` returned it; None begins a conversation.
            clean: Whether nothing was changed in the history of the request it was held against. If it then goes back
                to an earlier point of it, that one may be continued as well.
        """
        if found is None:
            self.made += 1
            stream = self._open[self.made] = Stream(self.made, turn.entry.conversation)
            if stream.name:
                self._by_name.setdefault((*turn.lane, stream.name), []).append(stream.number)
        else:
            stream, before = found
            if not _same_lane(before, turn):  # it may be that of another agent, and each goes on with its own
                stream.superseded.add(before.number)
                if len(stream.superseded) > _AGENTS:
                    self._drop(stream, next(tip for tip in stream.tips if tip.number in stream.superseded))
            elif not (clean and _goes_back(before, turn)):
                self._drop(stream, before)
        stream.turns += 1
        stream.tips.append(turn)
        self._weight += turn.weight
        self._index(stream, turn)
        if len(stream.tips) > _TIPS:
            self._drop(stream, stream.tips[0])
        self._open.move_to_end(stream.number)
        while self._weight > self._max_weight and len(self._open) > 1:
            self._forget(next(iter(self._open.values())))
        return stream

    def _continued(self, turn: Turn, reply: str) -> tuple[Stream, Turn] | None:
        """Find the request whose reply a request names."""
        stream = self._open.get(self._by_reply.get((*turn.lane, reply), -1))
        tips = stream.tips if stream else ()
        return next(((stream, tip) for tip in tips if stream and tip.entry.reply_id == reply), None)

    def _named(self, turn: Turn) -> tuple[Stream, Turn] | None:
        """Find the request of a named conversation that one continues: of the same agent, the closest history."""
        numbers = self._by_name.get((*turn.lane, turn.entry.conversation), [])
        pairs = [
            (self._open[number], tip) for number in numbers[-_SAME_START:] for tip in self._open[number].tips_for(turn)
        ]
        begins = not _is_told_anew(turn) and not any(_have_common(tip, turn) for _, tip in pairs)
        if begins and (turn.has_reply or not any(tip.head == turn.head for _, tip in pairs)):
            return None  # another agent's in this conversation, as of a subagent with its own task
        own = [pair for pair in pairs if is_one_agent(pair[1], turn)]
        # An agent that was given the whole history of another is still another one where their tools have nothing to do
        # with each other; else its system text was changed.
        heirs = [pair for pair in pairs if _replies_shared(pair[1], turn) and not have_nothing_in_common(pair[1], turn)]
        return max(own or heirs, key=lambda pair: _closeness(pair[1], turn), default=None)

    def _direct(self, turn: Turn) -> tuple[Stream, Turn] | None:
        """Find the request whose reply this one sends back, or whose messages it begins with."""
        if not turn.has_reply:
            return None  # a first question alone ties nothing: many conversations begin alike
        answered, begun = list(self._answered(turn)), list(self._begun(turn))
        known = {tip.number for _, tip in answered}
        # Word for word the same messages under another head are another conversation that went the same way.
        pairs = [pair for pair in answered + begun if pair[1].keys != turn.keys or pair[1].head == turn.head]
        return max(
            pairs,
            key=lambda pair: (pair[1].head == turn.head, pair[1].number in known, *_closeness(pair[1], turn)),
            default=None,
        )

    def _answered(self, turn: Turn) -> Iterator[tuple[Stream, Turn]]:
        """Find the requests whose reply, where the log has it, this one sends back: those of the last one."""
        for segment in reversed(turn.request.messages):
            told = (segment.call or segment.text) if is_said(segment) else ""
            numbers = self._by_answer.get((*turn.lane, told), [])[-_SAME_START:] if told else ()
            pairs = [
                (self._open[number], tip)
                for number in numbers
                for tip in self._open[number].tips_for(turn)
                if told in tip.entry.reply and (segment.call or len(told) >= _TELLING or _shared(tip, turn))
            ]
            if pairs:
                yield from pairs
                return

    def _begun(self, turn: Turn) -> Iterator[tuple[Stream, Turn]]:
        """Find the requests whose messages this one begins with, the longest first."""
        found = 0
        for length in range(len(turn.chains), 0, -1):
            for number in reversed(self._by_chain.get((*turn.lane, turn.chains[length - 1]), ())):
                if found == _SAME_START:
                    return
                for tip in self._open[number].tips_for(turn):
                    if _goes_on(tip, turn, length):
                        found += 1
                        yield self._open[number], tip

    def _repeated(self, turn: Turn) -> tuple[Stream, Turn] | None:
        """Find the conversation whose replies a request repeats, though its messages do not begin alike."""
        hits: Counter[int] = Counter()
        for key in self._said_keys(turn):
            known = self._by_said.get(key, ())
            if len(known) < _SAME_REPLY:
                hits.update(number for number in known if number in self._open)
        for number, count in hits.most_common(_SAME_REPLY):
            stream = self._open[number]
            tips = [tip for tip in stream.tips_for(turn) if not tip.entry.conversation]
            if not tips:
                continue
            tip = max(tips, key=lambda one: (_shared(one, turn), one.number))
            if not is_one_agent(tip, turn):
                continue
            # What both begin with may be a greeting, or examples, that every conversation of the agent begins with.
            start = _shared(tip, turn)
            told = {*self._said_keys(tip, start)} & {*self._said_keys(turn, start)}
            most = count >= _SHARED_REPLIES * len({*self._said_keys(tip)})
            if told and (start or most or self._is_telling(tip, turn)):
                return stream, tip
        return None

    def _asked(self, turn: Turn) -> tuple[Stream, Turn] | None:
        """Find the only request whose last question this one holds, though all that was before it is gone."""
        if not turn.has_reply:
            return None
        messages = turn.request.messages
        answered = max(index for index, segment in enumerate(messages) if is_said(segment))
        for key, segment in zip(turn.keys[:answered], messages[:answered], strict=True):
            known = () if is_said(segment) else self._by_question.get((*turn.lane, key), ())
            numbers = {*known} if len(known) <= _TIPS else set[int]()
            if len(numbers) != 1:
                continue
            stream = self._open[numbers.pop()]
            tip = next((one for one in stream.tips_for(turn) if key == _question(one)), None)
            telling = tip is not None and len(tip.keys) > 1 and len(segment.text) >= _QUESTION
            if tip is not None and telling and tip.cache == turn.cache and is_one_agent(tip, turn):
                return stream, tip
        return None

    def _is_telling(self, tip: Turn, turn: Turn) -> bool:
        """Whether two requests share a reply that is hardly given twice: a long one, or a call with its id."""
        known = said_texts(tip.request.messages)
        return any(
            (segment.call and segment.call in known) or (len(segment.text) >= _TELLING and segment.text in known)
            for segment in turn.request.messages
            if is_said(segment)
        )

    def _retold(self, turn: Turn) -> tuple[Stream, Turn] | None:
        """Find the conversation that a request tells in other words, or whose only question it changed."""
        messages = turn.request.messages
        if not messages:
            return None
        summary = is_summary(messages[0].text)
        if not turn.has_reply and not summary:
            return None  # a first question, however much it has in common with what others asked
        pairs = [(stream, tip) for stream in self._latest(turn) for tip in stream.tips_for(turn)]
        if summary:
            told = [pair for pair in pairs if len(pair[1].keys) > 2 and _is_retold(pair[1], turn)]
            return max(told, key=lambda pair: (_retells(pair[1], turn), pair[1].number), default=None)
        asked = [pair for pair in pairs if not pair[1].has_reply and _is_answered(pair[1], turn)]
        return max(asked, key=lambda pair: pair[1].number, default=None)

    def _latest(self, turn: Turn) -> Iterator[Stream]:
        """Return the conversations of the same agent that were last used."""
        looked_at = 0
        for stream in list(reversed(self._open.values())):
            tip = stream.tips[-1]
            if stream.name or tip.lane != turn.lane or not is_one_agent(tip, turn):
                continue
            yield stream
            looked_at += 1
            if looked_at == _LOOKED_AT:
                return

    def _said_keys(self, turn: Turn, start: int = 0) -> Iterator[tuple[object, ...]]:
        for key, segment in zip(turn.keys[start:], turn.request.messages[start:], strict=True):
            if is_said(segment) and segment.kind in ("text", "tool_call"):
                yield (*turn.lane, self._likenesses.of(key, segment))

    def _index(self, stream: Stream, turn: Turn) -> None:
        if turn.entry.reply_id:
            self._by_reply[(*turn.lane, turn.entry.reply_id)] = stream.number
        if stream.name:
            return
        self._by_question.setdefault((*turn.lane, _question(turn)), []).append(stream.number)
        for told in turn.entry.reply:
            self._by_answer.setdefault((*turn.lane, told), []).append(stream.number)
        for chain in _ends_of(turn):
            self._by_chain.setdefault((*turn.lane, chain), []).append(stream.number)
        for key in self._said_keys(turn):
            if key not in stream.said:
                stream.said.add(key)
                known = self._by_said.setdefault(key, [])
                known.append(stream.number)
                del known[:-_SAME_REPLY]

    def _drop(self, stream: Stream, tip: Turn) -> None:
        """Take a request out that was continued."""
        stream.tips.remove(tip)
        stream.superseded.discard(tip.number)
        self._weight -= tip.weight
        if not stream.name:
            for chain in _ends_of(tip):
                _remove(self._by_chain, (*tip.lane, chain), stream.number)
            _remove(self._by_question, (*tip.lane, _question(tip)), stream.number)
            for told in tip.entry.reply:
                _remove(self._by_answer, (*tip.lane, told), stream.number)
        self._by_reply.pop((*tip.lane, tip.entry.reply_id), None)

    def _forget(self, stream: Stream) -> None:
        self.forgotten += 1
        lane = stream.tips[0].lane
        for tip in list(stream.tips):
            self._drop(stream, tip)
        for key in stream.said:
            _remove(self._by_said, key, stream.number)
        if stream.name:
            _remove(self._by_name, (*lane, stream.name), stream.number)
        del self._open[stream.number]


def _ends_of(turn: Turn) -> set[int]:
    """Return the numbers of the beginnings that a request is found again by: all of it, and up to its question.

    What stands behind the question, a note with the clock or retrieved text, need not come back.
    """
    return {turn.chains[length - 1] for length in (len(turn.chains), _question_end(turn)) if length}


def _question_end(turn: Turn) -> int:
    """Return how many segments a request has up to the first text behind the last reply."""
    messages = turn.request.messages
    said = max((index for index, segment in enumerate(messages) if is_said(segment)), default=-1)
    texts = (index for index in range(said + 1, len(messages)) if messages[index].kind == "text")
    return next(texts, len(messages) - 1) + 1


def _goes_on(tip: Turn, turn: Turn, length: int) -> bool:
    """Whether a request begins with another one, or with all of it up to its question, and has the answer next."""
    if tip.keys[:length] != turn.keys[:length]:
        return False
    messages = turn.request.messages
    answered = length < len(messages) and is_said(messages[length])
    return length == len(tip.keys) or (answered and length == _question_end(tip))


def _same_lane(one: Turn, other: Turn) -> bool:
    return one.head == other.head and one.cache == other.cache


def _goes_back(before: Turn, turn: Turn) -> bool:
    """Whether a request stops repeating another one and asks something else, without any further reply."""
    shared = _shared(before, turn)
    return shared < len(before.keys) and not any(map(is_said, turn.request.messages[shared:]))


def _shared(one: Turn, other: Turn) -> int:
    """Count the segments that two requests share from the start."""
    count = 0
    for key, same in zip(one.keys, other.keys, strict=False):
        if key != same:
            break
        count += 1
    return count


def _question(turn: Turn) -> int:
    """Return the key of what a request asks: its last message that no model said."""
    pairs = zip(reversed(turn.keys), reversed(turn.request.messages), strict=True)
    return next((key for key, segment in pairs if not is_said(segment) and segment.kind == "text"), 0)


def _repeats(one: Turn, other: Turn) -> int:
    """Count the replies of a request that another one has too."""
    return len(said_texts(one.request.messages) & said_texts(other.request.messages))


def _replies_shared(one: Turn, other: Turn) -> bool:
    shared = _shared(one, other)
    return any(is_said(segment) for segment in other.request.messages[:shared])


def _is_told_anew(turn: Turn) -> bool:
    """Whether the first message of a request may stand for a whole history."""
    messages = turn.request.messages
    return bool(messages) and (is_summary(messages[0].text) or len(messages[0].text) >= _RETOLD)


def _closeness(tip: Turn, turn: Turn) -> tuple[bool, bool, int, int, int]:
    """Say how close an earlier request is: by head, by cache, by history, by replies, and else the latest."""
    return tip.head == turn.head, tip.cache == turn.cache, _shared(tip, turn), _repeats(tip, turn), tip.number


def _have_common(one: Turn, other: Turn) -> bool:
    """Whether two requests have any message in common."""
    return not {*one.keys}.isdisjoint(other.keys)


def _retells(tip: Turn, turn: Turn) -> float:
    """Return the share of the words of a request's first message that an earlier request has in its messages."""
    words = words_of(turn.request.messages[0].text)
    known = words_of(" ".join(one.text for one in tip.request.messages))
    return (words & known).total() / max(1, words.total())


def _is_retold(tip: Turn, turn: Turn) -> bool:
    aligned = compare_histories(tip.request.messages, turn.request.messages)
    return bool(aligned.drafts)


def _is_answered(tip: Turn, turn: Turn) -> bool:
    """Whether a request holds the answer to another one, and a question that only has more, or less, around it.

    Two customers' first questions may be as like as those of one: "Where is order 17?" and "Where is order 18?".
    """
    if tip.entry.reply:
        return not said_texts(turn.request.messages).isdisjoint(tip.entry.reply)
    if not tip.request.messages:
        return False
    shorter, longer = sorted((tip.request.messages[0].text, turn.request.messages[0].text), key=len)
    return len(shorter) >= _SAME_QUESTION and shorter in longer


def _remove(index: dict[tuple[object, ...], list[int]], key: tuple[object, ...], number: int) -> None:
    numbers = index.get(key, [])
    if number in numbers:
        numbers.remove(number)
    if not numbers:
        index.pop(key, None)
