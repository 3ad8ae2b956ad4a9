"""What `headstay cache` prints: entries as tables, and as JSON."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstay.semantic.answer import read_answer
from headstay.semantic.entry import Entry, Page, Usage

_NAME = 10
_OWNER = 14
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"))


def as_json(entry: Entry, now: float, *, whole: bool = False) -> dict[str, object]:
    """Return an entry in JSON values.

    Args:
        entry: The entry.
        now: Seconds since the epoch.
        whole: With its answer in the host's own form, and its keys.
    """
    answer = read_answer(entry.answer)
    told: dict[str, object] = {
        "entry": entry.id,
        "query": entry.query,
        "answer": answer.text if answer else None,
        "tenant": entry.tenant,
        "user": entry.user,
        "version": entry.version,
        "tags": list(entry.tags),
        "created": entry.created,
        "age": max(0.0, now - entry.created),
        "expires": entry.expires,
        "expired": not entry.alive(now),
        "hits": entry.hits,
        "used": entry.used,
        "confirmed": entry.confirmed,
        "wrong": entry.wrong,
        "by_meaning": entry.vector is not None,
        "bytes": entry.size,
    }
    if whole:
        told |= {
            "text": entry.text if entry.text is not None else entry.query,
            "body": dict(answer.body) if answer else None,
            "finish": answer.finish if answer else None,
            "tool_calls": answer.tool_calls if answer else None,
            "tokens": [answer.input_tokens, answer.output_tokens] if answer else None,
            "scope": entry.scope,
            "family": entry.family,
            "exact": entry.exact,
        }
    return told


def show_list(page: Page, usage: Usage, now: float, *, console: Console | None = None) -> None:
    """Print a page of entries, one a line.

    Args:
        page: The entries.
        usage: How full the file is.
        now: Seconds since the epoch.
        console: Where to print; stdout by default.
    """
    out = console or Console()
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("entry", no_wrap=True, min_width=_NAME)
    for name in ("age", "left", "hits", "wrong"):
        table.add_column(name, justify="right", no_wrap=True, min_width=max(len(name), 5))
    owned = any(entry.tenant or entry.user for entry in page.entries)
    if owned:
        table.add_column("tenant/user", no_wrap=True, min_width=11)
    table.add_column("question", no_wrap=True, overflow="ellipsis", ratio=1)
    for entry in page.entries:
        owner = [_shown(_owner(entry))] if owned else []
        judged = f"{entry.wrong}/{entry.wrong + entry.confirmed}" if entry.wrong + entry.confirmed else "-"
        times = (duration(max(0.0, now - entry.created)), _left(entry, now), str(entry.hits), judged)
        table.add_row(entry.id[:_NAME], *times, *owner, _shown(" ".join(entry.query.split())))
    if page.entries:
        out.print(table)
    out.print(f"{len(page.entries)} shown; {usage.entries:,} kept, {usage.size:,} bytes", style="dim", highlight=False)
    if page.cursor is not None:
        out.print(f"more: --cursor {page.cursor}", style="dim", highlight=False)


def show_entry(entry: Entry, now: float, *, console: Console | None = None) -> None:
    """Print one entry in full.

    Args:
        entry: The entry.
        now: Seconds since the epoch.
        console: Where to print; stdout by default.
    """
    out = console or Console()
    answer = read_answer(entry.answer)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    judged = f"{entry.confirmed} right, {entry.wrong} wrong"
    if entry.wrong > entry.confirmed:
        judged += "; not served any more"
    rows = {
        "entry": entry.id,
        "question": entry.query,
        "in the text": entry.text or "",
        "answer": answer.text if answer else "cannot be read; it is not served",
        "made": f"{_moment(entry.created)}, {duration(max(0.0, now - entry.created))} ago",
        "expires": "never" if entry.expires is None else f"{_moment(entry.expires)} ({_left(entry, now)})",
        "served": f"{entry.hits} times" + (f", last {_moment(entry.used)}" if entry.hits else ""),
        "judged": judged,
        "tenant": entry.tenant or "",
        "user": entry.user or "",
        "version": entry.version or "",
        "tags": ", ".join(entry.tags),
        "found by": "meaning" if entry.vector is not None else "identical requests only",
        "tokens": f"{answer.input_tokens:,} in, {answer.output_tokens:,} out" if answer else "",
        "scope": entry.scope,
    }
    for name, value in rows.items():
        if value:
            table.add_row(name, _shown(value))
    out.print(table)


def show_import(
    stored: int, kept: int, exact: Sequence[Mapping[str, object]], faq: Path, *, console: Console | None = None
) -> None:
    """Print what became of a file of answers.

    Args:
        stored: How many were put in.
        kept: How many were left out since an answer was there.
        exact: Those that answer identical questions only: line and text of the reason.
        faq: The file.
        console: Where to print; stdout by default.
    """
    out = console or Console()
    there = f", {kept} were there already" if kept else ""
    out.print(f"{stored} {'answer' if stored == 1 else 'answers'} imported{there}", highlight=False)
    for one in exact:
        out.print(Text(f"{faq}:{one['line']}: {one['text']}"), soft_wrap=True)


def duration(seconds: float) -> str:
    """Write a time span in the largest unit that it fills: 5 min, 3 d."""
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), _UNITS[-1])
    return f"{int(seconds // size)} {unit}"


def _owner(entry: Entry) -> str:
    owner = f"{entry.tenant or '-'}/{entry.user or '-'}"
    return owner if len(owner) <= _OWNER else f"{owner[: _OWNER - 1]}…"


def _left(entry: Entry, now: float) -> str:
    if entry.expires is None:
        return "-"
    return "expired" if entry.expires <= now else duration(entry.expires - now)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")


def _shown(text: str) -> Text:
    """Show a stored text as it is; signs that would steer a terminal are spelt out."""
    return Text("".join(sign if sign.isprintable() or sign in "\n\t" else ascii(sign)[1:-1] for sign in text))
