"""The support desk of the agent workload as users of LlamaIndex have it: its labels, changed where the host differs.

What LangGraph's agents have and `FunctionAgent` has not goes: a summary, a structured last answer, a forbidden tool
choice, examples chosen anew, and a tool that is taken away (an LLM cannot see to it that its calls are refused, so it
leaves the list at once). What users of LlamaIndex have comes in: text that is retrieved for each question, and an
agent's state in the words of the user.
"""

import random
from dataclasses import replace

from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import DESK, AgentCall, ToolForm
from headstay.emulator.workload_turns import SystemPart

HANDBOOK = "handbook"
"""The name of the retrieved text among the values of a call."""

_SUBJECTS = ("A missing carton", "A late parcel", "A loan unit", "A second label", "A broken seal", "A price that fell")
_RULES = (
    "is never held against the customer if the item itself is whole",
    "is put down in the record with the day and the name of whoever took the call",
    "needs a word from the workshop before anything is promised",
    "is settled by the desk alone up to forty euros, and by a senior colleague above that",
)


def llama_workload(*, seed: int = 7, threads: int = 20, longest: int = 30) -> AgentWorkload:
    """Generate the support desk with the labels that fit LlamaIndex.

    Args:
        seed: Chooses values, texts and gaps, not the structure.
        threads: How many conversations.
        longest: User turns of the longest one.
    """
    return relabelled(support_agent(seed=seed, threads=threads, longest=longest))


def relabelled(workload: AgentWorkload) -> AgentWorkload:
    """Change the labels of a support desk to what `FunctionAgent` makes of it.

    In every second thread the system prompt is filled in once for each run of the agent, as an f-string does; in the
    others it is filled in anew for each call of the model.

    Args:
        workload: The support desk.
    """
    held = {thread.name: thread.held for thread in workload.threads}
    once = {thread.name for thread in workload.threads[::2]}
    first: dict[tuple[str, int], AgentCall] = {}
    calls: list[AgentCall] = []
    for call in workload.calls:
        begun = first.setdefault((call.thread, call.turn), call)
        values = begun if call.thread in once else call
        system, user, kept = values.system, call.user, call.tools
        if call.agent == DESK and all(form.name != texts.REMOVED_TOOL for form in kept):
            kept = (*kept, texts.DESK_TOOLS[texts.REMOVED_TOOL].form)
        if call.agent == DESK:
            system = (*system, SystemPart(f"\n\n{_retrieved(workload.seed, call)}", "call", HANDBOOK))
            user = with_state(call) if held[call.thread] == "nested" else user
        calls.append(
            call._replace(
                system=system,
                user=user,
                examples=workload.pinned[call.lane],
                tools=tuple(map(_closed, kept)),
                said=call.said._replace(uses=tuple(use._replace(refused=False) for use in call.said.uses)),
                tool_choice=None,
                structured=False,
            )
        )
    threads = tuple(thread._replace(summary=None) for thread in workload.threads)
    return replace(workload, threads=threads, calls=tuple(calls))


def with_state(call: AgentCall) -> str:
    """Write the user's words as an agent with a state does, by LlamaIndex's own `state_prompt`."""
    return f"Current state:\n{{'turn': {call.turn}}}\n\nCurrent message:\n{call.user}\n"


def _closed(form: ToolForm) -> ToolForm:
    """Return a tool whose schema takes nothing else, as LlamaIndex's OpenAI class writes every schema."""
    return form._replace(schema={**form.schema, "additionalProperties": False})


def _retrieved(seed: int, call: AgentCall) -> str:
    rng = random.Random(f"{seed}/{call.thread}/{call.turn}")
    paragraphs = [
        f"Handbook {rng.randint(100, 999)}.{number}: {rng.choice(_SUBJECTS)} {rng.choice(_RULES)}."
        for number in range(1, rng.randint(3, 6))
    ]
    return "\n".join(paragraphs)
