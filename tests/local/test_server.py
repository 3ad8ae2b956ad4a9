"""What the real server does with a head: tokens read, blocks, tenants, tools, and the weights themselves."""

import json
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

MODEL = "smollm2-135m-instruct"
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}


def head(name: str) -> str:
    """Return a system text of some hundred tokens that no other test sends."""
    return f"You work for {name}. " + " ".join(f"Rule {number}: answer topic {number} briefly." for number in range(40))


def ask(client: OpenAI, system: str, text: str, **more: Any) -> Any:
    messages: Any = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return client.chat.completions.create(model=MODEL, messages=messages, temperature=0, **{"max_tokens": 1, **more})


def tokens(base_url: str, messages: list[Any], *, prompt: bool = False, tools: list[Any] | None = None) -> list[int]:
    body = {"model": MODEL, "messages": messages, "add_generation_prompt": prompt, "tools": tools}
    request = urllib.request.Request(base_url.replace("/v1", "/tokenize"), json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        return list(json.load(response)["tokens"])


def test_the_converted_weights_know_the_capital_of_france(client: OpenAI) -> None:
    reply = ask(client, "You are a helpful assistant.", "What is the capital of France?", max_tokens=16)
    assert "Paris" in reply.choices[0].message.content


def test_the_tokenizer_takes_digits_one_by_one_and_gives_the_text_back(client: OpenAI, base_url: str) -> None:
    text = "Zürich 2026: naïve  spaces,\ttabs\nand 東京 🙂"
    plain = tokens(base_url, [{"role": "system", "content": "2026"}])
    assert len(plain) - len(tokens(base_url, [{"role": "system", "content": "2"}])) == 3
    body = {"model": MODEL, "tokens": tokens(base_url, [{"role": "system", "content": text}])}
    request = urllib.request.Request(base_url.replace("/v1", "/detokenize"), json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        assert json.load(response)["prompt"] == f"<|im_start|>system\n{text}<|im_end|>\n"


@pytest.mark.parametrize("stream", [False, True])
def test_whole_blocks_of_the_head_are_read_the_second_time(
    client: OpenAI, base_url: str, block: int, stream: bool
) -> None:
    system = head(f"Blocks {stream}")
    first, second = ("Hello.", "Good day to you.")
    ask(client, system, first)
    if stream:
        chunks = list(ask(client, system, second, stream=True, stream_options={"include_usage": True}))
        usage = chunks[-1].usage
    else:
        usage = ask(client, system, second).usage
    both = [
        tokens(base_url, [{"role": "system", "content": system}, {"role": "user", "content": text}], prompt=True)
        for text in (first, second)
    ]
    shared = next(place for place, pair in enumerate(zip(*both, strict=False)) if pair[0] != pair[1])
    assert usage.prompt_tokens_details.cached_tokens == shared // block * block > 0


def test_tenants_do_not_read_each_others_head(client: OpenAI) -> None:
    system = head("Tenants")

    def read(salt: str | None) -> int:
        body = {} if salt is None else {"cache_salt": salt}
        return int(ask(client, system, "Hello.", extra_body=body).usage.prompt_tokens_details.cached_tokens)

    assert read("a") == 0
    assert read("a") > 0
    assert read("b") == 0
    assert read(None) == 0


def test_a_forced_call_fits_the_tools_schema(client: OpenAI) -> None:
    reply = ask(
        client,
        "You use tools.",
        "What is the weather in Paris for three days?",
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "weather"}},
        max_tokens=100,
    )
    (call,) = reply.choices[0].message.tool_calls
    arguments = json.loads(call.function.arguments)
    assert call.function.name == "weather"
    assert set(arguments) == {"city", "days"}
    assert isinstance(arguments["city"], str)
    assert isinstance(arguments["days"], int)


def test_a_longer_conversation_begins_with_the_shorter_one(base_url: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"days": 1, "city": "Rome"}'}}
    talk: list[Any] = [
        {"role": "developer", "content": head("Talk")},
        {"role": "system", "content": "The customer is on the small plan."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "How is it in Rome, "}, {"type": "text", "text": "now?"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "c2"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "Sunny."},
        {"role": "tool", "tool_call_id": "c2", "content": "Sunny."},
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "Thank you."},
    ]
    grown = [tokens(base_url, talk[:length], tools=[TOOL]) for length in range(1, len(talk) + 1)]
    for shorter, longer in pairwise(grown):
        assert len(longer) > len(shorter)
        assert longer[: len(shorter)] == shorter
    asked = tokens(base_url, talk[:3], prompt=True, tools=[TOOL])
    assert grown[3][: len(asked)] == asked


def test_the_command_warms_a_head_and_proves_it(
    local: Any, base_url: str, client: OpenAI, block: int, tmp_path: Path
) -> None:
    system = head("Warm")
    request = tmp_path / "request.json"
    turn = {"role": "user", "content": "Is the second rule a good one?"}
    request.write_text(
        json.dumps({"messages": [{"role": "system", "content": system}, turn], "tools": [TOOL], "stream": True})
    )
    told = local.json("warm", str(request), "--salt", "tenant-a")
    assert (told["before"], told["block"], told["warm"]) == (0, block, True)
    assert told["expected"] == told["head_tokens"] // block * block <= told["cached"]
    reply = ask(client, system, turn["content"], tools=[TOOL], extra_body={"cache_salt": "tenant-a"})
    assert reply.usage.prompt_tokens_details.cached_tokens == told["expected"]
    assert local.run("warm", str(request), "--base-url", base_url).returncode == 0


def test_status_tells_what_was_read(local: Any, client: OpenAI, base_url: str) -> None:
    before = local.json("status")["prefix_cache"]
    first = ask(client, head("Status"), "Hello.").usage
    second = ask(client, head("Status"), "Hello.").usage
    told = local.json("status")
    assert (told["phase"], told["serving"], told["base_url"], told["models"]) == ("ready", True, base_url, [MODEL])
    counted = told["prefix_cache"]["queried_tokens"] - before["queried_tokens"]
    assert counted == first.prompt_tokens + second.prompt_tokens
    read = told["prefix_cache"]["read_tokens"] - before["read_tokens"]
    assert read == second.prompt_tokens_details.cached_tokens > 0
