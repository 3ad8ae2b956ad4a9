"""What tokens cost that were paid for again, at the prices of a named day."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time

from headstay.ledger.price import Rates, moment, price_source, rates
from headstay.lint.reach import Reach, size
from headstay.lint.turn import Turn

_TIERS_AT = 100_000  # prompt sizes are told apart this finely; the price table's own tiers begin at 200,000 and more


@dataclass(slots=True)
class Money:
    """Prices tokens.

    Args:
        on: The day whose prices count; None for each call's own day, or today where the log has no time.
    """

    on: date | None = None
    _known: dict[tuple[object, ...], Rates | None] = field(default_factory=dict[tuple[object, ...], "Rates | None"])

    def lost(self, turn: Turn, reach: Reach, tokens: int) -> float | None:
        """Return the US dollars that some tokens cost more than if they had been read from the cache.

        They were written anew where the request says so or its provider always writes, and else paid as plain input.

        Args:
            turn: The request that paid for them.
            reach: How far it could read.
            tokens: How many.

        Returns:
            None where the price table does not have the model.
        """
        found = self._rates(turn)
        if found is None:
            return None
        usage = turn.entry.usage
        marks = bool(turn.request.marks) or turn.request.wire != "anthropic-messages" or not turn.entry.exact
        written = float(marks) if usage is None else min(1.0, usage.cache_write_tokens / tokens) if tokens else 0.0
        paid = written * found.write_rate(reach.ttl) + (1 - written) * found.input
        return max(0.0, paid - found.read) * tokens / 1_000_000

    @property
    def source(self) -> tuple[str, str]:
        """The day of the price data and where they came from."""
        return price_source()

    def _rates(self, turn: Turn) -> Rates | None:
        entry, model = turn.entry, turn.request.model
        provider = entry.provider or ("anthropic" if entry.wire == "anthropic-messages" else "openai")
        sent = moment(entry.started)
        day = self.on or (sent.date() if sent else None)
        tokens = entry.usage.input_tokens if entry.usage else int(size(turn.request))
        prompt = tokens // _TIERS_AT
        key = (provider, model, day, tuple(sorted(entry.context.items())), prompt)
        if key not in self._known:
            self._known[key] = self._found(provider, model, day, entry.context, prompt * _TIERS_AT)
        return self._known[key]

    def _found(
        self, provider: str, model: str, day: date | None, context: Mapping[str, str], prompt: int
    ) -> Rates | None:
        at = None if day is None else datetime.combine(day, time(12), UTC)
        names = dict.fromkeys((provider, "anthropic" if "claude" in model else "openai"))
        found = (rates(name, model, at=at, context=context or None, prompt_tokens=prompt) for name in names)
        return next((one for one in found if one is not None), None)
