"""Labelled pairs of questions, as a file holds them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from headstay.errors import ConfigError

_KEYS = ("a", "b", "same_answer")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two questions and whether one answer is right for both."""

    a: str
    b: str
    same_answer: bool


def read_pairs(lines: Iterable[str], *, source: str) -> list[Pair]:
    """Read pairs from JSON lines of `{"a": ..., "b": ..., "same_answer": true}`; other keys do not count.

    Args:
        lines: The lines; blank ones are passed over.
        source: What to call them in messages.

    Raises:
        ConfigError: A line is no such object; the message names it. Or there are none.
    """
    pairs = [_read_pair(line, f"{source}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not pairs:
        raise ConfigError(f"{source} holds no pairs; give JSON lines with the keys {', '.join(_KEYS)}.")
    return pairs


def _read_pair(line: str, where: str) -> Pair:
    try:
        given: Any = json.loads(line)
    except ValueError as problem:
        raise ConfigError(f"{where} is no JSON: {problem}.") from problem
    if not isinstance(given, dict):
        raise ConfigError(f"{where} is no JSON object with the keys {', '.join(_KEYS)}.")
    held = cast("dict[str, Any]", given)
    missing = [key for key in _KEYS if key not in held]
    if missing:
        raise ConfigError(f"{where} has no {', '.join(missing)}.")
    for key in ("a", "b"):
        text: object = held[key]
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f'{where}: "{key}" must be a text, and not a blank one.')
        if not _is_unicode(text):
            raise ConfigError(f'{where}: "{key}" holds half of a surrogate pair, which is no valid text.')
    if not isinstance(held["same_answer"], bool):
        raise ConfigError(f'{where}: "same_answer" must be true or false.')
    return Pair(held["a"], held["b"], held["same_answer"])


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
