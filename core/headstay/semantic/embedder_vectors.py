"""What an embedder is, and the check that every array of vectors passes before anything uses it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headstay.errors import EmbedderError

FloatArray: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Tokens:
    """How an embedder reads a text.

    Attributes:
        count: Tokens, those that mark its start and end included.
        unknown: How many of them stand for text that the vocabulary does not hold.
    """

    count: int
    unknown: int


class Embedder(Protocol):
    """Turns texts into vectors whose inner product says how alike two texts are."""

    @property
    def fingerprint(self) -> str:
        """Names the vector space: another model, quantisation, dimension or prefix has another fingerprint."""
        ...

    @property
    def dimension(self) -> int:
        """Width of a vector; an embedder that is not told its width embeds one word to find out."""
        ...

    @property
    def window(self) -> int | None:
        """Most tokens that a text may have; None if that is not known."""
        ...

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed texts.

        Returns:
            (len(texts), dimension) float32, each row of length 1.

        Raises:
            EmbedderError: The texts cannot be embedded, or what came back is no set of vectors.
        """
        ...

    def tokens(self, text: str) -> Tokens | None:
        """Count the tokens of a text; None if this embedder cannot.

        Raises:
            EmbedderError: The text cannot be read at all, such as half a surrogate pair.
        """
        ...


class Checked:
    """Checks the arrays of one embedder: all of one width, finite, and none of length 0.

    Args:
        source: Names the embedder in messages.
        width: The width to insist on; None takes that of the first array.
    """

    def __init__(self, source: str, width: int | None = None) -> None:
        self.source = source
        self.width = width

    def unit_vectors(self, given: object, count: int) -> FloatArray:
        """Check what an embedder returned for `count` texts and scale each row to length 1.

        Args:
            given: Anything numpy can read as (count, width) numbers.
            count: How many texts were given to it.

        Returns:
            (count, width) float32.

        Raises:
            EmbedderError: Not numbers, another shape, another width than before, NaN, infinity, or a zero row.
        """
        rows = self._numbers(given)
        if rows.ndim != 2 or rows.shape[0] != count or rows.shape[1] == 0:
            raise EmbedderError(
                f"{self.source} returned an array of shape {rows.shape} for {count} texts; return one vector a text, "
                f"({count}, dimension)."
            )
        width = rows.shape[1]
        if self.width not in {None, width}:
            raise EmbedderError(
                f"{self.source} returned vectors of {width} numbers, not of {self.width}. "
                "Another model needs an embedder, or a name, of its own."
            )
        largest = np.abs(rows).max(axis=1, keepdims=True)
        self._refuse(~np.isfinite(largest[:, 0]), "NaN or infinity")
        self._refuse(largest[:, 0] == 0, "only zeros")
        scaled = rows / largest  # squares of very large or very small numbers leave the range of a float
        units: FloatArray = (scaled / np.linalg.norm(scaled, axis=1, keepdims=True)).astype(np.float32)
        self.width = width
        return units

    def _numbers(self, given: object) -> NDArray[np.float64]:
        try:
            found = np.asarray(given)
        except Exception as problem:
            raise EmbedderError(
                f"{self.source} returned {type(given).__name__}, which is no array of numbers: {problem}"
            ) from problem
        if found.dtype.kind not in "fiu":
            raise EmbedderError(f"{self.source} returned elements of type {found.dtype}, not numbers.")
        return found.astype(np.float64)

    def _refuse(self, rows: NDArray[np.bool_], what: str) -> None:
        if rows.any():
            raise EmbedderError(f"{self.source} returned {what} in vector {int(rows.argmax())} of {len(rows)}.")

    def nothing(self) -> FloatArray:
        """Give the vectors of no texts: (0, width), or (0, 0) while the width is not known."""
        return np.zeros((0, self.width or 0), dtype=np.float32)
