"""Agents on the wire: models of four kinds, a scripted model behind them, and the recorded bodies read alike.

The scripted model does what the last human text says: `use NAME{"x":1} NAME` calls tools, whether they were offered
or not, `then` starts the next round, `say TEXT` answers. It thinks where the request lets it.
"""

import json
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.tools import BaseTool, StructuredTool
from langchain_openai import ChatOpenAI

from headstay import HeadStore, Ledger
from headstay.emulator import Emulator, ManualClock, Reply, ToolCall, serve
from langgraph_headstay import StableHeadMiddleware

Run = Callable[..., Awaitable[dict[str, Any]]]
_CALL = re.compile(r"([\w-]+)(\{.*?\})?")
# What the four models do with a note: kept in place, dropped at the human turn, dropped in place (two wires).
MARKERS = ("cache_control", "prompt_cache_breakpoint")
MODELS = ("claude-opus-5-5", "claude-sonnet-4-6", "gpt-6.1-sol", "gpt-5.4")


def scripted(wire: str, body: Mapping[str, Any]) -> Reply:
    """Answer as the last human text says."""
    text, rounds = _asked(body.get("messages") or body.get("input") or [])
    if "select the most relevant tools" in json.dumps(body):  # LangChain's tool selector
        chosen = {"tools": [_CALL.findall(text)[-1][0]]}
        forced = [tool["name"] for tool in body.get("tools", ()) if "name" in tool]
        return Reply("", (ToolCall(forced[0], chosen),)) if forced else Reply(json.dumps(chosen))
    steps = text.split(" then ")
    if rounds < len(steps) and (found := re.search(r"\buse (.+)", steps[rounds])):
        calls = [ToolCall(name, json.loads(given or '{"x": 1}')) for name, given in _CALL.findall(found[1])]
        return Reply("", tuple(calls), thinking="Let me see.")
    said = re.search(r"\bsay (.+)", text)
    return Reply(said[1] if said else "That is settled.", thinking="Let me see.")


def _asked(messages: Any) -> tuple[str, int]:
    """Return the last human text, and how many replies came after it."""
    if isinstance(messages, str):
        return messages, 0
    rounds, calling = 0, False
    for message in reversed(messages):
        answered = message.get("type") in ("function_call", "reasoning") or message.get("role") == "assistant"
        rounds += answered and not calling
        calling = answered
        content = message.get("content")
        texts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
        if message.get("role") == "user" and (said := [text for text in texts if text]):
            return "\n".join(said), rounds
    return "", rounds


@pytest.fixture(scope="session")
def script_server() -> Iterator[Emulator]:
    with serve(clock=ManualClock(), responder=scripted) as running:
        yield running


@pytest.fixture
def server(script_server: Emulator) -> Emulator:
    """Take the place of the emulator of the outer tests: every model of these tests is the scripted one."""
    script_server.reset()
    return script_server


@pytest.fixture
def make_model(server: Emulator) -> Callable[..., BaseChatModel]:
    def make(name: str, **settings: Any) -> BaseChatModel:
        common: dict[str, Any] = {"model": name, "api_key": "key-a", "max_retries": 0}
        if name.startswith("claude"):
            return ChatAnthropic(**{**common, "base_url": server.base_url, "max_tokens": 4_000, **settings})
        responses = {"use_responses_api": name.startswith("gpt-6"), "stream_usage": True}
        return ChatOpenAI(**{**common, "base_url": server.openai_url, **responses, **settings})

    return make


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, make_model: Callable[..., BaseChatModel]) -> BaseChatModel:
    return make_model(request.param)


@pytest.fixture
def claude(make_model: Callable[..., BaseChatModel]) -> BaseChatModel:
    """Take the model that keeps its notes; it thinks without being told to."""
    return make_model("claude-opus-5-5")


@pytest.fixture
def sonnet(make_model: Callable[..., BaseChatModel]) -> BaseChatModel:
    return make_model("claude-sonnet-4-6")


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run an agent on a question in each way; return its last state."""

    async def ask(agent: Any, question: Any, thread: str | None = "one", **kwargs: Any) -> dict[str, Any]:
        given = {"messages": [{"role": "user", "content": question}]} if isinstance(question, str) else question
        config = {"configurable": {"thread_id": thread}} if thread else {}
        how = {"stream_mode": ["values", "messages"]} if "stream" in request.param else {}
        called = getattr(agent, request.param)(given, config, **how, **kwargs)
        if request.param == "ainvoke":
            return dict(await called)
        if request.param == "invoke":
            return dict(called)
        parts = [part async for part in called] if request.param == "astream" else list(called)
        return dict([state for mode, state in parts if mode == "values"][-1])

    return ask


@dataclass
class Desk:
    """The application: its tools and what ran, and its own middleware that changes everything call by call.

    Attributes:
        ran: Names of the tools whose body ran.
        system: Makes the system text of call n, from 1.
        offer: Chooses the tools of call n from all of them; any order.
        calls: How many calls were made.
    """

    ran: list[str] = field(default_factory=list)
    system: Callable[[int], str] | None = None
    offer: Callable[[int, list[Any]], Sequence[Any]] | None = None
    calls: int = 0

    def tool(self, name: str, about: str = "") -> BaseTool:
        def body(x: int) -> str:
            self.ran.append(name)
            return f"{name} gave {x}"

        async def abody(x: int) -> str:
            return body(x)

        return StructuredTool.from_function(
            body, abody, name=name, description=about or f"The tool {name} answers questions about {name}s, one by one."
        )

    def tools(self, *names: str) -> list[BaseTool]:
        return [self.tool(name) for name in names or ("alpha", "bravo", "charlie")]

    def middleware(self) -> AgentMiddleware[Any, Any, Any]:
        desk = self

        class Front(AgentMiddleware[Any, Any, Any]):
            def wrap_model_call(self, request: Any, handler: Any) -> Any:
                return handler(desk.changed(request))

            async def awrap_model_call(self, request: Any, handler: Any) -> Any:
                return await handler(desk.changed(request))

        return Front()

    def changed(self, request: Any) -> Any:
        self.calls += 1
        changes: dict[str, Any] = {}
        if self.system is not None:
            changes["system_message"] = SystemMessage(self.system(self.calls))
        if self.offer is not None:
            changes["tools"] = list(self.offer(self.calls, list(request.tools)))
        return request.override(**changes)

    @staticmethod
    def shuffled(number: int, tools: list[Any]) -> list[Any]:
        return random.Random(number).sample(tools, len(tools))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture(scope="session")
def make_desk() -> type[Desk]:
    return Desk


@pytest.fixture(scope="session")
def make_wire(script_server: Emulator) -> Callable[[], "Wire"]:
    return lambda: Wire(script_server)


@pytest.fixture
def head_store() -> HeadStore:
    return HeadStore()


@pytest.fixture
def stable(ledger: Ledger, head_store: HeadStore) -> Callable[..., StableHeadMiddleware]:
    """Make the middleware, with this test's ledger and head store."""

    def make(**settings: Any) -> StableHeadMiddleware:
        given = {"name": "desk", "ledger": ledger, "head_store": head_store, "on_break": "record", **settings}
        return StableHeadMiddleware(**given)

    return make


class Wire:
    """Reads the recorded bodies of all wires alike."""

    def __init__(self, server: Emulator) -> None:
        self._server = server

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        return [exchange.body for exchange in self._server.exchanges]

    @property
    def texts(self) -> list[str]:
        return [json.dumps(body, ensure_ascii=False) for body in self.bodies]

    @property
    def failed(self) -> list[int]:
        return [exchange.status for exchange in self._server.exchanges if exchange.status != 200]

    def tools(self, number: int = -1) -> list[str]:
        tools = self.bodies[number].get("tools", ())
        return [tool.get("name") or tool.get("function", tool).get("name") or tool["type"] for tool in tools]

    def head(self, number: int = -1) -> str:
        """Return tools and first system text, markers left out."""
        parts = pieces(self.bodies[number])
        return "\n".join(part for part in parts if part.startswith(("declared:", "head:")))

    def extends(self, before: int, after: int, *, kept: bool = False, notes: str = "Now:") -> bool:
        """Say whether a request continues an earlier one byte for byte; dropped notes do not count."""
        old, new = pieces(self.bodies[before]), pieces(self.bodies[after])
        if not kept:
            old, new = ([part for part in parts if not re.search(notes, part)] for parts in (old, new))
        return new[: len(old)] == old


def pieces(body: Mapping[str, Any]) -> list[str]:
    """Take a body apart into its blocks in wire order, markers left out."""
    found = ["declared:" + _plain(tool) for tool in body.get("tools", ())]
    system = body.get("system") or []
    texts = [{"type": "text", "text": system}] if isinstance(system, str) else system
    found += [f"head:{_plain(block)}" for block in texts]
    items = body.get("messages") or body.get("input") or []
    leading = True
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        leading = leading and item.get("role") in ("system", "developer")
        rest = {key: value for key, value in item.items() if key not in ("content", "role")}
        content = item.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        role = "head" if leading else item.get("role")
        found += [f"{role}:{_plain({**part, 'type': part['type'].replace('input_', '')})}" for part in parts]
        found += [f"{role}:{_plain(rest)}"] if rest else []
    return found


def _plain(value: Any) -> str:
    return json.dumps(_bare(value), ensure_ascii=False)


def _bare(value: Any) -> Any:
    """Leave markers out, and write a list of one text as the text: both forms mean the same."""
    if isinstance(value, list):
        parts = [_bare(part) for part in value]
        only = parts[0] if len(parts) == 1 else None
        return only["text"] if isinstance(only, dict) and only.keys() == {"type", "text"} else parts
    if isinstance(value, dict):
        return {key: _bare(inner) for key, inner in value.items() if key not in MARKERS}
    return value


@pytest.fixture
def wires(server: Emulator) -> Wire:
    return Wire(server)


@pytest.fixture
def no_breaks(ledger: Ledger) -> Callable[[], bool]:
    """Say that every call so far was verified, and that nothing broke but by our own policy.

    A model that takes no system message in place has its note renewed at the human turn within a tool loop.
    """

    def whole() -> bool:
        rows = list(ledger.rows())
        owners = {found.owner for row in rows for found in row.breaks}
        return owners <= {"policy"} and all(row.unverified is None and row.error is None for row in rows)

    return whole
