"""The main job end to end: a support-desk chain on the real SDKs against the loopback emulator, measured.

Every figure is read from what the emulator answered, for the plain chain as for ours. The oracle's figures come from
the workload's own labels. Token counts are the emulator's estimates; caches and prices are modelled, not billed.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, SystemMessagePromptTemplate
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI

from headstay.canonical import digest, wire_text
from headstay.causes import Break
from headstay.emulator import Emulator, Exchange, ManualClock, serve
from headstay.emulator.oracle import OracleResult, Prices, oracle_run, read_share
from headstay.emulator.reply import Wire
from headstay.emulator.workload import support_desk
from headstay.emulator.workload_turns import Turn, Workload
from headstay.headstore import HeadStore
from headstay.ledger import Ledger
from headstay.ledger.price import Rates, price, rates
from headstay.ledger.usage import Usage, from_anthropic, from_openai_chat, from_openai_responses
from headstay.slots import Slot
from headstay.wires import parse
from langchain_headstay.instrument import cache_aware

Variant = Literal["plain", "default", "declared", "oracle"]
VARIANTS: tuple[Variant, ...] = ("plain", "default", "declared")
DECLARED = (Slot("{today}", every="call"),)
"""Beside `template=`: the date changes at midnight, in the middle of conversations."""

_USAGE: dict[str, Callable[[Mapping[str, object]], Usage]] = {
    "anthropic-messages": from_anthropic,
    "openai-chat": from_openai_chat,
    "openai-responses": from_openai_responses,
}
# Structural tokens that the emulator counts in front of each OpenAI message.
_OVERHEAD: dict[str, int] = {"anthropic-messages": 0, "openai-chat": 3, "openai-responses": 3}


@dataclass(frozen=True, slots=True)
class Setup:
    """One model on one wire.

    Attributes:
        provider: Provider name.
        wire: Wire format.
        model: Model id.
    """

    provider: Literal["anthropic", "openai"]
    wire: Wire
    model: str


TITLE = "Support desk, 20 conversations of 6 turns, on the loopback emulator"
CALLS = 120

SETUPS = (
    Setup("anthropic", "anthropic-messages", "claude-opus-5-5"),
    Setup("anthropic", "anthropic-messages", "claude-sonnet-4-6"),
    Setup("openai", "openai-chat", "gpt-5.6-terra"),
    Setup("openai", "openai-chat", "gpt-5.4"),
    Setup("openai", "openai-responses", "gpt-6.1-sol"),
)
DEMO = SETUPS
OPTIONS: dict[str, Any] = {}


def make_model(setup: Setup, server: Emulator) -> BaseChatModel:
    """Make the host's own model, pointed at the emulator."""
    if setup.provider == "anthropic":
        return cast("BaseChatModel", ChatAnthropic(model=setup.model, api_key="demo", base_url=server.base_url))  # type: ignore[call-arg, arg-type]
    responses = setup.wire == "openai-responses"
    return ChatOpenAI(model=setup.model, api_key="demo", base_url=server.openai_url, use_responses_api=responses)  # type: ignore[arg-type]


def make_prompt(workload: Workload, tenant: str, policy: str) -> ChatPromptTemplate:
    """Make the application's prompt for one tenant and policy."""
    system = SystemMessagePromptTemplate.from_template(workload.template(tenant, policy))
    return ChatPromptTemplate([system, MessagesPlaceholder("messages")])


def messages_of(workload: Workload, turn: Turn) -> list[BaseMessage]:
    """Return the client-held history of a turn, and its question."""
    said = [*workload.history(turn)]
    messages = [_human(text, image) if role == "user" else AIMessage(text) for role, text, image in said]
    return [*messages, _human(turn.user, turn.image)]


def _human(text: str, image: str | None) -> HumanMessage:
    if image is None:
        return HumanMessage(text)
    picture = {"type": "image", "base64": image, "mime_type": "image/png"}
    return HumanMessage(content=[{"type": "text", "text": text}, picture])


def _tenant(config: RunnableConfig) -> str | None:
    return cast("str | None", (config.get("configurable") or {}).get("tenant"))


@dataclass(frozen=True, slots=True)
class Run:
    """What one variant sent and got.

    Attributes:
        exchanges: Requests and answers, one for each turn.
        breaks: The breaks found at each turn.
    """

    exchanges: tuple[Exchange, ...]
    breaks: tuple[tuple[Break, ...], ...]


def run_variant(
    workload: Workload,
    setup: Setup,
    *,
    declare: Callable[[ChatPromptTemplate], Mapping[str, Any]] | None,
    step: Callable[[], None] = lambda: None,
) -> Run:
    """Play the workload through chains of the host.

    Args:
        workload: The calls, in order.
        setup: Which model.
        declare: Makes the settings of `cache_aware` for a prompt; None leaves the model as it is.
        step: Called after each call.

    Returns:
        What was sent, and what was found.
    """
    clock = ManualClock(workload.start)
    ledger, store = Ledger(), HeadStore()
    chains: dict[tuple[str, str], Any] = {}
    with serve(clock=clock, responder=workload.responder()) as server:
        model = make_model(setup, server)
        for turn in workload.turns:
            clock.set(turn.at)
            chain = chains.get(turn.lane)
            if chain is None:
                prompt = make_prompt(workload, *turn.lane)
                ours = model
                if declare is not None:
                    shared: dict[str, Any] = {"tenant": _tenant, "ledger": ledger, "head_store": store}
                    ours = cache_aware(model, on_break="record", **shared, **declare(prompt))
                chain = chains[turn.lane] = prompt | ours
            config: RunnableConfig = {"configurable": {"tenant": turn.tenant}}
            chain.invoke({**turn.values, "messages": messages_of(workload, turn)}, config)
            step()
        exchanges = tuple(server.exchanges)
    rows = list(ledger.rows())
    return Run(exchanges, tuple(row.breaks for row in rows) or ((),) * len(exchanges))


def settings_of(variant: Variant) -> Callable[[ChatPromptTemplate], Mapping[str, Any]] | None:
    """Return what a variant declares, given the application's prompt."""
    if variant == "plain":
        return None
    if variant == "default":
        return lambda _: {}
    return lambda prompt: {"template": prompt, "volatile": DECLARED}


def run_demo(
    setups: Sequence[Setup] = SETUPS,
    *,
    workload: Workload | None = None,
    progress: Callable[[Setup, Variant, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run every variant of every setup.

    Args:
        setups: Which models.
        workload: The calls; the support desk by default.
        progress: Called with setup, variant and the number of calls made.

    Returns:
        One result for each setup and variant, in the form of `headstay demo --format json`.
    """
    work = workload or support_desk()
    results: list[dict[str, Any]] = []
    for setup in setups:
        table = rates(setup.provider, setup.model)
        oracle = oracle_run(
            work,
            model=setup.model,
            wire=setup.wire,
            prices=_prices(table),
            message_overhead=_OVERHEAD[setup.wire],
        )
        for variant in VARIANTS:
            step = _counter(progress, setup, variant)
            run = run_variant(work, setup, declare=settings_of(variant), step=step)
            results.append(result_of(work, setup, variant, run, oracle, table))
        results.append(_oracle_result(work, setup, oracle))
    return results


def _counter(
    progress: Callable[[Setup, Variant, int], None] | None, setup: Setup, variant: Variant
) -> Callable[[], None]:
    numbers = itertools.count(1)

    def step() -> None:
        if progress is not None:
            progress(setup, variant, next(numbers))

    return step


def price_date() -> str:
    """Return the date of the prices used."""
    return price(Usage(), provider="anthropic", model="claude-opus-5-5").as_of


def _prices(table: Rates | None) -> Prices | None:
    if table is None:
        return None
    return Prices(table.input, table.output, table.read, table.write_rate())


def result_of(
    workload: Workload, setup: Setup, variant: Variant, run: Run, oracle: OracleResult, table: Rates | None
) -> dict[str, Any]:
    """Sum up one run against the oracle."""
    used = [_USAGE[setup.wire](cast("Mapping[str, object]", exchange.response["usage"])) for exchange in run.exchanges]
    return {
        "provider": setup.provider,
        "wire": setup.wire,
        "model": setup.model,
        "variant": variant,
        "calls": len(used),
        "input_tokens": sum(usage.input_tokens for usage in used),
        "cache_read_tokens": sum(usage.cache_read_tokens for usage in used),
        "cache_write_tokens": sum(usage.cache_write_tokens for usage in used),
        "read_share": round(read_share([usage.cache_read_tokens for usage in used], oracle), 4),
        "cost_usd": None if table is None else round(sum(table.usd(usage) for usage in used), 6),
        "distinct_heads": len(set(_heads(setup, run.exchanges))),
        "breaks": [
            {
                "cause": str(found.cause),
                "owner": found.owner,
                "conversation": turn.conversation,
                "turn": turn.turn,
                "remedy": found.remedy,
            }
            for turn, breaks in zip(workload.turns, run.breaks, strict=True)
            for found in breaks
        ],
    }


def _heads(setup: Setup, exchanges: Sequence[Exchange]) -> Iterator[bytes]:
    """Hash what each request begins with: its tools and its first system block."""
    for exchange in exchanges:
        prompt = parse(exchange.body, setup.wire)
        tools = [wire_text(tool.wire) for tool in prompt.tools]
        yield digest(exchange.workspace, *tools, *prompt.system[:1])


def _oracle_result(workload: Workload, setup: Setup, oracle: OracleResult) -> dict[str, Any]:
    return {
        "provider": setup.provider,
        "wire": setup.wire,
        "model": setup.model,
        "variant": "oracle",
        "calls": len(oracle.calls),
        "input_tokens": oracle.input_tokens,
        "cache_read_tokens": oracle.readable,
        "cache_write_tokens": oracle.writes,
        "read_share": 1.0,
        "cost_usd": None if oracle.cost is None else round(oracle.cost, 6),
        "distinct_heads": len(workload.lanes),
        "breaks": [
            {"cause": cause, "owner": owner, "conversation": conversation, "turn": turn, "remedy": ""}
            for conversation, turn, cause, owner in workload.breaks_on(oracle.wire)
        ],
    }
