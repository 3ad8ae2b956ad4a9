"""A request body of any wire to a `Request`: what the three formats have in common."""

from collections.abc import Mapping

from headstay.canonical import MARKER_KEYS, size_of, wire_text
from headstay.comparison.segment import Json, Mark, Segment, Tier, mapping
from headstay.comparison.wire_form import objects
from headstay.prompt import Kind

# Keys of a text block that the model does not read.
_TEXT_KEYS = frozenset({"type", "text", "annotations", "logprobs", "id", "index", "citations"}) | MARKER_KEYS
TEXT_TYPES = ("text", "input_text", "output_text")


def text_segment(text: str, *, path: str, holder: str, message: int, role: str, value: object = None) -> Segment:
    """Make the segment of a text, however it was wrapped."""
    kind: Kind = "text" if text and not text.isspace() else "blank"
    return Segment(path, holder, message, role, kind, text, text, "", "", size_of(text), value)


def block_segment(block: Json, kind: Kind, *, path: str, holder: str, message: int, role: str) -> Segment:
    """Make the segment of a block that is no text, call or result."""
    form = wire_text(block)
    size = 0 if kind in ("image", "file") else size_of(form)
    return Segment(path, holder, message, role, kind, form, "", "", "", size, block)


def text_block(block: Json, *, path: str, holder: str, message: int, role: str) -> Segment:
    """Make the segment of a text block: the same as that of the bare text, unless it says more than that."""
    text = block.get("text")
    segment = text_segment(
        text if isinstance(text, str) else "",
        path=f"{path}.text",
        holder=holder,
        message=message,
        role=role,
        value=block,
    )
    more = {key: value for key, value in block.items() if value and (key not in _TEXT_KEYS or key == "citations")}
    return segment._replace(exact=f"{segment.text}\0{wire_text(more)}") if more else segment


def call_segment(
    block: Json, arguments: object, *, call: object, name: object, path: str, holder: str, message: int
) -> Segment:
    """Make the segment of a tool call; its arguments are text on some wires and an object on others."""
    text = arguments if isinstance(arguments, str) else wire_text(arguments)
    exact = f"{call}\0{name}\0{text}"
    return Segment(
        path, holder, message, "assistant", "tool_call", exact, text, str(call), str(name), size_of(text), block
    )


def result_segment(
    block: Json, content: object, *, call: object, path: str, holder: str, message: int, failed: bool = False
) -> Segment:
    """Make the segment of a tool result; a list of one text is the same as the text."""
    text, form = result_text(content, path)
    exact = f"{call}\0{form}\0{failed}"
    return Segment(path, holder, message, "tool", "tool_result", exact, text, str(call), "", size_of(text), block)


def result_text(content: object, path: str) -> tuple[str, str]:
    """Return the text of a tool result, and the form in which the model reads it."""
    if content is None or isinstance(content, str):
        return content or "", content or ""
    blocks = objects(content, path)
    texts = [str(block.get("text", "")) for block in blocks if block.get("type") in TEXT_TYPES]
    text = "\n".join(texts)
    return text, text if len(texts) == len(blocks) == 1 else wire_text(blocks)


def marks_of(block: Json, *keys: str, path: str, index: int, tier: Tier) -> list[Mark]:
    """Return the cache breakpoint that a block carries, in a list; an empty one where it carries none."""
    key = next((key for key in keys if isinstance(block.get(key), Mapping)), None)
    if key is None:
        return []
    ttl = mapping(block.get(key)).get("ttl")
    return [Mark(tier, index, f"{path}.{key}", None if ttl is None else str(ttl))]


def speaker(message: Json) -> str:
    """Return who said a message: the role, and the name where one is given."""
    role = str(message.get("role", "user"))
    return f"{role}:{message['name']}" if message.get("name") else role
