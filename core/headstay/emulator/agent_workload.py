"""The hostile agent: a seeded generator of a support desk whose application breaks the prefix in every known way."""

import heapq
import random
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from headstay.emulator import agent_workload_text as texts
from headstay.emulator import workload_dialogue
from headstay.emulator.agent_workload_calls import AgentWorkload
from headstay.emulator.agent_workload_labels import (
    DESK,
    SPECIALIST,
    AgentCall,
    AgentThread,
    Holding,
    Said,
    Summary,
    ToolForm,
    ToolUse,
)
from headstay.emulator.shape import compact
from headstay.emulator.workload_text import TENANTS, Tenant
from headstay.emulator.workload_wire import png

__all__ = ["START", "AgentWorkload", "support_agent"]

START = datetime(2026, 4, 14, 9, 0, tzinfo=UTC).timestamp()
"""When the first call is made."""

CALL_S = 4
"""Seconds between two calls: at most 15 a minute, so that no lane of an older OpenAI model overflows its machine."""

_SHORTEST = 6
_STAGGER_S, _MIN_GAP_S, _MAX_GAP_S = 15, 30, 120
_SUMMARISED = 3
_FAN_OUT, _FAN_OUT_TURN, _PHOTO_TURN = 24, 3, 3
_LATE, _REMOVED, _CHANGED, _RESTART = 0.35, 0.45, 0.55, 0.5
_ROUNDS, _PARALLEL = (30, 40, 30), (60, 30, 10)
_EXAMPLES_AT_ONCE = 3

_GIVEN = (
    "Siobhán",
    "José María",
    "Thandiwe",
    "Zoë",
    "Łukasz",
    "Anne-Sophie",
    "İpek",
    "Chukwuemeka",
    "Jürgen",
    "Aoife",
)
_FAMILY = ("O'Rourke", "de la Fuente, Jr.", "Nkosi-Dlamini", "Wójcik", "van der Meer", "Okonkwo, MD", "Çelik",
           "von Weißenfels", "Featherstone, Sr.", "M'Bappé-Laurent")  # fmt: skip
_LEADS = ("", "", "Let me look that up.", "One moment, I check both.", "I will see what the system says.")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_PLACES = ("Ghent", "Aarhus", "Graz", "Tartu", "Lugano", "Porto", "Malmö", "Brno")
_REFUSED = "Error: the tool is not available now. Go on without it."


def support_agent(*, seed: int = 7, threads: int = 20, longest: int = 30) -> AgentWorkload:
    """Generate the support-desk agent: interleaved threads of two tenants, a few tool rounds a turn.

    Thread 1 makes 24 tool calls at once in its third turn, the history of thread 2 is held by the client, thread 3
    is a nested node, thread 4 is summarised, thread 5 brings its first photo at turn 3, thread 6 forbids tools in
    its last turn; every third one ends with a structured answer. One tool arrives late in the lane of the first
    tenant, one is removed in both and still called, one changes its schema in the lane of the second. Smaller shapes
    hold what fits. The same arguments give the same workload in every process.

    Args:
        seed: Chooses values, texts and gaps, not the structure.
        threads: How many, 2 to 100.
        longest: User turns of the longest thread, at least 3; the shortest has 6 or as many as the longest.

    Raises:
        ValueError: A number is out of its range.
    """
    if not 2 <= threads <= len(_GIVEN) * len(_FAMILY):
        raise ValueError(f"threads must be 2 to {len(_GIVEN) * len(_FAMILY)}, not {threads}")
    if longest < 3:
        raise ValueError(f"longest must be at least 3, not {longest}")
    return _Generator(seed, threads, longest).workload()


class _Case(NamedTuple):
    """A thread as the generator plays it: its label, its place, and its own source of chance."""

    thread: AgentThread
    place: int
    turns: int
    tenant: Tenant
    customer: str
    item: str
    rng: random.Random


class _Generator:
    """Plays the threads against one clock."""

    def __init__(self, seed: int, threads: int, longest: int) -> None:
        self._seed = seed
        self._rng = random.Random(seed)
        self._lengths = [_length(index, threads, longest) for index in range(threads)]
        names = [f"{given} {family}" for given in _GIVEN for family in _FAMILY]
        customers = self._rng.sample(names, threads)
        self._cases = [self._case(index, customer) for index, customer in enumerate(customers)]
        self._calls: list[AgentCall] = []
        self._uses = 0
        self._still_called = {tenant.name for tenant in TENANTS}

    def workload(self) -> AgentWorkload:
        """Play all turns, whoever is due first; return the labelled calls."""
        total, clock = sum(self._lengths), int(START)
        due = [(int(START) + _STAGGER_S * case.place, case.place, 1) for case in self._cases]
        restart: tuple[str, int] | None = None
        for played in range(total):
            at, index, turn = heapq.heappop(due)
            case = self._cases[index]
            if played == int(_RESTART * total):
                restart = (case.thread.name, turn)
            clock = self._turn(case, turn, max(at, clock), played / total)
            if turn < case.turns:
                heapq.heappush(due, (clock + self._rng.randint(_MIN_GAP_S, _MAX_GAP_S), index, turn + 1))
        threads = [case.thread for case in self._cases]
        if len(threads) > _SUMMARISED:
            threads[_SUMMARISED] = self._summarised(self._cases[_SUMMARISED])
        return AgentWorkload(tuple(threads), tuple(self._calls), restart, self._seed)

    def _summarised(self, case: _Case) -> AgentThread:
        """Choose the turn of the summary: late enough that the history never grows as long again."""
        added = [1] * case.turns
        for call in self._calls:
            if call.thread == case.thread.name:
                added[call.turn - 1] += 1 + len(call.said.uses)
        for turn in range(max(3, 2 * case.turns // 3), case.turns + 1):
            if sum(added[: turn - 1]) > 1 + sum(added[turn - 2 :]):
                return case.thread._replace(summary=_summary(turn, case.item))
        return case.thread

    def _case(self, index: int, customer: str) -> _Case:
        tenant = TENANTS[index % len(TENANTS)]
        turns = self._lengths[index]
        held: Holding = "client" if index == 1 else "nested" if index == 2 else "checkpointer"
        rng = random.Random(f"{self._seed}/{index}")
        item = rng.choice(workload_dialogue.ITEMS[tenant.name])
        thread = AgentThread(f"{tenant.name}-t{index + 1:02d}", tenant.name, held)
        return _Case(thread, index, turns, tenant, customer, item, rng)

    def _turn(self, case: _Case, turn: int, at: int, progress: float) -> int:
        """Make the calls of one turn; return when the next call may start."""
        offered = _offered(case.tenant, progress)
        structured = turn == case.turns and case.place % 3 == 0
        silent = turn == case.turns and case.place == 5
        rounds = [] if structured or silent else list(self._rounds(case, turn, offered))
        text = workload_dialogue.message(case.rng, turn=turn, item=case.item)
        user = f"[case {_mark(case, turn)}] {text}"
        answer = _record(case.rng) if structured else workload_dialogue.reply_to(user)
        thoughts = _thoughts(case.rng)
        said = [Said(case.rng.choice(_LEADS), uses, next(thoughts)) for uses in rounds]
        said.append(Said(answer, (), next(thoughts)))
        examples = tuple(case.rng.sample(texts.EXAMPLES, _EXAMPLES_AT_ONCE))
        for step, one in enumerate(said):
            call = AgentCall(
                agent=DESK,
                thread=case.thread.name,
                turn=turn,
                step=step,
                tenant=case.tenant.name,
                at=float(at),
                system=texts.fill(texts.desk_prompt(case.tenant), self._values(case, at)),
                examples=examples,
                tools=tuple(case.rng.sample(offered, len(offered))),
                user=user,
                image=png(case.place) if case.place == 4 and turn == _PHOTO_TURN else None,
                said=one,
                tool_choice="none" if silent else None,
                structured=structured,
            )
            self._calls.append(call)
            at += CALL_S
            for use in one.uses:
                if use.name == texts.SUBAGENT_TOOL:
                    at = self._specialist(case, turn, at, use)
        return at

    def _rounds(self, case: _Case, turn: int, offered: Sequence[ToolForm]) -> Iterator[tuple[ToolUse, ...]]:
        """Choose what the model asks of its tools in a turn, round by round."""
        rng = case.rng
        names = [tool.name for tool in offered if tool.name != texts.SUBAGENT_TOOL]
        if case.place == 0 and turn == _FAN_OUT_TURN:
            yield tuple(self._use(case, turn, texts.FAN_OUT_TOOL) for _ in range(_FAN_OUT))
            return
        if texts.REMOVED_TOOL not in names and case.tenant.name in self._still_called:
            self._still_called.discard(case.tenant.name)
            yield (self._use(case, turn, texts.REMOVED_TOOL, refused=True),)
        if case.place % 4 < 2 and turn in {2, 9}:
            yield (self._use(case, turn, texts.SUBAGENT_TOOL), self._use(case, turn, rng.choice(names)))
            return
        for _ in range(rng.choices((0, 1, 2), _ROUNDS)[0]):
            chosen = rng.sample(names, rng.choices((1, 2, 3), _PARALLEL)[0])
            yield tuple(self._use(case, turn, name) for name in chosen)

    def _use(self, case: _Case, turn: int, name: str, *, refused: bool = False) -> ToolUse:
        self._uses += 1
        rng = case.rng
        words = {
            "order": str(rng.randint(100_000, 999_999)),
            "day": rng.choice(_DAYS),
            "place": rng.choice(_PLACES),
            "number": str(rng.randint(3, 29)),
            "amount": str(rng.randint(24, 380)),
            "question": f"[case {_mark(case, turn)}s] The customer's {case.item} stops after {rng.randint(3, 29)} "
            f"minutes and the lamp blinks. Which part is it, and can it be tested at home?",
            "answer": f"Most likely the switch, page {rng.randint(3, 90)} of the manual; one test settles it: leave "
            f"it off for {rng.randint(12, 40)} minutes, then try it with another cable.",
        }
        scene = texts.DESK_TOOLS.get(name) or texts.SPECIALIST_TOOLS[name]
        arguments = {key: value.format(**words) for key, value in scene.arguments.items()}
        result = _REFUSED if refused else scene.result.format(**words)
        return ToolUse(f"call_{self._uses:012d}", name, arguments, result, refused)

    def _specialist(self, case: _Case, turn: int, at: int, use: ToolUse) -> int:
        """Make the two calls by which the specialist answers; return when the next call may start."""
        rng = case.rng
        forms = [scene.form for scene in texts.SPECIALIST_TOOLS.values()]
        asked = tuple(self._use(case, turn, form.name) for form in rng.sample(forms, rng.randint(1, len(forms))))
        thoughts = _thoughts(rng)
        said = (Said("", asked, next(thoughts)), Said(use.result, (), next(thoughts)))
        for step, one in enumerate(said):
            values = {"clock": _clock(at)}
            call = AgentCall(
                agent=SPECIALIST,
                thread=f"{case.thread.name}:{turn}",
                turn=turn,
                step=step,
                tenant=case.tenant.name,
                at=float(at),
                system=texts.fill(texts.specialist_prompt(case.tenant), values),
                examples=(),
                tools=tuple(rng.sample(forms, len(forms))),
                user=use.arguments["question"],
                image=None,
                said=one,
            )
            self._calls.append(call)
            at += CALL_S
        return at

    def _values(self, case: _Case, at: int) -> dict[str, str]:
        request_id = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        return {"customer_name": case.customer, "clock": _clock(at), "request_id": request_id}


def _length(index: int, threads: int, longest: int) -> int:
    """Spread the lengths between shortest and longest, more short ones than long ones, the first one longest."""
    shortest = min(_SHORTEST, longest)
    place = (index * 13 + threads - 1) % threads / (threads - 1)
    skewed: float = place**1.6
    return shortest + round((longest - shortest) * skewed)


def _offered(tenant: Tenant, progress: float) -> list[ToolForm]:
    """Return the tools that the application offers at a moment, 0 to 1 of the way."""
    forms = {name: scene.form for name, scene in texts.DESK_TOOLS.items()}
    if tenant is not TENANTS[0] or progress < _LATE:
        del forms[texts.LATE_TOOL]
    if progress >= _REMOVED:
        del forms[texts.REMOVED_TOOL]
    if tenant is TENANTS[1] and progress >= _CHANGED:
        forms[texts.CHANGED_TOOL] = texts.CHANGED_FORM
    return list(forms.values())


def _summary(turn: int, item: str) -> Summary:
    text = (
        f"The customer wrote about a {item} that stops by itself. The tests at home are done and need not be "
        "repeated. A return is open, the label has been sent, and the customer prefers e-mail to the telephone."
    )
    return Summary(turn, turn - 1, text, f"Here is a summary of the conversation to date:\n\n{text}")


def _mark(case: _Case, turn: int) -> str:
    return f"t{case.place + 1:02d}.{turn:02d}"


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _record(rng: random.Random) -> str:
    outcome = rng.choice(("refund", "repair", "replacement"))
    return compact({"outcome": outcome, "amount_eur": rng.randint(0, 380), "follow_up": rng.choice(_DAYS)})


def _thoughts(rng: random.Random) -> Iterator[str]:
    while True:
        yield (
            f"The customer wants a clear next step. I have {rng.randint(1, 9)} facts so far; the policy allows it, and "
            f"what is missing can be looked up before {rng.choice(_DAYS)}."
        )
