"""Embeds by a sentence-transformers model, given by name or loaded."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from headstay.errors import ConfigError
from headstay.semantic.embedder_hosts import called, identity, width_of
from headstay.semantic.embedder_vectors import Checked, FloatArray, Tokens
from headstay.semantic.forking import ForkedLock


class SentenceTransformerEmbedder:
    """Embeds by a sentence-transformers model, which cuts a text that is longer than its window: ask `tokens` first.

    Args:
        model: A model's name or folder, or a loaded `SentenceTransformer`.
        name: Names the vector space; the model's own name if not given.

    Raises:
        ConfigError: sentence-transformers is not installed or cannot load the model, or a loaded one has no name.
    """

    def __init__(self, model: object, *, name: str | None = None) -> None:
        loaded: Any = _load(model) if isinstance(model, str) else model
        self._model = loaded
        self._lock = ForkedLock()  # its tokenizer refuses two threads at a time
        origin, revision = _origin(loaded)
        named = name or (model if isinstance(model, str) else origin)
        if not named:
            raise ConfigError('a loaded sentence-transformers model that does not say its name needs name="acme-v1".')
        prompts: dict[str, str] = getattr(loaded, "prompts", None) or {}
        prompt = prompts.get(getattr(loaded, "default_prompt_name", None) or "", "")
        # the first is the name since version 5, the second that before
        width: Any = getattr(loaded, "get_embedding_dimension", None) or loaded.get_sentence_embedding_dimension
        self._checked = Checked(f"the embedder {named!r}", width())
        self.window: int | None = getattr(loaded, "max_seq_length", None)
        traits = [revision, self._checked.width, self.window, prompt]
        self.fingerprint = identity("sentence-transformers", named, traits)

    @property
    def dimension(self) -> int:
        """Width of a vector."""
        return width_of(self._checked, self.embed)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed texts; (len(texts), dimension) float32, each row of length 1.

        Raises:
            EmbedderError: The model failed, or what it returned is no set of vectors.
        """
        if not texts:
            return self._checked.nothing()
        with self._lock:
            given = called(self._checked.source, self._encode, list(texts))
        return self._checked.unit_vectors(given, len(texts))

    def tokens(self, text: str) -> Tokens | None:
        """Count the tokens of a text; None if the model's tokenizer is of no kind that can be asked."""
        try:
            with self._lock:
                tokenizer = self._model.tokenizer
                ids: list[int] = tokenizer(text, truncation=False, verbose=False)["input_ids"]
                return Tokens(len(ids), ids.count(tokenizer.unk_token_id))
        except Exception:  # noqa: BLE001 - static and image models have tokenizers of other kinds, or none
            return None

    def _encode(self, texts: list[str]) -> object:
        return self._model.encode(texts, show_progress_bar=False, convert_to_numpy=True)


def _origin(loaded: Any) -> tuple[str | None, str | None]:
    """Return the name a model was loaded by and the commit that lies in the local cache, where it knows them."""
    try:
        config = loaded[0].auto_model.config
    except Exception:  # noqa: BLE001 - static models are made otherwise
        return None, None
    return getattr(config, "_name_or_path", None), getattr(config, "_commit_hash", None)


def _load(name: str) -> object:
    try:
        package: Any = import_module("sentence_transformers")
    except ImportError as problem:
        raise ConfigError(
            f"the embedder {name!r} is read as a sentence-transformers model, and {problem.name} is missing: "
            'pip install "headstay[sentence-transformers]", or leave embedder= out to use the bundled model.'
        ) from problem
    try:
        return package.SentenceTransformer(name)
    except Exception as problem:
        raise ConfigError(f"sentence-transformers cannot load {name!r}: {problem}") from problem
