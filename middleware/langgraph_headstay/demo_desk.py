"""The application of the hostile agent: a support desk built with `create_agent`, as one process holds it.

It breaks the prefix in every known way: clock, ids and few-shot in the system text, tools in another order each call,
one late, one removed, one changed, a subagent as a tool, a nested node, a history that the client holds, a summary.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, cast

from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ModelRequest,
    ModelResponse,
    SummarizationMiddleware,
    dynamic_prompt,
)
from langchain.agents.structured_output import ProviderStrategy
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.prompts import SystemMessagePromptTemplate
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver

from headstay.emulator import Emulator, ManualClock
from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload_labels import (
    DESK,
    SPECIALIST,
    AgentCall,
    AgentThread,
    AgentTurn,
    Example,
    ToolForm,
)
from headstay.emulator.reply import Wire
from headstay.emulator.shape import compact
from headstay.emulator.workload_text import TENANTS
from headstay.headstore import HeadStore
from headstay.ledger import Ledger
from langchain import agents
from langgraph_headstay.stable_head import StableHeadMiddleware

Variant = Literal["plain", "vendor", "headstay"]

# Both builders have parameters without types of their own.
_create_agent = cast("Any", agents).create_agent
_graphs = cast("Any", import_module("langgraph.graph"))

_TENANTS = {tenant.name: tenant for tenant in TENANTS}
_PROMPTS = {DESK: texts.desk_prompt, SPECIALIST: texts.specialist_prompt}


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """One model on one wire.

    Attributes:
        provider: Provider name.
        wire: Wire format.
        model: Model id.
        thinking: Whether it thinks; its notes stay where they were sent.
        native_late_tools: Whether the provider can append a tool to a conversation, for a second oracle.
        note_behind_user: Whether it takes no system message in place, so that a note stands behind the user's words
            also while tools are called; for a second oracle.
    """

    provider: Literal["anthropic", "openai"]
    wire: Wire
    model: str
    thinking: bool = False
    native_late_tools: bool = False
    note_behind_user: bool = False

    @property
    def variants(self) -> tuple[Variant, ...]:
        """What is run on it; the vendor's caching middleware exists for Anthropic only."""
        return ("plain", "vendor", "headstay") if self.provider == "anthropic" else ("plain", "headstay")


@dataclass(frozen=True, slots=True)
class Context:
    """What the application knows of a run: whose it is."""

    tenant: str


@dataclass(slots=True)
class Stage:
    """What is being played: the clock, the calls still to come in this turn, and what ran.

    Attributes:
        clock: The emulator's clock.
        lengths: How many messages each turn of each thread adds to its history.
        ahead: The labelled calls of the turn, in the order in which they come.
        now: The call that each agent made last.
        ran: Thread, turn and name of each tool whose body ran.
    """

    clock: ManualClock
    lengths: Mapping[tuple[str, int], int]
    ahead: list[AgentCall] = field(default_factory=list[AgentCall])
    now: dict[str, AgentCall] = field(default_factory=dict[str, AgentCall])
    ran: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])

    def next(self, agent: str) -> AgentCall:
        """Take the next labelled call, and let its time come."""
        call = self.ahead.pop(0)
        if call.agent != agent:
            raise RuntimeError(f"{agent} calls its model where {call.agent} is due: {call.thread}, turn {call.turn}")
        self.clock.set(call.at)
        self.now[agent] = call
        return call

    def result(self, agent: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool: return what the labels say, and note that it ran."""
        call = self.now[agent]
        self.ran.append((call.thread, call.turn, name))
        asked = compact(dict(arguments))
        return next(use.result for use in call.said.uses if (use.name, compact(use.arguments)) == (name, asked))


class Hostile(AgentMiddleware[AgentState[Any], Any, Any]):
    """The application's own middleware: offers other tools, in another order, call by call.

    Args:
        stage: What is being played.
        agent: Whose calls it sees.
        tools: All tools of the agent by definition.
    """

    def __init__(self, stage: Stage, agent: str, tools: Mapping[str, BaseTool]) -> None:
        super().__init__()
        self._stage, self._agent, self._tools = stage, agent, tools

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Offer the tools of this call, and nothing else."""
        call = self._stage.next(self._agent)
        changes: dict[str, Any] = {"tools": [_offered(self._tools[form.name], form) for form in call.tools]}
        if call.structured:
            changes["response_format"] = ProviderStrategy(dict(texts.RESOLUTION))
        if call.tool_choice is not None:
            anthropic = isinstance(request.model, ChatAnthropic)
            changes["tool_choice"] = {"type": call.tool_choice} if anthropic else call.tool_choice
        return handler(request.override(**changes))


def _offered(tool: BaseTool, form: ToolForm) -> BaseTool:
    same = tool.description == form.description
    return tool if same else tool.model_copy(update={"description": form.description, "args_schema": form.schema})


class Selector:
    """The application's example selector: another choice at each turn.

    Args:
        stage: What is being played.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def select_examples(self, input_variables: Mapping[str, str]) -> list[dict[str, str]]:  # noqa: ARG002 - as LangChain's
        """Choose examples for the question at hand."""
        return [{"input": one.question, "output": one.answer} for one in self.chosen()]

    def chosen(self) -> Sequence[Example]:
        """Return the choice of this turn."""
        return self._stage.now[DESK].examples


class Application:
    """The support desk as one process holds it; made anew after a restart from the same files.

    Args:
        setup: Which model.
        variant: "plain", "vendor" or "headstay".
        server: The emulator.
        stage: What is being played.
        folder: Where its SQLite files are.
    """

    def __init__(self, setup: AgentSetup, variant: Variant, server: Emulator, stage: Stage, folder: Path) -> None:
        self._setup, self._variant, self._server, self._stage = setup, variant, server, stage
        self._threads = sqlite3.connect(folder / "threads.db", check_same_thread=False)
        self._checkpointer = SqliteSaver(self._threads)
        self._head_store = HeadStore(folder / "heads.db")
        self.ledger = Ledger(folder / "ledger.db")
        self._models: dict[str, BaseChatModel] = {}
        self._agents: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        """Let go of everything."""
        self._head_store.close()
        self.ledger.close()
        self._threads.close()

    def play(self, turn: AgentTurn, held: list[AnyMessage]) -> list[AnyMessage]:
        """Play a user turn.

        Args:
            turn: The turn.
            held: What the client holds of the thread, where it does.

        Returns:
            What the client holds from now on.
        """
        thread = turn.thread
        self._stage.ahead = list(turn.calls)
        config = {} if thread.held == "client" else {"configurable": {"thread_id": thread.name}}
        result = self._agent(thread).invoke({"messages": [*held, _human(turn)]}, config, context=Context(thread.tenant))
        if self._stage.ahead:
            raise RuntimeError(f"{thread.name} turn {turn.number} ended before its last call")
        return result["messages"] if thread.held == "client" else []

    def _agent(self, thread: AgentThread) -> Any:
        """Return the agent that serves a thread; one for each tenant and way to hold a history."""
        key = (thread.tenant, "summarised" if thread.summary is not None else thread.held)
        if key not in self._agents:
            own = self._checkpointer if thread.held == "checkpointer" else None
            tools, before = self._desk_tools(thread.tenant), self._summariser(thread)
            agent = self._make(DESK, thread.tenant, tools, before=before, checkpointer=own)
            self._agents[key] = self._parent(agent) if thread.held == "nested" else agent
        return self._agents[key]

    def _parent(self, agent: Any) -> Any:
        """Put the agent into another graph, whose checkpointer keeps the history."""
        graph = _graphs.StateGraph(_graphs.MessagesState, context_schema=Context)
        graph.add_node("desk", agent)
        graph.add_edge(_graphs.START, "desk")
        return graph.compile(checkpointer=self._checkpointer)

    def _make(
        self,
        agent: str,
        tenant: str,
        tools: Mapping[str, BaseTool],
        *,
        before: Sequence[Any] = (),
        checkpointer: Any,
    ) -> Any:
        prompt = texts.as_format(_PROMPTS[agent](_TENANTS[tenant]))
        own = (Hostile(self._stage, agent, tools), self._prompt(agent, prompt))
        return _create_agent(
            self._model(tenant),
            list(tools.values()),
            middleware=[*before, *own, *self._last(agent, prompt)],
            checkpointer=checkpointer,
            context_schema=Context,
            name=agent,
        )

    def _prompt(self, agent: str, prompt: str) -> Any:
        """Make the application's dynamic prompt: the filled template, and the examples unless headstay adds them."""
        stage, selector = self._stage, Selector(self._stage)
        few_shot = agent == DESK and self._variant != "headstay"

        def filled(request: ModelRequest[Any]) -> str:  # noqa: ARG001 - the host hands it over
            text = prompt.format(**stage.now[agent].values)
            return f"{text}\n\n{texts.examples_text(selector.chosen())}" if few_shot else text

        return dynamic_prompt(filled)

    def _last(self, agent: str, prompt: str) -> list[Any]:
        if self._variant == "plain":
            return []
        if self._variant == "vendor":
            return [AnthropicPromptCachingMiddleware()]
        return [
            StableHeadMiddleware(
                name=agent,
                template=SystemMessagePromptTemplate.from_template(prompt),
                few_shot=Selector(self._stage) if agent == DESK else None,
                tenant=lambda runtime: cast("Context", runtime.context).tenant,
                on_break="record",
                head_store=self._head_store,
                ledger=self.ledger,
            )
        ]

    def _summariser(self, thread: AgentThread) -> list[Any]:
        """Make the summariser of a thread that has one: its history is long enough for it once."""
        summary = thread.summary
        if summary is None:
            return []
        lengths = [self._stage.lengths[thread.name, number] for number in range(1, summary.turn)]
        return [
            SummarizationMiddleware(
                self._model(thread.tenant),
                trigger=("messages", 1 + sum(lengths)),
                keep=("messages", 1 + sum(lengths[summary.kept_from - 1 :])),
                summary_prompt=texts.SUMMARY_PROMPT,
                trim_tokens_to_summarize=None,
            )
        ]

    def _desk_tools(self, tenant: str) -> dict[str, BaseTool]:
        tools = {name: self._tool(DESK, scene.form) for name, scene in texts.DESK_TOOLS.items()}
        own = {name: self._tool(SPECIALIST, scene.form) for name, scene in texts.SPECIALIST_TOOLS.items()}
        specialist = self._make(SPECIALIST, tenant, own, checkpointer=None)

        def ask(question: str) -> str:
            asked = {"messages": [HumanMessage(question)]}
            return str(specialist.invoke(asked, context=Context(tenant))["messages"][-1].text)

        tools[texts.SUBAGENT_TOOL] = _tool(texts.DESK_TOOLS[texts.SUBAGENT_TOOL].form, ask)
        return tools

    def _tool(self, agent: str, form: ToolForm) -> BaseTool:
        def run(**arguments: Any) -> str:
            return self._stage.result(agent, form.name, arguments)

        return _tool(form, run)

    def _model(self, tenant: str) -> BaseChatModel:
        """Make the host's own model, pointed at the emulator; a tenant is a workspace with its own key."""
        if tenant not in self._models:
            shared: dict[str, Any] = {"model": self._setup.model, "api_key": tenant, "max_retries": 0}
            if self._setup.provider == "anthropic":
                thinking = {"thinking": {"type": "adaptive"}} if self._setup.thinking else {}
                shared.update(base_url=self._server.base_url, max_tokens=4_000, **thinking)
                made: Any = ChatAnthropic(**shared)
            else:
                responses = self._setup.wire == "openai-responses"
                shared.update(base_url=self._server.openai_url, use_responses_api=responses)
                made = ChatOpenAI(**shared)
            self._models[tenant] = made
        return self._models[tenant]


def _tool(form: ToolForm, run: Callable[..., str]) -> BaseTool:
    return StructuredTool.from_function(
        func=run, name=form.name, description=form.description, args_schema=dict(form.schema)
    )


def _human(turn: AgentTurn) -> HumanMessage:
    if turn.image is None:
        return HumanMessage(turn.user)
    picture = {"type": "image", "base64": turn.image, "mime_type": "image/png"}
    return HumanMessage(content=[{"type": "text", "text": turn.user}, picture])
