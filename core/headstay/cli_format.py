"""What every command shares: how results are written, and how bad input ends."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any

import typer

from headstay.errors import HeadstayError


class Format(StrEnum):
    """How results are written."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="text for people, json for programs")]


def load(module: str, extra: str) -> Any:
    """Import a module by name, or end with a line that says which extra is missing."""
    try:
        return import_module(module)
    except ImportError as problem:
        typer.echo(f'headstay: {problem.name or module} is missing: pip install "headstay[{extra}]"', err=True)
        raise typer.Exit(2) from problem


def as_json(told: object) -> str:
    """Write a result as JSON that can be printed: half of a surrogate pair has no UTF-8 form."""
    text = json.dumps(told, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def bad_input() -> Generator[None]:
    """End with exit code 2 and one line on stderr, where headstay says what is wrong with the input."""
    try:
        yield
    except HeadstayError as problem:
        typer.echo(f"headstay: {problem}", err=True)
        raise typer.Exit(2) from problem
