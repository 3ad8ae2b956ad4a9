"""The Python blocks of the guide run as they stand, one after the other, on the user's own server."""

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "local.md"


@pytest.mark.usefixtures("base_url")
def test_the_blocks_of_the_guide_run_and_print_what_it_says(
    local: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADSTAY_LOCAL_HOME", str(local.home.path))
    blocks = re.findall(r"^```py\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    first, second, north, again, south = [
        int(found[1]) for line in lines if (found := re.search(r"'cache_read': (\d+)", line))
    ]
    assert (first, north, south) == (0, 0, 0)
    assert min(second, again) > 500  # tokens, of the 60 rules
    assert lines[2].startswith("[('cold', 0, 0), ('ok', ")
    warm, head, cached = lines[-1].split()
    assert warm == "True"
    assert int(cached) == int(head) // 32 * 32
