"""From LangChain's prompt templates to headstay's: only the names and the literal texts are needed."""

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from langchain_core.messages import SystemMessage
from langchain_core.prompts import ChatPromptTemplate, SystemMessagePromptTemplate
from langchain_core.prompts.string import StringPromptTemplate

from headstay.errors import ConfigError
from headstay.slots import Template

TemplateLike = ChatPromptTemplate | SystemMessagePromptTemplate | StringPromptTemplate | str
"""What `template=` takes; a plain text is read as an f-string template."""

_DOUBLE_BRACES = re.compile(r"\{\{\{?\s*([\w.]+)\s*\}?\}\}")


def read_templates(given: TemplateLike | Sequence[TemplateLike] | None) -> tuple[Template, ...]:
    """Read the system texts out of LangChain templates.

    Args:
        given: One template, or several where an agent has several system texts.

    Returns:
        One template for each system text block.

    Raises:
        ConfigError: It is no template, holds no system text, or uses more than plain variables.
    """
    if given is None:
        return ()
    if isinstance(given, (str, ChatPromptTemplate, SystemMessagePromptTemplate, StringPromptTemplate)):
        given = [given]
    if not isinstance(cast("object", given), (list, tuple)):
        raise ConfigError(
            f"template={type(given).__name__}: give a ChatPromptTemplate, a SystemMessagePromptTemplate, a string "
            "prompt template or a text, or a list of them"
        )
    found = [template for one in given for template in _read(one)]
    if not found:
        raise ConfigError("template= holds no system text; give the template that the system text is made from")
    return tuple(found)


def _read(given: TemplateLike) -> Iterable[Template]:
    if isinstance(given, str):
        yield _f_string(given)
    elif isinstance(given, StringPromptTemplate):
        yield _string_template(given)
    elif isinstance(given, SystemMessagePromptTemplate):
        yield from _system_prompt(given)
    elif isinstance(cast("object", given), ChatPromptTemplate):
        for message in given.messages:
            if isinstance(message, SystemMessagePromptTemplate):
                yield from (_filled(template, given.partial_variables) for template in _system_prompt(message))
            elif isinstance(message, SystemMessage):
                yield Template((message.text,), ())
    else:
        raise ConfigError(f"template={type(given).__name__}: not a LangChain prompt template")


def _system_prompt(given: SystemMessagePromptTemplate) -> Iterable[Template]:
    prompts = given.prompt if isinstance(given.prompt, list) else [given.prompt]
    for prompt in prompts:
        if isinstance(prompt, StringPromptTemplate):
            yield _string_template(prompt)


def _string_template(prompt: StringPromptTemplate) -> Template:
    text = str(getattr(prompt, "template", ""))
    form = str(getattr(prompt, "template_format", "f-string"))
    read = _f_string(text) if form == "f-string" else _double_braces(text, form)
    return _filled(read, prompt.partial_variables)


def _filled(template: Template, partial: Mapping[str, object]) -> Template:
    """Take texts that were filled in beforehand for the constants they are; a callable may say something new."""
    fixed = {_slot_name(name): value for name, value in partial.items() if isinstance(value, str)}
    literals, variables = [template.literals[0]], list[str]()
    for name, literal in zip(template.variables, template.literals[1:], strict=True):
        if name in fixed:
            literals[-1] += fixed[name] + literal
        else:
            variables.append(name)
            literals.append(literal)
    return Template(tuple(literals), tuple(variables))


def _f_string(text: str) -> Template:
    literals, variables = [""], list[str]()
    try:
        for literal, name, _, _ in string.Formatter().parse(text):
            literals[-1] += literal
            if name is not None:
                variables.append(_slot_name(name))
                literals.append("")
    except ValueError as problem:
        raise ConfigError(
            f"template= is not a format string: {problem}; write literal braces as {{{{ and }}}}"
        ) from problem
    return Template(tuple(literals), tuple(variables))


def _double_braces(text: str, form: str) -> Template:
    if "{%" in text or "{#" in text or re.search(r"\{\{[#^/>!&]", text):
        raise ConfigError(
            f"template= uses more of {form} than plain variables; declare its varying parts with volatile=[Slot(...)]"
        )
    pieces = _DOUBLE_BRACES.split(text)
    return Template(tuple(pieces[::2]), tuple(_slot_name(name) for name in pieces[1::2]))


def _slot_name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_") or "value"
