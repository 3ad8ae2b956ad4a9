"""A log file to the requests in it, whatever wrote it."""

from collections.abc import Iterator
from pathlib import Path

from headstay.trace import langsmith, litellm, otel, raw
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import first_of, moment
from headstay.trace.lines import Json, Progress, Record, pieces
from headstay.trace.sdk_debug import DebugLog, is_sdk_line

_MESSAGES = ("message", "msg", "event")
_TIMES = ("timestamp", "asctime", "time", "ts", "@timestamp")


def read_log(path: Path | str, *, progress: Progress | None = None) -> Iterator[Entry | Skipped]:
    """Read the requests of a log, in bounded memory.

    Read are request bodies (bare, or with what was logged beside them), batch files, debug logs of the Python SDKs,
    LangSmith run exports, LiteLLM's payloads and spend logs, and OpenTelemetry's GenAI spans and events; a log may mix
    them. It may be JSON lines, lists, documents over several lines, and compressed with gzip.

    Args:
        path: The file, or `-` for standard input.
        progress: Called about once a megabyte with the bytes read so far and the size of the file, both as they are on
            disk; None for the size of what has none.

    Yields:
        Each request, and each piece that is none with the reason. Where a request waits for what the log says of its
        answer, it comes after pieces that stand behind it.

    Raises:
        WireError: The file cannot be read, is empty or is in UTF-16; the message says which and why. It comes with the
            first piece, not with the call.
    """
    debug, joiner = DebugLog(), otel.Joiner()
    for piece in pieces(path, progress=progress):
        if isinstance(piece, Skipped):
            yield piece
        elif isinstance(piece, Record):
            yield from _of_record(piece, debug, joiner)
        else:
            yield from debug.line(piece.line, piece.text)
    yield from debug.flush()
    yield from joiner.flush()


def _of_record(piece: Record, debug: DebugLog, joiner: otel.Joiner) -> Iterator[Entry | Skipped]:
    line, record = piece
    message = first_of(record, _MESSAGES)
    if isinstance(message, str) and is_sdk_line(message):  # a logger that writes JSON
        return debug.line(line, message, at=_time(record))
    for kind in (joiner.entries, langsmith.entries, litellm.entries):
        found = kind(record, line)
        if found is not None:
            return found
    return raw.entries(record, line)


def _time(record: Json) -> float | None:
    return moment(first_of(record, _TIMES))
