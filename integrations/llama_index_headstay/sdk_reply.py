"""What an SDK's answer, or an event of its stream, says of how the reply ended. Pure functions."""

from typing import Any

from headstay.prompt import Wire

REFUSED = "refusal"


def ending(wire: Wire, answer: Any) -> str | None:
    """Return the provider's word for how a reply ended; None where this answer or event says nothing of it.

    Args:
        wire: The wire format that it came by.
        answer: The SDK's object.
    """
    if wire == "anthropic-messages":
        delta = getattr(answer, "delta", None)
        return _word(answer, "stop_reason") or _word(delta, "stop_reason")
    if wire == "openai-responses":
        return _response_ending(answer)
    choices: Any = getattr(answer, "choices", None) or ()
    for choice in choices:
        said: Any = getattr(choice, "message", None) or getattr(choice, "delta", None)
        if getattr(said, REFUSED, None):
            return REFUSED
    return next((word for choice in choices if (word := _word(choice, "finish_reason"))), None)


def _response_ending(answer: Any) -> str | None:
    for item in getattr(answer, "output", None) or ():
        if any(getattr(part, "type", "") == REFUSED for part in getattr(item, "content", None) or ()):
            return REFUSED
    return _word(getattr(answer, "incomplete_details", None), "reason") or _word(answer, "status")


def _word(holder: Any, name: str) -> str | None:
    found = getattr(holder, name, None)
    return found if isinstance(found, str) and found else None
