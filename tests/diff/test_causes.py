"""Each cause by its name, where it is expected, on each wire that can express it; expected values by hand."""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from headstay import diff

Make = Callable[..., Any]
RULES = "You are the desk of Larkfield.\nAnswer briefly and quote the policy.\n"
UUID = "0f3b8a52-1c77-4111-8111-9d4400aa55c"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
WEATHER = ("weather", "Forecast for a city.", SCHEMA)
ORDERS = ("orders", "Orders of a customer.", {"type": "object", "properties": {}})
CARS = ("cars", "Cars for rent.", {"type": "object", "properties": {}})
LOOK = ("call", "c1", "weather", {"city": "Oslo", "days": 2})
SEEK: tuple[Any, ...] = ("call", "c2", "orders", {})
CALLS = [
    ("user", "Weather and orders?"),
    LOOK,
    SEEK,
    ("result", "c1", "Rain in Oslo."),
    ("result", "c2", "Two orders."),
]
ANSWER = [("assistant", "Rain, and two orders."), ("user", "Thanks! And tomorrow?")]
LONG = [
    *[("user", "My parcel is late, it was due on Monday."), ("assistant", "I am sorry. What is the number?")],
    *[("user", "It is 4711, sent from Bergen."), ("assistant", "It is in Oslo and comes tomorrow.")],
    *[("user", "Can I have it sent to my office?"), ("assistant", "Yes, please give me the address.")],
    ("user", "Storgata 5, second floor."),
]
NEXT = [("assistant", "Done."), ("user", "Thank you!")]


def causes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [found.cause.value for found in diff(one, other).findings]


@pytest.mark.parametrize(
    ("before", "after", "cause", "at"),
    [
        ("Today is 2026-11-29.", "Today is 2026-11-30.", "clock_in_head", 17),
        ("Now: 2026-11-29T10:15:00Z", "Now: 2026-11-29T10:16:02Z", "clock_in_head", 20),
        ("Today is Sunday, November 29, 2026.", "Today is Monday, November 30, 2026.", "clock_in_head", 9),
        ("It is 10:15 AM.", "It is 10:45 AM.", "clock_in_head", 9),
        ("Today is Monday.", "Today is Tuesday.", "clock_in_head", 9),
        ("Date: 29 November 2026", "Date: 2 December 2026", "clock_in_head", 7),
        ("Date: 29/11/2026", "Date: 30/11/2026", "clock_in_head", 6),
        ("Epoch: 1795910400", "Epoch: 1795910465", "clock_in_head", 15),
        (f"Run {UUID}1.", f"Run {UUID}2.", "random_id_in_head", 39),
        ("Request req_9f31c2d07ab4.", "Request req_04be77a1c95d.", "random_id_in_head", 12),
        ("Session: V1StGXR8_Z5jdHi6B-myT", "Session: 9fQw2Lk_77xbTr0Za-pQe", "random_id_in_head", 9),
        ("Trace 8841023 follows.", "Trace 8841977 follows.", "random_id_in_head", 10),
        ("You are helping Jane Smith today.", "You are helping Omar Diaz today.", "value_in_head", 16),
        ("You are helping Jane today.", "You are helping Jane Smith today.", "value_in_head", 21),
        ("The plan is: pro", "The plan is: free", "value_in_head", 13),
        ("The customer has 12 open orders.", "The customer has 14 open orders.", "value_in_head", 18),
        ("Reply in the locale en-US please.", "Reply in the locale de-DE please.", "value_in_head", 20),
        ("Be polite in all you say.", "Be formal in all you say.", "value_in_head", 3),
        ("Always greet the guest.", "Never greet the guest.", "system_text_changed", 0),
        ("Be kind.", "Be kind. Always answer in two sentences, never more.", "system_text_changed", 8),
        ("Never promise a refund.", "Always offer a refund first.", "system_text_changed", 0),
        ("Use  two blanks.", "Use two blanks.", "whitespace", 4),
        ("One line.\n\nAnother.", "One line.\nAnother.", "whitespace", 10),
        ("Café open.", unicodedata.normalize("NFD", "Café open."), "unicode_form", 3),
        ("## Memory\n- likes tea\n## End", "## Memory\n- likes coffee\n## End", "memory_in_head", 18),
        ("## Memory\n- likes tea\n## End", "## Memory\n- likes tea\n- has two cats\n## End", "memory_in_head", 22),
        ("<user_memory>\nlikes tea\n</user_memory>", "<user_memory>\nlives far\n</user_memory>", "memory_in_head", 16),
        ("What you remember:\nlikes tea", "What you remember:\nlikes green tea", "memory_in_head", 25),
        ("## Context\nParcels take 3 days.", "## Context\nRefunds take 5 days.", "retrieval_in_head", 11),
        ("<documents>\nA b c.\n</documents>\nEnd.", "<documents>\nX y z.\n</documents>\nEnd.", "retrieval_in_head", 12),
        ("Search results:\n1. Parcels", "Search results:\n1. Refunds", "retrieval_in_head", 19),
        ("Be kind.", "Be kind.\n\n## Memories\n- likes tea", "memory_in_head", 9),
    ],
)  # fmt: skip
def test_system_text(talk: Make, wire: str, before: str, after: str, cause: str, at: int) -> None:
    one = talk([RULES + before + "\nThe end."], items=LONG).body(wire)
    other = talk([RULES + after + "\nThe end."], items=[*LONG, *NEXT]).body(wire)
    found = diff(one, other)
    assert [finding.cause.value for finding in found.findings] == [cause]
    (finding,) = found.findings
    assert finding.at == len(RULES) + at
    path = {"anthropic-messages": "system[0].text", "openai-chat": "messages[0].content"}
    assert finding.path == path.get(wire, "instructions")
    assert found.lost_tokens == finding.lost_tokens > 0
    assert found.shared_tokens >= len(RULES) // 5
    assert finding.before != finding.after
    assert max(len(finding.before), len(finding.after)) <= 80


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([WEATHER, ORDERS], [ORDERS, WEATHER], [("tool_order", 0)]),
        ([WEATHER], [WEATHER, ORDERS], [("tool_added", 1)]),
        ([WEATHER, ORDERS], [CARS, WEATHER, ORDERS], [("tool_added", 0)]),
        ([WEATHER, ORDERS], [ORDERS], [("tool_removed", 0)]),
        ([WEATHER, ORDERS], [WEATHER], [("tool_removed", 1)]),
        ([WEATHER, ORDERS, CARS], [CARS, WEATHER], [("tool_order", 0), ("tool_removed", 1)]),
        ([WEATHER], [("weather", "Forecast, 12 cities.", SCHEMA)], [("tool_description_changed", 0)]),
        ([WEATHER], [(*WEATHER[:2], {**SCHEMA, "required": ["city"]})], [("tool_schema_changed", 0)]),
        ([WEATHER], [(*WEATHER[:2], dict(reversed(SCHEMA.items())))], [("schema_key_order", 0)]),
        (
            [WEATHER],
            [(*WEATHER[:2], {"type": "object", "properties": dict(reversed(SCHEMA["properties"].items()))})],
            [("schema_key_order", 0)],
        ),
        ([ORDERS, WEATHER], [ORDERS, ("weather", "Other.", {**SCHEMA, "required": ["city"]})],
         [("tool_description_changed", 1), ("tool_schema_changed", 1)]),
    ],
)  # fmt: skip
def test_tools(
    talk: Make, wire: str, before: Sequence[Any], after: Sequence[Any], expected: list[tuple[str, int]]
) -> None:
    found = diff(talk([RULES], before, LONG).body(wire), talk([RULES], after, [*LONG, *NEXT]).body(wire))
    assert [finding.cause.value for finding in found.findings] == [cause for cause, _ in expected]
    assert [finding.path.partition("]")[0] for finding in found.findings] == [f"tools[{at}" for _, at in expected]


CLEARED = ("result", "c1", "[Old tool result content cleared]")
SUMMARY = ("user", "Summary of the conversation so far: parcel 4711 is late and comes to Storgata 5.")
REASON = ("thinking", "They ask for two things.", "seal-1")
SHOWN = [("image", "What is this?", "iVBORw0KGgoAAAA" * 20), ("assistant", "A parcel."), ("user", "Right.")]


def turned(items: Sequence[Any], one: int, other: int) -> list[Any]:
    found = list(items)
    found[one], found[other] = found[other], found[one]
    return found


def put(items: Sequence[Any], at: int, *new: Any, instead: int = 1) -> list[Any]:
    return [*items[:at], *new, *items[at + instead :]]


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (LONG, put(LONG, 2, ("user", "It is 4711, sent from Tromso.")), "history_edited"),
        (LONG, put(LONG, 1, ("assistant", "Please tell me more about it.")), "history_edited"),
        (LONG, put(LONG, 4, ("user", "By the way, be brief."), instead=0), "history_edited"),
        (LONG[:1], [("user", "[context] My parcel is late, it was due on Monday.")], "history_edited"),
        (LONG, LONG[2:], "history_dropped"),
        (LONG, [*LONG[:2], *LONG[4:]], "history_dropped"),
        (LONG, [SUMMARY, *LONG[6:]], "history_summarised"),
        (LONG, [SUMMARY, *LONG[4:]], "history_summarised"),
        (LONG, [*LONG[:1], SUMMARY, *LONG[5:]], "history_summarised"),
        ([*CALLS, *ANSWER], put([*CALLS, *ANSWER], 3, CLEARED), "tool_result_cleared"),
        ([*CALLS, *ANSWER], put([*CALLS, *ANSWER], 4, ("result", "c2", "")), "tool_result_cleared"),
        ([*CALLS, *ANSWER], put([*CALLS, *ANSWER], 3, ("result", "c1", "Sun in Oslo.")), "history_edited"),
        (LONG, turned(LONG, 0, 2), "message_reordered"),
        ([*CALLS, *ANSWER], turned([*CALLS, *ANSWER], 1, 2), "message_reordered"),
        (CALLS, turned(CALLS, 3, 4), "parallel_results_reordered"),
        ([*CALLS, *ANSWER], turned([*CALLS, *ANSWER], 3, 4), "parallel_results_reordered"),
        (
            [*CALLS, *ANSWER],
            [CALLS[0], ("call", "d9", *LOOK[2:]), SEEK, ("result", "d9", "Rain in Oslo."), CALLS[4], *ANSWER],
            "ids_regenerated",
        ),
        (
            [*CALLS, *ANSWER],
            put([*CALLS, *ANSWER], 1, ("call", "c1", "weather", {"days": 2, "city": "Oslo"})),
            "call_key_order",
        ),
        ([CALLS[0], REASON, *CALLS[1:]], CALLS, "thinking_changed"),
        ([CALLS[0], REASON, *CALLS[1:]], [CALLS[0], ("thinking", "Ask.", "seal-2"), *CALLS[1:]], "thinking_changed"),
        (
            [CALLS[0], REASON, *CALLS[1:]],
            [CALLS[0], ("thinking", REASON[1], "seal-2"), *CALLS[1:]],
            "thinking_changed",
        ),
        (SHOWN, put(SHOWN, 0, ("image", "What is this?", "iVBORw0KGgoBBBB" * 21)), "image_reencoded"),
        (LONG, put(LONG, 2, ("user", "It is 4711,  sent from Bergen. ")), "whitespace"),
        (LONG, put(LONG, 2, ("user", " "), instead=0), "whitespace"),
        (
            [("user", "Un café, s'il vous plaît."), *LONG[1:]],
            [("user", unicodedata.normalize("NFD", "Un café, s'il vous plaît.")), *LONG[1:]],
            "unicode_form",
        ),
    ],
)  # fmt: skip
def test_history(talk: Make, wire: str, before: Sequence[Any], after: Sequence[Any], cause: str) -> None:
    if wire == "openai-chat" and cause == "thinking_changed" and len(after) < len(before):
        after = put(before, 1, ("assistant", "Let me see."))
    one = talk([RULES], [WEATHER, ORDERS], before).body(wire)
    other = talk([RULES], [WEATHER, ORDERS], [*after, *NEXT]).body(wire)
    found = diff(one, other)
    assert [finding.cause.value for finding in found.findings] == [cause]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LONG[:1], LONG),
        (LONG, LONG),
        (LONG[:5], LONG),
        (LONG, LONG[:5]),
        (LONG[:5], [*LONG[:4], ("user", "Something else entirely, please.")]),
        (LONG[:1], [("user", "Good morning!")]),
        (LONG, [("user", "Good morning! Do you sell lamps?")]),
        (LONG, [("user", "Good morning!"), ("assistant", "Good morning to you."), ("user", "Do you sell lamps?")]),
        (CALLS, [*CALLS, *ANSWER]),
        (CALLS[:1], [*CALLS, *ANSWER]),
        (LONG, [*LONG, *NEXT[:1], ("user", ""), ("assistant", ""), ("user", "é, ñ, 漢字, 🙂")]),
        ([CALLS[0]], [CALLS[0], REASON, *CALLS[1:], *ANSWER]),
        (SHOWN, [*SHOWN, *NEXT]),
    ],
)  # fmt: skip
def test_clean(talk: Make, wire: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    one, other = (talk([RULES], [WEATHER, ORDERS], items).body(wire) for items in (before, after))
    found = diff(one, other)
    assert found.findings == ()
    assert (found.clean, found.lost_tokens, found.wire) == (True, 0, wire)


def test_independent_causes_are_all_found(talk: Make, wire: str) -> None:
    one = talk([RULES + "Today is 2026-11-29."], [WEATHER, ORDERS], [*CALLS, *ANSWER]).body(wire)
    items = put(put([*CALLS, *ANSWER], 3, CLEARED), 0, ("user", "Weather  and orders?"))
    items[1] = ("call", "c1", "weather", {"days": 2, "city": "Oslo"})
    other = talk([RULES + "Today is 2026-11-30."], [ORDERS, WEATHER], [*items, *NEXT]).body(wire)
    expected = ["tool_order", "clock_in_head", "whitespace", "call_key_order", "tool_result_cleared"]
    found = diff(one, other).findings
    assert [finding.cause.value for finding in found] == expected
    lost = [finding.lost_tokens for finding in found]
    assert lost == sorted(lost, reverse=True)


@pytest.mark.parametrize(
    ("before", "after", "cause", "path"),
    [
        ([WEATHER, ORDERS], [ORDERS, WEATHER], "tool_order", "functions[0]"),
        ([WEATHER], [WEATHER, ORDERS], "tool_added", "functions[1]"),
        ([WEATHER, ORDERS], [ORDERS], "tool_removed", "functions[0]"),
        (
            [ORDERS, WEATHER],
            [ORDERS, (*WEATHER[:2], {**SCHEMA, "required": ["city"]})],
            "tool_schema_changed",
            "functions[1].parameters.required",
        ),
    ],
)
def test_functions_of_old_clients_are_tools(
    talk: Make, before: Sequence[Any], after: Sequence[Any], cause: str, path: str
) -> None:
    def old_style(tools: Sequence[Any], items: Sequence[Any]) -> dict[str, Any]:
        functions = [dict(zip(("name", "description", "parameters"), tool, strict=True)) for tool in tools]
        body: dict[str, Any] = talk([RULES], items=items, more={"functions": functions}).body("openai-chat")
        return body

    found = diff(old_style(before, LONG), old_style(after, [*LONG, *NEXT])).findings
    assert [(finding.cause.value, finding.path) for finding in found] == [(cause, path)]


def test_the_first_image_drops_the_cached_messages_at_anthropic_only(talk: Make, wire: str) -> None:
    shown = [*LONG, ("assistant", "Look:"), ("image", "This one?", "iVBORw0KGgo" * 9), *NEXT]
    one, other, third = (talk([RULES], items=items).body(wire) for items in (LONG, shown, [*shown, *SHOWN, *NEXT]))
    found = diff(one, other)
    if wire == "anthropic-messages":
        (finding,) = found.findings
        assert (finding.cause.value, finding.path) == ("parameters_changed", "messages[8].content[1]")
        assert finding.remedy.startswith("none")
        assert finding.lost_tokens > 0
    else:
        assert found.clean
    assert diff(other, third).clean  # it is not the first any more
    assert diff(talk([RULES], items=[("user", "Hi.")]).body(wire), other).clean  # another conversation
