"""Invariants I1 to I4 and I6: whole conversations on every wire, judged from the request bodies alone.

The canonical form used here is written for these tests and shares no code with headstay's.
"""

import copy
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given, settings
from tests.core.conftest import IN_PLACE, Conversation, Json, Script, Variable, scripts

from headstay.flow import Call, Flow, Settings

# Fewest tokens of a cached prefix, by the providers' pages.
MINIMUM = {"claude-opus-5": 512, "claude-sonnet-4-6": 1024, "gpt-5.6-terra": 1024, "gpt-6.1-sol": 1024}
EXPLICIT = ("gpt-5.6-terra", "gpt-6.1-sol")
MARKS = ("cache_control", "prompt_cache_breakpoint")
DEEP = settings(max_examples=150)


def canonical(body: Json) -> list[tuple[str, str]]:
    """A request as a flat list of (who, what), markers left out, in the order the providers read it."""
    found = [("tool", plain(tool)) for tool in body.get("tools", [])]
    if "instructions" in body:
        found.append(("operator", plain({"text": body["instructions"]})))
    system = body.get("system", [])
    blocks = [{"text": system}] if isinstance(system, str) else system
    found += [("operator", plain({"text": block["text"]})) for block in blocks]
    for message in body["messages"] if "messages" in body else body["input"]:
        found += spoken(message)
    return found


def spoken(message: Json) -> Iterator[tuple[str, str]]:
    """One message or item as (who, what)."""
    role = message.get("role", message.get("type"))
    who = {"system": "operator", "developer": "operator"}.get(str(role), str(role))
    who += str(message.get("tool_call_id", message.get("call_id", "")))
    content = message.get("content", message.get("output"))
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
        is_text = block.get("type") in ("text", "input_text", "output_text")
        yield who, plain({"text": block["text"]} if is_text else block)
    rest = {key: value for key, value in message.items() if key not in ("role", "content", "output")}
    if rest.keys() - {"type", "tool_call_id", "call_id"}:
        yield who, plain(rest)


def plain(value: object) -> str:
    return json.dumps(without_marks(value), ensure_ascii=False)


def without_marks(value: object) -> object:
    """No application of these tests uses a marker's name for anything else."""
    if isinstance(value, dict):
        return {key: without_marks(item) for key, item in value.items() if key not in MARKS}
    return [without_marks(item) for item in value] if isinstance(value, list) else value


def note_of(talk: Conversation, body: Json) -> set[int]:
    """The places, in the canonical form, of what holds this call's own values."""
    passing = [value for name, value in talk.values.items() if name not in talk.lasting]
    sought = [json.dumps(value, ensure_ascii=False)[1:-1] for value in (*passing, talk.tail) if value]
    return {place for place, (_, what) in enumerate(canonical(body)) if any(value in what for value in sought)}


def lasting(talk: Conversation, body: Json) -> list[tuple[str, str]]:
    """The canonical form without the note."""
    note = note_of(talk, body)
    return [block for place, block in enumerate(canonical(body)) if place not in note]


def send(flow: Flow, talk: Conversation, body: Json, now: float) -> Call:
    """One call through the engine, answered."""
    before = copy.deepcopy(body)
    call = flow.prepare(body, wire=talk.script.wire, tail=talk.tail, now=now)
    assert call.unverified is None, call.unverified
    assert body == before  # the application's own objects are never changed
    flow.complete(call, None)
    return call


def flow_for(script: Script) -> Flow:
    return Flow(Settings(agent="desk", declared=script.declared(), on_break="record"))


@DEEP
@given(scripts())
def test_the_next_request_continues_this_one(script: Script) -> None:
    """I1 and I2: without its note, each request is a prefix of the next, and no message changes."""
    flow, talk = flow_for(script), Conversation(script, itertools.count())
    earlier: list[tuple[str, str]] = []
    pictured = [("<image>" in step.parts) for step in script.steps]
    for now, body in enumerate(talk.bodies()):
        call = send(flow, talk, body, float(now))
        # On Anthropic the first picture of a conversation drops the cached messages: the provider's doing.
        first_picture = script.wire == "anthropic-messages" and now and pictured[now] and not any(pictured[:now])
        named = [("provider", "messages")] * bool(first_picture)
        # Where a model takes no system message in place, the note is renewed at the human turn of a tool loop.
        if call.plan is not None and call.plan.loop >= 0:
            named += [(found.owner, found.path) for found in call.breaks if found.owner == "policy"]
        assert [(found.owner, found.path) for found in call.breaks] == named
        assert call.record is not None
        assert call.record.turn == now
        sent = lasting(talk, call.body)
        assert sent[: len(earlier)] == earlier
        note = note_of(talk, call.body)
        if note and not talk.tail and script.model in IN_PLACE:
            assert note == {len(canonical(call.body)) - 1}  # last of all
        earlier = sent


@DEEP
@given(scripts())
def test_messages_are_the_applications_own(script: Script) -> None:
    """Everything but the system text and the note reaches the provider as the application wrote it."""
    flow, talk = flow_for(script), Conversation(script, itertools.count())
    for now, body in enumerate(talk.bodies()):
        call = send(flow, talk, body, float(now))
        theirs = [block for block in canonical(body) if block[0] not in ("operator", "tool")]
        ours = [block for block in lasting(talk, call.body) if block[0] not in ("operator", "tool")]
        assert ours == theirs
        untouched = body.keys() - {"system", "messages", "input", "instructions", "tools", "cache_control"}
        assert {key: call.body[key] for key in untouched} == {key: body[key] for key in untouched}


@DEEP
@given(scripts())
def test_every_value_arrives_once_and_no_other_does(script: Script) -> None:
    """I3: this call's values once each; none of an earlier call's, none of another conversation's."""
    flow, serials = flow_for(script), itertools.count()
    talks = [Conversation(script, serials) for _ in range(2)]
    seen: dict[str, tuple[int, int]] = {}
    for now, bodies in enumerate(zip(*(talk.bodies() for talk in talks), strict=True)):
        for number, (talk, body) in enumerate(zip(talks, bodies, strict=True)):
            call = send(flow, talk, body, now + number / 2)
            current = {value: (number, -1 if name in talk.lasting else now) for name, value in talk.values.items()}
            current |= {talk.tail: (number, now)} if talk.tail else {}
            seen |= current
            text = "\n".join(json.loads(what).get("text", "") for _, what in canonical(call.body) if '"text"' in what)
            for value in seen:
                # The noise around the serial number may come again; the number does not.
                assert text.count(core(value)) == (value in current), value
            assert rebuilt(call) == script.system(talk.values)


def core(value: str) -> str:
    """The part of a value that is unique to it."""
    start = value.find("zq")
    return value[start : value.find("x", start) + 1] if start >= 0 else value


def rebuilt(call: Call) -> list[str]:
    """The application's system text, out of the head and the values."""
    assert call.plan is not None
    texts: list[str] = []
    for number, head in enumerate(call.plan.head):
        first = {value.name: value.text for value in call.plan.values}
        pieces = head.split("[[")
        text = pieces[0]
        for piece in pieces[1:]:
            name, _, rest = piece.partition("]]")
            text += first[name] + rest
        assert all(text[v.start : v.start + len(v.text)] == v.text for v in call.plan.values if v.block == number)
        texts.append(text)
    return texts


@DEEP
@given(scripts())
def test_authority_stays_where_it_is(script: Script) -> None:
    """I4: in user text stand clocks and ids only; what comes from `tail` never stands in a system role."""
    harmless = {v.name for v in script.variables if v.kind in ("clock", "id")}
    flow, talk = flow_for(script), Conversation(script, itertools.count())
    for now, body in enumerate(talk.bodies()):
        call = send(flow, talk, body, float(now))
        for who, what in canonical(call.body):
            assert not (talk.tail and talk.tail in what and who != "user")
            for name, value in talk.values.items():
                if core(value) in what:
                    assert who == "operator" or (who == "user" and name in harmless)


@DEEP
@given(scripts())
def test_operator_only_values_stay_with_the_operator_on_older_models(script: Script) -> None:
    """I4 where no system message may stand in place: the value stays in the system text, and the break is recorded."""
    private = Variable("limit", "text")
    blocks = ((*script.blocks[0], private, " is the limit."), *script.blocks[1:])
    script = replace(script, wire="anthropic-messages", model="claude-sonnet-4-6", blocks=blocks, noises=("n",))
    flow, talk = flow_for(script), Conversation(script, itertools.count())
    for now, body in enumerate(talk.bodies()):
        call = send(flow, talk, body, float(now))
        held = [who for who, what in canonical(call.body) if core(talk.values["limit"]) in what]
        assert held == ["operator"]
        assert ("value_in_head", "policy") in {(found.cause.value, found.owner) for found in call.breaks}


@DEEP
@given(scripts())
def test_markers_are_legal_on_the_wire(script: Script) -> None:
    """I6, by counting on the body that leaves."""
    flow, talk = flow_for(script), Conversation(script, itertools.count())
    for now, body in enumerate(talk.bodies()):
        sent = send(flow, talk, body, float(now)).body
        if script.wire == "anthropic-messages":
            check_anthropic(sent, MINIMUM[script.model])
        else:
            check_openai(sent, explicit=script.model in EXPLICIT)


def check_anthropic(body: Json, minimum: int) -> None:
    assert "cache_control" not in body
    system = body["system"] if isinstance(body["system"], list) else [{"text": body["system"]}]
    spoken = [
        block
        for message in body["messages"]
        for block in ([{"text": message["content"]}] if isinstance(message["content"], str) else message["content"])
    ]
    blocks = [*body["tools"], *system, *spoken]
    inner = [b for block in spoken if isinstance(block.get("content"), list) for b in block["content"]]
    assert not any("cache_control" in block for block in inner)
    marked = [index for index, block in enumerate(blocks) if "cache_control" in block]
    assert len(marked) <= 4
    lives = [blocks[index]["cache_control"].get("ttl", "5m") for index in marked]
    assert lives == sorted(lives)  # "1h" sorts before "5m"
    for index in marked:
        assert blocks[index].get("type") != "thinking"
        assert blocks[index].get("text", "x").strip()
        assert not blocks[index].get("defer_loading")
    if marked:  # 4 bytes a token is less than what headstay assumes, so a right marker passes with room to spare
        assert sum(len(plain(block).encode()) for block in blocks[: marked[0] + 1]) >= minimum * 4


def check_openai(body: Json, *, explicit: bool) -> None:
    items = body.get("messages", body.get("input"))
    assert items is not None
    marked = [
        (item.get("role", item.get("type")), part)
        for item in items
        for part in (item.get("content") or item.get("output") or ())
        if isinstance(part, dict) and "prompt_cache_breakpoint" in part
    ]
    assert json.dumps(body).count('"prompt_cache_breakpoint"') == len(marked) <= (4 if explicit else 0)
    assert all(who != "assistant" and part.get("text", "x").strip() for who, part in marked)
    assert ("prompt_cache_options" in body) == bool(marked)
    assert not marked or body["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_retention" not in body
    assert body["prompt_cache_key"].startswith("hs-")
    assert len(body["prompt_cache_key"]) <= 64
