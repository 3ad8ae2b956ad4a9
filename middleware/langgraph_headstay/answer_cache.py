"""`AnswerCacheMiddleware`: repeated first questions to an agent are answered without a single model call."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from headstay.errors import ConfigError
from headstay.semantic.forking import ForkedLock
from headstay.semantic.lookup import Lookup
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest
from langchain_headstay.asked import from_messages
from langchain_headstay.chain_content import ChainContent
from langchain_headstay.chain_identity import model_content, unseen_classes
from langchain_headstay.given import check_named, given_as
from langchain_headstay.identity import caller_config
from langchain_headstay.replay import generations_of
from langchain_headstay.semantic_cache import Named, SemanticCache, read_names, read_request

Handler = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]

_log = logging.getLogger("headstay.semantic")

_OWN_STATE = frozenset({"messages", "jump_to", "structured_response", "remaining_steps"})
_MOST_BEGUN = 512
_OF_A_RUN = frozenset({"thread_id", "run_id"})
_OF_LANGGRAPH = ("__", "checkpoint_", "langgraph_")
"""What names a run or a thread in the config; everything else there can be read by a prompt or a tool."""


class AnswerCacheMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Answers whole first turns of an agent from a semantic cache. Put it first in `middleware=[...]`.

    A first question that was answered before ends the turn at once: no model call, no tool. Model, system text, tools,
    settings, the agent's context, the configurable values of its config and the rest of its state must be identical.
    Later turns are never answered: what was said before decides them.

    What an agent looked up with tools is as old as the answer, so a turn that used tools is kept only where `version`
    says what it depends on.

    Args:
        cache: Where answers are kept.
        query: The question: a callable on the messages of the turn, or None for the last human text.
        version: What answers depend on beyond the request (documents, data, policy): a str, or a callable on the
            runtime. A new one retires the old answers.
        tenant: Nothing is shared between tenants: a str, or a callable on the runtime; one that returns None switches
            the cache off for that turn.

    Raises:
        ConfigError: A setting cannot work.
    """

    def __init__(
        self,
        *,
        cache: SemanticCache,
        query: Callable[[Sequence[AnyMessage]], str | None] | None = None,
        version: Named = None,
        tenant: Named = None,
    ) -> None:
        super().__init__()
        if not isinstance(cast("object", cache), SemanticCache):
            raise ConfigError(f"AnswerCacheMiddleware(cache={given_as(cache)}): give a SemanticCache")
        if query is not None and not callable(query):
            raise ConfigError(f"AnswerCacheMiddleware(query={query!r}): give a callable on the messages, or None")
        for setting, value in (("version", version), ("tenant", tenant)):
            check_named(f"AnswerCacheMiddleware: {setting}", value)
        self.cache = cache
        self._query = query
        self._names: dict[str, Named] = {"tenant": tenant, "version": version}
        self._begun: OrderedDict[tuple[str | None, str], Lookup] = OrderedDict()
        self._lock = ForkedLock()

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        """Serve a kept answer to a first question, or keep the one that the agent comes to."""
        opening = _opening(request)
        if opening is None:
            return handler(request)
        lookup = self._first(request, opening)
        served = _served(lookup)
        if served is not None:
            return served
        response = handler(request)
        self._keep(request, opening, response, lookup)
        return response

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> ModelResponse[Any]:
        """Do what `wrap_model_call` does; the event loop is not blocked."""
        opening = _opening(request)
        if opening is None:
            return await handler(request)
        lookup = await asyncio.to_thread(self._first, request, opening)
        served = _served(lookup)
        if served is not None:
            return served
        response = await handler(request)
        await asyncio.to_thread(self._keep, request, opening, response, lookup)
        return response

    def _first(self, request: ModelRequest[Any], opening: Sequence[AnyMessage]) -> Lookup | None:
        """Look the question up at the first model call of the turn; later ones find what that one asked.

        By then tools may have changed the state, and an answer belongs to the state that its turn began with.
        """
        turn = opening[-1].id, str((caller_config().get("configurable") or {}).get("thread_id"))
        if len(request.messages) > len(opening):
            with self._lock:
                begun = self._begun.get(turn)
            return begun if begun is not None and begun.entry is None else None
        lookup = self._ask(request, opening)
        with self._lock:
            self._begun[turn] = lookup
            self._begun.move_to_end(turn)
            while len(self._begun) > _MOST_BEGUN:
                self._begun.popitem(last=False)
        return lookup

    def _keep(
        self,
        request: ModelRequest[Any],
        opening: Sequence[AnyMessage],
        response: ModelResponse[Any],
        lookup: Lookup | None,
    ) -> None:
        """Keep the reply that ends the turn, if the turn began in this process."""
        reply = response.result[-1] if response.result else None
        if not isinstance(reply, AIMessage) or reply.tool_calls or response.structured_response is not None:
            return
        if lookup is None or lookup.entry is not None:
            return
        used_tools = request.messages[len(opening) :]
        if any(getattr(message, "status", None) == "error" for message in used_tools):
            self.cache.engine.refuse(lookup, Reason.NOT_ADMITTED_ERROR)
        elif used_tools and lookup.request.version is None:
            self.cache.engine.refuse(lookup, Reason.NOT_ADMITTED_TOOL_CALLS)
        else:
            self.cache.keep(lookup, [ChatGeneration(message=reply)])

    def _ask(self, request: ModelRequest[Any], opening: Sequence[AnyMessage]) -> Lookup:
        engine = self.cache.engine
        asked, unread = read_request(partial(_read, request, opening))
        found, refused = read_names(self._names, request.runtime)
        refused = unread or refused
        if self._query is not None and refused is None:
            try:
                asked = replace(asked, query=self._query(opening))
            except Exception as problem:  # noqa: BLE001 - the application's callable; its call goes on without the cache
                _log.warning("query= raised %s; the call went on without the cache", type(problem).__name__)
                refused = Reason.INTERNAL_ERROR
        if refused is None and callable(self._names["tenant"]) and found["tenant"] is None:
            refused = Reason.NO_TENANT
        if refused is not None:
            return engine.look_up(asked, refused=refused)
        asked = asked.named(tenant=found["tenant"], user=None, version=found["version"])
        return self.cache.ask(asked, make=generations_of)


def _served(lookup: Lookup | None) -> ModelResponse[Any] | None:
    """Return the kept answer as a model would give it."""
    reply = lookup.reply[0] if lookup is not None and lookup.entry is not None and lookup.reply else None
    if not isinstance(reply, ChatGeneration) or not isinstance(reply.message, AIMessage):
        return None
    return ModelResponse(result=[reply.message])


def _read(request: ModelRequest[Any], opening: Sequence[AnyMessage]) -> AskedRequest:
    """Read the first question with all that the agent and its other middleware can see."""
    model = request.model
    around = {name: value for name, value in cast("dict[str, Any]", request.state).items() if name not in _OWN_STATE}
    held = (caller_config().get("configurable") or {}).items()
    chosen = {name: value for name, value in held if name not in _OF_A_RUN and not name.startswith(_OF_LANGGRAPH)}
    content = ChainContent()
    given = {
        **request.model_settings,
        "tools": [_form(tool) for tool in request.tools],
        "tool_choice": request.tool_choice,
        "around": content.describe([around, getattr(request.runtime, "context", None), chosen]),
        "made": model_content(model),
    }
    system = [request.system_message] if request.system_message is not None else []
    asked = from_messages([*system, *opening], model._get_llm_string(), given)
    opaque = asked.opaque or ", ".join(unseen_classes(content))
    return replace(asked, settings=f"agent {asked.settings}", opaque=opaque)


def _opening(request: ModelRequest[Any]) -> Sequence[AnyMessage] | None:
    """Return the messages up to the first question, while that is the only one; None for what is not answered.

    A structured answer is made by the agent behind this middleware, and a model chosen at run time is not known yet.
    """
    if request.response_format is not None or not isinstance(cast("object", request.model), BaseChatModel):
        return None
    asked = [number for number, message in enumerate(request.messages) if isinstance(message, HumanMessage)]
    if len(asked) != 1 or any(isinstance(message, AIMessage) for message in request.messages[: asked[0]]):
        return None
    return request.messages[: asked[0] + 1]


def _form(tool: BaseTool | dict[str, Any]) -> dict[str, Any]:
    return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)
