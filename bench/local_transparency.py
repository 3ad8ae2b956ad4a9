"""Whether local vLLM answers the same with its prefix cache on and off, and with headstay and without.

Run: python bench/local_transparency.py [--dtype NAME ...] [--format json]

Twenty prompts of 300 to 1,500 tokens, 16 tokens each, greedy. One server runs with `--no-enable-prefix-caching`, the
other one as headstay starts it; each answers a bare `openai` client and `ChatLocal` under headstay. The prompts have
no values that vary, so that headstay sends the same text: that is checked, token by token. Where two answers part, the
two best log-probabilities at that place are shown: within 1e-3 of each other the choice is a matter of rounding.
It serves SmolLM2 itself, beside any server of yours; `headstay local install` comes first.
"""

import argparse
import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
from openai import OpenAI

from headstay import HeadStore, Ledger, __version__
from headstay.errors import HeadstayError
from headstay.local.client import server_at
from headstay.local.device import BFLOAT16_FLAGS, OLDEST_PYTHON, read_facts
from headstay.local.home import find_home
from langchain_headstay import ChatLocal, cache_aware
from langgraph_headstay.demo_server import own_server
from ledger import machine
from local_prompts import KINDS, Prompt, prompts

GENERATED = 16  # tokens
EXCUSED = 1e-3  # between the two best log-probabilities: less is a matter of rounding
PACKAGES = ("langchain-openai", "openai")


class Answer(NamedTuple):
    """What the server said to a prompt.

    Attributes:
        prompt: The token ids that it read the prompt as.
        read: How many of them came from the cache.
        tokens: The token ids that it generated.
        gaps: Between the two best log-probabilities, at each of them.
    """

    prompt: tuple[int, ...]
    read: int
    tokens: tuple[int, ...]
    gaps: tuple[float, ...]


def answer_of(told: Mapping[str, Any]) -> Answer:
    """Read the body of a response.

    Args:
        told: Of a request with `return_token_ids` and `top_logprobs`.
    """
    choice = told["choices"][0]
    best = [sorted((one["logprob"] for one in place["top_logprobs"]), reverse=True) for place in _places(choice)]
    details: Mapping[str, int | None] = told["usage"]["prompt_tokens_details"] or {}  # none without a cache
    return Answer(
        prompt=tuple(told["prompt_token_ids"]),
        read=details.get("cached_tokens") or 0,
        tokens=tuple(choice["token_ids"]),
        gaps=tuple(first - second for first, second, *_ in best),
    )


def _places(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    places: Sequence[Mapping[str, Any]] = choice["logprobs"]["content"]
    return places


@dataclass
class Askers:
    """Two ways to ask one server: a bare client, and a chat model under headstay.

    Attributes:
        base_url: The server.
        ledger: Where headstay accounts for its calls.
    """

    base_url: str
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._server = server_at(self.base_url)
        self._model = self._server.models()[0]
        self._traits = self._server.traits(self._model)
        self._last: dict[str, Any] = {}
        self._heads = HeadStore()
        self._client = httpx2.Client(event_hooks={"response": [self._keep]}, timeout=600)
        self._sdk = OpenAI(base_url=self.base_url, api_key="none", max_retries=0, http_client=self._client)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
        self._heads.close()
        self.ledger.close()

    def bare(self, prompt: Prompt, salt: str, generated: int = GENERATED) -> Answer:
        """Ask with the SDK alone.

        Args:
            prompt: The prompt.
            salt: Requests with one salt share what is cached.
            generated: Tokens to generate.
        """
        tools: dict[str, Any] = {"tools": prompt.tools} if prompt.tools else {}
        messages: Any = prompt.messages
        self._sdk.chat.completions.create(
            model=self._model, messages=messages, max_tokens=generated, temperature=0, **_PROBABLE, **tools,
            extra_body=_extra(salt),
        )  # fmt: skip
        return answer_of(self._last)

    def headstay(self, prompt: Prompt, salt: str) -> Answer:
        """Ask with LangChain's chat model under headstay.

        Args:
            prompt: The prompt.
            salt: The application's own: headstay lets it stand.
        """
        model = ChatLocal(
            model=self._model,
            base_url=self.base_url,
            block_size=self._traits.block or 16,
            in_place_system=bool(self._traits.in_place_system),
            http_client=self._client,
            temperature=0,
            max_tokens=GENERATED,
            max_retries=0,
            extra_body=_extra(salt),
            **_PROBABLE,
        )
        aware: Any = cache_aware(model, name="proof", on_break="record", head_store=self._heads, ledger=self.ledger)
        (aware.bind_tools(prompt.tools) if prompt.tools else aware).invoke(prompt.messages)
        return answer_of(self._last)

    def _keep(self, response: httpx2.Response) -> None:
        response.read()
        if response.status_code == 200:
            self._last = response.json()


_PROBABLE: dict[str, Any] = {"logprobs": True, "top_logprobs": 2}


def _extra(salt: str) -> dict[str, Any]:
    return {"cache_salt": salt, "return_token_ids": True, "ignore_eos": True}


class Pair(NamedTuple):
    """Two answers to one prompt that should be the same.

    Attributes:
        prompt: What was asked.
        name: Which two.
        reference: The one that nothing was done for.
        other: The other one.
    """

    prompt: Prompt
    name: str
    reference: Answer
    other: Answer

    @property
    def parts_at(self) -> int | None:
        """Where the generated tokens part, or None: they are equal."""
        both = zip(self.reference.tokens, self.other.tokens, strict=True)
        return next((place for place, (one, other) in enumerate(both) if one != other), None)

    @property
    def gap(self) -> float:
        """Between the two best log-probabilities where the answers part; without end where they are equal."""
        place = self.parts_at
        return float("inf") if place is None else min(self.reference.gaps[place], self.other.gaps[place])

    @property
    def is_excused(self) -> bool:
        """Whether they part where the choice is a matter of rounding."""
        return self.gap < EXCUSED

    def __str__(self) -> str:
        """Say where they part, for whoever looks for the reason."""
        sizes = f"{self.prompt.kind}, {len(self.reference.prompt)} tokens, {self.other.read} read"
        return f"{self.name}: {sizes}: parts at token {self.parts_at}, gap {self.gap:.2e}"


def without_cache(askers: Askers, asked: Sequence[Prompt]) -> list[dict[str, Answer]]:
    """Ask in both ways so that nothing can be read from a cache.

    Args:
        askers: The server's; it may have a cache, since each request has a salt of its own.
        asked: The prompts.
    """
    return [
        {"bare": askers.bare(prompt, uuid4().hex), "headstay": askers.headstay(prompt, uuid4().hex)} for prompt in asked
    ]


def with_cache(askers: Askers, asked: Sequence[Prompt]) -> list[dict[str, Answer]]:
    """Ask in both ways so that each request finds the beginning of its prompt in the cache.

    The bare client reads what the next shorter prompt left there, headstay what the bare client left there.

    Args:
        askers: The server's.
        asked: The prompts of one kind, the shortest first.
    """
    salt = uuid4().hex
    first = asked[0]
    other = {**first.messages[-1], "content": f"{first.messages[-1]['content']} And why?"}
    askers.bare(first._replace(messages=[*first.messages[:-1], other]), salt, generated=1)
    return [{"bare": askers.bare(prompt, salt), "headstay": askers.headstay(prompt, salt)} for prompt in asked]


def pairs_of(prompt: Prompt, off: Mapping[str, Answer], on: Mapping[str, Answer]) -> Iterator[Pair]:
    """Yield what is compared of one prompt: everything with the bare client's answer without a cache."""
    yield Pair(prompt, "cache off, headstay", off["bare"], off["headstay"])
    yield Pair(prompt, "cache on, bare", off["bare"], on["bare"])
    yield Pair(prompt, "cache on, headstay", off["bare"], on["headstay"])


def summed(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Count what is equal, what is excused and what differs, and what was read."""
    parted = [pair for pair in pairs if pair.parts_at is not None]
    reads = [pair.other.read / len(pair.other.prompt) for pair in pairs if pair.name.startswith("cache on")]
    sizes = [len(pair.reference.prompt) for pair in pairs]
    return {
        "compared": len(pairs),
        "same_prompt": sum(pair.reference.prompt == pair.other.prompt for pair in pairs),
        "equal": len(pairs) - len(parted),
        "excused": [str(pair) for pair in parted if pair.is_excused],
        "different": [str(pair) for pair in parted if not pair.is_excused],
        "prompt_tokens": [min(sizes), max(sizes)],
        "read_share": [round(min(reads), 3), round(max(reads), 3)] if reads else [],
        "smallest_gap": min(min(pair.reference.gaps) for pair in pairs),
    }


def measure(dtype: str) -> dict[str, Any]:
    """Compare with one number type: a server without prefix caching, then one with it.

    Args:
        dtype: As vLLM calls it.
    """
    kinds = {kind: prompts(kind) for kind in KINDS}
    found: dict[str, dict[str, list[dict[str, Answer]]]] = {}
    for way, ask, more in (("off", without_cache, ("--arg=--no-enable-prefix-caching",)), ("on", with_cache, ())):
        print(f"{dtype}, prefix cache {way}", file=sys.stderr)
        arguments = ("--dtype", dtype, "--context", "4096", "--kv-gib", "1", *more)
        with own_server(find_home(), *arguments, say=lambda line: print(line, file=sys.stderr)) as started:
            askers = Askers(started.base_url)
            found[way] = {kind: ask(askers, asked) for kind, asked in kinds.items()}
            askers.close()
    pairs = [
        pair
        for kind, asked in kinds.items()
        for prompt, off, on in zip(asked, found["off"][kind], found["on"][kind], strict=True)
        for pair in pairs_of(prompt, off, on)
    ]
    return {"dtype": dtype, **summed(pairs)}


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    """Write the result of one number type."""
    yield (
        f"{result['dtype']:<10}{result['compared']} answers compared, prompts of {result['prompt_tokens']} tokens "
        f"({result['same_prompt']} the same token by token), share read with the cache {result['read_share']}"
    )
    yield (
        f"{'':<10}equal {result['equal']}, excused {len(result['excused'])}, different {len(result['different'])}; "
        f"smallest gap anywhere {result['smallest_gap']:.2e}"
    )
    yield from (f"{'':<10}excused: {text}" for text in result["excused"])
    yield from (f"{'':<10}DIFFERENT: {text}" for text in result["different"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", action="append", help="default float32, and bfloat16 where the CPU has it")
    parser.add_argument("--format", choices=("text", "json"), default="text", dest="form")
    options = parser.parse_args()
    fast = bool(BFLOAT16_FLAGS & read_facts(OLDEST_PYTHON).flags)
    try:
        results = [measure(dtype) for dtype in options.dtype or ("float32", *(["bfloat16"] if fast else []))]
    except HeadstayError as problem:
        sys.exit(f"local_transparency: {problem}")
    about: dict[str, Any] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "versions": {"headstay": __version__, "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES},
    }
    if options.form == "json":
        print(json.dumps({"about": about, "results": results}, ensure_ascii=False))
        return
    print(f"date      {about['date']}")
    print(f"machine   {about['machine']}")
    print("versions  " + ", ".join(f"{name} {number}" for name, number in about["versions"].items()))
    for result in results:
        print("\n".join(lines(result)))


if __name__ == "__main__":
    main()
