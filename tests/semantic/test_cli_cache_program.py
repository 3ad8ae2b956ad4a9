"""`headstay cache` as a program of its own: its exit codes, what works without the extra, bad files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headstay.semantic import Entry, SQLiteStore


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A cache with three answers, two of them of one user."""
    path = tmp_path / "answers.db"
    with SQLiteStore(path) as store:
        store.put_many(
            [
                Entry(str(number), "5c", f"{number}", "one", "{}", None, 1_700_000_000.0, user=user)
                for number, user in enumerate(("ada", "bob", "ada"))
            ]
        )
    return path


def program(*words: object, code: str | None = None, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-m", "headstay.cli"] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *start, "cache", *map(str, words)],
        capture_output=True,
        text=True,
        input=typed,
        timeout=120,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )


def test_the_program_lists_and_refuses(file: Path) -> None:
    good = program("list", file, "--format", "json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["kept"] == 3
    bad = program("show", file, "zz")
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "headstay: no entry 'zz'\n")
    assert program("nonsense").returncode == 2


def test_without_the_extra_only_import_needs_it(file: Path, tmp_path: Path) -> None:
    blocked = (
        "import sys\nfor name in ('numpy', 'onnxruntime', 'tokenizers'): sys.modules[name] = None\n"
        "from headstay.cli import main; main()"
    )
    listed = program("list", file, "--format", "json", code=blocked)
    assert listed.returncode == 0, listed.stderr
    gone = program("forget", file, "--user", "ada", "--yes", code=blocked)
    assert (gone.returncode, gone.stdout) == (0, "2 answers removed\n")
    faq = tmp_path / "faq.jsonl"
    faq.write_text(json.dumps({"question": "When?", "answer": "Now."}), encoding="utf-8")
    done = program("import", file, faq, "--name", "faq", code=blocked)
    assert done.returncode == 2
    assert 'pip install "headstay[semantic]"' in done.stderr


def refused(*words: object) -> str:
    """Return the one line on stderr of a command that found its input bad."""
    done = program(*words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line.removeprefix("headstay: ")


@pytest.mark.parametrize("words", [["list"], ["show", "00"], ["forget", "--user", "a"], ["import", "--like", "00"]])
def test_a_file_that_is_not_there_is_not_made(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "typo.db"
    faq = tmp_path / "faq.csv"
    faq.write_text("question,answer\nq,a\n")
    verb, *more = words
    assert refused(verb, path, *([faq] if verb == "import" else []), *more) == f"{path}: there is no such file"
    assert not path.exists()


def test_a_file_that_is_no_cache(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database, and longer than the header of one would be. " * 9)
    assert "file is not a database" in refused("list", path)
    assert "cursor" in refused("list", _empty(tmp_path), "--cursor", "x")
    path.write_text("")
    assert refused("list", path) == f"{path}: the file is empty, so it is no cache"
    assert path.read_bytes() == b""


def _empty(folder: Path) -> Path:
    SQLiteStore(folder / "empty.db").close()
    return folder / "empty.db"
