"""What these tests share: logs that were recorded, and a way to read one that a test writes."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headstay.trace import Entry, Skipped, read_log

Read = tuple[list[Entry], list[Skipped]]


@pytest.fixture(scope="session")
def logs() -> Path:
    """The folder of recorded logs: real libraries against the emulator, texts and numbers of no interest cut."""
    return Path(__file__).parent / "logs"


@pytest.fixture(scope="session")
def read() -> Callable[[Path], Read]:
    """Read a log; return its requests and what was passed over."""

    def read(path: Path) -> Read:
        found = list(read_log(path))
        return [one for one in found if isinstance(one, Entry)], [one for one in found if isinstance(one, Skipped)]

    return read


@pytest.fixture
def read_records(tmp_path: Path, read: Callable[[Path], Read]) -> Callable[..., Read]:
    """Write records as JSON lines and read them."""

    def write(*records: Any) -> Read:
        return read(_written(tmp_path, (json.dumps(record) for record in records)))

    return write


@pytest.fixture
def read_text(tmp_path: Path, read: Callable[[Path], Read]) -> Callable[[str], Read]:
    """Write a text and read it."""

    def write(text: str) -> Read:
        return read(_written(tmp_path, text.split("\n")))

    return write


def _written(folder: Path, lines: Iterable[str]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path
