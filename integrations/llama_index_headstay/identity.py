"""Who a call is made for, and the caches that answer it: what LlamaIndex hands no config for."""

from collections.abc import Callable
from inspect import iscoroutinefunction, signature
from typing import cast

from headstay.errors import ConfigError
from headstay.semantic.cache import Cache

Named = str | Callable[[], str | None] | None
"""A name, or a callable without arguments that is asked in the context of each call, such as `ContextVar.get`."""


_WANTED = "a str that is not empty, or a callable without arguments (such as ContextVar.get)"


def check_named(setting: str, value: object) -> None:
    """Refuse what is no name, no callable and not None.

    Raises:
        ConfigError: It is none of these.
    """
    if value is not None and not (isinstance(value, str) and value) and not callable(value):
        raise ConfigError(f"{setting}={value!r}: give {_WANTED}, or None")
    if callable(value) and (isinstance(value, type) or iscoroutinefunction(value) or _needs_arguments(value)):
        name = getattr(value, "__name__", type(value).__name__)
        raise ConfigError(f"{setting}={name}: give {_WANTED}; LlamaIndex hands it no config, and it is not awaited")


def _needs_arguments(function: Callable[..., object]) -> bool:
    try:
        signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # it does not show its signature
        return False
    return False


def name_of(setting: str, given: Named) -> str | None:
    """Return a name for this call.

    Raises:
        ConfigError: The application's callable raised, or gave no text; its words stay with the cause.
    """
    try:
        text = given() if callable(given) else given
    except Exception as problem:
        raise ConfigError(f"{setting}= raised {type(problem).__name__}") from problem
    if text is not None and not isinstance(cast("object", text), str):
        raise ConfigError(f"{setting}= gave {type(text).__name__}, expected a str or None")
    return text or None


def semantic_engine(setting: str, given: object) -> Cache:
    """Return the semantic cache that is given, or that is inside what is given.

    Args:
        setting: Name of the argument, for the message.
        given: A `headstay.semantic.Cache`, or an object that holds one as its `engine`, so that LangChain and
            LlamaIndex can share one.

    Raises:
        ConfigError: It is none.
    """
    inside = given if isinstance(given, Cache) else getattr(given, "engine", None)
    if isinstance(inside, Cache) and not isinstance(given, type):
        return inside
    name = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    raise ConfigError(f"{setting}={name}: give a cache, such as headstay.semantic.Cache('answers.db')")
