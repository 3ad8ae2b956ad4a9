"""Two histories to what happened to the messages that were already sent."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from headstay.causes import Cause
from headstay.comparison.finding import TIERS, Draft, Place
from headstay.comparison.likeness import folded, form_differences, likeness, similar, thought_difference
from headstay.comparison.segment import Segment
from headstay.excerpt import excerpt
from headstay.forms import first_difference, form_cause

_CLEARED = re.compile(
    r"clear|remov|omit|elid|prun|truncat|redact|hidden|no longer|compact|trimm|drop|evict|offload|discard|expired"
    r"|collapsed|not shown|(?:moved|saved|written|archived|stored) (?:to|in|at|under)|stripped|replaced|superseded"
    r"|same as (?:the|in)\b|\bduplicate|\bsee (?:file|above|below|earlier|later)\b|too (?:long|large|big) to"
    r"|entfernt|gelöscht|gekürzt|supprimé|eliminad|borrad|removid|rimoss|удал|очищ|清除|删除|省略|削除|생략|삭제"
    r"|^\[[^\[\]]*\]$|^\([^()]*\)$|^<[^<>]*>$|^\W*$",
    re.IGNORECASE,
)
_SUMMARY = re.compile(
    r"(?:summar(?:y|ies|i[sz]ed)|recap|digest)\b[^.\n]{0,40}\b(?:conversation|discussion|chat|so far|messages|turns"
    r"|session|history|dialogue|dialog|context)\b"
    r"|\b(?:conversation|chat|session|context|history)\b[^.\n]{0,20}\b(?:summar|recap)"
    r"|<(?:\w+[_-])?(?:summary|recap)>|^\W*(?:summary|recap)\b[^.\n]{0,30}:|\bcompacted\b|\bcondensed\b"
    r"|\b(?:earlier|previous|older) (?:conversation|messages|turns)\b|session is being continued"
    r"|zusammenfassung|bisherige[ns]? gespr|résumé de (?:la|l'|notre)|resumen de (?:la|nuestra)"
    r"|要約|これまでの会話|对话摘要|总结",
    re.IGNORECASE,
)
_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>.*?</\1>", re.DOTALL)
_ASIDE: Mapping[str, Cause] = {"thinking": Cause.THINKING_CHANGED, "blank": Cause.WHITESPACE}
_SAID_AGAIN = 40
"""Characters up to which a new message may repeat an old one by chance, such as "ok" or "Thank you!"."""
_COMPACTION = ("compaction", "compaction_summary", "context_compaction")


@dataclass(frozen=True, slots=True)
class Aligned:
    """What a comparison of two histories found.

    Attributes:
        drafts: The findings.
        shared: Number of segments that both share from the start.
        kept: For each segment of the later one, whether the earlier one has it too, in whatever form.
    """

    drafts: Sequence[Draft]
    shared: int
    kept: Sequence[bool]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A stretch of both histories without a counterpart: old[i1:i2] stands against new[j1:j2]."""

    i1: int
    i2: int
    j1: int
    j2: int


def compare_histories(old: Sequence[Segment], new: Sequence[Segment], *, written: int = -1) -> Aligned:
    """Name what happened to a history that was not simply continued.

    Args:
        old: The messages of the earlier request.
        new: The messages of the later request.
        written: The segment of the earlier one that its last breakpoint stands on, where only breakpoints write: a
            note behind it was never cached, and need not come back.

    Returns:
        The findings; none where the later continues the earlier, was cut back to an earlier point of it, has another
        last question that was never answered, or is another conversation.
    """
    shared = 0
    for one, other in zip(old, new, strict=False):
        if one.exact != other.exact or one.role != other.role or one.kind != other.kind:
            break
        shared += 1
    kept = [index < shared for index in range(len(new))]
    if shared in (len(old), len(new)):
        return Aligned((), shared, kept)
    before, after = old[shared:], new[shared:]
    keys = [likeness(segment) for segment in before], [likeness(segment) for segment in after]
    if _is_tail(before) and _is_tail(after) and not _only_reordered(*keys):
        return Aligned((), shared, kept)
    if (0 <= written < shared and _is_tail(old[written + 1 :])) or _moves_along(old, new, shared):
        return Aligned((), shared, kept)
    within = shared > 0 and before[0].message == old[shared - 1].message  # a part of a message that is still there
    again = shared > 0 and bool(before[0].call) and before[0].call == after[0].call  # another result of the same call
    if not within and not again and not _is_related(before, after, keys, shared):
        return Aligned((), shared, kept)
    finder = _Finder(before, after, *keys, frozenset(segment.call for segment in old if segment.call), shared)
    drafts = finder.find()
    for index in finder.matched:
        kept[shared + index] = True
    return Aligned(drafts, shared, kept)


def _moves_along(old: Sequence[Segment], new: Sequence[Segment], shared: int) -> bool:
    """Whether a note behind the last question is sent last again, word for word, and all between is new."""
    note = old[shared:]
    asked = shared > 0 and _is_tail((old[shared - 1], *note))
    return (
        asked
        and [one.exact for one in note] == [one.exact for one in new[-len(note) :]]
        and _is_tail(new[-len(note) - 1 :])
    )


def _is_tail(segments: Sequence[Segment]) -> bool:
    return all(not segment.role.startswith("assistant") for segment in segments)


def _only_reordered(before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether the later has every segment of the earlier one, in another order."""
    return not Counter(before) - Counter(after) and list(before) != list(after[: len(before)])


def _is_related(
    before: Sequence[Segment], after: Sequence[Segment], keys: tuple[Sequence[str], Sequence[str]], shared: int
) -> bool:
    """Whether the later history goes back to the earlier one behind what both share, and is no other conversation."""
    common = Counter(keys[0]) & Counter(keys[1])
    if not shared and _is_greeting(before, after, common) and not similar(before[0].text, after[0].text):
        return False
    texts = {key for key, one in zip(keys[0], before, strict=True) if one.kind in ("text", "tool_call", "tool_result")}
    if any(key in texts for key in common) or _retells(before, after):
        return True
    if len(after) < len(before) and any(map(_is_summary, after)):
        return True
    pairs = [(one, other) for one, other in zip(before, after, strict=False) if _alike(one, other)]
    if _is_tail(after):  # the conversation was taken up again at an earlier point; with a like question, it was edited
        return shared > 0 and bool(pairs) and similar(before[0].text, after[0].text)
    if _is_tail(before):  # a question that was answered, and came back with another text
        return bool(pairs) and similar(before[0].text, after[0].text)
    answers = [pair for pair in pairs if pair[0].role.startswith("assistant")]
    return bool(pairs) if shared else bool(answers)


def _is_greeting(before: Sequence[Segment], after: Sequence[Segment], common: Counter[str]) -> bool:
    """Whether all that two histories have in common is the first reply, as of a bot that greets everyone alike."""
    first = [next((one for one in side if one.role.startswith("assistant")), None) for side in (before, after)]
    if first[0] is None or first[1] is None or first[0].kind != "text":
        return False
    return common.total() == 1 and likeness(first[0]) in common and likeness(first[1]) in common


def _alike(one: Segment, other: Segment) -> bool:
    if one.role != other.role or one.kind != other.kind:
        return False
    return similar(one.text, other.text) if one.kind not in ("thinking", "image") else one.exact == other.exact


def _is_summary(segment: Segment) -> bool:
    if segment.kind == "other":
        return any(f'"type":"{name}"' in segment.exact for name in _COMPACTION)
    return segment.kind == "text" and is_summary(segment.text)


def is_summary(text: str) -> bool:
    """Whether a text says that it stands for earlier messages."""
    return _SUMMARY.search(text[:400]) is not None


def _retells(before: Sequence[Segment], after: Sequence[Segment]) -> bool:
    """Whether a long new text is made of the words of the old messages."""
    text = after[0].text
    if len(after) >= len(before) or len(before) < 3 or len(text) < 200:
        return False
    words = set(re.findall(r"\w{6,}", text.lower()))
    known = set(re.findall(r"\w{6,}", " ".join(segment.text for segment in before).lower()))
    return bool(words) and len(words & known) / len(words) >= 0.5


class _Finder:
    """Collects the findings of one pair of histories behind what they share."""

    def __init__(
        self,
        before: Sequence[Segment],
        after: Sequence[Segment],
        old_keys: Sequence[str],
        new_keys: Sequence[str],
        ids: frozenset[str],
        shared: int,
    ) -> None:
        self._before, self._after = before, after
        self._old_keys, self._new_keys = old_keys, new_keys
        self._ids = ids
        self._shared = shared
        self._first: dict[Cause, Draft] = {}
        self.matched: set[int] = set()

    def find(self) -> list[Draft]:
        """Return the findings, one for each cause, at its first place."""
        opcodes = SequenceMatcher(None, self._old_keys, self._new_keys, autojunk=False).get_opcodes()
        chunks: list[_Chunk] = []
        for tag, i1, i2, j1, j2 in opcodes:
            if tag == "equal":
                self.matched.update(range(j1, j2))
                for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                    self._same(self._before[i], self._after[j], j)
            else:
                chunks.append(_Chunk(i1, i2, j1, j2))
        moved = self._moved(chunks)
        survivors = {self._before[i].message for tag, i1, i2, _, _ in opcodes if tag == "equal" for i in range(i1, i2)}
        for chunk in chunks:
            self._chunk(chunk, moved, survivors)
        return sorted(self._first.values(), key=lambda draft: draft.place)

    def _is_news(self, cause: Cause, index: int) -> bool:
        """Whether a cause was not found yet, or only further behind."""
        known = self._first.get(cause)
        return known is None or index < known.place.index - self._shared

    def _add(self, cause: Cause, index: int, path: str, at: int = 0, before: str = "", after: str = "") -> None:
        if self._is_news(cause, index):
            place = Place(TIERS["messages"], self._shared + index, at)
            self._first[cause] = Draft(place, cause, path, at, before, after)

    def _same(self, old: Segment, new: Segment, index: int) -> None:
        if old.exact == new.exact:
            return
        for cause, path, at, before, after in form_differences(old, new, self._ids):
            if self._is_news(cause, index):
                self._add(cause, index, path, at, excerpt(before, 0, len(before)), excerpt(after, 0, len(after)))

    def _moved(self, chunks: Sequence[_Chunk]) -> Counter[str]:
        """Find what stands in another place, and name it."""
        gone: dict[str, int] = {}
        come: dict[str, int] = {}
        lost, found = Counter[str](), Counter[str]()
        for chunk in chunks:
            for i in range(chunk.i1, chunk.i2):
                if self._before[i].kind not in ("thinking", "blank", "image"):
                    lost[self._old_keys[i]] += 1
                    gone.setdefault(self._old_keys[i], i)
            appended = chunk.i1 == len(self._before)
            for j in range(chunk.j1, chunk.j2):
                if appended and len(self._after[j].text) < _SAID_AGAIN:
                    continue
                found[self._new_keys[j]] += 1
                come.setdefault(self._new_keys[j], j)
        moved = lost & found
        if not moved:
            return moved
        self.matched.update(come[key] for key in moved)
        place = min(min(gone[key], come[key]) for key in moved)
        place = min(place, len(self._after) - 1, len(self._before) - 1)
        kinds = {self._before[gone[key]].kind for key in moved}
        cause = Cause.PARALLEL_RESULTS_REORDERED if kinds == {"tool_result"} else Cause.MESSAGE_REORDERED
        old, new = self._before[place], self._after[place]
        self._add(cause, place, new.holder if old.holder != new.path else new.path, 0, _shown(old), _shown(new))
        return moved

    def _chunk(self, chunk: _Chunk, moved: Counter[str], survivors: set[int]) -> None:
        """Name what happened to one stretch without a counterpart."""
        old = [i for i in range(chunk.i1, chunk.i2) if not moved[self._old_keys[i]]]
        new = [j for j in range(chunk.j1, chunk.j2) if not moved[self._new_keys[j]]]
        at_end = chunk.i2 == len(self._before)
        if at_end and not old:  # what was added behind everything
            return
        rest = [i for i in old if self._before[i].kind not in _ASIDE]
        came = [j for j in new if self._after[j].kind not in _ASIDE]
        if not rest or (came and self._count(self._after, came) >= self._count(self._before, rest)):
            # Otherwise whole messages went, and their thinking with them.
            for kind, cause in _ASIDE.items():
                self._aside(kind, cause, old, new, chunk)
        old, new = rest, came
        if at_end and _is_tail([self._before[i] for i in old]) and _is_tail([self._after[j] for j in new]):
            return
        if old and new:
            self._replaced(old, new, survivors, to_end=at_end)
        elif old:
            self._dropped(old, chunk, survivors, to_end=at_end and chunk.j2 == len(self._after))
        elif new:
            cause = Cause.HISTORY_SUMMARISED if _is_summary(self._after[new[0]]) else Cause.HISTORY_EDITED
            first = self._after[new[0]]
            self._add(cause, new[0], first.holder, 0, self._old_at(chunk.i1), _shown(first))

    @staticmethod
    def _count(segments: Sequence[Segment], places: Sequence[int]) -> int:
        return len({segments[place].message for place in places})

    def _aside(self, kind: str, cause: Cause, old: Sequence[int], new: Sequence[int], chunk: _Chunk) -> None:
        """Name the segments of one kind where they came, went or changed."""
        mine = [i for i in old if self._before[i].kind == kind]
        its = [j for j in new if self._after[j].kind == kind]
        appended = chunk.i2 == len(self._before) and not mine
        if not (mine or its) or appended:
            return
        j = its[0] if its else min(chunk.j1, len(self._after) - 1)
        place = self._after[j]
        if mine and its and kind == "thinking":
            path, at, before, after = thought_difference(self._before[mine[0]], place)
            start = max(0, at - 20)
            self._add(cause, j, path, at, excerpt(before, start, len(before)), excerpt(after, start, len(after)))
            return
        shown = [_shown(self._before[mine[0]]) if mine else "", _shown(place) if its else ""]
        self._add(cause, j, place.path if its else place.holder, 0, *shown)

    def _replaced(self, old: list[int], new: list[int], survivors: set[int], *, to_end: bool) -> None:
        messages_old = {self._before[i].message for i in old}
        messages_new = {self._after[j].message for j in new}
        first_old, first_new = self._before[old[0]], self._after[new[0]]
        fewer = len(messages_new) < len(messages_old)
        summary = next((j for j in new if _is_summary(self._after[j])), None) if fewer else None
        like = fewer and first_old.kind != "image" and _alike(first_old, first_new)
        if fewer and (summary is not None or (not like and first_new.kind == "text")):
            at = new[0] if summary is None else summary
            self._add(
                Cause.HISTORY_SUMMARISED, at, self._after[at].holder, 0, _shown(first_old), _shown(self._after[at])
            )
            return
        if len(old) > len(new) and not to_end and not like and messages_old - survivors and fewer:
            self._dropped(old, _Chunk(old[0], old[-1] + 1, new[0], new[0]), survivors, to_end=False)
        for i, j in self._pairs(old, new):
            self._edited(i, j)

    def _pairs(self, old: list[int], new: list[int]) -> Iterator[tuple[int, int]]:
        """Pair what was replaced by what: by kind and speaker in order, at least the first of each."""
        free = list(new)
        for i in old:
            one = self._before[i]
            j = next((j for j in free if self._after[j].kind == one.kind and self._after[j].role == one.role), None)
            if j is not None:
                free.remove(j)
                self.matched.add(j)
                yield i, j
        if len(free) == len(new):
            yield old[0], new[0]

    def _edited(self, i: int, j: int) -> None:
        old, new = self._before[i], self._after[j]
        if old.kind == new.kind == "tool_call" and old.call != new.call and new.call not in self._ids:
            self._add(Cause.HISTORY_EDITED, j, new.path, 0, _shown(old), _shown(new))
            return
        cause = Cause.HISTORY_EDITED
        if i == j == 0 and _is_summary(old) and _is_summary(new):  # it is told anew
            cause = Cause.HISTORY_SUMMARISED
        if old.kind == new.kind == "tool_result" and _is_cleared(old.text, new.text):
            cause = Cause.TOOL_RESULT_CLEARED
        if old.kind == new.kind and old.text and new.text and old.text != new.text:
            cause = form_cause(old.text, new.text) or cause
        if _is_only_thought(old, new):
            cause = Cause.THINKING_CHANGED
        if not self._is_news(cause, j):
            return
        at = first_difference(old.text, new.text) if old.kind == new.kind else 0
        start = max(0, new.text.rfind(" ", 0, at) + 1) if at else 0
        self._add(
            cause,
            j,
            new.path,
            at,
            excerpt(old.text, start, len(old.text)) or _shown(old),
            excerpt(new.text, start, len(new.text)) or _shown(new) * (new.kind != old.kind),
        )

    def _dropped(self, old: list[int], chunk: _Chunk, survivors: set[int], *, to_end: bool) -> None:
        if to_end:  # the later request goes back to an earlier point of the conversation
            return
        whole = any(self._before[i].message not in survivors for i in old)
        j = min(chunk.j1, len(self._after) - 1)
        place, first = self._after[j], self._before[old[0]]
        cause = Cause.HISTORY_DROPPED if whole else Cause.HISTORY_EDITED
        self._add(cause, j, place.holder, 0, _shown(first), _shown(place) if chunk.j1 < len(self._after) else "")

    def _old_at(self, index: int) -> str:
        return _shown(self._before[index]) if index < len(self._before) else ""


def _is_only_thought(old: Segment, new: Segment) -> bool:
    """Whether two answers differ in what stands between think tags."""
    if old.kind != "text" or new.kind != "text" or old.role != new.role or old.text == new.text:
        return False
    return folded(_THOUGHT.sub("", old.text)) == folded(_THOUGHT.sub("", new.text))


def _is_cleared(before: str, after: str) -> bool:
    """Whether a placeholder or nothing stands for a result."""
    if not after.strip():
        return True
    kept = first_difference(folded(before), folded(after))
    if len(after) > 200 or kept >= min(40, len(folded(after)) / 2):  # it was cut, and is not gone
        return False
    return _CLEARED.search(after.strip()) is not None


def _shown(segment: Segment) -> str:
    text = segment.text or ("" if segment.kind in ("text", "blank", "tool_result") else segment.exact[:400])
    if segment.kind == "image":
        return "(image)"
    return excerpt(text, 0, len(text))
