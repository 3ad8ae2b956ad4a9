"""Tokens that a real gateway on the loopback issues come back to it with the session they were issued to."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from headstay.errors import ConfigError
from langchain_headstay.echo import LONGEST, Echo

Seen = tuple[str | None, str | None]
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
WHOLE = {
    **CHUNK,
    "object": "chat.completion",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes."}}],
}
STREAM = [
    {**CHUNK, "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Yes."}, "finish_reason": None}]},
    {**CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]


class Gateway(ThreadingHTTPServer):
    """Issues `NAME/SESSION/N` with its N-th answer to a session, and keeps what each request carried."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, name: str, session_header: str, token_header: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.name = name
        self.headers = (session_header, token_header)
        self.seen: list[Seen] = []
        self.counts: dict[str, int] = {}
        self.lock = Lock()
        self.left = Event()
        self.status = 200
        self.moved_to = ""
        self.issue: Callable[[str, int], str] = lambda session, count: f"{self.name}/{session}/{count}"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def token(self, session: str, given: str | None) -> str:
        with self.lock:
            self.seen.append((session or None, given))
            self.counts[session] = count = self.counts.get(session, 0) + 1
        return self.issue(session, count)


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: else the second waits for the first to be acknowledged
    server: Gateway

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        session, given = (self.headers.get(name) for name in self.server.headers)
        token = self.server.token(session or "", given)
        streams = bool(body.get("stream"))
        events = [*(json.dumps(chunk) for chunk in STREAM), "[DONE]"]
        text = "".join(f"data: {event}\n\n" for event in events) if streams else json.dumps(WHOLE)
        self.send_response(307 if self.server.moved_to else self.server.status)
        if self.server.moved_to:
            self.send_header("Location", self.server.moved_to)
        if token:
            self.send_header(self.server.headers[1], token)
        self.send_header("Content-Type", "text/event-stream" if streams else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def finish(self) -> None:
        super().finish()
        self.server.left.set()

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@contextmanager
def running(name: str, session: str = "X-Session-ID", token: str = "x-session-token") -> Iterator[Gateway]:
    gateway = Gateway(name, session, token)
    thread = Thread(target=gateway.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield gateway
    finally:
        gateway.shutdown()
        thread.join()
        gateway.server_close()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with running("g") as made:
        yield made


def chat(gateway: Gateway, echo: Echo) -> ChatOpenAI:
    client, async_client = echo.clients()
    return ChatOpenAI(
        model="m",
        api_key=SecretStr("none"),
        base_url=gateway.base_url,
        max_retries=0,
        http_client=client,
        http_async_client=async_client,
    )


@asynccontextmanager
async def chatting(gateway: Gateway, echo: Echo) -> AsyncIterator[ChatOpenAI]:
    model = chat(gateway, echo)
    yield model
    await model.root_async_client.close()  # while its event loop runs


def named(session: str, header: str = "X-Session-ID") -> dict[str, Any]:
    return {"extra_headers": {header: session}}


async def invoke(model: ChatOpenAI, session: str) -> str:
    return str(model.invoke("Hello.", **named(session)).text)


async def ainvoke(model: ChatOpenAI, session: str) -> str:
    return str((await model.ainvoke("Hello.", **named(session))).text)


async def stream(model: ChatOpenAI, session: str) -> str:
    return "".join(str(chunk.text) for chunk in model.stream("Hello.", **named(session)))


async def astream(model: ChatOpenAI, session: str) -> str:
    return "".join([str(chunk.text) async for chunk in model.astream("Hello.", **named(session))])


WAYS: list[Callable[[ChatOpenAI, str], Awaitable[str]]] = [invoke, ainvoke, stream, astream]


@pytest.mark.parametrize("way", WAYS)
async def test_each_session_sends_the_last_token_it_was_given(gateway: Gateway, way: Any) -> None:
    async with chatting(gateway, Echo()) as model:
        for session in ("a", "b", "a", "b", "a"):
            assert await way(model, session) == "Yes."
    assert gateway.seen == [("a", None), ("b", None), ("a", "g/a/1"), ("b", "g/b/1"), ("a", "g/a/2")]


async def test_what_a_stream_was_given_a_later_call_of_any_way_sends(gateway: Gateway) -> None:
    async with chatting(gateway, Echo()) as model:
        for way in WAYS:
            await way(model, "a")
    assert [token for _, token in gateway.seen] == [None, "g/a/1", "g/a/2", "g/a/3"]


def test_without_a_session_no_token_is_kept_or_sent(gateway: Gateway) -> None:
    echo = Echo()
    model = chat(gateway, echo)
    model.invoke("Hello.")
    model.invoke("Hello.", **named("a"))
    model.invoke("Hello.")
    assert gateway.seen == [(None, None), ("a", None), (None, None)]
    assert len(echo) == 1


def test_a_token_of_the_applications_own_is_left_alone(gateway: Gateway) -> None:
    model = chat(gateway, Echo())
    model.invoke("Hello.", **named("a"))
    model.invoke("Hello.", extra_headers={"X-Session-ID": "a", "X-Session-Token": "mine"})
    assert gateway.seen == [("a", None), ("a", "mine")]


def test_an_answer_with_an_error_or_without_a_token_changes_nothing(gateway: Gateway) -> None:
    model = chat(gateway, Echo())
    model.invoke("Hello.", **named("a"))
    gateway.status = 503
    with pytest.raises(Exception, match="503"):
        model.invoke("Hello.", **named("a"))
    gateway.status = 200
    gateway.issue = lambda session, count: ""
    model.invoke("Hello.", **named("a"))
    model.invoke("Hello.", **named("a"))
    assert [token for _, token in gateway.seen] == [None, "g/a/1", "g/a/1", "g/a/1"]


def test_the_headers_may_have_other_names() -> None:
    with running("g", "X-Flow", "x-pod") as gateway:
        model = chat(gateway, Echo(session_header="x-flow", token_header="X-Pod"))
        for _ in range(2):
            model.invoke("Hello.", **named("a", "X-Flow"))
        assert gateway.seen == [("a", None), ("a", "g/a/1")]


@pytest.mark.parametrize("token", ["x" * (LONGEST + 1), "caf\xe9", "tab\there"])
def test_a_token_that_no_header_should_hold_is_not_kept(gateway: Gateway, token: str) -> None:
    gateway.issue = lambda session, count: token
    model = chat(gateway, Echo())
    for _ in range(2):
        assert model.invoke("Hello.", **named("a")).text == "Yes."
    assert gateway.seen == [("a", None), ("a", None)]


def test_a_token_goes_to_the_gateway_that_issued_it_and_follows_no_redirect_to_another(gateway: Gateway) -> None:
    echo = Echo()
    with running("h") as other:
        chat(gateway, echo).invoke("Hello.", **named("a"))
        chat(other, echo).invoke("Hello.", **named("a"))
        gateway.moved_to = f"{other.base_url}/chat/completions"
        chat(gateway, echo).invoke("Hello.", **named("a"))
        chat(gateway, echo).invoke("Hello.", **named("b"))
        assert gateway.seen == [("a", None), ("a", "g/a/1"), ("b", None)]
        assert other.seen == [("a", None), ("a", "h/a/1"), ("b", None)]


def test_threads_and_tasks_that_share_an_echo_never_send_another_sessions_token(gateway: Gateway) -> None:
    echo = Echo(most=5)
    model = chat(gateway, echo)
    sessions = [f"s{number % 7}" for number in range(140)]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda session: model.invoke("Hello.", **named(session)).text, sessions))

    async def tasks() -> list[Any]:
        async with chatting(gateway, echo) as own:
            return await asyncio.gather(*(own.ainvoke("Hello.", **named(session)) for session in sessions))

    assert replies == ["Yes."] * 140
    assert len(asyncio.run(tasks())) == 140
    carried = [(session, token.split("/")[1]) for session, token in gateway.seen if token is not None]
    assert carried
    assert all(session == owner for session, owner in carried)
    assert len(echo) == 5


@pytest.fixture(scope="module")
def long_lived() -> Iterator[Gateway]:
    with running("g") as made:
        yield made


@settings(max_examples=40)
@given(sessions=st.lists(st.sampled_from("abcde"), max_size=25), most=st.integers(1, 4))
def test_the_least_recently_used_session_is_forgotten_first(
    long_lived: Gateway, sessions: list[str], most: int
) -> None:
    long_lived.seen.clear()
    long_lived.counts.clear()
    client, _ = Echo(most=most).clients()
    expected: list[Seen] = []
    for place, session in enumerate(sessions):
        client.post(f"{long_lived.base_url}/x", json={}, headers={"X-Session-ID": session})
        earlier = sessions[:place]
        since = earlier[len(earlier) - earlier[::-1].index(session) :] if session in earlier else None
        known = since is not None and len(set(since)) < most
        expected.append((session, f"g/{session}/{earlier.count(session)}" if known else None))
    assert long_lived.seen == expected


def test_a_client_of_the_applications_own_keeps_its_hooks(gateway: Gateway) -> None:
    own: list[str] = []

    def hook(request: httpx2.Request) -> None:
        own.append(request.method)
        request.headers["X-Session-ID"] = "a"  # it comes first, so that the echo sees what it sets

    with httpx2.Client(event_hooks={"request": [hook]}) as client:
        Echo().attach(client)
        for _ in range(2):
            client.post(f"{gateway.base_url}/x", json={})
    assert own == ["POST", "POST"]
    assert gateway.seen == [("a", None), ("a", "g/a/1")]


def test_a_model_that_is_gone_leaves_no_connection_open(gateway: Gateway, recwarn: pytest.WarningsRecorder) -> None:
    model = chat(gateway, Echo())
    model.invoke("Hello.")
    cycle: list[Any] = [model]
    cycle.append(cycle)
    del model, cycle
    gc.collect()
    assert gateway.left.wait(10)
    assert not recwarn.list


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"session_header": ""}, "session_header=''"),
        ({"token_header": "x token"}, "token_header='x token'"),
        ({"session_header": "X-A", "token_header": "x-a"}, "give two headers"),
        ({"most": 0}, "most=0"),
    ],
)
def test_what_cannot_work_is_said_at_once(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Echo(**settings)
