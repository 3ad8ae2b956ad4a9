"""`cache_aware`: a copy of an LLM, of the same class, whose requests keep their head.

The copy is of a subclass made for it, of the same name. For the classes of `openai` and `anthropic` the SDK's client in
it is watched, so the request is changed where it is last built; the messages of any other class are put into order
before it gets them. Every `isinstance` check holds, and tools, structured output and tracing are the class's own.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, ClassVar, Self, TypeVar, cast

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import LLMMetadata, MessageRole
from llama_index.core.bridge.pydantic import SerializerFunctionWrapHandler, model_serializer
from llama_index.core.llms.structured_llm import StructuredLLM

from headstay.errors import ConfigError
from headstay.flow import Flow, OnBreak, Settings, Verify
from headstay.headstore import HeadStore
from headstay.ledger import Ledger
from headstay.prompt import Wire
from headstay.providers.rules import find_rules
from headstay.providers.vllm import Engine
from headstay.slots import Slot, read_slots
from headstay.values import Declared
from llama_index_headstay.answering import Answering, model_name
from llama_index_headstay.binding import Binding
from llama_index_headstay.delegating import Delegating
from llama_index_headstay.identity import Named, check_named, semantic_engine
from llama_index_headstay.own_server import engine_at
from llama_index_headstay.sdk_client import watch_client
from llama_index_headstay.sdk_pins import check_sdk
from llama_index_headstay.secrets import without_secrets
from llama_index_headstay.templates import TemplateLike, read_templates

Model = TypeVar("Model", bound=BaseLLM)

_CLIENTS = ("_client", "_aclient")
_GETTERS = ("_get_client", "_get_aclient")
_NOT_PICKLED = ("callback_manager", "rate_limiter")
_PREPARE = "_prepare_chat_with_tools"
_WIRES: dict[tuple[str, str], Wire] = {
    ("llama_index.llms.anthropic.base", "Anthropic"): "anthropic-messages",
    ("llama_index.llms.openai.responses", "OpenAIResponses"): "openai-responses",
    ("llama_index.llms.openai.base", "OpenAI"): "openai-chat",
}


def cache_aware(
    llm: Model,
    *,
    name: str | None = None,
    template: TemplateLike | Sequence[TemplateLike] | None = None,
    volatile: str | Slot | Sequence[Slot] | None = "strict",
    tail: Named = None,
    semantic_cache: object = None,
    tail_affects_answer: bool = True,
    tenant: Named = None,
    conversation: Named = None,
    ttl: str | None = None,
    on_break: OnBreak = "warn",
    verify: Verify = "local",
    head_store: HeadStore | None = None,
    ledger: Ledger | None = None,
    engine: Engine | None = None,
) -> Model:
    """Copy an LLM so that the head of its requests stays byte-stable.

    Args:
        llm: Any LLM. `OpenAI`, `OpenAILike`, `OpenAIResponses`, `Anthropic` and their subclasses get the whole layout
            with markers; others are ordered only.
        name: Name of the agent or engine; agents with different system texts should have different names.
        template: The prompt template that the system text is made from: its variables are the slots. They count as
            per conversation, unless the value is a full timestamp or a UUID, or a `Slot("{variable}")` says otherwise.
        volatile: "strict" takes full timestamps and UUIDs for per-call slots; a list of `Slot`s adds to that; None
            switches all of it off.
        tail: Per-call text for the end of the human turn; or a callable without arguments.
        semantic_cache: A `headstay.semantic.Cache`: repeated and reworded questions are answered from it, streams too.
        tail_affects_answer: Whether another `tail` can make another answer. With False it does not count for the
            semantic cache; say so of a clock.
        tenant: Nothing is shared between tenants; or a callable without arguments, such as `ContextVar.get`.
        conversation: Id of the conversation, or a callable without arguments: LlamaIndex names none. Without it a call
            is known by what was said before, which does not show that a history was edited.
        ttl: Time to live by the provider's name for it ("5m", "1h"; "24h"); None is the provider's default.
        on_break: "warn" logs each break once with its remedy; "raise" is for tests; "record" only records.
        verify: "local" reads each request back before it is sent; "off" does not; "provider" also asks the API to
            refuse thinking that does not fit its history, and to say why a prefix was not read, where it has that.
        head_store: Where heads and conversations are kept; in memory by default.
        ledger: Where every call leaves a row; in memory by default.
        engine: What is known of the vLLM server that it calls; of the user's own server it is known without.

    Returns:
        An instance of the same class; of a class that allows no subclass, a `FunctionCallingLLM` around it.

    Raises:
        ConfigError: A setting cannot work, or the LLM's package does not work with its SDK; the message says which
            and what would.
    """
    _check(llm)
    check_sdk(llm)
    for what, given in (("tenant", tenant), ("tail", tail), ("conversation", conversation)):
        check_named(what, given)
    if name is not None and not isinstance(cast("object", name), str):
        raise ConfigError(f"name={name!r}: give a str, or None")
    if engine is not None and not isinstance(cast("object", engine), Engine):
        raise ConfigError(f"engine={type(engine).__name__}: give an Engine, such as headstay.providers.vllm.Engine()")
    if not isinstance(cast("object", tail_affects_answer), bool):
        raise ConfigError(f"tail_affects_answer={tail_affects_answer!r}: say True or False")
    engine = engine or engine_at(getattr(llm, "api_base", None))
    settings = Settings(name or "", _declared(template, volatile), ttl, on_break, verify)
    settings.check(find_rules(wire_of(llm), model_name(llm)) if engine is None else engine.rules, model_name(llm))
    semantic = None if semantic_cache is None else semantic_engine("semantic_cache", semantic_cache)
    flow = Flow(settings, head_store=head_store, ledger=ledger)
    binding = Binding(flow, tenant, tail, conversation, engine, semantic, tail_affects_answer)
    try:
        return _copy(llm, binding)
    except TypeError:  # a class that allows no subclass, or whose objects cannot change theirs
        return cast("Model", _copy(Delegating(llm), binding))


def wire_of(llm: BaseLLM) -> Wire:
    """Name the wire format of an LLM's requests, by the classes it is made of."""
    homes = ((kind.__module__, kind.__name__) for kind in type(llm).__mro__)
    found: list[Wire] = [_WIRES[home] for home in homes if home in _WIRES]
    return found[0] if found else "host-messages"


def _check(llm: object) -> None:
    """Refuse anything that is no LLM.

    Raises:
        ConfigError: The message says what to give.
    """
    if isinstance(llm, StructuredLLM):
        raise ConfigError("this is a StructuredLLM: give the LLM inside it, and call as_structured_llm on the result")
    if isinstance(llm, Instrumented):
        raise ConfigError("this LLM is wrapped already: give all settings at once, and wrap the original")
    if isinstance(llm, str):
        raise ConfigError(f"llm={llm!r} is a name and no LLM: give the LLM itself, such as OpenAI(model={llm!r})")
    if isinstance(llm, type):
        raise ConfigError(f"{llm.__name__} is a class and no LLM: give the LLM itself, {llm.__name__}(...)")
    if not isinstance(llm, BaseLLM):
        raise ConfigError(f"{type(llm).__name__} is no LLM of LlamaIndex: give what you pass as llm= or Settings.llm")


def _declared(
    template: TemplateLike | Sequence[TemplateLike] | None, volatile: str | Slot | Sequence[Slot] | None
) -> Declared:
    declared = Declared(read_templates(template), read_slots(volatile), strict=volatile is not None)
    declared.check()
    return declared


def _copy(llm: Model, binding: Binding) -> Model:
    base = type(llm)
    parts: dict[str, Any] = {"headstay_binding": binding, "headstay_base": base, "headstay_wire": wire_of(llm)}
    if hasattr(base, _PREPARE):
        parts[_PREPARE] = _leaving_history(base)
    bound = type("Bound", (Instrumented,), parts)
    namespace: dict[str, Any] = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    namespace["custom_model_dump"] = model_serializer(mode="wrap")(_dumped)
    if parts["headstay_wire"] != "host-messages":
        namespace |= {name: _watched_attribute(name) for name in _CLIENTS if name in base.__private_attributes__}
        namespace |= {name: _watched_getter(base, name) for name in _GETTERS if hasattr(base, name)}
    kind = type(base.__name__, (bound, base), namespace)
    copied = llm.model_copy()
    object.__setattr__(copied, "__class__", kind)
    return copied


def _dumped(self: BaseLLM, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
    """Write an LLM as its class does, without keys; pydantic asks for the name of the argument."""
    return without_secrets({**handler(self), "class_name": self.class_name()})


def _watched_attribute(name: str) -> property:
    """Show a private attribute's client watched; what is set is the client itself."""
    seen: list[tuple[Any, Any]] = []

    def get(llm: BaseLLM) -> Any:
        client = (llm.__pydantic_private__ or {}).get(name)
        if client is None:
            return None
        for known, watched in seen:
            if known is client:
                return watched
        watched = watch_client(client, cast("Instrumented", llm).headstay_binding)
        seen[:] = [(client, watched)]  # of another copy of the LLM, in another thread, by the next line perhaps
        return watched

    return property(get)


def _watched_getter(base: type[BaseLLM], name: str) -> Callable[[Any], Any]:
    """Do the same for a client that is made for each request."""
    own = getattr(base, name)

    @functools.wraps(own)
    def get(llm: Any) -> Any:
        return watch_client(own(llm), llm.headstay_binding)

    return get


def _leaving_history(base: type[BaseLLM]) -> Callable[..., Any]:
    """Prepare a call with tools as the class does, on a copy of the caller's history: some append to it.

    `wraps` keeps the signature, which LlamaIndex asks for `tool_required`.
    """
    own: Callable[..., dict[str, Any]] = getattr(base, _PREPARE)

    @functools.wraps(own)
    def prepare(llm: Any, *args: Any, **given: Any) -> dict[str, Any]:
        history = given.get("chat_history")
        if isinstance(history, list):
            given["chat_history"] = list(cast("list[object]", history))
        return own(llm, *args, **given)

    return prepare


class Instrumented(Answering):
    """The methods an instrumented LLM has before those of its own class."""

    headstay_base: ClassVar[type[BaseLLM]]

    @property
    def metadata(self) -> LLMMetadata:
        """What the class says; but of a model that takes instructions of the operator's, engines shall send them so.

        LlamaIndex's OpenAI class has its engines send the system prompt of newer models as a human's words, while it
        writes a system message as the developer message that these models take.
        """
        known = super().metadata
        demoted = known.system_role == MessageRole.USER and known.is_function_calling_model
        if demoted and self.headstay_wire in ("openai-chat", "openai-responses"):
            return known.model_copy(update={"system_role": MessageRole.SYSTEM})
        return known

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle as settings without keys, and the binding: the class is made again, and finds its key by itself."""
        known = inspect.signature(self.headstay_base.__init__).parameters
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())
        held = {name: value for name, value in vars(self).items() if takes_any or name in known}
        held = {name: value for name, value in held.items() if name not in _NOT_PICKLED}
        return _again, (self.headstay_base, without_secrets(held), self.headstay_binding)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Copy the settings; client, stores and ledger are shared."""
        copied = self.model_copy()
        held: dict[str, object] = vars(copied)
        for name, value in held.items():
            if isinstance(value, (dict, list, set)):
                held[name] = deepcopy(cast("object", value), memo)
        return copied


def _again(base: type[BaseLLM], settings: dict[str, Any], binding: Binding) -> BaseLLM:
    return _copy(base(**settings), binding)
