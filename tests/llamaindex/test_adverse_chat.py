from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from tests.llamaindex.chat_shop import Shelf, Shop, memory, reply_to

from headstay.emulator import Emulator
from llama_index_headstay.chat_engines import prefix_safe

ODD = (
    *("{", "}", "{}", "{0}", "{a.b}", "{a[0]}", "{{x}}", "{% if %}", "[[context_str]]", "<context_str>"),
    *("{existing_answer}", "{context_msg}", "{weird name}", "%s", "\\{x}", "{x!r}", "{x:>10}", "</context_str>"),
)


@pytest.fixture
def shop(desk: Emulator, desk_llm: Any) -> Shop:
    return Shop(desk, desk_llm)


def odd_engine(kind: type[Any], shop: Shop, odd: str) -> Any:
    history = memory()
    history.put(ChatMessage(role=MessageRole.USER, content=marked("asked", odd)))
    history.put(ChatMessage(role=MessageRole.ASSISTANT, content=marked("said", odd)))
    more: dict[str, Any] = {"skip_condense": True} if kind is CondensePlusContextChatEngine else {}
    shelf = Shelf([marked("found", odd), marked("found too", odd)])
    given = {"memory": history, "llm": shop.model(), "system_prompt": marked("rules", odd)}
    return prefix_safe(kind.from_defaults(shelf, **given, **more))


def marked(what: str, odd: str) -> str:
    return f"<{what}: {odd} :{what}>"


@pytest.mark.parametrize("kind", [ContextChatEngine, CondensePlusContextChatEngine])
@pytest.mark.parametrize("odd", ODD)
async def test_every_text_reaches_the_model_whole_and_with_its_own_authority(
    kind: type[Any], odd: str, shop: Shop
) -> None:
    odd_engine(kind, shop, odd).chat(marked("question", odd))
    sent = shop.sent()
    where = {what: [role for role, text in sent if marked(what, odd) in text] for what in ("rules", "asked", "said")}
    assert where == {"rules": ["developer"], "asked": ["user"], "said": ["assistant"]}
    assert sent[-1][0] == "user"
    for what in ("question", "found", "found too"):
        assert [at for at, (_, text) in enumerate(sent) if marked(what, odd) in text] == [len(sent) - 1]


async def test_a_call_that_does_not_refine_is_told_nothing_of_refining(shop: Shop) -> None:
    engine = ContextChatEngine.from_defaults(
        Shelf(["A"]),
        memory=memory(),
        llm=shop.model(),
        context_refine_template="Refine {existing_answer}",
    )
    prefix_safe(engine).chat("One?")
    assert not any("efine" in text for _, text in shop.sent())


async def test_calls_that_refine_share_the_history_from_turn_to_turn(shop: Shop) -> None:
    pages = [f"{letter} " + "clause " * 160 for letter in "ABCDEF"]
    engine = prefix_safe(
        ContextChatEngine.from_defaults(
            Shelf(pages), memory=memory(), llm=shop.model(context_window=1_400), system_prompt="Be kind."
        )
    )
    engine.chat("One?")
    calls = len(shop.desk.exchanges)
    assert calls > 1
    engine.chat("Two?")
    first, second = shop.sent(calls - 1), shop.sent(-1)
    assert second[:1] == first[:1]
    assert second[1:-1] == [("user", "One?"), ("assistant", reply_to("One?"))]
    assert second[0][1].startswith(shop.sent(0)[0][1])
