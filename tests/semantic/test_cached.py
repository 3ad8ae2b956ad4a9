"""`cached`: a chain whose answers are kept under the bare question."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from operator import itemgetter
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import (
    ConfigurableField,
    RunnableConfig,
    RunnableGenerator,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
    RunnableWithMessageHistory,
)

from headstay.emulator import Emulator
from headstay.errors import ConfigError
from langchain_headstay import SemanticCache, cached

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"
OTHER = "Where can I see the weather forecast?"

Claude = Callable[..., BaseChatModel]
Gpt = Callable[..., BaseChatModel]


class Desk:
    """Answers a question with its count; keeps what it was asked."""

    def __init__(self, make: Callable[[str], Any] = lambda question: f"This is the answer to <{question}>.") -> None:
        self.asked: list[Any] = []
        self.make = make

    def __call__(self, given: Any) -> Any:
        self.asked.append(given)
        return self.make(given if isinstance(given, str) else given["question"])


def retrieve(question: str) -> list[Document]:
    return [Document(f"At {time.monotonic()}: about {question}", metadata={"source": "faq.md", "page": 3})]


def rag(model: BaseChatModel) -> Any:
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Answer from the context."), ("human", "Context:\n{context}\n\nQuestion: {question}")]
    )
    context = itemgetter("question") | RunnableLambda(retrieve)
    return RunnablePassthrough.assign(context=context) | prompt | model | StrOutputParser()


def test_a_hit_skips_retrieval_and_model(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    chain = cached(rag(claude()), cache=cache, query="question")
    fresh = chain.invoke({"question": RESET})
    assert chain.invoke({"question": RESET}) == chain.invoke({"question": RESET_TOO}) == fresh
    assert OTHER in chain.invoke({"question": OTHER})
    assert len(desk.exchanges) == 2
    assert cache.metrics().hits == {"exact": 1, "semantic": 1}
    assert cache.metrics().output_tokens > 0


# --- inputs


@pytest.mark.parametrize(
    ("make", "query"),
    [
        (lambda question: question, None),
        (lambda question: question, str),
        (lambda question: {"question": question}, "question"),
        (lambda question: {"question": question, "style": "brief"}, "question"),
        (lambda question: {"question": question}, itemgetter("question")),
        (lambda question: [HumanMessage(question)], None),
        (lambda question: [("system", "You help."), ("human", question)], None),
        (lambda question: {"messages": [HumanMessage(question)], "style": "brief"}, None),
        (lambda question: ChatPromptValue(messages=[HumanMessage(question)]), None),
        (lambda question: StringPromptValue(text=question), None),
        (HumanMessage, None),
        (lambda question: {"question": question, "chat_history": [AIMessage("Hello.", id="1")]}, "question"),
        (lambda question: {"question": question, "documents": [Document("Rule 1", metadata={"page": 1})]}, "question"),
    ],
)
def test_each_kind_of_input_has_its_question(make: Callable[[str], Any], query: Any, cache: SemanticCache) -> None:
    runs: list[Any] = []

    def answer(given: Any) -> str:
        runs.append(given)
        return "Use the link in the settings."

    chain = cached(RunnableLambda(answer), cache=cache, query=query)
    assert len({chain.invoke(make(RESET)), chain.invoke(make(RESET)), chain.invoke(make(RESET_TOO))}) == 1
    assert len(runs) == 1
    assert cache.metrics().hits == {"exact": 1, "semantic": 1}
    chain.invoke(make(OTHER))
    assert len(runs) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"question": RESET, "style": "brief"}, {"question": RESET_TOO, "style": "long"}),
        ({"question": RESET}, {"question": RESET_TOO, "style": "long"}),
        # A field that says the same as the question is a field of its own.
        ({"question": RESET, "topic": RESET}, {"question": RESET_TOO, "topic": RESET_TOO}),
        ({"question": RESET, "docs": [Document("Rule 1")]}, {"question": RESET_TOO, "docs": [Document("Rule 2")]}),
        ({"question": RESET, "history": [AIMessage("Hi.")]}, {"question": RESET_TOO, "history": [AIMessage("Hello.")]}),
        ({"question": RESET, "n": 1}, {"question": RESET_TOO, "n": 2}),
        ({"question": RESET, "n": 1}, {"question": RESET_TOO, "n": "1"}),
    ],
)
@pytest.mark.parametrize("query", ["question", itemgetter("question")])
def test_everything_else_of_an_input_is_exact(one: Any, other: Any, query: Any, cache: SemanticCache) -> None:
    answers = Desk()
    chain = cached(RunnableLambda(answers), cache=cache, query=query, name="desk")
    chain.invoke(one)
    chain.invoke(other)
    assert len(answers.asked) == 2
    chain.invoke(one)
    chain.invoke(other)
    assert len(answers.asked) == 2


def test_a_history_of_served_messages_is_the_same_history(cache: SemanticCache) -> None:
    answers = Desk()
    chain = cached(RunnableLambda(answers), cache=cache, query="question", name="desk")
    told = {"response_metadata": {"id": "msg_1"}, "usage_metadata": None}
    chain.invoke({"question": RESET, "history": [AIMessage("Hello.", id="1")]})
    chain.invoke({"question": RESET, "history": [AIMessage("Hello.", id="2", **told)]})
    assert len(answers.asked) == 1


def test_an_input_without_a_question_is_not_answered(cache: SemanticCache) -> None:
    runs: list[Any] = []

    def answer(given: Any) -> str:
        runs.append(given)
        return "Yes."

    chain = cached(RunnableLambda(answer), cache=cache, query="question")
    for one in ({"other": RESET}, {"question": None}, {"question": 7}, 7, [], ["translate", RESET], None):
        chain.invoke(one)
        chain.invoke(one)
    assert len(runs) == 14
    assert cache.metrics().stored == 0


@pytest.mark.parametrize(
    "odd", [{"question": RESET, "image": HumanMessage([{"type": "image", "url": "https://a/b.png"}])}]
)
def test_an_input_of_unknown_content_is_not_answered(odd: Any, cache: SemanticCache) -> None:
    answers = Desk()
    chain = cached(RunnableLambda(answers), cache=cache, query="question", name="desk")
    chain.invoke(odd)
    chain.invoke(odd)
    assert len(answers.asked) == 2


def test_a_query_that_raises_costs_only_the_cache(cache: SemanticCache) -> None:
    answers = Desk()
    chain = cached(RunnableLambda(answers), cache=cache, query=lambda given: given["nothing"], name="desk")
    assert chain.invoke({"question": RESET}) == chain.invoke({"question": RESET})
    assert len(answers.asked) == 2
    assert cache.metrics().misses == {"internal_error": 2}


# --- outputs


@pytest.mark.parametrize(
    "answer",
    [
        "Use the link.",
        {"answer": "Use the link.", "documents": [Document("Rule 1", metadata={"page": 1}, id="d1")], "score": 0.5},
        {"answer": "Use the link.", "more": {"deep": [1, None, True, "\u00e9\u2028"]}},
        ["one", "two"],
        7,
    ],
)
def test_what_a_chain_returns_comes_back_as_it_was(answer: Any, cache: SemanticCache) -> None:
    answers = Desk(lambda _: answer)
    chain = cached(RunnableLambda(answers), cache=cache, query=None, name="desk")
    assert chain.invoke(RESET) == answer
    served = chain.invoke(RESET_TOO)
    assert served == answer
    assert type(served) is type(answer)
    assert len(answers.asked) == 1
    if isinstance(served, dict):
        served["answer"] = "changed by the caller"
        assert chain.invoke(RESET) == answer


def test_a_message_comes_back_as_a_new_one(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    chain = cached(ChatPromptTemplate.from_messages([("human", "{q}")]) | claude(), cache=cache, query="q")
    fresh, served = chain.invoke({"q": RESET}), chain.invoke({"q": RESET_TOO})
    assert isinstance(served, AIMessage)
    assert served.content == fresh.content
    assert served.id != fresh.id
    assert served.usage_metadata == {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
    assert served.response_metadata["headstay"]["tier"] == "semantic"
    assert "id" not in served.response_metadata
    nested = cached(RunnableParallel(answer=claude(), extra=RunnableLambda(str)), cache=cache, query=None)
    nested.invoke(RESET)
    again = nested.invoke(RESET_TOO)
    assert again["answer"].response_metadata["headstay"]["cache"] == "hit"
    assert again["extra"] == RESET


@pytest.mark.parametrize("odd", [object(), {1: "a"}, ("a", "b"), {"a": {1, 2}}, float("nan"), {"__headstay__": "x"}])
def test_what_json_cannot_hold_is_not_kept(odd: Any, cache: SemanticCache) -> None:
    answers = Desk(lambda _: odd)
    chain = cached(RunnableLambda(answers), cache=cache, query=None, name="desk")
    chain.invoke(RESET)
    assert chain.invoke(RESET) is odd
    assert cache.metrics().not_stored == {"not_admitted_form": 2}


@pytest.mark.parametrize("empty", ["", "  ", None, [], {}, {"answer": ""}])
def test_an_empty_answer_is_not_kept(empty: Any, cache: SemanticCache) -> None:
    chain = cached(RunnableLambda(Desk(lambda _: empty)), cache=cache, query=None, name="desk")
    chain.invoke(RESET)
    assert cache.metrics().not_stored == {"not_admitted_empty": 1}


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize(
    ("question", "reason"),
    [("Please ramble on.", "not_admitted_truncated"), ("Please refuse this.", "not_admitted_refusal")],
)
async def test_a_reply_inside_that_did_not_end_well_is_not_kept(
    way: str, question: str, reason: str, claude: Claude, cache: SemanticCache
) -> None:
    inner = claude() | StrOutputParser() | RunnableLambda(lambda text: {"answer": f"We say: {text}"})
    chain = cached(inner, cache=cache, query=None)
    if way == "invoke":
        chain.invoke(question)
    elif way == "ainvoke":
        await chain.ainvoke(question)
    elif way == "stream":
        list(chain.stream(question))
    else:
        [chunk async for chunk in chain.astream(question)]
    assert cache.metrics().not_stored == {reason: 1}


def test_an_answer_in_need_is_not_kept(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    chain = cached(
        (claude() | StrOutputParser()).with_fallbacks([RunnableLambda(lambda _: "We are closed.")]),
        cache=cache,
        query=None,
    )
    desk.fail_next(status=500)
    assert chain.invoke(RESET) == "We are closed."
    assert cache.metrics().not_stored == {"not_admitted_error": 1}
    assert RESET in chain.invoke(RESET)
    assert RESET in chain.invoke(RESET_TOO)


def test_a_failing_chain_fails(cache: SemanticCache) -> None:
    def fail(_: str) -> str:
        raise RuntimeError("no")

    chain = cached(RunnableLambda(fail), cache=cache, query=None)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            chain.invoke(RESET)
    assert cache.metrics().stored == 0


# --- streams and the other ways


def test_a_stream_of_fields_is_kept_whole(cache: SemanticCache) -> None:
    def words(parts: Iterator[str]) -> Iterator[str]:
        for part in parts:
            yield from f"The answer to {part} in words".split(" ")

    inner = RunnableParallel(answer=RunnableGenerator(words), question=RunnablePassthrough())
    chain = cached(inner, cache=cache, query=None)
    fresh = list(chain.stream(RESET))
    assert len(fresh) > 2
    whole = fresh[0]
    for chunk in fresh[1:]:
        whole = whole + chunk
    assert chain.invoke(RESET_TOO) == dict(whole)
    (served,) = chain.stream(RESET)
    assert served == whole
    assert (served + {"more": 1})["more"] == 1  # adds up as the chain's own chunks do


async def test_a_hit_streams_in_pieces(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    chain = cached(rag(claude()), cache=cache, query="question")
    fresh = "".join(chain.stream({"question": RESET}))
    sync = list(chain.stream({"question": RESET_TOO}))
    pieces = [piece async for piece in chain.astream({"question": RESET_TOO})]
    assert "".join(sync) == "".join(pieces) == fresh
    assert len(sync) == len(pieces) > 1
    assert len(desk.exchanges) == 1


async def test_batches_and_transforms(cache: SemanticCache) -> None:
    answers = Desk()
    chain = cached(RunnableLambda(answers), cache=cache, query=None, name="desk")
    expected = [f"This is the answer to <{question}>." for question in (RESET, OTHER)]
    assert chain.batch([RESET, OTHER, RESET]) == [*expected, expected[0]]
    assert await chain.abatch([RESET_TOO, OTHER]) == expected
    assert dict(chain.batch_as_completed([RESET, OTHER])) == dict(enumerate(expected))

    async def parts() -> AsyncIterator[str]:
        for part in (RESET[:10], RESET[10:]):
            yield part

    assert "".join(chain.transform(iter([RESET[:10], RESET[10:]]))) == expected[0]
    assert "".join([piece async for piece in chain.atransform(parts())]) == expected[0]
    assert sorted(answers.asked) == sorted([RESET, OTHER])


class Recorder(BaseCallbackHandler):
    def __init__(self) -> None:
        self.runs: list[tuple[str, Any, Any]] = []
        self.ended: list[Any] = []

    def on_chain_start(self, serialized: Any, inputs: Any, *, tags: Any = None, metadata: Any = None, **_: Any) -> None:
        self.runs.append((str(tags), inputs, metadata))

    def on_chain_end(self, outputs: Any, **_: Any) -> None:
        self.ended.append(outputs)


async def test_a_hit_is_a_run_with_callbacks_and_tags(cache: SemanticCache) -> None:
    chain = cached(RunnableLambda(Desk()), cache=cache, query=None, name="desk")
    answer = f"This is the answer to <{RESET}>."
    for hit in (False, True):
        recorder = Recorder()
        config: RunnableConfig = {"callbacks": [recorder], "tags": ["mine"], "metadata": {"trace": "t1"}}
        assert chain.invoke(RESET, config) == await chain.ainvoke(RESET, config) == answer
        assert "".join(chain.stream(RESET, config)) == answer
        assert "".join([piece async for piece in chain.astream(RESET, config)]) == answer
        assert [(tags, metadata["trace"]) for tags, _, metadata in recorder.runs] == [("['mine']", "t1")] * 4
        assert [given for _, given, _ in recorder.runs[:2]] == [RESET] * 2  # LangChain tells none of a stream's
        assert recorder.ended == [answer] * 4
        told = [metadata.get("headstay", {}).get("cache") for _, _, metadata in recorder.runs]
        assert told == ["hit" if hit or index else None for index in range(4)]
        events = [event async for event in chain.astream_events(RESET, version="v2")]
        assert "".join(event["data"]["chunk"] for event in events if event["event"] == "on_chain_stream") == answer


def test_in_a_chain_it_is_a_runnable_like_others(cache: SemanticCache) -> None:
    answers = Desk()
    chain = RunnablePassthrough.assign(
        answer=cached(RunnableLambda(answers), cache=cache, query="question", name="desk").with_config(tags=["a"])
    ) | RunnableLambda(lambda state: state["answer"].upper())
    assert chain.invoke({"question": RESET}) == chain.invoke({"question": RESET})
    assert len(answers.asked) == 1

    def translate(question: str, language: str = "en") -> str:
        return f"{language} {question}"

    translation: Any = RunnableLambda(cast("Any", translate))
    bound = cached(translation, cache=cache, query=None)
    assert bound.invoke(RESET, language="fr") == f"fr {RESET}"
    assert bound.bind(language="de").invoke(RESET) == f"de {RESET}"
    assert bound.invoke(RESET_TOO, language="fr") == f"fr {RESET}"


# --- the config


def test_configurable_fields_are_exact(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    model = claude().configurable_fields(max_tokens=ConfigurableField(id="length"))
    chain = cached(model | StrOutputParser(), cache=cache, query=None)
    for length in (100, 200, 100):
        chain.invoke(RESET, {"configurable": {"length": length, "thread_id": str(length) + "x"}})
    assert len(desk.exchanges) == 2
    chain.invoke(RESET_TOO, {"configurable": {"length": 200, "thread_id": "another"}})
    assert len(desk.exchanges) == 2  # a thread of no concern to the chain


def test_code_that_reads_the_config_answers_by_all_of_it(cache: SemanticCache) -> None:
    runs: list[str] = []

    def balance(question: str, config: RunnableConfig) -> str:
        runs.append(question)
        return f"{config['configurable']['customer']} has 7 euros"

    chain = cached(RunnableLambda(balance), cache=cache, query=None)
    for customer in ("ann", "bob", "ann"):
        assert chain.invoke(RESET, {"configurable": {"customer": customer}}) == f"{customer} has 7 euros"
    assert len(runs) == 2


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
@pytest.mark.filterwarnings("ignore:The class `InMemoryChatMessageHistory` was deprecated")
def test_a_chain_that_keeps_a_history_is_refused_and_the_other_way_round_works(
    claude: Claude, cache: SemanticCache, desk: Emulator
) -> None:
    histories: dict[str, InMemoryChatMessageHistory] = {}

    def history(session_id: str) -> InMemoryChatMessageHistory:
        return histories.setdefault(session_id, InMemoryChatMessageHistory())

    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    inner = prompt | claude()
    with pytest.raises(ConfigError, match="keeps a conversation"):
        cached(
            RunnableWithMessageHistory(inner, history, input_messages_key="question", history_messages_key="history"),
            cache=cache,
            query="question",
        )
    chat = RunnableWithMessageHistory(
        cached(inner, cache=cache, query="question"),
        history,
        input_messages_key="question",
        history_messages_key="history",
    )

    def ask(session: str, question: str) -> str:
        return str(chat.invoke({"question": question}, {"configurable": {"session_id": session}}).text)

    first = [ask("ann", RESET), ask("ann", "What did I ask first?")]
    assert ask("bob", RESET_TOO) == first[0]
    ask("bob", OTHER)
    assert len(desk.exchanges) == 3
    assert histories["bob"].messages[0].content == RESET_TOO
    assert len(histories["bob"].messages) == 4
    # After another first question, the second one is another question.
    ask("eve", OTHER)
    assert "What did I ask first?" in ask("eve", "What did I ask first?")
    assert len(desk.exchanges) == 5


# --- as if it were not there


texts = st.text(min_size=1, max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
messages = st.lists(
    st.builds(HumanMessage, texts) | st.builds(AIMessage, texts) | st.builds(SystemMessage, texts),
    min_size=1,
    max_size=4,
)
inputs = texts | values | messages | st.dictionaries(texts | st.just("question"), values | messages, max_size=3)


@settings(deadline=None)  # it writes to a store
@given(inputs)
def test_without_a_hit_it_behaves_as_the_chain(one: Any) -> None:
    def answer(given: Any) -> dict[str, Any]:
        return {"answer": "Yes.", "told": repr(given)}

    plain = RunnableLambda(answer)
    for query in ("question", None):
        with SemanticCache() as cache:
            chain = cached(plain, cache=cache, query=query)
            assert chain.invoke(one) == plain.invoke(one)
            assert chain.invoke(one) == plain.invoke(one)  # an exact hit, if it is one
            assert cache.metrics().misses.get("internal_error", 0) == 0


def test_a_chain_of_messages_gets_back_what_was_asked(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    """A state that starts with the caller's own messages is served with those, not with another caller's."""
    chain = cached(
        RunnableLambda(lambda state: {"messages": [*state["messages"], claude().invoke(state["messages"])]}),
        cache=cache,
        query=None,
        name="desk",
    )
    fresh = chain.invoke({"messages": [HumanMessage(RESET)]})
    served = chain.invoke({"messages": [HumanMessage(RESET_TOO)]})
    assert [message.content for message in served["messages"]] == [RESET_TOO, fresh["messages"][1].content]
    assert served["messages"][1].id != fresh["messages"][1].id
    assert len(desk.exchanges) == 1
