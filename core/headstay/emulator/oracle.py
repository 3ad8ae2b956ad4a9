"""The oracle: what a perfect prompt layout would read and write, call by call.

Its input is a workload's own labels, never a request that some layout made. It orders each request ideally:

    head (stable text) | semi-static (a conversation's values) | persistent messages | note (a call's values)

and lets a cache that follows the provider's rules read the longest prefix of it that an earlier call left there. A
note is dropped after its call, so it is input, but neither read nor written. Counts are estimates: texts by
`headstay.emulator.tokens`, without overhead for structure unless the caller names one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from headstay.emulator.oracle_cache import CommonPrefixCache, MarkedCache, Use
from headstay.emulator.oracle_layout import ideal_request
from headstay.emulator.oracle_rules import rules_for
from headstay.emulator.reply import Wire
from headstay.emulator.tokens import count
from headstay.emulator.workload_turns import Workload

_PER_MILLION = 1e-6


@dataclass(frozen=True)
class Prices:
    """Prices in USD per million tokens.

    Attributes:
        input: Input that is neither read from the cache nor written to it.
        output: Output.
        read: Cache reads.
        write: Cache writes of the lifetime that is bought; unused where writes are not charged.
    """

    input: float
    output: float
    read: float
    write: float


@dataclass(frozen=True)
class OracleCall:
    """What one call costs under a perfect layout; all counts in estimated tokens.

    Attributes:
        conversation: The conversation's identifier.
        turn: The turn, from 1.
        input_tokens: All input: `readable` + `writes` + `uncached`.
        readable: What can be read from the cache; E_n of the definition.
        writes: What is written and charged as a write.
        uncached: Input at the full price.
        output_tokens: Output.
        cost: USD, or None without prices.
    """

    conversation: str
    turn: int
    input_tokens: int
    readable: int
    writes: int
    uncached: int
    output_tokens: int
    cost: float | None


@dataclass(frozen=True)
class OracleResult:
    """A whole run.

    Attributes:
        model: The model.
        wire: The wire format.
        ttl_seconds: How long a prefix lives after its last use.
        implicit_developer_reuse: The setting the run is reported under.
        calls: One for each turn of the workload, in its order.
    """

    model: str
    wire: Wire
    ttl_seconds: float
    implicit_developer_reuse: bool
    calls: tuple[OracleCall, ...]

    @property
    def input_tokens(self) -> int:
        """All input tokens."""
        return sum(call.input_tokens for call in self.calls)

    @property
    def readable(self) -> int:
        """All tokens that can be read from the cache."""
        return sum(call.readable for call in self.calls)

    @property
    def writes(self) -> int:
        """All tokens charged as writes."""
        return sum(call.writes for call in self.calls)

    @property
    def uncached(self) -> int:
        """All input tokens at the full price."""
        return sum(call.uncached for call in self.calls)

    @property
    def output_tokens(self) -> int:
        """All output tokens."""
        return sum(call.output_tokens for call in self.calls)

    @property
    def cost(self) -> float | None:
        """USD of the run, or None without prices."""
        costs = [call.cost for call in self.calls if call.cost is not None]
        return sum(costs) if len(costs) == len(self.calls) else None


def oracle_run(
    workload: Workload,
    *,
    model: str,
    wire: Wire,
    ttl: str | None = None,
    prices: Prices | None = None,
    implicit_developer_reuse: bool = False,
    kept_notes: bool = False,
    first_event_s: float = 0.0,
    message_overhead: int = 0,
) -> OracleResult:
    """Play a workload against an ideal layout and the provider's cache.

    A tenant is a workspace: nothing crosses it.

    Args:
        workload: The labelled calls.
        model: The model's id.
        wire: The wire format it is asked over.
        ttl: A lifetime of the model ("5m", "1h"; "30m", "12h"; "in_memory", "24h"); None for its default.
        prices: To have costs as well.
        implicit_developer_reuse: Whether an unmarked leading developer message can be read on GPT-5.6 and later.
            A perfect layout marks its head, so its figures are the same under both settings; the result names
            the setting so that it can stand beside measured runs under either.
        kept_notes: Whether notes stay where they were sent (models that bind thinking to the exact history):
            then they are written, read and sent again like messages.
        first_event_s: Seconds from the start of a call to its first response event; only after that event can
            others read what it wrote.
        message_overhead: Structural tokens in front of each message (head and semi-static count as messages), for
            a comparison with a server that counts some; 0 counts texts and images only.

    Raises:
        ValueError: No rules for the model on this wire, or it lacks the lifetime.
    """
    rules = rules_for(model, wire)
    seconds = rules.ttl_seconds(ttl)
    kind = MarkedCache if rules.marked else CommonPrefixCache
    cache = kind(rules, seconds, first_event_s)
    calls: list[OracleCall] = []
    for turn in workload.turns:
        request = ideal_request(workload, turn, kept_notes=kept_notes, message_overhead=message_overhead)
        whose, said = (turn.conversation, turn.turn), count(turn.reply)
        calls.append(accounted(whose, request.input_tokens, cache.use(request), said, prices))
    return OracleResult(model, wire, seconds, implicit_developer_reuse, tuple(calls))


def read_share(reads: Sequence[int], oracle: OracleResult) -> float:
    """Return the share of the readable tokens that were read: sum(min(read, E)) / sum(E), 0 to 1.

    Args:
        reads: Cache reads that were reported, one for each call of the run, in its order.
        oracle: The run to compare with. If nothing was readable in it, the share is 1.

    Raises:
        ValueError: The numbers of calls differ, or a read is negative.
    """
    if len(reads) != len(oracle.calls):
        raise ValueError(f"{len(reads)} reads for {len(oracle.calls)} calls; give one for each, in order")
    if any(read < 0 for read in reads):
        raise ValueError("a read cannot be negative")
    if not oracle.readable:
        return 1.0
    return sum(min(read, call.readable) for read, call in zip(reads, oracle.calls, strict=True)) / oracle.readable


def accounted(whose: tuple[str, int], input_tokens: int, use: Use, output: int, prices: Prices | None) -> OracleCall:
    """Account for one call of an ideal layout.

    Args:
        whose: Its conversation, and which turn of it.
        input_tokens: Tokens of its prompt.
        use: What it reads and writes.
        output: Tokens of its reply.
        prices: To have its cost as well.
    """
    uncached = input_tokens - use.readable - use.writes
    cost = None
    if prices is not None:
        paid = uncached * prices.input + use.readable * prices.read + use.writes * prices.write
        cost = (paid + output * prices.output) * _PER_MILLION
    return OracleCall(
        conversation=whose[0],
        turn=whose[1],
        input_tokens=input_tokens,
        readable=use.readable,
        writes=use.writes,
        uncached=uncached,
        output_tokens=output,
        cost=cost,
    )
