"""SDKs that LlamaIndex's own packages do not work with: found by trying, so that a mended package is let through.

Seen 2026-11-30 with llama-index-llms-anthropic 0.12.3, which takes any SDK from 0.75 on: from anthropic 2 on no message
can be converted, and from anthropic 1 on `temperature`, which it sends for most models, is no parameter any more.
"""

import inspect
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage, MessageRole

from headstay.errors import ConfigError

_HOME = "llama_index.llms.anthropic"
_PIN = 'pip install "anthropic>=0.120,<1"'
_SAMPLING = ("temperature", "top_p", "top_k")


def check_sdk(llm: BaseLLM) -> None:
    """Refuse an LLM of which every call would fail because of the SDK that is installed beside it.

    Nothing is sent. An LLM of another package than llama-index-llms-anthropic is never refused.

    Args:
        llm: The LLM, or one of a class made from it.

    Raises:
        ConfigError: The SDK is one that the package does not work with; the message names both versions and the pin.
    """
    if not any(_is_anthropic(cls.__module__) for cls in type(llm).__mro__):
        return
    faults = [fault for fault in (_conversion_fault(_sdk()), _parameter_fault(llm)) if fault]
    if faults:
        raise ConfigError(
            f"llama-index-llms-anthropic {_installed('llama-index-llms-anthropic')} does not work with the anthropic "
            f"SDK {_sdk()}: {' and '.join(faults)}. What to do: {_PIN}"
        )


def _is_anthropic(module: str) -> bool:
    return module == _HOME or module.startswith(f"{_HOME}.")


@lru_cache(maxsize=8)
def _conversion_fault(sdk: str) -> str | None:  # noqa: ARG001 - what is remembered holds for this SDK
    """Convert one message, and say what is wrong if that cannot be done."""
    convert = getattr(sys.modules.get(f"{_HOME}.utils"), "messages_to_anthropic_messages", None)
    messages = [ChatMessage(role=MessageRole.USER, content="ping")]
    if not callable(convert) or len(_required(convert)) != 1:
        return None  # another release, that converts in another way
    try:
        convert(messages)
    except TypeError as problem:
        return f"no message can be converted (TypeError: {problem})"
    return None


def _required(function: Callable[..., object]) -> list[inspect.Parameter]:
    found = inspect.signature(function).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each for each in found if each.default is inspect.Parameter.empty and each.kind not in optional]


def _parameter_fault(llm: BaseLLM) -> str | None:
    """Name what the LLM sends with each call and the SDK does not take."""
    sent: object = getattr(llm, "_model_kwargs", None)
    messages: object = getattr(getattr(llm, "_client", None), "messages", None)
    if not isinstance(sent, dict) or messages is None:
        return None
    taken = _parameters(getattr(messages, "create", None))
    refused = [name for name in _SAMPLING if name in sent and taken and name not in taken]
    return f"it sends {', '.join(refused)}, which this SDK no longer takes" if refused else None


def _parameters(create: object) -> frozenset[str]:
    """Return the names that the SDK's method takes; none where it takes any."""
    if not callable(create):
        return frozenset()
    parameters = inspect.signature(create).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return frozenset()
    return frozenset(parameters)


def _sdk() -> str:
    return str(getattr(sys.modules.get("anthropic"), "__version__", None) or _installed("anthropic"))


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "of an unknown version"
