"""Canonical forms and hashes: markers are no content, keys count in their order, and no process has its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.canonical import digest, meaning_text, size_of, wire_text, wire_texts, without_markers
from headstay.fingerprint import (
    block_digest,
    links,
    parameter,
    parameters_hash,
    shared_blocks,
    split_trail,
    text_digest,
    trail,
)
from headstay.prompt import Block

MARK = {"type": "ephemeral"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


class Schema:
    """What a validation library's model class looks like from outside."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"title": cls.__name__}


class Record:
    """What an object of a provider's SDK looks like from outside."""

    def __init__(self, value: int) -> None:
        self.value = value

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"value": self.value, "mode": mode}


@given(JSON)
def test_plain_json_is_written_as_it_is(value: Any) -> None:
    assert json.loads(wire_text(value)) == value
    assert json.loads(meaning_text(value)) == value
    assert size_of(wire_text(value)) == len(wire_text(value).encode())


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"type": "text", "cache_control": MARK}, {"type": "text"}),
        ({"content": [{"text": "x", "cache_control": MARK}]}, {"content": [{"text": "x"}]}),
        ({"output": [{"text": "x", "prompt_cache_breakpoint": MARK}]}, {"output": [{"text": "x"}]}),
        ({"source": {"content": [{"text": "x", "cache_control": MARK}]}}, {"source": {"content": [{"text": "x"}]}}),
        ([{"cache_control": MARK}, 3], [{}, 3]),
        # inside a schema, an argument or a text the same word is content
        ({"input": {"cache_control": "no-store"}}, None),
        ({"input_schema": {"properties": {"cache_control": {}}}}, None),
        ({"text": "cache_control"}, None),
        ({"content": "cache_control"}, None),
    ],
)
def test_markers_are_no_content(value: object, kept: object) -> None:
    assert without_markers(value) == (value if kept is None else kept)
    assert wire_text(value) == wire_text(value if kept is None else kept)


def test_the_order_of_keys_counts_on_the_wire_and_not_in_the_meaning() -> None:
    one, two = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert wire_text(one) != wire_text(two)
    assert meaning_text(one) == meaning_text(two)
    assert meaning_text(one) != meaning_text({**one, "a": 2})


def test_what_is_not_json_has_a_form_that_no_process_changes() -> None:
    script = (
        "from tests.core.test_canonical import Schema, Record, wire_text, digest\n"
        "print(wire_text([Schema, Record(3), object(), int, {1, 2, 'x'}, frozenset('ba'), b'bytes', (1, 2)]))"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment(seed)
        )
        for seed in ("0", "1", "2")
    ]
    assert {process.stdout for process in said} == {said[0].stdout}
    found = json.loads(said[0].stdout)
    assert found[:2] == [{"title": "Schema"}, {"value": 3, "mode": "json"}]
    assert found[2:4] == [{"class": "builtins.object"}, {"class": "builtins.int"}]
    assert sorted(found[4]) == ['"x"', "1", "2"]
    assert (found[5], found[7]) == (['"a"', '"b"'], [1, 2])
    assert wire_text(Record(3)) != wire_text(Record(4))
    assert wire_text(b"a") != wire_text(b"b")


def environment(seed: str) -> dict[str, str]:
    return {"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed}


@given(st.lists(JSON, max_size=4))
def test_a_list_is_taken_apart_into_the_same_forms(values: list[Any]) -> None:
    assert wire_texts(values) == tuple(wire_text(value) for value in values)
    assert wire_texts(json.loads(json.dumps(values))) == wire_texts(values)


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_the_boundaries_of_parts_count(one: list[str], two: list[str]) -> None:
    assert (digest(*one) == digest(*two)) == (one == two)
    assert digest("\ud800") != digest("\ud801")  # no text is beyond it


@pytest.mark.parametrize(
    ("block", "same"),
    [
        ({"type": "text", "text": "hi"}, True),
        ({"type": "text", "text": "hi", "cache_control": MARK}, True),
        ({"type": "text", "text": "hi", "id": "b1", "index": 0, "annotations": []}, True),
        ({"type": "text", "text": "ho"}, False),
        ({"type": "text", "text": "hi", "annotations": [{"url": "x"}]}, False),
        ({"type": "text", "text": "hi", "citations": [{"url": "x"}]}, False),
        ({"type": "image", "text": "hi", "source": {}}, False),
    ],
)
def test_one_text_block_is_the_same_as_the_text(block: Mapping[str, object], same: bool) -> None:
    assert (block_digest("user", block) == text_digest("user", "hi")) == same
    assert block_digest("user", block) != block_digest("assistant", block)
    assert text_digest("user", "é")[1] == 2  # bytes


def test_prefixes_of_a_trail() -> None:
    digests = [text_digest("user", str(number))[0] for number in range(9)]
    whole = trail([Block("user", "text", n, 0, found, 1) for n, found in enumerate(digests)])
    assert split_trail(whole) == digests
    ends = links(whole, [1, 4, 9])
    assert len(set(ends)) == 3
    assert links(whole[: 4 * 16], [1, 4]) == ends[:2]
    assert links(b"", [0]) == links(whole, [0])


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_shared_blocks_are_counted(one: list[int], two: list[int]) -> None:
    expected = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    trails = (b"".join(digest(str(number)) for number in numbers) for numbers in (one, two))
    assert shared_blocks(*trails) == expected


def test_parameters_by_dotted_name() -> None:
    given_ = {"a": 1, "text": {"format": {"type": "json"}, "none": None}, "flat": 3}
    assert parameter(given_, "text.format") == {"type": "json"}
    assert [parameter(given_, name) for name in ("b", "text.other", "flat.x", "text.none")] == [None] * 4
    assert parameters_hash(given_, ["a", "b"]) == parameters_hash({"a": 1, "c": 2}, ["a", "b"])
    assert parameters_hash(given_, ["a"]) != parameters_hash(given_, ["flat"])
    assert parameters_hash({"a": "1"}, ["a"]) != parameters_hash({"a": 1}, ["a"])
