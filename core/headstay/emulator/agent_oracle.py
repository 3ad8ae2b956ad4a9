"""The oracle for agents: what a perfect layout would read and write, model call by model call.

Its input is a workload's own labels, never a request that some layout made. See `headstay.emulator.oracle` for the
definition; here tools, tool calls and tool results take part in it, and what the application breaks binds the oracle
too: a tool that arrives late or changes its schema stands in front of everything, a structured answer has other
parameters, and a summary leaves nothing of the history. On Anthropic another `tool_choice` and the first image leave
tools and system.
"""

from collections.abc import Hashable

from headstay.emulator.agent_oracle_layout import AgentRequest, Layout
from headstay.emulator.agent_workload_calls import AgentWorkload
from headstay.emulator.agent_workload_labels import AgentCall
from headstay.emulator.oracle import OracleCall, OracleResult, Prices, accounted
from headstay.emulator.oracle_cache import CommonPrefixCache, MarkedCache
from headstay.emulator.oracle_layout import SYSTEM_SEGMENTS, IdealRequest
from headstay.emulator.oracle_rules import rules_for
from headstay.emulator.reply import Wire
from headstay.emulator.shape import compact
from headstay.emulator.tokens import count


class _AgentMarkedCache(MarkedCache):
    """A marked cache whose messages also depend on `tool_choice` where images matter too (Anthropic)."""

    def _key(self, request: IdealRequest, place: int) -> Hashable:
        assert isinstance(request, AgentRequest)
        in_messages = place >= SYSTEM_SEGMENTS and self._rules.images_split_messages
        tier = (request.has_image, request.tool_choice) if in_messages else None
        return request.workspace, tier, request.keys[place]


def agent_oracle_run(
    workload: AgentWorkload,
    *,
    model: str,
    wire: Wire,
    ttl: str | None = None,
    prices: Prices | None = None,
    native_late_tools: bool = False,
    kept_notes: bool = False,
    note_behind_user: bool = False,
    thinking: bool = False,
    first_event_s: float = 0.0,
    message_overhead: int = 0,
) -> OracleResult:
    """Play an agent workload against an ideal layout and the provider's cache.

    A tenant is a workspace: nothing crosses it. The calls of the result are in the workload's order; their
    `conversation` and `turn` are the call's thread and user turn. A summariser's own call is in neither.

    Args:
        workload: The labelled calls.
        model: The model's id.
        wire: The wire format it is asked over.
        ttl: A lifetime of the model; None for its default.
        prices: To have costs as well.
        native_late_tools: Whether a late tool is appended to the conversation (Anthropic's `tool_addition`, OpenAI's
            `additional_tools`), so that it breaks nothing. A changed schema breaks the prefix either way.
        kept_notes: Whether notes stay where they were sent (models that bind thinking to the exact history).
        note_behind_user: Whether a note that is not kept stands behind the user's words while tools are called, since
            text behind tool results is named as a cause of empty answers (Anthropic models that take no system
            message in place). Then what the tools returned is read from the next turn on only. The headline figures
            leave this off: nothing on the wire forbids a note behind tool results.
        thinking: Whether the model thinks before it answers. Its thoughts are output and are not shown, so that
            they cost nothing as input.
        first_event_s: Seconds from the start of a call to its first response event.
        message_overhead: Structural tokens in front of each message, for a comparison with a server that counts
            some. Tool definitions, tool calls and ids count as the wire writes them.

    Raises:
        ValueError: No rules for the model on this wire, it lacks the lifetime, or Chat Completions was asked to
            append a tool.
    """
    if native_late_tools and wire == "openai-chat":
        raise ValueError("native_late_tools: Chat Completions has no way to append a tool; ask for openai-responses")
    rules = rules_for(model, wire)
    seconds = rules.ttl_seconds(ttl)
    kind = _AgentMarkedCache if rules.marked else CommonPrefixCache
    cache = kind(rules, seconds, first_event_s)
    layout = Layout(
        workload,
        wire,
        kept_notes=kept_notes,
        native_late_tools=native_late_tools,
        note_behind_user=note_behind_user,
        message_overhead=message_overhead,
    )
    calls: list[OracleCall] = []
    for call in workload.calls:
        request = layout.request(call)
        said = output_tokens(call, thinking=thinking)
        calls.append(accounted((call.thread, call.turn), request.input_tokens, cache.use(request), said, prices))
    return OracleResult(model, wire, seconds, implicit_developer_reuse=False, calls=tuple(calls))


def output_tokens(call: AgentCall, *, thinking: bool = False) -> int:
    """Count what the model says in a call: text, tool calls, and its thoughts if it has any."""
    used = sum(count(use.name) + count(compact(use.arguments)) for use in call.said.uses)
    return count(call.said.text) + used + (count(call.said.thought) if thinking else 0)
