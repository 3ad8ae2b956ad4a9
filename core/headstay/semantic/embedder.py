"""Embedders of the semantic cache: the bundled one, and whatever else is given in its place."""

from typing import TYPE_CHECKING, Any, cast

from headstay.errors import ConfigError
from headstay.semantic.embedder_hosts import CallableEmbedder, HostEmbedder
from headstay.semantic.embedder_minilm import MiniLM
from headstay.semantic.embedder_sentence_transformers import SentenceTransformerEmbedder
from headstay.semantic.embedder_vectors import Embedder, FloatArray, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CallableEmbedder",
    "Embedder",
    "FloatArray",
    "HostEmbedder",
    "MiniLM",
    "SentenceTransformerEmbedder",
    "Tokens",
    "as_embedder",
]

_MEMBERS = ("fingerprint", "dimension", "window", "embed", "tokens")


def as_embedder(given: object = None, *, name: str | None = None, window: int | None = None) -> Embedder:
    """Make an embedder of what a user gives.

    Args:
        given: None for the bundled model; an `Embedder`; the name of a sentence-transformers model, or such a model; an
            embeddings object of LangChain or LlamaIndex; or a function, which needs a name.
        name: Names the vector space of a function, or of an object whose attributes do not tell its model.
        window: Most tokens that a function or an embeddings object reads, where known.

    Raises:
        ConfigError: It is none of these, a function has no name, or what it needs is not installed.
    """
    if given is None:
        return MiniLM()
    if isinstance(given, type):
        raise ConfigError(f"embedder={given.__name__} is a class; give an instance, such as {given.__name__}().")
    if isinstance(given, str):
        return SentenceTransformerEmbedder(given, name=name)
    offered = dir(given)  # asking for the attributes themselves may embed a text
    if {"fingerprint", "embed"} <= set(offered):
        missing = [member for member in _MEMBERS if member not in offered]
        if missing:
            raise ConfigError(f"the embedder {type(given).__name__} has no {', '.join(missing)}.")
        return cast("Embedder", given)
    if "embed_documents" in offered or "get_text_embedding" in offered:
        return HostEmbedder(given, name=name, window=window)
    if "encode" in offered and "max_seq_length" in offered:
        return SentenceTransformerEmbedder(given, name=name)
    if callable(given):
        if name is None:
            raise ConfigError(
                "a function as embedder needs a name of its vectors: give "
                'CallableEmbedder(function, name="acme-v1"), and change the name when the vectors change.'
            )
        return CallableEmbedder(cast("Callable[[Any], object]", given), name=name, window=window)
    raise ConfigError(
        f"embedder={type(given).__name__} is no embedder. Give None, a sentence-transformers name, an embeddings "
        "object of LangChain or LlamaIndex, or CallableEmbedder(function, name=...)."
    )
