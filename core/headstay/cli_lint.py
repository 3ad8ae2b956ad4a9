"""`headstay lint`: what broke the prefix in a log of requests, or in those that an agent sends."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from headstay import lint_table
from headstay.cli_format import Format, FormatOption, as_json, bad_input, load
from headstay.errors import ConfigError, WireError
from headstay.lint import Report
from headstay.lint import lint as check
from headstay.trace import read_log
from headstay.trace.entry import Entry, Skipped

Log = Annotated[Path | None, typer.Argument(help="the log, as JSON lines; - for stdin", show_default=False)]
Target = Annotated[
    str | None,
    typer.Option("--agent", metavar="MODULE:ATTR", help="run this agent factory twice and lint what it sends"),
]
Keep = Annotated[
    Path | None, typer.Option("--keep", metavar="FILE", help="with --agent: write what it sent, one request a line")
]
PriceDate = Annotated[
    str | None,
    typer.Option("--prices", metavar="YYYY-MM-DD", help="price all calls as of this day; else each as of its own"),
]


def lint(
    trace: Log = None,
    *,
    agent: Target = None,
    keep: Keep = None,
    prices: PriceDate = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Find what broke the prompt prefix in a log of requests, when, and what it cost.

    TRACE has one request a line, as it was sent or under "request" with "response_usage", "ts" and "conversation"; or
    it is a debug log of the Anthropic or OpenAI SDK, an export of LangSmith runs, or a log of LiteLLM or of
    OpenTelemetry's GenAI conventions. Exit 0: nothing broke. Exit 1: there are breaks. Exit 2: it cannot be read.
    """
    with bad_input():
        day = _day(prices)
        if (trace is None) == (agent is None):
            raise ConfigError("give either a log or --agent MODULE:ATTR")
        if keep is not None and agent is None:
            raise ConfigError("--keep goes with --agent: a log is kept already")
        report = _of_agent(agent, day, keep) if agent is not None else _of_log(cast("Path", trace), day)
    if form is Format.JSON:
        typer.echo(as_json(_told(report)))
    else:
        lint_table.show(report)
    if not report.clean:
        raise typer.Exit(1)


def _day(text: str | None) -> date | None:
    if text is None:
        return None
    try:
        day = datetime.strptime(text, "%Y-%m-%d").date()
    except ValueError as problem:
        raise ConfigError(f"--prices {text}: give a day as YYYY-MM-DD") from problem
    if day > datetime.now(UTC).date():
        raise ConfigError(f"--prices {text}: that day has not come")
    return day


def _of_log(path: Path, day: date | None) -> Report:
    """Lint a log.

    Raises:
        WireError: It cannot be read, or holds no request; the message names the first line that is wrong.
    """
    first: list[Skipped] = []

    def noted(pieces: Iterator[Entry | Skipped]) -> Iterator[Entry | Skipped]:
        for piece in pieces:
            if isinstance(piece, Skipped) and (not first or (piece.bad and not first[0].bad)):
                first[:] = [piece]
            yield piece

    with lint_table.progress(path.name) as advance:
        report = check(noted(read_log(path, progress=advance)), prices_on=day)
    if not report.requests:
        told = f"line {first[0].line}: {first[0].reason}" if first else "it is empty"
        raise WireError(f"{path}: no request in it; {told}")
    return report


def _of_agent(target: str, day: date | None, keep: Path | None) -> Report:
    """Lint what an agent sends.

    Raises:
        HeadstayError: It cannot be run, or sent nothing.
    """
    load("uvicorn", "emulator")
    if keep is not None:
        with _written(keep), keep.open("a"):
            pass  # a file that cannot be written is found before the agent runs, and keeps what it holds
    rehearsal = cast("Any", import_module("headstay.rehearsal"))
    exchanges = cast("Any", import_module("headstay.trace.exchanges"))
    found = rehearsal.rehearse(target, progress=lint_table.said)
    if keep is not None:
        with _written(keep):
            keep.write_text("".join(map(_line, found.exchanges)), encoding="utf-8")
    report = check(exchanges.entries(found.exchanges), prices_on=day)
    return replace(report, notices=(*report.notices, *found.notices))


@contextmanager
def _written(path: Path) -> Generator[None]:
    """Say in one line that a file cannot be written."""
    try:
        yield
    except OSError as problem:
        raise ConfigError(f"--keep {path}: cannot be written: {problem.strerror or problem}") from problem


def _line(exchange: Any) -> str:
    """Write what was sent and what came back as a line of a log, to be linted, or compared with another line."""
    line = {
        "request": exchange.body,
        "response": exchange.response,
        "status": exchange.status,
        "ts": exchange.started,
        "answered": exchange.first_event,
    }
    return json.dumps(line) + "\n"


def _told(report: Report) -> dict[str, Any]:
    told: dict[str, Any] = asdict(report)
    lost = told.pop("lost")
    totals = {"readable_tokens": told.pop("readable_tokens"), "read_tokens": told.pop("read_tokens"), **_sum(lost)}
    fixes = [_flat(fix) for fix in told.pop("fixes")]
    prices = {"date": told.pop("price_date"), "source": told.pop("price_source"), "on": told.pop("priced_on")}
    by_cause = {cause: _sum(total) for cause, total in told.pop("by_cause").items()}
    return {
        **{name: told.pop(name) for name in ("clean", "requests", "with_usage", "conversations")},
        "totals": {**totals, "unpriced_breaks": lost["unpriced"]},
        "prices": prices,
        "by_cause": by_cause,
        "fixes": fixes,
        **told,
    }


def _flat(fix: dict[str, Any]) -> dict[str, Any]:
    names = ("cause", "path", "remedy", "alone_tokens", "lines")
    return {**{name: fix[name] for name in names}, **_sum(fix["sum"])}


def _sum(total: dict[str, Any]) -> dict[str, Any]:
    return {name: total[name] for name in ("breaks", "lost_tokens", "lost_usd")}
