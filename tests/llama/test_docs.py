"""The pages on LlamaIndex: every block runs, and prints what the page says it prints."""

from pathlib import Path

import pytest
from tests.llama.page_blocks import LEFT_OPEN, ROOT, run, section

pytestmark = [pytest.mark.filterwarnings(*LEFT_OPEN)]

PAGES = ("cookbook/09_llamaindex_agent.md", "cookbook/10_llamaindex_rag_cache.md", "docs/llamaindex.md")


def run_page(page: Path) -> int:
    """Run all blocks of a page."""
    text = page.read_text(encoding="utf-8")
    assert "\n```python\n" not in text, f"{page.name}: a block of the language python runs beside the newest SDKs: py"
    return run(text, page)


@pytest.mark.usefixtures("provider")
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(page: str) -> None:
    assert (ROOT / page).is_file(), f"{page} is missing"
    assert run_page(ROOT / page) > 0


@pytest.mark.usefixtures("provider")
def test_the_readmes_section_runs() -> None:
    readme = ROOT / "README.md"
    found = section(readme, "Add it to LlamaIndex")
    assert run(found, readme) == readme.read_text(encoding="utf-8").count("\n```py\n")


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
        run_page(page)
    assert said in str(seen.value)


def test_a_page_that_is_right_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n```py\na = 1\n```\n\n```py\nprint(a + 1)\n```\n\n```text\n2\n```\n", encoding="utf-8")
    assert run_page(page) == 2
