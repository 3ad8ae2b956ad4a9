"""What `headstay diff` shows to people: each finding with both sides next to each other."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headstay.causes import Cause
from headstay.comparison import Divergence, Finding
from headstay.forms import first_difference

_FORM = (Cause.WHITESPACE, Cause.UNICODE_FORM)


def show(divergence: Divergence, *, console: Console | None = None) -> None:
    """Print the findings, the one at the earliest place first.

    Args:
        divergence: What was found.
        console: Where to print; stdout by default.
    """
    out = console or Console()
    shared, lost = (f"{tokens:,}" for tokens in (divergence.shared_tokens, divergence.lost_tokens))
    if divergence.clean:
        out.print(f"clean: B continues A ({divergence.wire}; about {shared} tokens shared)", markup=False)
        return
    count = len(divergence.findings)
    out.print(
        f"{count} {'finding' if count == 1 else 'findings'} ({divergence.wire}): "
        f"about {shared} tokens shared, about {lost} paid for again",
        markup=False,
        style="bold",
    )
    for number, finding in enumerate(divergence.findings, 1):
        _show(number, finding, out)
    out.print("\nTokens are estimates from bytes; images and files are not counted.", style="dim")


def _show(number: int, finding: Finding, out: Console) -> None:
    out.print()
    title = Text(f"{number}. ")
    title.append(finding.cause.value, style="bold red")
    where = finding.path or "request"
    title.append(f"  {visible(where)}" + (f", character {finding.at}" if finding.at else ""))
    title.append(f"  ~{finding.lost_tokens:,} tokens", style="dim")
    out.print(title, soft_wrap=True)
    if finding.before or finding.after:
        table = Table(show_edge=False, pad_edge=False, expand=True, box=None, padding=(0, 1))
        table.add_column("A", header_style="dim", ratio=1, overflow="fold")
        table.add_column("B", header_style="dim", ratio=1, overflow="fold")
        table.add_row(*_sides(finding))
        out.print(table)
    out.print(Text(f"   {visible(finding.remedy)}"), soft_wrap=True, highlight=False)


def _sides(finding: Finding) -> tuple[Text, Text]:
    """Return both sides with what differs between them set off."""
    before, after = (
        ascii(text)[1:-1] if finding.cause == Cause.UNICODE_FORM else visible(text)
        for text in (finding.before, finding.after)
    )
    if finding.cause == Cause.WHITESPACE:
        before, after = before.replace(" ", "\u00b7"), after.replace(" ", "\u00b7")
    start = first_difference(before, after)
    end = min(first_difference(before[start:][::-1], after[start:][::-1]), min(len(before), len(after)) - start)
    sides: list[Text] = []
    for text in (before, after):
        side = Text(text or "(nothing)", style="" if text else "dim")
        if text and start < len(text) - end:
            side.stylize("bold reverse" if finding.cause in _FORM else "bold yellow", start, len(text) - end)
        sides.append(side)
    return sides[0], sides[1]


def visible(text: str) -> str:
    """Return a text in one line, with what a terminal would act on written out."""
    shown = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)
