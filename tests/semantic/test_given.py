"""Settings and arguments that cannot work are refused where they are given, in words that say what to give."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from headstay.errors import ConfigError
from headstay.semantic import Answer, AskedRequest, Cache, SQLiteStore, Turn
from headstay.semantic.embedder import CallableEmbedder
from headstay.slots import Slot
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached
from langgraph_headstay import AnswerCacheMiddleware

RESET = "How do I reset my password?"
DESK: Any = RunnableLambda(lambda _: "Use the link in the settings.")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"path_or_store": "sqlite:///x.db"}, r"'sqlite:///x.db' is no path: give a file, such as 'answers.db'"),
        ({"path_or_store": "redis://localhost:6379"}, "is no path"),
        ({"path_or_store": ""}, "'' is no path"),
        ({"volatile": "strict"}, r"volatile='strict'.*give Slot\(..., affects_answer=False\)"),
        ({"volatile": None}, "volatile=None"),
        ({"volatile": ["{clock}"]}, r"volatile=\['{clock}'\]"),
        ({"now": 5}, "now=5: give a function"),
        ({"max_entries": True}, "max_entries=True"),
        ({"max_bytes": "1GB"}, "max_bytes='1GB'"),
        ({"tenant": ""}, "tenant='': give a str that is not empty"),
        ({"user": 5}, "user=5"),
        ({"version": 7}, "version=7"),
        ({"tags": "faq"}, r"tags='faq': give a list of names, such as \['faq'\]"),
        ({"tags": [""]}, r"tags=\[''\]"),
        ({"tags": {"a": 1}}, r"tags={'a': 1}"),
        ({"tags": 5}, "tags=5"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(
    settings: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        SemanticCache(**settings)
    assert not list(tmp_path.iterdir())


def test_a_slot_may_be_given_alone_or_in_a_list() -> None:
    clock = Slot("Time: {time}", affects_answer=False)
    for volatile in (clock, [clock], (clock,), []):
        SemanticCache(volatile=volatile).close()


@pytest.mark.parametrize("path", ["http://x/y.db", " ", 7])
def test_a_store_needs_a_path(path: Any) -> None:
    with pytest.raises(ConfigError, match="or None to keep it in memory"):
        SQLiteStore(path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"version": 7}, "cached: version=7"),
        ({"tenant": ""}, "cached: tenant=''"),
        ({"name": 5}, "cached: name=5"),
        ({"name": ""}, "cached: name=''"),
        ({"query": ""}, "query=''"),
        ({"cache": SemanticCache}, "the class SemanticCache"),
        ({"runnable": RunnableLambda}, "the class RunnableLambda"),
    ],
)
def test_cached_refuses_what_cannot_work(settings: dict[str, Any], said: str, cache: SemanticCache) -> None:
    made: dict[str, Any] = {"runnable": DESK, "cache": cache, "query": "question", **settings}
    with pytest.raises(ConfigError, match=said):
        cached(made.pop("runnable"), **made)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"version": 7}, "version=7"),
        ({"tenant": ""}, "tenant=''"),
        ({"cache": SemanticCache}, "the class SemanticCache"),
    ],
)
def test_the_middleware_refuses_the_same(settings: dict[str, Any], said: str, cache: SemanticCache) -> None:
    with pytest.raises(ConfigError, match=said):
        AnswerCacheMiddleware(**{"cache": cache, **settings})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"semantic_cache": SemanticCache}, "semantic_cache=the class SemanticCache"),
        ({"tail_affects_answer": "no"}, "tail_affects_answer='no': say True or False"),
    ],
)
def test_a_model_refuses_the_same(settings: dict[str, Any], said: str, claude: Callable[..., BaseChatModel]) -> None:
    with pytest.raises(ConfigError, match=said):
        CacheAwareChatModel(claude(), **settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"function": "x"}, r"CallableEmbedder\('x'\): give a function"),
        ({"name": 5}, "needs a name"),
        ({"name": " "}, "needs a name"),
        ({"window": "256"}, "window='256'"),
    ],
)
def test_an_embedder_refuses_the_same(settings: dict[str, Any], said: str) -> None:
    made: dict[str, Any] = {"function": lambda texts: [[1.0] for _ in texts], "name": "y", **settings}
    with pytest.raises(ConfigError, match=said):
        CallableEmbedder(made.pop("function"), **made)


# --- afterwards


@pytest.mark.parametrize("entry", [AIMessage("Yes."), None, 5])
def test_feedback_takes_the_name_of_an_entry(entry: Any, cache: SemanticCache) -> None:
    with pytest.raises(ConfigError, match=r'reply\.response_metadata\["headstay"\]\["entry"\]'):
        cache.feedback(entry, wrong=True)


@pytest.mark.parametrize("wrong", ["no", 1, None])
def test_feedback_says_yes_or_no(wrong: Any, cache: SemanticCache) -> None:
    with pytest.raises(ConfigError, match="say True or False"):
        cache.feedback("0" * 32, wrong=wrong)


def test_what_is_retired_or_forgotten_is_named_by_names(cache: SemanticCache) -> None:
    wrong: Any = {"faq": 1}
    for tags in ("faq", wrong, [""]):
        with pytest.raises(ConfigError, match="tags="):
            cache.invalidate(tags=tags)
    for name in ("version", "tenant"):
        given: Any = {name: 7}
        with pytest.raises(ConfigError, match=f"{name}=7"):
            cache.invalidate(**given)
    for name in ("user", "tenant"):
        given = {name: 5}
        with pytest.raises(ConfigError, match=f"{name}=5"):
            cache.forget(**given)
    with pytest.raises(ConfigError, match="user=''"):
        cache.forget(user="")
    with pytest.raises(ConfigError, match="say which"):
        cache.invalidate(tags=[])


def test_a_closed_cache_opens_again(any_cache: SemanticCache) -> None:
    chain = cached(DESK, cache=any_cache, query=None, name="desk")
    chain.invoke(RESET)
    any_cache.close()
    chain.invoke(RESET)
    assert any_cache.metrics().hits == {"exact": 1}


async def test_an_answer_is_kept_without_blocking_the_loop() -> None:
    engine = Cache()
    asked = AskedRequest((Turn("user", RESET),))
    kept = await engine.aadmit(await engine.alook_up(asked), Answer("In the settings."))
    found = await engine.alook_up(asked)
    assert found.entry is not None
    assert found.entry.id == kept.entry


# --- explain


def test_explain_takes_a_question_a_message_or_messages(cache: SemanticCache) -> None:
    for asked in (RESET, HumanMessage(RESET), [HumanMessage(RESET)], [("human", RESET)]):
        given: Any = asked
        assert cache.explain(given).startswith("miss, nothing_stored")
    odd: Any = 5
    with pytest.raises(ConfigError, match=r"explain\(int\): give a question or a list of messages"):
        cache.explain(odd)


def test_explain_says_what_to_give_for_a_model(cache: SemanticCache, claude: Callable[..., BaseChatModel]) -> None:
    chain = cached(DESK, cache=cache, query=None)
    given: list[tuple[Any, str]] = [
        (chain, r"chain\.explain\(input\)"),
        ("claude-opus-5-5", r"init_chat_model\('claude-opus-5-5'\)"),
        (DESK, r"cached\(...\)\.explain"),
        (claude().bind(max_tokens=5), "explain\\(messages, model, tools=...\\)"),
    ]
    for model, said in given:
        with pytest.raises(ConfigError, match=said):
            cache.explain(RESET, model)


def test_explain_asks_for_the_config_that_is_given() -> None:
    def tenant(config: Any) -> str | None:
        return (config.get("configurable") or {}).get("tenant")

    with SemanticCache(tenant=tenant) as cache:
        assert cache.explain(RESET).startswith("miss, no_tenant")
        assert cache.explain(RESET, config={"configurable": {"tenant": "acme"}}).startswith("miss, nothing_stored")


def test_a_chain_explains_itself(cache: SemanticCache) -> None:
    runs: list[Any] = []

    def answer(given: Any) -> str:
        runs.append(given)
        return "Use the link."

    def tenant(config: Any) -> str | None:
        return (config.get("configurable") or {}).get("tenant")

    acme: Any = {"configurable": {"tenant": "acme"}}
    chain = cached(RunnableLambda(answer), cache=cache, query="question", tenant=tenant, name="desk")
    assert chain.explain({"question": RESET}).startswith("miss, no_tenant")
    assert chain.explain({"question": RESET}, acme).startswith("miss, nothing_stored")
    assert runs == []
    chain.invoke({"question": RESET}, acme)
    assert chain.explain({"question": RESET}, acme).startswith("hit (exact")
    assert chain.explain({"question": "How can I reset my password?"}, acme).startswith("hit (semantic")
    assert chain.explain({"qustion": RESET}, acme).startswith("miss, no_query")
    odd = {"question": RESET, "client": type("Client", (), {})()}
    said = chain.explain(odd, acme)
    assert said.startswith("miss, opaque_schema")
    assert said.endswith("Client")
    assert len(runs) == 1
    assert cache.metrics().misses == {"nothing_stored": 1}
