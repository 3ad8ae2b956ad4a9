"""A deterministic, offline token estimate shared by the emulator and the oracle.

The pieces resemble those of a byte-pair vocabulary closely enough for cache arithmetic: about 1.2 pieces an
English word. They are estimates and are called so wherever they are printed. A piece never depends on what
follows it beyond its own characters, so texts with a common prefix share all but at most one piece of it.
"""

import re
from functools import lru_cache

IMAGE_TOKENS = 258
"""Every image counts the same: sizes are not modelled."""

_PIECE = re.compile(r" ?[^\W\d_]{1,8}|\d{1,3}|\s|[^\w\s]|_")


@lru_cache(maxsize=65_536)
def pieces(text: str) -> tuple[str, ...]:
    """Split a text into its estimated tokens, losslessly and in order."""
    return tuple(_PIECE.findall(text))


def count(text: str) -> int:
    """Count the estimated tokens of a text."""
    return len(pieces(text))
