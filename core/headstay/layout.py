"""Where each part of a request stands: head, semi-static block, body, tail, note, and the markers.

`arrange` is a pure function. It reads nothing but its arguments, so the same request, declarations and lane state
give the same plan in any process.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, cast

from headstay.added import Addition
from headstay.canonical import digest, size_of
from headstay.causes import Break, Cause, value_cause
from headstay.fingerprint import head_hash, parameters_hash, trail
from headstay.prompt import Block, Prompt, Tool
from headstay.providers.rules import CacheRules
from headstay.toolset import FrozenTools, ToolState, freeze_tools
from headstay.values import CALL_TITLE, CONVERSATION_TITLE, Declared, Extraction, Value, extract, render

BYTES_PER_TOKEN = 4.3
"""English prose without a tokenizer; high, so that a minimum counts as reached late rather than early."""

Tier = Literal["tools", "system", "messages"]


@dataclass(frozen=True)
class Lane:
    """What shares one provider cache.

    Attributes:
        tenant: The tenant, or None where there is one only.
        provider: The provider's name.
        endpoint: The base URL.
        model: The model id.
        parameters: Hash of the parameters that re-key the whole cache.
        agent: The name of the agent or chain.
    """

    tenant: str | None
    provider: str
    endpoint: str
    model: str
    parameters: bytes
    agent: str

    @cached_property
    def key(self) -> str:
        """A short name for the lane, in hex."""
        parts = (self.provider, self.endpoint, self.model, self.parameters, self.agent)
        return digest("lane", self.scope, *parts).hex()

    @cached_property
    def scope(self) -> str:
        """What may share a head store entry at all: one tenant and one agent."""
        return scope_of(self.tenant, self.agent)


def scope_of(tenant: str | None, agent: str) -> str:
    """Name what may share a head store entry at all: one tenant and one agent."""
    return digest("scope", repr(tenant), agent).hex()


class PlannedMarker(NamedTuple):
    """A cache breakpoint we place: at a system block, a tool, or a block of a message."""

    tier: Tier
    message: int
    part: int
    ttl: str | None


@dataclass(frozen=True, slots=True)
class Note:
    """The per-call values, last of all and not sent again.

    Attributes:
        operator: Text for a system message in place, or empty.
        user: Text for a block at the end of a human turn, or empty.
        message: Index of the message that takes the user text; -1 where it makes a user message of its own.
    """

    operator: str = ""
    user: str = ""
    message: int = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """A request, arranged.

    Attributes:
        tools: The tool definitions in their lane order and first-seen form.
        tool_forms: Their wire forms.
        appended: Definitions that stand in the messages instead.
        head: The system texts with placeholders.
        whole: The application's system texts with placeholders: the head, and what was added to it since.
        additions: What stands in the messages instead of the head: tools and instructions, in wire order.
        semi_static: The block of per-conversation values, or empty.
        note: The per-call values.
        markers: The breakpoints, in wire order.
        affinity: The cache key for providers that route by one, or None.
        retention: The TTL to send in a field of its own, or None.
        head_hash: Hash of tools and head.
        trail: Joined digests of the body's blocks: the conversation's identity.
        tail: Index in the prompt's blocks of the last block before the note, or -1.
        previous_tail: The same for the call before, or -1.
        reusable: Index of the last body block that an earlier call can have left in the cache, or -1.
        loop: Index of the message with the human turn that began a tool loop which is under way, or -1. A note at a
            human turn then stands inside the body.
        values: Every value that was cut out.
        tool_state: What the lane knows of its tools after this call.
        masked: Names of declared tools that this call does not offer.
        breaks: Breaks that the layout itself had to make, with their owner.
        notices: Declarations that do not fit, one clear line each.
        head_bytes: Size of tools and head in bytes.
        prefix_bytes: Size of everything but the note, images and files.
        measurable: Whether these bytes are all that the provider counts: no image and no file is in the body.
        planned_at: When, in seconds since the epoch.
    """

    tools: tuple[Tool, ...]
    tool_forms: tuple[str, ...]
    appended: tuple[Tool, ...]
    head: tuple[str, ...]
    whole: tuple[str, ...]
    additions: tuple[Addition, ...]
    semi_static: str
    note: Note
    markers: tuple[PlannedMarker, ...]
    affinity: str | None
    retention: str | None
    head_hash: bytes
    trail: bytes
    tail: int
    previous_tail: int
    reusable: int
    loop: int
    values: tuple[Value, ...]
    tool_state: ToolState
    masked: tuple[str, ...]
    breaks: tuple[Break, ...]
    notices: tuple[str, ...]
    head_bytes: int
    prefix_bytes: int
    measurable: bool
    planned_at: float


def lane_of(prompt: Prompt, rules: CacheRules, *, tenant: str | None, endpoint: str, agent: str) -> Lane:
    """Name the lane of a request.

    The application's own cache key belongs to the lane; ours is made from the lane and does not.
    """
    parameters = parameters_hash(prompt.parameters, rules.lane_parameters)
    return Lane(tenant, rules.provider, endpoint, prompt.model, parameters, agent)


def arrange(
    prompt: Prompt,
    lane: Lane,
    rules: CacheRules,
    now: float,
    *,
    declared: Declared,
    taken: Extraction | None = None,
    head: Sequence[str] | None = None,
    additions: Sequence[Addition] = (),
    tools: ToolState | FrozenTools | None = None,
    union: bool = False,
    notes_kept: bool = False,
    note_blocks: int = 0,
    note_stays: bool = False,
    tail: str = "",
    ttl: str | None = None,
    bytes_per_token: float = BYTES_PER_TOKEN,
) -> Plan:
    """Arrange a request: stable parts first, per-call values last, markers at the seams.

    Args:
        prompt: The request.
        lane: Its lane.
        rules: What the provider does.
        now: Seconds since the epoch.
        declared: Templates and slots.
        taken: The system text, taken apart, where that was done already.
        head: What of the system text stands in the head; all of it by default.
        additions: What stands in the messages instead (see `headstay.late` and `headstay.instructions`).
        tools: What the lane knows of its tools, or the tools of the call in their final order and form.
        union: Whether tools that are not offered stay declared; only for a caller that refuses their calls.
        notes_kept: Whether the per-call values stand in the body already (see `headstay.kept`).
        note_blocks: How many blocks at the end of the body are the note of this call, which the next may drop.
        note_stays: Whether it is likely to stay, so that it is worth writing to the cache.
        tail: Per-call text of the application (retrieved documents, say), for the human turn.
        ttl: Name of the time to live, or None for the provider's default.
        bytes_per_token: For the minimum: how many bytes make a token in this lane.

    Returns:
        The plan. Nothing of the prompt is changed.
    """
    frozen = tools if isinstance(tools, FrozenTools) else freeze_tools(prompt.tools, tools or ToolState(), union=union)
    taken = extract(prompt.system, declared) if taken is None else taken
    texts = taken.head if head is None else tuple(head)
    placed = _place(prompt, rules, taken.values, tail, notes_kept=notes_kept)
    last, previous = seams(prompt.blocks)
    reusable, anchor = _reusable(prompt.blocks, previous, last, placed.note)
    hashed = head_hash(frozen.forms, texts)
    head_bytes = sum(map(size_of, texts)) + sum(map(size_of, frozen.forms))
    outline = _Outline(frozen, texts, placed.semi_static, head_bytes)
    seats = (*((last,) if note_stays else ()), last - note_blocks, anchor, reusable, previous)
    return Plan(
        tools=frozen.tools,
        tool_forms=frozen.forms,
        appended=frozen.appended,
        head=texts,
        whole=taken.head,
        additions=tuple(additions),
        semi_static=placed.semi_static,
        note=placed.note,
        markers=_markers(prompt, rules, outline, seats, bytes_per_token, ttl) if rules.max_markers else (),
        affinity=_affinity(prompt, lane, rules, hashed),
        retention=ttl if rules.retention and rules.retention not in prompt.parameters else None,
        head_hash=hashed,
        trail=trail(prompt.blocks),
        tail=last,
        previous_tail=previous,
        reusable=reusable,
        loop=_loop(prompt.blocks, last),
        values=taken.values,
        tool_state=frozen.state,
        masked=frozen.masked,
        breaks=placed.breaks,
        notices=taken.notices,
        head_bytes=head_bytes,
        prefix_bytes=head_bytes + size_of(placed.semi_static) + sum([block.size for block in prompt.blocks]),
        measurable=not any(block.kind in ("image", "file") for block in prompt.blocks),
        planned_at=now,
    )


def _affinity(prompt: Prompt, lane: Lane, rules: CacheRules, head: bytes) -> str | None:
    if not rules.affinity or rules.affinity in prompt.parameters:
        return None
    return "hs-" + digest("affinity", lane.key, head).hex()


class _Placed(NamedTuple):
    semi_static: str
    note: Note
    breaks: tuple[Break, ...]


def _place(prompt: Prompt, rules: CacheRules, values: Sequence[Value], tail: str, *, notes_kept: bool) -> _Placed:
    """Decide which block each value goes to (invariants I3 and I4)."""
    if notes_kept:
        values, tail = [value for value in values if value.every == "conversation"], ""
    bound = binds(prompt, rules)
    human = _last_human(prompt.blocks)
    in_place = rules.in_place_system and bool(prompt.blocks) and prompt.blocks[-1].role != "assistant"
    semi: list[Value] = []
    operator: list[Value] = []
    user: list[Value] = []
    breaks: list[Break] = []
    for value in values:
        if value.every == "conversation":
            semi.append(value)
        elif bound:
            semi.append(value)
            breaks.append(_kept_back(value, "the model binds its thinking to the exact history"))
        elif in_place:
            operator.append(value)
        elif value.harmless and human >= 0:
            user.append(value)
        else:
            semi.append(value)
            breaks.append(
                _kept_back(value, "it is not declared harmless and the model takes no system message in place")
            )
    if bound and tail:
        breaks.append(
            Break(
                Cause.THINKING_CHANGED,
                "policy",
                "tail",
                "tail= is sent once and then dropped, which this model's thinking blocks do not allow; "
                "leave tail= out or switch thinking off",
            )
        )
    message = prompt.blocks[human].message if human >= 0 else -1
    texts = [text for text in (render(CALL_TITLE, user), tail) if text]
    note = Note(render(CALL_TITLE, operator), "\n\n".join(texts), message if texts else -1)
    return _Placed(render(CONVERSATION_TITLE, semi), note, tuple(breaks))


def _kept_back(value: Value, why: str) -> Break:
    return Break(
        value_cause(value.text),
        "policy",
        f"system[{value.block}]",
        f"the per-call value {value.name!r} went into the semi-static block, because {why}; "
        + ("it changes the prefix with every call" if value.harmless else "declare it with Slot(..., harmless=True)"),
        at=value.start,
    )


def binds(prompt: Prompt, rules: CacheRules) -> bool:
    """Whether thinking of this conversation is, or will be, bound to the exact history."""
    thinking = prompt.parameters.get("thinking")
    kind = cast("Mapping[str, object]", thinking).get("type") if isinstance(thinking, Mapping) else None
    asked = rules.thinks if kind is None else kind != "disabled"
    return rules.binds_thinking and (prompt.has_thinking or asked)


def _last_human(blocks: Sequence[Block]) -> int:
    return next((index for index in range(len(blocks) - 1, -1, -1) if blocks[index].role == "user"), -1)


def seams(blocks: Sequence[Block]) -> tuple[int, int]:
    """Find where this call's input ends and where that of the call before ended.

    Args:
        blocks: The body.

    Returns:
        Indices of the two blocks; -1 where there is none. The input of the call before ended right before the last
        stretch of assistant blocks.
    """
    last = len(blocks) - 1
    while last >= 0 and blocks[last].role == "assistant":
        last -= 1
    previous = last
    while previous >= 0 and blocks[previous].role != "assistant":
        previous -= 1
    while previous >= 0 and blocks[previous].role == "assistant":
        previous -= 1
    return last, previous


def _reusable(blocks: Sequence[Block], previous: int, last: int, note: Note) -> tuple[int, int]:
    """Find the last block an earlier call can have cached, and the block before a note inside the body.

    A note in user text stood behind the last human block of its call, so what came after it is not shared.
    """
    if not note.user:
        return previous, -1
    human = _last_human(blocks)
    earlier = _last_human(blocks[: previous + 1])
    return (previous if human == earlier else earlier), (human if human < last else -1)


def _loop(blocks: Sequence[Block], last: int) -> int:
    human = _last_human(blocks)
    return blocks[human].message if 0 <= human < last else -1


class _Outline(NamedTuple):
    tools: FrozenTools
    head: Sequence[str]
    semi_static: str
    head_bytes: int


def _markers(
    prompt: Prompt,
    rules: CacheRules,
    outline: _Outline,
    seats: Sequence[int],
    bytes_per_token: float,
    ttl: str | None,
) -> tuple[PlannedMarker, ...]:
    """Choose the breakpoints: head, tail, what the last call left, semi-static block; then the application's own.

    Args:
        prompt: The request.
        rules: What the provider takes.
        outline: The parts before the body.
        seats: Indices of body blocks worth a marker, best first; negative ones are none.
        bytes_per_token: For the minimum: how many bytes make a token in this lane.
        ttl: The TTL that was set, or None.
    """
    minimum = rules.min_tokens * bytes_per_token
    system_ttl, body_ttl = _ttls(prompt, rules, ttl)
    wanted: list[PlannedMarker] = []
    filled = [index for index, text in enumerate(outline.head) if text.strip()]
    anchors = [index for index, tool in enumerate(outline.tools.tools) if not tool.deferred]
    if outline.head_bytes >= minimum:
        if filled:
            wanted.append(PlannedMarker("system", 0, filled[-1], system_ttl))
        elif anchors and not rules.explicit_mode:
            wanted.append(PlannedMarker("tools", anchors[-1], 0, system_ttl))
    base = outline.head_bytes + size_of(outline.semi_static)
    for seat in dict.fromkeys(seat for seat in seats if seat >= 0):
        chosen = _eligible(prompt.blocks, seat, assistant=not rules.explicit_mode)
        if chosen is not None and _reaches(minimum, base, prompt.blocks, seat):
            wanted.append(PlannedMarker("messages", chosen.message, chosen.part, body_ttl))
    if outline.semi_static and base >= minimum:
        wanted.append(PlannedMarker("system", 0, len(outline.head), system_ttl))
    own = _own_seats(prompt, assistant=not rules.explicit_mode)
    reached = [prompt.blocks[seat] for seat in own if _reaches(minimum, base, prompt.blocks, seat)]
    wanted += [PlannedMarker("messages", block.message, block.part, body_ttl) for block in reached]
    chosen_markers = list(dict.fromkeys(wanted))[: rules.max_markers]
    tiers = {"tools": 0, "system": 1, "messages": 2}
    return tuple(sorted(chosen_markers, key=lambda marker: (tiers[marker.tier], marker.message, marker.part)))


def _reaches(minimum: float, base: int, blocks: Sequence[Block], seat: int) -> bool:
    return base >= minimum or base + sum(block.size for block in blocks[: seat + 1]) >= minimum


def _own_seats(prompt: Prompt, *, assistant: bool) -> list[int]:
    """Return the body blocks that the application marked itself and that may carry a marker."""
    own = {(marker.message, marker.part) for marker in prompt.markers if marker.tier == "messages"}
    if not own:
        return []
    return [
        index
        for index, block in enumerate(prompt.blocks)
        if (block.message, block.part) in own
        and block.kind not in ("thinking", "blank")
        and (assistant or block.role != "assistant")
    ]


def _eligible(blocks: Sequence[Block], seat: int, *, assistant: bool) -> Block | None:
    """Return the block at or before a seat, within its message or its turn, that may carry a marker."""
    message = blocks[seat].message
    while seat >= 0 and (blocks[seat].message == message or blocks[seat].role != "assistant"):
        block = blocks[seat]
        if block.kind not in ("thinking", "blank", "other") and (assistant or block.role != "assistant"):
            return block
        seat -= 1
    return None


def _ttls(prompt: Prompt, rules: CacheRules, ttl: str | None) -> tuple[str | None, str | None]:
    """Take over the application's own TTLs where none was set, longest first along the wire."""
    if ttl is not None:
        return ttl, ttl
    seconds = rules.ttls
    own: dict[str, str] = {"system": rules.default_ttl, "messages": rules.default_ttl}
    for marker in prompt.markers:
        tier = "messages" if marker.tier in ("messages", "request") else "system"
        if marker.ttl is not None and seconds.get(marker.ttl, 0) and seconds[marker.ttl] > seconds.get(own[tier], 0):
            own[tier] = marker.ttl
    if seconds.get(own["messages"], 0) > seconds.get(own["system"], 0):
        own["system"] = own["messages"]
    system, body = (None if own[tier] == rules.default_ttl else own[tier] for tier in ("system", "messages"))
    return system, body


def upto(markers: Sequence[PlannedMarker], message: int) -> tuple[PlannedMarker, ...]:
    """Leave out the markers that stand behind a message."""
    return tuple(marker for marker in markers if marker.tier != "messages" or marker.message <= message)
