"""OpenTelemetry logs of model calls: OTLP as the collector writes it, and the console exporters of the SDKs.

One call is told by several records: its span, an event with its content, in older versions an event for each message,
and some SDKs write a span of their own beside that of the instrumentation. They are joined by trace and span id, and by
the id of the answer.
"""

from collections.abc import Iterator, Mapping

from headstay.trace import langsmith
from headstay.trace.entry import Entry, Skipped
from headstay.trace.otel_call import DETAILS, Call, entry_of, is_call, is_other_operation, is_said
from headstay.trace.otel_langsmith import run_of
from headstay.trace.otel_records import Record, records_of
from headstay.trace.untyped import first_text

_MOST_WAITING = 256
_MOST_HELD = 32 * 1024 * 1024
_MOST_DONE = 20_000
_OTHER = "an OpenTelemetry record that is no model call"
_TWICE = "an OpenTelemetry record of a call that another one tells of"
_LOOSE = "an OpenTelemetry message without the id of its span"
_TOO_DEEP = "an OpenTelemetry record that is nested too deep"


class Joiner:
    """Reads the requests of one log, and joins what belongs together.

    A call waits until its span and its content are there, at most for 256 other calls and 32 MiB of content; then it is
    told as far as it is known.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Call] = {}
        self._held = 0
        self._done: dict[str, None] = {}

    def entries(self, record: Mapping[str, object], line: int) -> Iterator[Entry | Skipped] | None:
        """Read a record.

        Args:
            record: A document of the log.
            line: Its line.

        Returns:
            The calls that are complete with it, which may be none, or None if it is not OpenTelemetry's.
        """
        try:
            records = records_of(record)
            if records is None:
                return None
            return iter([found for one in records for found in self._read(one, line)])
        except RecursionError:
            return iter((Skipped(line, _TOO_DEEP),))

    def flush(self) -> Iterator[Entry | Skipped]:
        """Return the calls that still wait, at the end of a log."""
        while self._waiting:
            yield self._told(next(iter(self._waiting)))

    def _read(self, record: Record, line: int) -> Iterator[Entry | Skipped]:
        if record.kind == "span":
            yield from self._read_span(record, line)
        elif record.kind == "log" and is_said(record.events[0]):
            yield from self._read_event(record, line)
        else:
            yield Skipped(line, _OTHER, bad=False)
        while len(self._waiting) > _MOST_WAITING or self._held > _MOST_HELD:
            yield self._told(next(iter(self._waiting)))

    def _read_span(self, record: Record, line: int) -> Iterator[Entry | Skipped]:
        if record.key in self._done:
            return
        run = run_of(record)
        if run is not None:
            for found in langsmith.entries(run, line) or ():
                yield self._once(found, Call(line))
            return
        key = record.key or f"line {line}"
        if not is_call(record.attributes) and (key not in self._waiting or is_other_operation(record.attributes)):
            self._finish(key)
            yield Skipped(line, _OTHER, bad=False)
            return
        call = self._taken(key, line)
        call.add_span(record)
        self._put(key, call)
        if call.complete or call.failed or not record.key:
            yield self._told(key)

    def _read_event(self, record: Record, line: int) -> Iterator[Entry | Skipped]:
        event = record.events[0]
        if record.key in self._done:
            return
        if not record.key and event.name != DETAILS:
            yield Skipped(line, _LOOSE, bad=False)
            return
        key = record.key or f"line {line}"
        call = self._taken(key, line)
        if call.precedes(event):
            yield self._once(entry_of(call), call)
            call = Call(line)
        call.add_event(event, line)
        self._put(key, call)
        if call.complete or not record.key:
            yield self._told(key)

    def _taken(self, key: str, line: int) -> Call:
        call = self._waiting.pop(key, None)
        if call is None:
            return Call(line)
        self._held -= call.size
        return call

    def _put(self, key: str, call: Call) -> None:
        self._waiting[key] = call
        self._held += call.size

    def _told(self, key: str) -> Entry | Skipped:
        """Take a call out and tell it."""
        call = self._taken(key, 0)
        self._finish(key)
        return self._once(entry_of(call), call)

    def _once(self, found: Entry | Skipped, call: Call) -> Entry | Skipped:
        """Tell each answer once: an SDK may write a span of its own for a call, mostly without content."""
        answer = found.reply_id if isinstance(found, Entry) else first_text(call.attributes, "gen_ai.response.id")
        mark = "told" if isinstance(found, Entry) else "untold"
        if not answer:
            return found
        twice = f"told {answer}" in self._done or f"{mark} {answer}" in self._done
        self._finish(f"{mark} {answer}")
        return Skipped(call.line, _TWICE, bad=False) if twice else found

    def _finish(self, mark: str) -> None:
        """Remember that something is done with, among the last 20,000."""
        held = self._waiting.pop(mark, None)
        self._held -= held.size if held else 0
        self._done[mark] = None
        while len(self._done) > _MOST_DONE:
            del self._done[next(iter(self._done))]
