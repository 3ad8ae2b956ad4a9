"""What others see: no head, no note and no placeholder in streams, traces, logs or checkpoints."""

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.prompts import SystemMessagePromptTemplate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

MODES = ["values", "updates", "messages", "debug", "custom", "tasks", "checkpoints"]
CONFIG = {"configurable": {"thread_id": "one"}}
OURS = ("[[clock]]", "[[name]]", "Values for", "Found: page 11", "input: Hi there", "Remember the house rule")


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


@pytest.fixture
def agent(desk: Any, stable: Any, policy: str) -> Any:
    """Make an agent with everything that we put into a request: placeholders, values, notes, examples, a tail."""
    text = "Remember the house rule. It is {clock}. You help {name}.\n" + policy

    def make(model: Any, **settings: Any) -> Any:
        desk.system = lambda number: text.format(clock=clock(number), name="Ada")
        desk.offer = lambda number, tools: tools if number == 1 else tools[:2]
        middleware = stable(
            template=SystemMessagePromptTemplate.from_template(text),
            few_shot=[{"input": "Hi there", "output": "Hello"}],
            tail="Found: page 11",
            on_break="warn",
        )
        saver = settings.pop("checkpointer", None) or InMemorySaver()
        return create_agent(model, desk.tools(), middleware=[desk.middleware(), middleware], checkpointer=saver)

    return make


def shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


@pytest.mark.parametrize("mode", [*MODES, MODES])
async def test_no_stream_shows_what_we_put_in(model: Any, agent: Any, wires: Any, mode: Any) -> None:
    running = agent(model)
    for _ in range(2):
        parts = [
            shown(part) for part in running.stream({"messages": [("user", "use alpha")]}, CONFIG, stream_mode=mode)
        ]
    parts += [shown(part) async for part in running.astream({"messages": [("user", "Hi")]}, CONFIG, stream_mode=mode)]
    assert not wires.failed
    for text in OURS:
        assert any(text in sent for sent in wires.texts)  # it is there, on the wire
        assert not any(text in part for part in parts)
    assert not any(clock(number) in part for part in parts for number in range(1, 9))


async def test_no_event_shows_a_note_or_a_placeholder(model: Any, agent: Any, caplog: Any) -> None:
    """Traces show what the application's model call got: its own system text and examples, nothing that we made."""

    class Trace(BaseCallbackHandler):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def __getattribute__(self, name: str) -> Any:
            if name.startswith("on_"):
                return lambda *args, **kwargs: self.seen.append(shown((args, kwargs)))
            return super().__getattribute__(name)

    running, trace = agent(model), Trace()
    caplog.set_level(logging.DEBUG, logger="headstay")
    for _ in range(2):
        running.invoke({"messages": [("user", "use alpha charlie")]}, {**CONFIG, "callbacks": [trace]})
    events = [
        shown(event) async for event in running.astream_events({"messages": [("user", "Hi")]}, CONFIG, version="v2")
    ]
    assert trace.seen
    assert events
    for text in ("[[clock]]", "[[name]]", "Values for", "Found: page 11"):
        assert not any(text in event for event in [*trace.seen, *events])
        assert text not in caplog.text
    assert "house rule" not in caplog.text


async def test_the_state_holds_the_applications_messages_only(model: Any, agent: Any) -> None:
    running = agent(model)
    for _ in range(3):
        running.invoke({"messages": [("user", "use alpha charlie")]}, CONFIG)
    for state in running.get_state_history(CONFIG):
        assert set(state.values) <= {"messages"}
        for message in state.values.get("messages", ()):
            own = message.response_metadata.get("headstay")
            assert own is None or set(own) <= {"note", "mac", "masked"}
            text = shown(message.model_dump())
            assert not any(ours in text for ours in OURS)


REPLY = "say " + "Your parcel left the warehouse this morning and should be with you within three days. " * 6


async def test_checkpoints_grow_as_without_us(
    claude: Any, desk: Any, stable: Any, policy: str, tmp_path: Path, wires: Any
) -> None:
    """30 turns of realistic replies, each with a receipt: within 5% of the same agent without the middleware."""
    sizes: list[int] = []
    for name, middleware in (("bare", []), ("ours", [stable(on_break="raise")])):
        desk.calls = 0
        # The bare agent may not change its system text: this model would refuse the next turn.
        desk.system = lambda number, name=name: f"It is {clock(number if name == 'ours' else 1)}.\n{policy}"
        with closing(sqlite3.connect(tmp_path / f"{name}.db", check_same_thread=False)) as connection:
            saver = SqliteSaver(connection)
            agent = create_agent(claude, desk.tools(), middleware=[desk.middleware(), *middleware], checkpointer=saver)
            for number in range(30):
                agent.invoke({"messages": [("user", f"{number}: use alpha then {REPLY}")]}, CONFIG)
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            columns = {
                table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")] for (table,) in tables
            }
            sizes.append(
                sum(
                    connection.execute(f"SELECT coalesce(sum(length({column})), 0) FROM {table}").fetchone()[0]
                    for table, names in columns.items()
                    for column in names
                )
            )
    bare, ours = sizes
    assert not wires.failed
    assert bare < ours <= bare * 1.05
