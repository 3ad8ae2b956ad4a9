"""The time to the first token on local vLLM: a cold head against a warm one, and what headstay adds to a warm call.

Run: python bench/local_ttft.py [--rounds 10] [--head 1500] [--dtype NAME ...] [--base-url URL] [--json]

Each round makes four streaming calls with the same head and a new tail each, in an order that changes with the rounds,
so that other load hits all alike: cold (a cache salt that nobody used before) and warm with a bare `openai` client,
warm with a bare `ChatLocal`, and warm with `ChatLocal` under headstay. What was read is checked call by call in the
server's own usage: nothing when cold, every whole block of the head when warm.

It serves SmolLM2 itself, beside any server of yours, and once for each number type where the CPU has bfloat16.
`headstay local install` comes first, unless --base-url names a server.
"""

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from typing import Any, NamedTuple
from uuid import uuid4

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from openai import OpenAI

from headstay import Ledger, __version__
from headstay.errors import HeadstayError, LocalError
from headstay.flow import Flow
from headstay.local.client import Server, server_at
from headstay.local.device import BFLOAT16_FLAGS, OLDEST_PYTHON, read_facts
from headstay.local.home import find_home
from headstay.local.warm import shared
from langchain_headstay import ChatLocal, cache_aware
from langgraph_headstay.demo_server import own_server
from ledger import machine

PROMISED_RATIO = 12.0
PROMISED_SHARE_MS = 1.0
TAIL_TOKENS = 50
OUTPUT_TOKENS = 4
FIRST_NUMBER = 1_000  # each tail begins with a number of four digits, each a token of its own
KINDS = ("cold", "warm", "warm ChatLocal", "warm headstay")
# In these four orders each kind follows each other kind once: a call behind a cold one may find a busier machine.
ORDERS = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
PAUSE_S = 0.5  # between calls, so that none waits for what the one before has left running
RULE = "Rule {n}: answer questions on topic {n} briefly, quote the paragraph, and say what happens next and when."
STORY = (
    "The customer writes about an order that came late, asks who pays for the way back, and how soon it is settled. "
)
_PREFILL = re.compile(r"^vllm:request_prefill_time_seconds_sum(?:\{.*\})? (\S+)$", re.MULTILINE)
PACKAGES = ("openai", "langchain-openai", "langchain-core")


class Clocks(NamedTuple):
    """A reading of two clocks, in nanoseconds."""

    wall: int
    cpu: int

    @classmethod
    def now(cls) -> "Clocks":
        """Read the wall clock and the CPU clock of this thread."""
        return cls(time.perf_counter_ns(), time.thread_time_ns())

    def elapsed(self) -> tuple[float, float]:
        """Return milliseconds of wall and CPU since this reading."""
        now = Clocks.now()
        return (now.wall - self.wall) / 1e6, (now.cpu - self.cpu) / 1e6


@dataclass
class Times:
    """Milliseconds of wall and CPU, a value for each call."""

    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])

    def add(self, start: Clocks) -> None:
        """Note what has passed."""
        wall, cpu = start.elapsed()
        self.wall.append(wall)
        self.cpu.append(cpu)


class Prompt(NamedTuple):
    """A request and what is known of it.

    Attributes:
        system: The head's text.
        user: The tail's text.
        tokens: Tokens of the prompt, by the server's tokenizer.
    """

    system: str
    user: str
    tokens: int


class Prompts:
    """One head and ever new tails, of given lengths by the server's own tokenizer and template.

    Args:
        server: The server.
        model: Its name for the model.
        head: Tokens that all prompts begin with, at most.
        block: Tokens of a block of its cache.

    Raises:
        LocalError: The server does not tell how it tokenises.
    """

    def __init__(self, server: Server, model: str, head: int, block: int) -> None:
        self._server, self._model, self._numbers = server, model, count(FIRST_NUMBER)
        # the first digits of two numbers may be alike: they must fill no block that the head alone does not
        limit = head - max(0, head % block + 4 - block)
        words = " ".join(RULE.format(n=n) for n in range(1, head // 10)).split()
        self._system = " ".join(words[: _most(len(words), limit, lambda n: self._head(" ".join(words[:n])))])
        self.head = self._head(self._system)
        self.readable = self.head // block * block
        story = (STORY * (TAIL_TOKENS // 10)).split()
        self._story = " ".join(story[: _most(len(story), TAIL_TOKENS, lambda n: self._tail(" ".join(story[:n])))])

    def new(self) -> Prompt:
        """Return the head with a tail that no earlier one shares a block with."""
        user = f"{next(self._numbers)} {self._story}"
        return Prompt(self._system, user, len(self._tokens(self._system, user)))

    def _head(self, system: str) -> int:
        return shared(self._tokens(system, "1"), self._tokens(system, "2"))

    def _tail(self, story: str) -> int:
        return len(self._tokens(self._system, f"{FIRST_NUMBER} {story}")) - self.head

    def _tokens(self, system: str, user: str) -> list[int]:
        said = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        tokens = self._server.tokens({"model": self._model, "messages": said})
        if tokens is None:
            raise LocalError(f"{self._server.origin}/tokenize: the server does not say how it tokenises")
        return tokens


def _most(upper: int, limit: int, size: Callable[[int], int]) -> int:
    """Return the greatest number up to `upper` whose size is within the limit."""
    low = 1
    while low < upper:
        middle = (low + upper + 1) // 2
        low, upper = (middle, upper) if size(middle) <= limit else (low, middle - 1)
    return low


class Answer(NamedTuple):
    """What came back: the counts of the server's usage, after the first token was seen."""

    prompt: int
    cached: int


Ask = Callable[[Prompt, Times], Answer]


def bare_ask(client: OpenAI, model: str, salt: Callable[[], str]) -> Ask:
    """Return a call with the SDK alone."""

    def ask(prompt: Prompt, times: Times) -> Answer:
        messages: list[Any] = [
            {"role": "system", "content": prompt.system},
            {"role": "user", "content": prompt.user},
        ]
        usage, start, waiting = None, Clocks.now(), True
        for chunk in client.chat.completions.create(
            model=model,
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
            max_completion_tokens=OUTPUT_TOKENS,
            temperature=0,
            extra_body={"cache_salt": salt(), "ignore_eos": True},
        ):
            if waiting and chunk.choices and chunk.choices[0].delta.content:
                times.add(start)
                waiting = False
            usage = chunk.usage or usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        return Answer(usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0)

    return ask


def model_ask(model: ChatLocal) -> Ask:
    """Return a call with LangChain's chat model, as it is or under headstay."""

    def ask(prompt: Prompt, times: Times) -> Answer:
        messages: list[BaseMessage] = [SystemMessage(prompt.system), HumanMessage(prompt.user)]
        usage, start, waiting = None, Clocks.now(), True
        for chunk in model.stream(messages):
            if waiting and chunk.content:
                times.add(start)
                waiting = False
            usage = chunk.usage_metadata or usage
        assert usage is not None
        return Answer(usage["input_tokens"], usage.get("input_token_details", {}).get("cache_read", 0))

    return ask


class Share:
    """headstay's own work in the calls that are measured: before the request leaves, and after the reply."""

    def __init__(self, flow: Flow) -> None:
        self.prepare, self.complete = Times(), Times()
        for name, times in (("prepare", self.prepare), ("complete", self.complete)):
            setattr(flow, name, _timed(getattr(flow, name), times))

    def told(self, first: int) -> dict[str, Any]:
        """Sum up the calls from the given one on."""
        parts = {"prepare": self.prepare, "complete": self.complete}
        wall = [sum(both) for both in zip(self.prepare.wall[first:], self.complete.wall[first:], strict=True)]
        return {
            "median_ms": median(wall),
            "worst_ms": round(max(wall), 3),
            **{f"{name}_ms": median(times.wall[first:]) for name, times in parts.items()},
            **{f"{name}_cpu_ms": median(times.cpu[first:]) for name, times in parts.items()},
            "met": statistics.median(wall) <= PROMISED_SHARE_MS,
        }


def _timed(method: Callable[..., Any], times: Times) -> Callable[..., Any]:
    def measured(*arguments: Any, **named: Any) -> Any:
        start = Clocks.now()
        result = method(*arguments, **named)
        times.add(start)
        return result

    return measured


def median(values: Sequence[float]) -> float:
    """Return the median to a microsecond."""
    return round(statistics.median(values), 3)


class Engine:
    """The server's own clocks: how long requests were in its engine until their first token.

    Args:
        server: The server.
    """

    def __init__(self, server: Server) -> None:
        self._server, self._before = server, 0.0
        self.version: str = json.loads(self._get("/version"))["version"]
        self.taken()

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(f"{self._server.origin}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def taken(self) -> float:
        """Return milliseconds in the engine since the last look."""
        found = _PREFILL.findall(self._get("/metrics"))
        before, self._before = self._before, 1e3 * sum(map(float, found))
        return self._before - before


def measure(base_url: str, head: int, rounds: int) -> dict[str, Any]:
    """Measure one server.

    Args:
        base_url: Where it is.
        head: Tokens that all prompts begin with.
        rounds: How often each kind of call is made.

    Returns:
        What was sent and read, `calls` with a row for each kind, the ratios, and headstay's own share.

    Raises:
        LocalError: The server read something else than it should have, or cannot be measured.
    """
    server = server_at(base_url)
    name = server.models()[0]
    block = server.traits(name).block
    if block is None:
        raise LocalError(f"{server.origin}/metrics: the server does not say how long a block is")
    prompts, salt = Prompts(server, name, head, block), uuid4().hex
    ledger = Ledger()
    plain = ChatLocal(
        model=name,
        base_url=base_url,
        block_size=block,
        temperature=0,
        max_tokens=OUTPUT_TOKENS,
        extra_body={"cache_salt": salt, "ignore_eos": True},
    )
    aware: Any = cache_aware(plain, name="bench", ledger=ledger)
    share, engine = Share(aware.headstay_binding.flow), Engine(server)
    rows = {kind: Row() for kind in KINDS}
    with OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=600) as client:
        asks: dict[str, Ask] = {
            "cold": bare_ask(client, name, lambda: uuid4().hex),
            "warm": bare_ask(client, name, lambda: salt),
            "warm ChatLocal": model_ask(plain),
            "warm headstay": model_ask(aware),
        }
        for ask in asks.values():  # connections are opened, code is loaded, and the head is there
            ask(prompts.new(), Times())
        engine.taken()
        for number, kind in enumerate(_order(rounds)):
            prompt = prompts.new()
            time.sleep(PAUSE_S)
            answer = asks[kind](prompt, rows[kind].times)
            rows[kind].engine.append(engine.taken())
            rows[kind].answers.append(answer)
            _check(kind, prompt, answer, prompts.readable)
            print(f"\r{number + 1} of {rounds * len(KINDS)}: {kind:<16}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
    judged = [row.unverified or row.status for row in ledger.rows()]
    if set(judged[1:]) != {"ok"}:
        raise LocalError(f"the ledger does not find every warm call as it should be: {judged}")
    return _told(rows, prompts, block) | {"vllm": engine.version, "share": share.told(1)}


@dataclass
class Row:
    """What was measured of one kind of call, in order.

    Attributes:
        times: From the call to the first chunk with text.
        engine: Milliseconds in the server's engine until its first token.
        answers: What the usage said.
    """

    times: Times = field(default_factory=Times)
    engine: list[float] = field(default_factory=list[float])
    answers: list[Answer] = field(default_factory=list[Answer])

    def told(self) -> dict[str, Any]:
        """Sum up."""
        return {
            "median_ms": median(self.times.wall),
            "min_ms": round(min(self.times.wall), 3),
            "max_ms": round(max(self.times.wall), 3),
            "engine_ms": median(self.engine),
            "client_cpu_ms": median(self.times.cpu),
            "cached": sorted({answer.cached for answer in self.answers}),
            "prompt": sorted({answer.prompt for answer in self.answers}),
        }


def _order(rounds: int) -> Iterator[str]:
    for number in range(rounds):
        yield from (KINDS[place] for place in ORDERS[number % len(ORDERS)])


def _check(kind: str, prompt: Prompt, answer: Answer, readable: int) -> None:
    wanted = Answer(prompt.tokens, 0 if kind == "cold" else readable)
    if answer != wanted:
        raise LocalError(
            f"{kind}: the usage says {answer.cached} of {answer.prompt} prompt tokens were read, and it should be "
            f"{wanted.cached} of {wanted.prompt}"
        )


def _told(rows: dict[str, Row], prompts: Prompts, block: int) -> dict[str, Any]:
    calls = {kind: row.told() for kind, row in rows.items()}
    cold, warm, bare, ours = (calls[kind] for kind in KINDS)
    ratio = cold["median_ms"] / warm["median_ms"]
    return {
        "head_tokens": prompts.head,
        "block": block,
        "readable": prompts.readable,
        "calls": calls,
        "cold_over_warm": round(ratio, 2),
        "cold_over_warm_of_minima": round(cold["min_ms"] / warm["min_ms"], 2),
        "cold_over_warm_headstay": round(cold["median_ms"] / ours["median_ms"], 2),
        "headstay_over_chat_local_ms": round(ours["median_ms"] - bare["median_ms"], 3),
        "headstay_over_chat_local_client_cpu_ms": round(ours["client_cpu_ms"] - bare["client_cpu_ms"], 3),
        "met": ratio >= PROMISED_RATIO,
    }


def runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure what was asked for, server by server.

    Raises:
        HeadstayError: A server cannot be started or measured.
    """
    if options.base_url is not None:
        told = measure(options.base_url, options.head, options.rounds)
        yield {"server": options.base_url, "dtype": "as served", "default": False, **told}
        return
    fast = bool(BFLOAT16_FLAGS & read_facts(OLDEST_PYTHON).flags)
    default = "bfloat16" if fast else "float32"
    for dtype in options.dtype or (["bfloat16", "float32"] if fast else ["float32"]):
        print(f"serving {dtype}", file=sys.stderr)
        arguments = ("--dtype", dtype, "--context", "4096", "--kv-gib", "1")
        with own_server(find_home(), *arguments, say=lambda line: print(line, file=sys.stderr)) as started:
            told = measure(started.base_url, options.head, options.rounds)
        yield {"server": started.device, "dtype": dtype, "default": dtype == default, **told}


def show(run: dict[str, Any]) -> None:
    """Print one server's figures."""
    default = ", the default here" if run["default"] else ""
    print(f"\n{run['dtype']}{default}: vLLM {run['vllm']}, {run['server']}")
    print(f"head of {run['head_tokens']} tokens, blocks of {run['block']}: {run['readable']} can be read")
    print(f"{'':<16}{'median ms':>10}{'min':>9}{'max':>9}{'in engine':>11}{'client CPU':>12}   cached of prompt")
    for kind, row in run["calls"].items():
        counts = " of ".join("/".join(map(str, row[name])) for name in ("cached", "prompt"))
        print(
            f"{kind:<16}{row['median_ms']:>10.1f}{row['min_ms']:>9.1f}{row['max_ms']:>9.1f}{row['engine_ms']:>11.1f}"
            f"{row['client_cpu_ms']:>12.2f}   {counts}"
        )
    print(
        f"cold / warm: {run['cold_over_warm']:.1f}, promised >= {PROMISED_RATIO:g}: {'met' if run['met'] else 'MISSED'}"
        f" (minima {run['cold_over_warm_of_minima']:.1f}; under headstay {run['cold_over_warm_headstay']:.1f})"
    )
    share = run["share"]
    cpu = share["prepare_cpu_ms"] + share["complete_cpu_ms"]
    print(
        f"headstay's own share: {share['median_ms']:.2f} ms, promised <= {PROMISED_SHARE_MS:g}: "
        f"{'met' if share['met'] else 'MISSED'} (prepare {share['prepare_ms']:.2f}, complete "
        f"{share['complete_ms']:.2f}; CPU {cpu:.2f}; worst call {share['worst_ms']:.2f})"
    )
    print(
        f"warm headstay - warm ChatLocal: {run['headstay_over_chat_local_ms']:+.1f} ms of wall, "
        f"{run['headstay_over_chat_local_client_cpu_ms']:+.2f} ms of the client's CPU"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--head", type=int, default=1_500, help="tokens that all prompts begin with")
    parser.add_argument("--dtype", action="append", choices=("bfloat16", "float32"), help="default: what suits the CPU")
    parser.add_argument("--base-url", help="measure this server instead of one of our own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    about = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "headstay": __version__,
            **{name: version(name) for name in PACKAGES},
        },
        "rounds": options.rounds,
    }
    try:
        found = list(runs(options))
    except HeadstayError as problem:
        sys.exit(f"local_ttft: {problem}")
    if options.json:
        print(json.dumps({**about, "load_after": os.getloadavg()[0], "runs": found}))
        return
    print(f"date      {about['date']}")
    print(f"machine   {about['machine']}; {os.getloadavg()[0]:.1f} afterwards")
    print("versions  " + ", ".join(f"{name} {number}" for name, number in about["versions"].items()))
    print(f"calls     {options.rounds} of each kind, streaming, in turn; times to the first chunk with text")
    for run in found:
        show(run)


if __name__ == "__main__":
    main()
