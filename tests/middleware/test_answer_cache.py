"""`AnswerCacheMiddleware`: a repeated first question ends the turn before any model call; nothing else is answered."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from headstay.emulator import Emulator
from headstay.errors import ConfigError
from langchain_headstay import SemanticCache
from langgraph_headstay import AnswerCacheMiddleware, StableHeadMiddleware

ASKED = "How do I reset my password? say By the link."
REWORDED = "How can I reset my password? say By the link."
NAMES = ("claude-opus-5-5", "gpt-6.1-sol")


@dataclass
class Caller:
    tenant: str | None = "acme"


def ask(agent: Any, text: str, thread: str = "1", **more: Any) -> AIMessage:
    config = {"configurable": {"thread_id": thread}}
    state = agent.invoke({"messages": [HumanMessage(text)]}, config, **more)
    reply = state["messages"][-1]
    assert isinstance(reply, AIMessage)
    return reply


@pytest.fixture
def cache() -> SemanticCache:
    return SemanticCache()


@pytest.mark.parametrize("name", NAMES)
async def test_a_repeated_or_reworded_first_question_is_answered_without_the_model(
    make_model: Callable[..., Any], desk: Any, server: Emulator, cache: SemanticCache, name: str
) -> None:
    agent = create_agent(
        make_model(name),
        desk.tools("alpha"),
        system_prompt="You answer briefly.",
        middleware=[AnswerCacheMiddleware(cache=cache), StableHeadMiddleware(on_break="record")],
        checkpointer=InMemorySaver(),
    )
    first = ask(agent, ASKED)
    again = ask(agent, ASKED, "2")
    config: Any = {"configurable": {"thread_id": "3"}}
    state = await agent.ainvoke({"messages": [HumanMessage(REWORDED)]}, config)
    near = state["messages"][-1]
    assert len(server.exchanges) == 1
    assert first.text == again.text == near.text == "By the link."
    assert len({first.id, again.id, near.id}) == 3
    assert again.response_metadata["headstay"]["tier"] == "exact"
    assert near.response_metadata["headstay"]["tier"] == "semantic"
    assert again.usage_metadata is not None
    assert again.usage_metadata["total_tokens"] == 0


@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
def test_a_hit_is_streamed(make_model: Callable[..., Any], server: Emulator, cache: SemanticCache, mode: Any) -> None:
    agent = create_agent(make_model(NAMES[0]), middleware=[AnswerCacheMiddleware(cache=cache)])
    ask(agent, ASKED)
    streamed = list(agent.stream({"messages": [HumanMessage(ASKED)]}, stream_mode=mode))
    assert "By the link." in str(streamed)
    assert len(server.exchanges) == 1


def test_a_second_turn_is_never_answered(
    make_model: Callable[..., Any], server: Emulator, cache: SemanticCache
) -> None:
    agent = create_agent(
        make_model(NAMES[0]), middleware=[AnswerCacheMiddleware(cache=cache)], checkpointer=InMemorySaver()
    )
    ask(agent, ASKED)
    assert "headstay" not in ask(agent, ASKED).response_metadata  # the same thread: what was said before decides
    assert len(server.exchanges) == 2


def test_a_turn_that_used_tools_is_kept_only_for_a_version(
    make_model: Callable[..., Any], desk: Any, server: Emulator, cache: SemanticCache
) -> None:
    text = "Please use alpha then say Seven."
    bare, versioned, later = (
        create_agent(
            make_model(NAMES[0]), desk.tools("alpha"), middleware=[AnswerCacheMiddleware(cache=cache, version=version)]
        )
        for version in (None, "v1", "v2")
    )
    for agent, calls in ((bare, 2), (bare, 4), (versioned, 6), (versioned, 6), (later, 8)):
        assert ask(agent, text).text == "Seven."
        assert len(server.exchanges) == calls


def test_other_instructions_tools_context_and_state_are_other_questions(
    make_model: Callable[..., Any], desk: Any, server: Emulator, cache: SemanticCache
) -> None:
    answered = AnswerCacheMiddleware(cache=cache)

    def agent(model: str = NAMES[0], system: str = "Be brief.", tools: tuple[str, ...] = ("alpha",)) -> Any:
        return create_agent(
            make_model(model), desk.tools(*tools), system_prompt=system, middleware=[answered], context_schema=Caller
        )

    agents = [agent(), agent(system="Be long."), agent(tools=("alpha", "beta")), agent(NAMES[1])]
    for number, one in enumerate(agents, start=1):
        ask(one, ASKED, context=Caller())
        assert len(server.exchanges) == number
    ask(agents[0], ASKED, context=Caller("globex"))  # a dynamic prompt may read it
    assert len(server.exchanges) == len(agents) + 1
    ask(agents[0], ASKED, context=Caller())
    assert len(server.exchanges) == len(agents) + 1


def test_tenants_share_nothing_and_no_tenant_means_no_cache(
    make_model: Callable[..., Any], server: Emulator, cache: SemanticCache
) -> None:
    answered = AnswerCacheMiddleware(cache=cache, tenant=lambda runtime: runtime.context.tenant)
    agent = create_agent(make_model(NAMES[0]), middleware=[answered], context_schema=Caller)
    for caller, calls in ((Caller("a"), 1), (Caller("b"), 2), (Caller("a"), 2), (Caller(None), 3), (Caller(None), 4)):
        ask(agent, ASKED, context=caller)
        assert len(server.exchanges) == calls
    assert cache.metrics().misses["no_tenant"] == 2


def test_a_raising_callable_leaves_the_call_alone(
    make_model: Callable[..., Any], server: Emulator, cache: SemanticCache
) -> None:
    def broken(_: object) -> str:
        raise KeyError("tenant")

    for answered in (
        AnswerCacheMiddleware(cache=cache, tenant=broken),
        AnswerCacheMiddleware(cache=cache, query=broken),
    ):
        agent = create_agent(make_model(NAMES[0]), middleware=[answered])
        assert ask(agent, ASKED).text == "By the link."
    assert len(server.exchanges) == 2


def test_structured_output_is_left_to_the_agent(
    make_model: Callable[..., Any], server: Emulator, cache: SemanticCache
) -> None:
    agent = create_agent(
        make_model(NAMES[0]),
        middleware=[AnswerCacheMiddleware(cache=cache)],
        response_format={"title": "Reply", "type": "object", "properties": {"text": {"type": "string"}}},
    )
    for _ in range(2):
        state = agent.invoke({"messages": [HumanMessage('What is it? say {"text": "it"}')]})
        assert state["structured_response"] == {"text": "it"}
    assert len(server.exchanges) == 2
    assert cache.metrics().lookups == 0


@pytest.mark.parametrize("wrong", [{"cache": "answers.db"}, {"cache": SemanticCache(), "query": "question"}])
def test_settings_that_cannot_work_are_named(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"cache=|query="):
        AnswerCacheMiddleware(**wrong)


def test_configurable_values_count_and_threads_do_not(
    make_model: Callable[..., Any], server: Emulator, cache: SemanticCache
) -> None:
    agent = create_agent(make_model(NAMES[0]), middleware=[AnswerCacheMiddleware(cache=cache)])
    for thread, customer, calls in (("1", "ada", 1), ("2", "bob", 2), ("3", "ada", 2)):
        config: Any = {"configurable": {"thread_id": thread, "customer": customer}}
        agent.invoke({"messages": [HumanMessage(ASKED)]}, config)
        assert len(server.exchanges) == calls


def test_an_answer_after_a_failed_tool_is_not_kept(
    make_model: Callable[..., Any], desk: Any, server: Emulator, cache: SemanticCache
) -> None:
    alpha = desk.tool("alpha")

    class Broken(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return ToolMessage("no connection", tool_call_id=request.tool_call["id"], status="error")

    answered = AnswerCacheMiddleware(cache=cache, version="v1")
    agent = create_agent(make_model(NAMES[0]), [alpha], middleware=[answered, Broken()])
    for calls in (2, 4):
        assert ask(agent, "Please use alpha then say Seven.").text == "Seven."
        assert len(server.exchanges) == calls
    assert cache.metrics().not_stored == {"not_admitted_error": 2}


class Cart(AgentState[Any]):
    items: int


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
async def test_an_answer_belongs_to_the_state_that_its_turn_began_with(
    make_model: Callable[..., Any], server: Emulator, cache: SemanticCache, way: str
) -> None:
    @tool
    def alpha(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Put something into the cart."""
        return Command(update={"items": 1, "messages": [ToolMessage("done", tool_call_id=tool_call_id)]})

    answered = AnswerCacheMiddleware(cache=cache, version="v1")
    agent: Any = create_agent(make_model(NAMES[0]), [alpha], middleware=[answered], state_schema=Cart)
    for items, calls in ((0, 2), (1, 4), (0, 4), (1, 4)):
        given = {"messages": [HumanMessage("Please use alpha then say Seven.")], "items": items}
        await agent.ainvoke(given) if way == "ainvoke" else agent.invoke(given)
        assert len(server.exchanges) == calls
