"""What a call should read, how its reads are judged, and the row it leaves: functions of what is known of it."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from headstay.call import Call
from headstay.causes import Break, Cause
from headstay.conversation import Match, note_stays
from headstay.diagnosis import combined, routed_elsewhere, told
from headstay.headstore import HeadRecord
from headstay.layout import BYTES_PER_TOKEN, Plan
from headstay.ledger.row import Row
from headstay.ledger.usage import Usage
from headstay.ledger.verdict import TOLERATED_TOKENS, Verdict, judge
from headstay.providers.rules import CacheRules
from headstay.remedies import REMEDIES

_SELF_HOSTED = (
    "nothing that headstay sees has changed: the server was started again, gave the room to other requests, or is "
    "another one of a fleet; `headstay local status` tells how full its cache is"
)


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
        whole = note_stays(record, stays, loop=plan.loop >= 0)
        return record.cached if whole else record.firm, now - record.at
    if not rules.known:
        return None, None  # nothing was read of this model's cache, so nothing is promised
    if head is None:
        return 0, None
    ratio = bytes_per_token or BYTES_PER_TOKEN
    tokens = head.tokens if head.tokens is not None else plan.head_bytes / ratio
    if tokens < rules.min_tokens:
        return 0, None
    return rules.floored(tokens) if not rules.max_markers else int(tokens), now - head.used


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement of one call with what it rests on.

    Attributes:
        verdict: The judgement.
        said: The change that the provider names and that was not found here, or None.
        elsewhere: What shows that another machine served it than the call before, or None.
    """

    verdict: Verdict
    said: Break | None = None
    elsewhere: str | None = None


def judged(call: Call, usage: Usage | None, *, ttl: str | None, bytes_per_token: float | None) -> Judged:
    """Judge the reads of a call.

    Args:
        call: As prepared and sent, with what its reply said of itself.
        usage: What the provider reported, or None.
        ttl: The name of the time to live that was asked for, or None.
        bytes_per_token: Of the lane, or None.
    """
    rules = call.rules
    found = None
    if call.asked and call.earlier.id and call.reply.word and usage is not None:
        head = call.plan.head_bytes / (bytes_per_token or BYTES_PER_TOKEN) if call.plan else 0.0
        found = told(call.reply, call.earlier, input_tokens=usage.input_tokens, head_tokens=head)
    breaks = combined(call.breaks, found)
    elsewhere = _elsewhere(call)
    verdict = judge(
        call.expected,
        usage,
        ttl_seconds=rules.ttl_seconds(ttl) if rules else None,
        gap_seconds=call.gap,
        minimum_tokens=rules.min_tokens if rules else 0,
        tolerated_tokens=rules.tolerated_tokens if rules else TOLERATED_TOKENS,
        breaks=breaks,
        writer_in_flight=call.writer_in_flight,
        routed=elsewhere is not None,
        unverified=call.unverified,
    )
    return Judged(verdict, breaks[0] if found and breaks is not call.breaks else None, elsewhere)


def _elsewhere(call: Call) -> str | None:
    """Say what shows that another machine served a call; OpenAI's replies tell, and so does too much for one."""
    if not call.wire.startswith("openai"):
        return None
    most = call.rules.requests_per_minute if call.rules else 0
    if most and call.in_a_minute > most:
        return f"{call.in_a_minute} calls in a minute with one prompt_cache_key, and one machine takes about {most}"
    return routed_elsewhere(call.reply, call.earlier)


def advice(call: Call, judgement: Judged, *, ttl: str | None, asks: bool) -> str | None:
    """Say in one line what to do about a short read whose cause was not known before the call.

    Args:
        call: The call.
        judgement: How it was judged.
        ttl: The name of the time to live that was asked for, or None.
        asks: Whether the provider is asked for its diagnosis.

    Returns:
        The line, or None where the reads were not short, or the cause was said before the call.
    """
    verdict, rules = judgement.verdict, call.rules
    if verdict.status != "short" or rules is None or verdict.cause in {one.cause for one in call.breaks}:
        return None
    if judgement.said is not None and verdict.cause == judgement.said.cause:
        remedy = judgement.said.remedy
    elif verdict.cause is Cause.TTL_EXPIRED:
        lives = rules.ttl_seconds(ttl)
        longer = next((name for name, seconds in rules.ttls.items() if seconds > lives), None)
        remedy = f"it was last used {call.gap or 0:,.0f} s ago and is kept for {lives:,} s; " + (
            f'ttl="{longer}" keeps it longer' if longer else "none is on offer that is kept longer: ask again sooner"
        )
    elif verdict.cause is Cause.PROVIDER_ROUTING:
        crowded = call.in_a_minute > rules.requests_per_minute > 0
        what = (
            "give groups of users keys of their own, or send less at a time" if crowded else "no request decides that"
        )
        remedy = f"{judgement.elsewhere}; {what}"
    elif verdict.cause is Cause.UNKNOWN and rules.provider == "vllm":
        remedy = _SELF_HOSTED
    elif verdict.cause is Cause.UNKNOWN:
        unasked = not asks and call.wire in rules.diagnoses
        remedy = "nothing that headstay sees has changed, so the provider dropped it early or looked elsewhere" + (
            '; verify="provider" asks it for its diagnosis' if unasked else ""
        )
    else:
        remedy = REMEDIES[verdict.cause or Cause.UNKNOWN]
    read = f"{verdict.reported or 0:,} of {verdict.expected or 0:,} expected tokens came from the cache"
    return f"{verdict.cause} ({verdict.owner}): {read}: {remedy}"


def bought(call: Call, usage: Usage | None) -> Usage | None:
    """Count writes of unknown lifetime as bought for the one that the request's markers name.

    Chat Completions does not split its writes by lifetime, and Anthropic's streams do not either.
    """
    if usage is None or call.plan is None or call.rules is None:
        return usage
    lives = {marker.ttl or call.rules.default_ttl for marker in call.plan.markers}
    return usage.attribute_writes(lives.pop()) if len(lives) == 1 else usage


def row_of(call: Call, usage: Usage | None, judgement: Judged, agent: str, error: BaseException | None) -> Row:
    """Make the ledger's row of a call.

    Args:
        call: As prepared and sent.
        usage: What the provider reported, or None.
        judgement: The judgement of its reads.
        agent: Name of the agent or chain.
        error: What ended the call, or None.
    """
    verdict = judgement.verdict
    notes = [*call.notices]
    if verdict.cause is Cause.PROVIDER_ROUTING and judgement.elsewhere:
        notes.append(judgement.elsewhere)
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
        diagnosis=call.reply.word,
        diagnosis_tokens=call.reply.missed,
        time_to_first_token_s=call.first_token,
        duration_s=time.monotonic() - call.clock,
        error=type(error).__name__ if error else None,
        unverified=call.unverified or verdict.reason,
        note="; ".join(notes) or None,
    )
