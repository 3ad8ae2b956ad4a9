"""The cache model alone: blocks, markers, lookback, lifetimes, without a server."""

from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator.anthropic_cache import Cache, Step, chain, positions


def walk(*blocks: tuple[str, int, str | None], kinds: list[str] | None = None) -> list[Step]:
    """Steps for blocks of (content, tokens, lifetime or None)."""
    keys = chain(content for content, _, _ in blocks)
    numbers = positions(kinds or ["text"] * len(blocks))
    steps: list[Step] = []
    total = 0
    for key, number, (_, tokens, ttl) in zip(keys, numbers, blocks, strict=True):
        total += tokens
        assert ttl in {None, "5m", "1h"}
        steps.append(Step(key, total, number, ttl))  # type: ignore[arg-type]  # narrowed by the assert above
    return steps


def test_a_chain_value_stands_for_everything_before_it() -> None:
    assert chain(["a", "b"])[0] == chain(["a", "c"])[0]
    assert chain(["a", "b"])[1] != chain(["x", "b"])[1]


def test_positions_join_runs_of_calls_and_of_results_only() -> None:
    kinds = ["text", "text", "tool_use", "tool_use", "tool_result", "tool_result", "text"]
    assert positions(kinds) == [0, 1, 2, 2, 3, 3, 4]


def test_two_markers_are_billed_by_their_own_lifetime() -> None:
    cache = Cache()
    outcome = cache.look(walk(("head", 1000, "1h"), ("body", 300, "5m"), ("tail", 50, None)), minimum=512, now=0)
    # 1000 up to the first marker for an hour, 300 from there to the second, 50 unmarked.
    assert (outcome.written("1h"), outcome.written("5m"), outcome.uncached, outcome.read) == (1000, 300, 50, 0)


def test_only_what_lies_past_the_longest_hit_is_written() -> None:
    cache = Cache()
    cache.commit(cache.look(walk(("head", 1000, "5m")), minimum=512, now=0))
    outcome = cache.look(walk(("head", 1000, "5m"), ("a", 200, "5m"), ("b", 300, "5m")), minimum=512, now=1)
    assert outcome.read == 1000
    assert [write.tokens for write in outcome.writes] == [200, 300]


def test_nothing_is_readable_before_the_answer_begins() -> None:
    cache, steps = Cache(), walk(("head", 1000, "5m"))
    first = cache.look(steps, minimum=512, now=0)
    assert cache.look(steps, minimum=512, now=0).read == 0
    cache.commit(first)
    assert cache.look(steps, minimum=512, now=0).read == 1000


def test_the_twentieth_position_is_found_and_the_twenty_first_is_not() -> None:
    head = ("head", 1000, "5m")
    for between, read in ((18, 1000), (19, 0)):
        cache = Cache()
        cache.commit(cache.look(walk(head), minimum=512, now=0))
        later = [(f"block {i}", 10, None) for i in range(between)]
        # The marked last block is position 1, the ones between are 2.., the head is `between` + 2.
        steps = walk(("head", 1000, None), *later, ("last", 10, "5m"))
        assert cache.look(steps, minimum=512, now=1).read == read


def test_a_marker_below_the_minimum_neither_writes_nor_reads() -> None:
    cache, steps = Cache(), walk(("short", 511, "5m"))
    outcome = cache.look(steps, minimum=512, now=0)
    assert outcome.writes == ()
    cache.commit(outcome)
    assert cache.look(steps, minimum=512, now=0).read == 0
    assert cache.look(walk(("short", 512, "5m")), minimum=512, now=0).written() == 512


def test_an_entry_lives_from_the_start_of_its_request_and_reads_renew_it() -> None:
    cache, steps = Cache(), walk(("head", 1000, "5m"))
    cache.commit(cache.look(steps, minimum=512, now=0))
    assert cache.look(steps, minimum=512, now=300).read == 1000  # just alive, renewed until 600
    assert cache.look(steps, minimum=512, now=600).read == 1000  # renewed until 900
    assert cache.look(steps, minimum=512, now=901).read == 0


def test_reading_a_longer_prefix_renews_the_shorter_one() -> None:
    cache = Cache()
    long = walk(("head", 1000, "5m"), ("body", 100, "5m"))
    cache.commit(cache.look(long, minimum=512, now=0))
    assert cache.look(long, minimum=512, now=200).read == 1100
    assert cache.look(walk(("head", 1000, "5m"), ("other", 100, "5m")), minimum=512, now=450).read == 1000


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.sampled_from([None, "5m", "1h"])),
            min_size=1,
            max_size=30,
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 500),
)
def test_every_token_is_read_written_or_paid_in_full(
    requests: list[list[tuple[str, int, str | None]]], gap: int
) -> None:
    cache = Cache()
    for number, blocks in enumerate(requests):
        named = [(f"{content} {tokens}", tokens, ttl) for content, tokens, ttl in blocks]
        outcome = cache.look(walk(*named), minimum=100, now=number * gap)
        assert outcome.total == sum(tokens for _, tokens, _ in blocks)
        assert outcome.uncached >= 0
        assert all(write.tokens >= 0 for write in outcome.writes)
        cache.commit(outcome)
        last = max((i for i, (_, _, ttl) in enumerate(blocks) if ttl), default=None)
        marked = 0 if last is None else sum(tokens for _, tokens, _ in blocks[: last + 1])
        # Sent again at once, everything up to the last marker is read.
        again = cache.look(walk(*named), minimum=100, now=number * gap)
        assert again.read == (marked if marked >= 100 else 0)
