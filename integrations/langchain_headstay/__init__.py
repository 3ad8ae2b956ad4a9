"""headstay for LangChain: a chat model whose head provably stays."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_headstay.cached_chain import cached
    from langchain_headstay.chat_local import ChatLocal
    from langchain_headstay.instrument import cache_aware
    from langchain_headstay.model import CacheAwareChatModel
    from langchain_headstay.semantic_cache import SemanticCache
    from langchain_headstay.warming import warm_head

_HOME = {
    "CacheAwareChatModel": "langchain_headstay.model",
    "ChatLocal": "langchain_headstay.chat_local",
    "SemanticCache": "langchain_headstay.semantic_cache",
    "cache_aware": "langchain_headstay.instrument",
    "cached": "langchain_headstay.cached_chain",
    "warm_head": "langchain_headstay.warming",
}

__all__ = ["CacheAwareChatModel", "ChatLocal", "SemanticCache", "cache_aware", "cached", "warm_head"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; LangChain is imported only then."""
    if name not in _HOME:
        raise AttributeError(f"module 'langchain_headstay' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith("langchain"):
            extra = "openai" if problem.name == "langchain_openai" else "langchain"
            raise ImportError(f'{name} needs LangChain: pip install "headstay[{extra}]"') from problem
        raise


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
