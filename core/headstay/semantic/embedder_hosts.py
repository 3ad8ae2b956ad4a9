"""Embedders made of what users bring: a function, or an embeddings object of LangChain or LlamaIndex."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from headstay.errors import ConfigError, EmbedderError
from headstay.semantic.embedder_vectors import Checked, FloatArray, Tokens

# Attributes that say which vectors an embeddings object gives; the first ones that hold a text also name it.
_NAMES = ("model", "model_name", "model_id", "repo_id", "deployment", "azure_deployment", "deployment_name", "engine")
_TRAITS = (
    "api_base",
    "azure_endpoint",
    "base_url",
    "dimensions",
    "embed_instruction",
    "encode_kwargs",
    "endpoint",
    "endpoint_name",
    "endpoint_url",
    "input_type",
    "model_kwargs",
    "model_path",
    "openai_api_base",
    "output_dimension",
    "output_dimensionality",
    "pooling",
    "query_instruction",
    "revision",
    "size",
    "task",
    "task_type",
    "text_instruction",
)
_PROBE = "width"


def identity(kind: str, name: str, traits: object = None) -> str:
    """Make a fingerprint that is the same in every process."""
    text = json.dumps([kind, name, traits], sort_keys=True, ensure_ascii=True)
    return f"{kind}:{name}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _is_plain(value: object) -> bool:
    """Tell values that are written the same way in every process from objects that are not."""
    if isinstance(value, dict):
        return all(
            isinstance(key, str) and _is_plain(item) for key, item in cast("dict[object, object]", value).items()
        )
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, cast("Sequence[object]", value)))
    return value is None or isinstance(value, (str, int, float, bool))


def _traits(given: object) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in (*_NAMES, *_TRAITS):
        try:
            value: object = getattr(given, name, None)
        except Exception:  # noqa: BLE001, S112 - a property of theirs that fails says nothing
            continue
        if value is not None and _is_plain(value):
            found[name] = value
    return found


def called(source: str, function: Callable[[list[str]], object], texts: list[str]) -> object:
    """Call an embedding function; whatever it raises becomes an `EmbedderError`."""
    try:
        return function(texts)
    except Exception as problem:
        raise EmbedderError(f"{source} failed: {type(problem).__name__}: {problem}") from problem


def width_of(checked: Checked, embed: Callable[[list[str]], FloatArray]) -> int:
    """Return the width of an embedder's vectors, by embedding a word if nothing has been embedded yet."""
    return embed([_PROBE]).shape[1] if checked.width is None else checked.width


class CallableEmbedder:
    """Embeds by a function of yours, which takes a list of texts or, as its result shows, one text.

    Args:
        function: Takes a list of texts and returns a vector for each, or takes a text and returns its vector. Vectors
            are lists, arrays, or anything numpy can read; they need not be of length 1.
        name: Names the vector space, such as "acme-search-v2". Change it when the vectors change.
        dimension: Width of a vector; found out by embedding a word if not given.
        window: Most tokens that the function reads; None if that is not known.

    Raises:
        ConfigError: It is no function, the name is empty, or `dimension` or `window` is not positive.
    """

    def __init__(
        self,
        function: Callable[[list[str]], object] | Callable[[str], object],
        *,
        name: str,
        dimension: int | None = None,
        window: int | None = None,
    ) -> None:
        if not callable(function):
            raise ConfigError(f"CallableEmbedder({function!r}): give a function from texts to vectors")
        if not isinstance(cast("object", name), str) or not name.strip():
            raise ConfigError('an embedder made of a function needs a name of its vectors, such as name="acme-v1".')
        for setting, value in (("dimension", dimension), ("window", window)):
            if value is not None and (not isinstance(cast("object", value), int) or value < 1):
                raise ConfigError(f"{setting}={value!r} of the embedder {name!r} cannot be; give a positive number.")
        self.fingerprint = identity("function", name, dimension)
        self.window = window
        self._function = cast("Callable[[object], object]", function)
        self._one_by_one = False
        self._checked = Checked(f"the embedder {name!r}", dimension)

    @property
    def dimension(self) -> int:
        """Width of a vector."""
        return width_of(self._checked, self.embed)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed texts; (len(texts), dimension) float32, each row of length 1.

        Raises:
            EmbedderError: The function raised, or what it returned is no set of vectors.
        """
        if not texts:
            return self._checked.nothing()
        return self._checked.unit_vectors(called(self._checked.source, self._rows, list(texts)), len(texts))

    def tokens(self, text: str) -> Tokens | None:  # noqa: ARG002 - part of the protocol
        """Say that a function does not count tokens."""
        return None

    def _rows(self, texts: list[str]) -> object:
        if not self._one_by_one:
            try:
                given = self._function(texts)
            except (TypeError, AttributeError):
                # what code for one text raises when it gets a list, unless it fails on the text as well
                if not self._takes_a_text(texts[0]):
                    raise
            else:
                if _depth(given) != 1 or not self._takes_a_text(texts[0]):
                    return given
            self._one_by_one = True
        return [self._function(text) for text in texts]

    def _takes_a_text(self, text: str) -> bool:
        try:
            return _depth(self._function(text)) == 1
        except Exception:  # noqa: BLE001 - what the function made of the list is what counts then
            return False


def _depth(given: object) -> int:
    """Count the axes of an array; 0 for what is none."""
    try:
        return np.asarray(given).ndim
    except Exception:  # noqa: BLE001 - rows of several lengths, or an object that refuses
        return 0


class HostEmbedder:
    """Embeds by an embeddings object of LangChain or LlamaIndex.

    Queries and stored texts go through the method for documents, since both are questions here: a model that reads
    queries and documents differently must not compare the two.

    Args:
        given: Has `embed_documents`, as in LangChain, or `get_text_embedding`, as in LlamaIndex.
        name: Names the vector space where the object's own attributes (model, deployment, dimensions, endpoint and the
            like) do not tell.
        window: Most tokens that the model reads; None if that is not known.

    Raises:
        ConfigError: The object has neither method.
    """

    def __init__(self, given: object, *, name: str | None = None, window: int | None = None) -> None:
        owner = f"{type(given).__module__}.{type(given).__qualname__}"
        traits = {"name": name} if name else _traits(given)
        named = name or next((value for key in _NAMES if isinstance(value := traits.get(key), str)), owner)
        self.fingerprint = identity("embeddings", named, [owner, traits])
        self.window = window
        self._checked = Checked(f"the embedder {named!r}")
        self._batch = _batch_method(given, owner)

    @property
    def dimension(self) -> int:
        """Width of a vector; the first time it is asked for, a word may be embedded."""
        return width_of(self._checked, self.embed)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed texts; (len(texts), dimension) float32, each row of length 1.

        Raises:
            EmbedderError: The object raised, or what it returned is no set of vectors.
        """
        if not texts:
            return self._checked.nothing()
        return self._checked.unit_vectors(called(self._checked.source, self._batch, list(texts)), len(texts))

    def tokens(self, text: str) -> Tokens | None:  # noqa: ARG002 - part of the protocol
        """Say that these objects do not count tokens."""
        return None


def _batch_method(given: object, owner: str) -> Callable[[list[str]], object]:
    for known in ("embed_documents", "get_text_embedding_batch"):
        if callable(method := getattr(given, known, None)):
            return cast("Callable[[list[str]], object]", method)
    single: object = getattr(given, "get_text_embedding", None)
    if not callable(single):
        raise ConfigError(f"{owner} has no embed_documents and no get_text_embedding; give an embeddings object.")
    return lambda texts: [single(text) for text in texts]
