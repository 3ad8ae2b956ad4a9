"""What the Messages API refuses about the messages of a request: roles, places, blocks, pairing of tool calls.

Sources: the request types of anthropic 2.14.0, and platform.claude.com/docs/en/build-with-claude pages on prompt
caching and mid-conversation system messages; all seen 2026-11-29.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headstay.emulator.anthropic_blocks import Part
from headstay.emulator.anthropic_errors import invalid
from headstay.emulator.anthropic_models import ModelRow
from headstay.emulator.shape import mapping, sequence, text_of

# Betas that widen what an in-place system message may hold.
_TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"
_INLINE_TOOLS = "inline-tools-2026-09-15"
_OUTPUT_CONFIG = "mid-conversation-output-config-2026-07-01"
_CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"

_KEYS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "thinking": frozenset({"type", "thinking", "signature", "cache_control"}),
    "redacted_thinking": frozenset({"type", "data", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller", "toolset_name"}),
    "tool_result": frozenset(
        {"type", "tool_use_id", "content", "is_error", "cache_control", "toolset_name"},
    ),
}


def check_messages(body: Mapping[str, Any], row: ModelRow, *, betas: frozenset[str]) -> None:
    """Check roles, their order, and the place of in-place system messages.

    Args:
        body: The request.
        row: The rules of its model.
        betas: The values of the `anthropic-beta` header.

    Raises:
        ApiError: 400 for the first broken rule.
    """
    messages = [mapping(entry) for entry in sequence(body.get("messages"))]
    if not messages:
        raise invalid("messages: at least one message is required")
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "system":
            _check_system(messages, index, row, betas)
        elif role not in {"user", "assistant"}:
            raise invalid(f"messages.{index}.role: Input should be 'user', 'assistant' or 'system'")
        elif "clear_at" in message or "output_config" in message:
            extra = "clear_at" if "clear_at" in message else "output_config"
            raise invalid(f"messages.{index}.{extra}: Extra inputs are not permitted")
        last = index == len(messages) - 1
        if not message.get("content") and not (role == "assistant" and last) and "output_config" not in message:
            raise invalid(f"messages.{index}: {role} messages must have non-empty content")
    if messages[0].get("role") != "user":
        raise invalid('messages: first message must use the "user" role')


def check_parts(parts: Sequence[Part]) -> None:
    """Check each content block on its own.

    Raises:
        ApiError: 400 for the first block that is refused.
    """
    for part in parts:
        if part.kind == "tool":
            continue
        if not part.kind:
            raise invalid(f"{part.path}.type: Field required")
        extra = sorted(set(part.raw) - _KEYS.get(part.kind, frozenset(part.raw)))
        if extra:
            raise invalid(f"{part.path}.{part.kind}.{extra[0]}: Extra inputs are not permitted")
        if part.kind == "text":
            _check_text(part)
        if part.tier == "system" and part.kind != "text":
            raise invalid(f"{part.path}.type: Input should be 'text'")


def check_pairs(body: Mapping[str, Any]) -> None:
    """Check that tool calls and tool results stand in pairs, results right after their calls.

    Raises:
        ApiError: 400 for the first call without its result, or result without its call.
    """
    called: dict[str, int] = {}
    for role, turn in _turns(body):
        results = {str(b.get("tool_use_id")): path for path, b in turn if b.get("type") == "tool_result"}
        if role == "user":
            _check_results(called, results)
            called = {}
        else:
            _check_results(called, {})
            uses = [(path, str(b.get("id"))) for path, b in turn if b.get("type") == "tool_use"]
            called = {name: int(path.split(".")[1]) for path, name in uses}
            if len(called) != len(uses):
                raise invalid("messages: `tool_use` ids must be unique")
    _check_results(called, {})


def _check_results(called: Mapping[str, int], results: Mapping[str, str]) -> None:
    missing = [name for name in called if name not in results]
    if missing:
        raise invalid(
            f"messages.{called[missing[0]]}: `tool_use` ids were found without `tool_result` blocks immediately "
            f"after: {', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in "
            "the next message."
        )
    for name, path in results.items():
        if name not in called:
            raise invalid(
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. Each `tool_result` block "
                "must have a corresponding `tool_use` block in the previous message."
            )


def _turns(body: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """Join consecutive messages of one role, as the API does; in-place system messages are left out."""
    turns: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = []
    for index, entry in enumerate(sequence(body.get("messages"))):
        message = mapping(entry)
        role = text_of(message.get("role"))
        if role == "system":
            continue
        blocks = [(f"messages.{index}.content.{i}", mapping(b)) for i, b in enumerate(sequence(message.get("content")))]
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    return turns


def _check_system(messages: Sequence[Mapping[str, Any]], index: int, row: ModelRow, betas: frozenset[str]) -> None:
    """An in-place system message follows a user turn, precedes an answer or ends the request, and holds text."""
    message, path = messages[index], f"messages.{index}"
    if not row.system_messages:
        raise invalid(f"{path}.role: role 'system' is not supported on this model")
    if index == 0 or messages[index - 1].get("role") != "user":
        raise invalid(f"{path}: a 'system' message must immediately follow a 'user' message")
    if index + 1 < len(messages) and messages[index + 1].get("role") != "assistant":
        raise invalid(f"{path}: a 'system' message must be last or be followed by an 'assistant' message")
    if "clear_at" in message and _CLEAR_AT not in betas:
        raise invalid(f"{path}.clear_at: Extra inputs are not permitted")
    if "output_config" in message and _OUTPUT_CONFIG not in betas:
        raise invalid(f"{path}.output_config: Extra inputs are not permitted")
    for place, entry in enumerate(sequence(message.get("content"))):
        _check_system_block(f"{path}.content.{place}", mapping(entry), betas)


def _check_system_block(path: str, block: Mapping[str, Any], betas: frozenset[str]) -> None:
    kind = block.get("type")
    if kind in {"tool_addition", "tool_removal"} and _TOOL_CHANGES in betas:
        if mapping(block.get("tool")).get("type") == "tool_definition" and _INLINE_TOOLS not in betas:
            raise invalid(f"{path}.tool: 'tool_definition' needs the beta {_INLINE_TOOLS}")
        return
    if kind != "text":
        raise invalid(f"{path}.type: a 'system' message takes text blocks only, found '{kind}'")


def _check_text(part: Part) -> None:
    text = part.raw.get("text")
    if not isinstance(text, str):
        raise invalid(f"{part.path}.text.text: Field required")
    if not text:
        raise invalid(f"{part.path}: text content blocks must be non-empty")
