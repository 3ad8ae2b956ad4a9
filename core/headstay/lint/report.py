"""What a log shows: each break, what it cost, and the fixes worth most."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from headstay.causes import Cause
from headstay.comparison import Finding
from headstay.excerpt import excerpt
from headstay.ledger.price import moment
from headstay.lint.declare import KnownText, slot_lines
from headstay.lint.follow import Step
from headstay.lint.judge import Judgement, Loss
from headstay.lint.money import Money
from headstay.remedies import REMEDIES
from headstay.trace.entry import Skipped

MAX_BREAKS = 10_000
"""Breaks that are listed one by one; further ones are in the totals."""

_UNMARKED = Loss(Finding(Cause.MARKERS_MISSING, "", 0, "", "", REMEDIES[Cause.MARKERS_MISSING]), 0)
_FIXES = 3
_TEXTS = 24
_REMEDIES = 4
_LINES_SHOWN = 5
_INDEX = re.compile(r"\[\d+\]")
_NUMBER = re.compile(r"\d+")
_OF_MESSAGE = re.compile(r"^(messages|input)\[\d+\]")


@dataclass(frozen=True, slots=True)
class LoggedBreak:
    """One cause, in one request.

    Attributes:
        line: Line of the request, from 1.
        after_line: Line of the request it should continue; None where there is none.
        conversation: Number of its conversation in the log, from 1.
        name: The id that the log gives the conversation, or empty; at most 80 characters, secrets hidden.
        turn: Its place in the conversation, from 1.
        ts: When it was sent, ISO 8601 in UTC; None where the log has no time.
        wire: The wire format.
        model: The model.
        cause: The code.
        path: Where, as a path into the request; empty for what no request shows.
        at: Offset in characters of the first difference in the text there.
        before: What stood there in the earlier request, at most 80 characters, secrets hidden.
        after: What stands there now, at most 80 characters, secrets hidden.
        remedy: What to do.
        readable_tokens: Tokens the request could have read.
        read_tokens: Tokens it read: reported, or else what must have been left.
        lost_tokens: Tokens paid for again because of this cause; the causes of one request add up.
        lost_usd: Their price, less that of reading them; None where no price is known.
    """

    line: int
    after_line: int | None
    conversation: int
    name: str
    turn: int
    ts: str | None
    wire: str
    model: str
    cause: Cause
    path: str
    at: int
    before: str
    after: str
    remedy: str
    readable_tokens: int
    read_tokens: int
    lost_tokens: int
    lost_usd: float | None


@dataclass(slots=True)
class Sum:
    """What some breaks add up to.

    Attributes:
        breaks: How many there are.
        lost_tokens: Tokens paid for again.
        lost_usd: Their price, as far as it is known; None where no price is known at all.
        priced: Breaks whose price is known, or that cost nothing.
        unpriced: Breaks of models without a known price.
    """

    breaks: int = 0
    lost_tokens: int = 0
    lost_usd: float | None = 0.0
    priced: int = 0
    unpriced: int = 0

    def add(self, tokens: int, usd: float | None, *, breaks: int = 1) -> None:
        """Add one break, or tokens of what is none."""
        self.breaks += breaks
        self.lost_tokens += tokens
        self.priced += usd is not None
        self.unpriced += usd is None
        self.lost_usd = (self.lost_usd or 0.0) + (usd or 0.0) if self.priced else None

    @property
    def worth(self) -> tuple[float, int, int]:
        """What the dearest sum has most of."""
        return self.lost_usd or 0.0, self.lost_tokens, self.breaks


@dataclass(slots=True)
class Fix:
    """One thing to mend: the breaks of one cause at one place, or all values that vary in one text.

    Attributes:
        cause: The code; of several the one that was seen first.
        path: The place, the number of the message left out.
        sum: What the breaks add up to; what it gains if all that stands before it is mended too.
        alone_tokens: Tokens that it would cost if it were the only one. With 0 in `sum` it gains nothing by itself, and
            without it what stands behind it gains nothing.
        lines: Lines of the first of them.
        remedies: What to do about each of the first of them.
        remedy: What to do about all; empty until it is reported.
    """

    cause: Cause
    path: str
    sum: Sum = field(default_factory=Sum)
    alone_tokens: int = 0
    lines: list[int] = field(default_factory=list[int])
    remedies: list[str] = field(default_factory=list[str])
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Passed:
    """Pieces of the log that were passed over for one reason.

    Attributes:
        reason: The reason, as of the first one.
        count: How many.
        lines: Lines of the first of them.
        bad: Whether something is wrong with them, as opposed to being no model calls.
    """

    reason: str
    count: int
    lines: tuple[int, ...]
    bad: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a log shows.

    Attributes:
        clean: Whether nothing broke.
        requests: How many there are.
        with_usage: How many of them have the provider's token counts.
        conversations: How many conversations they belong to.
        readable_tokens: Tokens that could have been read.
        read_tokens: Tokens that were.
        lost: What all breaks add up to.
        by_cause: The same by cause, the dearest first.
        price_date: Day of the price data.
        price_source: Where the prices are from.
        priced_on: The day whose prices were asked for; None for each call's own.
        fixes: The fixes worth most, at most three. One may be no break: markers where nothing is cached without them.
        breaks: The breaks in the order of the log, at most 10,000.
        skipped: What was passed over.
        notices: What else should be known.
    """

    clean: bool
    requests: int
    with_usage: int
    conversations: int
    readable_tokens: int
    read_tokens: int
    lost: Sum
    by_cause: Mapping[Cause, Sum]
    price_date: str
    price_source: str
    priced_on: str | None
    fixes: tuple[Fix, ...]
    breaks: tuple[LoggedBreak, ...]
    skipped: tuple[Passed, ...]
    notices: tuple[str, ...]


class Account:
    """Adds up what the steps of a log lost.

    Args:
        prices_on: The day whose prices count; None for each call's own.
    """

    def __init__(self, *, prices_on: date | None = None) -> None:
        self._money = Money(prices_on)
        self._breaks: list[LoggedBreak] = []
        self._lost = Sum()
        self._by_cause: dict[Cause, Sum] = {}
        self._fixes: dict[tuple[object, ...], Fix] = {}
        self._texts: dict[tuple[object, ...], dict[KnownText, None]] = {}
        self._count: Counter[str] = Counter()
        self._skipped: dict[tuple[str, bool], Passed] = {}

    @property
    def requests(self) -> int:
        """How many requests were added."""
        return self._count["requests"]

    def skip(self, piece: Skipped) -> None:
        """Count a piece of the log that is no request."""
        key = (_NUMBER.sub("0", piece.reason), piece.bad)
        known = self._skipped.get(key) or Passed(piece.reason, 0, (), piece.bad)
        lines = (*known.lines, piece.line)[:_LINES_SHOWN]
        self._skipped[key] = replace(known, count=known.count + 1, lines=lines)

    def add(self, step: Step, judgement: Judgement) -> None:
        """Add a request."""
        far, entry = judgement.reach, step.turn.entry
        self._count["requests"] += 1
        self._count["usage"] += entry.usage is not None
        self._count["below"] += judgement.short
        if far is not None:
            self._count["readable"] += far.whole
            self._count["read"] += min(judgement.read, far.whole)
            self._count["expired"] += judgement.expired > 0
            self._count["expired tokens"] += judgement.expired
            self._count["unmarked"] += not far.marked and entry.usage is None
            if judgement.unmarked:
                usd = self._money.lost(step.turn, far, judgement.unmarked)
                fix = self._fix(_UNMARKED, step)
                fix.alone_tokens += judgement.unmarked
                fix.sum.add(judgement.unmarked, usd, breaks=0)
        for loss in judgement.losses:
            self._add(step, judgement, loss)

    def _add(self, step: Step, judgement: Judgement, loss: Loss) -> None:
        far, finding = judgement.reach, loss.finding
        usd = self._money.lost(step.turn, far, loss.tokens) if far is not None and loss.tokens else 0.0
        fix = self._fix(loss, step)
        fix.alone_tokens += loss.alone
        for one in (self._lost, self._by_cause.setdefault(finding.cause, Sum()), fix.sum):
            one.add(loss.tokens, usd)
        if len(self._breaks) < MAX_BREAKS:
            self._breaks.append(_logged(step, judgement, loss, usd))

    def _fix(self, loss: Loss, step: Step) -> Fix:
        finding = loss.finding
        path = _OF_MESSAGE.sub(r"\1[]", finding.path) if _is_history(step, finding.path) else finding.path
        path = _INDEX.sub("[]", path) if path.startswith("tools") else path
        key: tuple[object, ...] = (finding.cause, path)
        if any(segment.path == path for segment in step.turn.request.system):  # all that varies in one text is one fix
            key = (step.agent, path)
            self._remember(key, step, path)
        fix = self._fixes.setdefault(key, Fix(finding.cause, path))
        if len(fix.remedies) < _REMEDIES and finding.remedy not in fix.remedies:
            fix.remedies.append(finding.remedy)
        if len(fix.lines) < _LINES_SHOWN and step.turn.entry.line not in fix.lines:
            fix.lines.append(step.turn.entry.line)
        return fix

    def _remember(self, key: tuple[object, ...], step: Step, path: str) -> None:
        """Keep the text in which something varies, of this request and of the one it is held against."""
        texts = self._texts.setdefault(key, {})
        for turn in (step.before, step.turn):
            segment = next((one for one in turn.request.system if one.path == path), None) if turn else None
            if turn is not None and segment is not None and len(texts) < _TEXTS:
                own = turn is step.turn or step.continues
                name: Hashable = turn.entry.conversation or (own, step.conversation if own else turn.number)
                texts.setdefault(KnownText(segment.text, name))

    def _declared(self, key: tuple[object, ...], fix: Fix) -> Fix:
        """Say how all that varies in one text is declared, where that can be said."""
        lines = slot_lines(tuple(self._texts.get(key, ())))
        if not lines:
            return replace(fix, remedy="; ".join(fix.remedies))
        return replace(fix, remedy=f"declare {'it' if len(lines) == 1 else 'them'}: {', '.join(lines)}")

    def report(self, *, conversations: int, notices: Iterable[str] = ()) -> Report:
        """Return what was added.

        Args:
            conversations: How many conversations there were.
            notices: What else should be known.
        """
        day, source = self._money.source
        worth = sorted(self._fixes.items(), key=lambda item: (item[1].sum.worth, item[1].alone_tokens), reverse=True)
        worth = [item for item in worth if item[1].alone_tokens] or worth
        by_cause = sorted(self._by_cause.items(), key=lambda item: item[1].worth, reverse=True)
        return Report(
            clean=not self._lost.breaks,
            requests=self._count["requests"],
            with_usage=self._count["usage"],
            conversations=conversations,
            readable_tokens=self._count["readable"],
            read_tokens=self._count["read"],
            lost=self._lost,
            by_cause=dict(by_cause),
            price_date=day,
            price_source=source,
            priced_on=self._money.on.isoformat() if self._money.on else None,
            fixes=tuple(self._declared(key, fix) for key, fix in worth[:_FIXES]),
            breaks=tuple(self._breaks),
            skipped=tuple(sorted(self._skipped.values(), key=lambda passed: (not passed.bad, passed.lines))),
            notices=(*self._notices(), *notices),
        )

    def _notices(self) -> Iterable[str]:
        count = self._count
        if count["unmarked"]:
            yield (
                f"nothing is cached for {count['unmarked']:,} of the requests: the one before carries no cache marker, "
                "and without one nothing is written"
            )
        if count["expired"]:
            yield (
                f"{count['expired']:,} of the requests came when their entry may have expired, by the log's times and "
                f"the shortest lifetime that is promised: {count['expired tokens']:,} tokens are not counted as read"
            )
        if count["below"]:
            yield f"{count['below']:,} of the requests are too short for their model's cache: nothing is lost there"
        if self._lost.breaks > MAX_BREAKS:
            yield f"only the first {MAX_BREAKS:,} of {self._lost.breaks:,} breaks are listed; all are in the totals"


def _is_history(step: Step, path: str) -> bool:
    """Whether a path leads into the messages, and not into a leading system message."""
    found = _OF_MESSAGE.match(path)
    return found is not None and all(segment.holder != found[0] for segment in step.turn.request.system)


def _logged(step: Step, judgement: Judgement, loss: Loss, usd: float | None) -> LoggedBreak:
    entry, finding = step.turn.entry, loss.finding
    return LoggedBreak(
        line=entry.line,
        after_line=step.before.entry.line if step.before else None,
        conversation=step.conversation,
        name=excerpt(entry.conversation, 0, len(entry.conversation)),
        turn=step.place,
        ts=_iso(entry.started),
        wire=entry.wire,
        model=step.turn.request.model,
        cause=finding.cause,
        path=finding.path,
        at=finding.at,
        before=finding.before,
        after=finding.after,
        remedy=finding.remedy,
        readable_tokens=judgement.reach.whole if judgement.reach else 0,
        read_tokens=judgement.read,
        lost_tokens=loss.tokens,
        lost_usd=usd,
    )


def _iso(started: float | None) -> str | None:
    at = moment(started)
    return None if at is None else at.isoformat(timespec="milliseconds")
