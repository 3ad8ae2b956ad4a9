"""What the real vllm-router goes by and what it makes of a request, seen from two replicas that only answer."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest
from tests.local.conftest import Local
from tests.local.router_process import of_policy, router_program, routing

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"
# The order that the guide for fleets names.
HEADERS = ("X-Session-ID", "X-User-ID", "X-Tenant-ID", "X-Correlation-ID", "X-Request-ID", "X-Trace-ID")
LONG = "The same words, again and again. " * 20


class Replica(ThreadingHTTPServer):
    """Says who it is, and keeps the last request."""

    daemon_threads = True

    def __init__(self, name: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.name = name
        self.headers: dict[str, str] = {}
        self.body: dict[str, Any] = {}

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet
    server: Replica

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        self.server.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers = {name.lower(): value for name, value in self.headers.items()}
        message = {"role": "assistant", "content": self.server.name}
        self._answer({"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message}]})

    def _answer(self, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-Session-Token", f"token-of-{self.server.name}")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: Any) -> None:
        """Say nothing."""


@contextmanager
def answering(name: str) -> Iterator[Replica]:
    replica = Replica(name)
    thread = Thread(target=replica.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield replica
    finally:
        replica.shutdown()
        thread.join()
        replica.server_close()


@pytest.fixture(scope="module")
def replicas() -> Iterator[tuple[Replica, Replica]]:
    with answering("a") as one, answering("b") as two:
        yield one, two


class Routed:
    """A client of the router."""

    def __init__(self, base_url: str, client: httpx2.Client) -> None:
        self.url = f"{base_url}/chat/completions"
        self.client = client

    def post(self, headers: dict[str, str], **more: Any) -> httpx2.Response:
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], **more}
        return self.client.post(self.url, json=body, headers=headers).raise_for_status()

    def place(self, headers: dict[str, str], **more: Any) -> str:
        """Return the replica that a request goes to."""
        return str(self.post(headers, **more).json()["choices"][0]["message"]["content"])

    def values(self, header: str) -> dict[str, str]:
        """Return for each replica a value of a header that leads to it."""
        found: dict[str, str] = {}
        for number in range(64):
            found.setdefault(self.place({header: f"v{number}"}), f"v{number}")
        assert sorted(found) == ["a", "b"]  # that 64 values all lead to one: 1 in 10^19
        return found


@contextmanager
def routed(local: Local, arguments: Sequence[str], log: Path) -> Iterator[Routed]:
    program = router_program(local.home.path / "router-env")
    with routing(program, arguments, log) as base_url, httpx2.Client(timeout=30) as client:
        yield Routed(base_url, client)


@pytest.fixture(scope="module")
def hashing(
    local: Local, replicas: tuple[Replica, Replica], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Routed]:
    arguments = of_policy("consistent_hash", [replica.origin for replica in replicas])
    with routed(local, arguments, tmp_path_factory.mktemp("hashing") / "log") as made:
        yield made


def test_the_first_of_these_headers_decides(hashing: Routed) -> None:
    values = {header: hashing.values(header) for header in HEADERS}
    for first, second in pairwise(HEADERS):
        for wanted, other in (("a", "b"), ("b", "a")):
            assert hashing.place({first: values[first][wanted], second: values[second][other]}) == wanted


def test_the_header_decides_whatever_the_prompt_is(hashing: Routed) -> None:
    for number in range(8):
        session = {"X-Session-ID": f"s{number}"}
        texts = [[{"role": "user", "content": f"{LONG} {turn}"}] for turn in range(4)]
        assert len({hashing.place(session, messages=messages, user=f"u{number}") for messages in texts}) == 1


@pytest.mark.parametrize("field", ["user", "session_id", "prompt_cache_key", "cache_salt", None])
def test_without_a_header_one_replica_gets_everything(hashing: Routed, field: str | None) -> None:
    bodies: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": f"{number} {LONG}"}], **({field: f"v{number}"} if field else {})}
        for number in range(24)
    ]
    assert len({hashing.place({}, **body) for body in bodies}) == 1


def test_a_session_in_the_body_works_too(hashing: Routed) -> None:
    sessions = [{"session_params": {"session_id": f"v{number}"}} for number in range(64)]
    assert {hashing.place({}, **session) for session in sessions} == {"a", "b"}


def test_what_reaches_the_replica(hashing: Routed, replicas: tuple[Replica, Replica]) -> None:
    parameters = {"type": "object", "properties": {"days": {"type": "integer"}, "city": {"type": "string"}}}
    function = {"name": "weather", "description": "Tell it.", "parameters": parameters}
    system = {"role": "developer", "content": "Ünïcode, 東京"}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"days": 1, "city": "Rom"}'}}
    response = hashing.post(
        {"X-Session-ID": "s", "X-Session-Token": "t"},
        messages=[system, {"role": "assistant", "content": None, "tool_calls": [call]}],
        tools=[{"type": "function", "function": {**function, "strict": True}}],
        cache_salt="tenant",
        prompt_cache_key="key",
        chat_template_kwargs={"z": 1, "a": 2},
    )
    place = response.json()["choices"][0]["message"]["content"]
    (replica,) = [replica for replica in replicas if replica.name == place]
    assert (replica.body["cache_salt"], replica.body["prompt_cache_key"]) == ("tenant", "key")
    assert (replica.headers["x-session-id"], replica.headers["x-session-token"]) == ("s", "t")
    assert response.headers["X-Session-Token"] == f"token-of-{place}"
    # The prompt's bytes: order within tools stays, `strict` is lost, an empty content too.
    assert json.dumps(replica.body["tools"]) == json.dumps([{"type": "function", "function": function}])
    assert replica.body["messages"] == [system, {"role": "assistant", "tool_calls": [call]}]
    assert replica.body["chat_template_kwargs"] == {"z": 1, "a": 2}


def test_the_command_of_the_guide_routes(local: Local, replicas: tuple[Replica, Replica], tmp_path: Path) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (command,) = [line for line in block.replace("\\\n", "").splitlines() if line.startswith("router/bin/vllm-router ")]
    named = ("http://gpu-1.example:8000", "http://gpu-2.example:8000")
    for url, replica in zip(named, replicas, strict=True):
        assert url in command
        command = command.replace(url, replica.origin)
    with routed(local, shlex.split(command)[1:], tmp_path / "log") as router:
        assert sorted(router.values("X-Session-ID")) == ["a", "b"]


def test_by_the_prompts_a_quiet_fleet_uses_one_replica(
    local: Local, replicas: tuple[Replica, Replica], tmp_path: Path
) -> None:
    arguments = of_policy("cache_aware", [replica.origin for replica in replicas])
    with routed(local, arguments, tmp_path / "log") as router:
        heads = [[{"role": "system", "content": f"{number} {LONG}"}] for number in range(6)]
        bare = [router.place({}, messages=head) for head in heads]
        named = [router.place({"X-Session-ID": f"s{number}"}, messages=head) for number, head in enumerate(heads)]
        assert len({*bare, *named}) == 1
