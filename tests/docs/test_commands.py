"""What the pages tell a reader to type exists."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ROOT = Path(__file__).resolve().parents[2]


def commands(page: Path) -> list[str]:
    """Return what stands behind the prompts of a page's console blocks."""
    blocks = _CONSOLE.findall(page.read_text(encoding="utf-8"))
    return [line[2:].strip() for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def typed(name: str) -> list[list[str]]:
    """Return every use of a command in the pages, as words."""
    tops = [*_ROOT.glob("*.md"), *sorted((_ROOT / "docs").rglob("*.md")), *sorted((_ROOT / "cookbook").glob("*.md"))]
    found = {line for page in tops for line in commands(page) if line.split()[0] == name}
    return [line.split() for line in sorted(found)]


def help_of(*words: str) -> str:
    """Return the help text of a command of ours."""
    ran = subprocess.run(
        [sys.executable, "-c", "from headstay.cli import main; main()", *words, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "dumb"},
        check=False,
    )
    assert ran.returncode == 0, f"headstay {' '.join(words)} --help: {ran.stderr}"
    return ran.stdout


def test_every_console_line_is_of_a_known_kind(page: Path) -> None:
    known = {"make", "headstay", "pip", "git", "export", "python", "cd"}
    unknown = [line for line in commands(page) if line.split()[0] not in known]
    assert unknown == []


@pytest.mark.parametrize("words", typed("headstay"), ids=" ".join)
def test_every_headstay_command_exists_with_its_options(words: list[str]) -> None:
    depth = 3 if words[1:2] in (["cache"], ["local"]) else 2
    names = [word for word in words[1:depth] if not word.startswith("-")]
    text = help_of(*names)
    missing = [word for word in words[1:] if word.startswith("--") and word not in text]
    assert missing == []


def test_an_unknown_command_is_seen() -> None:
    with pytest.raises(AssertionError, match="no-such-command"):
        help_of("no-such-command")


def test_the_page_on_the_command_line_names_every_command(root: Path) -> None:
    page = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\W*(\w[\w-]*)\s{2,}", help_of().partition("Commands")[2], re.MULTILINE)
    assert listed
    assert set(re.findall(r"^## headstay (\S+)$", page, re.MULTILINE)) == set(listed)


def test_every_make_target_exists(root: Path) -> None:
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.MULTILINE))
    asked = {word for words in typed("make") for word in words[1:] if "=" not in word}
    assert asked
    assert asked <= targets


def test_every_script_a_page_runs_exists(root: Path) -> None:
    scripts = {word for words in typed("python") for word in words[1:] if word.endswith(".py")}
    assert scripts
    assert [script for script in sorted(scripts) if not (root / script).is_file()] == []


def test_every_extra_a_page_installs_exists(root: Path) -> None:
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    section = text.partition("[project.optional-dependencies]")[2].partition("\n[project")[0]
    extras = set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))
    lines = [" ".join(words) for words in typed("pip")]
    asked = {extra for line in lines for group in re.findall(r"\[([\w,-]+)\]", line) for extra in group.split(",")}
    assert asked
    assert asked <= extras
