"""Every Python block of every page runs, and prints what the page says it prints."""

import io
import logging
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser


class Screen:
    """What a reader sees while the blocks of a page run: printed lines, and headstay's log lines."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self._run = PythonEvaluator()
        self.ran = 0

    def run(self, example: Example) -> None:
        """Run a block; what it prints replaces what an earlier block printed."""
        self.text.seek(0)
        self.text.truncate()
        with redirect_stdout(self.text):
            self._run(example)
        self.ran += 1

    def compare(self, example: Example) -> str | None:
        """Hold what the last block printed against the page."""
        printed = self.text.getvalue().rstrip()
        expected = str(example.parsed).rstrip()
        return None if printed == expected else f"expected\n{expected}\nbut it printed\n{printed}"


def read(page: Path, screen: Screen) -> Document:
    """Find the blocks of a page: `python` to run, `output` to compare."""

    def regions(document: Document) -> Iterable[Region]:
        yield from CodeBlockParser("python", screen.run)(document)
        yield from CodeBlockParser("output", screen.compare)(document)

    return Document.parse(str(page), regions)


@pytest.mark.usefixtures("provider")
# LangChain's history wrapper is deprecated and still in use; the guide says so and shows it.
@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainDeprecationWarning")
def test_every_block_runs_and_prints_what_the_page_says(page: Path) -> None:
    screen = Screen()
    handler = logging.StreamHandler(screen.text)
    logger = logging.getLogger("headstay")
    logger.addHandler(handler)
    document = read(page, screen)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        logger.removeHandler(handler)
        document.namespace.clear()
    assert screen.ran == page.read_text(encoding="utf-8").count("\n```python\n")


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```output\n3\n```\n", encoding="utf-8")
    block, output = read(page, Screen()).examples()
    block.evaluate()
    with pytest.raises(AssertionError, match="but it printed\n2"):
        output.evaluate()


def test_a_failing_block_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nassert 1 + 1 == 3\n```\n", encoding="utf-8")
    (block,) = read(page, Screen()).examples()
    with pytest.raises(AssertionError):
        block.evaluate()
