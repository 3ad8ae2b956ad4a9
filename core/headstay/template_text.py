"""The texts of prompt templates taken apart: only the names and the literal texts are needed."""

import re
import string
from collections.abc import Mapping

from headstay.errors import ConfigError
from headstay.slots import Template

_DOUBLE_BRACES = re.compile(r"\{\{\{?\s*([\w.]+)\s*\}?\}\}")


def filled(template: Template, partial: Mapping[str, object]) -> Template:
    """Take texts that were filled in beforehand for the constants they are; a callable may say something new."""
    fixed = {slot_name(name): value for name, value in partial.items() if isinstance(value, str)}
    literals, variables = [template.literals[0]], list[str]()
    for name, literal in zip(template.variables, template.literals[1:], strict=True):
        if name in fixed:
            literals[-1] += fixed[name] + literal
        else:
            variables.append(name)
            literals.append(literal)
    return Template(tuple(literals), tuple(variables))


def read_f_string(text: str) -> Template:
    """Read a template with `{name}` as Python's `str.format` does.

    Raises:
        ConfigError: It is no format string.
    """
    literals, variables = [""], list[str]()
    try:
        for literal, name, _, _ in string.Formatter().parse(text):
            literals[-1] += literal
            if name is not None:
                variables.append(slot_name(name))
                literals.append("")
    except ValueError as problem:
        raise ConfigError(
            f"template= is not a format string: {problem}; write literal braces as {{{{ and }}}}"
        ) from problem
    return Template(tuple(literals), tuple(variables))


def read_double_braces(text: str, form: str) -> Template:
    """Read a template with `{{ name }}`, as long as it uses nothing else.

    Args:
        text: The template.
        form: Name of its language, for the message.

    Raises:
        ConfigError: It uses more than plain variables.
    """
    if "{%" in text or "{#" in text or re.search(r"\{\{[#^/>!&]", text):
        raise ConfigError(
            f"template= uses more of {form} than plain variables; declare its varying parts with volatile=[Slot(...)]"
        )
    pieces = _DOUBLE_BRACES.split(text)
    return Template(tuple(pieces[::2]), tuple(slot_name(name) for name in pieces[1::2]))


def slot_name(name: str) -> str:
    """Return the name of the slot that a variable is."""
    return re.sub(r"\W+", "_", name).strip("_") or "value"
