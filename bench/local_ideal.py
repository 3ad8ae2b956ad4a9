"""What an ideal layout of an agent's calls would read from vLLM's cache, from the workload's labels alone.

The labels are put into the ideal order and tokenised by the server; a model of vLLM's cache of the same size says
which whole blocks are there. Nothing here knows what headstay sends.
"""

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool

from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import AgentWorkload
from headstay.emulator.agent_workload_labels import AgentCall, Said, ToolForm, ToolUse
from headstay.emulator.vllm_cache import VLLMPool, VLLMRequest, admit, empty_pool, finish
from headstay.errors import LocalError
from headstay.local.client import server_at

Tokenize = Callable[[Mapping[str, Any]], Sequence[int]]


def tokenizer(base_url: str) -> Tokenize:
    """Return what maps the body of a chat request to the tokens of its prompt, by the server's own word.

    Args:
        base_url: The server.
    """
    server = server_at(base_url)
    name = server.models()[0]

    def tokenize(body: Mapping[str, Any]) -> Sequence[int]:
        tokens = server.tokens({"model": name, **body})
        if tokens is None:
            raise LocalError(f"{server.origin}/tokenize: the server does not say how it tokenises")
        return tokens

    return tokenize


def cache_of(base_url: str) -> VLLMPool:
    """Return an empty cache of the size of the server's.

    Args:
        base_url: The server.

    Raises:
        LocalError: It does not say.
    """
    origin = server_at(base_url).origin
    with urllib.request.urlopen(f"{origin}/metrics", timeout=10) as answer:
        said = answer.read().decode()
    names = ("block_size", "num_gpu_blocks")
    sizes = [re.search(rf'vllm:cache_config_info{{(?:.*,)?{name}="(\d+)"', said) for name in names]
    if None in sizes:
        raise LocalError(f"{origin}/metrics: the server does not say how large its cache is")
    block, blocks = (int(found[1]) for found in sizes if found)
    return empty_pool(block=block, blocks=blocks)


class Ideal:
    """Brings the calls of a workload into the ideal order, from their labels alone.

    Stable text with the pinned few-shot, the lane's union of tools | semi-static | persistent messages | note

    Args:
        workload: The workload; calls come in the order in which they are made.
    """

    def __init__(self, workload: AgentWorkload) -> None:
        self._workload = workload
        self._unions: dict[tuple[str, str], dict[str, ToolForm]] = {}

    def body(self, call: AgentCall) -> dict[str, Any]:
        """Return a call as the body of a Chat Completions request."""
        union = self._unions.setdefault(call.lane, {})
        union.update({form.name: form for form in sorted(call.tools, key=lambda form: form.name)})
        few_shot = texts.examples_text(self._workload.pinned[call.lane]) if call.examples else ""
        head = "\n\n".join(text for text in (call.stable_text, few_shot) if text)
        values = [("system", _lines(call.conversation_values))] if call.conversation_values else []
        note = [("system", _lines(call.call_values))] if call.call_values else []
        front = [{"role": role, "content": text} for role, text in (("system", head), *values)]
        back = [{"role": role, "content": text} for role, text in note]
        # the host makes every tool strict where the answer has a schema
        tools = [written_tool(form, strict=call.structured) for form in union.values()]
        return {"messages": [*front, *self._messages(call), *back], "tools": tools}

    def _messages(self, call: AgentCall) -> Iterator[dict[str, Any]]:
        summary = self._workload.summary_before(call)
        if summary is not None:
            yield {"role": "user", "content": summary.message}
        for past in (*self._workload.before(call), call):
            if past.step == 0:
                yield {"role": "user", "content": past.user}
            if past is not call:
                yield _answer(past.said)
                yield from ({"role": "tool", "tool_call_id": use.id, "content": use.result} for use in past.said.uses)


def written_tool(form: ToolForm, *, strict: bool = False) -> dict[str, Any]:
    """Write a tool as the host does, strict or as it is."""
    function = {"name": form.name, "description": form.description, "parameters": dict(form.schema)}
    return convert_to_openai_tool(function, strict=True if strict else None)


def _answer(said: Said) -> dict[str, Any]:
    calls = [{"id": use.id, "type": "function", "function": _function(use)} for use in said.uses]
    return {"role": "assistant", "content": said.text, **({"tool_calls": calls} if calls else {})}


def _function(use: ToolUse) -> dict[str, str]:
    return {"name": use.name, "arguments": json.dumps(dict(use.arguments), ensure_ascii=False)}


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


def readable(workload: AgentWorkload, tokenize: Tokenize, pool: VLLMPool) -> list[int]:
    """Return the tokens that each call of an ideal layout would read, in whole blocks; tenants share nothing.

    Args:
        workload: The labelled calls.
        tokenize: Maps a body to the tokens of its prompt.
        pool: The server's cache, with nothing in it.
    """
    ideal, found = Ideal(workload), list[int]()
    for call in workload.calls:
        request = VLLMRequest(prompt=tokenize(ideal.body(call)), answer=(0,), salt=call.tenant)
        admitted = admit(pool, request)
        if admitted is None:
            raise ValueError(f"a request of {len(request.prompt)} tokens does not fit into the cache")
        pool, took = admitted
        pool = finish(pool, took)
        found.append(took.read)
    return found
