"""Who may read which answer, for how long, and how a call or an operator says otherwise."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from headstay.emulator import Emulator
from headstay.errors import ConfigError
from headstay.semantic.control import caching
from headstay.semantic.sqlite_store import SQLiteStore
from langchain_headstay import CacheAwareChatModel, SemanticCache, cache_aware, cached

Chat = Callable[..., BaseChatModel]
Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]
Claude = Callable[..., BaseChatModel]

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def tenant_in(config: Any) -> str | None:
    return (config.get("configurable") or {}).get("tenant")


def for_tenant(name: str | None) -> Any:
    return {"configurable": {"tenant": name}} if name else {}


# --- tenants


def run_at_top(model: BaseChatModel, config: Any) -> None:
    model.invoke(RESET, config)


def run_in_a_chain(model: BaseChatModel, config: Any) -> None:
    (ChatPromptTemplate.from_messages([("human", "{question}")]) | model).invoke({"question": RESET}, config)


def run_in_a_lambda(model: BaseChatModel, config: Any) -> None:
    def ask(question: str) -> str:
        return str(model.invoke(question).text)

    RunnableLambda(ask).invoke(RESET, config)


def run_in_an_agent(model: BaseChatModel, config: Any) -> None:
    create_agent(model, [], system_prompt="You help.").invoke({"messages": [HumanMessage(RESET)]}, config)


@pytest.mark.parametrize("run", [run_at_top, run_in_a_chain, run_in_a_lambda, run_in_an_agent])
def test_a_tenant_on_the_config_is_found_wherever_the_model_runs(
    run: Callable[[BaseChatModel, Any], None], claude: Claude, desk: Emulator
) -> None:
    cache = SemanticCache(tenant=tenant_in)
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    for tenant in ("acme", "acme", "globex", "globex"):
        run(model, for_tenant(tenant))
    assert len(desk.exchanges) == 2
    assert cache.metrics().hits == {"exact": 2}
    run(model, for_tenant(None))
    run(model, for_tenant(None))
    assert len(desk.exchanges) == 4
    assert cache.metrics().misses["no_tenant"] == 2
    assert cache.metrics().stored == 2


@pytest.mark.parametrize("run", [run_at_top, run_in_a_chain, run_in_a_lambda, run_in_an_agent])
def test_a_tenant_on_the_config_is_found_behind_set_llm_cache_with_an_instrumented_model(
    run: Callable[[BaseChatModel, Any], None], claude: Claude, desk: Emulator
) -> None:
    cache = SemanticCache(tenant=tenant_in)
    set_llm_cache(cache)
    for tenant in ("acme", "acme", "globex", None, None):
        run(cache_aware(claude(), on_break="record"), for_tenant(tenant))
    assert len(desk.exchanges) == 4
    assert cache.metrics().hits == {"exact": 1}
    assert cache.metrics().misses["no_tenant"] == 2


@pytest.mark.parametrize("what", ["tenant", "user", "version"])
@pytest.mark.parametrize("run", [run_at_top, run_in_a_chain, run_in_a_lambda, run_in_an_agent])
def test_any_other_model_shows_langchains_caches_no_config_so_nothing_is_kept(
    run: Callable[[BaseChatModel, Any], None], claude: Claude, desk: Emulator, what: str
) -> None:
    """The config at hand may be that of an outer call for somebody else."""
    cache = SemanticCache(**{what: lambda config: (config.get("configurable") or {}).get("tenant") or "guest"})
    set_llm_cache(cache)
    for tenant in ("acme", "acme", "globex"):
        run(claude(), for_tenant(tenant))
    assert len(desk.exchanges) == 3
    assert cache.metrics().misses == {"no_config": 3}
    assert cache.metrics().stored == 0


def test_a_call_for_another_tenant_inside_a_chain_gets_its_own_answer(claude: Claude, desk: Emulator) -> None:
    cache = SemanticCache(tenant=tenant_in)
    set_llm_cache(cache)

    def both(model: BaseChatModel) -> None:
        for tenant in ("alice", "bob"):
            model.invoke(RESET, for_tenant(tenant))
            model.batch([RESET], for_tenant(tenant))

    for made, calls in ((cache_aware(claude(), on_break="record"), 2), (claude(), 4)):
        before = len(desk.exchanges)
        RunnableLambda(lambda _, made=made: both(made)).invoke("", for_tenant("outer"))
        assert len(desk.exchanges) - before == calls


def test_names_can_be_said_for_a_block_of_code(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache(tenant=tenant_in, user=lambda config: config["configurable"]["user"])
    model = road(claude(), cache)
    for tenant, user, calls in (("a", "x", 1), ("a", "x", 1), ("a", "y", 2), ("b", "x", 3)):
        with caching(tenant=tenant), caching(user=user):
            model.invoke(RESET)
        assert len(desk.exchanges) == calls
    with pytest.raises(ConfigError, match="tenant=''"), caching(tenant=""):
        pass


def test_the_models_own_tenant_counts(claude: Claude, desk: Emulator) -> None:
    cache = SemanticCache()
    for tenant in ("acme", "globex", "acme", tenant_in):
        model = CacheAwareChatModel(claude(), semantic_cache=cache, tenant=tenant, on_break="record")
        model.invoke(RESET)
    assert len(desk.exchanges) == 3
    assert cache.metrics().misses == {"nothing_stored": 2, "no_tenant": 1}


@pytest.mark.parametrize("given", [lambda config: 7, lambda config: config["configurable"]["nobody"]])
def test_a_tenant_that_cannot_be_told_switches_the_cache_off(
    given: Any, claude: Claude, desk: Emulator, road: Road
) -> None:
    cache = SemanticCache(tenant=given)
    model = road(claude(), cache)
    assert model.invoke(RESET).text == model.invoke(RESET).text
    assert len(desk.exchanges) == 2
    assert set(cache.metrics().misses) <= {"internal_error", "no_config"}
    assert sum(cache.metrics().misses.values()) == 2
    assert cache.metrics().stored == 0


def test_an_empty_tenant_is_none(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache(tenant=lambda _: "")
    model = road(claude(), cache)
    model.invoke(RESET)
    assert cache.metrics().misses == {"no_tenant": 1}
    assert cache.metrics().stored == 0


# --- users, versions, tags


def test_users_share_nothing_and_can_be_forgotten(claude: Claude, desk: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    users = {"name": "ann"}
    cache = SemanticCache(file, user=lambda _: users["name"])
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    secret = "How do I open the vault of Wetherby Hall?"
    model.invoke(secret)
    users["name"] = "bob"
    model.invoke(secret)
    model.invoke(RESET)
    assert len(desk.exchanges) == 3
    assert cache.forget(user="ann") == 1
    model.invoke(secret)  # bob's own
    assert len(desk.exchanges) == 3
    assert cache.forget(user="bob") == 2
    cache.close()
    assert all(b"Wetherby" not in part.read_bytes() for part in tmp_path.iterdir())


def test_a_new_version_retires_the_answers_of_the_old_one(claude: Claude, desk: Emulator, road: Road) -> None:
    version = {"now": "2026-11"}
    cache = SemanticCache(version=lambda _: version["now"])
    model = road(claude(), cache)
    model.invoke(RESET)
    version["now"] = "2026-12"
    model.invoke(RESET_TOO)
    assert len(desk.exchanges) == 2
    version["now"] = "2026-11"
    model.invoke(RESET)
    assert len(desk.exchanges) == 2
    assert cache.invalidate(version="2026-11") == 1
    model.invoke(RESET)
    assert len(desk.exchanges) == 3


def test_tags_retire_answers(claude: Claude, desk: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    with SemanticCache(file, tags=["faq"]) as faq, SemanticCache(file, tags=["chat"]) as plain:
        CacheAwareChatModel(claude(), semantic_cache=faq, on_break="record").invoke(RESET)
        model = CacheAwareChatModel(claude(), semantic_cache=plain, on_break="record")
        model.invoke("Where can I see the weather forecast?")
        assert plain.invalidate(tags=["faq"]) == 1
        model.invoke(RESET)
        model.invoke("Where can I see the weather forecast?")
    assert len(desk.exchanges) == 3


def test_feedback_retires_a_wrong_answer(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache()
    model = road(claude(), cache)
    model.invoke(RESET)
    entry = model.invoke(RESET).response_metadata["headstay"]["entry"]
    assert cache.feedback(entry, wrong=True)
    assert "headstay" not in model.invoke(RESET_TOO).response_metadata
    assert cache.metrics().misses["marked_wrong"] == 1
    model.invoke(RESET)  # a fresh answer, which takes the place of the wrong one
    assert len(desk.exchanges) == 2
    assert not cache.feedback("0" * 32, wrong=True)


# --- time


@pytest.mark.parametrize("ttl", [60, timedelta(minutes=1)])
def test_an_answer_ends_when_its_age_is_the_ttl(ttl: Any, claude: Claude, desk: Emulator, road: Road) -> None:
    clock = Clock()
    cache = SemanticCache(ttl=ttl, jitter=0, now=clock)
    model = road(claude(), cache)
    model.invoke(RESET)
    clock.time += 59.999
    assert model.invoke(RESET_TOO).response_metadata["headstay"]["age"] == 59.999
    model.invoke(RESET)
    assert len(desk.exchanges) == 1
    clock.time += 0.001
    model.invoke(RESET)
    assert len(desk.exchanges) == 2  # being served did not make it younger


def test_jitter_only_shortens(claude: Claude, desk: Emulator) -> None:
    clock = Clock()
    cache = SemanticCache(ttl=100, jitter=0.5, now=clock)
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke(RESET)
    clock.time += 49.9
    model.invoke(RESET)
    assert len(desk.exchanges) == 1
    clock.time += 50.1
    model.invoke(RESET)
    assert len(desk.exchanges) == 2


def test_a_clock_turned_back_serves_no_answer_of_an_unknown_age(claude: Claude, desk: Emulator, road: Road) -> None:
    clock = Clock()
    cache = SemanticCache(ttl=1000, jitter=0, now=clock)
    model = road(claude(), cache)
    model.invoke(RESET)
    clock.time -= 500
    model.invoke(RESET)
    assert len(desk.exchanges) == 2


# --- calls and operators


def test_one_call_can_go_past_the_cache(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache()
    model = road(claude(), cache)
    with caching("no_store"):
        model.invoke(RESET)
    with caching("bypass"):
        model.invoke(RESET)
    assert cache.metrics().stored == 0
    model.invoke(RESET)
    assert len(desk.exchanges) == 3
    entry = model.invoke(RESET).response_metadata["headstay"]["entry"]
    with caching("no_store"):
        assert model.invoke(RESET_TOO).response_metadata["headstay"]["entry"] == entry
    with caching("bypass"):
        assert "headstay" not in model.invoke(RESET).response_metadata
    with caching("refresh"):
        assert "headstay" not in model.invoke(RESET).response_metadata
    again = model.invoke(RESET_TOO).response_metadata["headstay"]["entry"]
    assert again != entry
    assert len(desk.exchanges) == 5
    assert cache.metrics().misses["bypassed"] == 2
    assert cache.metrics().misses["refreshed"] == 1


def test_the_mode_reaches_other_threads_of_the_call(claude: Claude, desk: Emulator) -> None:
    cache = SemanticCache()
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    with caching("bypass"):
        model.batch([RESET, RESET])
    assert cache.metrics().misses == {"bypassed": 2}


def test_a_mode_that_is_none_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match='"use", "bypass", "refresh", "no_store"'), caching("off"):  # type: ignore[arg-type] # what a user may write
        pass


@pytest.mark.parametrize("switch", ["attribute", "environment"])
def test_the_kill_switch_is_at_once(
    switch: str, claude: Claude, desk: Emulator, road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = SemanticCache()
    model = road(claude(), cache)
    model.invoke(RESET)
    if switch == "attribute":
        cache.enabled = False
    else:
        monkeypatch.setenv("HEADSTAY_CACHE", "off")
    model.invoke(RESET)
    model.invoke("Where can I see the weather forecast?")
    assert len(desk.exchanges) == 3
    assert cache.metrics().misses["disabled"] == 2
    assert cache.metrics().stored == 1
    cache.enabled = True
    monkeypatch.delenv("HEADSTAY_CACHE", raising=False)
    model.invoke(RESET)
    assert len(desk.exchanges) == 3


def test_a_dry_run_serves_nothing_and_compares(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache(dry_run=True)
    model = road(claude(), cache)
    for question in (RESET, RESET, RESET_TOO):
        assert question in model.invoke(question).text
    assert len(desk.exchanges) == 3
    counted = cache.metrics()
    assert (counted.hits, counted.misses["dry_run"], counted.stored) == ({}, 2, 1)
    assert counted.shadow == {"same": 1, "other": 1}


def test_explain_says_what_would_be_decided(claude: Claude) -> None:
    cache = SemanticCache()
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    set_llm_cache(cache)
    claude().invoke(RESET)
    assert cache.explain(RESET_TOO, claude()).startswith("hit (semantic, similarity 0.9")
    refused = cache.explain("How do I reset my password twice in 2024?", claude())
    assert refused.startswith("miss, ")
    assert cache.metrics().lookups == 1
    assert model.semantic_cache is cache


def test_clear_retires_everything(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache()
    model = road(claude(), cache)
    model.invoke(RESET)
    cache.clear()
    model.invoke(RESET)
    assert len(desk.exchanges) == 2


def test_a_chain_names_its_own_tenant_and_version(claude: Claude, desk: Emulator) -> None:
    cache = SemanticCache()
    version = {"now": "1"}
    chain = cached(
        ChatPromptTemplate.from_messages([("human", "{question}")]) | claude(),
        cache=cache,
        query="question",
        tenant=tenant_in,
        version=lambda _: version["now"],
    )
    for tenant in ("acme", "acme", "globex", None):
        chain.invoke({"question": RESET}, for_tenant(tenant))
    assert len(desk.exchanges) == 3
    assert cache.metrics().misses["no_tenant"] == 1
    version["now"] = "2"
    chain.invoke({"question": RESET}, for_tenant("acme"))
    assert len(desk.exchanges) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"threshold": 0}, "threshold=0"),
        ({"threshold": 12}, "threshold=12"),
        ({"ttl": 0}, "ttl=0"),
        ({"ttl": "1h"}, "ttl='1h'"),
        ({"jitter": 1}, "jitter=1"),
        ({"flight": -1}, "flight=-1"),
        ({"flight": 601}, "flight=601"),
        ({"tags": "faq"}, "tags='faq'"),
        ({"tags": [7]}, "tags="),
        ({"ttl": True}, "ttl=True"),
        ({"jitter": "0.1"}, "jitter='0.1'"),
        ({"flight": "30"}, "flight='30'"),
        ({"dry_run": "no"}, "dry_run='no'"),
        ({"max_entries": 0}, "max_entries=0"),
        ({"max_bytes": "1"}, "max_bytes='1'"),
        ({"path_or_store": 7}, "a semantic cache in int"),
        ({"path_or_store": SQLiteStore}, "a semantic cache in SQLiteStore"),
        ({"tool_calls": "always"}, "tool_calls='always'"),
        ({"tenant": 7}, "tenant=7"),
        ({"embedder": 7}, "embedder=int"),
    ],
)
def test_a_setting_that_cannot_work_is_one_clear_error(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SemanticCache(**settings)


def test_what_is_no_cache_is_one_clear_error(claude: Claude) -> None:
    with pytest.raises(ConfigError, match="give a SemanticCache"):
        CacheAwareChatModel(claude(), semantic_cache="answers.db")
    with pytest.raises(ConfigError, match="give a SemanticCache"):
        cached(RunnableLambda(str), cache="answers.db", query=None)  # type: ignore[arg-type] # what a user may write
    with pytest.raises(ConfigError, match="give a runnable"):
        cached(str, cache=SemanticCache(), query=None)  # type: ignore[arg-type] # what a user may write
    with pytest.raises(ConfigError, match="query=7"):
        cached(RunnableLambda(str), cache=SemanticCache(), query=7)  # type: ignore[arg-type] # what a user may write


def test_a_user_that_cannot_be_told_switches_the_cache_off(claude: Claude, desk: Emulator, road: Road) -> None:
    cache = SemanticCache(user=lambda _: None)
    model = road(claude(), cache)
    for _ in range(2):
        model.invoke(RESET)
    assert len(desk.exchanges) == 2
    assert cache.metrics().misses == {"no_tenant": 2}
    assert cache.metrics().stored == 0
