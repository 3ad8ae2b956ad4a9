"""The hostile agent on the local model: a server of its own, cold and warm heads, and what is read with headstay.

A model of 135 million parameters calls no tools, so the application replays the workload's labels: every request goes
to vLLM and computes one token, and what the labels say stands in the history. Every count is vLLM's own.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple, cast
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse, dynamic_prompt
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.prompts import SystemMessagePromptTemplate
from langchain_core.tools import BaseTool, StructuredTool

from headstay.emulator import ManualClock
from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import support_agent
from headstay.emulator.agent_workload_labels import DESK, AgentCall, AgentThread, AgentTurn, ToolForm
from headstay.emulator.workload_text import TENANTS
from headstay.ledger import Ledger
from headstay.local.home import Home
from headstay.local.log import Say
from langchain import agents
from langchain_headstay.chat_local import ChatLocal
from langgraph_headstay.demo_desk import Context, Stage
from langgraph_headstay.demo_server import Started, own_server
from langgraph_headstay.stable_head import StableHeadMiddleware

Variant = Literal["plain", "headstay"]
VARIANTS: tuple[Variant, ...] = ("plain", "headstay")

SERVE = ("--context", "8192", "--kv-gib", "1")
ROUNDS = 3
THREADS = (2, 3, 6)  # of the workload: two of one tenant, one of the other, and none that asks the specialist
TURNS = 3
_PARAGRAPHS = 12  # of the system text; the whole one would keep a CPU without bfloat16 busy for minutes
_MARK = "<<"  # of a value in it

# Its builder has parameters without types of their own.
_create_agent = cast("Any", agents).create_agent
_savers = cast("Any", import_module("langgraph.checkpoint.memory"))


class Seen(NamedTuple):
    """One call: how long its only token took, and what vLLM says of its prompt."""

    ms: float
    prompt: int
    cached: int


@dataclass(frozen=True, slots=True)
class Work:
    """What is played.

    Attributes:
        turns: The user turns, in order.
        prompts: The system text of each tenant, as a format string.
        tools: The tools on offer, by name.
    """

    turns: tuple[AgentTurn, ...]
    prompts: Mapping[str, str]
    tools: Mapping[str, ToolForm]

    @property
    def calls(self) -> list[AgentCall]:
        """The model calls, in order."""
        return [call for turn in self.turns for call in turn.calls]


def short_work(threads: Sequence[int] = THREADS, turns: int = TURNS) -> Work:
    """Cut the hostile agent to a few conversations, a shorter system text, and the tools that they call.

    Args:
        threads: Places of the conversations in the workload; places whose remainder by 4 is 2 or 3 ask no specialist.
        turns: User turns of each.
    """
    whole = support_agent(threads=max(threads) + 2, longest=6)
    names = [whole.threads[place].name for place in threads]
    chosen = tuple(turn for turn in whole.turns if turn.thread.name in names and turn.number <= turns)
    forms = {form.name: form for turn in chosen for call in turn.calls for form in call.tools}
    tools = {name: form for name, form in sorted(forms.items()) if name != texts.SUBAGENT_TOOL}
    return Work(chosen, {tenant.name: texts.as_format(_cut(texts.desk_prompt(tenant))) for tenant in TENANTS}, tools)


def _cut(prompt: str) -> str:
    """Keep the first paragraphs, and all that hold a value."""
    paragraphs = enumerate(prompt.split("\n\n"))
    return "\n\n".join(text for place, text in paragraphs if place < _PARAGRAPHS or _MARK in text)


class Replay(AgentMiddleware[AgentState[Any], Any, Any]):
    """The application's own middleware: tools in another order each call, and the reply that the labels have.

    Args:
        stage: What is being played.
        tools: The agent's tools.
        seen: Where each call is noted.
    """

    def __init__(self, stage: Stage, tools: Mapping[str, BaseTool], seen: Callable[[Seen], None]) -> None:
        super().__init__()
        self._stage, self._tools, self._seen = stage, tools, seen

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Let the model answer, note what it took, and go on with the scripted reply."""
        call = self._stage.next(DESK)
        offered = [self._tools[form.name] for form in call.tools if form.name in self._tools]
        begun = time.perf_counter()
        answer = handler(request.override(tools=[*offered]))
        took = time.perf_counter() - begun
        self._seen(_seen(took, cast("AIMessage", answer.result[-1])))
        calls = [{"name": use.name, "args": dict(use.arguments), "id": use.id} for use in call.said.uses]
        return ModelResponse(result=[AIMessage(call.said.text, tool_calls=calls)])


def _seen(seconds: float, message: AIMessage) -> Seen:
    usage = message.usage_metadata
    assert usage is not None
    return Seen(1e3 * seconds, usage["input_tokens"], usage.get("input_token_details", {}).get("cache_read", 0))


def play(work: Work, variant: Variant, model: ChatLocal, *, ledger: Ledger, seen: Callable[[Seen], None]) -> None:
    """Play the work with one agent for each tenant.

    Args:
        work: What is played.
        variant: "plain" has the application's own middleware only, "headstay" has ours behind it.
        model: The model.
        ledger: Where headstay notes its calls.
        seen: Called after each model call.
    """
    stage = Stage(ManualClock(work.turns[0].calls[0].at), {})
    tools = {name: _tool(stage, form) for name, form in work.tools.items()}
    saver, made = _savers.InMemorySaver(), dict[str, Any]()
    for turn in work.turns:
        thread = turn.thread
        if thread.tenant not in made:
            last = [_stable_head(work, thread, ledger)] if variant == "headstay" else []
            made[thread.tenant] = _create_agent(
                model,
                [*tools.values()],
                middleware=[Replay(stage, tools, seen), _prompt(stage, work.prompts[thread.tenant]), *last],
                checkpointer=saver,
                context_schema=Context,
                name=DESK,
            )
        stage.ahead = [*turn.calls]
        made[thread.tenant].invoke(
            {"messages": [HumanMessage(turn.user)]},
            {"configurable": {"thread_id": thread.name}},
            context=Context(thread.tenant),
        )


def _stable_head(work: Work, thread: AgentThread, ledger: Ledger) -> StableHeadMiddleware:
    return StableHeadMiddleware(
        name=DESK,
        template=SystemMessagePromptTemplate.from_template(work.prompts[thread.tenant]),
        tenant=lambda runtime: cast("Context", runtime.context).tenant,
        on_break="record",
        ledger=ledger,
    )


def _prompt(stage: Stage, prompt: str) -> Any:
    """Make the application's dynamic prompt: clock, request id and customer stand in the system text."""

    def filled(request: ModelRequest[Any]) -> str:  # noqa: ARG001 - the host hands it over
        return prompt.format(**stage.now[DESK].values)

    return dynamic_prompt(filled)


def _tool(stage: Stage, form: ToolForm) -> BaseTool:
    def run(**arguments: Any) -> str:
        return stage.result(DESK, form.name, arguments)

    return StructuredTool.from_function(
        func=run, name=form.name, description=form.description, args_schema=dict(form.schema)
    )


def first_tokens(work: Work, model: ChatLocal, rounds: int) -> dict[str, Seen]:
    """Time a cold head and the same head again, each time with a cache salt that nobody used before.

    Returns:
        Medians of "cold" and "warm", from the call to the first chunk of the stream with text.
    """
    call = work.calls[0]
    system = work.prompts[call.tenant].format(**call.values)
    tools = [
        {"name": form.name, "description": form.description, "parameters": dict(form.schema)}
        for form in work.tools.values()
    ]
    found: dict[str, list[Seen]] = {"cold": [], "warm": []}
    for _ in range(rounds):
        salted = model.model_copy(update={"extra_body": {"cache_salt": uuid4().hex, "ignore_eos": True}})
        for kind, question in (("cold", "Where is my parcel?"), ("warm", "Who pays for the way back?")):
            messages: list[BaseMessage] = [SystemMessage(system), HumanMessage(question)]
            found[kind].append(_streamed(cast("Any", salted).bind_tools(tools), messages))
    return {kind: sorted(all_seen)[rounds // 2] for kind, all_seen in found.items()}


def _streamed(model: Any, messages: list[BaseMessage]) -> Seen:
    begun, took, whole = time.perf_counter(), 0.0, None
    for chunk in model.stream(messages):
        if not took and chunk.content:
            took = time.perf_counter() - begun
        whole = chunk if whole is None else whole + chunk
    return _seen(took, cast("AIMessage", whole))


def run_demo(
    home: Home, *, say: Say = lambda _: None, work: Work | None = None, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Serve, measure, play the agent without and with headstay, and end the server.

    Args:
        home: Where the local model is installed.
        say: Called with each line of progress.
        work: What is played; a short cut of the hostile agent by default.
        rounds: How often a cold head is timed.

    Returns:
        What `headstay demo --local --format json` prints.

    Raises:
        ConfigError: The local model is not installed.
        LocalError: The server does not start.
    """
    chosen = work or short_work()
    with own_server(home, *SERVE, say=say) as started:
        say(f"ready after {started.seconds:.0f} s; timing a cold head and a warm one")
        model = ChatLocal(
            model=started.model,
            base_url=started.base_url,
            block_size=started.block,
            in_place_system=started.in_place_system,
            max_tokens=1,
            temperature=0,
            max_retries=0,
        )
        timed = first_tokens(chosen, model, rounds)
        results = [_result(chosen, variant, model, say) for variant in VARIANTS]
    return {
        "server": _server(started),
        "first_token": {kind: seen._asdict() for kind, seen in timed.items()},
        "conversations": len({turn.thread.name for turn in chosen.turns}),
        "results": results,
    }


def _server(started: Started) -> dict[str, Any]:
    told = {name: value for name, value in asdict(started).items() if name in ("model", "device", "block")}
    return {**told, "start_s": round(started.seconds, 1)}


def _result(work: Work, variant: Variant, model: ChatLocal, say: Say) -> dict[str, Any]:
    ledger, all_seen, total = Ledger(), list[Seen](), len(work.calls)

    def note(seen: Seen) -> None:
        all_seen.append(seen)
        say(f"{variant}: call {len(all_seen)} of {total}, {seen.cached} of {seen.prompt} prompt tokens read")

    play(work, variant, model, ledger=ledger, seen=note)
    prompt, cached = sum(seen.prompt for seen in all_seen), sum(seen.cached for seen in all_seen)
    expected = ledger.totals().read_share
    return {
        "variant": variant,
        "calls": len(all_seen),
        "input_tokens": prompt,
        "cache_read_tokens": cached,
        "share_of_prompt": round(cached / prompt, 4),
        "median_ms": round(statistics.median(seen.ms for seen in all_seen), 1),
        "share_of_expected": None if expected is None else round(expected, 4),
        "verdicts": dict(Counter(row.unverified or row.status for row in ledger.rows())),
    }


def lines(told: Mapping[str, Any]) -> list[str]:
    """Write the results for people.

    Args:
        told: What `run_demo` returned.
    """
    server, cold, warm = told["server"], told["first_token"]["cold"], told["first_token"]["warm"]
    plain, ours = told["results"]
    verdicts = ", ".join(f"{times} {verdict}" for verdict, times in ours["verdicts"].items())
    return [
        f"{server['model']} on vLLM. {server['device']}. Ready after {server['start_s']:.0f} s.",
        "",
        f"{'Time to the first token':<40}{'ms':>8}   prompt tokens read, as vLLM reports",
        f"{'  cold: a head that nobody sent before':<40}{cold['ms']:>8,.0f}   {cold['cached']:,} of {cold['prompt']:,}",
        f"{'  warm: the same head, a new question':<40}{warm['ms']:>8,.0f}   {warm['cached']:,} of {warm['prompt']:,}",
        f"  {cold['ms'] / warm['ms']:.1f} times as fast. Only whole blocks are read, of {server['block']} tokens here.",
        "",
        f"{_about(told):<40}{'ms':>8}   prompt tokens read",
        *(_line(result) for result in (plain, ours)),
        f"  The ledger: {verdicts}; {ours['share_of_expected']:.1%} of the reads that it expected.",
        "",
        "The replies are scripted, since a model this small calls no tools; every prompt is computed by vLLM.",
        "Next: `headstay local serve` keeps a server running for your own code; see docs/local.md and",
        "cookbook/08_local_model.md.",
    ]


def _about(told: Mapping[str, Any]) -> str:
    return f"Agent, {told['conversations']} conversations, {told['results'][0]['calls']} calls"


def _line(result: Mapping[str, Any]) -> str:
    name = "  as it is" if result["variant"] == "plain" else "  with StableHeadMiddleware"
    read, prompt = result["cache_read_tokens"], result["input_tokens"]
    return f"{name:<40}{result['median_ms']:>8,.0f}   {read:,} of {prompt:,} ({read / prompt:.0%})"
