"""What a completed call leaves behind: where its conversation is, what it taught of the lane, and what it added."""

from dataclasses import replace

from headstay.added import form_name
from headstay.call import Call
from headstay.canonical import size_of
from headstay.headstore import HeadRecord, HeadStore
from headstay.layout import Lane
from headstay.ledger.usage import Usage
from headstay.toolset import fold, merge_tools

_TELLING_TOKENS = 256  # below this the bytes per token of a request say little
_FEWEST_BYTES, _MOST_BYTES = 1.0, 8.0  # per token; beyond, something else was counted than text


def remember(store: HeadStore, call: Call, usage: Usage | None) -> None:
    """Keep where the conversation is, and what the usage says of the next call's expectation.

    Args:
        store: Where it is kept.
        call: A call that the provider took.
        usage: What it reported, or None.
    """
    lane, plan, rules, record, form = call.lane, call.plan, call.rules, call.record, call.form
    if lane is None or plan is None or rules is None or record is None or form is None:
        return
    cached = head_tokens = None
    if usage is not None and usage.input_tokens >= _TELLING_TOKENS:
        note = size_of(plan.note.operator) + size_of(plan.note.user)
        ratio = (plan.prefix_bytes + note) / usage.input_tokens
        if plan.measurable and _FEWEST_BYTES <= ratio <= _MOST_BYTES:
            _calibrate(store, lane, ratio)
        if rules.max_markers:
            cached = usage.cache_read_tokens + usage.cache_write_tokens
        else:
            cached = rules.floored(usage.input_tokens - note / ratio)
        if call.opening and not call.breaks:  # it can have read nothing but the head
            head_tokens = usage.cache_read_tokens or None
    known = store.lane(lane.key)
    learnt = merge_tools(known.tools, plan.tool_state)
    if call.late is not None:
        learnt = fold(learnt, call.late.opening, plan.head_bytes)
    for added in call.fresh:
        store.save_addition(lane.scope, form_name(added.form), added.form, call.started)
    if learnt != known.tools:
        store.save_lane(lane.key, replace(known, tools=learnt))
    store.save_head(lane.key, HeadRecord(plan.head_hash, form, head_tokens, call.started))
    firm = record.firm if plan.loop >= 0 else cached  # what stands behind a note is lost with it
    reply = call.reply.kept(call.wire, noted=bool(plan.note.operator or plan.note.user))
    store.save_call(replace(record, cached=cached, firm=firm, reply=reply))


def _calibrate(store: HeadStore, lane: Lane, ratio: float) -> None:
    known = store.lane(lane.key)
    if known.bytes_per_token is None or abs(known.bytes_per_token / ratio - 1) > 0.1:
        store.save_ratio(lane.key, ratio)
