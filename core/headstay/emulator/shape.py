"""Reading JSON whose shape is not known, one level at a time."""

import json
from typing import Any, TypeGuard


def mapping(value: object) -> dict[str, Any]:
    """Return a JSON object as it is, and anything else as an empty one."""
    return value if _is_object(value) else {}


def sequence(value: object) -> list[Any]:
    """Return a JSON array as it is, and anything else as an empty one."""
    return value if _is_array(value) else []


def text_of(value: object) -> str:
    """Return a JSON string as it is, and anything else as ""."""
    return value if isinstance(value, str) else ""


def compact(value: object) -> str:
    """Write JSON without spaces, keys in the order they came in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)
