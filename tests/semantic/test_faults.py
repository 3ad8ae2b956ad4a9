"""What fails costs the cache and never the call: a miss with a reason, and never a wrong answer."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables import RunnableLambda

from headstay.emulator import Emulator
from headstay.errors import ConfigError, EmbedderError, SemanticStoreError
from headstay.semantic.answer import Answer, read_answer
from headstay.semantic.cache import Cache
from headstay.semantic.embedder import CallableEmbedder, MiniLM, Tokens
from headstay.semantic.entry import Entry, Outcome
from headstay.semantic.request import AskedRequest, Turn
from headstay.semantic.sqlite_store import SQLiteStore
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"

Chat = Callable[..., BaseChatModel]
Claude = Callable[..., BaseChatModel]
Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]


class FailingStore(SQLiteStore):
    """Fails in the methods it is told to."""

    def __init__(self, path: Any = None) -> None:
        super().__init__(path)
        self.failing: set[str] = set()

    def __getattribute__(self, name: str) -> Any:
        if name != "failing" and name in object.__getattribute__(self, "__dict__").get("failing", ()):
            raise SemanticStoreError(f"{name} failed: the disk is full")
        return super().__getattribute__(name)


METHODS = ["get_exact", "nearest", "put", "touch", "texts", "lease", "release", "wait"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("warm", [False, True])
async def test_a_store_that_fails_costs_only_the_cache(
    method: str, warm: bool, claude: Claude, road: Road, desk: Emulator
) -> None:
    store = FailingStore()
    cache = SemanticCache(store)
    model = road(claude(), cache)
    if warm:
        model.invoke(RESET)
    store.failing.add(method)
    assert RESET in model.invoke(RESET).text
    assert RESET in (await model.ainvoke(RESET)).text
    for question in ("Where is the library?", "When does the museum open?"):
        assert question in model.invoke(question).text
        assert question in "".join(chunk.text for chunk in model.stream(question))
    store.failing.clear()
    assert "reset my password?" in model.invoke(RESET_TOO).text


def test_a_store_that_fails_says_why_and_says_it_once(
    claude: Claude, desk: Emulator, caplog: pytest.LogCaptureFixture
) -> None:
    store = FailingStore()
    model = CacheAwareChatModel(claude(), semantic_cache=SemanticCache(store), on_break="record")
    store.failing.add("get_exact")
    for _ in range(3):
        model.invoke(RESET)
    assert model.semantic_cache is not None
    assert model.semantic_cache.metrics().misses == {"store_failed": 3}
    assert [one for one in caplog.messages if "the disk is full" in one] == [
        "SemanticStoreError: get_exact failed: the disk is full; the call went on without the cache"
    ]
    assert RESET not in caplog.text


class Odd:
    """An embedder that returns what it is told to, or raises it."""

    fingerprint = "odd"
    dimension = 384
    window = None

    def __init__(self, result: Any) -> None:
        self.result = result

    def embed(self, texts: Sequence[str]) -> Any:
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def tokens(self, text: str) -> Tokens | None:
        return None


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (EmbedderError("down"), "embedder_failed"),
        (ConnectionError("down"), "embedder_failed"),
        (MemoryError(), "embedder_failed"),
        (np.full((1, 384), np.nan), "bad_vector"),
        (np.zeros((1, 384)), "bad_vector"),
        (np.ones((2, 384)), "bad_vector"),
        (np.ones(384), "bad_vector"),
        (None, "bad_vector"),
        ([["a"]], "bad_vector"),
    ],
)
def test_an_embedder_that_fails_costs_only_the_cache(
    result: Any, reason: str, claude: Claude, road: Road, desk: Emulator
) -> None:
    cache = SemanticCache(embedder=Odd(result))
    model = road(claude(), cache)
    assert RESET in model.invoke(RESET).text
    assert RESET in model.invoke(RESET).text
    assert cache.metrics().misses == {reason: 2}
    assert cache.metrics().stored == 0


def test_vectors_of_another_width_are_never_compared(claude: Claude, desk: Emulator) -> None:
    odd = Odd(np.ones((1, 384)))
    cache = SemanticCache(embedder=odd)
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke(RESET)
    odd.result = np.ones((1, 8))
    assert "library" in model.invoke("Where is the library?").text
    assert cache.metrics().misses == {"nothing_stored": 1, "bad_vector": 1}


def test_what_is_kept_is_found_while_the_embedder_is_down(claude: Claude, desk: Emulator) -> None:
    odd = Odd(np.ones((1, 384)))
    cache = SemanticCache(embedder=odd)
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke(RESET)
    odd.result = ConnectionError("down")
    model.invoke(RESET)
    assert len(desk.exchanges) == 1


def test_vectors_that_are_no_unit_vectors_are_scaled(claude: Claude, desk: Emulator) -> None:
    bundled = MiniLM()

    class Long(Odd):
        def embed(self, texts: Sequence[str]) -> Any:
            return bundled.embed(texts) * 17

    cache = SemanticCache(embedder=Long(None))
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke(RESET)
    assert 0.98 < model.invoke(RESET_TOO).response_metadata["headstay"]["score"] < 1


def entry_with(answer: str) -> Callable[[Entry], Entry]:
    return lambda entry: replace(entry, answer=answer)


class RewritingStore(SQLiteStore):
    """Keeps something else than it was given, as a later version or a damaged file would."""

    def __init__(self, path: Any = None) -> None:
        super().__init__(path)
        self.answer: str | None = None

    def put(self, entry: Entry, *, replace: bool = True) -> Outcome:
        changed = entry if self.answer is None else entry_with(self.answer)(entry)
        return super().put(changed, replace=replace)


UNREADABLE = [
    "",
    "not json",
    "[]",
    "null",
    "{}",
    "[" * 100_000,
    json.dumps({"v": 2, "text": "x", "finish": None, "tool_calls": False, "tokens": [0, 0], "body": {}}),
    json.dumps({"v": 1, "text": "x", "finish": None, "tool_calls": False, "tokens": ["a", {}], "body": {}}),
    json.dumps({"v": 1, "text": "x", "finish": None, "tool_calls": False, "tokens": [0], "body": {}}),
    json.dumps({"v": 1, "text": "x", "finish": 7, "tool_calls": False, "tokens": [0, 0], "body": {}}),
    json.dumps({"v": 1, "text": 7, "finish": None, "tool_calls": False, "tokens": [0, 0], "body": {}}),
]
ODD_BODIES: list[dict[str, Any]] = [
    {"generations": []},
    {"generations": "x"},
    {"generations": [7]},
    {"generations": [{}]},
    {"generations": [{"message": {"content": {"a": 1}}}]},
    {"generations": [{"message": {"content": "x", "tool_calls": "y"}}]},
]


@pytest.mark.parametrize(
    "written",
    [*UNREADABLE, *(Answer("x", body).to_json() for body in ODD_BODIES)],
    ids=lambda written: str(written)[:60],
)
async def test_an_answer_that_cannot_be_read_is_a_miss_and_gives_way(
    written: str, claude: Claude, road: Road, desk: Emulator
) -> None:
    store = RewritingStore()
    cache = SemanticCache(store)
    model = road(claude(), cache)
    store.answer = written
    model.invoke(RESET)
    store.answer = None
    assert RESET in model.invoke(RESET).text
    assert len(desk.exchanges) == 2
    assert cache.metrics().misses == {"nothing_stored": 1, "store_failed": 1}
    assert cache.metrics().hits == {}
    assert RESET in model.invoke(RESET_TOO).text  # the fresh answer took its place
    assert len(desk.exchanges) == 2


@pytest.mark.parametrize("body", [{"value": {"__headstay__": "message"}}, {"value": {"__headstay__": "document"}}])
def test_a_chains_answer_that_cannot_be_read_is_a_miss(body: Any) -> None:
    store = RewritingStore()
    cache = SemanticCache(store)
    chain = cached(RunnableLambda(lambda question: f"The answer to {question}"), cache=cache, query=None, name="desk")
    store.answer = Answer("x", body).to_json()
    chain.invoke(RESET)
    store.answer = None
    assert chain.invoke(RESET) == chain.invoke(RESET_TOO) == f"The answer to {RESET}"
    assert cache.metrics().misses == {"nothing_stored": 1, "store_failed": 1}


@pytest.mark.parametrize("written", UNREADABLE, ids=lambda written: str(written)[:40])
def test_what_is_no_answer_is_none(written: str) -> None:
    assert read_answer(written) is None


@pytest.mark.parametrize(
    "content", [b"SQLite format 3\x00" + b"x" * 5000, b"hello" * 1000], ids=["damaged", "another file"]
)
def test_a_file_that_is_no_store_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    file.write_bytes(content)
    with pytest.raises(SemanticStoreError, match=r"answers\.db"):
        SemanticCache(file)


def test_limits_of_a_store_that_was_given_are_set_on_the_store() -> None:
    with pytest.raises(ConfigError, match="max_entries: set on the store itself"):
        SemanticCache(SQLiteStore(), max_entries=7)


def test_text_that_is_no_unicode_is_no_failure(cache: SemanticCache) -> None:
    odd = "How do I write \ud800?"
    engine = cache.engine
    asked = AskedRequest((Turn("user", odd),))
    engine.admit(engine.look_up(asked), Answer("Not at all."))
    found = engine.look_up(asked)
    assert (found.answer is None) == (found.reason is not None)
    assert engine.metrics().lookups == 2


def test_a_clock_that_jumps_is_no_failure() -> None:
    times = {"now": 1_000_000.0}
    engine = Cache(ttl=60, jitter=0, now=lambda: times["now"])
    asked = AskedRequest((Turn("user", RESET),))
    engine.admit(engine.look_up(asked), Answer("In the settings."))
    served: list[bool] = []
    for at in (1_000_059.0, 1_000_060.0, 1_000_030.0, 0.0, 2_000_000.0):
        times["now"] = at
        served.append(engine.look_up(asked).answer is not None)
    assert served == [True, False, False, False, False]  # once seen to be expired, it stays so


WITHOUT_EXTRA = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "faiss", "onnxruntime", "tokenizers"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
from langchain_core.language_models import FakeListChatModel
from langchain_headstay import CacheAwareChatModel, SemanticCache, cache_aware, cached
import headstay.semantic
print(CacheAwareChatModel(FakeListChatModel(responses=["fine"]), on_break="record").invoke("Hi").content)
print(cache_aware(FakeListChatModel(responses=["fine"]), on_break="record").invoke("Hi").content)
from headstay.errors import ConfigError
try:
    SemanticCache()
except ConfigError as problem:
    print(problem)
"""


def test_without_the_extra_everything_else_works() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRA], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["fine", "fine"]
    assert 'pip install "headstay[semantic]"' in done.stdout.splitlines()[2]


def test_importing_the_bindings_loads_no_index_and_no_model() -> None:
    code = (
        "import sys, langchain_headstay.semantic_cache, langchain_headstay.cached_chain, langchain_headstay.model\n"
        "print(sorted({'faiss', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_function_as_embedder_works_through_all_of_it(claude: Claude, desk: Emulator) -> None:
    def embed(texts: list[str]) -> Any:
        return [[3.0, 4.0] if "password" in text else [4.0, -3.0] for text in texts]

    cache = SemanticCache(embedder=CallableEmbedder(embed, name="toy"))
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke(RESET)
    assert model.invoke(RESET_TOO).response_metadata["headstay"]["score"] == 1.0
    assert "library" in model.invoke("Where is the library?").text
    assert len(desk.exchanges) == 2


WITHOUT_A_FORM: list[dict[str, Any]] = [
    {"logit_bias": {1: 2, "a": 3}},  # keys that cannot be put in order
    {"extra": {"user": {None: 1, "a": 2}}},
]


@pytest.mark.parametrize("settings", WITHOUT_A_FORM)
async def test_settings_that_have_no_canonical_form_cost_only_the_cache(settings: Any) -> None:
    cache = SemanticCache()
    told = FakeListChatModel(responses=["By the link."])
    for model in (told.model_copy(update={"cache": cache}), CacheAwareChatModel(told, semantic_cache=cache)):
        for _ in range(2):
            assert model.invoke(RESET, **settings).text == "By the link."
            assert (await model.ainvoke(RESET, **settings)).text == "By the link."
            assert "".join(chunk.text for chunk in model.stream(RESET, **settings)) == "By the link."
    assert cache.metrics().misses["internal_error"] > 0


def test_a_request_that_cannot_be_read_is_neither_looked_up_nor_kept(claude: Claude) -> None:
    cache = SemanticCache()
    settings = claude()._get_llm_string(logit_bias={1: 2, "a": 3})
    assert cache.lookup(RESET, settings) is None
    cache.update(RESET, settings, [Generation(text="By the link.")])
    assert cache.lookup(RESET, settings) is None
    assert cache.metrics().misses == {"internal_error": 2}


def test_a_reply_that_cannot_be_written_down_is_not_kept(cache: SemanticCache) -> None:
    def deep(_: object) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(5_000):
            made = {"a": made}
        return made

    cache.update(RESET, "model", [ChatGeneration(message=AIMessage("a", additional_kwargs=deep(0)))])
    odd = AIMessage("a").model_copy(update={"usage_metadata": {"total": 1}})
    cache.update("When do you open?", "model", [ChatGeneration(message=odd)])
    assert cache.metrics().not_stored == {"not_admitted_form": 1}
    assert list(cached(RunnableLambda(deep), cache=cache, query=None).invoke(RESET)) == ["a"]


AFTER_A_FORK = """
import os, signal, threading
from langchain_core.runnables import RunnableLambda
from langchain_headstay import SemanticCache, cached
from langchain_headstay.chain_identity import _lock

cache = SemanticCache()
chain = cached(RunnableLambda(str.upper), cache=cache, query=None, name="desk")
locks = [cache._lock, cache.engine._lock, cache.engine._counts._lock, _lock]
held, done = threading.Event(), threading.Event()

def hold():
    for lock in locks:
        lock.__enter__()
    held.set()
    done.wait()
    for lock in locks:
        lock.__exit__()

threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    cached(RunnableLambda(str.upper), cache=cache, query=None).invoke("When do you open?")
    cache.lookup("When do you open?", "model")
    os._exit(7 if chain.invoke("When do you open?") == "WHEN DO YOU OPEN?" else 8)
status = os.waitpid(child, 0)[1]
done.set()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_fork_while_another_thread_is_in_the_cache_is_no_deadlock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AFTER_A_FORK], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "7\n", done.stderr
