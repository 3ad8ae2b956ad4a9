"""What LlamaIndex asks of an LLM, as the semantic cache sees it: turns, and settings by content."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import BaseModel

from headstay.canonical import meaning_text
from headstay.semantic.request import AskedRequest, Role, Turn, read_settings
from headstay.values import Declared, without_idle
from llama_index_headstay.secrets import without_secrets
from llama_index_headstay.tail import KEY

_ROLES: dict[MessageRole, Role] = {
    MessageRole.SYSTEM: "system",
    MessageRole.DEVELOPER: "system",
    MessageRole.USER: "user",
    MessageRole.TOOL: "tool",
    MessageRole.FUNCTION: "tool",
}
_SAID = ("function_call", "tool_calls")
"""What of a reply's `additional_kwargs` is sent again; the rest is what the provider said beside it."""
_CONTENT = ("image", "audio", "video", "data")
_PLACES = ("path", "url")
# What says how a model is reached, and not what it answers.
_NOT_SETTINGS = frozenset(
    {"callback_manager", "rate_limiter", "max_retries", "timeout", "reuse_client", "default_headers", "cache_idx"}
)


def read_asked(
    llm: BaseLLM, messages: Sequence[ChatMessage], given: Mapping[str, Any], declared: Declared
) -> AskedRequest:
    """Read a call, before anything of it is arranged.

    Args:
        llm: The LLM; it counts by its class and its settings, without keys.
        messages: The messages; a text is one human message.
        given: The call's own settings; schema classes among them count by their content.
        declared: What is declared about the system text; values that no answer depends on are left out.
    """
    made = settings_of(llm)
    here = {name: value for name, value in given.items() if value is not None and name not in _NOT_SETTINGS}
    settings, opaque = read_settings({"model": made, **here})
    count = here.get("n", 1)
    return AskedRequest(
        turns=_turns(messages, declared),
        settings=settings,
        opaque=opaque,
        query=_query(messages),
        generations=count if isinstance(count, int) and count > 0 else 1,
    )


def settings_of(llm: BaseLLM) -> dict[str, Any]:
    """Return what an LLM was made with, as far as it bears on answers; keys and functions are left out."""
    held = {name: getattr(llm, name) for name in type(llm).model_fields if name not in _NOT_SETTINGS}
    plain = {name: value for name, value in without_secrets(held).items() if not callable(value) and value is not None}
    return {"class": llm.class_name(), **plain}


def _query(messages: Sequence[ChatMessage]) -> str | None:
    """Return the query that the last message says it holds."""
    own: object = messages[-1].additional_kwargs.get(KEY) if messages else None
    query = cast("Mapping[str, object]", own).get("query") if isinstance(own, Mapping) else None
    return query if isinstance(query, str) else None


def _turns(messages: Sequence[ChatMessage], declared: Declared) -> tuple[Turn, ...]:
    """Take messages apart; a tool result names its call by place, for ids are new in every run."""
    calls: dict[object, int] = {}
    turns: list[Turn] = []
    for message in messages:
        for block in message.blocks:
            if isinstance(block, ToolCallBlock):
                calls[block.tool_call_id] = len(calls)
        turn = _turn(message, calls.get(message.additional_kwargs.get("tool_call_id")))
        if turn.role == "system":
            turn = replace(turn, text=without_idle([turn.text], declared)[0])
        turns.append(turn)
    return tuple(turns)


def _turn(message: ChatMessage, answers: int | None) -> Turn:
    role = _ROLES.get(message.role, "assistant")
    texts: list[str] = []
    rest: list[object] = []
    unhashed = False
    for block in message.blocks:
        if isinstance(block, TextBlock):
            texts.append(block.text)
            rest.append("text")
        elif isinstance(block, ToolCallBlock):
            rest.append({"call": block.tool_name, "args": block.tool_kwargs})
        elif not isinstance(block, ThinkingBlock):
            rest.append(_shown(block))
            unhashed = unhashed or _by_place(block)
    rest = rest if len(rest) > len(texts) else []
    if answers is not None:
        rest.append({"answers": answers})
    extra = message.additional_kwargs
    kept = {name: extra[name] for name in extra if name not in (KEY, "tool_call_id")}
    if role == "assistant":
        kept = {name: kept[name] for name in _SAID if name in kept and not _has_calls(message)}
    if kept:
        rest.append(kept)
    return Turn(role, "\n".join(texts), meaning_text(rest) if rest else "", unhashed=unhashed)


def _has_calls(message: ChatMessage) -> bool:
    return any(isinstance(block, ToolCallBlock) for block in message.blocks)


def _shown(value: Any) -> Any:
    """Write a block that is no text; bytes stand in by their hash."""
    if isinstance(value, (bytes, bytearray)):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    if isinstance(value, BaseModel):
        return {name: _shown(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _by_place(block: Any) -> bool:
    """Whether a block, or one inside it, only points at its content, which may change or is not known."""
    if isinstance(block, (list, tuple)):
        return any(_by_place(one) for one in cast("Sequence[Any]", block))
    if not isinstance(block, BaseModel):
        return False
    pointed = any(getattr(block, name, None) for name in _PLACES)
    held = any(getattr(block, name, None) for name in _CONTENT)
    return (pointed and not held) or any(_by_place(getattr(block, name)) for name in type(block).model_fields)
