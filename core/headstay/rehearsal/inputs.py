"""What a runnable takes: read off its input schema, or else found by trying."""

from collections.abc import Callable, Sequence
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.errors import RehearsalError

Shape = Callable[[Sequence[object], str], object]
"""From the conversation so far and a question to the input of a call."""

_QUESTIONS = (
    *("question", "input", "query", "user_input", "user_message", "user_msg", "message", "text", "prompt", "request"),
    "topic",
)
_ANSWERS = ("output", "answer", "result")


def shapes(made: object) -> list[Shape]:
    """Return the forms of input to try, the likeliest first.

    Raises:
        RehearsalError: A variable is neither a text nor a list of messages.
    """
    schema = _schema(made)
    properties = mapping(schema.get("properties"))
    if "root" not in properties and properties:
        return [_named(properties, schema.get("required"))]
    kinds = _kinds(schema)
    if "array" in kinds:
        return [_messages]
    if "string" in kinds:
        return [_text]
    if hasattr(made, "checkpointer"):  # a graph whose types give no schema, such as a TypedDict before Python 3.12
        return [_state]
    if "object" in kinds and not properties:
        return [_any_name]
    return [_text, _any_name, _messages]


def said_by_user(text: str) -> dict[str, str]:
    """Return a user message in the form that every framework takes."""
    return {"role": "user", "content": text}


def continued(said: Sequence[object], text: str, result: object) -> list[object]:
    """Return the conversation after an answer, for an agent that keeps none itself.

    Args:
        said: The conversation before the question.
        text: The question.
        result: What the agent returned.
    """
    fields = mapping(result)
    if whole := _listed(fields.get("messages")):
        return list(whole)
    reply: object = next((fields[name] for name in _ANSWERS if name in fields), result)
    if not (hasattr(reply, "content") and hasattr(reply, "type")):
        reply = {"role": "assistant", "content": str(reply)}
    return [*said, said_by_user(text), reply]


def _schema(made: object) -> Json:
    """Return the JSON schema of the input; empty where there is none."""
    ask = getattr(made, "get_input_jsonschema", None)
    try:
        return mapping(ask()) if callable(ask) else {}
    except Exception:  # noqa: BLE001 - made from the user's own types; without it the forms are tried
        return {}


def _kinds(schema: Json) -> set[str]:
    """Return the JSON types that a schema admits."""
    either = [schema, *(mapping(one) for name in ("anyOf", "oneOf") for one in _listed(schema.get(name)))]
    return {str(one["type"]) for one in either if "type" in one}


def _listed(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else ()


def _text(_: Sequence[object], text: str) -> object:
    return text


def _messages(said: Sequence[object], text: str) -> object:
    return [*said, said_by_user(text)]


def _state(said: Sequence[object], text: str) -> object:
    return {"messages": _messages(said, text)}


def _any_name(said: Sequence[object], text: str) -> object:
    return {**dict.fromkeys(_QUESTIONS, text), "messages": _messages(said, text), "chat_history": list(said)}


def _named(properties: Json, required: object) -> Shape:
    """Fill the variables of a prompt or the fields of a state: the question changes, all else stays."""
    needed = set(_listed(required))
    texts = [name for name, schema in properties.items() if _is_text(name, mapping(schema))]
    lists = [name for name, schema in properties.items() if name not in texts and _is_history(name, mapping(schema))]
    if odd := [name for name in properties if name in needed and name not in texts and name not in lists]:
        raise RehearsalError(
            f"its input {odd[0]!r} is neither a text nor a list of messages; "
            "write a function without arguments that runs a short conversation, and name that one"
        )
    asked = "" if "messages" in lists else next((name for name in _QUESTIONS if name in texts), (texts or [""])[-1])
    constant = {name: f"some {name.replace('_', ' ')}" for name in texts if name in needed and name != asked}

    def shape(said: Sequence[object], text: str) -> object:
        held = {name: _messages(said, text) if name == "messages" else list(said) for name in lists}
        return {**constant, **held, **({asked: text} if asked else {})}

    return shape


def _is_text(name: str, schema: Json) -> bool:
    kinds = _kinds(schema)
    return "string" in kinds or (not kinds and "$ref" not in schema and not _sounds_like_history(name))


def _is_history(name: str, schema: Json) -> bool:
    return "array" in _kinds(schema) or _sounds_like_history(name)


def _sounds_like_history(name: str) -> bool:
    return name.endswith(("messages", "history"))
