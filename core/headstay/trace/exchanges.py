"""What reached the emulator, as entries of a log."""

from collections.abc import Iterable, Iterator

from headstay.emulator import Exchange
from headstay.trace.answer import answer_of, price_context
from headstay.trace.entry import Entry, Skipped
from headstay.trace.fields import conversation_of


def entry_of(exchange: Exchange, line: int) -> Entry:
    """Return an exchange as an entry of a log.

    Args:
        exchange: One request and its answer. A failed one has no usage and no answer, and leaves nothing in a cache:
            leave it out, or use `entries`.
        line: Its number among all exchanges, from 1.
    """
    said = answer_of(exchange.response)
    return Entry(
        line=line,
        wire=exchange.wire,
        body=exchange.body,
        conversation=conversation_of({}, exchange.body, exchange.headers),
        account=exchange.workspace,
        served_by=said.served_by,
        started=exchange.started,
        answered=None if said.failed else exchange.first_event,
        usage=said.usage,
        reply_id=said.reply_id,
        reply=said.reply,
        diagnosis=said.diagnosis,
        context={**price_context(exchange.body), **said.context},
    )


def entries(exchanges: Iterable[Exchange]) -> Iterator[Entry | Skipped]:
    """Return exchanges as a log, numbered from 1; what failed is no request in it."""
    for line, exchange in enumerate(exchanges, 1):
        if exchange.status == 200 and "usage" in exchange.response:
            yield entry_of(exchange, line)
        else:
            yield Skipped(line, f"the call failed (HTTP {exchange.status})", bad=False)
