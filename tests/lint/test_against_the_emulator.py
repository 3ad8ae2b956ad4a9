"""The emulator as referee: what a log is said to have read, against what the modelled provider served."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest
from tests.lint.conftest import RULES, body_of, talk

from headstay.causes import Cause
from headstay.emulator import Emulator, ManualClock, serve
from headstay.lint import lint
from headstay.lint.report import Report
from headstay.trace.entry import Entry
from headstay.trace.exchanges import entries


@pytest.fixture
def server() -> Iterator[Emulator]:
    with serve(clock=ManualClock()) as running:
        yield running


Ask = Callable[..., None]


@pytest.fixture
def claude(server: Emulator) -> Iterator[Ask]:
    with anthropic.Anthropic(base_url=server.base_url, api_key="a", max_retries=0) as client:

        def ask(said: list[str], system: str = RULES, **more: Any) -> None:
            client.messages.create(**body_of(said, system, **more))

        yield ask


@pytest.fixture
def gpt(server: Emulator) -> Iterator[Ask]:
    with openai.OpenAI(base_url=server.openai_url, api_key="a", max_retries=0) as client:

        def ask(said: list[str], system: str = RULES) -> None:
            client.chat.completions.create(**body_of(said, system, wire="openai-chat"))

        yield ask


@pytest.fixture(params=["claude", "gpt"])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.getfixturevalue(request.param)
    return found


def told(server: Emulator) -> tuple[Report, Report, int]:
    """Return what is said with the usage and without it, and the tokens that were served from the cache."""
    log = [piece for piece in entries(server.exchanges) if isinstance(piece, Entry)]
    served = sum(one.usage.cache_read_tokens for one in log if one.usage)
    return lint(log), lint([replace(one, usage=None) for one in log]), served


def test_a_stable_log(server: Emulator, ask: Ask) -> None:
    for name in ("ada", "bob"):
        for said in talk(name, 3):
            ask(said)
            server.clock.advance(2)
    reported, estimated, served = told(server)
    assert reported.clean
    assert estimated.clean
    assert reported.read_tokens == served > 10_000
    assert reported.read_tokens == pytest.approx(reported.readable_tokens, rel=0.02)
    assert estimated.read_tokens == pytest.approx(served, rel=0.35), "4.3 bytes a token is a guess"


def test_a_clock(server: Emulator, ask: Ask) -> None:
    for minute, said in enumerate(talk("ada", 4)):
        ask(said, f"It is 10:0{minute}. {RULES}")
        server.clock.advance(2)
    reported, estimated, served = told(server)
    assert served == 0
    for report in (reported, estimated):
        assert [(one.line, one.cause) for one in report.breaks] == [(line, Cause.CLOCK_IN_HEAD) for line in (2, 3, 4)]
        assert report.read_tokens == 0
        assert report.lost.lost_tokens == report.readable_tokens
    # What one call was asked to keep is what the next one could have read.
    usages = [piece.usage for piece in entries(server.exchanges) if isinstance(piece, Entry) and piece.usage]
    step = 128 if server.exchanges[0].wire == "openai-chat" else 1
    kept = [usage.input_tokens // step * step for usage in usages[:-1]]
    assert reported.readable_tokens == pytest.approx(sum(kept), rel=0.02)


def test_an_expired_entry(server: Emulator, ask: Ask) -> None:
    for said in talk("ada", 2):
        ask(said)
        server.clock.advance(3_700)
    reported, estimated, served = told(server)
    assert served == 0
    assert [one.cause for one in reported.breaks] == [Cause.TTL_EXPIRED]
    assert estimated.clean
    assert estimated.read_tokens == 0
    assert any("expired" in notice for notice in estimated.notices)


def test_no_marker(server: Emulator, claude: Ask) -> None:
    for said in talk("ada", 3):
        claude(said, marked=False)
    reported, estimated, served = told(server)
    assert served == 0
    for report in (reported, estimated):
        assert report.clean
        assert report.read_tokens == 0
        assert [fix.cause for fix in report.fixes] == [Cause.MARKERS_MISSING]


@pytest.mark.parametrize("kept", [True, False])
def test_explicit_breakpoints(server: Emulator, kept: bool) -> None:
    """In explicit mode only the places that a request marks itself are looked for."""
    mark = {"mode": "explicit"}
    with openai.OpenAI(base_url=server.openai_url, api_key="a", max_retries=0) as client:
        for said in talk("ada", 4):
            items: list[Any] = [{"role": "developer", "content": [_marked(RULES, mark)]}]
            last = len(said) - 1
            for index, text in enumerate(said):
                marks = index == last or (kept and index == last - 2)
                role = ("user", "assistant")[index % 2]
                items.append({"role": role, "content": [_marked(text * 40, mark)] if marks else text * 40})
            client.chat.completions.create(
                model="gpt-5.6-terra", messages=items, extra_body={"prompt_cache_options": {"mode": "explicit"}}
            )
            server.clock.advance(2)
    reported, estimated, served = told(server)
    assert reported.read_tokens == served > 10_000
    expected = [] if kept else [Cause.MARKERS_MISSING] * 3
    assert [one.cause for one in reported.breaks] == expected
    assert estimated.clean is kept


def _marked(text: str, mark: dict[str, str]) -> dict[str, Any]:
    return {"type": "text", "text": text, "prompt_cache_breakpoint": mark}
