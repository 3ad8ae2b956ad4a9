"""Requests in OpenAI's two forms, and in the host's own: roles, fields of each generation, note and breakpoints."""

from typing import Any

import pytest

from headstay.call import Call
from headstay.errors import WireError
from headstay.flow import Flow, Settings
from headstay.prompt import Wire
from headstay.providers import openai
from headstay.slots import Slot
from headstay.values import Declared

POLICY = "We keep to the policy, and say so. " * 200  # 7,000 bytes, some 1,600 tokens
CLOCK = "2026-11-29T10:00:00Z"
NOW = f"It is {CLOCK}.\n"
NOTE = f"Now:\nclock: {CLOCK}"
ADA = Declared((), (Slot(r"^For (?P<who>.+)\.$", every="conversation"),))
SEMI = "Values for this conversation:\nwho: Ada"
POINT = {"mode": "explicit"}


def send(
    wire: Wire, model: str, *, declared: Declared | None = None, ttl: str | None = None, tail: str = "", **body: Any
) -> Call:
    flow = Flow(Settings("desk", declared or Declared(), ttl, on_break="record"))
    call = flow.prepare({"model": model, **body}, wire=wire, tail=tail, now=1.0)
    assert call.unverified is None
    return call


def chat(model: str = "gpt-5.6-terra", **more: Any) -> dict[str, Any]:
    sent: dict[str, Any] = dict(send("openai-chat", model, **more).body)
    return sent


def responses(model: str = "gpt-6.1-sol", **more: Any) -> dict[str, Any]:
    sent: dict[str, Any] = dict(send("openai-responses", model, **more).body)
    return sent


def part(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text, "prompt_cache_breakpoint": POINT}


def test_head_semi_static_message_body_and_note_in_chat() -> None:
    messages = [
        {"role": "developer", "content": f"{NOW}For Ada.\n{POLICY}"},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Where?"},
    ]
    sent = chat(declared=ADA, messages=messages, n=1)
    assert sent.pop("prompt_cache_key").startswith("hs-")
    assert sent == {
        "model": "gpt-5.6-terra",
        "n": 1,
        "messages": [
            {"role": "developer", "content": [part(f"It is [[clock]].\nFor [[who]].\n{POLICY}")]},
            {"role": "developer", "content": [part(SEMI)]},
            {"role": "user", "content": [part("Hello!")]},
            {"role": "assistant", "content": "Hi."},
            {"role": "user", "content": [part("Where?")]},
            {"role": "developer", "content": NOTE},  # the role the application speaks in
        ],
        "prompt_cache_options": {"mode": "explicit"},
    }


def test_an_earlier_generation_gets_order_and_a_key_only() -> None:
    messages = [{"role": "system", "content": f"{NOW}For Ada.\n{POLICY}"}, {"role": "user", "content": "Hello!"}]
    sent = chat("gpt-5.4", declared=ADA, messages=messages)
    assert sent.pop("prompt_cache_key").startswith("hs-")
    assert sent == {
        "model": "gpt-5.4",
        "messages": [
            {"role": "system", "content": f"It is [[clock]].\nFor [[who]].\n{POLICY}"},
            {"role": "system", "content": SEMI},
            {"role": "user", "content": "Hello!"},
            {"role": "system", "content": NOTE},
        ],
    }


@pytest.mark.parametrize(
    ("model", "ttl", "field"),
    [
        ("gpt-5.4", "24h", "24h"),
        ("gpt-5.4", None, None),
        ("gpt-5.5", "24h", "24h"),
        ("gpt-4o", "in_memory", "in_memory"),
        ("gpt-4o", "24h", None),  # this family takes no such value
        ("gpt-5.6-terra", "24h", None),
        ("some-model", "24h", None),
    ],
)
def test_retention_only_where_it_is_taken(model: str, ttl: str | None, field: str | None) -> None:
    messages = [{"role": "system", "content": POLICY}, {"role": "user", "content": "Hello!"}]
    assert chat(model, ttl=ttl, messages=messages).get("prompt_cache_retention") == field


def test_the_applications_own_fields_stand() -> None:
    own: dict[str, Any] = {"prompt_cache_key": "mine", "prompt_cache_options": {"ttl": "30m", "mode": "implicit"}}
    sent = chat(messages=[{"role": "system", "content": POLICY}, {"role": "user", "content": "Hello!"}], **own)
    assert sent["prompt_cache_key"] == "mine"
    assert sent["prompt_cache_options"] == {"ttl": "30m", "mode": "explicit"}
    kept = chat("gpt-5.4", ttl="24h", prompt_cache_retention="in_memory", messages=[{"role": "user", "content": "x"}])
    assert kept["prompt_cache_retention"] == "in_memory"


def test_an_unknown_model_gets_no_field_at_all() -> None:
    messages = [{"role": "system", "content": f"{NOW}For Ada.\n{POLICY}"}, {"role": "user", "content": "Hello!"}]
    sent = chat("some-model", declared=ADA, messages=messages)
    assert sent == {
        "model": "some-model",
        "messages": [
            # one system message is all that every server takes
            {"role": "system", "content": f"It is [[clock]].\nFor [[who]].\n{POLICY}\n\n{SEMI}"},
            {"role": "user", "content": [{"type": "text", "text": "Hello!"}, {"type": "text", "text": NOTE}]},
        ],
    }


def test_instructions_stay_below_the_minimum_and_become_a_message_above() -> None:
    short = responses(instructions="Be kind.", input=[{"role": "user", "content": "Hello!"}])
    assert (short["instructions"], short["input"]) == ("Be kind.", [{"role": "user", "content": "Hello!"}])
    assert "prompt_cache_options" not in short
    sent = responses(instructions=POLICY, input=[{"role": "user", "content": "Hello!"}])
    assert "instructions" not in sent  # they take no breakpoint, a developer message does
    assert sent["input"] == [
        {"role": "developer", "content": [part(POLICY, "input_text")]},
        {"role": "user", "content": [part("Hello!", "input_text")]},
    ]
    earlier = responses("gpt-5.5", instructions=NOW + POLICY, input="Hello!")
    assert earlier["instructions"] == f"It is [[clock]].\n{POLICY}"
    assert earlier["input"] == [{"role": "user", "content": "Hello!"}, {"role": "developer", "content": NOTE}]


def test_instructions_and_leading_messages_keep_their_order() -> None:
    leading = [
        {"role": "developer", "content": [{"type": "input_text", "text": "A."}, {"type": "input_text", "text": "B."}]}
    ]
    sent = responses(instructions=POLICY, input=[*leading, {"role": "user", "content": "Hello!"}])
    assert sent["instructions"] == POLICY  # the breakpoint stands at the end of the head
    assert sent["input"][0]["content"] == [{"type": "input_text", "text": "A."}, part("B.", "input_text")]


def test_a_text_as_input_stays_a_text() -> None:
    sent = responses("gpt-5.5", instructions="Be kind.", input="Hello!")
    assert (sent["instructions"], sent["input"]) == ("Be kind.", "Hello!")
    assert sent["prompt_cache_key"].startswith("hs-")  # what routes to the cache is sent all the same
    assert responses("gpt-5.5", ttl="24h", input="Hello!")["prompt_cache_retention"] == "24h"
    assert responses(input="Hello!" + POLICY)["input"] == [
        {"role": "user", "content": [part("Hello!" + POLICY, "input_text")]}
    ]


def test_breakpoints_stand_on_what_the_model_is_given_not_on_what_it_said() -> None:
    items = [
        {"role": "developer", "content": POLICY},
        {"role": "user", "content": "Where?"},
        {"type": "reasoning", "summary": [], "encrypted_content": "e", "id": "r1"},
        {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}", "id": "f1"},
        {"type": "function_call_output", "call_id": "c1", "output": "Rome"},
    ]
    sent = responses(input=items)
    assert sent["input"] == [
        {"role": "developer", "content": [part(POLICY, "input_text")]},
        {"role": "user", "content": [part("Where?", "input_text")]},
        *items[2:4],
        {"type": "function_call_output", "call_id": "c1", "output": [part("Rome", "input_text")]},
    ]
    empty = [*items[:-1], {"type": "function_call_output", "call_id": "c1", "output": " "}]
    assert responses(input=empty)["input"][-1] == empty[-1]
    tools = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "Rome"},
    ]
    said = chat(messages=[{"role": "system", "content": POLICY}, {"role": "user", "content": "Where?"}, *tools])
    assert said["messages"][2] is tools[0]
    assert said["messages"][3] == {"role": "tool", "tool_call_id": "c", "content": [part("Rome")]}


def test_the_applications_breakpoints_are_taken_over() -> None:
    twelve = {"mode": "explicit", "ttl": "12h"}
    messages: list[dict[str, Any]] = [{"role": "system", "content": [{"type": "text", "text": POLICY}]}]
    for number in range(7):
        text = {"type": "text", "text": f"{number}?", "prompt_cache_breakpoint": twelve}
        messages += [{"role": "user", "content": [text]}, {"role": "assistant", "content": "Yes."}]
    sent = chat(messages=messages[:-1])
    points = [
        (number, found["prompt_cache_breakpoint"])
        for number, message in enumerate(sent["messages"])
        for found in message["content"]
        if isinstance(found, dict) and "prompt_cache_breakpoint" in found
    ]
    # head, what the last call left, the new end, and the first of the application's own; the longest life comes first
    assert points == [(0, twelve), (1, twelve), (11, twelve), (13, twelve)]


def test_a_breakpoint_on_what_the_model_said_is_not_taken_over() -> None:
    messages = [
        {"role": "system", "content": POLICY},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": [part("1.")]},
        {"role": "user", "content": "Two?"},
    ]
    assert chat(messages=messages)["messages"][2]["content"] == [{"type": "text", "text": "1."}]


def test_names_and_other_fields_of_a_message_are_part_of_it() -> None:
    named = {"role": "user", "name": "ada", "content": "Hello!"}
    sent = chat("some-model", messages=[{"role": "system", "content": NOW}, named])
    assert sent["messages"][1] == {
        "role": "user",
        "name": "ada",
        "content": [{"type": "text", "text": "Hello!"}, {"type": "text", "text": NOTE}],
    }

    def trail(**fields: Any) -> list[bytes]:
        message = {"role": "assistant", "content": None, **fields}
        return [block.digest for block in openai.parse({"messages": [message]}, wire="openai-chat").blocks]

    assert trail() == trail(refusal=None) == trail(annotations=[]) == trail(id="m1", status="done") == []
    assert len({tuple(trail(refusal=why)) for why in ("no", "never", None)}) == 3
    assert len(trail(audio={"id": "a"})) == 1


def test_a_function_message_is_no_human_turn() -> None:
    messages = [
        {"role": "system", "content": NOW},
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "Rome"},
    ]
    sent = chat("some-model", messages=messages)
    assert sent["messages"][1]["content"][-1] == {"type": "text", "text": NOTE}
    assert sent["messages"][2:] == messages[2:]


@pytest.mark.parametrize("model", ["gpt-5.4", "some-model"])
def test_a_tail_without_a_human_turn_makes_one(model: str) -> None:
    sent = chat(model, messages=[{"role": "system", "content": "Sum it up."}], tail="Document 7: in Rome.")
    assert sent["messages"] == [
        {"role": "system", "content": "Sum it up."},
        {"role": "user", "content": "Document 7: in Rome."},
    ]


def test_an_mcp_server_is_allowed_by_its_label() -> None:
    """Rule: the example at `ToolChoiceAllowed` in openai 3.57.0, seen 2026-11-29."""
    server = {"type": "mcp", "server_label": "wiki", "server_url": "https://wiki.example", "require_approval": "never"}
    alpha, bravo = ({"type": "function", "name": name, "parameters": {}} for name in ("alpha", "bravo"))
    flow = Flow(Settings("desk", union=True, on_break="record"))
    for tools in ([server, alpha, bravo], [server, alpha]):
        body = {"model": "gpt-6.1-sol", "input": "Hello!", "tools": tools}
        call = flow.prepare(body, wire="openai-responses", thread="one", now=1.0)
        flow.complete(call, None)
    allowed = [{"type": "function", "name": "alpha"}, {"type": "mcp", "server_label": "wiki"}]
    assert call.body["tools"] == [alpha, bravo, server]
    assert call.body["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": allowed}


def test_custom_tools_in_chat_are_allowed_as_such() -> None:
    """Their name stands inside `custom` (openai 3.57.0 types, seen 2026-11-29)."""
    names = ("alpha", "bravo", "charlie")
    alpha, bravo, charlie = ({"type": "custom", "custom": {"name": name}} for name in names)
    flow = Flow(Settings("desk", union=True, on_break="record"))
    for tools in ([alpha, bravo, charlie], [charlie, alpha]):
        messages = [{"role": "user", "content": "Hello!"}]
        body = {"model": "gpt-5.6-terra", "messages": messages, "tools": tools}
        call = flow.prepare(body, wire="openai-chat", thread="one", now=1.0)
        flow.complete(call, None)
    assert call.body["tools"] == [alpha, bravo, charlie]
    allowed = {"mode": "auto", "tools": [alpha, charlie]}
    assert call.body["tool_choice"] == {"type": "allowed_tools", "allowed_tools": allowed}


def test_the_hosts_own_messages_are_ordered_only() -> None:
    messages = [{"role": "system", "content": f"{NOW}For Ada."}, {"role": "user", "content": "Hello!"}]
    call = send("host-messages", "gpt-5.6-terra", declared=ADA, messages=messages, tail="Document 7")
    assert call.body == {
        "model": "gpt-5.6-terra",
        "messages": [
            {"role": "system", "content": f"It is [[clock]].\nFor [[who]].\n\n{SEMI}"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hello!"}, {"type": "text", "text": f"{NOTE}\n\nDocument 7"}],
            },
        ],
    }
    assert ["no cache rules" in notice for notice in call.notices] == [True]


@pytest.mark.parametrize(
    ("wire", "body", "what"),
    [
        ("openai-chat", {"messages": "hi"}, "messages: expected a list of objects, got str"),
        ("openai-responses", {"input": 3}, "input: expected a list of objects, got int"),
        ("openai-chat", {"messages": [], "tools": "all"}, "tools: expected a list of objects, got str"),
    ],
)
def test_what_is_no_request_is_an_error(wire: Wire, body: dict[str, Any], what: str) -> None:
    with pytest.raises(WireError, match=what):
        openai.parse(body, wire=wire)
