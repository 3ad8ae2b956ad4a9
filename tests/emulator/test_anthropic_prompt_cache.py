"""The prompt cache of the Messages API as the SDK sees it.

`" word" * n` is n tokens, so all figures below are sums worked out by hand. claude-sonnet-4-6 caches from 1,024.
"""

from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from headstay.emulator import Emulator, ManualClock, anthropic_models, serve
from headstay.emulator.anthropic_switches import AnthropicSwitches

Spent = Callable[..., tuple[int, int, int]]

MARK: dict[str, Any] = {"cache_control": {"type": "ephemeral"}}
MARK_1H: dict[str, Any] = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def words(n: int, word: str = "word") -> str:
    return f" {word}" * n


def text(n: int, word: str = "word", **more: Any) -> Any:
    return {"type": "text", "text": words(n, word), **more}


def user(*blocks: dict[str, Any] | str) -> Any:
    return {"role": "user", "content": [b if isinstance(b, dict) else {"type": "text", "text": b} for b in blocks]}


def tool(name: str, **more: Any) -> Any:
    return {"name": name, "input_schema": {"type": "object", "properties": {}}, **more}


def hi(n: int = 5) -> Any:
    return [user(text(n, "hi"))]


def test_a_marked_head_is_written_once_and_then_read(spent: Spent) -> None:
    head = [text(1500, **MARK)]
    assert spent(system=head, messages=hi()) == (5, 1500, 0)
    assert spent(system=head, messages=hi(7)) == (7, 0, 1500)


def test_without_a_marker_nothing_is_cached(spent: Spent) -> None:
    for _ in range(2):
        assert spent(system=[text(1500)], messages=hi()) == (1505, 0, 0)


def test_usage_has_the_split_by_lifetime(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(
        model="claude-sonnet-4-6",
        max_tokens=64,
        system=[text(1500, **MARK_1H), text(200, "plan", **MARK)],
        messages=hi(),
    )
    created = message.usage.cache_creation
    assert created is not None
    assert (created.ephemeral_1h_input_tokens, created.ephemeral_5m_input_tokens) == (1500, 200)
    assert (message.usage.cache_creation_input_tokens, message.usage.input_tokens) == (1700, 5)


def test_below_the_minimum_of_the_model_both_fields_are_zero(spent: Spent) -> None:
    head = [text(1023, **MARK)]
    assert spent(system=head, messages=hi()) == (1028, 0, 0)
    assert spent(system=head, messages=hi()) == (1028, 0, 0)
    assert spent(system=[text(1024, **MARK)], messages=hi()) == (5, 1024, 0)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-fable-5-1", 512),
        ("claude-mythos-5", 512),
        ("claude-opus-5", 512),
        ("claude-opus-5-5", 512),
        ("claude-sonnet-5-5", 512),
        ("claude-haiku-5-5", 512),
        ("claude-opus-4-8", 1024),
        ("claude-sonnet-5", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-6", 4096),
        ("claude-haiku-4-5", 4096),
    ],
)
def test_the_minimum_by_model(spent: Spent, model: str, minimum: int) -> None:
    assert spent(model=model, system=[text(minimum - 1, **MARK)], messages=hi()) == (minimum + 4, 0, 0)
    assert spent(model=model, system=[text(minimum, **MARK)], messages=hi()) == (5, minimum, 0)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-sonnet-4-5-20250929", 1024),
        ("claude-sonnet-4-0", 1024),
        ("claude-opus-4-1", 1024),
        ("claude-mythos-preview", 2048),
        ("claude-opus-4-5-20251101", 4096),
    ],
)
def test_the_minimum_of_models_the_sdk_warns_about(model: str, minimum: int) -> None:
    row = anthropic_models.find(model)
    assert row is not None
    assert row.minimum == minimum


def test_workspaces_and_models_do_not_share(claude: anthropic.Anthropic, other_claude: anthropic.Anthropic) -> None:
    def write(client: anthropic.Anthropic, model: str) -> int | None:
        message = client.messages.create(model=model, max_tokens=9, system=[text(1500, **MARK)], messages=hi())
        return message.usage.cache_creation_input_tokens

    assert write(claude, "claude-sonnet-4-6") == 1500
    assert write(other_claude, "claude-sonnet-4-6") == 1500
    assert write(claude, "claude-opus-5") == 1500
    assert write(claude, "claude-sonnet-4-6") == 0


def test_a_string_equals_one_text_block_with_the_same_text(spent: Spent) -> None:
    ok = {"type": "text", "text": "ok"}
    block = [{"role": "user", "content": [text(1500)]}, {"role": "assistant", "content": "ok"}]
    string = [{"role": "user", "content": words(1500)}, {"role": "assistant", "content": [ok]}]
    tail = user({"type": "text", "text": "go", **MARK})
    assert spent(messages=[*block, tail]) == (0, 1502, 0)
    assert spent(messages=[*string, tail]) == (0, 0, 1502)
    # The same for system: a string has no marker, but the one behind it finds the same prefix.
    assert spent(system=[text(1100)], messages=[user(text(3, "hi", **MARK))]) == (0, 1103, 0)
    assert spent(system=words(1100), messages=[user(text(3, "hi", **MARK))]) == (0, 0, 1103)


def test_markers_are_not_content_and_may_move(spent: Spent) -> None:
    first = [user(text(1200, **MARK))]
    assert spent(messages=first) == (0, 1200, 0)
    grown = [user(text(1200)), {"role": "assistant", "content": [text(10)]}, user(text(20, "more", **MARK))]
    # The marker is now two blocks further on; the old end is found by looking back. 10 + 20 are new.
    assert spent(messages=grown) == (0, 30, 1200)


def test_the_order_of_keys_in_a_schema_matters(spent: Spent) -> None:
    def called(properties: dict[str, Any]) -> tuple[int, int, int]:
        schema = {"type": "object", "properties": properties}
        return spent(tools=[{"name": "t", "input_schema": schema}], system=[text(1500, **MARK)], messages=hi())

    a, b = {"type": "string"}, {"type": "integer"}
    assert called({"a": a, "b": b})[2] == 0
    assert called({"a": a, "b": b})[2] > 1500
    assert called({"b": b, "a": a})[2] == 0


def test_a_changed_system_text_keeps_the_tools(spent: Spent) -> None:
    tools = [tool("search", description=words(1500), **MARK)]
    _, written, _ = spent(tools=tools, system=[text(100, "one", **MARK)], messages=hi())
    tokens = written - 100
    assert tokens > 1500
    assert spent(tools=tools, system=[text(120, "two", **MARK)], messages=hi()) == (5, 120, tokens)
    more = [*tools, tool("late")]
    assert spent(tools=[tool("late"), *tools], system=[text(120, "two", **MARK)], messages=hi())[2] == 0
    assert spent(tools=more, system=[text(120, "two", **MARK)], messages=hi())[2] == tokens


def test_tool_choice_and_images_give_up_the_messages_only(spent: Spent) -> None:
    body: dict[str, Any] = {"tools": [tool("search")], "system": [text(1500, **MARK)]}
    said = [user(text(100, "question", **MARK))]
    _, head, _ = spent(**body, messages=said)
    head -= 100
    assert spent(**body, messages=said) == (0, 0, head + 100)
    assert spent(**body, messages=said, tool_choice={"type": "auto"}) == (0, 0, head + 100)
    assert spent(**body, messages=said, tool_choice={"type": "none"}) == (0, 100, head)
    assert spent(**body, messages=said, tool_choice={"type": "any"}) == (0, 100, head)
    # An image anywhere in the messages: 100 words and 258 for the picture are new.
    assert spent(**body, messages=[user(text(100, "question"), {**PIXEL, **MARK})]) == (0, 358, head)


def test_thinking_and_effort_give_up_the_messages(spent: Spent) -> None:
    body: dict[str, Any] = {"system": [text(1500, **MARK)], "messages": [user(text(100, "question", **MARK))]}
    assert spent(**body) == (0, 1600, 0)
    assert spent(**body, output_config={"effort": "low"}) == (0, 100, 1500)
    enabled = {"type": "enabled", "budget_tokens": 1024}
    assert spent(**body, thinking=enabled, max_tokens=2000) == (0, 100, 1500)


def test_a_structured_answer_changes_the_system_text(spent: Spent) -> None:
    wanted = {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}}
    body: dict[str, Any] = {"system": [text(1500, **MARK)], "messages": hi()}
    assert spent(**body)[1] == 1500
    assert spent(**body, output_config=wanted)[2] == 0


def test_speed_is_a_contested_rule(clock: ManualClock) -> None:
    tools = [tool("search", description=words(1500), **MARK)]
    for keeps in (False, True):
        with (
            serve(clock=clock, anthropic=AnthropicSwitches(speed_keeps_tools=keeps)) as server,
            anthropic.Anthropic(api_key="k", base_url=server.base_url) as client,
        ):
            reads: list[int | None] = []
            for speed in ("standard", "fast"):
                message = client.messages.create(
                    model="claude-sonnet-4-6", max_tokens=9, tools=tools, messages=hi(), speed=speed
                )
                reads.append(message.usage.cache_read_input_tokens)
            assert reads[0] == 0
            assert bool(reads[1]) is keeps


def test_web_search_and_citations_keep_the_tools(spent: Spent) -> None:
    tools = [tool("search", description=words(1500), **MARK)]
    system = [text(1100, **MARK)]
    _, written, _ = spent(tools=tools, system=system, messages=hi())
    kept = written - 1100
    web = {"type": "web_search_20250305", "name": "web_search"}
    _, written, read = spent(tools=[web, *tools], system=system, messages=hi())
    assert read == kept
    assert written > 1100
    document = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": words(10)},
        "citations": {"enabled": True},
    }
    assert spent(tools=tools, system=system, messages=[user(document, text(5))])[1:] == (1100, kept)


def test_an_entry_expires_by_the_start_of_its_request(spent: Spent, clock: ManualClock) -> None:
    head = [text(1500, **MARK)]
    assert spent(system=head, messages=hi()) == (5, 1500, 0)
    clock.advance(300)
    assert spent(system=head, messages=hi()) == (5, 0, 1500)  # and renewed
    clock.advance(300)
    assert spent(system=head, messages=hi()) == (5, 0, 1500)
    clock.advance(300.5)
    assert spent(system=head, messages=hi()) == (5, 1500, 0)


def test_a_slow_answer_does_not_lengthen_the_life_of_its_entry() -> None:
    clock = ManualClock(0.0)

    class Jumping:
        """The request arrives at 0; its answer begins 200 s later."""

        moments = iter([0.0, 200.0])

        def now(self) -> float:
            return next(self.moments, clock.now())

    with (
        serve(clock=Jumping()) as server,
        anthropic.Anthropic(api_key="k", base_url=server.base_url) as client,
    ):
        for moment, read in ((0.0, 0), (301.0, 0)):
            clock.set(moment)
            message = client.messages.create(
                model="claude-sonnet-4-6", max_tokens=9, system=[text(1500, **MARK)], messages=hi()
            )
            assert message.usage.cache_read_input_tokens == read
        first = server.exchanges[0]
        assert (first.started, first.first_event) == (0.0, 200.0)


def test_an_hour_is_an_hour(spent: Spent, clock: ManualClock) -> None:
    head = [text(1500, **MARK_1H)]
    assert spent(system=head, messages=hi()) == (5, 1500, 0)
    clock.advance(3600)
    assert spent(system=head, messages=hi()) == (5, 0, 1500)
    clock.advance(3601)
    assert spent(system=head, messages=hi()) == (5, 1500, 0)


@pytest.mark.parametrize(("turns", "read"), [(19, 1500), (20, 0)])
def test_a_marker_looks_back_over_twenty_positions(spent: Spent, turns: int, read: int) -> None:
    opening = user(text(1500, **MARK))
    assert spent(messages=[opening]) == (0, 1500, 0)
    # `turns` blocks follow; the last one, marked, is position 1, so the opening is position `turns` + 1.
    later = [{"role": "assistant" if i % 2 == 0 else "user", "content": [text(1, "more")]} for i in range(turns - 1)]
    last = {"role": "user" if turns % 2 == 0 else "assistant", "content": [text(1, "last", **MARK)]}
    uncached, written, found = spent(messages=[user(text(1500)), *later, last])
    assert (uncached, written, found) == (0, 1500 + turns - read, read)


def test_parallel_tool_calls_are_one_position_and_so_are_their_results(spent: Spent) -> None:
    opening = user(text(1500, **MARK))
    assert spent(tools=[tool("t")], messages=[opening])[1] > 1500
    calls = [{"type": "tool_use", "id": f"c{i}", "name": "t", "input": {}} for i in range(24)]
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": f"c{i}", "content": "done"} for i in range(24)
    ]
    results[-1] |= MARK
    # 48 blocks, yet two positions behind the opening: it is found.
    messages = [user(text(1500)), {"role": "assistant", "content": calls}, {"role": "user", "content": results}]
    assert spent(tools=[tool("t")], messages=messages)[2] > 1500
    # Text between them is a position each: 24 calls with text before each are 48 positions.
    spread = [block for call in calls for block in (text(1, "then"), call)]
    messages = [user(text(1500)), {"role": "assistant", "content": spread}, {"role": "user", "content": results}]
    assert spent(tools=[tool("t")], messages=messages)[2] == 0


def test_the_automatic_marker_goes_to_the_last_block_that_can_carry_one(spent: Spent) -> None:
    top = {"type": "ephemeral"}
    assert spent(cache_control=top, messages=[user(text(1500))]) == (0, 1500, 0)
    blank = user(text(1500), {"type": "text", "text": "  "})
    # It walks back over the blank block, whose two spaces are the only uncached tokens.
    assert spent(cache_control=top, messages=[blank]) == (2, 0, 1500)
    # A marker of the same lifetime on that block already: nothing more happens.
    assert spent(cache_control=top, messages=[user(text(1500, **MARK))]) == (0, 0, 1500)


def test_a_call_without_output_fills_the_cache(claude: anthropic.Anthropic, spent: Spent) -> None:
    message = claude.messages.create(
        model="claude-sonnet-4-6", max_tokens=0, system=[text(1500, **MARK)], messages=hi()
    )
    assert message.content == []
    assert message.stop_reason == "max_tokens"
    assert (message.usage.cache_creation_input_tokens, message.usage.output_tokens) == (1500, 0)
    assert spent(system=[text(1500, **MARK)], messages=hi(9)) == (9, 0, 1500)


def test_a_deferred_tool_is_not_in_the_prefix_until_it_is_found(spent: Spent) -> None:
    eager = tool("search", description=words(1500), **MARK)
    deferred = tool("rare", description=words(400), defer_loading=True)
    _, written, _ = spent(tools=[eager], messages=hi())
    assert spent(tools=[deferred, eager], messages=hi()) == (5, 0, written)
    # A tool reference brings its 400 words and more into the messages.
    found = [
        user(text(5, "hi")),
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "search", "input": {}}]},
        user(
            {
                "type": "tool_result",
                "tool_use_id": "c",
                "content": [{"type": "tool_reference", "tool_name": "rare"}],
            }
        ),
    ]
    uncached, _, read = spent(tools=[deferred, eager], messages=found)
    assert read == written
    assert uncached > 405


def test_thinking_is_stripped_on_old_models_when_a_plain_user_turn_follows(spent: Spent) -> None:
    thought = {"type": "thinking", "thinking": words(50, "hm"), "signature": "elsewhere"}
    call = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": words(3), **MARK}
    loop = [user(text(5000)), {"role": "assistant", "content": [thought, call]}, user(result)]
    unmarked = [*loop[:2], user({k: v for k, v in result.items() if k != "cache_control"})]
    then = [{"role": "assistant", "content": [text(2, "ok")]}, user(text(4, "next", **MARK))]
    for model, kept in (("claude-haiku-4-5", False), ("claude-sonnet-4-6", True)):
        body: dict[str, Any] = {"model": model, "tools": [tool("t")]}
        written = spent(**body, messages=loop)[1]
        read = spent(**body, messages=[*unmarked, *then])[2]
        assert read == (written if kept else 0)


def test_an_in_place_system_message_leaves_the_prefix_alone(spent: Spent) -> None:
    said = user(text(1500, **MARK))
    note = {"role": "system", "content": [text(30, "now")]}
    assert spent(model="claude-opus-5", messages=[said, note]) == (30, 1500, 0)
    assert spent(model="claude-opus-5", messages=[said]) == (0, 0, 1500)


def test_native_tool_changes_leave_the_prefix_alone(claude: anthropic.Anthropic) -> None:
    betas = ["mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15"]
    said = user(text(1500, **MARK))

    def spend(*messages: Any) -> tuple[int, int | None]:
        usage = claude.beta.messages.create(
            model="claude-opus-5", max_tokens=64, tools=[tool("a")], messages=messages, betas=betas
        ).usage
        return usage.input_tokens, usage.cache_read_input_tokens

    assert spend(said)[1] == 0
    uncached, head = spend(said)
    assert uncached == 0
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}}
    inline = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("b")}}
    assert spend(said, {"role": "system", "content": [removal]}) == (0, head)
    uncached, read = spend(said, {"role": "system", "content": [inline]})
    assert read == head
    assert uncached > 10  # the definition of b


def test_a_system_message_can_clear_itself(claude: anthropic.Anthropic) -> None:
    note = {"role": "system", "content": [text(30, "now")], "clear_at": "next_user_message"}
    said, answer = user(text(1500, **MARK)), {"role": "assistant", "content": [text(5, "ok")]}

    def spend(*messages: Any) -> tuple[int, int | None]:
        usage = claude.beta.messages.create(
            model="claude-opus-5",
            max_tokens=64,
            messages=messages,
            betas=["mid-conversation-system-clear-at-2026-08-21"],
        ).usage
        return usage.input_tokens, usage.cache_read_input_tokens

    assert spend(said, note)[0] == 30
    # Once a later user message exists its 30 tokens are gone: 5 of the answer and 7 of the question are left.
    assert spend(said, note, answer, user(text(7))) == (12, 1500)


def test_counting_is_free_and_caches_nothing(claude: anthropic.Anthropic, server: Emulator, spent: Spent) -> None:
    body: dict[str, Any] = {"system": [text(1500, **MARK)], "messages": hi()}
    for _ in range(2):
        assert claude.messages.count_tokens(model="claude-sonnet-4-6", **body).input_tokens == 1505
    assert server.exchanges == ()
    assert spent(**body) == (5, 1500, 0)


def test_reset_forgets_the_cache(server: Emulator, spent: Spent) -> None:
    body: dict[str, Any] = {"system": [text(1500, **MARK)], "messages": hi()}
    assert spent(**body) == (5, 1500, 0)
    server.reset()
    assert spent(**body) == (5, 1500, 0)
