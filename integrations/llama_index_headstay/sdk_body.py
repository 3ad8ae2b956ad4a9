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
    field = _field(wire)
    items: object = body.get(field)
    if not isinstance(items, (list, tuple)):
        return dict(body), not tails
    messages = [_without_key(item) for item in cast("Sequence[Any]", items)]
    place, shorter = _last_bearing(messages, tails)
    found = not tails or (shorter is not None and shorter is not messages[place])
    end = place if shorter is not None else _last_human(messages)
    if shorter is not None:
        messages[place] = shorter
    for texts in earlier:
        place, shorter = _last_bearing(messages[:end], texts)
        if shorter is not None:
            messages[place], end = shorter, place
    return {**body, field: messages}, found


def messages_of(body: Body, wire: Wire) -> dict[str, Any]:
    """Return the field of a body that holds its messages, if it has it.

    Args:
        body: The body.
        wire: Its wire format.
    """
    field = _field(wire)
    return {field: body[field]} if field in body else {}


def with_words(body: Body, wire: Wire, text: str) -> dict[str, Any]:
    """Put text at the end of a human turn that comes last: where the earlier ones are at the provider's.

    Args:
        body: The body.
        wire: Its wire format.
        text: The text; an empty one adds nothing.
    """
    field = _field(wire)
    items: object = body.get(field)
    if not text or not items:
        return dict(body)
    if isinstance(items, str):
        return {**body, field: f"{items}\n\n{text}"}
    listed = list(cast("Sequence[Any]", items))
    last = _mapping(listed[-1])
    content: object = last.get("content")
    if last.get("role") != "user" or not isinstance(content, (str, list)):
        return dict(body)
    part = {"type": "input_text" if field == "input" else "text", "text": text}
    more = f"{content}\n\n{text}" if isinstance(content, str) else [*cast("list[object]", content), part]
    return {**body, field: [*listed[:-1], {**last, "content": more}]}


def _field(wire: Wire) -> str:
    return "input" if wire == "openai-responses" else "messages"


def _last_bearing(messages: Sequence[Any], texts: Sequence[str]) -> tuple[int, Any]:
    """Find the last message that ends with these texts, and return it without them, as far as it then says anything."""
    for place in range(len(messages) - 1, -1, -1) if texts else ():
        shorter = _without_tails(messages[place], texts)
        if shorter is not None:
            return place, shorter
    return -1, None


def _last_human(messages: Sequence[Any]) -> int:
    """Find the last message that holds a human's words; what is borne by earlier ones does not stand in it."""
    for place in range(len(messages) - 1, -1, -1):
        message = _mapping(messages[place])
        content: object = message.get("content")
        parts = cast("Sequence[object]", content) if isinstance(content, (list, tuple)) else [message]
        if message.get("role") == "user" and any(_mapping(part).get("type") != "tool_result" for part in parts):
            return place
    return 0


def _without_key(item: Any) -> Any:
    message = _mapping(item)
    return {name: value for name, value in message.items() if name != KEY} if KEY in message else item


def _mapping(value: object) -> Body:
    return cast("Body", value) if isinstance(value, Mapping) else {}


def _without_tails(item: Any, tails: Sequence[str]) -> Any:
    """Return a message without the texts at its end; None where they do not stand there.

    One that holds nothing else is returned as it is: providers refuse an empty message.
    """
    message = _mapping(item)
    rest = _before(message.get("content"), tails) if message.get("role") == "user" else None
    if rest is None:
        return None
    says = rest.strip() if isinstance(rest, str) else any(map(_says, rest))
    return {**message, "content": rest} if says else item


def _before(content: object, tails: Sequence[str]) -> str | list[Any] | None:
    """Return what stands before the texts at the end of a content, or None where they do not stand there."""
    joined = "".join(tails)
    if isinstance(content, str):
        return content[: -len(joined)] if content.endswith(joined) else None
    parts = list(cast("Sequence[Any]", content)) if isinstance(content, (list, tuple)) else []
    if not parts:
        return None
    if [_mapping(part).get("text") for part in parts[-len(tails) :]] == list(tails):
        return parts[: -len(tails)]
    last = _mapping(parts[-1])
    text = last.get("text")
    if not isinstance(text, str) or not text.endswith(joined):
        return None
    own = {**last, "text": text[: -len(joined)]}  # texts that follow each other were joined
    return [*parts[:-1], *([own] if _says(own) else [])]


def _says(part: Any) -> bool:
    """Whether a part of a content is anything but an empty text."""
    text = _mapping(part).get("text")
    return not isinstance(text, str) or bool(text.strip())


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
