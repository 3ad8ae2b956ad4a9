"""Who a call is made for: the tenant, the thread and the per-call text, from the caller's config."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from headstay.flow import Flow

Tenant = str | Callable[[RunnableConfig], str | None] | None
Tail = str | Callable[[RunnableConfig], str | None] | None

_THREAD_KEYS = ("thread_id", "session_id", "conversation_id")
_caller: ContextVar[RunnableConfig | None] = ContextVar("headstay_caller", default=None)


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
def calling(config: RunnableConfig | None) -> Iterator[None]:
    """Keep the caller's config for the time of a call: the methods that build the request do not get it."""
    token = _caller.set(ensure_config(config))
    try:
        yield
    finally:
        _caller.reset(token)


def caller_config(metadata: Mapping[str, Any] | None = None) -> RunnableConfig:
    """Return the config of the call under way, with the run's metadata.

    Args:
        metadata: The run manager's metadata; thread ids can stand there too.
    """
    config = _caller.get() or ensure_config()
    merged = {**(metadata or {}), **(config.get("metadata") or {})}
    return cast("RunnableConfig", {**config, "metadata": merged})


def tenant_of(binding: Binding, config: RunnableConfig) -> str | None:
    """Return the tenant of a call; what the application's callable raises is raised."""
    tenant = binding.tenant(config) if callable(binding.tenant) else binding.tenant
    if tenant is not None and not isinstance(cast("object", tenant), str):
        raise TypeError(f"tenant= gave {type(tenant).__name__}, expected a str or None")
    return tenant


def tail_of(binding: Binding, config: RunnableConfig) -> str:
    """Return the per-call text of a call, or an empty text."""
    return (binding.tail(config) if callable(binding.tail) else binding.tail) or ""


def thread_of(config: RunnableConfig) -> str:
    """Return the thread id of a call, or an empty text."""
    for place in (config.get("configurable") or {}, config.get("metadata") or {}):
        for key in _THREAD_KEYS:
            if value := place.get(key):
                return str(value)
    return ""
