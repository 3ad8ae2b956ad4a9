"""Values cut out of the system text: constant placeholders in the head, and the blocks that carry the values.

The blocks are plain lines, so that a model reads them without being taught a format, and so that no value can pass
for another: a value with line breaks stands between tags that it does not contain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headstay.errors import ConfigError
from headstay.slots import Every, Slot, Span, Template, classify, merge, strict_spans

CONVERSATION_TITLE = "Values for this conversation:"
CALL_TITLE = "Now:"
EXAMPLES_TITLE = "Examples for this conversation:"
_EVERYTHING = 0.9


@dataclass(frozen=True, slots=True)
class Value:
    """One value that the application wrote into the system text of this call.

    Attributes:
        name: The name in its placeholder.
        text: The value, byte for byte.
        every: How often it may change.
        harmless: Whether it may stand in user text.
        block: Index of the system block it was cut from.
        start: Offset in that block.
    """

    name: str
    text: str
    every: Every
    harmless: bool
    block: int
    start: int


@dataclass(frozen=True, slots=True)
class Declared:
    """What the application declared about its system text.

    Attributes:
        templates: The texts' templates; each system block is tried against each.
        slots: Declared slots.
        strict: Whether full timestamps and UUIDs are slots without being declared.
        constant: System blocks in which nothing is a slot.
        examples: Whether a system block that begins with `EXAMPLES_TITLE` holds the examples of a conversation: what
            stands under the title is one per-conversation value.
    """

    templates: tuple[Template, ...] = ()
    slots: tuple[Slot, ...] = ()
    strict: bool = True
    constant: frozenset[str] = frozenset()
    examples: bool = False

    def check(self) -> None:
        """Refuse slots that name a variable which no template has.

        Raises:
            ConfigError: The message lists the variables there are.
        """
        known = dict.fromkeys(name for template in self.templates for name in template.variables)
        for slot in self.slots:
            if slot.variable is None or slot.variable in known:
                continue
            if not self.templates:
                raise ConfigError(f"{slot!r} names a variable, and there is no template=; give the template too")
            valid = ", ".join(f'"{{{name}}}"' for name in known) or "none"
            raise ConfigError(f"{slot!r} names no variable of template=; its variables: {valid}")


@dataclass(frozen=True, slots=True)
class Extraction:
    """A system text taken apart.

    Attributes:
        head: The system blocks with placeholders instead of values.
        values: The values, in order of appearance.
        notices: What the declarations did not fit, one clear line each.
    """

    head: tuple[str, ...]
    values: tuple[Value, ...]
    notices: tuple[str, ...]


def placeholder(name: str) -> str:
    """Return the constant text that stands in the head for a value."""
    return f"[[{name}]]"


def extract(system: Sequence[str], declared: Declared) -> Extraction:
    """Cut the declared and the strictly recognised values out of the system blocks.

    Args:
        system: The system blocks.
        declared: Templates and slots.

    Returns:
        Head, values, and notices for declarations that fit nothing or everything.
    """
    by_template = [_template_spans(text, declared) for text in system]
    by_slot = [[slot.spans(text) for text in system] for slot in declared.slots]
    too_wide = [_covers(found, system) for found in by_slot]
    narrow = [found for found, wide in zip(by_slot, too_wide, strict=True) if not wide]
    heads: list[str] = []
    values: list[Value] = []
    used: dict[str, str] = {}
    for number, text in enumerate(system):
        spans, _ = by_template[number]
        identity = {span.name for span in spans}
        spans = [*spans, *(span for found in narrow for span in found[number])]
        if declared.strict and not identity:
            spans += strict_spans(text)
        if text in declared.constant:
            spans = []
        elif declared.examples and text.startswith(EXAMPLES_TITLE):
            spans = [Span(min(len(EXAMPLES_TITLE) + 1, len(text)), len(text), "examples", "conversation")]
        head, cut = _cut(text, number, merge(spans), identity, used)
        heads.append(head)
        values += cut
    variables = {span.name for spans, _ in by_template for span in spans}
    notices = _misfit(system, declared.templates, [at for _, at in by_template]) if declared.templates else []
    for slot, found, wide in zip(declared.slots, by_slot, too_wide, strict=True):
        if wide:
            notices.append(f"{slot!r} matches nearly the whole system text and was left out; narrow it")
        elif system and not any(found) and slot.variable not in variables:
            notices.append(f"{slot!r} matches nothing in the system text; correct it or take it out")
    return Extraction(tuple(heads), tuple(values), tuple(notices))


def without_idle(system: Sequence[str], declared: Declared) -> tuple[str, ...]:
    """Replace the values that no answer depends on by their placeholders; see `Slot(affects_answer=False)`.

    Args:
        system: The system blocks.
        declared: Templates and slots.
    """
    idle = tuple(slot for slot in declared.slots if not slot.affects_answer)
    if not idle:
        return tuple(system)
    variables = {slot.variable for slot in idle}
    found: list[str] = []
    for text in system:
        spans, _ = _template_spans(text, declared)
        named = [span for span in spans if span.name in variables]
        named += [span for slot in idle for span in slot.spans(text)]
        for span in reversed(merge(named)):
            text = text[: span.start] + placeholder(span.name) + text[span.end :]  # noqa: PLW2901 - from the end on
        found.append(text)
    return tuple(found)


def _template_spans(text: str, declared: Declared) -> tuple[list[Span], int | None]:
    """Return the variables of the template that a text is made from; else how far the nearest one reaches."""
    reached = 0
    for template in declared.templates:
        found = template.spans(text, declared.slots)
        if not isinstance(found, int):
            return found, None
        reached = max(reached, found)
    return [], reached


def _covers(found: Sequence[Sequence[Span]], system: Sequence[str]) -> bool:
    """Whether the spans of one slot are nearly all there is: then no constant text would be left to cache."""
    covered = sum(span.end - span.start for spans in found for span in spans)
    return covered > 0 and covered >= _EVERYTHING * sum(map(len, system))


def _misfit(system: Sequence[str], templates: Sequence[Template], reached: Sequence[int | None]) -> list[str]:
    """Say which constant part of the nearest template is missing; never a word of the text, which holds values."""
    if not system or None in reached:
        return []
    missing = max((template.missing(text) for template in templates for text in system), key=lambda found: found[0])[1]
    return [
        f"template= does not fit the system text: {missing[:60]!r} is not where the template has it; "
        "give the template that the text is made from"
    ]


def _cut(
    text: str, block: int, spans: Sequence[Span], identity: set[str], used: dict[str, str]
) -> tuple[str, list[Value]]:
    pieces: list[str] = []
    values: list[Value] = []
    position = 0
    for span in spans:
        value = text[span.start : span.end]
        base, name, number = span.name, span.name, 1
        # A template's variable is one value wherever it stands; any other slot is numbered by its place, so that
        # the head does not depend on which values happen to be equal.
        while name in used and not (base in identity and used[name] == value):
            number += 1
            name = f"{base}_{number}"
        pieces += [text[position : span.start], placeholder(name)]
        if name not in used:
            harmless = classify(value) in ("clock", "id") if span.harmless is None else span.harmless
            values.append(Value(name, value, span.every, harmless, block, span.start))
            used[name] = value
        position = span.end
    return "".join(pieces) + text[position:], values


def render(title: str, values: Iterable[Value]) -> str:
    """Write values as a labelled block; equal values stand once, under all their names.

    Args:
        title: The first line.
        values: What to write.

    Returns:
        The block, or an empty text where there is nothing to write.
    """
    names: dict[str, list[str]] = {}
    for value in values:
        names.setdefault(value.text, []).append(value.name)
    if not names:
        return ""
    return "\n".join([title, *(_line(", ".join(called), text) for text, called in names.items())])


def _line(name: str, text: str) -> str:
    if not text:
        return f"{name}: (empty)"
    if len(text.splitlines()) == 1 and text == text.strip():
        return f"{name}: {text}"
    tag = name.replace(", ", "-")
    while f"</{tag}>" in text:
        tag += "_"
    return f"<{tag}>\n{text}\n</{tag}>"


def per_call_lines(declared: Declared) -> dict[str, str]:
    """For each declared slot that stands for a conversation, write the line that declares it as changing per call."""
    return {
        slot.called: repr(Slot(slot.match, every="call", harmless=slot.harmless))
        for slot in declared.slots
        if slot.every == "conversation"
    }
