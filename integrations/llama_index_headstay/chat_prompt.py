"""A chat prompt that sends its instructions first and constant, and what differs in each call at the end.

Wherever a template's text has a variable that differs in each call, such as the retrieved context, its name stays
behind as a placeholder, and the value stands behind the question, labelled with that name.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.generic_utils import messages_to_prompt as default_messages_to_prompt
from llama_index.core.base.llms.types import ChatMessage, ContentBlock, MessageRole, TextBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, RichPromptTemplate

from headstay.errors import ConfigError
from headstay.values import Value, placeholder, render
from llama_index_headstay.tail import unmarked, with_tail

QUESTION = "query_str"
"""What LlamaIndex calls the question in a template."""

RETRIEVED = ("context_str", "context_msg", "existing_answer")
"""What LlamaIndex calls the retrieved context in a template, and the answer that is refined with it."""

_TITLE = "For this question:"
_VARIABLE = re.compile(r"\{([^{}]+)\}")
_DOUBLE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a prompt does with its messages beside filling them in.

    Attributes:
        moved: The variables whose values stand behind the question, as the templates call them.
        history: From where up to where messages are sent as they are.
        system: The text of the first message where it is constant, else None.
        before: Texts that stand behind the question in front of the values.
    """

    moved: frozenset[str]
    history: tuple[int, int] = (0, 0)
    system: str | None = None
    before: tuple[str, ...] = ()


class HeadFirstPrompt(ChatPromptTemplate):
    """A chat prompt whose messages up to the question are the same in each call.

    Args:
        messages: Message templates, one of which is of a human.
        source: The template they are from: its functions, its other names for variables and the values it was given
            beforehand are taken over.
        standing: What to do with them; it names the variables to move as LlamaIndex does.
    """

    _standing: Standing = PrivateAttr()

    def __init__(self, messages: Sequence[ChatMessage], source: BasePromptTemplate, standing: Standing) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  # a bare Callable in the host's signature
            message_templates=list(messages),
            output_parser=source.output_parser,
            metadata=dict(source.metadata),
            template_var_mappings=dict(source.template_var_mappings or {}),
            function_mappings=dict(_functions(source)),
        )
        given_as = {name: known for known, name in (source.template_var_mappings or {}).items()}
        self.template_vars = [given_as.get(name, name) for name in self.template_vars]  # as functions are given them
        self.kwargs = dict(source.kwargs)
        self._standing = replace(standing, moved=renamed_as(standing.moved, source))

    def format(
        self,
        llm: BaseLLM | None = None,
        messages_to_prompt: Callable[[Sequence[ChatMessage]], str] | None = None,
        **kwargs: object,
    ) -> str:
        """Write the messages as one text, for a model that completes texts."""
        messages = [unmarked(message) for message in self.format_messages(llm, **kwargs)]
        return (messages_to_prompt or default_messages_to_prompt)(messages)

    def format_messages(self, llm: BaseLLM | None = None, **kwargs: object) -> list[ChatMessage]:
        """Fill the messages in; the values of this call stand behind the last human message."""
        del llm  # part of the host's signature
        standing = self._standing
        values = cast("Mapping[str, object]", self._map_all_vars({**self.kwargs, **kwargs}))
        asked = last_human(self.message_templates)
        messages: list[ChatMessage] = []
        moved: list[str] = []
        for number, template in enumerate(self.message_templates):
            if standing.history[0] <= number < standing.history[1]:
                messages.append(template.model_copy())
                continue
            here = standing.moved & values.keys()  # what this call does not fill in is text, as for LlamaIndex
            here = here - {QUESTION} if number == asked else here
            messages.append(_filled(template, values, here))
            moved += [name for name in names_in(template) if name in here]
        if standing.system is not None:
            messages[0] = messages[0].model_copy(update={"blocks": [TextBlock(text=standing.system)]})
        said = [Value(name, str(values[name]), "call", True, 0, 0) for name in dict.fromkeys(moved)]
        messages[asked] = with_tail(messages[asked], *standing.before, render(_TITLE, said))
        return self.output_parser.format_messages(messages) if self.output_parser else messages


def renamed_as(names: Iterable[str], source: BasePromptTemplate) -> frozenset[str]:
    """Return variables as a template calls them."""
    renamed: Mapping[str, str] = source.template_var_mappings or {}
    return frozenset(renamed.get(name, name) for name in names)


def constant_text(text: str, source: BasePromptTemplate, moved: frozenset[str]) -> str | None:
    """Fill in what is known beforehand, placeholders for what is moved; None where a function fills in the rest."""
    moved = renamed_as(moved, source)
    if renamed_as(_functions(source), source) & set(_VARIABLE.findall(text)) - moved:
        return None
    return _text(text, source._map_template_vars(dict(source.kwargs)), moved)


def names_in(message: ChatMessage) -> list[str]:
    """Return the variables of a message template in order; a name may come again."""
    return [name for block in message.blocks if isinstance(block, TextBlock) for name in _VARIABLE.findall(block.text)]


def last_human(messages: Sequence[ChatMessage]) -> int:
    """Return where the last human message is, or -1."""
    return max((at for at, message in enumerate(messages) if message.role == MessageRole.USER), default=-1)


def plain(setting: str, template: object) -> PromptTemplate:
    """Return a template as a `PromptTemplate`, whose instructions and variables can be told apart.

    Raises:
        ConfigError: It holds more than text and variables, or is of another kind.
    """
    if isinstance(template, PromptTemplate):
        return template
    if not isinstance(template, RichPromptTemplate):
        raise ConfigError(
            f"{setting} is a {type(template).__name__}, which cannot be sent head first: give a PromptTemplate, a text "
            "or a RichPromptTemplate of plain variables"
        )
    pieces = _DOUBLE.split(template.template_str)
    text = "".join(f"{{{piece}}}" if at % 2 else piece for at, piece in enumerate(pieces))
    if any(re.search(r"\{[{%#]", piece) for piece in pieces[::2]) or _VARIABLE.findall(text) != pieces[1::2]:
        raise ConfigError(
            f"{setting} is a RichPromptTemplate with more than plain variables, so that its instructions cannot be "
            "told from the text it is filled with: write {{ context_str }} where the context belongs, and work on its "
            "text in function_mappings="
        )
    read = PromptTemplate(
        text,
        template_var_mappings=template.template_var_mappings,
        function_mappings=dict(_functions(template)),
        output_parser=template.output_parser,
    )
    read.kwargs = dict(template.kwargs)
    return read


def _functions(source: BasePromptTemplate) -> Mapping[str, Callable[..., object]]:
    return cast("Mapping[str, Callable[..., object]]", source.function_mappings or {})  # pyright: ignore[reportUnknownMemberType]  # the host types its values as a bare Callable


def _filled(template: ChatMessage, values: Mapping[str, object], moved: frozenset[str]) -> ChatMessage:
    blocks: list[ContentBlock] = [
        TextBlock(text=_text(block.text, values, moved)) if isinstance(block, TextBlock) else block
        for block in template.blocks
    ]
    return template.model_copy(update={"blocks": blocks})


def _text(text: str, values: Mapping[str, object], moved: frozenset[str]) -> str:
    """Fill a text in as LlamaIndex does: a name that is not known is text."""
    return _VARIABLE.sub(
        lambda found: placeholder(found[1]) if found[1] in moved else str(values.get(found[1], found[0])), text
    )
