"""One byte form for each value of a request.

Two forms are needed. The *wire form* keeps the order of keys, because a provider caches bytes and not meanings. The
*meaning form* sorts them, to tell a re-ordered schema from a changed one. Both leave the cache markers out: a marker
says where to cache and is no content.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import cast

MARKER_KEYS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Keys that place a cache breakpoint. Anthropic and OpenAI pages, seen 2026-11-29."""

DIGEST_BYTES = 16


def _fallback(value: object) -> object:
    """Give a JSON form to what a payload may hold beside JSON: schema classes, tuples, sets, bytes."""
    schema = getattr(value, "model_json_schema", None)
    if isinstance(value, type) and callable(schema):
        return schema()
    if isinstance(value, (set, frozenset)):
        members = cast("set[object] | frozenset[object]", value)
        return sorted(wire_text(member) for member in members)
    if isinstance(value, (bytes, bytearray)):
        return {"blake2b": hashlib.blake2b(value, digest_size=DIGEST_BYTES).hexdigest()}
    if isinstance(value, type):
        return {"class": f"{value.__module__}.{value.__qualname__}"}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    # A repr may hold an object address, which would differ in every process.
    return {"class": f"{type(value).__module__}.{type(value).__qualname__}"}


_WIRE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_fallback)
_MEANING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_fallback)


def without_markers(value: object) -> object:
    """Return the value with every cache marker left out, at any depth."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: without_markers(item) for key, item in items if key not in MARKER_KEYS}
    if isinstance(value, (list, tuple)):
        return [without_markers(item) for item in cast("list[object]", value)]
    return value


def wire_text(value: object) -> str:
    """Return the compact JSON of a value, keys in the order given, markers left out."""
    text = _WIRE.encode(value)
    if any(key in text for key in MARKER_KEYS):
        return _WIRE.encode(without_markers(value))
    return text


def meaning_text(value: object) -> str:
    """Return the compact JSON of a value, keys sorted, markers left out."""
    return _MEANING.encode(without_markers(value))


def digest(*parts: str | bytes) -> bytes:
    """Hash some parts to 16 bytes; the boundaries between the parts count."""
    state = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return state.digest()


def wire_digest(value: object) -> bytes:
    """Hash the wire form of a value."""
    return digest(wire_text(value))


def size_of(text: str) -> int:
    """Return the length of a text in UTF-8 bytes, without encoding it where that can be avoided."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
