"""What one call asks of the cache, for code that cannot pass an argument down."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, cast, get_args

from headstay.errors import ConfigError

Mode = Literal["use", "bypass", "refresh", "no_store"]
"""use: as configured. bypass: neither read nor keep. refresh: do not read, keep the fresh answer in place of the old
one. no_store: read, and keep nothing."""


@dataclass(frozen=True, slots=True)
class Names:
    """Whom calls are made for, where that was said for a block of code.

    Attributes:
        tenant: The tenant, or None where nothing was said.
        user: The user, likewise.
        version: The version of what answers depend on, likewise.
    """

    tenant: str | None = None
    user: str | None = None
    version: str | None = None


_NOBODY = Names()
_mode: ContextVar[Mode] = ContextVar("headstay_cache_mode", default="use")
_names: ContextVar[Names] = ContextVar("headstay_cache_names", default=_NOBODY)


@contextmanager
def caching(
    mode: Mode = "use", *, tenant: str | None = None, user: str | None = None, version: str | None = None
) -> Generator[None]:
    """Set the mode, and whom for, for every call inside the `with` block.

    Args:
        mode: "use", "bypass", "refresh" or "no_store".
        tenant: The tenant of these calls; it comes before the one that the cache was made with.
        user: The user, likewise.
        version: The version, likewise.

    Raises:
        ConfigError: The mode is none of these, or a name is no text.
    """
    for what, name in (("tenant", tenant), ("user", user), ("version", version)):
        if name is not None and (not isinstance(cast("object", name), str) or not name):
            raise ConfigError(f'caching({what}={name!r}): give a name, such as "acme"')
    outer = _names.get()
    named = Names(tenant or outer.tenant, user or outer.user, version or outer.version)
    tokens = _mode.set(check_mode(mode)), _names.set(named)
    try:
        yield
    finally:
        _mode.reset(tokens[0])
        _names.reset(tokens[1])


def current_names() -> Names:
    """Return whom the call under way is made for, where that was said."""
    return _names.get()


def current_mode() -> Mode:
    """Return the mode of the call under way."""
    return _mode.get()


def check_mode(mode: object) -> Mode:
    """Return a mode, or say what there is.

    Raises:
        ConfigError: It is no mode.
    """
    valid = get_args(Mode)
    if mode in valid:
        return cast("Mode", mode)
    raise ConfigError(f"{mode!r} is no mode of the cache: say " + ", ".join(f'"{known}"' for known in valid))
