"""What breakpoints keep from being read; markers that merely moved are no finding."""

from typing import Any

import pytest

from headstay import diff

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
RULES = "Answer briefly and quote the policy that applies. " * 60  # 3,000 bytes: above 512 tokens


def text(words: str, mark: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": words, **(mark or {})}


def body(marked: dict[int, dict[str, Any]], turns: int = 8, system: dict[str, Any] | None = MARK) -> dict[str, Any]:
    """A conversation of so many messages of one block, marked as told."""
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": [text(f"Message {n}.", marked.get(n))]} for n in range(turns)]
    return {"model": "claude-opus-5", "max_tokens": 9, "system": [text(RULES, system)], "messages": messages}


def causes(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding.cause.value, finding.path) for finding in diff(one, other).findings]


@pytest.mark.parametrize(
    "other",
    [
        body({8: MARK}, 9),
        body({6: MARK, 8: MARK}, 9),
        body({6: HOUR}, 9, HOUR),
        body({8: MARK}, 9, None),
        {**body({}, 9), "cache_control": {"type": "ephemeral"}},
        body({2: MARK, 4: MARK, 6: MARK}, 9),
        body({24: MARK, 6: MARK}, 25),
        body({25: MARK}, 26),  # 19 positions behind the entry: the last that is looked at
    ],
)
def test_markers_that_moved_are_no_finding(other: dict[str, Any]) -> None:
    assert causes(body({6: MARK}, 7), other) == []


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (body({}, 9, None), ("markers_missing", "system[0].cache_control")),
        (body({}, 9), ("markers_missing", "messages[6].content[0].cache_control")),
        (body({4: MARK}, 9), ("markers_missing", "messages[6].content[0].cache_control")),
        (body({26: MARK}, 27), ("lookback_exceeded", "messages[26].content[0].cache_control")),
        (
            body({2: MARK, 4: MARK, 6: MARK, 8: MARK}, 9),
            ("markers_over_limit", "messages[8].content[0].cache_control"),
        ),
        (
            {**body({4: MARK, 6: MARK, 8: MARK}, 9), "cache_control": {"type": "ephemeral"}},
            ("markers_over_limit", "cache_control"),
        ),
        (body({6: MARK, 8: HOUR}, 9, HOUR), ("marker_ttl_order", "messages[8].content[0].cache_control")),
        ({**body({}, 9), **HOUR}, ("marker_ttl_order", "cache_control")),
    ],
)
def test_markers_that_keep_from_reading(other: dict[str, Any], expected: tuple[str, str]) -> None:
    assert causes(body({6: MARK}, 7), other) == [expected]


def test_four_markers_and_the_automatic_one_on_a_marked_block() -> None:
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}} for n in range(30)]
    results = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "Seen."} for n in range(30)]
    one = body({0: MARK}, 1)
    more = [{"role": "assistant", "content": calls}, {"role": "user", "content": [*results, text("And?", MARK)]}]
    other = {**one, "messages": [*body({}, 1)["messages"], *more]}
    assert causes(one, other) == []  # a run of calls is one position, and so is one of results


def test_a_prompt_below_the_minimum() -> None:
    one, other = body({0: MARK}, 1, MARK), body({2: MARK}, 3, MARK)
    for request in (one, other):
        request["system"][0]["text"] = "Be kind."
    assert causes(one, other) == [("below_minimum", "system[0].cache_control")]
    for request in (one, other):
        request["model"] = "some-model"  # nothing is known of its minimum
    assert causes(one, other) == []


def test_openai_in_explicit_mode_caches_nothing_without_a_breakpoint() -> None:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    head = {"role": "developer", "content": [{"type": "input_text", "text": RULES * 2, **mark}]}
    bare = {"role": "developer", "content": RULES * 2}
    options = {"model": "gpt-6.1-sol", "prompt_cache_options": {"mode": "explicit"}}
    one = {**options, "input": [head, {"role": "user", "content": "Hello?"}]}
    other = {**options, "input": [bare, {"role": "user", "content": "Hello?"}]}
    assert causes(one, other) == [("markers_missing", "input[0].content[0].prompt_cache_breakpoint")]
    assert (
        causes({"model": "gpt-6.1-sol", "input": one["input"]}, {"model": "gpt-6.1-sol", "input": other["input"]}) == []
    )


def test_a_note_behind_the_last_marker_need_not_come_back() -> None:
    one = body({6: MARK}, 7)
    one["messages"][6]["content"].append(text("It is 2026-11-29T10:00:00Z."))
    other = body({8: MARK}, 9)
    other["messages"][8]["content"].append(text("It is 2026-11-29T10:05:00Z."))
    assert causes(one, other) == []
    one["messages"][6]["content"][1].update(MARK)
    assert causes(one, other)[0][0] == "history_edited"
