"""Values of a log record whose form nobody promised, read without ever failing."""

from collections.abc import Sequence
from typing import TypeGuard

from headstay.comparison.segment import Json
from headstay.trace.fields import id_of


def items(value: object) -> Sequence[object]:
    """Return a value that is a list, or an empty one."""
    return value if is_list(value) else ()


def is_list(value: object) -> TypeGuard[Sequence[object]]:
    """Whether a value is a list."""
    return isinstance(value, (list, tuple))


def text_of(value: object) -> str:
    """Return a value that is text, or an empty one."""
    return value if isinstance(value, str) else ""


def first_text(fields: Json, *names: str) -> str:
    """Return the first of some fields that holds an id or a name, as text; empty where none does."""
    return next((text for name in names if (text := id_of(fields.get(name)))), "")
