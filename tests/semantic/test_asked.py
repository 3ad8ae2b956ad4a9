"""How a request of LangChain is read: the same turns on both roads, and nothing that names a run."""

import gc
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumps
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel

from headstay.emulator import Emulator
from headstay.semantic.request import AskedRequest
from langchain_headstay import CacheAwareChatModel, SemanticCache
from langchain_headstay.asked import from_messages, from_strings

Chat = Callable[..., BaseChatModel]

RESET = "How do I reset my password?"

words = st.text(max_size=20)
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, words),
    st.builds(lambda data: {"type": "image", "base64": data, "mime_type": "image/png"}, words),
    st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, words),
)
contents = words | st.lists(blocks, max_size=3)
calls = st.lists(
    st.builds(
        lambda name, args, call: {"name": name or "f", "args": args, "id": call, "type": "tool_call"},
        words,
        st.dictionaries(words, words | st.integers(), max_size=2),
        words,
    ),
    max_size=2,
)
messages = st.lists(
    st.one_of(
        st.builds(HumanMessage, content=contents, name=st.none() | words),
        st.builds(SystemMessage, content=contents),
        st.builds(AIMessage, content=contents, tool_calls=calls),
        st.builds(ToolMessage, content=contents, tool_call_id=words, status=st.sampled_from(["success", "error"])),
        st.builds(FunctionMessage, content=words, name=words),
        st.builds(ChatMessage, content=words, role=st.sampled_from(["user", "assistant", "critic"])),
    ),
    min_size=1,
    max_size=4,
)


@given(messages)
def test_both_roads_read_the_same_turns(given_messages: list[BaseMessage]) -> None:
    plain = from_messages(given_messages, "model", {})
    serialised = from_strings(dumps(given_messages), "model")
    assert serialised.turns == plain.turns
    assert serialised.query == plain.query


def turns(*given_messages: BaseMessage) -> AskedRequest:
    return from_messages(given_messages, "model", {})


def test_what_names_a_run_is_left_out() -> None:
    def conversation(run: str) -> AskedRequest:
        call = {"name": "f", "args": {"id": "kept"}, "id": run}
        return turns(
            HumanMessage(RESET, id=run),
            AIMessage(
                [{"type": "text", "text": "See.", "id": run, "index": len(run)}, {"type": "tool_use", "id": run}],
                tool_calls=[call],
                id=run,
                response_metadata={"id": run, "headstay": {"cache": "hit", "entry": run}},
                usage_metadata={"input_tokens": len(run), "output_tokens": 1, "total_tokens": len(run) + 1},
                additional_kwargs={"headstay": run, "tool_calls": [run]},
            ),
            ToolMessage("7", tool_call_id=run, id=run),
            HumanMessage(RESET, id=run),
        )

    assert conversation("a") == conversation("bb")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HumanMessage("a"), HumanMessage("b")),
        (HumanMessage("a"), SystemMessage("a")),
        (HumanMessage("a"), HumanMessage("a", name="Ann")),
        (AIMessage("a"), AIMessage("a", tool_calls=[{"name": "f", "args": {}, "id": "1"}])),
        (
            AIMessage("", tool_calls=[{"name": "f", "args": {"id": 1}, "id": "1"}]),
            AIMessage("", tool_calls=[{"name": "f", "args": {"id": 2}, "id": "1"}]),
        ),
        (AIMessage(""), AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})),
        (ToolMessage("a", tool_call_id="1"), ToolMessage("a", tool_call_id="1", status="error")),
        (ChatMessage(content="a", role="user"), ChatMessage(content="a", role="critic")),
        # The place of an image among the words counts.
        (
            HumanMessage([{"type": "image", "base64": "AA"}, {"type": "text", "text": "before this"}]),
            HumanMessage([{"type": "text", "text": "before this"}, {"type": "image", "base64": "AA"}]),
        ),
        (HumanMessage([{"type": "image", "base64": "AA"}]), HumanMessage([{"type": "image", "base64": "AB"}])),
        (
            HumanMessage([{"type": "image", "base64": "A" * 2000}]),
            HumanMessage([{"type": "image", "base64": "A" * 1999 + "B"}]),
        ),
        (
            HumanMessage([{"type": "image", "base64": "AA", "extras": {"detail": "low"}}]),
            HumanMessage([{"type": "image", "base64": "AA", "extras": {"detail": "high"}}]),
        ),
        # Calls that stand in the content only, as in a history that was not made by LangChain.
        (
            AIMessage([{"type": "tool_use", "id": "1", "name": "f", "input": {"n": 1}}]),
            AIMessage([{"type": "tool_use", "id": "1", "name": "f", "input": {"n": 2}}]),
        ),
        # An id inside of what a human says names a thing.
        (
            HumanMessage([{"type": "non_standard", "value": {"order": {"id": 1}}}]),
            HumanMessage([{"type": "non_standard", "value": {"order": {"id": 2}}}]),
        ),
        (
            HumanMessage("a", additional_kwargs={"row": {"id": 1}}),
            HumanMessage("a", additional_kwargs={"row": {"id": 2}}),
        ),
        (ToolMessage([{"row": {"id": 1}}], tool_call_id="1"), ToolMessage([{"row": {"id": 2}}], tool_call_id="1")),
    ],
)
def test_what_is_asked_counts(one: BaseMessage, other: BaseMessage) -> None:
    assert turns(one) != turns(other)


def test_which_result_belongs_to_which_call_counts() -> None:
    called = AIMessage(
        "",
        tool_calls=[{"name": "f", "args": {"of": "ann"}, "id": "1"}, {"name": "f", "args": {"of": "bob"}, "id": "2"}],
    )
    one = (called, ToolMessage("7", tool_call_id="1"), ToolMessage("8", tool_call_id="2"))
    swapped = (called, ToolMessage("7", tool_call_id="2"), ToolMessage("8", tool_call_id="1"))
    assert turns(*one) != turns(*swapped)


@pytest.mark.parametrize(
    ("message", "asks"),
    [
        (HumanMessage(RESET), True),
        (ChatMessage(content=RESET, role="user"), True),
        (ChatMessage(content=RESET, role="assistant"), False),
        (ChatMessage(content=RESET, role="critic"), False),
        (AIMessage(RESET), False),
        (AIMessageChunk(content=RESET), False),
        (ToolMessage(RESET, tool_call_id="1"), False),
        (FunctionMessage(content=RESET, name="f"), False),
        (SystemMessage(RESET), False),
    ],
)
def test_only_a_human_asks(message: BaseMessage, asks: bool) -> None:
    assert (turns(message).asking is not None) is asks


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://a.example/cat.png"}},
        {"type": "image", "url": "https://a.example/cat.png"},
        {"type": "image", "source_type": "url", "url": "http://a.example/cat.png"},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/cat.png"}},
        {"type": "file", "source_type": "id", "id": "file-7"},
        {"type": "file", "file_id": "file-7"},
        {"type": "file", "file": {"file_id": "file-7"}},
        {"type": "document", "source": {"type": "file", "file_id": "file_7"}},
        {"type": "media", "file_uri": "gs://bucket/cat.mp4", "mime_type": "video/mp4"},
        {"type": "container_upload", "file_id": "file_7"},
        {"type": "image", "url": "HTTPS://a.example/cat.png"},
        {"type": "image", "url": "oss://bucket/cat.png"},
        {"type": "non_standard", "value": {"type": "image_url", "image_url": {"url": "https://a.example/cat.png"}}},
    ],
)
def test_what_is_given_by_reference_is_not_known(block: dict[str, Any], cache: SemanticCache, claude: Chat) -> None:
    message = HumanMessage([{"type": "text", "text": "What is this?"}, block])
    assert turns(message).turns[0].unhashed
    assert from_strings(dumps([message]), "model").turns[0].unhashed
    cache.ask(turns(message))
    assert cache.metrics().misses == {"unhashed_media": 1}


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "search_result", "source": "https://a.example", "content": [{"type": "text", "text": "Rule 1"}]},
    ],
)
def test_what_is_given_by_its_content_is_known(block: dict[str, Any]) -> None:
    assert not turns(HumanMessage([{"type": "text", "text": "What is this?"}, block])).turns[0].unhashed


def test_a_query_can_be_declared_on_the_message(chat: Chat, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")

    def ask(question: str, context: str) -> str:
        text = f"Context:\n{context}\n\nQuestion: {question}"
        return str(model.invoke([HumanMessage(text, additional_kwargs={"headstay": {"query": question}})]).text)

    ask(RESET, "Rule 1")
    ask("How can I reset my password?", "Rule 1")
    assert len(desk.exchanges) == 1
    ask("How can I reset my password?", "Rule 2")  # what stands around it is exact
    assert len(desk.exchanges) == 2
    assert all("headstay" not in str(exchange.body) for exchange in desk.exchanges)


# --- settings


def test_settings_that_hold_the_separator() -> None:
    """LangChain joins two texts with three dashes, which either of them may hold."""
    one = from_strings(RESET, '{"id": ["m"], "kwargs": {"stop": "---", "n": 2}}---[(\'tools\', None)]')
    assert one.generations == 2
    other = from_strings(RESET, '{"id": ["m"], "kwargs": {"n": 2}}---[(\'stop\', \'---\')]')
    assert other.generations == 2
    assert one.settings != other.settings


def test_a_plain_prompt_asks() -> None:
    written = '[{"lc": 1, "type": "constructor", "kwargs": {"content": 7}}]'
    near = ('[{"kwargs": {"content": "a", "id": "1"}}]', '[{"kwargs": {"content": "a", "id": "2"}}]')
    for prompt in (RESET, "[]", "[1]", '["a"]', "null", '[{"kwargs": 7}]', written, *near, "[" * 100_000):
        (turn,) = from_strings(prompt, "model").turns
        assert (turn.role, turn.text) == ("user", prompt)


class Mood(BaseModel):
    happy: bool


def other_mood() -> type[BaseModel]:
    class Mood(BaseModel):
        happy: bool
        sure: bool

    return Mood


def structured(model: BaseChatModel, schema: Any) -> Any:
    """Bind a schema class as it is, as code does that leaves its conversion to the model."""
    return model.bind(response_format=schema)


def test_a_schema_class_behind_set_llm_cache_is_a_miss_with_the_reason(
    gpt: Chat, cache: SemanticCache, desk: Emulator
) -> None:
    model = gpt().model_copy(update={"cache": cache})
    for _ in range(2):
        structured(model, Mood).invoke(RESET)
    assert len(desk.exchanges) == 2
    assert cache.metrics().misses == {"opaque_schema": 2}
    assert cache.metrics().stored == 0


def test_a_schema_class_in_the_wrapper_counts_by_its_content(gpt: Chat, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(gpt(), semantic_cache=cache, on_break="record")
    fresh = structured(model, Mood).invoke(RESET)
    served = structured(model, Mood).invoke(RESET)
    assert len(desk.exchanges) == 1
    assert served.additional_kwargs["parsed"] == fresh.additional_kwargs["parsed"] == Mood(happy=True)
    structured(model, other_mood()).invoke(RESET)
    assert len(desk.exchanges) == 2
    assert cache.metrics().hits == {"exact": 1}


def test_structured_output_of_the_wrapper(gpt: Chat, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(gpt(), semantic_cache=cache, on_break="record")
    for schema in (Mood, other_mood()):
        for form in (schema, convert_to_openai_tool(schema)["function"]):
            asked = model.with_structured_output(form, method="json_schema")
            before = len(desk.exchanges)
            assert asked.invoke(RESET) == asked.invoke(RESET)
            assert len(desk.exchanges) - before <= 1  # a class and its dictionary may be one request
    assert len(desk.exchanges) >= 2
    assert cache.metrics().misses.get("opaque_schema", 0) == 0


@pytest.fixture
def switching() -> Iterator[None]:
    """Let the garbage collector run often, and another thread with each run."""

    def give_way(*_: object) -> None:
        time.sleep(0)

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.callbacks.append(give_way)
    gc.set_threshold(20)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("switching")
def test_threads_that_read_settings_at_once_all_read_them() -> None:
    """CPython 3.11 raises SystemError where two threads parse together: "AST constructor recursion depth mismatch"."""
    pairs = [(f"k{number}", {"a": [1, 2, {"b": number}]}) for number in range(30)]
    text = '{"lc": 1, "type": "constructor", "id": ["x"], "kwargs": {}}---' + repr(pairs)

    def read(_: int) -> list[AskedRequest]:
        return [from_messages([HumanMessage("Hello!")], text, {}) for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        found = [asked for several in pool.map(read, range(8)) for asked in several]
    assert found == [found[0]] * 80
