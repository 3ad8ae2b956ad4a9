"""Questions that an embedder takes for one another, and that are different ones."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.semantic.reading import read
from headstay.semantic.reasons import Reason
from headstay.semantic.veto import Veto, differences, veto

DIFFERENT = [
    # spelling: the embedder is uncased and drops accents and spaces
    (Reason.VETO_SURFACE, "Polish sausage", "polish sausage"),
    (Reason.VETO_SURFACE, "how do I polish the shoes", "can I Polish my shoes"),
    (Reason.VETO_SURFACE, "con ma", "con m\u00e1"),
    (Reason.VETO_SURFACE, "m\u00e0 \u0111\u00e2u", "m\u00e1 \u0111\u00e2u"),
    (Reason.VETO_SURFACE, "r\u00e9sum\u00e9 tips for me", "how to resume it, tips for me"),
    (Reason.VETO_SURFACE, "ls -l", "ls -L"),
    (Reason.VETO_SURFACE, "if a:\n  b\n  c", "if a:\n  b\nc"),
    (Reason.VETO_SURFACE, "how  do I", "how do I"),
    (Reason.VETO_SURFACE, "IT department", "it department"),
    (Reason.VETO_SURFACE, "HOW DO I PAY", "how do I pay"),
    # numbers
    (Reason.VETO_NUMBER, "where is order 1234", "where is order 1235"),
    (Reason.VETO_NUMBER, "what happened in 2024", "what happened in 2025"),
    (Reason.VETO_NUMBER, "what is 1,234 + 1", "what is 1,235 + 1"),
    (Reason.VETO_NUMBER, "is 10 more than 30", "is 30 more than 10"),
    (Reason.VETO_NUMBER, "two tickets please", "three tickets please"),
    (Reason.VETO_NUMBER, "send two hundred", "send two hundred and five"),
    (Reason.VETO_NUMBER, "the first chapter", "the second chapter"),
    (Reason.VETO_NUMBER, "charged once", "charged twice"),
    (Reason.VETO_NUMBER, "is Python 3.11 supported", "is Python 3.12 supported"),
    (Reason.VETO_NUMBER, "order 007", "order 7"),
    (Reason.VETO_NUMBER, f"key {10**40}", f"key {10**40 + 1}"),
    (Reason.VETO_NUMBER, "is it -5 outside", "is it 5 outside"),
    (Reason.VETO_NUMBER, "plan for 3 million", "plan for 3 thousand"),
    (Reason.VETO_NUMBER, "my tickets", "my 2 tickets"),
    (Reason.VETO_NUMBER, "is 5 < 6", "is 5 > 6"),
    (Reason.VETO_NUMBER, "what is 3-2", "what is 3+2"),
    # dates and times
    (Reason.VETO_DATE, "the meeting on May 5", "the meeting on May 6"),
    (Reason.VETO_DATE, "the meeting on 2024-05-01", "the meeting on 2024-05-02"),
    (Reason.VETO_DATE, "from June 1 to July 1", "from July 1 to June 1"),
    (Reason.VETO_DATE, "sales in march", "sales in may"),
    (Reason.VETO_TIME, "the weather today", "the weather tomorrow"),
    (Reason.VETO_TIME, "the weather", "the weather tomorrow"),
    (Reason.VETO_TIME, "is it open on Monday", "is it open on Tuesday"),
    (Reason.VETO_TIME, "sales of last week", "sales of this week"),
    (Reason.VETO_TIME, "remind me every day", "remind me every other day"),
    # codes, currencies, units, quotes
    (Reason.VETO_ID, "refund for ABC-1234", "refund for ABC-1235"),
    (Reason.VETO_ID, "key aB3x", "what is the key ab3x"),
    (Reason.VETO_ID, "is C++ hard", "is C# hard"),
    (Reason.VETO_ID, "mail ann@example.com", "mail bob@example.com"),
    (Reason.VETO_CURRENCY, "convert USD to EUR", "convert EUR to USD"),
    (Reason.VETO_CURRENCY, "how much is 100 USD in EUR", "how much is 100 EUR in USD"),
    (Reason.VETO_CURRENCY, "the rate of dollars and yen", "the rate of euros and yen"),
    (Reason.VETO_CURRENCY, "pay $5", "pay \u20ac5"),
    (Reason.VETO_UNIT, "convert miles to km", "convert km to miles"),
    (Reason.VETO_UNIT, "the heat in celsius", "the heat in fahrenheit"),
    (Reason.VETO_UNIT, "wake me at 5 am", "wake me at 5 pm"),
    (Reason.VETO_UNIT, "how many days is it", "how many hours is it"),
    (Reason.VETO_QUOTE, 'what does "pending" mean', 'what does "posted" mean'),
    (Reason.VETO_QUOTE, "what does \u201cpending\u201d mean", "what does it mean"),
    # negation and opposites
    (Reason.VETO_NEGATION, "I can log in", "I can't log in"),
    (Reason.VETO_NEGATION, "which dishes are vegan", "which dishes are not vegan"),
    (Reason.VETO_NEGATION, "tea with milk", "tea without milk"),
    (Reason.VETO_NEGATION, "take the pill with food", "never take the pill with food"),
    (Reason.VETO_NEGATION, "I have a visa but no passport", "I have a passport but no visa"),
    (Reason.VETO_POLARITY, "how do I enable 2FA", "how do I disable 2FA"),
    (Reason.VETO_POLARITY, "turn on the light", "turn off the light"),
    (Reason.VETO_POLARITY, "turn the volume up", "turn the volume down"),
    (Reason.VETO_POLARITY, "how do I log in", "how do I log out"),
    (Reason.VETO_POLARITY, "increasing the limit", "how to decrease the limit"),
    (Reason.VETO_POLARITY, "signs before surgery", "signs after surgery"),
    (Reason.VETO_POLARITY, "the maximum fee", "the minimum fee"),
    (Reason.VETO_POLARITY, "does A cost more than B", "does A cost less than B"),
    (Reason.VETO_POLARITY, "a refund after 30 days", "a refund within 30 days"),
    (Reason.VETO_POLARITY, "who is taller, Ann or Bob", "who is shorter, Ann or Bob"),
    (Reason.VETO_POLARITY, "can I return used items", "can I return unused items"),
    (Reason.VETO_POLARITY, "how do I give a refund", "how do I get a refund"),
    (Reason.VETO_POLARITY, "how to unsubscribe", "how do I subscribe"),
    (Reason.VETO_POLARITY, "is it reversible", "is it irreversible"),
    (Reason.VETO_POLARITY, "how do I deactivate it", "how do I activate it"),
    # things of one kind, persons, names, questions
    (Reason.VETO_KIND, "the debit card fee", "the credit card fee"),
    (Reason.VETO_KIND, "translate it to french", "translate it to german"),
    (Reason.VETO_KIND, "hotels in paris", "hotels in london"),
    (Reason.VETO_PERSON, "tell me your name", "tell me my name"),
    (Reason.VETO_PERSON, "how old is he", "how old is she"),
    (Reason.VETO_NAME, "who leads Acme", "who leads Globex"),
    (Reason.VETO_NAME, "who is the CEO of Apple?", "who is the CEO of Google?"),
    (Reason.VETO_QUESTION, "when is the party", "where is the party"),
    # who does what to whom
    (Reason.VETO_ORDER, "does Ann manage Bob", "does Bob manage Ann"),
    (Reason.VETO_ORDER, "is Ann the manager of Bob", "is Bob the manager of Ann"),
    (Reason.VETO_ORDER, "who manages Bob?", "who does Bob manage?"),
    (Reason.VETO_ORDER, "why does my dog chase my cat", "why does my cat chase my dog"),
    (Reason.VETO_ORDER, "only admins can delete", "admins can only delete"),
    (Reason.VETO_ORDER, "is A faster than B", "is B faster than A"),
    (Reason.VETO_ORDER, "fly from Oslo to Bergen", "fly from Bergen to Oslo"),
    (Reason.VETO_ORDER, "move it from savings", "move it to savings"),
    (Reason.VETO_ORDER, "can you call me Max", "can I call you Max"),
    (Reason.VETO_ORDER, "fly from New York to Las Vegas", "fly from Las Vegas to New York"),
]

SAME = [
    ("How do I reset my password?", "how do I reset my password"),
    ("How do I reset my password?", "What is the way to reset my password?"),
    ("what's on my list", "what is on my list"),
    ("it\u2019s late", "it's late"),
    ("1,234 items", "there are 1234 items"),
    ("two tickets", "2 tickets"),
    ("twenty five people", "for 25 people"),
    ("one hundred and five", "105 of them"),
    ("2 thousand", "for 2,000"),
    ("5k users", "5000 users"),
    ("$5.00", "for $5"),
    ("is that the one", "is that it"),
    ("what is 2+2", "say what 2 + 2 is"),
    ("the first time it failed", "it failed"),
    ("on May 5, 2024", "on 5 May 2024"),
    ("on the 5th of May", "on May 5"),
    ("on 2024-05-05", "on May 5th, 2024"),
    ("on May 05", "on 5 May"),
    ("version 2.0", "version 2"),
    ("may I march in", "I may march in"),
    ("w-2 form", "my w2 form"),
    ("a $100 refund", "a 100 dollars refund"),
    ("five percent", "that is 5%"),
    ("a run of 5 kilometers", "a run of 5 km"),
    ("how long in days per year", "days each year"),
    ('a "declined" message', "a message that says declined"),
    ("I cannot log in", "I can't log in"),
    ("why isn't my card working", "why is my card not working"),
    ("why didn't my card work", "can you say why my card did not work"),
    ("can you give me a refund", "can I get a refund"),
    ("the ticket is unused", "the ticket is not used"),
    ("I have trouble logging in", "I can't log in"),
    ("I don't know how to pay", "how do I pay"),
    ("I'm not happy", "I am unhappy"),
    ("the amount is not correct", "the amount is incorrect"),
    ("the weather today", "the weather"),
    ("difference between cats and dogs", "difference between dogs and cats"),
    ("what is the capital of France", "the capital of France is what"),
    ("does Acme ship to Canada", "does acme ship to canada or not"),
    ("I saw it yesterday " + "and then it went away " * 3, "and then it went away " * 3),
    ("how can I find out", "how can I look it up"),
]


@pytest.mark.parametrize(("kind", "asked", "stored"), DIFFERENT)
def test_different_questions_are_told_apart(kind: Reason, asked: str, stored: str) -> None:
    kinds = {found.kind for found in differences(read(asked), read(stored))}
    assert kind in kinds
    assert veto(asked, stored) is not None


@pytest.mark.parametrize(("asked", "stored"), SAME)
def test_the_same_question_in_other_words_is_left_alone(asked: str, stored: str) -> None:
    assert veto(asked, stored) is None


@pytest.mark.parametrize(("asked", "stored"), [(one, other) for _, one, other in DIFFERENT] + SAME)
def test_a_veto_is_the_same_both_ways(asked: str, stored: str) -> None:
    there, back = veto(asked, stored), veto(stored, asked)
    assert (there is None) == (back is None)
    if there is not None and back is not None:
        assert there.kind is back.kind


def test_a_veto_shows_the_two_pieces() -> None:
    assert veto("where is order 1234", "where is order 1235") == Veto(Reason.VETO_NUMBER, "1234", "1235")
    assert veto("USD to EUR", "EUR to USD") == Veto(Reason.VETO_CURRENCY, "usd eur", "eur usd")
    assert veto("enable it", "disable it") == Veto(Reason.VETO_POLARITY, "enabl", "disabl")
    assert veto("I can log in", "I can't log in") == Veto(Reason.VETO_NEGATION, "log", "can't")


def test_complaint_02_opposites_are_told_apart_whatever_the_score() -> None:
    for one, other in (("enable", "disable"), ("turn on", "turn off"), ("lock", "unlock"), ("allow", "block")):
        found = veto(f"how do I {one} notifications", f"how do I {other} notifications")
        assert found is not None
        assert found.kind is Reason.VETO_POLARITY


def test_complaint_03_sums_that_differ_in_one_number() -> None:
    assert veto("what is 17 + 25", "what is 17 + 26") == Veto(Reason.VETO_NUMBER, "25", "26")
    assert veto("what is 17 + 25", "what is 25 + 17") == Veto(Reason.VETO_NUMBER, "17 25", "25 17")
    assert veto("what is 17 + 25", "what does 17 + 25 make") is None


def test_complaint_08_the_questions_of_two_persons_are_told_apart() -> None:
    assert veto("show the orders of Ann", "show the orders of Bob") == Veto(Reason.VETO_NAME, "ann", "bob")


def test_both_opposites_in_both_questions_exchanged() -> None:
    found = veto("turn on wifi and off bluetooth", "turn off wifi and on bluetooth")
    assert found is not None


WORDS = st.sampled_from(
    [
        "how",
        "do",
        "I",
        "enable",
        "disable",
        "card",
        "12",
        "13",
        "two",
        "not",
        "can't",
        "my",
        "your",
        "USD",
        "EUR",
        "to",
        "from",
        "Ann",
        "Bob",
        "manage",
        "May",
        "5",
        "today",
        "A-1",
        "km",
        "on",
        "off",
        "who",
        "does",
        "first",
        "-3",
    ]
)
TEXTS = st.lists(WORDS, max_size=9).map(" ".join) | st.text(max_size=30)


@given(TEXTS)
def test_a_question_is_no_other_than_itself(text: str) -> None:
    assert veto(text, text) is None


@given(TEXTS, TEXTS)
def test_kinds_are_the_same_both_ways(one: str, other: str) -> None:
    there = {found.kind for found in differences(read(one), read(other))}
    assert there == {found.kind for found in differences(read(other), read(one))}


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_numbers_agree_exactly_if_they_are_equal(one: int, other: int) -> None:
    found = veto(f"is order {one} here yet", f"has order {other:,} come")
    assert (found is None) == (one == other)


@given(st.text(alphabet=string.ascii_letters + " ", min_size=1, max_size=20))
def test_a_change_of_case_inside_a_text_is_told(text: str) -> None:
    changed = f"x{text}".swapcase()
    assert (veto(f"x{text}", changed) is None) == (changed == f"x{text}")


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    assert read(text).text is not None
