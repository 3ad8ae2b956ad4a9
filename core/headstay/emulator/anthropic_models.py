"""What the emulated Anthropic models accept, as a dated table.

Sources, all seen 2026-11-29: the provider's prompt-caching page
(platform.claude.com/docs/en/build-with-claude/prompt-caching) for minimums, in-place system messages and forced
tool choice; its pages on preserved thinking for bound blocks; the request checks of langchain-anthropic 1.7.10
for thinking and sampling parameters. Where a page names no value for a model, the stricter one is taken.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """The rules of one group of models.

    Attributes:
        names: Model names; a date may follow each, as in `claude-haiku-4-5-20251001`.
        minimum: The fewest tokens of a prefix that is cached.
        system_messages: Whether `role: "system"` is accepted inside `messages`.
        forced_tools: Whether `tool_choice` may force a tool.
        keeps_thinking: Whether earlier thinking stays in the prompt when a plain user turn follows tool use.
        binds_thinking: Whether a thinking block is bound to the request that produced it.
        thinks: Whether the model thinks when `thinking` is omitted.
        always_thinks: Whether `thinking: {"type": "disabled"}` is refused.
        budget: Whether `thinking: {"type": "enabled", "budget_tokens": ...}` is accepted.
        shows_thinking: Whether thinking is shown when `thinking.display` is omitted.
        sampling: Whether `temperature`, `top_p` and `top_k` may differ from their defaults.
    """

    names: tuple[str, ...]
    minimum: int
    system_messages: bool = False
    forced_tools: bool = True
    keeps_thinking: bool = True
    binds_thinking: bool = False
    thinks: bool = False
    always_thinks: bool = False
    budget: bool = True
    shows_thinking: bool = True
    sampling: bool = True


MODELS: tuple[ModelRow, ...] = (
    # The minimum of 5.2 is inferred from 5.1; the page does not list it.
    ModelRow(
        names=("claude-fable-5-2",),
        minimum=512,
        system_messages=True,
        binds_thinking=True,
        thinks=True,
        always_thinks=True,
        budget=False,
        shows_thinking=False,
        sampling=False,
    ),
    ModelRow(
        names=("claude-fable-5-1",),
        minimum=512,
        system_messages=True,
        forced_tools=False,
        binds_thinking=True,
        thinks=True,
        always_thinks=True,
        budget=False,
        shows_thinking=False,
        sampling=False,
    ),
    ModelRow(
        names=("claude-mythos-5-2", "claude-mythos-5-1"),
        minimum=512,
        binds_thinking=True,
        thinks=True,
        budget=False,
        shows_thinking=False,
    ),
    ModelRow(
        names=("claude-fable-5",),
        minimum=512,
        system_messages=True,
        thinks=True,
        always_thinks=True,
        budget=False,
        shows_thinking=False,
        sampling=False,
    ),
    ModelRow(names=("claude-mythos-5",), minimum=512, thinks=True, budget=False, shows_thinking=False),
    ModelRow(
        names=("claude-opus-5-5",),
        minimum=512,
        system_messages=True,
        forced_tools=False,
        binds_thinking=True,
        thinks=True,
        always_thinks=True,
        budget=False,
        shows_thinking=False,
    ),
    ModelRow(
        names=("claude-sonnet-5-5",),
        minimum=512,
        system_messages=True,
        forced_tools=False,
        binds_thinking=True,
        thinks=True,
        always_thinks=True,
        budget=False,
        shows_thinking=False,
        sampling=False,
    ),
    ModelRow(names=("claude-haiku-5-5",), minimum=512, binds_thinking=True),
    ModelRow(
        names=("claude-opus-5",),
        minimum=512,
        system_messages=True,
        thinks=True,
        budget=False,
        shows_thinking=False,
    ),
    ModelRow(names=("claude-sonnet-5",), minimum=1024, thinks=True, budget=False, shows_thinking=False),
    ModelRow(names=("claude-opus-4-8",), minimum=1024, system_messages=True, budget=False, shows_thinking=False),
    ModelRow(names=("claude-opus-4-7",), minimum=2048, budget=False, shows_thinking=False),
    # One price map gives 512 for this one.
    ModelRow(names=("claude-mythos-preview",), minimum=2048),
    ModelRow(names=("claude-sonnet-4-6",), minimum=1024),
    ModelRow(names=("claude-opus-4-6", "claude-opus-4-5"), minimum=4096),
    ModelRow(names=("claude-haiku-4-5",), minimum=4096, keeps_thinking=False),
    ModelRow(
        names=("claude-sonnet-4-5", "claude-opus-4-1", "claude-opus-4", "claude-sonnet-4"),
        minimum=1024,
        keeps_thinking=False,
    ),
)

_BY_NAME = {name: row for row in MODELS for name in row.names}


def find(model: str) -> ModelRow | None:
    """Return the row of a model, or None for an unknown one.

    Args:
        model: A model name, with or without a date or `-latest` or `-0` at its end.
    """
    row = _BY_NAME.get(model)
    if row is None:
        stem, _, suffix = model.rpartition("-")
        dated = suffix in {"latest", "0"} or (suffix.isdigit() and len(suffix) == 8)
        row = _BY_NAME.get(stem) if dated else None
    return row


def names() -> tuple[str, ...]:
    """Return the names of all known models, newest line first."""
    return tuple(_BY_NAME)
