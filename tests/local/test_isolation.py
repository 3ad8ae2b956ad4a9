"""No tenant reads another's head, by vLLM's own counters: whichever way a request takes through headstay."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NotRequired, TypedDict, cast
from uuid import uuid4

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from openai import OpenAI

from headstay import HeadStore, Ledger, Slot
from headstay.local.client import server_at
from langchain import agents
from langchain_headstay import CacheAwareChatModel, ChatLocal
from langgraph_headstay import StableHeadMiddleware

RUN = uuid4().hex
SEQUENCE = ("acme", "acme", "zenith", "zenith", None, None, "acme")
"""Cold, again, cold for another, again, cold without a tenant, again, and the first one's is still there."""


@dataclass
class Meter:
    """vLLM's counters around a call.

    Attributes:
        base_url: The server.
    """

    base_url: str

    def read(self, call: Callable[[], tuple[int, int]]) -> int:
        """Make a call that gives the tokens of its prompt and those that were read; return what the server counted."""
        server = server_at(self.base_url)
        before = server.figures()
        assert before is not None
        prompt, said = call()
        deadline = time.monotonic() + 10
        while (after := server.figures()) is None or after.queried_tokens < before.queried_tokens + prompt:
            assert time.monotonic() < deadline, "the counters never moved"
        assert after.queried_tokens == before.queried_tokens + prompt
        assert after.read_tokens - before.read_tokens == said
        return said


@pytest.fixture
def meter(base_url: str) -> Meter:
    return Meter(base_url)


@pytest.fixture
def bare(local: Any, base_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ChatLocal]]:
    """Make a model that finds the running server by itself."""
    monkeypatch.setenv("HEADSTAY_LOCAL_HOME", str(local.home.path))
    for name in ("HEADSTAY_LOCAL_URL", "HEADSTAY_LOCAL_API_KEY", "HEADSTAY_SALT_KEY"):
        monkeypatch.delenv(name, raising=False)

    def make(**more: Any) -> ChatLocal:
        return ChatLocal(temperature=0, max_tokens=1, **more)

    yield make
    assert make().openai_api_base == base_url


def head(name: str) -> str:
    """Return a system text that no other test sends, and no other run to a server that is still there."""
    return f"You keep the books of {name} ({RUN}). " + " ".join(
        f"Rule {number}: close ledger {number}." for number in range(40)
    )


def asked(name: str) -> list[Any]:
    return [SystemMessage(head(name)), HumanMessage("How do I begin?")]


def spent(reply: Any) -> tuple[int, int]:
    """Return the tokens of the prompt and those that were read."""
    usage = reply.usage_metadata
    return usage["input_tokens"], usage["input_token_details"]["cache_read"]


def whole(tokens: int, block: int) -> int:
    """Return what is read of a prompt that was sent before: whole blocks, and never its last token."""
    return (tokens - 1) // block * block


def expected(reads: list[int], sizes: list[int], block: int) -> None:
    """Hold the reads of the sequence against what they must be."""
    warm = [whole(size, block) for size in sizes]
    assert reads == [0, warm[1], 0, warm[3], 0, warm[5], warm[6]]
    assert min(warm) > 300


def test_a_tenants_head_is_read_by_that_tenant_alone(bare: Callable[..., ChatLocal], meter: Meter, block: int) -> None:
    sizes: list[int] = []

    def ask(tenant: str | None) -> tuple[int, int]:
        model = CacheAwareChatModel(model=bare(), name="books", tenant=tenant)
        found = spent(model.invoke(asked("Model")))
        sizes.append(found[0])
        return found

    expected([meter.read(partial(ask, tenant)) for tenant in SEQUENCE], sizes, block)


class Whose(TypedDict):
    tenant: NotRequired[str]


@tool
def balance(account: str) -> str:
    """Return the balance of an account."""
    return f"{account}: 0"


def test_an_agents_tenants_are_kept_apart_by_the_middleware(
    bare: Callable[..., ChatLocal], meter: Meter, block: int
) -> None:
    agent = cast("Any", agents).create_agent(
        bare(),
        [balance],
        system_prompt=head("Agent"),
        middleware=[StableHeadMiddleware(name="books", tenant=lambda runtime: (runtime.context or {}).get("tenant"))],
        context_schema=Whose,
    )
    sizes: list[int] = []

    def ask(tenant: str | None) -> tuple[int, int]:
        context = {} if tenant is None else {"tenant": tenant}
        found = spent(agent.invoke({"messages": [HumanMessage("How do I begin?")]}, context=context)["messages"][-1])
        sizes.append(found[0])
        return found

    expected([meter.read(partial(ask, tenant)) for tenant in SEQUENCE], sizes, block)


def test_a_request_that_headstay_could_not_plan_is_kept_apart_all_the_same(
    bare: Callable[..., ChatLocal], meter: Meter, block: int
) -> None:
    def find_names(text: str) -> list[tuple[int, int]]:
        raise LookupError(text)

    ledger, sizes = Ledger(), list[int]()

    def ask(tenant: str | None) -> tuple[int, int]:
        model = CacheAwareChatModel(
            model=bare(), tenant=tenant, volatile=[Slot(find_names)], on_break="record", ledger=ledger
        )
        chunks = list(model.stream(asked("Unplanned")))
        (found,) = [spent(chunk) for chunk in chunks if chunk.usage_metadata]
        sizes.append(found[0])
        return found

    expected([meter.read(partial(ask, tenant)) for tenant in SEQUENCE], sizes, block)
    rows = list(ledger.rows())
    assert [row.tenant for row in rows] == list(SEQUENCE)
    assert all("raised LookupError" in (row.unverified or "") for row in rows)


def test_the_applications_own_salt_stays(
    bare: Callable[..., ChatLocal], client: OpenAI, meter: Meter, block: int
) -> None:
    model = bare(extra_body={"cache_salt": "the books' own"})

    def ask(tenant: str) -> int:
        aware = CacheAwareChatModel(model=model, name="books", tenant=tenant)
        return meter.read(lambda: spent(aware.invoke(asked("Own salt"))))

    messages: Any = [{"role": "system", "content": head("Own salt")}, {"role": "user", "content": "How do I begin?"}]
    first = client.chat.completions.create(
        model=model.model_name, messages=messages, max_tokens=1, extra_body={"cache_salt": "the books' own"}
    )
    assert first.usage is not None
    # the application says who shares what: its salt, and not the tenants', is the one on the wire
    assert [ask("acme"), ask("zenith")] == [whole(first.usage.prompt_tokens, block)] * 2


def test_a_secret_makes_other_salts_than_a_tenants_name(
    bare: Callable[..., ChatLocal], meter: Meter, block: int
) -> None:
    def ask(**secret: str) -> int:
        model = CacheAwareChatModel(model=bare(**secret), name="books", tenant="acme")
        return meter.read(lambda: spent(model.invoke(asked("Secret"))))

    one, other = {"salt_key": "one secret of many"}, {"salt_key": "another of the many"}
    reads = [ask(), ask(), ask(**one), ask(**one), ask(**other)]
    assert reads[0] == reads[2] == reads[4] == 0
    assert reads[1] == reads[3] > 300


async def test_tenants_of_one_model_that_call_at_once_do_not_mix(
    bare: Callable[..., ChatLocal], base_url: str, block: int
) -> None:
    def tenant_of(config: Any) -> str:
        return str(config["configurable"]["tenant"])

    model = CacheAwareChatModel(
        model=bare(),
        name="books",
        tenant=tenant_of,
        head_store=HeadStore(),
        ledger=(ledger := Ledger()),
    )
    tenants = ("acme", "zenith", "corvid", "delft")

    async def ask(tenant: str) -> tuple[int, int]:
        return spent(await model.ainvoke(asked("At once"), {"configurable": {"tenant": tenant}}))

    for tenant in tenants[:2]:
        assert (await ask(tenant))[1] == 0
    server = server_at(base_url)
    before = server.figures()
    mixed = await asyncio.gather(*map(ask, tenants))
    after = server.figures()
    warm = whole(mixed[0][0], block)
    assert [read for _, read in mixed] == [warm, warm, 0, 0]
    assert [read for _, read in await asyncio.gather(*map(ask, tenants))] == [warm] * 4
    assert before is not None
    assert after is not None
    assert after.read_tokens - before.read_tokens == 2 * warm > 0
    assert sorted(row.tenant or "" for row in ledger.rows()) == sorted((*tenants[:2], *tenants, *tenants))
