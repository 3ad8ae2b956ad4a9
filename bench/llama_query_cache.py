"""How often a cached query engine of LlamaIndex answers by itself, how often wrongly, and what that takes.

Twelve documents of an invented tram company lie in a `VectorStoreIndex` under the bundled embedder; the model is the
emulator on loopback, so a miss costs no thinking time here, and with a real provider far more. Each pair of questions
has a cache of its own: the first is kept, the second is asked. Close rewordings were written by hand and change a few
words; freely chosen ones say the same in other words. A hit on a pair of different questions is a wrong one; pairs of
which that is known stand in the data too and count.

Run: python bench/llama_query_cache.py [--lookups 300] [--format text|json]
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.llms.openai_like import OpenAILike

from headstay import __version__
from headstay.emulator import Reply, serve
from headstay.semantic import Cache
from ledger import machine
from llama_index_headstay import BundledEmbedding, SemanticCacheQueryEngine
from llama_index_headstay.query_identity import read_engine

DATA = Path(__file__).parent / "data" / "llama_query_cache.json"
PACKAGES = ("llama-index-core", "llama-index-llms-openai-like", "openai")
SHARES = {
    "reworded": "close rewordings",
    "reworded_freely": "free rewordings",
    "different": "different questions",
}


@dataclass(frozen=True)
class Share:
    """How many of some pairs hit."""

    name: str
    pairs: int
    hits: int


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one kind of query."""

    name: str
    queries: int
    p50: float
    p95: float


def respond(_: str, body: Mapping[str, Any]) -> Reply:
    """Answer with the question, as a model that says something of its own to each."""
    question = str(body["messages"][-1]["content"]).rpartition("Query: ")[2].partition("\n")[0]
    return Reply(f"The answer to <{question}>.")


def cached(inner: BaseQueryEngine) -> SemanticCacheQueryEngine:
    """Put a new, empty cache around an engine."""
    return SemanticCacheQueryEngine(inner, cache=Cache(), version="1", name="trams")


def share(inner: BaseQueryEngine, key: str, pairs: Sequence[Sequence[str]]) -> Share:
    """Ask the second question of each pair after the first."""
    hits = 0
    for kept, asked in pairs:
        engine = cached(inner)
        engine.query(kept)
        hits += "headstay" in (engine.query(asked).metadata or {})
    return Share(SHARES[key], len(pairs), hits)


def timing(name: str, questions: Sequence[str], ask: Callable[[str], object]) -> Timing:
    """Time some calls."""
    taken: list[float] = []
    for question in questions:
        start = time.perf_counter()
        ask(question)
        taken.append((time.perf_counter() - start) * 1_000)
    cuts = statistics.quantiles(taken, n=100)
    return Timing(name, len(taken), statistics.median(taken), cuts[94])


def timings(inner: BaseQueryEngine, data: Mapping[str, Any], lookups: int) -> list[Timing]:
    """Time bare queries, misses, and both kinds of hits, over the questions that hit."""
    pairs = [pair for pair in data["reworded"] if share(inner, "reworded", [pair]).hits]
    times = max(1, lookups // len(pairs))
    first, second = ([pair[at] for pair in pairs] * times for at in (0, 1))
    engine = cached(inner)

    def anew(question: str) -> object:
        return cached(inner).query(question)

    anew(first[0])  # the bundled model is loaded by whoever needs it first
    found = [timing("bare engine", first, inner.query), timing("miss, in a cache of its own", first, anew)]
    for question in first[: len(pairs)]:
        engine.query(question)
    found.append(timing("exact hit", first, engine.query))

    def reworded(question: str) -> object:
        return engine.query(question)  # a hit keeps nothing: the next is found by meaning again

    found.append(timing("reworded hit", second, reworded))
    found.append(timing("reading the engine", first, lambda _: read_engine(inner, "trams")))
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lookups", type=int, default=300)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    data = json.loads(DATA.read_text(encoding="utf-8"))
    documents = [Document(text=one["text"], doc_id=one["id"]) for one in data["documents"]]
    index = VectorStoreIndex.from_documents(documents, embed_model=BundledEmbedding())
    with serve(responder=respond, record=False) as desk:
        llm = OpenAILike(model="gpt-5.4", api_key="none", api_base=desk.openai_url, is_chat_model=True)
        inner = index.as_query_engine(llm=llm)
        shares = [share(inner, key, data[key]) for key in SHARES]
        taken = timings(inner, data, options.lookups)
    told = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "versions": {"headstay": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
        "shares": [asdict(one) for one in shares],
        "milliseconds": [asdict(one) for one in taken],
    }
    if options.format == "json":
        print(json.dumps(told, indent=2))
        return 0
    print(told["date"], told["machine"])
    print(", ".join(f"{name} {number}" for name, number in told["versions"].items()))
    print(f"\n{'pairs of questions':<28}{'pairs':>8}{'hits':>8}{'share':>9}")
    for one in shares:
        print(f"{one.name:<28}{one.pairs:>8}{one.hits:>8}{one.hits / one.pairs:>9.0%}")
    print(f"\n{'one query, ms':<28}{'queries':>8}{'p50':>8}{'p95':>9}")
    for row in taken:
        print(f"{row.name:<28}{row.queries:>8}{row.p50:>8.2f}{row.p95:>9.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
