"""Debug logs of the SDKs: what the real ones write, in every logging format, with retries and side by side."""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator import Emulator
from headstay.trace import Entry, Skipped
from headstay.trace.python_repr import printed_value

Read = Callable[[Path], tuple[list[Entry], list[Skipped]]]
ReadText = Callable[[str], tuple[list[Entry], list[Skipped]]]

SDK_FORMAT = "[%(asctime)s - %(name)s:%(lineno)d - %(levelname)s] %(message)s"
FORMATS = {
    "sdk": SDK_FORMAT,
    "default": logging.BASIC_FORMAT,
    "bare": "%(message)s",
    "usual": "%(asctime)s %(levelname)-8s %(name)s | %(message)s",
}
OTHER = "a line of another log"


class JsonFormatter(logging.Formatter):
    """Writes a record as structured loggers do."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({"timestamp": record.created, "level": record.levelname, "message": record.getMessage()})


@pytest.fixture
def logged(tmp_path: Path) -> Callable[[logging.Formatter], Any]:
    """Write what the SDKs and their transport log to a file."""
    loggers = [logging.getLogger(name) for name in ("anthropic", "openai", "httpx2", "httpcore2")]
    levels = [logger.level for logger in loggers]

    @contextmanager
    def logging_to(formatter: logging.Formatter) -> Iterator[Path]:
        handler = logging.FileHandler(tmp_path / "debug.log", encoding="utf-8")
        handler.setFormatter(formatter)
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(logging.DEBUG)
        try:
            yield tmp_path / "debug.log"
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.removeHandler(handler)
                logger.setLevel(level)
            handler.close()

    return logging_to


@pytest.fixture
def claude(server: Emulator) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(api_key="key-a", base_url=server.base_url, max_retries=2) as client:
        yield client


def ask(client: anthropic.Anthropic, text: str, **more: Any) -> None:
    messages: list[Any] = [{"role": "user", "content": text}]
    client.messages.create(model="claude-sonnet-4-6", max_tokens=9, messages=messages, **more)


@pytest.mark.parametrize("form", [*FORMATS, "json"])
def test_bodies_come_out_as_they_were_sent(
    logged: Any, claude: anthropic.Anthropic, server: Emulator, read: Read, form: str
) -> None:
    hard = "It's \"quoted\",\n'json_data': {'x': [(\\ \u2028 é \U0001f600 None True"
    system: list[Any] = [{"type": "text", "text": hard, "cache_control": {"type": "ephemeral"}}]
    tools: list[Any] = [{"name": "t", "description": "{", "input_schema": {"type": "object", "properties": {}}}]
    with logged(JsonFormatter() if form == "json" else logging.Formatter(FORMATS[form])) as path:
        ask(claude, hard, system=system, tools=tools, extra_body={"top_k": 3}, extra_headers={"X-Session-Id": "s-1"})
        with claude.messages.stream(
            model="claude-sonnet-4-6", max_tokens=9, messages=[{"role": "user", "content": "Go on."}]
        ) as stream:
            assert stream.get_final_text()
        claude.messages.count_tokens(model="claude-sonnet-4-6", messages=[{"role": "user", "content": "Count."}])
    found, skipped = read(path)
    assert [entry.body for entry in found] == [exchange.body for exchange in server.exchanges[:2]]
    assert [entry.conversation for entry in found] == ["s-1", ""]
    assert [entry.wire for entry in found] == ["anthropic-messages"] * 2
    assert [one.reason for one in skipped if one.reason not in (OTHER, "no model call")] == [
        "a call that makes no text"
    ]
    assert not any(one.bad for one in skipped)
    if form in ("default", "bare"):
        assert [(entry.started, entry.answered) for entry in found] == [(None, None)] * 2
    else:
        assert all(entry.started and entry.answered and entry.answered >= entry.started for entry in found)


def test_a_retried_request_comes_once(logged: Any, claude: anthropic.Anthropic, server: Emulator, read: Read) -> None:
    server.fail_next(status=529, retry_after=0.001)
    with logged(logging.Formatter(SDK_FORMAT)) as path:
        ask(claude, "Hello")
    found, skipped = read(path)
    assert [entry.body["messages"] for entry in found] == [[{"role": "user", "content": "Hello"}]]
    assert [one.reason for one in skipped if one.reason != OTHER] == ["a call that failed"]


def test_requests_side_by_side(logged: Any, server: Emulator, read: Read) -> None:
    async def many() -> None:
        async with anthropic.AsyncAnthropic(api_key="key-a", base_url=server.base_url) as client:
            calls = (
                client.messages.create(
                    model="claude-sonnet-4-6",
                    max_tokens=9,
                    messages=[{"role": "user", "content": f"Question {number}"}],
                )
                for number in range(5)
            )
            await asyncio.gather(*calls)

    with logged(logging.Formatter(SDK_FORMAT)) as path:
        asyncio.run(many())
    found, _ = read(path)
    texts = sorted(str(entry.body["messages"]) for entry in found)
    assert texts == [f"[{{'role': 'user', 'content': 'Question {number}'}}]" for number in range(5)]
    assert [entry.line for entry in found] == sorted(entry.line for entry in found)
    assert all(entry.answered for entry in found)


def test_openai_3_logs_no_bodies(logged: Any, server: Emulator, read: Read) -> None:
    with (
        logged(logging.Formatter(SDK_FORMAT)) as path,
        openai.OpenAI(api_key="key-a", base_url=server.openai_url) as client,
    ):
        client.responses.create(model="gpt-5.4", input="Hello")
    found, skipped = read(path)
    assert found == []
    reasons = [one.reason for one in skipped if one.reason != OTHER]
    assert reasons == ["a call that the SDK logged without its body, as openai 3 does"]


def test_recorded_log_of_earlier_sdks(logs: Path, read: Read) -> None:
    """anthropic 0.75.0 and openai 1.109.1, one call each and three at once."""
    found, skipped = read(logs / "sdk_debug.log")
    ask = [{"role": "user", "content": "hi"}]
    assert [(entry.line, entry.wire, entry.body) for entry in found] == [
        (1, "anthropic-messages", {"max_tokens": 20, "messages": ask, "model": "claude-sonnet-4-6"}),
        (6, "openai-chat", {"messages": ask, "model": "gpt-5.4", "safety_identifier": "x"}),
        (11, "openai-responses", {"input": "hi", "model": "gpt-5.4"}),
        *(
            (
                16 + 2 * number,
                "openai-chat",
                {"messages": [{"role": "user", "content": f"hi {number}"}], "model": "gpt-5.4"},
            )
            for number in range(3)
        ),
    ]
    # 2026-11-29 20:46:25 and :26, taken as UTC
    assert [(entry.started, entry.answered) for entry in found[:2]] == [
        (1795985185.0, 1795985186.0),
        (1795985186.0, 1795985186.0),
    ]
    assert {one.reason for one in skipped} == {OTHER}


def options(body: str, *, url: str = "/v1/messages", method: str = "post", key: str = "k") -> str:
    return (
        f"DEBUG:anthropic._base_client:Request options: {{'method': '{method}', 'url': '{url}', 'files': None, "
        f"'idempotency_key': '{key}', 'span_attributes': <function f at 0x7f>, 'json_data': {body}}}"
    )


BODY = "{'model': 'm', 'messages': [{'role': 'user', 'content': 'Hello'}]}"


@pytest.mark.parametrize(
    ("line", "reason", "bad"),
    [
        (options(BODY, url="/v1/messages/count_tokens"), "a call that makes no text", False),
        (options(BODY, url="/v1/files"), "a call that makes no text", False),
        (options(BODY, method="get"), "a call that makes no text", False),
        (options("None"), "a call that the SDK logged without its body", False),
        (options(BODY)[:-20], "its body is not read: it ends early", True),
        (
            options(BODY.replace("'Hello'", "<generator object>")),
            "its body is not read: it holds a value that Python prints without its content",
            True,
        ),
        (
            options(BODY.replace("'Hello'", "b'Hello'")),
            "its body is not read: it holds a value that Python prints without its content",
            True,
        ),
        (
            options("{'model': 'm', 'messages': 'Hello'}"),
            "its body is not read: messages: expected a list of objects, got text",
            True,
        ),
    ],
)
def test_what_is_no_request(read_text: ReadText, line: str, reason: str, bad: bool) -> None:
    assert read_text(f"{line}\n") == ([], [Skipped(1, reason, bad=bad)])


def test_nothing_in_a_log_is_run(read_text: ReadText, tmp_path: Path) -> None:
    path = tmp_path / "made"
    body = BODY.replace("'Hello'", f"__import__('pathlib').Path({str(path)!r}).touch()")
    found, skipped = read_text(options(body))
    assert found == []
    assert skipped[0].bad
    assert not path.exists()


def test_lines_between_are_no_faults_once_it_is_a_log(read_text: ReadText) -> None:
    text = f"no log yet\nINFO:app:up\nTraceback (most recent call last):\n  File x\n{options(BODY)}\nplain words"
    found, skipped = read_text(text)
    assert [entry.line for entry in found] == [5]
    assert [(one.line, one.bad) for one in sorted(skipped, key=lambda one: one.line)] == [
        (1, True),
        (2, False),
        (3, False),
        (4, False),
        (6, False),
    ]


def test_what_became_of_calls(read_text: ReadText) -> None:
    def response(status: int, second: int) -> str:
        url = "https://api.anthropic.com/v1/messages"
        return f'2026-11-29 00:00:{second:02} HTTP Response: POST {url} "{status} x" Headers({{}})'

    lost = "DEBUG:anthropic._base_client:Encountered Exception"
    lines = [
        f"2026-11-29 00:00:01 {options(BODY, key='a')}",
        response(400, 2),
        f"2026-11-29 00:00:03 {options(BODY, key='b')}",
        lost,
        f"2026-11-29 00:00:04 {options(BODY, key='b')}",
        response(200, 6),
        f"2026-11-29 00:00:10 {options(BODY, key='c')}",
        f"2026-11-29 00:00:11 {options(BODY, key='d')}",
        response(429, 12),  # of either
        response(200, 13),
        f"2026-11-29 00:00:14 {options(BODY, key='e')}",
        f"2026-11-29 00:00:15 {options(BODY, key='e')}",  # sent again, so the first failed
        f"2026-11-29 00:00:16 {options(BODY, key='f')}",  # no answer in the log
    ]
    found, skipped = read_text("\n".join(lines))
    midnight = 1795910400.0
    assert [(entry.line, entry.started, entry.answered) for entry in found] == [
        (5, midnight + 4, midnight + 6),
        (7, midnight + 10, None),
        (8, midnight + 11, midnight + 13),
        (12, midnight + 15, None),
        (13, midnight + 16, None),
    ]
    assert {entry.provider for entry in found if entry.answered} == {"anthropic"}
    assert [(one.line, one.reason) for one in skipped if one.reason != OTHER] == [
        (1, "a call that failed"),
        (3, "a call that was cut off"),
        (11, "a call that failed and was sent again"),
    ]


def test_requests_without_responses_are_not_held_for_ever(read_text: ReadText) -> None:
    found, skipped = read_text("\n".join(options(BODY, key=str(number)) for number in range(1_000)))
    assert [entry.line for entry in found] == list(range(1, 1_001))
    assert skipped == []


def test_the_javascript_sdk_prints_bodies_in_part(read_text: ReadText) -> None:
    text = "[log_3af1b2] sending request {\n  method: 'post',\n  body: { messages: [ [Object] ] }\n}\n[log_3af1b2] ok"
    found, skipped = read_text(text)
    assert found == []
    assert skipped[0] == Skipped(1, "a call whose body the JavaScript SDK logged in part", bad=False)
    assert not any(one.bad for one in skipped)


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=st.dictionaries(st.text(), LITERALS, min_size=1), before=st.text(), after=st.text())
def test_printed_values_come_back(value: dict[str, Any], before: str, after: str) -> None:
    text = f"{before}{value!r}{after}"
    assert printed_value(text, len(before)) == (value, len(before) + len(repr(value)))


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ({"a": (1,), "b": ()}, {"a": [1], "b": []}),
        ({"a": ("x", ("y", 2))}, {"a": ["x", ["y", 2]]}),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
    ],
)
def test_printed_values_come_back_as_json_would_have_sent_them(value: Any, sent: Any) -> None:
    assert printed_value(repr(value), 0)[0] == sent


@given(text=st.text("{}[]()'\"\\,: NoneTrue1b<>", max_size=30))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    try:
        value, end = printed_value("{" + text, 0)
    except ValueError:
        return
    assert isinstance(value, dict)
    assert ("{" + text)[:end].endswith("}")
