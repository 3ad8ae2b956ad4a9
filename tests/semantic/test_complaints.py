"""Real complaints about semantic caches, one test each, where a user meets them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from headstay.emulator import Emulator
from headstay.semantic.answer import Answer
from headstay.semantic.cache import Cache
from headstay.semantic.embedder import CallableEmbedder
from headstay.semantic.request import AskedRequest, Turn
from langchain_headstay import CacheAwareChatModel, SemanticCache, cached

Chat = Callable[..., BaseChatModel]
Claude = Callable[..., BaseChatModel]
Road = Callable[[BaseChatModel, SemanticCache], BaseChatModel]

RESET = "How do I reset my password?"
RESET_TOO = "How can I reset my password?"
POLICY = "\n".join(f"Rule {number}: answer questions on topic {number} briefly and kindly." for number in range(60))


@tool
def look_up_order(number: int) -> str:
    """Look an order up."""
    return f"Order {number} is on its way."


@tool
def cancel_order(number: int) -> str:
    """Cancel an order."""
    return f"Order {number} is cancelled."


def sent(desk: Emulator, *asks: Callable[[], Any]) -> int:
    """Return how many requests reached the model for some calls."""
    before = len(desk.exchanges)
    for ask in asks:
        ask()
    return len(desk.exchanges) - before


def test_complaint_01_unrelated_questions_under_one_system_prompt(
    chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(chat(), cache)
    questions = ("Tell me a joke about cats.", "What can I do when I am bored?", "Where is the next pharmacy?")
    for question in questions:
        assert question in model.invoke([SystemMessage(POLICY), HumanMessage(question)]).text
    assert len(desk.exchanges) == 3
    model.invoke([SystemMessage(POLICY), HumanMessage("Tell me a joke about cats")])
    assert len(desk.exchanges) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I enable notifications?", "How do I disable notifications?"),
        ("How do I turn the alarm on?", "How do I turn the alarm off?"),
        ("How do I convert EUR to USD?", "How do I convert USD to EUR?"),
        ("Can I increase my limit?", "Can I decrease my limit?"),
    ],
)
def test_complaint_02_opposites_score_above_paraphrases(
    one: str, other: str, claude: Claude, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(claude(), cache)
    assert sent(desk, lambda: model.invoke(one), lambda: model.invoke(other)) == 2


def test_complaint_03_sums_that_differ_in_one_number(
    claude: Claude, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(claude(), cache)
    assert sent(desk, lambda: model.invoke("What is 12 plus 30?"), lambda: model.invoke("What is 12 plus 31?")) == 2


def test_complaint_04_a_pronoun_after_another_history(
    claude: Claude, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(claude(), cache)

    def ask(person: str) -> None:
        said = [HumanMessage(f"Who is {person}?"), AIMessage(f"{person} runs a company.")]
        model.invoke([*said, HumanMessage("How old is that person?")])

    assert sent(desk, lambda: ask("Ada"), lambda: ask("Grace")) == 2
    assert sent(desk, lambda: ask("Ada"), lambda: ask("Grace")) == 0


def test_complaint_05_steps_of_an_agent_share_most_of_their_text(
    chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(chat(), cache).bind_tools([look_up_order])
    history: list[Any] = [SystemMessage(POLICY), HumanMessage("What is my order status?")]
    reply = model.invoke(history)
    (call,) = reply.tool_calls
    for state in ("on its way", "on its way.", "on its  way"):
        model.invoke([*history, reply, ToolMessage(f"Order 7 is {state}", tool_call_id=call["id"])])
    assert len(desk.exchanges) == 4
    assert cache.metrics().hits == {}


def test_complaint_06_the_system_prompt_and_parameters_count(
    claude: Claude, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    asked = HumanMessage(RESET)
    small, large = road(claude(max_tokens=100), cache), road(claude(max_tokens=200), cache)
    other = road(claude(model="claude-sonnet-4-6"), cache)

    def ask_all() -> None:
        small.invoke([SystemMessage("Answer in verse."), asked])
        small.invoke([SystemMessage("Answer in prose."), asked])
        small.invoke([asked])
        large.invoke([asked])
        other.invoke([asked])
        small.invoke([asked], stop=["###"])

    assert sent(desk, ask_all) == 6
    assert sent(desk, ask_all) == 0


def test_complaint_07_tools_tool_choice_and_response_format_count(
    gpt: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(gpt(), cache)
    schema = {"title": "Reply", "type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    other = {**schema, "properties": {"text": {"type": "integer"}}}
    forms = [
        model,
        model.bind_tools([look_up_order]),
        model.bind_tools([look_up_order, cancel_order]),
        model.bind_tools([look_up_order], tool_choice="none"),
        model.bind(response_format={"type": "json_schema", "json_schema": {"name": "Reply", "schema": schema}}),
        model.bind(response_format={"type": "json_schema", "json_schema": {"name": "Reply", "schema": other}}),
    ]

    def ask_all() -> None:
        for form in forms:
            form.invoke(RESET)

    assert sent(desk, ask_all) == 6
    assert sent(desk, ask_all) == 0
    # The same tools in another order are the same request.
    assert sent(desk, lambda: model.bind_tools([cancel_order, look_up_order]).invoke(RESET)) == 0


def test_complaint_08_another_tenants_answer(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    question = "What is the balance of my account?"
    for tenant in ("tenant-1", "tenant-2", "tenant 1"):
        model = CacheAwareChatModel(claude(), semantic_cache=cache, tenant=tenant, on_break="record")
        model.invoke(question)
    assert len(desk.exchanges) == 3
    assert cache.metrics().hits == {}


def test_complaint_09_a_hit_on_a_stream_keeps_all_there_was(
    claude: Claude, cache: SemanticCache, desk: Emulator
) -> None:
    model = CacheAwareChatModel(claude(thinking={"type": "adaptive"}), semantic_cache=cache, on_break="record")
    asked = [SystemMessage("Please think."), HumanMessage(RESET)]
    fresh: Any = None
    for chunk in model.stream(asked):
        fresh = chunk if fresh is None else fresh + chunk
    served: Any = None
    for chunk in model.stream(asked):
        served = chunk if served is None else served + chunk
    assert len(desk.exchanges) == 1
    assert served.text == fresh.text
    kinds = [[block["type"] for block in message.content_blocks] for message in (fresh, served)]
    assert kinds[0] == kinds[1] == ["reasoning", "text"]
    assert served.content_blocks[0]["reasoning"] == fresh.content_blocks[0]["reasoning"]
    assert served.response_metadata["stop_reason"] == "end_turn"
    assert served.usage_metadata["total_tokens"] == 0


async def test_complaint_10_streams_read_and_fill_the_cache(chat: Chat, cache: SemanticCache, desk: Emulator) -> None:
    model = CacheAwareChatModel(chat(), semantic_cache=cache, on_break="record")
    fresh = "".join(chunk.text for chunk in model.stream(RESET))
    assert "".join(chunk.text for chunk in model.stream(RESET_TOO)) == fresh
    assert "".join([chunk.text async for chunk in model.astream(RESET)]) == fresh
    assert len(desk.exchanges) == 1


def test_complaint_11_texts_past_the_window_embed_alike(claude: Claude, road: Road, cache: SemanticCache) -> None:
    model = road(claude(), cache)
    story = "the cat sat on the mat and looked at the moon for a while " * 40
    model.invoke(f"{story} What did the cat do?")
    assert "What did the dog do?" in model.invoke(f"{story} What did the dog do?").text
    assert sum(cache.metrics().limits.values()) == 2


def test_complaint_12_another_model_of_the_same_width(claude: Claude, desk: Emulator, tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    embedding = DeterministicFakeEmbedding(size=384)
    swapped = CallableEmbedder(embedding.embed_documents, name="other-model")
    for embedder, question in ((None, RESET), (swapped, RESET_TOO), (swapped, RESET), (None, RESET_TOO)):
        with SemanticCache(file, embedder=embedder) as cache:
            CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record").invoke(question)
    # Nothing of one vector space is found in the other; the bundled model finds its own again.
    assert len(desk.exchanges) == 3


def test_complaint_13_being_served_makes_no_answer_younger(claude: Claude, desk: Emulator) -> None:
    times = {"now": 0.0}
    cache = SemanticCache(ttl=100, jitter=0, now=lambda: times["now"])
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    for at in (0.0, 40.0, 80.0, 99.0):
        times["now"] = at
        model.invoke(RESET)
    assert len(desk.exchanges) == 1
    times["now"] = 100.0
    model.invoke(RESET)
    assert len(desk.exchanges) == 2


def test_complaint_14_an_expired_neighbour_hides_no_other(claude: Claude, desk: Emulator) -> None:
    times = {"now": 0.0}
    cache = SemanticCache(ttl=100, jitter=0, threshold=0.945, now=lambda: times["now"])
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke("How could I reset my password?")
    times["now"] = 60.0
    further = model.invoke("How do I reset the password?").text
    assert len(desk.exchanges) == 2  # .939 apart
    times["now"] = 99.0
    assert "could" in model.invoke(RESET_TOO).text  # .989, before the other with .949
    times["now"] = 100.0
    assert model.invoke(RESET_TOO).text == further
    assert len(desk.exchanges) == 2


@pytest.mark.parametrize("question", ["Please ramble on.", "Please refuse this.", "Please say nothing."])
def test_complaint_15_errors_and_cut_replies_are_not_replayed(
    question: str, chat: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(chat(), cache)
    assert sent(desk, lambda: model.invoke(question), lambda: model.invoke(question)) == 2
    desk.fail_next(status=500)
    with pytest.raises(Exception, match=r"."):
        model.invoke(RESET)
    assert RESET in model.invoke(RESET).text


def test_complaint_16_past_its_capacity_the_survivors_are_found(claude: Claude, desk: Emulator) -> None:
    cache = SemanticCache(max_entries=20)
    engine = cache.engine
    for number in range(60):
        asked = AskedRequest((Turn("user", f"How do I use feature {number}?"),))
        engine.admit(engine.look_up(asked), Answer(f"Like {number}."))
    kept = engine.store.usage().entries
    assert kept <= 20
    asked_now = [AskedRequest((Turn("user", f"How can I use feature {number}?"),)) for number in range(60 - kept, 60)]
    answers = [engine.look_up(asked).answer for asked in asked_now]
    assert [answer.text if answer else None for answer in answers] == [f"Like {n}." for n in range(60 - kept, 60)]


def test_complaint_17_after_a_restart_each_answer_is_the_one_to_its_question(
    claude: Claude, desk: Emulator, tmp_path: Path
) -> None:
    file = tmp_path / "answers.db"
    questions = ["Where is the library?", "When does the museum open?", "Who repairs bicycles here?"]
    for _ in range(2):
        with SemanticCache(file) as cache:
            model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
            for question in questions:
                assert question in model.invoke(question).text
    assert len(desk.exchanges) == 3


def test_complaint_18_searching_while_adding() -> None:
    engine = Cache()
    wrong: list[str] = []

    def hammer(worker: int) -> None:
        for number in range(25):
            place = f"Where is shop {worker * 100 + number}?"
            request = AskedRequest((Turn("user", place),))
            engine.admit(engine.look_up(request), Answer(f"The answer to {place}"))
            found = engine.look_up(request)
            if found.answer is None or found.answer.text != f"The answer to {place}":
                wrong.append(f"{place}: {found.reason} {found.detail}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(hammer, range(6)))
    assert wrong == []


async def test_complaint_19_sync_and_async_decide_alike() -> None:
    engine = Cache(threshold=0.95)
    engine.admit(engine.look_up(AskedRequest((Turn("user", RESET),))), Answer("In the settings."))
    for question in (RESET, RESET_TOO, "How do I change my password?", "Where is the library?"):
        asked = AskedRequest((Turn("user", question),))
        sync, later = engine.look_up(asked), await engine.alook_up(asked)
        assert (sync.reason, sync.tier, sync.score) == (later.reason, later.tier, later.score)


def test_complaint_20_identical_requests_in_another_order_of_keys(
    gpt: Chat, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(gpt(), cache)
    one = {"title": "Reply", "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    other = {"properties": {"b": {"type": "string"}, "a": {"type": "string"}}, "type": "object", "title": "Reply"}

    def ask(schema: Any) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "Reply", "schema": schema}}
        model.bind(response_format=form).invoke(RESET)

    assert sent(desk, lambda: ask(one), lambda: ask(other)) == 1


def test_complaint_21_random_ids_are_no_part_of_the_key(
    claude: Claude, road: Road, cache: SemanticCache, desk: Emulator
) -> None:
    model = road(claude(), cache)

    def ask(run: str) -> None:
        call = {"name": "look_up_order", "args": {"number": 7}, "id": f"call_{run}"}
        metadata = {"id": f"msg_{run}", "usage": {"input_tokens": len(run)}}
        history = [
            HumanMessage("Where is order 7?", id=f"h{run}"),
            AIMessage("", tool_calls=[call], id=f"a{run}", response_metadata=metadata),
            ToolMessage("On its way.", tool_call_id=f"call_{run}", id=f"t{run}"),
            AIMessage("It is on its way.", id=f"b{run}", response_metadata=metadata),
            HumanMessage("And when will it be here?", id=f"i{run}"),
        ]
        model.bind_tools([look_up_order]).invoke(history)

    assert sent(desk, lambda: ask("1"), lambda: ask("22"), lambda: ask("333")) == 1


def test_complaint_22_chat_models_get_chat_generations_with_new_ids(
    chat: Chat, road: Road, cache: SemanticCache
) -> None:
    model = road(chat(), cache)
    replies = [model.generate([[HumanMessage(RESET)]]).generations[0][0] for _ in range(3)]
    assert all(isinstance(reply, ChatGeneration) for reply in replies)
    assert len({reply.message.id for reply in replies if isinstance(reply, ChatGeneration)}) == 3


def test_complaint_23_with_the_history_in_the_key_nothing_hits(
    claude: Claude, cache: SemanticCache, desk: Emulator
) -> None:
    """Behind the model it says why; at the chain's input the bare question is compared."""
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    histories = [[HumanMessage(f"I am {name}."), AIMessage(f"Hello {name}.")] for name in ("Ann", "Bob")]
    for history in histories:
        model.invoke([*history, HumanMessage(RESET)])
    assert cache.metrics().misses == {"nothing_stored": 2}
    chain = cached(
        RunnableLambda(lambda state: claude().invoke([*state["history"], HumanMessage(state["question"])]).text),
        cache=cache,
        query=lambda state: state["question"],
        name="faq",
    ).with_config(tags=["faq"])
    assert sent(desk, *(lambda: chain.invoke({"question": RESET, "history": []}) for _ in range(2))) == 1


async def test_complaint_24_each_lookup_has_its_own_score() -> None:
    engine = Cache()
    engine.admit(engine.look_up(AskedRequest((Turn("user", RESET),))), Answer("In the settings."))
    questions = [RESET, RESET_TOO, "How can I reset my pass word?", "Where is the library?"]
    alone = {text: engine.look_up(AskedRequest((Turn("user", text),))).score for text in questions}
    together = await asyncio.gather(*(engine.alook_up(AskedRequest((Turn("user", text),))) for text in questions * 8))
    assert [found.score for found in together] == [alone[text] for text in questions * 8]
    assert len(set(alone.values())) == 4


def test_complaint_25_the_threshold_has_one_direction(claude: Claude, desk: Emulator) -> None:
    loose = SemanticCache(threshold=0.5)
    strict = SemanticCache(threshold=1.0)
    for cache in (loose, strict):
        model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
        model.invoke(RESET)
        model.invoke("How can I change my password?")
        assert "library" in model.invoke("Where is the library?").text
    assert loose.metrics().hits == {"semantic": 1}
    assert strict.metrics().hits == {}


def test_complaint_26_a_window_of_time_is_exact(claude: Claude, cache: SemanticCache, desk: Emulator) -> None:
    chain = cached(RunnableLambda(lambda given: f"The sales of {given['since']}"), cache=cache, query="question")
    for since in ("2026-01-01", "2026-02-01"):
        assert chain.invoke({"question": "What were the sales?", "since": since}) == f"The sales of {since}"


def test_complaint_27_no_judge_stands_in_the_way_of_a_call(
    claude: Claude, cache: SemanticCache, desk: Emulator
) -> None:
    """A hit asks no model, not even to judge itself; people judge it later."""
    model = CacheAwareChatModel(claude(), semantic_cache=cache, on_break="record")
    model.invoke(RESET)
    hit = model.invoke(RESET_TOO)
    assert len(desk.exchanges) == 1
    assert cache.feedback(hit.response_metadata["headstay"]["entry"], wrong=True)
    model.invoke(RESET_TOO)
    assert len(desk.exchanges) == 2
