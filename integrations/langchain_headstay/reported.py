"""What a reply says of itself beside its text and its usage: its id, who served it, and the provider's diagnosis.

LangChain keeps some of that. What it drops on the way is taken where it passes: in `ChatAnthropic` the first event of a
stream, in `BaseChatOpenAI` the response of the Responses API, which its client hands over.
"""

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, suppress
from functools import lru_cache, partial
from types import new_class
from typing import Any, cast, get_origin

from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from headstay import told
from headstay.call import Call

_CLIENTS = ("root_client", "root_async_client")
_ENDS = ("response.completed", "response.incomplete")
# The field is documented for the Claude API alone, and OpenAI's is on no page of Azure's (seen 2026-11-29).
_OTHER_CLOUDS = ("langchain_aws", "langchain_google_vertexai")


@lru_cache(maxsize=256)
def may_diagnose(kind: type) -> bool:
    """Whether requests of a model class go where a diagnosis can be asked for, and its SDK takes the question."""
    homes = {(one.__module__.partition(".")[0], one.__name__) for one in kind.__mro__}
    if ("langchain_openai", "AzureChatOpenAI") in homes or any(home in _OTHER_CLOUDS for home, _ in homes):
        return False
    if ("langchain_anthropic", "ChatAnthropic") not in homes:
        return True
    from anthropic.resources.messages import Messages  # noqa: PLC0415 - optional: only with its host package

    return "diagnostics" in inspect.signature(Messages.create).parameters


def note_result(call: Call, result: ChatResult) -> None:
    """Take what a whole reply says of itself, and leave of it in the reply only what the application asked for."""
    said = result.llm_output or {}
    if call.wire == "anthropic-messages":
        if call.diagnosed:
            told.note_message(call, said)
        if call.asked and "diagnostics" in said:
            said["diagnostics"] = None  # as it is where nobody asks
        return
    message = result.generations[0].message if result.generations else None
    told.note_served(call, message.response_metadata if message is not None and not said else said)


def note_chunk(call: Call, chunk: ChatGenerationChunk) -> None:
    """Take what a piece of a stream says of the reply."""
    if call.wire == "anthropic-messages":
        return
    for said in (chunk.generation_info, chunk.message.response_metadata):
        if said:
            told.note_served(call, said)


def note_start(call: Call, message: Any) -> None:
    """Take what the message of Anthropic's `message_start` says."""
    if call.diagnosed:
        diagnostics = getattr(message, "diagnostics", None)
        told.note_message(call, {"id": getattr(message, "id", ""), "diagnostics": diagnostics})


def watch_clients(kind: type[BaseChatModel], current: Callable[[], Call | None]) -> None:
    """Have the responses that a model class gets from OpenAI's client seen, before LangChain drops most of them.

    The model keeps its own client. What its methods find under that name is a copy of it, which shares the connections
    and hands on each response of the Responses API as it came.

    Args:
        kind: The class of one instrumented model.
        current: Returns the call under way, or None.
    """
    for name in _CLIENTS:
        if name in kind.model_fields:
            seen: list[tuple[Any, Any]] = []
            setattr(kind, name, property(partial(_client, name, seen, current), partial(_set_client, name)))


def _set_client(name: str, model: BaseChatModel, client: Any) -> None:
    vars(model)[name] = client


def _client(name: str, seen: list[tuple[Any, Any]], current: Callable[[], Call | None], model: BaseChatModel) -> Any:
    own = vars(model)[name]
    if own is None or current() is None:
        return own
    for known, copied in seen:
        if known is own:
            return copied
    copied = own
    with suppress(Exception):  # a client of another make is used as it is; then there is no diagnosis
        copied = own.with_options()
        vars(copied)["post"] = partial(_post, copied.post, current)
    seen[:] = [(own, copied)]
    return copied


def _post(post: Callable[..., Any], current: Callable[[], Call | None], path: str, **given: Any) -> Any:
    call = current()
    if path != "/responses" or call is None or not call.diagnosed:
        return post(path, **given)
    if given.get("stream"):
        return post(path, **{**given, "stream_cls": _seen_stream(given["stream_cls"], call)})
    answer = post(path, **given)
    return _anoted(call, answer) if inspect.isawaitable(answer) else _noted(call, answer)


def _noted(call: Call, answer: Any) -> Any:
    with suppress(Exception):  # the host reads it after us, and meets the same problem
        told.note_response(call, answer.parse() if hasattr(answer, "http_response") else answer)
    return answer


async def _anoted(call: Call, answer: Any) -> Any:
    return _noted(call, await answer)


def _seen_stream(kind: Any, call: Call) -> Any:
    """Make a kind of stream whose last event is noted."""
    base: Any = get_origin(kind) or kind

    def events(self: Any) -> Generator[Any]:
        for event in base.__stream__(self):
            _note_event(call, event)
            yield event

    async def aevents(self: Any) -> AsyncGenerator[Any]:
        async with aclosing(cast("AsyncGenerator[Any]", base.__stream__(self))) as relayed:
            async for event in relayed:
                _note_event(call, event)
                yield event

    body = aevents if inspect.isasyncgenfunction(base.__stream__) else events
    return new_class(base.__name__, (kind,), exec_body=lambda space: space.update({"__stream__": body}))


def _note_event(call: Call, event: Any) -> None:
    if getattr(event, "type", "") in _ENDS:
        told.note_response(call, getattr(event, "response", None))
