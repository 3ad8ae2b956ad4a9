"""The union of a lane's tools has a limit, and an offered tool is never left out."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.canonical import size_of
from headstay.masking import MOST_MASKED, SMALL_BYTES, bounded
from headstay.prompt import Tool
from headstay.toolset import FrozenTools, ToolState, freeze_tools


def tool(name: str, about: str = "") -> Tool:
    return Tool(name, client=True, deferred=False, wire={"name": name, "description": about})


def tools(count: int, about: str = "") -> list[Tool]:
    return [tool(f"tool_{number:03d}", about) for number in range(count)]


def frozen_after(known: Sequence[Tool], offered: Sequence[Tool]) -> FrozenTools:
    """Return the list of a call in a lane that has offered other tools before."""
    return freeze_tools(offered, freeze_tools(known, ToolState()).state, union=True)


@pytest.mark.parametrize(("masked", "falls_back"), [(64, False), (65, True)])
def test_64_masked_tools_may_stay_and_65_may_not(masked: int, falls_back: bool) -> None:
    offered = [tool("zulu", "Z" * 9_000)]
    frozen = frozen_after(tools(masked), offered)
    assert len(frozen.tools) == masked + 1
    found, notices = bounded(frozen, 0)
    assert [len(found.tools), len(found.masked), len(notices)] == ([1, 0, 1] if falls_back else [65, 64, 0])
    assert (found is frozen) == (not falls_back)
    assert found.state is frozen.state  # what the lane knows, it still knows


def test_masked_tools_that_would_double_the_head_are_left_out() -> None:
    one, other = tool("alpha", "A" * 6_000), tool("bravo", "B" * 6_000)
    frozen = frozen_after([one, other], [one])
    size = size_of(frozen.forms[1])  # both are alike, so with no system text the head would be exactly doubled
    assert bounded(frozen, 0) == (frozen, ())
    larger = frozen_after([one, tool("bravo", "B" * 6_001)], [one])
    found, (notice,) = bounded(larger, 0)
    assert [declared.name for declared in found.tools] == ["alpha"]
    assert notice.startswith("the tools that are declared and not offered would more than double the head, so")
    assert bounded(larger, 1) == (larger, ())
    assert size > SMALL_BYTES


def test_small_definitions_stay_however_small_the_head_is() -> None:
    frozen = frozen_after(tools(20, "A" * 100), tools(1, "A" * 100))
    assert bounded(frozen, 0) == (frozen, ())


def test_no_offered_tool_at_all() -> None:
    found, notices = bounded(frozen_after(tools(80), []), 0)
    assert (found.tools, found.forms, found.masked, len(notices)) == ((), (), (), 1)


NAMES = st.integers(min_value=0, max_value=120)


@given(known=st.sets(NAMES), offered=st.sets(NAMES), size=st.integers(0, 400), system=st.integers(0, 50_000))
def test_an_offered_tool_is_never_left_out(known: set[int], offered: set[int], size: int, system: int) -> None:
    catalogue = tools(121, "A" * size)
    frozen = frozen_after([catalogue[number] for number in known], [catalogue[number] for number in offered])
    found, notices = bounded(frozen, system)
    declared = [declared.name for declared in found.tools]
    assert {catalogue[number].name for number in offered} <= set(declared)
    assert set(declared) - set(found.masked) == {catalogue[number].name for number in offered}
    assert len(found.masked) <= MOST_MASKED
    assert [declared_tool for declared_tool in frozen.tools if declared_tool in found.tools] == list(found.tools)
    assert (
        dict(zip(declared, found.forms, strict=True)).items()
        <= dict(zip([one.name for one in frozen.tools], frozen.forms, strict=True)).items()
    )
    assert bool(notices) == (found != frozen)
    burden = sum(size_of(form) for one, form in zip(found.tools, found.forms, strict=True) if one.name in found.masked)
    rest = sum(map(size_of, found.forms)) - burden + system
    assert burden <= max(SMALL_BYTES, rest)
