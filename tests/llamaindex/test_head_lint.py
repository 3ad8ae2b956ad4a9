"""What the lint of a head finds in LlamaIndex's own objects, what it leaves alone, and how it says so."""

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import PromptTemplate, VectorStoreIndex, prompts
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.objects import ObjectIndex
from llama_index.core.prompts import (
    ChatPromptTemplate,
    RichPromptTemplate,
    chat_prompts,
    default_prompt_selectors,
    default_prompts,
)
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import TextNode
from llama_index.core.tools import FunctionTool, QueryEngineTool, ToolMetadata
from pydantic import BaseModel

from headstay import Slot
from headstay.causes import Cause
from headstay.errors import ConfigError
from headstay.headlint import HeadFinding
from llama_index_headstay import cache_aware, lint_head, prefix_safe

UUID = "1f0e9c1a-7a54-4d0b-9a4e-0d3f6f0b2c77"


class Client:
    """A client that prints its address, as objects do."""


def search(query: str, client: object = Client()) -> str:
    """Search the catalogue."""
    return query


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


def now_of(moment: datetime = datetime(2026, 11, 30, 3, 19, tzinfo=UTC)) -> str:
    """Say when."""
    return str(moment)


def kinds(found: tuple[HeadFinding, ...]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.path) for finding in found]


@pytest.fixture
def index() -> VectorStoreIndex:
    return VectorStoreIndex([TextNode(text="Ada wrote the first program.")], embed_model=MockEmbedding(embed_dim=4))


def test_the_address_of_a_default_is_found_in_the_description() -> None:
    tool = FunctionTool.from_defaults(search)
    (found,) = lint_head(tool)
    assert (found.kind, found.path, found.cause) == ("address", "tools[search].description", Cause.RANDOM_ID_IN_HEAD)
    assert re.fullmatch(r"<\S*\.Client object at 0x[0-9a-f]+>", found.text)
    assert tool.metadata.description[found.at :].startswith(found.text)
    assert str(found) == (
        f"tools[search].description: address (random_id_in_head): {found.text!r}. What to do: an object prints another "
        "address in each process: give it a __repr__, or write the text by hand"
    )


def test_a_function_is_read_as_the_tool_that_an_agent_makes_of_it() -> None:
    assert kinds(lint_head(search)) == kinds(lint_head([add, search])) == [("address", "tools[search].description")]


def test_a_moment_as_a_default_is_found_in_the_description_and_in_the_schema() -> None:
    found = lint_head([now_of])
    assert kinds(found) == [
        ("timestamp", "tools[now_of].description"),
        ("timestamp", "tools[now_of].parameters.properties.moment.default"),
    ]
    assert [finding.text for finding in found] == [
        "datetime.datetime(2026, 11, 30, 3, 19, tzinfo=datetime.timezone.utc)",
        "2026-11-30T03:19:00Z",
    ]
    assert {finding.cause for finding in found} == {Cause.CLOCK_IN_HEAD}


@pytest.mark.parametrize(
    ("text", "kind", "what"),
    [
        ("It is 2026-11-30T10:00:00Z.", "timestamp", "2026-11-30T10:00:00Z"),
        ("Now: 2026-11-30 10:00", "timestamp", "2026-11-30 10:00"),
        ("Monday, 30 November 2026, 10:00 am", "timestamp", "Monday, 30 November 2026, 10:00 am"),
        ("Generated at 1764472783.123 by cron", "timestamp", "1764472783.123"),
        ("timestamp: 1764472783", "timestamp", "1764472783"),
        ("Today is November 30, 2026.", "date", "November 30, 2026"),
        ("On the 2nd of May 2026 we moved", "date", "2nd of May 2026"),
        ("Stand: 30. November 2026, 9:15 Uhr", "timestamp", "30. November 2026, 9:15"),
        ("Le 1er décembre 2026", "date", "1er décembre 2026"),
        ("Today is 2026-11-30.", "date", "2026-11-30"),
        ("Stand: 30.11.2026.", "date", "30.11.2026"),
        ("今日は2026年11月30日です", "date", "2026年11月30日"),
        (f"You serve {UUID}", "id", UUID),
        ("Request ID: req-000042", "id", "req-000042"),
        ("trace_id=9af3c2d1", "id", "9af3c2d1"),
        ("Batch 8f3a2b1c9d0e4f5a follows", "id", "8f3a2b1c9d0e4f5a"),
        ("Use <function <lambda> at 0x7f2b4c3d5e10> to sort.", "address", "<function <lambda> at 0x7f2b4c3d5e10>"),
        ("trace 9af3c2d1 follows", "id", "9af3c2d1"),
        ("Write to /tmp/tmp8k2x_a1b/out.csv", "temporary_path", "/tmp/tmp8k2x_a1b/out.csv"),
        ("Write to /tmp/agent-48213/out.csv.", "temporary_path", "/tmp/agent-48213/out.csv."),
        ("In /var/folders/zz/T/x", "temporary_path", "/var/folders/zz/T/x"),
    ],
)
def test_what_will_not_stay_is_found(text: str, kind: str, what: str) -> None:
    (found,) = lint_head(text)
    assert (found.kind, found.path, found.text, found.at) == (kind, "text", what, text.index(what))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "We are open Monday to Friday, 9:00 to 17:00, and on 24/7 call.",
        "Your knowledge ends in June 2025. Answer in at most 300 words, or 2,000 characters.",
        "Use claude-sonnet-4-20250514, gpt-4o-2024-08-06 or text-embedding-3-large, Python 3.11.9 and HTTP/1.1.",
        "Colours are #ff8800 and 0xFF8800; the port is 8080; the number is +49 30 1234567890.",
        "See ISO 27001, RFC 9110, section 3.2.1, CVE-2024-12345 and https://example.com/a/b2c3d4e5f6a7b8/c.",
        "Ask for the request id first, then for the session token and the order number.",
        "Build 20241 houses, trace 10000 parcels, run number 10000 of session 20250; run python3 on arm64.",
        "You serve Anna, who has 3 open orders, the first of them a4f2; it is Monday, 30 November, 10:15.",
        "Write plots to /tmp/plot1.png, keep caches in /var/tmp/cache and never list /tmp/.",
        "The word is 0xCAFEBABE, and the mask is 0x7fff.",
        "internationalization, Donaudampfschifffahrt and supercalifragilistic2 are words.",
    ],
)
def test_what_stays_is_left_alone(text: str) -> None:
    assert lint_head(text) == ()


def test_the_remedy_for_instructions_is_a_slot_that_finds_the_value() -> None:
    text = "You are the help desk.\nIt is 2026-11-30T10:00:00Z.\nBe kind."
    (found,) = lint_head(text)
    line = re.fullmatch(r"if it changes, declare it: volatile=\[(Slot\(.+\))\]", found.remedy)
    assert line is not None
    (span,) = eval(line[1], {"Slot": Slot}).spans(text.replace("30T10", "31T11"))
    assert text.replace("30T10", "31T11")[span.start : span.end] == "2026-11-31T11:00:00Z"


def test_secrets_are_not_shown() -> None:
    secret = "abcdef0123456789"
    (found,) = lint_head(f"session key: sk-ant-{secret}")
    assert secret not in str(found)


def test_what_is_known_to_stay_is_not_named() -> None:
    text = "The law of 2024-01-01 holds. Today is 2026-11-30."
    assert [finding.text for finding in lint_head(text, ignore=["2024-01-01"])] == ["2026-11-30"]
    assert lint_head(text, ignore=[re.compile("^2024"), "2026-11-30"]) == ()
    assert len(lint_head(text, ignore=["2024"])) == 2  # a text is known as a whole


@pytest.mark.parametrize("ignore", ["2024-01-01", b"x", 3, [3], None])
def test_what_is_no_list_of_texts_is_refused(ignore: Any) -> None:
    with pytest.raises(ConfigError, match="ignore="):
        lint_head("text", ignore=ignore)


@pytest.mark.parametrize("subject", [None, 3, {}, b"text", Client(), FunctionAgent, [3], [[Client()]]])
def test_what_cannot_be_read_is_refused_with_what_can(subject: object) -> None:
    with pytest.raises(ConfigError, match=r"lint_head\(.+\): give an agent, an AgentWorkflow, .*or a list of these"):
        lint_head(subject)


def test_a_tool_whose_schema_cannot_be_built_is_named() -> None:
    class Odd(BaseModel):
        hook: Callable[[], None]

    tool = ToolMetadata(name="odd", description="Odd.", fn_schema=Odd)
    with pytest.raises(ConfigError, match=r"tools\[odd\]: its schema cannot be built \(PydanticInvalidForJsonSchema\)"):
        lint_head(tool)


@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
def test_an_agent_is_read_from_its_tools_to_its_instructions(kind: type[Any]) -> None:
    agent = kind(tools=[search, add], llm=MockLLM(), system_prompt=f"You serve {UUID}.")
    assert kinds(lint_head(agent)) == [("address", "tools[search].description"), ("id", "system_prompt")]
    assert lint_head(kind(tools=[add], llm=MockLLM(), system_prompt="You add.")) == ()


def test_the_header_of_a_react_agent_is_read_once() -> None:
    agent = ReActAgent(tools=[add], llm=MockLLM(), system_prompt=f"You serve {UUID}.")
    agent.formatter.context += "\nToday is 2026-11-30."
    assert kinds(lint_head(agent)) == [("id", "formatter.context"), ("date", "formatter.context")]
    agent.formatter.system_header += "\nSince 2026-11-29."
    assert kinds(lint_head(agent))[0] == ("date", "formatter.system_header")


def test_the_prompt_of_a_code_act_agent_is_read() -> None:
    agent = CodeActAgent(
        code_execute_fn=add,
        tools=[add],
        llm=_Calling(),
        code_act_system_prompt="Code of 2026-11-30: {tool_descriptions}",
    )
    assert kinds(lint_head(agent)) == [("date", "code_act_system_prompt")]


def test_a_choice_for_the_first_step_and_an_output_class_are_read() -> None:
    class Bill(BaseModel):
        """A bill of 2026-11-30."""

        paid: bool = True

    agent = FunctionAgent(tools=[add], llm=MockLLM(), initial_tool_choice="add", output_cls=Bill)
    found = lint_head(agent)
    assert kinds(found) == [("tool_choice_once", "initial_tool_choice"), ("date", "output_cls.description")]
    assert found[0].cause == Cause.TOOL_CHOICE_CHANGED


def test_a_tool_retriever_is_named() -> None:
    tools = ObjectIndex.from_objects(
        [FunctionTool.from_defaults(add)], index_cls=VectorStoreIndex, embed_model=MockEmbedding(embed_dim=4)
    )
    agent = FunctionAgent(tool_retriever=tools.as_retriever(), llm=MockLLM())
    (found,) = lint_head(agent)
    assert (found.kind, found.path, found.cause) == ("tools_by_query", "tool_retriever", Cause.TOOL_ADDED)


def test_every_agent_of_a_workflow_is_read_with_its_handoff_tool() -> None:
    def agent(name: str, description: str, **more: Any) -> FunctionAgent:
        return FunctionAgent(name=name, description=description, llm=MockLLM(), **more)

    desk = agent("desk", "Welcomes.", tools=[search])
    bills = agent("bills", "Bills of 2026-11-30.", system_prompt=f"You serve {UUID}.", can_handoff_to=[])
    workflow = AgentWorkflow(agents=[desk, bills], root_agent="desk")
    assert kinds(lint_head(workflow)) == [
        ("address", "agents[desk].tools[search].description"),
        ("date", "agents[desk].tools[handoff].description"),
        ("id", "agents[bills].system_prompt"),
    ]


def test_one_name_twice_and_a_set_are_named() -> None:
    found = lint_head([FunctionTool.from_defaults(add), FunctionTool.from_defaults(search, name="add"), add])
    assert kinds(found) == [("duplicate_tool_name", "tools"), ("address", "tools[add].description")]
    assert (found[0].cause, found[0].text) == (None, "add")
    (loose,) = lint_head({add, test_secrets_are_not_shown})
    assert (loose.kind, loose.path, loose.cause) == ("unordered_tools", "tools", Cause.TOOL_ORDER)
    assert lint_head({add}) == ()


def test_a_query_engine_tool_is_read_as_a_tool(index: VectorStoreIndex) -> None:
    engine = index.as_query_engine(llm=MockLLM())
    tool = QueryEngineTool.from_defaults(engine, name="bills", description="Bills up to 2026-11-30.")
    assert kinds(lint_head([tool])) == [("date", "tools[bills].description")]


def test_the_templates_of_a_query_engine_and_the_prompt_of_its_model_are_read(index: VectorStoreIndex) -> None:
    engine = index.as_query_engine(llm=MockLLM(system_prompt=f"You serve {UUID}."))
    assert kinds(lint_head(engine)) == [("id", "llm.system_prompt")]
    asking = PromptTemplate("As of 2026-11-30: {context_str} {query_str} {who}").partial_format(who=UUID)
    engine.update_prompts({"response_synthesizer:text_qa_template": asking})
    assert kinds(lint_head(engine)) == [
        ("id", "llm.system_prompt"),
        ("date", "response_synthesizer:text_qa_template"),
        ("id", "response_synthesizer:text_qa_template.who"),
    ]


def test_every_kind_of_template_is_read() -> None:
    chat = ChatPromptTemplate(
        [ChatMessage("On 2026-11-30", role="system"), ChatMessage("It was 2026-11-29", role="user")]
    )
    assert kinds(lint_head(chat)) == [("date", f"template.message_templates[{index}]") for index in (0, 1)]
    assert "keep it out of what stands before" in lint_head(chat)[1].remedy
    assert kinds(lint_head(RichPromptTemplate("On 2026-11-30 {{ query_str }}"))) == [("date", "template")]
    selector = default_prompt_selectors.DEFAULT_TEXT_QA_PROMPT_SEL
    assert lint_head(selector) == ()
    dated = prompts.SelectorPromptTemplate(PromptTemplate("{a}"), [(lambda _: True, PromptTemplate("2026-11-30 {a}"))])
    assert kinds(lint_head(dated)) == [("date", "template.conditionals[0]")]


def test_no_default_template_has_a_finding() -> None:
    found = [
        value
        for module in (chat_prompts, default_prompts, default_prompt_selectors)
        for value in vars(module).values()
        if isinstance(value, prompts.BasePromptTemplate)
    ]
    assert len(found) > 20
    assert [lint_head(template) for template in found] == [()] * len(found)


def test_a_chat_engine_that_puts_what_it_retrieved_first_is_named(index: VectorStoreIndex) -> None:
    memory = ChatMemoryBuffer.from_defaults(token_limit=1_000)
    settings: dict[str, Any] = {"retriever": index.as_retriever(), "llm": MockLLM(), "memory": memory}
    engine = ContextChatEngine.from_defaults(**settings, system_prompt=f"You serve {UUID}.")
    found = lint_head(engine)
    assert kinds(found) == [("retrieval_first", "context_template"), ("id", "prefix_messages[0]")]
    assert found[0].cause == Cause.RETRIEVAL_IN_HEAD
    assert "prefix_safe(engine)" in found[0].remedy
    condensed = CondensePlusContextChatEngine.from_defaults(**settings, system_prompt="Since 2026-11-30.")
    assert kinds(lint_head(condensed)) == [("retrieval_first", "context_template"), ("date", "system_prompt")]


def test_a_simple_chat_engine_is_read(index: VectorStoreIndex) -> None:
    examples = [ChatMessage("Be kind.", role="system"), ChatMessage("On 2026-11-30?", role="user")]
    engine = SimpleChatEngine.from_defaults(llm=MockLLM(), prefix_messages=examples)
    assert kinds(lint_head(engine)) == [("date", "prefix_messages[1]")]
    asking = index.as_chat_engine(chat_mode="condense_question", llm=MockLLM(system_prompt="Since 2026-11-30."))
    assert ("date", "query_engine.llm.system_prompt") in kinds(lint_head(asking))


def test_what_an_instrumented_model_cuts_out_of_the_instructions_is_no_finding(index: VectorStoreIndex) -> None:
    words = f"You serve {UUID}. It is 2026-11-30T10:00:00Z. The prices are of 2026-11-01."
    bare = MockLLM(system_prompt=words)
    llm = cache_aware(bare, on_break="record")
    agent = FunctionAgent(tools=[search], llm=llm, system_prompt=words)
    assert kinds(lint_head(agent)) == [("address", "tools[search].description"), ("date", "system_prompt")]
    assert kinds(lint_head(llm)) == [("date", "system_prompt")]
    assert kinds(lint_head(index.as_query_engine(llm=llm))) == [("date", "llm.system_prompt")]
    chat = SimpleChatEngine.from_defaults(llm=llm, system_prompt=words)
    assert kinds(lint_head(chat)) == [("date", "prefix_messages[0]")]
    declared = cache_aware(bare, volatile=[Slot(r"prices are of (?P<day>\S+)\.$")], on_break="record")
    assert lint_head(declared) == ()
    assert len(lint_head(cache_aware(bare, volatile=None, on_break="record"))) == 3


def test_a_chat_engine_made_prefix_safe_is_not_named(index: VectorStoreIndex) -> None:
    engine = index.as_chat_engine(chat_mode="context", llm=MockLLM(), system_prompt="Since 2026-11-30.")
    assert [kind for kind, _ in kinds(lint_head(prefix_safe(engine)))] == ["date"]


def test_a_model_and_a_message_are_read() -> None:
    assert kinds(lint_head(MockLLM(system_prompt="Since 2026-11-30."))) == [("date", "system_prompt")]
    assert lint_head(MockLLM()) == ()
    assert kinds(lint_head(ChatMessage("Since 2026-11-30."))) == [("date", "message")]


def test_nothing_is_called(index: VectorStoreIndex) -> None:
    class Loud(MockLLM):
        def complete(self, *words: Any, **settings: Any) -> Any:
            raise AssertionError("called")

    assert lint_head(RetrieverQueryEngine.from_args(index.as_retriever(), llm=Loud())) == ()


@given(st.uuids(version=4), st.datetimes(min_value=datetime(2000, 1, 1)), st.text("abc .", max_size=20))
def test_random_ids_and_moments_are_always_found(given_id: uuid.UUID, moment: datetime, around: str) -> None:
    text = f"{around}\nServe {given_id} as of {moment.isoformat(sep=' ', timespec='seconds')}\n{around}"
    found = lint_head(text)
    assert [(finding.kind, finding.text) for finding in found] == [
        ("id", str(given_id)),
        ("timestamp", moment.isoformat(sep=" ", timespec="seconds")),
    ]
    assert lint_head(text) == found


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    for finding in lint_head(text):
        assert text[finding.at :]
        assert str(finding).startswith(f"text: {finding.kind}")


class _Calling(MockLLM, FunctionCallingLLM):
    """A model that says it can call functions, which is all that making an agent asks for."""

    def _prepare_chat_with_tools(self, *words: Any, **settings: Any) -> Any:
        raise AssertionError("called")

    def get_tool_calls_from_response(self, *words: Any, **settings: Any) -> Any:
        raise AssertionError("called")
