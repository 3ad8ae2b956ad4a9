"""Who a call is made for: the tenant, the thread and the per-call text, from the caller's config."""

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID, uuid4

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from headstay.errors import ConfigError
from headstay.flow import Flow

Tenant = str | Callable[[Any], str | None] | None
"""A name, or a callable on the `RunnableConfig`; in an agent's middleware on the runtime."""
Tail = str | Callable[[Any], str | None] | None
"""A text, or a callable on the `RunnableConfig`; in an agent's middleware on the runtime."""

_THREAD_KEYS = ("thread_id", "session_id", "conversation_id")
_caller: ContextVar[RunnableConfig | None] = ContextVar("headstay_caller", default=None)
_later: dict[UUID, RunnableConfig] = {}
_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Binding:
    """What an instrumented model knows beyond its class.

    Attributes:
        flow: Prepares and completes its calls.
        tenant: The tenant, or how to find it in a config.
        tail: Per-call text, or how to find it in a config.
    """

    flow: Flow
    tenant: Tenant = None
    tail: Tail = None


@contextmanager
def calling(config: RunnableConfig | None) -> Generator[None]:
    """Keep the caller's config for the time of a call: the methods that build the request do not get it."""
    token = _caller.set(ensure_config(config))
    try:
        yield
    finally:
        _caller.reset(token)


def with_run_id(config: RunnableConfig | None) -> RunnableConfig:
    """Name the run of a stream that starts later, when only its run id is handed down."""
    config = ensure_config(config)
    config["run_id"] = config.get("run_id") or uuid4()
    return config


def remember(config: RunnableConfig, stream: object) -> None:
    """Keep a config that `with_run_id` made, for as long as its stream lives."""
    run_id = cast("UUID", config.get("run_id"))
    _later[run_id] = config
    weakref.finalize(stream, _later.pop, run_id, None)


def caller_config(run_manager: Any = None) -> RunnableConfig:
    """Return the config of the call under way, with the run's metadata.

    Args:
        run_manager: The run's manager: its metadata can name the thread too, and its id a remembered config.
    """
    metadata: Mapping[str, Any] | None = getattr(run_manager, "metadata", None)
    config = _caller.get() or _later.get(getattr(run_manager, "run_id", None) or _NOBODY) or ensure_config()
    merged = {**(metadata or {}), **(config.get("metadata") or {})}
    return cast("RunnableConfig", {**config, "metadata": merged})


def config_of_this_call() -> RunnableConfig | None:
    """Return the config of the very call under way, or None where only an outer one is known.

    LangChain hands its caches no config. An instrumented model keeps it; behind any other model the config at hand is
    that of the chain around it, which may be another's.
    """
    return _caller.get()


class NoConfig(dict[str, Any]):
    """Stands for a config that is not known, and notes whether something in it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = False

    def __getitem__(self, key: str) -> Any:
        """Note it; there is nothing."""
        self.asked = True
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        """Note it; there is nothing."""
        self.asked = True
        return False

    def __iter__(self) -> Iterator[str]:
        """Note it; there is nothing."""
        self.asked = True
        return iter(())

    def get(self, key: str, default: Any = None, /) -> Any:  # noqa: ARG002 - the signature of a mapping
        """Note it; there is nothing."""
        self.asked = True
        return default

    def keys(self) -> Any:
        """Note it; there is nothing."""
        self.asked = True
        return super().keys()

    def items(self) -> Any:
        """Note it; there is nothing."""
        self.asked = True
        return super().items()

    def values(self) -> Any:
        """Note it; there is nothing."""
        self.asked = True
        return super().values()


def tenant_of(given: Tenant, config: Any) -> str | None:
    """Return the tenant of a call.

    Raises:
        ConfigError: The application's callable raised, or gave no text.
    """
    return _text_of("tenant", given, config)


def tail_of(given: Tail, config: Any) -> str:
    """Return the per-call text of a call, or an empty text.

    Raises:
        ConfigError: The application's callable raised, or gave no text.
    """
    return _text_of("tail", given, config) or ""


def _text_of(setting: str, given: str | Callable[[Any], str | None] | None, config: Any) -> str | None:
    try:
        text = given(config) if callable(given) else given
    except Exception as problem:  # its words are the application's: they stay with the cause, out of the ledger
        raise ConfigError(f"{setting}= raised {type(problem).__name__}") from problem
    if text is not None and not isinstance(cast("object", text), str):
        raise ConfigError(f"{setting}= gave {type(text).__name__}, expected a str or None")
    return text


def thread_of(config: RunnableConfig) -> str:
    """Return the thread id of a call, or an empty text."""
    for place in (config.get("configurable") or {}, config.get("metadata") or {}):
        for key in _THREAD_KEYS:
            if value := place.get(key):
                return str(value)
    return ""
