"""One line of the ledger, and sums over lines."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from headstay.causes import Break, Cause, Owner
from headstay.ledger.usage import Usage
from headstay.ledger.verdict import Status, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model call. Holds hashes, counts and names; prompt text in `breaks` is removed.

    Args:
        ts: Start of the request, Unix seconds.
        lane: Hash of the lane, hex.
        head: Hash of the head as sent, hex.
        epoch: Which life of the head this conversation is in, from 0.
        conversation: Hash of the conversation.
        tenant: Tenant name as the application gave it.
        name: Agent or model name as the application gave it.
        provider: Provider, such as `anthropic`.
        wire: `anthropic-messages`, `openai-chat` or `openai-responses`.
        model: Model name as sent.
        expected_read: Tokens that should have been read from the cache; None when unknown.
        input_tokens: Whole prompt, reads and writes included; None when the provider reported no usage.
        cache_read_tokens: Read from the cache.
        cache_write_tokens: Written to the cache.
        write_by_ttl: Writes by TTL, as far as known.
        output_tokens: Generated.
        status: Verdict status.
        cause: Verdict cause code.
        owner: Verdict owner.
        breaks: Known changes of the prefix in this call, without the text before and after.
        diagnosis: The provider's own word for a cache miss, such as `tools_changed`; only with `verify="provider"`.
        diagnosis_tokens: Tokens that the provider says were missed for that.
        price_context: Variant of the call that changes its price, such as `{"service_tier": "flex"}`.
        time_to_first_token_s: Seconds to the first streamed event.
        duration_s: Seconds to the end of the reply.
        cost_usd: US dollars; None is priced when read (see `headstay.ledger.price`).
        price_date: Date of the price data behind `cost_usd`.
        error: Class name of the exception that ended the call.
        unverified: Why the call could not be verified.
        note: Anything else worth a line. Never prompt text.
    """

    ts: float
    lane: str = ""
    head: str = ""
    epoch: int = 0
    conversation: str = ""
    tenant: str | None = None
    name: str | None = None
    provider: str = ""
    wire: str = ""
    model: str = ""
    expected_read: int | None = None
    input_tokens: int | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    write_by_ttl: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    output_tokens: int = 0
    status: Status = "unverified"
    cause: str | None = None
    owner: Owner | None = None
    breaks: tuple[Break, ...] = ()
    diagnosis: str | None = None
    diagnosis_tokens: int | None = None
    price_context: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    time_to_first_token_s: float | None = None
    duration_s: float | None = None
    cost_usd: float | None = None
    price_date: str | None = None
    error: str | None = None
    unverified: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        if self.breaks:
            object.__setattr__(self, "breaks", tuple(replace(one, before="", after="") for one in self.breaks))

    @property
    def usage(self) -> Usage | None:
        """The token counts as one value; None when the provider reported none."""
        if self.input_tokens is None:
            return None
        return Usage(
            input_tokens=self.input_tokens,
            cache_read_tokens=self.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens,
            write_by_ttl=self.write_by_ttl,
            output_tokens=self.output_tokens,
        )

    def with_usage(self, usage: Usage) -> "Row":
        """A copy that carries these token counts."""
        return replace(
            self,
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            write_by_ttl=usage.write_by_ttl,
            output_tokens=usage.output_tokens,
        )

    def with_verdict(self, verdict: Verdict) -> "Row":
        """A copy that carries this verdict."""
        return replace(
            self,
            expected_read=verdict.expected,
            status=verdict.status,
            cause=verdict.cause and verdict.cause.value,
            owner=verdict.owner,
            unverified=verdict.reason,
        )


COLUMNS = tuple(column.name for column in fields(Row))


def to_record(row: Row) -> tuple[object, ...]:
    """The row as values for a database, in the order of `COLUMNS`; structured fields become JSON or None."""
    values = {name: getattr(row, name) for name in COLUMNS}
    values["write_by_ttl"] = _json(dict(row.write_by_ttl))
    values["price_context"] = _json(dict(row.price_context))
    values["breaks"] = _json([_break_fields(one) for one in row.breaks])
    return tuple(values.values())


def from_record(values: Sequence[Any]) -> Row:
    """The inverse of `to_record`."""
    named = dict(zip(COLUMNS, values, strict=True))
    named["write_by_ttl"] = json.loads(named["write_by_ttl"] or "{}")
    named["price_context"] = json.loads(named["price_context"] or "{}")
    named["breaks"] = tuple(_break_of(one) for one in json.loads(named["breaks"] or "[]"))
    return Row(**named)


def _break_fields(one: Break) -> dict[str, Any]:
    return {"cause": one.cause, "owner": one.owner, "path": one.path, "remedy": one.remedy, "at": one.at}


def _break_of(values: dict[str, Any]) -> Break:
    """A stored break. A code that this version no longer has reads as `unknown`."""
    values["cause"] = Cause(values["cause"]) if values["cause"] in set(Cause) else Cause.UNKNOWN
    return Break(**values)


def _json(value: dict[str, Any] | list[dict[str, Any]]) -> str | None:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")) if value else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over rows.

    Args:
        calls: All rows.
        by_status: Rows by verdict status.
        errors: Rows that ended in an exception.
        input_tokens: Prompt tokens, reads and writes included.
        cache_read_tokens: Tokens read.
        cache_write_tokens: Tokens written.
        output_tokens: Tokens generated.
        expected_read: Tokens that should have been read, over the verified rows.
        matched_read: Of those, the tokens that were read: the sum of the smaller of the two.
        missing_by_cause: Tokens that rows judged short lack, by cause code.
        cost_usd: US dollars of the rows that have a price.
        unpriced: Rows with token counts but no price.
        dropped: Rows that were lost: refused by the database or pushed out of a full memory.
    """

    calls: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    errors: int = 0
    input_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    expected_read: int = 0
    matched_read: int = 0
    missing_by_cause: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    cost_usd: float = 0.0
    unpriced: int = 0
    dropped: int = 0

    @property
    def read_share(self) -> float | None:
        """Read tokens as a share of those that should have been read; None when none should have been."""
        return self.matched_read / self.expected_read if self.expected_read else None


def sum_up(rows: Iterable[Row], *, dropped: int = 0) -> Totals:
    """Add rows up. Costs are taken from the rows as they are; price them first."""
    count: Counter[str] = Counter()
    by_status: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    cost = 0.0
    for row in rows:
        by_status[row.status] += 1
        count["errors"] += row.error is not None
        count["unpriced"] += row.input_tokens is not None and row.cost_usd is None
        cost += row.cost_usd or 0.0
        for name in ("cache_read_tokens", "cache_write_tokens", "output_tokens"):
            count[name] += getattr(row, name)
        count["input_tokens"] += row.input_tokens or 0
        if row.status != "unverified" and row.expected_read is not None:
            count["expected_read"] += row.expected_read
            count["matched_read"] += min(row.cache_read_tokens, row.expected_read)
        if row.status == "short":
            missing[row.cause or "unknown"] += max(0, (row.expected_read or 0) - row.cache_read_tokens)
    return Totals(
        calls=by_status.total(),
        by_status=dict(by_status),
        missing_by_cause=dict(missing),
        cost_usd=cost,
        dropped=dropped,
        **count,
    )
