"""One head for a lane: over threads, turns, shuffled tools, changing system texts, new objects and new processes."""

import asyncio
import itertools
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.language_models import BaseChatModel
from langchain_core.prompts import ChatPromptTemplate, SystemMessagePromptTemplate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from headstay import HeadStore, Ledger, Slot
from headstay.emulator import Emulator
from langgraph_headstay import StableHeadMiddleware

PROMPT = "It is {clock}. You help {name}; request {rid}.\n"


def values(number: int, name: str = "Ada") -> dict[str, str]:
    return {
        "clock": f"2026-11-29T10:00:{number:02d}Z",
        "name": name,
        "rid": f"00000000-0000-4000-8000-{number:012d}",
    }


async def test_one_head_for_threads_and_turns(
    model: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any, ledger: Ledger
) -> None:
    desk.system = lambda number: PROMPT.format(**values(number)) + policy
    desk.offer = desk.shuffled
    middleware = stable(template=SystemMessagePromptTemplate.from_template(PROMPT + policy))
    agent = create_agent(model, desk.tools(), middleware=[desk.middleware(), middleware], checkpointer=InMemorySaver())
    for turn in range(3):
        for thread in ("one", "two"):
            await run(agent, f"turn {turn}: use alpha", thread)
    # Two calls for each of six turns; calls 0, 1, 4, 5, 8, 9 are of thread one.
    assert len(wires.bodies) == 12
    assert not wires.failed
    assert len({wires.head(number) for number in range(12)}) == 1
    assert "[[clock]]" in wires.head(0)
    assert "[[name]]" in wires.head(0)
    assert wires.tools(0) == ["alpha", "bravo", "charlie"]
    kept = "opus" in str(getattr(model, "model", ""))
    for thread in ([0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]):
        for before, after in itertools.pairwise(thread):
            assert wires.extends(before, after, kept=kept)
    for number, text in enumerate(wires.texts):
        for current in values(number + 1).values():
            assert text.count(current) == 1
        others = sum(values(other)["clock"] in text for other in range(1, 13) if other != number + 1)
        assert others == (0 if not kept else len([call for call in thread_of(number) if call < number]))
    assert desk.ran == ["alpha"] * 6
    assert no_breaks()
    rows = list(ledger.rows())
    assert [row.status for row in rows] == ["cold"] + ["ok"] * 11
    assert len({row.conversation for row in rows}) == 2
    assert len({row.head for row in rows}) == len({row.lane for row in rows}) == 1
    assert {row.name for row in rows} == {"desk"}


def thread_of(number: int) -> list[int]:
    """Return the calls of the thread that a call belongs to."""
    return [call for call in range(12) if call // 2 % 2 == number // 2 % 2]


async def test_a_dynamic_prompt_by_template(
    sonnet: BaseChatModel, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    template = ChatPromptTemplate([("system", PROMPT + policy)])
    numbers = iter(range(1, 10))

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return str(template.invoke(values(next(numbers), request.runtime.context)).to_messages()[0].content)

    middleware = stable(template=template, volatile=Slot("{name}", every="conversation"))
    agent = create_agent(
        sonnet, desk.tools(), middleware=[prompt, middleware], checkpointer=InMemorySaver(), context_schema=str
    )
    for thread in ("Ada", "Bob", "Ada"):
        try:
            await run(agent, "Hello", thread, context=thread)
        except NotImplementedError:
            # `dynamic_prompt` on a plain function serves sync agents only: LangChain says so itself.
            return
    assert len({wires.head(number) for number in range(3)} - {""}) == 2  # one semi-static block for each customer
    systems = [[block["text"] for block in body["system"]] for body in wires.bodies]
    assert len({system[0] for system in systems}) == 1
    assert [system[1] for system in systems] == [
        f"Values for this conversation:\nname: {name}" for name in ("Ada", "Bob", "Ada")
    ]
    assert no_breaks()


def build(base: str, policy: str, folder: Path, model: Any, tools: list[Any]) -> tuple[Any, Any]:
    """Make everything anew, as a process does that starts."""
    connection = sqlite3.connect(folder / "threads.db", check_same_thread=False)
    middleware = StableHeadMiddleware(
        name="desk",
        template=SystemMessagePromptTemplate.from_template(PROMPT + policy),
        head_store=HeadStore(folder / "heads.db"),
        ledger=Ledger(folder / "ledger.db"),
        on_break="record",
    )
    prompt = PROMPT.format(**values(int(base))) + policy
    agent = create_agent(
        model, tools, system_prompt=prompt, middleware=[middleware], checkpointer=SqliteSaver(connection)
    )
    return agent, connection


async def test_new_objects_on_the_same_files(
    make_model: Callable[..., BaseChatModel], desk: Any, wires: Any, policy: str, tmp_path: Path
) -> None:
    for number in range(1, 5):
        order = ("alpha", "bravo", "charlie") if number % 2 else ("charlie", "bravo", "alpha")
        agent, connection = build(str(number), policy, tmp_path, make_model("claude-opus-5-5"), desk.tools(*order))
        with closing(connection):
            agent.invoke(
                {"messages": [{"role": "user", "content": "use alpha"}]}, {"configurable": {"thread_id": "one"}}
            )
    assert not wires.failed
    assert len({wires.head(number) for number in range(8)}) == 1
    for number in range(7):
        assert wires.extends(number, number + 1, kept=True)
    assert "drop_block" not in wires.texts[-1]
    with Ledger(tmp_path / "ledger.db") as ledger:
        rows = list(ledger.rows())
        assert [row.breaks for row in rows] == [()] * 8
        assert len({row.conversation for row in rows}) == 1
        assert [row.status for row in rows] == ["cold"] + ["ok"] * 7


_CHILD = """
import json, sqlite3, sys
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from headstay import HeadStore, Ledger
from langgraph_headstay import StableHeadMiddleware

folder, url, number, policy, order = json.loads(sys.stdin.read())

def make(name):
    @tool(name, description=f"The tool {name}.")
    def body(x: int) -> str:
        return f"{name} gave {x}"
    return body

agent = create_agent(
    ChatAnthropic(model="claude-opus-5-5", api_key="key-a", base_url=url, max_retries=0, max_tokens=4000),
    [make(name) for name in order],
    system_prompt=f"It is 2026-11-29T10:00:{number:02d}Z.\\n{policy}",
    middleware=[StableHeadMiddleware(name="desk", head_store=HeadStore(folder + "/heads.db"), on_break="raise")],
    checkpointer=SqliteSaver(sqlite3.connect(folder + "/threads.db", check_same_thread=False)),
)
agent.invoke({"messages": [{"role": "user", "content": "use alpha"}]}, {"configurable": {"thread_id": "one"}})
"""


async def test_another_process_on_the_same_files(server: Emulator, wires: Any, policy: str, tmp_path: Path) -> None:
    for number, (seed, order) in enumerate([("1", ["alpha", "bravo"]), ("2", ["bravo", "alpha"])]):
        child = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", _CHILD],
            input=json.dumps([str(tmp_path), server.base_url, number, policy, order]),
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert child.returncode == 0, child.stderr
    assert not wires.failed
    assert len({wires.head(number) for number in range(4)}) == 1
    for number in range(3):
        assert wires.extends(number, number + 1, kept=True)
    reads = [exchange.response["usage"]["cache_read_input_tokens"] for exchange in server.exchanges]
    assert reads[0] == 0
    assert all(read > 1_000 for read in reads[1:])  # the policy alone is about 1,900 tokens
