"""The printed `Slot(...)` line, pasted, cuts exactly what varied: in the text it was made from and in every other."""

import ast
import itertools
import re
from collections.abc import Sequence

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headstay.causes import Cause
from headstay.divergence import HeadForm, compare_heads
from headstay.remedy import Cut, slot_line, slot_pattern, slot_source
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


def parsed(line: str) -> Slot:
    """Build the slot of a printed line as a user's program does."""
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    assert call.func.id == "Slot"
    return Slot(ast.literal_eval(call.args[0]), every=ast.literal_eval(call.keywords[0].value))


def quoted(pattern: str) -> tuple[str, str]:
    """Return what a pattern quotes of the text before and behind the value."""
    left, _, right = re.sub(r"\(\?P<\w+>(?:\.|\[.{4}\])[+*]\?\)", "\0", pattern, count=1).partition("\0")
    plain = [re.sub(r"^\^|\.\+\?|(?<!\\)\$(?=$|\\n)", "", side) for side in (left, right)]
    return unescaped(plain[0]), unescaped(plain[1])


def unescaped(literal: str) -> str:
    coded = re.compile(r"\\(?:n|x(?P<x>..)|u(?P<u>.{4})|U(?P<U>.{8})|(?P<plain>.))")

    def one(found: re.Match[str]) -> str:
        code = found["x"] or found["u"] or found["U"]
        return chr(int(code, 16)) if code else found["plain"] or "\n"

    return coded.sub(one, literal)


SCRIPTS = st.one_of(
    st.text(), st.text("\u4f60\u662f\u5ba2\u670d\u3002\uff0c\u304b\u306a12 "), st.text("ab A.B:'\"#\\$^\n\r\u2028")
)


@settings(max_examples=400)
@given(SCRIPTS, st.integers(1, 300), st.text(min_size=1, max_size=9), SCRIPTS, st.integers(1, 300))
def test_a_line_quotes_a_few_words_in_any_script(left: str, times: int, value: str, right: str, again: int) -> None:
    text, start = left * times + value + right * again, len(left) * times
    line = slot_line(text, [(start, start + len(value))], 0, every="call")
    if not line.startswith("Slot("):
        assert "Slot(r" not in line
        return
    slot = parsed(line)
    assert [(found.start, found.end) for found in slot.spans(text)] == [(start, start + len(value))]
    assert isinstance(slot.match, re.Pattern)
    for side in quoted(slot.match.pattern):
        assert len(side) <= 24
        assert len(re.findall(r"\w\S*", side)) <= 6
    assert len(line.splitlines()) == 1
    assert line.isprintable()


@pytest.mark.parametrize(
    ("text", "value", "line"),
    [
        # a name and a number beside the value may be other values
        ("Now 21:39:25. Customer Ada.", "21:39:25", r'Slot(r"^Now (?P<now>.+?)\. Customer", every="call")'),
        ("21:39:25. Be good to Ada.", "Ada", r'Slot(r"good to (?P<good_to>.+?)\.$", every="call")'),
        ("21:39:25 Ada", "Ada", r'Slot(r"^.+? (?P<value>.+?)$", every="call")'),
        # only the number tells the two apart, so it is quoted
        ("Desk 1: x, Desk 2: y, Desk 3: z", "y", r'Slot(r"Desk 2: (?P<desk>.+?), Desk 3:", every="call")'),
        # twelve equal lines, and nothing else near: no few words tell one from the others
        ("- name: x\n" * 12, "x", "declare the value with Slot(...), or send it behind what stays the same"),
        # a slot takes what begins with # for a heading
        ("Look at the tags #b c xy", "xy", r'Slot(r"\#b c (?P<b_c>.+?)$", every="call")'),
    ],
)
def test_what_a_line_quotes(text: str, value: str, line: str) -> None:
    start = text.index(value, len(text) // 2 if "name" in text else 0)
    found = slot_line(text, [(start, start + len(value))], 0, every="call")
    assert found == line


def test_a_pattern_has_to_fit_every_text() -> None:
    one, other = "Serve Ada, who is new.", "Serve Ann, who is old, who is new."
    assert slot_pattern(one, [(6, 9)], 0) == r"^Serve (?P<serve>.+?), who is"
    pattern = slot_pattern(one, [(6, 9)], 0, others=[Cut(other, 6, 21)])
    assert pattern == r"^Serve (?P<serve>.+?), who is new\.$"
    assert slot_pattern(one, [(6, 9)], 0, others=[Cut("Quite another text", 0, 5)]) == ""


def test_both_kinds_of_quotes_can_be_pasted() -> None:
    text = "He's \"called\" Ada, isn't he?"
    slot = parsed(slot_source(slot_pattern(text, [(14, 17)], 0), every="call"))
    assert [text[found.start : found.end] for found in slot.spans(text)] == ["Ada"]
