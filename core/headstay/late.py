"""Tools that arrive late in a conversation: appended to it where the model has that, so that its head stays.

A conversation keeps the tool list it began with. A tool outside that list is defined at the end of the input of the
call that first offers it, and stands at that same place in every later call of the conversation (invariant I2). What
was placed where is kept with each call in the head store, so forks, restarts and client-held histories find it again.

Sources: anthropic 2.14.0 types (`tool_addition` with a `tool_definition`) and openai 3.57.0 types (`additional_tools`),
seen 2026-11-29.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import cast

from headstay.added import Addition, Place, joined, read, remainder, wording
from headstay.canonical import size_of, wire_texts
from headstay.causes import Break, Cause
from headstay.conversation import SHARE_HEAD_STORE, Seen, continued
from headstay.fingerprint import links, trail
from headstay.headstore import CallRecord, HeadStore
from headstay.layout import Lane, seams
from headstay.prompt import Block, Prompt, Tool
from headstay.toolset import FrozenTools, ToolState, first_form, freeze_tools, revive
from headstay.weave import Definition, Woven

_ALIKE = 8  # calls with the same words that are looked at; each costs a look into the head store


@dataclass(frozen=True, slots=True)
class Carried:
    """What a conversation brings along from the call that a request continues.

    Attributes:
        record: That call.
        base: The tools of its head, name to wire form in wire order.
        system: The system texts of its head.
        additions: What was added to it, in wire order.
        lost: Names of appended tools whose definition the head store no longer has.
        wordless: Whether it no longer has the words of added instructions.
        shared: Whether another conversation with the same words may have been given something else.
        again: Whether this is that call once more.
    """

    record: CallRecord
    base: Mapping[str, str]
    system: tuple[str, ...] = ()
    additions: tuple[Addition, ...] = ()
    lost: tuple[str, ...] = ()
    wordless: bool = False
    shared: bool = False
    again: bool = False

    @property
    def tools(self) -> tuple[Addition, ...]:
        """The tools among the additions."""
        return tuple(found for found in self.additions if found.name)

    @property
    def texts(self) -> tuple[Addition, ...]:
        """The instructions among the additions."""
        return tuple(found for found in self.additions if not found.name)


@dataclass(frozen=True, slots=True)
class Settled:
    """The tools of one call: what stands in the list and what is appended.

    Attributes:
        frozen: The list and the lane's knowledge.
        additions: Everything to append, in wire order.
        replaced: Appended tools that the call before had and this one has in the list instead, because their
            definition changed: name to the definition that was appended.
        lost: Names of appended tools that are gone, because the head store no longer has them.
        opening: Bytes that a call which begins a conversation appends.
        notices: What had to be left out, one clear line each.
    """

    frozen: FrozenTools
    additions: tuple[Addition, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict[str, str])
    lost: tuple[str, ...] = ()
    opening: int = 0
    notices: tuple[str, ...] = ()


def lost_tool(name: str) -> Break:
    """Name the break that a tool makes which was appended and cannot be sent again."""
    remedy = f"{SHARE_HEAD_STORE}; without it the definition of an appended tool is gone"
    return Break(Cause.TOOL_REMOVED, "application", f"tools[{name}]", remedy)


def carried(store: HeadStore, lane: Lane, seen: Seen, system: Sequence[str]) -> Carried | None:
    """Read what a conversation brings along; None for one that the head store does not know.

    Args:
        store: Where earlier calls are kept.
        lane: The request's lane.
        seen: The calls that the request may continue.
        system: Its system texts with placeholders: of calls with the same words, the one counts whose text it continues
            farthest.
    """
    records, shared = continued(store, lane, seen)
    told = {(record.head, record.added): record for record in reversed(records)}  # of each kind the newest
    best, reach = None, -2
    for record in islice(reversed(told.values()), _ALIKE):
        found = _brought(store, lane, record, again=record.link == seen.links[-1], shared=shared)
        if found is not None and (fit := _fit(found, system)) > reach:
            best, reach = found, fit
    return best


def _brought(store: HeadStore, lane: Lane, record: CallRecord, *, again: bool, shared: bool) -> Carried | None:
    head = store.head(lane.key, record.head)
    if head is None:
        return None
    placed = read(record.added)
    known = store.additions(lane.scope, [form for _, form, _ in placed]) if placed else {}
    there = tuple(Addition(name, known[form], place) for name, form, place in placed if form in known)
    missing = [name for name, form, _ in placed if form not in known]
    lost, wordless = tuple(filter(None, missing)), not all(missing)
    return Carried(record, head.form.tools, head.form.system, there, lost, wordless, shared, again)


def _fit(found: Carried, system: Sequence[str]) -> int:
    """Say how many characters of a system text a call had; -1 where it had another text."""
    whole = joined(found.system, [one.form for one in found.texts])
    return -1 if found.wordless or remainder(whole, system) is None else sum(map(len, whole))


def settle(prompt: Prompt, state: ToolState, before: Carried | None, *, native: bool) -> Settled:
    """Decide for each tool whether it stands in the list or is appended.

    Into the list goes what cannot be appended: everything where the model has no way to, the tools of an agent that
    had none, what the provider runs, what is deferred, and an appended tool whose definition changed. Those are the
    breaks that remain.

    Args:
        prompt: The request, as the application made it.
        state: What the lane knows of its tools.
        before: What the conversation brings along; None for a new one.
        native: Whether tools may be appended.

    Returns:
        The tools of the call.
    """
    base = before.base if before is not None else {name: state.forms[name] for name in state.order}
    names = {tool.name for tool in prompt.tools}
    place = fresh_place(prompt, again=before is not None and before.again) if native and base else None
    if place is None or len(names) < len(prompt.tools):
        whole = replace(state, order=(*state.order, *state.late), late=(), spent=0) if state.late else state
        return Settled(freeze_tools(prompt.tools, whole, union=True))
    held = _held(prompt, before, base)
    forms = wire_texts([tool.wire for tool in prompt.tools])
    written = dict(zip([tool.name for tool in prompt.tools], forms, strict=True))
    listed: dict[str, tuple[Tool, str]] = {}
    fresh: list[Addition] = []
    replaced: dict[str, str] = {}
    for tool in sorted(prompt.tools, key=lambda tool: tool.name):
        name, form = tool.name, written[tool.name]
        if name in held:
            _, sent = first_form(tool, form, held[name].form)
            if sent == held[name].form:
                continue
            replaced[name] = held.pop(name).form
            listed[name] = tool, form
        elif name in base:
            listed[name] = first_form(tool, form, base[name])
        else:
            known = first_form(tool, form, state.forms.get(name, form))
            lost = before is not None and name in before.lost
            if tool.client and not tool.deferred and not lost:
                fresh.append(Addition(name, known[1], place))
            else:
                listed[name] = known
    revoked = [revive(name, base[name]) for name in base if name not in names and name in state.client]
    listed |= {tool.name: (tool, base[tool.name]) for tool in revoked if tool.client}
    order = _ordered(base, listed, state.order)
    additions = (*held.values(), *fresh)
    frozen = FrozenTools(
        tools=tuple(listed[name][0] for name in order),
        forms=tuple(listed[name][1] for name in order),
        state=_learnt(state, written, prompt.tools, fresh),
        masked=tuple(name for name in (*order, *held) if name not in names),
        appended=tuple(revive(found.name, found.form) for found in additions),
    )
    if before is None:
        return Settled(frozen, additions, replaced, opening=sum(size_of(found.form) for found in fresh))
    return Settled(frozen, additions, replaced, tuple(name for name in before.lost if name not in listed))


def _held(prompt: Prompt, before: Carried | None, base: Mapping[str, str]) -> dict[str, Addition]:
    """Return the tools that were appended and can stand where they stood."""
    if before is None:
        return {}
    return {found.name: found for found in still_there(prompt, before.tools) if found.name not in base}


def _ordered(base: Mapping[str, str], listed: Mapping[str, object], lane: Sequence[str]) -> list[str]:
    """Order a list as the conversation's head has it; what it does not have goes where the lane has it, or last."""
    order = [name for name in base if name in listed]
    places = {name: index for index, name in enumerate(lane)}
    for name in sorted((name for name in listed if name not in base), key=lambda name: places.get(name, len(lane))):
        mine = places.get(name, len(lane))
        behind = (index for index, other in enumerate(order) if places.get(other, -1) > mine)
        order.insert(next(behind, len(order)), name)
    return order


def _learnt(
    state: ToolState, written: Mapping[str, str], tools: Sequence[Tool], fresh: Sequence[Addition]
) -> ToolState:
    late = (*state.late, *(found.name for found in fresh if found.name not in (*state.order, *state.late)))
    unknown = [tool for tool in tools if tool.name not in state.order and tool.name not in late]
    order = (*state.order, *(tool.name for tool in sorted(unknown, key=lambda tool: (not tool.client, tool.name))))
    forms = dict(state.forms)
    for tool in tools:
        forms[tool.name] = first_form(tool, written[tool.name], state.forms.get(tool.name, written[tool.name]))[1]
    client = (*state.client, *(tool.name for tool in tools if tool.client and tool.name not in state.client))
    if (order, late, client) == (state.order, state.late, state.client) and forms == state.forms:
        return state
    return replace(state, order=order, forms=forms, client=client, late=late)


def fresh_place(prompt: Prompt, *, again: bool = False) -> Place | None:
    """Find where this call adds something: at the end of its input.

    On OpenAI's wire a tool goes in front of the user's words, since no cache marker may stand on the tool itself and
    the marker on the words then covers it; never between a tool call and its result.

    Args:
        prompt: The request.
        again: Whether nothing may come in front of the user's words: they were sent before.

    Returns:
        The place, or None where there is none.
    """
    blocks = prompt.blocks
    end = seams(blocks)[0] + 1
    if prompt.wire != "anthropic-messages" and not again:
        while end > 0 and blocks[end - 1].role == "user":
            end -= 1
    if not takes_addition(prompt, end):
        return None
    return Place(end, links(trail(blocks[:end]), [end])[0])


def takes_addition(prompt: Prompt, end: int) -> bool:
    """Whether something may be added behind a number of blocks.

    Anthropic (mid-conversation system messages, seen 2026-11-29): behind a user's message, and in front of an
    answer or last of all.
    """
    message = message_before(prompt.blocks, end)
    if end < len(prompt.blocks) and prompt.blocks[end].message == message:
        return False
    if prompt.wire != "anthropic-messages":
        return True
    if message < 0 or prompt.messages[message].get("role") == "assistant":
        return False
    return message + 1 == len(prompt.messages) or prompt.messages[message + 1].get("role") == "assistant"


def message_before(blocks: Sequence[Block], end: int) -> int:
    """Return the index of the message that ends behind a number of blocks; -1 in front of the first."""
    return blocks[end - 1].message if end else -1


def still_there(prompt: Prompt, additions: Sequence[Addition]) -> list[Addition]:
    """Return what can stand where it stood; where the history was changed it cannot."""
    ends = sorted({found.place.blocks for found in additions if found.place.blocks <= len(prompt.blocks)})
    here = dict(zip(ends, links(trail(prompt.blocks), ends), strict=True))
    return [
        found
        for found in additions
        if here.get(found.place.blocks) == found.place.link and takes_addition(prompt, found.place.blocks)
    ]


def in_order(before: Carried | None, *found: Iterable[Addition]) -> tuple[Addition, ...]:
    """Bring the additions of a call into wire order: those of earlier calls as they came, then the given ones."""
    now = tuple(chain(*found))
    earlier = before.additions if before is not None else ()
    return (*(one for one in earlier if one in now), *(one for one in now if one not in earlier))


def by_message(prompt: Prompt, additions: Sequence[Addition]) -> dict[int, list[Woven]]:
    """Group what is added, as it is written, by the message that it follows."""
    found: dict[int, list[Woven]] = {}
    for name, form, place in additions:
        piece = cast("Definition", json.loads(form)) if name else wording(form)
        found.setdefault(message_before(prompt.blocks, place.blocks), []).append(piece)
    return found
