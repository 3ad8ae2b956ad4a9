"""What a call cost, by the price table of `genai-prices` and one overlay.

`genai-prices` keeps effective dates, so a call is priced at the rates of its own day even when that is done
much later. That is why the ledger stores tokens in the hot path and prices rows when they are read: the
library takes 0.2 to 1 s to import, which must not happen inside a model call.

Only tokens are priced. Fees per search or per request, batch discounts and the surcharge for inference in
one country are in the figure only if `context` asks for a variant that the table has.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

from headstay.ledger.row import Row
from headstay.ledger.usage import Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

# genai-prices 0.2.3 prices OpenAI's 12-hour writes like the 30-minute ones. 2.5 x input is the figure of
# LiteLLM 1.110.2's map; openai 3.57.0 reports such writes; no provider page states it (seen 2026-11-29).
OPENAI_12H_WRITE = 2.5
OVERLAY = "12h write 2.5x input from litellm 1.110.2"

_CHECKED = re.compile(
    r"(?:checked|verified|confirmed|observed|retrieved|accessed|as of)[^.;]{0,60}?(20\d\d-\d\d-\d\d)",
    re.IGNORECASE,
)
_log = logging.getLogger("headstay.ledger")


@dataclass(frozen=True, slots=True)
class Rates:
    """USD per million tokens of one model, for one prompt size and one moment.

    Args:
        input: Uncached prompt tokens.
        output: Generated tokens.
        read: Tokens read from the cache; equal to `input` where the model has no cache price.
        write: Tokens written, by TTL as the provider spells it. Empty where writing has no price of its own.
        default_ttl: The key of `write` that applies when the TTL is not known.
    """

    input: float
    output: float
    read: float
    write: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    default_ttl: str = ""

    def write_rate(self, ttl: str | None = None) -> float:
        """The price of writing for `ttl`: its own, else the default one, else the input price."""
        return self.write.get(ttl or self.default_ttl, self.write.get(self.default_ttl, self.input))

    def usd(self, usage: Usage) -> float:
        """The price of one reply in USD."""
        unsplit = usage.cache_write_tokens - sum(usage.write_by_ttl.values())
        written = sum(tokens * self.write_rate(ttl) for ttl, tokens in usage.write_by_ttl.items())
        return (
            usage.uncached_tokens * self.input
            + usage.cache_read_tokens * self.read
            + written
            + unsplit * self.write_rate()
            + usage.output_tokens * self.output
        ) / 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """The price of one reply.

    Args:
        usd: US dollars, or None when no price is known.
        as_of: Date of the price data (`YYYY-MM-DD`), or `""` when it names none.
        source: Where the price came from, with its version.
        reason: Why `usd` is None.
    """

    usd: float | None
    as_of: str
    source: str
    reason: str | None = None


def price(
    usage: Usage,
    *,
    provider: str,
    model: str,
    at: datetime | None = None,
    context: Mapping[str, str] | None = None,
) -> Cost:
    """Price one reply. Never raises: an unknown model or a broken table gives `usd=None` and a reason.

    Args:
        usage: The tokens of the reply.
        provider: A provider name as hosts and SDKs spell it: `anthropic`, `openai`, `bedrock`.
        model: The model name sent or returned.
        at: When the request was made (naive means UTC); None is now.
        context: Variant of the call: `service_tier` (`flex`, `priority`), `processing` (`batch`), `speed`.

    Returns:
        The cost with the date and version of the price data. Context tiers (such as 2x input above 272k
        prompt tokens on GPT-5.6 and later) follow from `usage.input_tokens`.
    """
    try:
        snapshot = _snapshot()
        as_of, source = _provenance(snapshot)
    except (ImportError, LookupError, AttributeError, TypeError, ValueError) as error:
        return Cost(None, "", "genai-prices", f"no price table: {type(error).__name__}: {error}")
    try:
        found = _rates(snapshot, provider, model, at=at, context=context, prompt_tokens=usage.input_tokens)
    except LookupError:
        return Cost(None, as_of, source, f"no price for model {model!r} of provider {provider!r}")
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        return Cost(None, as_of, source, f"price table not understood: {type(error).__name__}: {error}")
    overlaid = usage.write_by_ttl.get("12h") and "12h" in found.write
    return Cost(found.usd(usage), as_of, f"{source} + {OVERLAY}" if overlaid else source)


def rates(
    provider: str,
    model: str,
    *,
    at: datetime | None = None,
    context: Mapping[str, str] | None = None,
    prompt_tokens: int = 0,
) -> Rates | None:
    """The rates of a model, or None when the table does not have it.

    Args:
        provider: As for `price`.
        model: As for `price`.
        at: The moment asked about (naive means UTC); None is now.
        context: As for `price`.
        prompt_tokens: Size of the prompt, which chooses the context tier; 0 gives the base rates.
    """
    try:
        return _rates(_snapshot(), provider, model, at=at, context=context, prompt_tokens=prompt_tokens)
    except (ImportError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError):
        _log.debug("no rates for model %r of provider %r", model, provider, exc_info=True)
        return None


def price_source() -> tuple[str, str]:
    """The day of the price data (`YYYY-MM-DD`, or empty) and where they came from; never raises."""
    try:
        return _provenance(_snapshot())
    except (ImportError, LookupError, AttributeError, TypeError, ValueError) as error:
        return "", f"no price table: {type(error).__name__}: {error}"


def priced(row: Row) -> Row:
    """The row with `cost_usd` and `price_date` filled, at the rates of the day it was made.

    A row that has its cost, or that has no usage, comes back as it is.
    """
    usage = row.usage
    if row.cost_usd is not None or usage is None:
        return row
    cost = price(usage, provider=row.provider, model=row.model, at=moment(row.ts), context=row.price_context)
    return row if cost.usd is None else replace(row, cost_usd=cost.usd, price_date=cost.as_of)


def moment(ts: float | None) -> datetime | None:
    """A time in seconds since the epoch as a datetime in UTC; None for what is none."""
    try:
        return None if ts is None else datetime.fromtimestamp(ts, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _snapshot() -> "DataSnapshot":
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - costs up to 1 s, see the module docstring

    return get_snapshot()


def _provenance(snapshot: "DataSnapshot") -> tuple[str, str]:
    """Date and name of the data. Data fetched by the user's own `UpdatePrices` carries its download time."""
    from genai_prices import __version__  # noqa: PLC0415 - as in _snapshot

    source = f"genai-prices {__version__}"
    if snapshot.from_auto_update:
        return snapshot.timestamp.date().isoformat(), f"{source} (updated data)"
    return _newest_check(id(snapshot)), f"{source} (bundled data)"


@lru_cache(maxsize=4)
def _newest_check(snapshot_id: int) -> str:  # noqa: ARG001 - the key: data may be swapped while we run
    """The newest day on which the data says one of its prices was checked.

    The package carries no date of its own, so this is the latest day it can be shown to know about.
    """
    return max((day for text in _comments(_snapshot()) for day in _CHECKED.findall(text)), default="")


def _comments(snapshot: "DataSnapshot") -> Iterator[str]:
    for provider in snapshot.providers:
        yield provider.price_comments or ""
        for model in provider.models:
            yield model.price_comments or ""


def _rates(
    snapshot: "DataSnapshot",
    provider: str,
    model: str,
    *,
    at: datetime | None,
    context: Mapping[str, str] | None,
    prompt_tokens: int,
) -> Rates:
    _, info = snapshot.find_provider_model(model, None, provider, None)
    card = info.get_prices(at or datetime.now(UTC), context)
    plain = _at_size(card.input_mtok, prompt_tokens)
    if plain is None:
        raise LookupError(f"no token price for {model!r}")
    read = _at_size(card.cache_read_mtok, prompt_tokens)
    write, default_ttl = _write_rates(info, card, plain, prompt_tokens)
    return Rates(
        input=plain,
        output=_at_size(card.output_mtok, prompt_tokens) or 0.0,
        read=plain if read is None else read,
        write=write,
        default_ttl=default_ttl,
    )


def _write_rates(
    info: "ModelInfo", card: "ModelPrice", plain: float, prompt_tokens: int
) -> tuple[dict[str, float], str]:
    """Write prices by TTL. The table's unnamed one is Anthropic's 5 minutes and OpenAI's 30 minutes."""
    short = _at_size(card.cache_write_mtok, prompt_tokens)
    if short is None:
        return {}, ""
    if "gpt-" in info.id:
        return {"30m": short, "12h": OPENAI_12H_WRITE * plain}, "30m"
    default_ttl = "5m" if "claude" in info.id else "default"
    long = _at_size(card.cache_write_1h_mtok, prompt_tokens)
    return {default_ttl: short} | ({} if long is None else {"1h": long}), default_ttl


def _at_size(price_of: "Decimal | TieredPrices | None", prompt_tokens: int) -> float | None:
    """One rate at a prompt size: passing a tier's start moves every token to that tier's rate."""
    if price_of is None:
        return None
    if isinstance(price_of, Decimal):
        return float(price_of)
    rate = price_of.base
    for tier in price_of.tiers:
        if prompt_tokens > tier.start:
            rate = tier.price
    return float(rate)
