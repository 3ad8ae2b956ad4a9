"""The blocks of the guide that need a server run against one, in place of the one that the page names."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "local.md"
NAMED = "http://127.0.0.1:8011/v1"


def test_the_blocks_of_the_guide_run_and_the_second_call_reads_the_head(
    base_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        assert NAMED in block
        exec(compile(block.replace(NAMED, base_url), str(GUIDE), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    read = [int(found[1]) for line in lines if (found := re.search(r"'cache_read': (\d+)", line))]
    assert len(read) == 2
    assert read[1] > 500  # tokens, of the 60 rules
