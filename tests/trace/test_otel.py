"""OpenTelemetry logs: what the instrumentations really write, and how the records of one call are joined."""

import copy
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.trace.conftest import JSON, span

import headstay
from headstay.errors import WireError
from headstay.ledger.usage import Usage
from headstay.trace.entry import Entry, Skipped
from headstay.trace.otel import Joiner
from headstay.trace.otel_call import NO_MESSAGES

LOGS = Path(__file__).parent / "logs"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
QUESTION = "What is the weather in Rome?"


def documents(name: str) -> list[tuple[int, dict[str, Any]]]:
    """The documents of a log with the line on which each begins; those of a console exporter stand over many lines."""
    text = (LOGS / name).read_text(encoding="utf-8")
    decoder, at = json.JSONDecoder(), 0
    found: list[tuple[int, dict[str, Any]]] = []
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        line = text.count("\n", 0, at) + 1
        document, at = decoder.raw_decode(text, at)
        found.append((line, document))
    return found


def read_all(records: Iterable[tuple[int, Mapping[str, Any]]]) -> tuple[list[Entry], list[Skipped]]:
    joiner = Joiner()
    found: list[Entry | Skipped] = []
    for line, record in records:
        entries = joiner.entries(record, line)
        assert entries is not None
        found += entries
    found += joiner.flush()
    return (
        [one for one in found if isinstance(one, Entry)],
        [one for one in found if isinstance(one, Skipped)],
    )


def log(number: int, name: str, body: object = None, /, **attributes: Any) -> dict[str, Any]:
    return {
        "body": body,
        "severity_number": 9,
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
        "timestamp": None,
        "observed_timestamp": "2026-11-29T20:43:22Z",
        "trace_id": f"0x{number:032x}" if number else "0x00000000000000000000000000000000",
        "span_id": f"0x{number:016x}" if number else "0x0000000000000000",
        "event_name": name,
    }


CALL: dict[str, Any] = {
    "gen_ai__operation__name": "chat",
    "gen_ai__provider__name": "openai",
    "gen_ai__request__model": "gpt-5.1",
}
HELLO: list[dict[str, Any]] = [{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}]
DETAILS = "gen_ai.client.inference.operation.details"


# --- recorded logs, all of the same three conversations


def chat_turns(call: str) -> list[dict[str, Any]]:
    """What the OpenAI conversation sends in its three calls."""
    arguments = {"id": call, "type": "function", "function": {"name": "get_weather", "arguments": {"city": QUESTION}}}
    return [
        {"role": "system", "content": "You are a help desk."},
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": None, "tool_calls": [arguments]},
        {"role": "tool", "tool_call_id": call, "content": "sunny"},
        {"role": "assistant", "content": "The result is: sunny"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "And what is this?"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
            ],
        },
    ]


def with_parsed_arguments(messages: object) -> list[dict[str, Any]]:
    """The conventions hold arguments parsed, so that their spelling cannot be told."""
    found = copy.deepcopy(cast("list[dict[str, Any]]", messages))
    for message in found:
        for call in message.get("tool_calls") or ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return found


CHAT_LOGS = [
    ("otel_genai_events.jsonl", "chatcmpl-000000000046", "call_000000000031"),
    ("otel_genai_spans.jsonl", "chatcmpl-000000000049", "call_000000000033"),
    ("otel_console_genai_events.json", "chatcmpl-000000000046", "call_000000000031"),
    ("otel_json_text_spans_and_events.jsonl", "chatcmpl-000000000022", "call_000000000015"),
    ("otel_message_events.jsonl", "chatcmpl-000000000043", "call_000000000029"),
    ("otel_console_message_events.json", "chatcmpl-000000000043", "call_000000000029"),
    ("otel_openinference.jsonl", "chatcmpl-000000000031", "call_000000000021"),
]


@pytest.mark.parametrize(("name", "first", "call"), CHAT_LOGS)
def test_the_openai_conversation(name: str, first: str, call: str) -> None:
    entries, _ = read_all(documents(name))
    found = [entry for entry in entries if entry.reply_id.startswith("chatcmpl-")]
    number = int(first.removeprefix("chatcmpl-"))
    assert [entry.reply_id for entry in found] == [f"chatcmpl-{number + step:012}" for step in range(3)]
    turns = chat_turns(call)
    if name == "otel_json_text_spans_and_events.jsonl":  # that version wrote no content but text alone
        turns[-1] = {"role": "user", "content": ""}
    for entry, count in zip(found, (2, 4, 6), strict=True):
        assert entry.body["model"] == "gpt-5.1"
        assert with_parsed_arguments(entry.body["messages"]) == turns[:count]
        assert entry.wire == "openai-chat"
        assert entry.provider == "openai"
    assert [entry.reply for entry in found] == [
        (call,),
        ("The result is: sunny",),
        ("Here is what I know about: And what is this?",),
    ]
    assert found[0].usage == Usage(input_tokens=90, output_tokens=18)
    assert found[2].usage == Usage(input_tokens=442, output_tokens=12)
    times = [moment for entry in found for moment in (entry.started, entry.answered)]
    assert times == sorted(times, key=lambda moment: moment or 0)


@pytest.mark.parametrize("name", ["otel_genai_events.jsonl", "otel_genai_spans.jsonl", "otel_openllmetry.jsonl"])
def test_tools_of_the_conventions(name: str) -> None:
    entries, _ = read_all(documents(name))
    function = {"name": "get_weather", "description": "Weather of a city.", "parameters": PARAMETERS}
    schema = {"name": "get_weather", "description": "Weather of a city.", "input_schema": PARAMETERS}
    tools = {entry.wire: entry.body.get("tools") for entry in entries if "Think" not in str(entry.body)}
    assert tools == {"openai-chat": [{"type": "function", "function": function}], "anthropic-messages": [schema]}


ANTHROPIC_LOGS = [
    ("otel_genai_events.jsonl", "msg_000000000064", "toolu_000000000016"),
    ("otel_genai_spans.jsonl", "msg_000000000069", "toolu_000000000017"),
    ("otel_openllmetry.jsonl", "msg_000000000029", "toolu_000000000009"),
    ("otel_openllmetry_prompts.jsonl", "msg_000000000054", "toolu_000000000014"),
    ("otel_openinference.jsonl", "msg_000000000039", "toolu_000000000011"),
]


@pytest.mark.parametrize(("name", "first", "call"), ANTHROPIC_LOGS)
def test_the_anthropic_conversation(name: str, first: str, call: str) -> None:
    entries, _ = read_all(documents(name))
    found = [entry for entry in entries if entry.reply_id.startswith("msg_")][:3]
    assert found[0].reply_id == first
    assert found[0].reply == (call,)
    assert {entry.wire for entry in found} == {"anthropic-messages"}
    system = cast("list[dict[str, Any]]", found[0].body["system"])
    assert [block["text"] for block in system] == ["You are a help desk. Be brief and kind. Be brief and kind. "]
    messages = cast("list[dict[str, Any]]", found[1].body["messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    thinking, use = messages[1]["content"]
    assert thinking["type"] == "thinking"
    assert (use["type"], use["id"], use["name"], use["input"]) == ("tool_use", call, "get_weather", {"city": QUESTION})
    (result,) = messages[2]["content"]
    assert (result["type"], result["tool_use_id"], result["content"]) == ("tool_result", call, "sunny")
    # Each request continues the one before.
    for before, after in itertools.pairwise(found):
        assert headstay.diff(before.body, after.body).lost_tokens == 0
    assert found[1].usage == Usage(input_tokens=4604, cache_read_tokens=4578, output_tokens=16)


def test_openinference_keeps_the_body_that_was_sent() -> None:
    entries, _ = read_all(documents("otel_openinference.jsonl"))
    assert all(entry.exact for entry in entries)
    assert [entry.wire for entry in entries if entry.reply_id.startswith("resp_")] == ["openai-responses"] * 2
    system = cast("list[dict[str, Any]]", entries[5].body["system"])
    assert system[0]["cache_control"] == {"type": "ephemeral"}


def test_langsmith_runs_that_were_exported_as_spans() -> None:
    entries, rest = read_all(documents("otel_langsmith.jsonl"))
    after, before = entries  # written in the order of their export
    assert [one.reason for one in rest] == ["an OpenTelemetry record of a call that another one tells of"] * 2
    assert (before.reply_id, after.reply_id) == ("msg_000000000001", "msg_000000000002")
    assert (before.wire, before.conversation, before.account) == ("anthropic-messages", "t1", "demo")
    assert before.body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 64000,
        "system": [{"type": "text", "text": "You are a help desk.", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"name": "get_weather", "input_schema": PARAMETERS, "description": "Weather of a city."}],
    }
    assert before.usage == Usage(input_tokens=84, output_tokens=18)
    assert before.started == pytest.approx(1795986714.960236)
    assert headstay.diff(before.body, after.body).lost_tokens == 0


def test_without_content_capture_every_call_says_what_to_do() -> None:
    entries, rest = read_all(documents("otel_genai_no_content.jsonl"))
    assert entries == []
    # Five OpenAI and five Anthropic calls; the Anthropic SDK writes a span of its own for each of its calls.
    assert Counter((one.reason, one.bad) for one in rest) == {
        (NO_MESSAGES, False): 10,
        ("an OpenTelemetry record of a call that another one tells of", False): 5,
        ("an OpenTelemetry record that is no model call", False): 1,
    }
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in NO_MESSAGES


def test_console_and_otlp_give_the_same() -> None:
    console, _ = read_all(documents("otel_console_message_events.json"))
    otlp, _ = read_all(documents("otel_message_events.jsonl"))
    for one, other in zip(console, otlp, strict=True):
        assert (one.body, one.usage, one.reply, one.reply_id) == (other.body, other.usage, other.reply, other.reply_id)
        assert one.started == pytest.approx(other.started, abs=1e-5)
        assert one.line > 0
    assert [one.line for one in console] == sorted(one.line for one in console)


# --- joining


@given(st.permutations(range(len(documents("otel_console_genai_events.json")))))
def test_spans_and_events_are_joined_in_any_order(order: list[int]) -> None:
    records = documents("otel_console_genai_events.json")
    found, rest = read_all([records[number] for number in order])
    expected, _ = read_all(records)
    key = {entry.reply_id: entry for entry in expected}
    assert not rest
    assert len(found) == len(expected)
    for entry in found:
        other = key[entry.reply_id]
        assert (entry.body, entry.usage, entry.started, entry.reply) == (
            other.body,
            other.usage,
            other.started,
            other.reply,
        )


def test_a_call_is_told_as_soon_as_it_is_complete() -> None:
    joiner = Joiner()
    assert list(joiner.entries(log(1, DETAILS, None, gen_ai__input__messages=HELLO, **CALL), 4) or ()) == []
    (found,) = list(joiner.entries(span(1, **CALL), 9) or ())
    assert isinstance(found, Entry)
    assert (found.line, found.started, found.answered) == (4, 1_795_985_000, 1_795_985_002)
    assert list(joiner.entries(log(1, DETAILS, None, gen_ai__input__messages=HELLO), 10) or ()) == []
    assert list(joiner.flush()) == []


def test_an_event_without_its_span_is_told_at_the_end_with_its_own_time() -> None:
    (found,), _ = read_all([(1, log(1, DETAILS, None, gen_ai__input__messages=HELLO, **CALL))])
    assert found.started == found.answered == 1795985002.0
    (loose,), _ = read_all([(1, log(0, DETAILS, None, gen_ai__input__messages=HELLO, **CALL))])
    assert loose.body == found.body


def test_what_waits_is_bounded() -> None:
    joiner = Joiner()
    told: list[Entry | Skipped] = []
    for number in range(1, 1001):
        told += joiner.entries(log(number, DETAILS, None, gen_ai__input__messages=HELLO, **CALL), number) or ()
    assert [found.line for found in told] == list(range(1, 1001 - 256))
    assert len(list(joiner.flush())) == 256
    large = [{"role": "user", "parts": [{"type": "text", "content": "x" * 10_000_000}]}]
    held = [log(number, DETAILS, None, gen_ai__input__messages=large) for number in range(5001, 5011)]
    sizes = [len(list(joiner.entries(record, 1) or ())) for record in held]
    assert sum(sizes) == 7  # three of ten megabytes fit into 32 MiB


def test_several_calls_within_one_span_of_the_application() -> None:
    records = []
    for question in ("One?", "Two?"):
        records += [
            log(1, "gen_ai.user.message", {"content": question}, gen_ai__system="openai"),
            log(1, "gen_ai.choice", {"index": 0, "message": {"content": f"{question} Yes."}}, gen_ai__system="openai"),
        ]
    found, _ = read_all(list(enumerate(records, 1)))
    assert [entry.body["messages"] for entry in found] == [
        [{"role": "user", "content": "One?"}],
        [{"role": "user", "content": "Two?"}],
    ]
    assert [entry.reply for entry in found] == [("One? Yes.",), ("Two? Yes.",)]


def test_message_events_without_content_say_what_to_do() -> None:
    records = [log(1, "gen_ai.user.message"), log(1, "gen_ai.choice", {"index": 0}), span(1, **CALL)]
    found, rest = read_all(list(enumerate(records, 1)))
    assert not found
    assert [one.reason for one in rest] == [NO_MESSAGES]


def test_a_second_span_of_one_answer_is_passed_over() -> None:
    outer = span(1, gen_ai__input__messages=HELLO, gen_ai__response__id="msg_1", **CALL)
    inner = span(2, gen_ai__response__id="msg_1", **CALL)
    both = span(3, gen_ai__input__messages=HELLO, gen_ai__response__id="msg_1", **CALL)
    found, rest = read_all([(1, inner), (2, outer), (3, both)])
    assert len(found) == 1
    assert [one.reason for one in rest] == ["an OpenTelemetry record of a call that another one tells of"] * 2


# --- what is no request, and what is broken


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai__operation__name": "embeddings", "gen_ai__request__model": "text-embedding-3-small"},
        {"gen_ai__operation__name": "execute_tool", "gen_ai__input__messages": HELLO},
        {"gen_ai__operation__name": "invoke_agent", "gen_ai__input__messages": HELLO},
        {"openinference__span__kind": "CHAIN", "input__value": "Hello"},
        {"traceloop__span__kind": "workflow"},
        {"http__request__method": "GET"},
    ],
)
def test_other_spans_are_passed_over(attributes: dict[str, Any]) -> None:
    found, (rest,) = read_all([(1, span(1, **attributes))])
    assert not found
    assert rest == Skipped(1, "an OpenTelemetry record that is no model call", bad=False)


def test_failed_calls_are_passed_over() -> None:
    found, rest = read_all([(1, span(1, failed=True, gen_ai__input__messages=HELLO, **CALL))])
    assert not found
    assert [(one.reason, one.bad) for one in rest] == [("an OpenTelemetry model call that failed", False)]


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ('[{"role": "user", "parts": [{"type": "te', "cut off"),
        ([{"parts": []}], "role"),
        (["text"], "role"),
        ([{"role": "user", "parts": [7]}], "part"),
        ([{"role": "user", "parts": "cut"}], "parts"),
        (7, "no list"),
    ],
)
def test_broken_messages_are_counted_with_their_reason(messages: object, word: str) -> None:
    found, (rest,) = read_all([(1, span(1, gen_ai__input__messages=messages, **CALL))])
    assert not found
    assert rest.bad
    assert word in rest.reason


@pytest.mark.parametrize(
    "record",
    [{}, {"model": "m", "messages": []}, {"attributes": {}}, {"context": {"trace_id": "1"}}, {"run_type": "llm"}],
)
def test_other_records_are_not_claimed(record: dict[str, Any]) -> None:
    assert Joiner().entries(record, 1) is None


def test_metrics_are_passed_over() -> None:
    found, (rest,) = read_all([(1, {"resourceMetrics": [{}]})])
    assert not found
    assert not rest.bad


def test_nesting_without_end_is_no_crash() -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(5000):
        value = {"arrayValue": {"values": [value]}}
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "k", "value": value}]}]}]}]}
    found, (rest,) = read_all([(3, document)])
    assert not found
    assert rest.bad


SAMPLES = [
    document
    for path in sorted(LOGS.glob("otel_*"))
    for _, document in documents(path.name)
    if len(json.dumps(document)) < 40_000
]


@given(st.data())
def test_no_document_raises_whatever_is_wrong_with_it(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(SAMPLES)))
    place: Any = document
    while isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(JSON)
            break
        place = inner
    joiner = Joiner()
    for found in (*(joiner.entries(document, 3) or ()), *joiner.flush()):
        assert found.line == 3
        if isinstance(found, Entry):
            with suppress(WireError):  # a body that is wrong in itself is for the reader of bodies to refuse
                headstay.diff(found.body, found.body, wire=found.wire)
