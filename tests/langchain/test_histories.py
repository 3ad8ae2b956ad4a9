"""Histories that come back changed, forked or elsewhere: the head is the same bytes, and the break has an owner."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_messages,
    convert_to_openai_messages,
)
from langchain_core.tools import tool

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator
from langchain_headstay import cache_aware

Chat = Callable[..., BaseChatModel]
Talk = Callable[..., list[BaseMessage]]


@tool
def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"sunny in {city}"


def system(policy: str, number: int) -> str:
    return f"It is 2026-11-29 12:{number:02}:00 now.\n{policy}"


def statuses(ledger: Ledger) -> list[str]:
    return [row.status for row in ledger.rows()]


def causes(ledger: Ledger) -> list[list[tuple[str, str]]]:
    return [[(found.cause.value, found.owner) for found in row.breaks] for row in ledger.rows()]


def test_ai_messages_rebuilt_from_openai_form_dicts(
    chat: Chat, aware: Chat, ledger: Ledger, policy: str, talk: Talk, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    history: list[BaseMessage] = []
    for turn in range(3):
        talk(model, system(policy, turn), history, f"question {turn}")
        history = convert_to_messages(convert_to_openai_messages(history))
        assert [message.response_metadata for message in history if isinstance(message, AIMessage)] == [{}] * (turn + 1)
    assert len(set(heads())) == 1
    assert causes(ledger) == [[], [], []]
    assert statuses(ledger) == ["cold", "ok", "ok"]
    assert len({row.conversation for row in ledger.rows()}) == 1


def test_tool_calls_rebuilt_from_openai_form_dicts(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger).bind_tools([get_weather])
    history: list[BaseMessage] = [HumanMessage("What is the weather in Rome?")]
    for turn in range(2):
        reply = model.invoke([SystemMessage(system(policy, turn)), *history])
        history.append(reply)
        history += [ToolMessage("sunny", tool_call_id=str(call["id"])) for call in reply.tool_calls]
        history = convert_to_messages(convert_to_openai_messages(history))
    assert [exchange.status for exchange in server.exchanges] == [200, 200]
    assert len(set(heads())) == 1
    assert statuses(ledger) == ["cold", "ok"]
    renewed = [("clock_in_head", "policy")] if server.exchanges[0].body["model"].startswith("claude-sonnet") else []
    assert causes(ledger) == [[], renewed]


def test_a_dropped_system_message_is_not_restored(
    chat: Chat, aware: Chat, server: Emulator, ledger: Ledger, policy: str, talk: Talk, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    history: list[BaseMessage] = []
    for turn, said in enumerate([system(policy, 0), system(policy, 1), None, system(policy, 3)]):
        talk(model, said, history, f"question {turn}")
    first, second, third, fourth = heads()
    assert first == second == fourth != third
    assert "Rule 7" not in json.dumps(server.exchanges[2].body)
    # The fourth call goes on where the second was: that prefix is still there.
    assert causes(ledger) == [[], [], [("system_text_changed", "application")], []]
    assert [row.epoch for row in ledger.rows()] == [0, 0, 1, 0]
    assert statuses(ledger)[3] == "ok"


def test_new_message_ids_are_no_change(
    chat: Chat, aware: Chat, ledger: Ledger, policy: str, talk: Talk, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    history: list[BaseMessage] = []
    for turn in range(3):
        talk(model, system(policy, turn), history, f"question {turn}")
        history = [message.model_copy(update={"id": f"new-{turn}-{index}"}) for index, message in enumerate(history)]
    assert len(set(heads())) == 1
    assert causes(ledger) == [[], [], []]
    assert statuses(ledger) == ["cold", "ok", "ok"]


def test_new_tool_call_ids_leave_the_head_alone(
    chat: Chat, aware: Chat, ledger: Ledger, policy: str, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    for turn in range(3):
        asked: list[BaseMessage] = [SystemMessage(policy), HumanMessage("What is the weather in Rome?")]
        for call in range(turn):
            number = f"call_{turn}{call}"
            asked += [
                AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": "Rome"}, "id": number}]),
                ToolMessage("sunny", tool_call_id=number),
            ]
        model.bind_tools([get_weather]).invoke(asked, {"configurable": {"thread_id": "one"}})
    assert len(set(heads())) == 1
    reads = [row.cache_read_tokens for row in ledger.rows()]
    assert reads[0] == 0
    assert min(reads[1:]) > 1_024  # the head, at least
    assert {owner for found in causes(ledger) for _, owner in found} <= {"application"}


def test_a_forked_history_reads_what_the_branches_share(
    chat: Chat, aware: Chat, ledger: Ledger, policy: str, talk: Talk, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    trunk: list[BaseMessage] = []
    for turn in range(2):
        talk(model, system(policy, turn), trunk, f"question {turn}")
    left = talk(model, system(policy, 2), list(trunk), "left")
    right = talk(model, system(policy, 3), list(trunk), "right")
    talk(model, system(policy, 4), left, "left again")
    talk(model, system(policy, 5), right, "right again")
    assert len(set(heads())) == 1
    assert causes(ledger) == [[]] * 6
    assert statuses(ledger) == ["cold"] + ["ok"] * 5


def test_an_edited_history_is_named_and_the_head_still_hits(
    chat: Chat, aware: Chat, ledger: Ledger, policy: str, talk: Talk, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    history: list[BaseMessage] = []
    for turn in range(2):
        talk(model, system(policy, turn), history, f"question {turn}", configurable={"thread_id": "one"})
    history[0] = HumanMessage("something else altogether")
    talk(model, system(policy, 2), history, "question 2", configurable={"thread_id": "one"})
    assert len(set(heads())) == 1
    assert causes(ledger) == [[], [], [("history_edited", "application")]]
    *_, row = ledger.rows()
    assert row.epoch == 1
    assert row.cache_read_tokens > 1_024  # the head, at least


def test_images_go_through_and_the_first_one_is_the_providers_break(
    chat: Chat, aware: Chat, wire: str, ledger: Ledger, policy: str, talk: Talk, heads: Callable[[], list[str]]
) -> None:
    model = aware(chat(), ledger=ledger)
    history: list[BaseMessage] = []
    talk(model, policy, history, "question")
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    image = {"type": "image", "base64": pixel, "mime_type": "image/png"}
    history.append(HumanMessage([{"type": "text", "text": "And this?"}, image]))
    history.append(model.invoke([SystemMessage(policy), *history]))
    talk(model, policy, history, "And now?")
    assert len(set(heads())) == 1
    # Anthropic drops the cached messages at the first image of a conversation; OpenAI does not.
    first = [("parameters_changed", "provider")] if wire == "anthropic-messages" else []
    assert causes(ledger) == [[], first, []]
    assert statuses(ledger)[-1] == "ok"


ONE_TURN = """
import json, sys
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from headstay import HeadStore, Ledger
from langchain_headstay import cache_aware

given = json.loads(sys.argv[1])
turn, urls = given["turn"], given["urls"]
history = [message for number in range(turn) for message in (HumanMessage(f"question {number}"), AIMessage("Noted."))]
settings = {"api_key": "key-a", "max_retries": 0}
with HeadStore(given["heads"]) as head_store, Ledger(given["ledger"]) as ledger:
    for name, bare in zip(("claude", "chat", "responses"), (
        ChatAnthropic(model="claude-sonnet-4-6", base_url=urls[0], **settings),
        ChatOpenAI(model="gpt-5.6-terra", base_url=urls[1], use_responses_api=False, **settings),
        ChatOpenAI(model="gpt-5.6-luna", base_url=urls[1], use_responses_api=True, **settings),
    )):
        model = cache_aware(bare, name=name, head_store=head_store, ledger=ledger, on_break="record")
        model.invoke([SystemMessage(given["system"]), *history, HumanMessage(f"question {turn}")])
"""


@pytest.mark.parametrize("kept", ["heads.db", None])
def test_each_turn_in_a_process_of_its_own(
    server: Emulator, tmp_path: Path, policy: str, heads: Callable[[], list[str]], kept: str | None
) -> None:
    """The head is a function of what is declared: it needs no file. The conversation is known by one."""
    for turn in range(3):
        given = {
            "turn": turn,
            "system": system(policy, turn),
            "urls": [server.base_url, server.openai_url],
            "heads": kept and str(tmp_path / kept),
            "ledger": str(tmp_path / "ledger.db"),
        }
        done = subprocess.run(
            [sys.executable, "-c", ONE_TURN, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONHASHSEED": str(turn)},
        )
        assert done.returncode == 0, done.stderr
    sent = heads()
    assert len(sent) == 9
    assert [len(set(sent[wire::3])) for wire in range(3)] == [1, 1, 1]
    with Ledger(tmp_path / "ledger.db") as ledger:
        rows = list(ledger.rows())
    assert [row.breaks for row in rows] == [()] * 9
    assert len({row.lane for row in rows}) == 3
    for wire in range(3):
        first, second, third = rows[wire::3]
        assert first.cache_read_tokens == 0 < second.cache_read_tokens <= third.cache_read_tokens
        if kept:
            assert [first.status, second.status, third.status] == ["cold", "ok", "ok"]
            assert first.conversation == second.conversation == third.conversation


def test_two_models_in_one_process_agree_on_the_head(
    chat: Chat, server: Emulator, policy: str, heads: Callable[[], list[str]], tmp_path: Path
) -> None:
    """A restart: the second model knows only what the file holds."""
    for turn in range(2):
        with HeadStore(tmp_path / "heads.db") as head_store, Ledger(tmp_path / "ledger.db") as ledger:
            model = cache_aware(chat(), head_store=head_store, ledger=ledger, on_break="record")
            history = [HumanMessage("question 0"), AIMessage("Noted."), HumanMessage("question 1")]
            model.invoke([SystemMessage(system(policy, turn)), *history[: 1 + 2 * turn]])
            rows: list[Any] = list(ledger.rows())
    assert len(set(heads())) == 1
    assert [(row.status, row.epoch) for row in rows] == [("cold", 0), ("ok", 0)]
