"""The oracle for the support desk on LlamaIndex: what a perfect layout reads where text is retrieved for each question.

Retrieved text is no word of the operator's, so it stands behind the user's words and in no system message, and what
tools return comes after it. While tools are called it stays there and is read and written like a message; with the next
question it is gone, and what the tools returned is written once more. No perfect layout can spare that. The other
oracle is `agent_oracle_run`, which lets a note of any kind stand last of all.
"""

from collections.abc import Iterator
from dataclasses import replace

from headstay.emulator.agent_oracle import output_tokens
from headstay.emulator.agent_oracle_layout import AgentRequest, Layout
from headstay.emulator.agent_workload import AgentWorkload
from headstay.emulator.agent_workload_labels import AgentCall
from headstay.emulator.oracle import OracleCall, OracleResult, Prices, accounted
from headstay.emulator.oracle_cache import MarkedCache
from headstay.emulator.oracle_layout import Segment
from headstay.emulator.oracle_rules import rules_for
from headstay.emulator.reply import Wire
from llama_labels import HANDBOOK

_Turn = tuple[str, int]


class TurnLayout(Layout):
    """Brings calls into the ideal order, with the retrieved text of a turn behind the user's words.

    Args:
        workload: The labelled calls.
        wire: The wire format.
        message_overhead: Structural tokens in front of each message.
    """

    def __init__(self, workload: AgentWorkload, wire: Wire, *, message_overhead: int = 0) -> None:
        found = {(call.thread, call.turn): call.values[HANDBOOK] for call in workload.calls if HANDBOOK in call.values}
        self._retrieved: dict[_Turn, str] = {turn: text.strip() for turn, text in found.items()}
        bare = replace(workload, calls=tuple(map(_bare, workload.calls)))
        super().__init__(bare, wire, message_overhead=message_overhead)

    def request(self, call: AgentCall) -> AgentRequest:
        """Bring a call into the ideal order; calls come in the order in which they are made."""
        made = super().request(_bare(call))
        retrieved = self._retrieved.get((call.thread, call.turn))
        if retrieved is None or call.step:
            return made
        values = made.note.text if made.note is not None else ""
        return replace(made, note=Segment("note", f"{retrieved}\n{values}"))

    def _messages(self, call: AgentCall) -> Iterator[Segment]:
        retrieved = self._retrieved.get((call.thread, call.turn), "")
        before = list(super()._messages(call))
        if not (call.step and retrieved):
            return iter(before)
        words = next(place for place in reversed(range(len(before))) if _is_words(before[place], call))
        return iter([*before[: words + 1], Segment("user", retrieved), *before[words + 1 :]])


def _is_words(segment: Segment, call: AgentCall) -> bool:
    return segment.kind == "user" and segment.text == call.user


def _bare(call: AgentCall) -> AgentCall:
    return call._replace(system=tuple(part for part in call.system if part.name != HANDBOOK))


def turn_oracle_run(
    workload: AgentWorkload, *, model: str, wire: Wire, prices: Prices | None = None, message_overhead: int = 0
) -> OracleResult:
    """Play a workload against an ideal layout and the provider's cache.

    Args:
        workload: The labelled calls.
        model: The model's id; one whose cache matches at breakpoints.
        wire: The wire format.
        prices: To have costs as well.
        message_overhead: Structural tokens in front of each message.
    """
    rules = rules_for(model, wire)
    seconds = rules.ttl_seconds(None)
    cache, layout = MarkedCache(rules, seconds, 0.0), TurnLayout(workload, wire, message_overhead=message_overhead)
    calls: list[OracleCall] = []
    for call in workload.calls:
        request = layout.request(call)
        whose, said = (call.thread, call.turn), output_tokens(call)
        calls.append(accounted(whose, request.input_tokens, cache.use(request), said, prices))
    return OracleResult(model, wire, seconds, implicit_developer_reuse=False, calls=tuple(calls))
