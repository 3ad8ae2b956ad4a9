"""What the Messages API refuses about a whole request: fields, parameters of a model, tools.

Sources: the request types of anthropic 2.14.0, platform.claude.com/docs/en/build-with-claude/prompt-caching (pre-warm
calls, deferred tools, forced tool choice), and the request checks of langchain-anthropic 1.7.10; all seen 2026-11-29.
"""

from collections.abc import Mapping
from typing import Any

from headstay.emulator import anthropic_models
from headstay.emulator.anthropic_errors import ApiError, invalid
from headstay.emulator.anthropic_models import ModelRow
from headstay.emulator.shape import mapping, sequence, text_of

_FIELDS = frozenset(
    {
        "billing_policy",
        "cache_control",
        "compaction",
        "container",
        "context_management",
        "diagnostics",
        "fallback_credit_token",
        "fallbacks",
        "inference_geo",
        "max_tokens",
        "mcp_servers",
        "messages",
        "metadata",
        "model",
        "output_config",
        "output_format",
        "service_tier",
        "speed",
        "stop_sequences",
        "stream",
        "system",
        "temperature",
        "thinking",
        "thread",
        "tool_choice",
        "tools",
        "top_k",
        "top_p",
        "user_profile_id",
    }
)
_THINKING = frozenset({"enabled", "adaptive", "between_tools", "disabled"})
_CHOICES = frozenset({"auto", "any", "tool", "none"})
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})


def check_fields(body: Mapping[str, Any], *, counting: bool = False) -> ModelRow:
    """Check the top level of a request and find its model.

    Args:
        body: The request.
        counting: Whether this is a count_tokens request, which needs no `max_tokens`.

    Returns:
        The rules of the model.

    Raises:
        ApiError: 400 for a missing, unknown or mistyped field, 404 for an unknown model.
    """
    for name in ("model", "messages") if counting else ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            raise invalid(f"{name}: Field required")
    extra = sorted(set(body) - _FIELDS)
    if extra:
        raise invalid(f"{extra[0]}: Extra inputs are not permitted")
    if not isinstance(body["model"], str):
        raise invalid("model: Input should be a valid string")
    row = anthropic_models.find(body["model"])
    if row is None:
        raise ApiError(404, f"model: {body['model']}")
    for name in ("tools", "messages", "stop_sequences"):
        if not isinstance(body.get(name, []), list):
            raise invalid(f"{name}: Input should be a valid array")
    if not isinstance(body.get("system", ""), str | list):
        raise invalid("system: Input should be a valid string or array")
    return row


def check_parameters(body: Mapping[str, Any], row: ModelRow, *, betas: frozenset[str]) -> None:
    """Check the parameters of a request against each other and against its model.

    Args:
        body: The request.
        row: The rules of its model.
        betas: The values of the `anthropic-beta` header.

    Raises:
        ApiError: 400 for the first that is refused.
    """
    maximum = body["max_tokens"]
    if not isinstance(maximum, int) or isinstance(maximum, bool):
        raise invalid("max_tokens: Input should be a valid integer")
    if maximum < 0:
        raise invalid("max_tokens: Input should be greater than or equal to 0")
    _check_thinking(body, row, betas)
    _check_choice(body, row)
    _check_sampling(body, row)
    effort = mapping(body.get("output_config")).get("effort")
    if effort is not None and effort not in _EFFORTS:
        raise invalid("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    if maximum == 0:
        _check_prewarm(body)


def check_tools(body: Mapping[str, Any]) -> None:
    """Check the tool definitions: names unique, and at least one that is not deferred.

    Raises:
        ApiError: 400 for the first that is refused.
    """
    seen: set[str] = set()
    tools = [mapping(tool) for tool in sequence(body.get("tools"))]
    for index, tool in enumerate(tools):
        name = text_of(tool.get("name"))
        if not name and tool.get("type") != "mcp_toolset":
            raise invalid(f"tools.{index}.custom.name: Field required")
        if name in seen:
            raise invalid("tools: Tool names must be unique.")
        seen.add(name)
        if tool.get("type", "custom") in {None, "custom"}:
            _check_schema(index, tool)
    if tools and all(tool.get("defer_loading") is True for tool in tools):
        raise invalid("tools: At least one tool must have defer_loading=false")


def _check_schema(index: int, tool: Mapping[str, Any]) -> None:
    if "input_schema" not in tool:
        raise invalid(f"tools.{index}.custom.input_schema: Field required")
    if mapping(tool["input_schema"]).get("type") != "object":
        raise invalid(f"tools.{index}.custom.input_schema.type: Input should be 'object'")


def _check_thinking(body: Mapping[str, Any], row: ModelRow, betas: frozenset[str]) -> None:
    thinking = body.get("thinking")
    if thinking is None:
        return
    fields = mapping(thinking)
    kind = fields.get("type")
    if kind not in _THINKING:
        raise invalid(f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if "block_binding" in fields and "thinking-binding-controls-2026-08-01" not in betas:
        raise invalid(f"thinking.{kind}.block_binding: Extra inputs are not permitted")
    behavior = mapping(fields.get("block_binding")).get("prefix_mismatch_behavior")
    if behavior not in {None, "error", "drop_block"}:
        raise invalid("thinking.block_binding.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'")
    if kind == "disabled" and row.always_thinks:
        raise invalid(f'"thinking.type.disabled" is not supported for {body["model"]}.')
    if kind == "enabled":
        _check_budget(body, row, fields.get("budget_tokens"))


def _check_budget(body: Mapping[str, Any], row: ModelRow, budget: object) -> None:
    if not row.budget:
        raise invalid(
            f'"thinking.type.enabled" is not supported for {body["model"]}. '
            'Use "thinking.type.adaptive" and "output_config.effort" instead.'
        )
    if not isinstance(budget, int):
        raise invalid("thinking.enabled.budget_tokens: Field required")
    if budget < 1024:
        raise invalid("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
    if budget >= body["max_tokens"] > 0:
        raise invalid("`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_choice(body: Mapping[str, Any], row: ModelRow) -> None:
    choice = mapping(body.get("tool_choice"))
    if not choice:
        return
    kind = choice.get("type")
    if kind not in _CHOICES:
        raise invalid(f"tool_choice: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    tools = [mapping(tool).get("name") for tool in sequence(body.get("tools"))]
    if kind != "none" and not tools:
        raise invalid("tool_choice: tool_choice may only be specified while providing tools")
    if kind not in {"any", "tool"}:
        return
    if not row.forced_tools:
        raise invalid(f"tool_choice: '{kind}' is not supported for {body['model']}. Use 'auto' or 'none'.")
    if mapping(body.get("thinking")).get("type") in {"enabled", "adaptive", "between_tools"}:
        raise invalid("Thinking may not be enabled when tool_choice forces tool use.")
    if kind == "tool" and choice.get("name") not in tools:
        raise invalid(f"Tool '{choice.get('name')}' not found in provided tools")


def _check_sampling(body: Mapping[str, Any], row: ModelRow) -> None:
    if row.sampling:
        return
    if body.get("top_k") is not None:
        raise invalid(f"`top_k` is not supported for {body['model']}.")
    for name in ("top_p", "temperature"):
        if body.get(name) not in {None, 1}:
            raise invalid(f"`{name}` is not supported for {body['model']} at non-default values.")


def _check_prewarm(body: Mapping[str, Any]) -> None:
    """A call with `max_tokens: 0` fills the cache only, and may ask for nothing else."""
    if body.get("stream") is True:
        raise invalid("max_tokens: 0 is not supported with stream")
    if mapping(body.get("thinking")).get("type") in {"enabled", "adaptive", "between_tools"}:
        raise invalid("max_tokens: 0 is not supported with thinking enabled")
    if mapping(body.get("output_config")).get("format") is not None or body.get("output_format") is not None:
        raise invalid("max_tokens: 0 is not supported with an output format")
    if mapping(body.get("tool_choice")).get("type") in {"any", "tool"}:
        raise invalid("max_tokens: 0 is not supported with a forced tool_choice")
