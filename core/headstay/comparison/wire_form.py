"""Tells which wire format a request body is of, and checks that it is one."""

from collections.abc import Mapping, Sequence
from typing import cast

from headstay.comparison.segment import Json
from headstay.errors import WireError
from headstay.prompt import Wire

_WIRES: tuple[Wire, ...] = ("anthropic-messages", "openai-chat", "openai-responses")
_NAMES = {"dict": "an object", "list": "a list", "str": "text", "bool": "true or false", "NoneType": "null"}
_DECISIVE = 100  # against a field that gateways pass through to another wire
_ANTHROPIC_FIELDS = frozenset({"thinking", "stop_sequences", "top_k", "anthropic_version", "output_config"})
_CHAT_FIELDS = frozenset(
    {
        *("response_format", "max_completion_tokens", "frequency_penalty", "presence_penalty", "n", "logprobs", "seed"),
        *("stream_options", "parallel_tool_calls", "prompt_cache_key", "reasoning_effort", "logit_bias", "stop"),
        *("top_logprobs", "functions", "function_call", "verbosity", "modalities", "store", "prompt_cache_options"),
    }
)
_ANTHROPIC_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "redacted_thinking", "document", "image"})
_CHAT_PARTS = frozenset({"image_url", "input_audio", "refusal", "file"})


def wire_of(body: object, name: str) -> tuple[Wire, bool]:
    """Tell the wire format of a request body.

    Args:
        body: What was read.
        name: What to call it in a message.

    Returns:
        The format, and whether anything in the body speaks for it; a short request may be of either of two.

    Raises:
        WireError: It is no request body of a format that is known.
    """
    if not isinstance(body, Mapping):
        raise WireError(f"{name}: a request body is a JSON object, this is {_kind(body)}")
    fields = cast("Json", body)
    if "messages" in fields:
        anthropic, chat = _evidence(fields)
        if anthropic == chat:
            return ("anthropic-messages" if "claude" in str(fields.get("model", "")) else "openai-chat"), False
        return ("anthropic-messages" if anthropic > chat else "openai-chat"), True
    if "input" in fields or ("instructions" in fields and "prompt" not in fields):
        return "openai-responses", True
    if "choices" in fields or "output" in fields or fields.get("type") == "message":
        raise WireError(f"{name}: this is a response; give the request that was sent")
    if "request" in fields:
        raise WireError(f'{name}: this is a log entry; give what stands under "request"')
    raise WireError(
        f'{name}: no request body: it has neither "messages" (Anthropic Messages, OpenAI Chat Completions) nor "input" '
        "(OpenAI Responses)"
    )


def common_wire(request_a: object, request_b: object, wire: Wire | None) -> Wire:
    """Tell the wire format of two request bodies.

    Args:
        request_a: The earlier body.
        request_b: The later body.
        wire: The format they are said to be of, or None.

    Raises:
        WireError: One is no request body, they are of two formats, or not of the one given.
    """
    if wire is not None and wire not in _WIRES:
        raise WireError(f"wire={wire!r}: say one of {', '.join(_WIRES)}")
    (one, sure_a), (other, sure_b) = wire_of(request_a, "A"), wire_of(request_b, "B")
    if wire is not None:
        for name, found, sure in (("A", one, sure_a), ("B", other, sure_b)):
            if found != wire and (sure or "openai-responses" in (found, wire)):
                raise WireError(f"{name}: wire={wire!r} was given, but the body is of {found}")
        return wire
    if one == other:
        return one
    if "openai-responses" in (one, other) or (sure_a and sure_b):
        raise WireError(f"A is of {one} and B of {other}; only requests of one wire format share a cache")
    return one if sure_a else other


def objects(value: object, where: str) -> Sequence[Json]:
    """Check that a value is a list of JSON objects.

    Raises:
        WireError: It is not; the message says where.
    """
    if not isinstance(value, (list, tuple)):
        raise WireError(f"{where}: expected a list of objects, got {_kind(value)}")
    items = cast("Sequence[object]", value)
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise WireError(f"{where}[{index}]: expected an object, got {_kind(item)}")
    return cast("Sequence[Json]", items)


def _kind(value: object) -> str:
    name = type(value).__name__
    return _NAMES.get(name, "a number" if isinstance(value, (int, float)) else name)


def _evidence(body: Json) -> tuple[int, int]:
    """Weigh what speaks for Anthropic Messages and what for Chat Completions."""
    anthropic = len(_ANTHROPIC_FIELDS & body.keys()) + ("cache_control" in body) + _DECISIVE * ("system" in body)
    chat = len(_CHAT_FIELDS & body.keys())
    for tool in _objects(body.get("tools")):
        anthropic += _DECISIVE * ("input_schema" in tool)
        chat += _DECISIVE * ("function" in tool)
    for index, message in enumerate(_objects(body.get("messages"))):
        if abs(anthropic - chat) >= _DECISIVE:
            break
        role = str(message.get("role"))
        operator = role == "system" and not index
        chat += _DECISIVE * (operator or role in ("tool", "function", "developer") or bool(message.get("tool_calls")))
        for block in _objects(message.get("content")):
            kind = str(block.get("type"))  # whatever a log holds there
            anthropic += _DECISIVE * (kind in _ANTHROPIC_BLOCKS) + ("cache_control" in block)
            chat += _DECISIVE * (kind in _CHAT_PARTS)
    return anthropic, chat


def _objects(value: object) -> Sequence[Json]:
    if not isinstance(value, (list, tuple)):
        return ()
    return [cast("Json", item) for item in cast("Sequence[object]", value) if isinstance(item, Mapping)]
