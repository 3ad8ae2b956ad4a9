"""What in a LlamaIndex agent, engine, tool or LLM will keep the head of its prompt from staying the same."""

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import cast

from llama_index.core.agent.react.formatter import ReActChatFormatter
from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, SelectorPromptTemplate
from llama_index.core.prompts.mixin import PromptMixin
from llama_index.core.tools import BaseTool, FunctionTool, ToolMetadata

from headstay.errors import ConfigError
from headstay.headlint import HeadFinding, HeadText, Known, Place, check_known, lint_texts
from llama_index_headstay.binding import Binding

_Part = HeadText | HeadFinding

_ACCEPTED = (
    "an agent, an AgentWorkflow, a chat or query engine, an LLM, a prompt template, a tool (BaseTool, ToolMetadata or "
    "a function), a ChatMessage, a text, or a list of these"
)


def lint_head(subject: object, *, ignore: Sequence[Known] = ()) -> tuple[HeadFinding, ...]:
    """Name what will keep a head from staying the same, before anything is sent.

    Found are dates, times, random ids, temporary paths and addresses of objects, such as the one that
    `FunctionTool.from_defaults` prints for a default value; tools with one name; tools that a retriever picks anew for
    each query; a tool choice for the first step only; a chat engine that puts retrieved text before its instructions.
    Nothing is called and nothing is sent. Not found is what does not tell by its form that it varies: a name, a number,
    a weekday, a time or a date without its year, a short id without a word such as "trace id" before it, a fixed file
    name under /tmp, and whatever a function fills into a template.

    Args:
        subject: An agent, an `AgentWorkflow` (all its agents, with their handoff tools), a chat or query engine, an
            LLM, a prompt template, a tool, a `ChatMessage`, a text, or a list of these.
        ignore: What stays although it looks otherwise, such as the date of a law: texts that a finding equals, and
            compiled patterns that are searched in it.

    Returns:
        The findings, those of tools before those of instructions; an empty tuple where there are none.
        `str(finding)` is a line for a log.

    Raises:
        ConfigError: The subject is none of these, the schema of a tool cannot be built, or `ignore` is no list of
            texts and patterns.
    """
    known = check_known(ignore)
    findings: list[HeadFinding] = []
    for part in _parts(subject, ""):
        findings += lint_texts((part,), ignore=known) if isinstance(part, HeadText) else (part,)
    return tuple(findings)


def _parts(subject: object, path: str) -> Iterator[_Part]:
    if isinstance(subject, str):
        yield HeadText(path or "text", subject)
    elif isinstance(subject, AgentWorkflow):
        yield from _workflow(subject, path)
    elif isinstance(subject, BaseWorkflowAgent):
        yield from _agent(subject, path)
    elif isinstance(subject, BaseLLM):
        yield from _llm(subject, path)
    elif isinstance(subject, ChatMessage):
        yield from _message(subject, path or "message")
    elif isinstance(subject, BasePromptTemplate):
        yield from _template(subject, path or "template")
    elif isinstance(subject, BaseChatEngine):
        yield from _chat_engine(subject, path)
    elif isinstance(subject, PromptMixin):  # query engines, and what they are made of
        yield from _prompts(subject, path)
    elif isinstance(subject, (BaseTool, ToolMetadata)) or inspect.isroutine(subject):
        yield from _tools([subject], path or "tools")
    elif isinstance(subject, (AbstractSet, Sequence)) and not isinstance(subject, (bytes, bytearray)):
        yield from _listed(cast("AbstractSet[object] | Sequence[object]", subject), path)
    else:
        name = f"the class {subject.__name__}" if isinstance(subject, type) else type(subject).__name__
        raise ConfigError(f"lint_head({name}): give {_ACCEPTED}")


def _listed(items: AbstractSet[object] | Sequence[object], path: str) -> Iterator[_Part]:
    """Read a list: its tools together, whatever else is in it one by one."""
    tools: list[object] = []
    for index, item in enumerate(items):
        if isinstance(item, (BaseTool, ToolMetadata)) or inspect.isroutine(item):
            tools.append(item)
        else:
            yield from _parts(item, f"{path}[{index}]")
    if isinstance(items, AbstractSet) and len(tools) > 1:
        remedy = "give a list: a set has another order in each process"
        yield HeadFinding("unordered_tools", path or "tools", type(items).__name__, remedy)
    yield from _tools(sorted(tools, key=_name) if isinstance(items, AbstractSet) else tools, path or "tools")


def _workflow(workflow: AgentWorkflow, path: str) -> Iterator[_Part]:
    for name, agent in workflow.agents.items():
        own = f"{path}agents[{name}]"
        # An empty list hands off to nobody; None hands off to anybody.
        hands_off = agent.can_handoff_to is None or bool(agent.can_handoff_to)
        handoff = workflow._get_handoff_tool(agent) if hands_off else None
        yield from _agent(agent, own, () if handoff is None else (handoff,))


def _agent(agent: BaseWorkflowAgent, path: str, more: Sequence[BaseTool] = ()) -> Iterator[_Part]:
    at = _below(path)
    tools = cast("list[object] | None", _field(agent, "tools"))
    yield from _tools([*(tools or ()), *more], f"{at}tools")
    retriever = _field(agent, "tool_retriever")
    if retriever is not None:
        remedy = "give all tools in tools=: a tool that comes and goes with the query makes a new head in each turn"
        yield HeadFinding("tools_by_query", f"{at}tool_retriever", type(retriever).__name__, remedy)
    choice = _field(agent, "initial_tool_choice")
    if choice is not None:
        remedy = "ask for the tool in the instructions instead: the first step has another tool_choice than the others"
        yield HeadFinding("tool_choice_once", f"{at}initial_tool_choice", str(choice), remedy)
    yield from _cut_by(agent.llm, _instructions(agent, at))
    if agent.output_cls is not None:
        yield from _leaves(_schema(agent.output_cls.model_json_schema, f"{at}output_cls"), f"{at}output_cls", "tool")


def _instructions(agent: BaseWorkflowAgent, at: str) -> Iterator[_Part]:
    prompt = agent.system_prompt or ""
    formatter = _field(agent, "formatter")
    if isinstance(formatter, ReActChatFormatter):
        yield HeadText(f"{at}formatter.system_header", formatter.system_header)
        if formatter.context not in ("", prompt):
            yield HeadText(f"{at}formatter.context", formatter.context)
            prompt = "" if prompt in formatter.context else prompt
    if prompt:
        yield HeadText(f"{at}system_prompt", prompt)
    code_act = _field(agent, "code_act_system_prompt")
    if isinstance(code_act, (str, BasePromptTemplate)):
        yield from _parts(code_act, f"{at}code_act_system_prompt")


def _llm(llm: BaseLLM, path: str) -> Iterator[_Part]:
    prompt = _field(llm, "system_prompt")
    if isinstance(prompt, str):
        yield from _cut_by(llm, [HeadText(f"{_below(path)}system_prompt", prompt)])


def _cut_by(llm: BaseLLM | None, parts: Iterable[_Part]) -> Iterator[_Part]:
    """Say of instructions what an instrumented LLM cuts out of them: that is not sent in the head."""
    binding = _field(llm, "headstay_binding")
    declared = binding.flow.settings.declared if isinstance(binding, Binding) else None
    for part in parts:
        yield part._replace(declared=declared) if isinstance(part, HeadText) and part.place == "system" else part


def _message(message: ChatMessage, path: str) -> Iterator[_Part]:
    place: Place = "system" if message.role in (MessageRole.SYSTEM, MessageRole.DEVELOPER) else "message"
    for block in message.blocks:
        if isinstance(block, TextBlock):
            yield HeadText(path, block.text, place)


def _template(template: BasePromptTemplate, path: str, place: Place = "message") -> Iterator[_Part]:
    """Read the constant text of a template, and the values that are filled in once for all calls."""
    if isinstance(template, SelectorPromptTemplate):
        yield from _template(template.default_template, path, place)
        for index, (_, other) in enumerate(template.conditionals or ()):
            yield from _template(other, f"{path}.conditionals[{index}]", place)
        return
    if isinstance(template, ChatPromptTemplate):
        for index, message in enumerate(template.message_templates):
            yield from _message(message, f"{path}.message_templates[{index}]")
    else:
        yield HeadText(path, template.get_template(), place)
    for name, value in template.kwargs.items():
        yield HeadText(f"{path}.{name}", str(value), place)


def _chat_engine(engine: BaseChatEngine, path: str) -> Iterator[_Part]:
    llm = _field(engine, "_llm")
    yield from _cut_by(llm if isinstance(llm, BaseLLM) else None, _chat_parts(engine, _below(path)))


def _chat_parts(engine: BaseChatEngine, at: str) -> Iterator[_Part]:
    safe = any(cls.__module__.startswith("llama_index_headstay.") for cls in type(engine).__mro__)
    in_context = isinstance(engine, (ContextChatEngine, CondensePlusContextChatEngine))
    if in_context and not safe:
        remedy = "put the instructions first and the retrieved text last: prefix_safe(engine)"
        yield HeadFinding("retrieval_first", f"{at}context_template", "{context_str}", remedy)
    for name, value in cast("dict[str, object]", vars(engine)).items():
        where = f"{at}{name.lstrip('_')}"
        if isinstance(value, BasePromptTemplate):  # what surrounds the retrieved text stands in the system message
            yield from _template(value, where, "system" if name.startswith("_context") else "message")
        elif isinstance(value, BaseLLM) and not in_context:
            continue  # it is asked with the engine's own messages only
        elif isinstance(value, (BaseLLM, BaseQueryEngine)) or (isinstance(value, str) and name.endswith("prompt")):
            yield from _parts(value, where)
        elif name == "_prefix_messages" and isinstance(value, list):
            yield from _listed(cast("list[object]", value), where)


def _prompts(subject: PromptMixin, path: str) -> Iterator[_Part]:
    at = _below(path)
    for holder in (subject, _field(subject, "_response_synthesizer")):
        llm = _field(holder, "_llm")
        if isinstance(llm, BaseLLM):
            yield from _llm(llm, f"{at}llm")
    for name, template in subject.get_prompts().items():
        yield from _template(template, f"{at}{name}")


def _tools(tools: Sequence[object], path: str) -> Iterator[_Part]:
    metadata = [_metadata(tool) for tool in tools]
    for name, count in Counter(item.name for item in metadata).items():
        if count > 1:
            remedy = "give each tool a name of its own: providers refuse a name that is declared twice"
            yield HeadFinding("duplicate_tool_name", path, str(name), remedy)
    for item in metadata:
        own = f"{path}[{item.name}]"
        yield HeadText(f"{own}.name", item.name or "", "tool")
        yield HeadText(f"{own}.description", item.description, "tool")
        yield from _leaves(_schema(_field(item, "get_parameters_dict"), own), f"{own}.parameters", "tool")


def _metadata(tool: object) -> ToolMetadata:
    if isinstance(tool, ToolMetadata):
        return tool
    if isinstance(tool, BaseTool):
        return tool.metadata
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FunctionTool.from_defaults(cast("Callable[..., object]", tool)).metadata


def _name(tool: object) -> str:
    return _metadata(tool).name or ""


def _schema(build: object, path: str) -> Mapping[str, object]:
    """Build a JSON schema; a default that no JSON can say is left out of it, with a warning that is the host's own."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cast("Mapping[str, object]", build()) if callable(build) else {}
    except Exception as problem:
        raise ConfigError(f"{path}: its schema cannot be built ({type(problem).__name__}): {problem}") from problem


def _leaves(value: object, path: str, place: Place) -> Iterator[HeadText]:
    """Walk through a JSON value to its texts and numbers."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, object]", value).items():
            yield from _leaves(inner, f"{path}.{name}", place)
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[object]", value)):
            yield from _leaves(inner, f"{path}[{index}]", place)
    elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield HeadText(path, str(value), place)


def _field(holder: object, name: str) -> object:
    return getattr(holder, name, None)


def _below(path: str) -> str:
    return f"{path}." if path else ""
