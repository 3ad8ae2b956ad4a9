"""The vector that a question is compared by, where its embedder can be trusted with it."""

from typing import TYPE_CHECKING

from headstay.errors import EmbedderError
from headstay.semantic.eligible import eligibility
from headstay.semantic.query import Query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest

if TYPE_CHECKING:
    from headstay.semantic.embedder_vectors import Checked, Embedder, FloatArray


class BadVectorError(EmbedderError):
    """An embedder returned something that is no unit vector."""


def unit_vector(
    embedder: "Embedder", checked: "Checked", request: AskedRequest, query: Query
) -> tuple[bytes | None, Reason | None]:
    """Embed a query for a store, or say why it must not be compared by meaning.

    Args:
        embedder: The embedder; it may raise anything.
        checked: Checks what it returns.
        request: The request.
        query: What is compared: see `read_query`.

    Returns:
        Little-endian float32 of length 1, or None and the reason.

    Raises:
        EmbedderError: The embedder failed.
        BadVectorError: What it returned is no vector.
    """
    try:
        given, limit = embed_query(embedder, request, query)
    except EmbedderError:
        raise
    except Exception as problem:
        raise EmbedderError(f"{type(embedder).__name__} raised {type(problem).__name__}") from problem
    if limit is not None:
        return None, limit
    try:
        return checked.unit_vectors(given, 1)[0].tobytes(), None
    except EmbedderError as problem:
        raise BadVectorError(str(problem)) from problem


def embed_query(embedder: "Embedder", request: AskedRequest, query: Query) -> tuple["FloatArray | None", Reason | None]:
    """Embed a query, or say why it must not be compared by meaning.

    Args:
        embedder: The embedder; whatever it raises goes on.
        request: The request.
        query: What is compared: see `read_query`.

    Returns:
        What the embedder gave for one text, not checked, or None and the reason.
    """
    if query.reason is not None:
        return None, query.reason
    tokens = embedder.tokens(query.text)
    english = bool(getattr(embedder, "english", False))
    allowed = eligibility(request, query, tokens, window=embedder.window, english=english)
    if allowed.tier != "semantic":
        return None, allowed.reason
    return embedder.embed([query.text]), None
