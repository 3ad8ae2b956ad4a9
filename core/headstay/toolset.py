"""The tool list of a lane: one order and one byte form for each tool, whatever order a call gives them in."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from headstay.canonical import meaning_text, wire_text
from headstay.prompt import Tool


@dataclass(frozen=True, slots=True)
class ToolState:
    """What a lane knows of its tools.

    Attributes:
        order: Names in lane order: sorted at first sight, later ones behind.
        forms: Name to the wire form in which it was first sent.
    """

    order: tuple[str, ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class FrozenTools:
    """The tools of one call, in lane order.

    Attributes:
        tools: The definitions.
        forms: Their wire forms.
        state: The lane's knowledge after this call; the same object where nothing is new.
    """

    tools: tuple[Tool, ...]
    forms: tuple[str, ...]
    state: ToolState


def freeze_tools(tools: Sequence[Tool], state: ToolState) -> FrozenTools:
    """Put the tools of a call into lane order and first-seen form.

    A schema whose keys merely came in another order is replaced by the form sent first: it means the same and keeps
    the prefix. A changed schema is sent as it is.

    Args:
        tools: As the application gave them.
        state: What the lane knows.

    Returns:
        The tools of this call and nothing else: a tool that is not given is not sent.
    """
    if not tools:
        return FrozenTools((), (), state)
    forms = {tool.name: wire_text(tool.wire) for tool in tools}
    if len(forms) < len(tools):  # names must be unique on the wire: the provider's error is the clearer one
        return FrozenTools(tuple(tools), tuple(wire_text(tool.wire) for tool in tools), state)
    known = dict.fromkeys(state.order)
    fresh = sorted((tool for tool in tools if tool.name not in known), key=lambda tool: (not tool.client, tool.name))
    order = (*state.order, *(tool.name for tool in fresh))
    given = {tool.name: tool for tool in tools}
    frozen: list[Tool] = []
    changed = dict(state.forms)
    for name in order:
        tool = given.get(name)
        if tool is None:
            continue
        form, first = forms[name], state.forms.get(name)
        if first is not None and first != form:
            stored = cast("Mapping[str, object]", json.loads(first))
            if meaning_text(stored) == meaning_text(tool.wire):
                tool, form = tool._replace(wire=stored), first
        changed[name] = forms[name] = form
        frozen.append(tool)
    fresh_state = state if order == state.order and changed == state.forms else ToolState(order, changed)
    return FrozenTools(tuple(frozen), tuple(forms[tool.name] for tool in frozen), fresh_state)
