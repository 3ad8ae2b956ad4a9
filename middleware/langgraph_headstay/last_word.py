"""Whether a middleware had the last word: what it handed down, held against what reached the model."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from langchain.agents.middleware import ModelRequest
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.messages import AnyMessage, SystemMessage

from headstay.canonical import MARKER_KEYS
from headstay.prompt import Prompt


def tool_names(tools: Sequence[Any]) -> frozenset[str]:
    """Return the names that tools have on the wire; a provider-run tool without one goes by its type."""
    return frozenset(_name(tool) for tool in tools)


def structured_names(response_format: Any) -> frozenset[str]:
    """Return the names of the tools that stand for a structured answer; LangChain adds them after the last hook."""
    if response_format is None or isinstance(response_format, ProviderStrategy):
        return frozenset()
    kind = cast("type[object]", type(response_format))
    if not issubclass(kind, ToolStrategy):
        response_format = ToolStrategy(response_format.schema if issubclass(kind, AutoStrategy) else response_format)
    return frozenset(str(spec.name) for spec in response_format.schema_specs)


def whole(message: SystemMessage | None) -> tuple[SystemMessage | None, list[str]]:
    """Write plain strings among a system message's blocks as text blocks, and leave out blocks that hold nothing.

    `AnthropicPromptCachingMiddleware` of langchain-anthropic 1.7.10 replaces a plain string by a bare marker. Behind
    us it meets text blocks only. In front of us the text is gone for good: no hook, state or runtime holds the agent's
    own system prompt, and only the place of the block can be said.

    Returns:
        The message, the same object where nothing was to do, and which blocks had lost their text, as "2 of 3".
    """
    if message is None or isinstance(message.content, str):
        return message, []
    given = cast("list[str | dict[str, Any]]", message.content)
    blocks = [{"type": "text", "text": block} if isinstance(block, str) else block for block in given]
    kept = [block for block in blocks if block.keys() - MARKER_KEYS]
    if kept == given:
        return message, []
    lost = [f"{number} of {len(blocks)}" for number, block in enumerate(blocks, 1) if not block.keys() - MARKER_KEYS]
    return message.model_copy(update={"content": kept}), lost


def is_own(request: ModelRequest[Any], head: Prompt) -> bool:
    """Whether a request to the model is the agent's call and not a question of a middleware further inside.

    Args:
        request: What was handed down.
        head: Tools and system texts of the request to the model.
    """
    handed, names = _text(request.system_message), tool_names(request.tools)
    if not handed and not names:
        return True
    same_text = bool(handed) and _squeezed(handed) in _squeezed("".join(head.system))
    return same_text or not names.isdisjoint(tool.name for tool in head.tools)


def changed(request: ModelRequest[Any], head: Prompt) -> str:
    """Name what a middleware further inside changed; an empty text where nothing was.

    Args:
        request: What was handed down.
        head: Tools, system texts and markers as they came to the model.
    """
    found: list[str] = []
    handed = tool_names(request.tools)
    arrived = frozenset(tool.name for tool in head.tools)
    if head.wire != "host-messages" and (
        handed - arrived or (arrived - handed and arrived - handed - structured_names(request.response_format))
    ):
        found.append("the tools")
    expected = _text(request.system_message) + "".join(map(_text, _leading(request.messages)))
    system = "".join(head.system)
    if system and system != expected and _squeezed(system) != _squeezed(expected):
        found.append("the system text")
    if {marker.tier for marker in head.markers} - _marked(request):
        found.append("the cache markers")
    return " and ".join(found)


def _name(tool: Any) -> str:
    if not isinstance(tool, Mapping):
        return str(tool.name)
    wire = cast("Mapping[str, Any]", tool)
    inner: Mapping[str, Any] = wire.get("function") or wire
    return str(inner.get("name") or wire.get("type"))


def _leading(messages: Sequence[AnyMessage]) -> list[SystemMessage]:
    found: list[SystemMessage] = []
    for message in messages:
        if not isinstance(message, SystemMessage):
            break
        found.append(message)
    return found


def _text(message: SystemMessage | None) -> str:
    if message is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    blocks = cast("list[str | dict[str, Any]]", message.content)
    return "".join(block if isinstance(block, str) else str(block.get("text", "")) for block in blocks)


def _squeezed(text: str) -> str:
    """Take the whitespace out: model classes join and trim texts in their own ways."""
    return "".join(text.split())


def _marked(request: ModelRequest[Any]) -> set[str]:
    """Return where the request that was handed down has markers of its own."""
    found: set[str] = set()
    if not MARKER_KEYS.isdisjoint(request.model_settings):
        found.add("request")
    if request.system_message is not None and _bears(request.system_message.content):
        found.add("system")
    if any(_bears([tool if isinstance(tool, Mapping) else tool.extras or {}]) for tool in request.tools):
        found.add("tools")
    if any(_bears(message.content) for message in _leading(request.messages)):
        found.add("system")
    return found


def _bears(blocks: object) -> bool:
    listed = cast("list[object]", blocks) if isinstance(blocks, list) else []
    return any(
        isinstance(block, Mapping) and not MARKER_KEYS.isdisjoint(cast("Mapping[str, Any]", block)) for block in listed
    )
