"""The read-back: what leaves is held against the plan, and anything that slipped in or out is said."""

from collections.abc import Callable
from typing import Any

import pytest

from headstay.flow import Flow, Settings
from headstay.layout import Plan, arrange, lane_of
from headstay.prompt import Wire
from headstay.providers.rules import CacheRules, find_rules
from headstay.slots import Slot
from headstay.values import Declared
from headstay.verify import verify
from headstay.wires import parse, render

POLICY = "We keep to the policy, and say so. " * 200
SYSTEM = f"It is 2026-11-29T10:00:00Z.\nFor Ada.\n{POLICY}"
DECLARED = Declared((), (Slot(r"^For (?P<who>.+)\.$", every="conversation"),))
MARK = {"type": "ephemeral"}


def planned(model: str = "claude-opus-5") -> tuple[dict[str, Any], Plan, CacheRules]:
    body = {
        "model": model,
        "system": SYSTEM,
        "tools": [{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": "Hello!"},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": "Where?"},
        ],
    }
    prompt, rules = parse(body, "anthropic-messages"), find_rules("anthropic-messages", model)
    lane = lane_of(prompt, rules, tenant=None, endpoint="", agent="")
    plan = arrange(prompt, lane, rules, 1.0, declared=DECLARED, tail="Document 7")
    return render(body, prompt, plan, rules), plan, rules


def change_text(sent: dict[str, Any]) -> None:
    sent["system"][0]["text"] += " "


def drop_semi_static(sent: dict[str, Any]) -> None:
    del sent["system"][1]


def swap_tools(sent: dict[str, Any]) -> None:
    sent["tools"].reverse()


def edit_message(sent: dict[str, Any]) -> None:
    sent["messages"][0]["content"] = "Hello?"


def drop_message(sent: dict[str, Any]) -> None:
    del sent["messages"][1]


def add_message(sent: dict[str, Any]) -> None:
    sent["messages"].append({"role": "user", "content": "Sent by somebody else"})


def change_note(sent: dict[str, Any]) -> None:
    sent["messages"][2]["content"][-1] = {"type": "text", "text": "Document 8"}


def mark_five(sent: dict[str, Any]) -> None:
    for block in (*sent["tools"], *sent["system"]):
        block["cache_control"] = MARK


def mark_late_and_long(sent: dict[str, Any]) -> None:
    sent["messages"][2]["content"][0]["cache_control"] = {"type": "ephemeral", "ttl": "1h"}


SYSTEM_CHANGED = "the system text on the wire is not the planned head"
TOOLS_CHANGED = "the tools on the wire are not the planned ones"
MESSAGES_CHANGED = "the messages on the wire are not the application's"


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-sonnet-4-6"])
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda _: None, None),
        (change_text, SYSTEM_CHANGED),
        (drop_semi_static, SYSTEM_CHANGED),
        (swap_tools, TOOLS_CHANGED),
        (lambda sent: sent["tools"].pop(), TOOLS_CHANGED),
        (edit_message, MESSAGES_CHANGED),
        (drop_message, MESSAGES_CHANGED),
        (add_message, MESSAGES_CHANGED),
        (change_note, MESSAGES_CHANGED),
        (mark_five, "6 cache markers, 4 allowed"),
        (mark_late_and_long, "a longer TTL stands behind a shorter one"),
    ],
)
def test_what_slipped_in_or_out_is_said(
    model: str, change: Callable[[dict[str, Any]], object], problem: str | None
) -> None:
    sent, plan, rules = planned(model)
    change(sent)
    assert verify(parse(sent, "anthropic-messages"), plan, rules) == (() if problem is None else (problem,))


BODIES: list[tuple[Wire, dict[str, Any]]] = [
    ("openai-chat", {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hello!"}]}),
    ("openai-chat", {"messages": [{"role": "user", "name": "ada", "content": "Hello!"}]}),
    ("openai-chat", {"messages": [{"role": "system", "content": [{"type": "text", "text": SYSTEM}]}]}),
    ("openai-responses", {"instructions": SYSTEM, "input": "Hello!"}),
    ("host-messages", {"messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hello!"}]}),
]


@pytest.mark.parametrize(("wire", "body"), BODIES)
@pytest.mark.parametrize("model", ["gpt-5.6-terra", "gpt-5.4", "some-model"])
def test_what_is_rendered_is_what_was_planned(wire: Wire, body: dict[str, Any], model: str) -> None:
    for tail in ("", "Document 7"):
        flow = Flow(Settings("desk", DECLARED, on_break="record"))
        assert flow.prepare({"model": model, **body}, wire=wire, tail=tail, now=1.0).unverified is None


def test_verifying_can_be_switched_off() -> None:
    flow = Flow(Settings("desk", DECLARED, on_break="record", verify="off"))
    call = flow.prepare({"model": "gpt-5.4", **BODIES[0][1]}, wire="openai-chat", now=1.0)
    checked = Flow(Settings("desk", DECLARED, on_break="record")).prepare(
        {"model": "gpt-5.4", **BODIES[0][1]}, wire="openai-chat", now=1.0
    )
    assert call.body == checked.body
