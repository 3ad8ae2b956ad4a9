"""The built-in model: what it answers, which tools it calls, and values that fit a schema."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.emulator.anthropic_ask import ask_from_anthropic
from headstay.emulator.responder import Ask, Offer, answer, arguments, names_tool
from headstay.emulator.schema_values import Synthesis

NUMBER = {"type": "integer"}
ADD = Offer(name="add", schema={"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]})
WEATHER = Offer(
    name="get_weather",
    schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def value(schema: Any, text: str = "") -> Any:
    return Synthesis(text, schema).value(schema)


def test_plain_text_follows_the_user() -> None:
    assert answer(Ask(user_text="tea")).text != answer(Ask(user_text="coffee")).text
    assert answer(Ask(user_text="tea")) == answer(Ask(user_text="tea"))


@pytest.mark.parametrize(
    ("text", "name", "named"),
    [
        ("What is the value of magic_function(3)?", "magic_function", True),
        ("What is the weather in Rome?", "get_weather", True),
        ("Send two emails", "send_email", True),
        ("please add 3", "add", True),
        ("an additional point", "add", False),
        ("Hello", "get_weather", False),
        ("What color?", "color_picker", False),
        ("my_adder_tool_two", "my_adder_tool", False),
    ],
)
def test_what_names_a_tool(text: str, name: str, named: bool) -> None:
    assert names_tool(text, name) is named


def test_a_tool_is_called_when_named_or_forced() -> None:
    def called(text: str, **more: Any) -> list[str]:
        return [call.name for call in answer(Ask(user_text=text, tools=(ADD, WEATHER), **more)).tool_calls]

    assert called("hello") == []
    assert called("add 1 and 2") == ["add"]
    assert called("add 1 and 2", forced="none") == []
    assert called("hello", forced="any") == ["add"]
    assert called("the weather?", forced="any") == ["get_weather"]
    assert called("hello", forced="get_weather") == ["get_weather"]
    assert called("add the weather") == ["add", "get_weather"]
    assert called("add the weather", parallel=False) == ["add"]
    assert called("add 1 and 2", tool_results=("3",)) == []
    assert called("add 1 and 2", tool_results=("3",), forced="any") == ["add"]


def test_results_are_quoted() -> None:
    assert "3; sunny" in answer(Ask(user_text="add", tools=(ADD,), tool_results=("3", "sunny"))).text


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (NUMBER, "take 7", 7),
        (NUMBER, "take 2.5 or 4", 4),
        ({"type": "number"}, "take 2.5", 2.5),
        ({"type": "integer", "minimum": 10}, "take 7", 10),
        ({"type": "integer", "exclusiveMinimum": -1000, "exclusiveMaximum": 1000}, "f(3)", 3),
        ({"type": "integer", "maximum": -5}, "", -5),
        ({"type": "integer", "multipleOf": 5}, "3 and 20", 20),
        ({"type": "integer", "multipleOf": 4, "minimum": 5}, "", 8),
        ({"type": "integer", "default": 9}, "", 9),
        ({"type": "integer"}, "tool_7 of 3-4", 3),
        ({"type": "string"}, "named 'Ada' or \"Bob\"", "Ada"),
        ({"type": "string", "enum": ["red", "blue"]}, "a blue one", "blue"),
        ({"type": "string", "enum": ["red", "blue"]}, "", "red"),
        ({"const": 5}, "", 5),
        ({"type": "string", "maxLength": 3}, "'abcdef'", "abc"),
        ({"type": "string", "minLength": 5}, "'ab'", "ab..."),
        ({"type": "string", "format": "date"}, "on 2026-03-04", "2026-03-04"),
        ({"type": "boolean"}, "", True),
        ({"type": "null"}, "", None),
        ({"type": ["string", "null"]}, "'x'", "x"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "8", 8),
        ({"type": "array", "items": NUMBER}, "1, 2 and 3", [1, 2, 3]),
        ({"type": "array", "items": NUMBER, "maxItems": 2}, "1, 2 and 3", [1, 2]),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, "", [True, True]),
        ({"type": "array", "prefixItems": [NUMBER, {"type": "boolean"}]}, "4", [4, True]),
        ({"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["b"]}, "6", {"b": 6}),
        ({"type": "object", "properties": {"a": NUMBER}}, "6", {"a": 6}),
        ({"type": "object", "properties": {}}, "6", {}),
    ],
)
def test_values_fit_their_schema(schema: dict[str, Any], text: str, expected: object) -> None:
    made = value(schema, text)
    assert made == expected
    assert type(made) is type(expected)


def test_references_nesting_and_all_of() -> None:
    schema = {
        "$defs": {
            "Item": {"type": "object", "properties": {"n": NUMBER}, "required": ["n"]},
            "Tree": {
                "type": "object",
                "properties": {"n": NUMBER, "sub": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
                "required": ["n"],
            },
        },
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/$defs/Item"}},
            "tree": {"$ref": "#/$defs/Tree"},
            "both": {"allOf": [{"$ref": "#/$defs/Item"}, {"properties": {"m": NUMBER}, "required": ["m"]}]},
        },
        "required": ["items", "tree", "both"],
    }
    assert arguments(schema, "1 2 3 4") == {"items": [{"n": 1}], "tree": {"n": 2}, "both": {"n": 3, "m": 4}}


def test_a_schema_without_end_ends() -> None:
    schema = {"$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "required": ["a"]}}}
    assert isinstance(value({**schema, "$ref": "#/$defs/A"}), dict)
    assert value({"$ref": "#"}) is not None


def test_any_json_has_the_keys_the_user_quotes() -> None:
    reply = answer(Ask(user_text="Use 'setup' and 'punchline' keys.", response_schema={}))
    assert reply.text.startswith('{"setup":"setup for: ')
    assert '"punchline":' in reply.text


@given(st.text(max_size=200), st.integers(-50, 50), st.integers(0, 100))
def test_numbers_stay_within_their_bounds(text: str, low: int, width: int) -> None:
    schema = {"type": "integer", "minimum": low, "maximum": low + width}
    made = value(schema, text)
    assert isinstance(made, int)
    assert low <= made <= low + width


def body(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "claude-opus-5", "max_tokens": 9, "messages": list(messages), **more}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "add", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "3"}


@pytest.mark.parametrize(
    ("messages", "text", "results"),
    [
        ([user("one")], "one", ()),
        ([user("one"), {"role": "assistant", "content": "ok"}, user("two")], "two", ()),
        ([user("one"), {"role": "system", "content": "It is noon."}], "one", ()),
        ([user("one"), CALL, user([RESULT])], "one", ("3",)),
        ([user("one"), CALL, user([RESULT, {"type": "text", "text": "note"}])], "note", ("3",)),
        ([user("one"), CALL, user([RESULT]), user("two")], "two", ("3",)),
        ([user("one"), CALL, user([RESULT]), CALL, user([RESULT])], "one", ("3",)),
        ([user("one"), CALL, user([RESULT]), {"role": "assistant", "content": "ok"}, user("two")], "two", ()),
        ([user("one"), {"role": "assistant", "content": "prefill"}], "one", ()),
    ],
)
def test_what_the_model_reads_from_a_request(messages: list[Any], text: str, results: tuple[str, ...]) -> None:
    ask = ask_from_anthropic(body(*messages, system="Never quote this."))
    assert (ask.user_text, ask.tool_results) == (text, results)


def test_which_tools_are_open() -> None:
    schema = {"input_schema": {"type": "object", "properties": {}}}
    tools = [{"name": "a", **schema}, {"name": "b", "defer_loading": True, **schema}, {"name": "c", **schema}]

    def names(*messages: Any) -> list[str]:
        return [offer.name for offer in ask_from_anthropic(body(*messages, tools=tools)).tools]

    assert names(user("x")) == ["a", "c"]
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}}
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}}
    inline = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "d", **schema}}}
    assert names(user("x"), {"role": "system", "content": [removal, addition, inline]}) == ["c", "b", "d"]
    found = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "b"}]}
    assert names(user("x"), CALL, user([found])) == ["a", "c", "b"]
