"""The command line: help, versions, exit codes, one clear line."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

import headstay


def run(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headstay.cli", *arguments] if code is None else [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_version_and_help():
    assert run("--version").stdout.strip() == f"headstay {headstay.__version__}"
    assert "emulate" in run("--help").stdout


@pytest.mark.parametrize("arguments", [("nonsense",), ("demo", "--format", "xml"), ("emulate", "--port", "many")])
def test_bad_input_exits_with_two(arguments):
    assert run(*arguments).returncode == 2


def test_a_missing_extra_is_named():
    done = run(
        code="import sys; sys.modules['langchain_openai'] = None; sys.argv = ['headstay', 'demo']\n"
        "from headstay.cli import main; main()"
    )
    assert done.returncode == 2
    assert 'pip install "headstay[demo]"' in done.stderr
    assert done.stdout == ""


def test_a_cache_too_small_for_a_request_is_one_clear_line():
    done = run("emulate", "--vllm", "--blocks", "2")
    assert done.returncode == 2
    assert "give at least 1025 blocks" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_port_in_use_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("emulate", "--port", str(port))
    assert done.returncode == 2
    assert str(port) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "path", "told"),
    [((), "/v1/models", "claude-"), (("--vllm", "--block", "16"), "/metrics", 'block_size="16"')],
)
def test_emulate_serves_until_interrupted(options, path, told):
    # Where the tests run in the background, an interrupt is ignored, and what they start would ignore it too.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    server = subprocess.Popen(
        [sys.executable, "-u", "-c", f"{listening}; from headstay.cli import main; main()", "emulate", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = next(word for word in line.split() if word.startswith("http://127.0.0.1:")).rstrip(".,;/")
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}{path}", timeout=10) as answer:
            assert told in answer.read().decode()
    finally:
        server.send_signal(signal.SIGINT)
        _, err = server.communicate(timeout=30)
    assert server.returncode == 0, err
