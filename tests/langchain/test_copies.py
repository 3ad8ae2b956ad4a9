"""What the bare class can do, the copy can do."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.load import dumpd
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from headstay import Ledger
from headstay.emulator import Emulator
from headstay.errors import ConfigError
from langchain_headstay import CacheAwareChatModel, cache_aware

Chat = Callable[..., BaseChatModel]


class Joke(BaseModel):
    """A joke."""

    setup: str
    punchline: str


@tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


def on_the_wire(server: Emulator) -> int:
    return len(server.exchanges)


def rows(ledger: Ledger) -> int:
    return len(list(ledger.rows()))


def test_it_is_of_the_same_class(chat: Chat) -> None:
    bare = chat()
    made = cache_aware(bare)
    assert isinstance(made, type(bare))
    assert type(made).__name__ == type(bare).__name__
    assert type(made).__module__ == type(bare).__module__
    assert made.lc_id() == bare.lc_id()
    assert dumpd(made) == dumpd(bare)
    assert repr(made) == repr(bare)
    assert made.asdict() == bare.asdict()
    assert made._get_llm_string() == bare._get_llm_string()
    assert made._get_ls_params() == bare._get_ls_params()


def test_it_equals_the_model_it_was_made_from(chat: Chat) -> None:
    bare, other = chat(), chat(temperature=0.5)
    made = cache_aware(bare)
    assert (made == bare, bare == made, made == cache_aware(bare)) == (True, True, True)
    assert (made == other, other == made, made == cache_aware(other), made == "x") == (False, False, False, False)


def test_making_it_leaves_the_bare_model_alone(chat: Chat, server: Emulator) -> None:
    bare = chat()
    before = dict(vars(bare))
    ledger = Ledger()
    cache_aware(bare, ledger=ledger).invoke("Hi")
    assert vars(bare).keys() == before.keys()
    bare.invoke("Hi")
    assert (on_the_wire(server), rows(ledger)) == (2, 1)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize(
    "duplicate",
    [
        copy.copy,
        copy.deepcopy,
        lambda model: pickle.loads(pickle.dumps(model)),
        lambda model: model.model_copy(),
        lambda model: model.model_copy(update={"temperature": 0.5}),
        lambda model: model.model_copy(deep=True),
    ],
    ids=["copy", "deepcopy", "pickle", "model_copy", "model_copy-update", "model_copy-deep"],
)
def test_it_duplicates_wherever_the_bare_model_does(
    chat: Chat, wire: str, server: Emulator, duplicate: Callable[[Any], Any], used: bool
) -> None:
    bare, ledger = chat(), Ledger()
    made = cache_aware(bare, ledger=ledger, on_break="record")
    if used:
        bare.invoke("Hi")
        made.invoke("Hi")
    try:
        plain = duplicate(bare)
    except TypeError:  # open clients hold locks: the bare class does not duplicate here, and the copy need not
        return
    twin = duplicate(made)
    assert isinstance(twin, type(bare))
    assert twin == plain
    before = on_the_wire(server)
    assert twin.invoke("Hi").text == plain.invoke("Hi").text
    assert on_the_wire(server) == before + 2
    # A pickle opens stores of its own where they were in memory; every other duplicate shares the model's.
    *_, row = twin.headstay_binding.flow.ledger.rows()
    assert row.wire == wire
    assert row.head, "the hook did not run"


def test_a_copy_of_the_wrapper_takes_settings_of_both(chat: Chat, server: Emulator) -> None:
    model = CacheAwareChatModel(chat(), on_break="record")
    changed = model.model_copy(update={"temperature": 0.5, "volatile": None})
    for one in (model, changed, chat().model_copy(update={"temperature": 0.5})):
        assert one.invoke([SystemMessage("It is 2026-11-29 10:00:00."), HumanMessage("Hi")]).text
    before, after, plain = (exchange.body for exchange in server.exchanges)
    assert (before.get("temperature"), after.get("temperature")) == (None, plain.get("temperature"))
    assert ("[[clock]]" in str(before), "[[clock]]" in str(after)) == (True, False)
    assert changed.temperature == 0.5
    # Stores are shared; the model inside the first one is as it was.
    assert model.ledger is changed.ledger
    assert len(list(model.ledger.rows())) == 2
    assert (model.model.temperature, changed.model.temperature) == (None, 0.5)


def test_a_copy_of_a_copy_has_the_new_settings_only(chat: Chat, server: Emulator) -> None:
    first, second = Ledger(), Ledger()
    cache_aware(cache_aware(chat(), ledger=first), ledger=second).invoke("Hi")
    assert (on_the_wire(server), rows(first), rows(second)) == (1, 0, 1)


def test_fields_stay_configurable(claude_chat: Callable[..., ChatAnthropic], server: Emulator, ledger: Ledger) -> None:
    fields = {"temperature": ConfigurableField(id="temperature")}
    made = cache_aware(claude_chat(), ledger=ledger).configurable_fields(**fields)
    made.invoke("Hi")
    made.with_config(configurable={"temperature": 0.3}).invoke("Hi")
    assert [exchange.body.get("temperature") for exchange in server.exchanges] == [None, 0.3]
    assert len({row.head for row in ledger.rows()}) == 1
    assert [row.wire for row in ledger.rows()] == ["anthropic-messages"] * 2


def test_alternatives_stay_configurable(
    claude_chat: Callable[..., ChatAnthropic], gpt_chat: Callable[..., ChatOpenAI], server: Emulator, ledger: Ledger
) -> None:
    made = cache_aware(claude_chat(), ledger=ledger).configurable_alternatives(
        ConfigurableField(id="llm"), gpt=cache_aware(gpt_chat(), ledger=ledger)
    )
    made.invoke("Hi")
    made.invoke("Hi", config={"configurable": {"llm": "gpt"}})
    assert [exchange.wire for exchange in server.exchanges] == ["anthropic-messages", "openai-chat"]
    assert [row.wire for row in ledger.rows()] == ["anthropic-messages", "openai-chat"]


def test_a_failed_call_is_retried_and_both_leave_a_row(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger
) -> None:
    server.fail_next(status=500, times=2)
    with pytest.raises(Exception, match="500") as failure:
        chat().invoke("Hi")
    made = aware(chat(), ledger=ledger).with_retry(wait_exponential_jitter=False, stop_after_attempt=2)
    assert made.invoke("Hi").text
    found = list(ledger.rows())
    assert [row.error for row in found] == [failure.type.__name__, None]
    assert len(server.exchanges) == 3


def test_bound_tools_and_structured_output_go_through_it(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger
) -> None:
    made = aware(chat(), ledger=ledger)
    called = made.bind_tools([get_weather]).invoke("What is the weather in Rome?")
    assert [call["name"] for call in called.tool_calls] == ["get_weather"]
    assert isinstance(made.with_structured_output(Joke).invoke("Tell a joke"), Joke)
    assert rows(ledger) == len(server.exchanges) == 2


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
@pytest.mark.parametrize("include_raw", [False, True])
# ChatOpenAI serialises a parsed reply that its types do not announce; the bare class warns in the same way.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_structured_output_is_what_the_bare_class_gives(
    chat: Chat, aware: Chat, method: str, include_raw: bool, ledger: Ledger
) -> None:
    bare, made = chat(), aware(chat(), ledger=ledger)
    settings = {"method": method, "include_raw": include_raw}
    expected: Any = bare.with_structured_output(Joke, **settings).invoke("Tell a joke")
    found: Any = made.with_structured_output(Joke, **settings).invoke("Tell a joke")
    if include_raw:
        assert (found.keys(), found["parsed"]) == (expected.keys(), expected["parsed"])
    else:
        assert found == expected
    assert rows(ledger) == 1


def test_json_mode(gpt_chat: Callable[..., ChatOpenAI], aware: Chat, ledger: Ledger) -> None:
    made = aware(gpt_chat(), ledger=ledger).with_structured_output(None, method="json_mode", include_raw=True)
    found: Any = made.invoke("Answer in JSON")
    assert isinstance(found["parsed"], dict)
    assert rows(ledger) == 1


def test_what_init_chat_model_returns_can_be_copied(server: Emulator, ledger: Ledger) -> None:
    bare = init_chat_model("anthropic:claude-sonnet-4-6", api_key="key-a", base_url=server.base_url, max_retries=0)
    assert cache_aware(bare, ledger=ledger).invoke("Hi").text
    assert (rows(ledger), on_the_wire(server)) == (1, 1)


def test_anything_but_a_chat_model_is_refused_in_one_clear_line(claude_chat: Callable[..., ChatAnthropic]) -> None:
    for wrong in (claude_chat().bind_tools([get_weather]), init_chat_model(configurable_fields="any")):
        with pytest.raises(ConfigError, match=f"{type(wrong).__name__} is no chat model: give the model itself"):
            cache_aware(wrong)  # type: ignore[type-var] # the wrong type is the point
        with pytest.raises(ConfigError, match=f"{type(wrong).__name__} is no chat model"):
            CacheAwareChatModel(wrong)  # type: ignore[arg-type] # the wrong type is the point
    for given, line in (
        ("gpt-5.4", r"^model='gpt-5.4' is a name and no chat model: .* init_chat_model\('gpt-5.4'\)$"),
        (ChatAnthropic, r"^ChatAnthropic is a class and no chat model: .* ChatAnthropic\(\.\.\.\)$"),
    ):
        with pytest.raises(ConfigError, match=line):
            cache_aware(given)  # type: ignore[type-var] # the wrong type is the point
        with pytest.raises(ConfigError, match=line):
            CacheAwareChatModel(given)  # type: ignore[arg-type] # the wrong type is the point
    with pytest.raises(ConfigError, match=r"give the model inside it: `\.model`"):
        cache_aware(CacheAwareChatModel(claude_chat()))
