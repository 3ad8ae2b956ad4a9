"""A LangChain model call, messages and invocation parameters, to the request body of its wire form."""

from collections.abc import Mapping, Sequence
from typing import cast

from headstay.comparison.segment import Json, mapping
from headstay.prompt import Wire
from headstay.trace.fields import json_objects
from headstay.trace.lc_anthropic import anthropic_messages
from headstay.trace.lc_messages import Message
from headstay.trace.lc_openai import chat_messages, response_items
from headstay.trace.untyped import items, text_of

# Settings of the host's model object that its invocation parameters show beside the request's fields.
_HOST_ONLY = frozenset(
    {
        *("_type", "stop", "stream", "streaming", "model_kwargs", "model_name", "model_id", "max_retries", "timeout"),
        *("default_request_timeout", "request_timeout", "use_responses_api", "output_version", "model"),
        *("ls_structured_output_format", "structured_output_format", "messages", "input", "strict", "provider"),
    }
)
_RESPONSES_ONLY = ("context_management", "include", "previous_response_id", "reasoning", "text", "truncation")
_CHAT_TOOLS = ("function", "custom")


def request_body(messages: Sequence[Message], params: Json, *, model: str, wire: Wire) -> dict[str, object]:
    """Rebuild the request body of a call.

    Args:
        messages: The messages it was made with.
        params: The invocation parameters.
        model: The model.
        wire: The wire form it had.
    """
    given = {**params, **mapping(params.get("model_kwargs"))}
    fields = {key: value for key, value in given.items() if value is not None and key not in _HOST_ONLY}
    stop = given.get("stop")
    if wire == "anthropic-messages":
        system, found = anthropic_messages(messages)
        _move_effort(fields)
        body: dict[str, object] = {
            "model": model,
            **({"system": system} if system else {}),
            "messages": found,
            **fields,
        }
        return {**body, "stop_sequences": stop} if stop else body
    if wire == "openai-responses":
        return {"model": model, "input": response_items(messages), **_response_fields(fields)}
    body = {"model": model, "messages": chat_messages(messages), **fields}
    return {**body, "stop": stop} if stop else body


def uses_responses(params: Json, settings: Json, messages: Sequence[Message], reply: Message | None) -> bool:
    """Whether a call of an OpenAI model went to the Responses API.

    Args:
        params: The invocation parameters; they do not always tell.
        settings: What the model object was made with.
        messages: The messages it was made with.
        reply: The answer, if the log has it.
    """
    for known in (params, settings):
        if isinstance(known.get("use_responses_api"), bool):
            return bool(known["use_responses_api"])
    if settings.get("output_version") == "responses/v1" or any(params.get(key) for key in _RESPONSES_ONLY):
        return True
    if any(tool.get("type", "function") not in _CHAT_TOOLS for tool in json_objects(params.get("tools"))):
        return True
    replies = [reply] if reply else [message for message in messages if message.speaker == "ai"][-1:]
    return any(_is_response(message) for message in replies)


def held_by_provider(messages: Sequence[Message]) -> tuple[Sequence[Message], str]:
    """Return what goes out where the provider holds the history, and the id of the reply that it continues."""
    for number in range(len(messages) - 1, -1, -1):
        if messages[number].speaker == "ai" and _is_response(messages[number]):
            return messages[number + 1 :], reply_id(messages[number])
    return messages, ""


def reply_id(message: Message) -> str:
    """Return the provider's id of a reply; empty where only LangChain's own is known."""
    given = text_of(message.metadata.get("id"))
    return given or ("" if message.id.startswith(("lc_", "run-", "run--")) else message.id)


def without_system_message(body: Json) -> dict[str, object]:
    """Move a leading system message to the field that Anthropic Messages has for it.

    LangSmith's wrapper of the Anthropic SDK shows it as the first message.
    """
    messages = items(body.get("messages"))
    first = mapping(messages[0] if messages else None)
    if first.get("role") != "system" or "system" in body:
        return dict(body)
    rest = {key: value for key, value in body.items() if key != "messages"}
    return {**rest, "system": first.get("content"), "messages": list(messages[1:])}


def _is_response(message: Message) -> bool:
    return message.metadata.get("object") == "response" or reply_id(message).startswith("resp_")


def _move_effort(fields: dict[str, object]) -> None:
    """Put the effort where the Messages API has it."""
    given = [fields.pop(key, None) for key in ("reasoning_effort", "effort")]
    effort = given[1] or given[0]
    if effort:
        fields["output_config"] = {**mapping(fields.get("output_config")), "effort": effort}


def _response_fields(fields: Json) -> Json:
    """Turn Chat Completions' spelling of the parameters into that of the Responses API."""
    made = dict(fields)
    for key in ("max_tokens", "max_completion_tokens"):
        if key in made:
            made["max_output_tokens"] = made.pop(key)
    if "reasoning_effort" in made and "reasoning" not in made:
        made["reasoning"] = {"effort": made.pop("reasoning_effort")}
    if items(made.get("tools")):
        made["tools"] = [_flat(tool) for tool in items(made["tools"])]
    if isinstance(made.get("tool_choice"), Mapping):
        made["tool_choice"] = _flat(made["tool_choice"])
    text = dict(mapping(made.get("text")))
    schema = mapping(made.pop("response_format", None))
    if schema:
        named = mapping(schema.get("json_schema"))
        text["format"] = {"type": "json_schema", **named} if named else dict(schema)
    if made.get("verbosity") is not None:
        text["verbosity"] = made.pop("verbosity")
    return {**made, "text": text} if text else made


def _flat(tool: object) -> object:
    fields = mapping(tool)
    function = fields.get("function")
    if fields.get("type") != "function" or not isinstance(function, Mapping):
        return tool
    beside = {key: value for key, value in fields.items() if key not in ("type", "function")}
    return {"type": "function", **cast("Json", function), **beside}
