"""One model call on its way through LangChain: from the built request to the reported usage."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from headstay.flow import Call
from headstay.ledger.usage import Usage, from_langchain
from headstay.prompt import Wire
from langchain_headstay.identity import Binding, caller_config, tail_of, tenant_of, thread_of

_ENDPOINTS = ("anthropic_api_url", "openai_api_base", "azure_endpoint", "base_url", "endpoint_url")
_NAMES = ("model", "model_name", "model_id", "deployment_name")
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}


class Ticket:
    """Follows one call; leaving its `with` block accounts for it, whatever happened.

    Args:
        binding: What the model knows.
        metadata: The run manager's metadata.
    """

    def __init__(self, binding: Binding, metadata: Mapping[str, Any] | None) -> None:
        self.binding = binding
        self.metadata = metadata
        self.call: Call | None = None
        self._usage: UsageMetadata | None = None
        self._reported = False
        self._ended = False

    def add(self, chunk: ChatGenerationChunk) -> None:
        """Note one chunk of a stream."""
        if self.call is not None:
            self.call.began()
        message = chunk.message
        if isinstance(message, AIMessage) and message.usage_metadata is not None:
            self._usage = add_usage(self._usage, message.usage_metadata)

    def end(self) -> None:
        """Note that a stream came to its end."""
        self._ended = True

    def finish(self, result: ChatResult) -> ChatResult:
        """Note a whole reply and hand it on."""
        self._ended = True
        message = result.generations[0].message if result.generations else None
        if isinstance(message, AIMessage):
            self._usage = message.usage_metadata
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow = self.binding.flow
        if self.call is None:
            if error is not None:
                return  # the host refused the request before it was built
            self.call = flow.passed(
                {}, "host-messages", "the model's class did not build its request where it could be seen"
            )
        closed = isinstance(error, GeneratorExit)
        if closed and not self._ended:
            self.call.unverified = self.call.unverified or "the stream was closed before its end"
        usage: Usage | None = from_langchain(self._usage) if self._usage is not None else None
        flow.complete(self.call, usage, error=None if closed else error)


def builds_payload(model: BaseChatModel) -> bool:
    """Whether a model's class builds its requests where we can see them."""
    return wire_of(model, {}) != "host-messages"


def wire_of(model: BaseChatModel, payload: Mapping[str, object]) -> Wire:
    """Name the wire format of a model's payloads, by the classes it is made of."""
    homes = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(model).__mro__}
    if ("langchain_anthropic", "ChatAnthropic") in homes:
        return "anthropic-messages"
    if ("langchain_openai", "BaseChatOpenAI") in homes:
        return "openai-responses" if "input" in payload else "openai-chat"
    return "host-messages"


def model_name(model: BaseChatModel) -> str:
    """Return the model id a chat model was made with, or an empty text."""
    return next((value for name in _NAMES if isinstance(value := getattr(model, name, None), str) and value), "")


def arrange_payload(
    model: BaseChatModel, binding: Binding, payload: dict[str, Any], ticket: Ticket | None
) -> dict[str, Any]:
    """Apply the plan to a payload that a model's class has built.

    Args:
        model: The model.
        binding: What it knows.
        payload: As its class built it.
        ticket: The call under way; None where a payload is only looked at.

    Returns:
        The payload to send.
    """
    call = _prepare(model, binding, payload, wire_of(model, payload), ticket)
    if ticket is None:
        binding.flow.abandon(call)
    return cast("dict[str, Any]", call.body)


def _prepare(
    model: BaseChatModel, binding: Binding, body: Mapping[str, object], wire: Wire, ticket: Ticket | None
) -> Call:
    config = caller_config(ticket.metadata if ticket else None)
    named = body if body.get("model") else {**body, "model": model_name(model)}
    endpoint = next((str(url) for name in _ENDPOINTS if (url := getattr(model, name, None))), "")
    try:
        tenant, tail = tenant_of(binding, config), tail_of(binding, config)
    except Exception as problem:  # noqa: BLE001 - the application's callable; its request goes out unchanged
        call = binding.flow.passed(named, wire, f"tenant= or tail= raised {type(problem).__name__}: {problem}")
    else:
        call = binding.flow.prepare(
            named, wire=wire, endpoint=endpoint, tenant=tenant, thread=thread_of(config), tail=tail
        )
    if named is not body:
        call.body.pop("model", None)
        if "model" in body:
            call.body["model"] = body["model"]
    if ticket is not None:
        ticket.call = call
    return call


def arrange_messages(
    model: BaseChatModel, messages: list[BaseMessage], kwargs: dict[str, Any], ticket: Ticket
) -> tuple[list[BaseMessage], dict[str, Any]]:
    """Put the messages of any other model into order: values behind the head, per-call ones last.

    Args:
        model: The model.
        messages: As LangChain hands them to its class.
        kwargs: The call's keyword arguments; tools among them are put into one order.
        ticket: The call under way.

    Returns:
        Messages and keyword arguments to hand on.
    """
    items: list[dict[str, Any]] = [_item(message) for message in messages]
    body: dict[str, object] = {"model": model_name(model), "messages": items}
    tools = kwargs.get("tools")
    if isinstance(tools, (list, tuple)) and all(isinstance(tool, Mapping) for tool in cast("list[object]", tools)):
        body["tools"] = tools
    call = _prepare(model, ticket.binding, body, "host-messages", ticket)
    sent = cast("list[dict[str, Any]]", call.body["messages"])
    if len(sent) != len(items):
        return messages, kwargs
    arranged = [
        message if item["content"] == message.content else message.model_copy(update={"content": item["content"]})
        for message, item in zip(messages, sent, strict=True)
    ]
    return arranged, ({**kwargs, "tools": call.body["tools"]} if "tools" in body else kwargs)


def _item(message: BaseMessage) -> dict[str, Any]:
    item: dict[str, Any] = {"role": _ROLES.get(message.type, "user"), "content": message.content}
    if isinstance(message, SystemMessage) and isinstance(message.content, list):
        item["content"] = [
            {"type": "text", "text": block} if isinstance(block, str) else block for block in message.content
        ]
    if message.type == "tool":
        item["tool_call_id"] = getattr(message, "tool_call_id", None)
    calls = getattr(message, "tool_calls", None)
    if calls:
        item["tool_calls"] = [{"type": "function", "name": call["name"], "args": call["args"]} for call in calls]
    return item
