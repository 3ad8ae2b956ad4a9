"""What stands around a question must change neither which answers are served nor how often.

The same Banking77 questions, of intents that nothing was developed on, come bare, under a long system prompt, in a RAG
template, and beside a clock, through LangChain's own surfaces and a local model that answers with the intent. A hit is
right if the intents are the same. After the questions the last hundred requests come again, as they were: an identical
request must be answered in every row.

Run: python bench/semantic_envelope.py [--questions 4000] [--seed 1000] [--format text|json]
"""

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langchain_core.globals import get_llm_cache, set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from headstay import Slot, __version__
from headstay.semantic.embedder import MiniLM
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached
from ledger import machine
from semantic_stream import Question, RememberingMiniLM, banking77, shuffled

REPEATS = 100
MOST_WRONG = 0.03  # of hits, in every row that hits
POLICY = "You answer the customers of a bank, briefly and kindly. " + " ".join(
    f"Rule {number}: whoever asks about matter {number} is told what the handbook says of it, and nothing more."
    for number in range(1, 31)
)
ARTICLES = [
    f"Article {number}: matter {number} is handled within {number % 9 + 1} working days, and costs nothing."
    for number in range(1, 200)
]
RAG = "Answer from the context below.\n\nContext:\n{context}\n\nQuestion: {question}\nAnswer:"
CLOCK_SLOT = r"^It is (?P<now>.+)\.$"


class Desk:
    """What the local model knows: the intent of the question that is asked now."""

    def __init__(self) -> None:
        self.intent = ""
        self.calls = 0


class IntentModel(BaseChatModel):
    """Answers with the intent of the question."""

    desk: Any

    @property
    def _llm_type(self) -> str:
        return "intent"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        self.desk.calls += 1
        reply = AIMessage(self.desk.intent, response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=reply)])


class Clock:
    """A clock that goes on by a second with each question, and can be put back to repeat one."""

    def __init__(self) -> None:
        self.seconds = 0

    def __str__(self) -> str:
        return f"{datetime(2026, 11, 29, 9, tzinfo=UTC) + timedelta(seconds=self.seconds):%Y-%m-%d %H:%M:%S} UTC"


Ask = Callable[[Question, int], str]
Surface = Callable[[Desk, SemanticCache], Ask]


@dataclass(frozen=True)
class Row:
    """What came of one way to ask.

    Attributes:
        name: The way.
        expected: "as bare": within `points` of the hits of the bare questions; "exact only": no hit but repeats.
        hits: Questions that were answered without the model, repeats not counted.
        wrong: Those with another intent's answer.
        repeats: Hits among the identical requests at the end.
        reasons: Why questions were missed, by reason, or could only be answered exactly.
        seconds: How long it took, embedding not counted where another row has embedded the same texts.
    """

    name: str
    expected: str
    points: float
    questions: int
    hits: int
    wrong: int
    repeats: int
    reasons: dict[str, int]
    seconds: float

    @property
    def hit_share(self) -> float:
        """Hits among questions."""
        return self.hits / self.questions

    @property
    def wrong_share(self) -> float:
        """Wrong ones among hits."""
        return self.wrong / self.hits if self.hits else 0.0

    def failings(self, bare: "Row", repeats: int) -> list[str]:
        """Say what does not hold."""
        found: list[str] = []
        if self.expected == "as bare" and abs(self.hit_share - bare.hit_share) > self.points:
            found.append(f"hits differ by {100 * (self.hit_share - bare.hit_share):+.1f} points from bare")
        if self.expected == "exact only" and self.hits:
            found.append(f"{self.hits} hits without an identical request")
        if self.wrong_share > MOST_WRONG:
            found.append(f"{self.wrong_share:.1%} of hits are wrong")
        if self.repeats != repeats:
            found.append(f"{repeats - self.repeats} of {repeats} identical requests were not answered")
        return found


@contextmanager
def llm_cache(cache: SemanticCache) -> Iterator[None]:
    """Make a cache LangChain's own for a while."""
    before = get_llm_cache()
    set_llm_cache(cache)
    try:
        yield
    finally:
        set_llm_cache(before)


def through_llm_cache(messages: Callable[[Question, int], Sequence[BaseMessage]]) -> Surface:
    """Ask a plain model, with the cache set for all of LangChain."""

    def surface(desk: Desk, cache: SemanticCache) -> Ask:
        model = IntentModel(desk=desk)

        def ask(question: Question, number: int) -> str:
            with llm_cache(cache):
                return model.invoke(list(messages(question, number))).text

        return ask

    return surface


def bare(question: Question, _: int) -> list[BaseMessage]:
    """The question alone."""
    return [HumanMessage(question.text)]


def under_system_prompt(question: Question, _: int) -> list[BaseMessage]:
    """The question under a constant system prompt of about 600 tokens."""
    return [SystemMessage(POLICY), HumanMessage(question.text)]


def in_rag_template(question: Question, _: int) -> list[BaseMessage]:
    """The question behind a context that is always the same."""
    return [HumanMessage(RAG.format(context="\n".join(ARTICLES[:3]), question=question.text))]


def in_rag_with_own_context(question: Question, number: int) -> list[BaseMessage]:
    """The question behind a context of its own."""
    return [HumanMessage(RAG.format(context=context(number), question=question.text))]


def context(number: int) -> str:
    """Return three articles, others for each question."""
    return "\n".join(ARTICLES[(number * step) % len(ARTICLES)] for step in (1, 7, 31))


def as_cached_chain(desk: Desk, cache: SemanticCache) -> Ask:
    """Ask a RAG chain that retrieves another context each time, with its question declared."""
    clock = Clock()
    chain = (
        {"context": RunnableLambda(lambda _: context(clock.seconds)), "question": lambda given: given["question"]}
        | ChatPromptTemplate.from_messages([("system", POLICY), ("human", RAG)])
        | IntentModel(desk=desk)
        | StrOutputParser()
    )
    answering = cached(chain, cache=cache, query="question", name="bank")

    def ask(question: Question, number: int) -> str:
        clock.seconds = number
        return str(answering.invoke({"question": question.text}))

    return ask


def clock_in_tail(*, affects_answer: bool) -> Surface:
    """Ask a model that tells the time behind the human turn."""

    def surface(desk: Desk, cache: SemanticCache) -> Ask:
        clock = Clock()
        model = CacheAwareChatModel(
            IntentModel(desk=desk),
            name="bank",
            tail=lambda _: f"It is {clock}.",
            tail_affects_answer=affects_answer,
            semantic_cache=cache,
        )
        return _telling_time(model, clock, lambda: POLICY)

    return surface


def clock_in_slot(*, affects_answer: bool) -> Surface:
    """Ask a model whose system prompt tells the time, in a slot."""

    def surface(desk: Desk, cache: SemanticCache) -> Ask:
        clock = Clock()
        slot = Slot(CLOCK_SLOT, every="call", affects_answer=affects_answer)
        model = CacheAwareChatModel(IntentModel(desk=desk), name="bank", volatile=[slot], semantic_cache=cache)
        return _telling_time(model, clock, lambda: f"{POLICY}\nIt is {clock}.")

    return surface


def _telling_time(model: BaseChatModel, clock: Clock, system: Callable[[], str]) -> Ask:
    def ask(question: Question, number: int) -> str:
        clock.seconds = number
        return model.invoke([SystemMessage(system()), HumanMessage(question.text)]).text

    return ask


SURFACES: tuple[tuple[str, str, float, Surface], ...] = (
    ("bare, set_llm_cache", "as bare", 0.0, through_llm_cache(bare)),
    ("600-token system prompt, set_llm_cache", "as bare", 0.01, through_llm_cache(under_system_prompt)),
    ("RAG template, constant context, set_llm_cache", "as bare", 0.02, through_llm_cache(in_rag_template)),
    ("RAG template, own context, set_llm_cache", "exact only", 0.0, through_llm_cache(in_rag_with_own_context)),
    ("RAG chain, own context, cached(query=)", "as bare", 0.0, as_cached_chain),
    ("clock in the tail, affects_answer=False", "as bare", 0.0, clock_in_tail(affects_answer=False)),
    ("clock in the tail, undeclared", "exact only", 0.0, clock_in_tail(affects_answer=True)),
    ("clock in a Slot, affects_answer=False", "as bare", 0.0, clock_in_slot(affects_answer=False)),
    ("clock in a Slot, undeclared", "exact only", 0.0, clock_in_slot(affects_answer=True)),
)


def measure(
    name: str, expected: str, points: float, surface: Surface, questions: Sequence[Question], embedder: MiniLM
) -> Row:
    """Ask all questions in one way, then the last of them again."""
    desk = Desk()
    with SemanticCache(embedder=embedder) as cache:
        ask = surface(desk, cache)
        began = time.perf_counter()
        hits = wrong = 0
        for number, question in enumerate(questions):
            desk.intent, before = question.intent, desk.calls
            answer = ask(question, number)
            if desk.calls == before:
                hits += 1
                wrong += not question.shares_answer(answer)
        reasons = Counter(cache.metrics().misses)
        taken = time.perf_counter() - began
        repeats = 0
        for number in range(max(0, len(questions) - REPEATS), len(questions)):
            before = desk.calls
            ask(questions[number], number)
            repeats += desk.calls == before
    return Row(name, expected, points, len(questions), hits, wrong, repeats, dict(reasons), taken)


def run(questions: Sequence[Question], embedder: MiniLM, told: Callable[[str], object] = lambda _: None) -> list[Row]:
    """Ask the questions in every way; the bare ones first."""
    rows: list[Row] = []
    for name, expected, points, surface in SURFACES:
        told(name)
        rows.append(measure(name, expected, points, surface, questions, embedder))
    return rows


def line(row: Row, bare_row: Row) -> str:
    """One line of the table."""
    failings = row.failings(bare_row, min(REPEATS, row.questions))
    top = ", ".join(f"{reason} {count}" for reason, count in Counter(row.reasons).most_common(2))
    return (
        f"{row.name:<47}{row.hit_share:>7.2%}{row.wrong / row.questions:>8.2%}{row.wrong_share:>8.2%}"
        f"{row.repeats:>9}{row.seconds:>7.0f}  {row.expected:<12}{'; '.join(failings) or 'met':<8}  ({top})"
    )


def main() -> None:
    """Measure and print. Exits with 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=1_000)
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    parser.add_argument("--vectors", type=Path, help="a .npz file that keeps vectors from one run to the next")
    options = parser.parse_args()
    questions = shuffled(banking77("reported"), options.seed, options.questions)
    embedder = RememberingMiniLM(options.vectors)
    rows = run(questions, embedder, lambda name: print(f"\r{name:<60}", end="", file=sys.stderr, flush=True))
    embedder.save()
    print(file=sys.stderr)
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": f"Python {platform.python_version()}, headstay {__version__}, "
        + ", ".join(f"{name} {version(name)}" for name in ("langchain-core", "onnxruntime", "numpy")),
        "stream": f"{len(questions)} Banking77 questions, odd-hash intents, seed {options.seed}",
    }
    missed = any(row.failings(rows[0], min(REPEATS, row.questions)) for row in rows)
    if options.form == "json":
        print(json.dumps({"about": about, "rows": [asdict(row) for row in rows]}))
        sys.exit(missed)
    for name, value in about.items():
        print(f"{name:<9}{value}")
    print(f"\n{'asked':<47}{'hits':>7}{'wrong':>8}{'of hits':>8}{'repeats':>9}{'s':>7}  expected")
    print("\n".join(line(row, rows[0]) for row in rows))
    sys.exit(missed)


if __name__ == "__main__":
    main()
