"""The semantic cache: answers repeated and reworded questions, and never with another question's answer.

`Cache` is the engine; hosts bind it (`langchain_headstay.SemanticCache`). Store and embedder come in from outside, and
numpy and the bundled model are loaded by whoever needs them first.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headstay.semantic.answer import Answer
    from headstay.semantic.cache import Cache
    from headstay.semantic.control import Mode, caching
    from headstay.semantic.embedder import CallableEmbedder, Embedder, MiniLM, Tokens, as_embedder
    from headstay.semantic.entry import Entry, Filter, Page, Scored, Usage
    from headstay.semantic.lookup import Admission, Lookup
    from headstay.semantic.metrics import Metrics
    from headstay.semantic.reasons import Reason
    from headstay.semantic.request import AskedRequest, Turn
    from headstay.semantic.sqlite_store import SQLiteStore
    from headstay.semantic.store import Store

_HOMES = {
    "Admission": "lookup",
    "Answer": "answer",
    "AskedRequest": "request",
    "Cache": "cache",
    "CallableEmbedder": "embedder",
    "Embedder": "embedder",
    "Entry": "entry",
    "Filter": "entry",
    "Lookup": "lookup",
    "Metrics": "metrics",
    "MiniLM": "embedder",
    "Mode": "control",
    "Page": "entry",
    "Reason": "reasons",
    "SQLiteStore": "sqlite_store",
    "Scored": "entry",
    "Store": "store",
    "Tokens": "embedder",
    "Turn": "request",
    "Usage": "entry",
    "as_embedder": "embedder",
    "caching": "control",
}

__all__ = [
    "Admission",
    "Answer",
    "AskedRequest",
    "Cache",
    "CallableEmbedder",
    "Embedder",
    "Entry",
    "Filter",
    "Lookup",
    "Metrics",
    "MiniLM",
    "Mode",
    "Page",
    "Reason",
    "SQLiteStore",
    "Scored",
    "Store",
    "Tokens",
    "Turn",
    "Usage",
    "as_embedder",
    "caching",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used; an embedder needs the extra `semantic`."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headstay.semantic' has no attribute {name!r}")
    try:
        return getattr(import_module(f"headstay.semantic.{home}"), name)
    except ModuleNotFoundError as problem:
        if (problem.name or "").startswith("headstay"):
            raise
        raise ImportError(f'{name} needs {problem.name}: pip install "headstay[semantic]"') from problem


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
