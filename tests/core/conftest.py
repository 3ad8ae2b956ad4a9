"""Conversations as hosts send them, for the property tests: drawn at random, built call by call on every wire."""

import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import strategies as st

from headstay.prompt import Wire
from headstay.slots import Slot, Template
from headstay.values import Declared

Json = dict[str, Any]

TARGETS: tuple[tuple[Wire, str], ...] = (
    ("anthropic-messages", "claude-opus-5"),  # takes a system message in place
    ("anthropic-messages", "claude-sonnet-4-6"),  # does not
    ("openai-chat", "gpt-5.6-terra"),  # explicit breakpoints
    ("openai-chat", "gpt-5.4"),  # implicit caching
    ("openai-responses", "gpt-6.1-sol"),
    ("openai-responses", "gpt-5.5"),
)
IN_PLACE = tuple(model for _, model in TARGETS if model != "claude-sonnet-4-6")
PIXEL = "iVBORw0KGgo="
FILLER = "{policy}"


@dataclass(frozen=True)
class Variable:
    """A value in the system text."""

    name: str
    kind: Literal["clock", "id", "text", "person"]

    @property
    def every(self) -> Literal["call", "conversation"]:
        return "conversation" if self.kind == "person" else "call"

    def value(self, serial: int, noise: str) -> str:
        """A value that no other serial number gives."""
        if self.kind == "clock":
            return f"2026-03-{serial % 28 + 1:02d}T{serial // 28 % 24:02d}:{serial // 672:02d}:07Z"
        if self.kind == "id":
            return str(uuid.UUID(int=serial))
        return f"{noise}zq{serial}x{noise[::-1]}"


@dataclass(frozen=True)
class Step:
    """What one call adds: user parts or tool results, and before them what the model said."""

    said: tuple[str, ...]  # "thinking", "text" or "call"
    parts: tuple[str, ...]  # texts of the user, or of the tools; "<image>" for a picture
    listed: bool


@dataclass(frozen=True)
class Script:
    """A conversation, and how its system text is made and declared."""

    wire: Wire
    model: str
    blocks: tuple[tuple[str | Variable, ...], ...]
    filler: int
    steps: tuple[Step, ...]
    noises: tuple[str, ...]
    by_template: bool
    listed: bool
    tools: int
    tail: bool
    own_markers: frozenset[int]

    @property
    def variables(self) -> list[Variable]:
        return list(dict.fromkeys(piece for block in self.blocks for piece in block if isinstance(piece, Variable)))

    def declared(self) -> Declared:
        if self.by_template:
            templates = tuple(self._template(block) for block in self.blocks)
            slots = tuple(Slot(f"{{{v.name}}}", every=v.every) for v in self.variables)
            return Declared(templates, slots)
        slots = tuple(Slot(rf"<{v.name}>(?P<{v.name}>[\s\S]*?)</{v.name}>", every=v.every) for v in self.variables)
        return Declared((), slots)

    def system(self, values: Mapping[str, str]) -> list[str]:
        return ["".join(self._written(piece, values) for piece in block) for block in self.blocks]

    def _written(self, piece: str | Variable, values: Mapping[str, str]) -> str:
        if isinstance(piece, str):
            return piece.replace(FILLER, "We keep to the policy. " * self.filler)
        bare = values[piece.name]
        return bare if self.by_template else f"<{piece.name}>{bare}</{piece.name}>"

    def _template(self, pieces: Sequence[str | Variable]) -> Template:
        literals, variables = [""], list[str]()
        for piece in pieces:
            if isinstance(piece, str):
                literals[-1] += self._written(piece, {})
            else:
                variables.append(piece.name)
                literals.append("")
        return Template(tuple(literals), tuple(variables))


NOISE = st.text(max_size=12) | st.sampled_from(["[[clock]]", "line\nbreak", "</person>", "##", "'\"", "é", "(empty)"])
SAID = st.lists(st.sampled_from(["thinking", "text"]), unique=True, max_size=2)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    wire, model = draw(st.sampled_from(TARGETS))
    kinds: list[Literal["clock", "id", "text", "person"]] = ["clock", "id", "person", "person"]
    if model in IN_PLACE:
        kinds.append("text")
    count = draw(st.integers(0, 5))
    names = ["clock", "ticket", "person", "plan", "memo"][:count]
    variables = [Variable(name, draw(st.sampled_from(kinds))) for name in names]
    blocks: list[tuple[str | Variable, ...]] = []
    for number in range(draw(st.integers(1, 3))):
        pieces: list[str | Variable] = [f"Part {number}. {FILLER}"]
        for variable in variables[number::3]:
            pieces.append(variable)
            if draw(st.booleans()):
                pieces += [draw(st.sampled_from([" and ", ".\n", " (", ""])), variable]
            pieces.append(f"; rule {len(pieces)} follows.\n")
        blocks.append(tuple(pieces))
    steps = [Step((), tuple(draw(st.lists(_PARTS, min_size=1, max_size=2))), draw(st.booleans()))]
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            calls = draw(st.integers(1, 3))
            said = (*draw(SAID), *["call"] * calls)
            results = tuple(draw(st.lists(st.text(max_size=20), min_size=calls, max_size=calls)))
            steps.append(Step(said, results, draw(st.booleans())))
        else:
            parts = tuple(draw(st.lists(_PARTS, min_size=1, max_size=2)))
            steps.append(Step(tuple(draw(SAID)) or ("text",), parts, draw(st.booleans())))
    return Script(
        wire=wire,
        model=model,
        blocks=tuple(blocks),
        filler=draw(st.sampled_from([1, 30, 100, 200, 300])),
        steps=tuple(steps),
        noises=tuple(draw(st.lists(NOISE.filter(lambda text: "</" not in text), min_size=1, max_size=4))),
        by_template=draw(st.booleans()),
        listed=draw(st.booleans()),
        tools=draw(st.integers(0, 3)),
        tail=draw(st.booleans()),
        own_markers=frozenset(draw(st.sets(st.integers(0, 12), max_size=6))),
    )


_PARTS = st.text(max_size=30).map(lambda text: f"{text} ?") | st.just("<image>") | st.just("<long>")


class Conversation:
    """Builds the bodies of one conversation, call by call, as a host would."""

    def __init__(self, script: Script, serials: Iterator[int]) -> None:
        self.script = script
        self.serials = serials
        self.lasting = {v.name: self._fresh(v) for v in script.variables if v.every == "conversation"}
        self.values: dict[str, str] = {}
        self.tail = ""
        self.history: list[Json] = []
        self._call_ids = itertools.count()

    def _fresh(self, variable: Variable) -> str:
        serial = next(self.serials)
        return variable.value(serial, self.script.noises[serial % len(self.script.noises)])

    def bodies(self) -> Iterator[Json]:
        """Yield the body of each call; `values` and `tail` are then those of that call."""
        for step in self.script.steps:
            self._append(step)
            self.values = self.lasting | {v.name: self._fresh(v) for v in self.script.variables if v.every == "call"}
            self.tail = f"found zq{next(self.serials)}x" if self.script.tail else ""
            yield self._body()

    def _append(self, step: Step) -> None:
        ids = [f"call_{next(self._call_ids)}" for said in step.said if said == "call"]
        build = {"anthropic-messages": _anthropic_step, "openai-chat": _chat_step, "openai-responses": _responses_step}
        self.history += build[self.script.wire](step, ids)

    def _body(self) -> Json:
        script, texts = self.script, self.script.system(self.values)
        body: Json = {"model": script.model, "max_tokens": 100}
        if script.wire == "anthropic-messages":
            bare = len(texts) == 1 and not script.listed
            body["system"] = texts[0] if bare else [{"type": "text", "text": text} for text in texts]
            body["messages"] = list(self.history)
            body["tools"] = [{"name": f"t{n}", "input_schema": {"type": "object"}} for n in range(script.tools)]
            return _with_own_markers(body, script.own_markers)
        if script.wire == "openai-chat":
            body["messages"] = [*_operators(texts, "system", "text", listed=script.listed), *self.history]
            body["tools"] = [{"type": "function", "function": {"name": f"t{n}"}} for n in range(script.tools)]
        else:
            start = int(script.listed)
            if start:
                body["instructions"] = texts[0]
            body["input"] = [*_operators(texts[start:], "developer", "input_text", listed=True), *self.history]
            body["tools"] = [{"type": "function", "name": f"t{n}"} for n in range(script.tools)]
        if not body["tools"]:
            del body["tools"]
        return body


def _operators(texts: Sequence[str], role: str, kind: str, *, listed: bool) -> list[Json]:
    if listed and texts:
        return [{"role": role, "content": [{"type": kind, "text": text} for text in texts]}]
    return [{"role": role, "content": text} for text in texts]


def _long(part: str) -> str:
    return part.replace("<long>", "long " * 400)


def _anthropic_step(step: Step, ids: Sequence[str]) -> list[Json]:
    forms: dict[str, Json] = {
        "thinking": {"type": "thinking", "thinking": "hm", "signature": "s"},
        "text": {"type": "text", "text": "I see."},
    }
    names = iter(ids)
    said = [forms.get(s) or {"type": "tool_use", "id": next(names), "name": "t0", "input": {"a": 1}} for s in step.said]
    before = [{"role": "assistant", "content": said}] if said else []
    if ids:
        parts = [
            {"type": "tool_result", "tool_use_id": name, "content": [{"type": "text", "text": r}] if step.listed else r}
            for name, r in zip(ids, step.parts, strict=True)
        ]
        return [*before, {"role": "user", "content": parts}]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    content = [image if part == "<image>" else {"type": "text", "text": _long(part)} for part in step.parts]
    bare = len(content) == 1 and not step.listed and content[0] is not image
    return [*before, {"role": "user", "content": _long(step.parts[0]) if bare else content}]


def _chat_step(step: Step, ids: Sequence[str]) -> list[Json]:
    calls = [{"id": n, "type": "function", "function": {"name": "t0", "arguments": '{"a": 1}'}} for n in ids]
    said: Json = {"role": "assistant", "content": "I see." if "text" in step.said or not calls else None}
    if calls:
        said["tool_calls"] = calls
    before = [said] if step.said else []
    if ids:
        return [
            *before,
            *(
                {"role": "tool", "tool_call_id": n, "content": [{"type": "text", "text": r}] if step.listed else r}
                for n, r in zip(ids, step.parts, strict=True)
            ),
        ]
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
    content = [image if part == "<image>" else {"type": "text", "text": _long(part)} for part in step.parts]
    bare = len(content) == 1 and not step.listed and content[0] is not image
    return [*before, {"role": "user", "content": _long(step.parts[0]) if bare else content}]


def _responses_step(step: Step, ids: Sequence[str]) -> list[Json]:
    before: list[Json] = []
    if "thinking" in step.said:
        before.append({"type": "reasoning", "summary": [], "encrypted_content": "e"})
    if "text" in step.said:
        before.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I see."}]})
    before += [{"type": "function_call", "call_id": n, "name": "t0", "arguments": "{}"} for n in ids]
    if ids:
        return [
            *before,
            *(
                {"type": "function_call_output", "call_id": n, "output": [{"type": "input_text", "text": r}]}
                if step.listed
                else {"type": "function_call_output", "call_id": n, "output": r}
                for n, r in zip(ids, step.parts, strict=True)
            ),
        ]
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"}
    content = [image if part == "<image>" else {"type": "input_text", "text": _long(part)} for part in step.parts]
    return [*before, {"role": "user", "content": content}]


def _with_own_markers(body: Json, places: frozenset[int]) -> Json:
    """Mark some blocks as an application might; place 0 is the request itself, every third one asks for an hour."""
    marked: Json = json.loads(json.dumps(body))
    blocks = [block for m in marked["messages"] if isinstance(m["content"], list) for block in m["content"]]
    blocks += marked["tools"] + (marked["system"] if isinstance(marked["system"], list) else [])
    for place in places:
        control = {"type": "ephemeral", "ttl": "1h"} if place % 3 == 0 else {"type": "ephemeral"}
        if place == 0:
            marked["cache_control"] = control
        elif place <= len(blocks):
            blocks[place - 1]["cache_control"] = control
    return marked
