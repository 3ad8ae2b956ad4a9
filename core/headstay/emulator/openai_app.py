"""The OpenAI routes of the emulator: Chat Completions and Responses, whole and streamed, and Azure's paths.

Azure's client posts to `/openai/deployments/{deployment}/chat/completions?api-version=...` (openai 3.57.0,
recorded 2026-11-29); a deployment is taken to bear the name of its model.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headstay.emulator.exchange import Exchange, masked
from headstay.emulator.openai_ask import ask_chat, ask_responses, custom_tools
from headstay.emulator.openai_cache import Outcome
from headstay.emulator.openai_chat_body import read_chat
from headstay.emulator.openai_chat_wire import chat_chunks, chat_completion
from headstay.emulator.openai_errors import ApiError, mapping
from headstay.emulator.openai_failures import failed
from headstay.emulator.openai_gates import Reading
from headstay.emulator.openai_limits import RateWindow
from headstay.emulator.openai_memory import ResponseMemory
from headstay.emulator.openai_output import Output, make_output
from headstay.emulator.openai_responses_body import read_responses
from headstay.emulator.openai_responses_wire import (
    finished_response,
    output_items,
    response_events,
    response_object,
)
from headstay.emulator.openai_store import CacheCall, OpenAICache
from headstay.emulator.reply import Wire
from headstay.emulator.responder import Ask
from headstay.emulator.state import EmulatorState, Failure

Events = Iterable[tuple[str | None, Mapping[str, Any]]]
"""Server-sent events as (event name, data)."""


def openai_routes(state: EmulatorState) -> list[Route]:
    """Return the routes; each call makes a cache of its own, which `state.reset()` empties.

    Args:
        state: What all wires of the emulator share; its `switches.openai` decide contested rules.
    """
    api = _OpenAI(state)
    paths: list[tuple[str, Callable[[Request], Awaitable[Response]]]] = [
        ("/v1/chat/completions", api.chat),
        ("/v1/responses", api.responses),
        ("/v1/responses/input_tokens", api.count),
        ("/openai/v1/chat/completions", api.chat),
        ("/openai/v1/responses", api.responses),
        ("/openai/deployments/{deployment}/chat/completions", api.chat),
        ("/openai/responses", api.responses),
    ]
    return [Route(path, endpoint, methods=["POST"]) for path, endpoint in paths]


@dataclass(frozen=True)
class _Call:
    """One request on its way: what it is, and when it came."""

    wire: Wire
    path: str
    workspace: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    started: float
    failure: Failure | None


@dataclass(frozen=True)
class _Turn:
    """A checked request with what the cache said about it."""

    call: _Call
    reading: Reading
    cached: CacheCall
    outcome: Outcome


@dataclass(frozen=True)
class _Answer:
    """A finished answer: whole, and as events."""

    whole: Mapping[str, Any]
    events: Events
    done_line: bool


class _OpenAI:
    """Reads requests, asks the cache and the model, and writes answers."""

    def __init__(self, state: EmulatorState) -> None:
        self._state = state
        self._cache = OpenAICache(state.switches.openai)
        self._memory = ResponseMemory()
        self._limits = RateWindow()
        state.on_reset(self._forget)

    def _forget(self) -> None:
        self._cache.forget()
        self._memory.forget()
        self._limits.forget()

    async def chat(self, request: Request) -> Response:
        """Answer a Chat Completions request."""
        return await self._serve(request, "openai-chat", self._answer_chat)

    async def responses(self, request: Request) -> Response:
        """Answer a Responses request."""
        return await self._serve(request, "openai-responses", self._answer_responses)

    async def count(self, request: Request) -> Response:
        """Count the input tokens of a Responses request; nothing is cached or recorded."""
        try:
            body = _with_deployment(request, await _body(request))
            earlier = self._earlier(self._state.workspace(request.headers), body)
            reading = read_responses(body, earlier, counting=True)
        except ApiError as error:
            return JSONResponse(error.body(), status_code=error.status)
        counted = {"object": "response.input_tokens", "input_tokens": len(reading.prompt.tokens)}
        return JSONResponse(counted)

    async def _serve(self, request: Request, wire: Wire, answer: Callable[[_Call], Awaitable[Response]]) -> Response:
        started = self._state.clock.now()
        body: Mapping[str, Any] = {}
        workspace = self._state.workspace(request.headers)
        failure = self._state.take_failure()
        try:
            body = await _body(request)
            call = _Call(
                wire=wire,
                path=request.url.path,
                workspace=workspace,
                headers=masked(request.headers),
                body=_with_deployment(request, body),
                started=started,
                failure=failure,
            )
            if failure is not None and (failure.after_events is None or body.get("stream") is not True):
                raise failed(failure)
            return await answer(call)
        except ApiError as error:
            call = _Call(wire, request.url.path, workspace, masked(request.headers), body, started, None)
            return self._refuse(call, error, failure)

    def _refuse(self, call: _Call, error: ApiError, failure: Failure | None) -> Response:
        self._record(call, error.status, error.body(), self._state.clock.now())
        headers = self._headers(call, 0)
        if failure is not None and failure.retry_after is not None:
            headers["retry-after"] = f"{failure.retry_after:g}"
            headers["retry-after-ms"] = f"{failure.retry_after * 1000:g}"
        return JSONResponse(error.body(), status_code=error.status, headers=headers)

    async def _answer_chat(self, call: _Call) -> Response:
        turn = self._look_up(call, read_chat(call.body))
        output = self._output(turn, ask_chat)
        first = await self._state.until_first_event()
        name = self._state.next_id("chatcmpl-")
        whole = chat_completion(turn.reading, turn.outcome, output, name=name, created=int(first))
        answer = _Answer(whole, chat_chunks(turn.reading, whole, output), done_line=True)
        return self._begin(turn, answer, first)

    async def _answer_responses(self, call: _Call) -> Response:
        earlier = self._earlier(call.workspace, call.body)
        turn = self._look_up(call, read_responses(call.body, earlier))
        reading, outcome = turn.reading, turn.outcome
        warm, compare = reading.cache.prewarm, reading.cache.compare
        output = Output() if warm else self._output(turn, ask_responses)
        diagnostics = None
        if compare is not None:
            diagnostics = self._memory.diagnose(call.workspace, compare, reading, outcome)
        first = await self._state.until_first_event()
        begun = response_object(reading, name=self._state.next_id("resp_"), created=int(first))
        items = [] if warm else output_items(reading, output, self._state.next_id)
        whole = finished_response(
            begun, reading, outcome, output, items=items, completed=int(first), diagnostics=diagnostics
        )
        self._memory.keep(call.workspace, begun["id"], reading, outcome, items)
        return self._begin(turn, _Answer(whole, response_events(begun, whole), done_line=False), first)

    def _begin(self, turn: _Turn, answer: _Answer, first: float) -> Response:
        """Make what the request wrote readable, and send the answer: it begins now."""
        call = turn.call
        with self._state.lock:
            self._cache.commit(turn.cached, turn.outcome, first)
        self._record(call, 200, answer.whole, first)
        headers = self._headers(call, answer.whole["usage"]["total_tokens"])
        if not turn.reading.stream:
            return JSONResponse(answer.whole, headers=headers)
        lines = _lines(answer, call.failure)
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    def _earlier(self, workspace: str, body: Mapping[str, Any]) -> list[Any]:
        name = body.get("previous_response_id")
        return [] if name is None else [*self._memory.items(workspace, name)]

    def _look_up(self, call: _Call, reading: Reading) -> _Turn:
        fields = reading.cache
        cached = CacheCall(
            prompt=reading.prompt,
            model=reading.model,
            organization=f"{call.workspace}/{call.headers.get('openai-organization', '')}",
            settings=reading.settings,
            key=fields.key,
            mode=fields.mode,
            ttl=fields.ttl,
            retention=fields.retention,
        )
        with self._state.lock:
            outcome = self._cache.look_up(cached, call.started)
        return _Turn(call, reading, cached, outcome)

    def _output(self, turn: _Turn, ask: Callable[[Reading], Ask]) -> Output:
        reading = turn.reading
        stop = reading.body.get("stop")
        return make_output(
            self._state.reply(turn.call.wire, turn.call.body, lambda _: ask(reading)),
            limit=reading.limit,
            stops=[stop] if isinstance(stop, str) else stop or [],
            custom=custom_tools(reading),
            new_id=self._state.next_id,
        )

    def _record(self, call: _Call, status: int, response: Mapping[str, Any], first: float) -> None:
        self._state.record(
            Exchange(
                wire=call.wire,
                path=call.path,
                workspace=call.workspace,
                body=call.body,
                headers=call.headers,
                status=status,
                response=response,
                started=call.started,
                first_event=first,
            )
        )

    def _headers(self, call: _Call, tokens: int) -> dict[str, str]:
        headers = self._limits.count(call.workspace, tokens, call.started)
        headers["x-request-id"] = self._state.next_id("req_")
        headers["openai-version"] = "2020-10-01"
        headers["openai-processing-ms"] = "1"
        return headers


async def _body(request: Request) -> Mapping[str, Any]:
    try:
        return mapping(await request.json(), "body")
    except json.JSONDecodeError as error:
        raise ApiError(f"We could not parse the JSON body of your request. ({error})") from error


def _with_deployment(request: Request, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Fill in the model from Azure's path, which also needs an API version."""
    deployment = request.path_params.get("deployment")
    if deployment is None:
        return body
    if "api-version" not in request.query_params:
        raise ApiError("Resource not found", status=404, code="404")
    return {**body, "model": deployment}


async def _lines(answer: _Answer, failure: Failure | None) -> AsyncIterator[str]:
    """Write the events of an answer; a failure breaks them off with an error event."""
    limit = None if failure is None else failure.after_events
    sent = 0
    for name, data in islice(answer.events, limit):
        yield _line(name, data)
        sent += 1
    if failure is not None:
        error = failed(failure)
        if answer.done_line:
            yield _line(None, error.body())
        else:
            told = {"code": error.code or error.kind, "message": error.message, "param": None}
            yield _line("error", {"type": "error", **told, "sequence_number": sent})
    elif answer.done_line:
        yield "data: [DONE]\n\n"


def _line(name: str | None, data: Mapping[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {text}\n\n" if name is None else f"event: {name}\ndata: {text}\n\n"
