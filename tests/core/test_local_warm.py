"""Warming: what the head of a request is, what the server's counts prove, and the commands that tell of it."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstay.cli import app
from headstay.errors import ConfigError, LocalError
from headstay.local import warm
from headstay.local.client import Figures, Server, Traits, parse_figures, server_at
from headstay.local.home import Home
from headstay.local.supervise import choose_port
from headstay.providers.vllm import Engine

SERVER = Path(__file__).parent / "local_server.py"
SYSTEM = {"role": "system", "content": "Answer as a clerk would."}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.fixture
def mode() -> str:
    return "well"


@pytest.fixture
def server(tmp_path: Path, mode: str) -> Iterator[Server]:
    """A server that has seen nothing yet."""
    port = choose_port(None)
    child = subprocess.Popen([sys.executable, str(SERVER), str(port), mode], cwd=tmp_path)
    running = Server(f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 30
    while not running.is_healthy():
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield running
    child.kill()
    child.wait()


@pytest.mark.parametrize(("mode", "takes"), [("well", True), ("strict", False), ("hoisting", False), ("deaf", False)])
def test_what_a_server_takes_is_found_out_without_generating(server: Server, takes: bool) -> None:
    assert server.traits("small") == Traits(block=4, context=2048, in_place_system=takes)
    assert server.traits("big").context is None


def test_what_a_server_does_not_tell_is_left_open() -> None:
    assert server_at("http://127.0.0.1:9").traits("small") == Traits()


def test_the_head_is_what_shapes_it_and_the_operators_first_messages() -> None:
    later = {"role": "system", "content": "From now on, be brief."}
    body = {
        "model": "small",
        "messages": [SYSTEM, {"role": "developer", "content": "d"}, {"role": "user", "content": "Hi"}, later],
        "tools": [TOOL],
        "stream": True,
        "max_tokens": 500,
        "temperature": 1.0,
        "user": "u1",
        "cache_salt": "tenant-a",
        "chat_template_kwargs": {"thinking": False},
    }
    assert warm.head_of(body) == {
        "model": "small",
        "tools": [TOOL],
        "cache_salt": "tenant-a",
        "chat_template_kwargs": {"thinking": False},
        "messages": [SYSTEM, {"role": "developer", "content": "d"}],
    }
    assert warm.head_of(body, "tenant-b")["cache_salt"] == "tenant-b"
    assert warm.head_of({"messages": [], "tools": [TOOL]})["messages"] == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({}, "no list of messages"),
        ({"messages": "Hi"}, "no list of messages"),
        ({"messages": [{"role": "user", "content": "Hi"}, SYSTEM]}, "there is no head to warm"),
        ({"messages": ["Hi"]}, "there is no head to warm"),
    ],
)
def test_a_request_without_a_head_is_refused(body: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        warm.head_of(body)


def test_the_servers_own_count_proves_it(server: Server) -> None:
    head = warm.head_of({"model": "small", "messages": [SYSTEM]})
    first = warm.warm(server, head)
    # `""` of absent tools, `<system>`, the text's 24 characters, `<user>`: 2 + 8 + 24 + 6 = 40, ten blocks of four
    assert (first.head_tokens, first.block, first.expected, first.before, first.cached) == (40, 4, 40, 0, 40)
    assert first.is_warm
    other = warm.warm(server, {**head, "cache_salt": "tenant-b"})
    assert other.before == 0


def test_less_than_the_whole_blocks_is_not_warm() -> None:
    made = warm.Warmth(head_tokens=70, block=32, expected=64, before=0, cached=32, seconds=0.1)
    assert not made.is_warm
    unknown = warm.Warmth(head_tokens=None, block=None, expected=None, before=0, cached=1, seconds=0.1)
    assert unknown.is_warm


def test_a_server_that_does_not_count_is_told_of(server: Server) -> None:
    with pytest.raises(LocalError, match="--enable-prompt-tokens-details"):
        warm.warm(server, warm.head_of({"model": "small", "messages": [{"role": "system", "content": "silent"}]}))
    with pytest.raises(LocalError, match="HTTP 404: no such model"):
        warm.warm(server, warm.head_of({"model": "absent", "messages": [SYSTEM]}))


def test_the_newest_heads_are_kept_for_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for number in range(warm.KEPT + 3):
        warm.remember(home, {"messages": [number]})
    warm.remember(home, {"messages": [warm.KEPT + 2]})
    kept = warm.remembered(home)
    assert len(kept) == warm.KEPT
    assert {"messages": [warm.KEPT + 2]} in kept
    (file, *_) = (home.run / "heads").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("{")
    assert len(warm.remembered(home)) == warm.KEPT - 1
    warm.forget_all(home)
    assert warm.remembered(home) == []


@pytest.mark.parametrize(
    ("one", "other", "length"), [([], [], 0), ([1], [1], 1), ([1, 2], [1, 3], 1), ([1, 2, 3], [1, 2], 2), ([1], [2], 0)]
)
def test_what_two_prompts_share(one: list[int], other: list[int], length: int) -> None:
    assert warm.shared(one, other) == length


def test_the_counters_of_several_engines_are_added() -> None:
    text = """# HELP vllm:prefix_cache_queries_total tokens
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 50.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 64.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 1.5e+01
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:cache_config_info{block_size="32",engine="0"} 1.0
"""
    assert parse_figures(text) == Figures(queried_tokens=150, read_tokens=79, kv_used=0.5, block=32)
    assert parse_figures("process_cpu_seconds_total 3.0\n") is None


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"),
        ("https://gpu.example/llm/v1", "https://gpu.example/llm"),
    ],
)
def test_a_base_url_may_end_in_v1(url: str, origin: str) -> None:
    assert server_at(url).origin == origin
    assert server_at(url).base_url == f"{origin}/v1"


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://a/v1", "http://", "http://a:port/v1", "http://a:99999"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="give a URL like"):
        server_at(url)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("HEADSTAY_LOCAL_HOME", str(tmp_path / "home"))
    return CliRunner()


def test_the_commands_work_with_a_server_that_runs_elsewhere(
    server: Server, command: CliRunner, tmp_path: Path
) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "gpt-5.4", "messages": [SYSTEM, {"role": "user", "content": "Hi"}]}))
    done = command.invoke(app, ["local", "warm", str(request), "--base-url", server.base_url, "--format", "json"])
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert told.pop("seconds") > 0
    assert told == {"head_tokens": 40, "block": 4, "expected": 40, "before": 0, "cached": 40, "warm": True}
    assert warm.remembered(Home(tmp_path / "home")) == []  # it is not ours to warm again

    done = command.invoke(app, ["local", "status", "--base-url", server.origin, "--format", "json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {
        "serving": True,
        "base_url": server.base_url,
        "models": ["small"],
        "prefix_cache": {"queried_tokens": 8, "read_tokens": 0, "kv_used": 0.0, "block": 4},
    }
    done = command.invoke(app, ["local", "status", "--base-url", server.origin])
    assert done.stdout.splitlines()[0] == f"serving  {server.base_url}"


def test_a_tenants_head_is_warmed_under_the_salt_that_its_requests_carry(
    server: Server, command: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "small", "messages": [SYSTEM]}))
    ask = ["local", "warm", str(request), "--base-url", server.base_url, "--format", "json"]

    def known(*more: str) -> bool:
        done = command.invoke(app, [*ask, *more])
        assert done.exit_code == 0, done.stderr
        return bool(json.loads(done.stdout)["before"] > 0)

    assert [known("--tenant", name) for name in ("north", "north", "south")] == [False, True, False]
    assert known("--salt", str(Engine().salt("south")))
    monkeypatch.setenv("HEADSTAY_SALT_KEY", "a secret of 16 b")
    assert not known("--tenant", "north")
    assert known("--salt", str(Engine(salt_key=b"a secret of 16 b").salt("north")))
    both = command.invoke(app, [*ask, "--tenant", "north", "--salt", "x"])
    assert both.exit_code == 2
    assert "give one of them" in both.stderr


def test_the_commands_say_that_no_server_runs(command: CliRunner, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"messages": [SYSTEM]}))
    assert command.invoke(app, ["local", "stop"]).stdout == "no server runs\n"
    done = command.invoke(app, ["local", "status", "--format", "json"])
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"serving": False})
    assert command.invoke(app, ["local", "status"]).stdout == "not running\n"
    done = command.invoke(app, ["local", "serve"])
    assert done.exit_code == 2
    assert done.stderr.endswith("the local model is not installed; run: headstay local install\n")
    done = command.invoke(app, ["local", "warm", str(request)])
    assert done.exit_code == 2
    assert done.stderr == "headstay: no server runs; start one with: headstay local serve, or give --base-url\n"


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_request_that_cannot_be_read_is_one_line(command: CliRunner, tmp_path: Path, text: str) -> None:
    request = tmp_path / "request.json"
    request.write_text(text)
    done = command.invoke(app, ["local", "warm", str(request)])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert str(request) in done.stderr
