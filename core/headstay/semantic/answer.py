"""An answer as the cache keeps it: JSON in a schema of our own, and whether it may be kept at all."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from headstay.semantic.reasons import Reason

SCHEMA_VERSION = 1

# What providers call it, in lower case; seen 2026-11-29 in the types of anthropic 2.14.0 and openai 3.57.0, and in
# langchain-google-genai 4.4.3. A reply without a word on it is taken for finished.
_FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "completed", "complete", "eos", "eos_token", "finished"})
_CALLED = frozenset({"tool_calls", "tool_use", "function_call"})
_CUT = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "incomplete", "model_context_window_exceeded"}
)
_REFUSED = frozenset(
    {
        "refusal",
        "content_filter",
        "content_filtered",
        "guardrail_intervened",
        "safety",
        "image_safety",
        "recitation",
        "blocklist",
        "prohibited_content",
        "spii",
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer.

    Attributes:
        text: What a reader sees.
        body: The host's own form of it, JSON values only.
        finish: The provider's word for how it ended, or None where it gave none.
        tool_calls: Whether it asks for tools.
        refused: Whether the provider or the model marked it as a refusal.
        input_tokens: What the call that made it cost, 0 where that is not known.
        output_tokens: The same.
    """

    text: str
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    finish: str | None = None
    tool_calls: bool = False
    refused: bool = False
    input_tokens: int = 0
    output_tokens: int = 0

    def to_json(self) -> str:
        """Write it; a value that JSON does not have raises TypeError or ValueError."""
        return json.dumps(
            {
                "v": SCHEMA_VERSION,
                "text": self.text,
                "finish": self.finish,
                "tool_calls": self.tool_calls,
                "tokens": [self.input_tokens, self.output_tokens],
                "body": self.body,
            },
            ensure_ascii=False,
            separators=(",", ":"),
            allow_nan=False,
        )


def read_answer(written: str) -> Answer | None:
    """Read what `Answer.to_json` wrote; None for another schema or what is damaged."""
    try:
        held: Any = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if not isinstance(held, dict):
        return None
    known = cast("dict[str, Any]", held)
    text, finish, body, tokens = (known.get(name) for name in ("text", "finish", "body", "tokens"))
    good = known.get("v") == SCHEMA_VERSION and isinstance(text, str) and isinstance(body, dict)
    if not good or not (finish is None or isinstance(finish, str)) or not _is_pair(tokens):
        return None
    return Answer(
        cast("str", text),
        cast("dict[str, Any]", body),
        finish,
        bool(known.get("tool_calls")),
        False,
        *cast("list[int]", tokens),
    )


def _is_pair(tokens: object) -> bool:
    """Whether it is two numbers of tokens."""
    if not isinstance(tokens, list):
        return False
    counts = cast("list[object]", tokens)
    return len(counts) == 2 and all(type(count) is int and count >= 0 for count in counts)


def not_admitted(answer: Answer, *, tool_calls: bool) -> Reason | None:
    """Say why an answer must not be kept, or None.

    Args:
        answer: The answer.
        tool_calls: Whether answers that ask for tools are kept, for identical requests.
    """
    finish = (answer.finish or "stop").lower()
    if answer.refused or finish in _REFUSED:
        return Reason.NOT_ADMITTED_REFUSAL
    if finish in _CUT:
        return Reason.NOT_ADMITTED_TRUNCATED
    if answer.tool_calls or finish in _CALLED:
        return None if tool_calls else Reason.NOT_ADMITTED_TOOL_CALLS
    if finish not in _FINISHED:
        return Reason.NOT_ADMITTED_UNFINISHED
    return None if answer.text.strip() else Reason.NOT_ADMITTED_EMPTY
