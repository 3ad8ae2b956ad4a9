"""What the table of the demo says below itself."""

import io
from typing import Any

import pytest
from rich.console import Console

from headstay.demo_table import show


def shown(*variants: str) -> str:
    """Print a table of made-up results; the first line below it that holds no figures is the footer."""
    results: list[dict[str, Any]] = [
        {
            "wire": "openai-responses",
            "model": "gpt-6.1-sol",
            "variant": variant,
            "read_share": 1.0,
            "cache_read_tokens": 2_000,
            "cache_write_tokens": 1_000,
            "cost_usd": 0.5,
            "distinct_heads": 1,
            "breaks": [],
        }
        for variant in variants
    ]
    out = io.StringIO()
    show(results, "A title", "2026-11-03", console=Console(file=out, width=200))
    return out.getvalue()


@pytest.mark.parametrize("native", [True, False])
def test_two_oracles_are_told_apart_where_there_are_two(native: bool) -> None:
    said = shown("plain", "headstay", "oracle", *(["oracle-native"] if native else []))
    assert "share: read, of what a perfect layout (oracle) would read" in said
    assert ("oracle-native appends it to the conversations" in said) is native
    assert ("headstay can cost less than oracle" in said) is native
