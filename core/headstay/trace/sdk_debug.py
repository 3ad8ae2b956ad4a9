"""What the Python SDKs of Anthropic and OpenAI write at debug level: the options of each request, before it is sent.

`Request options: {...}` holds a dictionary as Python prints it, on one line, after whatever the logging format puts in
front. anthropic 2.14.0 and openai up to 2 write it (seen 2026-11-29); openai 3.57.0 writes no bodies. A response is
logged when its headers are there, without its content and without saying whose it is.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.errors import WireError
from headstay.prompt import Wire
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import call_at, conversation_of, moment, provider_at
from headstay.trace.python_repr import printed_value
from headstay.trace.raw import request_wire

_OPTIONS = "Request options: {"
_BODY = "'json_data': {"
_EXTRA = "'extra_json': {"
_HEADERS = "'headers': {"
_BEFORE_BODY = 10_000  # characters in which the options stand that come before the body
_WAITING = 64  # requests whose response has not been seen
_HELD = 32 * 2**20  # characters of them
_CALL = re.compile(r"'method': '(?P<method>\w+)', 'url': '(?P<url>[^']*)'")
_KEY = re.compile(r"'idempotency_key': '(?P<key>[^']*)'")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?")
_RESPONSE = re.compile(r'HTTP Response: POST (?P<url>\S+) "(?P<status>\d{3}) ')
_LOGGED = re.compile(r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b")
_NO_BODY = re.compile(r"\bBuilding HTTP request: method=POST\b")
_JAVASCRIPT = re.compile(r"^\[log_[0-9a-f]+[^\]]*\] sending request")
_LOST = re.compile(r"\bEncountered (?:Exception|httpx2?\.TimeoutException|a timeout exception)\b")
_PREFIX = 300  # characters in which the logging format puts time, logger and level


@dataclass(slots=True)
class _Sent:
    """A request whose response has not been seen, or that waits for an earlier one.

    Attributes:
        entry: What came out of the log so far.
        wire: The wire format of the address; None for another one.
        key: What its retries repeat.
        size: Characters of its line.
        done: Whether the response is known.
    """

    entry: Entry | Skipped
    wire: Wire | None
    key: str
    size: int
    done: bool = False

    def end(self, entry: Entry | Skipped) -> None:
        """Note what became of it."""
        self.entry = entry
        self.done = True


class DebugLog:
    """Reads the lines of one log; requests come out in their order, when their response has been seen."""

    def __init__(self) -> None:
        self._sent: deque[_Sent] = deque()
        self._held = 0
        self._is_log = False

    def line(self, line: int, text: str, *, at: float | None = None) -> Iterator[Entry | Skipped]:
        """Read a line of text.

        Args:
            line: Its number.
            text: The line.
            at: When it was written, where the line itself does not say.
        """
        response = None if (start := text.find(_OPTIONS)) >= 0 else _RESPONSE.search(text)
        prefix = text[: response.start() if response else start if start >= 0 else _PREFIX][:_PREFIX]
        self._is_log = self._is_log or start >= 0 or bool(_LOGGED.search(prefix))
        clock = _TIME.search(prefix)
        time = moment(clock[0]) if clock else at
        if start >= 0:
            self._send(_request(line, text, start, time), text, start)
        elif response:
            self._answer(response["url"], int(response["status"]), time)
        elif _LOST.search(prefix):
            self._lose()
        elif _NO_BODY.search(prefix):
            yield Skipped(line, "a call that the SDK logged without its body, as openai 3 does", bad=False)
        elif _JAVASCRIPT.match(prefix):
            self._is_log = True
            yield Skipped(line, "a call whose body the JavaScript SDK logged in part", bad=False)
        else:
            yield Skipped(line, "a line of another log" if self._is_log else "not JSON", bad=not self._is_log)
        while self._sent and (self._sent[0].done or len(self._sent) > _WAITING or self._held > _HELD):
            yield self._next()

    def flush(self) -> Iterator[Entry | Skipped]:
        """Return what still waits, at the end of the log."""
        while self._sent:
            yield self._next()

    def _send(self, entry: Entry | Skipped, text: str, start: int) -> None:
        key = _KEY.search(text, start, start + _BEFORE_BODY)
        name = key["key"] if key else ""
        earlier = next((sent for sent in self._sent if name and sent.key == name and not sent.done), None)
        if earlier:
            earlier.end(Skipped(earlier.entry.line, "a call that failed and was sent again", bad=False))
        wire = entry.wire if isinstance(entry, Entry) else None
        self._sent.append(_Sent(entry, wire, name, len(text), done=wire is None))
        self._held += len(text)

    def _answer(self, url: str, status: int, time: float | None) -> None:
        """Note a response: the oldest request to the same address is the likeliest to have got it."""
        waiting = [sent for sent in self._sent if not sent.done and sent.wire == call_at(url)]
        if not waiting:
            return
        oldest = waiting[0]
        entry = cast("Entry", oldest.entry)
        if status < 400:
            answered = time if time is not None and (entry.started is None or time >= entry.started) else None
            provider = provider_at(url)
            oldest.end(replace(entry, answered=answered, provider=provider))
        elif len(waiting) == 1:
            oldest.end(Skipped(entry.line, "a call that failed", bad=False))
        else:  # it may have been any of them
            oldest.done = True

    def _lose(self) -> None:
        waiting = [sent for sent in self._sent if not sent.done]
        if len(waiting) == 1:
            waiting[0].end(Skipped(waiting[0].entry.line, "a call that was cut off", bad=False))

    def _next(self) -> Entry | Skipped:
        sent = self._sent.popleft()
        self._held -= sent.size
        return sent.entry


def is_sdk_line(message: str) -> bool:
    """Whether the message of a log record is one that `DebugLog` reads."""
    return message.startswith(_OPTIONS) or bool(_RESPONSE.match(message))


def _request(line: int, text: str, start: int, time: float | None) -> Entry | Skipped:
    call = _CALL.search(text, start, start + _BEFORE_BODY)
    told = call_at(call["url"]) if call and call["method"].upper() == "POST" else None
    if told is None:
        return Skipped(line, "a call that makes no text", bad=False)
    place = text.find(_BODY, start)
    if place < 0:
        return Skipped(line, "a call that the SDK logged without its body", bad=False)
    try:
        body, end = _fields(text, place + len(_BODY) - 1)
        extra = text.find(_EXTRA, end)
        if extra >= 0:  # what the caller gave as `extra_body`
            body = {**body, **_fields(text, extra + len(_EXTRA) - 1)[0]}
        wire = request_wire(body, told)
    except (ValueError, WireError) as problem:
        return Skipped(line, f"its body is not read: {problem}")
    return Entry(
        line=line, wire=wire, body=body, conversation=conversation_of({}, body, _headers(text, start)), started=time
    )


def _fields(text: str, start: int) -> tuple[Json, int]:
    value, end = printed_value(text, start)
    return mapping(value), end


def _headers(text: str, start: int) -> Json:
    """Return the headers that the caller gave."""
    place = text.find(_HEADERS, start, start + _BEFORE_BODY)
    try:
        return _fields(text, place + len(_HEADERS) - 1)[0] if place >= 0 else {}
    except ValueError:
        return {}
