"""The fix for LlamaIndex on every page of a cause: its blocks run, what they send keeps its head, and it is the fix.

Each page is also run with headstay taken out of it: what the page mends must then be there to see.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from anthropic import BadRequestError
from tests.llama.page_blocks import LEFT_OPEN, ROOT, run, section

from headstay import diff
from headstay.causes import Cause
from headstay.emulator import Emulator, Exchange

pytestmark = [pytest.mark.filterwarnings(*LEFT_OPEN)]

CODES = [str(cause) for cause in Cause]

# Which requests of a page read from the cache ("r"), in order. A page that is not here sends none to the emulator.
READS = {
    "below_minimum": "--r",
    "clock_in_head": "-r",
    "cold_fan_out": "-rr",
    "history_edited": "-rr",
    "history_summarised": "-rr",
    "lookback_exceeded": "-r",
    "marker_ttl_order": "-",
    "markers_missing": "-r",
    "markers_over_limit": "-rrrrr",
    "memory_in_head": "-rr",
    "model_changed": "-r",
    "parameters_changed": "-r",
    "random_id_in_head": "-r-r",  # two heads
    "receipt_lost": "-r",
    "retrieval_in_head": "-r",
    "schema_key_order": "-r",
    "system_text_changed": "-r",
    "thinking_changed": "-r",
    "tool_order": "-r",
    "ttl_expired": "--",  # two providers
    "unicode_form": "-r",
    "unknown": "-r",
    "value_in_head": "-r",
    "whitespace": "-r-",  # the third has the break that the page shows
}
# Pages whose requests show the cause all the same: it is what they are about.
SHOWN = {"history_summarised", "whitespace", "value_in_head"}

# Without headstay the requests of these pages show the cause ...
SHOWS = {
    "clock_in_head",
    "history_edited",
    "markers_over_limit",
    "memory_in_head",
    "random_id_in_head",
    "retrieval_in_head",
    "schema_key_order",
    "system_text_changed",
    "tool_order",
    "value_in_head",
}
# ... these read nothing, since nothing is marked or the marker of the call before is gone ...
READS_NOTHING = {"lookback_exceeded", "markers_missing", "thinking_changed", "unknown"}
# ... and these are refused, or do not print what the page says.
FAILS = {"history_dropped": "31 breaks", "markers_over_limit": "A maximum of 4 blocks", "receipt_lost": "thinking"}

_IMPORT = re.compile(r"^from llama_index_headstay import .*$", re.MULTILINE)
_WITHOUT = (
    "from llama_index.core.memory import Memory as SteppedMemory; "
    "from llama_index_headstay import BundledEmbedding, lint_head; "
    "cache_aware = prefix_safe = lambda given, **settings: given"
)


def fix(code: str) -> tuple[str, Path]:
    """Return what a page says on LlamaIndex, and the page."""
    path = ROOT / "docs" / "causes" / f"{code}.md"
    return section(path, "LlamaIndex"), path


def without_headstay(text: str) -> str:
    """Take headstay out of a section, and leave everything else."""
    return _IMPORT.sub(_WITHOUT, text)


def read(exchange: Exchange) -> int:
    """Return the tokens that a request read from the cache, by the emulator's own count."""
    usage: dict[str, Any] = exchange.response["usage"]
    openai: dict[str, int] = usage.get("prompt_tokens_details") or {}
    return int(usage.get("cache_read_input_tokens", openai.get("cached_tokens", 0)))


def causes(exchanges: Iterable[Exchange]) -> set[str]:
    """Return the causes between each request and the one before it."""
    pairs = [(one.body, two.body) for one, two in pairwise(exchanges) if one.wire == two.wire]
    return {str(finding.cause) for one, two in pairs for finding in diff(one, two).findings}


@pytest.mark.parametrize("code", CODES)
def test_the_blocks_run_and_their_requests_keep_the_head(code: str, provider: Emulator) -> None:
    assert run(*fix(code)) > 0
    assert [exchange.status for exchange in provider.exchanges] == [200] * len(READS.get(code, ""))
    assert "".join("r" if read(exchange) > 1_024 else "-" for exchange in provider.exchanges) == READS.get(code, "")
    assert (code in causes(provider.exchanges)) == (code in SHOWN)


@pytest.mark.parametrize("code", sorted({*SHOWS, *READS_NOTHING, *FAILS}))
def test_without_headstay_the_page_shows_what_it_mends(code: str, provider: Emulator) -> None:
    text, path = fix(code)
    stopped = ""
    try:
        run(without_headstay(text), path)
    except (AssertionError, BadRequestError, KeyError) as problem:
        stopped = str(problem)
    assert FAILS.get(code, "") in stopped
    assert (code in SHOWS) <= (code in causes(provider.exchanges))
    if code in READS_NOTHING:
        assert [read(exchange) for exchange in provider.exchanges] == [0, 0]


@pytest.mark.parametrize("code", CODES)
def test_a_page_that_sends_nothing_checks_what_it_says(code: str) -> None:
    text, _ = fix(code)
    assert code in READS or re.search(r"^ *assert |^```text$", text, re.MULTILINE)


def test_a_section_stands_on_its_lines_and_alone() -> None:
    text, path = fix("clock_in_head")
    lines = path.read_text(encoding="utf-8").splitlines()
    at = lines.index('today = Slot(r"^Today is (?P<today>.+?)\\.$", every="call")', lines.index("## LlamaIndex"))
    assert text.splitlines()[at] == lines[at]
    assert "langchain" not in text.lower()
    assert "## " not in text
    assert "llama_index_headstay" in text
    assert "import cache_aware" not in without_headstay(text)
