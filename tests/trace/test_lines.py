"""Files to records: every way to lay them out, and everything that can be wrong with one."""

import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.errors import WireError
from headstay.trace.entry import Skipped
from headstay.trace.lines import MAX_LINE, Record, Text, pieces

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.text(max_size=4), JSON, min_size=1, max_size=3), min_size=1, max_size=4)


@pytest.fixture
def found(tmp_path: Path) -> Callable[[str | bytes], list[Any]]:
    """Write a file and return its pieces."""

    def read(content: str | bytes) -> list[Any]:
        path = tmp_path / "log"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return list(pieces(path))

    return read


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": 2}\n',
        '{"a": 1}\n{"a": 2}',
        '\ufeff{"a": 1}\r\n{"a": 2}\r\n',
        '[{"a": 1}, {"a": 2}]',
        '[\n{"a": 1},\n{"a": 2}\n]\n',
        '[{"a": 1},\n {"a": 2}]',
        '[\n  {\n    "a": 1\n  },\n  {\n    "a": 2\n  }\n]',
        '{\n    "a": 1\n}\n{\n    "a": 2\n}\n',
        '\n\n{"a": 1}\n   \n\t{"a": 2}  \n\n',
        '{\r\n\t"a": 1\r\n}\r\n[]\r\n{"a": 2}',
    ],
)
def test_layouts(found: Callable[[str], list[Any]], text: str) -> None:
    assert [piece.value for piece in found(text)] == [{"a": 1}, {"a": 2}]


def test_records_carry_the_line_on_which_they_begin(found: Callable[[str], list[Any]]) -> None:
    text = '{"a": 1}\n\n{\n  "a": 2\n}\nplain words\n[{"a": 3}, {"a": 4}]\n'
    assert found(text) == [
        Record(1, {"a": 1}),
        Record(3, {"a": 2}),
        Text(6, "plain words"),
        Record(7, {"a": 3}),
        Record(7, {"a": 4}),
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"a": [1, 2', "not JSON: column 12: the line ends early"),
        (b'{"a": "text that en', "not JSON: column 7: the line ends early"),
        (b'{"a": 1 "b": 2}', "not JSON: column 9: Expecting ',' delimiter"),
        (b'{"a": 1}{"b": 2}', "not JSON: column 9: Extra data"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": "\x00"}', "a NUL byte"),
        (b"\x89PNG\x00\x1a", "a NUL byte"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "not JSON: a number has too many digits"),
        (b'[{"a": 1}, 7]', "not a JSON object"),
    ],
)
def test_a_bad_line_is_named_and_the_others_are_read(
    found: Callable[[bytes], list[Any]], bad: bytes, reason: str
) -> None:
    pieces = found(b'{"n": 1}\n' + bad + b'\n{"n": 3}\n')
    assert Skipped(2, reason) in pieces
    assert [piece.value["n"] for piece in pieces if isinstance(piece, Record) and "n" in piece.value] == [1, 3]


def test_a_document_that_is_cut_off_does_not_swallow_the_next(found: Callable[[str], list[Any]]) -> None:
    no_end = "a JSON document over several lines that does not end"
    assert found('{\n  "a": 1,\n{\n  "a": 2\n}\n{"a": 3}\n{\n  "a": 4,\n') == [
        Skipped(1, no_end),
        Record(3, {"a": 2}),
        Record(6, {"a": 3}),
        Skipped(7, no_end),
    ]


def test_an_error_inside_a_document_names_its_own_line(found: Callable[[str], list[Any]]) -> None:
    assert found('{"a": 1}\n{\n  "a": 1,\n  "b" 2\n}\n')[1:] == [
        Skipped(4, "not JSON: column 7: Expecting ':' delimiter")
    ]


def test_a_line_that_cannot_be_read_spoils_its_document_only(found: Callable[[bytes], list[Any]]) -> None:
    assert found(b'{\n  "a": 1,\n  "b": "\xff"\n}\n{"c": 1}') == [Skipped(3, "not UTF-8"), Record(5, {"c": 1})]


@pytest.mark.parametrize("opening", ['{"a": "', '{\n  "a": "'])
def test_what_is_too_long_is_passed_over_without_being_held(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "log"
    block = b"x" * 2**20
    with path.open("wb") as file:
        file.write(opening.encode())
        for _ in range(3 * MAX_LINE // 2**20):
            file.write(block)
            if "\n" in opening:
                file.write(b'",\n  "a": "')
        file.write(b'"}\n' if "\n" not in opening else b'"\n}\n')
        file.write(b'{"b": 1}\n')
    tracemalloc.start()
    found = list(pieces(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(type(piece), getattr(piece, "reason", "")) for piece in found] == [
        (Skipped, "longer than 64 MiB"),
        (Record, ""),
    ]
    assert peak < 2.5 * MAX_LINE


def test_a_line_of_the_longest_length_is_read(found: Callable[[bytes], list[Any]]) -> None:
    filled = b'{"a": "' + b"x" * (MAX_LINE - 9) + b'"}'
    assert [type(piece) for piece in found(filled + b'\n{"b": 1}\n')] == [Record, Record]


def test_gzip_is_told_by_its_first_bytes(found: Callable[[bytes], list[Any]]) -> None:
    packed = gzip.compress(b'{"a": 1}\n') + gzip.compress(b'{"a": 2}\n')
    assert found(packed) == [Record(1, {"a": 1}), Record(2, {"a": 2})]


@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing"])
def test_damaged_gzip(found: Callable[[bytes], list[Any]], damage: str) -> None:
    lines = b"".join(b'{"a": %d}\n' % number for number in range(200_000))
    packed = bytearray(gzip.compress(lines))
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    elif damage == "flipped":
        packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    else:
        packed += b"rubbish"
    *whole, last = found(bytes(packed))
    assert last.reason == "the compressed file is damaged or cut off from here on"
    assert last.bad
    assert last.line == len(whole) + 1
    assert (len(whole) == 200_000) == (damage == "trailing")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}\n{"a": 2}')))
    told: list[tuple[int, int | None]] = []
    assert len(list(pieces("-", progress=lambda done, total: told.append((done, total))))) == 2
    assert told == [(17, None)]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(WireError, match="standard input: the file is empty"):
        list(pieces("-"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b" \n\r\n\t\n", "the file is empty"),
        ('{"a": 1}\n'.encode("utf-16"), "is in UTF-16; write it again in UTF-8"),
    ],
)
def test_a_file_that_holds_nothing_to_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(WireError) as caught:
        list(pieces(path))
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(WireError, match=r"missing\.jsonl: cannot be read: No such file or directory"):
        list(pieces(tmp_path / "missing.jsonl"))
    with pytest.raises(WireError, match="cannot be read: Is a directory"):
        list(pieces(tmp_path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_progress_counts_bytes_on_disk_and_ends_at_all_of_them(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "log"
    path.write_bytes(pack(b"".join(b'{"n": %d, "pad": "%s"}\n' % (number, b"x" * 80) for number in range(50_000))))
    size = path.stat().st_size
    told: list[tuple[int, int | None]] = []
    assert sum(1 for _ in pieces(path, progress=lambda done, total: told.append((done, total)))) == 50_000
    done = [one for one, _ in told]
    assert {total for _, total in told} == {size}
    assert done == sorted(done)
    assert done[-1] == size
    assert 4 <= len(told) <= 7  # about five megabytes of text


@given(
    records=RECORDS, layout=st.sampled_from(["lines", "list", "documents", "tall list", "flat list"]), data=st.data()
)
def test_any_records_in_any_layout(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], layout: str, data: st.DataObject
) -> None:
    ascii_only = data.draw(st.booleans())
    dumped = [json.dumps(record, ensure_ascii=ascii_only) for record in records]
    text = {
        "lines": "\n".join(dumped),
        "list": json.dumps(records, ensure_ascii=ascii_only),
        "documents": "\n".join(json.dumps(record, indent=data.draw(st.integers(1, 4))) for record in records),
        "tall list": json.dumps(records, indent=2),
        "flat list": "[\n" + ",\n".join(dumped) + "\n]",
    }[layout]
    if data.draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    content = text.encode("utf-8", "surrogatepass")
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_bytes(gzip.compress(content) if data.draw(st.booleans()) else content)
    found = list(pieces(path))
    assert [piece.value for piece in found if isinstance(piece, Record)] == records
    assert len(found) == len(records)


@given(content=st.binary(max_size=200) | st.text('{}[]",:\n\r \t\\u0a1', max_size=80).map(str.encode))
def test_no_bytes_make_it_fail(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    if content.startswith((b"\xff\xfe", b"\xfe\xff", b"\x1f\x8b")):  # UTF-16 and gzip are something else
        content = b"\n" + content
    path.write_bytes(content + b'\n{"last": 1}')
    found = list(pieces(path))
    lines = content.count(b"\n") + 2
    assert all(1 <= piece.line <= lines for piece in found)
    assert found[-1] == Record(lines, {"last": 1})
