"""No head text and no note of ours appears in traces, callbacks, streams or logs."""

import asyncio
import json
import logging
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tracers.base import BaseTracer
from langchain_core.tracers.schemas import Run
from langgraph.graph import START, MessagesState, StateGraph

from headstay import Ledger, Slot
from headstay.emulator import Emulator
from langchain_headstay import cache_aware

Chat = Callable[..., BaseChatModel]
Way = Callable[[Any, Any, Any], Awaitable[str]]

# What only our layout writes: the placeholders of the head and the titles of the blocks of values.
OURS = ("[[customer", "[[clock", "values, this", "headstay")
CUSTOMER = "Ada Lovelace"
SYSTEM = f"You talk to {CUSTOMER}. It is 2026-11-29 10:00:00."


class Tracing(BaseTracer):
    """Keeps the runs as LangSmith would get them."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Run] = []

    def _persist_run(self, run: Run) -> None:
        self.runs.append(run)


class Recording(BaseCallbackHandler):
    """Keeps whatever a callback is given."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_chat_model_start(self, *given: Any, **more: Any) -> None:
        self.seen.append(repr((given, more)))

    def on_llm_new_token(self, *given: Any, **more: Any) -> None:
        self.seen.append(repr((given, more)))

    def on_llm_end(self, *given: Any, **more: Any) -> None:
        self.seen.append(repr((given, more)))


def scrubbed(text: str) -> str:
    """Leave out what is ours by name only: the package in a module path and the class of the wrapper."""
    return text.replace("langchain_headstay", "")


@pytest.mark.filterwarnings("ignore:.*is in beta")  # LangChain's own notice on stream_events(version="v3")
async def test_callbacks_and_traces_show_the_applications_own_messages(
    chat: Chat, aware: Chat, server: Emulator, way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    tracing, recording = Tracing(), Recording()
    slots = [Slot(r"talk to (?P<customer>[\w ]+)\.", every="conversation")]
    model = aware(chat(), on_break="warn", volatile=slots, template=None, tail="Retrieved: a document")
    with caplog.at_level(logging.DEBUG):
        await way(model, [SystemMessage(SYSTEM), HumanMessage("Hi")], {"callbacks": [tracing, recording]})
        async with asyncio.timeout(5):  # astream_events(version="v3") calls back in a task of its own
            while not tracing.runs:
                await asyncio.sleep(0.001)
    # On the wire it is ours ...
    (sent,) = server.exchanges
    assert "[[customer]]" in json.dumps(sent.body)
    # ... and nowhere else. The emulated model repeats what it is told, which is not a trace of ours.
    replied = json.dumps(sent.response)
    for shown in (*recording.seen[:1], json.dumps([run.inputs for run in tracing.runs], default=repr)):
        assert SYSTEM in shown
        assert [mark for mark in (*OURS, "Retrieved: a document") if mark in scrubbed(shown)] == []
    (run,) = tracing.runs
    about = json.dumps([run.serialized, run.extra, run.tags, run.name], default=repr)
    assert [mark for mark in (*OURS, CUSTOMER, "Retrieved") if mark in scrubbed(about)] == []
    for shown in recording.seen[1:]:
        assert [mark for mark in OURS if mark in scrubbed(shown) and mark not in replied] == []
    # Logs of the SDKs at debug level show the request they send; ours show neither head nor value.
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("headstay")]
    assert [line for line in ours if CUSTOMER in line or "You talk" in line or "Retrieved" in line] == []


def test_a_break_is_logged_once_with_its_remedy(
    chat: Chat, policy: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    model = cache_aware(chat(), volatile=None, ledger=ledger)
    with caplog.at_level(logging.WARNING, "headstay"):
        for minute in range(3):
            model.invoke([SystemMessage(f"It is 2026-11-29 10:{minute:02}:00.\n{policy}"), HumanMessage("Hi")])
    (line,) = {record.getMessage() for record in caplog.records}
    assert "clock_in_head" in line
    assert "Slot(" in line
    assert "Rule 3" not in line
    assert len(caplog.records) == 1


@pytest.mark.parametrize("mode", ["values", "updates", "messages", "debug"])
def test_no_stream_mode_of_a_graph_shows_it(chat: Chat, aware: Chat, mode: Any) -> None:
    # A per-conversation value only: the emulated model repeats notes at the human turn.
    slots = [Slot(r"talk to (?P<customer>[\w ]+)\.", every="conversation")]
    model = aware(chat(), volatile=slots)
    graph = StateGraph(MessagesState)
    system = SystemMessage(f"You talk to {CUSTOMER}.")
    graph.add_node("model", lambda state: {"messages": [model.invoke([system, *state["messages"]])]})
    graph.add_edge(START, "model")
    given: Any = {"messages": [HumanMessage("Hi")]}
    shown = repr(list(graph.compile().stream(given, stream_mode=mode)))
    assert "Hi" in shown
    assert [mark for mark in (*OURS, CUSTOMER) if mark in scrubbed(shown)] == []


def test_the_answer_carries_nothing_of_ours(chat: Chat, aware: Chat) -> None:
    plain = chat().invoke([SystemMessage(SYSTEM), HumanMessage("Hi")])
    ours = aware(chat(), volatile=None).invoke([SystemMessage(SYSTEM), HumanMessage("Hi")])
    assert ours.text == plain.text
    assert ours.response_metadata.keys() == plain.response_metadata.keys()
    assert ours.additional_kwargs.keys() == plain.additional_kwargs.keys()


def test_neither_repr_nor_serialised_form_shows_the_template(chat: Chat, aware: Chat) -> None:
    model = aware(chat(), template="The hushed policy of {name}", tail="a hushed document")
    assert "hushed" not in repr(model)
    assert "hushed" not in str(model)
    assert "hushed" not in json.dumps(model.to_json(), default=repr)
    assert "hushed" not in json.dumps(model._serialized, default=repr)


def test_what_is_kept_holds_no_value_and_no_message(chat: Chat, aware: Chat, ledger: Ledger, policy: str) -> None:
    slots = [Slot(r"talk to (?P<customer>[\w ]+)\.", every="conversation")]
    model = aware(chat(), volatile=slots, ledger=ledger)
    for who in (CUSTOMER, "Grace Hopper"):
        model.invoke([SystemMessage(f"You talk to {who}.\n{policy}"), HumanMessage("What is the answer?")])
    rows = repr(list(ledger.rows()))
    assert [text for text in (CUSTOMER, "Grace", "Rule 3", "the answer") if text in rows] == []
    assert pickle.loads(pickle.dumps(list(ledger.rows()))) == list(ledger.rows())
