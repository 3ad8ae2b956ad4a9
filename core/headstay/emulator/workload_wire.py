"""How the workload's model finds the user's words in a request, and the pictures its customers send."""

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headstay.emulator.reply import Wire

_TEXT_PARTS = frozenset({"text", "input_text"})
_WIDTH, _HEIGHT = 12, 8


def newest_user_texts(wire: Wire, body: Mapping[str, Any]) -> list[str]:
    """Return the texts of the newest user messages of a request body, in order.

    The newest ones are those after the last message of the model; if none of them has text (tool results
    only), those of the round before. System and developer messages, images and tool results are passed over.
    """
    found: list[list[str]] = []
    for item in reversed(_items(body["input" if wire == "openai-responses" else "messages"])):
        role = item.get("role")
        if role == "user":
            texts = list(_texts(item.get("content")))
            if texts:
                found.append(texts)
        elif role not in {"system", "developer"} and found:
            break
    return [text for texts in reversed(found) for text in texts]


def _items(messages: Any) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
        return
    for part in content or ():
        if part.get("type") in _TEXT_PARTS:
            yield part["text"]


def png(number: int) -> str:
    """Make a small picture, another one for each number: an RGB PNG of 12 x 8 pixels in base64.

    The pixels are stored without compression, so that the bytes do not depend on the zlib at hand.
    """
    rows = (
        b"\x00" + bytes(channel for x in range(_WIDTH) for channel in (x * 20, y * 30, number * 37 % 256))
        for y in range(_HEIGHT)
    )
    header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    chunks = (
        _chunk(b"IHDR", header),
        _chunk(b"IDAT", zlib.compress(b"".join(rows), level=0)),
        _chunk(b"IEND", b""),
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
