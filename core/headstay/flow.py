"""One call from the application's request to the ledger's row, without the host's part in the middle.

`prepare` takes the body as the host built it and returns what to send; `complete` takes what the provider reported.
Both are quick and synchronous, so sync and async hosts share them. Neither raises into the call: when anything goes
wrong inside, the application's own body goes out and the reason is recorded.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headstay.account import Judged, advice, bought, expected_reads, judged, row_of
from headstay.added import written
from headstay.call import Call
from headstay.canonical import digest, size_of
from headstay.conversation import Match, NotesHeld, breaks, held, is_unbound, match, of_examples, renewed, seek
from headstay.diagnosis import ASKED_WITH, ask, read_kept
from headstay.divergence import HeadForm
from headstay.errors import ConfigError, PrefixBreak
from headstay.headstore import CallRecord, HeadStore, LaneState
from headstay.instructions import word
from headstay.kept import Kept, keeps_notes, put_back
from headstay.late import Carried, Settled, by_message, carried, in_order, lost_tool, settle
from headstay.layout import BYTES_PER_TOKEN, Lane, Plan, arrange, lane_of, upto
from headstay.learning import remember
from headstay.ledger.record import Ledger
from headstay.ledger.row import Row
from headstay.ledger.usage import Usage
from headstay.masking import bounded
from headstay.prompt import Prompt, Wire
from headstay.providers.anthropic import bind_thinking
from headstay.providers.rules import RULES, CacheRules, find_rules
from headstay.providers.vllm import Engine
from headstay.traffic import Traffic
from headstay.values import Declared, extract, per_call_lines
from headstay.verify import verify
from headstay.weave import weave
from headstay.wires import parse, render

OnBreak = Literal["warn", "raise", "record"]
Verify = Literal["off", "local", "provider"]
LateTools = Literal["auto", "list"]

_SAID_AT_MOST = 4_096
_CAREFUL = {
    True: "markers are placed as for the strictest model of this wire",
    False: "values go behind the head, but no marker or cache key is sent and its cache is not judged",
}
_log = logging.getLogger("headstay")


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for every call of one model.

    Attributes:
        agent: Name of the agent or chain; part of the lane.
        declared: Templates and slots of the system text.
        ttl: Name of the time to live, or None for the provider's default.
        on_break: "warn" logs each break once with its remedy, "raise" is for tests and raises those that the
            application made, "record" only records.
        verify: "local" reads every rendered request back before it is sent, "off" does not; "provider" also asks the
            API to reject a changed prefix, where it binds thinking to the history, and to say why a prefix was not
            read, where it has that.
        union: Whether tools that a call does not offer stay declared; only for a host that refuses their calls.
        late_tools: Where the tools of a running conversation stay declared, a late one is appended to it where the
            model has that ("auto"), or goes to the end of the list ("list").
    """

    agent: str = ""
    declared: Declared = Declared()
    ttl: str | None = None
    on_break: OnBreak = "warn"
    verify: Verify = "local"
    union: bool = False
    late_tools: LateTools = "auto"

    def check(self, rules: CacheRules, model: str) -> None:
        """Refuse settings that cannot work for a model.

        Raises:
            ConfigError: An unknown TTL, `on_break` or `verify`; the message lists the valid ones.
        """
        if self.ttl is not None and self.ttl not in rules.ttls:
            valid = ", ".join(f'"{name}"' for name in rules.ttls) or "none: leave ttl= out"
            raise ConfigError(f"ttl={self.ttl!r} is not offered for {model or 'this model'}; valid: {valid}")
        self.check_words()

    def check_words(self) -> None:
        """Refuse settings that cannot work for any model.

        Raises:
            ConfigError: The message lists the valid ones.
        """
        offered = dict.fromkeys(name for rules in RULES for name in rules.ttls)
        if self.ttl is not None and self.ttl not in offered:
            valid = ", ".join(f'"{name}"' for name in offered)
            raise ConfigError(f"ttl={self.ttl!r} is offered for no model; valid: {valid}, each for some")
        if self.on_break not in ("warn", "raise", "record"):
            raise ConfigError(f'on_break={self.on_break!r}: say "warn", "raise" or "record"')
        if self.verify not in ("off", "local", "provider"):
            raise ConfigError(f'verify={self.verify!r}: say "off", "local" or "provider"')
        if self.late_tools not in ("auto", "list"):
            raise ConfigError(f'late_tools={self.late_tools!r}: say "auto" or "list"')


class Flow:
    """Prepares and completes the calls of one model.

    Args:
        settings: What holds for every call.
        head_store: Where lanes, heads and conversations are kept.
        ledger: Where every call leaves a row.
    """

    def __init__(
        self, settings: Settings, *, head_store: HeadStore | None = None, ledger: Ledger | None = None
    ) -> None:
        _demand("head_store", head_store, HeadStore)
        _demand("ledger", ledger, Ledger)
        self.settings = settings
        self.head_store = head_store if head_store is not None else HeadStore()
        self.ledger = ledger if ledger is not None else Ledger()
        self._per_call = per_call_lines(settings.declared)
        self._said: set[str] = set()
        self.traffic = Traffic()
        self._refused: set[Wire] = set()

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by settings and stores."""
        return _again, (self.settings, self.head_store, self.ledger)

    def prepare(
        self,
        body: Mapping[str, object],
        *,
        wire: Wire,
        endpoint: str = "",
        tenant: str | None = None,
        thread: str = "",
        tail: str = "",
        replies: Sequence[object] = (),
        constant: frozenset[str] = frozenset(),
        diagnoses: bool = True,
        engine: Engine | None = None,
        now: float | None = None,
    ) -> Call:
        """Arrange one request.

        Args:
            body: As the host built it; it is not changed.
            wire: Its wire format.
            endpoint: The base URL it goes to.
            tenant: Whose call it is.
            thread: The host's thread id, or empty.
            tail: Per-call text for the human turn.
            replies: For each assistant message of the body, what the host kept on it under "headstay".
            constant: System blocks that are constant whatever stands in them: pinned examples.
            diagnoses: Whether whoever takes the request may know the provider's request for a diagnosis; other clouds
                that run the same models do not.
            engine: What is known of the server that it goes to, if that is vLLM.
            now: Seconds since the epoch; the machine's clock by default.

        Returns:
            The call; `body` is what to send.

        Raises:
            PrefixBreak: Only with `on_break="raise"`.
        """
        started = time.time() if now is None else now
        try:
            call = self._prepare(body, wire, endpoint, tenant, thread, tail, replies, constant, engine, started)
            if diagnoses and self.settings.verify == "provider":
                self._ask(call)
            if engine is not None:
                self._locate(call, engine, thread)
        except Exception as problem:  # noqa: BLE001 - I8: the application's own request goes out
            reason = f"{type(problem).__name__}: {problem}"
            return self.passed(body, wire, reason, tenant=tenant, engine=engine, now=started)
        self._report(call)
        return call

    def passed(
        self,
        body: Mapping[str, object],
        wire: Wire,
        reason: str,
        *,
        tenant: str | None = None,
        engine: Engine | None = None,
        now: float | None = None,
    ) -> Call:
        """Let a request go out as the application made it, and keep the reason.

        On a server of vLLM's it has the tenant's salt all the same: I9 comes before I8.
        """
        self.say(f"sent unchanged and unverified: {reason}")
        started = time.time() if now is None else now
        sent = dict(body) if engine is None else engine.with_salt(body, tenant)
        return Call(sent, wire, started, tenant, str(body.get("model", "")), unverified=reason)

    def unasked(
        self,
        body: Mapping[str, object],
        wire: Wire,
        problem: ConfigError,
        tenant: Callable[[], str | None],
        *,
        engine: Engine | None = None,
    ) -> Call:
        """Let a request go out as the application made it, whose callable did not say what it was asked.

        What the callable raised goes into the log and not into the ledger.

        Args:
            body: As the host built it.
            wire: Its wire format.
            problem: Which setting failed; its cause is what the callable raised.
            tenant: Asks for the tenant, and may raise ConfigError.
            engine: As in `prepare`.
        """
        words = f": {problem.__cause__}" if problem.__cause__ else ""
        self.say(f"sent unchanged and unverified: {problem}{words}")
        sent = dict(body) if engine is None else engine.kept_apart(body, tenant)
        return Call(sent, wire, time.time(), None, str(body.get("model", "")), unverified=str(problem))

    def abandon(self, call: Call) -> None:
        """Forget a call that was prepared only to be looked at."""
        call.done = True
        self.traffic.release(call)

    def complete(self, call: Call, usage: Usage | None, *, error: BaseException | None = None) -> None:
        """Account for one call; never raises.

        Args:
            call: As prepared.
            usage: What the provider reported, or None.
            error: The exception that ended the call, if one did.
        """
        if call.done:
            return
        call.done = True
        try:
            self._complete(call, usage, error)
        except Exception as problem:  # noqa: BLE001 - accounting never raises into the caller
            self.say(f"a call could not be accounted for: {type(problem).__name__}: {problem}")

    def _prepare(
        self,
        body: Mapping[str, object],
        wire: Wire,
        endpoint: str,
        tenant: str | None,
        thread: str,
        tail: str,
        replies: Sequence[object],
        constant: frozenset[str],
        engine: Engine | None,
        now: float,
    ) -> Call:
        declared = replace(self.settings.declared, constant=constant) if constant else self.settings.declared
        own = parse(body, wire)
        rules = find_rules(wire, own.model) if engine is None else engine.rules
        lane = lane_of(own, rules, tenant=tenant, endpoint=endpoint, agent=self.settings.agent)
        call = Call(dict(body), wire, now, tenant, own.model, rules, lane)
        held_there = next((name for name in ("previous_response_id", "conversation") if body.get(name)), None)
        if held_there:
            call.unverified = f"the history is held by the provider ({held_there})"
            return call
        store = self.head_store
        known = store.lane(lane.key)
        where = digest(thread).hex() if thread else ""
        seen = seek(store, lane, where, own.blocks)
        taken = extract(own.system, declared)
        before = carried(store, lane, seen, taken.head) if rules.in_place_system or rules.late_tools else None
        late = call.late = self._settle(own, rules, known, before)
        worded = word(own, taken, declared, before if rules.in_place_system else None)
        additions = in_order(before, late.additions if late else (), worded.additions)
        call.fresh = tuple(found for found in additions if before is None or found not in before.additions)
        added = by_message(own, additions)
        back = None
        if keeps_notes(own, rules):
            values = taken.values
            back = put_back(own, values, store, lane, replies=replies, thread=where, tail=tail, now=now, added=added)
            call.receipt = back.receipt.as_metadata() if back.receipt else None
        prompt = back.prompt if back else weave(own, {}, added) if added else own
        plan = arrange(
            prompt,
            lane,
            rules,
            now,
            declared=declared,
            taken=taken,
            head=worded.head,
            additions=additions,
            tools=late.frozen if late else known.tools,
            notes_kept=back is not None,
            note_blocks=back.added if back else 0,
            note_stays=back is not None and (back.bound or "thinking" in prompt.parameters),
            tail=tail,
            ttl=self.settings.ttl if self.settings.ttl in rules.ttls else None,
            bytes_per_token=known.bytes_per_token or BYTES_PER_TOKEN,
        )
        # a conversation is known by what the application says, without notes and additions
        plan = replace(plan, breaks=(*plan.breaks, *map(lost_tool, late.lost if late else ())))
        found = match(store, lane, seen, plan, own.blocks, prefer=before.record if before else None)
        stays = {**held(own, plan, rules), **NotesHeld.of(back).as_held()}
        fresh_note = renewed(found, plan, stays)
        if fresh_note is not None:  # what stands behind it would be written in vain
            plan = replace(plan, markers=upto(plan.markers, plan.loop), breaks=(*plan.breaks, fresh_note))
        rendered = render(body, prompt, plan, rules)
        if self.settings.verify != "off":
            problems = verify(parse(rendered, wire), plan, rules)
            if problems:
                return self.passed(body, wire, "; ".join(problems), tenant=tenant, engine=engine, now=now)
        call.body, call.plan, call.notices = rendered, plan, (*self._notices(call), *plan.notices)
        known_by = replace(plan, trail=seen.trail)
        alike = before is not None and before.shared
        unbound = self._place_in_conversation(call, own, known_by, rules, lane, known, where, found, stays, back, alike)
        call.breaks = of_examples(call.breaks, plan, constant)
        if rules.binds_thinking and prompt.has_thinking:
            if self.settings.verify == "provider":
                call.body = bind_thinking(call.body, "error", rules)
            elif unbound:  # the blocks from before a break no longer fit; that must not fail the call
                call.body = bind_thinking(call.body, "drop_block", rules)
        self.traffic.enter(call)
        return call

    def _ask(self, call: Call) -> None:
        """Ask for the provider's diagnosis, where the API has it and did not refuse it before."""
        if call.rules is None or call.lane is None or call.record is None or call.wire not in call.rules.diagnoses:
            return
        call.diagnosed = True
        if call.wire not in self._refused and (asking := ask(call.body, call.wire, call.earlier)) is not None:
            call.body, call.asked = asking, True

    @staticmethod
    def _locate(call: Call, engine: Engine, thread: str) -> None:
        """Keep tenants apart, and name the conversation and the head to the router of a fleet."""
        call.body = engine.with_salt(call.body, call.tenant)
        if call.lane is not None and call.record is not None and call.plan is not None:
            conversation = digest("conversation", call.lane.scope, thread or call.record.conversation).hex()
            head = digest("head", call.lane.key, call.plan.head_hash).hex()
            call.body = engine.with_session(call.body, conversation=conversation, head=head)

    def _notices(self, call: Call) -> tuple[str, ...]:
        """Say what does not suit the model, or the lane."""
        rules, ttl = call.rules, self.settings.ttl
        found = list(call.late.notices) if call.late else list[str]()
        if rules is not None and not rules.known:
            what = f"no cache rules for {call.model or 'this model'} on {call.wire}"
            found.append(f"{what}: {_CAREFUL[bool(rules.max_markers)]}")
        if rules is not None and ttl is not None and ttl not in rules.ttls:
            valid = ", ".join(f'"{name}"' for name in rules.ttls) or "none"
            found.append(f"ttl={ttl!r} is not offered for {call.model}; its default is used; valid: {valid}")
        return tuple(found)

    def _settle(self, prompt: Prompt, rules: CacheRules, known: LaneState, before: Carried | None) -> Settled | None:
        """Decide where each tool stands; None for a host that does not refuse the calls of masked ones."""
        if not self.settings.union or not rules.known:
            return None
        native = self.settings.late_tools == "auto" and prompt.wire in rules.late_tools
        system_bytes = sum(map(size_of, prompt.system))
        settled = settle(prompt, known.tools, before if native else None, native=native)
        frozen, said = bounded(settled.frozen, system_bytes)
        if frozen.appended and all(tool.deferred for tool in frozen.tools):  # a list must hold a tool that is not
            settled = settle(prompt, known.tools, None, native=False)
            frozen, said = bounded(settled.frozen, system_bytes)
        return replace(settled, frozen=frozen, notices=said)

    def _place_in_conversation(
        self,
        call: Call,
        prompt: Prompt,
        plan: Plan,
        rules: CacheRules,
        lane: Lane,
        known: LaneState,
        thread: str,
        found: Match,
        stays: dict[str, str],
        back: Kept | None,
        alike: bool,
    ) -> bool:
        """Say whether thinking blocks in the history may come from before a break."""
        store = self.head_store
        form = HeadForm(plan.head, dict(zip((tool.name for tool in plan.tools), plan.tool_forms, strict=True)))
        notes = NotesHeld.of(back)
        call.form, call.breaks = (
            form,
            breaks(
                store,
                lane,
                found,
                plan,
                form,
                stays,
                notes=notes,
                per_call=self._per_call,
                replaced=call.late.replaced if call.late else None,
            ),
        )
        head = store.head(lane.key, plan.head_hash)
        call.expected, call.gap = expected_reads(
            found, call.breaks, head, plan, rules, known.bytes_per_token, call.started, stays
        )
        before = found.record
        ours = before is not None and found.age <= 1 and not call.breaks and not is_unbound(before)
        unbound = prompt.has_thinking and (alike or not ours)
        if unbound:
            stays["unbound"] = "yes"
        name = digest(lane.scope, thread or found.link, repr(call.started)).hex()[:16]
        call.record = CallRecord(
            scope=lane.scope,
            thread=thread,
            link=found.link,
            lane=lane.key,
            head=plan.head_hash,
            semi=digest(plan.semi_static),
            model=lane.model,
            trail=plan.trail if thread else b"",
            conversation=before.conversation if before else name,
            epoch=before.epoch + (1 if call.breaks else 0) if before else 0,
            turn=before.turn + (before.link != found.link) if before else 0,
            held=json.dumps(stays),
            cached=None,
            at=call.started,
            firm=before.firm if before is not None and plan.loop >= 0 else None,
            added=written(plan.additions),
        )
        call.earlier = read_kept(before.reply) if before else call.earlier
        call.opening = before is None
        call.cold = head is None or before is None
        return unbound

    def _complete(self, call: Call, usage: Usage | None, error: BaseException | None) -> None:
        usage = bought(call, usage)
        self.traffic.release(call)
        ttl = self.settings.ttl
        ratio = self.head_store.lane(call.lane.key).bytes_per_token if call.asked and call.lane else None
        judgement = judged(call, usage, ttl=ttl, bytes_per_token=ratio)
        # A provider keeps nothing of a request that it refused, so neither do we.
        if (error is None or call.first_token is not None) and call.unverified is None:
            remember(self.head_store, call, usage if error is None else None)
        self.ledger.append(row_of(call, usage, judgement, self.settings.agent, error))
        self._report_after(call, judgement, error)

    def _report_after(self, call: Call, judgement: Judged, error: BaseException | None) -> None:
        if call.asked and error is not None and any(name in str(error) for name in ASKED_WITH):
            self._refused.add(call.wire)
            self.say(
                f'verify="provider": a request for a diagnosis was refused ({type(error).__name__}): no more of them'
            )
        line = advice(call, judgement, ttl=self.settings.ttl, asks=call.diagnosed)
        if line is not None:
            self.say(line, kind=f"short: {judgement.verdict.cause}")

    def unseen(self, reason: str) -> None:
        """Leave a row for a call that went past us."""
        self.say(f"unverified: {reason}")
        self.ledger.append(Row(ts=time.time(), name=self.settings.agent or None, unverified=reason))

    def _report(self, call: Call) -> None:
        for notice in call.notices:
            self.say(notice)
        own = [found for found in call.breaks if found.owner == "application"]
        if own and self.settings.on_break == "raise":
            self.abandon(call)
            raise PrefixBreak("; ".join(f"{found.cause} at {found.path}: {found.remedy}" for found in own))
        for found in call.breaks:
            self.say(f"{found.cause} at {found.path} ({found.owner}): {found.remedy}")

    def say(self, line: str, *, kind: str = "") -> None:
        """Log a line once, whatever its numbers; with `on_break="record"` not at all.

        Args:
            line: What to say.
            kind: What it is about: of each kind one line is logged.
        """
        known = kind or re.sub(r"\[\d+\]", "[]", line)
        if self.settings.on_break == "record" or known in self._said or len(self._said) >= _SAID_AT_MOST:
            return
        self._said.add(known)
        _log.warning("%s%s", f"{self.settings.agent}: " if self.settings.agent else "", line)


def _demand(name: str, given: object, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        raise ConfigError(f"{name}={given!r}: give a {kind.__name__}, such as {kind.__name__}('file.db')")


def _again(settings: Settings, head_store: HeadStore, ledger: Ledger) -> Flow:
    return Flow(settings, head_store=head_store, ledger=ledger)
