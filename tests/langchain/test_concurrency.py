"""Many calls at once on one model: counts are right, and each conversation reads what it wrote."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator

Chat = Callable[..., BaseChatModel]
Talk = Callable[..., list[BaseMessage]]

TURNS = 3


@pytest.fixture
def server(quiet_server: Emulator) -> Emulator:
    quiet_server.reset()
    return quiet_server


@pytest.fixture
def chat(chat: Chat) -> Chat:
    """Let the SDK try again: on a busy machine an idle connection may be closed just as it is used."""
    return lambda **settings: chat(**{"max_retries": 5, **settings})


def system(policy: str, who: int, turn: int) -> str:
    return f"It is 2026-11-29 {who % 24:02}:{turn:02}:{who:02}.\n{policy}"


def check(server: Emulator, ledger: Ledger, calls: int, heads: list[str]) -> None:
    """Every call left one row and one request; one head; from the second turn on everything is read."""
    rows = list(ledger.rows())
    assert len(rows) == len(server.exchanges) == calls
    assert [exchange.status for exchange in server.exchanges] == [200] * calls
    assert len(set(heads)) == 1
    assert all(row.unverified is None and row.breaks == () for row in rows)
    # Rows and answers agree in sum, whatever the order in which they came.
    assert sum(row.input_tokens or 0 for row in rows) == sum(
        _input(exchange.response["usage"]) for exchange in server.exchanges
    )
    by_conversation = Counter(row.conversation for row in rows)
    assert set(by_conversation.values()) == {TURNS}
    seen: Counter[str] = Counter()
    for row in sorted(rows, key=lambda row: row.ts):
        seen[row.conversation] += 1
        if seen[row.conversation] > 1:
            assert row.status == "ok", row
        else:
            assert row.status in ("cold", "ok"), row


def _input(usage: dict[str, int]) -> int:
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"]
    return usage["input_tokens"] + usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)


@pytest.mark.parametrize("stores", ["memory", "files"])
def test_sixteen_threads_on_one_model(
    chat: Chat,
    aware: Chat,
    server: Emulator,
    ledger: Ledger,
    policy: str,
    talk: Talk,
    heads: Callable[[], list[str]],
    stores: str,
    tmp_path: Path,
) -> None:
    if stores == "files":
        ledger, head_store = Ledger(tmp_path / "ledger.db"), HeadStore(tmp_path / "heads.db")
    else:
        head_store = HeadStore()
    model = aware(chat(), ledger=ledger, head_store=head_store)

    def converse(who: int) -> None:
        history: list[BaseMessage] = []
        for turn in range(TURNS):
            talk(model, system(policy, who, turn), history, f"question {turn} of {who}")

    converse(16)  # the head is written once before the crowd comes
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(converse, range(16)))
    check(server, ledger, 17 * TURNS, heads())
    ledger.close()


async def test_fifty_tasks_on_one_model(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)

    async def converse(who: int) -> None:
        history: list[BaseMessage] = []
        for turn in range(TURNS):
            history.append(HumanMessage(f"question {turn} of {who}"))
            given = [SystemMessage(system(policy, who, turn)), *history]
            if who % 2:
                history.append(await model.ainvoke(given))
            else:
                history.append(AIMessage("".join([chunk.text async for chunk in model.astream(given)])))

    await converse(50)
    await asyncio.gather(*(converse(who) for who in range(50)))
    check(server, ledger, 51 * TURNS, heads())
    # Nobody's clock stands in another's request.
    for exchange in server.exchanges:
        sent = json.dumps(exchange.body)
        assert sent.count("2026-11-29 ") == 1


async def test_a_cold_fan_out_is_told_from_a_lost_cache(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str
) -> None:
    model = aware(chat(), ledger=ledger)
    server.hold(4)  # no answer begins before all four requests are there
    await asyncio.gather(
        *(model.ainvoke([SystemMessage(policy), HumanMessage(f"question of {who}")]) for who in range(4))
    )
    rows = list(ledger.rows())
    assert [row.cache_read_tokens for row in rows] == [0] * 4
    assert Counter((row.status, row.cause) for row in rows) <= Counter(
        {("cold", None): 1, ("cold", "cold_fan_out"): 3, ("short", "cold_fan_out"): 3}
    )


def test_a_batch_with_bounded_concurrency(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    prompts = [[SystemMessage(policy), HumanMessage(f"question of {who}")] for who in range(12)]
    assert all(reply.text for reply in model.batch(list(prompts), {"max_concurrency": 1}))
    assert len(set(heads())) == 1
    assert [row.status for row in ledger.rows()] == ["cold"] + ["ok"] * 11
