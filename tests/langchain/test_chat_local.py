"""`ChatLocal` on an emulated vLLM server: how it finds one, what it sends, and what headstay makes of it."""

import asyncio
import copy
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumps
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import DefaultHttpxClient
from pydantic import BaseModel

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator, Reply, ToolCall, VLLMSettings, serve
from headstay.errors import ConfigError, LocalError
from headstay.local import state as states
from headstay.local.home import Home
from headstay.local.process import identify
from headstay.local.state import State
from headstay.local.warm import remembered
from langchain_headstay import CacheAwareChatModel, ChatLocal, cache_aware, warm_head
from langgraph_headstay import StableHeadMiddleware

POLICY = "\n".join(f"Rule {number}: answer questions on topic {number} briefly." for number in range(60))
CLOCK = "2026-11-29T10:00:0{}Z"
Make = Callable[..., ChatLocal]


def answer(wire: str, body: Any) -> Reply:
    """Call the tool that the last message names, else answer; with a schema, fill it."""
    last = body["messages"][-1]
    text = json.dumps(last["content"])
    if body.get("response_format"):
        return Reply('{"city": "Rome"}')
    if "call " in text and last["role"] == "user":
        return Reply("", (ToolCall(text.partition("call ")[2].split('"')[0].split()[0], {}),))
    return Reply("That is settled.")


@pytest.fixture(scope="module")
def shared() -> Iterator[Emulator]:
    with serve(vllm=VLLMSettings(block=32), responder=answer) as running:
        yield running


@pytest.fixture
def vllm(shared: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Emulator:
    """The server, with nothing cached, and a user who has no server of their own."""
    shared.reset()
    monkeypatch.setenv("HEADSTAY_LOCAL_HOME", str(tmp_path / "home"))
    for name in ("HEADSTAY_LOCAL_URL", "HEADSTAY_LOCAL_API_KEY", "HEADSTAY_SALT_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return shared


@pytest.fixture
def make(vllm: Emulator) -> Make:
    def made(**settings: Any) -> ChatLocal:
        return ChatLocal(**{"base_url": vllm.openai_url, "model": "small", "block_size": 32, **settings})

    return made


def bodies(server: Emulator) -> list[dict[str, Any]]:
    return [dict(exchange.body) for exchange in server.exchanges]


def sessions(server: Emulator, name: str = "x-session-id") -> list[str | None]:
    return [exchange.headers.get(name) for exchange in server.exchanges]


def turns(model: BaseChatModel, *texts: str, config: Any = None) -> list[AIMessage]:
    """Have a conversation whose system text holds a clock that moves with each call."""
    history: list[BaseMessage] = []
    for number, text in enumerate(texts):
        history.append(HumanMessage(text))
        history.append(model.invoke([SystemMessage(f"It is {CLOCK.format(number)}.\n{POLICY}"), *history], config))
    return [message for message in history if isinstance(message, AIMessage)]


def running(url: str, **told: Any) -> State:
    itself = identify(os.getpid())
    assert itself is not None
    return State("ready", url, "small", "a test", itself, None, 0, 0.0, "", **told)


# How it finds a server


def test_without_a_url_it_calls_the_users_own_server_and_knows_what_that_takes(vllm: Emulator, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.run.mkdir(parents=True)
    states.write(home, running(vllm.openai_url, block=32, context=4096, in_place_system=True))
    model = ChatLocal()
    assert model.invoke("Hello!").text == "That is settled."
    assert bodies(vllm)[0]["model"] == "small"
    assert (model.block_size, model.in_place_system, model.profile) == (32, True, {"max_input_tokens": 4096})
    chosen = ChatLocal(block_size=64, in_place_system=False, context_length=512)
    assert (chosen.block_size, chosen.in_place_system, chosen.profile) == (64, False, {"max_input_tokens": 512})


def test_a_server_that_is_not_ready_yet_is_not_guessed_at(vllm: Emulator, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.run.mkdir(parents=True)
    states.write(home, replace(running(vllm.openai_url), phase="starting"))
    with pytest.raises(ConfigError, match="is starting; wait"):
        ChatLocal()
    assert ChatLocal(base_url=vllm.openai_url, model="x").model_name == "x"


def test_the_url_of_ones_own_server_is_known_for_what_it_is(vllm: Emulator, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.run.mkdir(parents=True)
    states.write(home, running(vllm.openai_url, block=64, context=4096))
    assert ChatLocal(base_url=vllm.openai_url).block_size == 64
    assert ChatLocal(base_url=f"{vllm.openai_url}/").model_name == "small"
    assert ChatLocal(base_url="http://127.0.0.1:9/v1", model="x").block_size == 16


@pytest.mark.usefixtures("vllm")
def test_without_any_server_it_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="headstay local serve"):
        ChatLocal()
    home = Home(tmp_path / "home")
    home.run.mkdir(parents=True)
    ended = running("http://127.0.0.1:9/v1")
    states.write(home, replace(ended, supervisor=replace(ended.supervisor, born="another time")))
    with pytest.raises(ConfigError, match="no server runs"):
        ChatLocal()


def test_a_url_of_the_environment_needs_the_models_name(vllm: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTAY_LOCAL_URL", vllm.openai_url)
    assert ChatLocal(model="small").invoke("Hello!").text == "That is settled."
    with pytest.raises(ConfigError, match="say model="):
        ChatLocal()


def test_nothing_of_openais_own_settings_reaches_the_server(
    vllm: Emulator, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    make().invoke("Hello!")
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    monkeypatch.setenv("OPENAI_API_BASE", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # a prompt for this machine is no proxy's business
    make().invoke("Hello!")
    monkeypatch.setenv("HEADSTAY_LOCAL_API_KEY", "key-of-the-server")
    make().invoke("Hello!")
    make(api_key="key-of-the-server").invoke("Hello!")
    assert "openai-organization" not in vllm.exchanges[1].headers
    assert "openai-project" not in vllm.exchanges[1].headers
    first, second, third, fourth = (exchange.workspace for exchange in vllm.exchanges)  # a digest of the key
    assert first == second != third == fourth
    assert make(model="gpt-6.1-sol").use_responses_api is False


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"session": "thread"}, "session"),
        ({"block_size": 0}, "block"),
        ({"salt_key": "short"}, "salt_key"),
        ({"token_header": "x-session-token", "session_header": None}, "session_header"),
        ({"token_header": "x session"}, "token_header"),
        ({"token_header": 5}, "token_header"),
        ({"session_header": ""}, "session_header"),
        ({"session_header": "X-A\r\nEvil: 1"}, "session_header"),
        ({"session_header": "Ünï"}, "session_header"),
        ({"session_header": "Authorization"}, "session_header"),
    ],
)
def test_settings_that_cannot_work_are_told(make: Make, wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make(**wrong)


# What it is


async def test_usage_comes_in_every_way_of_calling(make: Make) -> None:
    model = make()
    whole = [model.invoke("Hello! " * 50), await model.ainvoke("Hello! " * 50)]
    streamed: list[Any] = [None, None]
    for chunk in model.stream("Hello! " * 50):
        streamed[0] = chunk if streamed[0] is None else streamed[0] + chunk
    async for chunk in model.astream("Hello! " * 50):
        streamed[1] = chunk if streamed[1] is None else streamed[1] + chunk
    counted = {message.usage_metadata["input_tokens"] for message in (*whole, *streamed)}
    assert len(counted) == 1
    reads = [message.usage_metadata["input_token_details"]["cache_read"] for message in (*whole, *streamed)]
    assert reads[0] == 0
    assert reads[1] == reads[2] == reads[3] > 0
    assert reads[1] % 32 == 0


def test_it_counts_tokens_as_the_server_does(make: Make) -> None:
    model = make()
    messages = [SystemMessage(POLICY), HumanMessage("Hello!")]
    told = model.invoke(messages).usage_metadata
    assert told is not None
    assert model.get_num_tokens_from_messages(messages) == told["input_tokens"]
    assert cache_aware(model).get_num_tokens_from_messages(messages) == told["input_tokens"]
    assert model.get_num_tokens("one two three") == 3 < model.get_num_tokens("one two three four")
    longer = model.get_num_tokens_from_messages(messages, tools=[alpha])
    assert longer > told["input_tokens"]


def test_it_is_a_chatopenai_that_can_be_copied_and_shown_without_its_secrets(make: Make) -> None:
    model = make(api_key="key-of-the-server", salt_key="a secret of 16 b")
    assert isinstance(model, ChatOpenAI)
    for other in (copy.copy(model), model.model_copy(), cache_aware(model, name="desk")):
        assert isinstance(other, ChatLocal)
        assert other.headstay_engine == model.headstay_engine
    for shown in (repr(model), dumps(model), str(model._get_ls_params()), model._get_llm_string()):
        assert "key-of-the-server" not in shown
        assert "a secret of 16 b" not in shown
    assert model._get_ls_params()["ls_provider"] == "vllm"


def test_structured_output_and_tools(vllm: Emulator, make: Make) -> None:
    class Place(BaseModel):
        """A place."""

        city: str

    assert make().with_structured_output(Place).invoke("Where?") == Place(city="Rome")
    reply = make().bind_tools([alpha]).invoke("Please call alpha")
    assert [call["name"] for call in reply.tool_calls] == ["alpha"]


def test_who_stands_in_the_url_stands_in_no_trace(make: Make) -> None:
    model = make(base_url="http://user:passw0rd@127.0.0.1:9/v1")
    assert "passw0rd" not in str(model._get_invocation_params())
    with pytest.raises(LocalError, match="no answer") as told:
        model.get_num_tokens("Hello!")
    assert "passw0rd" not in str(told.value)


def test_tokens_are_counted_for_the_responses_api_too(make: Make) -> None:
    messages = [SystemMessage(POLICY), HumanMessage("Hello!")]
    count = make(use_responses_api=True).get_num_tokens_from_messages(messages)
    assert count == make().get_num_tokens_from_messages(messages)


def test_one_client_is_told_of_a_gateways_token_once(make: Make) -> None:
    with DefaultHttpxClient() as client:
        for _ in range(3):
            make(token_header="x-session-token", http_client=client)
        assert len(client.event_hooks["request"]) == 1


# What headstay makes of it


@tool
def alpha() -> str:
    """Do alpha."""
    return "alpha was done"


@tool
def bravo() -> str:
    """Do bravo."""
    return "bravo was done"


@pytest.mark.parametrize("in_place", [True, False])
def test_the_head_is_read_in_whole_blocks_though_a_clock_moves(make: Make, in_place: bool) -> None:
    model = make(in_place_system=in_place)
    plain = [reply.usage_metadata["input_token_details"]["cache_read"] for reply in turns(model, "a?", "b?", "c?")]
    ledger = Ledger()
    turns(CacheAwareChatModel(model=model, name="desk", ledger=ledger), "a?", "b?", "c?")
    rows = list(ledger.rows())
    assert plain[2] < 64
    assert [row.status for row in rows] == ["cold", "ok", "ok"]
    assert {row.provider for row in rows} == {"vllm"}
    for before, row in pairwise(rows):
        assert before.input_tokens is not None
        assert row.cache_read_tokens % 32 == 0
        assert row.cache_read_tokens >= before.input_tokens - 64


def test_a_tenant_reads_its_own_head_and_no_others(vllm: Emulator, make: Make) -> None:
    ledger, store = Ledger(), HeadStore()
    for tenant in ("a", "b", "a", None):
        turns(CacheAwareChatModel(model=make(), tenant=tenant, ledger=ledger, head_store=store), "a?")
    assert [bool(row.cache_read_tokens) for row in ledger.rows()] == [False, False, True, False]
    salts = [body.get("cache_salt") for body in bodies(vllm)]
    assert salts[0] == salts[2] != salts[1]
    assert None not in salts[:3]
    assert salts[3] is None
    other = CacheAwareChatModel(model=make(salt_key="a secret of 16 b"), tenant="a")
    turns(other, "a?")
    assert bodies(vllm)[4]["cache_salt"] != salts[0]


async def test_tenants_of_one_model_do_not_mix_when_it_is_called_at_once(vllm: Emulator, make: Make) -> None:
    model = cache_aware(make(), tenant=lambda config: config["configurable"]["tenant"])
    names = [f"tenant-{number % 4}" for number in range(16)]
    await asyncio.gather(*(model.ainvoke(f"I am {name}", {"configurable": {"tenant": name}}) for name in names))
    salts = {(body["messages"][-1]["content"], body["cache_salt"]) for body in bodies(vllm)}
    assert len(salts) == len({salt for _, salt in salts}) == 4


def test_a_request_whose_tail_cannot_be_made_keeps_its_tenant(vllm: Emulator, make: Make) -> None:
    def broken(_: Any) -> str:
        raise KeyError("docs")

    cache_aware(make(), tenant="a", tail=broken, on_break="record").invoke("Hello!")
    assert bodies(vllm)[0]["cache_salt"] == make().headstay_engine.salt("a")


def test_a_request_whose_tenant_is_not_known_shares_with_nobody(vllm: Emulator, make: Make) -> None:
    def broken(_: Any) -> str:
        raise KeyError("tenant")

    ledger = Ledger()
    model = cache_aware(make(), tenant=broken, ledger=ledger, on_break="record")
    turns(model, "a?")
    turns(model, "a?")
    turns(make(), "a?")
    salts = [body.get("cache_salt") for body in bodies(vllm)]
    assert salts[0] != salts[1]
    assert None not in salts[:2]
    assert [row.cache_read_tokens for row in ledger.rows()] == [0, 0]
    assert vllm.exchanges[2].response["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_conversation_names_its_session_and_a_head_names_one_for_all(vllm: Emulator, make: Make) -> None:
    for session in ("conversation", "head"):
        model = cache_aware(make(session=session), name="desk")
        turns(model, "a?", "b?")
        turns(model, "c?")
    found = sessions(vllm)
    assert found[0] == found[1] != found[2]
    assert found[3] == found[4] == found[5]
    assert None not in found


def test_the_header_can_have_another_name_or_be_left_out(vllm: Emulator, make: Make) -> None:
    cache_aware(make(session_header="x-user-id")).invoke("Hello!")
    cache_aware(make(session_header=None)).invoke("Hello!")
    cache_aware(make(default_headers={"x-session-id": "mine"})).invoke("Hello!")
    make().invoke("Hello!")  # without headstay nobody knows conversations
    assert [bool(name) for name in sessions(vllm, "x-user-id")] == [True, False, False, False]
    assert sessions(vllm) == [None, None, "mine", None]


def test_a_bound_model_and_structured_output_keep_salt_and_session(vllm: Emulator, make: Make) -> None:
    model = cache_aware(make(extra_body={"top_k": 5}), tenant="a")
    model.bind_tools([alpha]).invoke("Hello!")
    list(model.stream("Hello!"))
    assert [(body["top_k"], len(body["cache_salt"])) for body in bodies(vllm)] == [(5, 64), (5, 64)]
    assert None not in sessions(vllm)


def test_an_agent_declares_all_tools_asks_for_no_list_and_runs_only_what_is_offered(vllm: Emulator, make: Make) -> None:
    ledger = Ledger()
    steady = StableHeadMiddleware(name="desk", ledger=ledger, tenant=lambda runtime: "a")
    both = create_agent(make(), [alpha, bravo], system_prompt=POLICY, middleware=[steady])
    both.invoke({"messages": [HumanMessage("Hello!")]})
    one = create_agent(make(), [alpha], system_prompt=POLICY, middleware=[steady])
    state = one.invoke({"messages": [HumanMessage("call bravo")]})
    sent = bodies(vllm)
    assert [[found["function"]["name"] for found in body["tools"]] for body in sent] == [["alpha", "bravo"]] * 3
    assert not any(isinstance(body.get("tool_choice"), dict) for body in sent)
    refused = [message.text for message in state["messages"] if message.type == "tool"]
    assert len(refused) == 1
    assert "bravo was done" not in refused[0]
    assert [row.status for row in ledger.rows()] == ["cold", "ok", "ok"]


def test_a_warmed_head_is_there_for_the_first_user(vllm: Emulator, make: Make) -> None:
    ledger = Ledger()
    model = CacheAwareChatModel(
        model=make(session="head"),
        name="desk",
        ledger=ledger,
        tenant=lambda config: config["configurable"].get("tenant"),
    )
    north: Any = {"configurable": {"tenant": "north"}}
    warmth = warm_head(model, [SystemMessage(f"It is {CLOCK.format(8)}.\n{POLICY}")], tools=[alpha], config=north)
    assert (warmth.is_warm, warmth.before, warmth.block) == (True, 0, 32)
    assert warmth.cached == warmth.expected
    assert warmth.cached > 600
    assert list(ledger.rows()) == []  # it is no call of the application's
    first = [SystemMessage(f"It is {CLOCK.format(9)}.\n{POLICY}"), HumanMessage("What is rule one?")]
    read = model.bind_tools([alpha]).invoke(first, north).usage_metadata
    assert read is not None
    assert read["input_token_details"]["cache_read"] >= warmth.cached
    assert {body["cache_salt"] for body in bodies(vllm)} == {bodies(vllm)[0]["cache_salt"]}
    assert len(set(sessions(vllm))) == 1  # a router sends them all to one server
    other: Any = {"configurable": {"tenant": "south"}}
    assert warm_head(model, first, tools=[alpha], config=other).before == 0


def test_only_a_local_model_can_be_warmed(make: Make) -> None:
    with pytest.raises(ConfigError, match="ChatOpenAI"):
        warm_head(ChatOpenAI(model="gpt-5.4", api_key="none"), [SystemMessage(POLICY)])
    with pytest.raises(ConfigError, match="tenant= raised KeyError"):
        warm_head(cache_aware(make(), tenant=lambda config: config["configurable"]["tenant"]), POLICY)
    with pytest.raises(ConfigError, match="no head to warm"):
        warm_head(make(), [HumanMessage("Hello!")])


def test_a_head_is_warmed_again_only_on_the_users_own_server(vllm: Emulator, make: Make, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.run.mkdir(parents=True)
    for url, kept in (("http://127.0.0.1:9/v1", 0), (vllm.openai_url, 1)):
        states.write(home, running(url))
        assert warm_head(make(), [SystemMessage(POLICY)]).is_warm
        assert len(remembered(home)) == kept
