"""With verify="provider" the API is asked why a prefix was not read; its answer reaches the row and nobody else."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, SecretStr

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator, ManualClock, Reply, serve
from headstay.emulator.openai_switches import OpenAISwitches
from headstay.ledger import Row
from headstay.ledger.price import rates
from langchain_headstay import cache_aware
from langgraph_headstay import StableHeadMiddleware

Chat = Callable[..., BaseChatModel]
Way = Callable[[Any, Any, Any], Awaitable[str]]

# LangChain's own notices on stream_events(version="v3").
pytestmark = [pytest.mark.filterwarnings("ignore:.*is in beta")]
KEY = SecretStr("key-a")
QUESTIONS = ("Where is my order?", "And when will it come?", "Thank you!")


@pytest.fixture
def server(quiet_server: Emulator) -> Emulator:
    quiet_server.reset()
    return quiet_server


class Gateway(httpx2.HTTPTransport):
    """Changes each request behind headstay's back, as a gateway may."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return super().handle_request(self.changed(request))

    def changed(self, request: httpx2.Request) -> httpx2.Request:
        body = json.loads(request.read())
        reword(body)
        headers = [(name, value) for name, value in request.headers.multi_items() if name != "content-length"]
        return httpx2.Request(
            request.method, request.url, headers=headers, content=json.dumps(body), extensions=request.extensions
        )


class AsyncGateway(httpx2.AsyncHTTPTransport):
    def __init__(self, gateway: Gateway) -> None:
        super().__init__()
        self._gateway = gateway

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await super().handle_async_request(self._gateway.changed(request))


_numbers = count()


def reword(body: dict[str, Any]) -> None:
    """Say something new at the beginning of the system text, each time something else."""
    where, name = (body, "system") if "system" in body else (body["input"][0], "content")
    said = f"Request {next(_numbers)}. "
    if isinstance(where[name], str):
        where[name] = said + where[name]
    else:
        where[name][0]["text"] = said + where[name][0]["text"]


class MutatingClaude(ChatAnthropic):
    """The same for Anthropic, whose SDK makes its HTTP client itself."""

    def _create(self, payload: dict[str, Any]) -> Any:
        return super()._create(self._changed(payload))

    async def _acreate(self, payload: dict[str, Any]) -> Any:
        return await super()._acreate(self._changed(payload))

    def _changed(self, payload: dict[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(json.dumps(payload))
        reword(body)
        return body


@pytest.fixture(params=["anthropic-messages", "openai-responses"])
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def changed_gpt(server: Emulator) -> AsyncIterator[Chat]:
    """Make a ChatOpenAI whose requests are changed behind headstay."""
    gateway = Gateway()
    async with httpx2.AsyncClient(transport=AsyncGateway(gateway)) as other:
        with httpx2.Client(transport=gateway) as client:
            yield partial(
                ChatOpenAI,
                model="gpt-6.1-sol",
                api_key=KEY,
                use_responses_api=True,
                max_retries=0,
                http_client=client,
                http_async_client=other,
            )


@pytest.fixture
def changing(wire: str, server: Emulator, changed_gpt: Chat) -> BaseChatModel:
    """Make a model whose requests are changed behind headstay."""
    if wire == "anthropic-messages":
        settings: dict[str, Any] = {"model": "claude-opus-5", "api_key": KEY, "base_url": server.base_url}
        return MutatingClaude(**settings, max_retries=0)
    return changed_gpt(base_url=server.openai_url)


async def talk(model: BaseChatModel, way: Way, policy: str, questions: tuple[str, ...] = QUESTIONS) -> None:
    history: list[BaseMessage] = [SystemMessage(policy)]
    for question in questions:
        history.append(HumanMessage(question))
        history.append(AIMessage(await way(model, list(history), None)))


def asked(server: Emulator) -> list[Any]:
    """Return what each request asked about."""
    found: list[Any] = []
    for exchange in server.exchanges:
        if "diagnostics" in exchange.body:
            found.append(exchange.body["diagnostics"]["previous_message_id"])
        else:
            found.append((exchange.body.get("prompt_cache_options") or {}).get("comparison_response_id"))
    return found


def replies(server: Emulator) -> list[str]:
    return [exchange.response["id"] for exchange in server.exchanges]


def rows(ledger: Ledger) -> list[Row]:
    return list(ledger.rows())


async def test_each_call_asks_about_the_one_it_continues(
    chat: Chat, aware: Chat, way: Way, server: Emulator, policy: str
) -> None:
    ledger = Ledger()
    await talk(aware(chat(), verify="provider", ledger=ledger), way, policy)
    assert asked(server) == [None, *replies(server)[:2]]
    assert [row.status for row in rows(ledger)] == ["cold", "ok", "ok"]
    assert {row.diagnosis for row in rows(ledger)} <= {None, "cache_hit"}


async def test_the_providers_word_reaches_the_row(
    changing: BaseChatModel, wire: str, aware: Chat, way: Way, server: Emulator, policy: str
) -> None:
    ledger = Ledger()
    await talk(aware(changing, verify="provider", ledger=ledger), way, policy)
    first, *others = rows(ledger)
    assert (first.status, first.diagnosis) == ("cold", None)
    word = "system_changed" if wire == "anthropic-messages" else "input_changed"
    for row in others:
        assert (row.status, row.diagnosis) == ("short", word)
        assert (row.cause, row.owner, row.breaks) == ("system_text_changed", "application", ())
        assert row.diagnosis_tokens is not None
        assert row.diagnosis_tokens > 1_500


async def test_without_asking_the_cause_is_not_known(
    changing: BaseChatModel, aware: Chat, way: Way, server: Emulator, policy: str
) -> None:
    ledger = Ledger()
    await talk(aware(changing, ledger=ledger), way, policy)
    assert not any("diagnos" in json.dumps(exchange.body) for exchange in server.exchanges)
    assert asked(server) == [None, None, None]
    assert [(row.cause, row.diagnosis) for row in rows(ledger)[1:]] == [("unknown", None)] * 2


def shown(message: BaseMessage) -> dict[str, Any]:
    """Return a message without what differs between any two replies."""
    found = message.model_dump(exclude={"id", "usage_metadata"})
    for name in ("id", "usage", "created_at"):
        found["response_metadata"].pop(name, None)
    if isinstance(message.content, list):
        found["content"] = [{**part, "id": ""} for part in found["content"]]
    return found


@pytest.mark.parametrize("how", ["invoke", "stream"])
def test_nothing_of_it_is_in_the_reply(changing: BaseChatModel, how: str, server: Emulator, policy: str) -> None:
    ledger = Ledger()
    model = cache_aware(changing, verify="provider", ledger=ledger, on_break="record")
    given: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
    given += [model.invoke(given), HumanMessage("And then?")]

    def ask(one: BaseChatModel) -> Any:
        if how == "invoke":
            return one.invoke(given)
        first, *more = one.stream(given)
        return sum(more, first)

    assert shown(ask(model)) == shown(ask(changing))
    assert rows(ledger)[-1].diagnosis is not None


def test_the_applications_own_question_stays(claude_chat: Chat, server: Emulator, policy: str) -> None:
    ledger = Ledger()
    model = cache_aware(claude_chat(), verify="provider", ledger=ledger, on_break="record")
    own = {"previous_message_id": "msg_of_another_day"}
    reply = model.invoke([SystemMessage(policy), HumanMessage("Hello")], diagnostics=own)
    assert asked(server) == ["msg_of_another_day"]
    assert reply.response_metadata["diagnostics"]["cache_miss_reason"]["type"] == "previous_message_not_found"
    assert [(row.status, row.diagnosis) for row in rows(ledger)] == [("cold", "previous_message_not_found")]


def test_the_applications_own_options_stay(gpt_chat: Chat, server: Emulator, policy: str) -> None:
    options = {"mode": "explicit", "ttl": "12h"}
    model = cache_aware(
        gpt_chat("gpt-6.1-sol", use_responses_api=True, prompt_cache_options=options), verify="provider"
    )
    history: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
    model.invoke([*history, model.invoke(history), HumanMessage("And then?")])
    first, second = (exchange.body["prompt_cache_options"] for exchange in server.exchanges)
    assert first == options
    assert second == {**options, "comparison_response_id": replies(server)[0]}


class Answer(BaseModel):
    """An answer."""

    text: str


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
async def test_structured_output_is_diagnosed_too(how: str, changed_gpt: Chat, policy: str) -> None:
    ledger = Ledger()
    with serve(clock=ManualClock(), responder=lambda wire, body: Reply('{"text": "Yes."}')) as server:
        model = cache_aware(
            changed_gpt(base_url=server.openai_url), verify="provider", ledger=ledger, on_break="record"
        )
        chain = model.with_structured_output(Answer, method="json_schema")
        given: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
        for _ in range(2):
            found = chain.invoke(given) if how == "invoke" else await chain.ainvoke(given)
            assert found == Answer(text="Yes.")
            given += [AIMessage("Yes."), HumanMessage("And then?")]
    assert [row.diagnosis for row in rows(ledger)] == [None, "input_changed"]


@pytest.mark.parametrize("include", [True, False])
async def test_response_headers_are_still_there(gpt_chat: Chat, include: bool, policy: str) -> None:
    ledger = Ledger()
    bare = gpt_chat("gpt-6.1-sol", use_responses_api=True, include_response_headers=include)
    model = cache_aware(bare, verify="provider", ledger=ledger)
    given: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
    for _ in range(2):
        first, *more = [chunk async for chunk in model.astream(given)]
        reply = sum(more, first)
        assert ("headers" in reply.response_metadata) == include
        given += [reply, HumanMessage("And then?")]
    assert [row.diagnosis for row in rows(ledger)] == [None, "cache_hit"]


def test_the_models_own_clients_stay_its_own(gpt_chat: Chat) -> None:
    bare: Any = gpt_chat("gpt-6.1-sol", use_responses_api=True)
    model: Any = cache_aware(bare, verify="provider")
    assert model == bare
    assert (model.root_client, model.root_async_client) == (bare.root_client, bare.root_async_client)
    model.invoke("Hello")
    assert vars(model)["root_client"] is bare.root_client
    assert model == bare
    fresh: Any = gpt_chat("gpt-6.1-sol")
    other = fresh.root_client
    model.root_client = other
    assert (model.root_client, bare.root_client is other) == (other, False)


def test_azure_is_not_asked(server: Emulator, policy: str) -> None:
    bare = AzureChatOpenAI(
        azure_deployment="gpt-6.1-sol",
        model="gpt-6.1-sol",
        azure_endpoint=server.base_url,
        api_version="2026-10-01",
        api_key=KEY,
        use_responses_api=True,
    )
    model = cache_aware(bare, verify="provider")
    history: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
    model.invoke([*history, model.invoke(history), HumanMessage("And then?")])
    assert asked(server) == [None, None]


async def test_a_file_knows_the_reply_that_another_process_got(
    chat: Chat, server: Emulator, policy: str, tmp_path: Path
) -> None:
    given: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
    for _ in range(2):
        with HeadStore(tmp_path / "heads.db", strict=True) as store:
            given += [
                cache_aware(chat(), verify="provider", head_store=store).invoke(given),
                HumanMessage("And then?"),
            ]
    assert asked(server) == [None, replies(server)[0]]


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("head_store", [None, "runtime"])
async def test_an_agent_asks(changing: BaseChatModel, how: str, head_store: Any, server: Emulator, policy: str) -> None:
    ledger = Ledger()
    shared = InMemoryStore()
    messages: list[Any] = []

    def worker() -> Any:
        middleware = StableHeadMiddleware(
            name="desk", verify="provider", on_break="record", ledger=ledger, head_store=head_store
        )
        return create_agent(changing, [], system_prompt=policy, middleware=[middleware], store=shared)

    agent = worker()
    for question in QUESTIONS:
        agent = worker() if head_store == "runtime" else agent  # what the turn before left is in the shared store
        given = {"messages": [*messages, HumanMessage(question)]}
        if how == "invoke":
            messages = agent.invoke(given)["messages"]
        elif how == "ainvoke":
            messages = (await agent.ainvoke(given))["messages"]
        elif how == "stream":
            parts = list(agent.stream(given, stream_mode=["values", "messages"]))
            messages = [state for mode, state in parts if mode == "values"][-1]["messages"]
        else:
            parts = [part async for part in agent.astream(given, stream_mode=["values", "messages"])]
            messages = [state for mode, state in parts if mode == "values"][-1]["messages"]
    assert asked(server) == [None, *replies(server)[:2]]
    assert [row.cause for row in rows(ledger)[1:]] == ["system_text_changed"] * 2
    assert not any("diagnos" in json.dumps(message.content) for message in messages)


@pytest.mark.parametrize("how", ["invoke", "stream"])
def test_a_reply_from_another_machine_is_routing(how: str, policy: str) -> None:
    ledger = Ledger()
    switches = OpenAISwitches(shard_requests_per_minute=1, fingerprint_by_machine=True)
    with serve(clock=ManualClock(), responder=lambda wire, body: Reply("Noted."), openai=switches) as server:
        bare = ChatOpenAI(
            model="gpt-5.4", api_key=KEY, base_url=server.openai_url, use_responses_api=False, stream_usage=True
        )
        model = cache_aware(bare, ledger=ledger, on_break="record")
        given: list[BaseMessage] = [SystemMessage(policy), HumanMessage("Hello")]
        for _ in range(2):
            text = model.invoke(given).text if how == "invoke" else "".join(one.text for one in model.stream(given))
            given += [AIMessage(text), HumanMessage("And then?")]
    second = rows(ledger)[-1]
    assert (second.status, second.cause, second.owner) == ("short", "provider_routing", "provider")
    assert second.note is not None
    assert second.note.startswith("the reply's system_fingerprint is fp_emulated_")


def test_a_note_that_is_dropped_is_no_edited_history(claude_chat: Chat, policy: str) -> None:
    ledger, clock = Ledger(), ManualClock()
    with serve(clock=clock, responder=lambda wire, body: Reply("Noted.")) as server:
        model = cache_aware(claude_chat(base_url=server.base_url), verify="provider", ledger=ledger, on_break="record")
        given: list[BaseMessage] = []
        for turn in range(3):
            given.append(HumanMessage(QUESTIONS[turn]))
            if turn == 2:
                clock.advance(400)  # longer than the cache lives; headstay goes by a clock of its own
            given.append(model.invoke([SystemMessage(f"It is 2026-11-29 10:00:0{turn}.\n{policy}"), *given]))
    found = [(row.status, row.cause, row.diagnosis) for row in rows(ledger)]
    # the clock of each turn stood at the end of its question and is not sent again
    assert found == [
        ("cold", None, None),
        ("ok", None, "messages_changed"),
        ("short", "unknown", "messages_changed"),
    ]


@pytest.mark.parametrize(("ttl", "factor"), [("30m", 1.25), ("12h", 2.5)])
def test_writes_are_priced_for_the_lifetime_that_was_asked_for(
    server: Emulator, gpt_chat: Callable[..., ChatOpenAI], ttl: str, factor: float
) -> None:
    """Chat Completions says how much was written and not for how long."""
    ledger = Ledger()
    model = cache_aware(gpt_chat("gpt-5.6-terra"), ledger=ledger, ttl=ttl, on_break="record")
    model.invoke([SystemMessage("Be kind and brief. " * 500), HumanMessage("Hello")])
    (row,) = ledger.rows(with_cost=True)
    assert row.write_by_ttl == {ttl: row.cache_write_tokens}
    price = rates("openai", "gpt-5.6-terra")
    assert price is not None
    plain = (row.input_tokens or 0) - row.cache_write_tokens
    expected = (plain + factor * row.cache_write_tokens) * price.input + row.output_tokens * price.output
    assert row.cost_usd == pytest.approx(expected / 1e6)
