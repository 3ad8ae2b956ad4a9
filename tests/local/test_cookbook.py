"""The recipe on the local model: every block runs against the server, and prints what the page says it prints."""

import io
import logging
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser

from headstay.local.home import SETTING

PAGE = Path(__file__).resolve().parents[2] / "cookbook" / "08_local_model.md"


@pytest.fixture
def at_home(local: Any, base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the recipe has its reader do first: a server of this user's runs."""
    monkeypatch.setenv(SETTING, str(local.home.path))
    for name in ("HEADSTAY_LOCAL_URL", "HEADSTAY_LOCAL_API_KEY", "HEADSTAY_SALT_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("at_home")
def test_every_block_of_the_recipe_runs_and_prints_what_the_page_says() -> None:
    run, screen, ran = PythonEvaluator(), io.StringIO(), []

    def evaluate(example: Example) -> None:
        screen.seek(0)
        screen.truncate()
        with redirect_stdout(screen):
            run(example)
        ran.append(example.line)

    def compare(example: Example) -> str | None:
        printed, expected = screen.getvalue().rstrip(), str(example.parsed).rstrip()
        return None if printed == expected else f"expected\n{expected}\nbut it printed\n{printed}"

    def regions(document: Document) -> Iterable[Region]:
        yield from CodeBlockParser("py", evaluate)(document)
        yield from CodeBlockParser("text", compare)(document)

    document = Document.parse(str(PAGE), regions)
    logger = logging.getLogger("headstay")
    level = logger.level
    try:
        for example in document.examples():
            example.evaluate()
    finally:
        logger.setLevel(level)
        document.namespace.clear()
    text = PAGE.read_text(encoding="utf-8")
    assert len(ran) == text.count("\n```py\n") > 5
