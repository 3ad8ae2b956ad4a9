"""Histories as reports describe them: windows, summaries, redaction, rebuilt ids, results in another order."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headstay import diff

Item = tuple[Any, ...]


def user(text: str) -> Item:
    return ("user", text)


def said(text: str) -> Item:
    return ("assistant", text)


def put(items: Sequence[Item], at: int, *new: Item, instead: int = 1) -> list[Item]:
    return [*items[:at], *new, *items[at + instead :]]


LONG = [
    user("My parcel is late, it was due on Monday."),
    said("I am sorry. What is the number?"),
    user("It is 4711, sent from Bergen."),
    said("It is in Oslo and comes tomorrow."),
    user("Can I have it sent to my office?"),
    said("Yes, please give me the address."),
    user("Storgata 5, second floor."),
]
NEXT = [said("Done."), user("Thank you!")]
CALLS = [
    user("Weather and orders?"),
    ("call", "c1", "weather", {"city": "Oslo", "days": 2}),
    ("call", "c2", "orders", {}),
    ("result", "c1", "Rain in Oslo."),
    ("result", "c2", "Two orders."),
]
ANSWER = [said("Rain, and two orders."), user("Thanks! And tomorrow?")]
CHAIN = [
    user("go"),
    ("call", "a1", "f", {"n": 1}),
    ("result", "a1", "ok"),
    ("call", "a2", "f", {"n": 2}),
    ("result", "a2", "ok"),
    ("call", "a3", "f", {"n": 3}),
    ("result", "a3", "ok"),
    said("All done."),
    user("more"),
]
THREE = [
    user("Weather?"),
    ("call", "c1", "weather", {"city": "Oslo"}),
    ("call", "c2", "weather", {"city": "Bergen"}),
    ("call", "c3", "weather", {"city": "Tromso"}),
    ("result", "c1", "Rain"),
    ("result", "c2", "Rain"),
    ("result", "c3", "Snow"),
    said("Rain, rain, snow."),
    user("Ok"),
]
CASES: list[tuple[str, list[Item], list[Item], list[str]]] = [
    ("dup message", LONG, [LONG[0], *LONG], ["history_edited"]),
    (
        "rag stripped",
        [user("Context:\nParcels take 3 days.\n\nQuestion: Where is it?")],
        [user("Where is it?"), *NEXT],
        ["history_edited"],
    ),
    (
        "note dropped later",
        [*LONG[:6], user("Storgata 5. <system-reminder>Todo: none</system-reminder>")],
        [*LONG[:6], user("Storgata 5."), *NEXT],
        ["history_edited"],
    ),
    ("sliding window", LONG, [*LONG[2:]], ["history_dropped"]),
    ("window of 1", [*LONG[:3]], [*LONG[2:3]], ["history_dropped"]),
    ("drop first answer pair w/ tools", [*CALLS, *ANSWER], [*CALLS[:1], *ANSWER], ["history_dropped"]),
    (
        "summary no words",
        LONG,
        [user("The customer's parcel 4711 from Bergen is late and is to be sent to the office."), *LONG[6:]],
        ["history_summarised"],
    ),
    (
        "summary assistant",
        LONG,
        [said("Here is a recap: parcel 4711 late, office delivery."), *LONG[6:]],
        ["history_summarised"],
    ),
    (
        "summary all gone",
        LONG,
        [user("Summary so far: parcel 4711 late; deliver to office Storgata 5.")],
        ["history_summarised"],
    ),
    (
        "summary + new q",
        LONG,
        [user("<conversation_summary>parcel 4711 late; deliver to office</conversation_summary>"), user("Thank you!")],
        ["history_summarised"],
    ),
    (
        "summary in mid",
        LONG,
        [*LONG[:1], said("[Compacted: number 4711, from Bergen, in Oslo]"), *LONG[4:]],
        ["history_summarised"],
    ),
    (
        "three ids",
        THREE,
        [(x[0], "z" + x[1], *x[2:]) if x[0] in ("call", "result") else x for x in THREE],
        ["ids_regenerated"],
    ),
    ("same results swapped ids", THREE, [*THREE[:4], THREE[5], THREE[4], *THREE[6:]], ["parallel_results_reordered"]),
    (
        "three results rotated",
        THREE,
        [*THREE[:4], THREE[6], THREE[4], THREE[5], *THREE[7:]],
        ["parallel_results_reordered"],
    ),
    ("calls reversed", THREE, [THREE[0], THREE[3], THREE[2], THREE[1], *THREE[4:]], ["message_reordered"]),
    (
        "calls+results reversed",
        THREE,
        [THREE[0], THREE[3], THREE[2], THREE[1], THREE[6], THREE[5], THREE[4], *THREE[7:]],
        ["message_reordered", "parallel_results_reordered"],
    ),
    (
        "clear all old results",
        CHAIN,
        [(x[0], x[1], "[cleared]") if x[0] == "result" else x for x in CHAIN],
        ["tool_result_cleared"],
    ),
    (
        "clear the result that was not answered yet",
        CHAIN[:3],
        [*CHAIN[:2], ("result", "a1", "[cleared]"), said("All done."), user("more")],
        ["tool_result_cleared"],
    ),
    (
        "clear first two",
        CHAIN,
        put(put(CHAIN, 2, ("result", "a1", "")), 4, ("result", "a2", "")),
        ["tool_result_cleared"],
    ),
    (
        "result truncated",
        [CALLS[0], *CALLS[1:3], ("result", "c1", "Rain in Oslo. " * 100), CALLS[4], *ANSWER],
        [CALLS[0], *CALLS[1:3], ("result", "c1", "Rain in Oslo. " * 10 + "... [truncated]"), CALLS[4], *ANSWER],
        ["history_edited"],
    ),
    ("pii redacted", LONG, put(LONG, 2, user("It is [REDACTED], sent from Bergen.")), ["history_edited"]),
    (
        "all redacted",
        LONG,
        [(r, t.replace("4711", "****").replace("Bergen", "****").replace("Oslo", "****")) for r, t in LONG],
        ["history_edited"],
    ),
    ("trailing nl", LONG, put(LONG, 1, said("I am sorry. What is the number?\n")), ["whitespace"]),
    ("crlf", [user("a\nb\nc"), *LONG], [user("a\r\nb\r\nc"), *LONG], ["whitespace"]),
    ("typo fixed", LONG, put(LONG, 1, said("I am sorry! What is the number?")), ["history_edited"]),
    ("role swapped", LONG, put(LONG, 1, user("I am sorry. What is the number?")), ["history_edited"]),
    ("last answer changed", LONG, put(LONG, 5, said("Certainly, what is the address?")), ["history_edited"]),
    ("last Q edited & answered", LONG, [*LONG[:6], user("Storgata 7, second floor."), *NEXT], ["history_edited"]),
    ("branch earlier", LONG, [*LONG[:2], user("Forget it, do you sell lamps?")], []),
    ("regenerate", LONG, LONG[:5], []),
    ("another talk, of a summary", LONG, [user("Please summarize this article: parcels and stoves.")], []),
    ("another talk, so far", LONG, [user("So far so good. Do you sell lamps?"), said("We do."), user("Fine.")], []),
    (
        "an old word said again",
        [user("ok"), *LONG],
        [*LONG, said("Done."), user("ok")],
        ["history_dropped"],
    ),
    (
        "greeted alike",
        [user("Hi"), said("Hello! How can I help you?"), user("Do you sell lamps?")],
        [user("Morning"), said("Hello! How can I help you?"), user("Where are you?"), said("In Oslo."), user("Ok")],
        [],
    ),
    (
        "greeted alike, and more",
        [user("Hi"), said("Hello! How can I help you?"), user("Do you sell lamps?")],
        [user("Morning"), said("Hello! How can I help you?"), user("Do you sell lamps?")],
        ["history_edited"],
    ),
    (
        "summary told anew",
        [user("Summary of the conversation so far: parcel 4711 is late."), said("I see."), *LONG[3:]],
        [user("Summary of the conversation so far: 4711 comes to the office."), said("I see."), *LONG[5:]],
        ["history_summarised"],
    ),
    *(
        (f"cleared: {words}", [*CALLS, *ANSWER], put([*CALLS, *ANSWER], 3, ("result", "c1", words)), [cause])
        for words, cause in [
            ("(same as the result of the call before)", "tool_result_cleared"),
            ("Output too long to keep, see file /w/out.txt", "tool_result_cleared"),
            ("Altes Ergebnis entfernt.", "tool_result_cleared"),
            ("旧的工具结果已清除", "tool_result_cleared"),
            ("Rain in Oslo… truncated", "history_edited"),  # it was cut, and is not gone
            ("Rain in Bergen.", "history_edited"),
        ]
    ),
    ("restart short", LONG, [user("Hi"), said("Hello, how can I help?"), user("Where are you?")], []),
    ("system msg mid added at end", LONG, [*LONG, said("x"), user("y"), said("z"), user("w")], []),
    (
        "img to placeholder",
        [("image", "What?", "iVBORw0KGgo" * 9), said("A box."), user("ok")],
        [user("What?"), user("[image omitted]"), said("A box."), user("ok"), *NEXT],
        ["history_edited"],
    ),
    ("two swaps of pairs", LONG, [*LONG[2:4], *LONG[:2], *LONG[4:]], ["message_reordered"]),
    ("order by time", LONG, [LONG[1], LONG[0], *LONG[2:]], ["message_reordered"]),
    (
        "args num to str",
        CALLS + ANSWER,
        put(CALLS + ANSWER, 1, ("call", "c1", "weather", {"city": "Oslo", "days": "2"})),
        ["history_edited"],
    ),
    (
        "nested key order",
        [
            user("x"),
            ("call", "c1", "f", {"a": {"x": 1, "y": 2}, "b": [{"p": 1, "q": 2}]}),
            ("result", "c1", "r"),
            *ANSWER,
        ],
        [
            user("x"),
            ("call", "c1", "f", {"a": {"x": 1, "y": 2}, "b": [{"q": 2, "p": 1}]}),
            ("result", "c1", "r"),
            *ANSWER,
        ],
        ["call_key_order"],
    ),
    (
        "dropped and cleared",
        [*LONG[:2], *CALLS, *ANSWER],
        [*CALLS[:3], ("result", "c1", "[Old tool result content cleared]"), CALLS[4], *ANSWER],
        ["history_dropped", "tool_result_cleared"],
    ),
    ("inserted hint", LONG, put(LONG, 2, user("Remember: be brief."), instead=0), ["history_edited"]),
    ("inserted fewshot front", LONG, [user("Example q"), said("Example a"), *LONG], ["history_edited"]),
    ("blank msg", LONG, put(LONG, 2, user(""), instead=0), ["whitespace"]),
    ("continue cut", LONG, [*LONG[:3]], []),
    ("first msg edited keeps rest", LONG, put(LONG, 0, user("My parcel is late, due on Tuesday.")), ["history_edited"]),
    (
        "first + all replaced short",
        [user("a?"), said("b!"), user("c?")],
        [user("a?"), said("X!"), user("c?"), said("d"), user("e")],
        ["history_edited"],
    ),
]


# In Chat Completions these talks have a message of its own for the reasoning.
THOUGHTS: list[tuple[str, list[Item], list[Item], list[str]]] = [
    (
        "thinking all dropped",
        [user("a"), ("thinking", "t1", "s1"), said("b"), user("c"), ("thinking", "t2", "s2"), said("d"), user("e")],
        [user("a"), said("b"), user("c"), said("d"), user("e")],
        ["thinking_changed"],
    ),
    (
        "thinking kept only last",
        [user("a"), ("thinking", "t1", "s1"), said("b"), user("c"), ("thinking", "t2", "s2"), said("d"), user("e")],
        [user("a"), said("b"), user("c"), ("thinking", "t2", "s2"), said("d"), user("e")],
        ["thinking_changed"],
    ),
    (
        "thinking added",
        [user("a"), said("b"), user("c")],
        [user("a"), ("thinking", "t1", "s1"), said("b"), user("c")],
        ["thinking_changed"],
    ),
]
ALL = [(wire, case) for wire in ("anthropic-messages", "openai-chat", "openai-responses") for case in CASES]
ALL += [(wire, case) for wire in ("anthropic-messages", "openai-responses") for case in THOUGHTS]


@pytest.mark.parametrize(("wire", "case"), ALL, ids=[f"{wire}-{case[0]}" for wire, case in ALL])
def test_what_happened_to_a_history(
    talk: Callable[..., Any], wire: str, case: tuple[str, list[Item], list[Item], list[str]]
) -> None:
    _, before, after, causes = case
    more = NEXT if causes and after[-1] not in NEXT else []
    one, other = (talk(["Be kind."], items=items).body(wire) for items in (before, [*after, *more]))
    assert [finding.cause.value for finding in diff(one, other).findings] == causes
