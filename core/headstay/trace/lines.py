"""A log file to JSON records and lines of text, in bounded memory.

Read are JSON lines, lists of records on a line or over many, documents over several lines as `json.dumps(indent=2)`
and console exporters write them, and text in between. The file may be compressed with gzip.
"""

import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

from headstay.errors import WireError
from headstay.trace.entry import Skipped

Json = dict[str, object]
_Stream = IO[bytes] | gzip.GzipFile
Progress = Callable[[int, int | None], None]

MAX_LINE = 64 * 2**20
"""Bytes of a line, or of a document over several lines; longer ones are passed over without being held."""

_BLOCK = 2**20
_GZIP = b"\x1f\x8b"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_TOO_LONG = f"longer than {MAX_LINE // 2**20} MiB"
_NO_END = "a JSON document over several lines that does not end"


class Record(NamedTuple):
    """A JSON object, with the number of the line on which it begins."""

    line: int
    value: Json


class Text(NamedTuple):
    """A line that holds no JSON, without its line end."""

    line: int
    text: str


def pieces(path: Path | str, *, progress: Progress | None = None) -> Iterator[Record | Text | Skipped]:
    """Read a file piece by piece.

    Args:
        path: The file, or `-` for standard input.
        progress: Called about once a megabyte with the bytes read so far and the size of the file, both as they are
            on disk; None for the size of what has none.

    Raises:
        WireError: The file cannot be read, is empty or is in UTF-16; the message says which and why.
    """
    document: _Document | None = None
    empty = True
    for line, text in _texts(path, progress):
        empty = False
        if isinstance(text, Skipped):
            if document:
                document.spoiled = True
            yield text
            continue
        bare = text.strip()
        if document:
            if document.takes(text):
                continue
            yield from document.end(bare)
            document = None
            if bare.rstrip(",") == "}":
                continue
        if bare == "{":
            document = _Document(line, _indent(text))
        else:
            yield from _piece(line, text, bare)
    if document:
        yield Skipped(document.line, _NO_END)
    if empty:
        raise WireError(f"{_name(path)}: the file is empty; it must hold requests, such as one JSON object a line")


@dataclass(slots=True)
class _Document:
    """A JSON object over several lines, as far as it has been read.

    Attributes:
        line: The line of its opening brace, which stands alone.
        indent: Characters before that brace; the closing one has as many, and what lies inside has more.
        parts: The lines inside.
        size: Their length, of which no more than `MAX_LINE` is held.
        spoiled: Whether a line inside could not be read, which was reported already.
    """

    line: int
    indent: int
    parts: list[str] = field(default_factory=list[str])
    size: int = 0
    spoiled: bool = False

    def takes(self, text: str) -> bool:
        """Take a line if it lies inside."""
        if _indent(text) <= self.indent:
            return False
        self.size += len(text)
        if self.size > MAX_LINE:
            self.parts.clear()
        else:
            self.parts.append(text)
        return True

    def end(self, bare: str) -> Iterator[Record | Skipped]:
        """End at the first line outside, which should be the closing brace."""
        if bare.rstrip(",") != "}":
            yield Skipped(self.line, _NO_END)
        elif self.size > MAX_LINE:
            yield Skipped(self.line, _TOO_LONG)
        elif not self.spoiled:
            yield from _records(self.line, "\n".join(["{", *self.parts, "}"]))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _piece(line: int, text: str, bare: str) -> Iterator[Record | Text | Skipped]:
    """Read a line on which no document over several lines begins."""
    if bare[0] == "{" or (bare[0] == "[" and bare[1:20].lstrip()[:1] == "{"):
        yield from _records(line, bare)
    elif bare.strip("[], "):  # brackets alone open and close a list over several lines
        yield Text(line, text)


def _records(line: int, text: str) -> Iterator[Record | Skipped]:
    try:
        value = _loads(text)
    except json.JSONDecodeError as problem:
        early = problem.pos >= len(text) or problem.msg.startswith("Unterminated string")
        reason = "the line ends early" if early else problem.msg
        yield Skipped(line + problem.lineno - 1, f"not JSON: column {problem.colno}: {reason}")
    except RecursionError:
        yield Skipped(line, "nested too deeply")
    except ValueError:  # json.loads: a number of more digits than Python converts
        yield Skipped(line, "not JSON: a number has too many digits")
    else:
        for item in cast("list[object]", value) if isinstance(value, list) else [value]:
            yield Record(line, cast("Json", item)) if isinstance(item, dict) else Skipped(line, "not a JSON object")


def _loads(text: str) -> object:
    """Parse a line, which may be one of a list that stands on several."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as problem:
        inner = text.strip("[], \t")
        if inner == text or not (inner.startswith("{") and inner.endswith("}")):
            raise
        try:
            return json.loads(inner)
        except json.JSONDecodeError:
            raise problem from None


def _texts(path: Path | str, progress: Progress | None) -> Iterator[tuple[int, str | Skipped]]:
    """Return the lines that are not blank, with their numbers."""
    for line, data in _lines(path, progress):
        if isinstance(data, Skipped):
            yield line, data
        elif b"\0" in data:
            if line == 1 and data.startswith(_UTF_16):
                raise WireError(f"{_name(path)}: is in UTF-16; write it again in UTF-8")
            yield line, Skipped(line, "a NUL byte")
        else:
            try:
                text = data.decode("utf-8-sig" if line == 1 else "utf-8").rstrip()
            except UnicodeDecodeError:
                yield line, Skipped(line, "not UTF-8")
                continue
            if text:
                yield line, text


def _lines(path: Path | str, progress: Progress | None) -> Iterator[tuple[int, bytes | Skipped]]:
    """Return the lines with their numbers."""
    line = read = told = 0
    try:
        with _opened(path) as source:
            while data := source.stream.readline(MAX_LINE + 1):
                line += 1
                read += len(data)
                if len(data) <= MAX_LINE or data.endswith(b"\n"):
                    yield line, data
                else:
                    read += _pass_over(source.stream)
                    yield line, Skipped(line, _TOO_LONG)
                if progress is not None and read - told >= _BLOCK:
                    told = read
                    progress(source.done(read), source.total)
            if progress is not None:
                progress(source.done(read), source.total)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield line + 1, Skipped(line + 1, "the compressed file is damaged or cut off from here on")
    except OSError as problem:
        raise WireError(f"{_name(path)}: cannot be read: {problem.strerror or problem}") from problem


def _pass_over(stream: _Stream) -> int:
    """Read to the end of a line without holding it; return its bytes."""
    passed = 0
    while data := stream.readline(_BLOCK):
        passed += len(data)
        if data.endswith(b"\n"):
            break
    return passed


@dataclass(frozen=True, slots=True)
class _Source:
    """What is read.

    Attributes:
        stream: The bytes, decompressed.
        file: The file on disk, to see how far it has been read; None where there is no such place.
        total: Its size in bytes, or None.
    """

    stream: _Stream
    file: IO[bytes] | None = None
    total: int | None = None

    def done(self, read: int) -> int:
        """Return how many bytes of the file have been read, when `read` bytes came out."""
        return read if self.file is None else self.file.tell()


@contextmanager
def _opened(path: Path | str) -> Generator[_Source]:
    if str(path) == "-":
        yield _Source(sys.stdin.buffer)
        return
    with Path(path).open("rb", buffering=0) as file, io.BufferedReader(file, _BLOCK) as stream:
        status = os.fstat(file.fileno())
        place, total = (file, status.st_size) if stat.S_ISREG(status.st_mode) else (None, None)
        if stream.peek(len(_GZIP)).startswith(_GZIP):
            with gzip.GzipFile(fileobj=stream) as unpacked:  # no larger buffer: what it holds is lost in a damaged file
                yield _Source(unpacked, place, total)
        else:
            yield _Source(stream, place, total)


def _name(path: Path | str) -> str:
    return "standard input" if str(path) == "-" else str(path)
