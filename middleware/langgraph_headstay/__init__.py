"""headstay for LangGraph agents: tools, system text and few-shot stay one head across turns, threads and restarts."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langgraph_headstay.answer_cache import AnswerCacheMiddleware
    from langgraph_headstay.stable_head import StableHeadMiddleware

_HOME = {
    "AnswerCacheMiddleware": "langgraph_headstay.answer_cache",
    "StableHeadMiddleware": "langgraph_headstay.stable_head",
}

__all__ = ["AnswerCacheMiddleware", "StableHeadMiddleware"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; LangChain is imported only then."""
    if name not in _HOME:
        raise AttributeError(f"module 'langgraph_headstay' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith(("langchain", "langgraph")):
            raise ImportError(f'{name} needs LangChain: pip install "headstay[langgraph]"') from problem
        raise


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
