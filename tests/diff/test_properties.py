"""For any request and any mutation the cause is found at its place; for any continuation there is none."""

import copy
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstay import diff
from headstay.errors import WireError
from headstay.forms import first_difference

Make = Callable[..., Any]
WORDS = ["answer", "brief", "calm", "door", "early", "find", "green", "house", "item", "just", "kind", "long", "mild"]
ALL_WIRES = ("anthropic-messages", "openai-chat", "openai-responses")

words = st.lists(st.sampled_from(WORDS), min_size=2, max_size=9).map(" ".join)
schemas = st.lists(st.sampled_from(WORDS), min_size=2, max_size=5, unique=True).map(
    lambda names: {"type": "object", "properties": {name: {"type": "string"} for name in names}}
)
many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tools(draw: st.DrawFn) -> list[tuple[str, str, Mapping[str, Any]]]:
    names = draw(st.lists(st.sampled_from(WORDS), min_size=2, max_size=6, unique=True))
    return [(name, f"{draw(words)}.", draw(schemas)) for name in names]


@st.composite
def turns(draw: st.DrawFn, first: int = 0, least: int = 2) -> list[tuple[Any, ...]]:
    """Turns of a conversation that ends with a question; every text is another one."""
    found: list[tuple[Any, ...]] = []
    for turn in range(first, first + draw(st.integers(least, 5))):
        found.append(("user", f"q{turn} {draw(words)}?"))
        if draw(st.booleans()):
            found.append(("thinking", f"t{turn} {draw(words)}", f"seal{turn}"))
        calls = draw(st.integers(0, 3))
        found += [("call", f"c{turn}x{n}", draw(st.sampled_from(WORDS)), {"a": n, "b": turn}) for n in range(calls)]
        found += [("result", f"c{turn}x{n}", f"r{turn}x{n} {draw(words)}") for n in range(calls)]
        found.append(("assistant", f"a{turn} {draw(words)}."))
    return [*found, ("user", f"last {first} {draw(words)}?")]


def body(make: Make, wire: str, system: str, listed: Any, items: Any) -> dict[str, Any]:
    return make([system], listed, items).body(wire)  # type: ignore[no-any-return]  # a fixture


def found(one: Any, other: Any) -> list[tuple[str, str, int]]:
    return [(finding.cause.value, finding.path, finding.at) for finding in diff(one, other).findings]


@many
@given(wire=st.sampled_from(ALL_WIRES), listed=tools(), items=turns(), more=turns(first=50), system=words)
def test_a_continuation_is_clean(talk: Make, wire: str, listed: Any, items: Any, more: Any, system: str) -> None:
    one = body(talk, wire, system, listed, items)
    kept = copy.deepcopy(one)
    assert diff(one, one).clean
    other = body(talk, wire, system, listed, [*items, ("assistant", "Well."), *more])
    assert diff(one, other).findings == ()
    assert diff(json.loads(json.dumps(one)), other).findings == ()
    assert one == kept


CLOCKS = st.datetimes().map(lambda moment: f"2026-11-29 {moment:%H:%M:%S}")
IDS = st.uuids().map(str)
NAMES = st.sampled_from(["Ada Lovelace", "Grace Hopper", "Max Planck", "Emmy Noether", "Niels Bohr"])
NUMBERS = st.integers(1, 99_999).map(str)
PATHS = {
    "anthropic-messages": "system[0].text",
    "openai-chat": "messages[0].content",
    "openai-responses": "instructions",
}


@many
@given(
    wire=st.sampled_from(ALL_WIRES),
    lines=st.lists(words, min_size=2, max_size=8),
    at=st.integers(0, 7),
    kind=st.sampled_from(["clock_in_head", "random_id_in_head", "name", "number"]),
    data=st.data(),
    items=turns(),
)
def test_a_value_in_the_system_text(
    talk: Make, wire: str, lines: list[str], at: int, kind: str, data: st.DataObject, items: Any
) -> None:
    values = {"clock_in_head": CLOCKS, "random_id_in_head": IDS, "name": NAMES, "number": NUMBERS}[kind]
    one, other = data.draw(st.lists(values, min_size=2, max_size=2, unique=True))
    at = min(at, len(lines))
    front = "\n".join([*lines[:at], "This is for "])
    rest = "\n".join([", as agreed.", *lines[at:]])
    before = body(talk, wire, front + one + rest, [], items)
    after = body(talk, wire, front + other + rest, [], [*items, ("assistant", "Well."), ("user", "And?")])
    cause = kind if kind.endswith("_in_head") else "value_in_head"
    assert found(before, after) == [(cause, PATHS[wire], len(front) + first_difference(one, other))]
    longest = max(len(one), len(other))
    (finding,) = diff(before, after).findings
    assert finding.before in one or longest > 80
    assert finding.remedy.startswith("declare it: Slot(")


def tool_mutation(listed: list[Any], data: st.DataObject) -> tuple[list[Any], str, int]:
    """Change a tool list in one way; say how, and at which place of the new list."""
    at = data.draw(st.integers(0, len(listed) - 1))
    name, description, schema = listed[at]
    kind = data.draw(
        st.sampled_from(["order", "added", "removed", "schema_changed", "description_changed", "key_order"])
    )
    if kind == "order":
        other = data.draw(st.permutations(listed).filter(lambda order: order != listed))
        return other, "tool_order", next(n for n, tool in enumerate(other) if tool != listed[n])
    if kind == "added":
        return [*listed[:at], ("fresh", "New.", schema), *listed[at:]], "tool_added", at
    if kind == "removed":
        return [*listed[:at], *listed[at + 1 :]], "tool_removed", at
    if kind == "description_changed":
        changed = (name, f"{description} Mostly.", schema)
    elif kind == "schema_changed":
        changed = (name, description, {**schema, "properties": {**schema["properties"], "zeta": {"type": "number"}}})
    else:
        turned = dict(reversed(schema["properties"].items()))
        return (
            [*listed[:at], (name, description, {**schema, "properties": turned}), *listed[at + 1 :]],
            "schema_key_order",
            at,
        )
    return [*listed[:at], changed, *listed[at + 1 :]], f"tool_{kind}", at


@many
@given(wire=st.sampled_from(ALL_WIRES), listed=tools(), items=turns(), data=st.data())
def test_a_changed_tool_list(talk: Make, wire: str, listed: Any, items: Any, data: st.DataObject) -> None:
    other, cause, at = tool_mutation(listed, data)
    before = body(talk, wire, "Be kind.", listed, items)
    after = body(talk, wire, "Be kind.", other, [*items, ("assistant", "Well."), ("user", "And?")])
    ((named, path, _),) = found(before, after)
    assert named == cause
    assert path.split("]")[0] == f"tools[{at}"


def mutated(items: list[Any], data: st.DataObject) -> tuple[list[Any], str, str]:
    """Change a history in one way; say how, and a text that stands at the place."""
    texts = [n for n, item in enumerate(items[:-1]) if item[0] in ("user", "assistant")]
    at = data.draw(st.sampled_from(texts))
    kinds = ["edited", "dropped", "whitespace"]
    results = [n for n, item in enumerate(items) if item[0] == "result"]
    kinds += ["cleared", "ids", "keys"] if results else []
    pairs = [n for n in results if n + 1 in results]
    kinds += ["results"] if pairs else []
    kinds += ["thinking"] if any(item[0] == "thinking" for item in items) else []
    kind = data.draw(st.sampled_from(kinds))
    new = list(items)
    if kind == "edited":
        new[at] = (items[at][0], f"{items[at][1][:2]} other words here")
        return new, "history_edited", new[at][1]
    if kind == "whitespace":
        new[at] = (items[at][0], items[at][1].replace(" ", "  ", 1))
        return new, "whitespace", new[at][1]
    if kind == "dropped":
        starts = [n for n, item in enumerate(items[:-1]) if item[0] == "user"]
        begin = data.draw(st.sampled_from(starts))
        end = next(n for n in range(begin + 1, len(items)) if items[n][0] == "user")
        return [*items[:begin], *items[end:]], "history_dropped", items[end][1]
    if kind == "cleared":
        place = data.draw(st.sampled_from(results))
        new[place] = ("result", items[place][1], "[cleared to save context]")
        return new, "tool_result_cleared", "[cleared"
    if kind == "results":
        place = data.draw(st.sampled_from(pairs))
        new[place], new[place + 1] = items[place + 1], items[place]
        return new, "parallel_results_reordered", items[place + 1][2]
    if kind == "thinking":
        place = next(n for n, item in enumerate(items) if item[0] == "thinking")
        new[place] = ("thinking", items[place][1], "another seal")
        return new, "thinking_changed", "another seal"
    place = next(n for n, item in enumerate(items) if item[0] == "call")
    if kind == "keys":
        new[place] = (*items[place][:3], dict(reversed(items[place][3].items())))
        return new, "call_key_order", items[place][1]
    changed = {"call": f"new_{items[place][1]}"}
    new = [(item[0], changed["call"], *item[2:]) if item[1] == items[place][1] else item for item in items]
    return new, "ids_regenerated", changed["call"]


def holds(value: Any, path: str, text: str) -> bool:
    """Whether a text stands at the message that a path leads to."""
    field, _, rest = path.partition("[")
    return text in json.dumps(value[field][int(rest.split("]")[0])], ensure_ascii=False)


@many
@given(wire=st.sampled_from(ALL_WIRES), items=turns(), data=st.data())
def test_a_changed_history(talk: Make, wire: str, items: Any, data: st.DataObject) -> None:
    other, cause, text = mutated(items, data)
    before = body(talk, wire, "Be kind.", [], items)
    after = body(talk, wire, "Be kind.", [], [*other, ("assistant", "Well."), ("user", "And?")])
    divergence = diff(before, after)
    ((named, path, at),) = found(before, after)
    assert named == cause
    assert holds(after, path, text)
    if cause in ("history_edited", "whitespace"):
        one, two = (json.loads(json.dumps(value)) for value in (before, after))
        assert at == first_difference(text_at(one, path), text_at(two, path))
    assert divergence == diff(copy.deepcopy(before), copy.deepcopy(after))


def text_at(value: Any, path: str) -> str:
    for step in path.replace("]", "").replace("[", ".").split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    assert isinstance(value, str)
    return value


@many
@given(wire=st.sampled_from(ALL_WIRES), listed=tools(), items=turns(), data=st.data())
def test_a_change_in_each_tier_is_found(talk: Make, wire: str, listed: Any, items: Any, data: st.DataObject) -> None:
    other_tools, in_tools, _ = tool_mutation(listed, data)
    other_items, in_history, _ = mutated(items, data)
    one, other = data.draw(st.lists(CLOCKS, min_size=2, max_size=2, unique=True))
    before = body(talk, wire, f"It is {one} now.", listed, items)
    after = body(
        talk, wire, f"It is {other} now.", other_tools, [*other_items, ("assistant", "Well."), ("user", "And?")]
    )
    assert [cause for cause, _, _ in found(before, after)] == [in_tools, "clock_in_head", in_history]


@many
@given(one=st.text(max_size=60), other=st.text(max_size=60))
def test_the_first_difference_is_the_common_prefix(one: str, other: str) -> None:
    at = first_difference(one, other)
    assert one[:at] == other[:at]
    assert one[at : at + 1] != other[at : at + 1] or one == other


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@pytest.mark.parametrize("wire", ALL_WIRES)
@many
@given(value=anything)
def test_any_json_in_a_field_is_compared_or_refused(talk: Make, wire: str, value: Any) -> None:
    sound = body(talk, wire, "Be kind.", [], [("user", "Hello?")])
    field = "input" if wire == "openai-responses" else "messages"
    texts = [{"type": "text", "text": value}]
    results = [{"type": "tool_result", "content": value}]
    for odd in (
        *(value, [value], [{"role": "user", "content": value}], [{"role": "user", "content": [value]}]),
        [{"type": "text", "role": "assistant", "content": texts, "tool_calls": value}],
        [{"role": value, "content": results}],
        [{"role": "user", "content": [{"type": value, "text": "Hi."}]}],
    ):
        other, bare = {**sound, field: odd, "tools": value}, {"model": "m", field: odd}
        for one, two in ((sound, other), (other, sound), (bare, bare)):
            with suppress(WireError):  # and nothing else
                diff(one, two)
