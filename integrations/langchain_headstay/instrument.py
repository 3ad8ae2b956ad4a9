"""`cache_aware`: a copy of a model, of the same class, whose requests keep their head.

The copy is of a subclass made for it, of the same name, whose payload builder applies the plan. So every `isinstance`
check holds, tools and structured output are the class's own, and the request is changed where it is last built: after
messages were merged, system texts hoisted and tools converted.
"""

import copy
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig

from headstay.errors import ConfigError
from headstay.flow import Flow, OnBreak, Settings, Verify
from headstay.headstore import HeadStore
from headstay.ledger import Ledger
from headstay.slots import Slot, read_slots
from headstay.streams import afirst_within, first_within
from headstay.values import Declared
from langchain_headstay.identity import Binding, Tail, Tenant, calling, remember, with_run_id
from langchain_headstay.reported import watch_clients
from langchain_headstay.templates import TemplateLike, read_templates
from langchain_headstay.ticket import (
    Ticket,
    arrange_messages,
    arrange_payload,
    beside,
    builds_payload,
    call_under_way,
    model_name,
    rules_of,
    under_way,
)

Model = TypeVar("Model", bound=BaseChatModel)

_CLIENTS = ("_client", "_async_client")


def cache_aware(
    model: Model,
    *,
    name: str | None = None,
    template: TemplateLike | Sequence[TemplateLike] | None = None,
    volatile: str | Slot | Sequence[Slot] | None = "strict",
    tail: Tail = None,
    tenant: Tenant = None,
    ttl: str | None = None,
    on_break: OnBreak = "warn",
    verify: Verify = "local",
    head_store: HeadStore | None = None,
    ledger: Ledger | None = None,
) -> Model:
    """Copy a chat model so that the head of its requests stays byte-stable.

    Args:
        model: Any chat model. `ChatAnthropic` and the classes of `BaseChatOpenAI` get the whole layout with markers;
            others are ordered only.
        name: Name of the agent or chain; agents with different system texts should have different names.
        template: The prompt template that the system text is made from: its variables are the slots. They count as
            per conversation, unless the value is a full timestamp or a UUID, or a `Slot("{variable}")` says otherwise.
        volatile: "strict" takes full timestamps and UUIDs for per-call slots; a list of `Slot`s adds to that; None
            switches all of it off.
        tail: Per-call text for the end of the human turn, such as retrieved documents; or a callable on the config.
        tenant: Nothing is shared between tenants; or a callable on the config.
        ttl: Time to live by the provider's name for it ("5m", "1h"; "24h"); None is the provider's default.
        on_break: "warn" logs each break once with its remedy; "raise" is for tests; "record" only records.
        verify: "local" reads each request back before it is sent; "off" does not; "provider" also asks the API to
            refuse thinking that does not fit its history, and to say why a prefix was not read, where it has that.
        head_store: Where heads and conversations are kept; in memory by default.
        ledger: Where every call leaves a row; in memory by default.

    Returns:
        An instance of the same class.

    Raises:
        ConfigError: A setting cannot work; the message says which and what would.
    """
    settings = Settings(name or "", declare(template, volatile), ttl, on_break, verify)
    return instrument(model, Binding(Flow(settings, head_store=head_store, ledger=ledger), tenant, tail))


def declare(
    template: TemplateLike | Sequence[TemplateLike] | None, volatile: str | Slot | Sequence[Slot] | None
) -> Declared:
    """Read what an application declares about its system text.

    Raises:
        ConfigError: It is no template, or no list of slots, or a slot names a variable that no template has.
    """
    declared = Declared(read_templates(template), read_slots(volatile), strict=volatile is not None)
    declared.check()
    return declared


def instrument(model: Model, binding: Binding, *, lenient: bool = False) -> Model:
    """Copy a model so that its calls go through a flow.

    Args:
        model: Any chat model.
        binding: The flow, and how to find tenant and per-call text.
        lenient: Whether a setting that is not for this model may stand, as for the second model of an agent.

    Raises:
        ConfigError: It is no chat model, or a setting cannot work for it.
    """
    check_model(model)
    if not lenient:
        binding.flow.settings.check(rules_of(model), model_name(model))
    return _copy(model, binding)


def check_model(model: object) -> None:
    """Refuse anything that is no chat model.

    Raises:
        ConfigError: The message says what to give.
    """
    if isinstance(model, KeepsCaller) and not isinstance(model, Instrumented):
        raise ConfigError("this is a CacheAwareChatModel already; give the model inside it: `.model`")
    if isinstance(model, str):
        raise ConfigError(
            f"model={model!r} is a name and no chat model: give the model itself, init_chat_model({model!r})"
        )
    if isinstance(model, type):
        raise ConfigError(
            f"{model.__name__} is a class and no chat model: give the model itself, {model.__name__}(...)"
        )
    if not isinstance(model, BaseChatModel):
        raise ConfigError(
            f"{type(model).__name__} is no chat model: give the model itself, and bind tools, choose structured output "
            "or make it configurable on the result"
        )


def _copy(model: Model, binding: Binding) -> Model:
    base = cast("type[Model]", model.headstay_base if isinstance(model, Instrumented) else type(model))
    mixins: list[type] = [Instrumented]
    # A class that does not stream must not seem to: LangChain looks for the methods.
    if base._astream is not BaseChatModel._astream:
        mixins.insert(0, AsyncStreaming)
    if base._stream is not BaseChatModel._stream:
        mixins.insert(0, Streaming)
    asks = binding.flow.settings.verify == "provider"
    if asks and hasattr(base, "_make_message_chunk_from_anthropic_event"):
        mixins.insert(0, SeesStart)
    bound = type("Bound", tuple(mixins), {"headstay_binding": binding, "headstay_base": base})
    kind = type(base.__name__, (bound, base), {"__module__": base.__module__, "__qualname__": base.__qualname__})
    if asks:
        watch_clients(kind, call_under_way)
    copied = model.model_copy()
    object.__setattr__(copied, "__class__", kind)
    return copied


def _bare(model: BaseChatModel) -> BaseChatModel:
    copied = model.model_copy()
    if isinstance(model, Instrumented):
        object.__setattr__(copied, "__class__", model.headstay_base)
        for key in _CLIENTS:  # made again when first used; they hold locks and cannot be copied
            vars(copied).pop(key, None)
    return copied


# A pydantic class among the bases would bring its own field defaults before those of the model's class.
if TYPE_CHECKING:

    class _Base(BaseChatModel):
        """What every class has that is instrumented."""

        def _generate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: CallbackManagerForLLMRun | None = None,
            **kwargs: Any,
        ) -> ChatResult: ...

        def _get_request_payload(
            self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
        ) -> dict[str, Any]: ...

        def _make_message_chunk_from_anthropic_event(self, event: Any, **kwargs: Any) -> Any: ...

else:
    _Base = object


class KeepsCaller(_Base):
    """Keeps the caller's config for the methods that build the request and do not get it."""

    def invoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Call the class's own method, keeping the caller's config."""
        with calling(config):
            return super().invoke(input, config, stop=stop, **kwargs)

    async def ainvoke(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Call the class's own method, keeping the caller's config."""
        with calling(config):
            return await super().ainvoke(input, config, stop=stop, **kwargs)

    def stream(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Call the class's own method, keeping the caller's config."""
        yield from first_within(calling(config), super().stream(input, config, stop=stop, **kwargs))

    async def astream(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Call the class's own method, keeping the caller's config."""
        chunks = super().astream(input, config, stop=stop, **kwargs)
        async with aclosing(afirst_within(calling(config), chunks)) as relayed:
            async for chunk in relayed:
                yield chunk

    def stream_events(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the class's own method, keeping the caller's config until the stream is read."""
        events = cast("Callable[..., Any]", super().stream_events)
        if kwargs.get("version") != "v3":
            return events(input, config, **kwargs)
        config = with_run_id(config)
        stream = events(input, config, **kwargs)
        remember(config, stream)
        return stream

    def astream_events(
        self,
        input: LanguageModelInput,  # noqa: A002 - LangChain's name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Any:
        """Call the class's own method, keeping the caller's config until the stream is read."""
        events = cast("Callable[..., Any]", super().astream_events)
        if kwargs.get("version") != "v3":
            return events(input, config, **kwargs)
        config = with_run_id(config)

        async def remembered() -> Any:
            stream = await events(input, config, **kwargs)
            remember(config, stream)
            return stream

        return remembered()


class Instrumented(KeepsCaller):
    """The methods an instrumented model has before those of its own class."""

    headstay_binding: ClassVar[Binding]
    headstay_base: ClassVar[type[BaseChatModel]]

    def __eq__(self, other: object) -> bool:
        """Compare as the model itself does."""
        theirs = _bare(other) if isinstance(other, Instrumented) else other
        return bool(_bare(self) == theirs)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle as the bare model and the binding: the class is made again."""
        return _copy, (_bare(self), self.headstay_binding)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "Instrumented":
        """Copy the model deeply; stores and ledger are shared."""
        return cast("Instrumented", _copy(copy.deepcopy(_bare(self), memo), self.headstay_binding))

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Tell LangChain's own caches what a call adds: neither messages nor settings show tail and tenant."""
        return super()._get_llm_string(stop=stop, **kwargs, **beside(self.headstay_binding))

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        messages = self._convert_input(input_).to_messages()
        return arrange_payload(self, self.headstay_binding, payload, under_way(self), messages)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        generate = super()._generate
        managed = _managed(generate, run_manager)
        if under_way(self):
            return generate(messages, stop=stop, **managed, **kwargs)
        ticket, messages, kwargs = self._begin(messages, run_manager, kwargs)
        with ticket, ticket.held():
            return ticket.finish(generate(messages, stop=stop, **managed, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        generate = super()._agenerate
        managed = _managed(generate, run_manager)
        if under_way(self):
            return await generate(messages, stop=stop, **managed, **kwargs)
        ticket, messages, kwargs = self._begin(messages, run_manager, kwargs)
        with ticket, ticket.held():
            return ticket.finish(await generate(messages, stop=stop, **managed, **kwargs))

    def _begin(
        self, messages: list[BaseMessage], run_manager: Any, kwargs: dict[str, Any]
    ) -> tuple[Ticket, list[BaseMessage], dict[str, Any]]:
        ticket = Ticket(self, self.headstay_binding, run_manager)
        if builds_payload(self):
            return ticket, messages, kwargs
        return ticket, *arrange_messages(self, messages, kwargs, ticket)


class Streaming(_Base):
    """The same for a class that streams."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        stream = super()._stream
        managed = {} if run_manager is None else {"run_manager": run_manager}
        if under_way(self):
            yield from stream(messages, stop=stop, **managed, **kwargs)
            return
        ticket, messages, kwargs = cast("Instrumented", self)._begin(messages, run_manager, kwargs)
        yield from ticket.follow(stream(messages, stop=stop, **managed, **kwargs))


class AsyncStreaming(_Base):
    """The same for a class that streams asynchronously."""

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        stream = super()._astream
        managed = {} if run_manager is None else {"run_manager": run_manager}
        if under_way(self):
            async for chunk in stream(messages, stop=stop, **managed, **kwargs):
                yield chunk
            return
        ticket, messages, kwargs = cast("Instrumented", self)._begin(messages, run_manager, kwargs)
        async with aclosing(ticket.afollow(stream(messages, stop=stop, **managed, **kwargs))) as relayed:
            async for chunk in relayed:
                yield chunk


class SeesStart(_Base):
    """The same for ChatAnthropic, which drops what a stream's first event says of the reply."""

    def _make_message_chunk_from_anthropic_event(self, event: Any, **kwargs: Any) -> Any:
        ticket = under_way(self)
        if ticket is not None and event.type == "message_start":
            ticket.began(event.message)
        return super()._make_message_chunk_from_anthropic_event(event, **kwargs)


def _managed(method: Callable[..., Any], run_manager: Any) -> dict[str, Any]:
    """Return the run manager as an argument where a class's method takes one: LangChain asks the signature too."""
    return {"run_manager": run_manager} if _takes_manager(getattr(method, "__func__", method)) else {}


@lru_cache(maxsize=256)
def _takes_manager(method: Callable[..., Any]) -> bool:
    return "run_manager" in inspect.signature(method).parameters
