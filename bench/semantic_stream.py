"""Streams of questions for the semantic benchmarks, and an embedder that embeds each of them once.

A question's answer is its intent, so a served answer is right if the intents are the same. Run by itself it counts what
there is.

Run: python bench/semantic_stream.py
"""

import gzip
import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headstay.semantic.embedder import FloatArray, MiniLM, Tokens

DATA = Path(__file__).parent / "data"
OUT_OF_SCOPE = "oos"
CLINC_REPORTED = ("test", "oos_test")
Half = Literal["developed", "reported"]


@dataclass(frozen=True)
class Question:
    """A question and the intent that a person gave it."""

    text: str
    intent: str

    def shares_answer(self, intent: str) -> bool:
        """Whether the answer to a question of an intent is an answer to this one."""
        return self.intent == intent != OUT_OF_SCOPE


def rows(name: str) -> list[dict[str, Any]]:
    """Read a file of the data folder."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def banking77(half: Half) -> list[Question]:
    """Return the questions of half of the intents, by the SHA-256 of their names: even developed on, odd reported."""
    wanted = 0 if half == "developed" else 1
    found = [Question(row["text"], row["intent"]) for row in rows("banking77")]
    return [one for one in found if hashlib.sha256(one.intent.encode()).digest()[-1] % 2 == wanted]


def clinc150(half: Half) -> list[Question]:
    """Return the questions of the splits that were developed on (train, val and their oos), or of the others."""
    reported = half == "reported"
    found = [row for row in rows("clinc150") if (row["split"] in CLINC_REPORTED) is reported]
    return [Question(row["text"], row["intent"]) for row in found]


def shuffled(questions: Sequence[Question], seed: int, length: int | None = None) -> list[Question]:
    """Put questions in an order that depends on the seed alone, and take the first of them."""
    mixed = list(questions)
    random.Random(seed).shuffle(mixed)
    return mixed[:length]


class RememberingMiniLM(MiniLM):
    """The bundled embedder, which remembers each text: the same vectors, so that many runs take minutes.

    Args:
        file: Where vectors are kept from one run to the next, or None.
    """

    def __init__(self, file: Path | None = None) -> None:
        super().__init__()
        self._vectors: dict[str, FloatArray] = {}
        self._counts: dict[str, Tokens] = {}
        self._file = file
        if file is not None and file.exists():
            held = np.load(file)
            if str(held["fingerprint"]) == self.fingerprint:
                self._vectors = dict(zip(held["texts"].tolist(), held["vectors"], strict=True))

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed texts; see `MiniLM.embed`."""
        for text in texts:
            if text not in self._vectors:
                self._vectors[text] = super().embed([text])[0]
        return np.stack([self._vectors[text] for text in texts]) if texts else super().embed(texts)

    def tokens(self, text: str) -> Tokens:
        """Count the tokens of a text; see `MiniLM.tokens`."""
        if text not in self._counts:
            self._counts[text] = super().tokens(text)
        return self._counts[text]

    def save(self) -> None:
        """Keep the vectors for the next run, if there is a file for them."""
        if self._file is not None:
            texts, vectors = list(self._vectors), np.stack(list(self._vectors.values()))
            np.savez(self._file, fingerprint=self.fingerprint, texts=np.array(texts), vectors=vectors)


def main() -> None:
    """Count the questions and intents of each half."""
    print(f"{'set':<12}{'half':<12}{'questions':>10}{'texts':>8}{'intents':>9}{'oos':>7}")
    for name, load in (("banking77", banking77), ("clinc150", clinc150)):
        for half in ("developed", "reported"):
            found = load(half)
            intents = {question.intent for question in found} - {OUT_OF_SCOPE}
            texts = {question.text for question in found}
            stray = sum(question.intent == OUT_OF_SCOPE for question in found)
            print(f"{name:<12}{half:<12}{len(found):>10,}{len(texts):>8,}{len(intents):>9}{stray:>7,}")


if __name__ == "__main__":
    main()
