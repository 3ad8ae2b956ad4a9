"""A vLLM server in the flow: nothing it refuses, a salt per tenant, a name for routers, and how reads are judged."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstay.call import Call
from headstay.causes import Cause
from headstay.errors import ConfigError
from headstay.flow import Flow, Settings
from headstay.headstore import HeadStore
from headstay.ledger import Ledger
from headstay.ledger.price import price
from headstay.ledger.usage import Usage
from headstay.providers.vllm import Engine

POLICY = "We keep to the policy, and say so. " * 40  # 1,400 bytes, some 330 tokens
CPU = Engine(block=32)
KEY = b"a secret of 16 b"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("alpha", "bravo")
]


def said(*texts: str, system: str = POLICY) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    turns = [{"role": roles[place % 2], "content": text} for place, text in enumerate(texts)]
    return [{"role": "system", "content": system}, *turns]


class Desk:
    """One agent on one server."""

    def __init__(self, engine: Engine = CPU, **settings: Any) -> None:
        self.engine = engine
        self.ledger = Ledger()
        self.store = HeadStore()
        self.flow = Flow(Settings("desk", on_break="record", **settings), head_store=self.store, ledger=self.ledger)

    def prepare(
        self, messages: Any, *, tenant: str | None = None, thread: str = "", now: float = 1.0, **more: Any
    ) -> Call:
        body = {"model": "gpt-5.6-terra", "messages": messages, **more}
        return self.flow.prepare(
            body,
            wire="openai-chat",
            endpoint="http://127.0.0.1:8000/v1",
            tenant=tenant,
            thread=thread,
            engine=self.engine,
            now=now,
        )

    def ask(self, messages: Any, tokens: int, read: int, **more: Any) -> Call:
        call = self.prepare(messages, **more)
        self.flow.complete(call, Usage(input_tokens=tokens, cache_read_tokens=read))
        return call


def test_a_request_has_no_marker_no_cache_key_and_one_system_message_whatever_the_model_is_called() -> None:
    clock = "2026-11-29T10:00:00Z"
    call = Desk().prepare(said("Hello!", system=f"It is {clock}.\n{POLICY}"))
    assert call.body == {
        "model": "gpt-5.6-terra",
        "messages": [
            {"role": "system", "content": f"It is [[clock]].\n{POLICY}"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "Hello!"}, {"type": "text", "text": f"Now:\nclock: {clock}"}],
            },
        ],
        "extra_headers": call.body["extra_headers"],
    }
    assert call.lane is not None
    assert call.lane.provider == "vllm"


def test_where_the_template_takes_it_the_note_is_a_system_message() -> None:
    clock = "2026-11-29T10:00:00Z"
    sent: Any = Desk(Engine(in_place_system=True)).prepare(said("Hello!", system=f"It is {clock}.")).body["messages"]
    assert sent[1:] == [
        {"role": "user", "content": "Hello!"},
        {"role": "system", "content": f"Now:\nclock: {clock}"},
    ]


def test_a_tool_that_is_not_offered_stays_declared_and_tool_choice_names_no_list() -> None:
    """vLLM answers `allowed_tools` with 400: `tool_choice` must name a function (vllm 0.32.0, seen 2026-11-29)."""
    desk = Desk(union=True)
    for offered in (TOOLS, TOOLS[:1]):
        call = desk.ask(said("Hello!"), 400, 0, thread="one", tools=offered)
    assert (call.body["tools"], "tool_choice" in call.body) == (TOOLS, False)
    none = desk.prepare(said("Hello!"), thread="one", tools=[])
    assert none.body.get("tool_choice") in (None, "none")


def test_a_tenant_has_a_salt_of_its_own_and_without_tenants_there_is_none() -> None:
    desk = Desk()
    bodies = [desk.prepare(said("Hello!"), tenant=tenant).body for tenant in ("a", "b", "a", None)]
    salts: list[Any] = [dict(body.get("extra_body", {})).get("cache_salt") for body in bodies]
    assert salts[0] == salts[2] == CPU.salt("a")
    assert salts[1] == CPU.salt("b") != salts[0]
    assert salts[3] is None
    assert len(salts[0]) == 64  # 256 bits in hex


def test_the_applications_own_salt_and_fields_stay() -> None:
    desk = Desk()
    own = desk.prepare(said("Hello!"), tenant="a", extra_body={"cache_salt": "mine", "top_k": 5})
    assert own.body["extra_body"] == {"cache_salt": "mine", "top_k": 5}
    mixed = desk.prepare(said("Hello!"), tenant="a", extra_body={"top_k": 5})
    assert mixed.body["extra_body"] == {"top_k": 5, "cache_salt": CPU.salt("a")}


def test_a_request_that_cannot_be_planned_keeps_its_tenant_apart_all_the_same() -> None:
    call = Desk().prepare("no messages", tenant="a")
    assert call.unverified is not None
    assert call.body == {
        "model": "gpt-5.6-terra",
        "messages": "no messages",
        "extra_body": {"cache_salt": CPU.salt("a")},
    }


def test_a_key_of_any_length_will_do() -> None:
    keys = [b"k" * 64, b"k" * 65, b"k" * 1_000]
    assert len({Engine(salt_key=key).salt("a") for key in keys}) == 3


@pytest.mark.parametrize("empty", [None, ""])
def test_an_empty_salt_of_the_application_is_none(empty: Any) -> None:
    body = Desk().prepare(said("Hello!"), tenant="a", extra_body={"cache_salt": empty}).body
    assert body["extra_body"] == {"cache_salt": CPU.salt("a")}


@pytest.mark.parametrize("extra", [[], "x", 5])
def test_fields_of_a_form_that_the_sdk_refuses_do_not_raise_here(extra: Any) -> None:
    call = Desk().prepare(said("Hello!"), tenant="a", extra_body=extra)
    assert "extra_body" in call.body


@given(st.text(), st.text(), st.sampled_from([b"", KEY]))
def test_salts_are_equal_exactly_for_equal_tenants_and_keys(one: str, other: str, key: bytes) -> None:
    engine = Engine(salt_key=key)
    assert (engine.salt(one) == Engine(salt_key=key).salt(other)) == (one == other)
    assert engine.salt(one) != Engine(salt_key=b"another secret 16").salt(one)


def header(call: Call, name: str = "X-Session-ID") -> str:
    headers: Any = call.body.get("extra_headers") or {}
    return str(headers[name])


def test_a_conversation_keeps_its_session_and_another_has_another() -> None:
    desk = Desk()
    first = desk.ask(said("Hello!"), 400, 0)
    second = desk.ask(said("Hello!", "Hi.", "Where?"), 420, 384)
    other = desk.ask(said("Good day!"), 400, 320)
    assert header(first) == header(second) != header(other)


def test_a_thread_keeps_its_session_in_another_process() -> None:
    names = [header(Desk().prepare(said("Hello!"), thread=thread, now=now)) for thread, now in (("one", 1), ("one", 2))]
    assert names[0] == names[1] != header(Desk().prepare(said("Hello!"), thread="two"))
    assert names[0] != header(Desk().prepare(said("Hello!"), thread="one", tenant="a"))


def test_the_head_names_the_session_where_that_is_wanted() -> None:
    desk = Desk(Engine(session="head"))
    ends = [header(desk.prepare(said(text, system=system))) for text in ("a", "b") for system in (POLICY, "Other.")]
    assert ends[0] == ends[2] != ends[1] == ends[3]


def test_no_header_and_the_applications_own() -> None:
    assert "extra_headers" not in Desk(Engine(session_header=None)).prepare(said("Hello!")).body
    own = {"x-session-id": "mine"}
    assert Desk().prepare(said("Hello!"), extra_headers=own).body["extra_headers"] == own
    named = Desk(Engine(session_header="x-user-id")).prepare(said("Hello!"), extra_headers={"X-Trace": "1"})
    assert set(dict(named.body["extra_headers"])) == {"X-Trace", "x-user-id"}


@pytest.mark.parametrize(
    "field",
    [
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"extra_body": {"cache_salt": "s"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "low"},
        {"response_format": {"type": "json_object"}},  # hosts make the tools strict beside it
    ],
)
def test_what_changes_the_prompts_first_token_is_another_lane(field: dict[str, Any]) -> None:
    desk = Desk()
    plain, other = desk.prepare(said("Hello!")), desk.prepare(said("Hello!"), **field)
    assert plain.lane is not None
    assert other.lane is not None
    assert plain.lane.key != other.lane.key
    same = desk.prepare(said("Hello!"), tool_choice="auto", extra_body={"top_k": 5})
    assert same.lane is not None
    assert same.lane.key == plain.lane.key


def test_reads_are_expected_in_whole_blocks_and_judged_to_four_of_them() -> None:
    desk = Desk()
    desk.ask(said("Hello!"), 1_000, 0, thread="one", now=1.0)
    desk.ask(said("Hello!", "Hi.", "Where?"), 1_100, 992, thread="one", now=90_000.0)  # a day does not expire it
    desk.ask(said("Hello!", "Hi.", "Where?", "Here.", "Why?"), 1_200, 896, thread="one", now=90_001.0)
    rows = list(desk.ledger.rows())
    assert [(row.expected_read, row.status, row.cause) for row in rows] == [
        (0, "cold", None),
        (992, "ok", None),
        (1_088, "short", Cause.UNKNOWN),  # 192 tokens short, 128 are tolerated
    ]
    assert {row.provider for row in rows} == {"vllm"}


def test_a_prompt_shorter_than_a_block_is_below_the_minimum() -> None:
    desk = Desk(Engine(block=2_048))
    for now in (1.0, 2.0):
        desk.ask(said("Hello!"), 400, 0, now=now)
    assert [row.cause for row in desk.ledger.rows()] == [Cause.BELOW_MINIMUM, Cause.BELOW_MINIMUM]


def test_a_model_that_is_named_like_a_hosted_one_costs_nothing_that_is_known() -> None:
    cost = price(Usage(input_tokens=10), provider="vllm", model="gpt-5.6-terra")
    assert cost.usd is None
    assert cost.reason is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"block": 0},
        {"session": "thread"},
        {"salt_key": b"short"},
        {"session_header": "X A"},
        {"session_header": "Host"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Engine(**wrong)


def test_a_time_to_live_is_refused_as_the_server_has_none() -> None:
    with pytest.raises(ConfigError, match="none: leave ttl= out"):
        Settings(ttl="5m").check(CPU.rules, "small")


def looped(*tails: str) -> list[tuple[str, list[str]]]:
    """Play one turn with a tool loop; each step has its own `tail=`. Return status and breaks of each call."""
    desk = Desk()
    messages = said("Where is it?")
    tokens = 400
    for number, tail in enumerate(tails):
        # the first call ends with the human turn, at 600 tokens: so far it can be read whatever the note does
        reads = 0 if number == 0 else 576 if tail != tails[number - 1] else tokens // 32 * 32
        tokens += 200
        call = desk.flow.prepare(
            {"model": "small", "messages": messages},
            wire="openai-chat",
            thread="one",
            engine=CPU,
            tail=tail,
            now=number,
        )
        desk.flow.complete(call, Usage(input_tokens=tokens, cache_read_tokens=reads))
        calls = [{"id": f"c{number}", "type": "function", "function": {"name": "alpha", "arguments": "{}"}}]
        messages = [
            *messages,
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "a row of the table " * 30},
        ]
    return [(row.status, [f"{found.owner} {found.path}" for found in row.breaks]) for row in desk.ledger.rows()]


@pytest.mark.parametrize(
    ("tails", "named"),
    [(("", "", ""), ()), (("x", "x", "x"), ()), (("", "x", "x"), (1,)), (("x", "", ""), (1,)), (("", "", "x"), (2,))],
)
def test_a_note_that_comes_or_goes_in_a_tool_loop_is_named_and_never_blamed_on_the_server(
    tails: tuple[str, ...], named: tuple[int, ...]
) -> None:
    rows = looped(*tails)
    assert [status for status, _ in rows] == ["cold", "ok", "ok"]
    assert [place for place, (_, found) in enumerate(rows) if found] == list(named)
    assert all(found == ["policy messages[0]"] for _, found in rows if found)
