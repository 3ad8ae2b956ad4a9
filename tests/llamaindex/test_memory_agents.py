"""The memory inside agents and chat engines: what goes over the wire extends what went before."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.memory import InsertMethod, StaticMemoryBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from tests.llamaindex.chat_shop import Shelf, Shop
from tests.llamaindex.memory_bench import Diary, Remember, close, words

from headstay.emulator import Emulator
from llama_index_headstay.chat_engines import prefix_safe
from llama_index_headstay.memory import SteppedMemory
from llama_index_headstay.tail import with_tail

TAIL = "\n\n<memory>\n<diary>\n{}\n</diary>\n</memory>"
SEATS = "How many seats_left?"


def seats_left() -> str:
    """Say how many seats are left."""
    return "7"


@pytest.fixture
async def remember() -> AsyncIterator[Remember]:
    made: list[SteppedMemory] = []

    def make(*blocks: Any, **settings: Any) -> SteppedMemory:
        given = {"memory_blocks": list(blocks), "tokenizer_fn": words, **settings}
        made.append(SteppedMemory.from_defaults(**given))
        return made[-1]

    yield make
    for memory in made:
        await close(memory)


@pytest.fixture
def tools(server: Emulator, desk_llm: Callable[..., OpenAILike]) -> Shop:
    """The built-in model of the emulator: it calls a tool that the question names."""
    return Shop(server, lambda **settings: desk_llm(api_base=server.openai_url, **settings))


@pytest.fixture
def shop(desk: Emulator, desk_llm: Callable[..., OpenAILike]) -> Shop:
    return Shop(desk, desk_llm)


def messages(shop: Shop, at: int) -> list[Mapping[str, Any]]:
    return list(shop.desk.exchanges[at].body["messages"])


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("kind", ["agent", "workflow"])
async def test_a_function_agent(kind: str, streaming: bool, tools: Shop, remember: Remember) -> None:
    memory = remember(Diary(pages=["tea", "milk"]))
    agent: Any = FunctionAgent(
        name="desk",
        description="Answers.",
        tools=[FunctionTool.from_defaults(seats_left)],
        llm=tools.model(),
        system_prompt="You help.",
        streaming=streaming,
    )
    if kind == "workflow":
        agent = AgentWorkflow(agents=[agent])
    await agent.run(SEATS, memory=memory)
    await agent.run("Thanks. Goodbye?", memory=memory)
    assert len(tools.desk.exchanges) == 3
    first, loop, second = (messages(tools, at) for at in range(3))
    assert [message["role"] for message in first] == ["developer", "user"]
    assert first[1]["content"] == SEATS + TAIL.format("tea")
    assert loop[:2] == first
    assert [message["role"] for message in loop[2:]] == ["assistant", "tool"]
    assert second[0] == first[0]
    assert second[1]["content"] == SEATS
    assert second[2:4] == loop[2:]
    assert second[-1]["content"] == "Thanks. Goodbye?" + TAIL.format("milk")
    stored = [str(message.content) for message in await memory.aget_all() if message.role == "user"]
    assert stored == [SEATS, "Thanks. Goodbye?"]


@pytest.mark.parametrize("page", ["tea", ""])
async def test_an_agent_that_writes_its_state_into_the_message(page: str, tools: Shop, remember: Remember) -> None:
    diary = Diary(pages=[page])
    agent = FunctionAgent(
        tools=[FunctionTool.from_defaults(seats_left)], llm=tools.model(), initial_state={"seat": "12a"}
    )
    memory = remember(diary)
    await agent.run(SEATS, memory=memory)
    assert len(tools.desk.exchanges) == 2
    assert "12a" in messages(tools, 0)[0]["content"]
    assert len(diary.asked) == 1
    assert (await memory.aget_all())[0].content == SEATS


@pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning")  # the host's own
async def test_a_react_agent(shop: Shop, remember: Remember) -> None:
    static = StaticMemoryBlock(name="house", static_content="No refunds.")
    memory = remember(static, Diary(pages=["tea", "milk"]), insert_method=InsertMethod.USER)
    agent = ReActAgent(tools=[FunctionTool.from_defaults(seats_left)], llm=shop.model(), system_prompt="You help.")
    await agent.run("Hello?", memory=memory)
    await agent.run("And now?", memory=memory)
    recalled = "\n\n<memory>\n<house>\nNo refunds.\n</house>\n<diary>\n{}\n</diary>\n</memory>"
    assert shop.sent(0)[-1] == ("user", "Hello?" + recalled.format("tea"))
    assert shop.sent(1)[0] == shop.sent(0)[0]
    assert shop.sent(1)[1] == ("user", "Hello?")
    assert shop.sent(1)[-1] == ("user", "And now?" + recalled.format("milk"))


@pytest.mark.parametrize("way", ["chat", "achat"])
async def test_a_simple_chat_engine(way: str, shop: Shop, remember: Remember) -> None:
    engine = SimpleChatEngine.from_defaults(
        llm=shop.model(), memory=remember(Diary(pages=["tea", "milk"])), system_prompt="You help."
    )
    for question in ("Hello?", "And now?"):
        _ = await engine.achat(question) if way == "achat" else engine.chat(question)
    assert shop.sent(0) == [("developer", "You help."), ("user", "Hello?" + TAIL.format("tea"))]
    assert [text for _, text in shop.sent(1)[1::2]] == ["Hello?", "And now?" + TAIL.format("milk")]


@pytest.mark.parametrize("way", ["chat", "achat"])
async def test_a_context_chat_engine_takes_it_into_the_question(way: str, shop: Shop, remember: Remember) -> None:
    engine = prefix_safe(
        ContextChatEngine.from_defaults(
            Shelf(["A"], ["B"]),
            llm=shop.model(),
            memory=remember(Diary(pages=["tea", "milk"])),
            context_template="Use {context_str}",
        )
    )
    for question in ("Hello?", "And now?"):
        _ = await engine.achat(question) if way == "achat" else engine.chat(question)
    found = "\n\nFor this question:\ncontext_str: {}"
    assert shop.sent(0)[1:] == [("user", "Hello?" + TAIL.format("tea") + found.format("A"))]
    assert shop.sent(1)[0] == shop.sent(0)[0]
    assert [text for _, text in shop.sent(1)[1::2]] == [
        "Hello?",
        "And now?" + TAIL.format("milk") + found.format("B"),
    ]


async def test_the_hosts_own_context_chat_engine_gets_it_in_front_of_the_question(
    shop: Shop, remember: Remember
) -> None:
    memory = remember(Diary(pages=["tea", "milk"]))
    engine = ContextChatEngine.from_defaults(Shelf(["A"]), llm=shop.model(), memory=memory)
    engine.chat("Hello?")
    engine.chat("And now?")
    assert [text for _, text in shop.sent(0)[1:]] == [TAIL.format("tea"), "Hello?"]
    assert [text for _, text in shop.sent(1)[1::2]] == ["Hello?", TAIL.format("milk")]
    assert shop.sent(1)[-1] == ("user", "And now?")


async def test_a_condensed_question_sees_it_without_any_mark(shop: Shop, remember: Remember) -> None:
    engine = prefix_safe(
        CondensePlusContextChatEngine.from_defaults(
            Shelf(["A"]),
            llm=shop.model(),
            memory=remember(Diary(pages=["tea"])),
            condense_prompt="Condense {chat_history} with {question}",
        )
    )
    await engine.achat("Hello?")
    engine.chat("And now?")
    assert shop.sent(0) == [("user", f"Condense user: {TAIL.format('tea')} with Hello?")]
    assert all("tail_blocks" not in text for at in range(4) for _, text in shop.sent(at))
    assert shop.sent(3)[-1][1].startswith("And now?" + TAIL.format("tea") + "\n\nFor this question:\n")


@pytest.mark.parametrize("recalls", [True, False])
async def test_text_for_one_call_that_an_agent_is_given_is_sent_in_each_step_and_not_stored(
    recalls: bool, tools: Shop, remember: Remember
) -> None:
    memory = remember(*([Diary(pages=["tea", "milk"])] if recalls else []))
    agent = FunctionAgent(tools=[FunctionTool.from_defaults(seats_left)], llm=tools.model(), system_prompt="Be kind.")
    await agent.run(user_msg=with_tail(ChatMessage(content=SEATS), "Found: a page"), memory=memory)
    steps = len(tools.desk.exchanges)
    assert steps > 1
    for at in range(steps):
        assert str(messages(tools, at)).count("Found: a page") == 1
        assert str(messages(tools, at)).count("<diary>") == int(recalls)
    assert all("Found" not in str(message.content) for message in await memory.aget_all())
    await agent.run("Thanks!", memory=memory)
    assert "Found: a page" not in str(messages(tools, -1))
