"""Two request bodies to the causes of their difference, with what each costs and how to mend it.

```
diff --> wire_form, reading_*      two bodies to segments in wire order
     --> tool_list, system_text,   what differs in each tier
         parameters, history,
         breakpoints
     --> cost, remedies            findings
```
"""

from collections.abc import Sequence

from headstay.causes import Cause
from headstay.comparison import reading_anthropic, reading_openai
from headstay.comparison.breakpoints import compare_marks, last_written
from headstay.comparison.cost import Cost
from headstay.comparison.finding import Divergence, Draft, Finding
from headstay.comparison.history import Aligned, compare_histories
from headstay.comparison.parameters import compare_parameters, first_image
from headstay.comparison.segment import Json, Request
from headstay.comparison.system_text import compare_system
from headstay.comparison.tool_list import compare_tools
from headstay.comparison.wire_form import common_wire
from headstay.errors import WireError
from headstay.excerpt import excerpt
from headstay.prompt import Wire
from headstay.providers.rules import find_rules
from headstay.remedies import REMEDIES

__all__ = ["Divergence", "Finding", "diff"]


def diff(request_a: Json, request_b: Json, *, wire: Wire | None = None) -> Divergence:
    """Say why request B does not continue the prefix of request A.

    A request that only adds to the other is clean. So are cache markers that moved, a text given as one text block, a
    last question that was changed before it was answered, and a request of another conversation with the same head.

    Args:
        request_a: The earlier request body: Anthropic Messages, OpenAI Chat Completions or OpenAI Responses.
        request_b: The later request body.
        wire: The wire format of both; found out where it is not given.

    Returns:
        Every cause that the two bodies show, the one at the earliest place first: tools, then system text, then
        messages. Tokens are estimated from bytes; images and files count nothing.

    Raises:
        WireError: One is no request body, or they are of two wire formats.

    Examples:
        >>> ask = {"model": "gpt-5.4", "messages": [{"role": "system", "content": "Today is 2026-11-29."}]}
        >>> later = {"model": "gpt-5.4", "messages": [{"role": "system", "content": "Today is 2026-11-30."}]}
        >>> [(found.cause.value, found.path, found.at) for found in diff(ask, later).findings]
        [('clock_in_head', 'messages[0].content', 17)]
    """
    form = common_wire(request_a, request_b, wire)
    return compare(_named(request_a, "A", form), _named(request_b, "B", form))


def read(body: Json, wire: Wire) -> Request:
    """Read a request body for comparison.

    Raises:
        WireError: A field is not of the form the API takes.
    """
    return reading_anthropic.read(body) if wire == "anthropic-messages" else reading_openai.read(body, wire)


def compare(before: Request, after: Request, *, one_conversation: bool = True) -> Divergence:
    """Do what `diff` does, with two requests of one wire format that were read before.

    Args:
        before: The earlier request.
        after: The later request.
        one_conversation: False where they are known to be of two; else the histories tell.
    """
    rules = find_rules(after.wire, after.model)
    history = _histories(before, after)
    drafts = compare_parameters(before, after, rules) + first_image(before, after, rules, shared=history.shared)
    head = compare_tools(before, after)
    same_conversation = one_conversation and (history.shared > 0 or bool(history.drafts))
    head += compare_system(before.system, after.system, same_conversation=same_conversation)
    drafts += compare_marks(before, after, rules, shared=history.shared, head_same=not head)
    found = sorted([*drafts, *head, *history.drafts], key=lambda draft: draft.place)
    cost = Cost(before, after, history)
    findings = tuple(_finding(draft, cost) for draft in _told(found))
    lost = max((finding.lost_tokens for finding in findings), default=0)
    return Divergence(not findings, after.wire, cost.shared(found), lost, findings)


def _named(body: Json, name: str, wire: Wire) -> Request:
    try:
        return read(body, wire)
    except WireError as problem:
        raise WireError(f"{name}: {problem}") from problem


def _histories(before: Request, after: Request) -> Aligned:
    if after.held or before.held:  # the body shows only what is new; the rest is with the provider
        return Aligned((), 0, [False] * len(after.messages))
    return compare_histories(before.messages, after.messages, written=last_written(before))


def _told(drafts: Sequence[Draft]) -> list[Draft]:
    """Leave out what another finding already says."""
    causes = {draft.cause for draft in drafts}
    told = list(drafts)
    if Cause.HISTORY_SUMMARISED in causes:
        told = [draft for draft in told if draft.cause != Cause.HISTORY_DROPPED]
    return told


def _finding(draft: Draft, cost: Cost) -> Finding:
    return Finding(
        draft.cause,
        draft.path,
        draft.at,
        excerpt(draft.before, 0, len(draft.before)),
        excerpt(draft.after, 0, len(draft.after)),
        draft.remedy or REMEDIES[draft.cause],
        cost.lost(draft),
    )
