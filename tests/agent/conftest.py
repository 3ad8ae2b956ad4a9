"""A client that lays out an agent workload ideally on the real SDKs, straight from its labels.

It is a second, independent way to the oracle's figures: what the emulator reports for its requests must be what the
oracle says, token for token.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import anthropic
import openai
import pytest

from headstay.emulator import AnthropicSwitches, Emulator, ManualClock, serve
from headstay.emulator.agent_workload import AgentWorkload
from headstay.emulator.agent_workload_labels import AgentCall, ToolForm
from headstay.emulator.agent_workload_text import RESOLUTION, examples_text

MARK = {"type": "ephemeral"}
BREAKPOINT = {"mode": "explicit"}
BETAS = "mid-conversation-tool-changes-2026-07-01,inline-tools-2026-09-15"


class Used(NamedTuple):
    """Tokens read, written and in all."""

    read: int
    written: int
    total: int


def play(
    workload: AgentWorkload, *, model: str, wire: str, kept_notes: bool, native: bool, behind_user: bool = False
) -> list[Used]:
    """Send every call; return what was reported for each."""
    clock = ManualClock(workload.start)
    switches = AnthropicSwitches(thinking_mismatch="drop_block")
    used: list[Used] = []
    with serve(clock=clock, responder=workload.responder(), anthropic=switches, record=False) as server:
        send = _sender(server, model, wire, workload, kept_notes=kept_notes, native=native, behind=behind_user)
        for call in workload.calls:
            clock.set(call.at)
            used.append(send(call))
    return used


@pytest.fixture(scope="session")
def play_ideally() -> Callable[..., list[Used]]:
    """Return the ideal client: what the emulator reports for each call of a workload."""
    return play


def _sender(
    server: Emulator, model: str, wire: str, workload: AgentWorkload, **how: bool
) -> Callable[[AgentCall], Used]:
    tools = Tools(native=how["native"])
    if wire == "anthropic-messages":
        return Claude(server, model, workload, tools, kept_notes=how["kept_notes"], behind_user=how["behind"]).send
    return Gpt(server, model, workload, tools, chat=wire == "openai-chat").send


class Tools:
    """The union of a lane's tools: sorted at first sight, late ones behind or appended, changed ones in place."""

    def __init__(self, *, native: bool) -> None:
        self._native = native
        self._unions: dict[tuple[str, str], dict[str, ToolForm]] = {}
        self._late: dict[tuple[str, str], list[ToolForm]] = {}
        self.appended: dict[tuple[str, int, int], list[ToolForm]] = {}

    def of(self, call: AgentCall) -> list[ToolForm]:
        first = call.lane not in self._unions
        union, late = self._unions.setdefault(call.lane, {}), self._late.setdefault(call.lane, [])
        for form in sorted(call.tools):
            if self._native and not first and form.name not in union:
                late += [form] if form not in late else []
            else:
                union[form.name] = form
        known = [form for key, forms in self.appended.items() if key[0] == call.thread for form in forms]
        fresh = [form for form in late if form not in known]
        if fresh:
            self.appended[call.thread, call.turn, call.step] = fresh
        return list(union.values())


def system_of(workload: AgentWorkload, call: AgentCall) -> tuple[str, str]:
    pinned = workload.pinned[call.lane]
    stable = call.stable_text + ("\n\n" + examples_text(pinned) if pinned else "")
    return stable, "\n".join(f"{name}: {value}" for name, value in call.conversation_values.items())


def note_of(call: AgentCall) -> str:
    return "\n".join(f"{name}: {value}" for name, value in call.call_values.items())


def past_of(workload: AgentWorkload, call: AgentCall) -> Iterator[AgentCall]:
    yield from workload.before(call)
    yield call


OPEN: list[anthropic.Anthropic | openai.OpenAI] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the clients that a test has made, before they are found unclosed in some other test."""
    yield
    while OPEN:
        OPEN.pop().close()


class Claude:
    """Messages: head and semi-static in two system blocks, markers on both and on the end of the input."""

    def __init__(
        self,
        server: Emulator,
        model: str,
        workload: AgentWorkload,
        tools: Tools,
        *,
        kept_notes: bool,
        behind_user: bool,
    ) -> None:
        self._behind_user = behind_user
        self._workload, self._model, self._tools, self._kept = workload, model, tools, kept_notes
        self._clients = {
            tenant: anthropic.Anthropic(api_key=tenant, base_url=server.base_url, max_retries=0)
            for tenant in {call.tenant for call in workload.calls}
        }
        OPEN.extend(self._clients.values())
        self._thought: dict[tuple[str, int, int], list[dict[str, Any]]] = {}

    def send(self, call: AgentCall) -> Used:
        forms = self._tools.of(call)
        body: dict[str, Any] = {"model": self._model, "max_tokens": 4_000, "messages": self._messages(call)}
        body["tools"] = [{"name": f.name, "description": f.description, "input_schema": f.schema} for f in forms]
        texts = [text for text in system_of(self._workload, call) if text]
        body["system"] = [{"type": "text", "text": text, "cache_control": MARK} for text in texts]
        if call.structured:
            body["output_config"] = {"format": {"type": "json_schema", "schema": RESOLUTION}}
        if call.tool_choice:
            body["tool_choice"] = {"type": call.tool_choice}
        reply = self._clients[call.tenant].messages.create(**body, extra_headers={"anthropic-beta": BETAS})
        blocks = [block.model_dump(exclude_none=True) for block in reply.content]
        self._thought[call.thread, call.turn, call.step] = [b for b in blocks if b["type"] == "thinking"]
        read, written = reply.usage.cache_read_input_tokens or 0, reply.usage.cache_creation_input_tokens or 0
        return Used(read, written, reply.usage.input_tokens + read + written)

    def _messages(self, call: AgentCall) -> list[dict[str, Any]]:
        summary = self._workload.summary_before(call)
        made: list[dict[str, Any]] = []
        if summary is not None:
            made.append({"role": "user", "content": [{"type": "text", "text": summary.message}]})
        for past in past_of(self._workload, call):
            if past.step == 0:
                photo = {"type": "base64", "media_type": "image/png", "data": past.image}
                image = [{"type": "image", "source": photo}] if past.image else []
                made.append({"role": "user", "content": [*image, {"type": "text", "text": past.user}]})
            operator: list[dict[str, Any]] = [
                {
                    "type": "tool_addition",
                    "tool": {
                        "type": "tool_definition",
                        "definition": {
                            "name": f.name,
                            "description": f.description,
                            "input_schema": f.schema,
                        },
                    },
                }
                for f in self._tools.appended.get((past.thread, past.turn, past.step), [])
            ]
            operator += [{"type": "text", "text": note_of(past)}] if self._kept else []
            if operator:
                made.append({"role": "system", "content": operator})
            if past is not call:
                made += self._answer(past)
        spoken = [message for message in made if message["role"] == "user" and message["content"][-1]["type"] == "text"]
        last = spoken[-1] if self._behind_user else made[-1]
        last["content"][-1]["cache_control"] = MARK
        if not self._kept:
            last["content"].append({"type": "text", "text": note_of(call)})
        return made

    def _answer(self, call: AgentCall) -> list[dict[str, Any]]:
        content = list(self._thought[call.thread, call.turn, call.step])
        content += [{"type": "text", "text": call.said.text}] if call.said.text else []
        uses = call.said.uses
        content += [{"type": "tool_use", "id": u.id, "name": u.name, "input": u.arguments} for u in uses]
        results = [{"type": "tool_result", "tool_use_id": u.id, "content": u.result} for u in uses]
        answer = {"role": "assistant", "content": content}
        return [answer, {"role": "user", "content": results}] if results else [answer]


class Gpt:
    """Chat Completions and Responses: two developer messages, breakpoints on both, the last and the present tail."""

    def __init__(self, server: Emulator, model: str, workload: AgentWorkload, tools: Tools, *, chat: bool) -> None:
        self._workload, self._model, self._tools, self._chat = workload, model, tools, chat
        self._marked = model.startswith(("gpt-5.6", "gpt-6"))
        self._text = "text" if chat else "input_text"
        self._clients = {
            tenant: openai.OpenAI(api_key=tenant, base_url=server.openai_url, max_retries=0)
            for tenant in {call.tenant for call in workload.calls}
        }
        OPEN.extend(self._clients.values())

    def send(self, call: AgentCall) -> Used:
        forms = self._tools.of(call)
        items = self._items(call)
        items.append({"role": "developer", "content": note_of(call)})
        body: dict[str, Any] = {"model": self._model, "prompt_cache_key": "/".join(call.lane)}
        if self._marked:
            body["prompt_cache_options"] = {"mode": "explicit"}
        if call.tool_choice:
            body["tool_choice"] = call.tool_choice
        client = self._clients[call.tenant]
        functions = [{"name": f.name, "description": f.description, "parameters": f.schema} for f in forms]
        schema = {"name": RESOLUTION["title"], "schema": RESOLUTION}
        if self._chat:
            body["tools"] = [{"type": "function", "function": function} for function in functions]
            if call.structured:
                body["response_format"] = {"type": "json_schema", "json_schema": schema}
            usage: Any = client.chat.completions.create(messages=items, **body).usage
            details, total = usage.prompt_tokens_details, usage.prompt_tokens
        else:
            body["tools"] = [{"type": "function", **function} for function in functions]
            if call.structured:
                body["text"] = {"format": {"type": "json_schema", **schema}}
            usage = client.responses.create(input=items, **body).usage
            details, total = usage.input_tokens_details, usage.input_tokens
        return Used(details.cached_tokens, getattr(details, "cache_write_tokens", 0) or 0, total)

    def _items(self, call: AgentCall) -> list[dict[str, Any]]:
        texts = [text for text in system_of(self._workload, call) if text]
        head = [{"role": "developer", "content": [self._part(text)]} for text in texts]
        rounds = [self._asked(past) for past in past_of(self._workload, call)]
        summary = self._workload.summary_before(call)
        if summary is not None:
            rounds[0].insert(0, {"role": "user", "content": [self._part(summary.message)]})
        answers = [self._answer(past) for past in self._workload.before(call)]
        if self._marked:
            tails = [items for items in self._inputs(rounds, answers) if items][-2:]
            for item in (*head, *(items[-1] for items in tails)):
                item["output" if "output" in item else "content"][-1]["prompt_cache_breakpoint"] = BREAKPOINT
        woven = itertools.zip_longest(rounds, answers, fillvalue=())
        return [*head, *(item for asked, answer in woven for item in (*asked, *answer))]

    def _inputs(self, rounds: list[Any], answers: list[Any]) -> Iterator[list[dict[str, Any]]]:
        """Yield what each call added to the input: the results before it and the user's words."""
        results = [[], *([item for item in answer if _is_result(item)] for answer in answers)]
        for before, asked in zip(results, rounds, strict=True):
            yield [*before, *asked]

    def _asked(self, call: AgentCall) -> list[dict[str, Any]]:
        added = self._tools.appended.get((call.thread, call.turn, call.step), [])
        items: list[dict[str, Any]] = [
            {
                "type": "additional_tools",
                "role": "developer",
                "tools": [{"type": "function", "name": f.name, "description": f.description, "parameters": f.schema}],
            }
            for f in added
        ]
        if call.step == 0:
            items.append({"role": "user", "content": [*self._photo(call), self._part(call.user)]})
        return items

    def _photo(self, call: AgentCall) -> list[dict[str, Any]]:
        url = f"data:image/png;base64,{call.image}"
        if call.image is None:
            return []
        chat = {"type": "image_url", "image_url": {"url": url}}
        return [chat if self._chat else {"type": "input_image", "image_url": url}]

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": self._text, "text": text}

    def _answer(self, call: AgentCall) -> list[dict[str, Any]]:
        text, uses = call.said.text, call.said.uses
        arguments = [json.dumps(use.arguments, ensure_ascii=False, separators=(",", ":")) for use in uses]
        if self._chat:
            calls = [
                {"type": "function", "id": use.id, "function": {"name": use.name, "arguments": given}}
                for use, given in zip(uses, arguments, strict=True)
            ]
            said: dict[str, Any] = {
                "role": "assistant",
                "content": text,
                **({"tool_calls": calls} if calls else {}),
            }
            return [
                said,
                *({"role": "tool", "tool_call_id": u.id, "content": [self._part(u.result)]} for u in uses),
            ]
        items: list[dict[str, Any]] = [{"role": "assistant", "content": text}] if text else []
        items += [
            {"type": "function_call", "call_id": use.id, "name": use.name, "arguments": given}
            for use, given in zip(uses, arguments, strict=True)
        ]
        return [
            *items,
            *({"type": "function_call_output", "call_id": u.id, "output": [self._part(u.result)]} for u in uses),
        ]


def _is_result(item: dict[str, Any]) -> bool:
    return item.get("role") == "tool" or item.get("type") == "function_call_output"
