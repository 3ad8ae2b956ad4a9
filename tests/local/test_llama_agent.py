"""The hostile `FunctionAgent` on the real engine, through `OpenAILike`: what is read of what could have been read.

headstay knows the server by its URL. The model is too small to play a support desk: each request generates one token
there, and what the agent gets to see is the answer of the workload's script with the server's own usage.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx2
import pytest
from llama_index.llms.openai_like import OpenAILike

from headstay.emulator.agent_workload import AgentWorkload, support_agent
from headstay.emulator.agent_workload_labels import AgentCall
from headstay.emulator.reply import Reply, Responder
from headstay.emulator.vllm_cache import VLLMRequest, admit, finish
from headstay.local.client import server_at

with pytest.MonkeyPatch.context() as patch:
    patch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    desk: Any = import_module("local_desk")
    ideal: Any = import_module("local_ideal")
    labels: Any = import_module("llama_labels")
    llama: Any = import_module("llama_desk")

CONTEXT = 4_096
TURNS = 2  # of each conversation
PLAIN = 6  # turns that are played without headstay: each costs the whole prompt anew


class Asked(NamedTuple):
    """A request to the server: as the SDK sent it, and what the server says of its prompt."""

    body: dict[str, Any]
    prompt: int
    read: int


@dataclass
class Scripted(httpx2.AsyncBaseTransport):
    """The way to the server: each request generates one token there, and comes back with the workload's answer."""

    responder: Responder
    asked: list[Asked] = field(default_factory=list[Asked])
    inner: httpx2.AsyncHTTPTransport = field(default_factory=httpx2.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body: dict[str, Any] = json.loads(await request.aread())
        plain = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
        short = json.dumps({**plain, "max_tokens": 1}).encode()
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
        response = await self.inner.handle_async_request(
            httpx2.Request(request.method, request.url, headers=headers, content=short)
        )
        told = await response.aread()
        assert response.status_code == 200, told.decode(errors="replace")[:500]
        answer = json.loads(told)
        usage = answer["usage"]
        self.asked.append(Asked(body, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]))
        said = spoken(self.responder("openai-chat", body), len(self.asked))
        if not body.get("stream"):
            choice = {"index": 0, "message": said, "finish_reason": "stop"}
            return httpx2.Response(200, json={**answer, "choices": [choice]}, request=request)
        kind = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=kind, content=events(answer, said), request=request)

    async def aclose(self) -> None:
        await self.inner.aclose()


def spoken(reply: Reply, number: int) -> dict[str, Any]:
    calls = [
        {
            "index": place,
            "id": f"call_{number:06d}_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for place, call in enumerate(reply.tool_calls)
    ]
    return {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}


async def events(answer: Mapping[str, Any], said: Mapping[str, Any]) -> AsyncIterator[bytes]:
    shared = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    reason = "tool_calls" if "tool_calls" in said else "stop"
    for more in (
        {"choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": answer["usage"]},
    ):
        yield f"data: {json.dumps({**shared, **more})}\n\n".encode()
    yield b"data: [DONE]\n\n"


class Ideal(ideal.Ideal):  # type: ignore[misc]  # a benchmark's class, which is loaded by its path
    """The ideal order, with the retrieved text of a turn behind the user's words, where it has no authority."""

    def body(self, call: AgentCall) -> dict[str, Any]:
        bare = call._replace(system=tuple(part for part in call.system if part.name != labels.HANDBOOK))
        made: dict[str, Any] = super().body(bare)
        retrieved = call.values.get(labels.HANDBOOK)
        if retrieved is not None:
            words = next(one for one in reversed(made["messages"]) if one["role"] == "user")
            words["content"] = f"{words['content']}\n{retrieved.strip()}"
        return made


@pytest.fixture(scope="module")
def workload(base_url: str) -> AgentWorkload:
    cut = desk.cut(support_agent(threads=3, longest=3), ideal.tokenizer(base_url), CONTEXT - 200)
    made: AgentWorkload = labels.relabelled(cut)
    return replace(made, calls=tuple(call for call in made.calls if call.turn <= TURNS))


@pytest.fixture(scope="module")
def best(workload: AgentWorkload, base_url: str) -> list[int]:
    """The tokens that each call of an ideal layout would read, in whole blocks; tenants share nothing."""
    tokenize, pool = ideal.tokenizer(base_url), ideal.cache_of(base_url)
    order, found = Ideal(workload), list[int]()
    for call in workload.calls:
        admitted = admit(pool, VLLMRequest(prompt=tokenize(order.body(call)), answer=(0,), salt=call.tenant))
        assert admitted is not None
        pool = finish(admitted[0], admitted[1])
        found.append(admitted[1].read)
    return found


class Played(NamedTuple):
    """What one variant sent and got, and what it left."""

    asked: list[Asked]
    kept: Any


@pytest.fixture(scope="module")
def runs(
    workload: AgentWorkload, base_url: str, local: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Played]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSTAY_LOCAL_HOME", str(local.home.path))
        patch.setenv("HEADSTAY_SALT_KEY", uuid4().hex)  # nothing that others left in the cache can be read
        few = replace(workload, calls=tuple(call for turn in workload.turns[:PLAIN] for call in turn.calls))
        played = {"plain": few, "headstay": workload}
        yield {name: run(part, name, base_url, tmp_path_factory.mktemp(name)) for name, part in played.items()}


def run(workload: AgentWorkload, variant: str, base_url: str, folder: Path) -> Played:
    way = Scripted(workload.responder())
    name = server_at(base_url).models()[0]
    own = {"extra_body": {"cache_salt": uuid4().hex}} if variant == "plain" else {}

    def make(tenant: str) -> OpenAILike:
        return OpenAILike(
            model=name,
            api_base=base_url,
            api_key="none",
            is_chat_model=True,
            is_function_calling_model=True,
            context_window=CONTEXT,
            max_retries=0,
            temperature=0,
            additional_kwargs=own,
            async_http_client=httpx2.AsyncClient(transport=way, timeout=600),
        )

    return Played(way.asked, llama.play(workload, variant, make, llama.Stage(lambda moment: None), folder))


def test_the_cut_leaves_what_makes_the_agent_hostile(workload: AgentWorkload) -> None:
    assert len(workload.calls) >= 15
    assert "tool_added" in {str(found.cause) for found in workload.breaks}
    assert {thread.held for thread in workload.threads} == {"checkpointer", "client", "nested"}
    assert {call.agent for call in workload.calls} == {"desk", "specialist"}
    assert workload.restart in {(turn.thread.name, turn.number) for turn in workload.turns}


def test_every_call_is_made_and_fits_and_the_answers_are_the_same(
    workload: AgentWorkload, runs: dict[str, Played]
) -> None:
    plain, ours = runs["plain"], runs["headstay"]
    assert len(ours.asked) == len(workload.calls)
    assert max(one.prompt for one in (*plain.asked, *ours.asked)) < CONTEXT
    assert ours.kept.answers[:PLAIN] == plain.kept.answers


def test_headstay_reads_what_an_ideal_layout_reads_and_the_application_a_part_of_it(
    runs: dict[str, Played], best: list[int], block: int, capsys: pytest.CaptureFixture[str]
) -> None:
    reads = {name: [one.read for one in played.asked] for name, played in runs.items()}
    found = {name: desk.share(read, best[: len(read)]) for name, read in reads.items()}
    with capsys.disabled():
        print(f"\n{len(best)} calls, {sum(best)} tokens readable; shares read: {found}")
    assert {read % block for all_reads in reads.values() for read in all_reads} == {0}
    assert found["headstay"] >= 0.98
    assert found["plain"] <= 0.5


def test_tenants_share_nothing_and_a_tenants_agents_one_salt(workload: AgentWorkload, runs: dict[str, Played]) -> None:
    salts = {
        (call.tenant, one.body["cache_salt"]) for call, one in zip(workload.calls, runs["headstay"].asked, strict=True)
    }
    assert len(salts) == len({salt for _, salt in salts}) == 2


def test_the_ledger_calls_no_read_of_the_engines_short(
    workload: AgentWorkload, runs: dict[str, Played], best: list[int]
) -> None:
    rows = runs["headstay"].kept.rows
    assert Counter(row.unverified or row.status for row in rows) == {"cold": 4, "ok": len(workload.calls) - 4}
    assert {found.owner for row in rows for found in row.breaks} == {"application"}
