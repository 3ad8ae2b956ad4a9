from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator.openai_chat_body import read_chat
from headstay.emulator.openai_prompt import HEADER_TOKENS, PromptBuilder
from headstay.emulator.openai_responses_body import read_responses
from headstay.emulator.tokens import IMAGE_TOKENS


def words(count: int, word: str = "alpha") -> str:
    return " ".join([word] * count)


MARK = {"mode": "explicit"}


def test_a_message_costs_its_words_and_a_header() -> None:
    reading = read_chat(
        {
            "model": "gpt-5.6-sol",
            "messages": [
                {"role": "developer", "content": words(10)},
                {"role": "user", "content": words(5)},
            ],
        }
    )
    # A header of 3 in front of 10 words and of 5 words.
    assert HEADER_TOKENS == 3
    assert len(reading.prompt.tokens) == 3 + 10 + 3 + 5
    assert reading.prompt.developer_end == 13
    assert reading.prompt.endings == (13, 21)


def test_only_the_last_leading_developer_message_is_an_ending() -> None:
    reading = read_chat(
        {
            "model": "gpt-5.6-sol",
            "messages": [
                {"role": "system", "content": words(1)},
                {"role": "developer", "content": words(1)},
                {"role": "user", "content": words(1)},
                {"role": "developer", "content": words(1)},
                {"role": "assistant", "content": words(1)},
                {"role": "user", "content": words(1)},
            ],
        }
    )
    # Each message is 4 tokens. Endings: the second one, the first user message, the last user message.
    assert reading.prompt.developer_end == 8
    assert reading.prompt.endings == (8, 12, 24)


def test_only_the_last_result_of_a_run_is_an_ending() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    reading = read_chat(
        {
            "model": "gpt-5.6-sol",
            "messages": [
                {"role": "user", "content": "go"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "a", **call}, {"id": "b", **call}]},
                {"role": "tool", "tool_call_id": "a", "content": "x"},
                {"role": "tool", "tool_call_id": "b", "content": "y"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **call}]},
                {"role": "tool", "tool_call_id": "c", "content": "z"},
            ],
        }
    )
    total = len(reading.prompt.tokens)
    # A tool message is header 3, id 1, text 1. The second call's message is what lies between the runs.
    second_call = total - 5 - reading.prompt.endings[1]
    assert reading.prompt.endings == (4, total - 5 - second_call, total)
    assert len(reading.prompt.endings) == 3


def test_tools_come_before_everything_and_are_covered_by_a_marker() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
    item = {"role": "developer", "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": MARK}]}
    bare = read_responses({"model": "gpt-5.6-sol", "input": [item]}).prompt
    full = read_responses({"model": "gpt-5.6-sol", "input": [item], "tools": [tool]}).prompt
    assert bare.markers[0].end == 4
    assert full.tokens[0] == "<|tool|>"
    assert full.tokens[-4:] == bare.tokens
    assert full.markers[0].end == len(full.tokens)


def test_deferred_tools_are_not_in_the_prompt_until_they_are_found() -> None:
    tool = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}
    deferred = {**tool, "defer_loading": True}
    search = {"type": "tool_search"}
    plain = read_responses({"model": "gpt-5.6-sol", "input": "hi", "tools": [search]}).prompt
    hidden = read_responses({"model": "gpt-5.6-sol", "input": "hi", "tools": [search, deferred]}).prompt
    found = read_responses(
        {
            "model": "gpt-5.6-sol",
            "input": [{"role": "user", "content": "hi"}, {"type": "tool_search_output", "tools": [tool]}],
            "tools": [search, deferred],
        }
    ).prompt
    assert hidden.tokens == plain.tokens
    assert found.tokens[: len(hidden.tokens)] == hidden.tokens
    assert len(found.tokens) > len(hidden.tokens)


def test_media_count_alike_and_their_content_matters() -> None:
    def image(url: str) -> dict[str, object]:
        part = {"type": "input_image", "image_url": url, "detail": "auto", "prompt_cache_breakpoint": MARK}
        return {"model": "gpt-5.6-sol", "input": [{"role": "user", "content": [part]}]}

    one, two = read_responses(image("data:a")).prompt, read_responses(image("data:b")).prompt
    assert len(one.tokens) == len(two.tokens) == 3 + IMAGE_TOKENS
    assert one.tokens != two.tokens
    unmarked: Any = image("data:a")
    del unmarked["input"][0]["content"][0]["prompt_cache_breakpoint"]
    assert read_responses(unmarked).prompt.tokens == one.tokens
    assert one.markers[0].end == 3 + IMAGE_TOKENS


@given(st.lists(st.text(max_size=30), max_size=6), st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_digests_do_not_depend_on_which_ends_are_asked_for(texts: list[str], ends: list[int]) -> None:
    builder = PromptBuilder()
    for text in texts:
        builder.start("user")
        builder.text(text)
        builder.finish("user")
    prompt = builder.build()
    together = prompt.digests(b"seed", ends)
    assert together == {end: prompt.digests(b"seed", [end])[end] for end in ends}
    assert prompt.digests(b"other", ends) != together
