"""Thinking blocks: signing them, and checking the ones a request sends back.

Rules from public copies of the provider's pages on preserved thinking, Bedrock's page "Preserved thinking", and the
request types of anthropic 2.14.0, all seen 2026-11-29. On models that bind, a block belongs to the system text, the
tools and every message before it, markers left out. A block of another conversation is a 400 naming what differs,
or is dropped and reported, as `thinking.block_binding.prefix_mismatch_behavior` says.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headstay.emulator.anthropic_blocks import THINKING, Part, render, tools_by_name
from headstay.emulator.anthropic_cache import chain
from headstay.emulator.anthropic_errors import ApiError, invalid
from headstay.emulator.anthropic_models import ModelRow
from headstay.emulator.anthropic_switches import AnthropicSwitches
from headstay.emulator.shape import mapping, sequence, text_of

BETA = "thinking-binding-controls-2026-08-01"

Behavior = Literal["error", "drop_block", "allow"]

_FORM = "emulated-thinking"


@dataclass(frozen=True, slots=True)
class Binding:
    """The request a thinking block came from, as digests of its tools, system text and messages."""

    tools: str
    system: str
    messages: str

    def difference(self, other: "Binding") -> str | None:
        """Name the first part that differs, or None."""
        if self.tools != other.tools:
            return "tools"
        if self.system != other.system:
            return "system"
        return "messages" if self.messages != other.messages else None


@dataclass(frozen=True, slots=True)
class _Signature:
    model: str
    binding: Binding
    text: str


def bindings_of(body: Mapping[str, Any], parts: Sequence[Part]) -> list[Binding]:
    """Return the binding of an answer at each message, and last that of the answer to come.

    Entry i stands for everything before message i, so the list is one longer than the messages.
    """
    tools = tools_by_name(body)
    values = ["", *(value.hex()[:16] for value in chain(render(part, tools) for part in parts))]
    in_tools = sum(part.tier == "tools" for part in parts)
    in_system = in_tools + sum(part.tier == "system" for part in parts)
    ends: list[int] = []
    end = in_system
    for index in range(len(sequence(body.get("messages")))):
        ends.append(end)
        while end < len(parts) and parts[end].message == index:
            end += 1
    return [Binding(values[in_tools], values[in_system], values[e]) for e in [*ends, end]]


def sign(model: str, binding: Binding, thinking: str) -> str:
    """Return the signature of a thinking block.

    Args:
        model: The model that thought.
        binding: The request it thought about.
        thinking: The text as it is sent.
    """
    fields = [_FORM, model, binding.tools, binding.system, binding.messages, _digest(thinking)]
    return base64.b64encode("|".join(fields).encode()).decode()


def check_thinking(
    body: Mapping[str, Any], parts: Sequence[Part], row: ModelRow, *, behavior: Behavior
) -> tuple[list[Part], list[dict[str, str]]]:
    """Check the thinking blocks that a request sends back.

    Args:
        body: The request.
        parts: Its blocks.
        row: The rules of its model.
        behavior: What to do with a block of another conversation.

    Returns:
        The blocks the model is shown, and the `input_transformations` to report.

    Raises:
        ApiError: 400 for a modified block, and for one of another conversation when the behavior is "error".
    """
    suspects = [part for part in parts if part.kind in THINKING]
    if not suspects:
        return list(parts), []
    bindings = bindings_of(body, parts) if row.binds_thinking else []
    latest = max((part.message for part in parts if part.role == "assistant"), default=-1)
    reports: list[dict[str, str]] = []
    dropped: set[str] = set()
    for part in suspects:
        signature = _read(text_of(part.raw.get("signature")))
        _refuse_modified(part, signature, row, latest=latest)
        if not row.binds_thinking:
            continue
        reason = _mismatch(part, signature, bindings, str(body.get("model")), behavior)
        if reason is None:
            continue
        kept = behavior == "allow" and reason == "prefix_binding_mismatch"
        kind = "thinking_mismatch_allowed" if kept else "thinking_dropped"
        reports.append({"type": kind, "path": part.path, "reason": reason})
        if not kept:
            dropped.add(part.path)
    return [part for part in parts if part.path not in dropped], reports


def behavior_of(body: Mapping[str, Any], switches: AnthropicSwitches) -> Behavior:
    """Return what a request asks for when a thinking block does not fit, else the default."""
    asked = mapping(mapping(body.get("thinking")).get("block_binding")).get("prefix_mismatch_behavior")
    if asked == "error":
        return "error"
    return "drop_block" if asked == "drop_block" else switches.thinking_mismatch


def _mismatch(
    part: Part, signature: _Signature | None, bindings: Sequence[Binding], model: str, behavior: Behavior
) -> str | None:
    """Return why a block may not be shown, or None; raise where that is an error.

    Haiku 5.5 drops the blocks of other models; its own may be shown to others.
    """
    if signature is not None and "haiku-5-5" in model and "haiku-5-5" not in signature.model:
        return "model_binding_mismatch"
    differs = "messages" if signature is None else signature.binding.difference(bindings[part.message])
    if differs is None:
        return None
    if behavior == "error":
        raise invalid(
            f"{part.path}: this `thinking` block was created in a different conversation: `{differs}` before it "
            "changed since. Send earlier turns back unchanged, or set "
            '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
        )
    return "prefix_binding_mismatch"


def _refuse_modified(part: Part, signature: _Signature | None, row: ModelRow, *, latest: int) -> None:
    """Refuse a block whose text is not the one that was signed.

    Models that bind refuse it anywhere, older ones in the latest assistant message. A signature of some other
    origin cannot be checked here and passes on older models.
    """
    if part.kind != "thinking" or signature is None:
        return
    modified = signature.text != _digest(text_of(part.raw.get("thinking")))
    if modified and (row.binds_thinking or part.message == latest):
        raise _modified(part)


def _modified(part: Part) -> ApiError:
    return invalid(
        f"{part.path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. "
        "These blocks must remain as they were in the original response."
    )


def _read(signature: str) -> _Signature | None:
    try:
        fields = base64.b64decode(signature, validate=True).decode().split("|")
    except (binascii.Error, UnicodeDecodeError):
        return None
    if len(fields) != 6 or fields[0] != _FORM:
        return None
    return _Signature(fields[1], Binding(fields[2], fields[3], fields[4]), fields[5])


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
