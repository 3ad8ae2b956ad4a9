"""Embedders that users bring: functions, LangChain and LlamaIndex objects, models by name; and what they may return."""

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

from headstay.errors import ConfigError, EmbedderError
from headstay.semantic.embedder import (
    CallableEmbedder,
    FloatArray,
    HostEmbedder,
    MiniLM,
    SentenceTransformerEmbedder,
    Tokens,
    as_embedder,
)


def lengths(texts: list[str]) -> list[list[float]]:
    """Embed a list: 3-4-5 triangles scaled by the length of the text."""
    return [[3.0 * len(text), 4.0 * len(text)] for text in texts]


def length(text: str) -> list[float]:
    """Embed one text; a list has no `lower`."""
    return [3.0 * len(text.lower()), 4.0 * len(text)]


def count_words(text: str) -> Any:
    """Embed one text; given a list, it returns one vector all the same."""
    return np.array([3 * len(text), 4 * len(text)], dtype=np.int32)


@pytest.mark.parametrize("function", [lengths, length, count_words])
def test_a_function_of_a_list_or_of_a_text_is_scaled_to_length_one(function: Callable[[Any], object]) -> None:
    embedder = CallableEmbedder(function, name="triangles")
    for _ in range(2):
        vectors = embedder.embed(["a", "bcd"])
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [pytest.approx([0.6, 0.8]), pytest.approx([0.6, 0.8])]
    assert embedder.embed(["abc"]).shape == (1, 2)
    assert embedder.dimension == 2
    assert embedder.embed([]).shape == (0, 2)
    assert embedder.tokens("a") is None


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3).filter(any),
        min_size=1,
        max_size=4,
    )
)
def test_every_finite_vector_but_zero_gets_length_one(rows: list[list[float]]) -> None:
    vectors = CallableEmbedder(lambda texts: rows[: len(texts)], name="any").embed(["x"] * len(rows))
    assert np.linalg.norm(vectors.astype(np.float64), axis=1).tolist() == pytest.approx([1.0] * len(rows), abs=1e-6)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([[1.0, 0.0], [math.nan, 1.0]], "'v1' returned NaN or infinity in vector 1 of 2"),
        ([[math.inf, 0.0], [0.0, 1.0]], "'v1' returned NaN or infinity in vector 0 of 2"),
        ([[1.0, 0.0], [0.0, 0.0]], "'v1' returned only zeros in vector 1 of 2"),
        ([[1.0, 0.0]], r"'v1' returned an array of shape \(1, 2\) for 2 texts"),
        ([[], []], r"'v1' returned an array of shape \(2, 0\) for 2 texts"),
        ([1.0, 0.0], r"'v1' returned an array of shape \(2,\) for 2 texts"),
        ([[1.0], [1.0, 2.0]], "'v1' returned list, which is no array of numbers"),
        ([["1", "0"], ["0", "1"]], "'v1' returned elements of type <U1, not numbers"),
        ([[True, False], [True, True]], "'v1' returned elements of type bool, not numbers"),
        ([[1j, 0], [0, 1]], "'v1' returned elements of type complex128, not numbers"),
        (None, "'v1' returned elements of type object, not numbers"),
    ],
)
def test_what_is_no_set_of_vectors_is_refused_with_what_it_was(returned: object, message: str) -> None:
    def function(texts: list[str]) -> object:
        if isinstance(texts, str):
            raise KeyError(texts)
        return returned

    with pytest.raises(EmbedderError, match=message):
        CallableEmbedder(function, name="v1").embed(["one", "two"])


def test_a_width_that_is_not_the_declared_one_is_refused() -> None:
    with pytest.raises(EmbedderError, match="returned vectors of 2 numbers, not of 3"):
        CallableEmbedder(lengths, name="v1", dimension=3).embed(["one"])


def test_a_width_that_changes_later_is_refused() -> None:
    answers = iter(([[1.0, 0.0]], [[1.0, 0.0, 0.0]]))
    embedder = CallableEmbedder(lambda _: next(answers), name="v1")
    embedder.embed(["one"])
    with pytest.raises(EmbedderError, match="returned vectors of 3 numbers, not of 2"):
        embedder.embed(["two"])


def test_a_failed_answer_does_not_set_the_width() -> None:
    answers = iter(([[math.nan] * 3], [[1.0, 0.0]]))
    embedder = CallableEmbedder(lambda _: next(answers), name="v1")
    with pytest.raises(EmbedderError, match="NaN"):
        embedder.embed(["one"])
    assert embedder.embed(["one"]).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("kind", [TypeError, AttributeError, KeyError, ConnectionError])
def test_what_a_function_raises_becomes_the_cause_of_one_error(kind: type[Exception]) -> None:
    def function(texts: list[str]) -> object:
        raise kind(f"no answer for a {type(texts).__name__}")

    with pytest.raises(EmbedderError, match=f"'v1' failed: {kind.__name__}: .*no answer for a list") as caught:
        CallableEmbedder(function, name="v1").embed(["one"])
    assert isinstance(caught.value.__cause__, kind)


def test_a_function_that_fails_once_is_asked_again_the_same_way() -> None:
    calls: list[str] = []

    def function(text: str) -> list[float]:
        calls.append(text.lower())
        if len(calls) == 1:
            raise ConnectionError("down")
        return [1.0, 0.0]

    embedder = CallableEmbedder(function, name="v1")
    with pytest.raises(EmbedderError):
        embedder.embed(["ONE"])
    assert embedder.embed(["ONE", "TWO"]).shape == (2, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "  "}, "needs a name"),
        ({"name": "v1", "dimension": 0}, "dimension=0 of the embedder 'v1'"),
        ({"name": "v1", "window": -1}, "window=-1 of the embedder 'v1'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CallableEmbedder(lengths, **settings)


def test_the_fingerprint_of_a_function_is_its_name_and_declared_width() -> None:
    first = CallableEmbedder(lengths, name="v1")
    assert first.fingerprint == CallableEmbedder(length, name="v1", window=512).fingerprint
    # sha256 of ["function", "v1", null] as JSON: the same in every process and release
    assert first.fingerprint == "function:v1:914f2d2546b11168"
    others = [CallableEmbedder(lengths, name="v2"), CallableEmbedder(lengths, name="v1", dimension=2)]
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 3


# Embeddings objects of hosts


def test_a_langchain_object_is_used_by_its_method_for_documents() -> None:
    given = DeterministicFakeEmbedding(size=16)
    embedder = as_embedder(given)
    assert isinstance(embedder, HostEmbedder)
    assert embedder.dimension == 16
    row = np.array(given.embed_documents(["hello"])[0])
    assert embedder.embed(["hello"])[0].tolist() == pytest.approx((row / np.linalg.norm(row)).tolist(), abs=1e-6)
    assert embedder.embed([]).shape == (0, 16)
    assert (embedder.window, embedder.tokens("hello")) == (None, None)


def test_the_fingerprint_of_a_langchain_object_is_its_class_and_what_it_is_set_to() -> None:
    def fingerprint(given: Embeddings, name: str | None = None) -> str:
        return as_embedder(given, name=name).fingerprint

    small = fingerprint(DeterministicFakeEmbedding(size=16))
    # sha256 of ["embeddings", CLASS, [CLASS, {"size": 16}]] as JSON
    assert small == "embeddings:langchain_core.embeddings.fake.DeterministicFakeEmbedding:02eb9b7fa76258f4"
    openai = [
        OpenAIEmbeddings(api_key=SecretStr("key-a"), **settings)
        for settings in (
            {"model": "text-embedding-3-small"},
            {"model": "text-embedding-3-large"},
            {"model": "text-embedding-3-small", "dimensions": 256},
            {"model": "text-embedding-3-small", "base_url": "http://127.0.0.1:9/v1"},
        )
    ]
    found = {small, fingerprint(DeterministicFakeEmbedding(size=17)), *map(fingerprint, openai)}
    assert len(found) == 6
    assert fingerprint(openai[0]).startswith("embeddings:text-embedding-3-small:")
    named = fingerprint(openai[0], "mine")
    assert named.startswith("embeddings:mine:")
    assert named == fingerprint(openai[1], "mine")
    rotated = OpenAIEmbeddings(api_key=SecretStr("key-b"), model="text-embedding-3-small")
    assert fingerprint(rotated) == fingerprint(openai[0])


class LlamaEmbedding:
    """The methods that LlamaIndex's embeddings have, and like them callable for another purpose."""

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def __call__(self, nodes: list[object]) -> list[object]:
        return nodes

    def get_query_embedding(self, query: str) -> list[float]:
        raise AssertionError(f"a query must not be read differently from a stored question: {query}")

    def get_text_embedding(self, text: str) -> list[float]:
        return [0.0, float(len(text))]

    def get_text_embedding_batch(self, texts: list[str], show_progress: bool = False) -> list[list[float]]:
        if "fail" in texts:
            raise ConnectionError("no route")
        return [self.get_text_embedding(text) for text in texts]


class SingleLlamaEmbedding:
    model_name = "one"

    def get_text_embedding(self, text: str) -> list[float]:
        return [float(len(text)), 0.0]


def test_a_llama_index_object_is_used_by_its_method_for_texts() -> None:
    embedder = as_embedder(LlamaEmbedding("bge-small"), window=512)
    assert embedder.embed(["a", "bc"]).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert embedder.window == 512
    assert embedder.fingerprint.startswith("embeddings:bge-small:")
    assert embedder.fingerprint != as_embedder(LlamaEmbedding("bge-large")).fingerprint
    with pytest.raises(EmbedderError, match="'bge-small' failed: ConnectionError: no route"):
        embedder.embed(["fail"])
    assert as_embedder(SingleLlamaEmbedding()).embed(["a", "b"]).tolist() == [[1.0, 0.0], [1.0, 0.0]]


# Whatever else may be given


class Own:
    """An embedder of the user's own, which costs something to ask for its width."""

    fingerprint = "own-1"
    window = 8

    @property
    def dimension(self) -> int:
        raise AssertionError("asked for the width of an embedder that nothing was embedded with")

    def embed(self, texts: Sequence[str]) -> FloatArray:
        return np.ones((len(texts), 1), dtype=np.float32)

    def tokens(self, text: str) -> Tokens:
        return Tokens(len(text), 0)


class Incomplete:
    fingerprint = "own-2"

    def embed(self, texts: Sequence[str]) -> FloatArray:
        return np.ones((len(texts), 1), dtype=np.float32)


def test_an_embedder_is_taken_as_it_is_and_not_asked_for_its_width() -> None:
    own = Own()
    assert as_embedder(own) is own


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        (MiniLM, r"embedder=MiniLM is a class; give an instance, such as MiniLM\(\)"),
        (lengths, r"needs a name of its vectors: give CallableEmbedder\(function, name="),
        (Incomplete(), "the embedder Incomplete has no dimension, window, tokens"),
        (42, "embedder=int is no embedder"),
    ],
)
def test_what_is_no_embedder_is_refused_with_what_to_give(offered: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        as_embedder(offered)


def test_a_function_with_a_name_is_an_embedder() -> None:
    embedder = as_embedder(lengths, name="v1", window=64)
    assert isinstance(embedder, CallableEmbedder)
    assert embedder.window == 64
    assert embedder.fingerprint == CallableEmbedder(lengths, name="v1").fingerprint


def test_a_model_by_name_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match=r'missing: pip install "headstay\[sentence-transformers\]"'):
        as_embedder("BAAI/bge-small-en-v1.5")


class LoadedModel:
    """What of a loaded sentence-transformers model is asked: it is callable, and its tokenizer is another object."""

    max_seq_length = 512
    prompts = {"query": "query: "}  # noqa: RUF012 - as the library has it
    unk_token_id = 7

    def __init__(self, default_prompt_name: str | None = None) -> None:
        self.default_prompt_name = default_prompt_name

    def __call__(self, features: object) -> object:
        return features

    @property
    def tokenizer(self) -> Callable[..., dict[str, list[int]]]:
        raise AttributeError("a static model has no tokenizer")

    def get_embedding_dimension(self) -> int:
        return 2

    def encode(self, texts: list[str], *, show_progress_bar: bool, convert_to_numpy: bool) -> object:
        return np.array(lengths(texts), dtype=np.float16)


def test_a_loaded_model_is_used_as_it_is() -> None:
    embedder = as_embedder(LoadedModel(), name="mine")
    assert isinstance(embedder, SentenceTransformerEmbedder)
    assert embedder.embed(["a", "bc"]).tolist() == [pytest.approx([0.6, 0.8])] * 2
    assert (embedder.dimension, embedder.window, embedder.tokens("a")) == (2, 512, None)
    assert embedder.fingerprint != as_embedder(LoadedModel("query"), name="mine").fingerprint
    with pytest.raises(ConfigError, match="does not say its name"):
        as_embedder(LoadedModel())
