"""The union of a lane has a limit: beyond it the list goes out as it is offered, and what is not offered is refused."""

from typing import Any

import pytest
from langchain.agents import create_agent

from headstay import Ledger


@pytest.mark.parametrize("name", ["claude-opus-5-5", "gpt-5.4"])
@pytest.mark.parametrize("masked", [64, 65])
async def test_a_list_of_many_masked_tools_goes_out_as_offered(
    make_model: Any,
    desk: Any,
    stable: Any,
    wires: Any,
    policy: str,
    ledger: Ledger,
    caplog: Any,
    name: str,
    masked: int,
) -> None:
    names = [f"tool_{number:02d}" for number in range(masked)]
    desk.offer = lambda number, tools: tools if number == 1 else [tool for tool in tools if tool.name == "alpha"]
    agent = create_agent(
        make_model(name),
        desk.tools("alpha", *names),
        # As long as the tools, so that it is their number that counts.
        system_prompt=policy * 4,
        middleware=[desk.middleware(), stable(on_break="warn")],
    )
    agent.invoke({"messages": [("user", "Hello")]})
    agent.invoke({"messages": [("user", f"use alpha {names[0]}")]})
    assert not wires.failed
    assert desk.ran == ["alpha"]
    assert wires.tools(0) == ["alpha", *names]
    assert [wires.tools(number) for number in (1, 2)] == [["alpha"] if masked > 64 else ["alpha", *names]] * 2
    said = [
        record.message for record in caplog.records if "declared and not offered are more than 64" in record.message
    ]
    assert len(said) == (1 if masked > 64 else 0)
    assert not any(row.unverified for row in ledger.rows())
