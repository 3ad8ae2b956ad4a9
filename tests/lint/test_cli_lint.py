"""`headstay lint` on files: the JSON contract, the exit codes, what people see, and bad input."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.lint.conftest import RULES, body_of, talk
from typer.testing import CliRunner

from headstay import lint_table
from headstay.cli import app
from headstay.lint import lint
from headstay.trace import read_log

run = CliRunner().invoke
Json = dict[str, Any]


def clocked(turns: int = 3) -> list[Json]:
    """Return the requests of a talk with a clock in the head."""
    return [body_of(said, f"It is 10:0{turn}. {RULES}") for turn, said in enumerate(talk("ada", turns))]


def write(folder: Path, lines: list[Any], name: str = "log.jsonl") -> str:
    path = folder / name
    pieces = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(pieces) + b"\n")
    return str(path)


def told(*arguments: str, code: int = 1) -> Json:
    result = run(app, ["lint", *arguments, "--format", "json"])
    assert result.exit_code == code, result.output
    found: Json = json.loads(result.stdout)
    return found


def refused(*arguments: str) -> str:
    """Return the one line with which a command ends that was given bad input."""
    result = run(app, ["lint", *arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line.removeprefix("headstay: ")


def test_json_is_the_contract(tmp_path: Path) -> None:
    found = told(write(tmp_path, clocked()))
    assert list(found) == [
        *("clean", "requests", "with_usage", "conversations", "totals", "prices", "by_cause", "fixes", "breaks"),
        *("skipped", "notices"),
    ]
    assert (found["clean"], found["requests"], found["with_usage"], found["conversations"]) == (False, 3, 0, 1)
    totals = found["totals"]
    assert list(totals) == ["readable_tokens", "read_tokens", "breaks", "lost_tokens", "lost_usd", "unpriced_breaks"]
    assert totals["breaks"] == len(found["breaks"]) == 2
    assert totals["lost_tokens"] == totals["readable_tokens"] == sum(one["lost_tokens"] for one in found["breaks"])
    assert totals["lost_usd"] == pytest.approx(sum(one["lost_usd"] for one in found["breaks"]))
    assert found["by_cause"] == {
        "clock_in_head": {name: totals[name] for name in ("breaks", "lost_tokens", "lost_usd")}
    }
    (fix,) = found["fixes"]
    assert (fix["cause"], fix["path"], fix["lines"], fix["breaks"]) == ("clock_in_head", "system[0].text", [2, 3], 2)
    first = found["breaks"][0]
    assert {name: first[name] for name in ("line", "after_line", "conversation", "turn", "ts", "path", "at")} == {
        "line": 2,
        "after_line": 1,
        "conversation": 1,
        "turn": 2,
        "ts": None,
        "path": "system[0].text",
        "at": 10,
    }
    assert (first["before"], first["after"]) == ("10:00", "10:01")


def test_a_clean_log(tmp_path: Path) -> None:
    found = told(write(tmp_path, [body_of(said) for said in talk("ada", 3)]), code=0)
    assert (found["clean"], found["breaks"], found["fixes"], found["by_cause"]) == (True, [], [], {})


def test_ids_times_and_usage_of_the_log_are_used(tmp_path: Path) -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 4_000}
    entries = [
        {"request": body, "response_usage": usage, "ts": f"2026-11-29T1{hour}:00:00Z", "conversation": "t-1"}
        for hour, body in enumerate(body_of(said) for said in talk("ada", 2))
    ]
    (one,) = told(write(tmp_path, entries))["breaks"]
    assert (one["cause"], one["name"], one["ts"]) == ("ttl_expired", "t-1", "2026-11-29T11:00:00.000+00:00")
    assert one["lost_tokens"] == pytest.approx(4_000, abs=15)


def test_prices_of_a_named_day(tmp_path: Path) -> None:
    path = write(tmp_path, clocked())
    assert told(path, "--prices", "2026-11-29")["prices"]["on"] == "2026-11-29"
    assert told(path)["prices"]["on"] is None
    assert refused(path, "--prices", "yesterday") == "--prices yesterday: give a day as YYYY-MM-DD"


def test_text_for_people(tmp_path: Path) -> None:
    path = write(tmp_path, [*clocked(), b"{broken"])
    out = io.StringIO()
    lint_table.show(lint(read_log(Path(path))), console=Console(file=out, width=100))
    text = out.getvalue()
    assert text.startswith("2 breaks in 3 requests in 1 conversation\n")
    assert "1. clock_in_head at system[0].text: $" in text
    assert 'declare it: Slot(r"^It is' in text
    assert "   before: 10:00\n   after:  10:01\n" in text
    assert "warning: 1 passed over (line 4): not JSON" in text
    assert "genai-prices" in text.splitlines()[-1]


def test_what_a_terminal_would_act_on_is_written_out(tmp_path: Path) -> None:
    bodies = [
        body_of(said, f"{RULES}\n{color}now") for said, color in zip(talk("ada", 2), ("\x1b[31m", ""), strict=True)
    ]
    result = run(app, ["lint", write(tmp_path, bodies)])
    assert result.exit_code == 1
    assert "\x1b" not in result.stdout


def test_a_line_of_a_log_can_be_compared(tmp_path: Path) -> None:
    path = write(tmp_path, [b"", *clocked()])
    result = run(app, ["diff", f"{path}:2", f"{path}:4", "--format", "json"])
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["before"], finding["after"]) == ("10:00", "10:02")
    for line, words in ((9, "no request begins on line 9"), (0, "no request begins on line 0")):
        refused_line = run(app, ["diff", f"{path}:2", f"{path}:{line}"])
        assert refused_line.exit_code == 2
        assert words in refused_line.stderr


def test_what_was_kept_before_stays_when_the_agent_cannot_be_run(tmp_path: Path) -> None:
    kept = tmp_path / "sent.jsonl"
    kept.write_text("of yesterday\n", encoding="utf-8")
    assert "no_such_module" in refused("--agent", "no_such_module:make", "--keep", str(kept))
    assert kept.read_text(encoding="utf-8") == "of yesterday\n"
    nowhere = tmp_path / "no" / "where.jsonl"
    assert refused("--agent", "no_such_module:make", "--keep", str(nowhere)).startswith(f"--keep {nowhere}: cannot be")


class TestBadInput:
    """One line that says what and where, or a counted warning."""

    def test_no_file(self, tmp_path: Path) -> None:
        assert "nowhere.jsonl" in refused(str(tmp_path / "nowhere.jsonl"))

    def test_neither_a_log_nor_an_agent(self) -> None:
        assert refused() == "give either a log or --agent MODULE:ATTR"
        assert refused("a.jsonl", "--agent", "desk:make") == "give either a log or --agent MODULE:ATTR"

    def test_an_empty_file(self, tmp_path: Path) -> None:
        path = write(tmp_path, [b""])
        assert path in refused(path)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"hello there, this is no log", "line 1"),
            (b"\x7fELF\x02\x01\x01\x00\x00\x00", "line 1"),
            (b'{"model": "gpt-5.4", "messages": [{"role": "us', "line 1"),
            (b"[1, 2, 3]", "line 1"),
            (b'{"hello": "world"}', "line 1"),
        ],
        ids=["text", "binary", "truncated", "numbers", "other"],
    )
    def test_nothing_that_is_a_request(self, tmp_path: Path, line: bytes, words: str) -> None:
        said = refused(write(tmp_path, [line]))
        assert words in said
        assert "no request" in said

    @pytest.mark.parametrize(
        "line",
        [
            *(b"not JSON", b'{"model": "gpt-5.4", "messages": [{"role": "us', b"\xff\xfe\x00h\x00i", b"null", b"17"),
            *(b'{"a": "\x00"}', b'{"messages": 17, "model": "gpt-5.4"}', b'{"a":' * 50_000),
        ],
        ids=["text", "truncated", "utf-16", "null", "number", "nul", "no-list", "deep"],
    )
    def test_a_bad_line_among_good_ones_is_counted(self, tmp_path: Path, line: bytes) -> None:
        first, second, third = clocked()
        found = told(write(tmp_path, [first, second, line, third]))
        assert found["requests"] == 3
        assert [one["line"] for one in found["breaks"]] == [2, 4]
        (passed,) = found["skipped"]
        assert (passed["count"], passed["lines"], passed["bad"]) == (1, [3], True)

    def test_a_truncated_last_line_is_counted(self, tmp_path: Path) -> None:
        path = Path(write(tmp_path, clocked()))
        path.write_bytes(path.read_bytes()[:-400])
        found = told(str(path))
        assert found["requests"] == 2
        assert [one["lines"] for one in found["skipped"]] == [[3]]

    def test_mixed_wires_are_told_apart(self, tmp_path: Path) -> None:
        lines = [body_of(said, wire=wire) for said in talk("ada", 2) for wire in ("anthropic-messages", "openai-chat")]
        found = told(write(tmp_path, lines), code=0)
        assert (found["requests"], found["conversations"]) == (4, 2)

    def test_an_image_of_10_mb(self, tmp_path: Path) -> None:
        source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo" + "A" * 10_000_000}
        image = {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "What?"}]}
        bodies = [
            {"model": "claude-opus-5", "max_tokens": 9, "system": f"It is 10:0{turn}. {RULES}", "messages": messages}
            for turn, messages in enumerate(
                [[image], [image, {"role": "assistant", "content": "A."}, {"role": "user", "content": "And?"}]]
            )
        ]
        (one,) = told(write(tmp_path, bodies))["breaks"]
        assert one["cause"] == "clock_in_head"

    def test_nul_bytes_at_the_end(self, tmp_path: Path) -> None:
        path = Path(write(tmp_path, clocked()))
        path.write_bytes(path.read_bytes() + b"\x00" * 4096)
        found = told(str(path))
        assert found["requests"] == 3
        assert sum(one["count"] for one in found["skipped"]) == 1


def test_as_a_program_it_reads_a_pipe_and_keeps_stdout_clean() -> None:
    text = "\n".join(map(json.dumps, clocked()))
    done = subprocess.run(
        [sys.executable, "-m", "headstay.cli", "lint", "-", "--format", "json"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["totals"]["breaks"] == 2
    assert done.stderr == ""
