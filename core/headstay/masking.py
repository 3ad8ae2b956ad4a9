"""How many masked tools a list may carry: a union keeps the head, and must not become larger than what it saves."""

from dataclasses import replace

from headstay.canonical import size_of
from headstay.toolset import FrozenTools

MOST_MASKED = 64
SMALL_BYTES = 4_096
"""Masked definitions up to this size are no burden however small the head is: about the least that is cached at all."""

_NOTICE = (
    "the tools that are declared and not offered {why}, so the list is sent as it is offered and changes with the "
    "offer; give agents with different tools different names, or offer fewer tools over the life of an agent"
)


def bounded(frozen: FrozenTools, system_bytes: int) -> tuple[FrozenTools, tuple[str, ...]]:
    """Leave the masked tools out of a list where they are more than the head is worth, or would be refused.

    Anthropic (tool search, seen 2026-11-29): at least one tool of a list is not deferred.

    An offered tool is never left out, nor is one that stands in the messages: what was sent there stays. A call of a
    tool that is left out is refused as before, since it is not offered.

    Args:
        frozen: The tools of one call.
        system_bytes: Size of the system texts of the head.

    Returns:
        The tools to declare, the same object where nothing was to do, and a notice where something was.
    """
    masked = frozenset(frozen.masked)
    sizes = [size_of(form) for form in frozen.forms]
    dropped = [tool.name in masked for tool in frozen.tools]
    burden = sum(size for size, drop in zip(sizes, dropped, strict=True) if drop)
    if any(dropped) and all(tool.deferred for tool in frozen.tools):
        why = "are deferred like all others in the list, which a provider refuses"
    elif sum(dropped) > MOST_MASKED:
        why = f"are more than {MOST_MASKED}"
    elif burden > max(SMALL_BYTES, sum(sizes) - burden + system_bytes):
        why = "would more than double the head"
    else:
        return frozen, ()
    kept = [(tool, form) for tool, form, drop in zip(frozen.tools, frozen.forms, dropped, strict=True) if not drop]
    gone = {tool.name for tool, drop in zip(frozen.tools, dropped, strict=True) if drop}
    return (
        replace(
            frozen,
            tools=tuple(tool for tool, _ in kept),
            forms=tuple(form for _, form in kept),
            masked=tuple(name for name in frozen.masked if name not in gone),
        ),
        (_NOTICE.format(why=why),),
    )
