"""From LlamaIndex's prompt templates to headstay's: only the names and the literal texts are needed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, RichPromptTemplate

from headstay.errors import ConfigError
from headstay.slots import Template
from headstay.template_text import filled, read_double_braces, slot_name

TemplateLike = PromptTemplate | ChatPromptTemplate | RichPromptTemplate | str
"""What `template=` takes; a plain text is read as a `PromptTemplate`."""

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_NAME = re.compile(r"[a-zA-Z_]\w*(?:\.[a-zA-Z_]\w*)*")
_CHAT = re.compile(r"\{%-?\s*chat\s+role=[\"'](\w+)[\"']\s*-?%\}(.*?)\{%-?\s*endchat\s*-?%\}", re.DOTALL)


def read_templates(given: TemplateLike | Sequence[TemplateLike] | None) -> tuple[Template, ...]:
    """Read the system texts out of LlamaIndex templates.

    Args:
        given: One template, or several where an agent has several system texts.

    Returns:
        One template for each system text block.

    Raises:
        ConfigError: It is no template, holds no system text, or uses more than plain variables.
    """
    if given is None:
        return ()
    if isinstance(given, (str, BasePromptTemplate)):
        given = [given]
    if not isinstance(cast("object", given), (list, tuple)):
        raise ConfigError(
            f"template={type(given).__name__}: give a PromptTemplate, a ChatPromptTemplate, a RichPromptTemplate or a "
            "text, or a list of them"
        )
    found = [template for one in given for template in _read(one)]
    if not found:
        raise ConfigError("template= holds no system text; give the template that the system text is made from")
    return tuple(found)


def _read(given: object) -> Iterable[Template]:
    if isinstance(given, str):
        yield _braces(given)
    elif isinstance(given, PromptTemplate):
        yield _filled(_braces(given.template), given)
    elif isinstance(given, ChatPromptTemplate):
        for message in given.message_templates:
            yield from (_filled(template, given) for template in _system_texts(message))
    elif isinstance(given, RichPromptTemplate):
        yield from (_filled(read_double_braces(text, "banks"), given) for text in _rich_texts(given))
    else:
        raise ConfigError(f"template={type(given).__name__}: no prompt template of LlamaIndex's that is read here")


def _system_texts(message: ChatMessage) -> Iterable[Template]:
    if message.role in (MessageRole.SYSTEM, MessageRole.DEVELOPER):
        yield from (_braces(block.text) for block in message.blocks if isinstance(block, TextBlock))


def _rich_texts(given: RichPromptTemplate) -> list[str]:
    """Return the system texts of a template with chat blocks; the whole of one without."""
    text = given.template_str
    if not given.is_chat_template:
        return [text]
    return [inner.strip() for role, inner in _CHAT.findall(text) if role in ("system", "developer")]


def _braces(text: str) -> Template:
    """Read `{name}` as LlamaIndex does: other braces, as in an example of JSON, are text."""
    literals, variables = [""], list[str]()
    end = 0
    for found in _VARIABLE.finditer(text):
        if _NAME.fullmatch(found[1]):
            literals[-1] += text[end : found.start()]
            variables.append(slot_name(found[1]))
            literals.append("")
            end = found.end()
    literals[-1] += text[end:]
    return Template(tuple(literals), tuple(variables))


def _filled(template: Template, given: BasePromptTemplate) -> Template:
    """Take the texts that were filled in beforehand for the constants they are."""
    names: Mapping[str, str] = given.template_var_mappings or {}
    fixed = {names.get(name, name): value for name, value in cast("dict[str, object]", given.kwargs).items()}
    return filled(template, fixed)
