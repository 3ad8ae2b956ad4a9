"""The assertion that every request continues the one before it, and that the provider reads it so."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from headstay import Divergence, Finding
from headstay.causes import Cause
from headstay.diff_table import visible
from headstay.emulator import Exchange
from headstay.ledger.usage import Usage
from headstay.lint.follow import Step
from headstay.lint.reach import size
from headstay.lint.turn import Turn
from headstay.providers.rules import find_rules
from pytest_headstay.conversations import Conversation, PrefixRecorder, grouped

# Shares of a prompt are estimated from bytes, so a prompt that barely reaches the minimum is not counted.
_SLACK = 1.1


@dataclass(frozen=True, slots=True)
class Allowed:
    """A break that a test accepts; made by `allowed`."""

    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class _Checked:
    """A request against the one it should continue: what differs, and what was read of what could be."""

    before: Turn
    after: Turn
    divergence: Divergence
    findings: tuple[Finding, ...]
    read: int
    readable: int


def allowed(cause: str, *, reason: str = "") -> Allowed:
    """Accept one cause in `assert_prefix_stable(..., allow=[...])`.

    Args:
        cause: The cause code, as in the failure: `"tool_added"`.
        reason: Why it is accepted, for whoever reads the test.

    Raises:
        pytest.UsageError: The cause is not known, or the reason is empty.
    """
    if cause not in list(Cause):
        raise pytest.UsageError(f"allowed({cause!r}): no such cause code; the codes are {', '.join(Cause)}")
    if not reason.strip():
        raise pytest.UsageError(f'allowed("{cause}"): a reason is missing; write allowed("{cause}", reason="why")')
    return Allowed(Cause(cause), reason)


def assert_prefix_stable(
    recorder_or_exchanges: PrefixRecorder | Iterable[Exchange],
    *,
    min_read_share: float = 0.9,
    allow: Collection[Allowed] = (),
) -> None:
    """Fail when a request does not continue the one before it in its conversation.

    The first request of a conversation is held against an earlier conversation of the same agent: what they share must
    be long enough to be cached.

    Args:
        recorder_or_exchanges: The fixture `prefix_recorder`, or the `exchanges` of an emulator.
        min_read_share: The least share of the readable tokens that must be read, for each conversation, from 0 to 1.
            Readable is what the request before holds and this one repeats, where the model caches a prompt that long.
        allow: Causes that are accepted, made by `allowed`.

    Raises:
        AssertionError: It does not continue it, too little is read, or there were no two requests to compare. The
            message has cause, place, both sides and the remedy.
        pytest.UsageError: The share is not between 0 and 1, or `allow` holds something else.
    """
    __tracebackhide__ = True
    if not 0 <= min_read_share <= 1:
        raise pytest.UsageError(f"min_read_share={min_read_share}: give a share from 0 to 1, such as 0.9")
    given = recorder_or_exchanges
    exchanges = given.exchanges if isinstance(given, PrefixRecorder) else tuple(given)
    if not all(isinstance(one, Exchange) for one in cast("tuple[object, ...]", exchanges)):
        raise pytest.UsageError("assert_prefix_stable: give prefix_recorder, or the exchanges of an emulator")
    causes = _causes(allow)
    compared = [list(_steps(one, causes)) for one in grouped(exchanges)]
    if not any(compared):
        raise AssertionError(
            f"nothing to compare: {len(exchanges)} request(s) reached the emulator, and none continues another or "
            "shares a prompt long enough to be cached; ask at least twice, and let the client talk to the emulator"
        )
    told = [text for number, steps in enumerate(compared, 1) for text in _told(number, steps, min_read_share)]
    if told:
        raise AssertionError("\n".join(["the prompt prefix did not stay", *told]))


def _causes(allow: Collection[object]) -> frozenset[Cause]:
    causes = frozenset(one.cause for one in allow if isinstance(one, Allowed))
    if wrong := [one for one in allow if not isinstance(one, Allowed)]:
        raise pytest.UsageError(f'allow={wrong!r}: write allow=[allowed("tool_added", reason="why")]')
    return causes


def _steps(conversation: Conversation, allow: Collection[Cause]) -> Iterator[_Checked]:
    for step in conversation.steps:
        if step.before is None:
            continue
        if step.continues:
            yield _checked(step, step.before, allow)
            continue
        # Reads do not count: two conversations that start at once read nothing.
        found, before, after = step.divergence, step.before, step.turn
        if found.clean or found.shared_tokens >= find_rules(found.wire, after.request.model).min_tokens:
            yield _Checked(before, after, found, (), 0, 0)  # the head stays; what varies stands behind it
            continue
        checked = _checked(step, step.before, allow)
        if checked.readable or not checked.findings:
            yield _Checked(before, after, found, checked.findings, 0, 0)


def _checked(step: Step, before: Turn, allow: Collection[Cause]) -> _Checked:
    found = step.divergence
    findings = tuple(finding for finding in found.findings if finding.cause not in allow)
    readable = _readable(before, found.shared_tokens + (found.lost_tokens if findings else 0))
    return _Checked(before, step.turn, found, findings, min(_usage(step.turn).cache_read_tokens, readable), readable)


def _usage(turn: Turn) -> Usage:
    return turn.entry.usage or Usage()


def _readable(before: Turn, again: int) -> int:
    """Return the provider's tokens for the part of a request that comes again; `again` is an estimate from bytes."""
    tokens = int(_usage(before).input_tokens * min(1.0, again / max(1.0, size(before.request))))
    rules = find_rules(before.entry.wire, before.request.model)
    if tokens < _SLACK * rules.min_tokens:
        return 0
    return tokens if rules.step == 1 else (tokens // rules.step - 1) * rules.step  # one step for the estimate


def _told(number: int, steps: list[_Checked], least: float) -> Iterator[str]:
    for step in steps:
        if step.findings:
            yield _headline(number, step)
            yield from (_finding(place, finding) for place, finding in enumerate(step.findings, 1))
    read, readable = sum(step.read for step in steps), sum(step.readable for step in steps)
    if readable and read / readable < least:
        share = f"{read:,} of {readable:,} readable tokens ({read / readable:.0%})"
        yield f"\nconversation {number}: {share} were read, min_read_share={least:g}{_hint(steps)}"


def _headline(number: int, step: _Checked) -> str:
    found = step.divergence
    return (
        f"\nconversation {number}, request {step.after.number} after request {step.before.number} ({found.wire}, "
        f"{step.after.request.model}): about {found.shared_tokens:,} tokens shared, about {found.lost_tokens:,} paid "
        "for again"
    )


def _finding(place: int, finding: Finding) -> str:
    at = f", character {finding.at}" if finding.at else ""
    return "\n".join(
        (
            f"  {place}. {finding.cause} at {visible(finding.path or 'request')}{at} (~{finding.lost_tokens:,} tokens)",
            f"     before: {visible(finding.before) or '(nothing)'}",
            f"     after:  {visible(finding.after) or '(nothing)'}",
            f"     remedy: {visible(finding.remedy)}",
        )
    )


def _hint(steps: list[_Checked]) -> str:
    """Say why stable requests were not read, where that can be seen."""
    if any(step.findings for step in steps):
        return ""
    if steps[0].divergence.wire == "anthropic-messages" and not any(step.before.request.marks for step in steps):
        return "\n  the requests carry no cache_control marker: nothing is cached without one"
    pauses = [(step.after.entry.started or 0) - (step.before.entry.started or 0) for step in steps]
    return (
        f"\n  the requests are stable; the longest pause between two was {max(pauses):,.0f} s on the emulator's clock"
    )
