"""What may be answered from the cache, and how."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.semantic.eligible import WINDOW, Eligibility, eligibility, is_code, is_readable
from headstay.semantic.query import Query, Templates, read_query
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn

SEMANTIC = Eligibility("semantic")


@dataclass(frozen=True)
class Count:
    """What an embedder says of a text."""

    count: int
    unknown: int = 0


def ask(text: str) -> AskedRequest:
    return AskedRequest((Turn("system", "Be brief."), Turn("user", text)))


def allowed(request: AskedRequest, tokens: Count | None = None, **settings: bool) -> Eligibility:
    return eligibility(request, read_query(request, Templates()), tokens, **settings)


def test_a_plain_question_is_compared_by_meaning() -> None:
    assert allowed(ask("How do I reset my password?"), Count(9)) == SEMANTIC
    assert allowed(ask("How do I reset my password?")) == SEMANTIC


def test_complaint_05_steps_of_an_agent_are_never_looked_up() -> None:
    asked = ask("What is the weather?")
    call = Turn("assistant", "", other='[{"name":"weather"}]')
    assert allowed(replace(asked, turns=(*asked.turns, call, Turn("tool", "Sunny")))) == Eligibility(
        "none", Reason.TOOL_RESULT_LAST
    )
    assert allowed(replace(asked, turns=(*asked.turns, call))) == Eligibility("none", Reason.NOT_HUMAN_LAST)


def test_complaint_05_a_question_after_the_steps_of_an_agent_is_a_new_question() -> None:
    steps = (Turn("assistant", "", other='[{"name":"weather"}]'), Turn("tool", "Sunny"), Turn("assistant", "Sunny."))
    asked = AskedRequest((Turn("user", "Weather?"), *steps, Turn("user", "And how warm is it?")))
    assert allowed(asked) == SEMANTIC


def test_a_request_without_a_human_is_never_looked_up() -> None:
    for turns in ((), (Turn("system", "Be brief."),), (Turn("user", "Hi"), Turn("assistant", "The answer is"))):
        assert allowed(AskedRequest(turns)) == Eligibility("none", Reason.NOT_HUMAN_LAST)


def test_an_image_by_reference_anywhere_is_never_looked_up_and_one_by_content_is() -> None:
    seen = AskedRequest((Turn("user", "What is this?", other='[{"image":"00ff"}]'),))
    assert allowed(seen) == SEMANTIC
    linked = replace(seen, turns=(Turn("user", "Look", unhashed=True), Turn("assistant", "Yes"), *seen.turns))
    assert allowed(linked) == Eligibility("none", Reason.UNHASHED_MEDIA)


def test_an_image_without_words_is_compared_exactly() -> None:
    assert allowed(AskedRequest((Turn("user", " ", other='[{"image":"00ff"}]'),))) == Eligibility(
        "exact", Reason.NO_TEXT
    )


def test_complaint_07_a_schema_known_by_name_only_is_never_looked_up() -> None:
    asked = replace(ask("Why?"), opaque="app.Answer")
    assert allowed(asked) == Eligibility("none", Reason.OPAQUE_SCHEMA)


def test_several_answers_are_never_looked_up() -> None:
    assert allowed(replace(ask("Why?"), generations=2)) == Eligibility("none", Reason.SEVERAL_GENERATIONS)


def test_complaint_11_a_text_past_the_window_is_compared_exactly() -> None:
    asked = ask("Why is it so?")
    over = Eligibility("exact", Reason.OVER_WINDOW)
    assert allowed(asked, Count(WINDOW)) == SEMANTIC
    assert allowed(asked, Count(WINDOW + 1)) == over
    query = read_query(asked, Templates())
    assert eligibility(asked, query, Count(513), window=512) == over
    assert eligibility(asked, query, Count(9_000), window=None) == SEMANTIC


def test_complaint_11_without_a_count_more_words_than_the_window_are_too_many() -> None:
    long = Query(" ".join(["word"] * 300), "declared")
    assert eligibility(ask(long.text), long, None) == Eligibility("exact", Reason.OVER_WINDOW)


def test_complaint_23_the_reason_of_the_query_is_told() -> None:
    assert allowed(ask("Context: it is late.\nWhat now?")) == Eligibility("exact", Reason.TEMPLATED_TEXT)


def test_complaint_11_where_neither_window_nor_tokens_are_known_the_bundled_window_counts() -> None:
    asked = ask("Why?")
    for words, tier in ((WINDOW - 2, "semantic"), (WINDOW - 1, "exact")):
        query = Query(" ".join(["word"] * words), "declared")
        assert eligibility(asked, query, None, window=None, english=False).tier == tier


def test_unknown_tokens_are_compared_exactly() -> None:
    assert allowed(ask("What is a \u2211?"), Count(7, unknown=1)).tier == "exact"
    assert allowed(ask("What is a xyz?"), Count(7, unknown=1)) == Eligibility("exact", Reason.UNKNOWN_TOKENS)


@pytest.mark.parametrize(
    "text",
    [
        "con m\u1ea3",
        "b\u1ea1n b\u00e1n nh\u00e0 \u1edf \u0111\u00e2u",
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
        "\u1797\u17b6\u179f\u17b6",
        "I feel \U0001f600 today",
        "I feel \U0001f622 today",
        "\u65e5\u672c\u8a9e",
        "\ud55c\uad6d\uc5b4",
        "\u043f\u0440\u0438\u0432\u0435\u0442",
        "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
        "Jak mog\u0119 usun\u0105\u0107 konto?",
        "hesab\u0131m",
        "a\u200bb",
        "is 2 \u2260 3",
        "\uff21",
        "a\x00b",
    ],
)
def test_scripts_and_signs_that_the_embedder_blurs_are_compared_exactly(text: str) -> None:
    assert not is_readable(text)
    assert allowed(ask(text)) == Eligibility("exact", Reason.UNSUPPORTED_SCRIPT)


@pytest.mark.parametrize(
    "text", ["caf\u00e9 and na\u00efve Zo\u00eb", "it\u2019s \u201cthat\u201d \u2013 \u20ac5 or \u00a36", "20 \u00b0C"]
)
def test_borrowed_words_and_common_signs_are_readable(text: str) -> None:
    assert is_readable(text)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126)))
def test_printable_ascii_is_readable(text: str) -> None:
    assert is_readable(text)


def test_another_embedder_says_itself_what_it_reads() -> None:
    asked = ask("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35")
    assert allowed(asked, Count(5), english=False) == SEMANTIC
    assert allowed(asked, Count(5, unknown=1), english=False) == Eligibility("exact", Reason.UNKNOWN_TOKENS)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("Wie l\u00f6sche ich mein Konto?", 9), ("Donde esta mi tarjeta", 8), ("Hesabimi nasil silebilirim?", 12)],
)
def test_other_languages_in_latin_letters_are_compared_exactly(text: str, pieces: int) -> None:
    """The counts are those of the bundled vocabulary, without the tokens at both ends."""
    assert allowed(ask(text), Count(pieces + 2)) == Eligibility("exact", Reason.UNFAMILIAR_LANGUAGE)
    assert allowed(ask(text), Count(pieces + 2), english=False) == SEMANTIC


def test_rare_english_words_are_no_other_language() -> None:
    assert allowed(ask("what does idiosyncratic mean"), Count(9)) == SEMANTIC


@pytest.mark.parametrize(
    "text",
    [
        "ls -l",
        "ls -L",
        "what does ls -l do",
        "git commit --amend",
        "  indented = 1",
        "\treturn x",
        "what does `x` mean",
        "print(x)",
        "x == y",
        "a -> b",
        "std::vector",
        "rm file && ls",
        "echo $HOME",
        "cat /etc/hosts",
        "run ./build.sh now",
        "C:\\Users",
        "if (a) { b }",
        "x = 3",
        "my_function",
        "getUserNameById",
        "SELECT name FROM users",
        "<div class='a'>",
        "</div>",
        "i++",
        "list[0]",
        "git status",
        "pip install numpy",
    ],
)
def test_code_is_compared_exactly(text: str) -> None:
    assert is_code(text)
    query = Query(text, "declared")
    assert eligibility(ask(text), query, None) == Eligibility("exact", Reason.CODE)


@pytest.mark.parametrize(
    "text",
    [
        "my card(s) are lost",
        "What is 2+2?",
        "Is 3 < 5?",
        "Is it open 24/7 and/or at night?",
        "Where's my $100?",
        "my e-mail is ann@example.com",
        "top-up - how?",
        "Is C++ hard to learn?",
        "I was charged (again) for it; why?",
        "How do I import goods?",
        "What is an iPhone?",
        "Which class is the best?",
    ],
)
def test_a_question_in_words_is_no_code(text: str) -> None:
    assert not is_code(text)


@given(st.text(max_size=60), st.integers(0, 600), st.integers(0, 3))
def test_a_tier_below_semantic_has_a_reason(text: str, count: int, unknown: int) -> None:
    found = allowed(ask(text), Count(count, unknown))
    assert (found.tier == "semantic") == (found.reason is None)
    assert found.tier != "none"
