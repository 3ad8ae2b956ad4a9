"""What these tests share: logs that were recorded, and a way to read one that a test writes."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from headstay.trace import Entry, Skipped, read_log

Read = tuple[list[Entry], list[Skipped]]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
"""Any JSON, to stand in place of what a log should hold."""


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


def messages_of(found: Entry) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", found.body["messages"])


def run_of(
    messages: object, *, provider: str = "anthropic", model: str = "claude-sonnet-5", **params: object
) -> dict[str, Any]:
    metadata = {"ls_provider": provider, "ls_model_name": model}
    extra = {"invocation_params": {"model": model, "_type": "chat", **params}, "metadata": metadata}
    return {"id": "1", "run_type": "llm", "trace_id": "1", "inputs": {"messages": messages}, "extra": extra}


def constructor(name: str, **kwargs: object) -> dict[str, Any]:
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": kwargs}


def span(number: int = 1, /, *, start: int = 1_795_985_000, failed: bool = False, **attributes: Any) -> dict[str, Any]:
    """A span as a console exporter prints it; `__` in a name stands for a dot."""
    return {
        "name": "chat",
        "context": {"trace_id": f"0x{number:032x}", "span_id": f"0x{number:016x}", "trace_state": "[]"},
        "kind": "SpanKind.CLIENT",
        "start_time": start,
        "end_time": start + 2,
        "status": {"status_code": "ERROR" if failed else "UNSET"},
        "attributes": {name.replace("__", "."): value for name, value in attributes.items()},
        "events": [],
    }
