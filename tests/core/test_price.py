"""Prices, against the table of the providers' own figures and against the library's own arithmetic."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as LibraryUsage
from genai_prices import calc_price
from hypothesis import given
from hypothesis import strategies as st

from headstay.ledger.price import Cost, price, priced, rates
from headstay.ledger.row import Row
from headstay.ledger.usage import Usage

SEEN = datetime(2026, 11, 29, tzinfo=UTC)

# USD per million tokens, from the providers' pages and two price maps, seen 2026-11-29
TABLE = [
    ("anthropic", "claude-fable-5-2", 8, 40, 0.20, {"5m": 10, "1h": 16}),
    ("anthropic", "claude-fable-5-1", 10, 50, 0.25, {"5m": 12.5, "1h": 20}),
    ("anthropic", "claude-opus-5-5", 4, 20, 0.20, {"5m": 5, "1h": 8}),
    ("anthropic", "claude-opus-5", 5, 25, 0.50, {"5m": 6.25, "1h": 10}),
    ("anthropic", "claude-sonnet-5-5", 2, 10, 0.10, {"5m": 2.5, "1h": 4}),
    ("anthropic", "claude-sonnet-4-6", 3, 15, 0.30, {"5m": 3.75, "1h": 6}),
    ("anthropic", "claude-haiku-5-5", 0.10, 0.50, 0.01, {"5m": 0.125, "1h": 0.20}),
    ("anthropic", "claude-haiku-4-5", 1, 5, 0.10, {"5m": 1.25, "1h": 2}),
    ("openai", "gpt-6-astra", 10, 50, 1.00, {"30m": 12.5, "12h": 25}),
    ("openai", "gpt-6.1-sol", 2, 10, 0.10, {"30m": 2.5, "12h": 5}),
    ("openai", "gpt-6.1-terra", 1, 5, 0.05, {"30m": 1.25, "12h": 2.5}),
    ("openai", "gpt-6-luna", 0.10, 0.50, 0.01, {"30m": 0.125, "12h": 0.25}),
    ("openai", "gpt-5.6-sol", 4, 20, 0.40, {"30m": 5, "12h": 10}),
    ("openai", "gpt-5.5", 5, 30, 0.5, {}),
    ("google", "gemini-3.8-flash", 0.75, 3.75, 0.075, {}),
    ("moonshotai", "kimi-k3", 3, 15, 0.3, {"default": 3, "1h": 6}),
]


@pytest.mark.parametrize(("provider", "model", "plain", "output", "read", "write"), TABLE)
def test_rates_agree_with_the_providers_pages(
    provider: str, model: str, plain: float, output: float, read: float, write: dict[str, float]
) -> None:
    found = rates(provider, model, at=SEEN)
    assert found is not None
    assert (found.input, found.output, found.read) == pytest.approx((plain, output, read))
    assert dict(found.write) == pytest.approx(write)


@pytest.mark.parametrize(
    ("provider", "model", "usage", "usd"),
    [
        # 50 plain x 4 + 1,500 read x 0.20 + 250 out x 20 = 200 + 300 + 5,000 millionths
        ("anthropic", "claude-opus-5-5", Usage(1_550, 1_500, 0, {}, 250), 0.0055),
        # the same head written instead: 200 + 1,500 x 5 + 5,000
        ("anthropic", "claude-opus-5-5", Usage(1_550, 0, 1_500, {"5m": 1_500}, 250), 0.0127),
        ("anthropic", "claude-opus-5-5", Usage(1_550, 0, 1_500, {}, 250), 0.0127),  # 5m unless known
        # for an hour: 200 + 1,500 x 8 + 5,000
        ("anthropic", "claude-opus-5-5", Usage(1_550, 0, 1_500, {"1h": 1_500}, 250), 0.0172),
        # 500 for an hour, the other 1,000 unknown: 200 + 500 x 8 + 1,000 x 5 + 5,000
        ("anthropic", "claude-opus-5-5", Usage(1_550, 0, 1_500, {"1h": 500}, 250), 0.0142),
        # 12 hours on OpenAI: 100 x 2 + 1,000 x 5
        ("openai", "gpt-6.1-sol", Usage(1_100, 0, 1_000, {"12h": 1_000}, 0), 0.0052),
        # above 272k all rates double, the 12 hours too, output x 1.5: 300,000 x 2.5 x 4 + 1,000 x 15
        ("openai", "gpt-6.1-sol", Usage(300_000, 0, 300_000, {"12h": 300_000}, 1_000), 3.015),
        # exactly 272,000 is still the first tier: 272,000 x 2
        ("openai", "gpt-6.1-sol", Usage(272_000), 0.544),
        # Haiku 5.5 above 100k tokens is five times as dear: 90,000 x 0.05 + 20,000 x 0.5 + 1,000 x 2.5
        ("anthropic", "claude-haiku-5-5", Usage(110_000, 90_000, 0, {}, 1_000), 0.017),
        # no cache price on writes before 5.6: they are plain input, 1,000 x 5
        ("openai", "gpt-5.5", Usage(1_000, 0, 400, {}, 0), 0.005),
        ("anthropic", "claude-opus-5-5", Usage(), 0.0),
    ],
)
def test_price_of_a_reply(provider: str, model: str, usage: Usage, usd: float) -> None:
    cost = price(usage, provider=provider, model=model, at=SEEN)
    assert cost.usd == pytest.approx(usd)
    assert cost.reason is None


@given(
    model=st.sampled_from([row[:2] for row in TABLE]),
    plain=st.integers(0, 300_000),
    read=st.integers(0, 300_000),
    short=st.integers(0, 50_000),
    hour=st.integers(0, 50_000),
    out=st.integers(0, 20_000),
)
def test_price_equals_the_librarys_own(
    model: tuple[str, str], plain: int, read: int, short: int, hour: int, out: int
) -> None:
    provider, name = model
    split = {"1h": hour} if provider != "openai" else {}
    usage = Usage(plain + read + short + hour, read, short + hour, split, out)
    theirs = calc_price(
        LibraryUsage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=read,
            cache_write_tokens=usage.cache_write_tokens,
            cache_write_1h_tokens=split.get("1h"),
            output_tokens=out,
        ),
        name,
        provider_id=provider,
        genai_request_timestamp=SEEN,
    )
    assert price(usage, provider=provider, model=name, at=SEEN).usd == pytest.approx(float(theirs.total_price))


def test_a_call_is_priced_at_the_rates_of_its_day() -> None:
    # GPT-5.6 sol went from 5 to 4 USD on 2026-08-21
    million = Usage(input_tokens=100_000)
    before = price(million, provider="openai", model="gpt-5.6-sol", at=datetime(2026, 8, 20, 23, tzinfo=UTC))
    after = price(million, provider="openai", model="gpt-5.6-sol", at=datetime(2026, 8, 21))
    assert (before.usd, after.usd) == pytest.approx((0.5, 0.4))


def test_service_tier_changes_the_price() -> None:
    usage = Usage(1_000, 0, 0, {}, 0)
    plain = price(usage, provider="openai", model="gpt-6.1-sol", at=SEEN)
    flex = price(usage, provider="openai", model="gpt-6.1-sol", at=SEEN, context={"service_tier": "flex"})
    assert (plain.usd, flex.usd) == pytest.approx((0.002, 0.001))  # flex is half


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "gpt-99"), ("vllm", "gpt-6.1-sol"), ("", ""), ("anthropic", "gpt-6.1-sol")]
)
def test_an_unknown_model_has_no_price_and_a_reason(provider: str, model: str) -> None:
    cost = price(Usage(input_tokens=10), provider=provider, model=model)
    assert cost.usd is None
    assert cost.reason == f"no price for model {model!r} of provider {provider!r}"
    assert rates(provider, model) is None


def test_a_cost_says_where_it_is_from() -> None:
    plain = price(Usage(10, 0, 10, {}, 0), provider="openai", model="gpt-6.1-sol")
    overlaid = price(Usage(10, 0, 10, {"12h": 10}, 0), provider="openai", model="gpt-6.1-sol")
    assert plain.source.startswith("genai-prices ")
    assert "litellm" not in plain.source
    assert "12h write 2.5x input from litellm" in overlaid.source
    # the data knows of a check in November 2026, and of no day after this
    assert plain.as_of >= "2026-11-01"
    assert datetime.fromisoformat(plain.as_of)


def test_write_rate_falls_back() -> None:
    opus = rates("anthropic", "claude-opus-5-5", at=SEEN)
    old = rates("openai", "gpt-5.5", at=SEEN)
    assert opus is not None
    assert old is not None
    assert [opus.write_rate(ttl) for ttl in (None, "5m", "1h", "30m")] == pytest.approx([5, 5, 8, 5])
    assert old.write_rate("30m") == pytest.approx(5)  # no write price: plain input


def test_a_row_is_priced_once() -> None:
    row = Row(
        ts=SEEN.timestamp(), provider="anthropic", model="claude-opus-5-5", input_tokens=1_000, cache_read_tokens=500
    )
    filled = priced(row)
    assert filled.cost_usd == pytest.approx(0.0021)  # 500 x 4 + 500 x 0.20 millionths
    assert filled.price_date == price(Usage(), provider="anthropic", model="claude-opus-5-5").as_of
    assert priced(filled) is filled
    assert priced(Row(ts=0.0)).cost_usd is None
    unknown = Row(ts=float("inf"), provider="x", model="y", input_tokens=1)
    assert priced(unknown) is unknown


def test_the_price_table_loads_only_when_asked_for() -> None:
    code = (
        "import sys, headstay.ledger\n"
        "heavy = {'genai_prices', 'pydantic', 'sqlite3'}\n"
        "assert not heavy & sys.modules.keys()\n"
        "headstay.ledger.Usage, headstay.ledger.Verdict\n"
        "assert not heavy & sys.modules.keys()\n"
        "ledger = headstay.ledger.Ledger()\n"
        "ledger.append(headstay.ledger.Row(ts=1.0, provider='openai', model='gpt-6.1-sol', input_tokens=5))\n"
        "assert not (heavy - {'sqlite3'}) & sys.modules.keys()\n"
        "assert ledger.totals().cost_usd == 0.00001\n"
        "assert 'genai_prices' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_cost_is_a_plain_value() -> None:
    assert Cost(1.0, "2026-11-03", "x") == Cost(1.0, "2026-11-03", "x", None)
