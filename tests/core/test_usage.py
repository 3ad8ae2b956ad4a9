"""Token counts: one identity for every wire format."""

import pickle
from collections.abc import Callable

import pytest
from anthropic.types import Usage as AnthropicUsage
from hypothesis import given
from hypothesis import strategies as st
from openai.types import CompletionUsage
from openai.types.responses import ResponseUsage

from headstay.ledger.usage import (
    Usage,
    from_anthropic,
    from_langchain,
    from_openai_chat,
    from_openai_responses,
)

TOKENS = st.integers(0, 2_000_000)
NUMBERS = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats() | st.just("12")
READERS = (from_anthropic, from_openai_chat, from_openai_responses, from_langchain)


def test_anthropic_input_excludes_the_cache() -> None:
    usage = from_anthropic(
        AnthropicUsage.model_validate(
            {
                "input_tokens": 50,
                "cache_read_input_tokens": 12_000,
                "cache_creation_input_tokens": 400,
                "cache_creation": {"ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 300},
                "output_tokens": 250,
            }
        ).model_dump()
    )
    # 50 + 12,000 + 400 = 12,450 tokens of prompt
    assert usage == Usage(12_450, 12_000, 400, {"5m": 100, "1h": 300}, 250)
    assert usage.uncached_tokens == 50


def test_anthropic_stream_end_repeats_the_total_without_the_split() -> None:
    usage = from_anthropic(
        {"input_tokens": 8, "cache_creation_input_tokens": 1_500, "cache_read_input_tokens": None, "output_tokens": 3}
    )
    assert usage == Usage(1_508, 0, 1_500, {}, 3)
    assert usage.attribute_writes("1h") == Usage(1_508, 0, 1_500, {"1h": 1_500}, 3)


def test_attribution_leaves_known_lifetimes_alone() -> None:
    usage = Usage(1_000, 0, 900, {"1h": 600}, 0)
    assert usage.attribute_writes("5m").write_by_ttl == {"1h": 600, "5m": 300}
    assert usage.attribute_writes("1h").write_by_ttl == {"1h": 900}
    assert usage.attribute_writes("5m").attribute_writes("1h") == usage.attribute_writes("5m")


def test_openai_chat_input_includes_the_cache() -> None:
    usage = from_openai_chat(
        CompletionUsage.model_validate(
            {
                "prompt_tokens": 2_000,
                "completion_tokens": 30,
                "total_tokens": 2_030,
                "prompt_tokens_details": {"cached_tokens": 1_500, "cache_write_tokens": 450},
            }
        ).model_dump()
    )
    assert usage == Usage(2_000, 1_500, 450, {}, 30)
    assert usage.uncached_tokens == 50  # 2,000 - 1,500 - 450


def test_openai_responses_splits_writes_by_lifetime() -> None:
    usage = from_openai_responses(
        ResponseUsage.model_validate(
            {
                "input_tokens": 3_000,
                "output_tokens": 12,
                "total_tokens": 3_012,
                "output_tokens_details": {"reasoning_tokens": 5},
                "input_tokens_details": {
                    "cached_tokens": 1_000,
                    "cache_write_tokens": 1_800,
                    "cache_write_tokens_details": {"ttl_30m_tokens": 600, "ttl_12h_tokens": 1_200},
                },
            }
        ).model_dump()
    )
    assert usage == Usage(3_000, 1_000, 1_800, {"30m": 600, "12h": 1_200}, 12)


@pytest.mark.parametrize(
    ("details", "written", "split"),
    [
        # langchain-anthropic with the split: the plain field is zeroed, the three add up
        (
            {"cache_creation": 0, "ephemeral_5m_input_tokens": 100, "ephemeral_1h_input_tokens": 300},
            400,
            {"5m": 100, "1h": 300},
        ),
        # without the split
        ({"cache_creation": 400, "ephemeral_5m_input_tokens": None}, 400, {}),
        # a sum of messages with and without the split: 250 unsplit + 150 split
        ({"cache_creation": 250, "ephemeral_1h_input_tokens": 150}, 400, {"1h": 150}),
        # a total beside its own split: 800 + 800 does not fit into 1,000 tokens, so 800 is the total
        ({"cache_creation": 800, "ephemeral_1h_input_tokens": 800}, 800, {"1h": 800}),
        # OpenAI's tiers prefix the names
        ({"priority_cache_creation": 300, "priority_cache_read": 100, "priority": 900}, 300, {}),
        ({"flex_cache_creation": 300, "flex_cache_read": 100, "flex": 900}, 300, {}),
    ],
)
def test_langchain_sums_what_it_split(details: dict[str, object], written: int, split: dict[str, int]) -> None:
    usage = from_langchain({"input_tokens": 1_000, "output_tokens": 7, "input_token_details": details})
    assert (usage.input_tokens, usage.cache_write_tokens, usage.write_by_ttl) == (1_000, written, split)
    assert usage.cache_read_tokens == (100 if "priority" in details or "flex" in details else 0)
    assert usage.output_tokens == 7


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "empty", [{}, {"input_token_details": None, "prompt_tokens_details": None, "input_tokens": None}]
)
def test_missing_fields_are_zero(read: Callable[[dict[str, object]], Usage], empty: dict[str, object]) -> None:
    assert read(empty) == Usage()


@given(plain=TOKENS, read=TOKENS, five=TOKENS, hour=TOKENS, out=TOKENS)
def test_every_format_of_one_reply_gives_the_same_counts(plain: int, read: int, five: int, hour: int, out: int) -> None:
    total, written = plain + read + five + hour, five + hour
    anthropic = from_anthropic(
        {
            "input_tokens": plain,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": written,
            "cache_creation": {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour},
            "output_tokens": out,
        }
    )
    langchain = from_langchain(
        {
            "input_tokens": total,
            "output_tokens": out,
            "input_token_details": {
                "cache_read": read,
                "cache_creation": 0,
                "ephemeral_5m_input_tokens": five,
                "ephemeral_1h_input_tokens": hour,
            },
        }
    )
    chat = from_openai_chat(
        {
            "prompt_tokens": total,
            "completion_tokens": out,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        }
    )
    assert anthropic == langchain
    assert anthropic.uncached_tokens == chat.uncached_tokens == plain
    assert (anthropic.input_tokens, anthropic.cache_write_tokens) == (chat.input_tokens, chat.cache_write_tokens)


BODY_FIELDS = {
    "input_tokens": NUMBERS,
    "prompt_tokens": NUMBERS,
    "output_tokens": NUMBERS,
    "cache_read_input_tokens": NUMBERS,
    "cache_creation_input_tokens": NUMBERS,
}
DETAIL_FIELDS = {
    "cache_read": NUMBERS,
    "cache_creation": NUMBERS,
    "priority_cache_read": NUMBERS,
    "ephemeral_5m_input_tokens": NUMBERS,
    "ephemeral_1h_input_tokens": NUMBERS,
    "cached_tokens": NUMBERS,
    "cache_write_tokens": NUMBERS,
}
DETAILS = NUMBERS | st.fixed_dictionaries({}, optional=DETAIL_FIELDS)
BODIES = st.fixed_dictionaries(
    {},
    optional=BODY_FIELDS
    | dict.fromkeys(
        ("cache_creation", "input_token_details", "input_tokens_details", "prompt_tokens_details"), DETAILS
    ),
)


@given(body=BODIES, read=st.sampled_from(READERS))
def test_no_reply_breaks_the_identity(body: dict[str, object], read: Callable[[dict[str, object]], Usage]) -> None:
    usage = read(body)
    parts = (usage.uncached_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    assert min(*parts, usage.output_tokens) >= 0
    assert sum(parts) == usage.input_tokens
    assert sum(usage.write_by_ttl.values()) <= usage.cache_write_tokens
    assert all(tokens > 0 for tokens in usage.write_by_ttl.values())


def test_usage_is_a_value() -> None:
    split = {"5m": 10}
    usage = Usage(20, 5, 10, split, 1)
    split["5m"] = 99
    assert usage == pickle.loads(pickle.dumps(usage))
    assert usage.write_by_ttl == {"5m": 10}
    assert len({usage, Usage(20, 5, 10, {"5m": 10}, 1)}) == 1
