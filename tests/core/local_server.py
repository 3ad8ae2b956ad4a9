"""A server with no model that keeps to what the supervisor asks of one. Run as a program: `local_server.py PORT MODE`.

It answers `/health`, `/v1/models`, `/metrics`, `/tokenize` and `/v1/chat/completions`, where a prompt's tokens are its
characters and blocks are four of them. MODE may be `well`; `stubborn`, with a child that ignores SIGTERM; `broken`,
which ends with an error before it serves; `mute`, which never is well; `twice`, which breaks at every start but the
first; `taken`, which finds its port taken at the first start; `late`, which takes its port and does not listen yet;
`wordless`, which ignores SIGTERM and never answers `/tokenize`; or `stalled`, which after its first start answers no
chat. The chat template of `strict` refuses a system message behind others, that of `hoisting` puts it first, and that
of `deaf` leaves it out.
"""

import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BLOCK = 4
SEEN: set[tuple[str, str]] = set()


def prompt_of(body: dict[str, Any]) -> str:
    messages = body["messages"]
    later = [message for message in messages[1:] if message["role"] == "system"]
    if later and sys.argv[2] in ("hoisting", "deaf"):
        first = later if sys.argv[2] == "hoisting" else []
        messages = [*first, *(message for message in messages if message not in later)]
    said = "".join(f"<{message['role']}>{message['content']}" for message in messages)
    return json.dumps(body.get("tools", "")) + said


def read_from_cache(body: dict[str, Any]) -> tuple[int, int]:
    """Return the tokens of the prompt and those of them that were there, and put the prompt's blocks there."""
    prompt, salt = prompt_of(body), body.get("cache_salt", "")
    whole = range(BLOCK, len(prompt), BLOCK)  # the last token is always computed
    read = max((end for end in whole if (salt, prompt[:end]) in SEEN), default=0)
    SEEN.update((salt, prompt[:end]) for end in (*whole, len(prompt) // BLOCK * BLOCK))
    return len(prompt), read


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(b"", 503 if sys.argv[2] == "mute" else 200)
        elif self.path == "/v1/models":
            self.answer(b'{"data": [{"id": "small", "max_model_len": 2048}]}')
        elif self.path == "/metrics":
            counted = f'vllm:prefix_cache_queries_total 8.0\nvllm:cache_config_info{{block_size="{BLOCK}"}} 1.0\n'
            self.answer(counted.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stalled = sys.argv[2] == "stalled" and self.path != "/tokenize" and Path("starts").read_text() != "x"
        if stalled or (sys.argv[2] == "wordless" and self.path == "/tokenize"):
            Path("asked").touch()
            time.sleep(60)
        if self.path == "/tokenize" and sys.argv[2] == "strict" and body["messages"][-1]["role"] == "system":
            self.answer(b'{"error": {"message": "a system message comes first"}}', 400)
            return
        if self.path == "/tokenize":
            self.answer(json.dumps({"tokens": [ord(letter) for letter in prompt_of(body)]}).encode())
            return
        if body["model"] != "small":
            self.answer(b'{"error": {"message": "no such model"}}', 404)
            return
        tokens, read = read_from_cache(body)
        usage: dict[str, Any] = {"prompt_tokens": tokens}
        if "silent" not in body["messages"][0]["content"]:
            usage["prompt_tokens_details"] = {"cached_tokens": read}
        self.answer(json.dumps({"usage": usage}).encode())

    def answer(self, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_told: object) -> None:
        return


def main(port: int, mode: str) -> None:
    starts = Path("starts")
    count = len(starts.read_text()) + 1 if starts.exists() else 1
    starts.write_text("x" * count)
    if mode == "broken" or (mode == "twice" and count > 1):
        prefix = "(EngineCore pid=1) ERROR 11-29 22:00:00 [core.py:1]"
        print(f"{prefix} ValueError: there is no room for the cache", flush=True)
        print("RuntimeError: Engine core initialization failed. See root cause above.", flush=True)
        sys.exit(1)
    if mode == "taken" and count == 1:
        sys.exit("OSError: [Errno 98] Address already in use")
    if mode == "late":
        with socket.socket() as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as vLLM does
            bound.bind(("127.0.0.1", port))
            Path("bound").touch()
            time.sleep(60)
    if mode == "stubborn" and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("child").write_text(str(os.getpid()))
        time.sleep(60)
        os._exit(0)
    if mode == "wordless":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
