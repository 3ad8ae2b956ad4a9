"""What is found, or said, about agents whose clock moves, whose model is another, or whose checkpointer is async."""

import os
from pathlib import Path

import pytest

from headstay.emulator import openai_models
from headstay.lint import lint
from headstay.rehearsal import RehearsalError, rehearse
from headstay.rehearsal.models import OPENAI
from headstay.trace.exchanges import entries

ROOT = Path(__file__).resolve().parents[2]

DESK = '''
import asyncio
from datetime import datetime

import aiosqlite
import anthropic
import openai
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

RULES = " ".join(f"Rule {number}: be brief and kind about topic {number}." for number in range(200))


class Clock:
    """A chat engine that tells the time in its prompt."""

    def __init__(self):
        self.said = []

    def chat(self, text):
        self.said.append({"role": "user", "content": text})
        system = {"role": "system", "content": f"It is {datetime.now():%H:%M:%S}. {RULES}"}
        reply = openai.OpenAI().chat.completions.create(model="gpt-5.4", messages=[system, *self.said])
        self.said.append({"role": "assistant", "content": reply.choices[0].message.content})

    def reset(self):
        self.said.clear()


def ask(model):
    openai.OpenAI().chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}])


def tuned():
    ask("ft:gpt-4.1:acme::1")


def claude():
    try:
        said = [{"role": "user", "content": "Hi"}]
        anthropic.Anthropic().messages.create(model="claude-3-7-sonnet-latest", max_tokens=8, messages=said)
    except anthropic.NotFoundError:
        pass


def falls_back():
    try:
        ask("my-local-model")
    except openai.NotFoundError:
        ask("gpt-5.4")


def agent(saver):
    return create_agent(ChatOpenAI(model="gpt-5.4"), [], system_prompt=RULES, checkpointer=saver)


async def saved():
    return AsyncSqliteSaver(await aiosqlite.connect(":memory:"))


def made_in_a_loop():
    return agent(asyncio.run(saved()))


def needs_a_loop():
    return agent(AsyncSqliteSaver(aiosqlite.connect(":memory:")))
'''


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "core"))
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_")):
            monkeypatch.delenv(name)
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")


def failure(target: str) -> str:
    with pytest.raises(RehearsalError) as found:
        rehearse(target)
    return str(found.value)


def test_a_clock_that_moves_within_a_conversation() -> None:
    exchanges = rehearse("desk:Clock").exchanges
    times = [exchange.body["messages"][0]["content"][6:14].split(":") for exchange in exchanges]
    for run in (times[:4], times[4:]):
        assert len({minute for _, minute, _ in run}) == len({second for _, _, second in run}) == 4
    report = lint(entries(exchanges))
    # Each of the eight requests but the very first breaks with the clock, also the second within one conversation.
    assert [(found.line, found.cause) for found in report.breaks] == [(line, "clock_in_head") for line in range(2, 9)]


@pytest.mark.parametrize(
    ("target", "model", "has"),
    [
        (
            "tuned",
            "ft:gpt-4.1:acme::1",
            "of OpenAI's it has gpt-4o, gpt-4.1, gpt-5 to gpt-5.6, gpt-6 to gpt-6.2, o1, o3, ",
        ),
        ("claude", "claude-3-7-sonnet-latest", "of Anthropic's it has claude-fable-(5-2|5-1|5), claude-mythos-("),
    ],
)
def test_a_model_that_the_emulator_does_not_have(target: str, model: str, has: str) -> None:
    said = failure(f"desk:{target}")
    assert said.startswith(f"desk:{target} asked for the model '{model}', which the emulator does not have; {has}")
    assert said.endswith("; take one of those for the rehearsal, or lint a log of real calls: headstay lint LOG")


def test_another_model_is_asked_instead() -> None:
    found = rehearse("desk:falls_back")
    assert [exchange.status for exchange in found.exchanges] == [404, 200] * 2
    assert found.notices == ("the emulator does not have my-local-model: what desk:falls_back asked of it was refused",)


def test_the_models_it_names_are_those_it_has() -> None:
    names = [name for one in OPENAI for name in one.split(" to ")]
    assert all(openai_models.find_model(name) for name in names)
    tried = [f"gpt-{major}{minor}" for major in range(3, 9) for minor in ("", *(f".{n}" for n in range(1, 10)))]
    known = {name for name in (*tried, *(f"o{n}" for n in range(1, 7))) if openai_models.find_model(name)}
    assert known == {
        *("gpt-4.1", "gpt-5", "gpt-5.1", "gpt-5.2", "gpt-5.3", "gpt-5.4", "gpt-5.5", "gpt-5.6"),
        *("gpt-6", "gpt-6.1", "gpt-6.2", "o1", "o3"),
    }


@pytest.mark.parametrize("target", ["made_in_a_loop", "needs_a_loop"])
def test_a_checkpointer_that_is_async_in_a_factory_that_is_not(target: str) -> None:
    exchanges = rehearse(f"desk:{target}", timeout_s=60).exchanges
    assert [len(exchange.body["messages"]) for exchange in exchanges] == [2, 4, 6, 2] * 2
