"""`StableHeadMiddleware`: the last middleware of an agent, so that it has the last word before the model."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, Literal, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from headstay.errors import ConfigError
from headstay.flow import Flow, OnBreak, Settings, Verify
from headstay.headstore import HeadStore
from headstay.layout import scope_of
from headstay.ledger import Ledger
from headstay.slots import Slot
from langchain_headstay.acting import Acting, Runtime, acting
from langchain_headstay.identity import Binding
from langchain_headstay.instrument import declare, instrument
from langchain_headstay.templates import TemplateLike
from langgraph_headstay.few_shot import FewShot, FewShotAs, as_messages, as_text, choose, dump, load
from langgraph_headstay.last_word import changed, is_own, structured_names, tool_names, whole

MASKED = "masked"
_KEPT_MODELS = 16
_KEPT_REPLIES = 4_096

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
        few_shot: Examples, or a selector that is asked once for each lane; the choice is kept in the head store.
        few_shot_as: "system" appends them to the system text, "messages" puts pairs before the history.
        tail: Per-call text for the end of the human turn, or a callable on the runtime.
        tenant: Nothing is shared between tenants; or a callable on the runtime.
        ttl: Time to live by the provider's name for it, or None for its default.
        late_tools: "auto" puts a tool that arrives late at the end of the list, as one recorded break.
        on_break: "warn", "raise" or "record".
        verify: "local", "off", or "provider" to have the API reject a changed prefix where it can.
        head_store: Where heads, tools, notes and conversations are kept; in memory by default.
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
        tail: str | Callable[[Runtime], str | None] | None = None,
        tenant: str | Callable[[Runtime], str | None] | None = None,
        ttl: str | None = None,
        late_tools: Literal["auto"] = "auto",
        on_break: OnBreak = "warn",
        verify: Verify = "local",
        head_store: HeadStore | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        super().__init__()
        if few_shot_as not in ("system", "messages"):
            raise ConfigError(f'few_shot_as={few_shot_as!r}: say "system" or "messages"')
        listed = choose(cast("Sequence[Any]", few_shot)) if isinstance(few_shot, (list, tuple)) else None
        if listed is not None and few_shot_as == "messages":
            as_messages(listed)
        if late_tools != "auto":
            raise ConfigError(f'late_tools={late_tools!r}: only "auto" is available yet')
        settings = Settings(name or "", declare(template, volatile), ttl, on_break, verify, union=True)
        settings.check_words()
        self.flow = Flow(settings, head_store=head_store, ledger=ledger)
        self._few_shot: Any = few_shot
        self._listed = listed
        self._few_shot_as: FewShotAs = few_shot_as
        self._tail = tail
        self._tenant = tenant
        self._models: OrderedDict[int, tuple[Any, BaseChatModel]] = OrderedDict()
        self._masked: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._lock = Lock()
        self._asking = Lock()

    def wrap_model_call(self, request: ModelRequest[Any], handler: Handler) -> ModelResponse[Any]:
        """Hand a model down whose requests keep the head."""
        handed, now = self._prepare(request)
        with acting(now):
            response = handler(handed)
        return self._finish(handed, now, response)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: AsyncHandler) -> ModelResponse[Any]:
        """Hand a model down whose requests keep the head."""
        handed, now = self._prepare(request)
        with acting(now):
            response = await handler(handed)
        return self._finish(handed, now, response)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]) -> ToolResult:
        """Refuse the call of a tool that was not offered (invariant I5)."""
        return self._refusal(request) or handler(request)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Refuse the call of a tool that was not offered (invariant I5)."""
        return self._refusal(request) or await handler(request)

    def _prepare(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], Acting]:
        system, lost = whole(request.system_message)
        changes: dict[str, Any] = {"system_message": system}
        constant = frozenset[str]()
        if lost:
            self.flow.say(
                f"{lost} of the system message's blocks came without text: AnthropicPromptCachingMiddleware loses the "
                "text of a block that is a plain string; put it behind StableHeadMiddleware or take it out"
            )
        try:
            model = self._instrumented(request.model)
        except ConfigError as problem:  # the model is met inside the user's call, which must not fail for us
            self.flow.say(str(problem))
            model = None
        if model is not None:
            changes["model"] = model
        if self._few_shot is not None:
            try:
                examples = self._examples(request.runtime)
                if self._few_shot_as == "messages":
                    changes["messages"] = [*as_messages(examples), *request.messages]
                else:
                    changes["system_message"] = _with_examples(system, text := as_text(examples))
                    constant = frozenset({text})
            except Exception as problem:  # noqa: BLE001 - the application's selector; its request goes out without
                self.flow.say(f"few_shot= could not be used: {type(problem).__name__}: {problem}")
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

    def _examples(self, runtime: Runtime) -> list[dict[str, str]]:
        if self._listed is not None:  # declared as they are: nothing to ask, nothing to remember
            return self._listed
        tenant = self._tenant(runtime) if callable(self._tenant) else self._tenant
        scope = scope_of(tenant, self.flow.settings.agent)
        store = self.flow.head_store
        with self._asking:  # two first calls at once ask once
            pinned = store.pinned(scope, "few_shot")
            return load(store.pin(scope, "few_shot", dump(choose(self._few_shot))) if pinned is None else pinned)

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
            self.flow.say(
                f"a middleware further inside changed {what}: put StableHeadMiddleware last in middleware=[...]; "
                "here its model had the last word"
            )
        result = [self._marked(reply, offered) if isinstance(reply, AIMessage) else reply for reply in response.result]
        return replace(response, result=result)

    def _marked(self, reply: AIMessage, offered: frozenset[str]) -> AIMessage:
        """Note on a reply which of the tools that it calls were not offered."""
        masked = sorted({call["name"] for call in reply.tool_calls} - offered)
        if not masked:
            return reply
        if reply.id is not None:
            with self._lock:
                self._masked[reply.id] = frozenset(masked)
                while len(self._masked) > _KEPT_REPLIES:
                    self._masked.popitem(last=False)
        own = cast("dict[str, Any]", reply.response_metadata.get("headstay") or {})
        metadata = {**reply.response_metadata, "headstay": {**own, MASKED: masked}}
        return reply.model_copy(update={"response_metadata": metadata})  # a cache may hold the reply itself

    def _refusal(self, request: ToolCallRequest) -> ToolMessage | None:
        call = request.tool_call
        reply = _reply_with(request.state, str(call["id"]))
        if reply is None:
            return None
        own = reply.response_metadata.get("headstay")  # it is there in another process too
        noted = cast("dict[str, Any]", own).get(MASKED, ()) if isinstance(own, dict) else ()
        if call["name"] not in noted and call["name"] not in self._masked.get(reply.id or "", ()):
            return None
        return ToolMessage(
            f"Error: the tool {call['name']} is not available now. Go on without it.",
            tool_call_id=str(call["id"]),
            name=call["name"],
            status="error",
        )


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


def _reply_with(state: Any, call_id: str) -> AIMessage | None:
    """Find the reply that made a tool call."""
    held: dict[str, Any] = cast("dict[str, Any]", state) if isinstance(state, dict) else getattr(state, "__dict__", {})
    messages: Sequence[Any] = held.get("messages") or ()
    for message in reversed(messages):
        if isinstance(message, AIMessage) and any(str(call["id"]) == call_id for call in message.tool_calls):
            return message
    return None
