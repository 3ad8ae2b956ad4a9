"""A request on its way into an SDK's method: as the plan reads it, and as the method takes it. Pure functions.

An SDK's keyword arguments are nearly the body that is posted. What differs: fields left unset, classes for schemas,
fields that stand in `extra_body` because the SDK has no argument for them, and beta features, which only some
methods take as an argument.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from headstay.prompt import Wire
from llama_index_headstay.tail import KEY

Body = Mapping[str, Any]

_UNSET = ("NotGiven", "Omit")
_BETA_HEADER = "anthropic-beta"
_READ = ("system", "messages", "tools", "tool_choice", "input", "instructions", "model", "thinking", "cache_control")


def as_posted(given: Body) -> dict[str, Any]:
    """Return an SDK's arguments as the body they become: nothing unset, and what `extra_body` says instead.

    Args:
        given: The keyword arguments.
    """
    body = {name: value for name, value in given.items() if type(value).__name__ not in _UNSET}
    extra = body.get("extra_body")
    if isinstance(extra, Mapping):
        known = cast("Body", extra)
        body.update({name: known[name] for name in _READ if name in known})
        body["extra_body"] = {name: value for name, value in known.items() if name not in _READ}
    return body


def schemas_shown(body: Body) -> tuple[dict[str, Any], dict[str, Any]]:
    """Put the JSON schema in the place of each class that stands for one, so that it counts by its content.

    Returns:
        The body, and the classes by their fields.
    """
    classes = {name: value for name, value in body.items() if hasattr(value, "model_json_schema")}
    shown = {name: value.model_json_schema() for name, value in classes.items()}
    return {**body, **shown}, classes


def without_own_words(
    body: Body, wire: Wire, tails: Sequence[str], earlier: Sequence[Sequence[str]] = ()
) -> tuple[dict[str, Any], bool]:
    """Take off what headstay put on the messages: per-call text at the end of human ones, and its own key.

    A memory keeps a message with the text that was for its own call; it was not sent there as a part of the message,
    and is not sent again. LlamaIndex's OpenAI class writes a message's `additional_kwargs` onto the wire where it holds
    tool calls.

    Args:
        body: The body.
        wire: Its wire format.
        tails: The per-call texts that the last human message bears, in order.
        earlier: Those that messages before it bear, newest message first.

    Returns:
        The body, and whether all of those texts were found; where one was not, none is taken off.
    """
    field = "input" if wire == "openai-responses" else "messages"
    items: object = body.get(field)
    if not isinstance(items, (list, tuple)):
        return dict(body), not tails
    messages = [_without_key(item) for item in cast("Sequence[Any]", items)]
    found = not tails
    end = len(messages)
    for texts in (tails, *earlier):
        place, shorter = _last_bearing(messages[:end], texts)
        if shorter is not None:
            messages[place], end = shorter, place
            found = found or texts is tails
    return {**body, field: messages}, found


def _last_bearing(messages: Sequence[Any], texts: Sequence[str]) -> tuple[int, dict[str, Any] | None]:
    """Find the last message that ends with these texts, and return it without them."""
    for place in range(len(messages) - 1, -1, -1) if texts else ():
        shorter = _without_tails(messages[place], texts)
        if shorter is not None:
            return place, shorter
    return -1, None


def _without_key(item: Any) -> Any:
    message = _mapping(item)
    return {name: value for name, value in message.items() if name != KEY} if KEY in message else item


def _mapping(value: object) -> Body:
    return cast("Body", value) if isinstance(value, Mapping) else {}


def _without_tails(item: Any, tails: Sequence[str]) -> dict[str, Any] | None:
    """Return a message without the texts at its end, or None where they do not stand there."""
    message = _mapping(item)
    if message.get("role") != "user":
        return None
    content: object = message.get("content")
    parts = list(cast("Sequence[Any]", content)) if isinstance(content, (list, tuple)) else []
    joined = "".join(tails)
    if isinstance(content, str):
        return {**message, "content": content[: -len(joined)]} if content.endswith(joined) else None
    if not parts:
        return None
    if [_mapping(part).get("text") for part in parts[-len(tails) :]] == list(tails):
        return {**message, "content": parts[: -len(tails)]}
    last = _mapping(parts[-1])
    text = last.get("text")
    if isinstance(text, str) and text.endswith(joined):  # texts that follow each other were joined
        return {**message, "content": [*parts[:-1], {**last, "text": text[: -len(joined)]}]}
    return None


def fitted(method: Callable[..., Any], body: Body) -> dict[str, Any]:
    """Write a body as the arguments that an SDK's method takes.

    A field that its version does not know goes into `extra_body`, and beta features into a header where the method
    has no argument for them.

    Args:
        method: The SDK's method.
        body: What to send.
    """
    names = _arguments(getattr(method, "__func__", method))
    sent = {name: value for name, value in body.items() if name in names}
    unknown = {name: value for name, value in body.items() if name not in names}
    betas = unknown.pop("betas", None)
    if betas:
        headers = dict(cast("Mapping[str, str]", body.get("extra_headers") or {}))
        asked = next((name for name in headers if name.lower() == _BETA_HEADER), _BETA_HEADER)
        features = [*(one for one in headers.get(asked, "").split(",") if one), *cast("list[str]", betas)]
        sent["extra_headers"] = {**headers, asked: ",".join(dict.fromkeys(features))}
    if unknown:
        sent["extra_body"] = {**cast("Body", body.get("extra_body") or {}), **unknown}
    return sent


def accepts(method: Callable[..., Any], name: str) -> bool:
    """Whether an SDK's method has an argument."""
    return name in _arguments(getattr(method, "__func__", method))


@lru_cache(maxsize=64)
def _arguments(method: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(method).parameters)
