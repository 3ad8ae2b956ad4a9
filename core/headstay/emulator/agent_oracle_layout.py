"""The ideal order of an agent's request, built from a workload's labels.

tools (the lane's union) and stable text with pinned few-shot | semi-static | persistent messages | note

What a tool definition, a tool call and a tool result consist of differs by wire; it is written here as the providers'
formats have it, so that counts can be compared with a server that counts whole blocks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b

from headstay.emulator.agent_workload_calls import AgentWorkload, Lane
from headstay.emulator.agent_workload_labels import AgentCall, Said, ToolForm, ToolUse
from headstay.emulator.agent_workload_text import RESOLUTION, examples_text
from headstay.emulator.oracle_layout import IdealRequest, Segment
from headstay.emulator.reply import Wire
from headstay.emulator.shape import compact

STRUCTURE = "\N{SECTION SIGN}"
"""Stands for one structural token inside a text: it counts as one."""


@dataclass(frozen=True)
class AgentRequest(IdealRequest):
    """One call in the ideal order.

    Attributes:
        tool_choice: What the messages depend on beside their text (Anthropic).
        unread: What stands behind a note that changes, so that no later call can read it there.
    """

    tool_choice: str = "auto"
    unread: tuple[Segment, ...] = ()

    @property
    def prompt(self) -> tuple[Segment, ...]:
        """All segments, the note and what stands behind it included."""
        return (*super().prompt, *self.unread)

    @cached_property
    def keys(self) -> tuple[bytes, ...]:
        """A digest of each prefix that ends with a persistent segment."""
        found: list[bytes] = []
        last = b""
        for segment in self.persistent:
            last = blake2b(last + _digest(segment), digest_size=16).digest()
            found.append(last)
        return tuple(found)

    def opening(self, segment: Segment) -> int:
        """Return the structural tokens in front of a segment; an empty one is not sent."""
        return super().opening(segment) if segment.text or segment.image else 0


class Layout:
    """Brings the calls of a workload into the ideal order, one after the other in their time order.

    Args:
        workload: The workload, for the histories.
        wire: How tools and calls are written.
        kept_notes: Whether notes stay where they were sent.
        native_late_tools: Whether a tool that arrives late is appended to each conversation at its next call, and
            stays there, instead of changing the list in front of everything.
        note_behind_user: Whether a note stands behind the user's words also while tools are called.
        message_overhead: Structural tokens in front of each message.
    """

    def __init__(
        self,
        workload: AgentWorkload,
        wire: Wire,
        *,
        kept_notes: bool = False,
        native_late_tools: bool = False,
        note_behind_user: bool = False,
        message_overhead: int = 0,
    ) -> None:
        self._workload = workload
        self._wire: Wire = wire
        self._kept_notes = kept_notes
        self._native = native_late_tools
        self._behind_user = note_behind_user and not kept_notes
        self._overhead = message_overhead
        self._unions: dict[Lane, dict[str, ToolForm]] = {}
        self._late: dict[Lane, dict[str, ToolForm]] = {}
        self._appended: dict[str, dict[tuple[int, int], tuple[ToolForm, ...]]] = {}

    def request(self, call: AgentCall) -> AgentRequest:
        """Bring a call into the ideal order; calls come in the order in which they are made."""
        self._take_in(call)
        few_shot = examples_text(self._workload.pinned[call.lane]) if call.examples else ""
        stable = "\n\n".join(text for text in (call.stable_text, few_shot) if text)
        tools = "".join(written_tool(form, self._wire) for form in self._unions[call.lane].values())
        head = Segment("head", f"{tools}{_output_format(call, self._wire)}{stable}")
        front = (head, Segment("semi-static", _lines(call.conversation_values)))
        persistent = (*front, *self._messages(call))
        # A call of the same turn changes the note: behind it nothing is ever read again where it stands.
        kept = len(persistent) - len(self._loop(call))
        return AgentRequest(
            workspace=f"{call.tenant}/{'structured' if call.structured else 'free'}",
            start=call.at,
            persistent=persistent[:kept],
            note=None if self._kept_notes else _note(call),
            message_overhead=self._overhead,
            tool_choice=call.tool_choice or "auto",
            unread=persistent[kept:],
        )

    def _loop(self, call: AgentCall) -> list[Segment]:
        """Return what this turn's earlier calls left behind the user's words, if the note stands in front of it."""
        if not self._behind_user:
            return []
        turn = [past for past in self._workload.before(call) if past.turn == call.turn]
        return [segment for past in turn for segment in _answered(past.said, self._wire)]

    def _take_in(self, call: AgentCall) -> None:
        """Learn the tools of a call: sorted at first sight, late ones behind, changed ones in place."""
        first = call.lane not in self._unions
        union = self._unions.setdefault(call.lane, {})
        late = self._late.setdefault(call.lane, {})
        for form in sorted(call.tools, key=lambda form: form.name):
            if self._native and not first and form.name not in union:
                late[form.name] = form
            else:
                union[form.name] = form
        appended = self._appended.setdefault(call.thread, {})
        known = {form.name for forms in appended.values() for form in forms}
        fresh = tuple(form for form in late.values() if form.name not in known)
        if fresh:
            appended[call.turn, call.step] = fresh

    def _messages(self, call: AgentCall) -> Iterator[Segment]:
        summary = self._workload.summary_before(call)
        if summary is not None:
            yield Segment("user", summary.message)
        for past in (*self._workload.before(call), call):
            added = self._appended[call.thread].get((past.turn, past.step), ())
            additions = [Segment("user", written_addition(form, self._wire)) for form in added]
            said = [Segment("user", past.user, past.image)] if past.step == 0 else []
            # No breakpoint goes on `additional_tools` (OpenAI), and no system message before a user's (Anthropic).
            yield from (*additions, *said) if self._wire == "openai-responses" else (*said, *additions)
            if self._kept_notes:
                yield _note(past)
            if past is not call:
                yield from _answered(past.said, self._wire)


def written_tool(form: ToolForm, wire: Wire) -> str:
    """Write a tool definition as a wire has it; on OpenAI's a structural token stands in front."""
    if wire == "anthropic-messages":
        return compact({"name": form.name, "input_schema": form.schema, "description": form.description})
    function = {"name": form.name, "description": form.description, "parameters": form.schema}
    return STRUCTURE + compact(function if wire == "openai-chat" else {"type": "function", **function})


def written_addition(form: ToolForm, wire: Wire) -> str:
    """Write a tool that is appended to the conversation."""
    if wire == "anthropic-messages":
        return written_tool(form, wire)
    definition = {
        "type": "function", "name": form.name, "description": form.description, "parameters": form.schema
    }  # fmt: skip
    return compact({"type": "additional_tools", "role": "developer", "tools": [definition]})


def written_use(use: ToolUse, wire: Wire) -> str:
    """Write a tool call of the model, with the arguments as the model wrote them."""
    arguments = compact(use.arguments)
    if wire == "anthropic-messages":
        return use.name + arguments
    if wire == "openai-responses":
        return use.id + use.name + arguments
    return compact({"type": "function", "id": use.id, "function": {"name": use.name, "arguments": arguments}})


def written_result(use: ToolUse, wire: Wire) -> str:
    """Write what a tool returned."""
    return use.result if wire == "anthropic-messages" else use.id + use.result


def _answered(said: Said, wire: Wire) -> Iterator[Segment]:
    """Yield the messages that an answer and the results of its tool calls make."""
    uses = [written_use(use, wire) for use in said.uses]
    # Chat Completions has one message for all of it; text that meets a call in one text could share a token with it.
    items = ["".join((said.text, *uses))] if wire == "openai-chat" else [*([said.text] if said.text else []), *uses]
    yield from (Segment("assistant", item) for item in items)
    yield from (Segment("user", written_result(use, wire)) for use in said.uses)


def _output_format(call: AgentCall, wire: Wire) -> str:
    """Write the schema of a structured answer, which OpenAI renders behind the tools."""
    if not call.structured or wire == "anthropic-messages":
        return ""
    named = {"name": RESOLUTION["title"], "schema": RESOLUTION}
    return STRUCTURE + compact(named if wire == "openai-chat" else {"type": "json_schema", **named})


def _note(call: AgentCall) -> Segment:
    return Segment("note", _lines(call.call_values))


def _lines(values: Mapping[str, str]) -> str:
    return "\n".join(f"{name}: {value}" for name, value in values.items())


@lru_cache(maxsize=65_536)
def _digest(segment: Segment) -> bytes:
    written: Iterable[str] = (segment.kind, segment.text, segment.image or "")
    return blake2b("\x00".join(written).encode("utf-8", "surrogatepass"), digest_size=16).digest()
