"""One byte form for each value of a request.

Two forms are needed. The *wire form* keeps the order of keys, because a provider caches bytes and not meanings. The
*meaning form* sorts them, to tell a re-ordered schema from a changed one. Both leave the cache markers out: a marker
says where to cache and is no content.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import cast

MARKER_KEYS = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Keys that place a cache breakpoint. Anthropic and OpenAI pages, seen 2026-11-29."""

DIGEST_BYTES = 16

# Where blocks stand inside blocks. Anything else that is called like a marker (a tool's argument, say) is content.
_NESTED_KEYS = ("content", "output", "source")


def _fallback(value: object) -> object:
    """Give a JSON form to what a payload may hold beside JSON: schema classes, tuples, sets, bytes."""
    schema = getattr(value, "model_json_schema", None)
    if isinstance(value, type) and callable(schema):
        return schema()
    dump = getattr(value, "model_dump", None)
    if not isinstance(value, type) and callable(dump):
        return dump(mode="json")
    if isinstance(value, (set, frozenset)):
        members = cast("set[object] | frozenset[object]", value)
        return sorted(wire_text(member) for member in members)
    if isinstance(value, (bytes, bytearray)):
        return {"blake2b": hashlib.blake2b(value, digest_size=DIGEST_BYTES).hexdigest()}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[object, object]", value))
    # A repr may hold an object address, which would differ in every process.
    kind = value if isinstance(value, type) else type(value)
    return {"class": f"{kind.__module__}.{kind.__qualname__}"}


_WIRE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=_fallback)
_LISTS_KEPT = 64
_taken_apart: dict[str, tuple[str, ...]] = {}
_MEANING = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=_fallback)


def without_markers(value: object) -> object:
    """Return a tool, a message, a content block or a list of them with the cache markers left out.

    A marker is a key of a block. The same word inside a schema, an argument or a text is content and stays.
    """
    if isinstance(value, (list, tuple)):
        return [without_markers(item) for item in cast("list[object]", value)]
    if not isinstance(value, Mapping):
        return value
    kept = {key: item for key, item in cast("Mapping[str, object]", value).items() if key not in MARKER_KEYS}
    for key in _NESTED_KEYS:
        if isinstance(kept.get(key), (list, tuple, Mapping)):
            kept[key] = without_markers(kept[key])
    return kept


def wire_text(value: object) -> str:
    """Return the compact JSON of a value, keys in the order given, markers left out."""
    text = _WIRE.encode(value)
    if any(key in text for key in MARKER_KEYS):
        return _WIRE.encode(without_markers(value))
    return text


def wire_texts(values: Sequence[object]) -> tuple[str, ...]:
    """Return the wire form of each of some values; a list that comes in every call is taken apart once only."""
    whole = wire_text(values)
    forms = _taken_apart.get(whole)
    if forms is None:
        forms = tuple(wire_text(value) for value in values)
        if len(_taken_apart) >= _LISTS_KEPT:
            _taken_apart.clear()
        _taken_apart[whole] = forms
    return forms


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


def size_of(text: str) -> int:
    """Return the length of a text in UTF-8 bytes, without encoding it where that can be avoided."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
