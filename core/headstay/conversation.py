"""Which conversation a request continues, and what of it did not stay.

A conversation is recognised by its body: the hash of everything up to the end of an earlier call's input. A thread id
helps where there is one, but none is needed. Where two conversations could be meant, none is chosen: a wrong
accusation is worse than a missed one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from headstay.canonical import digest, wire_text
from headstay.causes import Break, Cause
from headstay.divergence import HeadForm, compare_heads, compare_histories, nearest
from headstay.fingerprint import links, parameter
from headstay.headstore import CallRecord, HeadStore
from headstay.layout import Lane, Plan, seams
from headstay.prompt import Block, Prompt
from headstay.providers.rules import CacheRules

_SEAMS = 12
_PEERS = 6  # heads that widen a reported span; each costs a comparison of two texts


@dataclass(frozen=True, slots=True)
class Match:
    """What the head store knows about a request.

    Attributes:
        record: The call it continues, or None.
        exact: Whether lane, head and semi-static block are those of that call.
        link: Hash of the body up to the end of this call's input.
    """

    record: CallRecord | None
    exact: bool
    link: bytes


def held(prompt: Prompt, plan: Plan, rules: CacheRules) -> dict[str, str]:
    """Hash what should stay within a conversation: per-conversation values, and what re-keys the messages."""
    values = {
        f"value:{value.name}": digest(value.text).hex()[:16] for value in plan.values if value.every == "conversation"
    }
    for name in rules.message_parameters:
        found = parameter(prompt.parameters, name)
        values[f"parameter:{name}"] = "" if found is None else digest(wire_text(found)).hex()[:16]
    if rules.images_rekey_messages:
        values["images"] = "yes" if prompt.has_images else "no"
    return values


def match(store: HeadStore, lane: Lane, thread: str, plan: Plan, blocks: Sequence[Block]) -> Match:
    """Find the call that a request continues.

    Args:
        store: Where earlier calls are kept.
        lane: The request's lane.
        thread: The host's thread id, hashed, or empty.
        plan: The request's plan.
        blocks: Its body.

    Returns:
        The match; without one, its record is None.
    """
    ends = [index + 1 for index, block in enumerate(blocks) if block.role != "assistant" and _last_said(blocks, index)]
    ends = ends[-_SEAMS:] or [len(blocks)]
    hashes = links(plan.trail, ends)
    link = hashes[-1]
    semi = digest(plan.semi_static)
    known: dict[bytes, list[CallRecord]] = {}
    for record in store.calls(lane.scope, thread, hashes):
        known.setdefault(record.link, []).append(record)
    for found in reversed(hashes):
        for record in known.get(found, ()):
            if (record.lane, record.head, record.semi) == (lane.key, plan.head_hash, semi):
                return Match(record, exact=True, link=link)
    answered = seams(blocks)[1] >= 0
    for end, found in reversed(list(zip(ends, hashes, strict=True))):
        records = known.get(found, [])
        # Without a thread id an opening that others may share is no evidence; an answer inside the match is.
        told = bool(thread) or any(block.role == "assistant" for block in blocks[:end])
        if answered and told and records and (thread or len({record.conversation for record in records}) == 1):
            return Match(records[0], exact=False, link=link)
    if thread and answered:
        latest = store.latest(lane.scope, thread)
        if latest is not None and _related(latest.trail, plan.trail):
            return Match(latest, exact=False, link=link)
    return Match(None, exact=False, link=link)


def _last_said(blocks: Sequence[Block], index: int) -> bool:
    return index + 1 == len(blocks) or blocks[index + 1].role == "assistant"


def _related(before: bytes, after: bytes) -> bool:
    own = {before[start : start + 16] for start in range(0, len(before), 16)}
    return any(after[start : start + 16] in own for start in range(0, len(after), 16))


def breaks(
    store: HeadStore,
    lane: Lane,
    found: Match,
    plan: Plan,
    form: HeadForm,
    values: Mapping[str, str],
) -> tuple[Break, ...]:
    """Name everything that keeps a request from reading what an earlier one left.

    Args:
        store: Where earlier heads are kept.
        lane: The request's lane.
        found: The call it continues.
        plan: Its plan.
        form: Its head.
        values: What should stay, hashed.

    Returns:
        The breaks in order of position on the wire.
    """
    record = found.record
    if record is None:
        return (*_new_head(store, lane, plan, form), *plan.breaks)
    changed: list[Break] = []
    if record.lane != lane.key:
        changed.append(_other_lane(record, lane))
    if record.head != plan.head_hash:
        before = store.head(record.lane, record.head)
        others = [other.form for other in store.heads(lane.key)[:_PEERS]]
        if before is None:
            changed += _new_head(store, lane, plan, form)
        else:
            changed += compare_heads(before.form, form, same_conversation=True, others=others).breaks
    if record.lane == lane.key:
        changed += _not_held(cast("dict[str, str]", json.loads(record.held)), values)
    if record.trail:
        history = compare_histories(record.trail, plan.trail)
        if history is not None:
            changed.append(history)
    return (*changed, *plan.breaks)


def _new_head(store: HeadStore, lane: Lane, plan: Plan, form: HeadForm) -> tuple[Break, ...]:
    """Hold a head that the lane has not seen against the nearest one it has."""
    known = [record.form for record in store.heads(lane.key) if record.head != plan.head_hash]
    if not known or store.head(lane.key, plan.head_hash) is not None:
        return ()
    closest = nearest(known, form)
    if closest is None or dict(closest.tools) != dict(form.tools):
        return ()  # other tools: another agent of the same name, not a changed one
    difference = compare_heads(closest, form, same_conversation=False, others=known[:_PEERS])
    return () if difference.variant else difference.breaks


def _other_lane(record: CallRecord, lane: Lane) -> Break:
    if record.model != lane.model:
        return Break(
            Cause.MODEL_CHANGED,
            "application",
            "model",
            "stay with one model for a conversation",
            0,
            record.model,
            lane.model,
        )
    return Break(
        Cause.PARAMETERS_CHANGED, "application", "parameters", "keep the parameters that re-key the cache as they were"
    )


def _not_held(before: Mapping[str, str], after: Mapping[str, str]) -> list[Break]:
    found: list[Break] = []
    for name, value in after.items():
        if before.get(name, value) == value:
            continue
        what, _, rest = name.partition(":")
        if what == "value":
            remedy = f'it changed within a conversation; declare it per call: Slot("{{{rest}}}", every="call")'
            found.append(Break(Cause.VALUE_IN_HEAD, "application", f"semi-static[{rest}]", remedy))
        elif what == "images":
            remedy = "none: the first image of a conversation drops the cached messages; tools and system stay"
            found.append(Break(Cause.PARAMETERS_CHANGED, "provider", "messages", remedy))
        else:
            cause = Cause.TOOL_CHOICE_CHANGED if rest == "tool_choice" else Cause.PARAMETERS_CHANGED
            found.append(Break(cause, "application", rest, f"keep {rest} the same for a conversation"))
    return found
