"""The corpus that was written apart from the differ: first cause, path and offset on all, nothing on clean pairs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headstay import diff

CORPUS = Path(__file__).parents[1] / "corpus"
FILES = sorted(CORPUS.glob("*/*/*.json"))
NAMES = [str(file.relative_to(CORPUS).with_suffix("")) for file in FILES]


def place(path: str) -> str:
    """Write a path in one way: a string is the same as one text block."""
    return path.replace(".content[0].text", ".content").replace("system[0].text", "system")


def test_the_corpus_is_there() -> None:
    assert len(FILES) >= 650


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_a_pair_of_the_corpus(file: Path) -> None:
    pair: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    found = diff(pair["a"], pair["b"])
    assert list(dict.fromkeys(finding.cause.value for finding in found.findings)) == pair["causes"]
    assert found.wire == file.parts[-3]
    assert found.clean == (not found.findings)
    if found.clean:
        assert found.lost_tokens == 0
        return
    first = found.findings[0]
    if pair["at"] is None:  # the path may stop at a parent, or go on to the text
        assert first.path.startswith(pair["path"]) or pair["path"].startswith(first.path)
    else:
        assert (place(first.path), first.at) == (place(pair["path"]), pair["at"])
    for words in pair["remedy_mentions"]:
        assert words.lower() in first.remedy.lower()
    assert max(len(side) for finding in found.findings for side in (finding.before, finding.after)) <= 80
