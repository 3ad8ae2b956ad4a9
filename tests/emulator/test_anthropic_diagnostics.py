"""The API's own account of why a prefix could not be reused."""

from typing import Any

import anthropic
import pytest

TOOL: Any = {"name": "t", "input_schema": {"type": "object", "properties": {}}}
BODY: dict[str, Any] = {
    "model": "claude-sonnet-4-6",
    "max_tokens": 9,
    "system": " rule" * 30,
    "messages": [{"role": "user", "content": " one" * 10}],
}


def asked(client: anthropic.Anthropic, previous: str | None, **more: Any) -> anthropic.types.Message:
    message: anthropic.types.Message = client.messages.create(
        **{**BODY, **more}, diagnostics={"previous_message_id": previous}
    )
    return message


def test_the_first_turn_and_an_append_have_nothing_to_tell(claude: anthropic.Anthropic) -> None:
    first = asked(claude, None)
    assert first.diagnostics is None
    grown = [*BODY["messages"], {"role": "assistant", "content": "ok"}, {"role": "user", "content": "two"}]
    assert asked(claude, first.id, messages=grown).diagnostics is None


@pytest.mark.parametrize(
    ("change", "kind", "missed"),
    [
        ({"model": "claude-opus-4-8"}, "model_changed", 40),
        ({"system": " law" * 30}, "system_changed", 40),
        ({"messages": [{"role": "user", "content": "two"}]}, "messages_changed", 10),
        ({"tools": [TOOL]}, "tools_changed", 40),
        ({"output_config": {"effort": "low"}}, "unavailable", None),
    ],
)
def test_each_reason(claude: anthropic.Anthropic, change: dict[str, Any], kind: str, missed: int | None) -> None:
    told = asked(claude, asked(claude, None).id, **change).diagnostics
    assert told is not None
    assert told.cache_miss_reason is not None
    assert told.cache_miss_reason.type == kind
    # 30 tokens of system text and 10 of the message stood in the first request.
    assert getattr(told.cache_miss_reason, "cache_missed_input_tokens", None) == missed


def test_another_workspace_knows_nothing(claude: anthropic.Anthropic, other_claude: anthropic.Anthropic) -> None:
    told = asked(other_claude, asked(claude, None).id).diagnostics
    assert told is not None
    assert told.cache_miss_reason is not None
    assert told.cache_miss_reason.type == "previous_message_not_found"
