"""A kept text in the pieces in which a stream replays it."""

from collections.abc import Generator

_PIECE = 24
"""Characters of a replayed chunk, about as many as five tokens have; it ends with a word."""


def pieces_of_text(text: str) -> Generator[str]:
    """Cut a text into pieces that end with a blank."""
    start = 0
    while len(text) - start > _PIECE:
        end = text.find(" ", start + _PIECE)
        if end < 0:
            break
        yield text[start : end + 1]
        start = end + 1
    if text[start:]:
        yield text[start:]
