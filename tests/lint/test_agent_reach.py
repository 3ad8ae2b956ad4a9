"""What a rehearsal keeps an agent from: other machines, whichever library asks for them, and whoever pays for it."""

import os
import socket
import subprocess
import sys
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headstay.rehearsal import RehearsalError, rehearse
from headstay.rehearsal.loopback import is_here

ROOT = Path(__file__).resolve().parents[2]

TRANSPORTS = """
import asyncio, socket, sys, urllib.request
import httpx2, requests
from headstay.rehearsal.loopback import stay_here

HOST, PORT, NUMBER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
URL = f"http://{HOST}:{PORT}/"


async def ask():
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.get(URL)


async def connect(host):
    _, writer = await asyncio.open_connection(host, PORT)
    writer.close()


def datagram(send):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as endpoint:
        send(endpoint, b"x", (NUMBER, PORT))


def plainly(host):
    with socket.socket() as endpoint:
        endpoint.connect((host, PORT))


WAYS = {
    "httpx": lambda: httpx2.get(URL, trust_env=False),
    "async httpx": lambda: asyncio.run(ask()),
    "requests": lambda: requests.get(URL),
    "urllib": lambda: urllib.request.urlopen(URL),
    "asyncio": lambda: asyncio.run(connect(HOST)),
    "asyncio number": lambda: asyncio.run(connect(NUMBER)),
    "connect": lambda: plainly(NUMBER),
    "connect_ex": lambda: socket.socket().connect_ex((NUMBER, PORT)),
    "sendto": lambda: datagram(lambda endpoint, data, to: endpoint.sendto(data, to)),
    "sendmsg": lambda: datagram(lambda endpoint, data, to: endpoint.sendmsg([data], [], 0, to)),
    "gethostbyname": lambda: socket.gethostbyname(HOST),
    "gethostbyname_ex": lambda: socket.gethostbyname_ex(HOST),
    "gethostbyaddr": lambda: socket.gethostbyaddr(NUMBER),
}
hosts = []
stay_here(hosts.append)
for name, way in WAYS.items():
    hosts_before = len(hosts)
    try:
        way()
    except Exception as problem:
        told = []
        while problem is not None:
            told.append(str(problem))
            problem = problem.__cause__ or problem.__context__
        print(name, "kept" if "only this machine" in " ".join(told) else told, sep=": ")
    else:
        print(name, "done", sep=": ")
print(hosts)
"""

ASK = """
import anthropic
import openai


def ask(text, **where):
    with openai.OpenAI(max_retries=0, **where) as client:
        client.chat.completions.create(model="gpt-5.4", messages=[{"role": "user", "content": text}])


def real_one():
    ask("Hi", base_url="https://api.openai.com/v1", api_key="sk-proj-0123456789abcdef0123456789")


async def gateway():
    async with anthropic.AsyncAnthropic(base_url="http://10.1.2.3:4000", max_retries=0) as client:
        try:
            await client.messages.create(model="claude-sonnet-4-6", max_tokens=8, messages=[])
        except anthropic.APIConnectionError:
            pass


def azure():
    where = {"azure_endpoint": "https://mine.openai.azure.com", "api_version": "2026-10-01", "api_key": "x"}
    openai.AzureOpenAI(max_retries=0, **where).responses.create(model="gpt-5.4", input="Hi")


def retries():
    while True:
        try:
            ask("Hi", base_url="https://gateway.example/v1")
        except openai.APIConnectionError:
            pass


def looked_up():
    import urllib.request

    for host in ("docs.example", "docs.example", "kb.example"):
        try:
            urllib.request.urlopen(f"https://{host}/", timeout=5)
        except OSError:
            pass
    ask("Hi")


def fast():
    import asyncio
    import uvloop

    uvloop.install()
    assert isinstance(uvloop.new_event_loop(), asyncio.SelectorEventLoop)
    uvloop.run(gateway())
"""
KEPT_FROM = "; only this machine can be reached, and it was kept from "


def failure(target: str, **settings: Any) -> str:
    with pytest.raises(RehearsalError) as found:
        rehearse(target, **settings)
    return str(found.value).partition("\n")[0]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "core"))
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_", "AZURE_")):
            monkeypatch.delenv(name)
    (tmp_path / "desk.py").write_text(ASK, encoding="utf-8")


def tried(host: str, port: int, number: str) -> tuple[dict[str, str], str]:
    """Reach for a host in every way, in a process of its own; return how each went, and the hosts it was kept from."""
    done = subprocess.run(
        [sys.executable, "-c", TRANSPORTS, host, str(port), number],
        env={**os.environ, "PYTHONPATH": str(ROOT / "core"), "NO_PROXY": "*"},
        check=True,
        capture_output=True,
        text=True,
    )
    *lines, hosts = done.stdout.splitlines()
    return dict(line.split(": ", 1) for line in lines), hosts


def test_no_library_reaches_another_machine() -> None:
    # 192.0.2.0/24 is set aside for documentation: there is no such machine.
    ways, hosts = tried("nowhere.example", 443, "192.0.2.7")
    assert set(ways.values()) == {"kept"}
    assert len(ways) == 13
    assert hosts == "['nowhere.example', '192.0.2.7']"


def test_this_machine_is_reached_in_every_way() -> None:
    with socket.socket() as bound:  # not listening: what is not kept back is refused by the machine itself
        bound.bind(("127.0.0.1", 0))
        ways, hosts = tried("localhost", bound.getsockname()[1], "127.0.0.1")
    assert hosts == "[]"
    assert "kept" not in ways.values()
    assert {ways[name] for name in ("connect_ex", "sendto", "sendmsg", "gethostbyname", "gethostbyaddr")} == {"done"}


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST.", b"localhost", "db.localhost", "", None, "::1", "0.0.0.0", "::", "::ffff:127.0.0.1"],
)
def test_names_of_this_machine(host: object) -> None:
    assert is_here(host)
    assert is_here(socket.gethostname())


@pytest.mark.parametrize(
    "host",
    [
        *("api.openai.com", "localhost.example.com", "127.0.0.1.example.com", "notlocalhost", "host.docker.internal"),
        *("169.254.169.254", "fe80::1", "::ffff:8.8.8.8", "255.255.255.255", "224.0.0.251", b"api.openai.com"),
    ],
)
def test_names_of_others(host: object) -> None:
    assert not is_here(host)


@given(st.ip_addresses())
def test_addresses(address: IPv4Address | IPv6Address) -> None:
    assume(address.is_global)
    assert not is_here(str(address))


@given(st.ip_addresses(network=IPv4Network("127.0.0.0/8")))
def test_loopback_addresses(address: IPv4Address) -> None:
    assert is_here(str(address))
    assert is_here(str(ip_address(f"::ffff:{address}")))


@pytest.mark.usefixtures("desk")
class TestAnAgent:
    def test_with_a_base_url_and_a_key_of_its_own_sends_nothing(self) -> None:
        said = failure("desk:real_one")
        assert said == (
            "desk:real_one() raised APIConnectionError: Connection error. (desk.py, line 8); nothing had reached the "
            f"emulator by then{KEPT_FROM}api.openai.com: where that is a model, leave the base URL of its client out, "
            "or take it from ANTHROPIC_BASE_URL or OPENAI_BASE_URL; where it is a database or another service, name a "
            "function that puts a local stand-in in its place"
        )

    def test_that_hides_the_error(self) -> None:
        assert failure("desk:gateway").startswith(
            f"desk:gateway ran, but nothing reached the emulator{KEPT_FROM}10.1.2.3: where that is a model, "
        )

    def test_with_an_azure_endpoint(self) -> None:
        assert f"by then{KEPT_FROM}mine.openai.azure.com: " in failure("desk:azure")

    def test_that_tries_again_for_ever(self) -> None:
        said = failure("desk:retries", timeout_s=5)
        assert said.startswith("desk:retries was not done after 5 s; ")
        assert f"{KEPT_FROM}gateway.example: " in said

    def test_that_can_do_without(self) -> None:
        found = rehearse("desk:looked_up")
        assert [exchange.status for exchange in found.exchanges] == [200, 200]
        assert found.notices == (
            "desk:looked_up was kept from docs.example, kb.example: what it gets from there is not in the requests",
        )

    def test_with_an_event_loop_that_is_not_pythons(self, tmp_path: Path) -> None:
        """Such a loop connects without Python's sockets; here it must not even be imported."""
        (tmp_path / "uvloop.py").write_text("raise AssertionError('imported')", encoding="utf-8")
        assert failure("desk:fast").startswith(
            f"desk:fast ran, but nothing reached the emulator{KEPT_FROM}10.1.2.3: where that is a model, "
        )
