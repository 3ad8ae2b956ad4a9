"""Which policy of the real vllm-router keeps heads local: two replicas, two heads, what vLLM says that it read."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from openai import OpenAI
from tests.local.conftest import Local
from tests.local.router_process import of_policy, router_program, routing
from tests.local.tiny_model import ARGUMENTS, make_tiny_model

from headstay.local.client import Server, server_at
from headstay.local.home import Home
from headstay.local.warm import shared
from headstay.providers.vllm import Session
from langchain_headstay import CacheAwareChatModel
from langchain_headstay.chat_local import ChatLocal

CONVERSATIONS = 4  # of each head
TURNS = 3
HEADS = ("orders", "refunds")
Name = Callable[["Talk"], str | None]
Runs = dict[tuple[str, str], list["Sent"]]


@dataclass(frozen=True)
class Talk:
    """A conversation with an agent; in a run of its own every head is new."""

    run: str
    head: str
    number: int

    @property
    def system(self) -> str:
        rules = " ".join(f"Rule {number}: answer topic {number} briefly." for number in range(25))
        return f"In {self.run} you work on {self.head}. {rules}"

    def messages(self, turns: int) -> list[Any]:
        """Return what the request of a turn holds, counted from 1."""
        told: list[Any] = [{"role": "system", "content": self.system}]
        for turn in range(turns):
            told.append({"role": "user", "content": f"Question {turn} of customer {self.number}: how long is it?"})
            told.append({"role": "assistant", "content": "It takes about as long as it took the last time."})
        return told[:-1]


@dataclass(frozen=True)
class Sent:
    """A request and what became of it."""

    talk: Talk
    tokens: list[int]
    read: int
    replica: int


@dataclass(frozen=True)
class Fleet:
    """Two replicas of a tiny model."""

    program: Path
    replicas: tuple[Server, Server]
    block: int
    folder: Path

    def at(self, policy: str, run: str) -> Any:
        arguments = of_policy(policy, [replica.origin for replica in self.replicas])
        return routing(self.program, arguments, self.folder / f"{run}.log")

    def counted(self) -> list[int]:
        """Return the prompt tokens that each replica was asked for so far."""
        figures = [replica.figures() for replica in self.replicas]
        return [figure.queried_tokens for figure in figures if figure is not None]

    def place_of(self, prompt_tokens: int, before: list[int]) -> int:
        """Return which replica a request went to, which is answered already."""
        until = time.monotonic() + 10  # the counters follow the answer by a moment
        while sum(after := self.counted()) < sum(before) + prompt_tokens and time.monotonic() < until:
            time.sleep(0.005)
        grown = [end - start for start, end in zip(before, after, strict=True)]
        assert sorted(grown) == [0, prompt_tokens]
        return grown.index(prompt_tokens)

    def ask(self, client: OpenAI, talk: Talk, turns: int, session: str | None) -> Sent:
        before = self.counted()
        headers = {} if session is None else {"X-Session-ID": session}
        body: Any = {"model": "tiny", "messages": talk.messages(turns), "max_tokens": 1, "temperature": 0}
        usage = client.chat.completions.create(**body, extra_headers=headers).usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        tokens = self.replicas[0].tokens(body)
        assert tokens is not None
        assert len(tokens) == usage.prompt_tokens
        place = self.place_of(len(tokens), before)
        return Sent(talk, tokens, usage.prompt_tokens_details.cached_tokens or 0, place)

    def readable(self, tokens: list[int], earlier: list[Sent]) -> int:
        """Return how much can be read after some requests: whole blocks, and never the last token."""
        common = max((shared(tokens, one.tokens) for one in earlier), default=0)
        return min(common, len(tokens) - 1) // self.block * self.block


@pytest.fixture(scope="module")
def fleet(local: Local, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    tiny = make_tiny_model(local.home.weights, folder / "tiny")
    homes = [Local(Home(folder / name)) for name in ("one", "two")]
    for home in homes:
        home.home.path.mkdir()
        for name in ("env", "weights"):
            (home.home.path / name).symlink_to(local.home.path / name)
    more = [f"--arg={word}" for word in ARGUMENTS]

    def start(home: Local) -> Server:
        return server_at(
            home.json("serve", "--detach", "--model", str(tiny), "--context", "2048", "--kv-gib", "1", *more)[
                "base_url"
            ]
        )

    try:
        with ThreadPoolExecutor(2) as pool:
            one, two = pool.map(start, homes)
        figures = one.figures()
        assert figures is not None
        assert figures.block is not None
        yield Fleet(router_program(local.home.path / "router-env"), (one, two), figures.block, folder)
    finally:
        for home in homes:
            home.run("stop")


def run(fleet: Fleet, policy: str, name: Name, label: str) -> list[Sent]:
    """Have every conversation, turn by turn, in an order that is no pattern, and check what each request read."""
    talks = [Talk(label, head, number) for head in HEADS for number in range(CONVERSATIONS)]
    order = [(talk, turn) for turn in range(1, TURNS + 1) for talk in Random(turn).sample(talks, len(talks))]
    sent: list[Sent] = []
    with fleet.at(policy, label) as base_url, OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        for talk, turn in order:
            one = fleet.ask(client, talk, turn, name(talk))
            there = [other for other in sent if other.replica == one.replica]
            assert one.read == fleet.readable(one.tokens, there)  # where it went explains what was read, to the block
            sent.append(one)
    return sent


def head_tokens(fleet: Fleet, sent: list[Sent], head: str) -> int:
    """Return the whole blocks of a head: what the first requests of its conversations begin with."""
    one, other = [one.tokens for one in sent if one.talk.head == head][:2]
    return shared(one, other) // fleet.block * fleet.block


def times_computed(fleet: Fleet, sent: list[Sent], head: str) -> int:
    """Return how many requests found less than the whole head."""
    whole = head_tokens(fleet, sent, head)
    return sum(one.read < whole for one in sent if one.talk.head == head)


def places(sent: list[Sent], talk: Talk | None = None, head: str | None = None) -> set[int]:
    return {one.replica for one in sent if talk in (None, one.talk) and head in (None, one.talk.head)}


def share_of_heads(fleet: Fleet, sent: list[Sent]) -> float:
    """Return the share of the heads' readable tokens that were read: of every request but a head's first."""
    whole = {head: head_tokens(fleet, sent, head) for head in HEADS}
    first = sum(whole.values())
    return sum(min(one.read, whole[one.talk.head]) for one in sent) / (
        sum(whole[one.talk.head] for one in sent) - first
    )


def share_of_all(fleet: Fleet, sent: list[Sent]) -> float:
    """Return the share of what one replica that got every request could have read."""
    could = sum(fleet.readable(one.tokens, sent[:place]) for place, one in enumerate(sent))
    return sum(one.read for one in sent) / could


def by_conversation(talk: Talk) -> str:
    return f"{talk.run}/{talk.head}/{talk.number}"


def by_head(talk: Talk) -> str:
    return sha256(talk.system.encode()).hexdigest()[:16]


def nothing(talk: Talk) -> None:
    return None


RUNS: list[tuple[str, str, Name]] = [
    ("round_robin", "the conversation", by_conversation),
    ("consistent_hash", "the conversation", by_conversation),
    ("consistent_hash", "the head's hash", by_head),
    ("consistent_hash", "nothing", nothing),
    ("sticky_least_loaded", "the head's hash", by_head),
    ("cache_aware", "nothing", nothing),
]


def table(fleet: Fleet, runs: Runs) -> str:
    lines = [f"\n{'policy':20}{'X-Session-ID':18}{'heads read':>11}{'all read':>10}{'computed':>10}  requests"]
    for (policy, named), sent in runs.items():
        counts = " / ".join(str(sum(one.replica == place for one in sent)) for place in (0, 1))
        computed = "+".join(str(times_computed(fleet, sent, head)) for head in HEADS)
        shares = f"{share_of_heads(fleet, sent):>11.1%}{share_of_all(fleet, sent):>10.1%}"
        lines.append(f"{policy:20}{named:18}{shares}{computed:>10}  {counts}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def runs(fleet: Fleet, pytestconfig: pytest.Config) -> Runs:
    done = {
        (policy, named): run(fleet, policy, name, f"{policy}-{place}")
        for place, (policy, named, name) in enumerate(RUNS)
    }
    capture: Any = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(table(fleet, done))
    return done


def test_in_turn_every_replica_computes_every_head(fleet: Fleet, runs: Runs) -> None:
    sent = runs["round_robin", "the conversation"]
    assert all(one.replica != other.replica for one, other in pairwise(sent))
    assert [times_computed(fleet, sent, head) for head in HEADS] == [2, 2]
    assert share_of_heads(fleet, sent) < 1
    assert share_of_all(fleet, sent) < 0.95


@pytest.mark.parametrize("policy", ["consistent_hash", "sticky_least_loaded"])
def test_by_the_heads_hash_each_head_is_computed_once(fleet: Fleet, runs: Runs, policy: str) -> None:
    sent = runs[policy, "the head's hash"]
    assert [len(places(sent, head=head)) for head in HEADS] == [1, 1]
    assert [times_computed(fleet, sent, head) for head in HEADS] == [1, 1]
    assert share_of_heads(fleet, sent) == share_of_all(fleet, sent) == 1


def test_by_the_conversation_histories_stay_and_a_head_is_computed_wherever_one_went(fleet: Fleet, runs: Runs) -> None:
    sent = runs["consistent_hash", "the conversation"]
    assert all(len(places(sent, talk=one.talk)) == 1 for one in sent)
    assert [times_computed(fleet, sent, head) for head in HEADS] == [len(places(sent, head=head)) for head in HEADS]


def test_a_consistent_hash_of_nothing_sends_every_request_to_one_replica(runs: Runs) -> None:
    assert len(places(runs["consistent_hash", "nothing"])) == 1


def test_by_the_prompts_themselves_each_head_is_computed_once(fleet: Fleet, runs: Runs) -> None:
    sent = runs["cache_aware", "nothing"]
    assert [len(places(sent, head=head)) for head in HEADS] == [1, 1]
    assert [times_computed(fleet, sent, head) for head in HEADS] == [1, 1]


@pytest.mark.parametrize("session", ["head", "conversation"])
def test_the_name_that_headstay_sends_keeps_its_requests_together(fleet: Fleet, session: Session) -> None:
    """Two agents, three conversations with each, two turns; the system text begins with a clock that headstay moves."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    with fleet.at("consistent_hash", f"headstay-{session}") as base_url:
        bare = ChatLocal(base_url=base_url, model="tiny", block_size=fleet.block, session=session, max_tokens=1)
        agents = {head: CacheAwareChatModel(model=bare, name=head) for head in HEADS}
        histories: dict[tuple[str, int], list[Any]] = {(head, number): [] for head in HEADS for number in range(3)}
        for minute, ((head, number), history) in enumerate([*histories.items(), *histories.items()]):
            system = f"It is 2026-11-29T10:{minute:02}:00Z. {Talk(session, head, number).system}"
            history.append(HumanMessage(f"Question {len(history)} of customer {number}: how long is it?"))
            before = fleet.counted()
            reply = agents[head].invoke(
                [SystemMessage(system), *history], {"configurable": {"thread_id": f"{head}-{number}"}}
            )
            history.append(reply)
            usage: Any = reply.usage_metadata
            place = fleet.place_of(usage["input_tokens"], before)
            found.setdefault((head, number), []).append((place, usage["input_token_details"].get("cache_read", 0)))
    for head in HEADS:
        calls = [call for (agent, _), turns in found.items() if agent == head for call in turns]
        if session == "head":
            assert len({place for place, _ in calls}) == 1
        assert sum(read == 0 for _, read in calls) == len({place for place, _ in calls})
    for turns in found.values():
        assert len({place for place, _ in turns}) == 1
        assert turns[1][1] >= turns[0][1]


def test_a_tenants_salt_passes_the_router(fleet: Fleet) -> None:
    body: Any = {"model": "tiny", "messages": Talk("salts", "orders", 0).messages(1), "max_tokens": 1}

    def read(client: OpenAI, salt: str) -> int:
        usage: Any = client.chat.completions.create(
            **body, extra_headers={"X-Session-ID": "one"}, extra_body={"cache_salt": salt}
        ).usage
        return int(usage.prompt_tokens_details.cached_tokens)

    with fleet.at("consistent_hash", "salts") as base_url, OpenAI(base_url=base_url, api_key="none") as client:
        first, again, other = (read(client, salt) for salt in ("a", "a", "b"))
    assert (first, other) == (0, 0)
    assert again > 0
