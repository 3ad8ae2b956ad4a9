"""What an agent's middleware tells the model it hands down, for the time of one model call."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from headstay.flow import Flow
from headstay.prompt import Prompt

Runtime = Any
"""LangGraph's runtime of the node; this package does not import LangGraph."""

_acting: ContextVar["Acting | None"] = ContextVar("headstay_acting", default=None)


@dataclass(slots=True)
class Acting:
    """One model call of an agent.

    Attributes:
        runtime: The node's runtime; callables for tenant and tail get it.
        flow: The middleware's flow; another instrumented model that is called meanwhile is none of its business.
        is_own: Says of the head of a request whether it is the agent's own call; a middleware further inside can
            use the same model for a question of its own.
        constant: System texts that are constant whatever stands in them.
        head: Tools, system texts and markers of the last request as it came to the model, once there was one.
        answered: Whether that request was answered.
        tool_changes: The tools that its messages added (true) or took away, beside its tool list.
        lane_tools: Names of the tools that its lane knows, offered or not.
    """

    runtime: Runtime
    flow: Flow
    is_own: Callable[[Prompt], bool]
    constant: frozenset[str] = field(default_factory=frozenset[str])
    head: Prompt | None = None
    answered: bool = False
    tool_changes: Mapping[str, bool] = field(default_factory=dict[str, bool])
    lane_tools: Sequence[str] = ()


@contextmanager
def acting(now: Acting) -> Generator[None]:
    """Let the model that is handed down find its call."""
    token = _acting.set(now)
    try:
        yield
    finally:
        _acting.reset(token)


def acting_for(flow: Flow) -> Acting | None:
    """Return the agent's call under way whose model goes through a flow, or None."""
    now = _acting.get()
    return now if now is not None and now.flow is flow else None
