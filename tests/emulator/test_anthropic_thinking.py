"""Thinking blocks: when they come, how they are signed, and what a changed history does to them."""

from typing import Any

import anthropic
import pytest

from headstay.emulator import serve
from headstay.emulator.anthropic_switches import AnthropicSwitches

BETA = "thinking-binding-controls-2026-08-01"
TOOL = {"name": "look_up", "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}}}
OTHER = {"name": "other", "input_schema": {"type": "object", "properties": {}}}


def ask(client: anthropic.Anthropic, messages: list[Any], **more: Any) -> Any:
    body: dict[str, Any] = {"model": "claude-opus-5-5", "max_tokens": 500, "system": "Be kind.", "tools": [TOOL]}
    return client.beta.messages.create(**{**body, **more}, messages=messages)


def opened(client: anthropic.Anthropic, **more: Any) -> list[Any]:
    """A first turn: the question, and the whole answer with its thinking block."""
    question = {"role": "user", "content": "What is the word 'stone'?"}
    answer = ask(client, [question], **more)
    assert answer.content[0].type == "thinking"
    return [question, {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]}]


def dropping() -> dict[str, Any]:
    binding = {"prefix_mismatch_behavior": "drop_block"}
    return {"betas": [BETA], "thinking": {"type": "adaptive", "block_binding": binding}}


NEXT = {"role": "user", "content": "And 'water'?"}


def test_an_untouched_history_keeps_its_thinking(claude: anthropic.Anthropic) -> None:
    history = [*opened(claude), NEXT]
    answer = ask(claude, history, betas=[BETA])
    assert answer.input_transformations == []
    history += [{"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]}, NEXT]
    assert ask(claude, history, betas=[BETA]).input_transformations == []


def test_markers_and_string_content_are_no_change(claude: anthropic.Anthropic) -> None:
    question, answer = opened(claude)
    marked = {"type": "text", "text": question["content"], "cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}]
    ask(claude, [{"role": "user", "content": [marked]}, answer, NEXT], system=system)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"system": "Be stern."}, "`system`"),
        ({"tools": [TOOL, OTHER]}, "`tools`"),
        ({"question": "What is the word 'stones'?"}, "`messages`"),
    ],
)
def test_a_changed_prefix_is_an_error_that_names_the_part(
    claude: anthropic.Anthropic, change: dict[str, Any], named: str
) -> None:
    question, answer = opened(claude)
    question = {"role": "user", "content": change.pop("question", question["content"])}
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, [question, answer, NEXT], **change)
    assert "messages.1.content.0" in str(caught.value)
    assert named in str(caught.value)


def test_a_changed_prefix_can_drop_the_block_and_report_it(claude: anthropic.Anthropic) -> None:
    question, answer = opened(claude)
    reply = ask(claude, [question, answer, NEXT], system="Be stern.", **dropping())
    (entry,) = reply.input_transformations
    assert (entry.type, entry.path, entry.reason) == (
        "thinking_dropped",
        "messages.1.content.0",
        "prefix_binding_mismatch",
    )
    with claude.beta.messages.stream(
        model="claude-opus-5-5",
        max_tokens=500,
        system="Be stern.",
        messages=[question, answer, NEXT],  # type: ignore[list-item]  # blocks are sent back as plain dicts
        betas=[BETA],
        thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
    ) as stream:
        final = stream.get_final_message()
    assert final.input_transformations is not None
    assert [e.type for e in final.input_transformations] == ["thinking_dropped"]


def test_without_the_beta_nothing_is_reported(claude: anthropic.Anthropic) -> None:
    assert ask(claude, [*opened(claude), NEXT]).input_transformations is None


@pytest.mark.parametrize("default", ["drop_block", "allow"])
def test_the_default_is_a_switch(default: Any) -> None:
    with (
        serve(anthropic=AnthropicSwitches(thinking_mismatch=default)) as server,
        anthropic.Anthropic(api_key="k", base_url=server.base_url, max_retries=0) as client,
    ):
        question, answer = opened(client)
        reply = ask(client, [question, answer, NEXT], system="Be stern.", betas=[BETA])
        kind = {"drop_block": "thinking_dropped", "allow": "thinking_mismatch_allowed"}[default]
        assert [entry.type for entry in reply.input_transformations] == [kind]


def test_a_modified_block_is_refused(claude: anthropic.Anthropic) -> None:
    shown = {"thinking": {"type": "adaptive", "display": "summarized"}}
    question, answer = opened(claude, **shown)
    assert answer["content"][0]["thinking"].startswith("The user wants")
    answer["content"][0]["thinking"] += "!"
    with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
        ask(claude, [question, answer, NEXT], **shown)


def test_older_models_do_not_bind_but_refuse_a_modified_latest_block(claude: anthropic.Anthropic) -> None:
    thinking = {
        "model": "claude-sonnet-4-6",
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    question, answer = opened(claude, **thinking)
    ask(claude, [question, answer, NEXT], **{**thinking, "system": "Be stern."})
    changed = {"role": "assistant", "content": [{**answer["content"][0], "thinking": "x"}, *answer["content"][1:]]}
    with pytest.raises(anthropic.BadRequestError, match="cannot be modified"):
        ask(claude, [question, changed, NEXT], **thinking)
    # In an earlier assistant message it goes unnoticed.
    ask(claude, [question, changed, NEXT, {"role": "assistant", "content": "ok"}, NEXT], **thinking)


def test_haiku_drops_the_thinking_of_other_models(claude: anthropic.Anthropic) -> None:
    question, answer = opened(claude)
    reply = ask(claude, [question, answer, NEXT], model="claude-haiku-5-5", betas=[BETA])
    assert [entry.reason for entry in reply.input_transformations] == ["model_binding_mismatch"]


def test_a_dropped_block_is_not_in_the_prompt(claude: anthropic.Anthropic) -> None:
    shown = dropping()
    shown["thinking"]["display"] = "summarized"
    question = {"role": "user", "content": " word" * 600}
    first = ask(claude, [question], **shown)
    thought = first.usage.output_tokens_details.thinking_tokens
    # "The user wants:" is 4 tokens; the 400 characters quoted behind it are 80 words and a last blank.
    assert thought == 85
    answer = {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in first.content]}
    history = [question, answer, NEXT]
    kept = ask(claude, history, **shown).usage.input_tokens
    # "Be kind." and "Be stern." have 3 tokens each, so the thinking is all that is missing.
    assert kept - ask(claude, history, **shown, system="Be stern.").usage.input_tokens == 85
    # With it gone the prefix is another one from there on, with a marker behind it too.
    auto: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
    assert ask(claude, history, **shown, **auto).usage.cache_creation_input_tokens == kept
    longer = [*history, {"role": "assistant", "content": "ok"}, NEXT]
    assert ask(claude, longer, **shown, **auto).usage.cache_read_input_tokens == kept


@pytest.mark.parametrize(
    ("model", "thinks"), [("claude-opus-5", True), ("claude-sonnet-4-6", False), ("claude-haiku-4-5", False)]
)
def test_who_thinks_unasked(claude: anthropic.Anthropic, model: str, thinks: bool) -> None:
    answer = ask(claude, [{"role": "user", "content": "What is the word 'stone'?"}], model=model)
    assert any(block.type == "thinking" for block in answer.content) is thinks
    assert bool(answer.usage.output_tokens_details) is thinks
