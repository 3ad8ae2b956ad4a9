"""Chat and query engines whose instructions and history stay at the head of the prompt.

LlamaIndex's own write the retrieved context into the system message, in front of the history. Here the system message
keeps the name of the context where it stood, and the context stands behind the question.
"""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, SelectorPromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import BaseSynthesizer, CompactAndRefine

from headstay.errors import ConfigError
from llama_index_headstay.chat_prompt import (
    QUESTION,
    RETRIEVED,
    HeadFirstPrompt,
    Standing,
    constant_text,
    last_human,
    names_in,
    plain,
    renamed_as,
)
from llama_index_headstay.tail import tail_texts, unmarked, without_tail

Engine = TypeVar("Engine", bound=ContextChatEngine | CondensePlusContextChatEngine | RetrieverQueryEngine)

Reduced = tuple[Callable[..., object], tuple[object, ...], dict[str, Any]]
"""How an object says that it is pickled: what makes one, with which arguments, and its attributes."""

_REFINING = "Where the latest message gives an existing answer, these instructions on the context apply instead:"
_ONLY_REFINING = frozenset(RETRIEVED) - {"context_str"}
_SUPPORTED = "ContextChatEngine, CondensePlusContextChatEngine and RetrieverQueryEngine"


def prefix_safe(engine: Engine, *, per_call: Sequence[str] = ()) -> Engine:
    """Return an engine that sends the same prompts head first; the given one stays as it is.

    The new engine is of the same class and shares LLM, retriever and memory with the given one. The system message
    and the history are the same bytes in each turn. The retrieved context, and the answer that is refined with more of
    it, stand behind the question, each labelled with its name in the template, where a placeholder is left. Where the
    context takes several calls, the system message of those that refine an answer says so behind the same text: they
    share the instructions with all calls, and the history with each other. Messages of the history are sent as they
    are, also where they hold what looks like a variable.

    Templates of your own keep working: `context_template`, `context_refine_template`, `context_prompt` and
    `context_refine_prompt` as a text, a `PromptTemplate` or a `RichPromptTemplate` of plain variables; for a query
    engine every prompt that holds retrieved context.

    Args:
        engine: A `ContextChatEngine`, a `CondensePlusContextChatEngine` or a `RetrieverQueryEngine`.
        per_call: Further variables of the templates whose values, from `function_mappings=`, differ in each call and
            may stand in the human turn: a clock, examples picked for the question. Others are filled in where they
            stand, as instructions of yours, and the head changes whenever they do.

    Raises:
        ConfigError: The engine is of another kind or makes its prompts itself, a template holds more than text and
            variables, or none has a variable that `per_call` names.
    """
    names = _names(per_call)
    if isinstance(engine, RetrieverQueryEngine):
        return cast("Engine", _query_engine(engine, names))
    if isinstance(cast("object", engine), (ContextChatEngine, CondensePlusContextChatEngine)):
        return cast("Engine", _chat_engine(engine, names))
    given = cast("object", engine)
    name = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
    raise ConfigError(
        f"prefix_safe({name}): supported are {_SUPPORTED}, and their subclasses. SimpleChatEngine and the multi-modal "
        "chat engines keep system message and history in front already, and an agent needs a wrapped LLM only; of an "
        "engine around another give the one inside"
    )


class _Context(ContextChatEngine):
    """A `ContextChatEngine` with another prompt."""

    _given: type[ContextChatEngine]
    _moved: frozenset[str]

    def __reduce__(self) -> Reduced:
        return _bare, (self._given,), vars(self)

    def _get_response_synthesizer(self, chat_history: list[ChatMessage], streaming: bool = False) -> CompactAndRefine:
        system, prefix = "", list(self._prefix_messages)
        if prefix and prefix[0].role == MessageRole.SYSTEM:
            system, prefix = prefix[0].content or "", prefix[1:]
        answer, refine = self._context_template, self._context_refine_template
        role = self._llm.metadata.system_role
        return CompactAndRefine(
            llm=self._llm,
            callback_manager=self.callback_manager,
            streaming=streaming,
            text_qa_template=_turn(answer, refine, system, prefix, chat_history, role, self._moved),
            refine_template=_turn(answer, refine, system, prefix, chat_history, role, self._moved, refining=True),
        )


class _CondensePlusContext(CondensePlusContextChatEngine):
    """A `CondensePlusContextChatEngine` with another prompt; how a question is condensed is the host's own."""

    _given: type[CondensePlusContextChatEngine]
    _moved: frozenset[str]

    def __reduce__(self) -> Reduced:
        return _bare, (self._given,), vars(self)

    def _condense_question(self, chat_history: list[ChatMessage], latest_message: str) -> str:
        return super()._condense_question([unmarked(message) for message in chat_history], latest_message)

    async def _acondense_question(self, chat_history: list[ChatMessage], latest_message: str) -> str:
        return await super()._acondense_question([unmarked(message) for message in chat_history], latest_message)

    def _get_response_synthesizer(self, chat_history: list[ChatMessage], streaming: bool = False) -> CompactAndRefine:
        system = self._system_prompt or ""
        answer, refine = self._context_prompt_template, self._context_refine_prompt_template
        role = self._llm.metadata.system_role
        return CompactAndRefine(
            llm=self._llm,
            callback_manager=self.callback_manager,
            streaming=streaming,
            text_qa_template=_turn(answer, refine, system, [], chat_history, role, self._moved),
            refine_template=_turn(answer, refine, system, [], chat_history, role, self._moved, refining=True),
        )


def _turn(
    answer: PromptTemplate,
    refine: PromptTemplate,
    system: str,
    prefix: Sequence[ChatMessage],
    history: Sequence[ChatMessage],
    role: MessageRole,
    moved: frozenset[str],
    *,
    refining: bool = False,
) -> HeadFirstPrompt:
    """Make the prompt of one kind of call of a turn."""
    template = refine if refining else answer
    history, borne = _without_loose_tail(history)
    messages = [
        ChatMessage(content=template.template + system.strip(), role=role),
        *prefix,
        *history,
        ChatMessage(content=f"{{{QUESTION}}}", role=MessageRole.USER),
    ]
    start = 1 + len(prefix)
    head = constant_text(answer.template + system.strip(), answer, moved - _ONLY_REFINING)
    if refining:
        more = constant_text(refine.template, refine, moved)
        head = None if head is None or more is None else f"{head}\n\n{_REFINING}\n{more}"
    return HeadFirstPrompt(messages, template, Standing(moved, (start, start + len(history)), head, borne))


def _without_loose_tail(history: Sequence[ChatMessage]) -> tuple[list[ChatMessage], tuple[str, ...]]:
    """Take off a last message that holds nothing but text for the human turn to come, as `SteppedMemory` adds one."""
    last = history[-1:]
    if last and last[0].role == MessageRole.USER and last[0].blocks and not without_tail(last[0]).blocks:
        return list(history[:-1]), tuple(tail_texts(last))
    return list(history), ()


def _chat_engine(
    engine: ContextChatEngine | CondensePlusContextChatEngine, per_call: frozenset[str]
) -> ContextChatEngine | CondensePlusContextChatEngine:
    done = engine if isinstance(engine, (_Context, _CondensePlusContext)) else None
    safe = _bare(done._given if done else type(engine))
    vars(safe).update(vars(engine))
    found: set[str] = set()
    for attribute, setting in _TEMPLATES.items():
        if hasattr(engine, attribute):
            template = plain(f"{setting}=", getattr(engine, attribute))
            setattr(safe, attribute, template)
            found |= {name for name in per_call if renamed_as([name], template) & set(template.template_vars)}
    _check_found(per_call, found)
    safe._moved = per_call | {QUESTION, *RETRIEVED} | (done._moved if done else frozenset())
    return safe


_TEMPLATES = {
    "_context_template": "context_template",
    "_context_refine_template": "context_refine_template",
    "_context_prompt_template": "context_prompt",
    "_context_refine_prompt_template": "context_refine_prompt",
}


def _bare(given: type[ContextChatEngine | CondensePlusContextChatEngine]) -> _Context | _CondensePlusContext:
    """Make an engine of a class with our prompt, without its attributes; how one is copied and unpickled, too."""
    kind = _subclass(given)
    return kind.__new__(kind)


@cache
def _subclass(
    given: type[ContextChatEngine | CondensePlusContextChatEngine],
) -> type[_Context | _CondensePlusContext]:
    """Return a class with our prompt, under its own name."""
    ours = _Context if issubclass(given, ContextChatEngine) else _CondensePlusContext
    host = ContextChatEngine if issubclass(given, ContextChatEngine) else CondensePlusContextChatEngine
    if given._get_response_synthesizer is not host._get_response_synthesizer:
        raise ConfigError(
            f"prefix_safe({given.__name__}): it makes its prompts itself in _get_response_synthesizer, which would be "
            "lost; write your own with HeadFirstPrompt of llama_index_headstay.chat_prompt"
        )
    own = {"__module__": given.__module__, "__doc__": given.__doc__, "_given": given}
    return cast("type[_Context | _CondensePlusContext]", type(given.__name__, (ours, given), own))


def _query_engine(engine: RetrieverQueryEngine, per_call: frozenset[str]) -> RetrieverQueryEngine:
    given = engine._response_synthesizer
    if not given._llm.metadata.is_chat_model:
        raise ConfigError(
            f"prefix_safe({type(engine).__name__}): its LLM completes texts and has no messages; give a chat model"
        )
    moved = per_call | {QUESTION, *RETRIEVED}
    found: set[str] = set()
    prompts: dict[str, BasePromptTemplate] = {}
    for name, prompt in given._get_prompts().items():
        messages, source = _messages(name, prompt, given)
        variables = {name for message in messages for name in names_in(message)}
        found |= {name for name in per_call if renamed_as([name], source) & variables}
        if last_human(messages) >= 0 and renamed_as({*RETRIEVED, *per_call}, source) & variables:
            prompts[name] = HeadFirstPrompt(messages, source, Standing(moved))
    _check_found(per_call, found)
    synthesizer = copy.copy(given)
    synthesizer._update_prompts(prompts)
    safe = copy.copy(engine)
    safe._response_synthesizer = synthesizer
    return safe


def _messages(
    name: str, prompt: BasePromptTemplate, synthesizer: BaseSynthesizer
) -> tuple[list[ChatMessage], BasePromptTemplate]:
    """Return the message templates of a prompt as its LLM gets them, and the template they are from."""
    if isinstance(prompt, SelectorPromptTemplate):
        prompt = prompt.select(synthesizer._llm)
    if isinstance(prompt, HeadFirstPrompt) or (name.startswith("chat_") and not synthesizer._multimodal):
        return [], prompt  # as it should be, or not in use
    if isinstance(prompt, ChatPromptTemplate):
        return list(prompt.message_templates), prompt
    template = plain(name, prompt)
    return [ChatMessage(content=template.template, role=MessageRole.USER)], template


def _names(per_call: Sequence[str]) -> frozenset[str]:
    given = cast("object", per_call)
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f'per_call={given!r}: give the names of variables, such as ("today",)')
    return frozenset(str(name) for name in cast("Sequence[object]", given))


def _check_found(per_call: frozenset[str], found: set[str]) -> None:
    missing = sorted(per_call - found)
    if missing:
        raise ConfigError(f"per_call= names {', '.join(missing)}, which no template of this engine has as a variable")
