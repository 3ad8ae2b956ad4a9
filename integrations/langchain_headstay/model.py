"""`CacheAwareChatModel`: any chat model inside, the same model outside, and a head that stays."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.load.serializable import SerializedConstructor, SerializedNotImplemented
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, BaseMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import (
    Runnable,
    RunnableBinding,
    RunnableConfig,
    RunnableParallel,
    RunnableSequence,
    RunnableWithFallbacks,
)
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation

from headstay.errors import ConfigError
from headstay.flow import OnBreak, Verify
from headstay.headstore import HeadStore
from headstay.ledger import Ledger
from headstay.semantic.lookup import Lookup
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from headstay.slots import Slot
from langchain_headstay import answering
from langchain_headstay.asked import from_messages, without_idle_values
from langchain_headstay.chain_identity import model_content
from langchain_headstay.given import given_as
from langchain_headstay.identity import Tail, Tenant, caller_config
from langchain_headstay.instrument import Instrumented, KeepsCaller, cache_aware, check_model
from langchain_headstay.semantic_cache import SemanticCache, read_names, read_request
from langchain_headstay.templates import TemplateLike

_ADOPTED = ("cache", "callbacks", "custom_get_token_ids", "disable_streaming", "metadata", "output_version")
_ADOPTED_TOO = ("profile", "rate_limiter", "tags", "verbose")


class CacheAwareChatModel(KeepsCaller, BaseChatModel):
    """A chat model whose requests keep their head byte-stable.

    Args:
        model: Any chat model.
        name: Name of the agent or chain; agents with different system texts should have different names.
        template: The prompt template that the system text is made from; its variables are the slots.
        volatile: "strict", a list of `Slot`s, or None; see `cache_aware`.
        tail: Per-call text for the end of the human turn.
        semantic_cache: A `SemanticCache`: repeated and reworded questions are answered from it, streams too.
        tail_affects_answer: Whether another `tail` can make another answer. With False it does not count for the
            semantic cache; say so of a clock.
        tenant: Nothing is shared between tenants.
        ttl: Time to live by the provider's name for it, or None for its default.
        on_break: "warn", "raise" or "record".
        verify: "local", "off", or "provider"; see `cache_aware`.
        head_store: Where heads and conversations are kept.
        ledger: Where every call leaves a row.

    Raises:
        ConfigError: A setting cannot work.

    Examples:
        >>> model = CacheAwareChatModel(model=ChatAnthropic(model="claude-opus-5-5"))  # doctest: +SKIP
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    model: SkipValidation[BaseChatModel]
    # Out of `repr`: traces show it, and no head text belongs there.
    template: SkipValidation[TemplateLike | Sequence[TemplateLike] | None] = Field(
        default=None, exclude=True, repr=False
    )
    volatile: SkipValidation[str | Slot | Sequence[Slot] | None] = Field(default="strict", exclude=True, repr=False)
    tail: SkipValidation[Tail] = Field(default=None, exclude=True, repr=False)
    semantic_cache: SkipValidation[SemanticCache | None] = Field(default=None, exclude=True, repr=False)
    tail_affects_answer: bool = Field(default=True, exclude=True, repr=False)
    tenant: SkipValidation[Tenant] = Field(default=None, exclude=True, repr=False)
    ttl: str | None = None
    on_break: SkipValidation[OnBreak] = "warn"
    verify: SkipValidation[Verify] = "local"
    head_store: SkipValidation[HeadStore | None] = Field(default=None, exclude=True, repr=False)
    ledger: SkipValidation[Ledger | None] = Field(default=None, exclude=True, repr=False)

    _inner: BaseChatModel = PrivateAttr()
    _content: str = PrivateAttr(default="")

    def __init__(self, model: BaseChatModel | None = None, **settings: Any) -> None:
        """Take the model by position or by name."""
        if model is not None:
            check_model(model)
            settings["model"] = model
            for name in (*_ADOPTED, *_ADOPTED_TOO):
                settings.setdefault(name, getattr(model, name, None))
        affects: object = settings.get("tail_affects_answer", True)
        if not isinstance(affects, bool):  # pydantic would take "no"
            raise ConfigError(f"tail_affects_answer={affects!r}: say True or False")
        super().__init__(**settings)
        if self.semantic_cache is not None and not isinstance(cast("object", self.semantic_cache), SemanticCache):
            given = given_as(self.semantic_cache)
            raise ConfigError(f"semantic_cache={given}: give a SemanticCache, such as SemanticCache('answers.db')")
        # Made here where none is given, so that every copy of this model shares them.
        self.head_store = HeadStore() if self.head_store is None else self.head_store
        self.ledger = Ledger() if self.ledger is None else self.ledger
        self._inner = self._instrumented()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy; a changed setting reaches the inner model, and so does one that only the inner model has."""
        changed = dict(update or {})
        theirs = type(self.model).model_fields.keys() - type(self).model_fields.keys()
        passed_on = {name: changed.pop(name) for name in list(changed) if name in theirs}
        if passed_on:
            changed["model"] = changed.get("model", self.model).model_copy(update=passed_on)
        copied = super().model_copy(update=changed, deep=deep)
        if changed:
            copied._inner = copied._instrumented()
        return copied

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Say that it can be serialised; what is written is the model inside."""
        return True

    def to_json(self) -> SerializedConstructor | SerializedNotImplemented:
        """Serialise the model inside; wrap it again after loading: stores, tenants and slots are not for a file."""
        return self.model.to_json()

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Name the secrets of the model inside."""
        return self.model.lc_secrets

    def _instrumented(self) -> BaseChatModel:
        self._content = "" if self.semantic_cache is None else model_content(self.model)
        return cache_aware(
            self.model,
            name=self.name,
            template=self.template,
            volatile=self.volatile,
            tail=self.tail,
            tenant=self.tenant,
            ttl=self.ttl,
            on_break=self.on_break,
            verify=self.verify,
            head_store=self.head_store,
            ledger=self.ledger,
        )

    def __getattr__(self, name: str) -> Any:
        """Answer for the inner model where the wrapper has no attribute of its own, as with `model_name`."""
        try:
            return super().__getattr__(name)  # type: ignore[misc] # pydantic defines it at run time only
        except AttributeError:
            if name.startswith("_") or "model" not in self.__dict__:
                raise
            return getattr(self.__dict__["model"], name)

    @property
    def _llm_type(self) -> str:
        return self._inner._llm_type

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self._inner._identifying_params)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        return self._inner._get_ls_params(stop=stop, **kwargs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """Tell LangChain's own caches what is added to each request, too: they see neither tail nor tenant."""
        names, refused = self._names(caller_config())
        added = {"headstay_unknown": uuid4().hex} if refused is not None else names  # found by no other call
        if not self.tail_affects_answer:
            added.pop("tail", None)
        more = {f"headstay_{name}": value for name, value in added.items() if value}
        return self.model._get_llm_string(stop=stop, **kwargs, **more)

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return self._inner._get_invocation_params(stop=stop, **kwargs)

    def _should_stream(self, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        if self._streaming_disabled(**kwargs):
            return False
        return self._inner._should_stream(async_api=async_api, run_manager=run_manager, **kwargs)

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None]) -> dict[str, Any]:
        return self._inner._combine_llm_outputs(llm_outputs)

    def get_token_ids(self, text: str) -> list[int]:
        """Tokenise as the inner model does."""
        return self._inner.get_token_ids(text)

    def get_num_tokens(self, text: str) -> int:
        """Count as the inner model counts."""
        return self._inner.get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Count as the inner model counts."""
        return self._inner.get_num_tokens_from_messages(messages, tools=tools)

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Bind tools as the inner model does; what is bound is this model."""
        if tool_choice is not None:  # a class that has no such argument would keep it for the call
            kwargs["tool_choice"] = tool_choice
        made = self._inner.bind_tools(tools, **kwargs)
        return cast("Runnable[LanguageModelInput, AIMessage]", self._outside(made))

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[LanguageModelInput, Any]:
        """Ask for structured output as the inner model does; what answers is this model."""
        return cast(
            "Runnable[LanguageModelInput, Any]", self._outside(self._inner.with_structured_output(schema, **kwargs))
        )

    def _outside(self, made: Runnable[Any, Any]) -> Runnable[Any, Any]:
        """Put this model where a runnable holds the inner one, so that its callbacks and cache still count."""
        if made is self._inner:
            return self
        if isinstance(made, RunnableBinding):
            return made.model_copy(update={"bound": self._outside(made.bound)})
        if isinstance(made, RunnableSequence):
            return RunnableSequence(*(self._outside(step) for step in made.steps), name=made.name)
        if isinstance(made, RunnableParallel):
            return RunnableParallel({name: self._outside(step) for name, step in made.steps__.items()})
        if isinstance(made, RunnableWithFallbacks):
            fallbacks = [self._outside(fallback) for fallback in made.fallbacks]
            return made.model_copy(update={"runnable": self._outside(made.runnable), "fallbacks": fallbacks})
        return made

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        fetch = partial(self._inner._generate, messages, stop, run_manager, **kwargs)
        if self.semantic_cache is None:
            return fetch()
        return answering.generate(self.semantic_cache, self._asking(messages, stop, run_manager, kwargs), fetch)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        fetch = partial(self._inner._agenerate, messages, stop, run_manager, **kwargs)
        if self.semantic_cache is None:
            return await fetch()
        return await answering.agenerate(self.semantic_cache, self._asking(messages, stop, run_manager, kwargs), fetch)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        fetch = partial(self._fetch_stream, messages, stop, run_manager, **kwargs)
        if self.semantic_cache is None:
            return fetch()
        return answering.stream(self.semantic_cache, self._asking(messages, stop, run_manager, kwargs), fetch)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        fetch = partial(self._afetch_stream, messages, stop, run_manager, **kwargs)
        chunks = fetch()
        if self.semantic_cache is not None:
            asking = self._asking(messages, stop, run_manager, kwargs)
            chunks = answering.astream(self.semantic_cache, asking, fetch)
        async with aclosing(chunks) as relayed:
            async for chunk in relayed:
                yield chunk

    def _fetch_stream(
        self, messages: list[BaseMessage], stop: list[str] | None, run_manager: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        if type(self._inner)._stream is BaseChatModel._stream:
            yield _as_chunk(self._inner._generate(messages, stop, run_manager, **kwargs))
        else:
            yield from self._inner._stream(messages, stop, run_manager, **kwargs)

    async def _afetch_stream(
        self, messages: list[BaseMessage], stop: list[str] | None, run_manager: Any, **kwargs: Any
    ) -> AsyncGenerator[ChatGenerationChunk]:
        kind = type(self._inner)
        if kind._stream is BaseChatModel._stream and kind._astream is BaseChatModel._astream:
            yield _as_chunk(await self._inner._agenerate(messages, stop, run_manager, **kwargs))
            return
        chunks = self._inner._astream(messages, stop, run_manager, **kwargs)
        async with aclosing(cast("AsyncGenerator[ChatGenerationChunk]", chunks)) as relayed:
            async for chunk in relayed:
                yield chunk

    def _asking(
        self, messages: list[BaseMessage], stop: list[str] | None, run_manager: Any, given: Mapping[str, Any]
    ) -> answering.Ask:
        """Return what looks a request up: as the application made it, before anything is arranged."""
        config = caller_config(run_manager)
        return partial(self._ask, messages, {**given, "stop": stop}, config)

    def _ask(self, messages: list[BaseMessage], given: Mapping[str, Any], config: RunnableConfig) -> Lookup:
        cache = cast("SemanticCache", self.semantic_cache)
        asked, refused = self.request_of(messages, given, config)
        if refused is not None:
            return cache.engine.look_up(asked, refused=refused, count=False)
        make = partial(answering.reply_of, schema=given.get("response_format"))
        return cache.ask(asked, config, make=make, count=False)

    def request_of(
        self, messages: Sequence[BaseMessage], given: Mapping[str, Any], config: RunnableConfig
    ) -> tuple[AskedRequest, Reason | None]:
        """Read a request as the semantic cache does, before anything is arranged, or say why it is not answered.

        Args:
            messages: The messages.
            given: The call's own settings.
            config: The caller's config.
        """
        asked, refused = read_request(partial(self._read, messages, given))
        names, unknown = self._names(config)
        if refused is not None or unknown is not None:
            return asked, refused or unknown
        tail = names["tail"]
        exact = {"tail": tail} if tail and self.tail_affects_answer else dict[str, str]()
        return replace(asked, tenant=names["tenant"], exact_fields=exact), None

    def _read(self, messages: Sequence[BaseMessage], given: Mapping[str, Any]) -> AskedRequest:
        asked = from_messages(messages, self.model._get_llm_string(), {**given, "model content": self._content})
        return without_idle_values(asked, cast("Instrumented", self._inner).headstay_binding.flow.settings.declared)

    def _names(self, config: RunnableConfig) -> tuple[dict[str, str | None], Reason | None]:
        """Return tenant and tail of a call, or why they are not known."""
        names, refused = read_names({"tenant": self.tenant, "tail": self.tail}, config)
        if refused is None and callable(self.tenant) and names["tenant"] is None:
            refused = Reason.NO_TENANT
        return names, refused


def _as_chunk(result: ChatResult) -> ChatGenerationChunk:
    """Make one chunk of a whole reply, for models that do not stream."""
    generation = result.generations[0]
    message = cast("AIMessage", generation.message)
    chunk = AIMessageChunk.model_validate({**message.model_dump(exclude={"type"}), "chunk_position": "last"})
    return ChatGenerationChunk(message=cast("BaseMessageChunk", chunk), generation_info=generation.generation_info)
