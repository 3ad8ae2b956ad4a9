"""Whole logs: kinds mixed in one file, in order, with nothing lost."""

import json
from collections import Counter
from pathlib import Path

import pytest

from headstay.errors import WireError
from headstay.trace import Entry, Skipped, read_log

RECORDED = {
    "langsmith_runs.jsonl": "no model call",
    "litellm.jsonl": "no model call",
    "litellm_spend.jsonl": "no model call",
    "otel_genai_spans.jsonl": "no model call",
    "otel_console_genai_events.json": "no model call",
}


def test_a_log_may_mix_kinds(tmp_path: Path, logs: Path) -> None:
    body = {"model": "gpt-5.4", "messages": [{"role": "user", "content": "Hello"}]}
    line = json.loads((logs / "litellm.jsonl").read_text(encoding="utf-8").splitlines()[0])
    sdk = (logs / "sdk_debug.log").read_text(encoding="utf-8").splitlines()[:5]
    parts = [json.dumps(body), *sdk, json.dumps(line), json.dumps({"request": body}, indent=2), '{"broken": ']
    path = tmp_path / "log"
    path.write_text("\n".join(parts), encoding="utf-8")
    found = list(read_log(path))
    entries = [one for one in found if isinstance(one, Entry)]
    assert [(one.line, one.wire) for one in entries] == [
        (1, "openai-chat"),
        (2, "anthropic-messages"),
        (7, "anthropic-messages"),
        (8, "openai-chat"),
    ]
    assert [one for one in found if isinstance(one, Skipped) and one.bad] == [
        Skipped(
            line=8 + len(json.dumps({"request": body}, indent=2).splitlines()),
            reason="not JSON: column 11: the line ends early",
        )
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_each_recorded_log_is_claimed_by_its_own_kind(logs: Path, name: str) -> None:
    found = list(read_log(logs / name))
    assert any(isinstance(one, Entry) for one in found)
    assert RECORDED[name] not in {one.reason for one in found if isinstance(one, Skipped)}
    assert not any(one.bad for one in found if isinstance(one, Skipped))


def test_every_record_is_accounted_for(tmp_path: Path) -> None:
    path = tmp_path / "log"
    body = json.dumps({"model": "gpt-5.4", "messages": [{"role": "user", "content": "Hello"}]})
    path.write_text(f'{body}\n[{body}, {{"level": "info"}}, 3]\nwords\n{body[:-3]}\n', encoding="utf-8")
    found = list(read_log(path))
    assert Counter(one.line for one in found) == {1: 1, 2: 3, 3: 1, 4: 1}
    assert [one.reason for one in found if isinstance(one, Skipped)] == [
        "no model call",
        "not a JSON object",
        "not JSON",
        "not JSON: column 70: the line ends early",
    ]


def test_a_file_that_cannot_be_read_is_said_with_the_first_piece(tmp_path: Path) -> None:
    found = read_log(tmp_path / "none.jsonl")
    with pytest.raises(WireError, match=r"none\.jsonl: cannot be read"):
        next(found)
