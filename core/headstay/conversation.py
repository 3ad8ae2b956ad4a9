"""Which conversation a request continues, and what of it did not stay.

A conversation is recognised by its body: the hash of everything up to the end of an earlier call's input. A thread id
helps where there is one, but none is needed. Where two conversations could be meant, none is chosen: a wrong
accusation is worse than a missed one.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from headstay.added import entries, joined, read
from headstay.canonical import digest, wire_text
from headstay.causes import Break, Cause, value_cause
from headstay.divergence import HeadForm, compare_heads, compare_histories, nearest
from headstay.fingerprint import links, parameter, shared_blocks, split_trail, trail
from headstay.headstore import CallRecord, HeadStore
from headstay.kept import Kept
from headstay.layout import Lane, Plan, seams
from headstay.prompt import Block, Prompt
from headstay.providers.rules import CacheRules
from headstay.values import EXAMPLES_TITLE

SHARE_HEAD_STORE = 'share one head store between processes: a file, or head_store="runtime" in an agent'
_SEAMS = 12
_OF_NOTES = ("notes", "notes_added", "notes_lost")
_NOT_CONTENT = (*_OF_NOTES, "note")
_NUMBERED = re.compile(r"_\d+$")  # the second value of one slot is called name_2
_KEEP_EXAMPLES = (
    "the examples changed: keep few_shot= and few_shot_version= as they are for running conversations; a change "
    "costs each of them one break"
)
_OF_PARAMETERS = {"tool_choice": Cause.TOOL_CHOICE_CHANGED, "thinking": Cause.THINKING_CHANGED}
_PEERS = 6  # heads that widen a reported span; each costs a comparison of two texts


@dataclass(frozen=True, slots=True)
class Match:
    """What the head store knows about a request.

    Attributes:
        record: The call it continues, or None.
        exact: Whether lane, head and semi-static block are those of that call.
        link: Hash of the body up to the end of this call's input.
        age: How many replies came since; more than one means that another agent spoke in between.
    """

    record: CallRecord | None
    exact: bool
    link: bytes
    age: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """The calls that a request may continue, by its body alone.

    Attributes:
        thread: The host's thread id, hashed, or empty.
        trail: Joined digests of the body's blocks.
        ends: Where earlier calls can have ended: numbers of blocks, in rising order, the last of them this call's.
        links: Hashes of the body up to there.
        known: Link to the calls that ended there, newest first.
    """

    thread: str
    trail: bytes
    ends: tuple[int, ...]
    links: tuple[bytes, ...]
    known: Mapping[bytes, Sequence[CallRecord]]


@dataclass(frozen=True, slots=True)
class NotesHeld:
    """The kept notes of a request, in numbers.

    Attributes:
        found: Notes of earlier calls that were put back.
        added: Notes that this call adds: 0 or 1.
        lost: Receipts that did not check, or whose note has no text any more.
        bound: Whether thinking in the history is bound to them.
    """

    found: int = 0
    added: int = 0
    lost: int = 0
    bound: bool = False

    @classmethod
    def of(cls, back: Kept | None) -> "NotesHeld":
        """Count the notes of a request; None is one whose notes are not kept."""
        if back is None:
            return cls()
        return cls(back.found + back.idle, int(back.receipt is not None), back.lost, back.bound)

    @classmethod
    def read(cls, values: Mapping[str, str]) -> "NotesHeld":
        """Read what `as_held` wrote."""
        found, added, lost = (int(values.get(name, "0")) for name in _OF_NOTES)
        return cls(found, added, lost)

    def as_held(self) -> dict[str, str]:
        """Return the form that is kept with a call."""
        return {"notes": str(self.found), "notes_added": str(self.added), "notes_lost": str(self.lost)}

    def missed(self, before: "NotesHeld", *, again: bool) -> bool:
        """Whether a note is gone that the call before sent; said once for each.

        Args:
            before: The notes of the call before.
            again: Whether this is the same request once more, so that the note of that call is not expected.
        """
        fewer = self.found < before.found + (0 if again else before.added)
        return self.bound and (self.lost > before.lost or fewer)


def is_unbound(record: CallRecord) -> bool:
    """Whether thinking blocks of a conversation may come from before a break."""
    return "unbound" in json.loads(record.held)


def held(prompt: Prompt, plan: Plan, rules: CacheRules) -> dict[str, str]:
    """Hash what should stay within a conversation: per-conversation values, and what re-keys the messages."""
    values = {
        f"value:{value.name}": digest(value.text).hex()[:16] for value in plan.values if value.every == "conversation"
    }
    for name in rules.message_parameters:
        found = parameter(prompt.parameters, name)
        values[f"parameter:{name}"] = "" if found is None else digest(wire_text(found)).hex()[:16]
    if plan.note.user:
        values["note"] = f"{plan.note.message}:{digest(plan.note.user).hex()[:16]}"
    if rules.images_rekey_messages:
        values["images"] = "yes" if prompt.has_images else "no"
    return values


def seek(store: HeadStore, lane: Lane, thread: str, blocks: Sequence[Block]) -> Seen:
    """Look up the calls that a request may continue.

    Args:
        store: Where earlier calls are kept.
        lane: The request's lane.
        thread: The host's thread id, hashed, or empty.
        blocks: Its body, as the application made it.
    """
    ends = [index + 1 for index, block in enumerate(blocks) if block.role != "assistant" and _last_said(blocks, index)]
    ends = ends[-_SEAMS:] or [len(blocks)]
    said = trail(blocks)
    hashes = links(said, ends)
    known: dict[bytes, list[CallRecord]] = {}
    for record in store.calls(lane.scope, thread, hashes):
        known.setdefault(record.link, []).append(record)
    return Seen(thread, said, tuple(ends), hashes, known)


def continued(store: HeadStore, lane: Lane, seen: Seen) -> tuple[list[CallRecord], bool]:
    """Find the call whose head a request keeps, before its own is known.

    Args:
        store: Where earlier calls are kept.
        lane: The request's lane; only a call of the same lane counts.
        seen: The calls that the request may continue.

    Returns:
        The calls that it may be, newest first, and whether one of them may be another conversation's that was given
        something else: without a thread id two conversations may have said the same.
    """
    found: list[CallRecord] = []
    # without a thread id the same request may be another conversation's, which begins alike
    for link in reversed(seen.links if seen.thread else seen.links[:-1]):
        found = [record for record in seen.known.get(link, ()) if record.lane == lane.key]
        if found:
            break
    if seen.thread and (not found or found[0].link not in seen.links[-2:]):
        latest = store.latest(lane.scope, seen.thread)
        if latest is not None and latest.lane == lane.key:
            moved = _rewritten(latest.trail, seen.trail) or (not found and _related(latest.trail, seen.trail))
            found = [latest] if moved else found
    others = {(record.head, record.added) for record in found}
    return found, not seen.thread and len(others) > 1


def match(
    store: HeadStore,
    lane: Lane,
    seen: Seen,
    plan: Plan,
    blocks: Sequence[Block],
    *,
    prefer: CallRecord | None = None,
) -> Match:
    """Find the call that a request continues.

    Args:
        store: Where earlier calls are kept.
        lane: The request's lane.
        seen: The calls that it may continue.
        plan: The request's plan.
        blocks: Its body.
        prefer: The one to take where several are alike.

    Returns:
        The match; without one, its record is None.
    """
    thread, known, link = seen.thread, seen.known, seen.links[-1]
    same = (lane.key, plan.head_hash, digest(plan.semi_static))
    alike = [
        (age, record)
        for age, found in enumerate(reversed(seen.links))
        for record in sorted(known.get(found, ()), key=lambda record: record is not prefer)
        if (record.lane, record.head, record.semi) == same
    ]
    kept = next(((age, record) for age, record in alike if _keeps_words(record, plan)), None)
    # of a call before whose added instructions are gone, this is no continuation, whatever an earlier one left
    ours = None if kept is not None and alike[0][0] <= 1 < kept[0] else kept
    answered = seams(blocks)[1] >= 0
    latest = None
    if thread and answered and (ours is None or ours[0] > 1):  # 0 is this very request again, 1 the call before
        latest = store.latest(lane.scope, thread)
    if latest is not None and _rewritten(latest.trail, seen.trail):
        return Match(latest, exact=False, link=link)
    if ours is not None:
        return Match(ours[1], exact=True, link=link, age=ours[0])
    for end, found in reversed(list(zip(seen.ends, seen.links, strict=True))):
        records = known.get(found, [])
        # Without a thread id an opening that others may share is no evidence; an answer inside the match is.
        told = bool(thread) or any(block.role == "assistant" for block in blocks[:end])
        if answered and told and records and (thread or len({record.conversation for record in records}) == 1):
            return Match(records[0], exact=False, link=link)
    if latest is not None and _related(latest.trail, seen.trail):
        return Match(latest, exact=False, link=link)
    return Match(None, exact=False, link=link) if kept is None else Match(kept[1], exact=True, link=link, age=kept[0])


def _keeps_words(record: CallRecord, plan: Plan) -> bool:
    """Whether the instructions that a call added in place stand there in a request too."""
    return all(found.name or found in entries(plan.additions) for found in read(record.added))


def _last_said(blocks: Sequence[Block], index: int) -> bool:
    return index + 1 == len(blocks) or blocks[index + 1].role == "assistant"


def _related(before: bytes, after: bytes) -> bool:
    return not set(split_trail(before)).isdisjoint(split_trail(after))


def _rewritten(before: bytes, after: bytes) -> bool:
    """Whether a history was changed behind its end: what was said last is still there, what came before is not.

    A retry and a fork are neither: they leave the last words out.
    """
    if after.startswith(before) or before.startswith(after):
        return False
    shared = shared_blocks(before, after)
    said_last = split_trail(before)[shared + 1 :][-2:]
    return bool(said_last) and set(said_last) <= set(split_trail(after)[shared:])


def breaks(
    store: HeadStore,
    lane: Lane,
    found: Match,
    plan: Plan,
    form: HeadForm,
    values: Mapping[str, str],
    *,
    notes: "NotesHeld",
    per_call: Mapping[str, str] | None = None,
    replaced: Mapping[str, str] | None = None,
) -> tuple[Break, ...]:
    """Name everything that keeps a request from reading what an earlier one left.

    Args:
        store: Where earlier heads are kept.
        lane: The request's lane.
        found: The call it continues.
        plan: Its plan.
        form: Its head.
        values: What should stay, hashed.
        notes: The kept notes of the request.
        per_call: For values cut out by a declared slot, the line that declares them as changing with each call.
        replaced: Appended tools that now stand in the list with another definition; name to the old one.

    Returns:
        The breaks in order of position on the wire.
    """
    record = found.record
    if record is None:
        missing = (_receipt_lost(),) if notes.lost and notes.bound else ()
        return (*_new_head(store, lane, plan, form), *missing, *plan.breaks)
    before_values = cast("dict[str, str]", json.loads(record.held))
    changed: list[Break] = []
    if record.lane != lane.key:
        changed.append(_other_lane(record, lane))
    if record.model == lane.model:  # another wire writes the same tools otherwise
        changed += _of_head(store, lane, record, plan, form, replaced or {}, named=bool(changed))
    if record.lane == lane.key:
        changed += _not_held(before_values, values, per_call or {}, _examples_in(plan))
    history = compare_histories(record.trail, plan.trail) if record.trail else None
    if history is not None:
        changed.append(history)
    elif notes.missed(NotesHeld.read(before_values), again=record.link == found.link):
        changed.append(_receipt_lost())
    return (*changed, *plan.breaks)


def _of_head(
    store: HeadStore,
    lane: Lane,
    record: CallRecord,
    plan: Plan,
    form: HeadForm,
    replaced: Mapping[str, str],
    *,
    named: bool,
) -> tuple[Break, ...]:
    """Name what changed in the head, and in what was added to it.

    Args:
        store: Where earlier heads are kept.
        lane: The request's lane.
        record: The call it continues.
        plan: Its plan.
        form: Its head.
        replaced: Appended tools that now stand in the list with another definition; name to the old one.
        named: Whether a cause was found before.
    """
    if record.head == plan.head_hash and _keeps_words(record, plan):
        return ()
    before = store.head(record.lane, record.head)
    if before is None:
        return _new_head(store, lane, plan, form)
    added = [found.form for found in read(record.added) if not found.name]
    known = store.additions(lane.scope, added) if added else {}
    if len(known) < len(set(added)):
        return (_words_lost(),)
    # the whole text is compared: what was said in place may stand in the head now, and the other way round
    sent = HeadForm(joined(before.form.system, [known[one] for one in added]), {**before.form.tools, **replaced})
    tools = form.tools if record.lane == lane.key else before.form.tools  # other parameters, other forms of the tools
    others = [other.form for other in store.heads(lane.key)[:_PEERS]]
    found = compare_heads(sent, HeadForm(plan.whole, tools), same_conversation=True, others=others).breaks
    # the same words, said elsewhere: the history changed, which has its own break
    return found if found or named or added else (_unexplained(),)


def note_stays(record: CallRecord, values: Mapping[str, str], *, loop: bool) -> bool:
    """Whether what an earlier call sent behind its human turn can still be read, for all that its note did.

    Args:
        record: The earlier call.
        values: What the request holds, its note among it.
        loop: Whether the request stands in a tool loop, so that a note is in front of the loop's results.
    """
    earlier, now = json.loads(record.held).get("note"), values.get("note")
    return bool(earlier == now or (earlier is None and not loop))


def renewed(found: Match, plan: Plan, values: Mapping[str, str]) -> Break | None:
    """Name the break that a note makes when it changes, comes or goes inside a tool loop.

    A model that takes no system message in place gets the note at the human turn. There a changed value makes
    everything behind it new, in every step; the value must still be current (I3 before I1).
    """
    record, now = found.record, values.get("note", "")
    if plan.loop < 0 or record is None or not found.exact:
        return None
    earlier, turn = json.loads(record.held).get("note", ""), f"{plan.loop}:"
    came = not earlier and found.age <= 1  # the call before was one of this turn
    if earlier == now or not (earlier.startswith(turn) or (came and now.startswith(turn))):
        return None  # the note of another turn: it went with that turn
    cause = next((value_cause(value.text) for value in plan.values if value.every == "call"), Cause.VALUE_IN_HEAD)
    remedy = (
        "this model takes no system message in place, so the note stays at the human turn and is renewed there; "
        "keep its values the same for the length of a tool loop"
    )
    return Break(cause, "policy", f"messages[{plan.loop}]", remedy)


def _new_head(store: HeadStore, lane: Lane, plan: Plan, form: HeadForm) -> tuple[Break, ...]:
    """Hold a head that the lane has not seen against the nearest one it has."""
    known = [record.form for record in store.heads(lane.key) if record.head != plan.head_hash]
    if not known or store.head(lane.key, plan.head_hash) is not None:
        return ()
    closest = nearest(known, form)
    if closest is None or dict(closest.tools) != dict(form.tools):
        return ()  # other tools: another agent of the same name, not a changed one
    # Of "Ada" and "Ada King" one seems to have a passage more; another head may tell that it is a value.
    for peer in (closest, *(peer for peer in known[:_PEERS] if dict(peer.tools) == dict(form.tools))):
        if not compare_heads(peer, form, same_conversation=False).variant:
            return compare_heads(peer, form, same_conversation=False, others=known[:_PEERS]).breaks
    return ()


def _receipt_lost() -> Break:
    remedy = (
        f"send the replies back as they came, with their response_metadata, and {SHARE_HEAD_STORE}; without its "
        "receipt a kept note is gone from the history"
    )
    return Break(Cause.RECEIPT_LOST, "application", "messages", remedy)


def _words_lost() -> Break:
    remedy = f"{SHARE_HEAD_STORE}; without it the instructions added in place are gone"
    return Break(Cause.SYSTEM_TEXT_CHANGED, "application", "system", remedy)


def _unexplained() -> Break:
    remedy = "compare the two requests; no change of a kind that headstay knows was found"
    return Break(Cause.UNKNOWN, "application", "head", remedy)


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


def _examples_in(plan: Plan) -> set[str]:
    """Return the names of the values that are the examples of a conversation."""
    return {value.name for value in plan.values if plan.whole[value.block].startswith(EXAMPLES_TITLE)}


def of_examples(found: Sequence[Break], plan: Plan, constant: Collection[str]) -> tuple[Break, ...]:
    """Bring the breaks inside pinned examples together: no `Slot` can be declared there.

    Args:
        found: The breaks of a request.
        plan: Its plan.
        constant: System texts that are pinned examples.
    """
    paths = {f"system[{number}]" for number, text in enumerate(plan.whole) if text in constant}
    told = dict[str, Break]()
    for one in found:
        inside = one.path in paths
        told.setdefault(one.path if inside else repr(one), replace(one, remedy=_KEEP_EXAMPLES) if inside else one)
    return tuple(told.values())


def _not_held(
    before: Mapping[str, str], after: Mapping[str, str], per_call: Mapping[str, str], examples: Collection[str]
) -> list[Break]:
    found: list[Break] = []
    for name, value in after.items():
        if name in _NOT_CONTENT or before.get(name, value) == value:
            continue
        what, _, rest = name.partition(":")
        if what == "value":
            slot = per_call.get(_NUMBERED.sub("", rest), f'Slot("{{{rest}}}", every="call")')
            remedy = _KEEP_EXAMPLES if rest in examples else slot
            found.append(Break(Cause.VALUE_IN_HEAD, "application", f"semi-static[{rest}]", remedy))
        elif what == "images":
            remedy = "none: the first image of a conversation drops the cached messages; tools and system stay"
            found.append(Break(Cause.PARAMETERS_CHANGED, "provider", "messages", remedy))
        else:
            cause = _OF_PARAMETERS.get(rest, Cause.PARAMETERS_CHANGED)
            found.append(Break(cause, "application", rest, f"keep {rest} the same for a conversation"))
    return found
