"""Chat engines with the head first: what goes over the wire, and what the host's own engine does beside it."""

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    ContextChatEngine,
    MultiModalContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import ChatPromptTemplate, RichPromptTemplate
from llama_index.core.schema import NodeWithScore
from llama_index.llms.openai_like import OpenAILike
from tests.llamaindex.chat_shop import Shelf, Shop, memory, reply_to

from headstay.emulator import Emulator
from headstay.errors import ConfigError
from llama_index_headstay.chat_engines import prefix_safe

RULES = "You serve a bicycle shop. Be brief."
TEMPLATE = "Use the documents.\n{context_str}\nName your source.\n"
REFINE = "Refine.\n{context_msg}\nSo far:\n{existing_answer}\n"
REFINING = "Where the latest message gives an existing answer, these instructions on the context apply instead:"
HEAD = f"Use the documents.\n[[context_str]]\nName your source.\n{RULES}"
REFINING_HEAD = f"{HEAD}\n\n{REFINING}\nRefine.\n[[context_msg]]\nSo far:\n[[existing_answer]]\n"


@pytest.fixture
def shop(desk: Emulator, desk_llm: Callable[..., OpenAILike]) -> Shop:
    return Shop(desk, desk_llm)


def context_engine(shop: Shop, *texts: Sequence[str], **settings: Any) -> ContextChatEngine:
    given = {
        "llm": shop.model(),
        "memory": memory(),
        "system_prompt": RULES,
        "context_template": TEMPLATE,
        "context_refine_template": REFINE,
        **settings,
    }
    return ContextChatEngine.from_defaults(Shelf(*texts), **given)


async def ask(engine: Any, way: str, question: str) -> tuple[str, list[str]]:
    if way == "chat":
        reply = engine.chat(question)
    elif way == "achat":
        reply = await engine.achat(question)
    elif way == "stream_chat":
        reply = engine.stream_chat(question)
        assert "".join(reply.response_gen)
    else:
        reply = await engine.astream_chat(question)
        assert "".join([token async for token in reply.async_response_gen()])
    return str(reply), [node.text for node in reply.source_nodes]


@pytest.mark.parametrize("way", ["chat", "achat", "stream_chat", "astream_chat"])
async def test_every_way_of_asking(way: str, shop: Shop) -> None:
    engine = prefix_safe(context_engine(shop, ["Saddles: 30 days."], ["Frames: 5 years."]))
    assert await ask(engine, way, "Return a saddle?") == (reply_to("Return a saddle?"), ["Saddles: 30 days."])
    assert await ask(engine, way, "And a frame?") == (reply_to("And a frame?"), ["Frames: 5 years."])
    assert shop.sent(0) == [
        ("developer", HEAD),
        ("user", "Return a saddle?\n\nFor this question:\ncontext_str: Saddles: 30 days."),
    ]
    assert shop.sent(1) == [
        ("developer", HEAD),
        ("user", "Return a saddle?"),
        ("assistant", reply_to("Return a saddle?")),
        ("user", "And a frame?\n\nFor this question:\ncontext_str: Frames: 5 years."),
    ]
    assert [message.content for message in engine.chat_history] == [
        "Return a saddle?",
        reply_to("Return a saddle?"),
        "And a frame?",
        reply_to("And a frame?"),
    ]


async def test_the_given_engine_stays_as_it_is_and_shares_its_memory(shop: Shop) -> None:
    given = context_engine(shop, ["A"])
    before = dict(vars(given))
    safe = prefix_safe(given)
    assert isinstance(safe, ContextChatEngine)
    assert type(safe).__name__ == "ContextChatEngine"
    safe.chat("One?")
    assert vars(given) == before
    given.chat("Two?")
    assert shop.sent() == [
        ("developer", f"Use the documents.\nA\nName your source.\n{RULES}"),
        ("user", "One?"),
        ("assistant", reply_to("One?")),
        ("user", "Two?"),
    ]
    safe.reset()
    assert given.chat_history == []


async def test_history_that_looks_like_a_variable_is_sent_as_it_is(shop: Shop) -> None:
    engine = prefix_safe(context_engine(shop, ["secret shelf"]))
    engine.chat("What is {context_str} and {query_str}?")
    engine.chat("And now?")
    assert shop.sent()[1] == ("user", "What is {context_str} and {query_str}?")
    assert shop.sent(0)[1][1].startswith("What is {context_str} and {query_str}?\n\nFor this question:\n")


async def test_prefix_messages_stand_between_system_and_history(shop: Shop) -> None:
    prefix = [
        ChatMessage(RULES, role=MessageRole.SYSTEM),
        ChatMessage("Hi", role=MessageRole.USER),
        ChatMessage("Hello, {name}", role=MessageRole.ASSISTANT),
    ]
    engine = prefix_safe(context_engine(shop, ["A"], system_prompt=None, prefix_messages=prefix))
    engine.chat("One?")
    assert shop.sent()[:3] == [("developer", HEAD), ("user", "Hi"), ("assistant", "Hello, {name}")]
    assert [message.content for message in prefix] == [RULES, "Hi", "Hello, {name}"]


@pytest.mark.parametrize("way", ["chat", "achat", "stream_chat", "astream_chat"])
async def test_calls_that_refine_say_so_behind_the_same_head(way: str, shop: Shop) -> None:
    llm = shop.model(context_window=1_000)
    texts = [f"{letter} " + "clause " * 120 for letter in "ABCDEF"]
    engine = prefix_safe(context_engine(shop, texts, llm=llm))
    await ask(engine, way, "All of it?")
    assert len(shop.desk.exchanges) > 1
    for at in range(len(shop.desk.exchanges)):
        assert shop.sent(at)[:-1] == [("developer", REFINING_HEAD if at else HEAD)]
        assert shop.sent(at)[-1][1].startswith("All of it?\n\nFor this question:\n")
    first, second = shop.sent(0)[-1][1], shop.sent(1)[-1][1]
    assert "context_str" in first
    assert "context_msg" not in first
    assert second.endswith(f"\nexisting_answer: {reply_to('All of it?')}")
    assert "context_msg" in second
    everything = "".join(shop.sent(at)[-1][1] for at in range(len(shop.desk.exchanges)))
    assert everything.count("clause") >= 6 * 120


async def test_nothing_retrieved_is_the_hosts_own_empty_response(shop: Shop) -> None:
    assert str(prefix_safe(context_engine(shop, [])).chat("One?")) == "Empty Response"
    assert shop.desk.exchanges == ()


async def test_an_empty_text_is_said_to_be_empty(shop: Shop) -> None:
    prefix_safe(context_engine(shop, [""])).chat("One?")
    assert shop.sent()[-1] == ("user", "One?\n\nFor this question:\ncontext_str: (empty)")


async def test_the_hosts_error_comes_through(shop: Shop) -> None:
    engine = prefix_safe(context_engine(shop, ["A"], llm=shop.model(context_window=400)))
    with pytest.raises(ValueError, match=r"Chunk size -\d+ is not positive"):
        engine.chat("One?")


class _Own(ContextChatEngine):
    """An engine with its own retrieval."""

    def _get_nodes(self, message: str) -> list[NodeWithScore]:
        return super()._get_nodes(message.upper())


class _OwnPrompt(ContextChatEngine):
    """An engine with its own prompt."""

    def _get_response_synthesizer(self, chat_history: list[ChatMessage], streaming: bool = False) -> Any:
        return super()._get_response_synthesizer(chat_history, streaming)


async def test_a_subclass_keeps_its_own_methods(shop: Shop) -> None:
    shelf = Shelf(["A"])
    engine = prefix_safe(_Own.from_defaults(shelf, llm=shop.model(), memory=memory(), context_template=TEMPLATE))
    assert isinstance(engine, _Own)
    engine.chat("loud")
    assert shelf.asked == ["LOUD"]
    assert shop.sent()[-1] == ("user", "loud\n\nFor this question:\ncontext_str: A")


async def test_a_subclass_with_its_own_prompt_is_refused(shop: Shop) -> None:
    with pytest.raises(ConfigError, match=r"_OwnPrompt\): it makes its prompts itself"):
        prefix_safe(_OwnPrompt.from_defaults(Shelf(["A"]), llm=shop.model(), memory=memory()))


async def test_once_is_enough_and_copies_go_on(shop: Shop) -> None:
    engine = prefix_safe(prefix_safe(context_engine(shop, ["A"])))
    for one in (engine, copy.copy(engine), pickle.loads(pickle.dumps(engine))):
        one.chat("One?")
        one.reset()
    assert [shop.sent(at) for at in range(3)] == [shop.sent(0)] * 3
    assert shop.sent(0)[0] == ("developer", HEAD)


async def test_condense_plus_context(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    shelf = Shelf(["A"], ["B"])
    engine = prefix_safe(
        CondensePlusContextChatEngine.from_defaults(
            shelf,
            llm=shop.model(),
            memory=memory(),
            system_prompt=RULES,
            context_prompt=TEMPLATE,
            context_refine_prompt=REFINE,
            condense_prompt="Condense {chat_history} with {question}",
            verbose=True,
        )
    )
    assert isinstance(engine, CondensePlusContextChatEngine)
    engine.chat("One?")
    engine.chat("Two?")
    assert shop.sent(0) == [("developer", HEAD), ("user", "One?\n\nFor this question:\ncontext_str: A")]
    assert shop.sent(1) == [("user", f"Condense user: One?\nassistant: {reply_to('One?')} with Two?")]
    assert shop.sent(2) == [
        ("developer", HEAD),
        ("user", "One?"),
        ("assistant", reply_to("One?")),
        ("user", "Two?\n\nFor this question:\ncontext_str: B"),
    ]
    condensed = reply_to("Condense user: One?")
    assert shelf.asked == ["One?", condensed]
    assert f"Condensed question: {condensed}" in capsys.readouterr().out


async def test_a_model_without_messages_gets_one_text(shop: Shop) -> None:
    engine = prefix_safe(context_engine(shop, ["Saddles."], llm=MockLLM()))  # it says what it is told
    assert str(engine.chat("One?")) == (
        f"system: {HEAD}\nuser: One?\n\n\nFor this question:\ncontext_str: Saddles.\nassistant: "
    )


@pytest.mark.parametrize("kind", [SimpleChatEngine, MultiModalContextChatEngine, dict])
async def test_other_engines_are_refused(kind: Any, shop: Shop) -> None:
    if kind is SimpleChatEngine:
        engine: Any = SimpleChatEngine.from_defaults(llm=shop.model(), memory=memory())
    elif kind is MultiModalContextChatEngine:
        engine = MultiModalContextChatEngine.from_defaults(Shelf(["A"]), multi_modal_llm=shop.model(), memory=memory())
    else:
        engine = {}
    with pytest.raises(ConfigError, match=rf"prefix_safe\({kind.__name__}\): supported are ContextChatEngine, "):
        prefix_safe(engine)


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (RichPromptTemplate("{% for d in context_str %}{{ d }}{% endfor %}"), "more than plain variables"),
        (RichPromptTemplate("{{ context_str | upper }}"), "more than plain variables"),
        (RichPromptTemplate("Say {context_str} with {{ context_str }}"), "more than plain variables"),
        (ChatPromptTemplate([ChatMessage("{context_str}")]), "a ChatPromptTemplate, which cannot"),
    ],
)
async def test_a_template_that_cannot_be_taken_apart_is_refused(template: Any, told: str, shop: Shop) -> None:
    with pytest.raises(ConfigError, match=f"context_template= is .*{told}"):
        prefix_safe(context_engine(shop, ["A"], context_template=template))
