"""The real vllm-router, in an environment of its own that is made again whenever its pins change."""

import hashlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PINS = Path(__file__).with_name("router_pins.txt")


def router_program(folder: Path) -> Path:
    """Return the router's program; install it if the folder is not of these pins and this Python."""
    wanted = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()
    stamp = folder / ".pins"
    program = folder / "bin" / "vllm-router"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        if (folder / "pyvenv.cfg").is_file():
            shutil.rmtree(folder)
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [
                *(str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
                *("--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(PINS)),
            ],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr
        stamp.write_text(wanted, encoding="utf-8")
    return program


def of_policy(policy: str, origins: Sequence[str]) -> list[str]:
    """Return the arguments for a policy in front of replicas, which are named without `/v1`."""
    return ["--policy", policy, "--worker-urls", *origins]


@contextmanager
def routing(program: Path, arguments: Sequence[str], log: Path) -> Iterator[str]:
    """Run the router on free ports of the loopback; give its base URL.

    Args:
        program: What `router_program` returned.
        arguments: Its policy and replicas; of a setting that is given twice it takes the last.
        log: Where to write what it says.
    """
    port, metrics = _free_ports()
    command = [str(program), *arguments, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--prometheus-port", str(metrics), "--worker-startup-check-interval", "1"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        _await_health(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


def _await_health(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                if response.status == 200:
                    return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(log.read_text(encoding="utf-8", errors="replace"))


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]
