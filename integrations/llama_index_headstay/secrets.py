"""Settings without what opens doors: keys, tokens and passwords, at any depth, by their names."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

_SECRET = re.compile(
    r"(?:^|[_-])(?:api[_-]?keys?|secrets?|passwords?|authorization|credentials?|"
    r"(?:access|auth|authorization|session|bearer|id|refresh)[_-]tokens?|"
    r"(?:access|secret|private|subscription)[_-]key(?:[_-]id)?|secret[_-]access[_-]key|ad[_-]token|cookie)$"
    r"|^x-.*(?:key|token|auth)",
    re.IGNORECASE,
)


def without_secrets(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Leave secrets out of settings.

    Args:
        settings: Settings by name; they are not changed.
    """
    return {name: _inside(value) for name, value in settings.items() if not _is_secret(name, value)}


def _is_secret(name: object, value: object) -> bool:
    named = isinstance(name, str) and _SECRET.search(name) is not None
    return named or hasattr(value, "get_secret_value")


def _inside(value: Any) -> Any:
    if isinstance(value, Mapping):
        held = cast("Mapping[object, Any]", value)
        return {name: _inside(item) for name, item in held.items() if not _is_secret(name, item)}
    if isinstance(value, (list, tuple)):
        return [_inside(item) for item in cast("Sequence[Any]", value)]
    return value
