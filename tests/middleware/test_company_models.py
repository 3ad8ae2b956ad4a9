"""Several models in one agent: fallbacks, routers, retries, models chosen at run time, and models that nobody knows."""

from collections.abc import Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelChoice,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    ModelRouterMiddleware,
)
from langchain.chat_models import init_chat_model
from langchain_core._api import LangChainBetaWarning
from langchain_core.decisions import BaseDecisionModel, ChoiceAnswer, ClassifierResponse
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver

from headstay import Ledger
from headstay.emulator import Emulator
from langchain_headstay import CacheAwareChatModel, cache_aware

CONFIG = {"configurable": {"thread_id": "one"}}


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


async def test_a_fallback_before_ours(
    make_model: Any, run: Any, desk: Any, stable: Any, server: Emulator, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    fallback = ModelFallbackMiddleware(make_model("gpt-5.4"))
    agent = create_agent(
        make_model("claude-sonnet-4-6"),
        desk.tools(),
        middleware=[fallback, desk.middleware(), stable()],
        checkpointer=InMemorySaver(),
    )
    await run(agent, "Hello")
    server.fail_next(status=529)
    await run(agent, "use alpha")
    rows = list(ledger.rows())
    assert [row.provider for row in rows] == ["anthropic", "anthropic", "openai", "anthropic"]
    assert [row.error is not None for row in rows] == [False, True, False, False]
    assert all(row.unverified is None for row in rows if row.error is None)
    assert [row.status for row in rows][-1] == "ok"
    assert desk.ran == ["alpha"]
    assert "cache_control" not in wires.texts[2]
    for number, text in enumerate(wires.texts):
        assert text.count(clock(number + 1)) == 1


async def test_a_fallback_after_ours_is_unverified(
    make_model: Any, run: Any, desk: Any, stable: Any, server: Emulator, wires: Any, policy: str, ledger: Ledger
) -> None:
    """The other model comes in further inside: its call is the application's own, and nothing is claimed of it."""
    agent = create_agent(
        make_model("claude-sonnet-4-6"),
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(), ModelFallbackMiddleware(make_model("gpt-5.4"))],
        checkpointer=InMemorySaver(),
    )
    server.fail_next(status=529)
    await run(agent, "Hello")
    failed, other = ledger.rows()
    assert failed.error is not None
    assert "another one did" in (other.unverified or "")
    assert other.name == "desk"
    assert "prompt_cache_key" not in wires.bodies[-1]
    await run(agent, "Hello")  # and back
    assert [row.unverified is None for row in ledger.rows() if row.error is None] == [False, True]


async def test_masked_tools_of_a_fallback_after_ours(make_model: Any, desk: Any, stable: Any, server: Emulator) -> None:
    """I5 holds for whoever answered."""
    desk.offer = lambda number, tools: tools[:1]
    inner = ModelFallbackMiddleware(make_model("gpt-5.4"))
    agent = create_agent(make_model("claude-sonnet-4-6"), desk.tools(), middleware=[desk.middleware(), stable(), inner])
    server.fail_next(status=529)
    agent.invoke({"messages": [("user", "use alpha bravo")]})
    assert desk.ran == ["alpha"]


async def test_a_model_that_is_handed_over_inside(
    make_model: Any, desk: Any, stable: Any, ledger: Ledger, wires: Any
) -> None:
    other = make_model("gpt-5.4")

    class Swaps(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(model=other))

    agent = create_agent(make_model("claude-sonnet-4-6"), desk.tools(), middleware=[stable(), Swaps()])
    agent.invoke({"messages": [("user", "Hello")]})
    (row,) = ledger.rows()
    assert "another one did" in (row.unverified or "")
    assert "model" in wires.bodies[0]


async def test_retries_inside_and_outside(
    make_model: Any, desk: Any, stable: Any, server: Emulator, ledger: Ledger, policy: str, wires: Any
) -> None:
    retry = ModelRetryMiddleware(max_retries=1, initial_delay=0.0, jitter=False)
    for middleware in ([retry, stable()], [stable(name="other"), retry]):
        agent = create_agent(
            make_model("claude-opus-5-5"),
            desk.tools(),
            system_prompt=policy,
            middleware=middleware,
            checkpointer=InMemorySaver(),
        )
        agent.invoke({"messages": [("user", "Hello")]}, CONFIG)
        server.fail_next(status=529)
        agent.invoke({"messages": [("user", "Hello again")]}, CONFIG)
    rows = list(ledger.rows())
    assert [row.error is not None for row in rows] == [False, True, False] * 2
    assert all(not row.breaks for row in rows)
    assert all(row.unverified is None for row in rows if row.error is None)
    assert [row.status for row in rows][2::3] == ["ok", "ok"]


class Alternates(BaseDecisionModel):
    """Sends each turn another way."""

    turns: Any

    @property
    def _provider(self) -> str:
        return "test"

    def _classify(self, state: Any, questions: Any, **kwargs: Any) -> Any:
        route = next(self.turns)
        answer = ChoiceAnswer(type="choice", choice=route, probabilities={route: 1.0}, confidence=1.0)
        return ClassifierResponse(model=self.model, answers=dict.fromkeys(questions, answer))


async def test_a_router(make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger) -> None:
    """Each model has a lane of its own; a turn that comes back finds its head there."""
    routes: Iterator[str] = iter(["claude", "gpt", "claude", "gpt"])
    choices = {
        "claude": ModelChoice(make_model("claude-sonnet-4-6"), "all"),
        "gpt": ModelChoice(make_model("gpt-5.4"), "all"),
    }
    with pytest.warns(LangChainBetaWarning):
        router = ModelRouterMiddleware(
            choices=choices, instructions="Choose.", classifier=Alternates(model="any", turns=routes)
        )
    agent = create_agent(
        make_model("gpt-5.4"),
        desk.tools(),
        system_prompt=policy,
        middleware=[router, stable()],
        checkpointer=InMemorySaver(),
    )
    for _ in range(4):
        agent.invoke({"messages": [("user", "Hello")]}, CONFIG)
    assert not wires.failed
    assert [body["model"] for body in wires.bodies] == ["claude-sonnet-4-6", "gpt-5.4"] * 2
    assert len({wires.head(number) for number in (0, 2)}) == len({wires.head(number) for number in (1, 3)}) == 1
    rows = list(ledger.rows())
    assert all(row.unverified is None for row in rows)
    assert {str(found.cause) for row in rows for found in row.breaks} <= {"model_changed"}
    assert {found.owner for row in rows for found in row.breaks} <= {"application"}
    assert rows[2].cache_read_tokens > 1_000
    assert rows[3].cache_read_tokens > 1_000


async def test_a_model_that_is_chosen_at_run_time(
    desk: Any, stable: Any, server: Emulator, wires: Any, policy: str, ledger: Ledger
) -> None:
    model = init_chat_model(
        "claude-sonnet-4-6",
        model_provider="anthropic",
        configurable_fields=("max_tokens",),
        api_key="key-a",
        base_url=server.base_url,
    )
    middleware = stable()
    agent = create_agent(model, desk.tools(), system_prompt=policy, middleware=[middleware])  # type: ignore[arg-type]
    for tokens in (100, 200, 100):
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"max_tokens": tokens}})
    assert [body["max_tokens"] for body in wires.bodies] == [100, 200, 100]
    rows = list(ledger.rows())
    assert [row.status for row in rows] == ["cold", "ok", "ok"]
    assert len({wires.head(number) for number in range(3)}) == 1


async def test_a_ttl_that_only_one_of_the_models_has(
    make_model: Any, desk: Any, stable: Any, server: Emulator, wires: Any, policy: str
) -> None:
    fallback = ModelFallbackMiddleware(make_model("gpt-5.4"))
    agent = create_agent(
        make_model("claude-sonnet-4-6"), desk.tools(), system_prompt=policy, middleware=[fallback, stable(ttl="1h")]
    )
    agent.invoke({"messages": [("user", "Hello")]})
    server.fail_next(status=529)
    agent.invoke({"messages": [("user", "Hello")]})
    assert [body["model"] for body in wires.bodies] == ["claude-sonnet-4-6", "claude-sonnet-4-6", "gpt-5.4"]
    assert "1h" in wires.texts[0]
    assert "1h" not in wires.texts[2]


async def test_a_model_that_is_cache_aware_already(
    make_model: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger, caplog: Any
) -> None:
    """The copy is taken over by the agent's middleware; the wrapper says what to give instead."""
    own = Ledger()
    copy = cache_aware(make_model("claude-sonnet-4-6"), ledger=own)
    agent = create_agent(copy, desk.tools(), system_prompt=policy, middleware=[stable()])
    agent.invoke({"messages": [("user", "Hello")]})
    assert len(list(ledger.rows())) == 1
    assert not list(own.rows())
    wrapped = CacheAwareChatModel(model=make_model("claude-sonnet-4-6"))
    caplog.clear()
    state = create_agent(wrapped, desk.tools(), middleware=[stable(on_break="warn")]).invoke(
        {"messages": [("user", "Hello")]}
    )
    assert state["messages"][-1].text  # the user's call goes on, with the wrapper as it is
    assert "give the model inside it" in caplog.text
    assert [row.unverified is None for row in ledger.rows()] == [True, False]


async def test_a_class_that_builds_no_request_of_these_wires(
    desk: Any, stable: Any, ledger: Ledger, policy: str
) -> None:
    """Order only, with one clear line; I5 holds all the same."""

    class Bindable(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self.bind(tools=[{"type": "function", "function": {"name": tool.name}} for tool in tools])

    called = [{"name": name, "args": {"x": 1}, "id": f"call_{name}"} for name in ("alpha", "bravo")]
    model = Bindable(messages=iter([AIMessage("", tool_calls=called), AIMessage("Done.")]))
    desk.offer = lambda number, tools: tools[:1]
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    agent = create_agent(model, desk.tools(), middleware=[desk.middleware(), stable()])
    state = agent.invoke({"messages": [("user", "Hello")]})
    assert state["messages"][-1].content == "Done."
    assert desk.ran == ["alpha"]
    assert len(list(ledger.rows())) == 2
