"""A memory keeps human messages with the text that was for their own call: it is not sent again."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

from headstay import Ledger
from headstay.emulator import Emulator
from headstay.flow import Flow, Settings
from llama_index_headstay import cache_aware
from llama_index_headstay.binding import Binding
from llama_index_headstay.sdk_body import without_own_words
from llama_index_headstay.tail import earlier_tail_texts, with_tail
from llama_index_headstay.ticket import Ticket

RULES = "\n".join(f"Rule {number}: answer questions on topic {number} briefly." for number in range(150))
HEAD = ChatMessage(role=MessageRole.SYSTEM, content=RULES)


@pytest.fixture
def llm(server: Emulator) -> Iterator[OpenAILike]:
    made = OpenAILike(
        model="gpt-5.6-terra",
        api_base=server.openai_url,
        api_key="key-a",
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=100_000,
        max_retries=0,
    )
    yield made
    made._get_client().close()


@pytest.fixture
def talk(llm: OpenAILike) -> Callable[..., Ledger]:
    """Ask three questions; each comes with its own retrieved text, and the memory keeps all of it."""

    def say(retrieved: list[str]) -> Ledger:
        ledger = Ledger()
        aware = cache_aware(llm, ledger=ledger, on_break="record")
        memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
        for number, text in enumerate(retrieved):
            question = ChatMessage(role=MessageRole.USER, content=f"Question {number}?")
            memory.put(with_tail(question, text) if text else question)
            memory.put(aware.chat([HEAD, *memory.get()]).message)
        aware._get_client().close()
        return ledger

    return say


@pytest.mark.parametrize(
    "retrieved",
    [["Stock: 4", "Stock: 5", "Stock: 6"], ["Stock: 4"] * 3, ["Stock: 4", "", "Stock: 6"], ["Stock: 4", "", ""]],
    ids=["other each time", "the same", "not always", "once"],
)
def test_only_the_text_of_the_call_is_sent_and_the_history_is_read(
    server: Emulator, talk: Callable[..., Ledger], retrieved: list[str]
) -> None:
    ledger = talk(retrieved)
    for number, (exchange, text) in enumerate(zip(server.exchanges, retrieved, strict=True)):
        said = [message for message in exchange.body["messages"] if message["role"] == "user"]  # answers echo it
        assert len(said) == number + 1
        assert [json.dumps(message).count("Stock") for message in said] == [0] * number + [int(bool(text))]
        assert text in json.dumps(said[-1])
    rows = list(ledger.rows())
    assert [row.status for row in rows] == ["cold", "ok", "ok"]
    assert not any(row.breaks for row in rows)
    first, second, third = rows
    assert second.cache_read_tokens == first.cache_write_tokens
    assert third.cache_read_tokens == second.cache_read_tokens + second.cache_write_tokens


def human(text: str, *tails: str) -> ChatMessage:
    message = ChatMessage(role=MessageRole.USER, content=text)
    for tail in tails:
        message = with_tail(message, tail)
    return message


def test_the_texts_of_earlier_messages_come_newest_first() -> None:
    reply = ChatMessage(role=MessageRole.ASSISTANT, content="yes")
    history = [human("a", "one"), reply, human("b"), reply, human("c", "two", "three"), reply, human("d", "now")]
    assert earlier_tail_texts(history) == [["\n\ntwo", "\n\nthree"], ["\n\none"]]
    assert earlier_tail_texts(history[:1]) == []
    assert earlier_tail_texts([]) == []


def test_blocks_are_taken_off_merged_messages_too() -> None:
    """Anthropic's class puts what a tool returned and the next question into one message."""
    result = {"type": "tool_result", "tool_use_id": "1", "content": "7"}
    body = {
        "messages": [
            {"role": "user", "content": [text("first"), text("\n\none")]},
            {"role": "assistant", "content": [text("\n\none")]},  # the model's own words stay
            {"role": "user", "content": [result, text("second\n\ntwo\n\nthree")]},
            {"role": "assistant", "content": [text("ok")]},
            {"role": "user", "content": [text("third"), text("\n\nnow")]},
        ]
    }
    earlier = [["\n\ntwo", "\n\nthree"], ["\n\none"]]
    found, all_there = without_own_words(body, "anthropic-messages", ["\n\nnow"], earlier)
    assert all_there
    assert [message["content"] for message in found["messages"]] == [
        [text("first")],
        [text("\n\none")],
        [result, text("second")],
        [text("ok")],
        [text("third")],
    ]
    assert body["messages"][0]["content"] == [text("first"), text("\n\none")]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_an_earlier_text_that_is_not_there_changes_nothing() -> None:
    body = {"messages": [{"role": "user", "content": "first, changed"}, {"role": "user", "content": "second\n\nnow"}]}
    found, all_there = without_own_words(body, "openai-chat", ["\n\nnow"], [["\n\none"]])
    assert all_there
    assert [message["content"] for message in found["messages"]] == ["first, changed", "second"]


@given(st.lists(st.tuples(st.text(max_size=5), st.lists(st.sampled_from(["x", "y"]), max_size=2)), min_size=1))
def test_what_is_left_is_what_was_said(turns: list[tuple[str, list[str]]]) -> None:
    reply = ChatMessage(role=MessageRole.ASSISTANT, content="yes")
    history = [message for said, tails in turns for message in (human(said, *tails), reply)][:-1]
    texts = ["".join(block.text for block in one.blocks if isinstance(block, TextBlock)) for one in history]
    items = [{"role": one.role.value, "content": words} for one, words in zip(history, texts, strict=True)]
    tails = Ticket(Binding(Flow(Settings())), messages=history).tails
    found, all_there = without_own_words({"messages": items}, "openai-chat", tails, earlier_tail_texts(history))
    assert all_there
    # a message of per-call text alone stays one, in its own call and later: providers refuse an empty message
    left = [said if said.strip() else words for (said, _), words in zip(turns, texts[::2], strict=True)]
    assert [message["content"] for message in found["messages"][::2]] == left


def test_two_messages_without_an_answer_between_them_are_one_turn() -> None:
    """A memory may say what it recalls in a message of its own: that was supplied for this call."""
    assert earlier_tail_texts([human("", "recalled"), human("question", "found")]) == []


def test_words_of_the_last_human_message_are_never_taken_for_an_earlier_text() -> None:
    """It bears nothing for this call, and ends as an earlier message's text did."""
    items = [
        {"role": "user", "content": "first\n\nFound"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "Why did you say\n\nFound"},
    ]
    found, _ = without_own_words({"messages": items}, "openai-chat", [], [["\n\nFound"]])
    assert [message["content"] for message in found["messages"]] == ["first", "yes", "Why did you say\n\nFound"]
