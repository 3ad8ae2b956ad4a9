"""What one call asks of the cache, for code that cannot pass an argument down."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, cast, get_args

from headstay.errors import ConfigError

Mode = Literal["use", "bypass", "refresh", "no_store"]
"""use: as configured. bypass: neither read nor keep. refresh: do not read, keep the fresh answer in place of the old
one. no_store: read, and keep nothing."""

_mode: ContextVar[Mode] = ContextVar("headstay_cache_mode", default="use")


@contextmanager
def caching(mode: Mode) -> Generator[None]:
    """Set the mode for every call inside the `with` block.

    Args:
        mode: "use", "bypass", "refresh" or "no_store".

    Raises:
        ConfigError: It is none of these.
    """
    token = _mode.set(check_mode(mode))
    try:
        yield
    finally:
        _mode.reset(token)


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
