"""What `headstay lint` shows to people: totals, the fixes worth most, and the breaks one by one."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from headstay.diff_table import visible
from headstay.lint.report import Fix, LoggedBreak, Passed, Report

_LISTED = 20
_LINES = 5


@contextmanager
def progress(name: str) -> Generator[Callable[[int, int | None], None]]:
    """Show on stderr how much of a file is read, where somebody looks.

    Args:
        name: The file's name.

    Yields:
        A function that takes the bytes read so far and the size of the file, or None.
    """
    columns = (TextColumn(name, markup=False), BarColumn(bar_width=24), DownloadColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)

        def advance(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


def said(line: str) -> None:
    """Show a line of progress on stderr, where somebody looks."""
    if sys.stderr.isatty():
        _line(Console(stderr=True), line, style="dim")


def show(report: Report, *, console: Console | None = None) -> None:
    """Print a report.

    Args:
        report: What was found.
        console: Where to print; stdout by default.
    """
    out = console or Console()
    _line(out, _headline(report), style="bold")
    _line(out, _tokens(report))
    for passed in report.skipped:
        _line(out, _passed(passed), style="yellow" if passed.bad else "dim")
    for notice in report.notices:
        _line(out, f"note: {notice}", style="dim")
    if report.fixes:
        _show_fixes(report, out)
    if not report.clean:
        _show_causes(report, out)
        _show_breaks(report, out)
    _line(out, "")
    _line(out, _prices(report), style="dim")


def _line(out: Console, text: str, *, style: str = "") -> None:
    out.print(text, markup=False, highlight=False, soft_wrap=True, style=style)


def _headline(report: Report) -> str:
    read = f"{_count(report.requests, 'request')} in {_count(report.conversations, 'conversation')}"
    if report.clean and report.requests > 1:
        return f"clean: {read}, and every one continues the one before it"
    if report.clean:
        return f"clean: {read}, so there is nothing to compare"
    return f"{_count(report.lost.breaks, 'break')} in {read}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _tokens(report: Report) -> str:
    whole, read = report.readable_tokens, report.read_tokens
    share = f" ({read / whole:.0%})" if whole else ""
    lost = f"{report.lost.lost_tokens:,} tokens and {_usd(report.lost.lost_usd)} lost to breaks"
    if not report.with_usage:
        return f"{read:,} of {whole:,} tokens that repeat can be read{share}, as estimated without usage; {lost}"
    how = "" if report.with_usage == report.requests else ", estimated where the log has no usage"
    return f"{read:,} of {whole:,} readable tokens were read{share}{how}; {lost}"


def _usd(value: float | None) -> str:
    if value is None:
        return "no price"
    return f"${value:,.2f}" if value >= 1 or not value else f"${value:.4f}"


def _passed(passed: Passed) -> str:
    more = ", ..." if passed.count > len(passed.lines) else ""
    word = "line" if passed.count == 1 else "lines"
    kind = "warning" if passed.bad else "note"
    return f"{kind}: {passed.count:,} passed over ({word} {', '.join(map(str, passed.lines))}{more}): {passed.reason}"


def _show_fixes(report: Report, out: Console) -> None:
    _line(out, "\nworth most", style="bold")
    for number, fix in enumerate(report.fixes, 1):
        _line(out, f"{number}. {_fix(fix)}")
        out.print(Text(f"   {visible(fix.remedy)}"), soft_wrap=True, highlight=False)


def _fix(fix: Fix) -> str:
    where = f" at {visible(fix.path)}" if fix.path else ""
    more = ", ..." if fix.sum.breaks > len(fix.lines) == _LINES else ""
    lines = f"line{'' if len(fix.lines) == 1 else 's'} {', '.join(map(str, fix.lines[:_LINES]))}{more}"
    times = f", {fix.sum.breaks:,}x" if fix.sum.breaks else ""
    lost = f"{_usd(fix.sum.lost_usd)}, {fix.sum.lost_tokens:,} tokens"
    if fix.alone_tokens and not fix.sum.lost_tokens:
        lost = f"gains nothing by itself, and nothing behind it does without it ({fix.alone_tokens:,} tokens)"
    return f"{fix.cause}{where}: {lost}{times} ({lines})"


def _show_causes(report: Report, out: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("\ncause")
    for name in ("breaks", "tokens lost", "money lost"):
        table.add_column(f"\n{name}", justify="right")
    for cause, total in report.by_cause.items():
        table.add_row(cause.value, f"{total.breaks:,}", f"{total.lost_tokens:,}", _usd(total.lost_usd))
    out.print(table)


def _show_breaks(report: Report, out: Console) -> None:
    for found in report.breaks[:_LISTED]:
        _line(out, "")
        title = Text(f"line {found.line}: ")
        title.append(found.cause.value, style="bold red")
        title.append(_place(found))
        out.print(title, soft_wrap=True, highlight=False)
        if found.before or found.after:
            _line(out, f"   before: {visible(found.before) or '(nothing)'}")
            _line(out, f"   after:  {visible(found.after) or '(nothing)'}")
    rest = report.lost.breaks - min(_LISTED, len(report.breaks))
    if rest:
        _line(out, f"\nand {rest:,} more: --format json lists them")


def _place(found: LoggedBreak) -> str:
    where = f" at {visible(found.path)}" if found.path else ""
    at = f", character {found.at}" if found.at else ""
    after = f" after line {found.after_line}" if found.after_line is not None else ""
    name = f" ({visible(found.name)})" if found.name else ""
    when = f", {found.ts}" if found.ts else ""
    lost = f"~{found.lost_tokens:,} tokens, {_usd(found.lost_usd)}"
    return f"{where}{at}{after}, conversation {found.conversation}{name}, turn {found.turn}{when}: {lost}"


def _prices(report: Report) -> str:
    on = f"the prices of {report.priced_on}" if report.priced_on else "the prices of each call's own day, or of today"
    missing = report.lost.unpriced
    unpriced = f" {_count(missing, 'break')} without a known price." if missing else ""
    return f"Money: {on}, by {report.price_source}, last checked {report.price_date}.{unpriced}"
