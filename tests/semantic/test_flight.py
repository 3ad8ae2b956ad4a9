"""Of identical questions that are under way together, one asks the model."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from headstay.emulator import Emulator
from headstay.semantic.answer import Answer
from headstay.semantic.cache import Cache
from headstay.semantic.control import caching
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn
from headstay.semantic.sqlite_store import SQLiteStore
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached

Claude = Callable[..., BaseChatModel]

RESET = "How do I reset my password?"


@pytest.fixture
def model(claude: Claude, cache: SemanticCache) -> CacheAwareChatModel:
    return CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")


def in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    ready = threading.Barrier(count)

    def run(_: int) -> Any:
        ready.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def streamed(model: BaseChatModel) -> str:
    return "".join(chunk.text for chunk in model.stream(RESET))


@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_sixteen_threads_send_one_request(
    way: str, model: CacheAwareChatModel, cache: SemanticCache, desk: Emulator
) -> None:
    answers = in_threads(16, (lambda: model.invoke(RESET).text) if way == "invoke" else (lambda: streamed(model)))
    assert len(set(answers)) == 1
    assert RESET in answers[0]
    assert len(desk.exchanges) == 1
    counted = cache.metrics()
    # Each question counts once, however often it was looked for.
    assert counted.lookups == 16
    assert counted.hits == {"exact": 15}
    assert counted.misses == {"nothing_stored": 1}


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_fifty_tasks_send_one_request(
    way: str, model: CacheAwareChatModel, cache: SemanticCache, desk: Emulator
) -> None:
    async def ask() -> str:
        if way == "ainvoke":
            return str((await model.ainvoke(RESET)).text)
        return "".join([chunk.text async for chunk in model.astream(RESET)])

    answers = await asyncio.gather(*(ask() for _ in range(50)))
    assert len(set(answers)) == 1
    assert len(desk.exchanges) == 1
    assert cache.metrics().lookups == 50
    assert cache.metrics().hits == {"exact": 49}


def test_a_chain_runs_once(cache: SemanticCache) -> None:
    runs: list[str] = []

    def answer(question: str) -> str:
        runs.append(question)
        time.sleep(0.01)
        return f"This is the answer to {question}"

    chain = cached(RunnableLambda(answer), cache=cache, query=None)
    assert len(set(in_threads(16, lambda: chain.invoke(RESET)))) == 1
    assert runs == [RESET]
    assert cache.metrics().lookups == 16


class Door:
    """Lets nobody through before it is opened, and counts who came."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self.opened = threading.Event()

    def __call__(self, question: str) -> str:
        self.came.append(len(self.came))
        turn = self.came[-1]
        assert self.opened.wait(10)
        if turn == 0:
            raise RuntimeError("the first one fails")
        return f"This is the answer to {question}"

    def wait_for(self, count: int) -> None:
        for _ in range(5_000):
            if len(self.came) >= count:
                return
            time.sleep(0.001)
        raise AssertionError(f"only {len(self.came)} came")


def test_when_the_leader_fails_one_of_the_others_asks(cache: SemanticCache) -> None:
    door = Door()
    chain = cached(RunnableLambda(door), cache=cache, query=None, name="door")

    def ask() -> str:
        try:
            return str(chain.invoke(RESET))
        except RuntimeError:
            return "failed"

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask)
        door.wait_for(1)
        others = [pool.submit(ask) for _ in range(7)]
        time.sleep(0.05)
        assert door.came == [0]
        door.opened.set()
        answers = [one.result(10) for one in (first, *others)]
    assert answers == ["failed", *[f"This is the answer to {RESET}"] * 7]
    assert door.came == [0, 1]


def test_when_the_leader_hangs_the_others_go_on_after_the_deadline() -> None:
    cache = SemanticCache(flight=0.1)
    door = Door()
    leader = cached(RunnableLambda(door), cache=cache, query=None, name="door")
    others = cached(RunnableLambda(lambda question: f"Answered {question}"), cache=cache, query=None, name="door")
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(leader.invoke, RESET)
        door.wait_for(1)
        start = time.monotonic()
        assert set(in_threads(4, lambda: others.invoke(RESET))) == {f"Answered {RESET}"}
        assert 0.05 < time.monotonic() - start < 5
        door.opened.set()
        with pytest.raises(RuntimeError):
            hanging.result(10)


def test_nobody_waits_twice_for_an_answer_that_is_not_kept(cache: SemanticCache) -> None:
    """After a reply that may not be kept the others ask together, not one after the other."""
    together = threading.Barrier(5)
    first = threading.Event()

    def answer(question: str) -> AIMessage:
        if not first.is_set():
            first.set()
            time.sleep(0.05)
        else:
            together.wait(10)  # breaks unless all five are here at once
        return AIMessage(f"This was cut: {question}", response_metadata={"finish_reason": "length"})

    chain = cached(RunnableLambda(answer), cache=cache, query=None)
    with ThreadPoolExecutor(6) as pool:
        leader = pool.submit(chain.invoke, RESET)
        assert first.wait(10)
        others = [pool.submit(chain.invoke, RESET) for _ in range(5)]
        assert all(one.result(10) for one in (leader, *others))
    assert cache.metrics().not_stored == {"not_admitted_truncated": 6}


def test_without_a_flight_nobody_waits(claude: Claude, desk: Emulator) -> None:
    cache = SemanticCache(flight=0)
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    desk.hold(2)  # answers only once both are there
    assert len(set(in_threads(2, lambda: model.invoke(RESET).text))) == 1
    assert len(desk.exchanges) == 2


@pytest.mark.parametrize("mode", ["bypass", "refresh", "no_store"])
def test_a_call_that_keeps_nothing_for_others_is_not_waited_for(
    mode: Any, model: CacheAwareChatModel, desk: Emulator
) -> None:
    desk.hold(2)

    def ask() -> str:
        with caching(mode):
            return model.invoke(RESET).text

    in_threads(2, ask)
    assert len(desk.exchanges) == 2


def test_a_dry_run_makes_nobody_wait(claude: Claude, desk: Emulator) -> None:
    model = CacheAwareChatModel(claude(), semantic_cache=SemanticCache(dry_run=True), on_break="record")
    desk.hold(2)
    in_threads(2, lambda: model.invoke(RESET).text)
    assert len(desk.exchanges) == 2


async def test_a_cancelled_look_gives_its_claim_back() -> None:
    engine = Cache(flight=60)
    request = AskedRequest((Turn("user", RESET),))
    looking = threading.Event()

    def slow() -> Any:
        lookup = engine.look_up(request, count=False)
        looking.set()
        time.sleep(0.05)
        return lookup

    task = asyncio.create_task(engine.ajoin(slow))
    await asyncio.to_thread(looking.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10):
        while True:
            lookup, flight = await engine.ajoin(lambda: engine.look_up(request, count=False))
            assert lookup.entry is None
            if flight is not None and flight.leads:
                flight.land()
                return


async def test_who_waited_in_vain_is_told_so() -> None:
    with SQLiteStore() as store:
        engine = Cache(store, flight=0.02, now=lambda: 1_000.0)
        request = AskedRequest((Turn("user", RESET),))

        def look() -> Any:
            return engine.look_up(request, count=False)

        assert store.lease(look().exact, "another call", 1_000.0, 60)
        for lookup, flight in (engine.join(look), await engine.ajoin(look)):
            assert (lookup.reason, flight) == (Reason.LEASE_LOST, None)
        assert engine.metrics().misses == {"lease_lost": 2}


class Busy(SQLiteStore):
    """Takes its time to note a use, as while another thread rewrites the file."""

    def __init__(self) -> None:
        super().__init__()
        self.noted_in: list[int] = []

    def touch(self, entry_id: str, now: float) -> None:
        self.noted_in.append(threading.get_ident())
        super().touch(entry_id, now)


async def test_the_event_loop_never_waits_for_the_store() -> None:
    store = Busy()
    chain = cached(RunnableLambda(str.upper), cache=SemanticCache(store), query=None, name="desk")
    assert await chain.ainvoke(RESET) == await chain.ainvoke(RESET)
    assert len(store.noted_in) == 1
    assert threading.get_ident() not in store.noted_in


ASK_IN_A_PROCESS = """
import sys, time
from pathlib import Path
from langchain_core.runnables import RunnableLambda
from langchain_headstay import SemanticCache, cached

file, runs = sys.argv[1:]

def answer(question):
    with Path(runs).open("a") as log:
        log.write("asked\\n")
    time.sleep(0.2)
    return "This is the answer to " + question

with SemanticCache(file) as cache:
    chain = cached(RunnableLambda(answer), cache=cache, query=None, name="desk")
    print("ready", flush=True)
    sys.stdin.readline()
    print(chain.invoke("How do I reset my password?"), flush=True)
"""


def test_two_processes_send_one_request(tmp_path: Path) -> None:
    file, runs = tmp_path / "answers.db", tmp_path / "runs"
    SQLiteStore(file).close()
    command = [sys.executable, "-c", ASK_IN_A_PROCESS, str(file), str(runs)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as one, subprocess.Popen(command, **pipes) as other:
        for process in (one, other):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (one, other):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = {process.communicate(timeout=60)[0] for process in (one, other)}
    assert said == {f"This is the answer to {RESET}\n"}
    assert runs.read_text() == "asked\n"


def test_an_answer_that_came_between_look_and_claim_is_found() -> None:
    engine = Cache()
    request = AskedRequest((Turn("user", RESET),))
    answer = Answer("In the settings.")
    looks: list[Any] = []

    def ask() -> Any:
        lookup = engine.look_up(request, count=False)
        if not looks:  # another call is done just now
            engine.admit(engine.look_up(request, count=False), answer)
        looks.append(lookup)
        return lookup

    lookup, flight = engine.join(ask)
    assert lookup.answer == answer
    assert flight is None
    assert len(looks) == 2
    assert engine.metrics().lookups == 1
