"""The SDK's client inside an LLM, watched: requests are planned where they are last built, replies read at once.

By then LlamaIndex has converted messages and tools, merged system texts, and chosen between an SDK's methods. So one
place covers chat, completion, streams, tools and structured output, whatever method of the LLM was called.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from headstay import told
from headstay.errors import PrefixBreak
from headstay.ledger.usage import Usage, from_openai_chat, from_openai_responses
from headstay.prompt import Wire
from llama_index_headstay.binding import Binding
from llama_index_headstay.sdk_body import (
    accepts,
    as_posted,
    fitted,
    messages_of,
    schemas_shown,
    with_words,
    without_own_words,
)
from llama_index_headstay.sdk_reply import ending
from llama_index_headstay.sdk_stream import watched_stream
from llama_index_headstay.sdk_usage import Started, repaired
from llama_index_headstay.ticket import Ticket, current_ticket

if TYPE_CHECKING:
    from headstay.call import Call

_Routes = Mapping[str, Any]

_MESSAGES: _Routes = {"create": "anthropic-messages", "parse": "anthropic-messages"}
_CHAT: _Routes = {"completions": {"create": "openai-chat", "parse": "openai-chat"}}
_RESPONSES: _Routes = {"create": "openai-responses", "parse": "openai-responses"}
_ROUTES: Mapping[str, _Routes] = {
    "anthropic": {"messages": _MESSAGES, "beta": {"messages": _MESSAGES}},
    "openai": {
        "chat": _CHAT,
        "responses": _RESPONSES,
        "beta": {"chat": _CHAT},
        "completions": {"create": "host-messages"},  # a text without messages: nothing to lay out
    },
}
_READ: Mapping[Wire, Callable[[Mapping[str, object]], Usage]] = {
    "openai-chat": from_openai_chat,
    "openai-responses": from_openai_responses,
    "host-messages": from_openai_chat,
}
# The field is documented for the Claude API alone, and OpenAI's is on no page of Azure's (seen 2026-11-29).
_ELSEWHERE = ("Azure", "Bedrock", "Vertex", "Foundry")


def watch_client(client: Any, binding: Binding) -> Any:
    """Copy an SDK's client so that its requests go through a flow; the copy shares its connections.

    Args:
        client: A client of `openai` or `anthropic`; of anything else nothing is watched.
        binding: What the LLM knows.
    """
    homes = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    sdk = next((name for name in _ROUTES if name in homes), "")
    if not sdk or isinstance(getattr(client, "_headstay", None), Binding):
        return client
    copied = copy.copy(client)
    for name, routes in _ROUTES[sdk].items():
        if hasattr(client, name):
            vars(copied)[name] = _Door(getattr(client, name), routes, binding, client)
    vars(copied)["_headstay"] = binding
    return copied


class _Door:
    """A resource of a client, the SDK's own but for the methods that send a request to a model."""

    def __init__(self, inner: Any, routes: _Routes, binding: Binding, client: Any) -> None:
        self._inner = inner
        self._routes = routes
        self._binding = binding
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_inner"], name)
        route = self.__dict__["_routes"].get(name)
        if isinstance(route, Mapping):
            return _Door(found, cast("_Routes", route), self._binding, self._client)
        if route is None:
            return found

        def send(**given: Any) -> Any:
            return _Sending(found, cast("Wire", route), self._binding, self._client).send(given)

        return send


class _Sending:
    """One request, from an SDK's arguments to its answer.

    Args:
        method: The SDK's method.
        wire: The wire format that it speaks.
        binding: What the LLM knows.
        client: The client, for where it sends to.
    """

    def __init__(self, method: Callable[..., Any], wire: Wire, binding: Binding, client: Any) -> None:
        self._method = method
        self._wire: Wire = wire
        self._binding = binding
        self._client = client
        ticket = current_ticket()  # of another LLM where this one was called on the way to that one's request
        own = ticket is not None and ticket.binding is binding
        self._ticket = ticket if ticket is not None and own else Ticket(binding)
        self._started = Started()
        self._usage: Usage | None = None
        self._call: Call | None = None
        self._added_options = False

    def send(self, given: Mapping[str, Any]) -> Any:
        """Send it, and return what the SDK returns: an answer, a stream, or what to await for one."""
        sent = self._prepared(given)
        try:
            answer = self._method(**sent)
        except BaseException as problem:
            if self._may_leave_out(problem):
                return self.send(given)
            self.end(problem)
            raise
        return self._awaited(answer, given) if inspect.isawaitable(answer) else self._received(answer)

    async def _awaited(self, coming: Any, given: Mapping[str, Any]) -> Any:
        try:
            answer = await coming
        except BaseException as problem:
            if self._may_leave_out(problem):
                return await self.send(given)
            self.end(problem)
            raise
        return self._received(answer)

    def _prepared(self, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._with_usage(self._planned(given))
        except PrefixBreak:
            raise
        except Exception as problem:  # noqa: BLE001 - the application's own request goes out
            reason = f"{type(problem).__name__} while the request was planned"  # its own words may quote a prompt
            call = self._binding.pass_on(given, self._wire, reason, names=self._ticket.names)
            self._call = self._ticket.call = call
            return fitted(self._method, call.body)

    def _planned(self, given: Mapping[str, Any]) -> dict[str, Any]:
        ticket = self._ticket
        posted = as_posted(given)
        body, found = without_own_words(posted, self._wire, ticket.tails, ticket.earlier_tails)
        shown, classes = schemas_shown(body)
        deployed = self._deployed
        if self._wire == "host-messages":
            reason = "a text completion has no head to keep; an OpenAILike chat model needs is_chat_model=True"
            call = self._binding.pass_on(shown, self._wire, reason, names=ticket.names)
        else:
            call = self._binding.prepare(
                {**shown, **deployed},
                self._wire,
                names=ticket.names,
                tail=ticket.tail if found else "",
                replies=ticket.receipts,
                endpoint=self._endpoint,
                diagnoses=self._may_diagnose(),
            )
        self._call = self._ticket.call = call
        sent = {**call.body, **classes}
        if deployed and "model" in given:
            sent["model"] = given["model"]
        if call.unverified is not None:  # nothing was put behind it, so its per-call text stays where it stood
            own = without_own_words(posted, self._wire, ())[0]
            at_provider = call.lane is not None  # the earlier messages are there; else it goes out as it was said
            sent |= messages_of(with_words(own, self._wire, ticket.names.tail) if at_provider else own, self._wire)
        return fitted(self._method, sent)

    @property
    def _deployed(self) -> dict[str, str]:
        """What Azure calls by a name of the application's own: the model's name decides the rules."""
        model = getattr(self._ticket.llm, "model", None)
        return {"model": model} if isinstance(model, str) and "Azure" in type(self._client).__name__ else {}

    @property
    def _endpoint(self) -> str:
        return str(getattr(self._client, "base_url", ""))

    def _with_usage(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Ask for the usage of a stream, which Chat Completions leaves out unless asked."""
        wanted = self._wire == "openai-chat" and bool(sent.get("stream"))
        if not wanted or "stream_options" in sent or self._endpoint in self._binding.plain:
            return sent
        self._added_options = True
        return {**sent, "stream_options": {"include_usage": True}}

    def _may_leave_out(self, problem: BaseException) -> bool:
        """Whether a server refused what was asked on top of the application's request; then it is asked no more."""
        if not (self._added_options and isinstance(problem, Exception) and "stream_options" in str(problem)):
            return False
        self._binding.plain.add(self._endpoint)
        self._added_options = False
        if self._call is not None:
            self._binding.flow.abandon(self._call)
        return True

    def _may_diagnose(self) -> bool:
        if any(word in type(self._client).__name__ for word in _ELSEWHERE):
            return False
        return self._wire != "anthropic-messages" or accepts(self._method, "diagnostics")

    def _received(self, answer: Any) -> Any:
        stream = watched_stream(answer, self)
        if stream is not None:
            self._ticket.stream = ref(stream)  # a stream that nobody will read ends when it is let go
            return stream
        self._noted(answer, answer)
        self._ticket.answered = True
        self.end(None)
        return answer

    def note(self, event: Any) -> None:
        """Note one event of a stream."""
        if self._call is not None:
            self._call.began()
        kind = getattr(event, "type", "")
        if kind == "message_start":
            message = getattr(event, "message", None)
            self._started = Started.of(message)
            self._noted(message, None)
        elif kind in ("response.completed", "response.incomplete"):
            response = getattr(event, "response", None)
            self._noted(response, response)
        elif self._wire == "openai-chat":
            self._noted(event, event)
        else:
            self._noted(None, event)

    def _noted(self, speaker: Any, counted: Any) -> None:
        """Take what an answer says of itself, and its usage; neither is worth an error inside the caller's stream."""
        try:
            self._ticket.ended = ending(self._wire, counted or speaker) or self._ticket.ended
            if speaker is not None:
                self._read(speaker)
            if counted is not None:
                self._count(counted)
        except Exception as problem:  # noqa: BLE001 - accounting never raises into the caller
            self._binding.flow.say(f"a reply could not be read: {type(problem).__name__}")

    def _read(self, answer: Any) -> None:
        """Take what an answer says of itself beside its text and its usage."""
        call = self._call
        if call is None:
            return
        if self._wire == "anthropic-messages":
            if call.diagnosed:
                told.note_message(
                    call, {"id": getattr(answer, "id", ""), "diagnostics": getattr(answer, "diagnostics", None)}
                )
            return
        names = ("system_fingerprint", "service_tier", "id")
        told.note_served(call, {name: getattr(answer, name, None) for name in names})
        if call.diagnosed and self._wire == "openai-responses":
            told.note_response(call, answer)

    def _count(self, answer: Any) -> None:
        """Take the usage, and write it out in full where the host reads it."""
        usage: Any = getattr(answer, "usage", None)
        if usage is None:
            return
        if self._wire == "anthropic-messages":
            counted = repaired(usage, self._started)
        else:
            counted = _READ[self._wire](usage.model_dump())
        self._usage = self._ticket.usage = counted

    def end(self, error: BaseException | None, *, closed: bool = False) -> None:
        """Account for the call."""
        if self._call is None:
            return
        if closed:
            self._call.left()
        self._binding.flow.complete(self._call, self._usage, error=error)
