"""`cache_aware`: a copy of a model, of the same class, whose requests keep their head.

The copy is of a subclass made for it, of the same name, whose payload builder applies the plan. So every `isinstance`
check holds, tools and structured output are the class's own, and the request is changed where it is last built: after
messages were merged, system texts hoisted and tools converted.
"""

import copy
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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
from headstay.providers.rules import find_rules
from headstay.slots import Slot
from headstay.values import Declared
from langchain_headstay.identity import Binding, Tail, Tenant, calling
from langchain_headstay.templates import TemplateLike, read_templates
from langchain_headstay.ticket import Ticket, arrange_messages, arrange_payload, builds_payload, model_name, wire_of

Model = TypeVar("Model", bound=BaseChatModel)

_TICKET = "headstay_ticket"
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
        verify: "local" reads each request back before it is sent; "off" does not.
        head_store: Where heads and conversations are kept; in memory by default.
        ledger: Where every call leaves a row; in memory by default.

    Returns:
        An instance of the same class.

    Raises:
        ConfigError: A setting cannot work; the message says which and what would.
    """
    declared = Declared(read_templates(template), _slots(volatile), strict=volatile is not None)
    settings = Settings(name or "", declared, ttl, on_break, verify)
    model_id = model_name(model)
    settings.check(find_rules(wire_of(model, {}), model_id), model_id)
    return _copy(model, Binding(Flow(settings, head_store=head_store, ledger=ledger), tenant, tail))


def _slots(volatile: object) -> tuple[Slot, ...]:
    if volatile is None or volatile == "strict":
        return ()
    slots = [volatile] if isinstance(volatile, Slot) else volatile
    if isinstance(slots, (list, tuple)) and all(isinstance(slot, Slot) for slot in cast("list[object]", slots)):
        return tuple(cast("list[Slot]", slots))
    raise ConfigError(f'volatile={volatile!r}: say "strict", None, or a list of Slot(...)')


def binding_of(model: BaseChatModel) -> Binding | None:
    """Return what an instrumented model knows, or None for any other model."""
    return model.headstay_binding if isinstance(model, Instrumented) else None


def _copy(model: Model, binding: Binding) -> Model:
    base = cast("type[Model]", model.headstay_base if isinstance(model, Instrumented) else type(model))
    mixins: list[type] = [Instrumented]
    # A class that does not stream must not seem to: LangChain looks for the methods.
    if base._astream is not BaseChatModel._astream:
        mixins.insert(0, AsyncStreaming)
    if base._stream is not BaseChatModel._stream:
        mixins.insert(0, Streaming)
    bound = type("Bound", tuple(mixins), {"headstay_binding": binding, "headstay_base": base})
    kind = type(base.__name__, (bound, base), {"__module__": base.__module__, "__qualname__": base.__qualname__})
    copied = model.model_copy()
    object.__setattr__(copied, "__class__", kind)
    return copied


def _bare(model: BaseChatModel) -> BaseChatModel:
    copied = model.model_copy()
    if isinstance(model, Instrumented):
        object.__setattr__(copied, "__class__", model.headstay_base)
        for key in _CLIENTS:  # made again when first used; they hold locks and cannot be copied
            copied.__dict__.pop(key, None)
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
        chunks = super().stream(input, config, stop=stop, **kwargs)
        with calling(config):  # the request is built before the first chunk comes
            first = next(chunks, None)
        if first is not None:
            yield first
            yield from chunks

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
        with calling(config):
            first = await anext(chunks, None)
        if first is not None:
            yield first
            async for chunk in chunks:
                yield chunk


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

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        ticket = kwargs.pop(_TICKET, None)
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        return arrange_payload(self, self.headstay_binding, payload, ticket)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if _TICKET in kwargs:
            return super()._generate(messages, stop, run_manager, **kwargs)
        ticket, messages, kwargs = self._begin(messages, run_manager, kwargs)
        with ticket:
            return ticket.finish(super()._generate(messages, stop, run_manager, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if _TICKET in kwargs:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        ticket, messages, kwargs = self._begin(messages, run_manager, kwargs)
        with ticket:
            return ticket.finish(await super()._agenerate(messages, stop, run_manager, **kwargs))

    def _begin(
        self, messages: list[BaseMessage], run_manager: Any, kwargs: Mapping[str, Any]
    ) -> tuple[Ticket, list[BaseMessage], dict[str, Any]]:
        ticket = Ticket(self.headstay_binding, getattr(run_manager, "metadata", None))
        if builds_payload(self):
            return ticket, messages, {**kwargs, _TICKET: ticket}
        return ticket, *arrange_messages(self, messages, dict(kwargs), ticket)


class Streaming(_Base):
    """The same for a class that streams."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if _TICKET in kwargs:
            yield from super()._stream(messages, stop, run_manager, **kwargs)
            return
        ticket, messages, kwargs = cast("Instrumented", self)._begin(messages, run_manager, kwargs)
        with ticket:
            for chunk in super()._stream(messages, stop, run_manager, **kwargs):
                ticket.add(chunk)
                yield chunk
            ticket.end()


class AsyncStreaming(_Base):
    """The same for a class that streams asynchronously."""

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if _TICKET in kwargs:
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                yield chunk
            return
        ticket, messages, kwargs = cast("Instrumented", self)._begin(messages, run_manager, kwargs)
        with ticket:
            async for chunk in super()._astream(messages, stop, run_manager, **kwargs):
                ticket.add(chunk)
                yield chunk
            ticket.end()
