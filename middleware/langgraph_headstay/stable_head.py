"""`StableHeadMiddleware`: the last middleware of an agent, so that it has the last word before the model."""

from asyncio import to_thread
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Literal, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.store.base import BaseStore
from langgraph.types import Command

from headstay.errors import ConfigError
from headstay.flow import Flow, LateTools, OnBreak, Settings, Verify
from headstay.headstore import HeadStore
from headstay.headstore_shared import conversation_key
from headstay.layout import scope_of
from headstay.ledger import Ledger
from headstay.slots import Slot
from langchain_headstay.acting import Acting, Runtime, acting
from langchain_headstay.identity import Binding, caller_config, tenant_of, thread_of
from langchain_headstay.instrument import declare, instrument
from langchain_headstay.templates import TemplateLike
from langgraph_headstay.few_shot import (
    Asked,
    Examples,
    FewShot,
    FewShotAs,
    FewShotEvery,
    Pins,
    as_messages,
    as_text,
    declare_few_shot,
    first_question,
)
from langgraph_headstay.last_word import changed, is_own, structured_names, tool_names, whole
from langgraph_headstay.offers import MASKED, Offers, messages_of, noted, place_of, reply_with, tool_of
from langgraph_headstay.runtime_store import Conversation, RuntimeStore

_KEPT_MODELS = 16

Handler = Callable[[ModelRequest[Any]], ModelResponse[Any]]
AsyncHandler = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
ToolResult = ToolMessage | Command[Any]


class StableHeadMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
    """Keeps tools, system text and few-shot one head across the turns, threads and restarts of an agent.

    Put it last in `middleware=[...]`.

    Args:
        name: Name of the agent; agents of one application should have different names.
        template: The prompt template that the system text is made from; its variables are the slots.
        volatile: "strict", a list of `Slot`s, or None; see `cache_aware`.
        few_shot: Examples, or a selector that is asked once; the choice is kept in the head store. No async one.
        few_shot_as: "system" appends them to the system text, "messages" puts pairs before the history.
        few_shot_every: "lane" asks once for all conversations, without a question; "conversation" asks once for each
            with its first question, and the choice stands behind the head.
        few_shot_version: A text of yours; another one has the examples chosen anew.
        tail: Per-call text for the end of the human turn, or a callable on the runtime.
        tenant: Nothing is shared between tenants; or a callable on the runtime.
        ttl: Time to live by the provider's name for it, or None for its default.
        late_tools: "auto" appends a tool that arrives late to the conversation where the model has that, so that its
            head stays, and puts it at the end of the list elsewhere, as one recorded break; "list" always does that.
        on_break: "warn", "raise" or "record".
        verify: "local", "off", or "provider" to have the API reject a changed prefix, and say why a prefix was not
            read, where it can.
        head_store: Where heads, tools, notes and conversations are kept; in memory by default. "runtime" keeps them in
            the store that the agent was compiled with, so that workers without a common disk share them.
        ledger: Where every call leaves a row.

    Raises:
        ConfigError: A setting cannot work.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        template: TemplateLike | Sequence[TemplateLike] | None = None,
        volatile: str | Slot | Sequence[Slot] | None = "strict",
        few_shot: FewShot | None = None,
        few_shot_as: FewShotAs = "system",
        few_shot_every: FewShotEvery = "lane",
        few_shot_version: str = "",
        tail: str | Callable[[Runtime], str | None] | None = None,
        tenant: str | Callable[[Runtime], str | None] | None = None,
        ttl: str | None = None,
        late_tools: LateTools = "auto",
        on_break: OnBreak = "warn",
        verify: Verify = "local",
        head_store: HeadStore | Literal["runtime"] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        super().__init__()
        examples = declare_few_shot(few_shot, placed=few_shot_as, every=few_shot_every, version=few_shot_version)
        declared = replace(declare(template, volatile), examples=few_shot_every == "conversation")
        settings = Settings(name or "", declared, ttl, on_break, verify, union=True, late_tools=late_tools)
        settings.check_words()
        self._shared = RuntimeStore(self._say) if head_store == "runtime" else None
        held = self._shared.head_store if self._shared is not None else cast("HeadStore | None", head_store)
        self.flow = Flow(settings, head_store=held, ledger=ledger)
        self._few_shot = None if examples is None else Pins(examples, self.flow.head_store)
        self._offers = Offers(self.flow.head_store)
        self._tail = tail
        self._tenant = tenant
        self._models: OrderedDict[int, tuple[Any, BaseChatModel]] = OrderedDict()
        self._lock = Lock()

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        """Hand a model down whose requests keep the head."""
        with self._sharing(request):
            examples = self._chosen(request)
            handed, now = self._prepare(request, self._ask(request) if examples is None else examples)
            with acting(now):
                response = handler(handed)
            return self._finish(handed, now, response)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> ModelResponse[Any]:
        """Hand a model down whose requests keep the head."""
        async with self._asharing(request):
            examples = self._chosen(request)
            if examples is None and self._few_shot is not None:
                examples = await to_thread(self._ask, request)  # a selector may wait for a network
            handed, now = self._prepare(request, examples)
            with acting(now):
                response = await handler(handed)
            return self._finish(handed, now, response)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        """Refuse the call of a tool that was not offered (invariant I5)."""
        if (shared := self._shared) is not None and (where := self._where(request)) is not None:
            shared.recall(*where, _id_of(request))
        return self._refusal(request) or handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Refuse the call of a tool that was not offered (invariant I5)."""
        if (shared := self._shared) is not None and (where := self._where(request)) is not None:
            await shared.arecall(*where, _id_of(request))
        return self._refusal(request) or await handler(request)

    def _sharing(self, request: ModelRequest[Any]) -> AbstractContextManager[None]:
        """Keep the head store and the runtime's store in step for the time of a model call."""
        shared, where = self._shared, self._where(request)
        return nullcontext() if shared is None or where is None else shared.sharing(*where)

    def _asharing(self, request: ModelRequest[Any]) -> AbstractAsyncContextManager[None]:
        shared, where = self._shared, self._where(request)
        return nullcontext() if shared is None or where is None else shared.asharing(*where)

    def _where(self, request: ModelRequest[Any] | ToolCallRequest) -> tuple[BaseStore | None, Conversation] | None:
        """Say which store and which conversation of it a call belongs to; None where that cannot be said."""
        if self._shared is None:
            return None
        runtime: Runtime = cast("Any", request).runtime  # generic on the one kind of request, and not said of what
        try:
            opening = first_question(messages_of(request.state) or getattr(request, "messages", ()))
            key = conversation_key(thread_of(caller_config()), opening)
            return runtime.store, Conversation(self._scope(runtime), key)
        except Exception:  # noqa: BLE001 - the application's tenant=; whoever needs the tenant says that it failed
            return None

    def _prepare(self, request: ModelRequest[Any], examples: Examples | None) -> tuple[ModelRequest[Any], Acting]:
        system, lost = whole(request.system_message)
        changes: dict[str, Any] = {"system_message": system}
        constant = frozenset[str]()
        for block in lost:
            self.flow.say(
                f"block {block} of the system message came without its text, which cannot be had back: "
                "AnthropicPromptCachingMiddleware in front loses a last block that is a plain string; put it behind "
                'StableHeadMiddleware, take it out, or write the block as {"type": "text", "text": ...}'
            )
        try:
            model = self._instrumented(request.model)
        except ConfigError as problem:  # the model is met inside the user's call, which must not fail for us
            self.flow.say(str(problem))
            model = None
        if model is not None:
            changes["model"] = model
        if self._few_shot is not None and examples is not None:
            declared = self._few_shot.declared
            if declared.placed == "messages":
                changes["messages"] = [*as_messages(examples), *request.messages]
            elif examples or declared.every == "conversation":
                changes["system_message"] = _with_examples(system, text := as_text(examples, declared.every))
                constant = frozenset({text}) if declared.every == "lane" else constant
        handed = request.override(**changes)
        return handed, Acting(request.runtime, self.flow, partial(is_own, handed), constant)

    def _instrumented(self, model: Any) -> BaseChatModel | None:
        """Return a copy of a model that goes through our flow; None for what is no chat model."""
        with self._lock:
            known = self._models.get(id(model))
            if known is not None:
                self._models.move_to_end(id(model))
                return known[1]
        chat = model if isinstance(model, BaseChatModel) else _resolved(model)
        if chat is None:
            return None
        made = instrument(chat, Binding(self.flow, self._tenant, self._tail), lenient=True)
        if chat is model:  # what is resolved anew for each call is not worth keeping
            with self._lock:
                self._models[id(model)] = (model, made)  # holding the model keeps its id its own
                while len(self._models) > _KEPT_MODELS:
                    self._models.popitem(last=False)
        return made

    def _chosen(self, request: ModelRequest[Any]) -> Examples | None:
        """Return the examples where nobody has to be asked."""
        return None if self._few_shot is None else self._guarded(self._few_shot.known, request)

    def _ask(self, request: ModelRequest[Any]) -> Examples | None:
        if self._few_shot is None:
            return None
        examples = self._guarded(self._few_shot.ask, request)
        # A conversation without examples still has the lane's head, which holds their place.
        return [] if examples is None and self._few_shot.declared.every == "conversation" else examples

    def _guarded(self, find: Callable[[Asked], Examples | None], request: ModelRequest[Any]) -> Examples | None:
        try:
            scope = self._scope(request.runtime)
            question = first_question(messages_of(request.state) or request.messages)
            return find(Asked(scope, thread_of(caller_config()), question))
        except Exception as problem:  # noqa: BLE001 - the application's selector; its request goes out without
            self.flow.say(f"few_shot= could not be used: {type(problem).__name__}: {problem}")
            return None

    def _scope(self, runtime: Runtime) -> str:
        return scope_of(tenant_of(self._tenant, runtime), self.flow.settings.agent)

    def _finish(self, handed: ModelRequest[Any], now: Acting, response: ModelResponse[Any]) -> ModelResponse[Any]:
        offered = tool_names(handed.tools) | structured_names(handed.response_format)
        if now.head is not None and (now.head.tools or now.head.wire != "host-messages"):
            offered = frozenset(tool.name for tool in now.head.tools)
        if not now.answered:
            self.flow.unseen(
                "the model that was handed down did not answer: another one did (a fallback or router further inside), "
                "or a cache"
            )
        elif now.head is not None and (what := changed(handed, now.head)):
            self._say_changed(what)
        added = {name for name, there in now.tool_changes.items() if there}
        offered = (offered | added) - (now.tool_changes.keys() - added)
        withheld = not offered.issuperset(now.lane_tools)
        result = [
            self._marked(reply, handed, offered, withheld=withheld) if isinstance(reply, AIMessage) else reply
            for reply in response.result
        ]
        return replace(response, result=result)

    def _say(self, line: str) -> None:
        self.flow.say(line)

    def _say_changed(self, what: str) -> None:
        remedy = "put StableHeadMiddleware last in middleware=[...]"
        if "deepagents" in str((caller_config().get("metadata") or {}).get("lc_versions")):  # on its subagents too
            if what == "the cache markers":  # the caching middleware always stands there; our markers replace its own
                return
            remedy = "create_deep_agent puts middlewares of its own behind StableHeadMiddleware"
        self.flow.say(f"a middleware further inside changed {what}: {remedy}; here its model had the last word")

    def _marked(
        self, reply: AIMessage, handed: ModelRequest[Any], offered: frozenset[str], *, withheld: bool
    ) -> AIMessage:
        """Keep what was offered to a reply, and note on it which of the tools that it calls were not."""
        if not reply.tool_calls:
            return reply
        if self._shared is not None:
            self._shared.made(reply.id)
        masked = sorted({call["name"] for call in reply.tool_calls} - offered)
        try:
            place = place_of(self._scope(handed.runtime), caller_config(), handed.state)
            self._offers.keep(place, reply, offered, withheld=withheld or bool(masked))
        except Exception as problem:  # noqa: BLE001 - the note on the reply is there all the same
            self.flow.say(f"what was offered could not be kept: {type(problem).__name__}: {problem}")
        if not masked:
            return reply
        own = cast("dict[str, Any]", reply.response_metadata.get("headstay") or {})
        metadata = {**reply.response_metadata, "headstay": {**own, MASKED: masked}}
        return reply.model_copy(update={"response_metadata": metadata})  # a cache may hold the reply itself

    def _refusal(self, request: ToolCallRequest) -> ToolMessage | None:
        call_id, called = str(request.tool_call["id"]), request.tool_call["name"]
        reply = reply_with(request.state, call_id)
        if reply is None:
            return None
        tool = tool_of(request.state, call_id, called)
        runtime: Runtime = cast("Any", request).runtime  # generic there, and not said of what
        try:
            place = place_of(self._scope(runtime), caller_config(), request.state)
            refused = self._offers.refuses(place, reply, tool)
        except Exception as problem:  # noqa: BLE001 - what the reply itself says still holds
            self.flow.say(f"what was offered could not be read: {type(problem).__name__}: {problem}")
            refused = tool in noted(reply)
        if not refused:
            return None
        return ToolMessage(
            f"Error: the tool {tool} is not available now. Go on without it.",
            tool_call_id=call_id,
            name=called,
            status="error",
        )


def _id_of(request: ToolCallRequest) -> str | None:
    """Return the id of the reply that made a tool call."""
    reply = reply_with(request.state, str(request.tool_call["id"]))
    return None if reply is None else reply.id


def _resolved(model: Any) -> BaseChatModel | None:
    """Return the chat model behind one that is configurable at run time."""
    resolve = getattr(model, "_model", None)
    found = resolve() if callable(resolve) else None
    return found if isinstance(found, BaseChatModel) else None


def _with_examples(given: SystemMessage | None, examples: str) -> SystemMessage:
    block: dict[str, Any] = {"type": "text", "text": examples}
    if given is None:
        return SystemMessage(content=[block])
    before = [{"type": "text", "text": given.content}] if isinstance(given.content, str) else given.content
    return given.model_copy(update={"content": [*before, block]})
