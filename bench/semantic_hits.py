"""How often the static decision answers, and how often wrongly, beside other caches and their rules.

Banking77 and CLINC150 questions come in a shuffled order, ten orders each. What is missed is stored with its intent for
an answer, and a hit is right if the intents are the same; an out-of-scope question shares an answer with nothing. All
use the same vectors. A rule is a published rule in a few lines: the nearest stored text wins if its cosine reaches the
threshold. Packages that are installed (gptcache, mneme-cache) run themselves too, on the first order.

Nothing was developed on the questions that are reported; `--half developed` shows the others.

Run: python bench/semantic_hits.py [--orders 10] [--half reported|developed] [--vectors FILE.npz] [--format text|json]
"""

import argparse
import atexit
import json
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.load import dumps
from langchain_core.messages import HumanMessage

from headstay import __version__
from headstay.semantic.answer import Answer
from headstay.semantic.cache import Cache
from headstay.semantic.embedder import FloatArray
from headstay.semantic.request import AskedRequest, Turn
from ledger import machine
from semantic_stream import Half, Question, RememberingMiniLM, banking77, clinc150, shuffled

FIRST_SEED = 1_000
STREAMS: dict[str, tuple[Callable[[Half], list[Question]], int]] = {
    "banking77": (banking77, 4_000),
    "clinc150": (clinc150, 5_000),
}
THRESHOLDS = (0.95, 0.92, 0.90, 0.85, 0.80)


@dataclass(frozen=True)
class Count:
    """What came of one order of questions."""

    questions: int
    hits: int
    wrong: int


@dataclass
class Row:
    """One cache or rule on one stream, over all orders."""

    name: str
    counts: list[Count] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Return shares: mean over orders, and the worst order where errors are concerned."""
        per_request = [count.wrong / count.questions for count in self.counts]
        return {
            "hits": statistics.mean(count.hits / count.questions for count in self.counts),
            "fewest_hits": min(count.hits / count.questions for count in self.counts),
            "wrong_per_request": statistics.mean(per_request),
            "wrong_per_request_worst": max(per_request),
            "wrong_of_hits": sum(count.wrong for count in self.counts) / max(1, sum(one.hits for one in self.counts)),
            "wrong_of_hits_worst": max(count.wrong / max(1, count.hits) for count in self.counts),
        }


Lookup = Callable[[Question], str | None]
Store = Callable[[Question], object]


def play(questions: Sequence[Question], look_up: Lookup, store: Store) -> Count:
    """Ask each question once, and store what was missed."""
    hits = wrong = 0
    for question in questions:
        answer = look_up(question)
        if answer is None:
            store(question)
        else:
            hits += 1
            wrong += not question.shares_answer(answer)
    return Count(len(questions), hits, wrong)


def play_headstay(questions: Sequence[Question], embedder: RememberingMiniLM, **settings: Any) -> Count:
    """Play the engine itself."""
    with Cache(embedder=embedder, **settings) as cache:
        missed: list[Any] = []

        def look_up(question: Question) -> str | None:
            found = cache.look_up(AskedRequest((Turn("user", question.text),)))
            missed[:] = [found]
            return json.loads(found.entry.answer)["text"] if found.entry is not None else None

        return play(questions, look_up, lambda question: cache.admit(missed[0], Answer(question.intent)))


@dataclass(frozen=True)
class Rule:
    """The nearest stored text wins if its cosine reaches a threshold.

    Attributes:
        name: Whose rule it is.
        threshold: Least cosine.
        whole_prompt: Whether the text is the serialised message list that LangChain gives its caches, or the question.
    """

    name: str
    threshold: float
    whole_prompt: bool = False


RULES = (
    *(Rule(f"cosine {threshold:.2f}, no vetoes", threshold) for threshold in THRESHOLDS),
    Rule("redisvl 0.28.0's rule (distance 0.1)", 0.90),
    Rule("mneme-cache 1.0.1's rule (0.85)", 0.85),
    # evaluator 4 - squared distance, threshold 0.8 of its range of 4: a squared distance up to 0.8
    Rule("GPTCache 0.1.44's rule (0.8 of range)", 0.60),
    Rule("langchain-redis 0.2.6's rule, whole prompt", 0.80, whole_prompt=True),
    Rule("whole prompt at 0.92", 0.92, whole_prompt=True),
)


def play_rule(questions: Sequence[Question], likeness: FloatArray, places: dict[str, int], threshold: float) -> Count:
    """Play a rule on a table of cosines.

    Args:
        questions: In the order they are asked.
        likeness: (texts, texts) cosines.
        places: Where a text stands in it.
        threshold: Least cosine.
    """
    stored = np.empty(len(questions), dtype=np.int64)
    intents: list[str] = []

    def look_up(question: Question) -> str | None:
        if not intents:
            return None
        scores = likeness[places[question.text], stored[: len(intents)]]
        best = int(scores.argmax())
        return intents[best] if scores[best] >= threshold else None

    def store(question: Question) -> None:
        stored[len(intents)] = places[question.text]
        intents.append(question.intent)

    return play(questions, look_up, store)


def play_mneme(questions: Sequence[Question], embedder: RememberingMiniLM, threshold: float) -> Count:
    """Play mneme-cache itself, in memory."""
    mneme: Any = import_module("mneme")

    class Given:
        dim = embedder.dimension
        fingerprint = embedder.fingerprint

        def embed(self, text: str) -> FloatArray:
            return embedder.embed([text])[0]

    with mneme.SemanticCache(store=mneme.MemoryStore(), embedder=Given(), similarity_threshold=threshold) as cache:

        def look_up(question: Question) -> str | None:
            hit = cache.get(question.text)
            return None if hit is None else str(hit.response)

        return play(questions, look_up, lambda question: cache.put(question.text, question.intent))


def play_gptcache(questions: Sequence[Question], embedder: RememberingMiniLM) -> Count:
    """Play GPTCache itself at its defaults, with SQLite and faiss in a folder of its own."""
    gptcache: Any = import_module("gptcache")
    api: Any = import_module("gptcache.adapter.api")
    manager: Any = import_module("gptcache.manager")
    evaluation: Any = import_module("gptcache.similarity_evaluation")
    pre: Any = import_module("gptcache.processor.pre")
    folder = scratch()
    cache = gptcache.Cache()
    cache.init(
        pre_embedding_func=pre.get_prompt,
        embedding_func=lambda text, **_: embedder.embed([text])[0],
        data_manager=manager.get_data_manager(
            manager.CacheBase("sqlite", sql_url=f"sqlite:///{folder}/cache.db"),
            manager.VectorBase("faiss", dimension=embedder.dimension, index_path=f"{folder}/faiss.index"),
            max_size=10 * len(questions),
        ),
        similarity_evaluation=evaluation.SearchDistanceEvaluation(),
    )
    return play(
        questions,
        lambda question: api.get(question.text, cache_obj=cache),
        lambda question: api.put(question.text, question.intent, cache_obj=cache),
    )


def scratch() -> Path:
    """Make a folder that goes at the very end: GPTCache writes its index when the process ends."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def installed(package: str, *needs: str) -> str | None:
    """Return a package's version; None where it, or what it needs, is missing.

    GPTCache installs what it misses by itself, and a benchmark must not install anything.
    """
    try:
        return {name: version(name) for name in (package, *needs)}[package]
    except PackageNotFoundError:
        return None


def prompt_text(question: Question) -> str:
    """Write a question as LangChain 1.8 hands it to its caches."""
    return dumps([HumanMessage(question.text)])


def rows_of(
    orders: Sequence[Sequence[Question]], pool: Sequence[Question], embedder: RememberingMiniLM, whole_prompt: bool
) -> Iterator[Row]:
    """Play all orders of one stream, a row at a time."""
    yield Row("headstay, default (0.92)", [play_headstay(order, embedder) for order in orders])
    places = {question.text: place for place, question in enumerate(pool)}
    for serialised in (False, True) if whole_prompt else (False,):
        texts = [prompt_text(question) if serialised else question.text for question in pool]
        vectors = embedder.embed(texts)
        likeness = vectors @ vectors.T
        for rule in RULES:
            if rule.whole_prompt is serialised:
                yield Row(rule.name, [play_rule(order, likeness, places, rule.threshold) for order in orders])
    if mneme := installed("mneme-cache"):
        yield Row(f"mneme-cache {mneme} itself, 1 order", [play_mneme(orders[0], embedder, 0.85)])
    if gptcache := installed("gptcache", "sqlalchemy", "faiss-cpu"):
        yield Row(f"GPTCache {gptcache} itself, 1 order", [play_gptcache(orders[0], embedder)])


def line(name: str, row: dict[str, float]) -> str:
    """One line of the table."""
    return (
        f"{name:<45}{row['hits']:>8.2%}{row['fewest_hits']:>9.2%}{row['wrong_per_request']:>9.2%}"
        f"{row['wrong_per_request_worst']:>8.2%}{row['wrong_of_hits']:>9.2%}{row['wrong_of_hits_worst']:>8.2%}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=10)
    parser.add_argument("--half", choices=("reported", "developed"), default="reported")
    parser.add_argument("--stream", choices=tuple(STREAMS), action="append", help="default all")
    parser.add_argument("--vectors", type=Path, help="a .npz file that keeps vectors from one run to the next")
    parser.add_argument("--no-whole-prompt", action="store_true", help="leave out what embeds serialised messages")
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    options = parser.parse_args()
    embedder = RememberingMiniLM(options.vectors)
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": f"Python {platform.python_version()}, headstay {__version__}, "
        + ", ".join(f"{name} {version(name)}" for name in ("langchain-core", "onnxruntime", "numpy")),
        "half": options.half,
        "seeds": f"{FIRST_SEED} to {FIRST_SEED + options.orders - 1}",
    }
    results: dict[str, Any] = {"about": about, "streams": {}}
    if options.form == "text":
        print("\n".join(f"{name:<9}{value}" for name, value in about.items()))
    for name in options.stream or STREAMS:
        load, length = STREAMS[name]
        pool = load(options.half)
        orders = [shuffled(pool, FIRST_SEED + number, length) for number in range(options.orders)]
        found: dict[str, Any] = {}
        results["streams"][name] = {"questions": len(orders[0]), "rows": found}
        if options.form == "text":
            print(f"\n{name}, {len(orders[0]):,} questions an order{'':<12}", end="")
            print(f"{'hits':>10}{'fewest':>9}{'wrong':>9}{'worst':>8}{'of hits':>9}{'worst':>8}")
        began = time.perf_counter()
        for row in rows_of(orders, pool, embedder, not options.no_whole_prompt):
            embedder.save()
            found[row.name] = {**row.summary(), "orders": [asdict(count) for count in row.counts]}
            if options.form == "text":
                print(line(row.name, row.summary()), flush=True)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    if options.form == "json":
        print(json.dumps(results))


if __name__ == "__main__":
    main()
