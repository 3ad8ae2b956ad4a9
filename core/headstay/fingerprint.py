"""Hashes over the blocks of a request.

A *trail* is the joined digests of the blocks; a *link* is the hash of a trail up to some block and stands for
everything before it. Two requests share a prefix exactly as far as their trails agree, so one comparison proves a
prefix and a bisection finds where it broke.
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

from headstay.canonical import DIGEST_BYTES, digest, size_of, wire_text
from headstay.prompt import Block

_TEXT_KEYS = frozenset({"type", "text", "cache_control", "prompt_cache_breakpoint", "annotations", "id", "index"})


def text_digest(role: str, text: str) -> tuple[bytes, int]:
    """Hash one text block; remembered unless it is long, since an old message comes back in every call.

    Args:
        role: Who said it.
        text: What was said.

    Returns:
        The digest and the size in bytes.
    """
    return _remembered(role, text) if len(text) <= _REMEMBERED else _text_digest(role, text)


def _text_digest(role: str, text: str) -> tuple[bytes, int]:
    return digest(role, "text", text), size_of(text)


# The cache holds the texts themselves: 8,192 of at most 4,096 characters.
_REMEMBERED = 4_096
_remembered = lru_cache(maxsize=8_192)(_text_digest)


def block_digest(role: str, block: Mapping[str, object]) -> tuple[bytes, int]:
    """Hash one content block in wire form.

    A text block hashes like the same text given as plain string content.

    Args:
        role: Who said it.
        block: The block, markers included; they do not count.

    Returns:
        The digest and the size in bytes.
    """
    text = block.get("text")
    if isinstance(text, str) and (
        (len(block) == 2 and "type" in block) or (block.keys() <= _TEXT_KEYS and not block.get("annotations"))
    ):
        return text_digest(role, text)
    form = wire_text(block)
    return digest(role, "block", form), size_of(form)


def speaker(message: Mapping[str, object]) -> str:
    """Return who said a message, for the hash of its texts: the role, and the name where one is given."""
    role = str(message.get("role", "user"))
    return f"{role}:{message['name']}" if message.get("name") else role


def trail(blocks: Sequence[Block]) -> bytes:
    """Join the digests of some blocks: one request continues another exactly when its trail starts with the other's."""
    return b"".join([block.digest for block in blocks])


def links(trail_: bytes, ends: Sequence[int]) -> tuple[bytes, ...]:
    """Hash prefixes of a trail in one pass.

    Args:
        trail_: Joined block digests.
        ends: Numbers of blocks, in rising order.

    Returns:
        One digest per prefix; it stands for everything up to there.
    """
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    found: list[bytes] = []
    position = 0
    for end in ends:
        state.update(trail_[position * DIGEST_BYTES : end * DIGEST_BYTES])
        position = end
        found.append(state.digest())
    return tuple(found)


def head_hash(tools: Sequence[str], system: Sequence[str]) -> bytes:
    """Hash the head.

    Args:
        tools: The wire forms of the tool definitions, in wire order.
        system: The system texts with their placeholders.
    """
    return digest("head", *(text_digest("tool", form)[0] for form in tools), "system", *system)


def shared_blocks(before: bytes, after: bytes) -> int:
    """Count the blocks that two trails share from the start, by bisection."""
    low, high = 0, min(len(before), len(after)) // DIGEST_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        if before[: middle * DIGEST_BYTES] == after[: middle * DIGEST_BYTES]:
            low = middle
        else:
            high = middle - 1
    return low


def split_trail(trail_: bytes) -> list[bytes]:
    """Take a trail apart into its block digests."""
    return [trail_[start : start + DIGEST_BYTES] for start in range(0, len(trail_), DIGEST_BYTES)]


def parameters_hash(parameters: Mapping[str, object], names: Sequence[str]) -> bytes:
    """Hash the named parameters that are set, nested ones by their dotted name."""
    values = ((name, parameter(parameters, name)) for name in names)
    return digest("parameters", *(f"{name}={wire_text(value)}" for name, value in values if value is not None))


def parameter(parameters: Mapping[str, object], name: str) -> object:
    """Return a parameter, a nested one by its dotted name; None where it is not set."""
    first, _, rest = name.partition(".")
    value = parameters.get(first)
    if not rest:
        return value
    return parameter(cast("Mapping[str, object]", value), rest) if isinstance(value, Mapping) else None
