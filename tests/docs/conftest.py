"""What the documentation tests share: where the pages are, and an emulator that their examples talk to."""

import os
from collections.abc import Generator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from headstay import emulator

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_KEY")


def pages() -> list[Path]:
    """Return every page that a user reads."""
    tops = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*tops, *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "cookbook").glob("*.md"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for a page once for each of them."""
    if "page" in metafunc.fixturenames:
        found = pages()
        metafunc.parametrize("page", found, ids=[str(path.relative_to(ROOT)) for path in found])


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[None]:
    """What the pages ask a reader to set up: an emulator, and the variables that point the SDKs at it."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    with emulator.serve() as server:
        for name, value in zip(VARIABLES, (server.base_url, "none", server.openai_url, "none"), strict=True):
            monkeypatch.setenv(name, value)
        if not entry_points(group="pytest11", name="headstay"):  # a checkout that is not installed
            monkeypatch.setenv("PYTEST_PLUGINS", "pytest_headstay.plugin")
        yield
