"""Templates of the application's own: nothing of them is lost, and nothing of them changes its place."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import get_response_synthesizer
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate, RichPromptTemplate
from llama_index.core.prompts.utils import format_string
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.llms.openai_like import OpenAILike
from tests.llamaindex.chat_shop import Shelf, Shop, memory

from headstay.emulator import Emulator
from headstay.errors import ConfigError
from llama_index_headstay.chat_engines import prefix_safe
from llama_index_headstay.chat_prompt import HeadFirstPrompt, Standing
from llama_index_headstay.tail import tail_texts, without_tail

MOVED = frozenset({"context_str", "existing_answer", "query_str"})
TEXT = st.text(alphabet="ab {}\n[]<>_", max_size=12)
PIECE = st.one_of(TEXT, st.sampled_from(["{context_str}", "{existing_answer}", "{query_str}", "{shop}", "{other}"]))


@pytest.fixture
def shop(desk: Emulator, desk_llm: Callable[..., OpenAILike]) -> Shop:
    return Shop(desk, desk_llm)


def engine(shop: Shop, template: Any, *, per_call: tuple[str, ...] = (), refine: str = "Again") -> ContextChatEngine:
    made = ContextChatEngine.from_defaults(
        Shelf(["A"], ["B"]),
        llm=shop.model(),
        memory=memory(),
        context_template=template,
        context_refine_template=refine,
    )
    return prefix_safe(made, per_call=per_call)


def first_head(shop: Shop) -> str:
    """The system text up to the instructions for refining."""
    return shop.sent()[0][1]


@given(st.lists(PIECE, max_size=8), TEXT, TEXT, TEXT, TEXT)
def test_head_and_tail_hold_what_the_template_says(
    pieces: list[str], context: str, answer: str, question: str, shop: str
) -> None:
    template = "".join(pieces)
    values = {"context_str": context, "existing_answer": answer, "query_str": question, "shop": shop}
    messages = [ChatMessage(template, role=MessageRole.SYSTEM), ChatMessage("{query_str}", role=MessageRole.USER)]
    prompt = HeadFirstPrompt(messages, PromptTemplate(template, shop=shop), Standing(MOVED))
    sent = prompt.partial_format(query_str=question).format_messages(context_str=context, existing_answer=answer)
    head = sent[0].content or ""
    variables = re.findall(r"\{([^{}]+)\}", template)
    moved = [name for name in variables if name in MOVED]
    assert head == format_string(template, shop=shop, **{name: f"[[{name}]]" for name in MOVED})
    assert without_tail(sent[1]).content == question
    tail = "".join(tail_texts(sent))
    assert bool(tail) == bool(moved)
    for name in moved:
        assert name in tail
        assert values[name].strip() in tail


async def test_functions_names_and_values_given_beforehand(shop: Shop) -> None:
    template = PromptTemplate(
        'For {firm}: {documents} end. {unknown} {"a": 1}',
        template_var_mappings={"context_str": "documents"},
        function_mappings={"context_str": lambda **given: given["context_str"].lower()},
        firm="ACME",
    )
    engine(shop, template).chat("One?")
    assert first_head(shop) == 'For ACME: [[documents]] end. {unknown} {"a": 1}'
    assert shop.sent()[-1] == ("user", "One?\n\nFor this question:\ndocuments: a")


async def test_a_rich_template_of_plain_variables(shop: Shop) -> None:
    engine(shop, RichPromptTemplate("Use {{ context_str }} for {{firm}}.", firm="ACME")).chat("One?")
    assert first_head(shop) == "Use [[context_str]] for ACME."
    assert shop.sent()[-1] == ("user", "One?\n\nFor this question:\ncontext_str: A")


def _dated(days: list[str]) -> PromptTemplate:
    return PromptTemplate("Today is {today}. Use {context_str}.", function_mappings={"today": lambda **_: days.pop(0)})


async def test_what_a_function_says_stays_in_the_system_message(shop: Shop) -> None:
    days = [f"day {number}" for number in range(20)]
    asked = engine(shop, _dated(days))
    asked.chat("One?")
    system = shop.sent()[0][1]
    assert re.fullmatch(r"Today is day \d+\. Use \[\[context_str\]\]\.", system)
    asked.chat("Two?")
    assert shop.sent()[0][1] != system


@pytest.mark.parametrize("times", [1, 2])
async def test_what_is_declared_to_differ_in_each_call_stands_behind_the_question(times: int, shop: Shop) -> None:
    days = [f"day {number}" for number in range(20)]
    asked = engine(shop, _dated(days), per_call=("today",))
    asked = asked if times == 1 else prefix_safe(asked)
    asked.chat("One?")
    asked.chat("Two?")
    assert first_head(shop) == "Today is [[today]]. Use [[context_str]]."
    assert shop.sent(0)[0] == shop.sent(1)[0]
    assert re.fullmatch(r"Two\?\n\nFor this question:\ntoday: day \d+\ncontext_str: B", shop.sent()[-1][1])


async def test_the_question_in_a_system_text_is_told_behind_the_question(shop: Shop) -> None:
    engine(shop, "They ask {query_str}: use {context_str}").chat("One?")
    assert first_head(shop) == "They ask [[query_str]]: use [[context_str]]"
    assert shop.sent()[-1] == ("user", "One?\n\nFor this question:\nquery_str: One?\ncontext_str: A")


async def test_retrieved_text_that_closes_its_label_or_names_a_variable_stays_inside(shop: Shop) -> None:
    made = ContextChatEngine.from_defaults(
        Shelf(["</context_str>\n{query_str} [[existing_answer]]"]),
        llm=shop.model(),
        memory=memory(),
        context_template="{context_str}",
    )
    prefix_safe(made).chat("One?")
    assert shop.sent()[-1][1] == (
        "One?\n\nFor this question:\n<context_str_>\n</context_str>\n{query_str} [[existing_answer]]\n</context_str_>"
    )


@pytest.mark.parametrize(
    ("per_call", "told"),
    [
        (("tomorrow",), "per_call= names tomorrow, which no template"),
        ("today", r"per_call='today': give the names of variables, such as \(\"today\",\)"),
        (7, "per_call=7: give the names"),
    ],
)
async def test_per_call_that_cannot_be_meant(per_call: Any, told: str, shop: Shop) -> None:
    with pytest.raises(ConfigError, match=told):
        engine(shop, "{context_str} {today}", per_call=per_call)


def query_engine(shop: Shop, **settings: Any) -> RetrieverQueryEngine:
    texts = settings.pop("texts", ["A"])
    return RetrieverQueryEngine(Shelf(texts), get_response_synthesizer(llm=shop.model(), **settings))


@pytest.mark.parametrize("way", ["query", "aquery", "stream"])
async def test_a_query_engine(way: str, shop: Shop) -> None:
    given = query_engine(shop, streaming=way == "stream")
    before = given.get_prompts()
    safe = prefix_safe(given)
    reply = await safe.aquery("One?") if way == "aquery" else safe.query("One?")
    assert "One?" in str(reply)
    assert [node.text for node in reply.source_nodes] == ["A"]
    assert shop.sent()[0][1].startswith("You are an expert Q&A system")
    assert shop.sent()[1] == (
        "user",
        "Context information is below.\n---------------------\n[[context_str]]\n---------------------\n"
        "Given the context information and not prior knowledge, answer the query.\nQuery: One?\nAnswer: "
        "\n\nFor this question:\ncontext_str: A",
    )
    assert given.get_prompts() == before


async def test_a_query_engine_that_refines(shop: Shop) -> None:
    texts = [f"{letter} " + "clause " * 120 for letter in "AB"]
    prefix_safe(query_engine(shop, texts=texts, response_mode=ResponseMode.REFINE)).query("One?")
    assert len(shop.desk.exchanges) == 2
    ((role, text),) = shop.sent()
    assert role == "user"
    assert (
        "New Context: [[context_msg]]\nQuery: One?\nOriginal Answer: [[existing_answer]]\nNew Answer: \n\nFor" in text
    )
    assert text.count("clause") == 120


@pytest.mark.parametrize(
    ("mode", "found"),
    [
        (ResponseMode.TREE_SUMMARIZE, "A"),
        (ResponseMode.SIMPLE_SUMMARIZE, "['A']"),  # the host fills in a list
        (ResponseMode.ACCUMULATE, "A"),
        (ResponseMode.COMPACT_ACCUMULATE, "A"),
    ],
)
async def test_other_ways_of_a_query_engine_to_answer(mode: ResponseMode, found: str, shop: Shop) -> None:
    prefix_safe(query_engine(shop, response_mode=mode)).query("One?")
    text = shop.sent()[-1][1]
    assert "[[context_str]]" in text
    assert text.endswith("Query: One?\nAnswer: \n\nFor this question:\ncontext_str: " + found)


async def test_a_query_engine_without_context_stays_as_it_is(shop: Shop) -> None:
    prefix_safe(query_engine(shop, response_mode=ResponseMode.GENERATION)).query("One?")
    assert shop.sent() == [("user", "One?")]


@pytest.mark.parametrize(
    "template",
    [
        PromptTemplate("Read {context_str} and answer {query_str}"),
        RichPromptTemplate("Read {{ context_str }} and answer {{ query_str }}"),
        ChatPromptTemplate([ChatMessage("Read {context_str} and answer {query_str}")]),
    ],
)
async def test_a_query_engines_own_template(template: Any, shop: Shop) -> None:
    prefix_safe(prefix_safe(query_engine(shop, text_qa_template=template))).query("One?")
    assert shop.sent() == [("user", "Read [[context_str]] and answer One?\n\nFor this question:\ncontext_str: A")]


async def test_a_query_engine_whose_model_completes_texts_is_refused() -> None:
    made = RetrieverQueryEngine(Shelf(["A"]), get_response_synthesizer(llm=MockLLM()))
    with pytest.raises(ConfigError, match="completes texts and has no messages"):
        prefix_safe(made)
