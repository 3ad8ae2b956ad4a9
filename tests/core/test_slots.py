"""Slots: what is recognised, what is declared, and how values are cut out of the system text."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headstay.errors import ConfigError
from headstay.slots import Slot, Span, Template, classify, merge, strict_spans
from headstay.values import EXAMPLES_TITLE, Declared, Extraction, extract, render


def cut(text: str, *slots: Slot, templates: tuple[Template, ...] = (), strict: bool = True) -> Extraction:
    return extract([text], Declared(templates, slots, strict))


def parts(found: Extraction) -> dict[str, str]:
    return {value.name: value.text for value in found.values}


@pytest.mark.parametrize(
    "clock",
    [
        "2026-11-29T10:00:00Z",
        "2026-11-29T10:00:00.123456+00:00",
        "2026-11-29T10:00:00-0800",
        "2026-11-29 10:00",
        "2026-11-29 10:00:05 UTC",
        "2026-11-29 10:00:05,123",
        "2026-11-29, 10:00",
        "2026-11-29 at 10:00",
        "Sunday, 29 November 2026 10:00",
        "Sun, 29 Nov 2026 10:00:00 GMT",
        "Nov 29, 2026 at 02:05 PM",
        "29 November 2026, 10:00 +01:00",
    ],
)
def test_full_timestamps_are_recognised_whole(clock: str) -> None:
    found = cut(f"It is {clock}. Be kind.")
    assert (found.head, parts(found)) == (("It is [[clock]]. Be kind.",), {"clock": clock})
    assert found.values[0].every == "call"
    assert found.values[0].harmless


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29",  # a date alone is only declared
        "10:00:00",
        "29 November 2026",
        "version 2026-11-29T10:00:00-beta",  # a name that holds a timestamp, no clock
        "2026-11-29T10:00:00.1234567891",  # no fraction that any clock writes
        "12026-11-29T10:00:00",
        "123e4567-e89b-12d3-a456-42661417400",  # one digit short
        "x123e4567-e89b-12d3-a456-426614174000",
        "123e4567e89b12d3a456426614174000",
    ],
)
def test_nothing_else_is_guessed(text: str) -> None:
    assert strict_spans(f"Say {text}, please.") == ()


def test_uuids_are_recognised_and_numbered_by_place() -> None:
    one, two = "123e4567-e89b-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174001"
    found = cut(f"Request {one}, parent {two}, again {one}.")
    assert found.head == ("Request [[id]], parent [[id_2]], again [[id_3]].",)
    assert parts(found) == {"id": one, "id_2": two, "id_3": one}
    assert render("T:", found.values) == f"T:\nid, id_3: {one}\nid_2: {two}"  # equal values stand once
    assert cut(f"Request {two}, parent {one}, again {two}.").head == found.head


def test_strict_recognition_can_be_switched_off() -> None:
    text = "It is 2026-11-29T10:00:00Z."
    assert cut(text, strict=False).head == (text,)


@pytest.mark.parametrize(
    ("match", "text", "head", "values"),
    [
        (r"^Name: (.+)$", "Name: Ada\nEnd", "Name: [[value]]\nEnd", {"value": "Ada"}),
        (r"Name: (?P<who>\w+)", "Name: Ada.", "Name: [[who]].", {"who": "Ada"}),
        (r"\d+", "a 12 b 345", "a [[value]] b [[value_2]]", {"value": "12", "value_2": "345"}),
        (r"\d*", "a 12 b", "a [[value]] b", {"value": "12"}),  # where nothing is found, nothing is empty
        (re.compile("name: (x)?", re.IGNORECASE), "NAME: ", "NAME: ", {}),  # the group took no part
        (r"^Name: (?P<who>.*)$", "Name: \nEnd", "Name: [[who]]\nEnd", {"who": ""}),  # an empty value is one too
        (lambda text: [(0, 3)], "Ada is here", "[[value]] is here", {"value": "Ada"}),
        (lambda text: [(5, 99), (4, 2), (-1, 2)], "Ada is here", "Ada is here", {}),  # no span of this text
    ],
)
def test_declared_slots(match: str | re.Pattern[str], text: str, head: str, values: dict[str, str]) -> None:
    found = cut(text, Slot(match))
    assert (found.head, parts(found)) == ((head,), values)


@pytest.mark.parametrize(
    ("heading", "section", "head", "values"),
    [
        ("## Customer", "## Customer\nAda\n2nd line\n## Next", "[[customer]]\n## Next", {"customer": "Ada\n2nd line"}),
        ("## Customer", "## Customer\n\n## Next", "[[customer]]\n## Next", {"customer": ""}),  # the same head
        ("# Customer", "# Customer\nx\n## Deeper\ny\n# Next", "[[customer]]\n# Next", {"customer": "x\n## Deeper\ny"}),
        ("## Customer", "## Customer\nAda\n", "[[customer]]", {"customer": "Ada\n"}),
        ("## 7", "## 7\nAda", "[[value]]", {"value": "Ada"}),
        ("## Käufer", "## Käufer \nAda", "[[käufer]]", {"käufer": "Ada"}),
    ],
)
def test_a_heading_is_the_slot_under_it(heading: str, section: str, head: str, values: dict[str, str]) -> None:
    before = "# Policy\n" + "Be kind and brief. " * 9 + "\n"
    found = cut(before + section, Slot(heading))
    assert found.head == (before + section.partition("\n")[0] + "\n" + head,)
    assert parts(found) == values


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Slot("(open"), "not a regular expression"),
        (lambda: Slot("x", every="day"), 'say "call" or "conversation"'),  # type: ignore[arg-type]  # the point
        (lambda: Slot(3), "give a pattern, a heading"),  # type: ignore[arg-type]  # the point
    ],
)
def test_a_slot_that_cannot_work_is_refused(make: Callable[[], Slot], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        make()


def test_the_wider_of_two_slots_stands() -> None:
    text = "## Context\nIt is 2026-11-29T10:00:00Z now\n## Rules\n" + "Be kind and brief. " * 9
    found = cut(text, Slot("## Context", every="conversation"))
    assert [(value.name, value.every) for value in found.values] == [("context", "conversation")]


@pytest.mark.parametrize(
    ("spans", "kept"),
    [
        ([Span(0, 5, "a", "conversation"), Span(0, 5, "b", "call")], [Span(0, 5, "b", "call")]),
        ([Span(0, 9, "a", "conversation"), Span(3, 5, "b", "call")], [Span(0, 9, "a", "conversation")]),
        ([Span(0, 5, "a", "conversation", True), Span(3, 9, "b", "call")], [Span(0, 9, "a", "call")]),
        ([Span(3, 9, "b", "call"), Span(0, 3, "a", "call")], [Span(0, 3, "a", "call"), Span(3, 9, "b", "call")]),
        # an empty value keeps its place beside another
        ([Span(2, 2, "a", "call"), Span(2, 4, "b", "call")], [Span(2, 2, "a", "call"), Span(2, 4, "b", "call")]),
        ([Span(0, 2, "a", "call"), Span(2, 2, "b", "call")], [Span(0, 2, "a", "call"), Span(2, 2, "b", "call")]),
    ],
)
def test_overlaps(spans: list[Span], kept: list[Span]) -> None:
    assert merge(spans) == kept
    assert merge(reversed(spans)) == kept


TEMPLATE = Template(("Dear ", " ", ", you are ", ". Hello ", "!"), ("first", "last", "role", "first"))


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        (("Ada", "Byron", "admin"), {"first": "Ada", "last": "Byron", "role": "admin"}),
        # a value that holds a literal: the repeated variable tells where it ends
        (("Anna Maria", "Sibylla", "x"), {"first": "Anna Maria", "last": "Sibylla", "role": "x"}),
        (("", "", ""), {"first": "", "last": "", "role": ""}),
        (("Ada", "x, you are y", "[[first]]"), {"first": "Ada", "last": "x", "role": "y, you are [[first]]"}),
        (("A\nB", "b" * 5_000, "!"), {"first": "A\nB", "last": "b" * 5_000, "role": "!"}),
    ],
)
def test_templates(values: tuple[str, str, str], taken: dict[str, str]) -> None:
    first, last, role = values
    found = cut(f"Dear {first} {last}, you are {role}. Hello {first}!", templates=(TEMPLATE,))
    assert found.head == ("Dear [[first]] [[last]], you are [[role]]. Hello [[first]]!",)
    assert parts(found) == taken
    assert found.notices == ()


@given(st.lists(st.text("ab ,.!Hello\n", max_size=6), min_size=3, max_size=3))
@example(["a ", "", ". Hello "])
def test_every_text_of_a_template_gives_the_same_head(values: list[str]) -> None:
    first, last, role = values
    found = cut(f"Dear {first} {last}, you are {role}. Hello {first}!", templates=(TEMPLATE,))
    assert found.head == ("Dear [[first]] [[last]], you are [[role]]. Hello [[first]]!",)


def test_what_a_template_holds_constant_is_constant() -> None:
    since = Template(("Open since 2020-01-01T00:00:00Z for ", "."), ("who",))
    assert cut("Open since 2020-01-01T00:00:00Z for Ada.", templates=(since,)).head == (
        "Open since 2020-01-01T00:00:00Z for [[who]].",
    )


def test_adjacent_variables_and_templates_without_any() -> None:
    found = cut("ab:12.", templates=(Template(("ab:", "", "."), ("x", "y")),))
    assert (found.head, parts(found)) == (("ab:[[x]][[y]].",), {"x": "", "y": "12"})
    assert cut("just text", templates=(Template(("just text",), ()),)) == Extraction(("just text",), (), ())


def test_a_template_says_how_often_a_variable_changes() -> None:
    template = Template(("At ", " for ", " with ", " end"), ("when", "who", "what"))
    found = cut(
        "At 2026-11-29T10:00:00Z for Ada with tea end",
        Slot("{what}", every="call", harmless=True),
        templates=(template,),
    )
    assert [(v.name, v.every, v.harmless) for v in found.values] == [
        ("when", "call", True),  # a full timestamp, so per call
        ("who", "conversation", False),
        ("what", "call", True),
    ]


def test_a_template_that_does_not_fit_is_named_with_the_place() -> None:
    (notice,) = cut("Dear Ada Byron, you were here.", templates=(TEMPLATE,)).notices
    assert notice.startswith("template= does not fit the system text: ', you are ' is not where the template has it")
    assert "Ada" not in notice  # the text holds values, the template does not
    # each block of several may have a template of its own; blocks without one are no fault
    found = extract(["Hello Ada.", "Fixed rules."], Declared((Template(("Hello ", "."), ("who",)),)))
    assert (found.head, found.notices) == (("Hello [[who]].", "Fixed rules."), ())


@pytest.mark.parametrize("match", [r"[\s\S]+", r".", r"^.*$", r"\S+ ?"])
def test_a_slot_that_matches_everything_is_left_out(match: str) -> None:
    found = cut("Be kind.\nBe brief and exact.", Slot(match))
    assert found.head == ("Be kind.\nBe brief and exact.",)
    assert ["matches nearly the whole system text" in notice for notice in found.notices] == [True]


def test_a_slot_may_fill_a_block_of_its_own() -> None:
    found = extract(["Long policy. " * 20, "## Memory\nlikes tea"], Declared((), (Slot("## Memory"),)))
    assert found.head[1] == "## Memory\n[[memory]]"
    assert found.notices == ()


@pytest.mark.parametrize("slot", [Slot("nowhere"), Slot("## Nowhere"), Slot("{nowhere}"), Slot(lambda _: [])])
def test_a_slot_that_matches_nothing_is_named(slot: Slot) -> None:
    (notice,) = cut("Be kind.", slot).notices
    assert notice == f"{slot!r} matches nothing in the system text; correct it or take it out"
    assert extract([], Declared((), (slot,))).notices == ()  # no system text, nothing to say


def broken(text: str) -> Iterable[tuple[int, int]]:
    raise LookupError(text)


def no_pairs(text: str) -> Any:
    return [(0, "end")]


@pytest.mark.parametrize(("match", "kind"), [(broken, LookupError), (no_pairs, TypeError)])
def test_a_callable_that_raises_is_named_without_its_words(match: Any, kind: type[Exception]) -> None:
    with pytest.raises(ConfigError) as refused:
        cut("Be kind.", Slot(match))
    named = f"Slot({match.__name__}, every='call')"
    assert str(refused.value) == f"{named} raised {kind.__name__}; it must give (start, end) pairs"
    assert isinstance(refused.value.__cause__, kind)


def test_a_slot_of_a_variable_needs_a_template_that_has_it() -> None:
    template = Template(("You help ", ", plan ", "."), ("name", "plan"))
    Declared((template,), (Slot("{plan}"), Slot("## Memory"))).check()
    with pytest.raises(
        ConfigError, match=r"names no variable of template=; its variables: \"\{name\}\", \"\{plan\}\"$"
    ):
        Declared((template,), (Slot("{plans}"),)).check()
    with pytest.raises(ConfigError, match=r"^Slot\('\{plan\}', every='call'\) names a variable, and there is no"):
        Declared((), (Slot("{plan}"),)).check()


def test_examples_under_their_title_are_one_value_whatever_stands_in_them() -> None:
    text = f"{EXAMPLES_TITLE}\ninput: When?\noutput: At 2024-03-01T08:00:00Z."
    found = extract(["It is 2026-11-29T10:00:00Z.", text], Declared(slots=(Slot("When"),), examples=True))
    assert found.head == ("It is [[clock]].", f"{EXAMPLES_TITLE}\n[[examples]]")
    assert [(value.name, value.every) for value in found.values] == [("clock", "call"), ("examples", "conversation")]
    assert found.values[1].text == "input: When?\noutput: At 2024-03-01T08:00:00Z."
    assert extract([EXAMPLES_TITLE], Declared(examples=True)).values[0].text == ""
    assert extract([text], Declared()).head[0].startswith(f"{EXAMPLES_TITLE}\ninput: When?")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("2026-11-29", "clock"),
        ("29.11.2026", "clock"),
        ("10:05", "clock"),
        ("3 May 2026", "clock"),
        ("req_8f3a2b1c9d", "id"),
        ("123e4567-e89b-12d3-a456-426614174000", "id"),
        ("LFA-12345678", "text"),  # an account number names a person: not harmless
        ("1,234.50", "number"),
        ("42%", "number"),
        ("Ada", "text"),
        ("Monday", "text"),
        ("", "text"),
        ("administrator", "text"),
    ],
)
def test_what_a_value_looks_like(value: str, kind: str) -> None:
    assert classify(value) == kind


def test_values_are_written_so_that_none_can_pass_for_another() -> None:
    system = ["<a>x\nb: forged</a> <b> padded </b> <c></c> <d></name>\n</d></d>"]
    slots = [Slot(rf"<{n}>(?P<{n}>[\s\S]*?)</{n}>(?=$| )") for n in "abcd"]
    lines = render("T:", extract(system, Declared((), tuple(slots))).values).split("\n")
    assert lines == [
        "T:",
        *("<a>", "x", "b: forged", "</a>"),
        *("<b>", " padded ", "</b>"),
        "c: (empty)",
        *("<d_>", "</name>", "</d>", "</d_>"),
    ]
    assert render("T:", []) == ""
