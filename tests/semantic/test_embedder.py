"""The bundled embedder: what its vectors say, that they depend on the text alone, and what its tokenizer cannot see."""

import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay.errors import ConfigError, EmbedderError
from headstay.semantic import embedder_minilm
from headstay.semantic.embedder import MiniLM, Tokens, as_embedder
from headstay.semantic.embedder_minilm import FOLDER, MODEL_SHA256, TOKENIZER_SHA256

QUESTIONS = (
    "How do I reset my password?",
    "I forgot my password, how can I set a new one?",
    "Wo ist meine Bestellung 1234?",
    "convert 100 USD to EUR",
    "Good morning",
    "",
)
PRINT_VECTORS = """
import hashlib, sys
from headstay.semantic.embedder import MiniLM
given = MiniLM()
print(hashlib.sha256(given.embed(sys.argv[1:]).tobytes()).hexdigest(), given.fingerprint)
"""
FORK = """
import os, sys
from headstay.semantic import embedder_minilm
from headstay.semantic.embedder import MiniLM
given = MiniLM()
before = given.embed(sys.argv[1:])
parent = embedder_minilm._model()
embedder_minilm._loading.acquire()  # as if another thread were loading at this moment
child = os.fork()
if child == 0:
    same = given.embed(sys.argv[1:]).tobytes() == before.tobytes()
    own = embedder_minilm._model() is not parent
    os._exit(0 if same and own else 9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), given.embed(sys.argv[1:]).tobytes() == before.tobytes())
"""
LIGHT = """
import sys
import headstay
heavy = {"numpy", "onnxruntime", "tokenizers", "faiss", "torch", "sentence_transformers", "langchain_core"}
print(sorted(heavy & set(sys.modules)))
from headstay.semantic.embedder import as_embedder
as_embedder()
print(sorted(heavy & set(sys.modules)))
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    """Run a script in a fresh process that finds the same packages."""
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return MiniLM()


def digest(vectors: np.ndarray) -> str:
    return hashlib.sha256(vectors.tobytes()).hexdigest()


@pytest.mark.parametrize(
    ("one", "other", "full"),
    [
        # similarities of the float32 model in torch
        ("How do I reset my password?", "I forgot my password, how can I set a new one?", 0.865),
        ("How do I enable two-factor authentication?", "How do I disable two-factor authentication?", 0.882),
        ("What is the capital of France?", "Tell me the capital city of France", 0.923),
        ("What is the capital of France?", "What is the capital of Spain?", 0.676),
        ("convert 100 USD to EUR", "convert 100 EUR to USD", 0.980),
        ("Where is my order 1234?", "Where is my order 1235?", 0.944),
        ("Good morning", "What is the capital of Spain?", 0.056),
    ],
)
def test_similarities_are_near_those_of_the_full_model(minilm: MiniLM, one: str, other: str, full: float) -> None:
    first, second = minilm.embed([one, other])
    assert float(first @ second) == pytest.approx(full, abs=0.04)


def test_kernels_give_the_vector_that_exact_integer_arithmetic_gives(minilm: MiniLM) -> None:
    # from the ONNX reference evaluator, which multiplies integers without saturating
    exact = [0.0020, -0.0559, -0.0693, -0.0341, -0.0441, 0.0752, 0.0098, 0.0263, 0.0732, 0.0152, -0.0527, 0.0336]
    vector = minilm.embed(["How do I reset my password?"])[0]
    assert vector[: len(exact)].tolist() == pytest.approx(exact, abs=0.004)


def test_vectors_are_float32_of_length_one(minilm: MiniLM) -> None:
    vectors = minilm.embed(QUESTIONS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(QUESTIONS), minilm.dimension) == (6, 384)
    assert np.linalg.norm(vectors, axis=1).tolist() == pytest.approx([1.0] * 6, abs=1e-6)
    assert minilm.embed([]).shape == (0, 384)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(QUESTIONS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5)
)
def test_a_vector_does_not_depend_on_the_texts_beside_it(texts: list[str]) -> None:
    given = MiniLM()
    together = given.embed(texts)
    backwards = given.embed(texts[::-1])[::-1]
    for text, row, other in zip(texts, together, backwards, strict=True):
        assert row.tobytes() == other.tobytes() == given.embed([text])[0].tobytes()


def test_every_thread_gets_the_same_vectors(minilm: MiniLM) -> None:
    expected = digest(minilm.embed(QUESTIONS))
    start = threading.Barrier(8)

    def embed(_: int) -> set[str]:
        start.wait(timeout=60)
        return {digest(MiniLM().embed(QUESTIONS)) for _ in range(5)}

    with ThreadPoolExecutor(8) as pool:
        assert set().union(*pool.map(embed, range(8))) == {expected}


@pytest.mark.parametrize("seed", ["0", "4242"])
def test_every_process_gets_the_same_vectors_and_fingerprint(minilm: MiniLM, seed: str) -> None:
    printed = run(PRINT_VECTORS, *QUESTIONS, PYTHONHASHSEED=seed)
    assert printed.split() == [digest(minilm.embed(QUESTIONS)), minilm.fingerprint]


def test_a_forked_child_loads_a_model_of_its_own() -> None:
    assert run(FORK, *QUESTIONS) == "0 True\n"


def test_importing_headstay_is_light_and_the_model_waits_for_its_first_text() -> None:
    assert run(LIGHT) == "[]\n['numpy']\n"


def test_a_text_of_200_tokens_is_read_to_its_end(minilm: MiniLM) -> None:
    head = "word " * 190
    one, other = head + "apples", head + "password"
    assert minilm.tokens(one) == Tokens(193, 0)
    first, second = minilm.embed([one, other])
    assert float(first @ second) < 0.9999


def test_a_text_longer_than_the_window_is_refused_not_cut(minilm: MiniLM) -> None:
    longest = "word " * 254
    assert minilm.tokens(longest) == Tokens(minilm.window, 0) == Tokens(256, 0)
    assert minilm.embed([longest]).shape == (1, 384)
    with pytest.raises(EmbedderError, match=r"a text of 257 tokens is too long.*reads 256"):
        minilm.embed(["fine", longest + "word"])


@pytest.mark.parametrize(
    ("text", "count", "unknown"),
    [
        ("", 2, 0),
        ("How do I reset my password?", 9, 0),
        ("[SEP]", 5, 0),  # three pieces and the two ends: what a user writes is no special token
        ("[UNK]", 6, 0),
        ("thanks 😀", 4, 1),
        ("សួស្តី", 3, 1),  # Khmer
        ("สวัสดี", 3, 1),  # Thai, with letters that the vocabulary lacks
        ("x" * 101, 3, 1),
        ("₫500", 3, 1),  # the unknown sign takes the number with it
        ("a\ufffdb", 3, 0),  # dropped without a trace
    ],
)
def test_tokens_and_unknown_ones_are_counted(minilm: MiniLM, text: str, count: int, unknown: int) -> None:
    assert minilm.tokens(text) == Tokens(count, unknown)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ma", "mạ"),  # Vietnamese: ghost, rice seedling
        ("นา", "น้า"),  # Thai: rice field, aunt; without a single unknown token
        ("มา", "ม้า"),  # Thai: come, horse
        ("សួស្តី", "មិន"),  # Khmer: any two words
        ("fine 👍", "fine 👎"),
        ("ls -l", "ls -L"),
        ("Polish", "polish"),
        ("if a:\n    b\nc", "if a:\n    b\n    c"),
        ("résumé", "resume"),
        ("pay\u200b now", "pay now"),
        ("क", "कु"),  # Devanagari vowel signs
        ("你好", "再见"),  # Chinese: hello, goodbye
    ],
)
def test_what_the_tokenizer_cannot_tell_apart(minilm: MiniLM, one: str, other: str) -> None:
    first, second = minilm.embed([one, other])
    assert first.tobytes() == second.tobytes()


def test_half_a_surrogate_pair_is_an_error_of_the_embedder(minilm: MiniLM) -> None:
    with pytest.raises(EmbedderError, match="cannot read the text"):
        minilm.embed(["\ud800"])
    with pytest.raises(EmbedderError, match="cannot read the text"):
        minilm.tokens("\ud800")


def test_the_files_are_those_that_the_fingerprint_and_the_provenance_name(minilm: MiniLM) -> None:
    provenance = (FOLDER / "PROVENANCE.md").read_text(encoding="utf-8")
    for name, expected in (("model.onnx", MODEL_SHA256), ("tokenizer.json", TOKENIZER_SHA256)):
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == expected
        assert expected in provenance
        assert expected[:12] in minilm.fingerprint
    assert "Apache License" in (FOLDER / "LICENSE").read_text(encoding="utf-8")


def test_the_bundled_embedder_is_the_default() -> None:
    assert isinstance(as_embedder(), MiniLM)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r'onnxruntime is missing: pip install "headstay\[semantic\]"'):
        MiniLM()


def test_a_damaged_model_file_is_an_error_of_the_embedder(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("model")
    (folder / "tokenizer.json").write_bytes((FOLDER / "tokenizer.json").read_bytes())
    (folder / "model.onnx").write_bytes((FOLDER / "model.onnx").read_bytes()[:1_000])
    monkeypatch.setattr(embedder_minilm, "FOLDER", folder)
    monkeypatch.setattr(embedder_minilm, "_loaded", {})
    with pytest.raises(EmbedderError, match="cannot load the bundled embedder all-MiniLM-L6-v2 from"):
        MiniLM().embed(["hello"])
