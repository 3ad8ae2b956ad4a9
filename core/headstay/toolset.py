"""The tool list of a lane: one order and one byte form for each tool, whatever order a call gives them in."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from headstay.canonical import meaning_text, wire_texts
from headstay.prompt import Tool


@dataclass(frozen=True, slots=True)
class ToolState:
    """What a lane knows of its tools.

    Attributes:
        order: Names in lane order: sorted at first sight, later ones behind.
        forms: Name to the wire form in which it was first sent.
        client: Names of those that the application runs.
        late: Names of those that stand in no list yet: running conversations had them appended (`headstay.late`).
        spent: Bytes that they cost at the start of new conversations since one of them last joined the list.
    """

    order: tuple[str, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict[str, str])
    client: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    spent: int = 0


@dataclass(frozen=True, slots=True)
class FrozenTools:
    """The tools of one call, in lane order.

    Attributes:
        tools: The definitions.
        forms: Their wire forms.
        state: The lane's knowledge after this call; the same object where nothing is new.
        masked: Names of the tools that stay declared though this call does not offer them.
        appended: Definitions that stand in the messages instead of the list, in wire order.
    """

    tools: tuple[Tool, ...]
    forms: tuple[str, ...]
    state: ToolState
    masked: tuple[str, ...] = ()
    appended: tuple[Tool, ...] = ()


def freeze_tools(tools: Sequence[Tool], state: ToolState, *, union: bool = False) -> FrozenTools:
    """Put the tools of a call into lane order and first-seen form.

    A schema whose keys merely came in another order is replaced by the form sent first: it means the same and keeps
    the prefix. A changed schema is sent as it is.

    Args:
        tools: As the application gave them.
        state: What the lane knows.
        union: Whether a client tool that the lane knows and this call does not offer stays declared. Only for a
            caller that refuses its calls (invariant I5). A provider-run tool leaves the list at once.

    Returns:
        The tools to declare.
    """
    if not tools and not (union and state.order):
        return FrozenTools((), (), state)
    written = wire_texts([tool.wire for tool in tools])
    forms = dict(zip([tool.name for tool in tools], written, strict=True))
    if len(forms) < len(tools):  # names must be unique on the wire: the provider's error is the clearer one
        return FrozenTools(tuple(tools), written, state)
    known = frozenset(state.order)
    fresh = sorted((tool for tool in tools if tool.name not in known), key=lambda tool: (not tool.client, tool.name))
    order = (*state.order, *(tool.name for tool in fresh))
    given = {tool.name: tool for tool in tools}
    kept = frozenset(state.client) if union else frozenset[str]()
    frozen: list[Tool] = []
    changed = dict(state.forms)
    for name in order:
        tool = given.get(name)
        if tool is None:
            if name in kept and (revived := revive(name, state.forms[name])).client:
                frozen.append(revived)
            continue
        first = state.forms.get(name)
        tool, changed[name] = (tool, forms[name]) if first is None else first_form(tool, forms[name], first)
        frozen.append(tool)
    client = (*state.client, *(tool.name for tool in fresh if tool.client))
    same = order == state.order and changed == state.forms
    masked = tuple(tool.name for tool in frozen if tool.name not in given)
    return FrozenTools(
        tuple(frozen),
        tuple(changed[tool.name] for tool in frozen),
        state if same else replace(state, order=order, forms=changed, client=client),
        masked,
    )


def first_form(tool: Tool, form: str, first: str) -> tuple[Tool, str]:
    """Return the form sent first where a definition differs from it in the order of its keys only."""
    if form == first:
        return tool, form
    revived = revive(tool.name, first)
    same = meaning_text(revived.wire) == meaning_text(tool.wire)
    return (tool._replace(wire=revived.wire), first) if same else (tool, form)


def revive(name: str, form: str) -> Tool:
    """Read a tool back from its wire form: a name that the application ran may have become a provider-run tool's."""
    wire = cast("Mapping[str, object]", json.loads(form))
    client = wire.get("type") in (None, "custom", "function")
    return Tool(name, client, deferred=bool(wire.get("defer_loading")), wire=wire)


def merge_tools(known: ToolState, learnt: ToolState) -> ToolState:
    """Add what a call learnt to what a lane knows, which another call may have added to meanwhile."""
    if learnt == known:
        return known
    order = (*known.order, *(name for name in learnt.order if name not in known.order))
    client = (*known.client, *(name for name in learnt.client if name not in known.client))
    late = tuple(name for name in dict.fromkeys((*known.late, *learnt.late)) if name not in order)
    return ToolState(order, {**known.forms, **learnt.forms}, client, late, known.spent)


def fold(state: ToolState, spent: int, head_bytes: int) -> ToolState:
    """Let late tools join the list of conversations that begin from now on, once that is the cheaper way.

    Appending them costs their bytes in every new conversation; a changed list costs one new head. Whoever changes
    when the one has come up to the other pays at most twice what the best choice would have cost.

    Args:
        state: What the lane knows of its tools.
        spent: Bytes appended by a call that began a conversation.
        head_bytes: Size of tools and head in bytes.
    """
    total = state.spent + spent
    if not state.late or total < head_bytes:
        return state if not spent else replace(state, spent=total)
    return replace(state, order=(*state.order, *state.late), late=(), spent=0)
