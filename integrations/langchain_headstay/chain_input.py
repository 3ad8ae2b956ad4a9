"""An input to a chain, as the semantic cache sees it: the question, and everything else, which must be identical."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import convert_to_messages
from langchain_core.prompt_values import PromptValue

from headstay.semantic.chain import chain_request
from headstay.semantic.request import AskedRequest, read_settings
from langchain_headstay.asked import from_messages
from langchain_headstay.chain_content import ChainContent, class_name
from langchain_headstay.chain_identity import unseen_classes

Query = str | Callable[[Any], str | None] | None


def asked_of(chain: str, given: Any, query: Query, around: Mapping[str, object]) -> AskedRequest:
    """Read an input to a chain.

    Args:
        chain: What the chain is known by.
        given: The input.
        query: Where the question is: a key, a callable, or None for the last human message.
        around: What else the answer depends on: the call's own arguments and configurable fields.
    """
    question = _question(given, query)
    conversation = messages_in(given)
    beside, unseen = _plain(around)
    if conversation is None:
        plain, unknown = _plain(given)
        asked = chain_request(chain, plain, question, beside, key=query if isinstance(query, str) else None)
    else:
        held, rest = conversation
        plain, unknown = _plain(rest)
        made = from_messages(held, "", {})
        settings, opaque = read_settings({"chain": chain, **beside, "rest": plain})
        asked = replace(made, settings=settings, opaque=opaque or made.opaque, query=question or made.query)
    return replace(asked, opaque=asked.opaque or unknown or unseen)


def messages_in(given: Any) -> tuple[list[BaseMessage], dict[str, Any]] | None:
    """Return the messages of an input and the rest of it; None where it is no conversation."""
    rest: dict[str, Any] = {}
    if isinstance(given, PromptValue):
        return list(given.to_messages()), rest
    if isinstance(given, BaseMessage):
        return [given], rest
    if isinstance(given, Mapping) and "messages" in given:
        held = cast("Mapping[str, Any]", given)
        given, rest = held["messages"], {name: item for name, item in held.items() if name != "messages"}
    if not isinstance(given, (list, tuple)) or not given:
        return None
    items = cast("Sequence[Any]", given)
    if any(isinstance(item, str) for item in items):  # a list of texts is no conversation
        return None
    try:
        return convert_to_messages(items), rest
    except (ValueError, TypeError, NotImplementedError):
        return None


def _question(given: Any, query: Query) -> str | None:
    if callable(query):
        found = cast("object", query(given))
        return found if isinstance(found, str) else None
    if query is None:
        return None
    held = cast("Mapping[str, Any]", given).get(query) if isinstance(given, Mapping) else None
    return held if isinstance(held, str) else None


def missing_in(given: Any, query: Query) -> str:
    """Say what is wrong where a mapping has no text under the key that `query` is, or nothing.

    Args:
        given: The input.
        query: Where the question is.
    """
    if not isinstance(query, str) or not isinstance(given, Mapping):
        return ""
    held = cast("Mapping[object, object]", given)
    if query not in held:
        return f"{query!r} is no key of the input; it has: {', '.join(map(str, held)) or 'none'}"
    text = held[query]
    return "" if isinstance(text, str) and text.strip() else f"the input has no text under {query!r}"


def _plain(value: Any) -> tuple[Any, str]:
    """Return an input without the names of runs in its messages, and what in it has content that is not known."""
    if isinstance(value, BaseMessage):
        (turn,) = from_messages([value], "", {}).turns
        return [turn.role, turn.text, turn.other], "an image or file by reference" if turn.unhashed else ""
    if isinstance(value, Document):
        plain, unknown = _plain(value.metadata)
        return {"document": value.page_content, "metadata": plain}, unknown
    if isinstance(value, Mapping):
        pairs = {name: _plain(item) for name, item in cast("Mapping[object, object]", value).items()}
        return {name: plain for name, (plain, _) in pairs.items()}, _first(unknown for _, unknown in pairs.values())
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in cast("Sequence[Any]", value)]
        return [plain for plain, _ in items], _first(unknown for _, unknown in items)
    if value is None or isinstance(value, (str, int, float, bytes, bytearray)) or type(value) is object:
        return value, ""
    # An object by all its fields: a dump of a pydantic one leaves some out, and stars stand for a secret.
    content = ChainContent()
    plain, kind = content.describe(value), class_name(type(cast("object", value)))
    return plain, ", ".join(unseen_classes(content)) or (kind if content.reads_config else "")


def _first(unknown: Iterable[str]) -> str:
    return next(filter(None, unknown), "")
