"""Questions and answers from a CSV or JSONL file. One bad row refuses the file, with its line."""

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from headstay.errors import ConfigError
from headstay.semantic.query import normal_text

_NEEDED = ("question", "answer")
_OPTIONAL = ("tags", "version")
_COLUMNS = f"{' and '.join(_NEEDED)} are needed, {' and '.join(_OPTIONAL)} can be there"


@dataclass(frozen=True, slots=True)
class FaqRow:
    """One question and its answer.

    Attributes:
        where: File and line, as messages name them.
        line: Where it starts in the file, from 1.
        question: As it stands there.
        answer: As it stands there.
        tags: Names to invalidate it by.
        version: What the answer depends on, or None.
    """

    where: str
    line: int
    question: str
    answer: str
    tags: tuple[str, ...] = ()
    version: str | None = None


def read_faq(path: Path) -> list[FaqRow]:
    """Read a whole file.

    Args:
        path: UTF-8. A `.csv` has a header with the columns question and answer, and tags (separated by `;` or `,`) and
            version if wanted. A `.jsonl` has an object a line with these keys; its tags are a list.

    Raises:
        ConfigError: It cannot be read, is neither, or a row is bad; the message says which line.
    """
    suffix = path.suffix.lower()
    if suffix not in {".csv", ".jsonl", ".ndjson"}:
        raise ConfigError(f"{path}: a FAQ is read from a .csv or a .jsonl file, not from a {suffix or 'nameless'} one")
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from problem
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise ConfigError(f"{path}:{line}: this is no UTF-8; save the file as UTF-8") from problem
    found = _csv_rows(path, text) if suffix == ".csv" else _json_rows(path, text)
    rows: list[FaqRow] = []
    known: dict[tuple[str, str | None], int] = {}
    for line, fields in found:
        row = _row(path, line, fields)
        asked = normal_text(row.question), row.version
        if (first := known.setdefault(asked, line)) != line:
            _refuse(path, line, f"the question of line {first} again; one of them has to go")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{path}: there is no question in it")
    return rows


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] = []
    before = 0
    try:
        for cells in reader:
            line, before = before + 1, reader.line_num
            if not cells:
                continue
            if not names:
                names = [cell.strip().lower() for cell in cells]
                _check_names(path, line, names)
            elif len(cells) != len(names):
                _refuse(path, line, f"{len(cells)} cells under {len(names)} columns; quote cells that hold commas")
            else:
                # an empty cell of an optional column is one that is not there
                given = {name: cell for name, cell in zip(names, cells, strict=True) if cell or name in _NEEDED}
                yield line, {**given, "tags": re.split(r"[;,]", str(given.get("tags", "")))}
    except csv.Error as problem:
        _refuse(path, reader.line_num, f"this is no CSV: {problem}")


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, object]]]:
    for line, written in enumerate(text.split("\n"), 1):
        if not written.strip():
            continue
        try:
            held: Any = json.loads(written)
        except (ValueError, RecursionError) as problem:
            _refuse(path, line, f"this is no JSON: {problem}")
        if not isinstance(held, dict):
            _refuse(path, line, 'not an object; a line is such as {"question": ..., "answer": ...}')
        fields = cast("dict[str, object]", held)
        _check_names(path, line, list(fields))
        tags = fields.get("tags")
        yield line, {**fields, "tags": [tags] if isinstance(tags, str) else tags or ()}


def _check_names(path: Path, line: int, names: list[str]) -> None:
    """Refuse columns that are missing, not known, or there twice."""
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        _refuse(path, line, f"no {' and no '.join(missing)}; {_COLUMNS}")
    unknown = [name for name in names if name not in (*_NEEDED, *_OPTIONAL)]
    if unknown:
        _refuse(path, line, f"{unknown[0]!r} is not known; {_COLUMNS}")
    if len(set(names)) < len(names):
        _refuse(path, line, "a column is there twice")


def _row(path: Path, line: int, fields: Mapping[str, object]) -> FaqRow:
    for name in (*_NEEDED, "version"):
        value = fields.get(name)
        if name == "version" and value is None:
            continue
        if not isinstance(value, str) or not value.strip():
            _refuse(path, line, f"the {name} is {'empty' if isinstance(value, str) else 'no text'}")
        if not _is_text(value):
            _refuse(path, line, f"the {name} holds half a surrogate pair")
    tags: Any = fields["tags"]
    if not isinstance(tags, Sequence) or not all(map(_is_name, tags := cast("Sequence[object]", tags))):
        _refuse(path, line, "tags is no list of names")
    named = tuple(dict.fromkeys(name for tag in tags if (name := str(tag).strip())))
    version = fields.get("version")
    question, answer = str(fields["question"]), str(fields["answer"])
    return FaqRow(f"{path}:{line}", line, question, answer, named, None if version is None else str(version))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and _is_text(value)


def _is_text(text: str) -> bool:
    return not any("\ud800" <= sign <= "\udfff" for sign in text)


def _refuse(path: Path, line: int, why: str) -> NoReturn:
    raise ConfigError(f"{path}:{line}: {why}; nothing was imported")
