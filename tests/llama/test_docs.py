"""The pages on LlamaIndex: every block of the language `py` runs, and a block `text` is what the one above it prints.

They are not `python` and `output`, which run beside the newest SDKs.
"""

import io
import logging
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("cookbook/09_llamaindex_agent.md", "cookbook/10_llamaindex_rag_cache.md", "docs/llamaindex.md")


def run(page: Path) -> int:
    """Run the blocks of a page one after the other; return how many there were."""
    text = page.read_text(encoding="utf-8")
    assert "\n```python\n" not in text, f"{page.name}: a block of the language python runs beside the newest SDKs: py"
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

    def regions(document: Document) -> Iterable[Region]:
        yield from CodeBlockParser("py", execute)(document)
        yield from CodeBlockParser("text", compare)(document)

    logger, handler = logging.getLogger("headstay"), logging.StreamHandler(screen)
    logger.addHandler(handler)
    document = Document.parse(str(page), regions)
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        logger.removeHandler(handler)
        document.namespace.clear()
    assert len(ran) == text.count("\n```py\n") > 0, f"{page.name}: no block of the language py was run"
    return len(ran)


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(page: str) -> None:
    assert (ROOT / page).is_file(), f"{page} is missing"
    assert run(ROOT / page) > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n```py\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "but it printed\n2"),
        ("\n```py\nassert 1 + 1 == 3, 'the sum'\n```\n", "the sum"),
        ("\n```text\n\n```\n", "no block of the language py was run"),
        ("\n```python\nprint(1)\n```\n", "runs beside the newest SDKs"),
    ],
)
def test_what_is_wrong_with_a_page_is_seen(tmp_path: Path, text: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with pytest.raises(AssertionError) as seen:
        run(page)
    assert said in str(seen.value)


def test_a_page_that_is_right_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n```py\na = 1\n```\n\n```py\nprint(a + 1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    assert run(page) == 2
