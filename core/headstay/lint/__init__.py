"""A log of requests to the breaks in it: which value changed, when, and what it cost.

```
lint --> follow --> streams, family    each request and the one it should continue
     --> judge --> reach               what it could have read, and why it did not
     --> report --> money              breaks, totals, the fixes worth most
```
"""

from collections.abc import Iterable
from datetime import date

from headstay.errors import WireError
from headstay.lint.follow import Follower
from headstay.lint.judge import Judge
from headstay.lint.report import Account, Report
from headstay.trace.entry import Entry, Skipped
from headstay.trace.order import in_order

__all__ = ["Report", "lint"]


def lint(pieces: Iterable[Entry | Skipped], *, prices_on: date | None = None) -> Report:
    """Find what broke the prefix in a log.

    Args:
        pieces: The log's requests, in any order if they have times, and what is none.
        prices_on: The day whose prices count; None for each call's own day, or today where the log has no times.

    Returns:
        The breaks and what they cost. Memory does not grow with the log, beyond 10,000 breaks.
    """
    follower, judge, account = Follower(), Judge(), Account(prices_on=prices_on)
    latest, late = float("-inf"), 0
    for piece in in_order(pieces):
        if isinstance(piece, Skipped):
            account.skip(piece)
            continue
        late += piece.started is not None and piece.started < latest
        latest = max(latest, piece.started) if piece.started is not None else latest
        try:
            step = follower.step(piece)
        except WireError as problem:
            account.skip(Skipped(piece.line, f"no request body: {problem}"))
            continue
        account.add(step, judge.judge(step))
    notices: list[str] = []
    if late:
        notices.append(
            f"{late:,} requests stand far behind later ones in the log: sort it by time, or their breaks may be wrong"
        )
    if follower.forgotten:
        notices.append(
            f"{follower.forgotten:,} conversations were let go to save memory; one that went on later counts as new"
        )
    return account.report(conversations=follower.conversations, notices=notices)
