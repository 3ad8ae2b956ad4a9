"""Beside Anthropic's own caching middleware, before and after ours: legal, complete, and still one head.

The numbers are those of the defects measured in langchain-anthropic 1.7.10; 5, lost fields of the system message,
does not show on this wire.
"""

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from headstay import Ledger
from headstay.emulator import Emulator

ORDERS = ("before", "after")
MODELS = ("claude-opus-5-5", "claude-sonnet-4-6")


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


def ordered(order: str, ours: Any, ttl: Any = "5m") -> list[Any]:
    vendor = AnthropicPromptCachingMiddleware(ttl=ttl)  # it warns, and so fails, for a model it does not know (6)
    return [vendor, ours] if order == "before" else [ours, vendor]


def markers(body: Any) -> list[Any]:
    """Return all markers in wire order: tools, system, messages, then the top-level one."""
    parts = [*body.get("tools", ()), *(body["system"] if isinstance(body["system"], list) else ())]
    for message in body["messages"]:
        parts += message["content"] if isinstance(message["content"], list) else ()
    return [part["cache_control"] for part in [*parts, body] if "cache_control" in part]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MODELS)
async def test_one_head_in_both_orders(
    make_model: Any,
    run: Any,
    desk: Any,
    stable: Any,
    wires: Any,
    server: Emulator,
    policy: str,
    name: str,
    order: str,
    no_breaks: Any,
) -> None:
    desk.system = lambda number: f"{policy}\nIt is {clock(number)}."
    desk.offer = desk.shuffled
    agent = create_agent(
        make_model(name),
        desk.tools(),
        middleware=[desk.middleware(), *ordered(order, stable())],
        checkpointer=InMemorySaver(),
    )
    for thread in ("one", "two", "one"):
        await run(agent, "use alpha bravo", thread)
    assert not wires.failed
    assert len({wires.head(number) for number in range(6)}) == 1
    for number, body in enumerate(wires.bodies):
        assert len(markers(body)) <= 4
        assert "cache_control" not in body
        assert wires.texts[number].count(clock(number + 1)) == 1  # the volatile block is not what is marked (7)
        assert clock(number + 1) not in json.dumps(body["system"])
    reads = [exchange.response["usage"]["cache_read_input_tokens"] for exchange in server.exchanges]
    assert all(read > 1_000 for read in reads[1:])
    assert no_breaks()


@pytest.mark.parametrize("order", ORDERS)
async def test_more_markers_than_the_provider_takes(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, order: str
) -> None:
    """(4) Three of the application's own, two of the vendor's and a top-level one; four are allowed."""
    mark = {"cache_control": {"type": "ephemeral"}}
    system = SystemMessage([{"type": "text", "text": policy, **mark}, {"type": "text", "text": "Be kind.", **mark}])
    question = HumanMessage([{"type": "text", "text": "Hello", **mark}])
    agent = create_agent(sonnet, desk.tools(), system_prompt=system, middleware=ordered(order, stable()))
    agent.invoke({"messages": [question]})
    assert not wires.failed
    assert 2 <= len(markers(wires.bodies[0])) <= 4


@pytest.mark.parametrize("order", ORDERS)
async def test_a_longer_ttl_never_stands_behind_a_shorter_one(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, order: str
) -> None:
    system = SystemMessage([{"type": "text", "text": policy, "cache_control": {"type": "ephemeral", "ttl": "5m"}}])
    middleware = ordered(order, stable(), ttl="1h")
    agent = create_agent(sonnet, desk.tools(), system_prompt=system, middleware=middleware)
    agent.invoke({"messages": [("user", "Hello")]})
    assert not wires.failed
    ttls = [marker.get("ttl", "5m") for marker in markers(wires.bodies[0])]
    assert ttls == sorted(ttls)  # "1h" sorts before "5m"
    assert ttls[0] == "1h"


@pytest.mark.parametrize("order", ORDERS)
async def test_a_last_tool_that_is_deferred(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, order: str
) -> None:
    """(2) The vendor marks it, which the API refuses."""
    deferred = desk.tool("zulu")
    deferred.extras = {"defer_loading": True}
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    agent = create_agent(
        sonnet, [search, desk.tool("alpha"), deferred], system_prompt=policy, middleware=ordered(order, stable())
    )
    agent.invoke({"messages": [("user", "Hello")]})
    assert not wires.failed
    (zulu,) = [tool for tool in wires.bodies[0]["tools"] if tool["name"] == "zulu"]
    assert zulu["defer_loading"] is True
    assert "cache_control" not in zulu


@pytest.mark.parametrize("order", ORDERS)
async def test_a_last_tool_that_the_provider_runs(
    sonnet: Any, desk: Any, stable: Any, server: Emulator, wires: Any, order: str
) -> None:
    """(3) No system text and a dict as the last tool: the vendor marks neither, and only the tail is cached."""
    tools = [desk.tool("alpha", "Long. " * 1_500), {"type": "web_search_20250305", "name": "web_search"}]
    agent = create_agent(sonnet, tools, middleware=ordered(order, stable()))
    for text in ("Hello", "Good day"):
        agent.invoke({"messages": [("user", text)]})
    assert not wires.failed
    assert server.exchanges[1].response["usage"]["cache_read_input_tokens"] > 1_000


async def test_a_system_block_that_is_a_plain_string(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str
) -> None:
    """(1) Behind ours the vendor meets text blocks only, and nothing is lost."""
    system = SystemMessage([policy, "The customer is always right."])
    agent = create_agent(sonnet, desk.tools(), system_prompt=system, middleware=ordered("after", stable()))
    agent.invoke({"messages": [("user", "Hello")]})
    assert [block["text"] for block in wires.bodies[0]["system"]] == [policy, "The customer is always right."]
    assert not wires.failed


async def test_a_plain_string_that_was_lost_before_us_is_named_once(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, caplog: Any
) -> None:
    """(1) In front of ours the text is gone before we see the request, for good: it can only be said which."""
    system = SystemMessage([policy, "Be kind.", "The customer is always right."])
    middleware = ordered("before", stable(on_break="warn"))
    agent = create_agent(sonnet, desk.tools(), system_prompt=system, middleware=middleware)
    for _ in range(2):
        agent.invoke({"messages": [("user", "Hello")]})
    assert not wires.failed
    (said,) = [record.message for record in caplog.records]
    assert "block 3 of 3 of the system message came without its text, which cannot be had back" in said
    assert "The customer is always right." not in said
    assert [block["text"] for block in wires.bodies[0]["system"]] == [policy, "Be kind."]


async def test_a_vendor_that_comes_last_is_said_once(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, caplog: Any, ledger: Ledger
) -> None:
    agent = create_agent(
        sonnet, desk.tools(), system_prompt=policy, middleware=ordered("after", stable(on_break="warn"))
    )
    for _ in range(3):
        agent.invoke({"messages": [("user", "Hello")]})
    (said,) = [record.message for record in caplog.records]
    assert "changed the cache markers: put StableHeadMiddleware last" in said
    assert all(row.unverified is None for row in ledger.rows())


async def test_a_vendor_that_comes_first_is_not(
    sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str, caplog: Any
) -> None:
    agent = create_agent(
        sonnet, desk.tools(), system_prompt=policy, middleware=ordered("before", stable(on_break="warn"))
    )
    agent.invoke({"messages": [("user", "Hello")]})
    assert not caplog.records
