"""How much of two successive prompts of a LlamaIndex engine is the same from the start.

Plain, after `prefix_safe`, and with a cache-aware LLM too. Every turn retrieves other text. Measured on the wire, in
characters of the messages as sent through OpenAILike. Two shares: of the shorter prompt, and of what is constant in it
by the application's will (system prompt, the instructions of its templates, and the history).

Run: python bench/llama_prefix.py [--turns 5] [--format text|json]
"""

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from llama_index.core import get_response_synthesizer
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.chat_engine.condense_plus_context import DEFAULT_CONTEXT_PROMPT_TEMPLATE
from llama_index.core.chat_engine.context import DEFAULT_CONTEXT_TEMPLATE
from llama_index.core.llms import LLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.prompts.chat_prompts import TEXT_QA_PROMPT_TMPL_MSGS
from llama_index.core.prompts.utils import get_template_vars
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.llms.openai_like import OpenAILike

from headstay.emulator import Emulator, Reply, Wire, serve
from ledger import machine
from llama_index_headstay import cache_aware, prefix_safe

PACKAGES = ("llama-index-core", "llama-index-llms-openai-like", "openai")
TARGET = 0.95
VARIANTS = ("plain", "prefix_safe", "with cache_aware")
ANSWER = "The handbook says so."
RULES = "Answer in two sentences, name the clause of the handbook you rely on, and never promise a date. "
SYSTEM = "You answer for the service desk of a bicycle maker.\n" + RULES * 9
OWN = (
    "Keep to these house rules when documents are given.\n"
    + RULES * 2
    + "\nDocuments:\n{context_str}\nEnd of documents.\n"
)
QUESTIONS = (
    "May I return a saddle?",
    "Who pays for the parcel?",
    "How long is a frame guaranteed?",
    "Does that hold for a second owner?",
    "And where do I write to?",
)


class FreshRetriever(BaseRetriever):
    """Retrieves other text each time; two texts differ from their first character on.

    Attributes:
        given: The texts so far.
    """

    def __init__(self, paragraphs: int = 2) -> None:
        self.given: list[str] = []
        self._paragraphs = paragraphs
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        del query_bundle  # other text each time, whatever the question
        turn = len(self.given)
        letter = chr(ord("A") + turn)
        texts = [
            f"{letter}{number}: clause {turn}.{number} of the handbook. " * 4 for number in range(self._paragraphs)
        ]
        self.given.append(texts[0])
        return [NodeWithScore(node=TextNode(text=text, id_=f"{turn}-{at}"), score=1.0) for at, text in enumerate(texts)]


@dataclass(frozen=True)
class Path:
    """One kind of engine.

    Attributes:
        name: What the table calls it.
        build: Makes the engine of an LLM and a retriever.
        constant: The texts that are the same in each turn by the application's will.
        llm: Further settings of the LLM.
    """

    name: str
    build: Callable[[LLM, BaseRetriever], Any]
    constant: tuple[str, ...]
    llm: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Figures:
    """What two successive prompts share.

    Attributes:
        path: The kind of engine.
        variant: One of `VARIANTS`.
        common: Characters the two share from the start.
        shorter: Characters of the shorter one.
        static: Characters of the constant texts in the first of the two.
        kept: How many of these are in what the two share.
        lost: Constant texts that are not in the prompt at all.
    """

    path: str
    variant: str
    common: int
    shorter: int
    static: int
    kept: int
    lost: tuple[str, ...]

    @property
    def share(self) -> float:
        """What of the shorter prompt is shared."""
        return self.common / self.shorter

    @property
    def static_share(self) -> float:
        """What of the constant texts is shared."""
        return self.kept / self.static


def literals(*templates: str) -> tuple[str, ...]:
    """Return the constant texts of templates."""
    found: list[str] = []
    for template in templates:
        rest = template
        for name in get_template_vars(template):
            literal, _, rest = rest.partition(f"{{{name}}}")
            found.append(literal)
        found.append(rest)
    return tuple(text for text in found if text.strip())


def _memory() -> ChatMemoryBuffer:
    return ChatMemoryBuffer.from_defaults(token_limit=50_000)


def _query_engine(llm: LLM, retriever: BaseRetriever) -> RetrieverQueryEngine:
    return RetrieverQueryEngine(retriever, get_response_synthesizer(llm=llm))


_QA = literals(*(str(message.content) for message in TEXT_QA_PROMPT_TMPL_MSGS))

CONTROL = Path(
    "SimpleChatEngine (control)",
    lambda llm, _: SimpleChatEngine.from_defaults(llm=llm, memory=_memory(), system_prompt=SYSTEM),
    (SYSTEM,),
)
PATHS = (
    Path(
        "ContextChatEngine",
        lambda llm, retriever: ContextChatEngine.from_defaults(
            retriever, llm=llm, memory=_memory(), system_prompt=SYSTEM
        ),
        (*literals(DEFAULT_CONTEXT_TEMPLATE), SYSTEM.strip()),
    ),
    Path(
        "CondensePlusContextChatEngine",
        lambda llm, retriever: CondensePlusContextChatEngine.from_defaults(
            retriever, llm=llm, memory=_memory(), system_prompt=SYSTEM
        ),
        (*literals(DEFAULT_CONTEXT_PROMPT_TEMPLATE), SYSTEM.strip()),
    ),
    Path(
        "ContextChatEngine, own template",
        lambda llm, retriever: ContextChatEngine.from_defaults(retriever, llm=llm, context_template=f"{SYSTEM}\n{OWN}"),
        literals(f"{SYSTEM}\n{OWN}"),
    ),
    Path("RetrieverQueryEngine, compact", _query_engine, _QA),
    Path("same, with LLM.system_prompt", _query_engine, (SYSTEM, *_QA), {"system_prompt": SYSTEM}),
    CONTROL,
)


def chat_model(server: Emulator, **settings: Any) -> OpenAILike:
    """Make an LLM that talks to the emulator."""
    given = {"context_window": 100_000, "is_chat_model": True, "max_tokens": 200, **settings}
    return OpenAILike(model="gpt-5.6-terra", api_base=server.openai_url, api_key="none", **given)


def answer(wire: Wire, body: Mapping[str, Any]) -> Reply:
    """Answer without repeating anything, so that no retrieved text gets into the history."""
    del wire, body
    return Reply(text=ANSWER)


def written(body: Mapping[str, Any]) -> str:
    """Write the messages of a request in the order a model reads them."""
    pieces: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        text = content if isinstance(content, str) else "".join(part["text"] for part in content)
        pieces.append(f"<{message['role']}>{text}")
    return "\n".join(pieces)


def play(path: Path, server: Emulator, variant: str, turns: int) -> list[str]:
    """Ask an engine some questions; return the prompt of each answer as it went over the wire."""
    retriever = FreshRetriever()
    model = chat_model(server, **(path.llm or {}))
    model = cache_aware(model) if variant == VARIANTS[2] else model
    engine = path.build(model, retriever)
    if variant != VARIANTS[0]:
        engine = prefix_safe(engine)
    seen = len(server.exchanges)
    for question in QUESTIONS[:turns]:
        (engine.query if isinstance(engine, RetrieverQueryEngine) else engine.chat)(question)
    model._get_client().close()
    prompts = [written(exchange.body) for exchange in server.exchanges[seen:]]
    if path is CONTROL:
        return prompts
    return [prompt for prompt in prompts if any(text.strip() in prompt for text in retriever.given)]


def compare(path: Path, variant: str, first: str, second: str, history: Sequence[str]) -> Figures:
    """Say what two successive prompts share."""
    common = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first))
    texts, lost = (*path.constant, *history), list[str]()
    kept = end = 0
    for text in texts:
        at = first.find(text, end)
        if at < 0:
            lost.append(text)
            continue
        end = at + len(text)
        kept += max(0, min(common, end) - at)
    return Figures(path.name, variant, common, min(len(first), len(second)), sum(map(len, texts)), kept, tuple(lost))


def history_of(path: Path, turn: int) -> tuple[str, ...]:
    """Return the texts in the history of a turn; a query engine has none."""
    return () if path.build is _query_engine else tuple(text for said in QUESTIONS[:turn] for text in (said, ANSWER))


def measure(path: Path, server: Emulator, variant: str, turns: int = 5) -> list[Figures]:
    """Play a path and compare each prompt with the one before."""
    prompts = play(path, server, variant, turns)
    return [compare(path, variant, *pair, history_of(path, turn)) for turn, pair in enumerate(pairwise(prompts))]


def line(figures: Figures) -> str:
    """One line of the table."""
    return (
        f"{figures.path:<34}{figures.variant:<17}{figures.common:>7,} of{figures.shorter:>7,}{figures.share:>8.1%}"
        f"{figures.kept:>9,} of{figures.static:>7,}{figures.static_share:>8.1%}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, choices=range(2, len(QUESTIONS) + 1))
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    options = parser.parse_args()
    with serve(responder=answer) as server:
        results = [
            measure(path, server, variant, options.turns)
            for path in PATHS
            for variant in (VARIANTS[:1] if path is CONTROL else VARIANTS)
        ]
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "turns": options.turns,
    }
    if options.form == "json":
        rows = [
            {**asdict(row), "share": row.share, "static_share": row.static_share} for rows in results for row in rows
        ]
        print(json.dumps({"about": about, "results": rows}, ensure_ascii=False))
        return
    print(f"date      {about['date']}")
    print(f"machine   {about['machine']}")
    print("versions  " + ", ".join(f"{name} {number}" for name, number in about["versions"].items()))
    print(
        f"turns     {options.turns}; the last pair of successive prompts, in characters; the verdict is on every pair\n"
    )
    print(f"{'path':<34}{'variant':<17}{'common prefix, of the shorter':>25}{'of the static part':>26}")
    print("\n".join(line(rows[-1]) for rows in results))
    ours = [row for rows in results for row in rows if row.variant != VARIANTS[0]]
    missed = [row for row in ours if row.static_share < TARGET or row.lost]
    print(f"\nat least {TARGET:.0%} of the static part: {'MISSED' if missed else 'met'}")


if __name__ == "__main__":
    main()
