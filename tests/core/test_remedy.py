"""The printed `Slot(...)` line, pasted, cuts exactly what varied: in the text it was made from and in every other."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headstay.causes import Cause
from headstay.divergence import HeadForm, compare_heads
from headstay.slots import Slot
from headstay.values import Declared, extract

BEFORE = "You are the support desk of Larkfield Audio.\n\n# How you work\nRead the whole message first.\n"
AFTER = "\n# Refunds\nEvery item may be sent back within 30 days, at no cost.\nNever argue about dates."


def pasted(texts: Sequence[str]) -> Declared | None:
    """What a user declares who pastes every line that the differences between texts print, until there is none."""
    declared = Declared()
    for _ in range(6):
        heads = [extract([text], declared).head for text in texts]
        forms = [HeadForm(head, {}) for head in dict.fromkeys(heads)]
        if len(forms) == 1:
            return declared
        pairs = itertools.permutations(forms, 2)
        found = (compare_heads(one, two, same_conversation=False, others=forms) for one, two in pairs)
        told = next((difference for difference in found if not difference.variant), None)
        if told is None:  # values that look like added words in every pair are not reported at all
            return None
        lines = dict.fromkeys(part.remedy for part in told.breaks)
        assert lines
        slots = tuple(eval(line, {"Slot": Slot}) for line in lines)
        declared = Declared((), (*declared.slots, *slots))
    raise AssertionError(f"still varying: {forms}")


def check(line: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Paste what is printed for some rows of values; then these values are cut out, and nothing else is."""
    texts = [BEFORE + line.format(*row) + AFTER for row in rows]
    declared = pasted(texts)
    assert declared is not None
    for text, row in zip(texts, rows, strict=True):
        found = extract([text], declared)
        assert found.notices == ()
        assert [value.text for value in found.values if value.name != "clock"] == list(row)
        assert len(found.head[0]) > len(BEFORE + AFTER)
        assert found.head[0].startswith(BEFORE)
        assert found.head[0].endswith(AFTER)


NAMES = [("Siobhán O'Rourke",), ("José María de la Fuente, Jr.",), ("Anne-Sophie Ó Súilleabháin",), ("Ada",)]
SHARED = [("Ada Byron",), ("Ada King",), ("Max King",)]
DATES = [("2026-11-29",), ("2026-11-30",), ("2026-12-01",)]
ACCOUNTS = [("LFA-12345678", "LFA-12345678"), ("LFA-87654321", "LFA-87654321")]


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("The person writing is {}, who is signed in.", NAMES),
        ("The person writing is {}, who is signed in.", SHARED),
        ("The person writing is {}.", NAMES),
        ("{} is the customer here.", NAMES),
        ("Customer: {}", NAMES),
        ("Customer: {}", SHARED),
        ('Say "{}" to them.', NAMES),
        ("Say '{}' to them.", NAMES),
        ("They're called {} (or so they say).", SHARED),
        ("Today is {}.", DATES),
        ("Today is {}", DATES),
        ("{}", DATES),  # alone on its line
        ("Account on file: {} (on letters write it as ref. {}, never shortened).", ACCOUNTS),
        ("Rates: {} of {} rooms.", [("3", "17"), ("4", "21"), ("5", "17")]),
        ("It is 2026-11-29T10:00:00Z, {} of a week.", [("Sunday",), ("Monday",)]),  # next to a placeholder
        ("{} 2026-11-29T10:00:00Z", [("Sunday",), ("Monday",)]),
        ("Plan [{}] (a+b)? \\d+ $5 ^x | y*", [("gold",), ("silver",)]),  # what a pattern has to escape
        ("Ticket {} of Ada, see ticket {} too.", [("T-1", "T-2"), ("T-3", "T-4")]),
        ("- name: {}\n- plan: {}\n- since: {}", [("Ada", "gold", "2020-01-02"), ("Max", "silver", "2021-03-04")]),
        ("a{{x}}%s {} z", [("one",), ("two",)]),
    ],
)
def test_a_pasted_line_cuts_exactly_what_varied(line: str, rows: list[tuple[str, ...]]) -> None:
    for chosen in itertools.permutations(rows, min(3, len(rows))):
        check(line, chosen)


WORD = st.text("abcdefgh'-.", min_size=1, max_size=8).map(lambda text: f"k{text}k")
VALUE = st.lists(WORD, min_size=1, max_size=3).map(" ".join)
LINES = [
    "Serve {} well, and quote {} whenever it matters.",
    "Name: {}\nPlan: {}",
    "{} and account {}.",
    "{}\n{}",
    "({}) [{}]",
    "{}, {}",
    "It is 2026-11-29T10:00:00Z for {} ({}).",
]


@settings(max_examples=200)
@given(st.sampled_from(LINES), st.lists(st.tuples(VALUE, VALUE), min_size=2, max_size=4, unique=True))
def test_any_values_can_be_declared_from_what_is_printed(line: str, rows: list[tuple[str, str]]) -> None:
    first, second = ({row[place] for row in rows} for place in (0, 1))
    assume(len(first) > 1 and len(second) > 1 and first.isdisjoint(second))
    texts = [BEFORE + line.format(*row) + AFTER for row in rows]
    declared = pasted(texts)
    assume(declared is not None)
    assert declared is not None
    heads = {extract([text], declared).head[0] for text in texts}
    assert len(heads) == 1
    (head,) = heads
    assert head.startswith(BEFORE)
    assert head.endswith(AFTER)
    for text in texts:  # nothing but the values is gone, and what is gone is a value
        gone = [value.text for value in extract([text], declared).values]
        assert all(part in line.format(*row) for row in rows if line.format(*row) in text for part in gone)


@pytest.mark.parametrize(
    ("rows", "cause", "every"),
    [
        (DATES, Cause.CLOCK_IN_HEAD, "call"),
        ([("8f3a2b1c9d",), ("1c9d8f3a2b",)], Cause.RANDOM_ID_IN_HEAD, "call"),
        (SHARED, Cause.VALUE_IN_HEAD, "conversation"),
    ],
)
def test_what_is_printed_says_how_often_a_value_changes(rows: list[tuple[str]], cause: Cause, every: str) -> None:
    one, two = (HeadForm((BEFORE + f"Here: {row[0]} it is." + AFTER,), {}) for row in rows[:2])
    (found,) = compare_heads(one, two, same_conversation=False).breaks
    assert (found.cause, found.owner, found.path) == (cause, "application", "system[0]")
    assert found.remedy.endswith(f'every="{every}")')
    assert eval(found.remedy, {"Slot": Slot}).every == every
    (within,) = compare_heads(one, two, same_conversation=True).breaks
    assert within.remedy.endswith('every="call")')
