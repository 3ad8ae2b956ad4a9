"""The demo's progress line and its table."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_NATIVE = "oracle-native"
_ABOUT_NATIVE = (
    "oracle puts a late tool at the end of the list, oracle-native appends it to the conversations, as headstay does "
    "on these models: there headstay can cost less than oracle, and share is of what oracle-native would read."
)


@contextmanager
def progress(total: int) -> Generator[Callable[[Any, str, int], None]]:
    """Show on stderr which variant runs and how far it is.

    Args:
        total: How many calls a variant makes.

    Yields:
        A function that takes setup, variant and the number of calls made.
    """
    columns = (TextColumn("{task.description:<46}"), BarColumn(bar_width=12), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks: dict[tuple[str, str, str], Any] = {}

        def advance(setup: Any, variant: str, made: int) -> None:
            key = (setup.wire, setup.model, variant)
            if key not in tasks:
                tasks[key] = bar.add_task(f"{setup.wire} {setup.model}: {variant}", total=total)
            bar.update(tasks[key], completed=made)

        yield advance


def show(results: Sequence[Mapping[str, Any]], title: str, prices: str, *, console: Console | None = None) -> None:
    """Print the results as one table, then each cause with the line that mends it.

    Args:
        results: As `run_demo` returns them.
        title: What was run.
        prices: Date of the prices.
        console: Where to print; stdout by default.
    """
    out = console or Console()
    out.print(title, style="bold")
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault((result["wire"], result["model"]), []).append(result)
    for (wire, model), rows in groups.items():
        out.print(_table(f"{model}, {wire}", rows))
    _show_causes(results, out)
    out.print(
        f"Caches are modelled and tokens estimated; prices of {prices} (genai-prices). "
        "share: read, of what a perfect layout (oracle) would read; read k, write k: thousand tokens; x plain: cost; "
        "heads: different heads sent; breaks: named, none where headstay is not in play.",
        style="dim",
        soft_wrap=True,
    )
    if any(result["variant"] == _NATIVE for result in results):
        out.print(_ABOUT_NATIVE, style="dim", soft_wrap=True)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", min_width=76)
    table.add_column("variant", no_wrap=True)
    for name in ("share", "read k", "write k", "USD", "x plain", "heads", "breaks"):
        table.add_column(name, justify="right", no_wrap=True)
    base = next((row["cost_usd"] for row in rows if row["variant"] == "plain"), None)
    for row in rows:
        cost = row["cost_usd"]
        table.add_row(
            row["variant"],
            f"{row['read_share']:.3f}",
            f"{row['cache_read_tokens'] / 1000:,.0f}",
            f"{row['cache_write_tokens'] / 1000:,.0f}",
            "-" if cost is None else f"{cost:.3f}",
            f"{cost / base:.2f}" if cost is not None and base else "-",
            str(row["distinct_heads"]),
            str(len(row["breaks"])),
        )
    return table


def _show_causes(results: Sequence[Mapping[str, Any]], out: Console) -> None:
    for variant, title in (
        ("default", "default: what broke the head; put the Slot lines into volatile=[...], or give template="),
        ("declared", "declared: what the application or the provider broke on purpose"),
        ("headstay", "headstay: what broke the prefix"),
    ):
        chosen = [result for result in results if result["variant"] == variant]
        if not chosen:
            continue
        found = Counter((item["cause"], item["owner"], item["remedy"]) for item in chosen[0]["breaks"])
        out.print(f"\n{title} ({chosen[0]['wire']}, {chosen[0]['model']})", style="bold", markup=False)
        for (cause, owner, remedy), times in found.most_common():
            out.print(f"  {times:>3} x {cause} ({owner})", markup=False)
            out.print(f"        {remedy}", markup=False, highlight=False, soft_wrap=True)
    out.print()
