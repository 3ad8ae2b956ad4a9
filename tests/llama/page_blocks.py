"""Runs the blocks of a page that need LlamaIndex's own packages: `py` runs, `text` is what the block above prints.

They are not `python` and `output`, which run beside the newest SDKs.
"""

import io
import logging
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser
from sybil.typing import Evaluator

ROOT = Path(__file__).resolve().parents[2]
LEFT_OPEN = (
    "ignore:unclosed transport:ResourceWarning",
    "ignore:unclosed <socket.socket:ResourceWarning",
    "ignore:unclosed event loop:ResourceWarning",
)
"""Filters for tests of pages: a block is a script, and what it opened ends with the script."""


def section(path: Path, title: str) -> str:
    """Return what stands under a second-level heading of a page, on the lines of the page."""
    before, found, rest = path.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert found, f"{path.name}: no heading ## {title}"
    return "\n" * (before.count("\n") + 2) + rest.partition("\n## ")[0] + "\n"


def run(text: str, path: Path) -> int:
    """Run the blocks of a text one after the other, in one namespace; return how many there were.

    Args:
        text: The page, or what is left of it, on the lines of the page.
        path: The page, for the traceback.
    """
    evaluate, screen, ran = PythonEvaluator(), io.StringIO(), []

    def execute(example: Example) -> None:
        screen.seek(0)
        screen.truncate()
        with redirect_stdout(screen):
            evaluate(example)
        ran.append(example.line)

    def compare(example: Example) -> str | None:
        printed, expected = screen.getvalue().rstrip(), str(example.parsed).rstrip()
        return None if printed == expected else f"expected\n{expected}\nbut it printed\n{printed}"

    logger, handler = logging.getLogger("headstay"), logging.StreamHandler(screen)
    document = Document(text, str(path))
    document.namespace["__name__"] = "__main__"  # as in a script, for what looks it up
    for region in _regions(document, execute, compare):
        document.add(region)
    logger.addHandler(handler)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        logger.removeHandler(handler)
        document.namespace.clear()
    assert len(ran) == text.count("\n```py\n") > 0, f"{path.name}: no block of the language py was run"
    return len(ran)


def _regions(document: Document, execute: Evaluator, compare: Evaluator) -> Iterable[Region]:
    yield from CodeBlockParser("py", execute)(document)
    yield from CodeBlockParser("text", compare)(document)
