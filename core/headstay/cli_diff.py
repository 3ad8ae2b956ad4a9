"""`headstay diff`: why one request does not continue the prefix of another."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, cast

import typer

from headstay import diff_table
from headstay.cli_format import Format, FormatOption, as_json, bad_input
from headstay.comparison import Divergence
from headstay.comparison import diff as compare
from headstay.errors import WireError
from headstay.trace import Entry, read_log

Earlier = Annotated[Path, typer.Argument(help="the earlier request body, as JSON", show_default=False)]
Later = Annotated[Path, typer.Argument(help="the later request body, as JSON", show_default=False)]


def diff(request_a: Earlier, request_b: Later, *, form: FormatOption = Format.TEXT) -> None:
    """Say why request B does not continue the prefix of request A, and what that costs.

    Each file holds one request body: Anthropic Messages, OpenAI Chat Completions or OpenAI Responses. FILE:12 is the
    request on line 12 of a log. Exit 0: B continues A. Exit 1: there are findings, the earliest place first.
    """
    with bad_input():
        divergence = _compared(request_a, request_b)
    if form is Format.JSON:
        typer.echo(as_json(asdict(divergence)))
    else:
        diff_table.show(divergence)
    if not divergence.clean:
        raise typer.Exit(1)


def _compared(request_a: Path, request_b: Path) -> Divergence:
    """Read two files and compare what they hold.

    Raises:
        WireError: One of them holds no request body, or they are of two wire formats; the message names the file.
    """
    one, other = read_body(request_a), read_body(request_b)
    try:
        return compare(one, other)
    except WireError as problem:
        text = str(problem)
        for name, path in (("A: ", request_a), ("B: ", request_b)):
            if text.startswith(name):
                raise WireError(f"{path}: {text.removeprefix(name)}") from problem
        raise


def read_body(path: Path) -> dict[str, object]:
    """Read one request body from a file, or from a line of a log: `calls.jsonl:12`.

    Raises:
        WireError: The file cannot be read, or what it holds is no JSON; the message says where.
    """
    log, colon, place = str(path).rpartition(":")
    if colon and place.isdecimal() and not path.exists():
        return _of_line(Path(log), int(place))
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise WireError(f"{path}: cannot be read: {problem.strerror or problem}") from problem
    if not data.strip():
        raise WireError(f"{path}: the file is empty; it must hold one request body as JSON")
    if b"\x00" in data:
        line = data.count(b"\n", 0, data.index(b"\x00")) + 1
        raise WireError(f"{path}: line {line} holds a NUL byte; give the request body as JSON in UTF-8")
    try:
        return cast("dict[str, object]", json.loads(data.decode("utf-8-sig")))
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise WireError(f"{path}: line {line} is not UTF-8") from problem
    except json.JSONDecodeError as problem:
        if problem.msg == "Extra data":
            raise WireError(
                f"{path}: line {problem.lineno}: more than one JSON value; give one request body"
            ) from problem
        raise WireError(f"{path}: not JSON: line {problem.lineno}, column {problem.colno}: {problem.msg}") from problem
    except RecursionError as problem:
        raise WireError(f"{path}: nested too deeply to be a request body") from problem


def _of_line(log: Path, line: int) -> dict[str, object]:
    """Read the request that begins on a line of a log.

    Raises:
        WireError: The log cannot be read, or no request begins there.
    """
    for piece in read_log(log):
        if piece.line != line:
            continue
        if isinstance(piece, Entry):
            return dict(piece.body)
        raise WireError(f"{log}: no request on line {line}: {piece.reason}")
    raise WireError(f"{log}: no request begins on line {line}")
