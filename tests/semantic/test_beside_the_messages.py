"""What headstay adds to a call beside its messages counts behind LangChain's own caches too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from headstay.emulator import Emulator
from langchain_headstay import SemanticCache, cache_aware
from langgraph_headstay import StableHeadMiddleware

ASKED = "How do I reset my password?"


@dataclass
class Caller:
    name: str


@pytest.fixture(params=[InMemoryCache, SemanticCache])
def caches(request: pytest.FixtureRequest) -> BaseCache:
    """LangChain's exact cache, and ours."""
    made: BaseCache = request.param()
    set_llm_cache(made)
    return made


def name_in(config: Any) -> str:
    return f"The customer is {config['configurable']['name']}."


@pytest.mark.parametrize("setting", ["tail", "tenant"])
def test_tail_and_tenant_of_a_model_count(
    claude: Callable[..., BaseChatModel], desk: Emulator, caches: BaseCache, setting: str
) -> None:
    given: Any = {setting: name_in}
    model = cache_aware(claude(), on_break="record", **given)
    for name, calls in (("ada", 1), ("bob", 2), ("ada", 2)):
        model.invoke(ASKED, {"configurable": {"name": name}})
        assert len(desk.exchanges) == calls


@pytest.mark.parametrize("setting", ["tail", "tenant"])
def test_tail_and_tenant_of_an_agent_count(
    claude: Callable[..., BaseChatModel], desk: Emulator, caches: BaseCache, setting: str
) -> None:
    given: Any = {setting: lambda runtime: runtime.context.name}
    stable = StableHeadMiddleware(on_break="record", **given)
    agent = create_agent(claude(), middleware=[stable], context_schema=Caller)
    for name, calls in (("ada", 1), ("bob", 2), ("ada", 2)):
        agent.invoke({"messages": [HumanMessage(ASKED)]}, context=Caller(name))
        assert len(desk.exchanges) == calls


def test_a_tail_that_cannot_be_read_is_found_by_no_other_call(
    claude: Callable[..., BaseChatModel], desk: Emulator, caches: BaseCache
) -> None:
    model = cache_aware(claude(), on_break="record", tail=name_in)
    for _ in range(2):
        model.invoke(ASKED)
    assert len(desk.exchanges) == 2


def test_a_model_without_them_has_the_key_of_the_bare_one(claude: Callable[..., BaseChatModel]) -> None:
    bare = claude()
    assert cache_aware(bare, on_break="record")._get_llm_string() == bare._get_llm_string()
