"""The routes of an emulated vLLM server."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headstay.emulator import vllm_wire
from headstay.emulator.exchange import Exchange, masked
from headstay.emulator.openai_ask import ask_chat_body
from headstay.emulator.openai_output import Output, make_output
from headstay.emulator.shape import compact, mapping, sequence, text_of
from headstay.emulator.state import EmulatorState, Failure
from headstay.emulator.vllm_cache import VLLMRequest
from headstay.emulator.vllm_checks import check_chat, check_messages, room_for_answer
from headstay.emulator.vllm_engine import VLLMEngine
from headstay.emulator.vllm_errors import VLLMError, failed, malformed
from headstay.emulator.vllm_prompt import answer_tokens, prompt_tokens, text_tokens
from headstay.emulator.vllm_settings import VLLMSettings


def vllm_routes(state: EmulatorState, settings: VLLMSettings) -> list[Route]:
    """Return the routes; each call makes an engine of its own, which `state.reset()` empties.

    Args:
        state: What the emulator keeps.
        settings: The server.
    """
    api = _VLLM(state, settings)
    return [
        Route("/v1/chat/completions", api.chat, methods=["POST"]),
        Route("/tokenize", api.tokenize, methods=["POST"]),
        Route("/v1/models", api.models, methods=["GET"]),
        Route("/health", api.health, methods=["GET"]),
        Route("/metrics", api.metrics, methods=["GET"]),
    ]


@dataclass(frozen=True)
class _Call:
    """One request on its way: what it is, and when it came."""

    workspace: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    started: float


class _VLLM:
    """Reads requests, asks the engine and the model, and writes answers."""

    def __init__(self, state: EmulatorState, settings: VLLMSettings) -> None:
        self._state = state
        self._settings = settings
        self._engine = VLLMEngine(settings, state.lock)
        state.on_reset(self._engine.forget)

    async def health(self, _: Request) -> Response:
        """Say that the engine is well."""
        return Response()

    async def models(self, _: Request) -> Response:
        """List what is served."""
        return JSONResponse(vllm_wire.models(self._settings, int(self._state.clock.now())))

    async def metrics(self, _: Request) -> Response:
        """Tell what was counted."""
        return PlainTextResponse(vllm_wire.metrics(self._engine.figures(), self._settings))

    async def tokenize(self, request: Request) -> Response:
        """Tell the tokens of a chat request's prompt, or of a text; nothing is cached or recorded."""
        try:
            body = await _body(request)
            if isinstance(text := body.get("prompt"), str):
                return JSONResponse(vllm_wire.tokenized(text_tokens(text), self._settings))
            check_messages(body, self._settings)
        except VLLMError as error:
            return JSONResponse(error.body(), status_code=error.status)
        return JSONResponse(vllm_wire.tokenized(self._tokens(body), self._settings))

    async def chat(self, request: Request) -> Response:
        """Answer a Chat Completions request."""
        started = self._state.clock.now()
        headers = masked(request.headers)
        workspace = self._state.workspace(request.headers)
        failure = self._state.take_failure()
        body: Mapping[str, Any] = {}
        try:
            body = await _body(request)
            if failure is not None and (failure.after_events is None or body.get("stream") is not True):
                raise failed(failure)
            return await self._answer(_Call(workspace, headers, body, started), failure)
        except VLLMError as error:
            self._record(_Call(workspace, headers, body, started), error.status, error.body(), self._state.clock.now())
            wait = failure.retry_after if failure is not None else None
            told = {} if wait is None else {"retry-after": f"{wait:g}"}
            return JSONResponse(error.body(), status_code=error.status, headers=told)

    async def _answer(self, call: _Call, failure: Failure | None) -> Response:
        body = call.body
        check_chat(body, self._settings)
        prompt = self._tokens(body)
        room = room_for_answer(body, len(prompt), self._settings)
        output = self._output(body, room)
        model = text_of(body.get("model")) or self._settings.model
        answer = answer_tokens(vllm_wire.message_of(output))[:room]
        admission = await self._engine.admit(
            VLLMRequest(
                prompt=prompt,
                answer=answer,
                salt=text_of(body.get("cache_salt")),
                adapter=model if model in self._settings.adapters else "",
            )
        )
        try:
            first = await self._state.until_first_event()
        finally:
            self._engine.finish(admission)
        whole = vllm_wire.completion(
            output,
            admission.held,
            model=model,
            prompt=len(prompt),
            generated=len(answer),
            name=self._state.next_id("chatcmpl-"),
            created=int(first),
        )
        self._record(call, 200, whole, first)
        if body.get("stream") is not True:
            return JSONResponse(whole)
        return StreamingResponse(_lines(body, whole, output, failure), media_type="text/event-stream")

    def _tokens(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        tokenize = self._settings.tokenize
        return prompt_tokens(body) if tokenize is None else tuple(tokenize(body))

    def _output(self, body: Mapping[str, Any], room: int) -> Output:
        stop = body.get("stop")
        return make_output(
            self._state.reply("openai-chat", body, ask_chat_body),
            limit=room,
            stops=[stop] if isinstance(stop, str) else sequence(stop),
            custom=(),
            new_id=lambda _: self._state.next_id("chatcmpl-tool-"),
        )

    def _record(self, call: _Call, status: int, response: Mapping[str, Any], first: float) -> None:
        self._state.record(
            Exchange(
                wire="openai-chat",
                path="/v1/chat/completions",
                workspace=call.workspace,
                body=call.body,
                headers=call.headers,
                status=status,
                response=response,
                started=call.started,
                first_event=first,
            )
        )


async def _body(request: Request) -> Mapping[str, Any]:
    try:
        found: object = await request.json()
    except json.JSONDecodeError as error:
        raise malformed("", "json_invalid", "JSON decode error", {}) from error
    if found != {} and not mapping(found):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise malformed("", "model_attributes_type", message, found)
    return mapping(found)


async def _lines(
    body: Mapping[str, Any], whole: Mapping[str, Any], output: Output, failure: Failure | None
) -> AsyncIterator[str]:
    """Write the chunks of an answer; a failure breaks them off with an error."""
    limit = None if failure is None else failure.after_events
    for chunk in islice(vllm_wire.chunks(body, whole, output), limit):
        yield f"data: {compact(chunk)}\n\n"
    if failure is not None:
        yield f"data: {compact(failed(failure).body())}\n\n"
    yield "data: [DONE]\n\n"
