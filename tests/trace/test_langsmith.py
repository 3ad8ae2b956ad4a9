"""LangSmith runs: what the tracer really posts, what is exported, and the bodies that are rebuilt from it."""

import copy
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_core.tracers.langchain import LangChainTracer
from langchain_openai import ChatOpenAI
from langsmith import Client
from langsmith.schemas import Run
from pydantic import SecretStr
from tests.trace.conftest import JSON, constructor, messages_of, run_of

import headstay
from headstay import emulator
from headstay.errors import WireError
from headstay.ledger.usage import Usage
from headstay.trace import langsmith
from headstay.trace.entry import Entry, Skipped

RUNS = [
    json.loads(line)
    for line in (Path(__file__).parent / "logs" / "langsmith_runs.jsonl").read_text(encoding="utf-8").splitlines()
]
KEY = SecretStr("k")
HELP_DESK = "You are a help desk. Be brief. Be brief. Be brief. Be brief. Be brief. "
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def read(record: Mapping[str, Any], line: int = 1) -> list[Entry | Skipped]:
    found = langsmith.entries(record, line)
    assert found is not None
    return list(found)


def entry(record: Mapping[str, Any]) -> Entry:
    (found,) = read(record)
    assert isinstance(found, Entry), found
    return found


def skipped(record: Mapping[str, Any]) -> Skipped:
    (found,) = read(record)
    assert isinstance(found, Skipped), found
    return found


# --- what the tracer posts, against what the provider received


@contextmanager
def langsmith_server(posted: list[tuple[str, Any]]) -> Iterator[str]:
    """A server that keeps the runs that a tracer posts."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(b"{}")

        def do_POST(self) -> None:
            posted.append((self.command, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            self.answer(b"{}")

        do_PATCH = do_POST

        def answer(self, body: bytes) -> None:
            self.send_response(202)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def anthropic_model(server: emulator.Emulator) -> ChatAnthropic:
    return ChatAnthropic(model_name="claude-sonnet-5", base_url=server.base_url, api_key=KEY, timeout=None, stop=None)


def chat_model(server: emulator.Emulator) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-5.1", base_url=server.openai_url, api_key=KEY, max_retries=0, stream_usage=True)


def responses_model(server: emulator.Emulator) -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-5.1", base_url=server.openai_url, api_key=KEY, max_retries=0, output_version="responses/v1"
    )


MODELS: Mapping[str, Callable[[emulator.Emulator], ChatAnthropic | ChatOpenAI]] = {
    "anthropic-messages": anthropic_model,
    "openai-chat": chat_model,
    "openai-responses": responses_model,
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("wire", MODELS)
def test_the_body_is_rebuilt_as_it_was_sent(wire: str, stream: bool) -> None:
    posted: list[tuple[str, Any]] = []
    with emulator.serve() as server, langsmith_server(posted) as url:
        with closing(Client(api_url=url, api_key="k", auto_batch_tracing=False)) as client:
            tracer = LangChainTracer(client=client)
            config: RunnableConfig = {"callbacks": [tracer], "metadata": {"thread_id": "t1"}}
            model = MODELS[wire](server).bind_tools([get_weather])
            head: str | list[str | dict[Any, Any]] = "You are a help desk."
            if wire == "anthropic-messages":
                head = [{"type": "text", "text": "You are a help desk.", "cache_control": {"type": "ephemeral"}}]
            messages: list[Any] = [SystemMessage(head), HumanMessage("What is the weather in Rome?")]
            for question in ("Thanks, and tomorrow?", ""):
                reply = _asked(model, messages, config, stream)
                messages.append(reply)
                messages += [ToolMessage("sunny", tool_call_id=call["id"]) for call in reply.tool_calls]
                if reply.tool_calls:
                    messages.append(_asked(model, messages, config, stream))
                messages.append(HumanMessage(question))
            tracer.wait_for_futures()
        sent = [dict(exchange.body) for exchange in server.exchanges]
    batch = {
        "post": [run for verb, run in posted if verb == "POST"],
        "patch": [run for verb, run in posted if verb == "PATCH"],
    }
    found = sorted((one for one in read(batch) if isinstance(one, Entry)), key=lambda one: one.started or 0)
    assert len(found) == len(sent) == 3
    for number, (rebuilt, body) in enumerate(zip(found, sent, strict=True)):
        assert (rebuilt.wire, rebuilt.exact, rebuilt.conversation) == (wire, False, "t1"), number
        for field in ("model", "system", "messages", "input", "tools"):
            # Written out: not even the order of the keys differs.
            assert json.dumps(rebuilt.body.get(field)) == json.dumps(body.get(field)), field
        assert rebuilt.usage is not None
        assert rebuilt.usage.input_tokens > 0
        assert rebuilt.started is not None
        assert rebuilt.answered is not None
        assert rebuilt.started <= rebuilt.answered
        assert headstay.diff(body, rebuilt.body).lost_tokens == 0
    # What a reply says stands in the next request.
    for before, after in itertools.pairwise(found):
        assert before.reply
        assert all(json.dumps(text)[1:-1] in json.dumps(after.body) for text in before.reply)


def _asked(model: Any, messages: list[Any], config: RunnableConfig, stream: bool) -> AIMessage:
    if not stream:
        answer = model.invoke(messages, config)
        assert isinstance(answer, AIMessage)
        return answer
    reply = None
    for chunk in model.stream(messages, config):
        reply = chunk if reply is None else reply + chunk
    assert isinstance(reply, AIMessage)
    return reply


# --- recorded runs

RECORDED = [
    # line, wire, conversation, reply id, input tokens, output tokens, exact
    (1, "anthropic-messages", "t1", "msg_000000000001", 100, 18, False),
    (2, "anthropic-messages", "t1", "msg_000000000002", 119, 5, False),
    (3, "anthropic-messages", "t1", "msg_000000000003", 129, 12, False),
    (4, "anthropic-messages", "t1", "", 100, 29, False),
    (5, "anthropic-messages", "t1", "msg_000000000005", 130, 16, False),
    (6, "anthropic-messages", "t1", "msg_000000000006", 129, 21, False),
    (7, "openai-chat", "t1", "chatcmpl-000000000001", 90, 18, False),
    (9, "openai-chat", "t1", "chatcmpl-000000000003", 185, 12, False),
    (10, "openai-chat", "", "", 90, 18, False),
    (13, "openai-responses", "t1", "resp_000000000001", 98, 18, False),
    (15, "openai-responses", "t1", "resp_000000000003", 151, 12, False),
    (16, "openai-responses", "t1", "resp_000000000004", 98, 18, False),
    (22, "anthropic-messages", "t1", "msg_000000000007", 4, 8, False),
    (23, "openai-chat", "s1", "chatcmpl-000000000007", 65, 8, True),
    (25, "openai-responses", "", "resp_000000000007", 55, 8, True),
    (27, "anthropic-messages", "", "msg_000000000008", 44, 8, True),
]


@pytest.mark.parametrize(("line", "wire", "conversation", "reply_id", "read_in", "written_out", "exact"), RECORDED)
def test_recorded_runs(
    line: int, wire: str, conversation: str, reply_id: str, read_in: int, written_out: int, exact: bool
) -> None:
    found = entry(RUNS[line - 1])
    assert (found.wire, found.conversation, found.reply_id, found.exact) == (wire, conversation, reply_id, exact)
    assert found.usage == Usage(input_tokens=read_in, output_tokens=written_out)
    assert found.account == "demo"


def test_the_first_anthropic_run_in_full() -> None:
    found = entry(RUNS[0])
    body = dict(found.body)
    assert body.pop("max_tokens") == 64000
    assert body == {
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": HELP_DESK, "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "tools": [
            {
                "name": "get_weather",
                "input_schema": {"properties": {"city": {"type": "string"}}, "required": ["city"], "type": "object"},
                "description": "Weather of a city.",
            }
        ],
    }
    assert found.provider == "anthropic"
    assert found.reply == ("toolu_000000000001",)
    assert found.started == pytest.approx(1795985006.467501)
    assert found.answered == pytest.approx(1795985006.519288)


def test_a_stream_is_answered_with_its_first_token_and_keeps_its_thinking() -> None:
    found = entry(RUNS[3])
    assert found.answered == pytest.approx(1795985006.607341)
    thinking, call = messages_of(entry(RUNS[4]))[1]["content"]
    assert thinking["type"] == "thinking"
    assert set(thinking) == {"type", "thinking", "signature"}
    assert call == {
        "type": "tool_use",
        "name": "get_weather",
        "input": {"city": "What is the weather in Rome?"},
        "id": "toolu_000000000002",
    }
    assert entry(RUNS[4]).body["thinking"] == {"type": "enabled", "budget_tokens": 1024}


def test_the_system_text_of_a_wrapped_client_goes_back_to_its_field() -> None:
    assert entry(RUNS[26]).body == {
        "max_tokens": 50,
        "model": "claude-sonnet-4-5",
        "system": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {}}}],
    }


def test_what_is_no_model_call_or_failed_is_passed_over() -> None:
    reasons = {line: skipped(RUNS[line - 1]) for line in (19, 20, 21)}
    assert not any(one.bad for one in reasons.values())
    assert "failed" in reasons[19].reason
    assert reasons[20].reason == reasons[21].reason == "a LangSmith run that is no model call"
    assert len([one for run in RUNS for one in read(run) if isinstance(one, Entry)]) == len(RUNS) - 3


# --- forms of export


def same(one: Entry, other: Entry) -> bool:
    names = ("wire", "body", "conversation", "usage", "reply_id", "reply", "started", "answered", "provider")
    return all(getattr(one, name) == getattr(other, name) for name in names)


@pytest.mark.parametrize("number", [0, 3, 8, 14, 22, 26])
def test_list_runs_exports_give_the_same(number: int) -> None:
    run = {key: value for key, value in RUNS[number].items() if key != "session_name"}
    project = "7b1f0f0e-3c52-4b7f-9a57-2f5b7f4c1a11"
    exported = json.loads(Run(**run, session_id=project, app_path="/o/p/r").model_dump_json())
    found = entry(exported)
    assert same(found, entry(RUNS[number]))
    assert found.account == project


@pytest.mark.parametrize("number", [0, 3, 8, 14, 22, 26])
def test_bulk_rows_hold_json_texts(number: int) -> None:
    row = dict(RUNS[number])
    for column in ("inputs", "outputs", "extra", "events"):
        row[column] = json.dumps(row[column])
    assert same(entry(row), entry(RUNS[number]))


def test_children_are_read_with_their_run() -> None:
    chain = {**RUNS[19], "child_runs": [RUNS[20], {**RUNS[21], "child_runs": None}]}
    first, second, third = read(chain, 7)
    assert isinstance(first, Skipped)
    assert isinstance(second, Skipped)
    assert isinstance(third, Entry)
    assert third.line == 7


def test_an_update_alone_is_no_run() -> None:
    patch = {key: RUNS[0][key] for key in ("id", "trace_id", "dotted_order", "outputs", "end_time")}
    assert not skipped(patch).bad
    assert not skipped({"post": [], "patch": [patch]}).bad


@pytest.mark.parametrize(
    "record",
    [{}, {"model": "gpt-5.1", "messages": []}, {"run_type": "llm"}, {"post": [{"title": "x"}]}, {"post": []}],
)
def test_other_records_are_not_claimed(record: dict[str, Any]) -> None:
    assert langsmith.entries(record, 1) is None


def test_counts_of_the_backend_serve_where_the_outputs_have_none() -> None:
    run = {**run_of([[constructor("HumanMessage", content="Hi")]]), "prompt_tokens": 5000, "completion_tokens": 7}
    run["prompt_token_details"] = {"cache_read": 4000, "ephemeral_5m_input_tokens": 900}
    assert entry(run).usage == Usage(
        input_tokens=5000, cache_read_tokens=4000, cache_write_tokens=900, write_by_ttl={"5m": 900}, output_tokens=7
    )


# --- broken records


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ("text", "no list"),
        ([["text"]], "no object"),
        ([[{"type": "unheard_of", "content": "x"}]], "kind"),
        ([[constructor("HumanMessage", content=7)]], "content"),
        ([[constructor("HumanMessage", content=[7])]], "block"),
        ([[{"lc": 1, "type": "constructor", "id": ["HumanMessage"]}]], "fields"),
        ([{"role": "user", "content": "x"}, 7], "no object"),
    ],
)
def test_a_broken_run_is_counted_with_its_reason(messages: object, word: str) -> None:
    found = skipped(run_of(messages))
    assert found.bad
    assert word in found.reason


@pytest.mark.parametrize("inputs", [{}, None, {"prompts": ["Human: Hi"]}, {"question": "Hi"}, "not JSON"])
def test_runs_without_a_chat_are_no_error(inputs: object) -> None:
    assert not skipped({**run_of([]), "inputs": inputs}).bad


@given(st.data())
def test_no_run_raises_whatever_is_wrong_with_it(data: st.DataObject) -> None:
    run = copy.deepcopy(data.draw(st.sampled_from(RUNS)))
    place: Any = run
    while isinstance(place, (dict, list)) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(JSON)
            break
        place = inner
    for found in langsmith.entries(run, 3) or ():
        assert found.line == 3
        if isinstance(found, Entry):
            with suppress(WireError):  # a body that is wrong in itself is for the reader of bodies to refuse
                headstay.diff(found.body, found.body, wire=found.wire)
