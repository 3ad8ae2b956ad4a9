"""Whatever a chain, a model or an agent can see of a call may decide its answer, and must be the same for a hit."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel, Field, SecretStr

from headstay.emulator import Emulator
from headstay.semantic.entry import Entry, Filter, Scored
from headstay.semantic.sqlite_store import SQLiteStore
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached

RESET = "How do I reset my password?"

Claude = Callable[..., BaseChatModel]


class Mail(BaseRetriever):
    """Finds a customer's mails by the metadata of the run."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(f"{query} {run_manager.metadata['customer']}")]


def of_the_metadata(given: str, config: Any) -> str:
    return f"{given} {config['metadata']['customer']}"


@pytest.mark.parametrize("chain", [RunnableLambda(of_the_metadata), Mail()], ids=["function", "retriever"])
def test_metadata_that_a_chain_can_read_is_exact(chain: Any, cache: SemanticCache) -> None:
    desk = cached(chain, cache=cache, query=None, name="desk")
    for customer in ("ada", "bob", "ada"):
        assert customer in str(desk.invoke(RESET, {"metadata": {"customer": customer}}))
    assert cache.metrics().hits == {"exact": 1}


def test_metadata_of_a_run_does_not_count(cache: SemanticCache) -> None:
    chain = cached(RunnableLambda(of_the_metadata), cache=cache, query=None, name="desk")
    for step in (1, 2):
        chain.invoke(RESET, {"metadata": {"customer": "ada", "langgraph_step": step, "ls_provider": str(step)}})
    assert cache.metrics().hits == {"exact": 1}


class Account(BaseModel):
    token: SecretStr
    tenant: str = Field(default="", exclude=True)


def of_the_account(given: Any) -> str:
    account = given["account"]
    return f"{account.token.get_secret_value()} {account.tenant}"


def test_an_object_of_an_input_counts_by_all_its_fields(cache: SemanticCache) -> None:
    chain = cached(RunnableLambda(of_the_account), cache=cache, query="question", name="desk")
    for token, tenant in (("a", "x"), ("b", "x"), ("a", "y"), ("a", "x")):
        account = Account(token=SecretStr(token), tenant=tenant)
        assert chain.invoke({"question": RESET, "account": account}) == f"{token} {tenant}"
    assert cache.metrics().hits == {"exact": 1}


def one_node() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [AIMessage("By the link.")]})
    graph.add_edge(START, "model")
    return graph.compile()


async def test_a_graph_streams_what_it_streams_and_returns_what_it_returns(cache: SemanticCache) -> None:
    graph = one_node()
    kept = cached(graph, cache=cache, query=None, name="graph")
    asked = {"messages": [HumanMessage(RESET)]}
    for _ in range(2):
        assert [list(part) for part in kept.stream(asked)] == [["model"]]
        assert [list(part) async for part in kept.astream(asked)] == [["model"]]
        assert list(kept.invoke(asked)) == ["messages"]
        assert [message.text for message in kept.invoke(asked)["messages"]] == [RESET, "By the link."]
    assert cache.metrics().hits == {"exact": 6}


def speaking(text: str) -> BaseChatModel:
    return FakeListChatModel(responses=[text])


@pytest.mark.parametrize(
    ("chain", "whole"),
    [
        (speaking('["a", "b", "c"]') | JsonOutputParser(), ["a", "b", "c"]),
        (speaking('"the link below"') | JsonOutputParser(), "the link below"),
        (RunnableParallel(answer=speaking('["a", "b"]') | JsonOutputParser()), {"answer": ["a", "b"]}),
        (RunnableParallel(answer=speaking("By the link.") | StrOutputParser()), {"answer": "By the link."}),
        (speaking("By the link.") | StrOutputParser(), "By the link."),
    ],
)
async def test_what_a_stream_leaves_behind_is_what_the_chain_returns(
    chain: Any, whole: Any, cache: SemanticCache
) -> None:
    kept = cached(chain, cache=cache, query=None, name="desk")
    assert len(list(kept.stream(RESET))) > 1
    assert kept.invoke(RESET) == whole
    assert len([part async for part in kept.astream("When do you open?")]) > 1
    assert kept.invoke("When do you open?") == whole


def one_part(given: Iterator[Any]) -> Iterator[Any]:
    for question in given:
        yield {"question": question, "answer": "By the link."}


def test_a_reader_of_a_stream_changes_nothing_that_is_kept(cache: SemanticCache) -> None:
    chain = cached(RunnableGenerator(one_part), cache=cache, query=None, name="desk")
    for part in chain.stream(RESET):
        part["answer"] = "changed"
    assert chain.invoke(RESET)["answer"] == "By the link."


@pytest.mark.parametrize("added", ["tail", "tenant"])
@pytest.mark.parametrize("told", [str, lambda who: lambda _: who], ids=["text", "function"])
def test_what_a_wrapper_adds_counts_behind_set_llm_cache(
    added: str, told: Callable[[str], Any], claude: Claude, cache: SemanticCache, desk: Emulator
) -> None:
    set_llm_cache(cache)
    for who in ("Ada", "Bob", "Ada"):
        CacheAwareChatModel(claude(), on_break="record", **{added: told(who)}).invoke(RESET)
    assert len(desk.exchanges) == 2


def test_a_tenant_that_is_not_known_shares_nothing_behind_set_llm_cache(
    claude: Claude, cache: SemanticCache, desk: Emulator
) -> None:
    set_llm_cache(cache)
    model = CacheAwareChatModel(claude(), on_break="record", tenant=lambda _: None)
    assert model._get_llm_string() != model._get_llm_string()


def test_a_tail_that_affects_no_answer_does_not_count(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    set_llm_cache(cache)
    for now in ("9:00", "9:01"):
        CacheAwareChatModel(claude(), on_break="record", tail=now, tail_affects_answer=False).invoke(RESET)
    assert len(desk.exchanges) == 1


def test_explain_asks_as_the_wrapper_does(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(claude(), semantic_cache=cache, tail="Be brief.", on_break="record")
    model.invoke(RESET)
    assert cache.explain(RESET, model).startswith("hit (exact")
    other = CacheAwareChatModel(claude(), semantic_cache=cache, tail="Be long.", on_break="record")
    assert cache.explain(RESET, other).startswith("miss, nothing_stored")


class Mistaken(SQLiteStore):
    """Gives every entry to everybody."""

    def get_exact(self, exact: str, now: float) -> Entry | None:
        return next(iter(self.page(Filter()).entries), None) or super().get_exact(exact, now)

    def nearest(self, scope: str, vector: bytes, k: int, now: float) -> list[Scored]:
        found = [Scored(entry, 1.0) for entry in self.page(Filter()).entries]
        return found or super().nearest(scope, vector, k, now)


@pytest.mark.parametrize("names", [{"tenant": "birch"}, {"user": "ada"}, {"version": "2"}])
def test_a_row_of_somebody_else_is_never_served(names: Any, claude: Claude, desk: Emulator) -> None:
    store = Mistaken()
    for cache in (SemanticCache(store, **names), SemanticCache(store)):
        CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record").invoke(RESET)
    assert len(desk.exchanges) == 2
