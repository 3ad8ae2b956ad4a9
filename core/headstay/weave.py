"""Puts back into a history what stands in it on the wire and not in the application's messages.

That is the notes of earlier calls, where they are kept, and the tools and instructions that were added. Everything
after treats them as the part of the body that they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from headstay.fingerprint import block_digest, text_digest
from headstay.prompt import Block, Prompt, Role
from headstay.providers import anthropic, openai

Definition = Mapping[str, object]
Woven = Definition | str
"""A tool's definition, or the words of an instruction."""


class NoteText(NamedTuple):
    """A kept note.

    Attributes:
        operator: Text for a system message in place, or empty.
        user: Text for the end of the user's message, or empty.
    """

    operator: str = ""
    user: str = ""


@dataclass(slots=True)
class _Body:
    """The messages and blocks written so far."""

    messages: list[Mapping[str, object]]
    blocks: list[Block]

    def add(self, message: Mapping[str, object], blocks: Iterable[Block]) -> None:
        """Write a message; its blocks take its new number."""
        number = len(self.messages)
        self.blocks += [Block(role, kind, number, part, digest, size) for role, kind, _, part, digest, size in blocks]
        self.messages.append(message)

    def say(self, role: Role, text: str) -> None:
        """Write one more text at the end of the last message."""
        part = self._extend({"type": "text", "text": text})
        self.blocks.append(Block(role, "text", len(self.messages) - 1, part, *text_digest(role, text)))

    def define(self, definition: Definition) -> None:
        """Append one more tool at the end of the last message."""
        block = anthropic.addition(definition)
        part = self._extend(block)
        self.blocks.append(Block("system", "tool", len(self.messages) - 1, part, *block_digest("system", block)))

    def _extend(self, block: Mapping[str, object]) -> int:
        content = anthropic.content_of(self.messages[-1])
        self.messages[-1] = {**self.messages[-1], "content": [*content, block]}
        return len(content)


def weave(prompt: Prompt, notes: Mapping[int, NoteText], additions: Mapping[int, Sequence[Woven]]) -> Prompt:
    """Write notes, appended tools and added instructions behind the messages they follow.

    Args:
        prompt: The request as the application made it; it is not changed.
        notes: Index of a message to the note that follows it; on Anthropic's wire only.
        additions: Index of a message, -1 for the front, to what follows it in the order in which it came.

    Returns:
        The request with all of it, its markers moved along.
    """
    by_message: dict[int, list[Block]] = {}
    for block in prompt.blocks:
        by_message.setdefault(block.message, []).append(block)
    body = _Body([], [])
    place: dict[int, int] = {}

    def operate(number: int, note: str = "") -> None:
        pieces = [*additions.get(number, ()), *([note] if note else [])]
        if prompt.wire == "anthropic-messages":
            _operate_anthropic(body, pieces)
        else:
            _operate_openai(body, pieces, prompt.operator)

    operate(-1)
    for number, message in enumerate(prompt.messages):
        place[number] = len(body.messages)
        body.add(message, by_message.get(number, ()))
        note = notes.get(number, NoteText())
        if note.user:
            body.say("user", note.user)
        operate(number, note.operator)
    markers = tuple(
        replace(marker, message=place[marker.message]) if marker.tier == "messages" else marker
        for marker in prompt.markers
    )
    return replace(prompt, messages=body.messages, blocks=tuple(body.blocks), markers=markers)


def _operate_anthropic(body: _Body, pieces: Sequence[Woven]) -> None:
    """Write everything into one system message: a second one in a row would be refused."""
    joins = bool(body.messages) and body.messages[-1].get("role") == "system"
    if len(pieces) == 1 and isinstance(pieces[0], str) and not joins:
        block = Block("system", "text", 0, 0, *text_digest("system", pieces[0]))
        body.add({"role": "system", "content": pieces[0]}, [block])
        return
    if pieces and not joins:
        body.add({"role": "system", "content": []}, ())
    for piece in pieces:
        if isinstance(piece, str):
            body.say("system", piece)
        else:
            body.define(piece)


def _operate_openai(body: _Body, pieces: Sequence[Woven], operator: str) -> None:
    """Write each piece as an item of its own, so that one more leaves those before it as they were."""
    for piece in pieces:
        if isinstance(piece, str):
            block = Block("system", "text", 0, 0, *text_digest(operator, piece))
            body.add({"role": operator, "content": piece}, [block])
        else:
            item = openai.addition(piece)
            body.add(item, [Block("system", "other", 0, 0, *block_digest(openai.ADDITION, item))])
