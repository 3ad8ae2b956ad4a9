"""What is taken from a log: one request with what is known of its answer, or why a piece of the log was passed over."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headstay.ledger.usage import Usage
from headstay.prompt import Wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One request of a log.

    Attributes:
        line: Number of the line on which it begins, from 1; several requests may stand on one line.
        wire: The wire format of the body.
        body: The request body, as it was sent or as the log lets it be rebuilt.
        exact: Whether the body is what was sent. A rebuilt one shows the content, but not the cache markers: nothing is
            said about those.
        conversation: The id that the log gives the conversation, thread or session; empty where it gives none.
        account: What shares one provider cache, such as a project or a key's alias; empty where it is not told.
        provider: Who was asked, as `genai-prices` spells it: `anthropic`, `openai`, `azure`; empty for the wire's own.
        served_by: Which of several providers or replicas answered, where the log tells; empty elsewhere.
        started: When the request was sent, in seconds since the epoch; None where the log has no time.
        answered: When the answer began, or ended if only that is known, in the same clock; None where it is not told.
        usage: The token counts of the answer, or None.
        reply_id: The id of the answer; empty where the log has none.
        reply: The answer's texts and the ids of its tool calls, to find the request that continues it.
        diagnosis: The provider's own word for a cache miss, such as `tools_changed`; empty where it said nothing.
        context: Variant of the call that changes its price, such as `{"service_tier": "flex"}`.
    """

    line: int
    wire: Wire
    body: Mapping[str, object]
    exact: bool = True
    conversation: str = ""
    account: str = ""
    provider: str = ""
    served_by: str = ""
    started: float | None = None
    answered: float | None = None
    usage: Usage | None = None
    reply_id: str = ""
    reply: tuple[str, ...] = ()
    diagnosis: str = ""
    context: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A piece of a log that is no request.

    Attributes:
        line: Number of its line, from 1.
        reason: Why, in a few words without the line's content, so that equal ones can be counted.
        bad: Whether something is wrong with it; other records of a log that simply are no model calls are not.
    """

    line: int
    reason: str
    bad: bool = True
