"""Requests in Anthropic's form: what is touched, where the note and the markers stand, and what is left alone."""

import json
from typing import Any

import pytest

from headstay.errors import WireError
from headstay.flow import Flow, Settings
from headstay.layout import arrange, lane_of
from headstay.providers import anthropic
from headstay.providers.rules import find_rules
from headstay.slots import Slot
from headstay.values import Declared

POLICY = "We keep to the policy, and say so. " * 200  # 7,000 bytes, some 1,600 tokens
CLOCK = "2026-11-29T10:00:00Z"
NOW = f"It is {CLOCK}.\n"
NOTE = {"type": "text", "text": f"Now:\nclock: {CLOCK}"}
EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def send(
    model: str = "claude-opus-5",
    *,
    declared: Declared | None = None,
    ttl: str | None = None,
    tail: str = "",
    **body: Any,
) -> dict[str, Any]:
    """Send a request through the engine and return what leaves."""
    flow = Flow(Settings("desk", declared or Declared(), ttl, on_break="record"))
    return prepared(flow, {"model": model, **body}, tail)


def prepared(flow: Flow, body: dict[str, Any], tail: str = "") -> dict[str, Any]:
    call = flow.prepare(body, wire="anthropic-messages", tail=tail, now=1.0)
    assert call.unverified is None
    return call.body


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]


def marked(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Where the markers stand, and for how long."""
    found: list[tuple[str, str]] = []
    for place in ("tools", "system"):
        for index, block in enumerate(body.get(place, ()) if isinstance(body.get(place), list) else ()):
            found += _mark(f"{place}.{index}", block)
    for number, message in enumerate(body["messages"]):
        for index, block in enumerate(message["content"] if isinstance(message["content"], list) else ()):
            found += _mark(f"messages.{number}.{index}", block)
    return found


def _mark(path: str, block: dict[str, Any]) -> list[tuple[str, str]]:
    control = block.get("cache_control")
    return [(path, control.get("ttl", "5m"))] if control else []


def test_nothing_to_do_leaves_everything_as_it_is() -> None:
    messages = said("Hello!", "Hi.", "Where is it?")
    tools = [{"name": "a", "input_schema": {"type": "object"}}]
    body: dict[str, Any] = {"system": "Be kind.", "messages": messages, "tools": tools, "max_tokens": 5, "stream": True}
    sent = send(**body)
    assert sent == {"model": "claude-opus-5", **body}
    assert all(one is two for one, two in zip(sent["messages"], messages, strict=True))
    assert "system" not in send(messages=messages)
    assert send(system="", messages=messages)["system"] == ""


def test_head_semi_static_block_body_and_note() -> None:
    declared = Declared((), (Slot(r"^For (?P<who>.+)\.$", every="conversation"),))
    body = send(declared=declared, system=f"{NOW}For Ada.\n{POLICY}", messages=said("Hello!", "Hi.", "Where?"))
    assert body == {
        "model": "claude-opus-5",
        "system": [
            {"type": "text", "text": f"It is [[clock]].\nFor [[who]].\n{POLICY}", "cache_control": EPHEMERAL},
            {"type": "text", "text": "Values for this conversation:\nwho: Ada", "cache_control": EPHEMERAL},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hello!", "cache_control": EPHEMERAL}]},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": [{"type": "text", "text": "Where?", "cache_control": EPHEMERAL}]},
            {"role": "system", "content": NOTE["text"]},
        ],
    }


def test_the_note_stands_in_the_human_turn_where_no_system_message_may() -> None:
    body = send("claude-sonnet-4-6", system=NOW + POLICY, messages=said("Hello!", "Hi.", "Where?"))
    assert body["messages"][-1] == {
        "role": "user",
        "content": [{"type": "text", "text": "Where?", "cache_control": EPHEMERAL}, NOTE],
    }


def loop(*results: str) -> list[dict[str, Any]]:
    """A question, and a loop of tool calls and results."""
    messages: list[dict[str, Any]] = said("Hello!", "Hi.", "Where is it?")
    for number, result in enumerate(results):
        call = {"type": "tool_use", "id": f"c{number}", "name": "find", "input": {}}
        messages.append({"role": "assistant", "content": [call]})
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{number}", "content": result}]}
        )
    return messages


def test_in_a_tool_loop_the_note_stays_at_the_human_turn() -> None:
    """Text behind tool results makes some models answer nothing (the provider's page on empty answers)."""
    body = send("claude-sonnet-4-6", system=NOW + POLICY, messages=loop("here", "there"))
    assert body["messages"][2]["content"][-1] == NOTE
    assert all(NOTE not in message["content"] for message in body["messages"][3:])
    # the head, the block before the note, what the call before left, and the new end
    assert marked(body) == [("system.0", "5m"), ("messages.2.0", "5m"), ("messages.4.0", "5m"), ("messages.6.0", "5m")]
    in_place = send(system=NOW + POLICY, messages=loop("here", "there"))
    assert in_place["messages"][-1] == {"role": "system", "content": NOTE["text"]}


def test_after_a_tool_loop_the_block_before_its_note_is_marked_again() -> None:
    """The calls of the loop had a note at the human turn; what they left in the cache ends before it."""
    messages = [*loop("here", "there"), *said("-", "There it is.")[1:], *said("Thanks!")]
    body = send("claude-sonnet-4-6", system=NOW + POLICY, messages=messages)
    assert marked(body) == [("system.0", "5m"), ("messages.2.0", "5m"), ("messages.6.0", "5m"), ("messages.8.0", "5m")]


def test_a_system_message_in_place_is_not_followed_by_another() -> None:
    messages = [*said("Hello!"), {"role": "system", "content": "Answer in French."}]
    body = send(system=NOW + POLICY, messages=messages)
    assert body["messages"][-1] == {
        "role": "system",
        "content": [{"type": "text", "text": "Answer in French.", "cache_control": EPHEMERAL}, NOTE],
    }


def test_an_answer_begun_for_the_model_takes_no_system_message_behind_it() -> None:
    body = send(system=NOW + POLICY, messages=said("Hello!", "I would say: "))
    assert [message["role"] for message in body["messages"]] == ["user", "assistant"]
    assert body["messages"][0]["content"][-1] == NOTE


def test_the_tail_goes_to_the_human_turn_and_never_to_the_operator() -> None:
    body = send(system=NOW + POLICY, messages=said("Where?"), tail="Document 7: in Rome.")
    assert body["messages"] == [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Where?", "cache_control": EPHEMERAL},
                {"type": "text", "text": "Document 7: in Rome."},
            ],
        },
        {"role": "system", "content": NOTE["text"]},
    ]


def test_a_bound_history_sends_the_values_in_the_semi_static_block() -> None:
    body = {
        "model": "claude-opus-5-5",
        "system": NOW + POLICY,
        "messages": [
            *said("Hello!"),
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "", "signature": "s"}, {"type": "text", "text": "Hi."}],
            },
            {"role": "user", "content": "Where?"},
        ],
    }
    prompt, rules = anthropic.parse(body), find_rules("anthropic-messages", "claude-opus-5-5")
    lane = lane_of(prompt, rules, tenant=None, endpoint="", agent="")
    plan = arrange(prompt, lane, rules, 1.0, declared=Declared(), tail="Document 7")
    assert plan.semi_static == f"Values for this conversation:\nclock: {CLOCK}"
    assert plan.note.operator == ""
    assert [(found.cause, found.owner) for found in plan.breaks] == [
        ("clock_in_head", "policy"),
        ("thinking_changed", "policy"),
    ]


OWN = [("system", 0), ("messages", 0), ("messages", 2), ("messages", 4)]


@pytest.mark.parametrize("ttl", [None, "1h"])
def test_the_applications_markers_are_taken_over(ttl: str | None) -> None:
    control = {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}
    messages: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[n % 2], "content": [{"type": "text", "text": text}]}
        for n, text in enumerate(["One?", "1.", "Two?", "2.", "Three?"])
    ]
    for place in (0, 2, 4):
        messages[place]["content"][0]["cache_control"] = control
    system = [{"type": "text", "text": POLICY, "cache_control": control}]
    sent = send(system=system, messages=messages, cache_control=control)  # five: the provider would refuse it
    assert "cache_control" not in sent
    # the head, the new end, what the call before left; the fourth seat is the application's own
    lives = ttl or "5m"
    assert marked(sent) == [(f"{where}.0", lives) for where in ("system", "messages.0", "messages.2", "messages.4")]
    assert json.loads(json.dumps(messages))[0]["content"][0]["cache_control"] == control


def test_markers_where_none_may_stand_are_not_taken_over() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s", "cache_control": EPHEMERAL}
    blank = {"type": "text", "text": " ", "cache_control": EPHEMERAL}
    messages = [
        *said("Hello!"),
        {"role": "assistant", "content": [thought, {"type": "text", "text": "Hi."}]},
        {"role": "user", "content": [{"type": "text", "text": "Where?"}, blank]},
    ]
    expected = [("system.0", "5m"), ("messages.0.0", "5m"), ("messages.2.0", "5m")]
    assert marked(send(system=POLICY, messages=messages)) == expected


def test_a_longer_life_in_the_body_lifts_the_head() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hello!", "cache_control": HOUR}]}]
    system = [{"type": "text", "text": POLICY, "cache_control": EPHEMERAL}]
    assert marked(send(system=system, messages=messages)) == [("system.0", "1h"), ("messages.0.0", "1h")]
    assert marked(send(system=system, messages=messages, ttl="5m")) == [("system.0", "5m"), ("messages.0.0", "5m")]
    short = [{"role": "user", "content": [{"type": "text", "text": "Hello!", "cache_control": EPHEMERAL}]}]
    head = [{"type": "text", "text": POLICY, "cache_control": HOUR}]
    assert marked(send(system=head, messages=short)) == [("system.0", "1h"), ("messages.0.0", "5m")]


def test_a_marker_inside_a_tool_result_moves_to_the_result() -> None:
    messages = loop("x")
    inner = [{"type": "text", "text": "here", "cache_control": EPHEMERAL}]
    messages[4]["content"][0]["content"] = inner
    sent = send(system=POLICY, messages=messages)
    assert sent["messages"][4]["content"][0]["content"] == [{"type": "text", "text": "here"}]
    assert ("messages.4.0", "5m") in marked(sent)


def test_what_only_looks_like_a_marker_is_content() -> None:
    """A tool may have an argument of that name, and a text may speak of it."""
    use = {
        "type": "tool_use",
        "id": "c",
        "name": "http",
        "input": {"cache_control": "no-store"},
        "cache_control": EPHEMERAL,
    }
    result = {"type": "tool_result", "tool_use_id": "c", "content": "header cache_control: {'type': 'x'}"}
    messages = [*said("Hello!"), {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    tools = [{"name": "http", "input_schema": schema, "cache_control": EPHEMERAL}]
    flow = Flow(Settings(on_break="record"))
    first = flow.prepare({"model": "claude-opus-5", "tools": tools, "messages": messages}, wire="anthropic-messages")
    flow.complete(first, None)  # a lane learns of a tool when the provider has taken it
    sent: Any = first.body
    assert sent["messages"][1]["content"][0]["input"] == {"cache_control": "no-store"}
    assert sent["messages"][2] is messages[2]
    assert sent["tools"] == [{"name": "http", "input_schema": schema}]
    # the same tool with its keys in another order comes back in the first form, argument and all
    turned = [{"input_schema": dict(reversed(schema.items())), "name": "http"}]
    again = prepared(flow, {"model": "claude-opus-5", "tools": turned, "messages": messages})
    assert json.dumps(again["tools"]) == json.dumps(sent["tools"])


def test_without_a_system_text_the_last_tool_is_marked() -> None:
    tools = [
        {"name": "a", "description": POLICY, "input_schema": {"type": "object"}},
        {"name": "b", "input_schema": {"type": "object"}, "defer_loading": True},
    ]
    assert marked(send(tools=tools, messages=said("Hello!"))) == [("tools.0", "5m"), ("messages.0.0", "5m")]


def test_no_marker_below_the_minimum() -> None:
    short = "x" * 2_000  # 465 tokens at 4.3 bytes each, of 512
    assert marked(send(system=short, messages=said("Hello!"))) == []
    # with 300 bytes more the body reaches it: 2,300 / 4.3 = 535
    assert marked(send(system=short, messages=said("y" * 300))) == [("messages.0.0", "5m")]
    assert marked(send("claude-opus-4-8", system=short, messages=said("y" * 300))) == []
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9_000}}
    assert marked(send(system=short, messages=[{"role": "user", "content": [image]}])) == []


def test_documents_and_images_may_carry_the_marker() -> None:
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBER"}}
    message = {"role": "user", "content": [{"type": "text", "text": "Read this."}, document]}
    assert marked(send(system=POLICY, messages=[message])) == [("system.0", "5m"), ("messages.0.1", "5m")]


@pytest.mark.parametrize(
    ("body", "said_of"),
    [
        ({"messages": 3}, "messages: expected a list of objects, got int"),
        ({"messages": [], "tools": {}}, None),
        ({"messages": [], "tools": "all"}, "tools: expected a list of objects, got str"),
        ({"messages": [], "system": 5}, "system: expected a list of objects, got int"),
    ],
)
def test_what_is_no_request_is_an_error(body: dict[str, Any], said_of: str | None) -> None:
    if said_of is None:
        assert anthropic.parse(body).tools == ()
        return
    with pytest.raises(WireError, match=said_of):
        anthropic.parse(body)
