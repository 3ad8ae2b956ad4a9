"""What must be identical for an answer to be reusable."""

import json
import random
import subprocess
import sys
import unicodedata
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.semantic.query import Query, Templates, read_query
from headstay.semantic.request import AskedRequest, Turn, opaque_in, read_settings
from headstay.semantic.scope import exact_key, family_key, scope_key

TOOLS = [
    {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
    {"name": "send", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}},
]
SETTINGS = {"model": "m-1", "temperature": 0.0, "tools": TOOLS, "tool_choice": "auto"}


def request(text: str = "Where is my card?", **changes: Any) -> AskedRequest:
    settings, opaque = read_settings(changes.pop("settings", SETTINGS))
    turns = (
        Turn("system", "You work for a bank."),
        Turn("user", "Hello"),
        Turn("assistant", "Hello!"),
        Turn("user", text),
    )
    return replace(AskedRequest(turns, settings=settings, opaque=opaque), **changes)


def key(asked: AskedRequest, *, embedder: str = "e-1") -> str:
    return scope_key(asked, embedder_fingerprint=embedder, query=read_query(asked, Templates()))


def shuffled(value: Any, seed: int) -> Any:
    """The same JSON value with its keys in another order."""
    if isinstance(value, dict):
        items = [(name, shuffled(inner, seed)) for name, inner in value.items()]
        random.Random(seed).shuffle(items)
        return dict(items)
    return [shuffled(inner, seed) for inner in value] if isinstance(value, list) else value


def test_the_query_is_no_part_of_the_scope() -> None:
    assert key(request("Where is my card?")) == key(request("Has my card been sent?"))


@given(st.integers(0, 1_000))
def test_complaint_20_the_order_of_keys_and_tools_changes_nothing(seed: int) -> None:
    mixed = shuffled(SETTINGS, seed)
    random.Random(seed).shuffle(mixed["tools"])
    assert key(request(settings=mixed)) == key(request())


def test_complaint_20_the_key_is_the_same_in_every_process() -> None:
    program = (
        "from headstay.semantic.request import AskedRequest, Turn, read_settings\n"
        "from headstay.semantic.scope import family_key\n"
        "settings, _ = read_settings({'stop': {'a', 'b', 'c'}, 'tools': [{'name': 'x'}, {'name': 'y'}]})\n"
        "asked = AskedRequest((Turn('user', 'Why?'),), settings=settings, exact_fields={'b': '1', 'a': '2'})\n"
        "print(family_key(asked, embedder_fingerprint='e'))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(keys) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": {**SETTINGS, "model": "m-2"}},
        {"settings": {**SETTINGS, "temperature": 0.7}},
        {"settings": {**SETTINGS, "tool_choice": "none"}},
        {"settings": {**SETTINGS, "tools": TOOLS[:1]}},
        {"settings": {**SETTINGS, "response_format": {"type": "json_object"}}},
        {"settings": {**SETTINGS, "endpoint": "eu"}},
        {"tenant": "acme"},
        {"tenant": ""},
        {"user": "ann"},
        {"version": "2"},
        {"exact_fields": {"date": "2026-11-29"}},
        {"generations": 2},
        {"turns": (Turn("user", "Where is my card?"),)},
    ],
    ids=str,
)
def test_complaints_06_07_every_field_is_part_of_the_scope(changed: dict[str, Any]) -> None:
    assert key(request(**changed)) != key(request())


@given(st.text(max_size=8), st.text(min_size=1, max_size=8))
def test_complaint_08_tenants_and_users_never_share_a_scope(one: str, other: str) -> None:
    assert (key(request(tenant=one)) == key(request(tenant=other))) == (one == other)
    assert key(request(tenant=one, user=other)) != key(request(tenant=one + other, user=""))
    assert key(request(tenant=one)) != key(request(user=one))


def test_complaint_01_another_system_prompt_is_another_scope() -> None:
    asked = request()
    other = replace(asked, turns=(Turn("system", "You work for a shop."), *asked.turns[1:]))
    assert key(asked) != key(other)


def test_complaint_04_a_question_after_another_history_is_another_scope() -> None:
    def after(who: str) -> AskedRequest:
        return AskedRequest((Turn("user", f"Who leads {who}?"), Turn("assistant", "Kim."), Turn("user", "How old?")))

    assert key(after("Acme")) != key(after("Apex"))
    families = {family_key(after(who), embedder_fingerprint="e") for who in ("Acme", "Apex")}
    assert len({exact_key(family, "How old?") for family in families}) == 2


def test_complaint_12_another_embedder_is_another_scope() -> None:
    assert key(request(), embedder="e-1") != key(request(), embedder="e-2")


def test_complaint_21_a_message_has_no_place_for_an_id() -> None:
    assert set(Turn.__dataclass_fields__) == {"role", "text", "other", "unhashed"}


def test_complaint_26_what_may_affect_the_answer_is_exact() -> None:
    assert key(request(exact_fields={"window": "7d"})) != key(request(exact_fields={"window": "30d"}))


def test_every_part_of_a_turn_counts() -> None:
    asked = request()
    first = asked.turns[1]
    for other in (
        replace(first, role="assistant"),
        replace(first, text="Hi"),
        replace(first, other='[{"image":"00"}]'),
        replace(first, unhashed=True),
    ):
        assert key(replace(asked, turns=(asked.turns[0], other, *asked.turns[2:]))) != key(asked)


def test_an_image_beside_the_query_is_exact() -> None:
    asked = request()
    seen = {
        key(replace(asked, turns=(*asked.turns[:3], replace(asked.turns[3], other=image)))) for image in ("", "a", "b")
    }
    assert len(seen) == 3


def test_a_text_cannot_pass_for_the_place_of_the_query() -> None:
    """The place is a part of the structure, so that no text in it looks the same."""
    asked = request()
    empty = scope_key(asked, embedder_fingerprint="e", query=Query("", "whole"))
    assert empty != scope_key(asked, embedder_fingerprint="e", query=None)
    before = scope_key(asked, embedder_fingerprint="e", query=Query("x", "template", "a", ""))
    after = scope_key(asked, embedder_fingerprint="e", query=Query("x", "template", "", "a"))
    assert before != after


def test_what_stands_around_the_query_is_exact() -> None:
    declared = request("Page 1\nWhat is the fee?", query="What is the fee?")
    assert key(declared) == key(request("Page 1\nHow much is it?", query="How much is it?"))
    assert key(declared) != key(request("Page 2\nWhat is the fee?", query="What is the fee?"))


def test_a_declared_query_outside_the_text_leaves_all_of_it_exact() -> None:
    assert key(request("Page 1", query="Fee?")) != key(request("Page 2", query="Fee?"))


def test_the_family_leaves_the_whole_last_text_out() -> None:
    assert family_key(request("a\nb"), embedder_fingerprint="e") == family_key(request("c"), embedder_fingerprint="e")
    ends = AskedRequest((Turn("user", "a"), Turn("assistant", "b")))
    other = AskedRequest((Turn("user", "c"), Turn("assistant", "b")))
    assert family_key(ends, embedder_fingerprint="e") != family_key(other, embedder_fingerprint="e")


@given(st.text(max_size=30))
def test_the_exact_key_knows_no_unicode_form_line_end_or_outer_blank(text: str) -> None:
    one = exact_key("f", text)
    assert one == exact_key("f", unicodedata.normalize("NFC", text))
    assert one == exact_key("f", unicodedata.normalize("NFD", text))
    assert one == exact_key("f", f" \n{text}\t")
    assert exact_key("f", text.replace("\r", "").replace("\n", "\r\n")) == exact_key("f", text.replace("\r", ""))


@pytest.mark.parametrize(
    ("one", "other"),
    [("Polish", "polish"), ("a b", "a  b"), ("ma", "má"), ("ﬁ", "fi"), ("²", "2"), ("a\n b", "a\nb"), ("x", "x.")],
)
def test_the_exact_key_never_folds_what_may_change_the_question(one: str, other: str) -> None:
    assert exact_key("f", one) != exact_key("f", other)


def test_keys_of_half_a_surrogate_pair_and_of_odd_values_exist() -> None:
    assert len(exact_key("f", "\ud800")) == 64
    assert len(key(request(exact_fields={"cache_control": "x"}))) == 64
    assert key(request(exact_fields={"cache_control": "x"})) != key(request())


class Answer:
    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return {"title": "Answer", "type": "object"}


class Nameless:
    pass


def test_settings_show_a_schema_class_by_its_content() -> None:
    text, opaque = read_settings({"response_format": Answer})
    assert json.loads(text) == {"response_format": {"title": "Answer", "type": "object"}}
    assert opaque == ""


@pytest.mark.parametrize("value", [Nameless, Nameless(), len, {"deep": [Nameless]}])
def test_settings_name_what_they_cannot_show(value: object) -> None:
    _, opaque = read_settings({"model": "m", "response_format": value})
    assert opaque.rpartition(".")[2] in {"Nameless", "builtin_function_or_method"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[('response_format', <class 'app.Answer'>)]", "<class 'app.Answer'>"),
        ("{'f': <function pick at 0x7f00>}", "<function pick at 0x7f00>"),
        ("<app.Thing object at 0x7f1c>", "<app.Thing object at 0x7f1c>"),
        ('{"content": "a <class> of its own"}', ""),
    ],
)
def test_a_settings_text_is_searched_for_names_without_content(text: str, found: str) -> None:
    assert opaque_in(text) == found
