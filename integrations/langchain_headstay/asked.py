"""What LangChain asks of a model, as the semantic cache sees it: turns, and settings by content.

Two roads lead here. `BaseCache` hands over serialised messages and a string of settings; a model's own methods have
the messages themselves, and settings that show more. Both give the same turns.
"""

import ast
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.messages import BaseMessage

from headstay.canonical import meaning_text
from headstay.semantic.forking import ForkedLock
from headstay.semantic.request import AskedRequest, Role, Turn, opaque_in, read_settings
from headstay.values import Declared, without_idle

OWN = "headstay"
"""Key of what a message says to headstay, among its `additional_kwargs`: `{"headstay": {"query": ...}}`."""

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "human": "user",
    "user": "user",
    "ai": "assistant",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""By the type of a message, or by the role that a `ChatMessage` names."""
_parsing = ForkedLock()
"""CPython 3.11 counts a syntax tree's depth for all threads at once: two that parse together get a SystemError."""
_SAID = ("function_call", "refusal")
"""What of a reply's `additional_kwargs` is sent again; the rest is what the provider said beside it."""
_TEXTS = ("text", "input_text", "output_text")
_UNDER = ("tool_calls", "invalid_tool_calls")
_CALLS = ("tool_use", "tool_call", "function_call")
"""Blocks of a content that a reply also holds under the former names."""
_MEDIA = frozenset(
    {
        "image",
        "image_url",
        "input_image",
        "image_file",
        "audio",
        "input_audio",
        "audio_url",
        "video",
        "video_url",
        "input_video",
        "file",
        "input_file",
        "document",
        "media",
        "container_upload",
        "text-plain",
    }
)
_REFERENCES = ("file_id", "fileId", "file_uri", "fileUri")
_PLACE = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
# Names of runs and messages, and what a provider reports: no part of what is asked.
_NOT_ASKED = frozenset({"id", "index", "tool_call_id", "call_id", "cache_control", "prompt_cache_breakpoint"})
# What says how a model is reached, and not what it answers.
_NOT_SETTINGS = frozenset(
    {"cache", "callbacks", "max_retries", "rate_limiter", "request_timeout", "stream_usage", "streaming", "verbose"}
)
_SPLIT = "---"
"""What LangChain writes between how a model was made and the call's own settings."""


def from_strings(prompt: str, llm_string: str) -> AskedRequest:
    """Read what `BaseCache` gets.

    Args:
        prompt: Serialised messages, or the plain text of a completion model.
        llm_string: The model's settings as LangChain writes them.
    """
    made, given, opaque = _read_llm_string(llm_string)
    settings, _ = read_settings({"model": made, **given})
    asked = AskedRequest(turns=(), settings=settings, opaque=opaque, generations=_generations(made, given))
    try:
        items: Any = json.loads(prompt)
    except (ValueError, RecursionError):
        items = None
    held = cast("list[object]", items) if isinstance(items, list) else []
    if not held or not all(map(_is_message, held)):
        return replace(asked, turns=(Turn("user", prompt),))
    fields = [cast("dict[str, Any]", item)["kwargs"] for item in held]
    return replace(asked, turns=_turns(fields), query=_declared(fields))


def from_messages(messages: Sequence[BaseMessage], llm_string: str, given: Mapping[str, Any]) -> AskedRequest:
    """Read what a model's own methods get.

    Args:
        messages: The messages.
        llm_string: How the model was made, as LangChain writes it.
        given: The call's own settings; schema classes among them count by their content.
    """
    made, _, hidden = _read_llm_string(llm_string)
    given = {name: value for name, value in given.items() if value is not None and name not in _NOT_SETTINGS}
    settings, opaque = read_settings({"model": made, **given})
    fields = [vars(message) for message in messages]
    return AskedRequest(
        turns=_turns(fields),
        settings=settings,
        opaque=opaque or hidden,
        query=_declared(fields),
        generations=_generations(made, given),
    )


def without_idle_values(asked: AskedRequest, declared: Declared) -> AskedRequest:
    """Leave the values that no answer depends on out of the system texts of a request."""
    turns = tuple(
        replace(turn, text=without_idle([turn.text], declared)[0]) if turn.role == "system" else turn
        for turn in asked.turns
    )
    return replace(asked, turns=turns)


def _is_message(item: Any) -> bool:
    """Whether it is a message as LangChain writes it; a prompt of a completion model may be any JSON."""
    known = cast("dict[str, Any]", item) if isinstance(item, dict) else dict[str, Any]()
    fields: Any = known.get("kwargs")
    written = known.get("lc") == 1 and known.get("type") == "constructor" and isinstance(fields, dict)
    return written and isinstance(cast("dict[str, Any]", fields).get("content", ""), (str, list))


def _declared(fields: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the query that the last message says it holds."""
    extra = fields[-1].get("additional_kwargs") if fields else None
    own = cast("Mapping[str, Any]", extra).get(OWN) if isinstance(extra, Mapping) else None
    query = cast("Mapping[str, Any]", own).get("query") if isinstance(own, Mapping) else None
    return query if isinstance(query, str) else None


def _read_llm_string(llm_string: str) -> tuple[object, dict[str, Any], str]:
    """Return how a model was made, the call's own settings, and the first of them that shows only a name."""
    try:
        made, end = json.JSONDecoder().raw_decode(llm_string)
    except ValueError:
        made, end = None, 0
    if not isinstance(made, dict) or not llm_string.startswith(_SPLIT, end):
        return llm_string, {}, opaque_in(llm_string)
    known = cast("dict[str, Any]", made)
    if isinstance(known.get("kwargs"), dict):
        kept = {name: value for name, value in known["kwargs"].items() if name not in _NOT_SETTINGS}
        known = {"id": known.get("id"), **kept}
    after = llm_string[end + len(_SPLIT) :]
    try:
        with _parsing:
            pairs: Any = ast.literal_eval(after)
        given = {str(name): value for name, value in pairs if value is not None and name not in _NOT_SETTINGS}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        given = {"call": after}  # as it is written: the same settings in another order are another request
    return known, given, opaque_in(after)


def _generations(made: object, given: Mapping[str, Any]) -> int:
    """Return how many answers are asked for."""
    known = cast("Mapping[str, Any]", made) if isinstance(made, Mapping) else dict[str, Any]()
    count = given.get("n", known.get("n"))
    return count if isinstance(count, int) and count > 0 else 1


def _turns(messages: Sequence[Mapping[str, Any]]) -> tuple[Turn, ...]:
    """Take messages apart; a tool result names its call by place, for ids are new in every run."""
    calls: dict[object, int] = {}
    turns: list[Turn] = []
    for fields in messages:
        for call in fields.get("tool_calls") or ():
            calls[call.get("id")] = len(calls)
        turns.append(_turn(fields, calls.get(fields.get("tool_call_id"))))
    return tuple(turns)


def _turn(fields: Mapping[str, Any], answers: int | None) -> Turn:
    """Take a message apart into its text and the rest; with the place of the call that it answers."""
    kind = str(fields.get("type", "")).removesuffix("MessageChunk").lower()
    role = _ROLES.get(str(fields.get("role", "")) if kind == "chat" else kind, "assistant")
    content: Any = fields.get("content") or ""
    blocks: list[Any] = [content] if isinstance(content, str) else list(content)
    said = role == "assistant"
    calls = any(fields.get(name) for name in _UNDER)
    texts, rest, unhashed = _read_blocks(blocks, said=said, passed_over=_CALLS if calls else ())
    for name in _UNDER:
        rest += [{"call": call.get("name"), "args": call.get("args")} for call in fields.get(name) or ()]
    rest += [{name: fields[name]} for name in ("name", "status", "role") if fields.get(name)]
    if answers is not None:
        rest.append({"answers": answers})
    if kind not in _ROLES:
        rest.append({"type": kind})
    extra: dict[str, Any] = dict(fields.get("additional_kwargs") or {})
    extra = {name: extra[name] for name in extra if name != OWN and (not said or name in _SAID)}
    if extra:
        rest.append(_asked(extra, said=said))
    return Turn(role, "\n".join(texts), meaning_text(rest) if rest else "", unhashed=unhashed)


def _read_blocks(
    blocks: Sequence[Any], *, said: bool, passed_over: Sequence[str]
) -> tuple[list[str], list[object], bool]:
    """Return the texts of some blocks, the rest with the places of the texts in it, and whether content is unknown.

    Args:
        blocks: The content of a message.
        said: Whether a model said it.
        passed_over: Types of blocks that are read elsewhere.
    """
    texts: list[str] = []
    rest: list[object] = []
    unhashed = False
    for block in blocks:
        if not isinstance(block, Mapping):
            texts.append(str(block))
            rest.append("text")
            continue
        known = cast("Mapping[str, Any]", block)
        if known.get("type") in _TEXTS and isinstance(known.get("text"), str):
            texts.append(known["text"])
            rest.append("text")
        elif known.get("type") not in passed_over:
            unhashed = unhashed or _by_reference(known)
            rest.append(_asked({name: known[name] for name in known if name != "extras" or not said}, said=said))
    return texts, rest if len(rest) > len(texts) else [], unhashed


def _asked(value: Any, *, said: bool, inside: bool = False) -> Any:
    """Leave out what names a run; bytes stand in by their hash.

    Further inside of what no model said, an `id` names a thing that is asked about.
    """
    if isinstance(value, Mapping):
        left_out = _NOT_ASKED if said or not inside else ()
        items = cast("Mapping[str, Any]", value).items()
        return {name: _asked(item, said=said, inside=True) for name, item in items if name not in left_out}
    if isinstance(value, (list, tuple)):
        return [_asked(item, said=said, inside=True) for item in cast("Sequence[Any]", value)]
    if isinstance(value, str) and len(value) > 1024:  # media as base64
        return {"sha256": hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()}
    return value


def _by_reference(block: Mapping[str, Any]) -> bool:
    """Whether a block, or one inside it, only points at its content, which may change or is not known."""
    held: list[tuple[Any, bool]] = [(block, False)]
    while held:
        one, in_media = held.pop()
        if isinstance(one, Mapping):
            known = cast("Mapping[str, Any]", one)
            if any(known.get(key) for key in _REFERENCES) or known.get("source_type") == "id":
                return True
            in_media = in_media or known.get("type") in _MEDIA
            held += [(item, in_media) for item in known.values()]
        elif isinstance(one, (list, tuple)):
            held += [(item, in_media) for item in cast("Sequence[Any]", one)]
        elif in_media and isinstance(one, str) and _PLACE.match(one):
            return True
    return False
