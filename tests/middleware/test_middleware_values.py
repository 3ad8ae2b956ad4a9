"""`tail=` and `tenant=` on the runtime, notes in loops, and what happens on a break."""

import json
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.prompts import SystemMessagePromptTemplate
from langgraph.checkpoint.memory import InMemorySaver

from headstay import Ledger, Slot
from headstay.errors import ConfigError, PrefixBreak


def clock(number: int) -> str:
    return f"2026-11-29T10:00:{number:02d}Z"


@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "gpt-6.1-sol", "gpt-5.4"], indirect=True)
async def test_a_tail_that_is_dropped(
    model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, no_breaks: Any
) -> None:
    middleware = stable(tail=lambda runtime: f"Found: {runtime.context}", on_break="raise")
    agent = create_agent(
        model,
        desk.tools(),
        system_prompt=policy,
        middleware=[middleware],
        checkpointer=InMemorySaver(),
        context_schema=str,
    )
    for found in ("page 11", "page 12"):
        await run(agent, "use alpha", context=found)
    assert [[found in text for found in ("page 11", "page 12")] for text in wires.texts] == [
        [True, False],
        [True, False],
        [False, True],
        [False, True],
    ]
    assert len({wires.head(number) for number in range(4)}) == 1
    for body in wires.bodies:  # at the end of the human turn, never in a system text
        items = body.get("messages") or body.get("input")
        holding = [item for item in items if "Found:" in json.dumps(item)]
        assert [item["role"] for item in holding] == ["user"]
        assert "Found:" in json.dumps(holding[0]["content"][-1])
    assert no_breaks()


async def test_a_tail_that_is_kept(claude: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str) -> None:
    agent = create_agent(
        claude,
        desk.tools(),
        system_prompt=policy,
        middleware=[stable(tail=lambda runtime: f"Found: {runtime.context}", on_break="raise")],
        checkpointer=InMemorySaver(),
        context_schema=str,
    )
    for found in ("page 11", "page 12"):
        await run(agent, "use alpha", context=found)
    assert not wires.failed
    for number in range(3):
        assert wires.extends(number, number + 1, kept=True)
    assert [text.count("page 11") for text in wires.texts] == [1, 1, 1, 1]
    assert [text.count("page 12") for text in wires.texts] == [0, 0, 1, 1]


async def test_a_constant_tail(sonnet: Any, desk: Any, stable: Any, wires: Any) -> None:
    agent = create_agent(sonnet, desk.tools(), middleware=[stable(tail="Answer in French.")])
    agent.invoke({"messages": [("user", "Hello")]})
    assert wires.bodies[0]["messages"][0]["content"][-1]["text"] == "Answer in French."


@pytest.mark.parametrize("setting", ["tail", "tenant"])
async def test_a_callable_that_raises_lets_the_request_out_as_it_was(
    sonnet: Any, desk: Any, stable: Any, wires: Any, ledger: Ledger, setting: str
) -> None:
    def broken(runtime: Any) -> str:
        raise KeyError("nobody")

    agent = create_agent(sonnet, desk.tools(), system_prompt="Be kind.", middleware=[stable(**{setting: broken})])
    agent.invoke({"messages": [("user", "Hello")]})
    assert wires.bodies[0]["messages"] == [{"role": "user", "content": "Hello"}]
    assert "cache_control" not in wires.texts[0]
    (row,) = ledger.rows()
    assert "KeyError" in (row.unverified or "")


async def test_two_tenants_share_nothing(
    model: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.offer = lambda number, tools: tools[:1] if number % 2 else tools[1:2]
    middleware = stable(tenant=lambda runtime: runtime.context, tail=lambda runtime: f"For {runtime.context}.")
    agent = create_agent(
        model,
        desk.tools(),
        system_prompt=policy,
        middleware=[desk.middleware(), middleware],
        checkpointer=InMemorySaver(),
        context_schema=str,
    )
    for tenant in ("north", "south", "north", "south"):
        await run(agent, "Hello", tenant, context=tenant)
    assert [wires.tools(number) for number in range(4)] == [["alpha"], ["bravo"]] * 2
    for number, (own, other) in enumerate([("north", "south"), ("south", "north")] * 2):
        assert f"For {own}." in wires.texts[number]
        assert f"For {other}." not in wires.texts[number]
    rows = list(ledger.rows())
    assert [row.tenant for row in rows] == ["north", "south"] * 2
    assert len({row.lane for row in rows}) == 2
    assert all(not row.breaks for row in rows)
    if "gpt" in str(rows[0].model):
        assert len({body["prompt_cache_key"] for body in wires.bodies}) == 2


@pytest.mark.parametrize("name", ["claude-opus-4-8", "claude-sonnet-4-6", "gpt-6.1-sol", "gpt-5.4"])
async def test_where_notes_stand_in_a_loop(
    make_model: Any,
    run: Any,
    desk: Any,
    stable: Any,
    wires: Any,
    policy: str,
    name: str,
    no_breaks: Any,
    ledger: Ledger,
) -> None:
    desk.system = lambda number: f"It is {clock(number)}.\n{policy}"
    agent = create_agent(make_model(name), desk.tools(), middleware=[desk.middleware(), stable()])
    await run(agent, "use alpha then use bravo then use alpha charlie", None)
    assert not wires.failed
    assert len(wires.bodies) == 4
    for number, body in enumerate(wires.bodies):
        items = body.get("messages") or body.get("input")
        holding = [index for index, item in enumerate(items) if clock(number + 1) in json.dumps(item)]
        if name == "claude-sonnet-4-6":
            # Takes no system message in place; text after tool results makes empty answers: it stays at the question.
            assert holding == [0]
            assert items[0]["content"][-1]["text"].startswith("Now:")
        else:
            assert holding == [len(items) - 1]
            assert items[-1]["role"] in ("system", "developer")
        assert sum(clock(other) in wires.texts[number] for other in range(1, 5)) == 1
    for number in range(3):
        assert wires.extends(number, number + 1)
    assert no_breaks()
    renewed = [("clock_in_head", "policy", "messages[0]")] if name == "claude-sonnet-4-6" else []
    breaks = [[(str(found.cause), found.owner, found.path) for found in row.breaks] for row in ledger.rows()]
    assert breaks == [[], renewed, renewed, renewed]


async def test_an_undeclared_value_is_named_with_its_remedy(
    sonnet: Any, desk: Any, stable: Any, policy: str, ledger: Ledger, caplog: Any
) -> None:
    desk.system = lambda number: f"You help {['Ada', 'Grace', 'Linus'][number - 1]} today.\n{policy}"
    agent = create_agent(
        sonnet, desk.tools(), middleware=[desk.middleware(), stable(on_break="warn")], checkpointer=InMemorySaver()
    )
    for _ in range(3):
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "one"}})
    first, second, third = ledger.rows()
    assert not first.breaks
    (found,) = second.breaks
    assert (found.cause, found.owner, found.path) == ("value_in_head", "application", "system[0]")
    assert "Slot(" in found.remedy
    assert [str(found.cause) for found in third.breaks] == ["value_in_head"]
    (said,) = {record.message for record in caplog.records if "value_in_head" in record.message}
    assert found.remedy in said
    assert said.startswith("desk: ")


async def test_raise_is_for_tests(
    sonnet: Any, run: Any, desk: Any, stable: Any, wires: Any, policy: str, ledger: Ledger
) -> None:
    desk.system = lambda number: f"You help number {number}.\n{policy}"
    agent = create_agent(
        sonnet, desk.tools(), middleware=[desk.middleware(), stable(on_break="raise")], checkpointer=InMemorySaver()
    )
    await run(agent, "Hello")
    with pytest.raises(PrefixBreak, match=r"value_in_head at system\[0\]"):
        await run(agent, "And now?")
    assert len(wires.bodies) == 1  # the request that would break did not go out


async def test_record_says_nothing(
    sonnet: Any, desk: Any, stable: Any, policy: str, ledger: Ledger, caplog: Any
) -> None:
    desk.system = lambda number: f"You help number {number}.\n{policy}"
    agent = create_agent(sonnet, desk.tools(), middleware=[desk.middleware(), stable()], checkpointer=InMemorySaver())
    for _ in range(2):
        agent.invoke({"messages": [("user", "Hello")]}, {"configurable": {"thread_id": "one"}})
    assert not caplog.records
    assert [len(row.breaks) for row in ledger.rows()] == [0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ttl": "2h"}, 'valid: "5m", "1h"'),
        ({"on_break": "shout"}, 'say "warn", "raise" or "record"'),
        ({"verify": "twice"}, 'say "off", "local" or "provider"'),
    ],
)
async def test_a_setting_that_cannot_work_is_an_error(
    sonnet: Any, desk: Any, stable: Any, wires: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        create_agent(sonnet, desk.tools(), middleware=[stable(**settings)]).invoke({"messages": [("user", "Hello")]})
    assert not wires.bodies


async def test_ttl_and_semi_static_values(sonnet: Any, desk: Any, stable: Any, wires: Any, policy: str) -> None:
    desk.system = lambda number: f"Customer: Ada Lovelace\n{policy}"
    slot = Slot(r"^Customer: (?P<customer>.+)$", every="conversation")
    template = SystemMessagePromptTemplate.from_template("Customer: {customer}\n" + policy)
    for settings in ({"volatile": [slot]}, {"template": template}):
        agent = create_agent(
            sonnet, desk.tools(), middleware=[desk.middleware(), stable(ttl="1h", name=str(len(settings)), **settings)]
        )
        agent.invoke({"messages": [("user", "Hello")]})
        head, semi = wires.bodies[-1]["system"]
        assert head["text"].startswith("Customer: [[customer]]\n")
        assert head["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
        assert semi["text"] == "Values for this conversation:\ncustomer: Ada Lovelace"
