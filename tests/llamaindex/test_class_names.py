"""Whatever is public is of LlamaIndex's own classes, so that code which asks for them takes it."""

from pathlib import Path
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.schema import TextNode
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai_like import OpenAILike

from headstay.semantic import Cache
from llama_index_headstay import SemanticCacheQueryEngine, SteppedMemory, cache_aware, prefix_safe


def bases(made: object) -> list[str]:
    return [kind.__name__ for kind in (made if isinstance(made, type) else type(made)).__mro__]


@pytest.fixture
def index() -> VectorStoreIndex:
    return VectorStoreIndex([TextNode(text="Ada wrote the first program.")], embed_model=MockEmbedding(embed_dim=4))


@pytest.mark.parametrize(
    ("bare", "expected"),
    [
        (MockLLM(), {"BaseLLM", "LLM", "CustomLLM"}),
        (MockFunctionCallingLLM(), {"BaseLLM", "LLM", "FunctionCallingLLM"}),
        (OpenAI(model="gpt-5.6-terra", api_key="none"), {"BaseLLM", "LLM", "FunctionCallingLLM", "OpenAI"}),
        (OpenAILike(model="m", api_key="none"), {"BaseLLM", "LLM", "FunctionCallingLLM", "OpenAI", "OpenAILike"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_instrumented_llm_is_of_every_class_that_it_was_of(bare: LLM, expected: set[str]) -> None:
    made = cache_aware(bare, on_break="record")
    assert expected <= set(bases(made))
    assert isinstance(made, type(bare))
    assert (type(made).__name__, made.class_name()) == (type(bare).__name__, bare.class_name())
    role = {"system_role": bare.metadata.system_role}  # see test_llm_settings.py
    assert made.metadata.model_copy(update=role) == bare.metadata


@pytest.mark.parametrize("mode", ["context", "condense_plus_context"])
def test_a_prefix_safe_chat_engine_is_of_its_class(index: VectorStoreIndex, mode: Any) -> None:
    bare = index.as_chat_engine(chat_mode=mode, llm=MockLLM())
    made = prefix_safe(bare)
    assert "BaseChatEngine" in bases(made)
    assert isinstance(made, type(bare))
    assert type(made).__name__ == type(bare).__name__


def test_a_prefix_safe_query_engine_is_of_its_class(index: VectorStoreIndex) -> None:
    bare = index.as_query_engine(llm=_Chat())
    assert isinstance(prefix_safe(bare), type(bare))
    assert "BaseQueryEngine" in bases(prefix_safe(bare))


def test_the_caching_query_engine_is_a_query_engine(index: VectorStoreIndex, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "answers.db")
    made = SemanticCacheQueryEngine(index.as_query_engine(llm=MockLLM()), cache=cache, version="1")
    assert {"BaseQueryEngine", "PromptMixin"} <= set(bases(made))
    cache.close()


def test_the_memory_is_a_memory() -> None:
    assert {"BaseMemory", "Memory"} <= set(bases(SteppedMemory))


class _Chat(MockLLM):
    """A mock that says it is a chat model, which an engine's prompts ask for."""

    @property
    def metadata(self) -> Any:
        return super().metadata.model_copy(update={"is_chat_model": True})
