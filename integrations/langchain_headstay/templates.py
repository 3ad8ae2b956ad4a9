"""From LangChain's prompt templates to headstay's: only the names and the literal texts are needed."""

from collections.abc import Iterable, Sequence
from typing import cast

from langchain_core.messages import SystemMessage
from langchain_core.prompts import ChatPromptTemplate, SystemMessagePromptTemplate
from langchain_core.prompts.string import StringPromptTemplate

from headstay.errors import ConfigError
from headstay.slots import Template
from headstay.template_text import filled, read_double_braces, read_f_string

TemplateLike = ChatPromptTemplate | SystemMessagePromptTemplate | StringPromptTemplate | str
"""What `template=` takes; a plain text is read as an f-string template."""


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
        yield read_f_string(given)
    elif isinstance(given, StringPromptTemplate):
        yield _string_template(given)
    elif isinstance(given, SystemMessagePromptTemplate):
        yield from _system_prompt(given)
    elif isinstance(cast("object", given), ChatPromptTemplate):
        for message in given.messages:
            if isinstance(message, SystemMessagePromptTemplate):
                yield from (filled(template, given.partial_variables) for template in _system_prompt(message))
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
    read = read_f_string(text) if form == "f-string" else read_double_braces(text, form)
    return filled(read, prompt.partial_variables)
