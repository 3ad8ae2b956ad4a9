"""Every cause code has a page with all parts, the index names them all, and no page is without a code."""

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from headstay.causes import Cause, Owner

_ROW = re.compile(
    r'^\| <a id="(?P<anchor>\w+)"></a>\[(?P<name>\w+)\]\(causes/(?P<page>\w+)\.md\) '
    r"\| (?P<means>.+) \| (?P<owners>.+) \|$",
    re.MULTILINE,
)
_PARTS = ("What it looks like", "Why it costs", "LangChain", "LangGraph", "LlamaIndex", "When to leave it")
_FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# They run where there is no LangChain, in `tests/llama/test_causes.py`.
_FOR_LLAMA_INDEX = {"headstay", "llama_index", "llama_index_headstay", "pydantic", *sys.stdlib_module_names}


def parts(page: str) -> dict[str, str]:
    """Return what stands under each heading of a page; what stands above the first under its title."""
    pieces = re.split(r"^#{1,2} (.+)$", page, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    """Return the code blocks of one language."""
    return [found["text"] for found in _FENCE.finditer(text) if found["language"] == language]


def imported(block: str) -> set[str]:
    """Return the top-level packages that a block imports."""
    nodes = list(ast.walk(ast.parse(block)))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    return {
        name.split(".")[0] for name in plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    }


def index(root: Path) -> list[dict[str, str]]:
    """Return the rows of the index."""
    return [row.groupdict() for row in _ROW.finditer((root / "docs" / "causes.md").read_text(encoding="utf-8"))]


@pytest.fixture(params=list(Cause), ids=str)
def code(request: pytest.FixtureRequest) -> str:
    """Each cause code in turn."""
    return str(request.param)


@pytest.fixture
def written(code: str, root: Path) -> str:
    """The page of the code."""
    return (root / "docs" / "causes" / f"{code}.md").read_text(encoding="utf-8")


def test_the_index_names_every_cause_in_order(root: Path) -> None:
    codes = [str(cause) for cause in Cause]
    assert [(row["anchor"], row["name"], row["page"]) for row in index(root)] == [(one, one, one) for one in codes]


def test_no_page_is_without_a_cause(root: Path) -> None:
    assert {path.stem for path in (root / "docs" / "causes").iterdir()} == {str(cause) for cause in Cause}


def test_a_page_has_all_parts(code: str, written: str) -> None:
    found = parts(written)
    assert list(found) == [code, *_PARTS]
    assert [name for name, text in found.items() if not text.strip()] == []


def test_a_page_and_the_index_name_the_same_owners(code: str, written: str, root: Path) -> None:
    (row,) = (row for row in index(root) if row["name"] == code)
    owners = set(re.findall(r"`(\w+)`", row["owners"]))
    intro = parts(written)[code]
    assert "wner" in intro
    assert {owner for owner in get_args(Owner) if f"`{owner}`" in intro} == owners


def test_a_page_says_what_it_costs_at_each_provider(written: str) -> None:
    said = parts(written)["Why it costs"]
    assert [name for name in ("Anthropic", "OpenAI", "vLLM") if name not in said and "all three" not in said] == []


def test_a_page_shows_its_cause_by_running(code: str, written: str) -> None:
    """The blocks run in `test_examples`; what they print there names the code."""
    shown = parts(written)["What it looks like"]
    assert blocks(shown, "python")
    assert any(re.search(rf"\b{code}\b", printed) for printed in blocks(shown, "output"))


def test_blocks_for_llama_index_stand_apart(written: str) -> None:
    found = parts(written)
    apart = blocks(found["LlamaIndex"], "py")
    assert apart
    assert len(apart) == len(blocks(written, "py"))
    assert {name for block in apart for name in imported(block)} <= _FOR_LLAMA_INDEX
    others = {name for block in blocks(written, "python") for name in imported(block)}
    assert not {"llama_index", "llama_index_headstay"} & others


def test_a_missing_part_would_be_seen() -> None:
    assert list(parts("# tool_added\nOwner\n## Why it costs\n\n## LangChain\ntext\n")) == [
        "tool_added",
        "Why it costs",
        "LangChain",
    ]
    assert imported("import os.path\nfrom headstay import diff\n") == {"os", "headstay"}
    assert blocks("```py\n1\n```\n```python\n2\n```\n", "py") == ["1\n"]
