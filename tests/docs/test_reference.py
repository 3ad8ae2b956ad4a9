"""The reference pages say what the code says."""

import importlib.util
import inspect
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from headstay import __version__, emulator, errors, headlint
from headstay.ledger import Row
from headstay.ledger.verdict import Status
from headstay.semantic import Reason
from langchain_headstay import SemanticCache

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "core/headstay",
    "integrations/langchain_headstay",
    "integrations/llama_index_headstay",
    "middleware/langgraph_headstay",
)


def text_of(root: Path, name: str) -> str:
    """Return one page."""
    return (root / name).read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """Return what stands under each second-level heading."""
    pieces = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def generator(root: Path) -> ModuleType:
    """Load the script that writes the generated parts."""
    spec = importlib.util.spec_from_file_location("docs_generate", root / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_tables_are_those_of_the_code(page: Path, root: Path) -> None:
    text = page.read_text(encoding="utf-8")
    fresh = generator(root).rewritten(text)
    assert fresh == text, "run: python docs/generate.py"


def test_the_rules_page_holds_the_table(root: Path) -> None:
    page = text_of(root, "docs/provider-rules.md")
    made = generator(root)
    for name in ("provider_rules", "provider_sources", "provider_parameters"):
        assert getattr(made, name)() in page


def test_every_exception_has_its_section(root: Path) -> None:
    found = sections(text_of(root, "docs/errors.md"))
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.HeadstayError)
    }
    assert classes | {emulator.EmulatorStartError.__name__} <= set(found)


def test_every_message_that_the_page_explains_is_in_the_code(root: Path) -> None:
    page = sections(text_of(root, "docs/errors.md"))
    source = "\n".join(
        path.read_text(encoding="utf-8") for top in SOURCES for path in sorted((root / top).rglob("*.py"))
    )
    cells = [
        cell
        for title in ("Log messages", "Reasons in a row's `unverified`")
        for cell in re.findall(r"^\| (.+?) \|", page[title], re.MULTILINE)
    ]
    quoted = [quote for cell in cells for quote in re.findall(r"(?<!\[)`([^`]+)`(?!\])", cell)]
    pieces = [piece.strip() for quote in quoted for piece in re.split(r"Slot\(\.{3}\)|\.{3}|, 4 ", quote)]
    told = [piece for piece in pieces if len(piece) > 4]
    assert len(told) > 12
    assert [piece for piece in told if piece not in source] == []


@pytest.mark.parametrize("package", generator(ROOT).PACKAGES)
def test_the_listed_names_are_the_public_ones(root: Path, package: str) -> None:
    listed = sections(text_of(root, "docs/api.md"))[f"`{package}`"]
    made = listed.partition("<!-- end -->")[0]
    assert re.findall(r"^\| `(\w+)` \|", made, re.MULTILINE) == list(import_module(package).__all__)


def test_every_kind_of_finding_in_a_head_is_listed_with_its_cause(root: Path) -> None:
    listed = sections(text_of(root, "docs/api.md"))["`llama_index_headstay`"].partition("The kinds:")[2]
    rows = dict(re.findall(r"^\| `(\w+)` \| .+ \| (?:\[(\w+)\]\(\S+\) )?\|$", listed, re.MULTILINE))
    found = {kind: headlint.HeadFinding(kind, "", "", "").cause for kind in get_args(headlint.Kind)}
    assert rows == {kind: str(cause or "") for kind, cause in found.items()}


def test_the_ledger_page_names_every_field_and_status(root: Path) -> None:
    page = text_of(root, "docs/ledger.md")
    assert re.findall(r"^\| `(\w+)` \|", sections(page)["The fields of a row"], re.MULTILINE) == list(
        Row.__dataclass_fields__
    )
    assert re.findall(r"^\| `(\w+)` \|", sections(page)["Verdicts"], re.MULTILINE) == list(get_args(Status))


def test_the_page_on_the_semantic_cache_explains_every_reason(root: Path) -> None:
    page = sections(text_of(root, "docs/semantic-cache.md"))["What is never answered, and why"]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [str(reason) for reason in Reason]


def test_the_page_on_the_semantic_cache_names_every_setting(root: Path) -> None:
    page = sections(text_of(root, "docs/semantic-cache.md"))["Settings"]
    rows = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == set(inspect.signature(SemanticCache).parameters)


def test_every_proof_that_the_invariants_page_names_exists(root: Path) -> None:
    page = text_of(root, "docs/invariants.md")
    assert re.findall(r"^## (I\d+)", page, re.MULTILINE) == [f"I{number}" for number in range(1, 11)]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert named
    missing = [f"{path}::{test}" for path, test in named if not _holds(root / path, test)]
    assert missing == []


def _holds(path: Path, test: str) -> bool:
    return path.is_file() and (not test or f"def {test}(" in path.read_text(encoding="utf-8"))


def test_the_changelog_knows_this_version(root: Path) -> None:
    page = text_of(root, "CHANGELOG.md")
    versions = re.findall(r"^## \[([^\]]+)\]", page, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert __version__ in versions


def test_the_pages_do_not_promise_what_is_missing(root: Path) -> None:
    """A name of the design may stand in a page only when there is code for it."""
    planned = {
        "StableHeadMiddleware": "middleware/langgraph_headstay",
        "AnswerCacheMiddleware": "middleware/langgraph_headstay",
        "SemanticCache": "integrations/langchain_headstay",
        "SemanticCacheQueryEngine": "integrations/llama_index_headstay",
        "SteppedMemory": "integrations/llama_index_headstay",
        "prefix_safe": "integrations/llama_index_headstay",
        "lint_head": "integrations/llama_index_headstay",
        "headstay diff": "core/headstay/cli_diff.py",
        "headstay lint": "core/headstay/cli_lint.py",
        "headstay report": "core/headstay/cli.py",
    }
    for name, home in planned.items():
        if _defines(root / home, name.rpartition(" ")[2]):
            continue
        for path in [root / "README.md", *(root / "docs").rglob("*.md"), *(root / "cookbook").glob("*.md")]:
            assert name not in path.read_text(encoding="utf-8"), f"{path.name} speaks of {name}, which does not exist"


def _defines(home: Path, name: str) -> bool:
    sources = home.rglob("*.py") if home.is_dir() else [home]
    return any(re.search(rf"^(?:class|def) {name}\b", source.read_text("utf-8"), re.MULTILINE) for source in sources)
