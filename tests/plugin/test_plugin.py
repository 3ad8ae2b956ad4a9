"""The plugin in test runs of its own: what passes, what fails and how, with SDKs, chains and agents."""

import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([*(str(ROOT / name) for name in ("core", "integrations", "middleware")), *sys.path])
# By its module, whether or not the checkout is installed.
LOADED = ("-p", "no:headstay", "-p", "pytest_headstay.plugin", "-p", "no:cacheprovider")

HEAD = """
import itertools

import pytest
from pytest_headstay import allowed, assert_prefix_stable

RULES = "\\n".join(f"Rule {n}: answer questions on topic {n} briefly and kindly." for n in range(200))
QUESTIONS = ("Where is order 17?", "How long do refunds take in Italy?", "Thank you, that is all for today.")
TOOL = {"name": "find_order", "description": "Find an order.", "input_schema": {"type": "object", "properties": {}}}
"""

SDKS = """
import anthropic
import openai

MARK = {"type": "ephemeral"}


def times():
    return (f"It is 2026-11-29T10:{minute:02d}:00Z. " for minute in itertools.count())


def claude_request(said, system=RULES, mark=True, **more):
    block = {"type": "text", "text": system}
    if mark:
        block["cache_control"] = MARK
        last = [{"type": "text", "text": said[-1]["content"], "cache_control": MARK}]
        said = [*said[:-1], {"role": "user", "content": last}]
    return {"model": "claude-sonnet-4-6", "max_tokens": 64, "system": [block], "messages": said, **more}


def talk_claude(client, systems=(), **more):
    said = []
    for question, system in itertools.zip_longest(QUESTIONS, itertools.islice(systems, 3), fillvalue=""):
        said.append({"role": "user", "content": question})
        reply = client.messages.create(**claude_request(said, system + RULES, **more))
        said.append({"role": "assistant", "content": reply.content[0].text})
    client.close()


def talk_gpt(client, systems=()):
    said = []
    for question, system in itertools.zip_longest(QUESTIONS, itertools.islice(systems, 3), fillvalue=""):
        said.append({"role": "user", "content": question})
        head = {"role": "system", "content": system + RULES}
        reply = client.chat.completions.create(model="gpt-5.4", messages=[head, *said])
        said.append({"role": "assistant", "content": reply.choices[0].message.content})
    client.close()
"""

PASSING_SDKS = """
def test_anthropic(prefix_recorder):
    talk_claude(anthropic.Anthropic())
    assert [len(one) for one in prefix_recorder.conversations] == [3]
    assert_prefix_stable(prefix_recorder)


def test_exchanges_and_two_conversations(provider_emulator):
    assert provider_emulator.exchanges == ()
    talk_claude(anthropic.Anthropic(base_url=provider_emulator.base_url, api_key="a"))
    talk_claude(anthropic.Anthropic(base_url=provider_emulator.base_url, api_key="b"))
    assert_prefix_stable(provider_emulator.exchanges)


def test_openai(prefix_recorder):
    talk_gpt(openai.OpenAI())
    assert_prefix_stable(prefix_recorder)


def test_responses_api_that_holds_the_history(prefix_recorder):
    client, last = openai.OpenAI(), None
    for question in QUESTIONS:
        last = client.responses.create(
            model="gpt-5.4", instructions=RULES, input=question, previous_response_id=last and last.id
        )
    client.close()
    assert [len(one) for one in prefix_recorder.conversations] == [3]
    assert_prefix_stable(prefix_recorder)


@pytest.mark.asyncio
async def test_async(prefix_recorder):
    said = []
    async with anthropic.AsyncAnthropic() as claude, openai.AsyncOpenAI() as gpt:
        for question in QUESTIONS:
            said.append({"role": "user", "content": question})
            reply = await claude.messages.create(**claude_request(said))
            await gpt.chat.completions.create(
                model="gpt-5.4", messages=[{"role": "system", "content": RULES}, *said]
            )
            said.append({"role": "assistant", "content": reply.content[0].text})
    assert [len(one) for one in prefix_recorder.conversations] == [3, 3]
    assert_prefix_stable(prefix_recorder)


def test_an_agent_and_another_that_gets_its_question(prefix_recorder):
    client = anthropic.Anthropic()
    question = [{"role": "user", "content": QUESTIONS[0]}]
    for system in (RULES, "You invent short titles. " * 300, RULES):
        client.messages.create(**claude_request(question, system))
    client.close()
    assert [len(one) for one in prefix_recorder.conversations] == [1, 1, 1]
    assert_prefix_stable(prefix_recorder)


def test_a_failed_request_is_left_out(prefix_recorder):
    prefix_recorder.emulator.fail_next(status=529)
    talk_claude(anthropic.Anthropic())
    assert len(prefix_recorder.exchanges) == 4
    assert_prefix_stable(prefix_recorder)


def test_an_allowed_break(prefix_recorder):
    client, question = anthropic.Anthropic(), [{"role": "user", "content": QUESTIONS[0]}]
    for tools in ([TOOL], [TOOL, {**TOOL, "name": "refund"}]):
        client.messages.create(**claude_request(question, tools=tools))
    client.close()
    with pytest.raises(AssertionError, match="tool_added"):
        assert_prefix_stable(prefix_recorder)
    with pytest.raises(AssertionError, match="tool_added"):
        assert_prefix_stable(prefix_recorder, allow=[allowed("tool_removed", reason="the other way round")])
    assert_prefix_stable(prefix_recorder, allow=[allowed("tool_added", reason="support joins the chat")])


def test_caches_are_fresh_and_time_moves_by_hand(provider_emulator):
    talk_claude(anthropic.Anthropic())
    usage = provider_emulator.exchanges[0].response["usage"]
    assert usage["cache_read_input_tokens"] == 0
    provider_emulator.clock.advance(301)
    talk_claude(anthropic.Anthropic())
    assert provider_emulator.exchanges[3].response["usage"]["cache_read_input_tokens"] == 0
    assert provider_emulator.exchanges[4].response["usage"]["cache_read_input_tokens"] > 1_024
"""

FAILING_SDKS = """
def test_anthropic_clock(prefix_recorder):
    talk_claude(anthropic.Anthropic(), times())
    assert_prefix_stable(prefix_recorder)


def test_openai_clock(prefix_recorder):
    talk_gpt(openai.OpenAI(), times())
    assert_prefix_stable(prefix_recorder)


@pytest.mark.asyncio
async def test_async_history(prefix_recorder):
    async with openai.AsyncOpenAI() as client:
        said = [{"role": "system", "content": RULES}]
        for number, question in enumerate(QUESTIONS):
            said.append({"role": "user", "content": question})
            reply = await client.chat.completions.create(model="gpt-5.4", messages=said)
            said.append({"role": "assistant", "content": reply.choices[0].message.content + "!" * number})
            if number == 1:
                del said[1:3]
    assert_prefix_stable(prefix_recorder)


def test_no_marker(prefix_recorder):
    talk_claude(anthropic.Anthropic(), mark=False)
    assert_prefix_stable(prefix_recorder)


def test_expired(prefix_recorder):
    client, said = anthropic.Anthropic(), [{"role": "user", "content": QUESTIONS[0]}]
    reply = client.messages.create(**claude_request(said))
    prefix_recorder.emulator.clock.advance(301)
    said += [{"role": "assistant", "content": reply.content[0].text}, {"role": "user", "content": QUESTIONS[1]}]
    client.messages.create(**claude_request(said))
    client.close()
    assert_prefix_stable(prefix_recorder)


def test_one_request(prefix_recorder):
    with anthropic.Anthropic() as client:
        client.messages.create(**claude_request([{"role": "user", "content": "Hello"}]))
    assert_prefix_stable(prefix_recorder)


def test_no_reason():
    allowed("tool_added", reason=" ")


def test_no_such_cause():
    allowed("tool_aded", reason="a slip of the pen")


def test_a_bare_name(prefix_recorder):
    assert_prefix_stable(prefix_recorder, allow=["tool_added"])


def test_a_share_in_percent(prefix_recorder):
    assert_prefix_stable(prefix_recorder, min_read_share=90)
"""

FRAMEWORKS = '''
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_anthropic import ChatAnthropic
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_headstay import StableHeadMiddleware
from headstay import Ledger

minutes = itertools.count(10)


@tool
def find_order(number: str) -> str:
    """Find an order by its number."""
    return "It left the warehouse on Friday."


@dynamic_prompt
def clock(request):
    return f"It is 2026-11-29T10:{next(minutes)}:00Z.\\n\\n{RULES}"


def agent(model, *middleware):
    return create_agent(model, [find_order], middleware=[clock, *middleware], checkpointer=InMemorySaver())


def play(made, threads=("a", "b")):
    for question in ("Please find the order 17.", "How long do refunds take in Italy?"):
        for thread in threads:
            made.invoke({"messages": [("user", question)]}, {"configurable": {"thread_id": thread}})


def test_chain_passes(prefix_recorder):
    chain = ChatPromptTemplate([("system", "{rules}"), ("human", "{question}")]) | ChatOpenAI(model="gpt-5.4")
    for question in QUESTIONS:
        chain.invoke({"rules": RULES, "question": question})
    assert len(prefix_recorder.conversations) == 3
    assert_prefix_stable(prefix_recorder)


def test_chain_fails(prefix_recorder):
    chain = ChatPromptTemplate([("system", "Now: {now}\\n{rules}"), ("human", "{q}")]) | ChatOpenAI(model="gpt-5.4")
    for minute, question in enumerate(QUESTIONS):
        chain.invoke({"now": f"2026-11-29T10:{minute:02d}:00Z", "rules": RULES, "q": question})
    assert_prefix_stable(prefix_recorder)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "gpt-5.4", "gpt-5.6-terra"])
def test_agent_passes(prefix_recorder, model):
    made = ChatAnthropic(model=model) if "claude" in model else ChatOpenAI(model=model)
    play(agent(made, StableHeadMiddleware(name="desk", ledger=Ledger())))
    assert [len(one) for one in prefix_recorder.conversations] == [3, 3]
    assert_prefix_stable(prefix_recorder)


def test_a_note_that_was_readable_and_goes_is_a_break(prefix_recorder):
    """This model takes no system message in place: in a tool loop the note stands before what was written."""
    play(agent(ChatAnthropic(model="claude-sonnet-4-6"), StableHeadMiddleware(name="desk", ledger=Ledger())))
    assert [len(one) for one in prefix_recorder.conversations] == [3, 3]
    with pytest.raises(AssertionError, match=r"history_dropped at messages\\[") as failure:
        assert_prefix_stable(prefix_recorder)
    assert str(failure.value).count("remedy: ") == 2
    assert_prefix_stable(prefix_recorder, allow=[allowed("history_dropped", reason="the clock of a tool loop")])


def test_agent_fails(prefix_recorder):
    play(agent(ChatAnthropic(model="claude-sonnet-4-6")))
    assert_prefix_stable(prefix_recorder)


@pytest.mark.asyncio
async def test_async_agent_passes(prefix_recorder):
    made = agent(ChatOpenAI(model="gpt-5.6-terra"), StableHeadMiddleware(name="desk", ledger=Ledger()))
    for question in QUESTIONS:
        await made.ainvoke({"messages": [("user", question)]}, {"configurable": {"thread_id": "a"}})
    assert_prefix_stable(prefix_recorder)
'''


@pytest.fixture
def ran(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Run tests in a process of their own; return what it shows."""
    monkeypatch.setenv("PYTHONPATH", PATHS)
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "LANGSMITH_", "LANGCHAIN_", "PYTEST_ADDOPTS", "PYTEST_PLUGINS")):
            monkeypatch.delenv(name)

    def run(*pieces: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(test_it="\n".join(pieces), **files)
        loops = ("-o", "asyncio_default_fixture_loop_scope=function")
        return pytester.runpytest_subprocess(*LOADED, *loops, "-W", "error", "-p", "no:xdist", "-rA")

    return run


def failure(shown: str, name: str) -> str:
    """Return what a run shows about one failed test."""
    return shown.partition(f" {name} ")[2].partition("\n____")[0]


def test_stable_sdk_code_passes(ran) -> None:
    ran(HEAD, SDKS, PASSING_SDKS).assert_outcomes(passed=9)


def test_broken_sdk_code_fails_with_cause_and_remedy(ran) -> None:
    result = ran(HEAD, SDKS, FAILING_SDKS)
    result.assert_outcomes(failed=10)
    shown = result.stdout.str()
    for name, path in (("test_anthropic_clock", "system[0].text"), ("test_openai_clock", "messages[0].content")):
        told = failure(shown, name)
        assert f"1. clock_in_head at {path}, character 21 (" in told
        assert "before: 2026-11-29T10:00:00Z" in told
        assert "after:  2026-11-29T10:01:00Z" in told
        assert "remedy: declare it: Slot(" in told
        assert "conversation 1, request 2 after request 1 (" in told
        assert "conversation 1: 0 of " in told
        assert "(0%) were read, min_read_share=0.9" in told
    assert "history_dropped at messages[1]" in failure(shown, "test_async_history")
    assert "carry no cache_control marker" in failure(shown, "test_no_marker")
    assert "the longest pause between two was 301 s" in failure(shown, "test_expired")
    assert "nothing to compare: 1 request(s)" in failure(shown, "test_one_request")
    assert 'write allowed("tool_added", reason="why")' in failure(shown, "test_no_reason")
    assert "'tool_aded'): no such cause code" in failure(shown, "test_no_such_cause")
    assert 'write allow=[allowed("tool_added", reason="why")]' in failure(shown, "test_a_bare_name")
    assert "give a share from 0 to 1" in failure(shown, "test_a_share_in_percent")


def test_chains_and_agents(ran) -> None:
    result = ran(HEAD, FRAMEWORKS)
    result.assert_outcomes(passed=6, failed=2)
    for name in ("test_chain_fails", "test_agent_fails"):
        told = failure(result.stdout.str(), name)
        assert "1. clock_in_head at " in told
        assert "remedy: declare it: Slot(" in told


def test_without_the_extra_the_message_says_what_to_install(ran) -> None:
    result = ran("def test_it(prefix_recorder):\n    pass\n", conftest="import sys\nsys.modules['uvicorn'] = None\n")
    result.assert_outcomes(errors=1)
    assert 'provider_emulator: the emulator needs starlette and uvicorn: pip install "headstay[emulator]"' in str(
        result.stdout
    )


def test_loading_it_brings_only_pytest_along() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import pytest_headstay.plugin; "
        "print(*sorted(n for n in set(sys.modules) - before if n.partition('.')[0] not in sys.stdlib_module_names))"
    )
    made = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env={"PYTHONPATH": PATHS}
    )
    assert made.stdout.split() == ["pytest_headstay", "pytest_headstay.plugin"]


def test_an_installed_headstay_is_found_by_pytest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["entry-points"]["pytest11"] == {"headstay": "pytest_headstay.plugin"}
    assert {"provider_emulator", "prefix_recorder"} <= vars(import_module("pytest_headstay.plugin")).keys()
