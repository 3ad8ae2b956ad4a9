"""What these tests share: one conversation, written as a request body of each wire."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

WIRES = ("anthropic-messages", "openai-chat", "openai-responses")
MODELS = {"anthropic-messages": "claude-opus-5", "openai-chat": "gpt-5.4", "openai-responses": "gpt-5.4"}
Item = tuple[Any, ...]
Body = dict[str, Any]


@dataclass(frozen=True)
class Talk:
    """A conversation in no wire format.

    Attributes:
        system: Texts of the system blocks.
        tools: Name, description and schema of each.
        items: `("user", text)`, `("assistant", text)`, `("image", text, data)`, `("thinking", text, seal)`,
            `("call", id, name, arguments)`, `("result", id, text)`.
        more: Further request fields.
    """

    system: Sequence[str] = ()
    tools: Sequence[tuple[str, str, Mapping[str, Any]]] = ()
    items: Sequence[Item] = ()
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def body(self, wire: str) -> Body:
        """Write it as a request body."""
        writer = {"anthropic-messages": _anthropic, "openai-chat": _chat, "openai-responses": _responses}[wire]
        body: Body = {"model": MODELS[wire], **writer(self)}
        if self.tools:
            body["tools"] = [_tool(wire, *tool) for tool in self.tools]
        return {**body, **self.more}


def _tool(wire: str, name: str, description: str, schema: Mapping[str, Any]) -> Body:
    if wire == "anthropic-messages":
        return {"name": name, "description": description, "input_schema": schema}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function} if wire == "openai-chat" else {"type": "function", **function}


def _anthropic(talk: Talk) -> Body:
    messages: list[Body] = []

    def add(role: str, block: Body) -> None:
        if not messages or messages[-1]["role"] != role or (block["type"] == "text" and role == "user"):
            messages.append({"role": role, "content": []})
        messages[-1]["content"].append(block)

    for kind, *rest in talk.items:
        if kind in ("user", "assistant"):
            add(kind, {"type": "text", "text": rest[0]})
        elif kind == "image":
            add("user", {"type": "text", "text": rest[0]})
            source = {"type": "base64", "media_type": "image/png", "data": rest[1]}
            add("user", {"type": "image", "source": source})
        elif kind == "thinking":
            add("assistant", {"type": "thinking", "thinking": rest[0], "signature": rest[1]})
        elif kind == "call":
            add("assistant", {"type": "tool_use", "id": rest[0], "name": rest[1], "input": rest[2]})
        else:
            add("user", {"type": "tool_result", "tool_use_id": rest[0], "content": rest[1]})
    system = [{"type": "text", "text": text} for text in talk.system]
    return {"max_tokens": 99, "messages": messages, **({"system": system} if system else {})}


def _chat(talk: Talk) -> Body:
    messages: list[Body] = [{"role": "system", "content": text} for text in talk.system]
    for kind, *rest in talk.items:
        if kind in ("user", "assistant"):
            messages.append({"role": kind, "content": rest[0]})
        elif kind == "image":
            url = {"url": f"data:image/png;base64,{rest[1]}"}
            parts = [{"type": "text", "text": rest[0]}, {"type": "image_url", "image_url": url}]
            messages.append({"role": "user", "content": parts})
        elif kind == "thinking":
            messages.append({"role": "assistant", "content": "Let me see.", "reasoning_content": rest[0] + rest[1]})
        elif kind == "call":
            function = {"name": rest[1], "arguments": json.dumps(rest[2])}
            call = {"id": rest[0], "type": "function", "function": function}
            if messages[-1]["role"] != "assistant" or "tool_calls" not in messages[-1]:
                messages.append({"role": "assistant", "content": None, "tool_calls": []})
            messages[-1]["tool_calls"].append(call)
        else:
            messages.append({"role": "tool", "tool_call_id": rest[0], "content": rest[1]})
    return {"messages": messages}


def _responses(talk: Talk) -> Body:
    items: list[Body] = [{"role": "developer", "content": text} for text in talk.system[1:]]
    for kind, *rest in talk.items:
        if kind == "user":
            items.append({"role": "user", "content": [{"type": "input_text", "text": rest[0]}]})
        elif kind == "assistant":
            content = [{"type": "output_text", "text": rest[0], "annotations": []}]
            items.append({"type": "message", "role": "assistant", "id": "msg_1", "content": content})
        elif kind == "image":
            image = {"type": "input_image", "image_url": f"data:image/png;base64,{rest[1]}"}
            items.append({"role": "user", "content": [{"type": "input_text", "text": rest[0]}, image]})
        elif kind == "thinking":
            items.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": rest[0] + rest[1]})
        elif kind == "call":
            call = {"type": "function_call", "call_id": rest[0], "name": rest[1], "arguments": json.dumps(rest[2])}
            items.append(call)
        else:
            items.append({"type": "function_call_output", "call_id": rest[0], "output": rest[1]})
    return {"input": items, **({"instructions": talk.system[0]} if talk.system else {})}


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> str:
    """Each wire format in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def talk() -> Callable[..., Talk]:
    """Make a conversation."""
    return Talk
