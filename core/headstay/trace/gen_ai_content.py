"""The messages, instructions and tools of a model call, under the names of whichever convention logged them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headstay.comparison.segment import Json, mapping
from headstay.comparison.wire_form import wire_of
from headstay.errors import WireError
from headstay.prompt import Wire
from headstay.trace.answer import answer_of
from headstay.trace.fields import decoded, json_object, json_objects
from headstay.trace.gen_ai_messages import Said, call_part, parts_of, read_said
from headstay.trace.otel_values import listed
from headstay.trace.untyped import first_text, items, text_of

_BLOCKS = ("text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "image_url", "document")
_REASONING = ("reasoning", "thinking")


@dataclass(frozen=True, slots=True)
class Content:
    """What was asked.

    Attributes:
        system: Parts of the instructions that stand apart from the messages.
        messages: The messages.
        tools: The tool definitions.
        fields: Other fields of the request.
    """

    system: Sequence[Json] = ()
    messages: Sequence[Said] = ()
    tools: Sequence[Json] = ()
    fields: Mapping[str, object] | None = None


def content_of(attributes: Json) -> Content:
    """Return what a span or an event says that was asked; without messages where it does not tell.

    Args:
        attributes: Of the current GenAI conventions, of OpenLLMetry, or of OpenInference.

    Raises:
        WireError: A message is not of a known form.
    """
    tools = listed(attributes, "gen_ai.tool.definitions") or listed(attributes, "llm.request.functions")
    system = parts_of(decoded(attributes.get("gen_ai.system_instructions")) or None)
    said = read_said(attributes.get("gen_ai.input.messages"))
    if said:
        return Content(system, said, tools, _fields(attributes))
    prompts = listed(attributes, "gen_ai.prompt")
    if prompts:
        return Content(system, [_prompt(prompt) for prompt in prompts], tools, _fields(attributes))
    shown = [mapping(message.get("message")) or message for message in listed(attributes, "llm.input_messages")]
    schemas = [json_object(mapping(tool.get("tool")).get("json_schema")) for tool in listed(attributes, "llm.tools")]
    given = dict(json_object(attributes.get("llm.invocation_parameters")))
    fields = {key: value for key, value in given.items() if key not in ("model", "messages", "tools", "stream")}
    return Content((), [_inferred(message) for message in shown], [tool for tool in schemas if tool] or tools, fields)


def sent_body(attributes: Json) -> tuple[Json, Wire] | None:
    """Return the request body that OpenInference keeps beside its attributes; None where it is not one."""
    body = json_object(attributes.get("input.value"))
    messages = items(body.get("messages", body.get("input")))
    if "model" not in body or len(json_objects(messages)) != len(messages):
        return None
    try:
        wire, sure = wire_of(body, "input.value")
    except WireError:
        return None
    if not sure and first_text(attributes, "llm.system", "llm.provider") == "anthropic":
        wire = "anthropic-messages"
    return body, wire


def answer_texts(attributes: Json) -> tuple[str, ...]:
    """Return the texts of an answer and the ids of its tool calls.

    Raises:
        WireError: An answer is not of a known form.
    """
    said = read_said(attributes.get("gen_ai.output.messages"))
    said = said or [_prompt(prompt) for prompt in listed(attributes, "gen_ai.completion")]
    shown = [mapping(message.get("message")) or message for message in listed(attributes, "llm.output_messages")]
    return texts_of(said or [_inferred(message) for message in shown])


def texts_of(messages: Sequence[Said]) -> tuple[str, ...]:
    """Return the texts of messages and the ids of their tool calls."""
    parts = [part for said in messages for part in said.parts]
    spoken = [part for part in parts if part.get("type") not in _REASONING]
    texts = [text_of(part.get("content")) or text_of(part.get("text")) for part in spoken]
    calls = [first_text(part, "id") for part in parts if part.get("type") in ("tool_call", "tool_use")]
    return tuple(dict.fromkeys(text for text in (*texts, *calls) if text.strip()))


def answer_id(attributes: Json) -> str:
    """Return the provider's id of the answer; empty where it is not told."""
    return first_text(attributes, "gen_ai.response.id") or answer_of(attributes.get("output.value")).reply_id


def _fields(attributes: Json) -> dict[str, object]:
    """Return request fields beside the content that take part in a cache's key."""
    fields: dict[str, object] = {}
    effort = first_text(attributes, "gen_ai.request.reasoning_effort")
    if effort:
        fields["reasoning_effort"] = effort
    kind = first_text(attributes, "anthropic.thinking.type")
    if kind:
        fields["thinking"] = {"type": kind}
    schema = decoded(attributes.get("gen_ai.request.structured_output_schema"))
    if isinstance(schema, Mapping):
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif attributes.get("gen_ai.output.type") == "json":
        fields["response_format"] = {"type": "json_object"}
    return fields


def _prompt(prompt: Json) -> Said:
    """Read a message of OpenLLMetry, which writes content that is no text as JSON."""
    content = decoded(prompt.get("content"))
    blocks = json_objects(content)
    if not blocks or any(block.get("type") not in _BLOCKS for block in blocks):
        content = text_of(prompt.get("content")) or None
    parts = parts_of(content)
    role = text_of(prompt.get("role")) or "user"
    if role == "thinking":
        return Said("assistant", [{"type": "reasoning", "content": text_of(prompt.get("content"))}])
    calls = [call_part(call) for call in json_objects(prompt.get("tool_calls"))]
    answers = first_text(prompt, "tool_call_id")
    if role == "tool" and answers:
        parts = [{"type": "tool_call_response", "id": answers, "response": text_of(prompt.get("content"))}]
    return Said(role, [*parts, *calls])


def _inferred(message: Json) -> Said:
    """Read a message of OpenInference."""
    parts = [_inferred_part(part) for part in json_objects(message.get("contents"))]
    if not parts:
        parts = parts_of(text_of(message.get("content")) or None)
    there = {first_text(part, "id") for part in parts if part.get("type") == "tool_call"}
    calls = [call_part(mapping(call.get("tool_call")) or call) for call in json_objects(message.get("tool_calls"))]
    role = text_of(message.get("role")) or "user"
    answers = first_text(message, "tool_call_id")
    if answers and role in ("tool", "user"):
        parts = [{"type": "tool_call_response", "id": answers, "response": text_of(message.get("content"))}]
    return Said(role, [*parts, *(call for call in calls if first_text(call, "id") not in there)])


def _inferred_part(part: Json) -> Json:
    content = mapping(part.get("message_content")) or part
    call = mapping(part.get("tool_call"))
    if call:
        return call_part(call)
    kind = text_of(content.get("type"))
    if kind == "image" or "image" in content:
        image = mapping(content.get("image"))
        url = first_text(mapping(image.get("image")) or image, "url")
        return {"type": "uri", "modality": "image", "uri": url}
    if kind == "reasoning":
        thought = {"type": "reasoning", "content": text_of(content.get("text"))}
        return {**thought, "signature": content["signature"]} if content.get("signature") else thought
    return {"type": "text", "content": text_of(content.get("text"))} if kind in ("text", "") else content
