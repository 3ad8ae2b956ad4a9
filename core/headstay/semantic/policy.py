"""How a cache decides and keeps, as its user set it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, cast

from headstay.errors import ConfigError
from headstay.semantic.decide import THRESHOLD, check_threshold
from headstay.semantic.flight import LONGEST

ToolCalls = Literal["never", "exact"]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a cache decides and keeps.

    Attributes:
        threshold: Least cosine similarity of a served question.
        ttl: Seconds an answer may be served for, counted from its making, or None.
        jitter: Share of the TTL by which it is shortened at random, so that answers do not all expire at once.
        tool_calls: Whether answers that ask for tools are kept, for identical requests only.
        tags: Names on every kept entry, to invalidate them by.
        dry_run: Whether answers are looked up and compared, and never served.
        flight: Seconds that a call waits for another that fetches the same answer; 0 does not wait.
    """

    threshold: float = THRESHOLD
    ttl: float | None = None
    jitter: float = 0.1
    tool_calls: ToolCalls = "never"
    tags: tuple[str, ...] = ()
    dry_run: bool = False
    flight: float = 30.0


def read_policy(
    *,
    threshold: float,
    ttl: float | timedelta | None,
    jitter: float,
    tool_calls: ToolCalls,
    tags: Sequence[str],
    dry_run: bool,
    flight: float,
) -> Policy:
    """Check what a user set.

    Raises:
        ConfigError: A setting cannot work; the message says what to give.
    """
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if seconds is not None and not (_is_number(seconds) and seconds > 0):
        raise ConfigError(f"ttl={ttl!r}: give seconds over 0, a timedelta, or None for no limit")
    if not (_is_number(jitter) and 0 <= jitter < 1):
        raise ConfigError(f"jitter={jitter!r}: give a share of the TTL, 0 up to and without 1")
    if tool_calls not in ("never", "exact"):
        raise ConfigError(f'tool_calls={tool_calls!r}: say "never" or "exact"')
    if not (_is_number(flight) and 0 <= flight <= LONGEST):
        raise ConfigError(f"flight={flight!r}: give seconds up to {LONGEST:g}, 0 not to wait")
    if not isinstance(cast("object", dry_run), bool):
        raise ConfigError(f"dry_run={dry_run!r}: say True or False")
    return Policy(check_threshold(threshold), seconds, jitter, tool_calls, check_tags(tags), dry_run, flight)


def check_tags(tags: object) -> tuple[str, ...]:
    """Return tags, or say how they are given.

    Raises:
        ConfigError: It is no list of names.
    """
    if isinstance(tags, str):
        raise ConfigError(f"tags={tags!r}: give a list of names, such as [{tags or 'faq'!r}]")
    listed = isinstance(tags, Iterable) and not isinstance(tags, Mapping)
    names = list(cast("Iterable[object]", tags)) if listed else [None]
    if not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f'tags={tags!r}: give a list of names, such as ["faq"]; each is a str and not empty')
    return tuple(cast("list[str]", names))


def check_name(setting: str, name: object) -> str | None:
    """Return a name or None, or say what a name is.

    Raises:
        ConfigError: It is neither.
    """
    if name is None or (isinstance(name, str) and name):
        return name
    raise ConfigError(f"{setting}={name!r}: give a str that is not empty, or None")


def check_feedback(entry: object, wrong: object) -> None:
    """Refuse a judgement of a served answer that is none.

    Raises:
        ConfigError: The message says what to give.
    """
    if not isinstance(entry, str):
        raise ConfigError(
            f"feedback({type(entry).__name__}): give the entry's name, as a served reply says it: "
            'reply.response_metadata["headstay"]["entry"]'
        )
    if not isinstance(wrong, bool):
        raise ConfigError(f"feedback(wrong={wrong!r}): say True or False")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
