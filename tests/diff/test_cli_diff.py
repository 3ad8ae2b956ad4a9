"""`headstay diff` on files: the JSON contract, the exit codes, what people see, and bad input in one line."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from headstay import diff, diff_table
from headstay.cli import app

run = CliRunner().invoke
ASK: dict[str, Any] = {
    "model": "gpt-5.4",
    "messages": [{"role": "system", "content": "Today is 2026-11-29."}, {"role": "user", "content": "Hello?"}],
}
LATER = {**ASK, "messages": [{"role": "system", "content": "Today is 2026-11-30."}, ASK["messages"][1]]}
MORE = {**ASK, "messages": [*ASK["messages"], {"role": "assistant", "content": "Hi."}]}
GOOD = json.dumps(ASK).encode()


def write(folder: Path, **files: Any) -> list[str]:
    paths: list[str] = []
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        paths.append(str(path))
    return paths


def test_json_is_the_contract(tmp_path: Path) -> None:
    result = run(app, ["diff", *write(tmp_path, a=ASK, b=LATER), "--format", "json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    (finding,) = told.pop("findings")
    remedy = finding.pop("remedy")
    lost = finding.pop("lost_tokens")
    assert finding == {
        "cause": "clock_in_head",
        "path": "messages[0].content",
        "at": 17,
        "before": "2026-11-29",
        "after": "2026-11-30",
    }
    assert remedy == 'declare it: Slot(r"^Today is (?P<today_is>.+?)\\.$", every="call")'
    # 17 bytes are shared; 3 of the system text and 6 of the message stand behind: 17 / 4.3 and 9 / 4.3
    assert told == {"clean": False, "wire": "openai-chat", "shared_tokens": 4, "lost_tokens": 2}
    assert lost == 2


def test_a_continuation_is_clean(tmp_path: Path) -> None:
    paths = write(tmp_path, a=ASK, b=MORE)
    result = run(app, ["diff", *paths, "--format", "json"])
    assert (result.exit_code, json.loads(result.stdout)) == (
        0,
        {"clean": True, "wire": "openai-chat", "shared_tokens": 6, "lost_tokens": 0, "findings": []},
    )
    result = run(app, ["diff", *paths])
    assert (result.exit_code, result.stdout) == (0, "clean: B continues A (openai-chat; about 6 tokens shared)\n")


def shown(one: Any, other: Any, width: int = 100) -> str:
    screen = io.StringIO()
    diff_table.show(diff(one, other), console=Console(file=screen, width=width))
    return screen.getvalue()


@pytest.mark.parametrize("width", [40, 100])
def test_both_sides_stand_next_to_each_other(width: int) -> None:
    lines = shown(ASK, LATER, width).splitlines()
    assert any("2026-11-29" in line and "2026-11-30" in line for line in lines)
    assert any(line.startswith("1. clock_in_head  messages[0].content, character 17") for line in lines)
    assert any('Slot(r"^Today is' in line for line in lines)
    assert "~2 tokens" in "".join(lines)


def test_nothing_in_a_body_reaches_the_terminal_as_a_command() -> None:
    def said(text: str) -> dict[str, Any]:
        return {**ASK, "messages": [{"role": "user", "content": text}, *MORE["messages"][1:]]}

    text = shown(said("It is \x1b[31mred[bold]x[/bold]."), said("It is \x1b[32mgreen[/bold]\x07."))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[32mgreen[/bold]\\x07." in text
    assert "\\x1b[31mred[bold]x[/bold]." in text


def test_blanks_and_unicode_forms_are_made_visible() -> None:
    def said(text: str) -> dict[str, Any]:
        return {**ASK, "messages": [{"role": "system", "content": text}]}

    assert "\u00b7blanks" in shown(said("Two  blanks"), said("Two blanks"))
    text = shown(said("caf\u00e9"), said("cafe\u0301"))
    assert "\\xe9" in text
    assert "\\u0301" in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty; it must hold one request body as JSON"),
        (b" \n\t", "the file is empty"),
        (b'{"model": "x",\n "messages": [}', "not JSON: line 2, column 15: Expecting value"),
        (GOOD + b"\n" + GOOD, "line 2: more than one JSON value; give one request body"),
        (b'{"model":\n"\x00"}', "line 2 holds a NUL byte; give the request body as JSON in UTF-8"),
        (GOOD.decode().encode("utf-16-le"), "line 1 holds a NUL byte"),
        (b'{"model": "caf\xe9"}', "line 1 is not UTF-8"),
        (b"[" * 100_000, "nested too deeply to be a request body"),
        (b"[]", "a request body is a JSON object, this is a list"),
        (b"null", "a request body is a JSON object, this is null"),
        (b"{}", 'no request body: it has neither "messages"'),
        (b'{"choices": []}', "this is a response; give the request that was sent"),
        (b'{"request": {}}', 'this is a log entry; give what stands under "request"'),
        (b'{"messages": 3}', "messages: expected a list of objects, got a number"),
        (b'{"messages": ["hi"]}', "messages[0]: expected an object, got text"),
        (b'{"messages": [{"role": "user", "content": 7}]}', "messages[0].content: expected a list of objects"),
        (b'{"messages": [], "tools": {}}', ""),
        (b'{"messages": [], "tools": [1]}', "tools[0]: expected an object, got a number"),
    ],
)
@pytest.mark.parametrize("bad_first", [True, False])
def test_bad_input_ends_with_one_line(tmp_path: Path, content: bytes, said: str, bad_first: bool) -> None:
    bad, good = write(tmp_path, bad=content, good=ASK)
    result = run(app, ["diff", *((bad, good) if bad_first else (good, bad)), "--format", "json"])
    if not said:
        assert result.exit_code in (0, 1)
        return
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"headstay: {bad}: {said}")
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = run(app, ["diff", *write(tmp_path, a=ASK), str(tmp_path / "none.json")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"headstay: {tmp_path / 'none.json'}: cannot be read: No such file or directory\n"


def test_mixed_wires_are_no_pair(tmp_path: Path) -> None:
    claude = {"model": "claude-opus-5", "max_tokens": 9, "system": "Be kind.", "messages": ASK["messages"][1:]}
    responses = {"model": "gpt-5.4", "input": "Hello?"}
    for one, other in ((ASK, claude), (claude, responses), (responses, ASK)):
        result = run(app, ["diff", *write(tmp_path, a=one, b=other)])
        assert result.exit_code == 2
        assert "only requests of one wire format share a cache" in result.stderr
        assert result.stderr.count("\n") == 1


def test_a_large_image_and_odd_characters_are_fine(tmp_path: Path) -> None:
    url = {"url": "data:image/png;base64," + "A" * 10_000_000}
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": url}]}
    odd = {"role": "user", "content": "\ud800 \u0000 \U0001f642"}
    one = {**ASK, "messages": [*ASK["messages"], picture, odd, *MORE["messages"][-1:]]}
    other = {**LATER, "messages": [*LATER["messages"], picture, {**odd, "content": "\udfff"}, {**odd, "content": "?"}]}
    for form in ("json", "text"):
        result = run(app, ["diff", *write(tmp_path, a=one, b=other), "--format", form])
        assert result.exit_code == 1
        assert "clock_in_head" in result.stdout
        assert len(result.stdout) < 3_000
