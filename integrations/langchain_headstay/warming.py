"""`warm_head`: a vLLM server has the head before the first user asks."""

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import RunnableBinding, RunnableConfig
from langchain_core.runnables.config import ensure_config

from headstay.errors import ConfigError
from headstay.local import state as states
from headstay.local import warm as warming
from headstay.local.home import find_home
from headstay.local.warm import Warmth
from langchain_headstay.chat_local import ChatLocal
from langchain_headstay.identity import calling, tail_of, tenant_of
from langchain_headstay.instrument import Instrumented
from langchain_headstay.model import CacheAwareChatModel

_NOT_OF_THE_BODY = ("extra_body", "extra_headers", "extra_query", "timeout")


def warm_head(
    model: BaseChatModel,
    messages: LanguageModelInput,
    *,
    tools: Sequence[Any] = (),
    config: RunnableConfig | None = None,
    timeout: float = 600.0,
) -> Warmth:
    """Have the server compute the head of a request, and prove by its own count that it can be read.

    The head is sent as the model would send it: with its placeholders, its tools in their order, the tenant's salt and
    the header that a router goes by. A head that was warmed on the user's own server is warmed again when that one is
    started again after a fault.

    Args:
        model: A `ChatLocal` under `CacheAwareChatModel` or `cache_aware`, or a bare one.
        messages: What the application begins a conversation with; what comes behind the system text does not matter.
        tools: The tools that its calls will have.
        config: The config of those calls, where a tenant is read from it.
        timeout: Seconds to wait for each of two answers.

    Returns:
        What was read; `is_warm` tells whether it was all that whole blocks allow.

    Raises:
        ConfigError: It is no such model, the request has no head, or `tenant=` or `tail=` cannot read the config.
        LocalError: The server cannot be reached, refuses the request, or does not say what it read.
    """
    inner = model._inner if isinstance(model, CacheAwareChatModel) else model
    if not isinstance(inner, ChatLocal):
        kind = type(inner).__name__
        raise ConfigError(f"warm_head: this is a {kind}; give a ChatLocal: other providers keep what is sent to them")
    said = inner._convert_input(messages).to_messages()
    if not any(isinstance(message, HumanMessage) for message in said):
        said = [*said, HumanMessage("Hello.")]
    if isinstance(inner, Instrumented):  # a tenant or tail that is not told would warm another head
        tenant_of(inner.headstay_binding.tenant, ensure_config(config))
        tail_of(inner.headstay_binding.tail, ensure_config(config))
    payload = _payload(inner, said, tools, config)
    body = {name: value for name, value in payload.items() if name not in _NOT_OF_THE_BODY}
    head = warming.head_of({**body, **(payload.get("extra_body") or {})})
    server = inner.headstay_server
    warmth = warming.warm(server, head, timeout=timeout, headers=payload.get("extra_headers"))
    home = find_home()
    own = states.read(home)
    if warmth.is_warm and own is not None and own.is_watched and own.base_url == server.base_url:
        warming.remember(home, head)
    return warmth


def _payload(
    model: ChatLocal, messages: list[BaseMessage], tools: Sequence[Any], config: RunnableConfig | None
) -> dict[str, Any]:
    any_model = cast("Any", model)  # LangChain leaves these two untyped
    bound: object = any_model.bind_tools(tools) if tools else None
    kwargs = cast("dict[str, Any]", bound.kwargs) if isinstance(bound, RunnableBinding) else {}
    with calling(config):
        return cast("dict[str, Any]", any_model._get_request_payload(messages, **kwargs))
