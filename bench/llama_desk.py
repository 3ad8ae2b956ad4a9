"""The application of the hostile agent on LlamaIndex: a support desk of `FunctionAgent`s, as one process holds it.

It breaks the prefix in every way its users do: clock, id and customer in the system prompt, tools in another order at
each call, one late, one removed, one changed, retrieved text, a state, an agent as a tool, histories in a memory, at
the client, or in the context of an `AgentWorkflow`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from warnings import catch_warnings, simplefilter

from llama_index.core.agent.workflow import AgentOutput, AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import BaseMemory, BaseMemoryBlock, ChatMemoryBuffer
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.workflow import Context, JsonSerializer
from sqlalchemy.ext.asyncio import create_async_engine
from workflows.context.state_store import UnserializableKeyWarning

from headstay.causes import Break
from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import AgentWorkload
from headstay.emulator.agent_workload_labels import DESK, SPECIALIST, AgentCall, AgentTurn, ToolForm
from headstay.emulator.shape import compact
from headstay.headstore import HeadStore
from headstay.ledger import Ledger, Row
from llama_index_headstay import SteppedMemory, cache_aware
from llama_index_headstay.tail import with_tail
from llama_labels import HANDBOOK

Variant = Literal["plain", "headstay"]
VARIANTS: tuple[Variant, ...] = ("plain", "headstay")
MakeLLM = Callable[[str], FunctionCallingLLM]

ROOM = 1_000_000  # tokens of a memory: no history is cut

TENANT: ContextVar[str | None] = ContextVar("desk_tenant", default=None)
RETRIEVED: ContextVar[str | None] = ContextVar("desk_retrieved", default=None)


@dataclass(slots=True)
class Stage:
    """What is being played: the calls still to come in this turn, and what ran.

    Attributes:
        set_clocks: Sets the clocks to the moment of a call: the server's and this process's, since both judge how long
            a prefix lives.
        ahead: The labelled calls of the turn, in the order in which they come.
        now: The call that each agent made last.
        ran: Thread, turn and name of each tool whose body ran.
        answers: Thread, turn and text of each answer to a user.
    """

    set_clocks: Callable[[float], None]
    ahead: list[AgentCall] = field(default_factory=list[AgentCall])
    now: dict[str, AgentCall] = field(default_factory=dict[str, AgentCall])
    ran: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    answers: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])

    def next(self, agent: str) -> AgentCall:
        """Take the next labelled call, and let its time come."""
        call = self.ahead.pop(0)
        if call.agent != agent:
            raise RuntimeError(f"{agent} calls its model where {call.agent} is due: {call.thread}, turn {call.turn}")
        self.set_clocks(call.at)
        self.now[agent] = call
        return call

    def result(self, agent: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a tool: return what the labels say, and note that it ran."""
        call = self.now[agent]
        self.ran.append((call.thread, call.turn, name))
        asked = compact(dict(arguments))
        return next(use.result for use in call.said.uses if (use.name, compact(use.arguments)) == (name, asked))


class HostileAgent(FunctionAgent):
    """The application's agent: at each call its system prompt is filled in anew, and its tools stand in another order.

    Attributes:
        stage: What is being played.
        written: Writes the system prompt of a call.
    """

    stage: Stage
    written: Callable[[AgentCall], str]

    async def take_step(self, ctx: Any, llm_input: list[ChatMessage], tools: Sequence[Any], memory: Any) -> AgentOutput:
        """Call the model as LlamaIndex does."""
        call = self.stage.next(self.name)
        by_name = {tool.metadata.name: tool for tool in tools}
        offered = [by_name[form.name] for form in call.tools]
        system = ChatMessage(role=MessageRole.SYSTEM, content=self.written(call))
        return await super().take_step(ctx, [system, *llm_input[1:]], offered, memory)


class Handbook(BaseMemoryBlock[str]):
    """A memory block that gives the text retrieved for the question at hand."""

    name: str = HANDBOOK

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:  # noqa: ARG002 - as the host's
        return RETRIEVED.get() or ""

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Keep nothing."""


class _Form(ToolMetadata):
    """A tool's metadata with a JSON schema instead of a class, as tools from elsewhere have it."""

    schema: Mapping[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        return dict(self.schema)


class Application:
    """The support desk as one process holds it; made anew after a restart from the same files.

    Args:
        workload: For the system prompts of its lanes.
        variant: "plain" for the bare LLM, or "headstay".
        make: Makes the LLM of a tenant.
        stage: What is being played.
        folder: Where its SQLite files are.
        streaming: Whether the agents stream, as they do by default.
    """

    def __init__(
        self, workload: AgentWorkload, variant: Variant, make: MakeLLM, stage: Stage, folder: Path, *, streaming: bool
    ) -> None:
        self._workload, self._ours, self._make, self._stage = workload, variant == "headstay", make, stage
        self._streaming = streaming
        self._engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'memories.db'}")
        self._head_store = HeadStore(folder / "heads.db")
        self.ledger = Ledger(folder / "ledger.db")
        self._bare: dict[str, FunctionCallingLLM] = {}
        self._llms: dict[tuple[str, str], FunctionCallingLLM] = {}
        self._memories: dict[str, SteppedMemory] = {}

    async def close(self) -> None:
        """Let go of everything."""
        for llm in (*self._bare.values(), *self._llms.values()):
            await close_clients(llm)
        await self._engine.dispose()
        self._head_store.close()
        self.ledger.close()

    async def play(self, turn: AgentTurn, held: str) -> str:
        """Play a user turn.

        Args:
            turn: The turn.
            held: What is kept of the thread outside this process, as JSON: by the client, or with the context of an
                `AgentWorkflow`.

        Returns:
            What is kept of it from now on.
        """
        thread, call = turn.thread, turn.calls[0]
        self._stage.ahead = list(turn.calls)
        TENANT.set(thread.tenant)
        RETRIEVED.set(call.values[HANDBOOK].strip() if self._ours and thread.held != "client" else None)
        agent = self._agent(DESK, call)
        if thread.held == "nested":
            output, held = await self._in_workflow(agent, turn, held)
        elif thread.held == "client":
            memory = ChatMemoryBuffer.from_defaults(token_limit=ROOM)
            history = _messages(json.loads(held or "[]"))
            output = await agent.run(user_msg=self._said(turn), chat_history=history, memory=memory)
            held = json.dumps(_stored(memory))
        else:
            output = await agent.run(user_msg=self._said(turn), memory=self._memory(thread.name))
        if self._stage.ahead:
            raise RuntimeError(f"{thread.name} turn {turn.number} ended before its last call")
        self._stage.answers.append((thread.name, turn.number, str(output)))
        return held

    async def _in_workflow(self, agent: HostileAgent, turn: AgentTurn, held: str) -> tuple[Any, str]:
        """Run an agent with a state inside an `AgentWorkflow`, whose context was stored after the last turn."""
        flow = AgentWorkflow(agents=[agent], root_agent=agent.name, initial_state={"turn": turn.number})
        context, history = Context(flow), list[ChatMessage]()
        if held:
            stored = json.loads(held)
            context = Context.from_dict(flow, stored["context"], serializer=JsonSerializer())
            await context.store.set("state", {"turn": turn.number})
            history = _messages(stored["memory"])
        memory = ChatMemoryBuffer.from_defaults(chat_history=history, token_limit=ROOM)
        output = await flow.run(user_msg=self._said(turn), ctx=context, memory=memory)
        with catch_warnings():
            simplefilter("ignore", UnserializableKeyWarning)  # says that the memory is to be stored by oneself
            stored = {"context": context.to_dict(serializer=JsonSerializer()), "memory": _stored(memory)}
        return output, json.dumps(stored)

    def _said(self, turn: AgentTurn) -> ChatMessage:
        """Make the user's message; at the client it bears the retrieved text."""
        words = turn.user
        if turn.thread.held == "nested":  # the state is written around them by the host
            words = words.partition("Current message:\n")[2].removesuffix("\n")
        message = ChatMessage(role=MessageRole.USER, content=words)
        if turn.image is not None:
            picture = ImageBlock(image=turn.image.encode(), image_mimetype="image/png")
            message = message.model_copy(update={"blocks": [TextBlock(text=words), picture]})
        if turn.thread.held == "client" and self._ours:
            return with_tail(message, turn.calls[0].values[HANDBOOK])
        return message

    def _memory(self, thread: str) -> BaseMemory:
        """Return the memory of a thread, from its file; in every second thread a block recalls the retrieved text."""
        if thread not in self._memories:
            self._memories[thread] = SteppedMemory.from_defaults(
                session_id=thread,
                token_limit=ROOM,
                memory_blocks=[Handbook()] if self._ours and self._recalls(thread) else [],
                async_engine=self._engine,
            )
        return self._memories[thread]

    @staticmethod
    def _recalls(thread: str) -> bool:
        return int(thread[-2:]) % 4 == 0

    def _agent(self, name: str, call: AgentCall) -> HostileAgent:
        return HostileAgent(
            name=name,
            system_prompt=self._written(call),
            tools=[self._tool(name, form) for form in call.tools],
            llm=self._llm(name, call.tenant),
            streaming=self._streaming,
            stage=self._stage,
            written=self._written,
        )

    def _written(self, call: AgentCall) -> str:
        """Fill the system prompt in; without headstay the retrieved text stands in it."""
        parts = (part.text for part in call.system if not (self._ours and part.name == HANDBOOK))
        return "".join(parts) + self._examples(call)

    def _examples(self, call: AgentCall) -> str:
        pinned = self._workload.pinned[call.lane]
        return f"\n\n{texts.examples_text(pinned)}" if pinned else ""

    def _template(self, call: AgentCall) -> PromptTemplate:
        """Make the prompt template that a lane's system prompt is filled in from."""
        parts = [part for part in call.system if part.name != HANDBOOK]
        text = "".join(part.text if part.name is None else f"{{{part.name}}}" for part in parts)
        whole = PromptTemplate(text + self._examples(call))
        # The handbook shows marks in braces; they are words of the prompt and no values.
        prose = {name: f"{{{name}}}" for name in whole.template_vars if name not in call.values}
        return whole.partial_format(**prose)

    def _llm(self, name: str, tenant: str) -> FunctionCallingLLM:
        """Make the LLM of an agent and a tenant, which is a workspace with its own key."""
        if tenant not in self._bare:
            self._bare[tenant] = self._make(tenant)
        if not self._ours:
            return self._bare[tenant]
        if (name, tenant) not in self._llms:
            first = next(call for call in self._workload.calls if (call.agent, call.tenant) == (name, tenant))
            self._llms[name, tenant] = cache_aware(
                self._bare[tenant],
                name=name,
                template=self._template(first),
                tenant=TENANT.get,
                tail=self._tail,
                on_break="record",
                head_store=self._head_store,
                ledger=self.ledger,
            )
        return self._llms[name, tenant]

    def _tail(self) -> str | None:
        """Return the retrieved text, where no memory block recalls it."""
        call = self._stage.now[DESK]
        return None if self._recalls(call.thread) else RETRIEVED.get()

    def _tool(self, agent: str, form: ToolForm) -> FunctionTool:
        async def run(**arguments: Any) -> str:
            if form.name == texts.SUBAGENT_TOOL:
                return await self._ask(str(arguments["question"]))
            return self._stage.result(agent, form.name, arguments)

        metadata = _Form(description=form.description, name=form.name)
        metadata.schema = form.schema
        return FunctionTool(async_fn=run, metadata=metadata)

    async def _ask(self, question: str) -> str:
        """Ask the specialist, an agent of its own."""
        RETRIEVED.set(None)
        call = self._stage.ahead[0]
        return str(await self._agent(SPECIALIST, call).run(user_msg=question))


def _messages(stored: list[Any]) -> list[ChatMessage]:
    return [ChatMessage.model_validate(one) for one in stored]


def _stored(memory: ChatMemoryBuffer) -> list[Any]:
    return [message.model_dump(mode="json") for message in memory.get_all()]


async def close_clients(llm: FunctionCallingLLM) -> None:
    """Close the SDK's clients inside an LLM."""
    held = llm.__pydantic_private__ or {}
    if held.get("_aclient") is not None:
        await held["_aclient"].close()
    if held.get("_client") is not None:
        held["_client"].close()


@dataclass(frozen=True, slots=True)
class Kept:
    """What a run leaves beside what was sent.

    Attributes:
        rows: The ledger's rows, one for each call; none where headstay was not there.
        ran: Thread, turn and name of each tool whose body ran.
        answers: Thread, turn and text of each answer to a user.
    """

    rows: tuple[Row, ...]
    ran: tuple[tuple[str, int, str], ...]
    answers: tuple[tuple[str, int, str], ...]

    @property
    def breaks(self) -> tuple[tuple[Break, ...], ...]:
        """The breaks found at each call."""
        return tuple(row.breaks for row in self.rows)


def play(
    workload: AgentWorkload,
    variant: Variant,
    make: MakeLLM,
    stage: Stage,
    folder: Path,
    *,
    streaming: bool = True,
    step: Callable[[int], None] = lambda _: None,
) -> Kept:
    """Play a workload through the agents of one variant.

    Args:
        workload: The labelled calls.
        variant: "plain" or "headstay".
        make: Makes the LLM of a tenant.
        stage: What is being played.
        folder: An empty folder for its files.
        streaming: Whether the agents stream, as they do by default.
        step: Called after each turn with the number of calls made so far.
    """
    return asyncio.run(_play(workload, variant, make, stage, folder, streaming=streaming, step=step))


async def _play(
    workload: AgentWorkload,
    variant: Variant,
    make: MakeLLM,
    stage: Stage,
    folder: Path,
    *,
    streaming: bool,
    step: Callable[[int], None],
) -> Kept:
    held: dict[str, str] = {}
    made = 0
    desk = Application(workload, variant, make, stage, folder, streaming=streaming)
    for turn in workload.turns:
        if (turn.thread.name, turn.number) == workload.restart:
            await desk.close()
            desk = Application(workload, variant, make, stage, folder, streaming=streaming)
        held[turn.thread.name] = await desk.play(turn, held.get(turn.thread.name, ""))
        made += len(turn.calls)
        step(made)
    await desk.close()
    with closing(Ledger(folder / "ledger.db")) as ledger:
        rows = tuple(ledger.rows())
    return Kept(rows, tuple(stage.ran), tuple(stage.answers))
