"""The life of an emulator: start, stop, several at once, what it records and hides."""

import gc
import socket
import sys
import threading
import time
from typing import Any

import anthropic
import pytest

from headstay import emulator
from headstay.emulator import Emulator, EmulatorStartError, SystemClock, serve

SAID: list[Any] = [{"role": "user", "content": "hi"}]


def say(running: Emulator, key: str = "k") -> None:
    with anthropic.Anthropic(api_key=key, base_url=running.base_url, max_retries=0) as client:
        client.messages.create(model="claude-sonnet-4-6", max_tokens=9, messages=SAID)


def test_without_a_with_block_and_more_than_once() -> None:
    running = Emulator()
    running.stop()  # nothing to do yet
    for _ in range(2):
        assert running.start() is running
        say(running)
        running.stop()
    assert len(running.exchanges) == 2
    assert isinstance(running.clock, SystemClock)


def test_stopping_leaves_no_thread_and_frees_the_port() -> None:
    before = set(threading.enumerate())
    with serve() as running, anthropic.Anthropic(api_key="k", base_url=running.base_url) as client:
        client.messages.create(model="claude-sonnet-4-6", max_tokens=9, messages=SAID)
        # A connection that is kept alive does not hold up the stop.
    assert set(threading.enumerate()) <= before
    gc.collect()  # an open socket would warn here, and warnings are errors
    with serve(port=running.port) as again:
        assert again.port == running.port


def test_a_stop_does_not_wait_for_a_held_answer() -> None:
    failed: list[Exception] = []

    def ask(running: Emulator) -> None:
        try:
            say(running)
        except anthropic.APIError as error:
            failed.append(error)

    with serve() as running:
        running.hold(2)
        thread = threading.Thread(target=ask, args=(running,))
        thread.start()
        deadline = time.monotonic() + 5
        while not running.waiting and time.monotonic() < deadline:
            time.sleep(0.002)
        assert running.waiting == 1
    thread.join(5)
    assert len(failed) == 1


def test_a_taken_port_is_one_clear_error() -> None:
    with (
        serve() as running,
        pytest.raises(EmulatorStartError, match=f"127.0.0.1:{running.port}: it is in use"),
    ):
        Emulator(port=running.port).start()


def test_an_impossible_port_and_a_second_start_are_clear_errors() -> None:
    with pytest.raises(EmulatorStartError, match="cannot listen on"):
        Emulator(port=70_000).start()
    with serve() as running, pytest.raises(EmulatorStartError, match="already listens"):
        running.start()


def test_it_listens_on_the_loopback_interface_only() -> None:
    with serve() as running:
        assert running.base_url == f"http://127.0.0.1:{running.port}"
        assert running.openai_url == f"http://127.0.0.1:{running.port}/v1"
        with socket.create_connection(("127.0.0.1", running.port), timeout=2) as peer:
            assert peer.getpeername()[0] == "127.0.0.1"


def test_several_run_at_once_and_share_nothing() -> None:
    head: list[Any] = [{"type": "text", "text": " word" * 1500, "cache_control": {"type": "ephemeral"}}]
    with serve() as one, serve() as two:
        assert one.port != two.port
        for running in (one, two):
            with anthropic.Anthropic(api_key="k", base_url=running.base_url) as client:
                message = client.messages.create(model="claude-sonnet-4-6", max_tokens=9, system=head, messages=SAID)
            assert message.usage.cache_creation_input_tokens == 1500
            assert message.id == "msg_000000000001"
        assert len(one.exchanges) == len(two.exchanges) == 1


def test_what_is_recorded_and_what_is_hidden(server: Emulator) -> None:
    say(server, key="sk-secret")
    (exchange,) = server.exchanges
    assert (exchange.wire, exchange.path, exchange.status) == ("anthropic-messages", "/v1/messages", 200)
    assert exchange.body["messages"] == SAID
    assert exchange.headers["authorization"] == "***"
    assert exchange.headers["anthropic-version"]
    assert exchange.response["usage"]["input_tokens"] == 1
    assert exchange.started == exchange.first_event == server.clock.now()
    assert "sk-secret" not in repr(exchange)
    server.reset()
    assert server.exchanges == ()


def test_nothing_is_recorded_when_switched_off() -> None:
    with serve(record=False) as running:
        say(running)
        assert running.exchanges == ()


def test_latency_is_real_time_before_the_first_event() -> None:
    with serve(latency=0.05) as running:
        say(running)
        (exchange,) = running.exchanges
        assert exchange.first_event - exchange.started >= 0.05


def test_run_says_where_it_listens_and_ends_on_request() -> None:
    said: list[str] = []
    until = threading.Event()
    until.set()
    emulator.run(announce=said.append, until=until)
    (line,) = said
    assert "anthropic http://127.0.0.1:" in line
    assert "/v1" in line


def test_run_ends_quietly_when_interrupted() -> None:
    before = set(threading.enumerate())

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    emulator.run(announce=interrupt)
    assert set(threading.enumerate()) <= before


def test_names_of_the_package() -> None:
    for name in emulator.__all__:
        assert getattr(emulator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = emulator.nothing


def test_a_missing_server_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r'pip install "headstay\[emulator\]"'):
        Emulator().start()
    gc.collect()  # the port it had taken is free again: an open socket would warn
