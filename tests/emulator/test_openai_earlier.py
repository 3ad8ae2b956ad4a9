"""Models before GPT-5.6: implicit caching by intervals, on machines."""

from collections import Counter

import pytest

from headstay.emulator.openai_models import ModelFacts, Retention, find_model
from headstay.emulator.openai_prompt import Prompt
from headstay.emulator.openai_store import CacheCall, OpenAICache
from headstay.emulator.openai_switches import OpenAISwitches

T0 = 1_790_000_000.0
MINUTE = 60.0


def model(name: str) -> ModelFacts:
    found = find_model(name)
    assert found is not None
    return found


def read(cache: OpenAICache, call: CacheCall, now: float = T0) -> int:
    outcome = cache.look_up(call, now)
    cache.commit(call, outcome, now)
    assert outcome.written() == 0
    return outcome.read


def ask(shared: int, own: str, own_tokens: int, name: str = "gpt-5.4", key: str | None = "k") -> CacheCall:
    tokens = ("head",) * shared + (own,) * own_tokens
    return CacheCall(Prompt(tokens), model(name), "org", {}, key=key)


@pytest.mark.parametrize(
    ("name", "shared", "expected"),
    [
        # 1,700 shared: 13 steps of 128 are 1,664.
        ("gpt-5.4", 1_700, 1_664),
        ("gpt-4.1", 1_024, 1_024),
        # 1,023 shared: 7 steps of 128 are 896, below 1,024.
        ("gpt-4o", 1_023, 0),
        # 4,500 shared: 2 steps of 2,048.
        ("gpt-5.5", 4_500, 4_096),
        ("gpt-5.5-pro", 2_047, 0),
    ],
)
def test_the_longest_shared_prefix_is_cut_to_the_interval(name: str, shared: int, expected: int) -> None:
    cache = OpenAICache(OpenAISwitches())
    assert read(cache, ask(shared, "one", 900, name)) == 0
    assert read(cache, ask(shared, "two", 900, name)) == expected


@pytest.mark.parametrize(
    ("name", "retention", "minutes", "expected"),
    [
        ("gpt-5.4", "in_memory", 10.0, 1_920),
        ("gpt-5.4", "in_memory", 10.1, 0),
        ("gpt-5.4", "24h", 30.0, 1_920),
        ("gpt-5.4", "24h", 30.1, 0),
        # By default 24h where the model has it, in memory on gpt-4o.
        ("gpt-5.4", None, 30.0, 1_920),
        ("gpt-4o", None, 10.1, 0),
    ],
)
def test_entries_end_when_idle(name: str, retention: Retention | None, minutes: float, expected: int) -> None:
    cache = OpenAICache(OpenAISwitches())
    base = ask(2_000, "x", 0, name)
    call = CacheCall(base.prompt, base.model, "org", {}, key="k", retention=retention)
    read(cache, call)
    # 2,000 tokens hold 15 steps of 128: 1,920.
    assert read(cache, call, T0 + minutes * MINUTE) == expected


def test_zero_data_retention_defaults_to_memory() -> None:
    cache = OpenAICache(OpenAISwitches(zero_data_retention=True))
    read(cache, ask(2_000, "x", 0))
    assert read(cache, ask(2_000, "x", 0), T0 + 11 * MINUTE) == 0


def test_an_entry_in_memory_ends_after_an_hour_whatever_its_use() -> None:
    cache = OpenAICache(OpenAISwitches(zero_data_retention=True))
    found = [read(cache, ask(2_000, "x", 0), T0 + minute * MINUTE) for minute in range(0, 73, 9)]
    # Written at 0, used every 9 minutes until 54; at 63 it is older than an hour and is written again.
    assert found == [0, 1_920, 1_920, 1_920, 1_920, 1_920, 1_920, 0, 1_920]


def test_the_key_chooses_the_machine() -> None:
    cache = OpenAICache(OpenAISwitches())
    read(cache, ask(2_000, "x", 0, key="a"))
    reads = [read(cache, ask(2_000, "x", 0, key=f"other {number}")) for number in range(40)]
    # 64 machines: nearly every other key goes elsewhere and starts cold.
    assert Counter(reads)[0] > 20
    assert read(cache, ask(2_000, "x", 0, key="a")) == 1_920


def test_without_machines_the_key_does_not_matter() -> None:
    cache = OpenAICache(OpenAISwitches(shards=False))
    read(cache, ask(2_000, "x", 0, key="a"))
    assert read(cache, ask(2_000, "x", 0, key="b")) == 1_920


def test_the_sixteenth_request_of_a_minute_overflows_to_a_cold_machine() -> None:
    cache = OpenAICache(OpenAISwitches())
    reads = [read(cache, ask(2_000, "x", 0), T0 + second) for second in range(31)]
    # Cold at the first, the 16th and the 31st: 15 fit on each machine.
    assert [index for index, value in enumerate(reads) if value == 0] == [0, 15, 30]
    # A minute later the traffic is back on its first machine.
    assert read(cache, ask(2_000, "x", 0), T0 + 120) == 1_920


def test_the_count_covers_one_minute() -> None:
    cache = OpenAICache(OpenAISwitches())
    reads = [read(cache, ask(2_000, "x", 0), T0) for _ in range(15)]
    assert reads == [0] + [1_920] * 14
    # At 59 s the next one would overflow; at 60 s it stays at home.
    assert read(cache, ask(2_000, "x", 0), T0 + 60) == 1_920


def test_routing_is_the_same_in_every_run_and_follows_the_seed() -> None:
    def cold(seed: int) -> list[int]:
        cache = OpenAICache(OpenAISwitches(machines=4, seed=seed))
        return [read(cache, ask(2_000, "x", 0, key=str(number))) for number in range(12)]

    assert cold(1) == cold(1)
    assert len({tuple(cold(seed)) for seed in range(6)}) > 1


def test_settings_and_organization_are_apart() -> None:
    cache = OpenAICache(OpenAISwitches(shards=False))
    base = ask(2_000, "x", 0)
    read(cache, base)
    assert read(cache, CacheCall(base.prompt, base.model, "other", {}, key="k")) == 0
    assert read(cache, CacheCall(base.prompt, base.model, "org", {"verbosity": "low"}, key="k")) == 0
    assert read(cache, base) == 1_920
