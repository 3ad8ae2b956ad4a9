"""Tools: one order and one form for a lane, whatever a call gives."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.prompt import Tool
from headstay.toolset import ToolState, freeze_tools, merge_tools


def tool(name: str, *, client: bool = True, **more: Any) -> Tool:
    return Tool(name, client, False, {"name": name, "input_schema": {"type": "object"}, **more})


def names(tools: tuple[Tool, ...]) -> list[str]:
    return [tool.name for tool in tools]


NAMES = st.lists(st.text("abcdef", min_size=1, max_size=2), unique=True, max_size=8)


@given(NAMES, NAMES, st.randoms(use_true_random=False))
def test_the_order_is_the_lanes_whatever_the_call_gives(first: list[str], later: list[str], rng: random.Random) -> None:
    one = freeze_tools([tool(name) for name in first], ToolState())
    assert names(one.tools) == sorted(first)
    again = freeze_tools([tool(name) for name in rng.sample(later, len(later))], one.state)
    known = [name for name in sorted(first) if name in later]
    assert names(again.tools) == [*known, *sorted(set(later) - set(first))]  # late ones stand behind
    assert again.forms == tuple(again.state.forms[name] for name in names(again.tools))
    # what was learnt holds for whoever comes next, in any order
    third = freeze_tools([tool(name) for name in rng.sample(later, len(later))], again.state)
    assert (third.tools, third.state is again.state) == (again.tools, True)


def test_what_the_provider_runs_stands_behind_what_the_application_runs() -> None:
    search, find = tool("a_search", client=False), tool("find")
    assert names(freeze_tools([search, find], ToolState()).tools) == ["find", "a_search"]


def test_keys_in_another_order_come_back_in_the_first_form() -> None:
    first = freeze_tools([tool("a", description="x")], ToolState())
    turned = Tool("a", True, False, {"description": "x", "input_schema": {"type": "object"}, "name": "a"})
    again = freeze_tools([turned], first.state)
    assert json.dumps(again.tools[0].wire) == json.dumps(first.tools[0].wire)
    assert (again.forms, again.state is first.state) == (first.forms, True)
    assert list(turned.wire) == ["description", "input_schema", "name"]  # the application's own is not changed


def test_a_changed_schema_is_sent_as_it_is() -> None:
    first = freeze_tools([tool("a"), tool("b")], ToolState())
    changed = freeze_tools([tool("b"), tool("a", description="new")], first.state)
    assert names(changed.tools) == ["a", "b"]
    assert changed.tools[0].wire["description"] == "new"
    assert changed.state.order == first.state.order
    assert '"new"' in changed.state.forms["a"]


def test_a_tool_that_is_not_given_is_not_sent() -> None:
    first = freeze_tools([tool("a"), tool("b"), tool("c")], ToolState())
    fewer = freeze_tools([tool("c"), tool("a")], first.state)
    assert names(fewer.tools) == ["a", "c"]
    assert fewer.state is first.state  # it has its place when it comes back
    none = freeze_tools([], first.state)
    assert (none.tools, none.state is first.state) == ((), True)


def test_names_that_come_twice_are_the_providers_to_refuse() -> None:
    twice = [tool("a"), tool("b"), tool("a", description="x")]
    found = freeze_tools(twice, ToolState())
    assert (list(found.tools), len(found.forms), found.state) == (twice, 3, ToolState())


@pytest.mark.parametrize("form", ["no JSON", "[]", ""])
def test_a_lane_whose_record_is_broken_says_so(form: str) -> None:
    """The caller turns it into a request that goes out unchanged."""
    with pytest.raises((ValueError, AttributeError)):
        freeze_tools([tool("a")], ToolState(("a",), {"a": form}))


def test_what_two_calls_learnt_at_once_is_kept_of_both() -> None:
    known = ToolState(("a",), {"a": "1"}, ("a",))
    one = ToolState(("a", "b"), {"a": "1", "b": "2"}, ("a", "b"))
    two = ToolState(("a", "c"), {"a": "1", "c": "3"}, ("a", "c"))
    both = merge_tools(merge_tools(known, one), two)
    assert both == ToolState(("a", "b", "c"), {"a": "1", "b": "2", "c": "3"}, ("a", "b", "c"))
    assert merge_tools(both, both) is both
