"""When a history is cut, and where: rarely, by a large part, between two exchanges."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from llama_index.core.base.llms.types import ChatMessage, MessageRole


def exchange_starts(messages: Iterable[ChatMessage]) -> list[int]:
    """Return where exchanges begin: at a human message that does not follow another one."""
    starts: list[int] = []
    before: MessageRole | None = None
    for at, message in enumerate(messages):
        if message.role == MessageRole.USER and before != MessageRole.USER:
            starts.append(at)
        before = message.role
    return starts


def flush_count(sizes: Sequence[int], starts: Sequence[int], *, limit: float, step: float) -> int:
    """Say how many of the oldest messages to take off.

    The messages are gone through as if they had come one by one, so that a history handed over whole is cut where one
    that grew was, and stays cut there until the limit is reached again.

    Args:
        sizes: The messages' sizes in tokens.
        starts: Where exchanges begin. An exchange is kept or taken off whole, and the last one is always kept.
        limit: The tokens that may be kept.
        step: The tokens to get below the limit once it is passed.
    """
    sums = [0, *accumulate(sizes)]
    first = 0
    for end in range(1, len(sums)):
        if sums[end] - sums[first] > limit:
            later = [start for start in starts if first < start < end]
            first = next(
                (start for start in later if sums[end] - sums[start] <= limit - step), later[-1] if later else first
            )
    return first
