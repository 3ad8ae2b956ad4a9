"""I7 to I9: the same bytes in any process, nothing lost to a fault inside, nothing shared between tenants or agents."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from headstay.errors import ConfigError, PrefixBreak
from headstay.flow import Flow, Settings
from headstay.headstore import HeadStore
from headstay.ledger import Ledger, Usage
from headstay.prompt import Wire
from headstay.providers.rules import find_rules
from headstay.slots import Slot, Template
from headstay.values import Declared

POLICY = "We keep to the policy, and say so. " * 200
SYSTEM = f"You serve Ada.\nIt is 2026-11-29T10:00:00Z.\n{POLICY}"
DECLARED = Declared((), (Slot(r"^You serve (?P<who>.+)\.$", every="conversation"),))
ANTHROPIC: dict[str, Any] = {
    "model": "claude-opus-5",
    "max_tokens": 9,
    "system": SYSTEM,
    "tools": [{"name": "b", "input_schema": {"type": "object"}}, {"name": "a", "input_schema": {"type": "object"}}],
    "messages": [{"role": "user", "content": "Hello!"}],
}
CHAT: dict[str, Any] = {
    "model": "gpt-5.6-terra",
    "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hello!"}],
}
RESPONSES: dict[str, Any] = {"model": "gpt-6.1-sol", "instructions": SYSTEM, "input": "Hello!"}
BODIES: list[tuple[Wire, dict[str, Any]]] = [
    ("anthropic-messages", ANTHROPIC),
    ("openai-chat", CHAT),
    ("openai-responses", RESPONSES),
]
SCRIPT = """
import json, sys
from tests.core.test_boundaries import BODIES, DECLARED, Flow, Settings
flow = Flow(Settings("desk", DECLARED, on_break="record"))
for wire, body in BODIES:
    call = flow.prepare(body, wire=wire, tenant="t", tail="found this", now=1.0)
    print(json.dumps(call.body), call.plan.head_hash.hex(), call.lane.key, call.record.link.hex(), call.record)
"""


def quiet(declared: Declared = DECLARED, **more: Any) -> Flow:
    return Flow(Settings("desk", declared, on_break="record"), **more)


def test_the_same_request_gives_the_same_bytes_in_any_process() -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), *(str(root / place) for place in ("core", "integrations"))])
    said = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            check=True,
            capture_output=True,
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "77")
    ]
    assert said[0].count(b"\n") == len(BODIES)
    assert said[1:] == said[:1] * 2


@pytest.mark.parametrize(("wire", "body"), BODIES)
def test_time_reaches_no_byte(wire: Wire, body: dict[str, Any]) -> None:
    early, late = (quiet().prepare(body, wire=wire, now=now) for now in (1.0, 2e9))
    assert early.body == late.body


def raises(*_: object) -> Iterable[tuple[int, int]]:
    raise LookupError("the application's own fault")


@pytest.mark.parametrize("wire", ["anthropic-messages", "openai-chat", "openai-responses", "host-messages"])
@pytest.mark.parametrize(
    "change",
    [
        {"messages": None, "input": None},
        {"messages": 3, "input": 3},
        {"messages": [None], "input": [None]},
        {"messages": ["hi"], "input": ["hi"]},
        {"messages": [{"role": "user", "content": 7}], "input": [{"role": "user", "content": 7}]},
        {"messages": [{"role": "user", "content": [7]}], "input": [{"role": "user", "content": [7]}]},
        {"tools": 3},
        {"tools": ["a"]},
        {"system": 7, "messages": 7, "input": 7},
        {"system": [3], "messages": [{"role": []}, 1], "input": [{"type": {}}, 1]},
        {"messages": {"role": "user"}, "input": {"role": "user"}},
        {"messages": [{"role": "user", "content": [{"type": {}, "text": 1}, 2]}], "input": [[]]},
    ],
)
def test_a_malformed_body_goes_out_as_it_is(wire: Wire, change: dict[str, Any]) -> None:
    body = {
        "model": "gpt-5.4",
        "system": SYSTEM,
        "messages": [{"role": "user", "content": "x"}],
        "input": "x",
        **change,
    }
    flow = quiet()
    call = flow.prepare(body, wire=wire, tail="found this", now=1.0)
    assert call.body == body
    assert call.unverified
    flow.complete(call, Usage(1_000))
    (row,) = flow.ledger.rows()
    assert (row.status, row.unverified) == ("unverified", call.unverified)


@pytest.mark.parametrize(("wire", "body"), BODIES)
def test_a_declaration_that_raises_leaves_the_request_alone(wire: Wire, body: dict[str, Any]) -> None:
    call = quiet(Declared((), (Slot(raises),))).prepare(body, wire=wire, now=1.0)
    assert call.body == body
    # The slot is named; what the application's own code said is not for the ledger.
    named = "Slot(raises, every='call') raised LookupError; it must give (start, end) pairs"
    assert call.unverified == f"ConfigError: {named}"


def close(store: HeadStore, path: Path) -> None:
    assert store._connection is not None  # the fault is injected underneath the store
    store._connection.close()


def garble(store: HeadStore, path: Path) -> None:
    for name in (path, Path(f"{path}-wal")):
        name.write_bytes(b"\x00not a database" * 999)


def drop(store: HeadStore, path: Path) -> None:
    store._run("DROP TABLE calls", ())


def lose(store: HeadStore, path: Path) -> None:
    store._run("UPDATE lanes SET tools = 'no JSON'", ())


@pytest.mark.parametrize("fault", [close, garble, drop, lose])
@pytest.mark.parametrize("in_file", [True, False])
def test_a_head_store_that_breaks_under_way_loses_no_call(
    fault: Callable[[HeadStore, Path], None], in_file: bool, tmp_path: Path
) -> None:
    path = tmp_path / "heads.db"
    store = HeadStore(path if in_file else None)
    flow = quiet(head_store=store)
    first = flow.prepare(ANTHROPIC, wire="anthropic-messages", thread="t", now=1.0)
    flow.complete(first, Usage(2_000, 0, 1_900))
    if not in_file:
        path.touch()
    fault(store, path)
    call = flow.prepare(ANTHROPIC, wire="anthropic-messages", thread="t", now=2.0)
    assert call.body in (ANTHROPIC, first.body)
    assert (call.unverified is None) == (call.body == first.body)
    flow.complete(call, Usage(2_000, 0, 1_900))
    assert len(list(flow.ledger.rows())) == 2


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9_000}}


@pytest.mark.parametrize(
    ("content", "tokens", "ratio"),
    [
        ("Hello!", 2_000, 3.6),  # 7,220 bytes or so of tools, system and message
        ([{"type": "text", "text": "Hello!"}, IMAGE], 3_500, None),  # bytes say nothing about an image's tokens
        ("Hello!", 100, None),  # too few to tell
        ("Hello!", 100_000, None),  # something else was counted
    ],
)
def test_what_a_token_takes_is_learnt_from_text(content: object, tokens: int, ratio: float | None) -> None:
    flow = quiet()
    body = {**ANTHROPIC, "messages": [{"role": "user", "content": content}]}
    call = flow.prepare(body, wire="anthropic-messages", now=1.0)
    flow.complete(call, Usage(tokens))
    assert call.lane is not None
    found = flow.head_store.lane(call.lane.key).bytes_per_token
    assert found == (None if ratio is None else pytest.approx(ratio, rel=0.02))


def test_accounting_never_raises() -> None:
    class Broken(Ledger):
        def append(self, row: object) -> None:
            raise OSError(row)

    flow = quiet(ledger=Broken())
    for usage in (None, Usage(2_000)):
        call = flow.prepare(ANTHROPIC, wire="anthropic-messages", now=1.0)
        flow.complete(call, usage, error=TimeoutError())
        flow.complete(call, usage)  # once is enough
        assert call.done


def test_only_on_break_raise_reaches_the_caller() -> None:
    flow = Flow(Settings("desk", Declared(), on_break="raise"))
    later = {**ANTHROPIC, "system": SYSTEM.replace("Ada", "Max")}
    flow.complete(flow.prepare(ANTHROPIC, wire="anthropic-messages", now=1.0), Usage(2_000))
    with pytest.raises(PrefixBreak, match=r'value_in_head at system\[0\]: Slot\(r"'):
        flow.prepare(later, wire="anthropic-messages", now=2.0)
    # a call that was never sent is no writer that others wait for
    assert flow.traffic.under_way == 0


@pytest.mark.parametrize("held", ["previous_response_id", "conversation"])
def test_a_history_that_the_provider_holds_is_unverified(held: str) -> None:
    call = quiet().prepare({**RESPONSES, held: "resp_1"}, wire="openai-responses", now=1.0)
    assert call.body == {**RESPONSES, held: "resp_1"}
    assert call.unverified == f"the history is held by the provider ({held})"
    assert quiet().prepare({**RESPONSES, held: None}, wire="openai-responses", now=1.0).unverified is None


def test_settings_that_cannot_work_are_refused() -> None:
    rules = find_rules("anthropic-messages", "claude-opus-5")
    Settings(ttl="1h").check(rules, "claude-opus-5")
    for settings, said in (
        (Settings(ttl="2h"), r"ttl='2h' is not offered for claude-opus-5; valid: \"5m\", \"1h\""),
        (Settings(on_break="stop"), "on_break='stop': say"),  # type: ignore[arg-type]  # the point
        (Settings(verify="always"), "verify='always': say"),  # type: ignore[arg-type]  # the point
    ):
        with pytest.raises(ConfigError, match=said):
            settings.check(rules, "claude-opus-5")


@pytest.mark.parametrize(("wire", "body"), BODIES)
@pytest.mark.parametrize("other", [("desk", "u"), ("sales", "t"), ("desk", None)])
def test_tenants_and_agents_share_nothing(wire: Wire, body: dict[str, Any], other: tuple[str, str | None]) -> None:
    store = HeadStore()
    flows = [Flow(Settings(agent, DECLARED, on_break="record"), head_store=store) for agent in ("desk", other[0])]
    one = flows[0].prepare(body, wire=wire, tenant="t", thread="x", now=1.0)
    flows[0].complete(one, Usage(5_000, 0, 4_000))
    two = flows[1].prepare(body, wire=wire, tenant=other[1], thread="x", now=2.0)
    flows[1].complete(two, Usage(5_000, 0, 4_000))
    assert one.lane is not None
    assert two.lane is not None
    assert one.record is not None
    assert two.record is not None
    assert one.lane.key != two.lane.key
    assert one.record.scope != two.record.scope
    assert one.record.conversation != two.record.conversation
    assert (two.opening, two.expected, two.writer_in_flight) == (True, 0, False)
    if wire != "anthropic-messages":
        assert one.body["prompt_cache_key"] != two.body["prompt_cache_key"]
    for table, place in (("lanes", "lane"), ("heads", "lane"), ("calls", "scope")):
        kept = [str(row[0]) for row in store._run(f"SELECT {place} FROM {table}", ())]
        keys = {str(getattr(call.lane, "key" if place == "lane" else "scope")) for call in (one, two)}
        assert set(kept) <= keys
        assert len(kept) == len(set(kept))


def test_one_tenants_tools_do_not_order_anothers() -> None:
    flow = quiet()
    first = {**ANTHROPIC, "tools": ANTHROPIC["tools"][:1]}
    flow.complete(flow.prepare(first, wire="anthropic-messages", tenant="t", now=1.0), None)
    mine = flow.prepare(ANTHROPIC, wire="anthropic-messages", tenant="t", now=2.0).plan
    theirs = flow.prepare(ANTHROPIC, wire="anthropic-messages", tenant="u", now=3.0).plan
    assert mine is not None
    assert theirs is not None
    assert [[tool.name for tool in plan.tools] for plan in (mine, theirs)] == [["b", "a"], ["a", "b"]]


def test_nothing_but_heads_and_hashes_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "heads.db"
    store = HeadStore(path)
    template = Template(("You serve ", ".\nIt is ", f".\n{POLICY}"), ("who", "when"))
    flow = Flow(Settings("desk", Declared((template,)), on_break="record"), head_store=store)
    body = {**ANTHROPIC, "messages": [{"role": "user", "content": "My secret word is xyzzy."}]}
    flow.complete(flow.prepare(body, wire="anthropic-messages", tenant="tenant-7", thread="thread-7", now=1.0), None)
    store.close()
    kept = path.read_bytes()
    assert b"We keep to the policy" in kept
    for word in (b"Ada", b"2026-11-29", b"xyzzy", b"tenant-7", b"thread-7"):
        assert word not in kept
    assert json.loads(json.dumps(body)) == body


def test_a_tool_that_the_provider_refused_is_not_learnt() -> None:
    flow = Flow(Settings("desk", union=True, on_break="record"))
    good = {"name": "good", "input_schema": {"type": "object"}}
    bad = {"name": "bad", "input_schema": {"type": "objekt"}}
    body: dict[str, Any] = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "Hi"}]}
    refused = flow.prepare({**body, "tools": [good, bad]}, wire="anthropic-messages", now=1.0)
    flow.complete(refused, None, error=ValueError("400"))
    again: Any = flow.prepare({**body, "tools": [good]}, wire="anthropic-messages", now=2.0).body
    assert [tool["name"] for tool in again["tools"]] == ["good"]


@pytest.mark.parametrize("given", [{"ledger": "calls.db"}, {"head_store": "heads.db"}])
def test_a_path_where_a_store_belongs_is_one_clear_error(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="such as"):
        Flow(Settings(), **given)
