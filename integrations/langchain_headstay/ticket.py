"""One model call on its way through LangChain: from the built request to the reported usage."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import takewhile
from types import TracebackType
from typing import Any, Self, cast
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from headstay.call import Call
from headstay.errors import ConfigError
from headstay.ledger.usage import Usage, from_langchain
from headstay.prompt import Prompt, Wire
from headstay.providers.rules import CacheRules, find_rules
from headstay.providers.vllm import Engine
from headstay.streams import afirst_within, first_within
from headstay.wires import parse
from langchain_headstay.acting import Acting, acting_for
from langchain_headstay.identity import Binding, caller_config, tail_of, tenant_of, thread_of
from langchain_headstay.reported import may_diagnose, note_chunk, note_result, note_start

_ENDPOINTS = ("anthropic_api_url", "openai_api_base", "azure_endpoint", "base_url", "endpoint_url")
_NAMES = ("model", "model_name", "model_id", "deployment_name")
_under_way: ContextVar["Ticket | None"] = ContextVar("headstay_ticket", default=None)


class Ticket:
    """Follows one call; leaving its `with` block accounts for it, whatever happened.

    Args:
        model: The model that was called.
        binding: What it knows.
        run_manager: The run's manager, or None.
    """

    def __init__(self, model: BaseChatModel, binding: Binding, run_manager: Any) -> None:
        self.model = model
        self.binding = binding
        self.run_manager = run_manager
        self.call: Call | None = None
        self._usage: UsageMetadata | None = None
        self._ended = False
        self._marked = False
        self.agent: Acting | None = None

    @contextmanager
    def held(self) -> Generator[None]:
        """Let the methods that the model's class calls on itself find this ticket."""
        token = _under_way.set(self)
        try:
            yield
        finally:
            _under_way.reset(token)

    def follow(self, chunks: Iterator[ChatGenerationChunk]) -> Iterator[ChatGenerationChunk]:
        """Hand on the chunks of a stream and account for them."""
        with self:
            for chunk in first_within(self.held(), chunks):
                self._add(chunk)
                yield chunk
            self._ended = True

    async def afollow(self, chunks: AsyncIterator[ChatGenerationChunk]) -> AsyncGenerator[ChatGenerationChunk]:
        """Hand on the chunks of a stream and account for them."""
        with self:
            async with aclosing(afirst_within(self.held(), chunks)) as relayed:
                async for chunk in relayed:
                    self._add(chunk)
                    yield chunk
            self._ended = True

    def _add(self, chunk: ChatGenerationChunk) -> None:
        if self.call is not None:
            self.call.began()
            note_chunk(self.call, chunk)
        message = chunk.message
        if not self._marked:
            self._marked = True
            self._give_receipt(message)
        if isinstance(message, AIMessage) and message.usage_metadata is not None:
            self._usage = add_usage(self._usage, message.usage_metadata)

    def finish(self, result: ChatResult) -> ChatResult:
        """Note a whole reply and hand it on."""
        self._ended = True
        if self.call is not None:
            note_result(self.call, result)
        message = result.generations[0].message if result.generations else None
        if isinstance(message, AIMessage):
            self._usage = message.usage_metadata
            self._give_receipt(message)
        return result

    def began(self, message: Any) -> None:
        """Note the message of the event that an Anthropic stream begins with."""
        if self.call is not None:
            note_start(self.call, message)

    def _give_receipt(self, message: BaseMessage) -> None:
        """Put the receipt of a kept note on the reply: once, on the first chunk of a stream."""
        if self.call is not None and self.call.receipt is not None:
            own = message.response_metadata.get("headstay")
            message.response_metadata["headstay"] = {**(own if isinstance(own, dict) else {}), **self.call.receipt}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        flow = self.binding.flow
        if self.agent is not None:
            self.agent.answered = error is None
        if self.call is None:
            if error is not None:
                return  # the host refused the request before it was built
            self.call = flow.passed(
                {"model": model_name(self.model)},
                "host-messages",
                "the model's class did not build its request where it could be seen",
            )
        closed = isinstance(error, GeneratorExit)
        if closed and not self._ended:
            self.call.left()
        usage: Usage | None = from_langchain(self._usage) if self._usage is not None else None
        flow.complete(self.call, usage, error=None if closed else error)


def under_way(model: BaseChatModel) -> Ticket | None:
    """Return the ticket of a model's own call under way: its class called one of its methods from another."""
    ticket = _under_way.get()
    return ticket if ticket is not None and ticket.model is model else None


def call_under_way() -> Call | None:
    """Return the call whose request this context is sending."""
    ticket = _under_way.get()
    return None if ticket is None else ticket.call


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


def engine_of(model: BaseChatModel) -> Engine | None:
    """Return what a model says of the server that it calls, if that is vLLM."""
    engine = getattr(model, "headstay_engine", None)
    return engine if isinstance(engine, Engine) else None


def rules_of(model: BaseChatModel) -> CacheRules:
    """Return the cache rules of a model."""
    engine = engine_of(model)
    return find_rules(wire_of(model, {}), model_name(model)) if engine is None else engine.rules


def model_name(model: BaseChatModel) -> str:
    """Return the model id a chat model was made with, or an empty text."""
    return next((value for name in _NAMES if isinstance(value := getattr(model, name, None), str) and value), "")


def arrange_payload(
    model: BaseChatModel,
    binding: Binding,
    payload: dict[str, Any],
    ticket: Ticket | None,
    messages: Sequence[BaseMessage] = (),
) -> dict[str, Any]:
    """Apply the plan to a payload that a model's class has built.

    Args:
        model: The model.
        binding: What it knows.
        payload: As its class built it.
        ticket: The call under way; None where a payload is only looked at.
        messages: What the payload was built from; receipts of kept notes stand on the replies among them.

    Returns:
        The payload to send.
    """
    replies = [
        message.response_metadata.get("headstay")
        for message in messages
        if isinstance(message, AIMessage) and (message.content or message.tool_calls or message.invalid_tool_calls)
    ]
    call = _prepare(model, binding, payload, wire_of(model, payload), ticket, replies)
    if ticket is None:
        binding.flow.abandon(call)
    return cast("dict[str, Any]", call.body)


def beside(binding: Binding) -> dict[str, str]:
    """Return what a call adds that neither its messages nor its settings show, as settings for a cache's key."""
    agent = acting_for(binding.flow)
    asked = caller_config() if agent is None else agent.runtime
    try:
        found = {"tenant": tenant_of(binding.tenant, asked), "tail": tail_of(binding.tail, asked)}
    except ConfigError:
        return {"headstay_unknown": uuid4().hex}  # found by no other call
    return {f"headstay_{name}": text for name, text in found.items() if text}


def _prepare(
    model: BaseChatModel,
    binding: Binding,
    body: Mapping[str, object],
    wire: Wire,
    ticket: Ticket | None,
    replies: Sequence[object] = (),
) -> Call:
    config = caller_config(ticket.run_manager if ticket else None)
    named = body if body.get("model") else {**body, "model": model_name(model)}
    endpoint = next((str(url) for name in _ENDPOINTS if (url := getattr(model, name, None))), "")
    agent = acting_for(binding.flow)
    head = None if agent is None else _head_of(named, wire)
    asked = config if agent is None else agent.runtime
    try:
        tenant, tail = tenant_of(binding.tenant, asked), tail_of(binding.tail, asked)
    except ConfigError as problem:
        whose = partial(tenant_of, binding.tenant, asked)
        call = binding.flow.unasked(named, wire, problem, whose, engine=engine_of(model))
    else:
        if agent is not None and head is not None and not agent.is_own(head):
            agent = None
            why = "a middleware further inside put a question of its own to the agent's model"
            call = binding.flow.passed(named, wire, why, tenant=tenant, engine=engine_of(model))
        else:
            call = binding.flow.prepare(
                named,
                wire=wire,
                endpoint=endpoint,
                tenant=tenant,
                thread=thread_of(config),
                tail=tail,
                replies=replies,
                constant=agent.constant if agent is not None else frozenset(),
                diagnoses=may_diagnose(type(model)),
                engine=engine_of(model),
            )
    if agent is not None and ticket is not None:
        agent.head, agent.answered, ticket.agent = head, False, agent
        agent.tool_changes = _tool_changes(body)
        agent.lane_tools = tuple(call.plan.tool_state.forms) if call.plan else ()
    if named is not body:
        call.body.pop("model", None)
        if "model" in body:
            call.body["model"] = body["model"]
    if ticket is not None:
        if ticket.call is not None:  # built anew within one call: only the last one is sent
            binding.flow.abandon(ticket.call)
        ticket.call = call
    return call


def _tool_changes(body: Mapping[str, object]) -> dict[str, bool]:
    """Return the tools that the messages of a body add (true) or take away; the last word on each counts."""
    changes: dict[str, bool] = {}
    items = body.get("messages") or body.get("input")
    for item in _mappings(items):
        if item.get("type") == "additional_tools":
            changes.update((str(tool.get("name")), True) for tool in _mappings(item.get("tools")))
        if item.get("role") != "system":
            continue
        for block in _mappings(item.get("content")):
            if block.get("type") in ("tool_addition", "tool_removal"):
                (tool,) = _mappings([block.get("tool")]) or [{}]
                (definition,) = _mappings([tool.get("definition")]) or [tool]
                changes[str(definition.get("name"))] = block["type"] == "tool_addition"
    return changes


def _mappings(items: object) -> list[Mapping[str, object]]:
    listed = cast("Sequence[object]", items) if isinstance(items, (list, tuple)) else ()
    return [cast("Mapping[str, object]", item) for item in listed if isinstance(item, Mapping)]


def _head_of(body: Mapping[str, object], wire: Wire) -> Prompt:
    """Read tools, system texts and markers of a body, and not its messages."""
    name = "input" if wire == "openai-responses" else "messages"
    items = body.get(name)
    leading: list[Mapping[str, object]] = []
    if wire != "anthropic-messages" and isinstance(items, list):
        given = cast("list[Mapping[str, object]]", items)
        leading = list(takewhile(lambda item: item.get("role") in ("system", "developer"), given))
    try:
        return parse({**body, name: leading}, wire)
    except Exception:  # noqa: BLE001 - the flow meets the same body, and says what is wrong with it
        return Prompt(wire, "")


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
        call.unverified = call.unverified or "the arranged messages are not the application's in number"
        return messages, kwargs
    arranged = [
        message if item["content"] == message.content else message.model_copy(update={"content": item["content"]})
        for message, item in zip(messages, sent, strict=True)
    ]
    return arranged, ({**kwargs, "tools": call.body["tools"]} if "tools" in body else kwargs)


def _item(message: BaseMessage) -> dict[str, Any]:
    item: dict[str, Any] = {"role": _role(message), "content": message.content}
    if isinstance(message, SystemMessage) and isinstance(message.content, list):
        item["content"] = [
            {"type": "text", "text": block} if isinstance(block, str) else block for block in message.content
        ]
    if isinstance(message, ToolMessage):
        item["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage) and message.tool_calls:
        item["tool_calls"] = [
            {"type": "function", "name": call["name"], "args": call["args"]} for call in message.tool_calls
        ]
    return item


def _role(message: BaseMessage) -> str:
    """Name a message's role by its class: the chunks of a stream have types of their own."""
    if isinstance(message, ChatMessage):
        return message.role
    roles = {AIMessage: "assistant", SystemMessage: "system", ToolMessage: "tool", FunctionMessage: "tool"}
    return next((role for kind, role in roles.items() if isinstance(message, kind)), "user")
