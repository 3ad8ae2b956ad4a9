"""A loopback server that speaks Anthropic's and OpenAI's APIs, or vLLM's, and models their prompt caches.

It is an examiner: its rules are typed from the providers' pages and vLLM's source, and it shares no code with the rest
of headstay. Token counts are estimates; eviction is modelled for vLLM only, hidden system tokens for none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headstay.emulator.anthropic_switches import AnthropicSwitches
    from headstay.emulator.clock import Clock, ManualClock, SystemClock
    from headstay.emulator.exchange import Exchange
    from headstay.emulator.openai_switches import OpenAISwitches
    from headstay.emulator.reply import Reply, Responder, ToolCall, Wire
    from headstay.emulator.responder import Ask, Offer, answer
    from headstay.emulator.server import Emulator, EmulatorStartError, run, serve
    from headstay.emulator.vllm_settings import VLLMSettings

_HOMES = {
    "AnthropicSwitches": "anthropic_switches",
    "Ask": "responder",
    "Clock": "clock",
    "Emulator": "server",
    "EmulatorStartError": "server",
    "Exchange": "exchange",
    "ManualClock": "clock",
    "Offer": "responder",
    "OpenAISwitches": "openai_switches",
    "Reply": "reply",
    "Responder": "reply",
    "SystemClock": "clock",
    "ToolCall": "reply",
    "VLLMSettings": "vllm_settings",
    "Wire": "reply",
    "answer": "responder",
    "run": "server",
    "serve": "server",
}

__all__ = [
    "AnthropicSwitches",
    "Ask",
    "Clock",
    "Emulator",
    "EmulatorStartError",
    "Exchange",
    "ManualClock",
    "Offer",
    "OpenAISwitches",
    "Reply",
    "Responder",
    "SystemClock",
    "ToolCall",
    "VLLMSettings",
    "Wire",
    "answer",
    "run",
    "serve",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headstay.emulator' has no attribute {name!r}")
    return getattr(import_module(f"headstay.emulator.{home}"), name)
