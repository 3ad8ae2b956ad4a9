"""The page on the command line names every option of every command."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from headstay.cli import app

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def options(command: Any, *names: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Walk the commands: the words of each, and its options; those of all commands stand at the top of the page."""
    inner = getattr(command, "commands", None)
    if inner is None:
        told = [option for given in command.params for option in given.opts if option.startswith("--")]
        yield names, [option for option in told if option not in ("--help", "--format")]
    for name, found in (inner or {}).items():
        yield from options(found, *names, name)


def section(page: str, words: tuple[str, ...]) -> str:
    """Return what the page says about a command: under its heading, up to the next one of that depth."""
    for depth, title in zip(("##", "###"), (f"headstay {words[0]}", *words[1:]), strict=False):
        parts = re.split(rf"^{depth} ", page, flags=re.MULTILINE)
        page = next((part for part in parts if part.startswith(f"{title}\n")), "")
    return page


COMMANDS = dict(options(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_option_stands_on_the_page(words: tuple[str, ...]) -> None:
    said = section(_PAGE.read_text(encoding="utf-8"), words)
    assert [option for option in COMMANDS[words] if not re.search(rf"{option}\b", said)] == []


def test_defaults_that_decide_stand_there() -> None:
    defaults = {option.name: option.default for option in typer.main.get_command(app).commands["calibrate"].params}
    said = section(_PAGE.read_text(encoding="utf-8"), ("calibrate",))
    assert f"| `--target` | {defaults['target']} |" in said
    assert f"| `--confidence` | {defaults['confidence']} |" in said


def test_a_missing_option_would_be_seen() -> None:
    assert {("demo",), ("calibrate",), ("cache", "import")} <= COMMANDS.keys()
    assert "--agent" in COMMANDS["demo",]
    assert section("## headstay demo\n--agent\n## headstay other\n--more\n", ("demo",)) == "headstay demo\n--agent\n"
    assert section("## headstay cache\n### list\n--tag\n### show\n", ("cache", "list")) == "list\n--tag\n"
