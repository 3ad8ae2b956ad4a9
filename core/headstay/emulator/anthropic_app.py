"""The routes of the emulated Messages API."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from headstay.emulator import anthropic_models
from headstay.emulator.anthropic_ask import ask_from_anthropic, thinks
from headstay.emulator.anthropic_blocks import Part, parts_of, shown
from headstay.emulator.anthropic_cache import Cache, Outcome
from headstay.emulator.anthropic_checks import check_fields, check_parameters, check_tools
from headstay.emulator.anthropic_diagnostics import Diagnosis, fingerprint
from headstay.emulator.anthropic_errors import ApiError, invalid
from headstay.emulator.anthropic_marks import check_marks
from headstay.emulator.anthropic_message import Answer, encoded, events_of, shape_answer, usage_of
from headstay.emulator.anthropic_models import ModelRow
from headstay.emulator.anthropic_steps import steps_of
from headstay.emulator.anthropic_thinking import BETA, behavior_of, bindings_of, check_thinking, sign
from headstay.emulator.anthropic_turns import check_messages, check_pairs, check_parts
from headstay.emulator.exchange import Exchange, masked
from headstay.emulator.reply import Reply
from headstay.emulator.shape import mapping
from headstay.emulator.state import EmulatorState, Failure

# Constant: the emulator does not meter requests. On current models cache reads do not count to input tokens.
_LIMITS = {
    "anthropic-organization-id": "emulated",
    "anthropic-ratelimit-requests-limit": "4000",
    "anthropic-ratelimit-requests-remaining": "3999",
    "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:00Z",
    "anthropic-ratelimit-input-tokens-limit": "2000000",
    "anthropic-ratelimit-input-tokens-remaining": "2000000",
    "anthropic-ratelimit-input-tokens-reset": "2026-01-01T00:00:00Z",
    "anthropic-ratelimit-output-tokens-limit": "400000",
    "anthropic-ratelimit-output-tokens-remaining": "400000",
    "anthropic-ratelimit-output-tokens-reset": "2026-01-01T00:00:00Z",
}


@dataclass(kw_only=True)
class _Call:
    """One request on its way through the API."""

    request: Request
    id: str
    started: float
    workspace: str
    body: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def betas(self) -> frozenset[str]:
        listed = self.request.headers.get("anthropic-beta", "")
        return frozenset(name.strip() for name in listed.split(",") if name.strip())

    def headers(self, retry_after: float | None = None) -> dict[str, str]:
        headers = {**_LIMITS, "request-id": self.id}
        return headers if retry_after is None else {**headers, "retry-after": f"{retry_after:g}"}


@dataclass(frozen=True)
class _Accepted:
    """A request that passed all checks: its model, all its blocks, those shown, and what to report."""

    row: ModelRow
    parts: list[Part]
    shown: list[Part]
    transformations: list[dict[str, str]]


class AnthropicApi:
    """The Messages API of one emulator.

    Args:
        state: What the emulator's wires share.
    """

    def __init__(self, state: EmulatorState) -> None:
        self._state = state
        self._cache = Cache()
        self._diagnosis = Diagnosis()
        state.on_reset(self._cache.clear)
        state.on_reset(self._diagnosis.clear)

    async def messages(self, request: Request) -> Response:
        """Answer `POST /v1/messages`."""
        call = self._call(request)
        failure = self._state.take_failure()
        try:
            await _read_body(call)
            if failure is not None and (failure.after_events is None or call.body.get("stream") is not True):
                return self._fail(call, _error_of(failure), retry_after=failure.retry_after)
            accepted = self._accept(call)
            outcome = self._look(call, accepted)
            message = self._message(call, accepted, outcome)
        except ApiError as error:
            return self._fail(call, error)
        began = await self._state.until_first_event()
        self._cache.commit(outcome)
        if failure is not None:
            return self._break_off(call, message, failure, began)
        self._record(call, 200, message, began)
        if call.body.get("stream") is True:
            return _streamed(call, [encoded(event) for event in events_of(message)])
        return _json(200, message, call.headers())

    async def count_tokens(self, request: Request) -> Response:
        """Answer `POST /v1/messages/count_tokens`: the estimated input tokens, nothing is cached."""
        call = self._call(request)
        try:
            await _read_body(call)
            row = check_fields(call.body, counting=True)
            check_messages(call.body, row, betas=call.betas)
            check_tools(call.body)
            parts = parts_of(call.body)
            check_parts(parts)
            check_marks(call.body, parts)
            steps = steps_of(
                call.body, shown(parts, call.body, row), workspace="", switches=self._state.switches.anthropic
            )
        except ApiError as error:
            return _json(error.status, error.body(call.id), call.headers())
        return _json(200, {"input_tokens": steps[-1].total if steps else 0}, call.headers())

    async def models(self, request: Request) -> Response:
        """Answer `GET /v1/models`: every model of the table."""
        call = self._call(request)
        listed = [_model_info(name) for name in anthropic_models.names()]
        page = {"data": listed, "has_more": False, "first_id": listed[0]["id"], "last_id": listed[-1]["id"]}
        return _json(200, page, call.headers())

    async def model(self, request: Request) -> Response:
        """Answer `GET /v1/models/{name}`."""
        call = self._call(request)
        name = str(request.path_params["name"])
        if anthropic_models.find(name) is None:
            return _json(404, ApiError(404, f"model: {name}").body(call.id), call.headers())
        return _json(200, _model_info(name), call.headers())

    def _call(self, request: Request) -> _Call:
        return _Call(
            request=request,
            id=self._state.next_id("req"),
            started=self._state.clock.now(),
            workspace=self._state.workspace(request.headers),
        )

    def _accept(self, call: _Call) -> _Accepted:
        """Check a request; raise the 400 or 404 of the first rule it breaks."""
        body = call.body
        row = check_fields(body)
        check_parameters(body, row, betas=call.betas)
        check_messages(body, row, betas=call.betas)
        check_tools(body)
        parts = parts_of(body)
        check_parts(parts)
        check_pairs(body)
        check_marks(body, parts)
        behavior = behavior_of(body, self._state.switches.anthropic)
        kept, transformations = check_thinking(body, parts, row, behavior=behavior)
        return _Accepted(row, parts, shown(kept, body, row), transformations)

    def _look(self, call: _Call, accepted: _Accepted) -> Outcome:
        switches = self._state.switches.anthropic
        steps = steps_of(call.body, accepted.shown, workspace=call.workspace, switches=switches)
        return self._cache.look(steps, minimum=accepted.row.minimum, now=call.started)

    def _message(self, call: _Call, accepted: _Accepted, outcome: Outcome) -> dict[str, Any]:
        """Shape the whole answer, before its first event leaves."""
        body = call.body
        reply = self._state.reply("anthropic-messages", body, ask_from_anthropic)
        ids = [self._state.next_id("toolu") for _ in reply.tool_calls]
        thinking = _thinking_block(body, accepted, reply)
        answer: Answer = shape_answer(reply, body, thinking=thinking, call_ids=ids)
        message: dict[str, Any] = {
            "id": self._state.next_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": list(answer.content),
            "stop_reason": answer.stop_reason,
            "stop_sequence": answer.stop_sequence,
            "usage": usage_of(outcome, body, answer),
        }
        if BETA in call.betas:
            message["input_transformations"] = accepted.transformations
        if body.get("diagnostics") is not None:
            print_of = fingerprint(body, accepted.parts)
            message["diagnostics"] = self._diagnosis.explain(call.workspace, body, print_of)
            self._diagnosis.remember(call.workspace, message["id"], print_of)
        return message

    def _record(self, call: _Call, status: int, response: Mapping[str, Any], began: float) -> None:
        self._state.record(
            Exchange(
                wire="anthropic-messages",
                path=call.request.url.path,
                workspace=call.workspace,
                body=call.body,
                headers=masked(call.request.headers),
                status=status,
                response=response,
                started=call.started,
                first_event=began,
            )
        )

    def _fail(self, call: _Call, error: ApiError, *, retry_after: float | None = None) -> Response:
        body = error.body(call.id)
        self._record(call, error.status, body, self._state.clock.now())
        return _json(error.status, body, call.headers(retry_after))

    def _break_off(self, call: _Call, message: dict[str, Any], failure: Failure, began: float) -> Response:
        """Begin the stream, then end it with an error event; what was written stays readable."""
        error = _error_of(failure).body(call.id)
        self._record(call, 200, error, began)
        events = [encoded(event) for event in events_of(message)][: failure.after_events]
        return _streamed(call, [*events, encoded(error)])


def anthropic_routes(state: EmulatorState) -> list[Route]:
    """Return the routes of the Messages API, sharing the state of one emulator."""
    api = AnthropicApi(state)
    return [
        Route("/v1/messages", api.messages, methods=["POST"]),
        Route("/v1/messages/count_tokens", api.count_tokens, methods=["POST"]),
        Route("/v1/models", api.models, methods=["GET"]),
        Route("/v1/models/{name}", api.model, methods=["GET"]),
    ]


async def _read_body(call: _Call) -> None:
    """Read the JSON body into the call; raise 401 without a key and 400 for anything but an object."""
    raw = await call.request.body()
    if not call.workspace:
        raise ApiError(401, "x-api-key header is required")
    try:
        parsed: object = json.loads(raw)
    except ValueError as error:
        raise invalid(f"The request body is not valid JSON: {error}") from None
    call.body = mapping(parsed)
    if call.body is not parsed:
        raise invalid("The request body must be a JSON object")


def _thinking_block(body: Mapping[str, Any], accepted: _Accepted, reply: Reply) -> dict[str, Any] | None:
    """Sign the thinking of a reply; None when there is none, or when the request switched it off."""
    if reply.thinking is None or not thinks(body):
        return None
    display = mapping(body.get("thinking")).get("display")
    visible = display == "summarized" or (display is None and accepted.row.shows_thinking)
    text = reply.thinking if visible else ""
    binding = bindings_of(body, accepted.parts)[-1]
    return {"type": "thinking", "thinking": text, "signature": sign(body["model"], binding, text)}


def _error_of(failure: Failure) -> ApiError:
    return ApiError(failure.status, f"Injected failure with status {failure.status}", kind=failure.kind)


def _model_info(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "2026-01-01T00:00:00Z",
        "lifecycle": "active",
    }


def _json(status: int, content: Mapping[str, Any], headers: dict[str, str]) -> Response:
    return JSONResponse(dict(content), status_code=status, headers=headers)


def _streamed(call: _Call, events: list[bytes]) -> Response:
    """Send the first event alone, so that a client sees when the answer begins, and then the others."""

    async def body() -> AsyncIterator[bytes]:
        yield events[0] if events else b""
        yield b"".join(events[1:])

    return StreamingResponse(body(), media_type="text/event-stream", headers=call.headers())
