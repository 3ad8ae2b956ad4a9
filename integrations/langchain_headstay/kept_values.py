"""What a chain returns, in JSON values and back: texts, numbers, lists, mappings, messages and documents."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    BaseMessageChunk,
    message_chunk_to_message,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.messages.base import TextAccessor

from headstay.semantic.lookup import Lookup
from langchain_headstay.replay import served

_MARK = "__headstay__"


def to_json(value: object) -> Any:
    """Write a value in JSON values.

    Raises:
        TypeError: There is something in it that could not be read back as it was.
        ValueError: The same.
    """
    return json.loads(json.dumps(_told(value), ensure_ascii=False, allow_nan=False))


def from_json(told: Any, lookup: Lookup) -> Any:
    """Read what `to_json` wrote; replies in it are new messages that say they were served.

    Args:
        told: What was written.
        lookup: The hit.
    """
    if isinstance(told, list):
        return [from_json(one, lookup) for one in cast("list[object]", told)]
    if not isinstance(told, dict):
        return told
    known = cast("dict[str, Any]", told)
    if known.get(_MARK) == "document":
        return Document(page_content=known["text"], metadata=known["metadata"], id=known["id"])
    if known.get(_MARK) == "message":
        message = messages_from_dict([known["message"]])[0]
        if isinstance(message, AIMessage):
            return served(message, lookup)
        return message.model_copy(update={"id": str(uuid4())})
    return {name: from_json(item, lookup) for name, item in known.items()}


def text_in(value: object) -> str:
    """Return what a reader sees of a value; empty where there is nothing to see."""
    if isinstance(value, BaseMessage):
        return value.text
    if isinstance(value, Mapping):
        held = cast("Mapping[str, object]", value)
        named = next((text_in(held[name]) for name in ("answer", "output", "result", "text") if name in held), None)
        return ("..." if held else "") if named is None else named
    if isinstance(value, str):
        return value
    return "" if value is None or value == [] else "..."


def _told(value: object) -> object:
    kind = type(value).__name__
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, TextAccessor):  # what `StrOutputParser` makes of a message: a text, and callable for old code
        return str(value)
    if isinstance(value, Document):
        told = {"text": value.page_content, "metadata": _told(value.metadata), "id": value.id}
        return {_MARK: "document", **told}
    if isinstance(value, BaseMessage):
        whole = message_chunk_to_message(value) if isinstance(value, BaseMessageChunk) else value
        return {_MARK: "message", "message": _told(messages_to_dict([whole])[0])}
    if type(value) is list:
        return [_told(one) for one in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        held = cast("dict[object, object]", value)
        if _MARK not in held and all(isinstance(name, str) for name in held):
            return {name: _told(item) for name, item in held.items()}
    raise TypeError(f"a {kind} could not be read back from JSON as it was")
