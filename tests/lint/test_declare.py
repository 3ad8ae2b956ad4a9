"""The lines that are made from all known texts of an agent: pasted, they leave one head."""

import ast
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay.lint.declare import KnownText, slot_lines
from headstay.slots import Slot
from headstay.values import Declared, extract

FRONT, REST = "You are a desk agent. Be good.\n", "\nAlways cite the policy.\nEnd."


def slot_of(line: str) -> Slot:
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    return Slot(ast.literal_eval(call.args[0]), every=ast.literal_eval(call.keywords[0].value))


def pasted(texts: Sequence[str], lines: Sequence[str]) -> set[tuple[str, ...]]:
    """Return the heads that are left of some texts; each line has to find one thing in each of them."""
    slots = tuple(map(slot_of, lines))
    assert all(len(slot.spans(text)) == 1 for slot in slots for text in texts)
    found = [extract([text], Declared((), slots)) for text in texts]
    assert not any(one.notices for one in found)
    return {one.head for one in found}


def lines_of(*lines: str) -> tuple[str, ...]:
    """Return what is printed for texts of one conversation each."""
    return slot_lines([KnownText(FRONT + line + REST, number) for number, line in enumerate(lines)])


def test_a_clock_and_a_customer_on_one_line() -> None:
    assert lines_of(
        "Now 21:39:25. Customer Ada.", "Now 21:40:26. Customer Ada.", "Now 21:41:27. Customer Bob King."
    ) == (
        r'Slot(r"^Now (?P<now>.+?)\. Customer ", every="call")',
        r'Slot(r"\. Customer (?P<customer>.+?)\.$", every="conversation")',
    )


def test_a_name_and_a_number_on_one_line() -> None:
    assert lines_of(
        "Hello ann, your balance is 51 EUR.", "Hello bob, your balance is 0 EUR.", "Hello eve, your balance is 51 EUR."
    ) == (
        r'Slot(r"^Hello (?P<hello>.+?), your balance", every="conversation")',
        r'Slot(r"balance is (?P<balance_is>.+?) EUR\.$", every="conversation")',
    )


def test_a_name_that_stands_there_twice() -> None:
    texts = [f"{FRONT}Serve {name} well.\nAlways call {name} by name.{REST}" for name in ("Ada", "Bob", "Ada King")]
    lines = slot_lines([KnownText(text, number) for number, text in enumerate(texts)])
    assert len(lines) == 2
    assert len(pasted(texts, lines)) == 1


def test_a_value_that_is_not_always_there() -> None:
    texts = [f"{FRONT}Welcome{name}, dear guest.{REST}" for name in (" Ada", "", " Bob King")]
    lines = slot_lines([KnownText(text, number) for number, text in enumerate(texts)])
    assert lines == (r'Slot(r"^Welcome(?P<welcome>.*?), dear guest\.$", every="conversation")',)
    assert len(pasted(texts, lines)) == 1


@pytest.mark.parametrize(
    ("known", "every"),
    [
        ([("Ada", 1), ("Bob", 2), ("Eve", 3)], "conversation"),
        ([("Ada", 1), ("Bob", 1), ("Eve", 2)], "call"),
        ([("10:15", 1), ("10:16", 2), ("10:17", 3)], "call"),  # nothing tells how long a time holds
        ([("10:15", 1), ("10:16", 1), ("10:17", 2)], "call"),
    ],
)
def test_how_often_a_value_changes(known: list[tuple[str, int]], every: str) -> None:
    (line,) = slot_lines([KnownText(f"{FRONT}Here: {value} it is.{REST}", where) for value, where in known])
    assert slot_of(line).every == every


def test_a_clock_that_holds_for_each_conversation() -> None:
    known = [("10:15", "51", 1), ("10:15", "52", 1), ("10:17", "53", 2)]
    texts = [
        KnownText(f"{FRONT}It began at {time}.\nYou have {left} credits.{REST}", where) for time, left, where in known
    ]
    assert [slot_of(line).every for line in slot_lines(texts)] == ["conversation", "call"]


def test_sections_are_declared_by_their_headings() -> None:
    section = "## Memory\n{}\n\n## Rules\nIt is {}.\nBe kind."
    texts = [
        FRONT + section.format(memory, time) + REST
        for memory, time in (("- likes tea", "10:15"), ("- likes coffee\n- has cats", "10:16"), ("none yet", "10:18"))
    ]
    lines = slot_lines([KnownText(text, number) for number, text in enumerate(texts)])
    assert lines == (
        'Slot("## Memory", every="conversation")',
        r'Slot(r"^It is (?P<it_is>.+?)\.$", every="call")',
    )
    assert len(pasted(texts, lines)) == 1


@pytest.mark.parametrize(
    "lines",
    [
        ("Be brief.", "Be brief.", "Be brief."),  # one text
        ("Be brief.",),
        (),
        ("Be brief.\nUse tools.", "Be brief.", "Use tools.\nBe brief.\nAsk first."),  # lines come and go
        ("The key is sk-ant-abcdefgh123.", "The key is sk-ant-abcdefgh456.", "Be brief."),
        tuple(f"api_key=abcdefgh{n}{n}{n}" for n in range(3)),  # the line would show which word a key stands behind
    ],
)
def test_nothing_is_printed_where_values_do_not_tell_the_texts_apart(lines: tuple[str, ...]) -> None:
    assert lines_of(*lines) == ()


NAMES = st.sampled_from(["Eve", "Bob", "ann", "carl", "Siobhán", "Grace"])
SEVERAL = st.sampled_from(["Ada Byron", "Ada King", "Max King", "José María de la Fuente, Jr.", "the old house"])
CLOCKS = st.datetimes().map(lambda moment: f"2026-11-{moment.day:02} {moment:%H:%M:%S}")
TIMES = st.datetimes().map(lambda moment: f"{moment:%H:%M}")
NUMBERS = st.integers(0, 99_999).map(str)
IDS = st.integers(16**9, 16**10 - 1).map(lambda number: f"{number:010x}")
CONTEXT = [
    *("answer", "brief", "calm", "door", "early", "find", "green", "house", "item", "just", "kind", "long", "mild"),
    *("customer", "Plan:", "balance", "now", "EUR", "office", "Always", "serve", "well,", "quote", "again."),
]


@st.composite
def templates(draw: st.DrawFn) -> list[str]:
    """Draw the constant pieces of a text, in one line or several; no word stands there twice."""
    words = draw(st.permutations(CONTEXT))
    pieces: list[str] = []
    for number in range(draw(st.integers(1, 4)) + 1):
        some = " ".join(words[number * 4 : number * 4 + draw(st.integers(1, 4))])
        pieces.append(draw(st.sampled_from(["\n", " ", ", ", " (", ". "])) + some + draw(st.sampled_from([" ", ": "])))
    return pieces


@settings(max_examples=200, deadline=None)
@given(templates(), st.data())
def test_any_values_can_be_declared_from_some_heads(pieces: list[str], data: st.DataObject) -> None:
    kinds = data.draw(st.permutations([NAMES, SEVERAL, CLOCKS, TIMES, NUMBERS, IDS]))  # no two trade their values
    row = st.tuples(*kinds[: len(pieces) - 1])
    rows = data.draw(st.lists(row, min_size=3, max_size=10, unique=True))
    texts = [FRONT + "".join(itertools.chain(*zip(pieces, [*values, ""], strict=True))) + REST for values in rows]
    lines = slot_lines([KnownText(text, number) for number, text in enumerate(texts)])
    assert lines
    assert len(pasted(texts, lines)) == 1
