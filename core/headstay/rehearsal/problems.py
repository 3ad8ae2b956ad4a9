"""What is said about a run that went wrong, and about one that went well but for something."""

from collections.abc import Sequence
from typing import cast

from headstay.emulator import Exchange
from headstay.rehearsal.child import Outcome
from headstay.rehearsal.failure import one_line
from headstay.rehearsal.models import offered, unknown
from headstay.rehearsal.process import Ended
from headstay.rehearsal.target import Target

SAME_DAY = (
    "both runs happen on the same day and their questions within a second, so a date or a clock in the prompt is not "
    "found; to have time pass between them: pip install time-machine"
)

_INSTEAD = "write a function without arguments that runs a short conversation, and name that one"
_LISTED = 5


def problem_of(ended: Ended, target: Target, sent: Sequence[Exchange]) -> str:
    """Say what went wrong in a run; empty where nothing did.

    Args:
        ended: How its process ended.
        target: What it ran.
        sent: What reached the emulator.
    """
    outcome = ended.outcome
    if isinstance(outcome, str):
        return f"{outcome}{_also(ended.refused)}"
    answered = any(exchange.status == 200 for exchange in sent)
    if sent and unknown(sent[-1]) and (outcome.problem or not answered):
        return _no_model(target, sent[-1])
    if outcome.problem:
        nothing = "; nothing had reached the emulator by then" if outcome.talking and not sent else ""
        return f"{outcome.problem}{nothing}{_also(ended.refused)}"
    if not sent:
        return _nothing_sent(outcome, target, ended.refused)
    if not answered:
        error = cast("dict[str, object]", sent[0].response.get("error") or {})
        said = one_line(str(error.get("message", "")))
        return f"the emulator refused every request of {target}; the first one with HTTP {sent[0].status}: {said}"
    return ""


def notices_of(runs: Sequence[Ended], target: Target, sent: Sequence[Exchange]) -> tuple[str, ...]:
    """Say what may be missing in the requests of runs that went well.

    Args:
        runs: How their processes ended.
        target: What they ran.
        sent: What reached the emulator.
    """
    refused = tuple(dict.fromkeys(host for run in runs for host in run.refused))
    models = tuple(dict.fromkeys(model for model in map(unknown, sent) if model))
    away = f"{target} was kept from {_listed(refused)}: what it gets from there is not in the requests"
    strange = f"the emulator does not have {_listed(models)}: what {target} asked of it was refused"
    return (*([away] if refused else []), *([strange] if models else []))


def _nothing_sent(outcome: Outcome, target: Target, refused: Sequence[str]) -> str:
    if outcome.returned:
        return (
            f"{target} returned something of type {outcome.returned}, which has none of invoke(), ainvoke(), "
            f"run(user_msg=...), chat() and query(); {_INSTEAD}{_also(refused)}"
        )
    if refused:
        return f"{target} ran, but nothing reached the emulator{_also(refused)}"
    return (
        f"{target} ran, but nothing reached the emulator: it asked no model, or one on this machine that its client "
        "has a base URL for; leave the base URL out, so that ANTHROPIC_BASE_URL or OPENAI_BASE_URL counts"
    )


def _no_model(target: Target, refused: Exchange) -> str:
    return (
        f"{target} asked for the model {one_line(unknown(refused))!r}, which the emulator does not have; "
        f"{offered(refused)}; take one of those for the rehearsal, or lint a log of real calls: headstay lint LOG"
    )


def _also(refused: Sequence[str]) -> str:
    """Say from which hosts a run was kept, and what to do; empty where there are none."""
    if not refused:
        return ""
    return (
        f"; only this machine can be reached, and it was kept from {_listed(refused)}: where that is a model, leave "
        "the base URL of its client out, or take it from ANTHROPIC_BASE_URL or OPENAI_BASE_URL; where it is a database "
        "or another service, name a function that puts a local stand-in in its place"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(one_line(name) for name in names[:_LISTED]) + more
