"""The bundled embedder for LlamaIndex's indexes: no torch, no download, no key."""

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr

from headstay.semantic.embedder_minilm import MiniLM


class BundledEmbedding(BaseEmbedding):
    """MiniLM-L6 as a LlamaIndex embedding model; about 4 ms for a short English text on one core.

    It needs the extra `semantic`. A text of more than 256 tokens raises `EmbedderError`, for nothing is cut: make
    smaller nodes, as with `SentenceSplitter(chunk_size=200, chunk_overlap=20)`.
    """

    _embedder: MiniLM = PrivateAttr(default_factory=MiniLM)

    def __init__(self, **settings: Any) -> None:
        named: dict[str, Any] = {"model_name": "headstay-minilm", **settings}
        super().__init__(**named)

    @classmethod
    def class_name(cls) -> str:
        """Name the class, as LlamaIndex does."""
        return "BundledEmbedding"

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return [[float(number) for number in vector] for vector in self._embedder.embed(texts)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)
