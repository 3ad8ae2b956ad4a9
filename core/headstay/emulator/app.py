"""Joins the wires of an emulator into one ASGI application."""

from starlette.applications import Starlette

from headstay.emulator.anthropic_app import anthropic_routes
from headstay.emulator.openai_app import openai_routes
from headstay.emulator.state import EmulatorState
from headstay.emulator.vllm_app import vllm_routes


def build_app(state: EmulatorState) -> Starlette:
    """Return the application that answers for both providers, sharing one state, or for a vLLM server."""
    if state.switches.vllm is not None:
        return Starlette(routes=vllm_routes(state, state.switches.vllm))
    return Starlette(routes=[*anthropic_routes(state), *openai_routes(state)])
