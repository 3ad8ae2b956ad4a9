"""The rules table against the providers' facts, typed from the notes of 2026-11-29, and against genai-prices."""

from datetime import UTC, datetime

import pytest

from headstay.ledger.price import rates
from headstay.prompt import Wire
from headstay.providers.rules import RULES, find_rules

SEEN = datetime(2026, 11, 29, tzinfo=UTC)

# (models, fewest tokens, read price relative to input), each model as a user names it
ANTHROPIC: list[tuple[tuple[str, ...], int, float]] = [
    (("claude-fable-5-2", "claude-mythos-5-2"), 512, 0.025),
    (("claude-fable-5-1", "claude-mythos-5-1"), 512, 0.025),
    (("claude-fable-5", "claude-mythos-5"), 512, 0.1),
    (("claude-opus-5-5",), 512, 0.05),
    (("claude-opus-5",), 512, 0.1),
    (("claude-sonnet-5-5",), 512, 0.05),
    (("claude-haiku-5-5",), 512, 0.1),
    (("claude-opus-4-8", "claude-sonnet-5", "claude-sonnet-4-6", "claude-sonnet-4-5"), 1024, 0.1),
    (("claude-opus-4-1", "claude-opus-4", "claude-sonnet-4"), 1024, 0.1),
    (("claude-mythos-preview",), 2048, 0.1),
    (("claude-opus-4-7",), 2048, 0.1),
    (("claude-opus-4-6", "claude-opus-4-5", "claude-haiku-4-5"), 4096, 0.1),
]
IN_PLACE = {"opus-4-8", "opus-5", "opus-5-5", "fable-5", "fable-5-1", "fable-5-2", "sonnet-5-5"}
BINDS = {
    *("fable-5-1", "fable-5-2", "mythos-5-1", "mythos-5-2"),
    *("opus-5-5", "sonnet-5-5", "haiku-5-5"),
}
# (models, markers, lifetimes, read, write)
OPENAI: list[tuple[tuple[str, ...], int, set[str], float, dict[str, float]]] = [
    (("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6.2-sol"), 4, {"30m", "12h"}, 0.05, {"30m": 1.25, "12h": 2.5}),
    (("gpt-6-astra", "gpt-6-sol", "gpt-6-luna"), 4, {"30m", "12h"}, 0.1, {"30m": 1.25, "12h": 2.5}),
    (("gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6"), 4, {"30m", "12h"}, 0.1, {"30m": 1.25, "12h": 2.5}),
    (("gpt-5.5", "gpt-5.5-pro"), 0, {"24h"}, 0.1, {}),
    (("gpt-5.4", "gpt-5.4-mini", "gpt-5.3", "gpt-5.2", "gpt-5.1", "gpt-5"), 0, {"in_memory", "24h"}, 0.1, {}),
    (("gpt-5-mini", "gpt-5-nano-2025-08-07"), 0, {"in_memory", "24h"}, 0.1, {}),
    (("gpt-4.1", "gpt-4.1-mini", "o3", "o4-mini"), 0, {"in_memory", "24h"}, 0.25, {}),
    (("gpt-4o", "gpt-4o-mini", "o1"), 0, {"in_memory"}, 0.5, {}),
]


@pytest.mark.parametrize(("model", "minimum", "read"), [(m, low, read) for ms, low, read in ANTHROPIC for m in ms])
@pytest.mark.parametrize("end", ["", "-20261001", "-latest"])
def test_anthropic(model: str, minimum: int, read: float, end: str) -> None:
    rules = find_rules("anthropic-messages", f"anthropic/{model}{end}")
    assert (rules.provider, rules.min_tokens, rules.read_multiplier) == ("anthropic", minimum, read)
    assert (rules.max_markers, rules.lookback, rules.explicit_mode) == (4, 20, False)
    assert (dict(rules.ttls), rules.default_ttl) == ({"5m": 300, "1h": 3600}, "5m")
    assert dict(rules.write_multipliers) == {"5m": 1.25, "1h": 2.0}
    assert (rules.affinity, rules.retention) == (None, None)
    short = model.removeprefix("claude-")
    assert rules.in_place_system == (short in IN_PLACE)
    assert rules.binds_thinking == (short in BINDS)
    assert rules.images_rekey_messages
    assert "tool_choice" in rules.message_parameters
    assert "speed" in rules.lane_parameters


@pytest.mark.parametrize(
    ("model", "markers", "ttls", "read", "write"), [(m, *facts) for models, *facts in OPENAI for m in models]
)
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])
def test_openai(model: str, markers: int, ttls: set[str], read: float, write: dict[str, float], wire: Wire) -> None:
    rules = find_rules(wire, model)
    assert (rules.provider, rules.min_tokens, rules.read_multiplier) == ("openai", 1024, read)
    assert (rules.max_markers, set(rules.ttls), dict(rules.write_multipliers)) == (markers, ttls, write)
    assert rules.explicit_mode == bool(markers)
    assert rules.affinity == "prompt_cache_key"
    # each generation refuses the other's field
    assert rules.retention == (None if markers else "prompt_cache_retention")
    assert rules.default_ttl == ("30m" if markers else "24h" if "in_memory" not in ttls else "in_memory")
    assert rules.step == (1 if markers else 2048 if model.startswith("gpt-5.5") else 128)
    assert rules.default_ttl in rules.ttls
    assert {"parallel_tool_calls", "service_tier", "prompt_cache_key"} <= set(rules.lane_parameters)


@pytest.mark.parametrize(
    ("wire", "model"),
    [
        ("anthropic-messages", "claude-opus-5-9"),  # not yet read about
        ("anthropic-messages", "claude-3-5-haiku-20241022"),
        ("anthropic-messages", "my-proxy-model"),
        ("anthropic-messages", "gpt-5.4"),
        ("openai-chat", "gpt-7"),
        ("openai-chat", "gpt-6.3-sol"),
        ("openai-chat", "o3x"),
        ("openai-chat", "claude-opus-5"),
        ("openai-responses", ""),
        ("host-messages", "gpt-5.4"),
    ],
)
def test_a_model_without_a_row_gets_the_careful_one(wire: Wire, model: str) -> None:
    rules = find_rules(wire, model)
    assert (rules.known, rules.provider) == (False, "unknown")
    strictest = [row for row in RULES if row.provider == ("anthropic" if wire == "anthropic-messages" else "openai")]
    assert rules.min_tokens >= max(row.min_tokens for row in strictest)
    assert not rules.in_place_system
    assert (rules.affinity, rules.retention, rules.explicit_mode) == (None, None, False)


def test_every_row_is_dated_and_names_its_source() -> None:
    for rules in RULES:
        assert rules.as_of == "2026-11-29"
        assert rules.source
        assert set(rules.write_multipliers) <= set(rules.ttls)
        assert rules.ttl_seconds(None) == rules.ttls[rules.default_ttl]


PRICED = [
    *("claude-fable-5-2", "claude-fable-5-1", "claude-opus-5-5", "claude-opus-5", "claude-opus-4-8"),
    *("claude-sonnet-5-5", "claude-sonnet-5", "claude-sonnet-4-6", "claude-haiku-5-5", "claude-haiku-4-5"),
    *("gpt-6-astra", "gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna"),
    *("gpt-5.6-sol", "gpt-5.6-terra", "gpt-5.6-luna", "gpt-5.5", "gpt-5.4", "gpt-5.4-mini", "gpt-5"),
    *("gpt-4.1", "gpt-4o", "gpt-4o-mini"),
]


@pytest.mark.parametrize("model", PRICED)
def test_multipliers_agree_with_the_price_table(model: str) -> None:
    wire: Wire = "anthropic-messages" if model.startswith("claude") else "openai-chat"
    provider = wire.partition("-")[0]
    rules = find_rules(wire, model)
    price = rates(provider, model, at=SEEN)
    assert price is not None
    assert price.read / price.input == pytest.approx(rules.read_multiplier)
    for ttl, multiplier in rules.write_multipliers.items():
        assert price.write_rate(ttl) / price.input == pytest.approx(multiplier), ttl
    if not rules.write_multipliers:
        assert price.write_rate() == price.input
