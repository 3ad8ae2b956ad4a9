"""Bad input: one clear message, or the documented fail-open behaviour; the caller's answer is never lost."""

import json
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate, SystemMessagePromptTemplate
from langchain_openai import ChatOpenAI

from headstay import HeadStore, Ledger, Slot
from headstay.emulator import Emulator
from headstay.errors import ConfigError, HeadStoreError, LedgerError, PrefixBreak
from langchain_headstay import CacheAwareChatModel, cache_aware

Chat = Callable[..., BaseChatModel]
Claude = Callable[..., ChatAnthropic]
Way = Callable[[Any, Any, Any], Awaitable[str]]


# Not validated: jinja2 itself need not be installed to read the text.
JINJA2 = PromptTemplate.model_construct(
    template="{% if x %}{{ x }}{% endif %}", template_format="jinja2", input_variables=["x"]
)


def only(ledger: Ledger) -> Any:
    (row,) = ledger.rows()
    return row


@pytest.mark.parametrize(
    ("model", "ttl", "valid"),
    [
        ("claude-opus-5-5", "30m", '"5m", "1h"'),
        ("gpt-5.6-terra", "24h", '"30m"'),
        ("gpt-5.4", "1h", '"in_memory", "24h"'),
        ("some-other-model", "1h", "none: leave ttl= out"),
    ],
)
def test_an_unknown_ttl_is_refused_with_the_valid_ones(
    claude_chat: Claude, gpt_chat: Callable[..., ChatOpenAI], aware: Chat, model: str, ttl: str, valid: str
) -> None:
    bare = claude_chat(model) if model.startswith("claude") else gpt_chat(model)
    with pytest.raises(ConfigError) as refused:
        aware(bare, ttl=ttl)
    assert str(refused.value).startswith(f"ttl={ttl!r} is not offered for {model}; valid: {valid}")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"on_break": "ignore"}, 'on_break=\'ignore\': say "warn", "raise" or "record"'),
        ({"verify": "always"}, "verify='always': say \"off\""),
        ({"volatile": "loose"}, "volatile='loose': say \"strict\", None, or a list of Slot(...)"),
        (
            {"volatile": [Slot("{plan}")], "template": "You help {name} in {place}."},
            "Slot('{plan}', every='call') names no variable of template=; its variables: \"{name}\", \"{place}\"",
        ),
        ({"volatile": [Slot("{plan}")]}, "Slot('{plan}', every='call') names a variable, and there is no template="),
        ({"volatile": ["{name}"]}, "volatile=['{name}']: say \"strict\", None, or a list of Slot(...)"),
        ({"template": 7}, "template=int: give a ChatPromptTemplate, a SystemMessagePromptTemplate, a string"),
        ({"template": [7]}, "template=int: not a LangChain prompt template"),
        ({"template": ChatPromptTemplate.from_messages([("human", "{question}")])}, "template= holds no system text"),
        ({"template": "You are {name"}, "template= is not a format string: "),
        (
            {"template": PromptTemplate.from_template("{{#names}}x{{/names}}", template_format="mustache")},
            "template= uses more of mustache than plain variables; declare its varying parts with volatile=[Slot(...)]",
        ),
        (
            {"template": JINJA2},
            "template= uses more of jinja2 than plain variables; declare its varying parts with volatile=[Slot(...)]",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_setting_that_cannot_work_is_refused(
    claude_chat: Claude, aware: Chat, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        aware(claude_chat(), **settings)
    assert str(refused.value).startswith(message)


def test_a_slot_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"not a regular expression: unterminated character set"):
        Slot("[a-")
    with pytest.raises(ConfigError, match='say "call" or "conversation"'):
        Slot("x", every="always")  # type: ignore[arg-type] # the wrong word is the point


@pytest.mark.parametrize(
    ("settings", "notice"),
    [
        ({"volatile": [Slot("never there")]}, "matches nothing in the system text; correct it or take it out"),
        ({"volatile": [Slot(r"(?s).+")]}, "matches nearly the whole system text and was left out; narrow it"),
        (
            {"template": "Quite another text for {name}"},
            "template= does not fit the system text: 'Quite another text for '",
        ),
    ],
)
def test_a_declaration_that_does_not_fit_is_said_once_and_the_request_goes_out(
    chat: Chat,
    server: Emulator,
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
    settings: dict[str, Any],
    notice: str,
    policy: str,
) -> None:
    model = cache_aware(chat(), ledger=ledger, **settings)
    with caplog.at_level(logging.WARNING, "headstay"):
        for _ in range(2):
            assert model.invoke([SystemMessage(policy), HumanMessage("Hi")]).text
    said = [record.message for record in caplog.records if notice in record.message]
    assert len(said) == 1
    assert all(notice in str(row.note) for row in ledger.rows())
    assert [exchange.status for exchange in server.exchanges] == [200, 200]


def test_a_model_without_rules_is_ordered_only_and_that_is_said(
    claude_chat: Claude, server: Emulator, ledger: Ledger, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    model = cache_aware(claude_chat("claude-next-9"), ledger=ledger)
    with caplog.at_level(logging.WARNING, "headstay"), pytest.raises(Exception, match="claude-next-9"):
        model.invoke([SystemMessage(f"It is 2026-11-29 10:00:00.\n{policy}"), HumanMessage("Hi")])
    assert [record.message for record in caplog.records if "no cache rules for claude-next-9" in record.message]
    (sent,) = server.exchanges
    assert sent.status == 404  # the server does not know the model either; what matters is what was sent
    assert "2026-11-29" not in json.dumps(sent.body["system"])
    assert json.dumps(sent.body["messages"]).count("2026-11-29 10:00:00") == 1
    assert only(ledger).error


@pytest.fixture(params=["folder is a file", "no such right", "another file"])
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "folder is a file":
        (tmp_path / "taken").write_text("x")
        return tmp_path / "taken" / "store.db"
    if request.param == "no such right":
        return Path("/proc/headstay/store.db")
    (tmp_path / "store.db").write_bytes(b"this is no database" * 100)
    return tmp_path / "store.db"


def test_stores_that_cannot_be_used_never_stop_a_call(
    chat: Chat, aware: Chat, server: Emulator, unusable: Path, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    before = unusable.read_bytes() if unusable.exists() else None
    with caplog.at_level(logging.WARNING, "headstay"):
        ledger, head_store = Ledger(unusable), HeadStore(unusable)
        model = aware(chat(), ledger=ledger, head_store=head_store)
        for _ in range(2):
            assert model.invoke([SystemMessage(policy), HumanMessage("Hi")]).text
    said = [record.message for record in caplog.records]
    assert len(said) == 2
    assert all(str(unusable) in line for line in said)
    # Both go on in memory.
    assert [row.status for row in ledger.rows()] == ["cold", "ok"]
    assert (unusable.read_bytes() if unusable.exists() else None) == before


def test_strict_stores_say_so_when_they_are_opened(unusable: Path) -> None:
    with pytest.raises(LedgerError, match=r"store\.db"):
        Ledger(unusable, strict=True)
    with pytest.raises(HeadStoreError, match=r"store\.db"):
        HeadStore(unusable, strict=True)


def test_a_head_store_that_breaks_while_it_is_used(
    chat: Chat, aware: Chat, ledger: Ledger, tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "heads.db"
    head_store = HeadStore(path)
    model = aware(chat(), head_store=head_store, ledger=ledger)
    assert model.invoke([SystemMessage(policy), HumanMessage("Hi")]).text
    head_store.close()
    for name in os.listdir(tmp_path):
        (tmp_path / name).write_bytes(b"rubbish" * 1_000)
    with caplog.at_level(logging.WARNING, "headstay"):
        assert model.invoke([SystemMessage(policy), HumanMessage("Hi")]).text
    assert [str(path) in record.message for record in caplog.records] == [True]
    assert all(row.head for row in ledger.rows())


def test_a_head_store_with_rubbish_in_its_rows_lets_the_request_pass(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, tmp_path: Path, policy: str
) -> None:
    path = tmp_path / "heads.db"
    model = aware(chat(), head_store=HeadStore(path), ledger=ledger)
    messages = [SystemMessage(f"It is 2026-11-29 10:00:00.\n{policy}"), HumanMessage("Hi")]
    assert model.invoke(messages).text
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE lanes SET tools = 'rubbish'")
        connection.execute("UPDATE heads SET form = 'rubbish'")
    connection.close()
    assert model.invoke(messages).text
    assert [exchange.status for exchange in server.exchanges] == [200, 200]
    first, second = ledger.rows()
    assert first.unverified is None
    assert second.status in ("unverified", "ok")


def broken(config: Any) -> str:
    raise LookupError("no such tenant")


@pytest.mark.parametrize("setting", ["tenant", "tail"])
@pytest.mark.filterwarnings("ignore:.*is in beta")  # LangChain's own notice on stream_events(version="v3")
async def test_a_callable_that_raises_sends_the_applications_own_request(
    chat: Chat,
    aware: Chat,
    wire: str,
    server: Emulator,
    ledger: Ledger,
    setting: str,
    policy: str,
    way: Way,
    caplog: pytest.LogCaptureFixture,
) -> None:
    system = f"It is 2026-11-29 10:00:00.\n{policy}"
    given = [SystemMessage(system), HumanMessage("Hi")]
    plain = await way(chat(), given, {})
    assert await way(aware(chat(), ledger=ledger, on_break="warn", **{setting: broken}), given, {}) == plain
    bare, ours = server.exchanges
    assert ours.body == bare.body
    row = only(ledger)
    # Its words may hold anything: they are in the log of the application and not in a ledger that others read.
    assert (row.status, row.unverified) == ("unverified", f"{setting}= raised LookupError")
    said = f"sent unchanged and unverified: {setting}= raised LookupError: no such tenant"
    assert [record.message for record in caplog.records if record.name == "headstay"] == [said]


@pytest.mark.parametrize("setting", ["tenant", "tail"])
def test_what_is_no_text_sends_the_applications_own_request(
    chat: Chat, aware: Chat, ledger: Ledger, setting: str
) -> None:
    assert aware(chat(), ledger=ledger, **{setting: lambda config: 7}).invoke("Hi").text
    assert only(ledger).unverified == f"{setting}= gave int, expected a str or None"


def test_a_slot_that_raises_is_named_and_its_words_stay_out_of_the_ledger(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str
) -> None:
    def find_plan(text: str) -> list[tuple[int, int]]:
        raise LookupError(text)

    given = [SystemMessage(policy), HumanMessage("Hi")]
    assert chat().invoke(given).text
    assert aware(chat(), ledger=ledger, volatile=[Slot(find_plan)]).invoke(given).text
    bare, ours = server.exchanges
    assert ours.body == bare.body
    reason = only(ledger).unverified
    assert "find_plan, every='call') raised LookupError; it must give (start, end) pairs" in reason
    assert policy[:40] not in reason


@pytest.mark.parametrize("status", [429, 500, 529])
@pytest.mark.filterwarnings("ignore:.*is in beta")  # LangChain's own notice on stream_events(version="v3")
async def test_a_providers_error_is_the_hosts_own_exception(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, status: int, way: Way
) -> None:
    server.fail_next(status=status, times=2)
    with pytest.raises(Exception) as plain:  # noqa: PT011 - whatever the bare class raises is the measure
        await way(chat(), "Hi", {})
    with pytest.raises(type(plain.value)) as found:
        await way(aware(chat(), ledger=ledger), "Hi", {})
    assert type(found.value) is type(plain.value)
    assert getattr(found.value, "status_code", None) == getattr(plain.value, "status_code", None)
    row = only(ledger)
    assert (row.status, row.error) == ("unverified", type(plain.value).__name__)
    # The next call is as if nothing had been.
    assert await way(aware(chat(), ledger=ledger), "Hi", {})


async def test_an_error_in_the_middle_of_a_stream(chat: Chat, aware: Chat, server: Emulator, ledger: Ledger) -> None:
    found: list[tuple[type[Exception], list[str]]] = []
    for model in (chat(), aware(chat(), ledger=ledger)):
        for asynchronous in (False, True):
            server.fail_next(status=529, after_events=4)
            received: list[str] = []
            try:
                if asynchronous:
                    async for chunk in model.astream("Tell me a long story"):
                        received.append(chunk.text)  # noqa: PERF401 - what came before the error counts
                else:
                    for chunk in model.stream("Tell me a long story"):
                        received.append(chunk.text)  # noqa: PERF401 - what came before the error counts
            except Exception as problem:  # noqa: BLE001 - whatever the bare class raises is the measure
                found.append((type(problem), received))
    assert len(found) == 4
    assert found[2:] == found[:2]
    assert [row.error for row in ledger.rows()] == [kind.__name__ for kind, _ in found[:2]]


def test_a_refused_request_is_refused_as_on_the_bare_class(claude_chat: Claude, aware: Chat, ledger: Ledger) -> None:
    messages = [HumanMessage("Hi"), SystemMessage("too late")]
    with pytest.raises(Exception) as plain:  # noqa: PT011 - whatever the bare class raises is the measure
        claude_chat().invoke(messages)
    with pytest.raises(type(plain.value)):
        aware(claude_chat(), ledger=ledger).invoke(messages)


def test_on_break_raise_stops_the_call_and_names_the_cause(
    chat: Chat, aware: Chat, server: Emulator, policy: str
) -> None:
    model = aware(chat(), on_break="raise", volatile=None)
    model.invoke([SystemMessage(f"It is 2026-11-29 10:00:00.\n{policy}"), HumanMessage("Hi")])
    with pytest.raises(PrefixBreak, match="clock_in_head"):
        model.invoke([SystemMessage(f"It is 2026-11-29 10:00:01.\n{policy}"), HumanMessage("Hi")])
    assert len(server.exchanges) == 1


def test_every_template_form_of_langchain_is_read(claude_chat: Claude, server: Emulator) -> None:
    text = "You help {name} (plan {plan}). Literal {{braces}} stay.\n" + "Be kind.\n" * 800
    forms: list[Any] = [
        text,
        ChatPromptTemplate.from_messages([("system", text), ("human", "{question}")]),
        SystemMessagePromptTemplate.from_template(text),
        PromptTemplate.from_template(text),
        PromptTemplate.from_template(
            text.replace("{{braces}}", "<braces>")
            .replace("{name}", "{{name}}")
            .replace("{plan}", "{{ plan }}")
            .replace("<braces>", "{braces}"),
            template_format="mustache",
        ),
    ]
    for template in forms:
        model = CacheAwareChatModel(claude_chat(), template=template, on_break="record")
        model.invoke([SystemMessage(text.format(name="Ada Lovelace", plan="gold")), HumanMessage("Hi")])
    systems = [exchange.body["system"] for exchange in server.exchanges]
    assert systems == [systems[0]] * len(forms)
    head, values = systems[0]
    assert "You help [[name]] (plan [[plan]]). Literal {braces} stay." in head["text"]
    assert "name: Ada Lovelace" in values["text"]


def test_a_misspelt_setting_of_the_wrapper_is_an_error(server: Emulator) -> None:
    inside = ChatAnthropic(model="claude-sonnet-4-6", api_key="none", base_url=server.base_url)
    with pytest.raises(ValueError, match="ledgr"):
        CacheAwareChatModel(model=inside, ledgr=Ledger())
