"""What a call should read, and the row it leaves: pure functions of what is known before and after it."""

import time
from collections.abc import Mapping

from headstay.call import Call
from headstay.causes import Break
from headstay.conversation import Match, same_note
from headstay.headstore import HeadRecord
from headstay.layout import BYTES_PER_TOKEN, Plan
from headstay.ledger.row import Row
from headstay.ledger.usage import Usage
from headstay.ledger.verdict import Verdict
from headstay.providers.rules import CacheRules


def floored(tokens: float, rules: CacheRules) -> int:
    """Round an expectation down to what the provider reports: whole steps, and nothing below the minimum."""
    whole = int(tokens) // rules.step * rules.step
    whole -= whole % 128 if rules.step > 1 else 0
    return whole if whole >= rules.min_tokens else 0


def expected_reads(
    found: Match,
    broken: tuple[Break, ...],
    head: HeadRecord | None,
    plan: Plan,
    rules: CacheRules,
    bytes_per_token: float | None,
    now: float,
    stays: Mapping[str, str],
) -> tuple[int | None, float | None]:
    """Say how many tokens an earlier call should have left readable, and how long ago that was."""
    record = found.record
    only_note = all(one.owner == "policy" and one.path.startswith("messages[") for one in broken)
    if record is not None and found.exact and only_note and (rules.known or rules.max_markers):
        same = "note" not in stays or same_note(record, stays)
        return record.cached if same else record.firm, now - record.at
    if not rules.known:
        return None, None  # nothing was read of this model's cache, so nothing is promised
    if head is None:
        return 0, None
    ratio = bytes_per_token or BYTES_PER_TOKEN
    tokens = head.tokens if head.tokens is not None else plan.head_bytes / ratio
    if tokens < rules.min_tokens:
        return 0, None
    return floored(tokens, rules) if not rules.max_markers else int(tokens), now - head.used


def row_of(call: Call, usage: Usage | None, verdict: Verdict, agent: str, error: BaseException | None) -> Row:
    """Make the ledger's row of a call.

    Args:
        call: As prepared and sent.
        usage: What the provider reported, or None.
        verdict: The judgement of its reads.
        agent: Name of the agent or chain.
        error: What ended the call, or None.
    """
    used = usage or Usage()
    lane, record = call.lane, call.record
    return Row(
        ts=call.started,
        lane=lane.key if lane else "",
        head=call.plan.head_hash.hex() if call.plan else "",
        epoch=record.epoch if record else 0,
        conversation=record.conversation if record else "",
        tenant=call.tenant,
        name=agent or None,
        provider=lane.provider if lane else "",
        wire=call.wire,
        model=call.model,
        expected_read=call.expected,
        input_tokens=usage.input_tokens if usage else None,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
        write_by_ttl=used.write_by_ttl,
        output_tokens=used.output_tokens,
        status=verdict.status,
        cause=verdict.cause,
        owner=verdict.owner,
        breaks=call.breaks,
        time_to_first_token_s=call.first_token,
        duration_s=time.monotonic() - call.clock,
        error=type(error).__name__ if error else None,
        unverified=call.unverified or verdict.reason,
        note="; ".join(call.notices) or None,
    )
