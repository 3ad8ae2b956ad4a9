"""Whether two images are the same picture in other bytes: the pixels of small PNG files, read with what Python has."""

import base64
import binascii
import re
import struct
import zlib
from collections.abc import Iterator

_PNG = b"\x89PNG\r\n\x1a\n"
_DATA = re.compile(r"(?:;base64,|\"data\":\")([A-Za-z0-9+/=]+)")
_MOST_ENCODED = 400_000
_MOST_RAW = 300_000
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}

Pixels = tuple[int, int, bytes]


def are_other_pixels(before: str, after: str) -> bool:
    """Whether two image blocks surely show different pictures of one size.

    Args:
        before: The earlier block in wire form.
        after: The later block in wire form.

    Returns:
        True only where both hold small PNG data whose pixels were read and differ. A link, another format, another
        size or a large picture may be the same picture.
    """
    one, other = (_pixels(form) for form in (before, after))
    return one is not None and other is not None and one[:2] == other[:2] and one[2] != other[2]


def _pixels(form: str) -> Pixels | None:
    found = _DATA.search(form)
    if found is None or len(found[1]) > _MOST_ENCODED:
        return None
    try:
        return _png_pixels(base64.b64decode(found[1], validate=True))
    except (binascii.Error, zlib.error, struct.error, LookupError, ValueError):
        return None


def _png_pixels(data: bytes) -> Pixels | None:
    """Read width, height and raw pixels of a PNG file of 8 bits a channel, not interlaced; None for any other."""
    if not data.startswith(_PNG):
        return None
    chunks = list(_chunks(data))
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"])
    step = _CHANNELS.get(colour, 0)
    if depth != 8 or interlaced or not step or height * (width * step + 1) > _MOST_RAW:
        return None
    packed = b"".join(content for kind, content in chunks if kind == b"IDAT")
    raw = zlib.decompressobj().decompress(packed, _MOST_RAW + 1)
    palette = b"".join(content for kind, content in chunks if kind in (b"PLTE", b"tRNS"))
    return width, height, palette + _unfiltered(raw, height, width * step, step)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(_PNG)
    while at + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        yield kind, data[at + 8 : at + 8 + length]
        at += length + 12


def _unfiltered(raw: bytes, height: int, width: int, step: int) -> bytes:
    """Undo the filter of each line (PNG specification, section 9)."""
    above = bytes(width)
    lines: list[bytes] = []
    for number in range(height):
        start = number * (width + 1)
        line = bytearray(raw[start + 1 : start + 1 + width])
        kind = raw[start]
        for index in range(width if kind else 0):
            left = line[index - step] if index >= step else 0
            corner = above[index - step] if index >= step else 0
            line[index] = (line[index] + _predicted(kind, left, above[index], corner)) & 255
        above = bytes(line)
        lines.append(above)
    return b"".join(lines)


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind == 4:
        near = left + up - corner
        return min((left, up, corner), key=lambda value: abs(near - value))
    return (0, left, up, (left + up) // 2)[kind]
