"""Agents of temporary projects, run twice and linted: what breaks between two processes on two days is found."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headstay.emulator import Exchange
from headstay.lint import Report, lint
from headstay.rehearsal import RehearsalError, rehearse
from headstay.rehearsal.run import LATER_S, TURNS
from headstay.trace.exchanges import entries

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([*(str(ROOT / name) for name in ("core", "integrations", "middleware"))])
SECRET = "sk-ant-api03-0123456789abcdef"
Write = Callable[..., None]

HEAD = """
from datetime import date
from uuid import uuid4

RULES = "\\n".join(f"Rule {n}: answer questions on topic {n} briefly and kindly." for n in range(200))
RUN = uuid4()
"""

AGENTS = '''
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from headstay import Slot
from langgraph_headstay import StableHeadMiddleware


@tool
def find_order(number: str) -> str:
    """Find an order by its number."""
    return "It left the warehouse on Friday."


@tool
def refund(number: str) -> str:
    """Pay an order back."""
    return "Done."


TODAY = Slot(r"^Today is (?P<today>.+?)\\.$")
TOOLS = {"find_order": find_order, "refund": refund}


def three_faults():
    print("a line of the user's own")
    return create_agent(
        ChatOpenAI(model="gpt-5.4"),
        [TOOLS[name] for name in {"find_order", "refund"}],
        system_prompt=f"Today is {date.today()}.\\n\\nThis is run {RUN}.\\n\\n{RULES}",
        checkpointer=InMemorySaver(),
    )


class Desk:
    @staticmethod
    async def mended():
        """No checkpointer: whoever asks holds the history."""
        return create_agent(
            ChatOpenAI(model="gpt-5.6-terra"),
            [TOOLS[name] for name in {"find_order", "refund"}],
            system_prompt=f"Today is {date.today()}.\\n\\n{RULES}",
            middleware=[StableHeadMiddleware(name="desk", on_break="record", volatile=[TODAY])],
        )
'''

CHAIN = """
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

PROMPT = ChatPromptTemplate([("system", RULES + " {tone}"), ("placeholder", "{history}"), ("human", "{question}")])
chain = PROMPT | ChatOpenAI(model="gpt-5.4", use_responses_api=True) | StrOutputParser()
"""

SDKS = """
import os
import time

import anthropic
import openai

FOUND = [name for name, text in os.environ.items() if "0123456789abcdef" in text]
QUESTIONS = ("Where is order 17?", f"And at {time.time():.0f}?")
MARK = {"type": "ephemeral"}


async def talk():
    claude, gpt = [], []
    async with anthropic.AsyncAnthropic() as one, openai.AsyncOpenAI() as other:
        for question in QUESTIONS:
            claude.append({"role": "user", "content": question})
            gpt.append({"role": "user", "content": question})
            system = [{"type": "text", "text": RULES, "cache_control": MARK}]
            more = {"system": system, "metadata": {"user_id": str(FOUND)}}
            reply = await one.messages.create(model="claude-sonnet-4-6", max_tokens=64, messages=claude, **more)
            claude.append({"role": "assistant", "content": reply.content[0].text})
            said = await other.chat.completions.create(
                model="gpt-5.4", messages=[{"role": "system", "content": RULES}, *gpt]
            )
            gpt.append({"role": "assistant", "content": said.choices[0].message.content})
    return "done"
"""

ASK = """
import openai


def ask(text, model="gpt-5.4"):
    with openai.OpenAI(max_retries=0) as client:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module into an empty project, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", PATHS)
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_")):
            monkeypatch.delenv(name)

    def put(*pieces: str, name: str = "desk") -> None:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(pieces), encoding="utf-8")

    return put


def checked(exchanges: tuple[Exchange, ...]) -> Report:
    return lint(entries(exchanges))


def items(exchange: Exchange) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = exchange.body.get("messages") or exchange.body["input"]
    return found


def failure(target: str, **settings: Any) -> str:
    with pytest.raises(RehearsalError) as found:
        rehearse(target, **settings)
    return str(found.value)


def test_what_differs_between_two_processes_on_two_days(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    write(HEAD, AGENTS)
    told: list[str] = []
    found = rehearse("desk:three_faults", progress=told.append)
    exchanges = found.exchanges
    assert found.notices == ()
    assert told == ["desk:three_faults: the first run", "desk:three_faults: the second run"]
    assert capfd.readouterr() == ("", "")
    assert [len(items(exchange)) for exchange in exchanges] == [2, 4, 6, 2] * 2
    report = checked(exchanges)
    assert {found.cause for found in report.breaks} == {"tool_order", "clock_in_head", "random_id_in_head"}
    assert {(found.line, found.after_line) for found in report.breaks} == {(5, 4)}
    assert report.conversations == 4


def test_an_agent_with_a_stable_head_is_clean(write: Write) -> None:
    write(HEAD, AGENTS)
    exchanges = rehearse("desk:Desk.mended").exchanges
    assert [exchange.status for exchange in exchanges] == [200] * 8
    asked = [[next(_texts(item)) for item in items(exchange) if item["role"] == "user"][-1] for exchange in exchanges]
    assert asked == [text for turns, other in TURNS for text in (*turns, other)]
    said = [[item["role"] for item in items(exchange)].count("assistant") for exchange in exchanges]
    assert said == [0, 1, 2, 0] * 2
    report = checked(exchanges)
    assert report.breaks == ()
    assert report.requests == 8
    assert report.read_tokens >= 0.99 * report.readable_tokens > 6 * 1_024


def test_a_chain_gets_a_text_for_each_variable_and_its_history(write: Write) -> None:
    write(HEAD, CHAIN)
    exchanges = rehearse("desk:chain", turns=["Where is order 17?", "Thanks!"]).exchanges
    said = "Here is what I know about: Where is order 17?"
    assert [len(items(exchange)) for exchange in exchanges] == [2, 4, 2] * 2
    assert items(exchanges[1])[0] == items(exchanges[5])[0]
    assert str(items(exchanges[1])[0]["content"]).endswith("kindly. some tone")
    assert [text for item in items(exchanges[1])[1:] for text in _texts(item)] == [
        "Where is order 17?",
        said,
        "Thanks!",
    ]
    assert [text for item in items(exchanges[3])[1:] for text in _texts(item)] == ["Where is order 17?"]
    assert checked(exchanges).clean


def _texts(item: dict[str, Any]) -> Iterator[str]:
    content = item["content"]
    yield from [content] if isinstance(content, str) else [block["text"] for block in content]


def test_a_function_that_talks_itself_with_two_sdks(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "SEARCH_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    write(HEAD, SDKS)
    exchanges = rehearse("desk:talk").exchanges
    assert [exchange.wire for exchange in exchanges] == ["anthropic-messages", "openai-chat"] * 4
    assert {exchange.body["metadata"]["user_id"] for exchange in exchanges[::2]} == {"[]"}
    assert len({exchange.workspace for exchange in exchanges}) == 1
    times = [moment for exchange in exchanges for moment in (exchange.started, exchange.first_event)]
    assert times == sorted(set(times))
    assert times[-1] - times[0] < 1
    first, second = (int(items(exchanges[at])[2]["content"][7:-1]) for at in (2, 6))
    assert 0 <= second - first - LATER_S < 120
    assert checked(exchanges).clean


def test_without_time_machine_it_says_what_is_not_found(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", None)
    write(ASK, "import time\n\nclass agent:\n    chat = staticmethod(lambda _: ask(f'{time.time():.0f}'))\n")
    write("import desk\n\nagent = desk.agent()", name="app")
    found = rehearse("app:agent")
    assert len(found.notices) == 1
    assert "pip install time-machine" in found.notices[0]
    times = [int(items(exchange)[0]["content"]) for exchange in found.exchanges]
    assert len(times) == 8
    assert 0 <= max(times) - min(times) < 120


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("desk", "'desk' names no agent; write module:attribute, such as desk:make_agent"),
        ("desk:", "'desk:' names no agent; write module:attribute, such as desk:make_agent"),
        ("desk:make agent", "'desk:make agent' names no agent; write module:attribute, such as desk:make_agent"),
        ("app/desk.py:make", "'app/desk.py:make' names a file; name the module: app.desk:make"),
        ("desk.py", "'desk.py' names a file; name the module: desk:make_agent"),
    ],
)
def test_a_target_of_another_form(target: str, said: str) -> None:
    assert failure(target) == said


def test_a_conversation_needs_questions() -> None:
    for turns in ([], ["Hello", " "]):
        assert failure("desk:make", turns=turns).startswith("a conversation needs at least one question")


BROKEN = f"""
import os
import sys


def loud(): print("one\\ntwo"); raise ValueError("no way to db://me:hunter2@host with {SECRET}")
def needs(model, *, tone, mood="kind"): ...
def nothing(): return None
def number(): return 7
def leaves(): sys.exit("bye")
def ends(): print("nearly"); os._exit(3)
def killed(): os.kill(os.getpid(), 9)
class Desk: ...
PLAIN = 7
"""
INSTEAD = "write a function without arguments that runs a short conversation, and name that one"
NOTHING = "; nothing had reached the emulator by then"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere:make", "there is no module 'nowhere' in the current folder or among the installed packages; "),
        ("app.nowhere:make", "there is no module 'app.nowhere' in the current folder or among the "),
        (
            "app.own:x",
            "app.own cannot be imported: ModuleNotFoundError: No module named 'nowhere' (app/own.py, line 1)",
        ),
        ("app.slip:x", "app.slip cannot be imported: SyntaxError: invalid syntax (app/slip.py, line 2)"),
        ("app.exit:x", "app.exit cannot be imported: SystemExit: 2 (app/exit.py, line 1)"),
        ("desk:gone", "desk has no 'gone'; it has loud, needs, nothing, number, leaves, ends, killed, Desk"),
        ("desk:Desk.gone", "desk.Desk has no 'gone'; it has nothing that can be run"),
        ("desk:PLAIN", "desk:PLAIN is of type int: neither an agent nor a function that makes one"),
        (
            "desk:needs",
            "desk:needs needs model, tone; write a function without arguments that calls it, and name that one",
        ),
        (
            "desk:loud",
            f"desk:loud() raised ValueError: no way to db://me:***@host with sk-ant-*** (desk.py, line 6){NOTHING}",
        ),
        ("desk:leaves", f"desk:leaves() raised SystemExit: bye (desk.py, line 10){NOTHING}"),
        (
            "desk:nothing",
            "desk:nothing ran, but nothing reached the emulator: it asked no model, or one on this machine that ",
        ),
        (
            "desk:number",
            "desk:number returned something of type int, which has none of invoke(), ainvoke(), run(user_msg=...), "
            f"chat() and query(); {INSTEAD}",
        ),
        ("desk:ends", "the process that ran desk:ends ended with exit code 3 before it was done"),
        ("desk:killed", "the process that ran desk:killed was killed by SIGKILL before it was done"),
    ],
)
def test_a_module_that_cannot_be_run(write: Write, target: str, said: str) -> None:
    write(BROKEN)
    write("import nowhere", name="app/own")
    write("\ndef make(:", name="app/slip")
    write("raise SystemExit(2)", name="app/exit")
    line, *printed = failure(target).splitlines()
    assert line == said or (said.endswith(" ") and line.startswith(said))
    expected = {"desk:loud": ["  one", "  two"], "desk:ends": ["  nearly"]}
    assert printed[1:] == expected.get(target, [])
    assert "hunter2" not in line


def test_a_process_that_takes_too_long_is_ended(write: Write) -> None:
    write("import threading\n\ndef hangs():\n    print('waiting', flush=True)\n    threading.Event().wait(600)\n")
    began = time.monotonic()
    said = failure("desk:hangs", timeout_s=1)
    assert said == (
        "desk:hangs was not done after 1 s; make its conversation shorter, or look for a call that waits for "
        "something: a lock, an event loop that has ended, another program\nits last output:\n  waiting"
    )
    assert time.monotonic() - began < 60


def test_threads_that_go_on_do_not_keep_it(write: Write) -> None:
    write(
        ASK,
        "import threading\n\ndef talk():\n    threading.Thread(target=threading.Event().wait).start()\n    ask('Hi')\n",
    )
    assert len(rehearse("desk:talk", timeout_s=60).exchanges) == 2


def test_every_request_is_refused(write: Write) -> None:
    write(
        *(ASK, "def talk():", "    try:", "        ask([{'type': 'odd'}])"),
        *("    except openai.BadRequestError:", "        pass"),
    )
    assert failure("desk:talk").startswith("the emulator refused every request of desk:talk; the first one with HTTP 4")


def test_only_the_second_run_fails(write: Write) -> None:
    write(
        *(ASK, "from pathlib import Path", "def talk():", "    ask('Hi')"),
        *("    if Path('seen').exists():", "        raise OSError('seen')", "    Path('seen').touch()"),
    )
    assert failure("desk:talk") == "in the second run, desk:talk() raised OSError: seen (desk.py, line 13)"
