"""Expected cache reads against the reads the provider reported, with a cause when they fall short."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headstay.causes import Break, Cause, Owner
from headstay.ledger.usage import Usage

Status = Literal["ok", "short", "cold", "unverified"]

TOLERATED_TOKENS = 2_000
TOLERATED_SHARE = 0.05

_Found = tuple[Cause, Owner]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one reply.

    Args:
        status: `ok` (read as expected), `short` (fewer, beyond tolerance), `cold` (nothing was expected and
            nothing read) or `unverified` (no expectation or no usage; never counts as fine).
        expected: Tokens a correct cache would have read, or None.
        reported: Tokens the provider says it read, or None.
        missing: `expected - reported`, at least 0.
        cause: A cause code; always set when short, when known if cold.
        owner: Who owns the cause.
        reason: Why a call could not be verified.
    """

    status: Status
    expected: int | None = None
    reported: int | None = None
    missing: int = 0
    cause: Cause | None = None
    owner: Owner | None = None
    reason: str | None = None


def judge(
    expected_reads: int | None,
    usage: Usage | None,
    *,
    ttl_seconds: float | None = None,
    gap_seconds: float | None = None,
    minimum_tokens: int = 0,
    tolerated_tokens: int = TOLERATED_TOKENS,
    breaks: Sequence[Break] = (),
    writer_in_flight: bool = False,
    routed: bool = False,
    unverified: str | None = None,
) -> Verdict:
    """Judge the reads of one reply.

    Reads are short when none came though some were expected, or when more than the tolerated tokens and more than
    5 % of the expected ones are missing (token estimates and block edges stay below that).

    Args:
        expected_reads: Tokens of the longest prefix an earlier call should have left readable, before expiry
            and minimum are considered; 0 for the first call of a lane; None when unknown.
        usage: What the provider reported, or None.
        ttl_seconds: Lifetime bought for that prefix.
        gap_seconds: Time from the last use of that prefix to the start of this call.
        minimum_tokens: The model's smallest cacheable prefix.
        tolerated_tokens: See above.
        breaks: Known changes of the prefix, earliest position first, the provider's own word among them.
        writer_in_flight: The call that writes this prefix had not begun to answer when this one started.
        routed: Whether something shows that another machine served this call than the one before.
        unverified: Why the payload could not be checked, if so.

    Returns:
        A verdict. Causes are tried in this order: known break, `ttl_expired`, `below_minimum`,
        `cold_fan_out`, `provider_routing`, `unknown`. A prefix that still stood and was not served is the provider's.
    """
    reported = None if usage is None else usage.cache_read_tokens
    reason = unverified or _missing_input(expected_reads, usage)
    if reason or expected_reads is None or usage is None:
        return Verdict("unverified", expected_reads, reported, reason=reason)
    if (expected_reads or reported) and not _is_short(expected_reads, usage.cache_read_tokens, tolerated_tokens):
        return Verdict("ok", expected_reads, reported, max(0, expected_reads - usage.cache_read_tokens))
    cause, owner = (
        _known_break(breaks)
        or _expired(ttl_seconds, gap_seconds)
        or _below_minimum(expected_reads or usage.input_tokens, minimum_tokens)
        or _fan_out(writer_in_flight)
        or ((_elsewhere(routed) or (Cause.UNKNOWN, "provider")) if expected_reads else (None, None))
    )
    status: Status = "short" if expected_reads else "cold"
    return Verdict(status, expected_reads, reported, expected_reads - usage.cache_read_tokens, cause, owner)


def _missing_input(expected: int | None, usage: Usage | None) -> str | None:
    if usage is None:
        return "the provider reported no usage"
    return "no expectation for this call" if expected is None else None


def _is_short(expected: int, reported: int, tolerated: int) -> bool:
    if expected > 0 and reported == 0:
        return True
    return expected - reported > max(tolerated, expected * TOLERATED_SHARE)


def _known_break(breaks: Sequence[Break]) -> _Found | None:
    return (breaks[0].cause, breaks[0].owner) if breaks else None


def _expired(ttl_seconds: float | None, gap_seconds: float | None) -> _Found | None:
    if ttl_seconds is None or gap_seconds is None or gap_seconds <= ttl_seconds:
        return None
    return Cause.TTL_EXPIRED, "expiry"


def _below_minimum(prefix_tokens: int, minimum_tokens: int) -> _Found | None:
    return (Cause.BELOW_MINIMUM, "provider") if prefix_tokens < minimum_tokens else None


def _fan_out(writer_in_flight: bool) -> _Found | None:
    return (Cause.COLD_FAN_OUT, "application") if writer_in_flight else None


def _elsewhere(routed: bool) -> _Found | None:
    return (Cause.PROVIDER_ROUTING, "provider") if routed else None
