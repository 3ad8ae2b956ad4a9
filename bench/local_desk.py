"""The hostile agent for a small local model: cut to its context, played by the host, answered by a vLLM server.

The model is too small to play a support desk, so its answers come from the workload's script: each request goes to the
server as the application or headstay made it, generates one token there, and the usage is the server's own.
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import httpx2
from langchain_core.language_models import BaseChatModel

from headstay.causes import Break
from headstay.emulator import Emulator, ManualClock
from headstay.emulator import agent_workload_text as texts
from headstay.emulator.agent_workload import AgentWorkload
from headstay.emulator.agent_workload_labels import AgentCall
from headstay.emulator.reply import Reply, Responder
from headstay.emulator.shape import compact
from langchain_headstay import ChatLocal
from langgraph_headstay.demo_agent import lengths_of
from langgraph_headstay.demo_desk import AgentSetup, Application, Stage, Variant
from local_ideal import Ideal, Tokenize

# What is left of the handbook: everything that has a value in it, and what stands around it.
_KEPT = ("You are", "The person", "# Returns", "# Opening", "# Tone", "# Safety", "Reference of", "# Before")
_ROOM = 200  # tokens: placeholders, the heading of a note, other examples than the pinned ones, and the answer


def shortened(prompt: str) -> str:
    """Leave out most sections of a system text; the first paragraph of each section decides."""
    kept: list[str] = []
    keeps = True
    for paragraph in prompt.split("\n\n"):
        if paragraph.startswith(("# ", "You are", "Reference of")):
            keeps = paragraph.startswith(_KEPT)
        if keeps:
            kept.append(paragraph)
    return "\n\n".join(kept)


def cut(workload: AgentWorkload, tokenize: Tokenize, context: int) -> AgentWorkload:
    """Cut a workload to what a text model with a small context takes.

    Of the system text some sections are left, pictures go, and a thread ends before the first turn that is too long.

    Args:
        workload: The workload.
        tokenize: Maps a body to the tokens of its prompt.
        context: Most tokens of a request and its answer.
    """
    calls = [_plainer(call) for call in workload.calls]
    smaller = replace(workload, calls=tuple(calls))
    ideal = Ideal(smaller)
    ends: dict[str, int] = {}
    for turn in smaller.turns:
        longest = max(len(tokenize(ideal.body(call))) for call in turn.calls)
        if longest + _ROOM > context:
            ends.setdefault(turn.thread.name, turn.number)
    kept = [turn for turn in smaller.turns if turn.number < ends.get(turn.thread.name, turn.number + 1)]
    places = [(turn.thread.name, turn.number) for turn in smaller.turns]
    left = [(turn.thread.name, turn.number) for turn in kept]
    after = places[places.index(smaller.restart) :] if smaller.restart in places else []
    return replace(
        smaller,
        threads=tuple(
            one if one.summary and (one.name, one.summary.turn) in left else one._replace(summary=None)
            for one in smaller.threads
        ),
        calls=tuple(sorted((call for turn in kept for call in turn.calls), key=lambda call: call.at)),
        restart=next((place for place in after if place in left), None),
    )


def _plainer(call: AgentCall) -> AgentCall:
    prompt = shortened("".join(part.text if part.name is None else f"<<{part.name}>>" for part in call.system))
    return call._replace(system=texts.fill(prompt, call.values), image=None)


class Asked(NamedTuple):
    """A request to the server.

    Attributes:
        body: As it came from the host.
        prompt: Tokens of its prompt.
        read: Those that were read from the cache, as the server says.
        seconds: From the request to the one token of the answer.
    """

    body: dict[str, Any]
    prompt: int
    read: int
    seconds: float


@dataclass
class Scripted(httpx2.BaseTransport):
    """The way to the server: each request generates one token there, and comes back with the workload's answer.

    Attributes:
        responder: Answers as the labels say.
        asked: The requests so far.
    """

    responder: Responder
    asked: list[Asked] = field(default_factory=list[Asked])
    inner: httpx2.HTTPTransport = field(default_factory=httpx2.HTTPTransport)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on, and put what the script says into the answer."""
        body: dict[str, Any] = json.loads(request.read())
        short = json.dumps({**body, "max_tokens": 1}).encode()
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
        sent = httpx2.Request(request.method, request.url, headers=headers, content=short)
        began = time.perf_counter()
        response = self.inner.handle_request(sent)
        told = response.read()
        seconds = time.perf_counter() - began
        if response.status_code != 200:
            raise RuntimeError(f"vLLM refused a request: {told.decode(errors='replace')[:500]}")
        answer = json.loads(told)
        usage = answer["usage"]
        read = usage["prompt_tokens_details"]["cached_tokens"]
        self.asked.append(Asked(body, usage["prompt_tokens"], read, seconds))
        choice = _choice(self.responder("openai-chat", body), len(self.asked))
        return httpx2.Response(200, json={**answer, "choices": [choice]}, request=request)

    def close(self) -> None:
        """Close the connections."""
        self.inner.close()


def _choice(reply: Reply, number: int) -> dict[str, Any]:
    calls = [
        {
            "id": f"call_{number:06d}_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for place, call in enumerate(reply.tool_calls)
    ]
    message = {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}
    return {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}


class Desk(Application):
    """The support desk with a shortened handbook, on a local model.

    Args:
        model: The model of every tenant.
        variant: "plain" or "headstay".
        stage: What is being played.
        folder: Where its SQLite files are.
    """

    def __init__(self, model: ChatLocal, variant: Variant, stage: Stage, folder: Path) -> None:
        setup = AgentSetup("openai", "openai-chat", model.model_name)
        super().__init__(setup, variant, cast("Emulator", None), stage, folder)  # it has a server of its own
        self._local = model

    def _model(self, tenant: str) -> BaseChatModel:  # noqa: ARG002 - the tenants share one server
        return self._local

    def _prompt(self, agent: str, prompt: str) -> Any:
        return super()._prompt(agent, shortened(prompt))

    def _last(self, agent: str, prompt: str) -> list[Any]:
        return super()._last(agent, shortened(prompt))


class Played(NamedTuple):
    """What one variant sent and got, call by call.

    Attributes:
        asked: The requests.
        breaks: The breaks that headstay found at each.
        statuses: What headstay's ledger says of the reads of each.
    """

    asked: tuple[Asked, ...]
    breaks: tuple[tuple[Break, ...], ...] = ()
    statuses: tuple[str, ...] = ()


def play(
    workload: AgentWorkload,
    variant: Variant,
    make: Callable[[httpx2.Client], ChatLocal],
    *,
    step: Callable[[int], None] = lambda _: None,
) -> Played:
    """Play a workload through agents of the host, against a server.

    Args:
        workload: The labelled calls.
        variant: "plain" or "headstay".
        make: Makes the model, with the HTTP client that it must use.
        step: Called after each turn with the number of calls made so far.
    """
    stage = Stage(ManualClock(workload.start), lengths_of(workload))
    way = Scripted(workload.responder())
    held: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as name, httpx2.Client(transport=way, timeout=600) as client:
        folder, made = Path(name), 0
        model = make(client)
        desk = Desk(model, variant, stage, folder)
        for turn in workload.turns:
            if (turn.thread.name, turn.number) == workload.restart:
                desk.close()
                desk = Desk(model, variant, stage, folder)
            held[turn.thread.name] = desk.play(turn, held.get(turn.thread.name, []))
            made += len(turn.calls)
            step(made)
        with closing(desk):
            rows = list(desk.ledger.rows())
    ours = tuple(one for one in way.asked if texts.SUMMARY_REQUEST not in compact(one.body))
    return Played(ours, tuple(row.breaks for row in rows), tuple(row.status for row in rows))


def share(reads: Sequence[int], best: Sequence[int]) -> float:
    """Return the share of the readable tokens that were read: sum(min(read, E)) / sum(E)."""
    return sum(min(read, most) for read, most in zip(reads, best, strict=True)) / sum(best)
