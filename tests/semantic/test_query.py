"""Which text is compared by meaning, and what a template is."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.semantic.query import (
    MOST_WORDS,
    Query,
    Templates,
    learn,
    learn_all,
    looks_composed,
    normal_text,
    read_query,
)
from headstay.semantic.reasons import Reason
from headstay.semantic.request import AskedRequest, Turn

QUESTIONS = (
    "How do I reset my password?",
    "Where is my card?",
    "Can I pay by cheque?",
    "What does a transfer cost?",
    "How do I close my account?",
    "How do I verify my identity?",
)
RAG = "Use the context.\n\nContext:\nCards arrive in five days.\nFees are listed below.\n\nQuestion: {}\nAnswer:"


def ask(text: str, *, query: str | None = None) -> AskedRequest:
    return AskedRequest((Turn("system", "Be brief."), Turn("user", text)), query=query)


def shown(texts: list[str]) -> Templates:
    return learn_all(texts)


def test_a_plain_question_is_the_query() -> None:
    assert read_query(ask("  Where is my card?\r\n"), Templates()) == Query("Where is my card?", "whole")


def test_the_last_human_text_asks_even_if_a_system_message_follows() -> None:
    request = AskedRequest(
        (Turn("user", "First?"), Turn("assistant", "Yes."), Turn("user", "Why?"), Turn("system", "-"))
    )
    assert request.asking == 2
    assert read_query(request, Templates()).text == "Why?"


def test_a_template_needs_three_texts() -> None:
    texts = [RAG.format(question) for question in QUESTIONS]
    for count in (0, 1, 2):
        assert read_query(ask(texts[4]), shown(texts[:count])).reason is Reason.TEMPLATED_TEXT
    query = read_query(ask(texts[4]), shown(texts[:3]))
    assert query == Query(
        "How do I close my account?",
        "template",
        RAG.partition("{}")[0],
        RAG.partition("{}")[2],
    )


def test_the_pieces_of_a_query_are_the_text() -> None:
    texts = [RAG.format(question) for question in QUESTIONS]
    for text in texts:
        query = read_query(ask(text), shown(texts))
        assert query.before + query.text + query.after == text


@pytest.mark.parametrize(
    "template",
    [
        "Question: {}",
        "{}\n\nAnswer in one sentence.",
        "<question>{}</question>",
        "Translate to French: {}",
        "**Question:** {}\n**Answer:**",
        "You are a helpful assistant of a bank. {}",
    ],
)
def test_templates_of_every_kind_are_cut_off(template: str) -> None:
    texts = [template.format(question) for question in QUESTIONS]
    assert read_query(ask(texts[5]), shown(texts[:3])).text == "How do I verify my identity?"


def test_a_common_start_of_natural_questions_is_no_template() -> None:
    texts = [f"How do I reset the password of my {thing}?" for thing in ("card", "phone", "router", "account", "watch")]
    assert read_query(ask(texts[0]), shown(texts)) == Query(texts[0], "whole")


def test_greetings_and_short_sentences_are_no_template() -> None:
    texts = [f"Hello there. {question}" for question in QUESTIONS]
    assert read_query(ask(texts[0]), shown(texts)).how == "whole"


def test_a_shared_sentence_counts_only_if_half_of_all_texts_have_it() -> None:
    start = "I lost my card on holiday. "
    few = [start + question for question in QUESTIONS[:3]] + [f"{question} {question}" for question in QUESTIONS]
    assert read_query(ask(few[0]), shown(few)).how == "whole"
    assert read_query(ask(few[0]), shown(few[:5])).text == QUESTIONS[0]


def test_two_templates_in_one_scope_are_both_found() -> None:
    texts = [form.format(question) for question in QUESTIONS for form in (RAG, "Question: {}\nBe brief:")]
    texts.append("hi")
    known = shown(texts)
    assert {read_query(ask(text), known).text for text in texts[:-1]} == set(QUESTIONS)
    assert read_query(ask("hi"), known) == Query("hi", "whole")


def test_context_that_changes_with_each_request_is_compared_exactly() -> None:
    texts = [f"Context:\nDocument {n} says {n * n}.\n\nQuestion: {q}" for n, q in enumerate(QUESTIONS)]
    assert all(read_query(ask(text), shown(texts)).reason is Reason.TEMPLATED_TEXT for text in texts)


@pytest.mark.parametrize("form", ["Context: {}\nQuestion: {}", "{0}\n{1}", "{1}\n{0}", "<d>{}</d>\n{}"])
def test_one_question_about_several_documents_makes_no_template_of_the_question(form: str) -> None:
    """Else the document would pass for the query, and a document that is nearly the same would get its answer."""
    texts = [form.format(f"Page {n}.", "What is the fee?") for n in range(6)]
    assert all(read_query(ask(text), shown(texts)).reason is Reason.TEMPLATED_TEXT for text in texts)


def test_the_first_texts_with_one_question_do_not_hide_the_template_for_good() -> None:
    texts = [RAG.format(f"What does plan {n} cost?") for n in range(8)]
    same = [RAG.format(question) for question in (texts[0], *QUESTIONS)]
    assert read_query(ask(RAG.format("Why?")), shown([*texts, *same])).text == "Why?"


@pytest.mark.parametrize(
    "text",
    [
        "The fee is two euros.\n\nWhat is the fee?",
        "Context: the fee is two euros. What is the fee?",
        "<doc>The fee is two euros.</doc> What is the fee?",
        "[INST] What is the fee?",
        "You are a poet who knows fees. What is the fee?",
        "Given the text below, answer. What is the fee?",
        " ".join(["word"] * (MOST_WORDS + 1)),
    ],
)
def test_text_that_looks_composed_is_not_compared_by_meaning(text: str) -> None:
    assert looks_composed(text)
    assert read_query(ask(text), Templates()).reason is Reason.TEMPLATED_TEXT


@pytest.mark.parametrize("text", [*QUESTIONS, "Can we meet at 10:30?", "Hi. It is lost! What now?", "3:2", ""])
def test_plain_text_does_not_look_composed(text: str) -> None:
    assert not looks_composed(text)


def test_a_declared_query_comes_first_and_the_rest_of_the_text_stays_exact() -> None:
    text = RAG.format("Where is my card?")
    query = read_query(ask(text, query=" Where is my card? "), Templates())
    assert query == Query("Where is my card?", "declared", RAG.partition("{}")[0], RAG.partition("{}")[2])


def test_a_declared_query_that_is_not_in_the_text_says_so() -> None:
    query = read_query(ask("Where is it?", query="Where is my card?"), Templates())
    assert query.reason is Reason.QUERY_NOT_IN_TEXT


def test_an_empty_declared_query_is_none() -> None:
    assert read_query(ask("Where is it?", query="  "), Templates()) == Query("Where is it?", "whole")


def test_a_text_without_a_query_between_the_template_is_left_whole() -> None:
    texts = [RAG.format(question) for question in QUESTIONS]
    empty = RAG.format("")
    query = read_query(ask(empty), shown(texts))
    assert query.text.strip()
    assert query.before + query.text + query.after == empty.strip()


def test_templates_keep_no_text_of_the_user() -> None:
    known = shown([RAG.format(f"My secret is {n}") for n in range(5)])
    assert all(isinstance(key, bytes) and len(key) == 16 for key in known.counts)


def test_what_is_known_stays_small_and_a_new_template_takes_over() -> None:
    known = Templates()
    for n in range(2_000):
        known = learn(known, f"Old header {n % 3}\n\nQuestion: number {n}?")
    assert len(known.counts) <= 4_096
    assert known.texts <= 256
    for n in range(60):
        known = learn(known, f"New header\n\nQuestion: number {n}?")
    assert read_query(ask("New header\n\nQuestion: Why?"), known).text == "Why?"


def test_long_constant_context_is_cut_off_whatever_the_query_looks_like() -> None:
    context = "\n".join(f"Line {n} of the manual." for n in range(400))
    texts = [f"{context}\n\nQuestion: {question}" for question in (*QUESTIONS, "One.\nTwo.\nThree.\nFour?")]
    assert read_query(ask(texts[1]), shown(texts)).text == "Where is my card?"
    assert read_query(ask(texts[-1]), shown(texts)).before == f"{context}\n\nQuestion: "


def test_the_order_of_the_texts_does_not_matter() -> None:
    texts = [RAG.format(question) for question in QUESTIONS] + list(QUESTIONS)
    mixed = texts.copy()
    random.Random(7).shuffle(mixed)
    assert shown(texts).counts == shown(mixed).counts


@given(
    st.lists(st.text(alphabet="ab: \n?.<>/", max_size=40), max_size=12), st.text(alphabet="ab: \n?.<>/", max_size=60)
)
def test_nothing_is_lost_and_nothing_added(texts: list[str], text: str) -> None:
    query = read_query(ask(text), shown(texts))
    assert query.before + query.text + query.after == normal_text(text)
    assert query.text or not normal_text(text)


@given(st.text(max_size=40))
def test_normal_text_is_stable(text: str) -> None:
    assert normal_text(normal_text(text)) == normal_text(text)


@pytest.mark.parametrize("quoted", ['Answer this: "{}"', "Question:\n\u201c{}\u201d\nAnswer briefly:"])
def test_a_template_that_quotes_the_question_leaves_the_bare_question(quoted: str) -> None:
    templates = shown([quoted.format(question) for question in QUESTIONS[:3]])
    query = read_query(ask(quoted.format(QUESTIONS[4])), templates)
    assert (query.text, query.how, query.reason) == (QUESTIONS[4], "template", None)
    assert query.before + query.text + query.after == quoted.format(QUESTIONS[4])
