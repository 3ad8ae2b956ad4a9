"""The real engine examines the emulator: the same requests to both, and the same tokens read and cached, exactly."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pytest
from openai import BadRequestError, OpenAI
from tests.local.tiny_model import ARGUMENTS, make_tiny_model

from headstay import emulator
from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import AgentCall
from headstay.emulator.agent_workload_text import RESOLUTION, examples_text
from headstay.emulator.shape import compact
from headstay.emulator.vllm_cache import VLLMRequest, admit, block_digests, empty_pool, finish
from headstay.local.client import Server, server_at

BLOCK, BLOCKS, CONTEXT = 32, 300, 8_192
MODEL = "tiny"
TRACES = 60

TOOLS: Sequence[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Find the {name} of an order, of a parcel or of a customer. " * length,
            "parameters": {
                "type": "object",
                "properties": {"number": {"type": "string"}, "detail": {"enum": ["short", "full"]}},
                "required": ["number"],
            },
        },
    }
    for name, length in (("state", 2), ("price", 4), ("history", 6), ("address", 1))
]


class Sent(NamedTuple):
    """A request, and which trace it belongs to."""

    trace: str
    body: Mapping[str, Any]


class Counted(NamedTuple):
    """What a server reported for a request, in tokens."""

    prompt: int
    read: int
    created: int


@dataclass(frozen=True)
class Pair:
    """The real server and the emulator, both with nothing of the test in their caches."""

    real: OpenAI
    emulated: OpenAI
    server: Server

    def both(self, body: Mapping[str, Any]) -> tuple[Counted, Counted]:
        """Send a request to both."""
        return counted(self.real, body), counted(self.emulated, body)


def counted(client: OpenAI, body: Mapping[str, Any]) -> Counted:
    """Send a request, streamed if it says so."""
    reply: Any = client.chat.completions.create(**{"model": MODEL, "max_tokens": 1, "temperature": 0, **body})
    usage = [chunk.usage for chunk in reply][-1] if body.get("stream") else reply.usage
    details = usage.prompt_tokens_details
    return Counted(usage.prompt_tokens, details.cached_tokens, details.created_cache_tokens)


@pytest.fixture(scope="module")
def server(local: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a tiny model whose cache holds little more than one request of the greatest length."""
    folder = tmp_path_factory.mktemp("exam")
    home = replace(local.home, path=folder / "home")
    home.path.mkdir()
    for name in ("env", "weights"):
        (home.path / name).symlink_to(local.home.path / name)
    made = replace(local, home=home)
    model = make_tiny_model(home.weights, folder / MODEL)
    extra = [f"--arg={word}" for word in ("--num-gpu-blocks-override", str(BLOCKS), *ARGUMENTS)]
    serve = ("serve", "--detach", "--model", str(model), "--tool-parser", "hermes", "--kv-gib", "1")
    told = made.json(*serve, "--context", str(CONTEXT), *extra)
    yield server_at(told["base_url"])
    assert made.run("stop").returncode == 0


@pytest.fixture
def real(server: Server) -> Iterator[OpenAI]:
    """Talk to the real server, after what others left in its cache has been pushed out of it."""
    rng = random.Random()
    with OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=120) as client:
        for _ in range(2):
            tokens = some_tokens(rng, CONTEXT - BLOCK)
            client.completions.create(model=MODEL, prompt=tokens, max_tokens=1)
        yield client


@pytest.fixture
def pair(real: OpenAI, server: Server) -> Iterator[Pair]:
    settings = emulator.VLLMSettings(
        model=MODEL, block=BLOCK, blocks=BLOCKS, context=CONTEXT, tokenize=lambda body: tokens_of(server, body)
    )
    with (
        emulator.serve(vllm=settings) as running,
        OpenAI(base_url=running.openai_url, api_key="none", max_retries=0, timeout=120) as emulated,
    ):
        yield Pair(real, emulated, server)


def tokens_of(server: Server, body: Mapping[str, Any]) -> Sequence[int]:
    found = server.tokens(body)
    assert found is not None
    return found


def agent_requests(server: Server, workload: AgentWorkload, *, stable: bool) -> Iterator[Sent]:
    """Replay an agent as its application sends it, or as a stable head and a note behind the conversation."""
    trace = "agent, stable" if stable else "agent, hostile"
    for call in workload.calls:
        oldest = 0
        while len(tokens_of(server, body := agent_body(workload, call, oldest, stable=stable))) >= CONTEXT:
            oldest += 1
        yield Sent(trace, body)


def agent_body(workload: AgentWorkload, call: AgentCall, oldest: int, *, stable: bool) -> dict[str, Any]:
    """Write a call as a request, without the turns before the oldest one."""
    text = call.stable_text if stable else call.system_text
    examples = workload.pinned[call.lane] if stable else call.examples
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"{text}\n\n{examples_text(examples)}"}]
    summary = workload.summary_before(call)
    if summary is not None:
        messages.append({"role": "user", "content": summary.message})
    for past in workload.before(call):
        if past.turn >= min(oldest, call.turn):
            messages += turn_messages(past)
    if call.step == 0:
        messages.append({"role": "user", "content": call.user})
    if stable:
        messages.append({"role": "system", "content": compact(call.values)})
    offered = sorted(call.tools, key=lambda tool: tool.name) if stable else call.tools
    tools = [
        {"type": "function", "function": {"name": name, "description": told, "parameters": schema}}
        for name, told, schema in offered
    ]
    body: dict[str, Any] = {"messages": messages, "tools": tools, "extra_body": {"cache_salt": call.tenant}}
    if call.tool_choice is not None:
        body["tool_choice"] = call.tool_choice
    if call.structured:
        schema = {"name": "resolution", "schema": RESOLUTION}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def turn_messages(past: AgentCall) -> Iterator[dict[str, Any]]:
    if past.step == 0:
        yield {"role": "user", "content": past.user}
    said: dict[str, Any] = {"role": "assistant", "content": past.said.text}
    if past.said.uses:
        said["tool_calls"] = [
            {"id": use.id, "type": "function", "function": {"name": use.name, "arguments": compact(use.arguments)}}
            for use in past.said.uses
        ]
    yield said
    for use in past.said.uses:
        yield {"role": "tool", "tool_call_id": use.id, "content": use.result}


WORDS = ("order", "parcel", "refund", "label", "courier", "day", "week", "return", "lamp", "switch", "price", "answer")


def prose(rng: random.Random, least: int, most: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def random_requests(traces: int) -> Iterator[Sent]:
    """Make conversations over a few heads that grow, fork, are edited, change tools and salt, and come back later."""
    rng = random.Random(2026)
    heads = [prose(rng, least, 2 * least) for least in (10, 60, 150, 400, 900)]
    past: list[dict[str, Any]] = []
    for number in range(traces):
        body: dict[str, Any] = {"messages": [{"role": "system", "content": rng.choice(heads)}, user(rng)]}
        if rng.random() < 0.5:
            body["tools"] = rng.sample(TOOLS, rng.randint(1, len(TOOLS)))
        if rng.random() < 0.5:
            body["extra_body"] = {"cache_salt": rng.choice("ab")}
        for _ in range(rng.randint(3, 9)):
            yield Sent(f"random {number}", {**body, **streamed(rng)})
            past.append(body)
            step = rng.choice(STEPS)
            body = rng.choice(past[-40:]) if step == "come back" else changed(rng, step, body)


STEPS = ("grow", "grow", "grow", "grow", "fork", "edit", "tools", "salt", "again", "come back", "pressure")


def changed(rng: random.Random, step: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what an application sends next."""
    messages = list(body["messages"])
    match step:
        case "grow":
            return {**body, "messages": [*messages, {"role": "assistant", "content": prose(rng, 1, 80)}, user(rng)]}
        case "fork":
            kept = messages[: rng.randint(1, len(messages))]
            return {**body, "messages": [*kept, user(rng)]}
        case "edit":
            place = rng.randrange(len(messages))
            words = messages[place]["content"].split()
            words[rng.randrange(len(words))] = "edited"
            messages[place] = {**messages[place], "content": " ".join(words)}
            return {**body, "messages": messages}
        case "tools":
            return {**body, "tools": rng.sample(TOOLS, rng.randint(1, len(TOOLS)))}
        case "salt":
            return {**body, "extra_body": {"cache_salt": rng.choice("abc")}}
        case "pressure":
            return {"messages": [{"role": "user", "content": prose(rng, 1_000, 5_000)}]}
        case _:
            return body


def user(rng: random.Random) -> dict[str, Any]:
    return {"role": "user", "content": prose(rng, 1, 120)}


def streamed(rng: random.Random) -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True}} if rng.random() < 0.3 else {}


class Endless:
    """The tokens that a cache of any size would read: what was ever computed under a salt."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def read(self, prompt: Sequence[int], salt: str) -> int:
        chain = block_digests(VLLMRequest(prompt=prompt, salt=salt), BLOCK)
        readable = chain[: (len(prompt) - 1) // BLOCK]
        found = next((place for place, digest in enumerate(readable) if digest not in self._seen), len(readable))
        self._seen.update(chain)
        return found * BLOCK


def compare(pair: Pair, requests: Iterator[Sent]) -> tuple[int, int]:
    """Send requests to both servers; return how many there were, and in how many an eviction shortened the read."""
    endless = Endless()
    sent = shortened = read = 0
    different: list[str] = []
    for place, (trace, body) in enumerate(requests):
        real, emulated = pair.both(body)
        salt = body.get("extra_body", {}).get("cache_salt", "")
        sent += 1
        read += real.read
        shortened += real.read < endless.read(tokens_of(pair.server, body), salt)
        if real != emulated:
            different.append(f"{trace}, request {place}: the engine {real}, the emulator {emulated}")
    print(f"{sent} requests compared, {read} tokens read, {shortened} reads shortened by an eviction")
    assert not different, "\n".join(different)
    return sent, shortened


@pytest.mark.parametrize("stable", [False, True])
def test_the_agent_reads_the_same_tokens_of_both(pair: Pair, stable: bool) -> None:
    workload = support_agent(threads=6, longest=6)
    sent, shortened = compare(pair, agent_requests(pair.server, workload, stable=stable))
    assert sent == len(workload.calls)
    assert shortened > 0


def test_random_traces_read_the_same_tokens_of_both(pair: Pair) -> None:
    sent, shortened = compare(pair, random_requests(TRACES))
    assert sent > 4 * TRACES
    assert shortened > sent // 10


class Raw:
    """Prompts as tokens, to the real server and to the rules alone: they get the tokens of the real answers."""

    def __init__(self, client: OpenAI) -> None:
        self._client = client
        self._pool = empty_pool(block=BLOCK, blocks=BLOCKS)

    def both(self, prompt: Sequence[int], limit: int = 1) -> tuple[int, int, list[int]]:
        """Return the tokens read by the real server and by the rules, and the answer."""
        reply: Any = self._client.completions.create(
            model=MODEL, prompt=list(prompt), max_tokens=limit, extra_body={"return_token_ids": True}
        )
        answer: list[int] = reply.choices[0].token_ids
        admitted = admit(self._pool, VLLMRequest(prompt=prompt, answer=answer))
        assert admitted is not None
        pool, held = admitted
        self._pool = finish(pool, held)
        return reply.usage.prompt_tokens_details.cached_tokens, held.read, answer


def some_tokens(rng: random.Random, number: int) -> list[int]:
    return [rng.randrange(100, 40_000) for _ in range(number)]


def test_answers_are_cached_in_both(real: OpenAI) -> None:
    rng, raw = random.Random(7), Raw(real)
    past: list[list[int]] = []
    different: list[str] = []
    read = 0
    for place in range(100):
        prompt = some_tokens(rng, rng.randint(1, 200) * rng.choice((1, 1, 4, 20)))
        step = rng.choice(("new", "grow", "whole blocks", "again")) if past else "new"
        if step != "new":
            earlier = rng.choice(past[-16:])
            whole = max(BLOCK, len(earlier) // BLOCK * BLOCK)
            prompt = {"grow": earlier + prompt, "whole blocks": earlier[:whole], "again": earlier}[step][: CONTEXT // 2]
        engine, rules, answer = raw.both(prompt, rng.choice((1, 1, 1, rng.randint(2, 40))))
        read += engine
        if engine != rules:
            different.append(f"request {place}, {len(prompt)} tokens, {step}: the engine {engine}, the rules {rules}")
        past.append(prompt + answer)
    print(f"{len(past)} requests compared, {read} tokens read")
    assert not different, "\n".join(different)
    assert read > 0


def test_the_oldest_of_two_equal_blocks_is_read(real: OpenAI) -> None:
    """A block that is asked for alone is computed again, and its copy stands behind it.

    The first copy is read last of all before the pressure, so that the second one is older: of 299 blocks 1 + 100 + 1
    + 100 are cached, 97 are free, and with one more the tail of the second prompt is lost, not the first copy.
    """
    rng, raw = random.Random(8), Raw(real)
    one, two, three = (some_tokens(rng, blocks * BLOCK) for blocks in (1, 100, 100))
    for prompt in (one, two, one, three):
        assert raw.both(prompt)[:2] == (0, 0)
    assert raw.both([*one, 7])[:2] == (BLOCK, BLOCK)
    pressure = some_tokens(rng, (BLOCKS - 1 - 202 + 1) * BLOCK)
    assert raw.both(pressure)[:2] == (0, 0)
    assert raw.both([*two, 7])[:2] == (99 * BLOCK, 99 * BLOCK)


HELLO = {"role": "user", "content": "Hello."}
ALLOWED = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "state"}}]}
REFUSED: Mapping[str, Mapping[str, Any]] = {
    "empty salt": {"cache_salt": ""},
    "a salt that is no text": {"cache_salt": 5},
    "long salt": {"cache_salt": "a" * 129},
    "salt with a slash": {"cache_salt": "a/b"},
    "no message": {"messages": []},
    "an image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
    "allowed tools": {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "allowed_tools": ALLOWED}},
    "any": {"tools": TOOLS, "tool_choice": "any"},
    "a choice without tools": {"tool_choice": "auto"},
    "a choice that is not offered": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
    "a choice without a name": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {}}},
    "a choice with an empty name": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": ""}}},
    "no tool in the list": {"tools": []},
    "stream options without a stream": {"stream_options": {"include_usage": True}},
    "no token": {"max_tokens": 0},
    "more tokens than the context": {"max_tokens": CONTEXT + 1},
    "longer than the context": {"messages": [{"role": "user", "content": "word " * 9_000}]},
    "a format without its schema": {"response_format": {"type": "json_schema"}},
}
REFUSED_BY_FRAMEWORK: Mapping[str, Mapping[str, Any]] = {
    "messages are a text": {"messages": "Hello."},
    "null content": {"messages": [{"role": "user", "content": None}]},
    "an unknown part": {"messages": [{"role": "user", "content": [{"type": "unknown", "text": "Hello."}]}]},
    "a custom tool": {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
    "an unknown format": {"response_format": {"type": "unknown"}},
    "a limit that is no number": {"max_tokens": "many"},
}
"""Here the words are those of the server's framework, which the emulator repeats in part."""

TAKEN: Mapping[str, Mapping[str, Any]] = {
    "fields of OpenAI's": {
        "prompt_cache_key": "x",
        "prompt_cache_options": {"mode": "explicit"},
        "prompt_cache_retention": "24h",
        "store": True,
        "verbosity": "low",
    },
    "a breakpoint": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hello.", "prompt_cache_breakpoint": {"mode": "explicit"}}],
            }
        ]
    },
    "a marker": {
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hello.", "cache_control": {"type": "ephemeral"}}],
            }
        ]
    },
    "a field nobody knows": {"messages": [HELLO], "unknown": 1},
    "doubled tools": {"tools": [TOOLS[0], TOOLS[0]]},
    "a call without its result": {
        "messages": [
            HELLO,
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "state", "arguments": "{}"}}],
            },
            HELLO,
        ]
    },
}


def refusal(client: OpenAI, body: Mapping[str, Any]) -> Any:
    sent = {"messages": [HELLO], "max_tokens": 1, **body}
    with pytest.raises(BadRequestError) as problem:
        client.chat.completions.create(model=MODEL, messages=[], extra_body=sent)
    return problem.value.body


def test_both_refuse_in_the_same_words(pair: Pair) -> None:
    real = {name: refusal(pair.real, body) for name, body in REFUSED.items()}
    assert {name: refusal(pair.emulated, body) for name, body in REFUSED.items()} == real


def test_both_refuse_what_has_the_wrong_shape(pair: Pair) -> None:
    for body in REFUSED_BY_FRAMEWORK.values():
        assert refusal(pair.real, body)["code"] == refusal(pair.emulated, body)["code"] == 400


def test_both_take_what_they_do_not_know(pair: Pair) -> None:
    for name, body in TAKEN.items():
        real, emulated = pair.both({"messages": [], "extra_body": {"messages": [HELLO], **body}})
        assert real == emulated, name
