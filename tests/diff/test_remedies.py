"""What is printed for a value or a section can be pasted: it compiles, and it cuts out what differs."""

import ast
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstay import diff
from headstay.excerpt import hidden
from headstay.remedies import REMEDIES
from headstay.slots import Slot
from headstay.values import Declared, extract

FRONT, REST = "You are a desk agent. Be good.\n", "\nAlways cite the policy.\nEnd."


def body(system: str) -> dict[str, Any]:
    return {"model": "claude-opus-5", "max_tokens": 9, "system": system, "messages": [{"role": "user", "content": "?"}]}


def remedies(one: str, other: str) -> list[str]:
    return [finding.remedy for finding in diff(body(one), body(other)).findings]


def slot_of(remedy: str) -> Slot | None:
    """Build the slot that a remedy prints; None where it prints none."""
    at = remedy.find("Slot(")
    if at < 0 or remedy in REMEDIES.values() or "Slot(..." in remedy:
        return None
    ends = (n for n, char in enumerate(remedy) if char == ")" and n > at and _is_source(remedy[at : n + 1]))
    call = ast.parse(remedy[at : next(ends) + 1], mode="eval").body
    assert isinstance(call, ast.Call)
    return Slot(ast.literal_eval(call.args[0]), every=ast.literal_eval(call.keywords[0].value))


def _is_source(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def pasted(one: str, other: str) -> set[tuple[str, ...]]:
    """Return the heads that are left of two texts once every printed line is pasted."""
    slots = [slot_of(remedy) for remedy in remedies(one, other)]
    assert None not in slots
    declared = Declared((), tuple(slot for slot in slots if slot))
    return {extract([text], declared).head for text in (one, other)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Now 21:39:25. Customer Ada.", "Now 21:40:26. Customer Ada."),
        ("Hello ann, your balance is 51 EUR.", "Hello bob, your balance is 0 EUR."),
        ("21:39:25. Be good to Ada.", "21:40:25. Be good to Bob."),
        ("Сейчас 28 ноября 21:15. Клиент Анна.", "Сейчас 29 ноября 21:16. Клиент Борис."),
        ("现在是2026年11月29日。客户是田中太郎。", "现在是2026年11月30日。客户是鈴木花子。"),
        ("现在是2026年11月29日\uff0c客户是田中太郎。", "现在是2026年11月30日\uff0c客户是鈴木花子。"),
        ("## Memory\n- likes tea\n- has cats\n\n## Rules\nBe kind", "## Memory\n- likes coffee\n\n## Rules\nBe kind"),
        ("<context>\nParcels take days.\n</context>", "<context>\nRefunds are free.\n\nAsk.\n</context>"),
    ],
)
def test_two_texts_are_one_with_everything_pasted(before: str, after: str) -> None:
    assert len(pasted(FRONT + before + REST, FRONT + after + REST)) == 1


@pytest.mark.parametrize(
    ("before", "after", "remedy"),
    [
        (
            "## Memory of the desk\n- likes tea",
            "## Memory of the desk\n- likes tea\n- has cats",
            'declare the section: Slot("## Memory of the desk", every="conversation"), or send it last',
        ),
        (
            "## Retrieved documents\nParcels take three days.",
            "## Retrieved documents\nRefunds are free.",
            'declare the section: Slot("## Retrieved documents", every="call"), or pass it as tail=',
        ),
        (
            'User profile: {"likes": "tea"}',
            'User profile: {"likes": "tea and cats", "home": "Oslo"}',
            'declare the section: Slot(r"^User profile: (?P<user_profile>.+)$", every="conversation"), or send it last',
        ),
        (
            "<memory>\nlikes tea\n</memory>",
            "<memory>\nlikes coffee\n</memory>",
            r'declare the section: Slot(r"<memory>(?P<memory>[\s\S]*?)</memory>", every="conversation")'
            ", or send it last",
        ),
        (  # no end can be told
            "**Memories**\n- a",
            "**Memories**\n- a\n- b",
            'declare the section with Slot(..., every="conversation"), or send it last',
        ),
        (  # the heading is new
            "Be brief.",
            "Be brief.\n\n## Context\nParcels take three days.",
            'declare the section with Slot(..., every="call"), or pass it as tail=',
        ),
        (  # the heading holds a mail address
            "## Memory of ada@example.com\n- likes tea",
            "## Memory of ada@example.com\n- likes tea\n- has cats",
            'declare the section with Slot(..., every="conversation"), or send it last',
        ),
        (  # the tag stands there twice
            "<memory>a b</memory>\n<memory>likes tea</memory>",
            "<memory>a b</memory>\n<memory>likes coffee</memory>",
            'declare the section with Slot(..., every="conversation"), or send it last',
        ),
    ],
)
def test_a_section_is_declared_by_what_announces_it(before: str, after: str, remedy: str) -> None:
    assert remedies(f"{FRONT}{before}\n{REST}", f"{FRONT}{after}\n{REST}") == [remedy]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("api_key=sk-abcdefghijkl for Ada Byron now", "api_key=sk-abcdefghijkl for Max Planck now", True),
        ("Ask ada.byron@example.com about Order 51", "Ask ada.byron@example.com about Order 52", True),
        ("password: hunter2secret Ada", "password: hunter2secret Bob", True),
        # the value is the secret itself
        ("The api_key=sk-abcdefghijkl is used", "The api_key=sk-mnopqrstuvwx is used", False),
    ],
)
def test_a_line_quotes_no_secret(before: str, after: str, shown: bool) -> None:
    (remedy,) = remedies(FRONT + before + REST, FRONT + after + REST)
    assert hidden(remedy) == remedy
    assert (slot_of(remedy) is not None) is shown
    assert "sk-" not in remedy
    assert "hunter2" not in remedy
    assert "byron" not in remedy


WORDS = [
    *("answer", "brief", "calm", "Ada Byron", "51 EUR", "2026-11-29", "10:15:00", "is", "for", ".", ",", ":", "\n"),
    *("sk-ant-api03-abcdefgh12345", "api_key=abcd1234efgh", "password: hunter22", "ada@example.com", "\"'", "\\"),
    *("Bearer abcdefghijklmnop", "https://ada:secret@example.com/x", "你是客服。", "\u2028", "(", "$", "{x}", "\r\n"),
    *("\n# ", "## Memory\n"),
]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=14)


@settings(max_examples=400)
@given(TEXTS, st.data())
def test_every_line_that_is_printed_compiles(words: list[str], data: st.DataObject) -> None:
    other = list(words)
    for at in data.draw(st.sets(st.integers(0, len(words) - 1), min_size=1, max_size=3)):
        other[at] = data.draw(st.sampled_from(WORDS))
    one, changed = (FRONT + " ".join(texts) + REST for texts in (words, other))
    for remedy in remedies(one, changed):
        assert hidden(remedy) == remedy
        slot = slot_of(remedy)
        if slot is not None:
            assert [len(slot.spans(text)) for text in (one, changed)] == [1, 1]
