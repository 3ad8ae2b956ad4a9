"""The request that an input to a chain is: pure, so that answers can be put where a chain will look for them."""

from collections.abc import Mapping
from typing import cast

from headstay.semantic.request import AskedRequest, Turn, read_settings


def named(name: str) -> str:
    """Return what a chain is known by that was given a name: see `chain_request`."""
    return f"name {name}"


def chain_request(
    chain: str, given: object, question: str | None, around: Mapping[str, object], *, key: str | None = None
) -> AskedRequest:
    """Read an input that is no conversation: the question, and everything else, which must be identical.

    Args:
        chain: What the chain is known by.
        given: The input: a text, which is the question, a mapping that holds the question, or anything else.
        question: The declared question, or None.
        around: What else the answer depends on: the call's own arguments and configurable fields.
        key: Under which key of a mapping the question is; None: wherever in it the question stands just once.

    Returns:
        The request, for no tenant, user and version yet. It asks nothing where there is no question.
    """
    rest, text = given, question or ""
    if isinstance(given, str):
        rest, text = None, given
    elif isinstance(given, Mapping):
        held = cast("Mapping[str, object]", given)
        same = [name for name, item in held.items() if isinstance(item, str) and item == question]
        places = [key] if key in same else same
        place = places[0] if len(places) == 1 else None
        rest = {"at": place, "beside": {name: item for name, item in held.items() if name != place}}
    settings, opaque = read_settings({"chain": chain, **around, "rest": rest})
    asking = (Turn("user", text),) if text else ()
    return AskedRequest(turns=asking, settings=settings, opaque=opaque, query=question)
