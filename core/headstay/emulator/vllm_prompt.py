"""The estimated tokens of a chat request as a ChatML template renders it: system text, tools, then the conversation.

Most chat templates have this order, so a varying system text leaves nothing of the tools readable. A call's id is
not part of it, as templates leave ids out. Tokens are estimates.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headstay.emulator.shape import compact, mapping, sequence, text_of
from headstay.emulator.tokens import pieces

_SYSTEM = ("system", "developer")
_START, _END = "<|im_start|>", "<|im_end|>"


def prompt_tokens(body: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the token ids of a request's prompt."""
    return _ids([*_prompt(body)])


def text_tokens(text: str) -> tuple[int, ...]:
    """Return the token ids of a bare text."""
    return _ids([*pieces(text)])


def answer_tokens(message: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the token ids by which the model generates a message.

    They are those of the message in a later prompt, so that its full blocks can be read there, unless it was reasoned
    first: templates leave that out of later prompts.
    """
    reasoning = text_of(message.get("reasoning"))
    thought = ("<think>", *pieces(reasoning), "</think>") if reasoning else ()
    return _ids([*thought, *_said(message), _END])


def _prompt(body: Mapping[str, Any]) -> Iterator[str]:
    messages = [mapping(message) for message in sequence(body.get("messages"))]
    first = messages[0] if messages else {}
    tools = sequence(body.get("tools"))
    if first.get("role") in _SYSTEM or tools:
        yield from (_START, "system", "\n")
        if first.get("role") in _SYSTEM:
            yield from _text(first.get("content"))
            messages = messages[1:]
        for tool in tools:
            yield from ("<tool>", *pieces(compact(tool)), "</tool>")
        yield from (_END, "\n")
    for message in messages:
        role = text_of(message.get("role"))
        yield from (_START, "system" if role == "developer" else role, "\n", *_said(message), _END, "\n")
    if body.get("add_generation_prompt") is not False:
        yield from (_START, "assistant", "\n")


def _said(message: Mapping[str, Any]) -> Iterator[str]:
    yield from _text(message.get("content"))
    for call in sequence(message.get("tool_calls")):
        function = mapping(mapping(call).get("function"))
        yield from ("<call>", *pieces(text_of(function.get("name"))), *pieces(text_of(function.get("arguments"))))
        yield "</call>"


def _text(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield from pieces(content)
    for part in map(mapping, sequence(content)):
        yield from pieces(text_of(part.get("text")) or text_of(part.get("refusal")))


def _ids(tokens: Sequence[str]) -> tuple[int, ...]:
    return tuple(zlib.crc32(token.encode(errors="replace")) for token in tokens)
