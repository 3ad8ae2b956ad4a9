"""headstay for LlamaIndex: an LLM whose head provably stays, and a query engine that answers repeated questions."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_headstay.chat_engines import prefix_safe
    from llama_index_headstay.embedding import BundledEmbedding
    from llama_index_headstay.head_lint import lint_head
    from llama_index_headstay.instrument import cache_aware
    from llama_index_headstay.memory import SteppedMemory
    from llama_index_headstay.query_engine import SemanticCacheQueryEngine

_HOME = {
    "BundledEmbedding": "llama_index_headstay.embedding",
    "SemanticCacheQueryEngine": "llama_index_headstay.query_engine",
    "SteppedMemory": "llama_index_headstay.memory",
    "cache_aware": "llama_index_headstay.instrument",
    "lint_head": "llama_index_headstay.head_lint",
    "prefix_safe": "llama_index_headstay.chat_engines",
}

__all__ = ["BundledEmbedding", "SemanticCacheQueryEngine", "SteppedMemory", "cache_aware", "lint_head", "prefix_safe"]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; LlamaIndex is imported only then."""
    if name not in _HOME:
        raise AttributeError(f"module 'llama_index_headstay' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith("llama_index") and not (problem.name or "").startswith("llama_index_h"):
            raise ImportError(f'{name} needs LlamaIndex: pip install "headstay[llama-index]"') from problem
        raise


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
