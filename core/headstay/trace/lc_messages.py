"""LangChain messages as logs hold them: constructor records, `{type, data}`, plain dumps, and `{role, content}`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from headstay.comparison.segment import Json, mapping
from headstay.errors import WireError
from headstay.trace.fields import decoded, json_objects
from headstay.trace.untyped import first_text, items, text_of

Speaker = Literal["system", "human", "ai", "tool"]
Content = str | list[Json]

_SPEAKERS: Mapping[str, Speaker] = {
    "system": "system",
    "developer": "system",
    "human": "human",
    "user": "human",
    "ai": "ai",
    "assistant": "ai",
    "tool": "tool",
    "function": "tool",
}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a message.

    Attributes:
        id: Its id; empty where it has none.
        name: The tool.
        arguments: An object, or the text that the model wrote where that is no JSON.
    """

    id: str
    name: str
    arguments: object


@dataclass(frozen=True, slots=True)
class Message:
    """One LangChain message.

    Attributes:
        speaker: Whose it is.
        content: A text, or content blocks.
        role: The role to send where it is not the usual one, such as `developer`; empty elsewhere.
        name: The name that was given to the message.
        calls: Tool calls of an `ai` message, those with broken arguments last.
        answers: Of a `tool` message, the id of the call it answers.
        failed: Whether a tool's result is an error.
        metadata: The provider's words about a reply.
        extra: What the host keeps beside the content.
        id: The message's id, often the provider's.
        usage: Token counts of a reply in LangChain's form; empty where it has none.
    """

    speaker: Speaker
    content: Content
    role: str = ""
    name: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""
    failed: bool = False
    metadata: Json = field(default_factory=dict[str, object], hash=False)
    extra: Json = field(default_factory=dict[str, object], hash=False)
    id: str = ""
    usage: Json = field(default_factory=dict[str, object], hash=False)

    @property
    def blocks(self) -> list[Json]:
        """The content as blocks."""
        return [{"type": "text", "text": self.content}] if isinstance(self.content, str) else self.content


def read_messages(value: object) -> list[Message]:
    """Read a list of messages.

    Raises:
        WireError: One of them is none.
    """
    return [read_message(item) for item in items(value)]


def read_message(value: object) -> Message:
    """Read one message, whatever form it was logged in.

    Raises:
        WireError: It is no message of a known form.
    """
    kind, fields = _unwrapped(value)
    speaker = _SPEAKERS.get(kind)
    if speaker is None:
        raise WireError("a message of a kind that is not known")
    extra = mapping(fields.get("additional_kwargs"))
    role = text_of(extra.get("__openai_role__")) or ("developer" if kind == "developer" else "")
    return Message(
        speaker=speaker,
        content=_content(fields.get("content")),
        role=role,
        name=first_text(fields, "name"),
        calls=_calls(fields, extra) if speaker == "ai" else (),
        answers=first_text(fields, "tool_call_id", "name") if speaker == "tool" else "",
        failed=fields.get("status") == "error",
        metadata=mapping(fields.get("response_metadata")),
        extra=extra,
        id=first_text(fields, "id"),
        usage=mapping(fields.get("usage_metadata")),
    )


def _unwrapped(value: object) -> tuple[str, Json]:
    """Return the kind of a message and its fields."""
    if not isinstance(value, Mapping):
        raise WireError("a message that is no object")
    message = cast("Json", value)
    if message.get("type") == "constructor" or "kwargs" in message:
        fields = mapping(message.get("kwargs"))
        if not isinstance(message.get("kwargs"), Mapping):
            raise WireError("a message without its fields")
        names = items(message.get("id"))
        named = text_of(names[-1]).removesuffix("Chunk").removesuffix("Message").lower() if names else ""
        kind = named if named in _SPEAKERS else _flat_kind(fields)
        return kind, fields
    data = message.get("data")
    if isinstance(data, Mapping) and "content" not in message:
        return _flat_kind(message), cast("Json", data)
    return _flat_kind(message), message


def _flat_kind(fields: Json) -> str:
    """Return the kind that a message names itself; a `ChatMessage` and a plain object name a role."""
    kind = text_of(fields.get("type")).removesuffix("Chunk").removesuffix("Message").lower()
    return kind if kind in _SPEAKERS else text_of(fields.get("role")).lower()


def _content(value: object) -> Content:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not isinstance(value, (list, tuple)):
        raise WireError("a message whose content is neither text nor a list")
    blocks: list[Json] = []
    for block in cast("Sequence[object]", value):
        if isinstance(block, str):
            blocks.append({"type": "text", "text": block})
        elif isinstance(block, Mapping):
            blocks.append(_standard(cast("Json", block)))
        else:
            raise WireError("a content block that is no object")
    return blocks


def _standard(block: Json) -> Json:
    """Take a block out of the wrapping for what LangChain has no own form for."""
    inner = block.get("value")
    return cast("Json", inner) if block.get("type") == "non_standard" and isinstance(inner, Mapping) else block


def _calls(fields: Json, extra: Json) -> tuple[Call, ...]:
    found = json_objects(fields.get("tool_calls")) or json_objects(extra.get("tool_calls"))
    calls = [_call(call) for call in found]
    calls += [_call(call) for call in json_objects(fields.get("invalid_tool_calls"))]
    return tuple(calls)


def _call(call: Json) -> Call:
    """Read a tool call in LangChain's form or in OpenAI's."""
    function = call.get("function")
    if isinstance(function, Mapping):
        named = cast("Json", function)
        return Call(first_text(call, "id"), first_text(named, "name"), decoded(named.get("arguments")))
    arguments = call.get("args", call.get("arguments"))
    return Call(first_text(call, "id"), first_text(call, "name"), {} if arguments is None else arguments)
